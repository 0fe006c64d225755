"""Calls of analysts of a served database, as the room makes them."""

from __future__ import annotations

import threading
from typing import Any

import duckdb
from prepared import beside

from dpsql import udfs
from dpsql.door import dispatch
from dpsql.session.instance import ANALYST


def ask(con: duckdb.DuckDBPyConnection, analyst: str | None, name: str, /, **given: Any) -> list[Any]:
    """Return the rows that answer a call of an analyst; None: of the custodian."""
    return _cursor(con).execute(f"FROM {_answer(con, analyst, name, given)}").fetchall()


def named(con: duckdb.DuckDBPyConnection, analyst: str | None, name: str, /, **given: Any) -> list[dict[str, Any]]:
    """Return the rows as dictionaries."""
    cursor = beside(con).execute(f"FROM {_answer(con, analyst, name, given)}")
    columns = [column[0] for column in cursor.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def _cursor(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    return beside(con) if threading.current_thread() is threading.main_thread() else con.cursor()


def _answer(con: duckdb.DuckDBPyConnection, analyst: str | None, name: str, given: dict[str, Any]) -> str:
    instance = udfs.instance_of(con)
    assert instance is not None
    home = str(_cursor(con).execute("SELECT current_database()").fetchall()[0][0])
    who = None if analyst is None else f"{ANALYST}{analyst}"
    return dispatch.run(instance, name, given, database=home, schema="main", progress=False, analyst=who)
