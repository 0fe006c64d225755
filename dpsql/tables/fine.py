r"""Fine histograms: where between its bounds a column's values lie, counted along its grid from coarse cells to fine ones.

1. Level by level the cells get integer noise. A cell is counted on the next level, in parts, only where its *released* count
   passes `THRESHOLD` standard deviations of its noise (`counted`): empty regions cost nothing but the few cells that say so.
2. The released counts contradict each other; `estimate` finds the least squares solution over the tree and then, from the top
   down, counts that are not negative, in which what the noise alone explains is spread evenly.

**Privacy.** A level is a contingency table of disjoint cells: a row is in at most one of the cells that are counted, whichever
they are. Which are is a function of what was released before. So a level has the sensitivities that
`dpsql.accounting.events.sensitivities` states for one table, its noise scale is in the plan, and the levels compose adaptively at
the price of as many tables that are fixed beforehand ("Adaptive choice" in `dpsql.accounting.gaussian`), as the coarse tables
do (`dpsql.tables.coarse`). `counted` alone is given exact counts, by `dpsql.measure.fine` alone.

**Reproducible.** Whoever reads a release finds the same cells again, from the same released integers, in integer arithmetic: the
rule is part of the release format. The estimate is not: it is post-processing and may get better.

References: Hay et al. (2010), arXiv:0904.0942, for consistent trees; Qardaji et al. (2013), PVLDB 6(14), for the branching factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpsql.domains.grid import Grid, Histogram
from dpsql.numerics.arrays import FloatArray, IntArray
from dpsql.tables import extent
from dpsql.tables.margins import simplex_projection
from dpsql.tables.variance import noise_variance

THRESHOLD = 3
"""Standard deviations that a released count needs for its cell to be counted in parts."""

MOST_OPEN = 64
"""Cells of a level that are counted in parts, at most: those with the largest released counts."""

_NARROWEST = 1e-90
"""Width of a cell that holds more than one value, relative to the largest bound; slopes over less overflow."""

_NARROW_SHARE = 0.002
"""Width of a cell that may be taken for one value, relative to the part of the range that shows rows."""

_SPIKE = 3.5
"""Standard deviations by which a part differs from its share before it is taken as it is."""


@dataclass(frozen=True)
class Cells:
    """The cells of one level that are counted.

    Parameters
    ----------
    first, behind : int64 arrays
        Positions among the grid's edges of each cell's two ends, ascending.
    parent : int64 array
        Place of the cell that each is a part of, among the cells of the level before; zeros for the first level.
    """

    first: IntArray
    behind: IntArray
    parent: IntArray


def top_cells(grid: Grid) -> Cells:
    """Return the cells of the first level: public."""
    ends = grid.levels[0]
    return Cells(ends[:-1], ends[1:], np.zeros(ends.size - 1, np.int64))


def next_cells(grid: Grid, level: int, cells: Cells, released: IntArray, scale: Fraction, mechanism: str) -> Cells:
    """Return the cells of a level that are counted, after the released counts of the level before.

    Parameters
    ----------
    level : int, at least 1
    cells, released : of level - 1
    scale : Fraction
        Noise scale of `released`.

    Notes
    -----
    Privacy: post-processing of released counts. Integer arithmetic: a count c passes where c^2 > THRESHOLD^2 variance, exactly.
    """
    ends = grid.levels[level]
    wide = cells.behind - cells.first > 1
    limit = _limit(scale, mechanism)
    open_ = np.flatnonzero(wide & (released > limit))
    # So that a release stays of bounded size; the fullest cells gain most by parts.
    if open_.size > MOST_OPEN:
        largest = np.lexsort((open_, -released[open_]))[:MOST_OPEN]
        open_ = np.sort(open_[largest])
    first, behind, parent = [], [], []
    for place in open_.tolist():
        low, high = np.searchsorted(ends, [cells.first[place], cells.behind[place]])
        inner = ends[low : high + 1]
        first.append(inner[:-1])
        behind.append(inner[1:])
        parent.append(np.full(inner.size - 1, place, np.int64))
    if not first:
        nothing = np.zeros(0, np.int64)
        return Cells(nothing, nothing, nothing)
    return Cells(np.concatenate(first), np.concatenate(behind), np.concatenate(parent))


def _limit(scale: Fraction, mechanism: str) -> int:
    """Return the largest integer at most THRESHOLD standard deviations."""
    variance = scale**2 * (2 if mechanism == "laplace" else 1) * THRESHOLD**2
    return math.isqrt(math.floor(variance))


def levels(
    grid: Grid, scales: Sequence[Fraction], mechanism: str, answer: Callable[[int, Cells], IntArray]
) -> list[tuple[Cells, IntArray]]:
    """Return the cells of every level with their released counts.

    Parameters
    ----------
    scales : sequence of Fraction
        Noise scale of each level.
    answer : function of (level, cells)
        Gives the released counts: draws them (`counted`), or reads them.
    """
    counted: list[tuple[Cells, IntArray]] = []
    cells = top_cells(grid)
    for level in range(len(scales)):
        if level:
            cells = next_cells(grid, level, *counted[-1], scales[level - 1], mechanism)
        counted.append((cells, answer(level, cells)))
    return counted


def counted(cells: Cells, counts: IntArray) -> IntArray:
    """Return the exact counts of cells from those of the grid's finest cells. Privacy: as secret as `counts`."""
    sums = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    exact: IntArray = sums[cells.behind] - sums[cells.first]
    return exact


def split(grid: Grid, flat: IntArray, scales: Sequence[Fraction], mechanism: str) -> list[tuple[Cells, IntArray]]:
    """Return the cells of every level with their counts from a release's flat ones.

    Raises
    ------
    ValueError
        There are fewer or more counts than cells.
    """
    start = 0

    def take(_: int, cells: Cells) -> IntArray:
        nonlocal start
        start += cells.first.size
        piece = flat[start - cells.first.size : start]
        if piece.size != cells.first.size:
            raise ValueError("fewer counts than cells")
        return piece

    counted = levels(grid, scales, mechanism, take)
    if start != flat.size:
        raise ValueError("more counts than cells")
    return counted


def estimate(grid: Grid, released: Sequence[tuple[Cells, IntArray]], scales: Sequence[float], mechanism: str) -> Histogram:
    """Return non-negative counts of the finest cells that were counted.

    Privacy: post-processing.
    """
    deviations = [math.sqrt(max(noise_variance(scale, mechanism), 1e-6)) for scale in scales]
    kept = [(cells, counts.astype(np.float64)) for cells, counts in released if cells.first.size]
    solved = _least_squares(kept, [deviation**2 for deviation in deviations])
    largest = _largest(grid.edges[0], grid.edges[-1])
    seen = extent.seen([
        extent.Level(grid.edges[cells.first] / largest, grid.edges[cells.behind] / largest, cells.parent, estimated, deviation)
        for (cells, _), estimated, deviation in zip(kept, solved, deviations, strict=False)
    ])
    # From coarse to fine, so that parts sum to the cell that they are parts of.
    counts = [_projected(solved[0], seen[0])]
    known = _Covering(grid, kept[0][0], counts[0])
    for level in range(1, len(kept)):
        cells = kept[level][0]
        smooth = known.smooth(cells)
        inner = np.zeros(cells.first.size)
        for part, mass in _families(cells, counts[-1]):
            here, left = seen[level][part], solved[level][part]
            if here.any():  # what parts hold that are not seen is no part of the others
                inner[part][here] = _shared(left[here], smooth[part][here], mass - float(left[~here].sum()), deviations[level])
        counts.append(inner)
        known = known.with_parts(cells, inner)
    # From here on of leaves alone: cells that were not counted in parts.
    low, high, leaf, narrow, plain, reached = [], [], [], [], [], []
    for level, (cells, _) in enumerate(kept):
        closed = np.ones(cells.first.size, bool)
        if level + 1 < len(kept):
            closed[np.unique(kept[level + 1][0].parent)] = False
        low.append(grid.edges[cells.first[closed]])
        high.append(grid.edges[cells.behind[closed]])
        leaf.append(counts[level][closed])
        plain.append(solved[level][closed])
        narrow.append(np.full(int(closed.sum()), level + 1 == len(grid.levels)))
        reached.append(seen[level][closed])
    order = np.argsort(np.concatenate(low), kind="stable")
    lows, highs, masses, raw = (np.concatenate(parts)[order] for parts in (low, high, leaf, plain))
    visible = np.flatnonzero(np.concatenate(reached)[order])
    shown = float(lows[visible[0]]), float(highs[visible[-1]])
    spiked = _spikes(lows, highs, masses, grid.unit, deviations[-1], shown) & np.concatenate(narrow)[order]
    return extent.continued(Histogram(lows, highs, masses, raw, spiked, grid.unit, deviations[-1], shown), max(deviations))


def _projected(counts: FloatArray, seen: npt.NDArray[np.bool_]) -> FloatArray:
    """Return the nearest counts that are not negative and keep the sum of those that are seen; the others are 0."""
    projected = np.zeros(counts.size)
    total = float(counts[seen].sum())
    if total > 0.0:
        projected[seen] = simplex_projection(counts[seen], total)
    return projected


def inside(histogram: Histogram, edges: FloatArray, masses: FloatArray) -> Histogram:
    """Return a fine histogram that agrees with what tables say of bins; within each, smooth but where noise is no reason not to be.

    Parameters
    ----------
    edges : float64 array, shape (B + 1,)
        Ends of the bins, ascending, on the scale of the histogram.
    masses : float64 array, shape (B,)
        Rows of each bin; at least 0.

    Notes
    -----
    The cells of the result are those of the histogram, parted at the bins' ends. Privacy: post-processing.
    """
    ends = edges.copy()
    ends[-1] = max(ends[-1], histogram.high[-1])
    marks = np.unique(np.concatenate([histogram.low, histogram.high, ends]))
    low, high = marks[:-1], marks[1:]
    cell = np.clip(np.searchsorted(histogram.low, low, side="right") - 1, 0, histogram.low.size - 1)
    part = (high - low) / (histogram.high - histogram.low)[cell]
    raw = histogram.raw[cell] * np.minimum(part, 1.0)
    owner = np.clip(np.searchsorted(ends, low, side="right") - 1, 0, masses.size - 1)
    smooth = _smooth(ends, masses, low, high)
    counts, earlier = np.zeros(low.size), histogram.counts[cell] * np.minimum(part, 1.0)
    starts = np.searchsorted(owner, np.arange(masses.size + 1))
    for bin_, mass in enumerate(masses.tolist()):
        here = slice(int(starts[bin_]), int(starts[bin_ + 1]))
        if (ends[bin_] < histogram.shown[0] or ends[bin_ + 1] > histogram.shown[1]) and (known := float(earlier[here].sum())) > 0.0:
            counts[here] = earlier[here] * (mass / known)  # beyond what is shown the width of cells says nothing
            continue
        left = mass - float(raw[here].sum())
        share = smooth[here] / smooth[here].sum() if smooth[here].sum() > 0.0 else 1.0 / max(raw[here].size, 1)
        counts[here] = _shared(raw[here] + left * share, smooth[here], mass, histogram.noise)
    spiked = histogram.spiked[cell] | _spikes(low, high, counts, histogram.unit, histogram.noise, histogram.shown)
    return replace(histogram, low=low, high=high, counts=counts, raw=raw, spiked=spiked & (part >= 1.0))


def _smooth(ends: FloatArray, masses: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return what cells hold if the distribution function goes smoothly through the ends of bins.

    Bins of no width, such as zero alone, are left out of it; a cell there holds what its bin does.
    """
    from scipy.interpolate import PchipInterpolator  # loaded when needed: scipy takes .3 s

    owner = np.clip(np.searchsorted(ends, low, side="right") - 1, 0, masses.size - 1)
    largest = _largest(ends[0], ends[-1])
    scaled = ends / largest
    wide = np.diff(scaled) > _NARROWEST
    knots = np.append(scaled[:-1][wide], scaled[-1])
    distribution = PchipInterpolator(knots, np.concatenate([[0.0], np.cumsum(masses[wide])]))
    between: FloatArray = np.maximum(distribution(high / largest) - distribution(np.maximum(low / largest, knots[0])), 0.0)
    return np.where(wide[owner], between, masses[owner])


class _Covering:
    """Disjoint cells that cover the grid, the finest known so far, with their counts."""

    def __init__(self, grid: Grid, cells: Cells, counts: FloatArray) -> None:
        self.grid, self.first, self.behind, self.counts = grid, cells.first, cells.behind, counts

    def with_parts(self, cells: Cells, counts: FloatArray) -> _Covering:
        """Return the cells with some of them replaced by their parts."""
        inside = np.searchsorted(self.first, cells.first, side="right") - 1
        closed = np.ones(self.first.size, bool)
        closed[inside] = False
        first = np.concatenate([self.first[closed], cells.first])
        order = np.argsort(first, kind="stable")
        behind = np.concatenate([self.behind[closed], cells.behind])
        masses = np.concatenate([self.counts[closed], counts])
        nothing = np.zeros(0, np.int64)
        return _Covering(self.grid, Cells(first[order], behind[order], nothing), masses[order])

    def smooth(self, cells: Cells) -> FloatArray:
        """Return what parts would hold if the distribution function went smoothly through all ends of these cells."""
        edges = self.grid.edges
        ends = np.append(edges[self.first], edges[self.behind[-1]])
        return _smooth(ends, self.counts, edges[cells.first], edges[cells.behind])


def _families(cells: Cells, parents: FloatArray) -> Iterator[tuple[slice, float]]:
    """Yield the parts of every cell that was counted in parts, with that cell's count."""
    places, starts = np.unique(cells.parent, return_index=True)
    ends = np.append(starts[1:], cells.parent.size)
    for place, start, end in zip(places.tolist(), starts.tolist(), ends.tolist(), strict=True):
        yield slice(start, end), float(parents[place])


def _least_squares(levels_: Sequence[tuple[Cells, FloatArray]], variances: Sequence[float]) -> list[FloatArray]:
    """Return the least squares solution over the tree: children's means upwards, discrepancies downwards."""
    best = [counts.copy() for _, counts in levels_]
    spread = [np.full(counts.size, variances[level]) for level, (_, counts) in enumerate(levels_)]
    below: list[tuple[FloatArray, FloatArray]] = []
    # Upwards: a cell is known from its own count and from those of its parts.
    for level in range(len(levels_) - 1, 0, -1):
        cells = levels_[level][0]
        size = best[level - 1].size
        total = np.bincount(cells.parent, best[level], size).astype(np.float64)
        variance = np.bincount(cells.parent, spread[level], size).astype(np.float64)
        parents = np.flatnonzero(variance > 0.0)
        weight = variance[parents] / (variance[parents] + spread[level - 1][parents])
        best[level - 1][parents] = weight * best[level - 1][parents] + (1.0 - weight) * total[parents]
        spread[level - 1][parents] *= weight
        below.append((total, variance))
    # Downwards: what parts miss of their cell's estimate goes to those that are least certain.
    for level, (total, variance) in zip(range(1, len(levels_)), reversed(below), strict=True):
        parent = levels_[level][0].parent
        best[level] += (best[level - 1] - total)[parent] * spread[level] / variance[parent]
    return best


def _shared(counts: FloatArray, smooth: FloatArray, mass: float, deviation: float) -> FloatArray:
    """Return counts of the parts of one cell, not negative, their sum its count: smooth but where noise is no reason not to be."""
    if mass <= 0.0:
        return np.zeros(counts.size)
    even = smooth / smooth.sum() if smooth.sum() > 0.0 else np.full(counts.size, 1.0 / counts.size)
    base, single = mass * even, np.zeros(counts.size, bool)
    # What is too far from the smooth curve for noise keeps its own count, the farthest first; the curve moves for the rest.
    for _ in range(counts.size):
        off = np.where(single, 0.0, np.abs(counts - base))
        worst = int(np.argmax(off))
        if off[worst] <= _SPIKE * deviation:
            break
        single[worst] = True
        rest = max(mass - float(counts[single].sum()), 0.0)
        left = float(even[~single].sum())
        base = np.where(single, counts, rest * even / left if left > 0.0 else 0.0)
    # The other deviations are shrunk by as much as they look like noise, as James and Stein do.
    plain = ~single
    k = int(plain.sum())
    if k > 3:
        excess = float(((counts - base)[plain] ** 2).sum()) / deviation**2
        share = max(1.0 - (k - 1) / excess, 0.0) if excess > 0.0 else 0.0
        base[plain] += share * (counts - base)[plain]
    return simplex_projection(base, mass)


def _spikes(
    low: FloatArray, high: FloatArray, counts: FloatArray, unit: float, deviation: float, shown: tuple[float, float]
) -> npt.NDArray[np.bool_]:
    """Return which cells of several values hold far more rows than cells beside them, and are narrow beside all that is shown.

    Where all rows are in a few cells that is as far as the grid can tell values apart, and no sign that they are one.
    """
    # Relative to the largest bound, so that nothing overflows.
    largest = _largest(low[0], high[-1])
    several = high - low > 1.5 * unit
    reach = min(shown[1], float(high[-1])) / largest - max(shown[0], float(low[0])) / largest
    low, high = low / largest, high / largest
    widths = high - low
    several &= widths > _NARROWEST
    density = np.where(several, counts, 0.0) / np.maximum(widths, _NARROWEST)
    padded = np.concatenate([[0.0], density, [0.0]])
    beside = np.maximum(padded[:-2], padded[2:]) * widths
    narrow = widths <= _NARROW_SHARE * reach
    spikes: npt.NDArray[np.bool_] = several & narrow & (counts > 4.0 * beside) & (counts > _SPIKE * deviation)
    return spikes


def _largest(low: float, high: float) -> float:
    """Return the largest bound: relative to it no width or sum of bounds overflows, and a range of denormals has widths."""
    return max(abs(float(low)), abs(float(high)))
