"""A folder of Parquet files as one relation: the same columns in every file, and those of its partitions (``state=TX/``)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from dpsql.engines.attached.looked import Looked, listed
from dpsql.engines.remote import FILES, Described
from dpsql.errors import ArgumentError, DpsqlError
from dpsql.source.catalog import GLOB
from dpsql.source.parquet import unsafe
from dpsql.text.names import fold
from dpsql.text.paths import one_file_twice
from dpsql.text.relation import literal

_SCHEMA = """
SELECT file_name, name, type, type_length::BIGINT, num_children::BIGINT, converted_type, logical_type
FROM system.main.parquet_schema(?::VARCHAR[])
"""


def schemas(cursor: duckdb.DuckDBPyConnection, files: Sequence[str]) -> list[list[tuple[Any, ...]]]:
    """Return what the footer of each file says of its columns, as `dpsql.source.parquet.unsafe` takes it."""
    if not files:
        return []
    rows = cursor.execute(_SCHEMA, [list(files)]).fetchall()
    return [[row[1:] for row in group] for _, group in itertools.groupby(rows, key=lambda row: row[0])]


@dataclass(frozen=True)
class ParquetFolder:
    """See `dpsql.engines.attached.place.Place`. ``path``: a folder of this machine."""

    path: str

    def look(self, cursor: duckdb.DuckDBPyConnection) -> Looked:
        """Return the columns of the files that are there now: all statements that their SELECT stands in read these files.

        Footers are read, no row.
        """
        files, keys = self._files()
        paths = ", ".join(map(literal, files))
        partitioned = "hive_partitioning = TRUE, hive_types_autocast = FALSE" if keys else "hive_partitioning = FALSE"
        relation = f"system.main.read_parquet([{paths}], union_by_name = FALSE, can_have_nan = TRUE, {partitioned})"
        try:
            footers = schemas(cursor, files)
            rows = cursor.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()  # noqa: S608 -- quoted
        except duckdb.InterruptException:
            raise
        except duckdb.Error:  # its text may name files, and their names be of rows
            raise self._wrong("a file of it is no Parquet file that DuckDB reads") from None
        if any(footer[1:] != footers[0][1:] for footer in footers) or len(footers) != len(files):
            names = sorted({str(row[0]) for footer in footers for row in set(footer[1:]) ^ set(footers[0][1:])})
            raise self._wrong(f"its files have different columns (look at {names[:12]!r})" if names else
                              "its files have the same columns, but not in the same order, or one twice")  # fmt: skip
        converted = unsafe(footers[0])
        inside = {fold(str(row[0])) for row in footers[0][1:]}
        if inside & set(keys):
            raise self._wrong(f"columns {sorted(inside & set(keys))!r} are in the files and in the names of folders")
        if any(fold(str(name)) not in inside and fold(str(name)) not in keys for name, *_ in rows):  # DuckDB has renamed one
            raise self._wrong("two of its columns have names that differ in case alone")
        columns = [
            Described(str(name), None if fold(str(name)) in converted else str(kind), converted.get(fold(str(name)), str(kind)))
            for name, kind, *_ in rows
        ]

        def select(wanted: Mapping[str, str]) -> str:
            return f"SELECT {listed(wanted)} FROM {relation}"  # noqa: S608 -- quoted

        return Looked(columns, select, files)

    def _files(self) -> tuple[list[str], tuple[str, ...]]:
        """Return the paths of all files below the folder, and the folded names of its partitions."""
        root = Path(self.path).expanduser()
        if "://" in self.path or GLOB & set(self.path):
            raise ArgumentError("relation", FILES + self.path, "is no folder of this machine: no patterns, no addresses")
        if not root.is_absolute():
            raise ArgumentError("relation", FILES + self.path, "the whole path is required: a later session may start elsewhere")
        if not root.is_dir():
            raise ArgumentError("relation", FILES + self.path, "there is no such folder; a single file needs no dp_remote")
        root = root.resolve()
        found: list[str] = []
        keys: set[tuple[str, ...]] = set()
        for folder, below, names in os.walk(root, onerror=self._unreadable):
            below[:] = sorted(name for name in below if not _hidden(name))
            steps = [step.partition("=") for step in Path(folder).relative_to(root).parts]
            kept = [name for name in names if not _hidden(name) and name.lower().endswith((".parquet", ".pq"))]
            found += [str(Path(folder, name).resolve()) for name in kept]
            keys |= {tuple(fold(name) for name, sign, _ in steps if sign)} if kept else set()
        if not found:
            raise self._wrong("there is no file below it that ends in .parquet or .pq")
        if len(keys) != 1:
            raise self._wrong("some of its files are in partitions (name=value/) that others have not")
        if one_file_twice(found):
            raise self._wrong("two names in it are one file, whose rows would count twice")
        if any(GLOB & set(path) or "\0" in path for path in found):
            raise self._wrong("the path of a file has one of the characters * ? [ ] { }: DuckDB reads them as a pattern; rename it")
        return sorted(found), next(iter(keys))

    def _wrong(self, reason: str) -> DpsqlError:
        return DpsqlError(f"relation = {FILES + self.path!r}: {reason}")

    def _unreadable(self, error: OSError) -> None:
        raise self._wrong("a folder of it cannot be read") from None


def _hidden(name: str) -> bool:
    """Whether writers of folders mean a name to be passed over: drafts, markers."""
    return name.startswith(".") or name.startswith("_") and "=" not in name
