r"""A private quantile over a fine public grid, by the exponential mechanism, drawn exactly from the cells that hold rows.

The grid has the values 0, 1, ..., values - 1, in cells of ``width`` of them (the last ones may hold fewer, or none). With q the
wanted share, n the rows, and #{<= t} the rows in the cells up to that of t, the penalty of t is that of
`dpsql.mechanisms.percentile`,

    u(t) = max(q n - #{<= t}, #{< t} - q n, 0),

and t is drawn with probability proportional to exp(-u(t) / scale), every value alike. One row more or fewer moves u by at most
max(q, 1 - q) (proved there); so R rows by R max(q, 1 - q), and where R rows go and R others come, by R.

All values of an empty stretch have one penalty, and those of a cell, too; so the law is one over stretches and cells, of which
there are at most twice as many as cells with rows: a grid can be as fine as one likes.

**Exact.** The penalties are whole numbers over the denominator of q. The values of each penalty are counted; a penalty is drawn
by inversion with lazy bits, as all noise of this package is: bounds of the weights come from interval arithmetic on integers,
of a uniform number as many digits are drawn as decide. Then one of its values is drawn, uniformly. No floating-point number
takes part.

Privacy: of range epsilon = 2 sensitivity / scale (``RangeEvent``).

References: McSherry & Talwar (2007). Smith (2011), Privacy-preserving statistical estimation with optimal convergence rates,
for quantiles over intervals.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from fractions import Fraction
from itertools import accumulate

import numpy as np

from dpsql.errors import ArgumentError
from dpsql.noise.entropy import exp_bounds, uniform_below
from dpsql.numerics.arrays import IntArray

MOST_VALUES = 1 << 60
_BITS = 64
_PRECISION = 128


def stretches(
    cells: IntArray, counts: IntArray, share: Fraction, values: int, width: int = 1
) -> tuple[IntArray, IntArray, IntArray]:
    """Return the penalties of all values, stretch by stretch.

    Parameters
    ----------
    cells : int64 array
        Cells that hold rows, ascending; secret.
    counts : int64 array
        Their rows, at least 1; with the denominator of the share, below 2^62 together (there is no table of 10^14 rows).
    share : Fraction, in [0, 1]
        q, of a small denominator.
    values : int, from 1 to 2^60
        Values of the grid.
    width : int, >= 1
        Values of a cell.

    Returns
    -------
    penalties : int64 array
        Times the denominator of the share.
    starts : int64 array
        First value of each stretch.
    sizes : int64 array
        Its number of values, at least 1; they add up to ``values``.

    Examples
    --------
    >>> [found.tolist() for found in stretches(np.array([1, 3]), np.array([3, 1]), Fraction(1, 2), 5)]  # q n = 2
    [[4, 0, 2, 2, 4], [0, 1, 2, 3, 4], [1, 1, 1, 1, 1]]
    """
    if not 1 <= values <= MOST_VALUES:
        raise ArgumentError("values", values, "must be a number of values, from 1 to 2^60")
    upto = np.cumsum(counts, dtype=np.int64)
    below = upto - counts
    everything = int(upto[-1]) if upto.size else 0
    wanted, each = share.numerator * everything, share.denominator
    inside = np.maximum(np.maximum(wanted - each * upto, each * below - wanted), 0)
    between = np.abs(wanted - each * np.append(below, everything))  # of the stretch before each cell, and after the last
    firsts = np.minimum(cells * width, values)
    ends = np.minimum((cells + 1) * width, values)
    starts = np.empty(2 * cells.size + 1, np.int64)
    penalties, stops = np.empty_like(starts), np.empty_like(starts)
    starts[1::2], stops[1::2], penalties[1::2] = firsts, ends, inside
    starts[0::2], stops[0::2], penalties[0::2] = np.append(0, ends), np.append(firsts, values), between
    kept = stops > starts
    return penalties[kept], starts[kept], (stops - starts)[kept]


def private_quantile(cells: IntArray, counts: IntArray, share: Fraction, scale: Fraction, values: int, width: int = 1) -> int:
    """Return a private q-quantile of whole numbers on a public grid.

    Parameters
    ----------
    cells, counts, share, values, width
        As `stretches`.
    scale : Fraction, > 0
        In rows.

    Returns
    -------
    int
        t from 0 to values - 1 with probability proportional to exp(-u(t) / scale).

    Notes
    -----
    Privacy: ``RangeEvent(2 * sensitivity / scale)``, the sensitivity of u by how many rows a unit has; see the head of this file.
    """
    penalties, starts, sizes = stretches(cells, counts, share, values, width)
    levels, inverse = np.unique(penalties, return_inverse=True)
    sums = np.zeros(levels.size, np.int64)
    np.add.at(sums, inverse, sizes)
    chosen = inverted((levels - levels[0]).tolist(), sums.tolist(), 1 / (scale * share.denominator))
    there = np.flatnonzero(inverse == chosen)
    upto = np.cumsum(sizes[there])
    place = int(uniform_below(int(upto[-1]), 1)[0])
    found = int(np.searchsorted(upto, place, side="right"))
    return int(starts[there[found]] + place - (upto[found] - sizes[there[found]]))


def inverted(levels: list[int], weights: list[int], exponent: Fraction, bits: int = _BITS) -> int:
    """Return i with probability proportional to weights[i] exp(-exponent levels[i]), by exact inversion.

    Parameters
    ----------
    levels : list of int
        0 first, ascending.
    weights : list of int, >= 1
    exponent : Fraction, > 0
    bits : int, a multiple of 8
        Binary digits of the uniform number that are drawn at once. Exact for each.

    Notes
    -----
    With bounds of the cumulated weights and of their sum, the uniform number U in [u, u + 1) / 2^bits surely belongs to i where
    the bounds say so of the whole interval; else more digits of U are drawn and the bounds made tighter.
    """
    drawn, digits, precision = 0, 0, _PRECISION
    while True:
        drawn, digits = drawn << bits | int.from_bytes(os.urandom(bits // 8)), digits + bits
        precision = max(precision, digits + _BITS)
        lows, highs = _bounds(levels, weights, exponent, precision)
        found = bisect_left(lows, -(-((drawn + 1) * highs[-1]) >> digits))
        if found < len(lows) and (found == 0 or drawn * lows[-1] >= highs[found - 1] << digits):
            return found
        precision *= 2


def _bounds(levels: list[int], weights: list[int], exponent: Fraction, precision: int) -> tuple[list[int], list[int]]:
    """Return lower and upper bounds of the cumulated weights times 2^precision."""
    known: dict[int, tuple[int, int]] = {}
    low = high = 1 << precision
    lows, highs, last = [], [], 0
    for level, weight in zip(levels, weights, strict=True):
        step = level - last
        if step and high > 1:
            if step not in known:
                known[step] = exp_bounds(exponent * step, precision)
            low, high = low * known[step][0] >> precision, -(-high * known[step][1] >> precision)
        last = level
        lows.append(low * weight)
        highs.append(high * weight)
    return list(accumulate(lows)), list(accumulate(highs))
