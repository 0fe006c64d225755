"""A table of an attached DuckLake, read at one of its snapshots."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb

from dpsql.engines.attached.looked import AttachedTable, Looked, listed
from dpsql.engines.attached.parquet import schemas
from dpsql.engines.remote import Described
from dpsql.errors import ArgumentError, DpsqlError
from dpsql.source.parquet import unsafe
from dpsql.text.names import fold
from dpsql.text.relation import literal

_TYPES = {
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "FLOAT",
    "DOUBLE", "VARCHAR", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "UUID",
}  # fmt: skip
"""Not HUGEINT: files have it as a DOUBLE, so several numbers, and units, become one, and the largest fail to be read."""
_FIND = """
SELECT table_name FROM system.main.duckdb_tables()
WHERE database_name = ? AND system.main.lower(schema_name) = system.main.lower(?)
AND system.main.lower(table_name) = system.main.lower(?)
"""


class LakeTable(AttachedTable):
    """See `dpsql.engines.attached.place.Place`."""

    def look(self, cursor: duckdb.DuckDBPyConnection) -> Looked:
        """Return the columns at the newest snapshot: all statements that their SELECT stands in read its rows. No row is read."""
        snapshot = self._snapshot(cursor)

        def select(wanted: Mapping[str, str]) -> str:
            self._check_files(cursor, snapshot, wanted)
            return f"SELECT {listed(wanted)} FROM {self._at(snapshot)}"  # noqa: S608 -- quoted

        return Looked(self._columns(cursor, snapshot), select)

    def _at(self, snapshot: int) -> str:
        return f"{self.text} AT (VERSION => {snapshot})"

    def _snapshot(self, cursor: duckdb.DuckDBPyConnection) -> int:
        try:
            if cursor.execute(_FIND, [self.database, self.schema, self.name]).fetchone() is None:
                raise ArgumentError("relation", self.text, "there is no such table in the lake; a view is none")
            query = f"SELECT max(snapshot_id) FROM system.main.ducklake_snapshots({literal(self.database)})"  # noqa: S608
            row = cursor.execute(query).fetchone()
        except duckdb.InterruptException:
            raise
        except duckdb.Error:  # its catalog may be another server's, whose address holds credentials
            raise DpsqlError(f"relation = {self.text}: the lake does not answer") from None
        return int(row[0]) if row else 0

    def _columns(self, cursor: duckdb.DuckDBPyConnection, snapshot: int) -> list[Described]:
        try:
            rows = cursor.execute(f"DESCRIBE SELECT * FROM {self._at(snapshot)}").fetchall()  # noqa: S608 -- quoted
        except duckdb.InterruptException:
            raise
        except duckdb.Error:
            raise DpsqlError(f"relation = {self.text}: the lake does not describe it") from None
        found = []
        for name, kind, *_ in rows:
            listed = str(kind) in _TYPES or str(kind).startswith("DECIMAL(")
            found.append(Described(str(name), str(kind) if listed else None, str(kind)))
        return found

    def _check_files(self, cursor: duckdb.DuckDBPyConnection, snapshot: int, columns: Mapping[str, str]) -> None:
        """Refuse files that were added to the lake as they were, and whose values are converted while they are read."""
        converted = {fold(name) for name, kind in columns.items() if kind.startswith(("TIME", "DECIMAL"))}
        if not converted:
            return
        where = f"{literal(self.database)}, {literal(self.name)}, schema => {literal(self.schema)}, snapshot_version => {snapshot}"
        try:
            rows = cursor.execute(f"SELECT data_file FROM system.main.ducklake_list_files({where})").fetchall()  # noqa: S608
            footers = schemas(cursor, [str(row[0]) for row in rows])
        except duckdb.InterruptException:
            raise
        except duckdb.Error:  # its text may name files
            raise DpsqlError(f"relation = {self.text}: the footers of its files cannot be read") from None
        found = sorted({name for footer in footers for name in unsafe(footer)} & converted)
        if found:
            raise DpsqlError(
                f"relation = {self.text}: in files that were added to the lake columns {found!r} are in a unit of time, or of a "
                "width, that is converted while it is read, and one far value fails every reading; write the table again in "
                "DuckDB, or drop the column from the name: ALTER TABLE ... DROP COLUMN ..."
            )
