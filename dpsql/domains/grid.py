"""The grid of a numeric or temporal column: nested cells from its public bounds down to single values, as far as is affordable.

A *fine histogram* (`dpsql.tables.fine`) counts along this grid, level by level. It is a function of the declared type and bounds
alone.

* Up to `LINEAR` values between the bounds, and for dates and times: cells of equal width, each split in `BRANCH` parts, down to
  single values (or to `DEPTH` levels).
* Wider ranges that hold zero or many magnitudes: a cell for zero and one for each power of two with sign, each split in `BRANCH`
  parts again and again. So money from 0 to 1e7 is seen with the same relative precision everywhere.

Privacy: public. Nothing in here has seen data.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute
from dpsql.numerics.arrays import FloatArray, IntArray

BRANCH, DEPTH, LINEAR = 16, 4, 4096
_FLAT = 64
"""Values up to which one level is enough."""
_OCTAVES = 32
"""Powers of two below the largest bound of a FLOAT or DOUBLE that have a cell of their own."""
_RATIO = 16
"""Bounds of one sign that differ by less than this factor are split in equal parts."""
_STEPS = 1 << 40
"""Steps that stand for the values of a FLOAT or DOUBLE between bounds of similar size."""
_LARGEST = 1 << 62


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
        found = np.searchsorted(self.edges, values, side="right") - 1
        found[np.isnan(values)] = 0
        placed: IntArray = np.clip(found, 0, self.edges.size - 2)
        return placed

@dataclass(frozen=True)
class Histogram:
    """What a fine histogram says: disjoint cells that cover the range, each with a number of rows.

    Parameters
    ----------
    low, high : float64 arrays
        Cell i is [low[i], high[i]).
    counts : float64 array
        Rows, at least 0.
    spiked : bool array
        Whether a cell of several values holds so many more rows than its neighbours that they are taken to have one value.
    unit : float
        Distance of neighbouring values, 0 where there is none.
    noise : float
        Standard deviation of the noise of one cell of the finest level.
    """

    low: FloatArray
    high: FloatArray
    counts: FloatArray
    spiked: npt.NDArray[np.bool_]
    unit: float
    noise: float


def grid_of(attribute: Attribute, depth: int = DEPTH) -> Grid:
    """Return the grid between the bounds of an attribute with bins.

    Parameters
    ----------
    depth : int, at least 1
        Levels, at most.

    Examples
    --------
    >>> age = Attribute("age", "INTEGER", "numeric", edges=(0.0, 120.0))
    >>> [len(level) - 1 for level in grid_of(age).levels]
    [8, 121]
    """
    return _grid(attribute.sql_type, attribute.edges[0], attribute.edges[-1], depth)


@lru_cache(maxsize=256)
def _grid(sql_type: str, low: float | str, high: float | str, depth: int) -> Grid:
    ends = replace(_BOUNDED, sql_type=sql_type, edges=(low, high))  # type: ignore[arg-type]
    parsed = sqltypes.parse(sql_type)
    found = sqltypes.grid(parsed, ends.edges)
    if found is None:
        numbers, unit = _real(float(low), float(high), depth), 0.0
    else:
        first, last = found[0], found[-1]
        unit = float(10.0**-parsed.scale) if parsed.family != "temporal" else 1.0
        if parsed.text == "TIMESTAMP_NS":  # declared in microseconds
            first, last = first // 1000, -(-last // 1000)
        nested = _whole(first, last, parsed.family != "temporal", depth)
        numbers = [[value * unit if unit != 1.0 else float(value) for value in level] for level in nested]
        if parsed.scale:  # as a DECIMAL is cast to a DOUBLE
            numbers = [[value / 10**parsed.scale for value in level] for level in nested]
    return _nested(numbers, unit)


_BOUNDED = Attribute("", "DOUBLE", "numeric", edges=(0.0, 1.0))


def _nested(levels: Sequence[Sequence[float]], unit: float) -> Grid:
    edges = np.unique(np.asarray(levels[-1], np.float64))
    places = tuple(np.unique(np.searchsorted(edges, np.asarray(level, np.float64))) for level in levels)
    return Grid(edges, tuple(place.astype(np.int64) for place in places), unit)


def _whole(first: int, last: int, magnitudes: bool, depth: int) -> list[list[int]]:
    """Return the edges of each level of the values first ... last - 1."""
    if last - first <= _FLAT:
        return [[*range(first, last + 1)]]
    spread = max(abs(first), abs(last)) >= _RATIO * max(min(abs(first), abs(last)), 1)
    if magnitudes and last - first > LINEAR and (first <= 0 < last or spread):
        return _refined(_magnitudes(first, last), depth)
    cells = last - first
    top = 1
    while top * BRANCH < cells:
        top *= BRANCH
    # As few cells at the top as leave whole powers of BRANCH below.
    top = max(-(-cells // top), 1) if top > 1 else cells
    levels_needed = 1 + math.ceil(math.log(max(cells / top, 1.0), BRANCH) - 1e-9)
    if levels_needed > depth:
        top = BRANCH
    return _refined(_split([first, last], max(top, 2)), depth)


def _magnitudes(first: int, last: int) -> list[int]:
    """Return zero, the values up to BRANCH, and the powers of two beyond, with sign, within [first, last)."""
    powers = [0, 1, *(1 << k for k in range(BRANCH.bit_length() - 1, max(abs(first), abs(last)).bit_length() + 1))]
    signed = {*powers, *(1 - power for power in powers)}  # -v is the last value of a cell that ends at 1 - v
    return [first, *sorted(edge for edge in signed if first < edge < last), last]


def _refined(top: list[int], depth: int) -> list[list[int]]:
    levels = [top]
    while len(levels) < depth and any(b - a > 1 for a, b in itertools.pairwise(levels[-1])):
        levels.append(_split(levels[-1], BRANCH))
    return levels


def _split(edges: Sequence[int], parts: int) -> list[int]:
    return [*itertools.chain.from_iterable(_parts(a, b, parts) for a, b in itertools.pairwise(edges)), edges[-1]]


def _parts(a: int, b: int, parts: int) -> Iterator[int]:
    """Yield the starts of equal parts of [a, b), none of them empty."""
    count = min(parts, b - a)
    width = -(-(b - a) // count)
    if (b - a) <= parts:
        yield from range(a, b)
    elif width & (width - 1) == 0 or (b - a) % count == 0:
        yield from range(a, b, width)
    else:
        yield from (a + i * (b - a) // count for i in range(count))


def _real(low: float, high: float, depth: int) -> list[list[float]]:
    """Return the edges of each level of real numbers in [low, high]."""
    behind = math.nextafter(high, math.inf)
    small, large = sorted((abs(low), abs(high)))
    if low <= 0.0 <= high or large >= _RATIO * small:
        tiny = math.ldexp(1.0, math.frexp(large)[1] - _OCTAVES)
        powers = [tiny * 2.0**k for k in range(_OCTAVES + 1)]
        zero = math.ulp(0.0)
        marks = {0.0, zero, *powers, *(-p for p in powers)}
        top = [low, *sorted(mark for mark in marks if low < mark < behind), behind]
    else:
        top = [low + (high - low) * i / BRANCH for i in range(BRANCH)] + [behind]
    levels = [top]
    while len(levels) < depth:
        levels.append([*itertools.chain.from_iterable(_real_parts(a, b) for a, b in itertools.pairwise(levels[-1])), behind])
    return levels


def _real_parts(a: float, b: float) -> Iterator[float]:
    if b - a <= 16 * math.ulp(0.0):  # zero alone
        yield a
        return
    yield from (a + (b - a) * i / BRANCH for i in range(BRANCH))
