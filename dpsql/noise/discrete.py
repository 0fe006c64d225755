r"""Integer noise: discrete Laplace and discrete Gaussian, drawn exactly, from the operating system's entropy.

There is no seed, and no generator whose state could be copied by a fork: every block of draws reads fresh bytes from
`random_bytes`. No floating-point number takes part in a draw; the table entries are integers with proved bounds.

**Exact inversion with lazy bits** (`Table`). Let c_0 < c_1 < ... be the distribution function and U a uniform real
number, of which only the first 64 binary digits u are drawn. With C_i = floor(2^64 c_i): u < C_i means U < c_i, and u
> C_i means U > c_i. So the number of C_i below u is the answer, unless u equals some C_i; then (about once in 2^50
draws) more digits of U and of the c_i decide. The infinite tail is in there too: its entries all have C_i = 2^64 - 1,
which is such a case. The C_i come from interval arithmetic on Python integers; if the bounds do not settle a floor,
the precision is doubled.

**Discrete Laplace**, P(x) proportional to exp(-|x| / b): a geometric magnitude and a sign; "minus zero" is drawn
again. The digits of a geometric number in base 256 are independent, so large scales take one small table per digit.
**Discrete Gaussian**, P(x) proportional to exp(-x^2 / 2 sigma^2): up to sigma = 512 a table of magnitudes. Above, x =
m j + r for a power of two m: j from a table with weights exp(-(m j)^2 / 2 sigma^2), r uniform below m, accepted with
probability exp(-gamma), gamma = (2 m j r + r^2) / 2 sigma^2, which is decided by the alternating series of Canonne,
Kamath & Steinke (2020), Algorithm 1, in 64-bit integers.

Products fit: within the table m j < 9.5 sigma, and m <= sigma / 128, so the numerator of gamma is below 0.15 sigma^2;
with sigma^2 = p/q it is multiplied by q, so it stays below 0.15 p, and p < 2^61. Draws beyond the table use Python
integers.

A rejection sampler per draw (Canonne et al.) was the alternative: about 1 million draws a second in numpy, against 5
to 10 million here. The time a draw takes depends on its value, as it does there: who can time single draws is outside
the contract.

References
----------
Canonne, Kamath & Steinke (2020), arXiv:2004.00010. Karney (2016), arXiv:1303.6257, for sampling with lazy bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dpsql.errors import ArgumentError
from dpsql.noise.entropy import BoolArray, random_bits, random_integer, random_words, uniform_below
from dpsql.noise.inversion import Table, Weights
from dpsql.numerics.arrays import IntArray

MECHANISMS = ("gaussian", "laplace")
MAXIMUM_SIGMA = Fraction(2**25)
MAXIMUM_LAPLACE_SCALE = Fraction(2**40)

_GRID_BITS = 20
_BLOCK = 1 << 16
_DIGIT_BITS = 8
_DIRECT_LAPLACE = 1 << _DIGIT_BITS
_DIRECT_SIGMA = 512


def checked_mechanism(mechanism: object) -> str:
    """Return the name of a mechanism, or raise ArgumentError."""
    if mechanism not in MECHANISMS:
        raise ArgumentError("mechanism", mechanism, f"must be one of {', '.join(map(repr, MECHANISMS))}")
    return str(mechanism)


def checked_scale(argument: str, value: Fraction | float, maximum: Fraction | None = None) -> Fraction:
    """Return a positive finite scale as an exact fraction, or raise ArgumentError."""
    upto = "" if maximum is None else f", at most {int(maximum)}"
    expected = f"must be a positive finite number{upto}"
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        raise ArgumentError(argument, value, expected)
    try:
        exact = Fraction(value)
    except (ValueError, OverflowError):
        raise ArgumentError(argument, value, expected) from None
    if exact <= 0 or (maximum is not None and exact > maximum):
        raise ArgumentError(argument, value, expected)
    return exact


def scale_grid(scale: Fraction | float) -> Fraction:
    """Return the smallest number of 20 significant bits that is at least ``scale``.

    Noise scales are rounded up to this grid (by less than 2 parts in a million), and costs are computed from the
    rounded scale.

    Parameters
    ----------
    scale : Fraction or float, > 0

    Raises
    ------
    ArgumentError
        Not a positive finite number.

    Notes
    -----
    Privacy: rounds towards more noise. The grid keeps the numerator of sigma squared below 2^51 up to the largest
    sigma.

    Examples
    --------
    >>> scale_grid(0.1), float(scale_grid(56.43))
    (Fraction(838861, 8388608), 56.4300537109375)
    """
    exact = checked_scale("scale", scale)
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length() - _GRID_BITS
    step = Fraction(2) ** exponent
    while exact > step * 2**_GRID_BITS:
        step *= 2
    return math.ceil(exact / step) * step


@lru_cache(maxsize=64)
def _geometric_tables(scale: Fraction) -> tuple[Table, ...]:
    """Return one table per base-256 digit of a geometric number, the lowest first; the last one is unlimited."""
    tables = []
    while scale > _DIRECT_LAPLACE:
        tables.append(Table(Weights(1 / scale, cells=1 << _DIGIT_BITS)))
        scale /= 1 << _DIGIT_BITS
    return (*tables, Table(Weights(1 / scale)))


@lru_cache(maxsize=64)
def _gaussian_table(exponent: Fraction) -> Table:
    return Table(Weights(exponent, square=True))


def geometric(scale: Fraction, count: int) -> IntArray:
    """Return draws with P(x) proportional to exp(-x / scale), x >= 0."""
    result = np.zeros(count, dtype=np.int64)
    for position, table in enumerate(_geometric_tables(scale)):
        result += table.draw(count) << (_DIGIT_BITS * position)
    return result


def accepts(gamma: Fraction) -> bool:
    """Return True with probability exp(-gamma), gamma >= 0, in Python integers (Canonne et al., Algorithm 1)."""
    while gamma > 1:
        if not accepts(Fraction(1)):
            return False
        gamma -= 1
    k = 1
    while True:
        bound = gamma.denominator * k
        size = (bound.bit_length() + 7) // 8 + 8
        limit = (256**size // bound) * bound
        drawn = random_integer(8 * size)
        if drawn >= limit:  # rejected: keeps the remainder uniform
            continue
        if drawn % bound >= gamma.numerator:
            return k % 2 == 1
        k += 1


def _bernoulli_exp(numerators: IntArray, denominator: int) -> BoolArray:
    """Return True with probability exp(-numerator / denominator), each at most 1, by the alternating series."""
    accepted = np.ones(numerators.size, dtype=np.bool_)
    alive = np.flatnonzero(uniform_below(denominator, numerators.size) < numerators)
    k = 2
    while alive.size:
        # the series stops at k with probability 1 - gamma/k; an odd k accepts. Here the first k - 1 steps have gone on.
        accepted[alive] = k % 2 == 1
        goes_on = uniform_below(denominator, alive.size) < numerators[alive]
        goes_on &= uniform_below(k, alive.size) == 0
        alive = alive[goes_on]
        k += 1
    return accepted


def _large_gaussian(variance: Fraction, count: int) -> tuple[IntArray, BoolArray]:
    """Return candidates for the magnitude, sigma > 512, and which of them are accepted."""
    shift = (math.isqrt(math.floor(variance))).bit_length() - 1 - 7  # m = 2^shift, between sigma / 256 and sigma / 128
    table = _gaussian_table(Fraction(4**shift) / (2 * variance))
    j = table.draw(count)
    r = (random_words(count) >> np.uint64(64 - shift)).astype(np.int64)
    far = np.flatnonzero(j >= table.thresholds.size)
    near = j.copy()
    near[far] = 0
    numerators = ((near << (shift + 1)) + r) * r * variance.denominator
    accepted = _bernoulli_exp(numerators, 2 * variance.numerator)
    for position in far:  # once in 2^64 draws
        a, b = int(j[position]) << shift, int(r[position])
        accepted[position] = accepts(Fraction(2 * a * b + b * b) / (2 * variance))
    return (j << shift) + r, accepted


def _fill(size: int | tuple[int, ...], magnitudes: Callable[[int], tuple[IntArray, BoolArray]]) -> IntArray:
    """Return signed draws: accepted magnitudes with a fair sign, never minus zero; in blocks, to bound memory."""
    result = np.empty(size, dtype=np.int64)
    flat = result.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        missing = np.arange(block.size)
        while missing.size:
            values, accepted = magnitudes(missing.size)
            negative = random_bits(missing.size)
            good = accepted & ~(negative & (values == 0))
            signed = np.where(negative, -values, values)
            block[missing[good]] = signed[good]
            missing = missing[~good]
    return result


def _checked_size(size: int | tuple[int, ...]) -> int | tuple[int, ...]:
    lengths = size if isinstance(size, tuple) else (size,)
    for length in lengths:
        if isinstance(length, bool) or not isinstance(length, int | np.integer) or length < 0:
            raise ArgumentError("size", size, "must be a number of draws of at least 0, or a tuple of such numbers")
    return size


def discrete_laplace(scale: Fraction | float, size: int | tuple[int, ...]) -> IntArray:
    """Draw from P(x) proportional to exp(-|x| / scale) on the integers, exactly.

    Parameters
    ----------
    scale : Fraction or float
        b, above 0 and at most 2^40; a float counts as the exact fraction it is.
    size : int or tuple of int
        Shape of the result.

    Returns
    -------
    int64 array of shape ``size``

    Raises
    ------
    ArgumentError
        The scale or the size is out of range.

    Notes
    -----
    Privacy: added to integers of L1 sensitivity s, it gives (s / scale)-DP. Entropy from the operating system; no seed.
    """
    exact = checked_scale("scale", scale, MAXIMUM_LAPLACE_SCALE)
    return _fill(_checked_size(size), lambda n: (geometric(exact, n), np.ones(n, dtype=np.bool_)))


def discrete_gaussian(sigma2: Fraction | float, size: int | tuple[int, ...]) -> IntArray:
    """Draw from P(x) proportional to exp(-x^2 / (2 sigma2)) on the integers, exactly.

    Parameters
    ----------
    sigma2 : Fraction or float
        Square of sigma, above 0 and at most 2^50. Above 2^18 its numerator must be below 2^61, which holds for the
        square of every scale from ``scale_grid``.
    size : int or tuple of int
        Shape of the result.

    Returns
    -------
    int64 array of shape ``size``

    Raises
    ------
    ArgumentError
        The variance or the size is out of range.

    Notes
    -----
    Privacy: added to integers of L2 sensitivity s, it gives s^2 / (2 sigma2)-zCDP, and GDP as in
    ``dpsql.accounting.gaussian``. Entropy from the operating system; no seed.
    """
    exact = checked_scale("sigma2", sigma2, MAXIMUM_SIGMA**2)
    shape = _checked_size(size)
    if exact <= _DIRECT_SIGMA**2:
        table = _gaussian_table(1 / (2 * exact))
        return _fill(shape, lambda n: (table.draw(n), np.ones(n, dtype=np.bool_)))
    if exact.numerator >= 2**61:
        raise ArgumentError(
            "sigma2", sigma2, "needs a numerator below 2^61 to be drawn exactly; take the square of scale_grid(sigma)"
        )
    return _fill(shape, lambda n: _large_gaussian(exact, n))


def add_noise(counts: IntArray, mechanism: str, scale: Fraction | float) -> IntArray:
    """Return counts with independent integer noise on every cell.

    Parameters
    ----------
    counts : int64 array, any shape
        Exact counts, of absolute value below 2^62. Not changed.
    mechanism : {'gaussian', 'laplace'}
    scale : Fraction or float
        sigma or b; see ``discrete_gaussian`` and ``discrete_laplace``.

    Returns
    -------
    int64 array of the same shape

    Raises
    ------
    ArgumentError
        The counts are not int64, or another argument is out of range.

    Notes
    -----
    Privacy: the noise does not depend on the counts. What it is worth depends on their sensitivity:
    ``dpsql.accounting``.
    """
    if not isinstance(counts, np.ndarray) or counts.dtype != np.int64:
        kind = getattr(counts, "dtype", type(counts).__name__)
        raise ArgumentError("counts", str(kind), "must be a numpy array of int64")
    if checked_mechanism(mechanism) == "laplace":
        return counts + discrete_laplace(scale, counts.shape)
    return counts + discrete_gaussian(checked_scale("scale", scale, MAXIMUM_SIGMA) ** 2, counts.shape)
