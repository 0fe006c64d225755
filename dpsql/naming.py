"""What a name that a user typed stands for: a table, a view or a file. Reads catalogs only, never a row."""

from __future__ import annotations

from pathlib import Path

import duckdb

from dpsql.errors import ArgumentError
from dpsql.relation import split_name
from dpsql.source_catalog import Catalog, Entry, file_table
from dpsql.source_model import TableId


def find_relation(cursor: duckdb.DuckDBPyConnection, argument: str, text: str, *, database: str, schema: str) -> Entry:
    """Return the table, view or Parquet file that ``text`` names.

    Parameters
    ----------
    argument : str
        Name of the argument, for the error.
    text : str
        A name with up to three parts, a name that is not an SQL identifier but that of a table of the current schema, or the
        path of a Parquet file.

    Raises
    ------
    ArgumentError
        There is no such relation, or the cursor cannot see it.
    """
    catalog = Catalog(cursor)
    homes = list(dict.fromkeys([(database, schema), (database, "main")]))
    found = catalog.locate([text], homes)
    parts = split_name(text)
    if found is None and 1 <= len(parts) <= 3:
        found = catalog.locate(parts, homes)
    if found is not None:
        return found
    path = text.strip().strip("'")
    if Path(path).suffix.lower() in (".parquet", ".pq"):
        return Entry(file_table(path, text), False, "")
    raise ArgumentError(
        argument,
        text,
        f"no such table in {database}.{schema}. If it was created in a transaction that is still open, COMMIT first; a "
        "TEMP table belongs to one connection and cannot be used",
    )


def find_table(cursor: duckdb.DuckDBPyConnection, text: str, *, database: str, schema: str) -> TableId:
    """Return the table or file that can carry a budget.

    Raises
    ------
    ArgumentError
        There is none of this name, or it is a view.
    """
    found = find_relation(cursor, "source", text, database=database, schema=schema)
    if found.is_view:
        raise ArgumentError("source", text, "is a view: the budget hangs on tables; protect the table that the view reads")
    return found.table
