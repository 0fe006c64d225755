r"""Leaves of a tree of counts that lie where the rows are: a first round of histograms, from which the tree's leaves are cut.

A tree of equal leaves between bounds that are wide, seen from the values, has all rows in one leaf. So where a type has more values
between the bounds than a tree has leaves, histograms come before it, of all groups together, from wide cells down to single *units*
(`Units`: the steps of the type; of real numbers 2^-48 of the span). A cell is counted in parts on the next level only where its
released count passes what noise alone seldom passes; so empty regions cost nothing but the cells that say so, and a value that many
rows have is found whatever the bounds are. `cut` then gives a leaf to about every so many rows, and one of its own to such a value.

Privacy. Cells of a level are disjoint, and which they are follows from what was released before: every kept row of a unit adds 1 to
one cell of a level at most. So a level is as sensitive as a histogram of magnitudes (`dpsql.estimates.magnitudes.sensitivity_of`),
and the levels and the tree are an adaptive composition of mechanisms whose scales stand in the plan. The leaves are a function of
released counts; they are stored with the release. A row is in one leaf, whichever they are: the tree is as sensitive as with equal
leaves (`dpsql.estimates.measures.sensitivity`). Only `dpsql.measure.query` gives `released` exact counts.

Measured (tests/benchmarks/query_truth.py): with bounds up to a million times the spread, the median of 2,000 and 20,000 rows is
as near as with the tightest bounds; the first round's tenth of the loss is made up for by leaves that follow the rows.

References
----------
Hay et al. (2010), PVLDB 3(1). Qardaji, Yang & Li (2013), PVLDB 6(14). Zhang, Xiao & Xie (2016), PrivTree, SIGMOD, for splitting
where the noisy count is large.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.domains import sqltypes
from dpsql.errors import ArgumentError
from dpsql.estimates.trees import simplex
from dpsql.noise.entropy import BoolArray
from dpsql.numerics.arrays import FloatArray, IntArray

SHARE = 0.1
"""Part of a tree's weight that the histograms before it take."""

MOST_UNITS = 1 << 53
_REAL_BITS = 48
_BITS = {"gaussian": 6, "laplace": 8}
"""Parts of a cell, as a power of two: under Laplace noise levels are dearer."""
_MOST_OPEN = 64
"""Cells of a level that are counted in parts, at most."""
_PASSED = 0.0013
"""Probability that the count of an empty cell passes; 3 standard deviations of normal noise."""
_EVEN = 0.25
"""Part of the leaves that are dealt out to cells whatever their counts: for groups that are unlike the others."""
_NARROW = 2.0**-20

Cells = tuple[IntArray, IntArray]
"""First unit of each cell, and the unit behind it."""


@dataclass(frozen=True)
class Units:
    """Whole numbers for values between bounds, in their order.

    Parameters
    ----------
    lower : float
        Value of unit 0.
    width : float, above 0
    count : int, from 2 to 2^53
    single : bool
        Whether a unit stands for one value, lower + u * width (an integer, a decimal); else for all from there to the next.
    sort : {'number', 'temporal'}
        Which values are round.

    Raises
    ------
    ArgumentError
        Something is out of range.
    """

    lower: float
    width: float
    count: int
    single: bool
    sort: str = "number"

    def __post_init__(self) -> None:
        numbers = all(type(n) in (float, int) and math.isfinite(n) for n in (self.lower, self.width))
        sound = numbers and self.width > 0 and type(self.count) is int and 2 <= self.count <= MOST_UNITS
        if not sound or type(self.single) is not bool or self.sort not in ("number", "temporal"):
            raise ArgumentError("units", self.count, "are out of range")

    @property
    def each(self) -> int:
        """How many units make up 1; 0 where a unit is wider, or they do not."""
        return round(1 / self.width) if self.single and self.width <= 1 else 0

    def values(self, units: FloatArray) -> FloatArray:
        """Return the values of (parts of) units."""
        if self.each:
            return np.asarray((round(self.lower * self.each) + units) / self.each)
        return np.asarray(self.lower + units * self.width)

    def to_json(self) -> dict[str, Any]:
        """Return plain values that ``from_json`` reads back, exactly."""
        return {"lower": self.lower, "width": self.width, "count": self.count, "single": self.single, "sort": self.sort}

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Units:
        """Read what ``to_json`` wrote.

        Raises
        ------
        ArgumentError
            It is something else.
        """
        if not isinstance(item, Mapping) or set(item) != {"lower", "width", "count", "single", "sort"}:
            raise ArgumentError("units", "(an object)", "must have the fields lower, width, count, single and sort")
        return cls(**item)


def units_of(sql_type: str, lower: float, upper: float, *, whole: bool) -> Units:
    """Return the units of a type between two bounds: integers, the last decimals, days, seconds; of others 2^-48 of the span.

    Parameters
    ----------
    lower, upper : float
        Of dates days, of times seconds since 1970. lower < upper.
    whole : bool
        Whether all values are integers, in these units.

    Examples
    --------
    >>> units_of("INTEGER", 0, 120, whole=True).count, units_of("DECIMAL(9,2)", -1.5, 10, whole=False).count
    (121, 1151)
    """
    parsed = sqltypes.parse(sql_type)
    sort = "temporal" if parsed.family == "temporal" else "number"
    if whole and upper - lower < MOST_UNITS:
        return Units(float(lower), 1.0, int(upper) - int(lower) + 1, True, sort)
    if sort == "temporal" and upper - lower < MOST_UNITS - 2:
        first = math.floor(lower)
        return Units(float(first), 1.0, max(2, math.floor(upper) - first + 1), False, sort)
    if parsed.family == "decimal":
        each = 10**parsed.scale
        first, last = math.ceil(Fraction(lower) * each), math.floor(Fraction(upper) * each)
        if 1 <= last - first < 1 << 51 and max(abs(first), abs(last)) < MOST_UNITS:
            return Units(first / each, 1 / each, last - first + 1, True)
    width = (upper - lower) * 2.0**-_REAL_BITS
    if not width > 0:
        raise ArgumentError("bounds", [lower, upper], "are too near to each other for a number between them")
    return Units(float(lower), width, 1 << _REAL_BITS, False, sort)


def depth(units: Units, mechanism: str) -> tuple[int, int]:
    """Return by how many bits a cell is parted, and the number of levels.

    Examples
    --------
    >>> depth(Units(0.0, 1.0, 1_000_001, True), "gaussian")
    (5, 4)
    """
    bits = (units.count - 1).bit_length()
    levels = -(-bits // _BITS[mechanism])
    return -(-bits // levels), levels


@dataclass(frozen=True)
class Cutting:
    """The histograms that are released before a tree.

    Parameters
    ----------
    place : int
        The measure whose leaves are cut.
    scales : tuple of Fraction
        Noise scale of each level.
    mechanism : {'gaussian', 'laplace'}
    """

    place: int
    scales: tuple[Fraction, ...]
    mechanism: str

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise of a cell, the largest."""
        return float(max(self.scales)) * (math.sqrt(2) if self.mechanism == "laplace" else 1.0)

    def to_json(self) -> dict[str, Any]:
        """Return plain values that ``from_json`` reads back, exactly."""
        return {"place": self.place, "scales": [str(scale) for scale in self.scales], "mechanism": self.mechanism}

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Cutting:
        """Read what ``to_json`` wrote.

        Raises
        ------
        ArgumentError, ValueError
            It is something else.
        """
        if not isinstance(item, Mapping) or set(item) != {"place", "scales", "mechanism"}:
            raise ArgumentError("cutting", "(an object)", "must have the fields place, scales and mechanism")
        place, scales = item["place"], item["scales"]
        sound = (
            type(place) is int and place >= 0 and item["mechanism"] in _BITS and isinstance(scales, list) and 1 <= len(scales) <= 64
            and all(isinstance(scale, str) and len(scale) < 100 and 0 < Fraction(scale) < 1 << 64 for scale in scales)
        )
        if not sound:
            raise ArgumentError("cutting", "(histograms)", "is out of range")
        return cls(place, tuple(map(Fraction, scales)), item["mechanism"])


@dataclass(frozen=True)
class Level:
    """What was released of one level.

    Parameters
    ----------
    first, behind : int64 arrays
        Units of each cell, ascending.
    counts : int64 array
        As released.
    parent : int64 array
        Place of the cell that each is a part of, in the level before.
    """

    first: IntArray
    behind: IntArray
    counts: IntArray
    parent: IntArray


def shifts(units: Units, mechanism: str) -> list[int]:
    """Return for each level the power of two that is the number of units in its cells."""
    bits, levels = depth(units, mechanism)
    return [bits * (levels - 1 - level) for level in range(levels)]


def released(units: Units, cutting: Cutting, leaves: int, answer: Callable[[int, Cells], IntArray]) -> list[Level]:
    """Return the cells of every level that are counted, with their released counts.

    Parameters
    ----------
    leaves : int
        That will be cut: a cell of fewer rows than are meant for one is not counted in parts.
    answer : function of (level, cells)
        Gives the noisy counts of cells: draws them from exact ones, or reads them. Called level by level.
    """
    bits, levels = depth(units, cutting.mechanism)
    width = 1 << (bits * (levels - 1))
    first = np.arange(0, units.count, width, dtype=np.int64)
    behind = np.minimum(first + width, units.count)
    parent = np.zeros(first.size, np.int64)
    counted = [Level(first, behind, answer(0, (first, behind)), parent)]
    for level in range(1, len(cutting.scales)):
        before = counted[-1]
        open_ = _opened(before, cutting.scales[level - 1], cutting.mechanism, int(counted[0].counts.sum()) // leaves)
        width >>= bits
        if not open_.size or not width:
            break
        parts = [np.arange(before.first[place], before.behind[place], width, dtype=np.int64) for place in open_.tolist()]
        parent = np.repeat(open_, [part.size for part in parts])
        first = np.concatenate(parts)
        behind = np.minimum(first + width, before.behind[parent])
        counted.append(Level(first, behind, answer(level, (first, behind)), parent))
    return counted


def _opened(level: Level, scale: Fraction, mechanism: str, least: int) -> IntArray:
    """Return the places of the cells that are counted in parts."""
    passed = max(least, float(scale) * (math.log(1 / (2 * _PASSED)) if mechanism == "laplace" else 3.0))
    places = np.flatnonzero((level.behind - level.first > 1) & (level.counts > passed))
    if places.size > _MOST_OPEN:
        places = np.sort(places[np.argsort(-level.counts[places], kind="stable")[:_MOST_OPEN]])
    return np.asarray(places, np.int64)


def cut(units: Units, levels: Sequence[Level], leaves: int) -> tuple[int, ...]:
    """Return the ends of leaves, in units, from 0 to ``units.count``: ``leaves`` + 1 of them, ascending. Post-processing.

    Parameters
    ----------
    levels : sequence of Level
        From `released`.
    leaves : int
        At most ``units.count``.
    """
    first, behind, masses = _covering(levels)
    total = float(masses.sum())
    weights = (behind - first) / units.count if total <= 0 else (1 - _EVEN) * masses / total + _EVEN / masses.size
    ends = {0, units.count}
    blocks = _blocks(weights, 2.0 / max(leaves - 1, 1))
    numbers = _dealt([float(weights[a:b].sum()) for a, b in blocks], [_most(first, behind, a, b) for a, b in blocks], leaves)
    for (a, b), number in zip(blocks, numbers, strict=True):
        if b - a > 1:
            ends.update(first[a + _parted(weights[a:b], number)].tolist())
        else:
            ends.update(_split(int(first[a]), int(behind[a]), number))
    return tuple(_filled(sorted(ends), leaves))


def _blocks(weights: FloatArray, heavy: float) -> list[tuple[int, int]]:
    """Return runs of cells: heavy ones alone, the others between them together."""
    alone = np.flatnonzero(weights >= heavy)
    marks = np.unique(np.concatenate([[0, weights.size], alone, alone + 1])).tolist()
    return list(itertools.pairwise(marks))


def _most(first: IntArray, behind: IntArray, a: int, b: int) -> int:
    """Return how many leaves a run can be parted in: a cell has units, several cells are not parted themselves."""
    return b - a if b - a > 1 else int(behind[a] - first[a])


def _dealt(weights: Sequence[float], most: Sequence[int], leaves: int) -> list[int]:
    """Return how many leaves each run gets, in proportion to its weight: from 1 to its most, together no more than there are."""
    shares, limits = np.asarray(weights), np.asarray(most, np.int64)

    def dealt(each: float) -> IntArray:
        return np.clip(np.floor(np.minimum(each * shares, 2.0**53)).astype(np.int64), 1, limits)

    low, high = 0.0, 1e18
    for _ in range(100):
        middle = math.sqrt(max(low, 1e-3) * high)
        low, high = (middle, high) if dealt(middle).sum() <= leaves else (low, middle)
    return [int(number) for number in dealt(low)]


def _parted(weights: FloatArray, number: int) -> IntArray:
    """Return the places of the cells of a run with which parts of about equal weight begin."""
    upto = np.cumsum(weights) - weights / 2
    return np.unique(np.searchsorted(upto, upto[-1] * np.arange(number) / number))


def _split(a: int, b: int, number: int) -> list[int]:
    """Return the starts of about equal parts of a cell, at multiples of a power of two: rows need not be told apart more finely."""
    step = 1 << max(0, ((b - a) // (4 * number)).bit_length() - 1)
    inner = [(a + (b - a) * i // number) // step * step for i in range(1, number)]
    return [a, *(end for end in inner if end > a)]


def _filled(ends: list[int], leaves: int) -> list[int]:
    """Return ends with the widest leaves halved until there are as many as there have to be."""
    widest = [(a - b, a, b) for a, b in itertools.pairwise(ends)]
    heapq.heapify(widest)
    while len(widest) < leaves:
        _, a, b = heapq.heappop(widest)
        middle = max(a + 1, _split(a, b, 2)[-1])
        heapq.heappush(widest, (a - middle, a, middle))
        heapq.heappush(widest, (middle - b, middle, b))
    return [*sorted(a for _, a, _ in widest), ends[-1]]


def _covering(levels: Sequence[Level]) -> tuple[IntArray, IntArray, FloatArray]:
    """Return disjoint cells that cover all units, the finest that were counted, with counts of at least 0 that add up."""
    out: list[tuple[IntArray, IntArray, FloatArray]] = []
    masses = _total(levels[0].counts.astype(np.float64))
    for number, level in enumerate(levels):
        if number:
            masses = _shared(level, masses)
        closed = np.ones(level.first.size, bool)
        if number + 1 < len(levels):
            closed[levels[number + 1].parent] = False
        out.append((level.first[closed], level.behind[closed], masses[closed]))
    first, behind, mass = (np.concatenate(parts) for parts in zip(*out, strict=True))
    order = np.argsort(first, kind="stable")
    return first[order], behind[order], mass[order]


def _total(counts: FloatArray) -> FloatArray:
    return np.asarray(simplex(counts[None], np.maximum(counts.sum(keepdims=True), 0.0))[0])


def _shared(level: Level, parents: FloatArray) -> FloatArray:
    """Return the counts of parts, at least 0, which add up to their parent's."""
    masses = np.zeros(level.first.size)
    for place in np.unique(level.parent).tolist():
        here = level.parent == place
        masses[here] = simplex(level.counts[here].astype(np.float64)[None], parents[place : place + 1])[0]
    return masses


def points(units: Units, edges: IntArray) -> FloatArray:
    """Return for each leaf the value that stands for all of it, where it is so narrow that there is one; else NaN."""
    values = np.full(edges.size - 1, np.nan)
    if units.single:
        return values
    low, high = units.values(edges[:-1].astype(np.float64)), units.values(edges[1:].astype(np.float64))
    narrow = (np.diff(edges) == 1) | (high - low <= _NARROW * np.maximum(np.abs(low), np.abs(high)))
    if units.sort == "temporal":
        narrow = np.diff(edges) == 1
    for place in np.flatnonzero(narrow).tolist():
        behind = float(high[place]) if place + 1 < values.size else math.nextafter(float(high[place]), math.inf)  # the upper bound
        values[place] = low[place] if units.sort == "temporal" else _roundest(float(low[place]), behind)
    return values


def wide(units: Units, edges: IntArray) -> BoolArray:
    """Return which leaves hold numbers that differ, by more than a millionth of their size; `points` gives one all the same."""
    if units.single or units.sort == "temporal":
        return np.zeros(edges.size - 1, bool)
    low, high = units.values(edges[:-1].astype(np.float64)), units.values(edges[1:].astype(np.float64))
    return np.asarray(high - low > _NARROW * np.maximum(np.abs(low), np.abs(high)))


def _roundest(low: float, high: float) -> float:
    """Return the number of [low, high) with the fewest digits: what many rows have is most likely that."""
    if low <= 0.0 < high:
        return 0.0
    top = math.floor(math.log10(max(abs(low), abs(high), 1e-300)))
    for digits in range(17):
        exponent = top - digits
        step = Fraction(10) ** exponent
        value = float(math.ceil(Fraction(low) / step) * step)
        if low <= value < high:
            return value
    return low
