r"""Synthetic counts from smoothed shares: the Dirichlet-multinomial and the multinomial with fixed shares, exact.

Both add the same prior count alpha to each of K exact counts y (sum n) and draw n* = ``rows`` synthetic rows; both hold
where n is public and a unit replaces its one row. Let y' be a neighbour: y_i = y'_i + 1, y_j = y'_j - 1, and let y* be
the counts drawn.

**Dirichlet-multinomial** [Hu]: theta ~ Dirichlet(y + alpha), y* ~ Multinomial(n*, theta). With theta integrated out,
P(y* | y) is a constant times the product over k of Gamma(alpha + y_k + y*_k) / Gamma(alpha + y_k), so

    P(y* | y) / P(y* | y') = (alpha + y'_i + y*_i) / (alpha + y'_i)  *  (alpha + y_j) / (alpha + y_j + y*_j).

The second factor is at most 1 and the first at most (alpha + n*) / alpha, which is reached by y'_i = 0, y* = n* of
cell i. So the largest ratio is exactly 1 + n*/alpha, and epsilon-DP holds if and only if alpha >= n* / (e^epsilon - 1).

**Fixed shares** [McClure & Reiter 2012]: y* ~ Multinomial(n*, (y + alpha) / (n + K alpha)). The ratio is
((alpha + y'_i + 1) / (alpha + y'_i))^(y*_i) ((alpha + y_j) / (alpha + y_j + 1))^(y*_j), at most (1 + 1/alpha)^(n*), which
is reached in the same place. So epsilon-DP holds if and only if alpha >= 1 / (e^(epsilon/n*) - 1).

**The smoothed histogram** [Wasserman & Zhou 2010] draws n rows from (1 - lambda) f + lambda uniform, f being the
shares of the bins. With lambda = K / (K + n E), E = e^(epsilon/n) - 1, the share of bin k is
n E / (K + n E) * y_k / n + 1 / (K + n E) = (y_k + 1/E) / (n + K/E): fixed shares with alpha = 1/E. The two published
methods are one; within a bin the place is uniform, which `dpsql.rows.decoding` does.

**Exact draws.** alpha is rounded up to a multiple of 2^-s, s as large as 64-bit integers allow: more prior is more
privacy. Then every probability is a ratio of integers below 2^62. A Dirichlet-multinomial is a Polya urn: draw t = 0,
1, ... takes cell k with weight alpha + y_k + (draws of k so far), which is: with weight A + n (A = K alpha) from alpha
+ y, else a copy of one of the t earlier draws, all alike. One integer, uniform below 2^s (A + n + t), decides both. A
block of draws is done at once: copies point at earlier draws, and the pointers are followed by doubling.

References
----------
[Hu] *Differentially Private Synthetic Tabular Data*. McClure & Reiter (2012), *Differential privacy and statistical
disclosure risk measures*. Wasserman & Zhou (2010), arXiv:0811.2501.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpsql.errors import ArgumentError
from dpsql.noise.entropy import exp_bounds, random_words
from dpsql.numerics.arrays import IntArray

_WEIGHT_BITS = 62
"""No sum of weights exceeds 2^62."""

_EXTRA_BITS = 96
"""Binary digits of a prior count that are computed before it is rounded up."""

_BLOCK = 1 << 18
_SORTED_FROM = 1 << 12
"""Number of cells from which draws are sorted before they are looked up: unsorted look-ups miss the cache."""


def dirichlet_prior(epsilon: Fraction, rows: int, cells: int) -> Fraction | None:
    """Return the smallest prior count on the sampler's grid that gives epsilon-DP, for as many rows drawn as counted.

    Parameters
    ----------
    epsilon : Fraction, > 0
        Of one draw of all rows.
    rows : int, >= 1
        n, public.
    cells : int, >= 1
        K.

    Returns
    -------
    Fraction or None
        At least n / (e^epsilon - 1), proved, and above it by less than 2^-s (s: see the head of this file) plus a part
        in 2^90. None: infinite. The prior is so large that 64-bit weights could not hold a single row beside it, and
        the data are not used at all.

    Notes
    -----
    Privacy: epsilon-DP under replace_one where n is public and a unit has one row. Rounded towards more prior: an
    upper bound of e^-epsilon is put into n q / (1 - q), which increases in q, and the result is rounded up.
    """
    return _on_grid(_bound(_checked_epsilon(epsilon)), rows, rows, cells)


def fixed_prior(epsilon: Fraction, rows: int, cells: int) -> Fraction | None:
    """Return the smallest prior count on the sampler's grid for fixed shares; as `dirichlet_prior`.

    At least 1 / (e^(epsilon / n) - 1), proved. The same number makes the smoothed histogram.

    Notes
    -----
    Privacy: epsilon-DP under replace_one where n is public and a unit has one row; n draws of epsilon / n each.
    """
    return _on_grid(_bound(_checked_epsilon(epsilon) / _checked_rows(rows)), 1, rows, cells)


def dirichlet_multinomial(counts: IntArray, alpha: Fraction | None, rows: int) -> IntArray:
    """Draw counts from Multinomial(rows, theta), theta ~ Dirichlet(counts + alpha), exactly.

    Parameters
    ----------
    counts : int64 array, shape (K,)
        Exact counts, each at least 0.
    alpha : Fraction or None
        Prior count of a cell, > 0, with a power of two as denominator; None is infinite: uniform.
    rows : int, >= 0
        Rows drawn.

    Returns
    -------
    int64 array, shape (K,)
        Sums to ``rows``.

    Raises
    ------
    ArgumentError
        alpha is not dyadic, or too large or fine for 64-bit weights.

    Notes
    -----
    Privacy: see the head of this file. Entropy from the operating system; no seed. About 0.5 s for 5 million rows.
    """
    return _drawn(counts, alpha, rows, urn=True)


def multinomial(counts: IntArray, alpha: Fraction | None, rows: int) -> IntArray:
    """Draw counts from Multinomial(rows, (counts + alpha) / (n + K alpha)), exactly.

    Parameters, result and errors as for `dirichlet_multinomial`.

    Notes
    -----
    Privacy: see the head of this file. Entropy from the operating system; no seed.
    """
    return _drawn(counts, alpha, rows, urn=False)


def _drawn(counts: IntArray, alpha: Fraction | None, rows: int, *, urn: bool) -> IntArray:
    """Draw in blocks. In an urn every block starts from the counts and all earlier draws: the next draws see no other."""
    weights, step = integer_weights(counts, alpha, rows if urn else 0)
    drawn = np.zeros(counts.size, dtype=np.int64)
    sums = np.cumsum(weights)
    for start in range(0, rows, _BLOCK):
        size = min(_BLOCK, rows - start)
        # Later draws of an urn see the earlier ones: every block starts from a fuller urn.
        if urn:
            sums = np.cumsum(weights + drawn * step)
            drawn += _urn_block(sums, step, size)
        else:
            cells = _look_up(sums, _uniform_below(np.full(size, sums[-1])))
            drawn += np.bincount(cells, minlength=counts.size)
    return drawn


def integer_weights(counts: IntArray, alpha: Fraction | None, added: int) -> tuple[IntArray, int]:
    """Return 2^s (alpha + counts) and 2^s; for infinite alpha equal weights, and 0: then a copy has no weight."""
    if alpha is None:
        return np.ones(counts.size, dtype=np.int64), 0
    step, prior = alpha.denominator, alpha.numerator
    if prior <= 0 or step & (step - 1):
        raise ArgumentError("alpha", alpha, "must be above 0 and a multiple of a power of two; see dirichlet_prior")
    if counts.size * prior + (int(counts.sum()) + added) * step > 1 << _WEIGHT_BITS:
        raise ArgumentError("alpha", alpha, "too large or too fine for weights of 62 bits; see dirichlet_prior")
    return prior + counts * step, step


def _urn_block(sums: IntArray, step: int, size: int) -> IntArray:
    """Return the counts of ``size`` draws of an urn whose cells hold ``diff(sums)``; a draw adds ``step`` to its cell."""
    sources, uniform = _urn_sources(sums, step, size)
    multiplicity = np.bincount(sources, minlength=size)
    own = np.flatnonzero(multiplicity)
    cells = _look_up(sums, uniform[own])
    # weights are added as doubles: exact, they sum to the size of a block
    return np.bincount(cells, weights=multiplicity[own], minlength=sums.size).astype(np.int64)


def urn_sequence(sums: IntArray, step: int, size: int) -> npt.NDArray[np.intp]:
    """Return the cells of ``size`` draws of an urn in their order; otherwise as the counts of `dirichlet_multinomial`.

    Parameters
    ----------
    sums : int64 array, shape (K,)
        Cumulative weights of the cells, the last one above 0.
    step : int, >= 0
        What a draw adds to the weight of its cell; ``sums[-1] + step * size`` is at most 2^62.
    size : int, >= 0

    Notes
    -----
    Privacy: as the counts. Entropy from the operating system; no seed.
    """
    sources, uniform = _urn_sources(sums, step, size)
    return _look_up(sums, uniform[sources])


def _urn_sources(sums: IntArray, step: int, size: int) -> tuple[npt.NDArray[np.intp], IntArray]:
    """Return for every draw the earliest draw that it is a copy of (or itself), and the uniform integer of every draw."""
    total = int(sums[-1])
    uniform = _uniform_below(total + step * np.arange(size, dtype=np.int64))
    sources = np.arange(size)
    copies = np.flatnonzero(uniform >= total)
    sources[copies] = (uniform[copies] - total) // max(step, 1)
    while copies.size:  # a copy points at an earlier draw; doubling the steps ends at a draw from the cells
        further = sources[sources[copies]]
        moved = further != sources[copies]
        sources[copies] = further
        copies = copies[moved]
    return sources, uniform


def _look_up(sums: IntArray, values: IntArray) -> npt.NDArray[np.intp]:
    """Return the cell of every value: the first whose cumulative weight exceeds it."""
    if sums.size < _SORTED_FROM:
        return sums.searchsorted(values, side="right")
    order = values.argsort()
    cells = np.empty(values.size, dtype=np.intp)
    cells[order] = sums.searchsorted(values[order], side="right")
    return cells


def _uniform_below(bounds: IntArray) -> IntArray:
    """Return one uniform integer in [0, bound) for every bound in 1 ... 2^62, by rejection: no modulo bias.

    A word is kept if the whole run of ``bound`` words that ends up at 0 ... bound - 1 lies below 2^64.
    """
    limits = bounds.astype(np.uint64)
    result = np.empty(bounds.size, dtype=np.int64)
    missing = np.arange(bounds.size)
    while missing.size:
        words = random_words(missing.size).astype(np.uint64, copy=False)
        rest = words % limits
        good = words - rest <= ~limits + np.uint64(1)  # 2^64 - bound, in 64-bit arithmetic
        result[missing[good]] = rest[good].astype(np.int64)
        missing, limits = missing[~good], limits[~good]
    return result


def _bound(exponent: Fraction) -> Fraction:
    """Return an upper bound of 1 / (e^exponent - 1) = q / (1 - q), q = e^-exponent, within a part in 2^90."""
    small = max(0, exponent.denominator.bit_length() - exponent.numerator.bit_length() + 1)
    precision = _EXTRA_BITS + 2 * small  # 1 - q is about the exponent: that many leading digits of q are ones
    _, high = exp_bounds(exponent, precision)
    return Fraction(high, (1 << precision) - high)


def _on_grid(unit: Fraction, times: int, rows: int, cells: int) -> Fraction | None:
    """Return ``times * unit`` rounded up to the finest grid 2^-s on which all weights of 2 n + K alpha fit, or None."""
    _checked_rows(rows)
    _checked_rows(cells, "cells")
    alpha = times * unit
    largest = math.ceil(cells * alpha) + 2 * rows + cells  # rounding up adds at most 1 a cell
    bits = _WEIGHT_BITS - largest.bit_length()
    return None if bits < 0 else Fraction(math.ceil(alpha * 2**bits), 2**bits)


def _checked_epsilon(epsilon: float | Fraction) -> Fraction:
    expected = "must be a positive finite number"
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float | Fraction):
        raise ArgumentError("epsilon", epsilon, expected)
    if not 0 < epsilon < math.inf:
        raise ArgumentError("epsilon", epsilon, expected)
    return Fraction(epsilon)


def _checked_rows(rows: int, name: str = "rows") -> int:
    if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 1:
        raise ArgumentError(name, rows, "must be a whole number of at least 1")
    return int(rows)
