"""Spark's reader: DuckDB's statements are translated, Spark runs them where the rows are, and integers come back.

Privacy
-------
What leaves Spark are counters, the number of rows, and the texts of group keys and of open values, of which `dpsql.kinds` releases
none that a private selection did not choose. A relation that changes while a release reads it breaks no promise: each statement
bounds by itself what a unit changes in it, its noise is for that, and no count is put together from two statements
(`dpsql.engines.base`); the numbers are then of different moments. Spark's errors may quote values: they are withheld.

A row gets its code by Spark's arithmetic. Should it differ from DuckDB's in a last digit, the row is in another cell than it would
be in DuckDB, but in one; a unit has no more rows than the statement allows, whatever their codes are. The noise is for every
table that one unit could make.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import duckdb
import numpy as np

from dpsql.domains.encoding import guarded
from dpsql.engines.base import Numbers
from dpsql.engines.duckdb.registered import registered
from dpsql.engines.remote import Remote
from dpsql.engines.spark import arrays, relation, session, shipping, tables, tuples
from dpsql.engines.spark import values as grouped
from dpsql.engines.spark.number_arrays import number_counting
from dpsql.engines.spark.reading import SparkReading, tasks
from dpsql.engines.spark.translate import Statement, translated
from dpsql.engines.spark.translate.types import spark_type
from dpsql.errors import DpsqlError, EngineLost
from dpsql.numerics.arrays import Clique, IntArray
from dpsql.tables.flat import FlatTables
from dpsql.tables.tuple_index import TupleIndex
from dpsql.text.relation import identifier

_CARRIED = {"UTINYINT": "SMALLINT", "USMALLINT": "INTEGER", "UINTEGER": "BIGINT", "HUGEINT": "DECIMAL(38,0)"}
"""What DuckDB hands over in another type, which stands for it in Spark."""
_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
_counting: set[str] = set()
"""Urls whose workers were tried."""


class SparkReader:
    """See `dpsql.engines.base.Reader`.

    Parameters
    ----------
    cursor : DuckDB cursor
        With the empty table: statements are bound on it.
    remote : Remote
    table : str
        The quoted name of the empty table, as statements have it.
    columns : mapping of name to DuckDB type
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection, remote: Remote, table: str, columns: Mapping[str, str]) -> None:
        self._cursor, self._remote, self._table, self._columns = cursor, remote, table, columns
        self._known: dict[str, str] = {}

    @property
    def cursor(self) -> duckdb.DuckDBPyConnection:
        """The cursor of the call, on DuckDB."""
        return self._cursor

    @cached_property
    def session(self) -> Any:
        """A session of this reading's own, with a view of the relation."""
        own = session.session(self._remote.url)
        weakref.finalize(self, session.close, own)
        try:
            self._known[self._table] = relation.viewed(own, self._remote.relation, self._columns)
        except EngineLost:
            raise
        except DpsqlError as error:  # names and types alone were looked at: no reason to take it for a fault of a row
            raise EngineLost(str(error)) from None
        return own

    def _translated(self, statement: str) -> Statement:
        self.session  # noqa: B018 -- its view is known from here on
        return translated(self._cursor, statement, self._known)

    def _spark(self, statement: str) -> str:
        return self._translated(statement).sql

    def bind(self, statement: str) -> None:
        """Bind a statement in DuckDB, over the empty table, and its translation in Spark. No row is read."""
        self._cursor.execute(f"DESCRIBE {statement}").fetchall()
        # a statement that has no translation must be refused before anything is charged
        text = self._spark(statement)
        check_counting(self.session, self._remote.url)
        with SparkReading(self.session) as reading:
            reading.run(lambda: self.session.sql(text).schema)

    @contextmanager
    def groups(self, select: str, *, inline: bool) -> Iterator[str]:
        """Give public groups: a TEMP table in DuckDB, and a view of the same rows and name in Spark."""
        name = f"dpsql_groups_{secrets.token_hex(8)}"
        self._cursor.execute(f"CREATE TEMP TABLE {identifier(name)} AS {select}")
        try:
            with shipped(self.session, self._cursor, name) as view:
                self._known[identifier(name)] = view
                yield identifier(name)
        finally:
            self._known.pop(identifier(name), None)
            self._cursor.execute(f"DROP TABLE IF EXISTS {identifier(name)}")

    def frame(self, statement: str) -> dict[str, Any]:
        """Return the result of a statement, an array for each column."""
        translation = self._translated(statement)
        with SparkReading(self.session) as reading:
            table = reading.arrow(lambda: self.session.sql(translation.sql))
        columns = grouped.arrays(table)
        if translation.texts:  # DuckDB has texts of its own for numbers and times
            shown = [f"CAST({identifier(name)} AS VARCHAR) AS {identifier(name)}" for name in translation.texts]
            with registered(self._cursor, table) as name:
                columns |= guarded(self._cursor, f"SELECT {', '.join(shown)} FROM {name}").fetchnumpy()  # noqa: S608 -- quoted
        return columns

    def tables(self, select: str, sizes: Sequence[int], cliques: Sequence[Clique]) -> tuple[FlatTables, int]:
        """Count contingency tables of a SELECT of codes."""
        return tables.count_select(self.session, self._spark(select), sizes, cliques)

    def fine(self, select: str, numbers: Sequence[Numbers]) -> list[IntArray]:
        """Count numbers along their grids."""
        return count_numbers(self.session, self._spark(select), numbers)

    @contextmanager
    def codes(self, select: str) -> Iterator[SparkCodes]:
        """Keep the rows of a SELECT in Spark, where it can; else each statement makes them anew, bounded alike: the salt stays."""
        with grouped.kept(self.session, self._spark(select)) as kept:
            yield SparkCodes(self.session, kept)


class SparkCodes:
    """See `dpsql.engines.base.Codes`. ``select``: of the rows."""

    def __init__(self, session: Any, select: str) -> None:
        self._session, self._select = session, select

    def total(self) -> int:
        """Return the number of rows."""
        _, count = tables.count_select(self._session, self._select, (), [()])
        return count

    def tables(self, sizes: Sequence[int], cliques: Sequence[Clique]) -> tuple[FlatTables, int]:
        """Count contingency tables, and the rows."""
        listed = ", ".join(f"c{i}" for i in range(len(sizes)))
        select = f"SELECT {listed} FROM ({self._select}) AS given" if sizes else self._select  # noqa: S608
        return tables.count_select(self._session, select, sizes, cliques)

    def moments(self, sizes: Sequence[int], clique: Clique, values: Sequence[str]) -> tuple[IntArray, IntArray, list[int]]:
        """Count one table, and sum values and their products."""
        return grouped.count_moments(self._session, self._select, sizes, clique, values)

    def values(self, column: str) -> tuple[list[str], IntArray]:
        """Count the values that occur."""
        return grouped.count_values(self._session, self._select, column)

    def tuples(self, index: TupleIndex, keys: IntArray, empty: Collection[int]) -> IntArray:
        """Count the rows that have each tuple."""
        return tuples.count_tuples(self._session, self._select, index, keys, empty)

    @contextmanager
    def widths(self, index: TupleIndex, k: int, keys: IntArray, empty: Collection[int]) -> Iterator[SparkWidths]:
        """Count how many of these tuples each row has."""
        yield SparkWidths(self._session, self._select, index, k, keys, empty)


class SparkWidths:
    """See `dpsql.engines.base.Widths`."""

    def __init__(
        self, session: Any, select: str, index: TupleIndex, k: int, keys: IntArray, empty: Collection[int]
    ) -> None:
        self._session, self._select, self._index, self._keys, self._empty = session, select, index, keys, empty
        self._k = k

    @cached_property
    def histogram(self) -> IntArray:
        """How many rows have 0, 1, ... of them."""
        return np.asarray(tuples.widths(self._session, self._select, self._index, self._k, self._keys, self._empty))

    def counted(self, most: int, salt: str) -> IntArray:
        """Count the rows that have each tuple, where a row keeps at most ``most``."""
        return tuples.count_bounded(self._session, self._select, self._index, self._keys, self._empty, most=most, salt=salt)


def check_counting(session: Any, url: str) -> None:
    """Try once for each url whether workers can count, on no rows of anybody, before anything is charged.

    Raises
    ------
    DpsqlError
        Their Python lacks numpy or pyarrow, or is too different from this one.
    """
    if url in _counting:
        return

    def tried(batches: Any) -> Any:
        import numpy
        import pyarrow

        assert numpy and pyarrow  # noqa: S101 -- both are there
        yield from batches

    try:
        with SparkReading(session) as reading:
            reading.arrow(lambda: session.range(1).selectExpr("CAST(id AS BIGINT) AS id").mapInArrow(tried, "id bigint"))
    except EngineLost:
        told = f"url = {url!r}: Spark gives no worker, or was lost before anything was read. Does the cluster run?"
        raise EngineLost(told) from None
    except DpsqlError:
        raise DpsqlError(
            f"url = {url!r}: Spark's workers cannot run a function of this Python: they need its minor version ({_PYTHON}) with "
            "numpy and pyarrow; PYSPARK_PYTHON names the program that they start. Nothing was read"
        ) from None
    _counting.add(url)


@contextmanager
def shipped(session: Any, cursor: duckdb.DuckDBPyConnection, table: str) -> Iterator[str]:
    """Make a view of a DuckDB table in Spark until the block ends; its quoted name.

    Raises
    ------
    UnsupportedQuery
        A column has a type that Spark has not.

    Notes
    -----
    Privacy: for public rows alone.
    """
    described = [(str(row[0]), str(row[1])) for row in cursor.execute(f"DESCRIBE {identifier(table)}").fetchall()]
    names = [f"v{i}" for i in range(len(described))]
    listed = [
        f"CAST({identifier(name)} AS {_CARRIED.get(kind, kind)}) AS {short}"
        for short, (name, kind) in zip(names, described, strict=True)
    ]
    local = cursor.sql(f"SELECT {', '.join(listed)} FROM {identifier(table)}").to_arrow_table()  # noqa: S608 -- quoted
    types = [spark_type(kind) for _, kind in described]
    if local.num_rows:
        frame = session.createDataFrame(local)
    else:  # Spark Connect infers no types from no rows
        nothing = ", ".join(f"CAST(NULL AS {kind}) AS {short}" for short, kind in zip(names, types, strict=True))
        frame = session.sql(f"SELECT {nothing} WHERE false")
    quoted = [f"`{name.replace('`', '``')}`" for name, _ in described]
    columns = [f"CAST({short} AS {kind}) AS {name}" for short, kind, name in zip(names, types, quoted, strict=True)]
    view = f"dpsql_{secrets.token_hex(8)}"
    frame.selectExpr(*columns).createOrReplaceTempView(view)
    try:
        yield f"`{view}`"
    finally:
        with contextlib.suppress(Exception):  # the session may have ended
            session.catalog.dropTempView(view)


def count_numbers(session: Any, select: str, numbers: Sequence[Numbers]) -> list[IntArray]:
    """Count numbers of a SELECT along their grids.

    Parameters
    ----------
    session : SparkSession
    select : str
        In Spark's SQL, with the columns that ``numbers`` name.
    numbers : sequence of Numbers

    Returns
    -------
    list of int64 arrays, shape (cells,)

    Raises
    ------
    DpsqlError
        Spark failed, the reason is withheld.

    Notes
    -----
    Privacy: exact, secret counts. What moves is cells times tasks.
    """
    columns = [f"CAST({one.code} AS INT) AS k{i}, CAST({one.value} AS DOUBLE) AS v{i}" for i, one in enumerate(numbers)]
    wired = f"SELECT {', '.join(columns)} FROM ({select}) AS given"  # noqa: S608 -- our own statement

    def frame() -> Any:
        rows = session.sql(wired).coalesce(tasks(session))
        counted = shipping.mapped(rows, number_counting([np.asarray(one.edges, dtype=np.float64) for one in numbers]))
        return shipping.mapped(counted.repartition(1), arrays.adding())

    starts = np.cumsum([arrays.HEAD, *(one.edges.size - 1 for one in numbers)])
    with SparkReading(session) as reading:
        flat = arrays.gathered(reading.arrow(frame), int(starts[-1]))
    if flat[1]:
        raise DpsqlError(tables.DEFECT)
    return [flat[first:behind] for first, behind in zip(starts[:-1], starts[1:], strict=True)]
