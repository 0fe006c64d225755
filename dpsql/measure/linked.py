"""Linked tables read: codes of every table, families bounded at random, rows numbered so that whole units are counted together.

Each table becomes a TEMP table of codes (of a column whose bins are not cut yet: of values), parents before children: rows that
stand in no order are bounded by the value of their link, joined to the parent's kept rows by its key, and stored in the order
of the parent's place. So the rows of a range of units are a range of every table, and are read as one. The TEMP tables spill to
disk, and memory does not grow with the rows.

Privacy
-------
The rows that a release counts of a unit u are a function of the rows of u in all tables, and of the salt:

- A row of the root is left out if its key is NULL or a value of its own is to be dropped. Keys are unique: one row is one unit.
- A row of a child is left out if its link is NULL or a value of its own is to be dropped. Of the others with the same link
  value, which are rows of one unit because the parent's key is unique, at most ``most`` are kept, by `dpsql.domains.bounding`:
  which ones depends on these rows and the salt alone, and on no place in a table. Then they are left out unless a kept row of
  the parent has that key. The parent's row with that key is of the same unit, and whether it is kept depends on this unit alone
  (induction). Rows whose parent is not there are counted nowhere, also where ``orphans`` makes them a unit: it adds nothing.
- Places in TEMP tables only say which rows are of one family. No weight or choice depends on them.

All tables are read in one transaction: one state of the database.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
from sqlglot import exp

from dpsql.domains.bounding import light_first_sql
from dpsql.domains.codes import number_expression
from dpsql.domains.encoding import SOURCE_NAME, code_text
from dpsql.domains.grid import Grid, edge_numbers
from dpsql.engines.duckdb.counting import ProtectedReading
from dpsql.measure.families import FEWEST_UNITS, Families, Rows, chunks, weighted
from dpsql.noise.entropy import fresh_salt
from dpsql.numerics.arrays import IntArray
from dpsql.release.linked import LinkedPlan, LinkedTable
from dpsql.release.ordered import order_values
from dpsql.running import progress
from dpsql.source.keys import unit_value
from dpsql.source.model import TableId
from dpsql.text.relation import identifier

_LINK, _PARENT, _ROW, _ORDER = "__dp_link", "__dp_parent", "__dp_row", "__dp_order"
_ROWS = 1 << 19
"""Rows of the largest table that are read together, on the average; a unit is never divided."""


@dataclass(frozen=True)
class Statements:
    """The SELECTs of the codes of each table of a plan, before rows are bounded and joined.

    Parameters
    ----------
    plan : LinkedPlan
    tables : tuple of TableId
        Where the rows are, for each table of the plan.
    unit : str or None
        The privacy unit, where the root has one.
    """

    plan: LinkedPlan
    tables: tuple[TableId, ...]
    unit: str | None

    def codes(self, place: int) -> str:
        """Return the SELECT of link, keys and codes of the rows of a table that can be counted."""
        table = self.plan.tables[place]
        types = {column.name: column.sql_type for column in table.columns}
        listed = [f"{_value(name, types[name])} AS {identifier(f'k{i}')}" for i, name in enumerate(table.keys)]
        needed = []
        if table.link is not None:
            listed.append(f"{_value(table.link, types[table.link])} AS {identifier(_LINK)}")
            needed.append(identifier(_LINK))
        else:
            whose = [self.unit] if self.unit is not None else self._referred()
            listed += [f"{identifier(SOURCE_NAME, name)} IS NULL AS {identifier(f'u{i}')}" for i, name in enumerate(whose)]
        for i, attribute in enumerate(table.domain.attributes):
            listed.append(f"{code_text(attribute.bounded if attribute.automatic else attribute)} AS {identifier(f'c{i}')}")
            if attribute.automatic:
                value = number_expression(attribute, exp.column(attribute.name, SOURCE_NAME, quoted=True))
                listed.append(f"{value.sql(dialect='duckdb')} AS {identifier(f'x{i}')}")
        if table.order_place is not None:
            attribute = table.domain.attributes[table.order_place]
            value = number_expression(attribute, exp.column(attribute.name, SOURCE_NAME, quoted=True))
            listed.append(f"{value.sql(dialect='duckdb')} AS {identifier(_ORDER)}")
        where = [f"{name} IS NOT NULL" for name in needed]
        if table.link is None:
            where += [f"NOT {identifier(f'u{i}')}" for i in range(len(whose))]
        dropped = (i for i, attribute in enumerate(table.domain.attributes) if attribute.outside == "drop")
        where += [f"{identifier(f'c{i}')} IS NOT NULL" for i in dropped]
        kept = f" WHERE {' AND '.join(where)}" if where else ""
        rows = f"SELECT {', '.join(listed) or '1 AS one'} FROM {self.tables[place].sql} AS {identifier(SOURCE_NAME)}"  # noqa: S608
        return f"SELECT {', '.join(map(identifier, self.columns(place))) or '1 AS one'} FROM ({rows}) AS coded{kept}"  # noqa: S608

    def _referred(self) -> list[str]:
        """Return the columns of the root that links point to: they say whose row it is, where there is no privacy unit."""
        return list(dict.fromkeys(str(self.plan.tables[place].referred) for place in self.plan.children(0)))

    def columns(self, place: int) -> list[str]:
        """Return the columns of `codes`."""
        table = self.plan.tables[place]
        keys = [f"k{i}" for i in range(len(table.keys))]
        values = [f"x{i}" for i, attribute in enumerate(table.domain.attributes) if attribute.automatic]
        codes = [f"c{i}" for i in range(len(table.domain.attributes))]
        order = [] if table.order is None else [_ORDER]
        return [*keys, *([] if table.link is None else [_LINK]), *codes, *values, *order]

    def bounded(self, place: int, salt: str) -> str:
        """Return the SELECT of the rows of a child's families, at most ``most`` each, at random."""
        return light_first_sql(self.codes(place), [_LINK], self.columns(place), self.plan.tables[place].most, salt)

    def kept(self, place: int, parent: str, salt: str) -> str:
        """Return the SELECT of the bounded rows of a child whose parent's row is in the TEMP table ``parent``, in its order."""
        table = self.plan.tables[place]
        above = self.plan.tables[table.parent or 0]
        key = identifier(f"k{above.keys.index(str(table.referred))}")
        above_row = f"above.{identifier(_ROW)}"
        row = f"row_number() OVER (ORDER BY {above_row} ASC NULLS LAST) - 1 AS {identifier(_ROW)}"
        listed = [f"bounded.{identifier(name)}" for name in self.columns(place) if name != _LINK]
        return (
            f"SELECT {', '.join([row, f'{above_row} AS {identifier(_PARENT)}', *listed])} "  # noqa: S608
            f"FROM ({self.bounded(place, salt)}) AS bounded JOIN {identifier(parent)} AS above "
            f"ON bounded.{identifier(_LINK)} = above.{key}"
        )

    def units(self) -> str:
        """Return the SELECT of the rows of the root, numbered: each is a unit."""
        return f"SELECT row_number() OVER () - 1 AS {identifier(_ROW)}, * FROM ({self.codes(0)}) AS units"  # noqa: S608


def _value(name: str, sql_type: str) -> str:
    """Return a key in the one form in which it is compared."""
    return str(unit_value(exp.column(name, SOURCE_NAME, quoted=True), sql_type).sql(dialect="duckdb"))


class LinkedReading:
    """Linked tables, bounded and numbered, kept as TEMP tables within `dpsql.measure.reading.snapshot`. Privacy: protected rows.

    Parameters
    ----------
    cursor : DuckDB cursor
    statements : Statements
    salts : sequence of str, optional
        One for each table: what the random choice of rows depends on, for tests. Fresh ones, if left out.

    Raises
    ------
    DpsqlError
        DuckDB failed; the reason is withheld.
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection, statements: Statements, salts: Sequence[str] | None = None) -> None:
        self._cursor, self._plan, self._names = cursor, statements.plan, list[str]()
        with ProtectedReading(cursor) as reading:
            for place, table in enumerate(self._plan.tables):
                self._names.append(f"__dp_linked_{secrets.token_hex(8)}")
                salt = fresh_salt() if salts is None else salts[place]
                above = table.parent
                select = statements.units() if above is None else statements.kept(place, self._names[above], salt)
                reading.numpy(f"CREATE TEMP TABLE {identifier(self._names[-1])} AS {select}")
            self._rows = [_count(reading, name) for name in self._names]

    @property
    def units(self) -> int:
        """The number of units. Privacy: secret, unless it is public."""
        return self._rows[0]

    def counted(self, plan: LinkedPlan) -> Families:
        """Count the blocks of the plan, whose bins are cut.

        Privacy: exact and secret; `dpsql.measure.noising.add_noise` makes a release of `Families.flat`.
        """
        families = Families(plan)
        for tables in self._chunks(plan, families.most_units):
            families.add([_rows(plan.tables[place], frame, parent) for place, (frame, parent) in enumerate(tables)])
        return families

    def fine(self, grids: Mapping[int, Grid]) -> dict[int, IntArray]:
        """Return the weight in each finest cell of the grids of columns, by their place in `LinkedPlan.domain`.

        Privacy: exact and secret. A row has the weight that it has in every block: a unit adds at most W to all cells of a
        column.
        """
        weights_of = {place: np.zeros(grid.edges.size - 1, np.int64) for place, grid in grids.items()}
        for tables in self._chunks(self._plan, FEWEST_UNITS):
            weights = weighted(self._plan, [(len(frame[_ROW]), parent) for frame, parent in tables])
            for t, (frame, _) in enumerate(tables):
                for i in range(len(self._plan.tables[t].domain.attributes)):
                    place = self._plan.place(t, i)
                    if place in grids:
                        inside = np.asarray(frame[f"c{i}"]) == 0
                        cells = grids[place].place(np.asarray(frame[f"x{i}"], np.float64)[inside])
                        weights_of[place] += np.bincount(cells, weights[t][inside], weights_of[place].size).astype(np.int64)
        return weights_of

    def _chunks(self, plan: LinkedPlan, most: int) -> Iterator[list[tuple[Mapping[str, Any], IntArray]]]:
        """Yield for each range of units the columns of every table, and the places of the parents' rows in the range."""
        step = max(1, min(int(self._rows[0] * _ROWS / max(*self._rows, 1)), most))
        ends = [0] * len(self._names)
        with ProtectedReading(self._cursor) as reading:
            for first, last in chunks(self._rows[0], step):
                yield list(_chunk(reading, plan, self._names, first, last, ends))
                progress.advance(last / self._rows[0])


def _rows(table: LinkedTable, frame: Mapping[str, Any], parent: IntArray) -> Rows:
    """Return rows of a table: their codes, and what they are ordered by."""
    codes, place = _codes(table, frame), table.order_place
    if place is None:
        return Rows(codes, parent)
    attribute = table.domain.attributes[place]
    return Rows(codes, parent, order_values(attribute, codes[place], np.asarray(frame[_ORDER], np.float64)))


def _codes(table: LinkedTable, frame: Mapping[str, Any]) -> IntArray:
    """Return the codes of a table's columns, shape (columns, rows): of values whose bins were cut, from these."""
    columns = []
    for i, attribute in enumerate(table.domain.attributes):
        codes = np.asarray(frame[f"c{i}"], np.int64)
        if f"x{i}" in frame:
            values = np.asarray(frame[f"x{i}"], np.float64)
            inner = edge_numbers(attribute)[1:-1]
            bins = np.where(np.isnan(values), 0, np.searchsorted(inner, values, side="right"))
            codes = np.where(codes == 0, bins, codes - 1 + attribute.values)
        columns.append(codes)
    return np.stack(columns) if columns else np.zeros((0, len(frame[_ROW])), np.int64)


def _count(reading: ProtectedReading, name: str) -> int:
    return int(reading.numpy(f"SELECT count(*) AS n FROM {identifier(name)}")["n"][0])  # noqa: S608


def _chunk(
    reading: ProtectedReading, plan: LinkedPlan, names: list[str], first: int, last: int, ends: list[int]
) -> Iterator[tuple[Mapping[str, Any], IntArray]]:
    """Yield the columns of each table for a range of units; ``ends``: where the last range has ended, in each table."""
    starts = list(ends)
    for place, (table, name) in enumerate(zip(plan.tables, names, strict=True)):
        by, low, high = (_ROW, first, last) if table.parent is None else (_PARENT, starts[table.parent], ends[table.parent])
        rows = reading.numpy(
            f"SELECT * FROM {identifier(name)} "  # noqa: S608
            f"WHERE {identifier(by)} >= {low} AND {identifier(by)} < {high}"
        )
        frame = _ordered(rows, starts[place])
        above = np.zeros(0, np.int64) if table.parent is None else np.asarray(frame[_PARENT], np.int64) - starts[table.parent]
        yield frame, above
        ends[place] = starts[place] + len(frame[_ROW])


def _ordered(frame: Mapping[str, Any], start: int) -> Mapping[str, Any]:
    """Return the columns in the order of the rows' places, which follow those of the last range."""
    row = np.asarray(frame[_ROW], np.int64)
    if np.any(np.diff(row) < 0):
        order = np.argsort(row, kind="stable")
        frame, row = {name: column[order] for name, column in frame.items()}, row[order]
    if row.size and not (row[0] == start and row[-1] == start + row.size - 1):
        raise ValueError("rows of one range of units are not a range of their table")
    return frame
