"""Bins that fit a fine histogram: spikes alone, the rest in parts of equal weight.

Half of a cell's weight is its part of the rows, half its part of the column's spread about the median: so a tail that few rows
make up, and half of the mean, gets bins of its own.

How many bins, 24 at most, was looked at on Adult, CE and ACS (tests/benchmarks/values.py, epsilon 1, medians of 5). What
quartiles by group are off is mostly the noise of the two-way tables: with the exact bins of every row they are right to 0 to
.06 of the interquartile range, while exact values inside the drawn bins gain next to nothing. Age is .10 and fnlwgt .064 off
(resampling, with no privacy: .05 and .026; a year of age is .05). With 16 bins most quartiles gain (age .05, fnlwgt .055, in CE
.20 to .17 and .31 to .22, in ACS .14 to .10, .16 to .17 and .12 to .11), and other figures lose: the KS distance of fnlwgt goes
from .007 to .017, its group means from .021 to .031, those of capital-loss from .18 to .32. 36 bins, or a fifth of the weight
for the spread, lose something on each of the three tables.

Privacy: post-processing of released counts. The edges are stored with the release, so the rule may get better.
"""

from __future__ import annotations

import numpy as np

from dpsql.domains.grid import Grid, Histogram, centres
from dpsql.numerics.arrays import FloatArray, IntArray

SPREAD = 0.5
"""Part of the weight that is the spread's."""


FEWEST = 4.0
"""Rows of a bin, on average over a run of bins, in standard deviations of a table's cell."""

FEWEST_BEYOND = 3.0
"""The same of a bin that reaches beyond what is shown: with fewer it would be taken for noise (`dpsql.tables.tails`)."""


def cuts(histogram: Histogram, most: int, noise: float) -> IntArray:
    """Return after which cells of a histogram a bin ends, ascending; the last bin ends after the last cell.

    Parameters
    ----------
    most : int, at least 1
        Number of bins, at most.
    noise : float
        Standard deviation of a cell of the tables over these bins.

    Returns
    -------
    int64 array, shape (at most ``most`` - 1,)
        Numbers of cells, from 1 to cells - 1.
    """
    cells = histogram.counts.size
    if most <= 1 or cells <= 1:
        return np.zeros(0, np.int64)
    weight = weights(histogram)
    alone: list[int] = []
    ends = {0, cells}
    while True:
        # A cell that weighs more than the share of a bin, were the rest parted evenly, is a bin of its own.
        rest = weight.copy()
        rest[alone] = 0.0
        largest = int(np.argmax(rest))
        if rest[largest] * max(most - 2 * len(alone) - 1, 1) < rest.sum() or rest[largest] <= 0.0:
            break
        parted = ends | {largest, largest + 1}  # one bin, and perhaps another one in two
        if len(parted) - 1 > most:
            break
        alone.append(largest)
        ends = parted
    firm = sorted(ends)
    # Heavy cells stay as they are: the bins that are left go to the runs between them.
    gaps = [(a, b) for a, b in zip(firm[:-1], firm[1:], strict=True) if not (b - a == 1 and a in alone)]
    left = most - (len(firm) - 1)
    worth = [int(histogram.counts[a:b].sum() / (FEWEST * max(noise, 1e-3))) for a, b in gaps]
    room = [min(b - a, max(rows, 1)) - 1 for (a, b), rows in zip(gaps, worth, strict=True)]
    parts = _allotted([float(weight[a:b].sum()) for a, b in gaps], room, left)
    for (a, b), more in zip(gaps, parts, strict=True):
        ends |= set(_inner(weight[a:b], more + 1, a))
    inside = _worthy(sorted(ends - {0, cells}), histogram, FEWEST_BEYOND * noise)
    return np.asarray(inside, np.int64)


def _worthy(ends: list[int], histogram: Histogram, fewest: float) -> list[int]:
    """Return the ends without those that leave a first or last bin beyond what is shown fewer rows.

    A tail as thin as the noise is part of a bin that is not, and where its rows are the histogram says.
    """
    upto = np.concatenate([[0.0], np.cumsum(histogram.counts)])
    while ends and histogram.high[-1] > histogram.shown[1] and upto[-1] - upto[ends[-1]] < fewest:
        ends = ends[:-1]
    while ends and histogram.low[0] < histogram.shown[0] and upto[ends[0]] < fewest:
        ends = ends[1:]
    return ends


def marks(histogram: Histogram, most: int, noise: float) -> FloatArray:
    """Return where bins end: the inner ends of `cuts` on the histogram's scale."""
    ends: FloatArray = histogram.low[cuts(histogram, most, noise)]
    return ends


def filled(ends: FloatArray, grid: Grid, count: int) -> FloatArray:
    """Return inner ends of exactly so many bins, or fewer where the grid has too few cells: the widest bins are parted.

    Parameters
    ----------
    ends : float64 array
        Inner ends, at most ``count`` - 1.
    """
    cells = np.searchsorted(grid.edges, ends)
    cells = np.unique(cells[(cells > 0) & (cells < grid.edges.size - 1)])
    while cells.size < count - 1:
        whole = np.concatenate([[0], cells, [grid.edges.size - 1]])
        widest = int(np.argmax(np.diff(whole)))
        if whole[widest + 1] - whole[widest] < 2:
            break
        cells = np.sort(np.append(cells, (whole[widest] + whole[widest + 1]) // 2))
    inner: FloatArray = grid.edges[cells]
    return inner


def weights(histogram: Histogram) -> FloatArray:
    """Return the weight of every cell, sum 1."""
    counts = histogram.counts
    total = counts.sum()
    if total <= 0.0:
        return np.full(counts.size, 1.0 / counts.size)
    middle = centres(histogram.low, histogram.high)
    median = middle[int(np.searchsorted(np.cumsum(counts), total / 2.0))]
    spread = counts * np.abs(middle - median)
    share: FloatArray = counts / total
    # Bins are for counts and for means: far from the median a row moves the mean more.
    if spread.sum() > 0.0:
        share = (1.0 - SPREAD) * share + SPREAD * spread / spread.sum()
    return share


def _allotted(weight: list[float], most: list[int], count: int) -> list[int]:
    """Share out further cuts: each where its part of the weight would still be the largest."""
    parts = [0] * len(weight)
    for _ in range(max(count, 0)):
        free = [i for i in range(len(weight)) if parts[i] < most[i] and weight[i] > 0.0]
        if not free:
            break
        parts[max(free, key=lambda i: (weight[i] / (parts[i] + 1), -i))] += 1
    return parts


def _inner(weight: FloatArray, parts: int, start: int) -> list[int]:
    """Return the cuts of a run of cells in parts of about equal weight, none of them empty."""
    if parts <= 1 or weight.sum() <= 0.0:
        return []
    sums = np.cumsum(weight)
    places: list[int] = []
    for part in range(1, parts):
        goal = sums[-1] * part / parts
        place = int(np.argmin(np.abs(sums - goal))) + 1
        if 0 < place < weight.size:
            places.append(start + place)
    return sorted(set(places))
