"""A public relation of DuckDB as a view of Spark: the groups of a query, a few thousand rows that are known to everybody."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb

from dpsql.engines.spark.translate.types import spark_type
from dpsql.text.relation import identifier

_CARRIED = {"UTINYINT": "SMALLINT", "USMALLINT": "INTEGER", "UINTEGER": "BIGINT", "HUGEINT": "DECIMAL(38,0)"}
"""What DuckDB hands over in another type, which stands for it in Spark."""


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
    found = cursor.sql(f"SELECT {', '.join(listed)} FROM {identifier(table)}").to_arrow_table()  # noqa: S608 -- quoted
    types = [spark_type(kind) for _, kind in described]
    if found.num_rows:
        given = session.createDataFrame(found)
    else:  # Spark Connect infers no types from no rows
        nothing = ", ".join(f"CAST(NULL AS {kind}) AS {short}" for short, kind in zip(names, types, strict=True))
        given = session.sql(f"SELECT {nothing} WHERE false")
    quoted = [f"`{name.replace('`', '``')}`" for name, _ in described]
    columns = [f"CAST({short} AS {kind}) AS {name}" for short, kind, name in zip(names, types, quoted, strict=True)]
    view = f"dpsql_{secrets.token_hex(8)}"
    given.selectExpr(*columns).createOrReplaceTempView(view)
    try:
        yield f"`{view}`"
    finally:
        with contextlib.suppress(Exception):  # the session may have ended
            session.catalog.dropTempView(view)
