r"""What is certain of an aggregate: confidence sets from the law of the noise and a group's own released counters. Post-processing.

Each is the set of values that a test of its own does not refuse, so it holds the truth as often as it says, whatever the number of
rows is, and whatever other groups are.

- *Linear* in the counters (counts, sums): the value plus and minus `reach` standard deviations.
- *Mean* m of y in [0, 1]: with counters c_i of rows at places p_i, sum (p_i - m) c_i is 0 but for the noise if m is the mean,
  however many rows there are (Fieller 1954). Its variance is sigma^2 sum (p_i - m)^2; the set is where a quadratic is not above 0.
- *Quantile* q: rows before a leaf less q times all rows are at most 1 - q if it holds the quantile, and rows up to its end at least
  -q; both are linear in the counters of a tree, of known variance (`deviations`). The set is cut at the leaves' ends.

Under Laplace noise a sum of several counters is taken to have the tails of one, which are the heaviest that it can have.

References
----------
Fieller (1954), Some problems in interval estimation, JRSS B 16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from dpsql.numerics.arrays import FloatArray, IntArray
from dpsql.numerics.products import multiplies

USUAL = 0.95
"""Confidence of what estimates are held to, where none is asked for."""

Ends = tuple[FloatArray, FloatArray]


def reach(mechanism: str, confidence: float) -> float:
    """Return how many standard deviations noise stays within, on both sides, with some probability.

    Examples
    --------
    >>> round(reach("gaussian", 0.95), 3), round(reach("laplace", 0.95), 3)
    (1.96, 2.118)
    """
    tail = (1.0 - confidence) / 2.0
    return math.log(1.0 / (2.0 * tail)) / math.sqrt(2.0) if mechanism == "laplace" else -NormalDist().inv_cdf(tail)


def linear(value: FloatArray, deviation: float, times: float) -> Ends:
    """Return a value plus and minus so many deviations."""
    return value - times * deviation, value + times * deviation


@multiplies
def mean(cells: FloatArray, places: FloatArray, deviation: float, times: float) -> Ends:
    """Return the ends of the means, in [0, 1], that counters do not refuse; 0 and 1 where they refuse none.

    Parameters
    ----------
    cells : float array, shape (..., counters)
        In rows.
    places : float array, shape (counters,)
        In [0, 1]: what each counts rows of.
    deviation : float
        Of the noise on each counter, in rows.
    times : float
        From `reach`.
    """
    rows, total = cells.sum(axis=-1), cells @ places
    noise = (times * deviation) ** 2
    a = rows**2 - noise * places.size
    b = noise * float(places.sum()) - total * rows  # half of it
    c = total**2 - noise * float((places**2).sum())
    with np.errstate(all="ignore"):
        root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
        first, second = (-b - root) / a, (-b + root) / a
    lower, upper = np.minimum(first, second), np.maximum(first, second)
    inside = np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)
    # of a quadratic that opens downwards: all but what is between the roots
    below, above = lower >= 0.0, upper <= 1.0
    outside = np.where(below | ~above, 0.0, np.clip(upper, 0.0, 1.0)), np.where(above | ~below, 1.0, np.clip(lower, 0.0, 1.0))
    all_ = (a <= 0) & ((b**2 - a * c < 0) | ~np.isfinite(first + second))
    low = np.where(a > 0, inside[0], outside[0])
    high = np.where(a > 0, inside[1], outside[1])
    return np.where(all_, 0.0, low), np.where(all_, 1.0, high)


def quotient(
    value: tuple[FloatArray, FloatArray], variance: tuple[float, float, float], times: float, least: float, most: float
) -> Ends:
    """Return the ends of the quotients that two linear numbers do not refuse, between the least and the most that is possible.

    Parameters
    ----------
    value : pair of float arrays, shape (...)
        Numerator and denominator, which is positive but for the noise.
    variance : (float, float, float)
        Of the numerator's noise, its covariance with the denominator's, of the denominator's.
    least, most : float
        May be infinite.

    Notes
    -----
    Numerator less r times denominator is 0 but for noise if r is the quotient (Fieller 1954): a quadratic in r, as for `mean`.
    """
    over, under = value
    own, both, below = (times**2 * part for part in variance)
    a, b, c = under**2 - below, both - over * under, over**2 - own
    with np.errstate(all="ignore"):
        root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
        first, second = (-b - root) / a, (-b + root) / a
    known = (a > 0) & (under > 0) & np.isfinite(first + second)
    low = np.where(known, np.clip(np.minimum(first, second), least, most), least)
    return low, np.where(known, np.clip(np.maximum(first, second), least, most), most)


def leaves(counts: FloatArray, share: float, spread: FloatArray, times: float) -> tuple[IntArray, IntArray]:
    """Return the first and the last leaf that may hold a quantile, shape (...).

    Parameters
    ----------
    counts : float array, shape (..., leaves)
        Of a consistent tree, unbiased: they may be negative.
    share : float
        The quantile.
    spread : float array, shape (leaves + 1,)
        From `deviations`.
    """
    upto = np.cumsum(counts, axis=-1)
    excess = upto - share * upto[..., -1:]
    before = np.concatenate([-share * upto[..., -1:], excess[..., :-1]], axis=-1)
    may_hold = (before <= 1.0 - share + times * spread[:-1]) & (excess >= -share - times * spread[1:])
    last = counts.shape[-1] - 1
    some = may_hold.any(axis=-1)
    first = np.where(some, np.argmax(may_hold, axis=-1), 0)
    return first.astype(np.int64), np.where(some, last - np.argmax(may_hold[..., ::-1], axis=-1), last).astype(np.int64)


def deviations(branching: Sequence[int], spreads: Sequence[float], share: float) -> FloatArray:
    """Return the standard deviation of (rows before a leaf's begin - share times all rows), shape (leaves + 1,).

    Parameters
    ----------
    branching : sequence of int
        Of the tree, from the root.
    spreads : sequence of float
        Standard deviation of a cell's estimate from its own subtree, by level: see `dpsql.estimates.trees.least_squares`.

    Notes
    -----
    Given a cell's count h, its b parts have counts z_i + (h - sum z) / b, with z_i what their own subtrees say, independent of h.
    So a weighted sum of them is (mean weight) h + sum (w_i - mean weight) z_i, whose two terms are independent: from the leaves
    upwards, weights are 1 before the place, the part's own mean weight at it, and 0 behind it.
    """
    places = np.arange(math.prod(branching) + 1)
    variance, weight = np.zeros(places.size), np.zeros(places.size)
    below = 1
    for level in range(len(branching) - 1, -1, -1):
        parts, own = branching[level], spreads[level] ** 2
        index = places // below
        index = index % parts if level else index
        at = np.where(index < parts, weight, 0.0)
        if level:
            middle = (index + at) / parts
            variance += own * (index + at**2 - parts * middle**2)
            weight = middle
        else:
            rest = np.maximum(parts - 1 - index, 0)
            of_part = np.where(index < parts, (at - share) ** 2, 0.0)
            variance += own * (index * (1.0 - share) ** 2 + of_part + rest * share**2)
        below *= parts
    spread: FloatArray = np.sqrt(np.maximum(variance, 0.0))
    return spread
