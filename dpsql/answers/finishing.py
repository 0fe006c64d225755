"""The outer statement of a query, run by dpsql and not by the caller: over released numbers, under dpsql's own settings.

The caller's session may have macros that are called like a function or an operator of DuckDB, another collation or another
meaning of a division. None of it can change an answer: the statement runs on a cursor of dpsql's, functions that are not as
DuckDB ships them are refused, and what comes out is given back as values.
"""

from __future__ import annotations

import json
from typing import Any

import duckdb

from dpsql.errors import ArgumentError, first_line
from dpsql.session.instance import Context
from dpsql.text.relation import identifier, literal

_PLAIN = ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
          "UHUGEINT", "FLOAT", "DOUBLE", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_S", "TIMESTAMP_MS",
          "TIMESTAMP_NS", "VARCHAR", "UUID", "INTERVAL")
"""Types whose text DuckDB casts back to the same value."""


MOST_ROWS = 1_000_000
"""Rows of an answer of an analyst of a served database: it is made up in that process's memory."""


def columns_of(context: Context, text: str, shape: object = None) -> list[tuple[str, str]]:
    """Return names and types of the columns of a statement; within a call they are known by its ``shape``, if it has one.

    Raises
    ------
    duckdb.Error
    """
    columns: list[tuple[str, str]] | None = None if shape is None else context.known.get(("described", shape))
    if columns is None:
        columns = [(str(row[0]), str(row[1])) for row in context.cursor.execute(f"DESCRIBE {text}").fetchall()]
    if shape is not None:
        context.known["described", shape] = columns
    return columns


def finish(context: Context, text: str, sql: str, shape: object = None) -> str:
    """Return the rows of a statement over released numbers as the text of a relation.

    Parameters
    ----------
    text : str
        The statement.
    sql : str
        The caller's, for messages.
    shape : hashable, optional
        As in `columns_of`.

    Raises
    ------
    ArgumentError
        It fails on the released numbers, which are kept.
    """
    cursor = context.cursor
    try:
        columns = columns_of(context, text, shape)
        listed = ", ".join(_text_of(place, kind) for place, (_, kind) in enumerate(columns, 1))
        few = "" if context.analyst is None else f" LIMIT {MOST_ROWS + 1}"
        rows = cursor.execute(f"SELECT {listed} FROM ({text}){few}").fetchall()  # noqa: S608 -- checked and rendered
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        advice = (
            f"what stands around the aggregates fails on the released numbers ({first_line(error)}). They are bought and kept: "
            "change that part, it costs nothing more"
        )
        raise ArgumentError("sql", sql[:80], advice) from None
    if few and len(rows) > MOST_ROWS:
        told = f"the answer is too large: at most {MOST_ROWS:,} rows. What was bought is kept; ask for less"
        raise ArgumentError("sql", sql[:80], told)
    if not rows:
        nulls = ", ".join(f"CAST(NULL AS {kind}) AS {identifier(name)}" for name, kind in columns)
        return f"(SELECT {nulls} LIMIT 0)"
    values = ", ".join(_column(place, name, kind, rows) for place, (name, kind) in enumerate(columns))
    return f"(SELECT {values})"


def _is_plain(kind: str) -> bool:
    return kind in _PLAIN or kind.startswith(("DECIMAL(", "ENUM("))


def _text_of(place: int, kind: str) -> str:
    """Return a column as text: a value's own, or JSON of a nested one."""
    if _is_plain(kind):
        return f"CAST(#{place} AS VARCHAR)"
    return f"CAST(system.main.to_json(#{place}) AS VARCHAR)"


def _column(place: int, name: str, kind: str, rows: list[tuple[Any, ...]]) -> str:
    texts = literal(json.dumps([row[place] for row in rows], ensure_ascii=False))
    values = f"unnest(system.main.from_json({texts}, '[\"VARCHAR\"]'))"
    if _is_plain(kind):
        return f"CAST({values} AS {kind}) AS {identifier(name)}"
    return f"system.main.from_json({values}, {literal(json.dumps(kind))}) AS {identifier(name)}"
