"""Ten questions about linked rows, asked of two databases. NOT PRIVATE.

They are of the kinds that the documentation of `dp_query` asks (`docs/asking.md`), over a child table and the tables above it: how
many, means, medians, quantiles and shares by group, how many people have a row like that, and what rows of one person come to
together. All are arithmetic on arrays of codes and values: no SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.custodian.linked_counts import Codes, Database, ancestors, rows_above
from dpsql.domains.attributes import Domain
from dpsql.numerics.arrays import FloatArray, IntArray

_SANITY = 0.01
"""Share of all rows, of all units, or of the span of the values, below which an error is not set in relation to an answer."""


@dataclass(frozen=True)
class Question:
    """A question, and its answers by group.

    Parameters
    ----------
    text : str
    raw, synthetic, shuffled : float arrays, shape (groups,)
        Of the raw database, the synthetic one, and the raw one with rows given to parents at random; NaN: no answer.
    floor : float
        What errors are set in relation to at least.
    """

    text: str
    raw: FloatArray
    synthetic: FloatArray
    shuffled: FloatArray
    floor: float

    def errors(self, of: FloatArray) -> FloatArray:
        """Return the relative errors of answers, for groups that the raw database has an answer for; 1 where ``of`` has none."""
        known = ~np.isnan(self.raw)
        base = np.maximum(np.abs(self.raw[known]), self.floor)
        apart = np.divide(np.abs(of[known] - self.raw[known]), base, out=np.zeros(int(known.sum())), where=base > 0.0)
        return np.where(np.isnan(apart), 1.0, apart)


@dataclass(frozen=True)
class _View:
    """A child table of one database with what the questions look at.

    Parameters
    ----------
    unit : int array (rows,)
        The root's row.
    units : int
    value : float array (rows,) or None
        NaN: none.
    own, above : (int array, int) or None
        Codes and their number: of a column of the rows; of a column of the rows above.
    of_unit : (int array, int) or None
        Of a column of the root, by unit.
    """

    unit: IntArray
    units: int
    value: FloatArray | None
    own: tuple[IntArray, int]
    above: tuple[IntArray, int]
    of_unit: tuple[IntArray, int]


def questions(
    raw: Database, synthetic: Database, domains: Sequence[tuple[str, Domain]], table: int, seed: int = 0
) -> Iterator[Question]:
    """Yield the ten questions about a child table, or those that its columns allow.

    Parameters
    ----------
    raw, synthetic : sequences of Codes
    domains : sequence of (str, Domain)
        Names and columns of the tables.
    table : int
        Position of a table that is not the root.

    Notes
    -----
    Privacy: NOT PRIVATE. The first suitable column of each kind is taken: a category of the rows, one of the nearest table above
    and of the root, a number of the rows.
    """
    numbers = [i for i in sorted(raw[table].values) if i in synthetic[table].values]
    own = _category(domains[table][1])
    parent = next(((a, i) for a in ancestors(raw, table) if (i := _category(domains[a][1])) is not None), None)
    root = _category(domains[0][1])
    value = numbers[0] if numbers else None
    name, domain = domains[table]

    def view(side: Database) -> _View:
        rows, above = side[table], (np.zeros(side[table].rows, np.int64), 1)
        if parent is not None:
            codes, size = _column(side[parent[0]], parent[1])
            above = (codes[rows_above(side, table, parent[0])], size)
        number = None if value is None else rows.values[value]
        return _View(rows_above(side, table, 0), side[0].rows, number, _column(rows, own), above, _column(side[0], root))

    first, second, third = view(raw), view(synthetic), view(_shuffled(raw, table, seed))
    by_own = "" if own is None else f" by {domain.names[own]}"
    by_above = "" if parent is None else f" by {domains[parent[0]][0]}.{domains[parent[0]][1].names[parent[1]]}"
    by_unit = "" if root is None else f" by {domains[0][0]}.{domains[0][1].names[root]}"
    rows, units = _SANITY * raw[table].rows, _SANITY * raw[0].rows

    def asked(text: str, answer: Callable[[_View], FloatArray], floor: float) -> Question:
        return Question(text, answer(first), answer(second), answer(third), floor)

    yield asked(f"rows of {name}{by_above}", _rows, rows)
    yield asked(f"units with a row of {name}{by_own}", lambda side: _units_with(side, 1), units)
    yield asked(f"units with two rows of {name} alike{by_own}", lambda side: _units_with(side, 2), units)
    yield asked(f"mean number of rows of {name}{by_unit}", _rows_of_a_unit, _SANITY)
    if value is None or not np.isfinite(raw[table].values[value]).any():
        return
    number, known = domain.names[value], raw[table].values[value]
    known = known[np.isfinite(known)]
    middle, high = (float(end) for end in np.quantile(known, [0.5, 0.9]))
    floor = _SANITY * float(known.max() - known.min())
    yield asked(f"mean of {number}{by_above}", _mean, floor)
    yield asked(f"median of {number}{by_above}", lambda side: _quantile(side, 0.5), floor)
    yield asked(f".9 quantile of {number}{by_own}", lambda side: _quantile(replace(side, above=side.own), 0.9), floor)
    yield asked(f"share of rows with {number} > {middle:g}{by_own}", lambda side: _share(side, middle), _SANITY)
    yield asked(f"mean sum of {number} of a unit{by_unit}", _total, floor)
    yield asked(f"units with {number} > {high:g}{by_unit}", lambda side: _units_beyond(side, high), units)


def _column(codes: Codes, place: int | None) -> tuple[IntArray, int]:
    """Return the codes of a column and their number; of none the same code everywhere."""
    if place is None:
        return np.zeros(codes.rows, np.int64), 1
    return codes.columns[place].astype(np.int64), codes.sizes[place]


def _category(domain: Domain) -> int | None:
    """Return the place of the first column of two categories or more."""
    return next((i for i, a in enumerate(domain.attributes) if a.kind == "categorical" and a.size > 1), None)


def _shuffled(database: Database, table: int, seed: int) -> list[Codes]:
    """Return a database in which the rows of a table are given to its parents' rows at random."""
    parent, _ = database[table].linked
    moved = replace(database[table], parent=np.random.default_rng(seed).permutation(parent))
    return [moved if place == table else codes for place, codes in enumerate(database)]


def _rows(side: _View) -> FloatArray:
    codes, size = side.above
    return np.bincount(codes, minlength=size).astype(np.float64)


def _units_with(side: _View, least: int) -> FloatArray:
    codes, size = side.own
    pairs, counts = np.unique(side.unit * size + codes, return_counts=True)
    return np.bincount(pairs[counts >= least] % size, minlength=size).astype(np.float64)


def _rows_of_a_unit(side: _View) -> FloatArray:
    codes, size = side.of_unit
    return _ratio(np.bincount(codes[side.unit], minlength=size), np.bincount(codes, minlength=size))


def _mean(side: _View) -> FloatArray:
    codes, size = side.above
    values, known = _known(side)
    return _ratio(np.bincount(codes[known], values, size), np.bincount(codes[known], minlength=size))


def _quantile(side: _View, share: float) -> FloatArray:
    codes, size = side.above
    values, known = _known(side)
    groups = codes[known]
    order = np.lexsort((values, groups))
    ends = np.searchsorted(groups[order], np.arange(size + 1))
    parts = [values[order][start:end] for start, end in zip(ends[:-1], ends[1:], strict=True)]
    return np.array([np.quantile(part, share) if part.size else np.nan for part in parts])


def _share(side: _View, middle: float) -> FloatArray:
    codes, size = side.own
    values, known = _known(side)
    return _ratio(np.bincount(codes[known], values > middle, size), np.bincount(codes[known], minlength=size))


def _total(side: _View) -> FloatArray:
    codes, size = side.of_unit
    values, known = _known(side)
    return _ratio(np.bincount(codes[side.unit[known]], values, size), np.bincount(codes, minlength=size))


def _units_beyond(side: _View, high: float) -> FloatArray:
    codes, size = side.of_unit
    values, known = _known(side)
    return np.bincount(codes[np.unique(side.unit[known][values > high])], minlength=size).astype(np.float64)


def _known(side: _View) -> tuple[FloatArray, IntArray]:
    """Return the numbers that are there, and their rows."""
    values = np.zeros(0) if side.value is None else side.value
    known = np.flatnonzero(np.isfinite(values))
    return values[known], known


def _ratio(above: npt.NDArray[Any], below: npt.NDArray[Any]) -> FloatArray:
    ratio: FloatArray = np.full(below.size, np.nan)
    np.divide(above, below, out=ratio, where=below > 0)
    return ratio
