"""The grid of a numeric or temporal column: nested cells from its public bounds down to single values, as far as is affordable.

A *fine histogram* (`dpsql.tables.fine`) counts along this grid, level by level. It is a function of the declared type and bounds
alone.

* Numbers with up to `LINEAR` values between the bounds: cells between multiples of a power of ten, each split in tenths, down
  to single values (or to `DEPTH` levels).
* Wider ranges that hold zero or many magnitudes: a cell for zero, and cells between 1, 2, 5, 10, 20, 50, ... with sign, each split
  in about ten parts again and again. So money from 0 to 1e7 is seen with the same relative precision everywhere.
* Dates and times: years, months, days, hours, minutes.

Cells end at round numbers and at the calendar's own marks, since that is where people and prices have theirs.

Privacy: public. Nothing in here has seen data.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dpsql.domains import calendar, sqltypes
from dpsql.domains.attributes import Attribute
from dpsql.domains.sqltypes import SqlType
from dpsql.numerics.arrays import FloatArray, IntArray

BRANCH, DEPTH, LINEAR = 10, 4, 4096
DEEPEST = DEPTH + 1
"""Levels of dates and times whose `DEPTH` levels end with years."""
_MONTH = 31
"""Days."""
_FLAT = 64
"""Values up to which one level is enough."""
_DECADES = 9
"""Powers of ten below the largest bound of a FLOAT or DOUBLE whose cells are split by magnitude."""
_MOST_DECADES = 12
"""The same for whole numbers and decimals."""
_RATIO = 16
"""Bounds of one sign that differ by less than this factor are split in equal parts."""
_FEW = 3
"""Cells of dates or times that need no level of their own."""
_MOST_CELLS = 1 << 18
"""Finest cells of a column of dates or times, at most."""


@dataclass(frozen=True)
class Grid:
    """Nested cells.

    Parameters
    ----------
    edges : float64 array, shape (L + 1,)
        Edges of the L finest cells, ascending; cell i is [edges[i], edges[i + 1]). For dates and times in steps of the type
        since 1970 (days, ..., microseconds).
    levels : tuple of int64 arrays
        Each the positions among `edges` of the edges of one level's cells, from coarse to fine; the last one has all.
    unit : float
        Distance of neighbouring values of the type; 0 for FLOAT and DOUBLE.
    """

    edges: FloatArray
    levels: tuple[IntArray, ...]
    unit: float

    def place(self, values: FloatArray) -> IntArray:
        """Return the finest cell of each value; what lies outside belongs to the first or the last one, NaN to the first."""
        cells = np.searchsorted(self.edges, values, side="right") - 1
        cells[np.isnan(values)] = 0
        placed: IntArray = np.clip(cells, 0, self.edges.size - 2)
        return placed


@dataclass(frozen=True)
class Histogram:
    """What a fine histogram says: disjoint cells that cover the range, each with a number of rows.

    Parameters
    ----------
    low, high : float64 arrays
        Cell i is [low[i], high[i]).
    counts : float64 array
        Rows, at least 0: smooth where the noise explains what is not.
    raw : float64 array
        Rows by least squares alone; unbiased, perhaps negative.
    spiked : bool array
        Whether a cell of several values holds so many more rows than its neighbours that they are taken to have one value.
    unit : float
        Distance of neighbouring values, 0 where there is none.
    noise : float
        Standard deviation of the noise of one cell of the finest level.
    shown : (float, float)
        Ends of the part in which released counts show rows; beyond it `counts` say how tails go on (`dpsql.tables.extent`).
    """

    low: FloatArray
    high: FloatArray
    counts: FloatArray
    raw: FloatArray
    spiked: npt.NDArray[np.bool_]
    unit: float
    noise: float
    shown: tuple[float, float] = (-math.inf, math.inf)


def centres(low: FloatArray, high: FloatArray) -> FloatArray:
    """Return the middle of each of neighbouring cells, relative to the largest bound, so that nothing overflows."""
    largest = max(abs(float(low[0])), abs(float(high[-1])))
    middles: FloatArray = (low / largest + high / largest) / 2.0
    return middles


def edge_numbers(attribute: Attribute) -> FloatArray:
    """Return where bins end on the scale of the grid: at the first value of each, where the type has neighbouring values.

    Dates and times are in steps of their type since 1970. Of real numbers a bin that begins at the double before the upper bound
    stands for the upper bound alone, and begins there.

    Examples
    --------
    >>> edge_numbers(Attribute("age", "INTEGER", "numeric", edges=(0.0, 2.5, 5.0))).tolist()
    [0.0, 3.0, 6.0]
    >>> edge_numbers(Attribute("cost", "DOUBLE", "numeric", edges=(0.0, math.nextafter(5.0, 0.0), 5.0))).tolist()
    [0.0, 5.0, 5.0]
    """
    parsed = sqltypes.parse(attribute.sql_type)
    if attribute.kind == "temporal":
        return np.asarray([sqltypes.steps_of(parsed, edge) for edge in attribute.edges], np.float64)
    bounds = sqltypes.grid(parsed, attribute.edges)
    if bounds is None:
        edges = np.asarray(attribute.edges, np.float64)
        if edges.size > 2 and edges[-2] == math.nextafter(edges[-1], -math.inf) and edges[-1] < sys.float_info.max:
            edges[-2] = edges[-1]
        return edges
    return np.asarray([bound / 10**parsed.scale for bound in bounds], np.float64)


def grid_of(attribute: Attribute, depth: int | None = None) -> Grid:
    """Return the grid between the bounds of an attribute with bins.

    Parameters
    ----------
    depth : int, at least 1, optional
        Levels, at most: those of a release. By default `DEPTH`, of dates and times over millennia `DEEPEST`, down to months.

    Examples
    --------
    >>> age = Attribute("age", "INTEGER", "numeric", edges=(0.0, 120.0))
    >>> [len(level) - 1 for level in grid_of(age).levels]
    [13, 121]
    """
    bounds = attribute.edges[0], attribute.edges[-1]
    grid = _grid(attribute.sql_type, *bounds, DEPTH if depth is None else depth)
    if depth is None and attribute.kind == "temporal" and len(grid.levels) == DEPTH:
        day = 86_400 * calendar.SECOND // sqltypes.MICROSECONDS[sqltypes.parse(attribute.sql_type).text]
        if float(np.median(np.diff(grid.edges))) > _MONTH * day:
            return _grid(attribute.sql_type, *bounds, DEEPEST)
    return grid


@lru_cache(maxsize=64)
def _grid(sql_type: str, low: float | str, high: float | str, depth: int) -> Grid:
    parsed = sqltypes.parse(sql_type)
    bounds = sqltypes.grid(parsed, (low, high))  # type: ignore[arg-type]
    if bounds is None:
        return _nested(_real(float(low), min(math.nextafter(float(high), math.inf), sys.float_info.max), depth), 0.0)
    first, last = bounds[0], bounds[-1]
    if parsed.family == "temporal":
        if parsed.text == "TIMESTAMP_NS":  # declared in microseconds
            first, last = first // 1000, -(-last // 1000)
        return _nested([[float(step) for step in level] for level in _calendar(parsed, first, last, depth)], 1.0)
    scale = 10**parsed.scale
    return _nested([[value / scale for value in level] for level in _whole(first, last, depth)], 1.0 / scale)


def _nested(levels: Sequence[Sequence[float]], unit: float) -> Grid:
    edges = np.unique(np.asarray(levels[-1], np.float64))
    places = [np.unique(np.searchsorted(edges, np.asarray(level, np.float64))).astype(np.int64) for level in levels]
    while len(places) > 1 and places[-1].size == places[-2].size:  # double precision has no finer cells
        del places[-1]
    return Grid(edges, tuple(places), unit)


def _whole(first: int, last: int, depth: int) -> list[list[int]]:
    """Return the edges of each level of the values first ... last - 1."""
    if last - first <= _FLAT:
        return [[*range(first, last + 1)]]
    large, small = max(abs(first), abs(last)), min(abs(first), abs(last))
    # Wide ranges, or such as reach over orders of magnitude, have cells that grow with their distance from zero.
    if last - first > LINEAR and (first <= 0 < last or large >= _RATIO * small):
        levels = [_marked(first, last, _magnitudes(large))]
    else:
        step = _step_of(last - first)
        levels = [[first, *range((first // step + 1) * step, last, step), last]]
    while len(levels) < depth and any(b - a > 1 for a, b in itertools.pairwise(levels[-1])):
        levels.append([*itertools.chain.from_iterable(_parts(a, b) for a, b in itertools.pairwise(levels[-1])), last])
    return levels


def _step_of(values: int) -> int:
    """Return the largest power of ten with which so many values make at least ten steps."""
    return int(10 ** max(len(str(values // BRANCH)) - 1, 0))


def _magnitudes(large: int) -> list[int]:
    """Return 0, 1, 2, 5, 10, 20, 50, ... up to a number; of too many decades those of the largest."""
    decades = [10**k for k in range(max(len(str(large)) - _MOST_DECADES, 0), len(str(large)) + 1)]
    return [0, 1, *sorted(digit * decade for decade in decades for digit in (1, 2, 5) if digit * decade <= large)]


def _marked(first: int, last: int, marks: Sequence[int]) -> list[int]:
    """Return edges at marks with both signs, within [first, last); of a negative mark -m the value -m ends a cell."""
    signed = {*marks, *(1 - mark for mark in marks)}
    return [first, *sorted(edge for edge in signed if first < edge < last), last]


def _parts(a: int, b: int) -> Iterator[int]:
    """Yield the starts of the parts of [a, b): multiples of a power of ten, at least ten parts where there are ten values."""
    if b - a <= 2 * BRANCH:
        yield from range(a, b)
        return
    step = _step_of(b - a)
    offset = 1 if b <= 0 else 0  # negative cells end at round numbers
    yield a
    yield from (edge for edge in range((a // step) * step + offset, b, step) if edge > a)


def _real(low: float, behind: float, depth: int) -> list[list[float]]:
    """Return the edges of each level of real numbers in [low, behind)."""
    large, small = max(abs(low), abs(behind)), min(abs(low), abs(behind))
    # As for whole numbers: over orders of magnitude cells grow, else they are as wide as each other.
    if low <= 0.0 < behind or large >= _RATIO * small:
        top = math.floor(math.log10(large))
        sizes = [float(f"{digit}e{k}") for k in range(max(top - _DECADES, -300), top + 1) for digit in (1, 2, 5)]
        marks = [0.0, math.ulp(0.0), *sizes, *(-size for size in sizes)]
    else:
        exponent = math.floor(math.log10((behind - low) / BRANCH))
        marks = [float(f"{m}e{exponent}") for m in range(math.floor(low / 10.0**exponent), math.ceil(behind / 10.0**exponent))]
        marks = marks if len(marks) <= 20 * BRANCH else []
    levels = [[low, *sorted(mark for mark in marks if low < mark < behind), behind]]
    while len(levels) < depth:
        levels.append([*itertools.chain.from_iterable(_real_parts(a, b) for a, b in itertools.pairwise(levels[-1])), behind])
    return levels


def _real_parts(a: float, b: float) -> Iterator[float]:
    yield a
    if b - a > 16 * math.ulp(0.0) and a + (b - a) / BRANCH > a:  # zero alone has no parts
        shift = 1.0 if b - a < sys.float_info.max / BRANCH else 0.5**4  # ten widths are no number
        yield from (a + (b - a) * shift * i / BRANCH / shift for i in range(1, BRANCH))


def _calendar(parsed: SqlType, first: int, last: int, depth: int) -> list[list[int]]:
    """Return the edges of each level of dates and times: years, months, days, ..., as many as there is room for."""
    per_second = max(calendar.SECOND // sqltypes.MICROSECONDS[parsed.text], 1)
    if parsed.text == "DATE":
        seconds = {"day": 1}
        names = ["millennium", "century", "decade", "year", "month", "day"]
    else:
        seconds = {"day": 86_400 * per_second, "hour": 3_600 * per_second, "minute": 60 * per_second, "second": per_second}
        seconds["millisecond"] = max(per_second // 1_000, 1)
        names = ["millennium", "century", "decade", "year", "month", "day", "hour", "minute", "second", "millisecond"]
        names = [*(names[6:] if parsed.text == "TIME" else names), "step"]
    levels: list[list[int]] = []
    for name in names:
        if len(levels) == depth and len(levels[0]) - 1 > _FEW:
            break
        width = seconds.get(name, 1)
        if name in calendar.YEARS:
            marks = calendar.year_marks(seconds["day"], first, last, name)
        elif (last - first) // width > _MOST_CELLS:
            break
        else:
            marks = [*range((first // width + 1) * width, last, width)]
        edges = sorted({first, *(mark for mark in marks if first < mark < last), last})
        if len(edges) > _FEW or name == names[-1] or levels:
            levels.append(edges)
        if len(levels) > 1 and len(levels[0]) - 1 <= _FEW:
            del levels[0]  # so few cells need no level of their own
    return levels or [[first, last]]
