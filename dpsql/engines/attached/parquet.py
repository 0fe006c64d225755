"""A folder of Parquet files as one relation: the same columns in every file, and those of its partitions (``state=TX/``)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from dpsql.engines.attached.looked import Looked, listed, withheld
from dpsql.engines.remote import FILES, Described
from dpsql.errors import ArgumentError, DpsqlError
from dpsql.source.catalog import GLOB
from dpsql.source.parquet import unsafe
from dpsql.text.names import fold
from dpsql.text.paths import is_file, is_folder, one_file_twice, resolved
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
        with withheld(self._wrong("a file of it is no Parquet file that DuckDB reads")):
            footers = schemas(cursor, files)
        # the first file's columns are those of the relation, so all others must have the same
        if any(footer[1:] != footers[0][1:] for footer in footers) or len(footers) != len(files):
            names = sorted({str(row[0]) for footer in footers for row in set(footer[1:]) ^ set(footers[0][1:])})
            raise self._wrong(f"its files have different columns (look at {names[:12]!r})" if names else
                              "its files have the same columns, but not in the same order, or one twice")  # fmt: skip
        with withheld(self._wrong("DuckDB does not read its files as one table; are all of one writer, and not encrypted?")):
            rows = cursor.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()  # noqa: S608 -- quoted
        converted = unsafe(footers[0])
        # a value in the name of a folder stands for a column: in the file as well, one of the two would win
        inside = {fold(str(row[0])) for row in footers[0][1:]}
        if inside & set(keys):
            raise self._wrong(f"columns {sorted(inside & set(keys))!r} are in the files and in the names of folders")
        if any(fold(str(name)) not in inside and fold(str(name)) not in keys for name, *_ in rows):  # DuckDB has renamed one
            raise self._wrong("two of its columns have names that differ in case alone")
        columns = [
            Described(str(name), None if fold(str(name)) in converted else str(kind), converted.get(fold(str(name)), str(kind)))
            for name, kind, *_ in rows
        ]

        def select(columns: Mapping[str, str]) -> str:
            return f"SELECT {listed(columns)} FROM {relation}"  # noqa: S608 -- quoted

        return Looked(columns, select, files)

    def _files(self) -> tuple[list[str], tuple[str, ...]]:
        """Return the paths of all files below the folder, and the folded names of its partitions."""
        if "://" in self.path or GLOB & set(self.path):
            raise ArgumentError("relation", FILES + self.path, "is no folder of this machine: no patterns, no addresses")
        if not self.path.startswith(("/", "~")):
            raise ArgumentError("relation", FILES + self.path, "the whole path is required: a later session may start elsewhere")
        root = resolved(self.path)
        if root is None or not is_folder(root):
            none = "there is no such folder that this process may look up; a single file needs no dp_remote"
            raise ArgumentError("relation", FILES + self.path, none)
        files: list[str] = []
        partitions: set[tuple[str, ...]] = set()
        for folder, below, names in os.walk(root, onerror=self._unreadable):
            below[:] = sorted(name for name in below if not _hidden(name))
            kept = [name for name in names if not _hidden(name) and name.lower().endswith((".parquet", ".pq"))]
            files += [str(Path(folder, name)) for name in kept]
            partitions |= {tuple(step for step in Path(folder).relative_to(root).parts if "=" in step)} if kept else set()
        if not files:
            raise self._wrong("there is no file below it that ends in .parquet or .pq")
        if not all(map(is_file, files)):
            raise self._wrong("a name in it that ends in .parquet or .pq leads to no file that may be looked up")
        if one_file_twice(files):
            raise self._wrong("two names in it are one file, whose rows would count twice")
        if any(GLOB & set(path) or "\0" in path for path in files):
            raise self._wrong("the path of a file has one of the characters * ? [ ] { }: DuckDB reads them as a pattern; rename it")
        return sorted(files), self._keys(root, partitions)

    def _keys(self, root: Path, partitions: Collection[tuple[str, ...]]) -> tuple[str, ...]:
        """Return the folded names of the partitions, each of which DuckDB reads as it stands in the name of a folder.

        DuckDB looks for ``name=value/`` in the whole path: of a name that stands there twice it takes one of the values, and of
        columns that are called so in a file those of the path.
        """
        if any(map(_misread, (step for steps in partitions for step in steps))):
            raise self._wrong(
                "the name of a partition's folder (name=value/) begins with =, or has a second one, a backslash or a control "
                "character: DuckDB reads another value, or none; rename the folder"
            )
        spelled = {tuple(step.partition("=")[0] for step in steps) for steps in partitions}
        keys = {tuple(map(fold, names)) for names in spelled}
        if len(keys) != 1:
            raise self._wrong(
                "some of its files are in partitions (name=value/) that others have not, or have in another order; move them, so "
                "that all lie below folders of the same names"
            )
        folded = next(iter(keys))
        if len(spelled) != 1:
            ways = [sorted(names) for names in map(set, zip(*spelled, strict=True)) if len(names) > 1]
            raise self._wrong(f"its partitions are spelled in several ways ({ways!r}), which DuckDB tells apart; rename them")
        if len(set(folded)) != len(folded):
            raise self._wrong("a partition stands twice in a path (name=3/name=4/), and only one can be the value; rename one")
        if folded and any("=" in step for step in root.parts):
            raise self._wrong(
                "it has partitions, and lies in a folder that is called name=value itself, which DuckDB takes for one of them; "
                "give the folder above that a name, or move it"
            )
        return folded

    def _wrong(self, reason: str) -> DpsqlError:
        return DpsqlError(f"relation = {FILES + self.path!r}: {reason}")

    def _unreadable(self, error: OSError) -> None:
        raise self._wrong("a folder of it cannot be read") from None


def _misread(step: str) -> bool:
    """Whether DuckDB takes another value than the rest of the name of a folder ``name=value``, or none."""
    return "\\" in step or min(step) < " " or step.startswith("=") or step.count("=") > 1


def _hidden(name: str) -> bool:
    """Whether writers of folders mean a name to be passed over: drafts, markers."""
    return name.startswith(".") or name.startswith("_") and "=" not in name
