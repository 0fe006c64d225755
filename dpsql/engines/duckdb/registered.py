"""Relations of a cursor that are there as long as they are needed: frames, and temporary tables."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import duckdb

from dpsql.text.relation import identifier


@contextmanager
def registered(cursor: duckdb.DuckDBPyConnection, frame: object) -> Iterator[str]:
    """Register a frame, of pandas or pyarrow, under a name of its own, which is given."""
    name = f"__dp_tuples_{uuid.uuid4().hex}"
    cursor.execute("SELECT 1").fetchall()  # DuckDB 2.0 takes nothing and lets nothing go while a result was not read to its end
    cursor.register(name, frame)
    try:
        yield name
    finally:
        with suppress(duckdb.Error):  # the cursor is closed soon, and the frame goes with it
            cursor.execute("SELECT 1").fetchall()
            cursor.unregister(name)


def drop(cursor: duckdb.DuckDBPyConnection, name: str) -> None:
    """Drop a temporary table; where a statement has failed in a transaction, the table goes with that."""
    with suppress(duckdb.TransactionException):
        cursor.execute(f"DROP TABLE IF EXISTS {identifier(name)}")
