"""Connections of other clients: what ibis and SQLAlchemy (duckdb-engine) wrap is a DuckDB connection, and that is what is used.

Neither package is imported here: an object is taken for what it is by what it has.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import duckdb

from dpsql.client import Served
from dpsql.errors import ArgumentError

_watched: weakref.WeakSet[Any] = weakref.WeakSet()
_EXPECTED = (
    "a connection is required: duckdb.connect('file.duckdb'), ibis.duckdb.connect(...), or an engine or connection of SQLAlchemy "
    "with duckdb-engine"
)


def connection_of(con: Any) -> duckdb.DuckDBPyConnection:
    """Return the DuckDB connection that an object is or wraps.

    Parameters
    ----------
    con : duckdb.DuckDBPyConnection, ibis DuckDB backend, or SQLAlchemy Connection or Session

    Raises
    ------
    ArgumentError
        It is or wraps none, or it is an engine, which has many.
    """
    if isinstance(con, duckdb.DuckDBPyConnection):
        return con
    if isinstance(con, Served):
        raise ArgumentError("con", con, "a database of this process is needed here, not a served one")
    inner = getattr(con, "con", None)  # an ibis backend
    if isinstance(inner, duckdb.DuckDBPyConnection):
        return inner
    if is_engine(con):
        raise ArgumentError("con", con, "an engine has many connections; take one: with engine.connect() as con: ...")
    if callable(getattr(con, "exec_driver_sql", None)):  # a Connection
        return _unwrapped(con.connection, con)
    if callable(getattr(con, "get_bind", None)) and callable(getattr(con, "connection", None)):  # a Session
        return _unwrapped(con.connection().connection, con)
    return _unwrapped(con, con)


def is_engine(con: Any) -> bool:
    """Return whether this is an engine of SQLAlchemy: a pool of connections."""
    return callable(getattr(con, "raw_connection", None)) and hasattr(con, "pool")


def _unwrapped(raw: Any, con: Any) -> duckdb.DuckDBPyConnection:
    """Return the connection inside a pool's or a driver's wrapper."""
    driver = getattr(raw, "driver_connection", None) or getattr(raw, "dbapi_connection", None) or raw
    parts = [driver, *getattr(driver, "__dict__", {}).values()]
    connection = next((value for value in parts if isinstance(value, duckdb.DuckDBPyConnection)), None)
    if connection is None:
        raise ArgumentError("con", con, _EXPECTED)
    return connection


def load_engine(engine: Any, load: Callable[[duckdb.DuckDBPyConnection], None]) -> None:
    """Load the database of an engine, and every connection that it opens from now on: a pool may close and reopen them all.

    Raises
    ------
    ArgumentError
        It is an engine of another database.
    """
    with engine.connect() as con:  # first: an engine that is none of DuckDB's gets no listener
        load(connection_of(con))
    if engine in _watched:
        return
    from sqlalchemy import event  # an engine was given, so it is there

    def loaded(raw: Any, _record: Any) -> None:
        load(_unwrapped(raw, engine))

    event.listen(engine, "connect", loaded)
    _watched.add(engine)
