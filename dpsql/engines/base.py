"""What every engine does. Nothing above `dpsql.engines` knows which one counts.

An engine has three verbs. *Describe*: names and types of a relation, no row. *Count*: a SELECT of codes, or one that adds up
integers by group, goes in; integers come out. *Write*: blocks of synthetic rows go into a relation.

All statements are DuckDB's SQL, made by `dpsql.domains.encoding` and `dpsql.measure` of a source that `dpsql.source` has checked.
An engine that speaks another dialect translates them, and refuses what it cannot say; that is known before anything is charged
(`Reader.bind`).

Privacy
-------
What a reader returns is exact and secret. `dpsql.measure` and `dpsql.kinds` add the noise. The guarantee needs of an engine:

1. *One row, one code.* A row of the protected relation becomes one row of codes, or none, by its own values alone. It is not needed
   that two engines give a value the same code: a row that falls into another cell still falls into one.
2. *Bounded in each statement.* The rows of a unit are bounded within the statement that counts them, as its text says.
3. *No count of two statements.* DuckDB's statements of one release see one state of the table (`dpsql.measure.reading.snapshot`).
   Another engine's may see several: a unit has at most m rows in each of two states, but 2 m where the counts of both are added
   up. So each contingency table, each histogram, the counters of each measure come from one statement alone. Then each is a
   mechanism of the state that it has read; two neighbouring histories of a table differ by one unit's rows in every state; and the
   price of a release is that of an adaptive composition of these mechanisms. What would be put together from several statements
   (leaves of a tree that are cut where rows are, quantiles picked near their ranks, products of one-hot columns in parts) is
   planned otherwise for such a table, or not at all (`dpsql.kinds.query.plan`, `dpsql.engines.spark.tables`).
4. *No failure that a row decides.* An expression that raises for a value is not let through, or made NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import duckdb

from dpsql.numerics.arrays import Clique, FloatArray, IntArray
from dpsql.tables.flat import FlatTables
from dpsql.tables.tuple_index import TupleIndex


@dataclass(frozen=True)
class Numbers:
    """A column of a SELECT to be counted along a grid: its name, that of the code that says whether it counts, and the cells.

    ``edges``: ascending, shape (cells + 1,). ``place``: from values, shape (n,), to cells.
    """

    value: str
    code: str
    edges: FloatArray
    place: Callable[[FloatArray], IntArray]


class Widths(Protocol):
    """How many tuples of one level each row has. Privacy: secret."""

    @property
    def histogram(self) -> IntArray:
        """How many rows have 0, 1, ... of them."""

    def counted(self, most: int, salt: str) -> IntArray:
        """Count the rows that have each tuple, where a row keeps at most ``most``, at random."""


class Codes(Protocol):
    """Rows of codes, kept as long as one release is counted. Privacy: protected; everything that is returned is secret."""

    def total(self) -> int:
        """Return the number of rows."""

    def tables(self, sizes: Sequence[int], cliques: Sequence[Clique]) -> tuple[FlatTables, int]:
        """Count contingency tables, and the rows; see `Reader.tables`."""

    def moments(self, sizes: Sequence[int], clique: Clique, values: Sequence[str]) -> tuple[IntArray, IntArray, list[int]]:
        """Count one table, and sum integer columns and their products; see `dpsql.engines.duckdb.counting.count_moments`."""

    def values(self, column: str) -> tuple[list[str], IntArray]:
        """Count the values that occur in a column of UTF-8 texts."""

    def tuples(self, index: TupleIndex, keys: IntArray, empty: Collection[int]) -> IntArray:
        """Count the rows that have each tuple; see `dpsql.engines.duckdb.tuples.count_tuples`."""

    def widths(self, index: TupleIndex, k: int, keys: IntArray, empty: Collection[int]) -> AbstractContextManager[Widths]:
        """Count how many of these tuples each row has; see `dpsql.engines.duckdb.tuples.widths`."""


class Reader(Protocol):
    """One reading of protected rows.

    Raises
    ------
    DpsqlError
        From all methods: reading failed; the engine's text is withheld, for it may quote a value.
    """

    @property
    def cursor(self) -> duckdb.DuckDBPyConnection:
        """The cursor of the call, on DuckDB: for what is public."""

    def bind(self, statement: str) -> None:
        """Try whether the engine accepts a statement. No row is read.

        Raises
        ------
        UnsupportedQuery, DpsqlError
            It does not; the text is about the statement and the catalog alone.
        """

    def groups(self, select: str, *, inline: bool) -> AbstractContextManager[str]:
        """Give a public relation that was made in DuckDB, as a statement of this reader can name it.

        Parameters
        ----------
        select : str
            Over public values alone.
        inline : bool
            Whether it is short enough to stand in each statement.
        """

    def frame(self, statement: str) -> dict[str, Any]:
        """Return the result of a statement that adds up integers by group: an array for each column."""

    def tables(self, select: str, sizes: Sequence[int], cliques: Sequence[Clique]) -> tuple[FlatTables, int]:
        """Count contingency tables of a SELECT of codes, and its rows; see `dpsql.engines.duckdb.counting.count_select`."""

    def fine(self, select: str, numbers: Sequence[Numbers]) -> list[IntArray]:
        """Count numbers of a SELECT along their grids, where their codes are 0."""

    def codes(self, select: str) -> AbstractContextManager[Codes]:
        """Keep what a SELECT of codes yields until the block ends, however it does."""


class Writer(Protocol):
    """A table, or files, of an engine that do not exist yet. Privacy: what is written is post-processing; no row is read.

    Raises
    ------
    ArgumentError, DpsqlError
        From all methods; the text is public.
    """

    def check(self, columns: Sequence[tuple[str, str]]) -> None:
        """Try, before anything is charged, whether columns of these names and DuckDB types can be written, and the name is free."""

    def write(self, blocks: Iterable[Any], columns: Sequence[tuple[str, str]], rows: int) -> None:
        """Write pyarrow tables of synthetic rows, one after the other.

        Parameters
        ----------
        columns : sequence of (name, DuckDB type)
            Of the rows.
        rows : int
            Of all blocks; what was written is counted.
        """
