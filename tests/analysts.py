"""Calls of analysts of a served database, as the server makes them."""

from __future__ import annotations

from typing import Any

import duckdb

from dpsql import udfs
from dpsql.door import dispatch
from dpsql.session.instance import Instance


def instance_of(con: duckdb.DuckDBPyConnection) -> Instance:
    found = udfs.instance_of(con)
    assert found is not None
    return found


def ask(con: duckdb.DuckDBPyConnection, analyst: str | None, name: str, /, *, database: str | None = None, **given: Any) -> list[Any]:
    """Return the rows that answer a call of an analyst; None: of the custodian."""
    cursor = con.cursor()
    home = database or str(cursor.execute("SELECT current_database()").fetchall()[0][0])
    text = dispatch.run(instance_of(con), name, given, database=home, schema="main", analyst=analyst)
    return cursor.execute(f"FROM {text}").fetchall()


def named(con: duckdb.DuckDBPyConnection, analyst: str | None, name: str, /, **given: Any) -> list[dict[str, Any]]:
    """Return the rows as dictionaries."""
    cursor = con.cursor()
    home = str(cursor.execute("SELECT current_database()").fetchall()[0][0])
    text = dispatch.run(instance_of(con), name, given, database=home, schema="main", analyst=analyst)
    cursor.execute(f"FROM {text}")
    columns = [column[0] for column in cursor.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
