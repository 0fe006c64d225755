"""Columns of a Parquet file that are not read row by row: a value fails, or decides over others. Reads the footer, never a row."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import duckdb

from dpsql.session.versions import first_number
from dpsql.source.kernel import FLOATS
from dpsql.source.model import TableId, fold

_WHOLE = {
    "INT_8", "INT_16", "INT_32", "INT_64", "UINT_8", "UINT_16", "UINT_32", "UINT_64", "DATE", "TIMESTAMP_MICROS", "TIME_MICROS",
    "DECIMAL",
}  # fmt: skip
_QUERY = """
SELECT name, type, type_length::BIGINT, num_children::BIGINT, converted_type, logical_type FROM system.main.parquet_schema(?)
"""


def unsafe_columns(cursor: duckdb.DuckDBPyConnection, table: TableId) -> dict[str, str]:
    """Return the columns of a file that a source may not read, by folded name, with their Parquet type.

    Parameters
    ----------
    cursor : DuckDB cursor
    table : TableId
        A Parquet file.

    Returns
    -------
    dict
        Of a timestamp in milliseconds, say: DuckDB multiplies each value by 1,000 while it reads, and one far value makes every
        call that reads the column fail, before any expression could catch it. On DuckDB 1, of floating-point numbers: it looks zero
        up in the file's filter of hashes, where minus zero has another one, so that a row of another value, or the place of a row,
        decides whether a thousand rows of minus zero are equal to zero.

    Notes
    -----
    Privacy: a function of the schema alone.
    """
    rows = cursor.execute(_QUERY, [table.name]).fetchall()
    return unsafe(rows, looked_up=FLOATS if first_number() == 1 else ())


def unsafe(rows: Sequence[tuple[Any, ...]], *, looked_up: Collection[str] = ()) -> dict[str, str]:
    """Return these columns, of what ``parquet_schema`` says of one file: name, type, length, children, what the type stands for.

    ``looked_up``: types of whole columns that are among them whatever their values.
    """
    reasons: dict[str, str] = {}
    open_groups: list[list[int]] = []  # children that are still to come, of each enclosing group
    column = ""
    for name, kind, length, children, converted, logical in rows[1:]:
        if not open_groups:
            column = str(name)
        if not children and (not _safe(kind, length, converted, logical or "") or (kind in looked_up and not open_groups)):
            reasons.setdefault(fold(column), str(converted or logical or kind).split("(")[0])
        while open_groups and open_groups[-1][0] == 1:
            open_groups.pop()
        if open_groups:
            open_groups[-1][0] -= 1
        if children:
            open_groups.append([int(children)])
    return reasons


def _safe(kind: str, length: int | None, converted: str | None, logical: str) -> bool:
    """Return whether every value of a Parquet type is one of DuckDB's type for it."""
    if kind in ("BOOLEAN", "FLOAT", "DOUBLE"):
        return True
    if kind in ("INT32", "INT64"):
        odd_unit = "MILLIS=MilliSeconds" in logical or "NANOS=NanoSeconds" in logical
        return not odd_unit and (converted in _WHOLE if converted else not logical or logical.startswith("IntType"))
    if kind == "BYTE_ARRAY":
        return converted in (None, "UTF8", "ENUM", "JSON")
    if kind == "FIXED_LEN_BYTE_ARRAY":
        return converted in (None, "DECIMAL") and (length or 99) <= 16 and not logical.startswith("Float16")
    return False
