"""A table of an attached DuckLake, read at one of its snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb

from dpsql.engines.attached import lake_files
from dpsql.engines.attached.looked import AttachedTable, Looked, listed, withheld
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


class LakeTable(AttachedTable):
    """See `dpsql.engines.attached.place.Place`."""

    def look(self, cursor: duckdb.DuckDBPyConnection) -> Looked:
        """Return the columns at the newest snapshot: all statements that their SELECT stands in read its rows. No row is read."""
        snapshot = self._snapshot(cursor)
        columns = self._columns(cursor, snapshot)
        with withheld(self._unread()):
            files = lake_files.listed(cursor, self.database, self.schema, self.name, snapshot)

        def select(columns: Mapping[str, str]) -> str:
            self._check_files(cursor, files, columns)
            return f"SELECT {listed(columns)} FROM {self._at(snapshot)}"  # noqa: S608 -- quoted

        return Looked(columns, select, files)

    def _at(self, snapshot: int) -> str:
        return f"{self.text} AT (VERSION => {snapshot})"

    def _snapshot(self, cursor: duckdb.DuckDBPyConnection) -> int:
        with withheld(DpsqlError(f"relation = {self.text}: the lake does not answer")):
            if not lake_files.has(cursor, self.database, self.schema, self.name):
                raise ArgumentError("relation", self.text, "there is no such table in the lake; a view is none")
            query = f"SELECT max(snapshot_id) FROM system.main.ducklake_snapshots({literal(self.database)})"  # noqa: S608
            row = cursor.execute(query).fetchone()
        return int(row[0]) if row else 0

    def _columns(self, cursor: duckdb.DuckDBPyConnection, snapshot: int) -> list[Described]:
        with withheld(DpsqlError(f"relation = {self.text}: the lake does not describe it")):
            rows = cursor.execute(f"DESCRIBE SELECT * FROM {self._at(snapshot)}").fetchall()  # noqa: S608 -- quoted
        described = []
        for name, kind, *_ in rows:
            listed = str(kind) in _TYPES or str(kind).startswith("DECIMAL(")
            described.append(Described(str(name), str(kind) if listed else None, str(kind)))
        return described

    def _unread(self) -> DpsqlError:
        return DpsqlError(f"relation = {self.text}: its files cannot be listed, or their footers not be read")

    def _check_files(self, cursor: duckdb.DuckDBPyConnection, files: Sequence[str], columns: Mapping[str, str]) -> None:
        """Refuse files that were added to the lake as they were, and whose values are converted while they are read."""
        converted = {fold(name) for name, kind in columns.items() if kind.startswith(("TIME", "DECIMAL"))}
        if not converted:
            return
        with withheld(self._unread()):
            footers = schemas(cursor, files)
        misread = sorted({name for footer in footers for name in unsafe(footer)} & converted)
        if misread:
            raise DpsqlError(
                f"relation = {self.text}: in files that were added to the lake columns {misread!r} are in a unit of time, or of a "
                "width, that is converted while it is read, and one far value fails every reading; write the table again in "
                "DuckDB, or drop the column from the name: ALTER TABLE ... DROP COLUMN ..."
            )
