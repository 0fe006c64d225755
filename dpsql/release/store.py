"""Releases: stored noisy statistics with their provenance, one Parquet file each.

A release file holds the columns ``tbl, cell, n`` (position of the table or block in the plan, position in it, noisy count) and, as
Parquet metadata under the key ``dpsql``, a manifest in JSON: what was asked for, the plan with its public domain, the charge, the
contract and the versions. Where the released values are not those of a declared domain, a column ``value`` holds them; where only
some cells of the tables were measured, only those are there. It needs neither the raw data nor the books: copied to another machine
it can be sampled there.

The noise of one charge is drawn once. A finished file is first a *draft*, hidden and named by the SHA-256 of its noisy counts. Then
the ledger says that these are the release's, and only then the file gets its name, which holds the hash of the charge. So a crash,
another store or another database with a table of the same name never shows two draws, or one release in the place of another.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql import methods
from dpsql.errors import DpsqlError, ReleaseError, first_line
from dpsql.numerics.arrays import IntArray
from dpsql.release import identity
from dpsql.release.checking import check_manifest, planned
from dpsql.release.contents import as_statistics, fingerprint
from dpsql.release.plan import MAX_CELLS, Plan
from dpsql.release.refined import Refinement, refinement_of, resolved
from dpsql.session.instance import Context
from dpsql.tables.statistics import Statistics
from dpsql.text.bounded_json import MAX_JSON, load
from dpsql.text.relation import literal, parquet

FORMAT = 1
_HASH = re.compile(r"[0-9a-f]{64}")
_SPARE = 4 << 20  # bytes that the ledger, its checkpoint and a probe may take
_LARGEST = 1 << 61  # what noise and counts can never reach
_LISTED_INLINE = 5_000  # integers of a release that are written as texts
AnyIntArray = npt.NDArray[np.integer[Any]]
_LISTED = 1 << 20  # integers of a release that lists what it holds


@dataclass(frozen=True)
class Written:
    """What was written to a draft: its SHA-256, the manifest, and the integers in order, those of sparse releases with places.

    ``short``: it is kept until its call has answered, which need not read it back from the file.
    """

    contents: str
    text: str
    flat: IntArray
    values: tuple[str, ...]
    places: IntArray | None

    @property
    def short(self) -> bool:
        """Whether there are few integers, each listed by itself."""
        return len(self.flat) <= _LISTED_INLINE and self.places is None


@dataclass(frozen=True)
class Release:
    """A stored release: its manifest and where its file is.

    ``written``: what this call has written to the file, which is not read again then.
    """

    path: Path
    manifest: Mapping[str, Any]
    written: Written | None = field(default=None, compare=False, repr=False)

    @property
    def identifier(self) -> str:
        """Return the identifier under which it was bought."""
        return str(self.manifest["release"])

    @cached_property
    def planned(self) -> Plan:
        """What was planned: automatic columns have as many bins as there could be."""
        return Plan.from_json(self.manifest["plan"])

    @cached_property
    def refinement(self) -> Refinement | None:
        """The fine histograms that were released, None where the plan has none.

        Raises
        ------
        ValueError, TypeError, KeyError, DpsqlError
            They do not fit the plan: the file was edited.
        """
        return refinement_of(self.planned, self.manifest.get("fine"))

    @cached_property
    def plan(self) -> Plan:
        """What was measured, with the bins that were cut."""
        return resolved(self.planned, self.refinement)

    def check(self) -> None:
        """Refuse a file from elsewhere whose plan its own method would not take.

        Raises
        ------
        DpsqlError, ValueError, TypeError, KeyError, ...
            Options or shapes are not those of the method.
        """
        plan, method = self.planned, methods.of(self.planned.method)
        if method is None:
            return
        # Options of a later version are unknown here, and are refused by name instead of by a method that stumbles over them.
        options = {name: value for name, value in plan.options.items() if name in method.options}
        if options.keys() != plan.options.keys():
            raise ReleaseError(f"{self.path}: options that {method.name} does not have")
        if not methods.is_open(method):
            measured = method.plan(plan.domain, options)
            if list(map(tuple, measured.cliques)) != list(map(tuple, plan.cliques)):
                raise ReleaseError(f"{self.path}: tables that {method.name} does not measure")
        if methods.is_drawn(method) and tuple(method.lengths(plan.domain, options)) != plan.blocks:
            raise ReleaseError(f"{self.path}: numbers that {method.name} does not release")
        if (methods.is_open(method), methods.counts_tuples(method)) != (plan.open, plan.sparse):
            raise ReleaseError(f"{self.path}: not a release of {method.name}")

    def statistics(self, cursor: duckdb.DuckDBPyConnection) -> Statistics:
        """Read the released integers back, shaped by the plan."""
        plan = self.plan
        if self.written is not None:
            return as_statistics(plan, self.written.flat, self.manifest["total"], self.written.values, None, self.refinement)
        self._check_size(cursor)
        columns = "n, value" if plan.valued else "n, tbl, cell" if plan.sparse else "n"
        query = f"SELECT {columns} FROM {parquet(self.path)} ORDER BY tbl ASC, cell ASC"  # noqa: S608
        fetched = cursor.execute(query).fetchnumpy()
        flat = np.asarray(fetched["n"], dtype=np.int64)
        values = tuple(map(str, fetched["value"].tolist())) if plan.valued else ()
        places = np.stack([np.asarray(fetched[name], dtype=np.int64) for name in ("tbl", "cell")]) if plan.sparse else None
        # NULL among released integers is no work of dpsql's: such a file was edited.
        holes = any(np.ma.isMaskedArray(column) and np.ma.getmaskarray(column).any() for column in fetched.values())
        contents = None if holes else fingerprint(flat, values, places, self.refinement)
        if holes or np.any(np.abs(flat) > _LARGEST) or contents != self.manifest["sha256"]:
            raise self._damaged()
        return as_statistics(plan, flat, self.manifest["total"], values, places, self.refinement)

    def _check_size(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Refuse, before it is read, a file that does not hold as many integers as its plan says, or integers out of range."""
        size = f"(SELECT num_rows FROM parquet_file_metadata({literal(str(self.path))}))"  # noqa: S608
        types = f"SELECT column_name, column_type, {size} FROM (DESCRIBE FROM {parquet(self.path)})"  # noqa: S608
        listed = cursor.execute(types).fetchall()
        rows, kinds = int(listed[0][2]), {name: kind for name, kind, _ in listed}
        expected = {"tbl": "INTEGER", "cell": "BIGINT", "n": "BIGINT", **({"value": "VARCHAR"} if self.plan.valued else {})}
        whole = rows <= self.plan.cells + 100 if self.plan.sparse else self.plan.valued or rows == self.plan.cells
        if not whole or rows > MAX_CELLS or kinds != expected:
            raise self._damaged()

    def _damaged(self) -> ReleaseError:
        return ReleaseError(f"release {self.identifier!r}: {self.path} is damaged or was edited; restore it from a backup")


def check_store(context: Context, store: Path, database: str) -> None:
    """Write and read back a one-row file, so that a store which cannot take a release is found before anything is charged.

    What was read back once is only written from then on. Beside an encrypted database a store has to be named: releases, their
    labels and what is drawn from them are not encrypted. Temporary files of such a database have to be.
    """
    if context.clear_beside_encrypted(database):
        raise ReleaseError(
            f"database {database} is encrypted, and its releases would lie in the clear beside it, in {store}. Say where they may: "
            f"dpsql.load(con, store='folder'), on an encrypted disk. No row was read and nothing more was charged"
        )
    if context.spills_in_the_clear(database):
        raise ReleaseError(
            f"database {database} is encrypted, and rows that do not fit into memory would lie in the clear in temp_directory: "
            "SET GLOBAL temp_file_encryption = true, before the configuration is locked and before anything lies there. No row was "
            "read and nothing more was charged"
        )
    cursor, usable = context.cursor, context.instance.remembered.setdefault("stores", set())
    probe = store / f".probe-{uuid.uuid4().hex}.parquet"
    try:
        store.mkdir(parents=True, exist_ok=True)
        cursor.execute(f"COPY (SELECT 1 AS probe) TO {literal(str(probe))} (FORMAT parquet)")
        if store not in usable:
            cursor.execute(f"SELECT probe FROM {parquet(probe)}").fetchall()  # noqa: S608
        usable.add(store)
    except (OSError, duckdb.Error) as error:
        raise ReleaseError(
            f"the release store {store} cannot be used ({first_line(error)}); no row was read and nothing "
            "more was charged. Give another one with dpsql.load(con, store='folder')"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)


def check_space(context: Context, database: str, store: Path, plan: Plan) -> None:
    """Refuse, before anything is charged or read, where the release or the ledger's entries cannot be written.

    What is needed is computed from the plan alone, and generously; where a release lists what it holds, that is not known.

    Raises
    ------
    ReleaseError
        A disk has too little space.
    """
    most = plan.cells if plan.linked is None else plan.linked.most_cells
    # Of sparse and listed releases the plan does not say how long they are.
    cells = min(most, _LISTED) if plan.sparse else max(_LISTED, most) if plan.valued else most
    needed = _SPARE + 20 * cells + 2 * len(json.dumps(plan.to_json()))
    path = context.database_path(database)
    # The store for the release, the folder of the database for its ledger entries.
    for folder, least in ((store, needed), (None if path is None else path.parent, _SPARE)):
        free = None if folder is None else shutil.disk_usage(folder).free
        if free is not None and free < least:
            raise ReleaseError(
                f"no space left on the disk of {folder}: {free / 1e6:,.1f} MB are free, {least / 1e6:,.1f} MB may be needed; no "
                "row was read and nothing more was charged. Free some, or keep releases elsewhere: dpsql.load(con, store='folder')"
            )


def write(
    cursor: duckdb.DuckDBPyConnection,
    path: Path,
    plan: Plan,
    flat: IntArray,
    manifest: Mapping[str, Any],
    values: Sequence[str] = (),
    places: IntArray | None = None,
    refinement: Refinement | None = None,
) -> Written:
    """Write released integers (with values or places) and manifest to a draft of ``path``, complete and on disk.

    `publish` shows it, once the ledger knows the hash of its contents.
    """
    lengths = np.asarray([flat.size], np.int64) if plan.valued else resolved(plan, refinement).lengths
    table = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    cell = np.arange(len(table)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    if places is not None:
        table, cell = places[0].astype(np.int32), places[1]
    contents = fingerprint(flat, values, places, refinement)
    rounds = {} if refinement is None else {"fine": refinement.to_json()}
    full = {"format": FORMAT, **manifest, **rounds, "plan": plan.to_json(), "sha256": contents}
    text = json.dumps(full, sort_keys=True, ensure_ascii=False)
    partial = identity.draft_of(path, contents)
    name = f"dpsql_{uuid.uuid4().hex}"
    rows = _inline(table, cell, flat, values if plan.valued else None)
    if rows is None:
        cursor.register(name, _frame(table, cell, flat, values if plan.valued else None))
    try:
        options = f"(FORMAT parquet, COMPRESSION zstd, KV_METADATA {{dpsql: {literal(text)}}})"
        columns = "tbl, cell, n, value::VARCHAR AS value" if plan.valued else "tbl, cell, n"
        cursor.execute(f"COPY (SELECT {columns} FROM {rows or name}) TO {literal(str(partial))} {options}")  # noqa: S608
        with partial.open("rb+") as handle:
            os.fsync(handle.fileno())
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    finally:
        if rows is None:
            with contextlib.suppress(duckdb.Error):  # as after an interruption: the cursor is closed soon
                cursor.unregister(name)
    return Written(contents, text, np.asarray(flat, dtype=np.int64), tuple(values) if plan.valued else (), places)


def _inline(table: AnyIntArray, cell: IntArray, flat: IntArray, values: Sequence[str] | None) -> str | None:
    """Return what is released as a relation in a few texts, which takes less time than a frame; None where it is too much."""
    if len(flat) > _LISTED_INLINE or (values is not None and any("\0" in text for text in values)):
        return None
    listed = {"tbl": ("INTEGER", table.tolist()), "cell": ("BIGINT", cell.tolist()), "n": ("BIGINT", flat.tolist())}
    if values is not None:
        listed["value"] = ("VARCHAR", list(values))
    columns = [
        f"unnest(from_json({literal(json.dumps(entries, ensure_ascii=False))}, '[\"{kind}\"]')) AS {name}"
        for name, (kind, entries) in listed.items()
    ]
    return f"(SELECT {', '.join(columns)})"


def _frame(table: AnyIntArray, cell: IntArray, flat: IntArray, values: Sequence[str] | None) -> Any:
    """Return what is released as a frame."""
    import pandas as pd  # loaded when needed: pandas takes .3 s

    frame = pd.DataFrame({"tbl": table, "cell": cell, "n": flat})
    if values is not None:
        frame["value"] = pd.Series(list(values), dtype=object)
    return frame


def publish(draft: Path, path: Path) -> None:
    """Give a finished file its name, surviving a crash at any point; nothing happens where there is no draft."""
    if not draft.is_file():
        return
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def remove_leftovers(path: Path) -> None:
    """Remove drafts that a killed process left for this charge; only while the ledger knows none of them."""
    for leftover in path.parent.glob(f".{path.name}.*"):
        leftover.unlink(missing_ok=True)


def read(
    cursor: duckdb.DuckDBPyConnection,
    path: Path,
    contents: str | None = None,
    plan: Mapping[str, Any] | None = None,
    written: Written | None = None,
) -> Release:
    """Open a stored or exported release.

    Parameters
    ----------
    contents, plan
        What the ledger knows of a release that was bought here: the SHA-256 of its counts, and what was measured.
    written : Written, optional
        What this call has written to the file.

    Raises
    ------
    ReleaseError
        There is no such file, DuckDB may not read it, it is not a release of a known format, or not the one in the ledger.
    """
    if not path.is_file():
        raise ReleaseError(
            f"{path} is not there: the release store was moved or cleaned; restore it from a backup, or "
            "name the store that it is in: dpsql.load(con, store='folder')"
        )
    if written is not None and not (written.short and written.contents == contents):
        written = None
    release = Release(path, _manifest(cursor, path) if written is None else load(written.text), written)
    if release.manifest.get("format") != FORMAT:
        raise ReleaseError(
            f"{path} is not a dpsql release of format {FORMAT} (found: {str(release.manifest.get('format'))[:40]!r}); "
            "dp_export writes such files, a newer dpsql may read newer formats"
        )
    if contents is not None and release.manifest.get("sha256") != contents:
        raise ReleaseError(f"{path} is not the release that the ledger knows: it was edited or replaced; restore it from a backup")
    check_plan(release)
    if plan is not None and release.manifest["plan"] != plan:
        # An older version may have spelt the plan otherwise: only another plan is refused.
        known = planned(plan, release.identifier)
        if release.planned.to_json() != known.to_json():
            raise ReleaseError(
                f"{path} is not the release that the ledger knows: its plan was edited; restore it from a backup"
            )
    return release


def _manifest(cursor: duckdb.DuckDBPyConnection, path: Path) -> dict[str, Any]:
    """Return the manifest of a file; empty where it has none that can be read."""
    metadata = f"parquet_kv_metadata({literal(str(path))})"
    query = f"SELECT decode(value) FROM {metadata} WHERE decode(key) = 'dpsql' AND octet_length(value) <= ?"  # noqa: S608
    try:
        rows = cursor.execute(query, [MAX_JSON]).fetchall()
        manifest = load(rows[0][0]) if rows else {}
    except duckdb.InterruptException:
        raise
    except duckdb.PermissionException as error:
        raise ReleaseError(f"{path} may not be read by this session: {first_line(error)}") from None
    except (duckdb.Error, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def check_plan(release: Release) -> None:
    """Refuse a release whose manifest is not one: an exported file comes from elsewhere, and its types become SQL text."""
    item = release.manifest
    try:
        check_manifest(item)
        if not identity.valid_identifier(release.identifier) or not _HASH.fullmatch(item["charge"]["hash"]):
            raise ValueError("names that are none")
        release.plan  # noqa: B018 -- parsed here, where an error is told
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, DpsqlError):
        raise ReleaseError(f"{release.path} is damaged or was edited: its plan cannot be read; restore it from a backup") from None
