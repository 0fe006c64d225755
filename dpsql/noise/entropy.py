"""Uniform random numbers from the operating system, exact, and proved bounds of exp: what exact samplers are made of.

Every draw of a mechanism, and every salt that decides which rows of a unit are kept, comes from `random_bytes`. There is no seed,
and no generator whose state could be copied by a fork: nothing in the package reads one from outside.

**How large numbers get.** Counts, sums and noisy numbers are 64-bit integers. They are exact for up to ``MOST_ROWS`` = 2^46
rows: the largest exact numbers are sums of values of 16 bits, below 2^62, and noise passes 2^62 with a probability below
exp(-2^21) at the largest scale there is, 2^40. Products of counts with each other or with public numbers are Python integers.
Whoever had more rows would get numbers cut off at 2^62 before noise (``clamped``): cutting off moves two numbers no further
apart, so no sensitivity grows, and nothing fails.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpsql.numerics.arrays import IntArray

BoolArray = npt.NDArray[np.bool_]
WORDS: dict[int, type[np.unsignedinteger]] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}

MOST_ROWS = 1 << 46
LARGEST = 1 << 62
"""Exact numbers are cut off here, before they get noise."""


def clamped(values: Iterable[int]) -> IntArray:
    """Return integers of any size as 64-bit ones, cut off at +-2^62: see the head of this file.

    Examples
    --------
    >>> clamped([5, -(2**63), 2**200]).tolist() == [5, -(2**62), 2**62]
    True
    """
    return np.array([min(max(int(value), -LARGEST), LARGEST) for value in values], dtype=np.int64)


_source: Callable[[int], bytes] = os.urandom


def random_bytes(count: int) -> bytes:
    """Return uniform bytes from the operating system; never kept, so a fork cannot repeat them."""
    return _source(count)


def random_integer(bits: int) -> int:
    """Return a uniform integer in [0, 2^bits), ``bits`` a multiple of 8."""
    return int.from_bytes(random_bytes(bits // 8))


def integer_below(bound: int) -> int:
    """Return a uniform integer in [0, bound), of any size, by rejection: no modulo bias.

    Examples
    --------
    >>> integer_below(1), 0 <= integer_below(3**100) < 3**100
    (0, True)
    """
    bits = (bound - 1).bit_length()
    size = (bits + 7) // 8
    while True:
        drawn = int.from_bytes(random_bytes(size)) >> (8 * size - bits)
        if drawn < bound:
            return drawn


def fresh_salt() -> str:
    """Return a secret that decides which rows of a unit are kept: 128 bits in hexadecimal, forgotten after the reading."""
    return random_bytes(16).hex()


def random_words(count: int, bits: int = 64) -> npt.NDArray[np.unsignedinteger]:
    """Return uniform words."""
    return np.frombuffer(random_bytes(count * bits // 8), dtype=WORDS[bits])


def random_bits(count: int) -> BoolArray:
    """Return fair coin flips."""
    packed = np.frombuffer(random_bytes((count + 7) // 8), dtype=np.uint8)
    return np.unpackbits(packed, count=count).view(np.bool_)


def uniform_below(bound: int, count: int) -> IntArray:
    """Return uniform integers in [0, bound), bound < 2^63, by rejection: no modulo bias."""
    shift = np.uint64(64 - (bound - 1).bit_length()) if bound > 1 else np.uint64(63)
    result = np.zeros(count, dtype=np.int64)
    missing = np.arange(count if bound > 1 else 0)
    while missing.size:
        drawn = (random_words(missing.size) >> shift).astype(np.int64)
        good = drawn < bound
        result[missing[good]] = drawn[good]
        missing = missing[~good]
    return result


def exp_bounds(exponent: Fraction, precision: int) -> tuple[int, int]:
    """Return integers around 2^precision exp(-exponent), exponent > 0."""
    if exponent > precision:
        return 0, 1
    squarings = max(0, math.ceil(exponent).bit_length())
    guard = precision + squarings + 8
    reduced = exponent / 2**squarings  # at most 1: the terms fall, and the error is at most the first term left out
    n, d = reduced.numerator, reduced.denominator
    one = 1 << guard
    low, high = one, one
    term_low, term_high, k = one, one, 0
    while term_high > 1:
        k += 1
        term_low, term_high = term_low * n // (d * k), -(-term_high * n // (d * k))
        low, high = (low - term_high, high - term_low) if k % 2 else (low + term_low, high + term_high)
    low, high = low - term_high, high + term_high
    for _ in range(squarings):
        low, high = low * low >> guard, -(-high * high >> guard)
    drop = guard - precision
    return max(0, low >> drop), -(-high >> drop)
