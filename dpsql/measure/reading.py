"""What reading protected rows takes for every kind: the statement, bound before anything is charged; codes; what comes out."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import duckdb
from sqlglot import exp

from dpsql.domains import encoding, multi_value
from dpsql.domains.attributes import Domain
from dpsql.engines.base import Codes, Reader
from dpsql.engines.registry import reader
from dpsql.errors import DpsqlError, first_line
from dpsql.noise.entropy import fresh_salt
from dpsql.numerics.arrays import IntArray
from dpsql.protected.home import named_files
from dpsql.protected.source import ProtectedSource
from dpsql.release.plan import Plan
from dpsql.release.refined import Refinement
from dpsql.running.progress import Progress
from dpsql.session.instance import Context
from dpsql.source.analysis import relation_columns
from dpsql.text.relation import identifier


@dataclass(frozen=True)
class Measured:
    """What is released: integers, the values that they belong to in an open domain, the number of rows where it is public.

    ``places``: table and cell of each integer, shape (2, N), where only some cells are released. ``notes``: what was left out.
    ``refinement``: the fine histograms that were released before, where the plan has any.
    """

    flat: IntArray
    values: list[str]
    total: int | None
    places: IntArray | None = None
    notes: tuple[str, ...] = ()
    refinement: Refinement | None = None


@dataclass(frozen=True)
class Reading:
    """What one kind reads: the source, its codes, and columns beyond them.

    Parameters
    ----------
    domain : Domain
        Of the codes; empty where values are read as they are.
    extra : mapping of str to expression
        Columns that are counted or summed as they are.
    distinct : bool
        Whether equal rows of a unit count once.
    """

    protected: ProtectedSource
    plan: Plan
    domain: Domain
    extra: Mapping[str, exp.Expression]
    distinct: bool = False

    def source_sql(self) -> str:
        """Return the source, with columns of several values split."""
        return multi_value.split_sql(self.protected.source.sql, self.plan.domain, self.plan.options)

    def statement(self) -> str:
        """Return the SELECT that will read the protected rows."""
        return encoding.encode_sql(self.source_sql(), self.domain, **self._wanted())

    def _wanted(self) -> dict[str, Any]:
        return {**bounding(self.protected), "extra": self.extra, "distinct": self.distinct}

    @contextmanager
    def encoded(self, reader: Reader, progress: Progress) -> Iterator[Codes]:
        """Encode the rows, and keep the codes until the block ends, however it does. Privacy: they are protected rows."""
        with ExitStack() as stack:
            with progress.stage("encode"):
                self.check_types(reader.cursor)
                codes = stack.enter_context(reader.codes(self.statement()))
            yield codes

    def check_types(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Refuse a source whose columns have other types than their domains were declared for. No row is read."""
        encoding.check_types(encoding.column_types(cursor, self.source_sql()), self.plan.domain)


_states: weakref.WeakSet[duckdb.DuckDBPyConnection] = weakref.WeakSet()
"""Cursors that read one state now."""


@contextmanager
def snapshot(cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Read one state of the database with all statements inside; nothing that they write stays. One inside of another is that one.

    Privacy: what one unit adds to counts that several statements make up is bounded by its rows in one state, not in each of
    several. Of files that are replaced meanwhile DuckDB has no states. Of rows that another engine has this is no state either: no
    count of theirs is made up by several statements (`dpsql.engines.base`).
    """
    if cursor in _states:
        yield
        return
    cursor.begin()
    _states.add(cursor)
    try:
        yield
    finally:
        _states.discard(cursor)
        with suppress(duckdb.Error):  # a failed statement may have ended it
            cursor.rollback()


def bounding(protected: ProtectedSource) -> dict[str, Any]:
    """Return how rows of a unit are bounded: which ones are kept is drawn anew at each reading."""
    most, salt = protected.protection.max_contributions, fresh_salt()
    return {"unit": protected.of_units, "max_contributions": most, "salt": salt, "numbered": protected.source.row is not None}


@contextmanager
def binding() -> Iterator[None]:
    """Say that DuckDB does not accept a statement, where it is bound so that it cannot fail later for a reason known beforehand.

    Raises
    ------
    DpsqlError
        DuckDB does not accept the statement.
    """
    try:
        yield
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        raise DpsqlError(f"source: DuckDB does not accept it ({first_line(error)})") from None


def reader_of(context: Context, protected: ProtectedSource) -> Reader:
    """Return what reads the rows of a source: the engine that has them.

    Privacy: files are read only while no other table with a budget has one of them (`dpsql.protected.files`).

    Raises
    ------
    UnsupportedQuery, ArgumentError
        Another one has, or whether it has cannot be said.
    """
    table, remote = protected.source.table, protected.remote
    if remote is None:
        if table.is_file:
            named_files(context).check_own(protected.books.database, table)
        return reader(context.cursor, None)
    if remote.engine != "duckdb":  # it lists the files that it reads for itself; these are all that are there
        named_files(context).check_name(protected.books.database, protected.key, remote)
    columns = {column.name: column.sql_type for column in relation_columns(context.cursor, table)}
    name, unit = identifier(table.database, table.schema, table.name), protected.held.privacy_unit
    apart = named_files(context).apart(protected.books.database, protected.key, remote)
    return reader(context.cursor, remote, name, columns, unit, apart)
