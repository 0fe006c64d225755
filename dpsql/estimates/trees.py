r"""Trees of noisy counts made consistent: exact weighted least squares, then counts that are not negative.

A tree has levels with L_1 < L_2 < ... cells, each of which is cut into b cells of the next level. Every level was released with
noise of its own variance v_k on every cell. What is known of a cell's count: its own counter, and the sum of its descendants'.

**Least squares in two passes** (Hay et al. 2010, here with a variance per level). *Up*: z is the best estimate of a cell from its
own subtree, u its variance: at a leaf the counter and v; above, S the sum of the children's z, of variance b u', and

    z = (counter / v + S / (b u')) / (1 / v + 1 / (b u')),   1 / u = 1 / v + 1 / (b u').

*Down*: h = z for the first level; a child gets h = z + (h of the parent - S) / b. This is the minimum of sum (counter - h)^2 / v
over all consistent h: given the parent, the subtrees of siblings are independent and of equal variance, so what the parent knows
more is divided equally.

Privacy: none; post-processing of released numbers.

References
----------
Hay, Rastogi, Miklau & Suciu (2010), Boosting the accuracy of differentially private histograms through consistency, PVLDB 3(1).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsql.errors import ArgumentError
from dpsql.numerics.arrays import FloatArray

_EXACT = 1e-12
_FEW = 8


def split_levels(counters: FloatArray, lengths: Sequence[int]) -> list[FloatArray]:
    """Return the levels of released trees, each of shape (..., groups, cells).

    Parameters
    ----------
    counters : float array, shape (..., groups, sum of lengths)
        The levels after each other, from the top: ``Measure.lengths``.
    lengths : sequence of int
    """
    if counters.shape[-1] != sum(lengths):
        raise ArgumentError("counters", str(counters.shape), f"must have {sum(lengths)} counters in its last axis")
    return np.split(counters, np.cumsum(lengths)[:-1], axis=-1)


def least_squares(levels: Sequence[FloatArray], variances: Sequence[float]) -> tuple[list[FloatArray], list[float]]:
    """Return consistent counts of every level, by weighted least squares.

    Parameters
    ----------
    levels : sequence of float arrays, shapes (..., L_k), each L a multiple of the one before
    variances : sequence of float, >= 0
        Of the noise on each cell of the level.

    Returns
    -------
    counts : list of float arrays, of the same shapes
    deviations : list of float
        Standard deviation of each cell's estimate from its own subtree: an upper bound of that of ``counts``.
    """
    consistent = [np.asarray(levels[-1], dtype=np.float64)]
    spread = [max(float(variances[-1]), _EXACT)]
    for level, variance in zip(reversed(levels[:-1]), reversed(variances[:-1]), strict=True):
        below, noise = consistent[0], max(float(variance), _EXACT)
        branching = below.shape[-1] // level.shape[-1]
        summed = _sum(below.reshape(*level.shape, branching))
        own = (1 / noise) / (1 / noise + 1 / (branching * spread[0]))
        consistent.insert(0, own * level + (1 - own) * summed)
        spread.insert(0, 1 / (1 / noise + 1 / (branching * spread[0])))
    for k in range(1, len(consistent)):
        consistent[k] = _moved(consistent[k], consistent[k - 1])
    return consistent, [float(np.sqrt(u)) for u in spread]


def _sum(cut: FloatArray) -> FloatArray:
    """Return the sum over a last axis of few entries, in whole arrays."""
    if cut.shape[-1] > 4 * _FEW:
        return np.asarray(cut.sum(axis=-1))
    total = cut[..., 0]
    for k in range(1, cut.shape[-1]):
        total = total + cut[..., k]
    return total


def _moved(children: FloatArray, parents: FloatArray) -> FloatArray:
    """Return children that add up to their parents, each moved by the same amount."""
    cut = children.reshape(*parents.shape, children.shape[-1] // parents.shape[-1])  # there may be no group: no -1
    gap = (parents - _sum(cut)) / cut.shape[-1]
    return np.asarray((cut + gap[..., None]).reshape(children.shape))


def nonnegative(levels: Sequence[FloatArray]) -> list[FloatArray]:
    """Return consistent counts of at least 0, from the top down: children are projected on what their parent has.

    The total is the sum of the first level, or 0 if that is negative; brothers are moved by the same amount, and those that
    would be negative are 0 (the nearest point of the simplex).
    """
    whole = np.maximum(levels[0].sum(axis=-1, keepdims=True), 0.0)
    consistent: list[FloatArray] = []
    for level in levels:
        parents = consistent[-1] if consistent else whole
        cut = level.reshape(*parents.shape, level.shape[-1] // parents.shape[-1])
        consistent.append(np.asarray(simplex(cut, parents).reshape(level.shape)))
    return consistent


def simplex(points: FloatArray, totals: FloatArray) -> FloatArray:
    """Return the nearest points with entries of at least 0 that add up to the totals (at least 0), along the last axis."""
    size = points.shape[-1]
    if size > _FEW:
        ordered = -np.sort(-points, axis=-1)
        excess = np.cumsum(ordered, axis=-1) - totals[..., None]
        number = np.arange(1, size + 1)
        used = np.maximum((ordered * number > excess).sum(axis=-1), 1)
        shift = np.take_along_axis(excess, used[..., None] - 1, axis=-1)[..., 0] / used
    else:  # whole arrays instead of many short sorts; the mean excess of the k largest is largest where k is the number used
        columns = [np.ascontiguousarray(points[..., k]) for k in range(size)]
        for end in range(size - 1, 0, -1):
            for k in range(end):
                columns[k], columns[k + 1] = np.maximum(columns[k], columns[k + 1]), np.minimum(columns[k], columns[k + 1])
        upto = columns[0] - totals
        shift = upto
        for k in range(1, size):
            upto = upto + columns[k]
            shift = np.maximum(shift, upto / (k + 1))
    return np.asarray(np.maximum(points - shift[..., None], 0.0))
