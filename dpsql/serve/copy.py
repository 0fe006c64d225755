"""An empty copy of the schema: the served tables and views by names and types, in memory, without a row.

What only names and types answer (a description, LIMIT 0, WHERE 1 = 0) is bound and run there: nothing can leak from it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import duckdb

from dpsql.serve.gate.view import BOOKS, Entry, View
from dpsql.serve.passed import Column
from dpsql.session.settings import pin
from dpsql.source.relations import view_query
from dpsql.text.names import fold
from dpsql.text.relation import identifier

_Schema = tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...]


MOST = 8
"""Copies that are kept: analysts whose grants name other columns have others."""


class EmptyCopy:
    """The copies, by schema: each has the columns that an analyst may name.

    Parameters
    ----------
    database : str
        The name that the served database is attached under.
    """

    def __init__(self, database: str) -> None:
        self._database = database
        self._made_of: OrderedDict[_Schema, duckdb.DuckDBPyConnection] = OrderedDict()
        self._guard = threading.Lock()

    @contextmanager
    def cursor(self, view: View) -> Iterator[duckdb.DuckDBPyConnection]:
        """Lend a cursor of the copy.

        Parameters
        ----------
        view : View
            Its catalog is copied; what is hidden is there too, as names and types: the gate has looked at what is asked.
        """
        cursor = self._lent(view)
        try:
            pin(cursor)
            yield cursor
        finally:
            cursor.close()

    def binds(self, view: View, entry: Entry) -> bool:
        """Return whether a view has the columns that its text makes of those that an analyst may name."""
        with self.cursor(view) as cursor:
            try:
                cursor.execute(f"USE {identifier(self._database, entry.schema)}")
                columns = columns_of(cursor, view_query(entry.sql, ""))
            except duckdb.Error:
                return False
        return [column.name for column in columns] == [name for name, _ in view.columns(entry)]

    def _lent(self, view: View) -> duckdb.DuckDBPyConnection:
        entries = [entry for entry in view.entries.values() if fold(entry.schema) != BOOKS]
        schema = tuple((entry.schema, entry.name, tuple(view.columns(entry))) for entry in entries)
        with self._guard:
            con = self._made_of.pop(schema, None) or self._made(schema)
            self._made_of[schema] = con
            while len(self._made_of) > MOST:
                self._made_of.popitem(last=False)
            return con.cursor()

    def _made(self, schema: _Schema) -> duckdb.DuckDBPyConnection:
        con = duckdb.connect(":memory:")
        if fold(self._database) != "memory":
            con.execute(f"ATTACH ':memory:' AS {identifier(self._database)}")
        con.execute("SET enable_external_access = false")
        for place in {name for name, _, _ in schema} - {"main"}:
            con.execute(f"CREATE SCHEMA IF NOT EXISTS {identifier(self._database, place)}")
        for place, name, columns in schema:
            listed = ", ".join(f"{identifier(column)} {kind}" for column, kind in columns)
            with suppress(duckdb.Error):  # of a type that is not there: what names it does not bind
                con.execute(f"CREATE TABLE {identifier(self._database, place, name)}({listed})")
        return con


def columns_of(cursor: duckdb.DuckDBPyConnection, sql: str) -> tuple[Column, ...]:
    """Return the columns of a query, which is bound and not run."""
    return tuple(Column(str(row[0]), str(row[1])) for row in cursor.execute(f"DESCRIBE {sql}").fetchall())


def rows_of(cursor: duckdb.DuckDBPyConnection, sql: str, columns: tuple[Column, ...]) -> list[tuple[Any, ...]]:
    """Return what a query gives over the copy, in the types of these columns."""
    listed = ", ".join(f"CAST(#{place} AS {column.type})" for place, column in enumerate(columns, 1))
    return cursor.execute(f"SELECT {listed} FROM ({sql})").fetchall()  # noqa: S608 -- the gate's
