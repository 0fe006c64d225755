r"""How far a column's rows reach: the part of a fine histogram in which released counts show rows, and how its tails go on beyond.

Between wide bounds most cells hold nobody, and what noise leaves in them counts by its distance: thirty rows that are not there, at
a thousand times the median, are most of a mean. Counts that cannot be negative keep the noise above zero and lose the one below, so
its mean is not zero. So a fine histogram has rows only in cells, or runs of cells, that show some (`seen`), from the coarse ones,
the magnitudes, down to their parts: a count has to pass the more deviations of its noise the more this could do to the mean.

That alone would cut off every tail where it becomes as thin as the noise, and each mean would be too low. A tail that is seen
to fall (its last two octaves of distance from the median) goes on, where the counts beyond do not contradict it (`continued`): the
logarithm of the rows beyond a distance falls as its `POWER`, between an exponential tail and a power's. What becomes of the mean is
less than the noise does to it; and the rows end where the tail does, whatever the bounds are.

Privacy: post-processing of released counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dpsql.domains.grid import Histogram
from dpsql.numerics.arrays import FloatArray, IntArray

Flags = npt.NDArray[np.bool_]

SHOWN = 4.5
"""Standard deviations of its noise that a count has to pass before anything is known of the column's spread."""

FAINT = 3.0
"""Standard deviations that one has to pass where none passes `SHOWN`."""

LEVERAGE = 0.02
"""Part of the sum of all rows' distances from the median that the noise of a cell may add to it."""

TOLERATED = 0.011
"""The same of the root of what noise alone adds on average, squared: where z deviations are passed, exp(-z^2 / 4) of its part.
So a cell whose noise is `LEVERAGE` has to pass 1.5 deviations, one where it is the whole spread, 4.2."""

NEAR = 2.0
"""Distance from the median, relative to that of the nearest cell before it that shows rows, up to which there may be some too."""

_RUNS = (2, 4, 8)
"""Lengths of runs."""

_REACH = 4.0
"""Distances from the median, relative to the last cell's end, up to which counts speak for or against a tail."""

POWER = 0.25
"""Power of the distance from the median in which the logarithm of a tail's rows falls: 1 is an exponential tail, 0 a power's.

The mean of all rows of a histogram is off by -.1 to +.7 % with costs that are lognormal, by -3.0 to 0 % with a power's tail of
index 2.2, by +.6 to +.7 % with a gamma distribution: 60,000 rows, bounds to 10,000,000, noise of 20 to 160 rows, 40 draws."""

FALLS = 1.0
"""Rows of the last octave but one, relative to the last, above which a tail is seen to fall."""

CONTRADICTS = 2.0
"""Standard deviations by which the rows counted beyond are fewer than half of those of a tail that goes on, so that none does."""

_UNSURE = 0.5
"""Standard deviation of what is expected of a tail, relative to it."""


@dataclass(frozen=True)
class Level:
    """Cells of one level, ascending.

    Parameters
    ----------
    low, high : float64 arrays
        Ends of each cell, relative to the largest bound.
    parent : int64 array
        Place of the cell that each is a part of, in the level before.
    counts : float64 array
        Unbiased.
    deviation : float
        Of their noise.
    """

    low: FloatArray
    high: FloatArray
    parent: IntArray
    counts: FloatArray
    deviation: float


def seen(levels: Sequence[Level]) -> list[Flags]:
    """Return of each level which cells may hold rows: those that show some, those near them, and those where noise moves no mean.

    A cell shows rows if its count does, alone or with its neighbours, and so does the one that it is a part of: the count has to
    pass more deviations of its noise the more the noise could do to the mean. Parts of a cell that shows rows, none of which does,
    may all hold some; so may all cells where none of the first level shows any.
    """
    for passed in (SHOWN, FAINT):
        shown = _shown(levels, [np.full(level.counts.size, passed) for level in levels])
        if shown[0].any():
            break
    else:
        return [np.ones(level.counts.size, bool) for level in levels]
    # Noise far from the middle moves the mean most: cells have to pass the more, the further out they are.
    middle, spread = _spread(levels, shown)
    away = [level.low / 2.0 + level.high / 2.0 - middle for level in levels]
    limits, free = [], []
    for level, distance in zip(levels, away, strict=True):
        part = level.deviation * np.abs(distance)
        limits.append(np.sqrt(4.0 * np.log(np.maximum(part / max(TOLERATED * spread, 1e-300), 1.5))))
        free.append(part <= LEVERAGE * spread)
    nearer = _shown(levels, limits)
    shown = nearer if nearer[0].any() else shown  # far from each other, and each alone within its noise
    # A little further out than what is shown there may be rows as well, where noise moves no mean.
    for side in (-1.0, 1.0):
        inner = np.sort(np.concatenate([side * far[flags] for far, flags in zip(away, _finest(levels, shown), strict=True)]))
        for far, flags in zip(away, free, strict=True):
            before = inner[np.maximum(np.searchsorted(inner, side * far, side="right") - 1, 0)]
            flags |= (before > 0.0) & (side * far >= before) & (side * far <= NEAR * before)
    # A part can only be seen inside of a cell that is.
    for number, level in enumerate(levels):
        shown[number] |= free[number]
        if number:
            shown[number] &= shown[number - 1][level.parent]
    return shown


def _finest(levels: Sequence[Level], flags: Sequence[Flags]) -> list[Flags]:
    """Return the flags without those of cells that were counted in parts."""
    finest = [own.copy() for own in flags]
    for flag, level in zip(finest, levels[1:], strict=False):
        flag[level.parent] = False
    return finest


def _shown(levels: Sequence[Level], limits: Sequence[FloatArray]) -> list[Flags]:
    """Return of each level which cells show rows, each of which has to pass so many standard deviations."""
    shown: list[Flags] = []
    for number, (level, limit) in enumerate(zip(levels, limits, strict=True)):
        shows = np.zeros(level.counts.size, bool)
        for family in _families(level.parent):
            some = _shows(level.counts[family] / (level.deviation * limit[family]))
            shows[family] = some | (number > 0 and not some.any())
        shown.append(shows & shown[-1][level.parent] if number else shows)
    return shown


def _families(parent: IntArray) -> Iterator[slice]:
    """Yield the places of the parts of one cell, of each."""
    marks = [0, *(np.flatnonzero(np.diff(parent)) + 1).tolist(), parent.size]
    yield from (slice(a, b) for a, b in itertools.pairwise(marks))


def _shows(counts: FloatArray) -> Flags:
    """Return which of neighbouring cells show rows, alone or in a run; counts are relative to what they have to pass."""
    shows = counts > 1.0
    for run in _RUNS:
        while counts.size >= run:
            sums = np.convolve(np.where(shows, -np.inf, counts), np.ones(run), "valid")
            largest = int(np.argmax(sums))
            if not sums[largest] > math.sqrt(run):
                break
            shows[largest : largest + run] = True
    return shows


def _spread(levels: Sequence[Level], shows: Sequence[Flags]) -> tuple[float, float]:
    """Return the median of the rows that are shown, and the sum of their distances from it."""
    middles, rows = [], []
    for level, own in zip(levels, _finest(levels, shows), strict=True):
        middles.append((level.low / 2.0 + level.high / 2.0)[own])
        rows.append(np.maximum(level.counts[own], 0.0))
    places, masses = np.concatenate(middles), np.concatenate(rows)
    order = np.argsort(places, kind="stable")
    places, masses = places[order], masses[order]
    middle = float(places[int(np.searchsorted(np.cumsum(masses), masses.sum() / 2.0))])
    return middle, float((masses * np.abs(places - middle)).sum())


def continued(histogram: Histogram, deviation: float) -> Histogram:
    """Return a fine histogram whose tails go on beyond what is shown, each as far as released counts do not contradict it.

    Parameters
    ----------
    histogram : Histogram
        Without rows outside of what is shown; `raw` are the unbiased counts there.
    deviation : float
        Of the noise of a cell there.
    """
    return _mirrored(_continued(_mirrored(_continued(histogram, deviation)), deviation))


def _mirrored(histogram: Histogram) -> Histogram:
    """Return the histogram of the negative values."""
    return replace(
        histogram, low=-histogram.high[::-1], high=-histogram.low[::-1], counts=histogram.counts[::-1], raw=histogram.raw[::-1],
        spiked=histogram.spiked[::-1], shown=(-histogram.shown[1], -histogram.shown[0]),
    )


def _continued(histogram: Histogram, deviation: float) -> Histogram:
    """Return the histogram with its upper tail."""
    behind = int(np.searchsorted(histogram.low, histogram.shown[1]))
    tail = _tail(histogram, behind, deviation)
    if tail is None:
        return histogram
    marks, rows = tail
    low = np.concatenate([histogram.low[:behind], marks])
    high = np.concatenate([histogram.high[:behind], marks[1:], histogram.high[-1:]])
    rest = np.append(rows, 0.0)
    # The tail reaches the bound itself: there is nothing behind it.
    if marks[-1] == histogram.high[-1]:
        low, high, rest = low[:-1], high[:-1], rows
    counts, raw = (np.concatenate([column[:behind], rest]) for column in (histogram.counts, histogram.raw))
    spiked = np.concatenate([histogram.spiked[:behind], np.zeros(rest.size, bool)])
    return replace(histogram, low=low, high=high, counts=counts, raw=raw, spiked=spiked)


def _tail(histogram: Histogram, behind: int, deviation: float) -> tuple[FloatArray, FloatArray] | None:
    """Return the ends of cells that the tail goes on in and their rows; None where there is no tail, or nothing to see of it."""
    total = float(histogram.counts.sum())
    if behind >= histogram.low.size or total <= 0.0:
        return None
    largest = max(abs(float(histogram.low[0])), abs(float(histogram.high[-1])))
    low, high = histogram.low / largest, histogram.high / largest
    upto = np.concatenate([[0.0], np.cumsum(histogram.counts)])
    place = min(int(np.searchsorted(upto, total / 2.0, side="right")) - 1, behind - 1)
    middle = float(low[place] + (high[place] - low[place]) * (total / 2.0 - upto[place]) / histogram.counts[place])
    # The shape is told by the second quarter of the way, and by all that lies beyond it.
    reach = float(high[behind - 1]) - middle
    quarter, half = (int(np.searchsorted(low[:behind], middle + part * reach, side="right")) - 1 for part in (0.25, 0.5))
    if not place < quarter < half:
        return None
    roots = np.asarray([low[quarter] - middle, low[half] - middle, reach]) ** POWER
    inner, outer = float(upto[half] - upto[quarter]), float(upto[behind] - upto[half])
    if outer <= SHOWN * deviation or inner <= FALLS * outer:
        return None
    slope = _slope(roots, inner / outer)
    expected = outer / math.expm1(slope * float(roots[2] - roots[1]))
    near = (low >= high[behind - 1]) & (low < middle + _REACH * reach)
    spread = deviation * math.sqrt(int(near.sum()))
    counted = float(histogram.raw[near].sum())
    if counted + CONTRADICTS * spread < _UNSURE * expected:
        return None  # so many rows would be seen
    # The less noise there is behind the last shown cell, the more the counts there decide instead of the shape.
    weight = 1.0 / (1.0 + (spread / (_UNSURE * expected)) ** 2)
    rows = expected + weight * (counted - expected)
    if rows < 1.0:
        return None
    steps = math.log(2.0) / 2.0 * np.arange(2 * math.ceil(math.log2(rows)) + 2)
    marks = np.minimum(middle + (roots[2] + steps / slope) ** (1.0 / POWER), high[-1]) * largest
    if histogram.unit > 0.0:
        marks = np.ceil(marks / histogram.unit) * histogram.unit
    marks[0] = histogram.high[behind - 1]
    marks = np.unique(np.clip(marks, marks[0], histogram.high[-1]))
    if marks.size < 2:
        return None
    left = np.exp(-slope * (np.maximum(marks / largest - middle, 0.0) ** POWER - roots[2]))
    masses = left[:-1] - left[1:]
    return (marks, masses * (rows / float(masses.sum()))) if masses.sum() > 0.0 else None


def _slope(roots: FloatArray, ratio: float) -> float:
    """Return the slope at which the inner of two neighbouring parts of a tail holds so many times the rows of the outer one."""
    inner, outer = float(roots[1] - roots[0]), float(roots[2] - roots[1])
    low, high = 0.0, 700.0 / max(inner, outer)
    for _ in range(100):
        slope = (low + high) / 2.0
        reached = math.expm1(slope * inner) / -math.expm1(-slope * outer)
        low, high = (slope, high) if reached < ratio else (low, slope)
    return high
