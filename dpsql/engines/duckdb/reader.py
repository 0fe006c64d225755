"""DuckDB's reader: statements run as they are, on the cursor of the call."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np

from dpsql.domains.encoding import guarded
from dpsql.engines.base import Numbers
from dpsql.engines.duckdb import counting, tuples
from dpsql.engines.duckdb.registered import drop
from dpsql.numerics.arrays import Clique, IntArray
from dpsql.tables.flat import FlatTables
from dpsql.tables.tuple_index import TupleIndex
from dpsql.text.relation import identifier

_VECTORS = 32
"""Vectors of 2,048 rows that are read together."""


@dataclass(frozen=True)
class DuckReader:
    """See `dpsql.engines.base.Reader`."""

    cursor: duckdb.DuckDBPyConnection

    def bind(self, statement: str) -> None:
        """Bind a statement. Its error is DuckDB's own."""
        self.cursor.execute(f"DESCRIBE {statement}").fetchall()

    @contextmanager
    def groups(self, select: str, *, inline: bool) -> Iterator[str]:
        """Give a public relation: a few rows stand in the statements themselves, which takes less time than a TEMP table does."""
        if inline:
            yield f"({select})"
            return
        name = f"dpsql_groups_{secrets.token_hex(8)}"
        self.cursor.execute(f"CREATE TEMP TABLE {identifier(name)} AS {select}")
        try:
            yield identifier(name)
        finally:
            drop(self.cursor, name)

    def frame(self, statement: str) -> dict[str, Any]:
        """Return the result of a statement."""
        return guarded(self.cursor, statement).fetchnumpy()

    def tables(self, select: str, sizes: Sequence[int], cliques: Sequence[Clique]) -> tuple[FlatTables, int]:
        """Count contingency tables of a SELECT of codes."""
        return counting.count_select(self.cursor, select, sizes, cliques)

    def fine(self, select: str, numbers: Sequence[Numbers]) -> list[IntArray]:
        """Count numbers along their grids, block by block: memory does not grow with the rows."""
        histograms = [np.zeros(one.edges.size - 1, np.int64) for one in numbers]
        with counting.ProtectedReading(self.cursor) as background:
            for frame in background.frames(select, _VECTORS):
                for column, counts in zip(numbers, histograms, strict=True):
                    values = frame[column.value].to_numpy(dtype=np.float64)[frame[column.code].to_numpy() == 0]
                    counts += np.bincount(column.place(values), minlength=counts.size)
        return histograms

    @contextmanager
    def codes(self, select: str) -> Iterator[DuckCodes]:
        """Keep the rows in a TEMP table of this cursor."""
        name = f"__dp_codes_{secrets.token_hex(8)}"
        guarded(self.cursor, f"CREATE TEMP TABLE {identifier(name)} AS {select}")
        try:
            yield DuckCodes(self.cursor, name)
        finally:
            drop(self.cursor, name)


@dataclass(frozen=True)
class DuckCodes:
    """See `dpsql.engines.base.Codes`. ``name``: of the table of codes."""

    cursor: duckdb.DuckDBPyConnection
    name: str

    def total(self) -> int:
        """Return the number of rows."""
        row = guarded(self.cursor, f"SELECT count(*) FROM {identifier(self.name)}").fetchone()  # noqa: S608 -- quoted
        return int(row[0]) if row else 0

    def tables(self, sizes: Sequence[int], cliques: Sequence[Clique]) -> tuple[FlatTables, int]:
        """Count contingency tables, and the rows."""
        return counting.count_tables(self.cursor, self.name, sizes, cliques), self.total()

    def moments(self, sizes: Sequence[int], clique: Clique, values: Sequence[str]) -> tuple[IntArray, IntArray, list[int]]:
        """Count one table, and sum values and their products."""
        return counting.count_moments(self.cursor, self.name, sizes, clique, values)

    def values(self, column: str) -> tuple[list[str], IntArray]:
        """Count the values that occur."""
        return counting.count_values(self.cursor, self.name, column)

    def tuples(self, index: TupleIndex, keys: IntArray, empty: Collection[int]) -> IntArray:
        """Count the rows that have each tuple."""
        return tuples.count_tuples(self.cursor, self.name, index, keys, empty)

    @contextmanager
    def widths(self, index: TupleIndex, k: int, keys: IntArray, empty: Collection[int]) -> Iterator[DuckWidths]:
        """Count how many of these tuples each row has, in a TEMP table."""
        name, histogram = tuples.widths(self.cursor, self.name, index, k, keys, empty)
        try:
            yield DuckWidths(self, index, keys, empty, name, histogram)
        finally:
            drop(self.cursor, name)


@dataclass(frozen=True)
class DuckWidths:
    """See `dpsql.engines.base.Widths`. ``name``: of the table of rows and their numbers of tuples."""

    codes: DuckCodes
    index: TupleIndex
    keys: IntArray
    empty: Collection[int]
    name: str
    histogram: IntArray

    def counted(self, most: int, salt: str) -> IntArray:
        """Count the rows that have each tuple, where a row keeps at most ``most``."""
        codes = self.codes
        return tuples.count_bounded(
            codes.cursor, codes.name, self.index, self.keys, self.empty, row_widths=self.name, most=most, salt=salt
        )
