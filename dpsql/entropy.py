"""Uniform random numbers from the operating system, exact, and proved bounds of exp: what exact samplers are made of.

There is no seed, and no generator whose state could be copied by a fork.
"""

from __future__ import annotations

import math
import os
from fractions import Fraction

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
WORDS: dict[int, type[np.unsignedinteger]] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def random_words(count: int, bits: int = 64) -> npt.NDArray[np.unsignedinteger]:
    """Return uniform words from the operating system; never kept, so a fork cannot repeat them."""
    return np.frombuffer(os.urandom(count * bits // 8), dtype=WORDS[bits])


def random_bits(count: int) -> BoolArray:
    """Return fair coin flips."""
    packed = np.frombuffer(os.urandom((count + 7) // 8), dtype=np.uint8)
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
