"""Calls from Python: values become those that SQL sends, the answer is a DuckDB relation."""

from __future__ import annotations

import datetime as dt
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from dpsql.client import Served

Connection = duckdb.DuckDBPyConnection | Served
"""Where a call runs: a database of this process, or a served one."""


def answered(con: Connection, name: str, **given: Any) -> duckdb.DuckDBPyRelation:
    """Run a call on a connection, which is loaded if it was not yet; on a served database by its server."""
    if isinstance(con, Served):
        return con.call(name, given)
    from dpsql import udfs
    from dpsql.door import dispatch
    from dpsql.door.clients import connection_of
    from dpsql.errors import DpsqlError, first_line

    con = connection_of(con)
    instance = udfs.instance_of(con)
    if instance is None:
        udfs.load(con)
        instance = udfs.instance_of(con)
    if instance is None:  # pragma: no cover -- load has just registered it
        raise DpsqlError("dpsql could not be loaded on this connection")
    own = "system.main."  # on the caller's connection a macro of the database would come before DuckDB's function
    asked = f"SELECT {own}current_database(), {own}current_schema(), {own}getvariable('dpsql_progress')::VARCHAR"
    try:
        ((database, schema, shown),) = con.execute(asked).fetchall()
    except duckdb.ConnectionException as error:
        raise DpsqlError(f"con: the connection cannot be used: {first_line(error)}") from None
    text = dispatch.run(instance, name, given, database=database, schema=schema, progress=shown)
    relation = con.sql(f"FROM {text}")
    if name == "query" and "IPython" in sys.modules:  # a notebook shows it as a card
        from dpsql.answers import cards, remembered

        cards.note(relation, con, remembered.releases_of(instance, text))
    return relation


def filled(sql: str, params: Sequence[Any] | Mapping[str, Any] | None) -> str:
    """Return a text with its parameters filled in, see `dpsql.text.parameters`; what reads SQL is loaded where there are some."""
    if params is None:
        return sql
    from dpsql.text.parameters import filled

    return filled(sql, params)


def plain(value: Any) -> Any:
    """Return paths, dates, numpy scalars and the like as the JSON values that SQL callers send."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    if isinstance(value, (dt.date, dt.time, uuid.UUID, Path)):
        return str(value)
    return float(value) if hasattr(value, "as_integer_ratio") else value  # an object of another kind is refused where it is read
