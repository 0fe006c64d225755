"""Count what a query asks: rows of units bounded, integers of every row added up by group in DuckDB, noise on every counter.

Privacy: the exact counters leave `counted` only through `released`. What is proved of the vectors that a row adds is in
`dpsql.estimates.measures`; that a unit has no more rows than the plan says is `dpsql.measure.bounding`'s.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np

from dpsql.domains import sqltypes
from dpsql.domains.bounding import light_first_sql
from dpsql.domains.encoding import ROW_COLUMN, SOURCE_NAME, UNIT_COLUMN
from dpsql.engines.base import Reader
from dpsql.errors import DpsqlError, ReleaseError
from dpsql.estimates.magnitudes import Learning
from dpsql.estimates.measures import Measure
from dpsql.estimates.thresholds import passing, present
from dpsql.measure.counters import Counters, clipped, double
from dpsql.measure.noising import add_noise
from dpsql.measure.ranked import Cells, cells_of, drawn
from dpsql.noise.entropy import BoolArray
from dpsql.numerics.arrays import IntArray
from dpsql.protected.source import ProtectedSource
from dpsql.release.learned import learned as bounds_from
from dpsql.release.plan import Plan
from dpsql.release.queried import QueryPlan
from dpsql.release.refined import Refinement
from dpsql.source.functions import caught
from dpsql.text.relation import identifier, literal

LARGEST_SUM = 1 << 60
"""Sums are cut to this absolute value before the noise, which changes no sensitivity: they fit into 64 bits."""
MOST_INLINE, MOST_INLINE_TEXT = 1_000, 20_000
"""Groups, and characters of the SELECT that lists them, that are written into each statement."""
_BY_CELL = ("tree", "values", "quantile")
"""Kinds of measures that are counted by cell."""
_EPOCH = {"DATE": "system.main.date_diff('day', DATE '1970-01-01', {})", "TIME": "system.main.epoch({})"}


@dataclass(frozen=True)
class Counted:
    """Exact counters. Privacy: secret.

    Parameters
    ----------
    groups : list of tuples
        Texts of the keys of each group.
    blocks : list of int64 arrays, shape (groups, counters)
    ranked : mapping of int to Cells
        By block that is drawn by rank (its counters are 0): rows by cell.
    """

    groups: list[tuple[str | None, ...]]
    blocks: list[IntArray]
    ranked: Mapping[int, Cells] = field(default_factory=dict)


def number_sql(value: str, sql_type: str) -> str:
    """Return the number of a value, in DOUBLE, by which it is bounded: of a date its day, of a time its seconds since 1970.

    NULL stays NULL, and what is no number (NaN, an infinite date) becomes NULL.

    Examples
    --------
    >>> number_sql("a0", "BIGINT"), number_sql("a0", "BOOLEAN")
    ('CAST(a0 AS DOUBLE)', 'CAST(CAST(a0 AS TINYINT) AS DOUBLE)')
    """
    found = sqltypes.parse(sql_type)
    if found.family == "boolean":
        return f"CAST(CAST({value} AS TINYINT) AS DOUBLE)"
    if found.family == "temporal":
        inner = _EPOCH.get(sql_type, "system.main.epoch({})").format(value)
        finite = value if sql_type == "TIME" else f"CASE WHEN system.main.isfinite({value}) THEN {value} END"
        return f"CAST({caught(inner.replace(value, finite))} AS DOUBLE)"
    number = f"CAST({value} AS DOUBLE)"
    return f"CASE WHEN system.main.isnan({number}) THEN NULL ELSE {number} END" if found.family == "float" else number


class Statement:
    """The SQL of one reading: the bounded rows of a source, over which counters are added up."""

    def __init__(
        self, protected: ProtectedSource, plan: QueryPlan, groups: str | None, salt: str, *, learning: bool = False
    ) -> None:
        self.protected, self.plan, self.groups = protected, plan, groups
        self.measures = () if learning else plan.measures
        self.learning = plan.learning if learning else ()
        self.counters = Counters(self.measures)
        self.types = {column.name: column.sql_type for column in protected.source.columns}
        self.keys = ["ord"] if groups is not None else [f"k{i}" for i in range(len(plan.keys))]
        self.columns = self._columns()
        self.rows = self._bounded(salt)

    def _columns(self) -> dict[str, str]:
        """Return what is needed of a row: a name, and its SQL over the source."""
        found: dict[str, str] = {}
        for measure in self.measures:
            for variable in measure.variables:
                name = f"a{variable.position}"
                if measure.kind in ("moments", "scaled", "tree", "quantile"):
                    found[f"x{variable.position}"] = number_sql(identifier(SOURCE_NAME, name), self.types[name])
                else:
                    found[name] = identifier(SOURCE_NAME, name)
            if measure.filter is not None:
                found[f"f{measure.filter}"] = identifier(SOURCE_NAME, f"f{measure.filter}")
        for one in self.learning:
            name = f"a{one.position}"
            found[f"x{one.position}"] = number_sql(identifier(SOURCE_NAME, name), self.types[name])
            if one.filter is not None:
                found[f"f{one.filter}"] = identifier(SOURCE_NAME, f"f{one.filter}")
        return found

    def _needed(self) -> list[str]:
        """Return the columns that are needed beside the counters."""
        by_cell = [measure for measure in self.measures if measure.kind in ("tree", "quantile")]
        trees = [variable.position for measure in by_cell for variable in measure.variables]
        numbers = {f"x{position}" for position in [*trees, *(one.position for one in self.learning)]}
        return [name for name in self.columns if name[0] != "x" or name in numbers]

    def _bounded(self, salt: str) -> str:
        """Return the rows that are counted, of every unit as many as the plan allows."""
        plan, unit = self.plan, [UNIT_COLUMN] if self.plan.unit else []
        listed = [f"{sql} AS {identifier(name)}" for name, sql in self.columns.items()]
        listed += [identifier(SOURCE_NAME, name) for name in unit]
        numbered = self.protected.source.row is not None
        listed += [identifier(SOURCE_NAME, ROW_COLUMN)] if numbered else []
        joined = ""
        if self.groups is not None and not plan.keys:
            listed.append("CAST(0 AS UTINYINT) AS ord")
        elif self.groups is not None:
            listed.append("groups.ord")
            pairs = [f"{identifier(SOURCE_NAME, f'k{i}')} IS NOT DISTINCT FROM groups.k{i}" for i in range(len(plan.keys))]
            joined = f" JOIN {self.groups} AS groups ON {' AND '.join(pairs)}"
        else:
            listed += [f"{_one_form(identifier(SOURCE_NAME, key), self.types[key])} AS {identifier(key)}" for key in self.keys]
        found = f"SELECT {', '.join(listed) or '1 AS one'} FROM {identifier(SOURCE_NAME)}{joined}"  # noqa: S608
        carried = [*self.columns, *unit, *self.keys]
        if numbered:
            each = ", ".join(f"min({identifier(name)}) AS {identifier(name)}" for name in carried) or "1 AS one"
            found = f"SELECT {each} FROM ({found}) GROUP BY {identifier(ROW_COLUMN)}"  # noqa: S608
        kept = [*self._needed(), *unit, *self.keys]
        found, names = self.counters.over(found, carried, kept), [*self.counters.columns, *kept]
        if not plan.unit:
            return found
        if plan.max_groups is None:
            return light_first_sql(found, unit, names, plan.max_rows, salt)
        return light_first_sql(found, unit, names, plan.max_rows_per_group, salt, groups=self.keys, max_groups=plan.max_groups)

    def reading(self) -> str:
        """Return the beginning of every statement: the rows that are counted, as ``__dp_rows``."""
        return f"WITH {identifier(SOURCE_NAME)} AS (\n{self.protected.source.sql}\n), __dp_rows AS ({self.rows})"

    def sums(self) -> tuple[str, list[list[str]]]:
        """Return the statement of all counters but those of trees and lists of values; the columns of each measure."""
        listed: list[str] = []
        names: list[list[str]] = []
        for place, measure in enumerate(self.measures):
            found = [] if measure.kind in _BY_CELL else self._sums_of(measure, self.counters.names[place])
            names.append([f"m{place}_{i}" for i in range(len(found))])
            listed += [f"{sql} AS {name}" for sql, name in zip(found, names[-1], strict=True)]
        keys = [identifier(key) for key in self.keys]
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        shown = ["ord"] if self.groups is not None else [f"CAST({key} AS VARCHAR) AS {key}" for key in keys]
        return f"{self.reading()} SELECT {', '.join([*shown, *(listed or ['1 AS one'])])} FROM __dp_rows{by}", names  # noqa: S608

    def _sums_of(self, measure: Measure, names: Sequence[str]) -> list[str]:
        condition = None if measure.filter is None else identifier(f"f{measure.filter}")
        if measure.kind == "count":
            return [_sum("count(*)", condition)]
        if measure.kind == "units":
            unit = f"count(DISTINCT {{'u': {identifier(UNIT_COLUMN)}}})" if self.plan.unit else "count(*)"
            return [_sum(unit, condition)]
        if measure.kind == "distinct":
            return [_sum(f"count(DISTINCT {identifier(f'a{measure.variables[0].position}')})", condition)]
        parts = [_sum(f"sum({name})", condition) for name in names]
        if measure.kind == "scaled":
            return parts
        parts.append(_sum(f"count({names[0]})", condition))  # a counter of a row with NULL is NULL: it is no vector of the measure
        if measure.nulls:
            parts.append(_sum("count(*)", condition))
        return parts

    def cells(self, measure: Measure) -> str:
        """Return the statement that counts leaves of a tree, cells of a grid, or places in a list of values, by group."""
        variable = measure.variables[0]
        name = f"a{variable.position}"
        listed = measure.kind == "values"
        place = _place(identifier(name), measure.values, self.types[name]) if listed else _leaf(measure)
        there = place if listed else f"x{variable.position}"
        conditions = [f"{there} IS NOT NULL"] + ([] if measure.filter is None else [identifier(f"f{measure.filter}")])
        keys = [identifier(key) for key in self.keys]
        shown = ["ord"] if self.groups is not None else [f"CAST({key} AS VARCHAR) AS {key}" for key in keys]
        return (
            f"{self.reading()} SELECT {', '.join([*shown, f'{place} AS cell', 'count(*) AS n'])} FROM __dp_rows "  # noqa: S608
            f"WHERE {' AND '.join(conditions)} GROUP BY ALL"
        )

    def magnitudes(self, one: Learning) -> str:
        """Return the statement that counts the rows of all groups together by the magnitude of an argument."""
        x = identifier(f"x{one.position}")
        conditions = [f"system.main.isfinite({x})"] + ([] if one.filter is None else [identifier(f"f{one.filter}")])
        return (
            f"{self.reading()} SELECT {_cell(x, one.edges, 0, one.cells)} AS cell, count(*) AS n FROM __dp_rows "  # noqa: S608
            f"WHERE {' AND '.join(conditions)} GROUP BY ALL"
        )


def _cell(x: str, edges: Sequence[float], first: int, stop: int) -> str:
    """Return the number of the cell, from ``first`` to ``stop`` - 1, that a number is in; by halves, so that few are compared."""
    if stop - first == 1:
        return str(first)
    middle = (first + stop) // 2
    below, above = _cell(x, edges, first, middle), _cell(x, edges, middle, stop)
    return f"CASE WHEN {x} < {double(edges[middle])} THEN {below} ELSE {above} END"


def _one_form(value: str, sql_type: str) -> str:
    """Return a key such that equal ones are the same: 0.0 and -0.0 are one group, whose text must not be that of some row."""
    if sqltypes.parse(sql_type).family != "float":
        return value
    return f"CASE WHEN system.main.isnan({value}) THEN CAST('nan' AS {sql_type}) ELSE {value} + CAST(0 AS {sql_type}) END"


def _sum(aggregate: str, condition: str | None) -> str:
    """Return an aggregate as a BIGINT, cut to `LARGEST_SUM`; 0 where there is no row."""
    found = aggregate if condition is None else f"{aggregate} FILTER (WHERE {condition})"
    return f"CAST(greatest(least(coalesce({found}, 0), {LARGEST_SUM}), -{LARGEST_SUM}) AS BIGINT)"


def _leaf(measure: Measure) -> str:
    variable, last = measure.variables[0], math.prod(measure.levels) - 1
    x = clipped(f"x{variable.position}", variable)
    return f"CAST(least(floor((({x}) - {double(variable.lower)}) / {double(measure.width)}), {last}) AS INTEGER)"


def _place(value: str, values: Sequence[str], sql_type: str) -> str:
    """Return the place of a value in a list; NULL if it is not in it."""
    if len(values) > 1 and sqltypes.parse(sql_type).family == "integer" and values == _whole(values[0], len(values)):
        first, last = values[0], values[-1]  # no comparison with each of them
        return f"CASE WHEN {value} BETWEEN {first} AND {last} THEN CAST(CAST({value} AS HUGEINT) - ({first}) AS INTEGER) END"
    cases = " ".join(f"WHEN {literal(text)} THEN {place}" for place, text in enumerate(values))
    return f"CASE CAST({value} AS VARCHAR) {cases} END"


def _whole(first: str, count: int) -> tuple[str, ...]:
    """Return consecutive whole numbers as texts; nothing if the first is none."""
    digits = first.removeprefix("-")
    return tuple(str(int(first) + i) for i in range(count)) if digits.isdecimal() and len(digits) < 18 else ()


# -- reading --------------------------------------------------------------------------------------------------------------


def statements(protected: ProtectedSource, plan: QueryPlan, groups: str | None, salt: str) -> list[str]:
    """Return all statements that read the rows, to be bound before anything is charged."""
    made = Statement(protected, plan, groups, salt)
    first = [Statement(protected, plan, groups, salt, learning=True).magnitudes(one) for one in plan.learning]
    return [*first, made.sums()[0], *(made.cells(measure) for measure in plan.measures if measure.kind in _BY_CELL)]


def fresh_salt() -> str:
    """Return the secret by which rows of a unit are chosen, forgotten after the reading."""
    return secrets.token_hex(16)


@contextmanager
def public_groups(reader: Reader, plan: QueryPlan, *, empty: bool = False) -> Iterator[str | None]:
    """Give the public groups as a relation, with their places in ``ord``, as long as it is needed; None for private groups.

    A few stand in the statements themselves, which takes less time than a temporary table does.
    """
    if not plan.public:
        yield None
        return
    keys = [f"k{i}" for i in range(len(plan.keys))]
    order = f"OVER (ORDER BY {', '.join(f'{key} ASC NULLS LAST' for key in keys)})" if keys else "OVER ()"
    # a narrow number: DuckDB adds up a few groups in an array
    place = next((kind for kind, most in (("UTINYINT", 1 << 8), ("USMALLINT", 1 << 16)) if (plan.groups or most) < most), "BIGINT")
    listed = ", ".join([f"TRY_CAST(row_number() {order} - 1 AS {place}) AS ord", *keys])
    made = f"SELECT {listed} FROM ({plan.groups_sql}){' LIMIT 0' if empty else ''}"  # noqa: S608 -- generated
    few = plan.groups is not None and plan.groups <= MOST_INLINE and len(plan.groups_sql) <= MOST_INLINE_TEXT
    with reader.groups(made, inline=few) as table:
        yield table


def magnitudes(reader: Reader, protected: ProtectedSource, plan: QueryPlan) -> list[IntArray]:
    """Return the exact histograms of magnitudes, cell by cell. Privacy: secret."""
    found = []
    with public_groups(reader, plan) as table:
        made = Statement(protected, plan, table, fresh_salt(), learning=True)
        for one in plan.learning:
            frame = reader.frame(made.magnitudes(one))
            counts = np.zeros(one.cells, np.int64)
            np.add.at(counts, np.asarray(frame["cell"], np.int64), np.asarray(frame["n"], np.int64))
            found.append(counts)
    return found


def learned(plan: Plan, exact: Sequence[IntArray]) -> Refinement | None:
    """Return what a plan releases of exact histograms of magnitudes, and the bounds chosen from it; None where it has none.

    Privacy: noise of the scale that the plan has for each histogram, on every cell; the bounds are chosen from the noisy counts.
    """
    query = plan.query
    if query is None or not query.learning:
        return None
    noisy = tuple(
        add_noise(counts, [counts.size], [one.scale], one.mechanism) for one, counts in zip(query.learning, exact, strict=True)
    )
    return Refinement(noisy, (None,) * len(noisy), bounds_from(query, plan.scales, plan.mechanism, noisy))


def counted(reader: Reader, protected: ProtectedSource, plan: QueryPlan) -> Counted:
    """Return the exact counters of every group; ``plan``: its bounds are known. Privacy: secret."""
    with public_groups(reader, plan) as table:
        made = Statement(protected, plan, table, fresh_salt())
        sql, names = made.sums()
        frame = reader.frame(sql)
        groups = table
        if table is not None:
            texts, places = _listed(reader.cursor, plan, table), np.asarray(frame["ord"], np.int64)
        else:
            columns = [_texts(frame[f"k{i}"]) for i in range(len(plan.keys))]
            texts = sorted(zip(*columns, strict=True), key=lambda keys: [(k is None, k or "") for k in keys]) if columns else [()]
            index = {keys: place for place, keys in enumerate(texts)}
            places = np.array([index[keys] for keys in zip(*columns, strict=True)] if columns else [0], np.int64)
        blocks: list[IntArray] = []
        ranked: dict[int, Cells] = {}
        for measure, found in zip(plan.measures, names, strict=True):
            if measure.kind in _BY_CELL:
                cells = reader.frame(made.cells(measure))
                if groups is not None:
                    where = np.asarray(cells["ord"], np.int64)
                else:
                    each = zip(*(_texts(cells[f"k{i}"]) for i in range(len(plan.keys))), strict=True)
                    where = np.array([index[keys] for keys in each] if plan.keys else [0] * len(cells["n"]), np.int64)
                place, n = np.asarray(cells["cell"], np.int64), np.asarray(cells["n"], np.int64)
                if measure.kind == "quantile":
                    ranked[len(blocks)] = cells_of(where, place, n)
                    blocks.append(np.zeros((len(texts), 1), np.int64))
                else:
                    blocks += _levels(measure, len(texts), where, place, n)
                continue
            sums = np.zeros((len(texts), len(found)), np.int64)
            for i, name in enumerate(found):
                sums[places, i] = np.ma.filled(np.ma.asarray(frame[name]), 0)
            blocks.append(_counters(measure, sums))
    return Counted(texts, blocks, ranked)


def _listed(cursor: duckdb.DuckDBPyConnection, plan: QueryPlan, table: str) -> list[tuple[str | None, ...]]:
    """Return the texts of the public groups, in order."""
    if not plan.keys:
        return [()]
    keys = ", ".join(f"CAST(k{i} AS VARCHAR) AS k{i}" for i in range(len(plan.keys)))
    frame = cursor.execute(f"SELECT {keys} FROM {table} ORDER BY ord ASC").fetchnumpy()  # noqa: S608
    found = list(zip(*(_texts(frame[f"k{i}"]) for i in range(len(plan.keys))), strict=True))
    if len(found) != plan.groups:
        raise ReleaseError("the public groups are not those that were charged for")
    return found


def _texts(column: Any) -> list[str | None]:
    """Return a column of texts, None for NULL."""
    masked = np.ma.getmaskarray(column)
    return [None if hidden or value is None else str(value) for value, hidden in zip(np.ma.getdata(column), masked, strict=True)]


def _counters(measure: Measure, sums: IntArray) -> IntArray:
    """Return the counters of a measure from what the statement added up."""
    if measure.kind != "moments":
        return sums
    kept = sums.shape[1] - 1 - measure.nulls
    there = sums[:, kept]
    cumulated = np.column_stack([sums[:, :kept], there * measure.grid])
    found = np.diff(cumulated, axis=1, prepend=0)
    if not measure.nulls:
        return found
    return np.column_stack([found, (sums[:, -1] - there) * measure.grid])


def _levels(measure: Measure, groups: int, where: IntArray, cells: IntArray, n: IntArray) -> list[IntArray]:
    """Return the counters of a tree, level by level, or of a list of values."""
    leaves = np.zeros((groups, measure.lengths[-1]), np.int64)
    np.add.at(leaves, (where, cells), n)
    return [leaves.reshape(groups, length, leaves.shape[1] // length).sum(axis=2) for length in measure.lengths]


def released(plan: Plan, found: Counted) -> Counted:
    """Return what a plan releases of exact counters: private groups chosen, noise of ``plan.scales`` on every counter.

    Privacy: see `dpsql.estimates.thresholds` for the groups: those of fewer than ``min_units`` units are dropped before the noise,
    so that none of them ever appears. The number of units by which a group is chosen is the one that is
    released; nothing is measured twice. Groups that are not chosen leave no trace: the others are in the order of their texts.
    A quantile that is drawn by rank (`dpsql.measure.ranked`) is drawn of chosen groups alone: as if it were drawn of all, and kept
    of these, so the theorem there holds with its events beside those of the noise.
    """
    query = plan.query
    if query is None:
        raise ReleaseError("the plan is not one of a query")
    groups, blocks, ranked = found.groups, list(found.blocks), dict(found.ranked)
    scales = list(plan.scales)
    if len(scales) != len(blocks):
        raise DpsqlError("a plan of a query has one scale for each block")
    done = None
    if not query.public:
        if query.selecting is None or query.threshold is None:
            raise ReleaseError("the plan does not say how groups are chosen")
        done = query.blocks_of(query.selecting).start
        there = present(blocks[done][:, 0], query.min_units or 1)
        groups, blocks = _kept(groups, blocks, there)
        noisy = _noisy(blocks[done], scales[done], plan.mechanism)
        passed = passing(noisy[:, 0], query.threshold, query.min_units or 1)
        groups, blocks = _kept(groups, [*blocks, noisy], passed)
        blocks[done] = blocks.pop()
        ranked = {place: cells.kept(there).kept(passed) for place, cells in ranked.items()}
    by_rank = {query.blocks_of(i).start: measure for i, measure in enumerate(query.measures) if measure.kind == "quantile"}
    if set(by_rank) != set(ranked):
        raise DpsqlError("a plan of a query has rows by cell for each quantile that is drawn")
    out = []
    for place, (block, scale) in enumerate(zip(blocks, scales, strict=True)):
        if place in by_rank:
            out.append(drawn(ranked[place], by_rank[place], len(groups), scale))
        else:
            out.append(block if place == done else _noisy(block, scale, plan.mechanism))
    return Counted(groups, out)


def _kept(
    groups: list[tuple[str | None, ...]], blocks: Sequence[IntArray], chosen: BoolArray
) -> tuple[list[tuple[str | None, ...]], list[IntArray]]:
    """Return groups and counters without those that are not chosen."""
    return [keys for keys, kept in zip(groups, chosen, strict=True) if kept], [block[chosen] for block in blocks]


def _noisy(block: IntArray, scale: Fraction, mechanism: str) -> IntArray:
    return add_noise(block.reshape(-1), [block.size], [scale], mechanism).reshape(block.shape)

