"""Which files an attached DuckLake has: those of a table at a snapshot, and all that its catalog still knows of.

Paths of files elsewhere (``s3://``) are left out: these are no files of this machine.
"""

from __future__ import annotations

import os
from pathlib import Path

import duckdb

from dpsql.text.paths import local_path
from dpsql.text.relation import identifier, literal

_OPTIONS = "SELECT options FROM system.main.duckdb_databases() WHERE system.main.lower(database_name) = system.main.lower(?)"
_FIND = """
SELECT table_name FROM system.main.duckdb_tables()
WHERE system.main.lower(database_name) = system.main.lower(?) AND system.main.lower(schema_name) = system.main.lower(?)
AND system.main.lower(table_name) = system.main.lower(?)
"""
_EVER = """
SELECT s.path, s.path_is_relative, t.path, t.path_is_relative, f.path, f.path_is_relative
FROM {catalog}.ducklake_data_file f LEFT JOIN {catalog}.ducklake_table t ON t.table_id = f.table_id
LEFT JOIN {catalog}.ducklake_schema s ON s.schema_id = t.schema_id
UNION ALL
SELECT NULL, NULL, NULL, NULL, d.path, d.path_is_relative FROM {catalog}.ducklake_files_scheduled_for_deletion d
"""


def has(cursor: duckdb.DuckDBPyConnection, lake: str, schema: str, table: str) -> bool:
    """Return whether a lake has a table now; a view is none."""
    return cursor.execute(_FIND, [lake, schema, table]).fetchone() is not None


def listed(cursor: duckdb.DuckDBPyConnection, lake: str, schema: str, table: str, snapshot: int | None = None) -> list[str]:
    """Return the files of a table as the lake names them, at a snapshot or at the newest one; small inserts are in none."""
    at = "" if snapshot is None else f", snapshot_version => {snapshot}"
    function = f"system.main.ducklake_list_files({literal(lake)}, {literal(table)}, schema => {literal(schema)}{at})"
    return [str(file) for (file,) in cursor.execute(f"SELECT data_file FROM {function}").fetchall()]  # noqa: S608 -- quoted


def data_path(cursor: duckdb.DuckDBPyConnection, lake: str) -> str:
    """Return where the lake writes its files; '' where it does not say."""
    rows = cursor.execute(f"SELECT data_path FROM system.main.ducklake_settings({literal(lake)})").fetchall()  # noqa: S608 -- quoted
    return str(rows[0][0] or "") if rows else ""


def ever(cursor: duckdb.DuckDBPyConnection, lake: str) -> list[Path]:
    """Return all files of any table at any snapshot, and those that wait to be deleted.

    Privacy: a file whose rows were deleted, or whose table was dropped, was counted before. It is known until the lake has
    forgotten it (``ducklake_expire_snapshots``), and deleted it (``ducklake_cleanup_old_files``).
    """
    root = data_path(cursor, lake)
    rows = cursor.execute(_EVER.format(catalog=_catalog(cursor, lake))).fetchall()
    paths = {_joined(root, *zip(row[0::2], row[1::2], strict=True)) for row in rows}
    return [path for text in sorted(paths) if (path := local_path(text)) is not None]


def _joined(root: str, *steps: tuple[str | None, bool | None]) -> str:
    for path, relative in steps:
        if path is not None:
            root = os.path.join(root, path) if relative else path  # noqa: PTH118 -- it may be no path of this machine
    return root


def _catalog(cursor: duckdb.DuckDBPyConnection, lake: str) -> str:
    """Return the schema that has the tables of the lake's catalog: ATTACH names it, or else DuckLake does."""
    try:
        row = cursor.execute(_OPTIONS, [lake]).fetchone()
    except duckdb.BinderException:  # before DuckDB 1.5
        row = None
    options = dict(row[0] or {}) if row else {}
    names = [options.get("metadata_catalog") or f"__ducklake_metadata_{lake}", options.get("metadata_schema")]
    return identifier(*(name for name in names if name))
