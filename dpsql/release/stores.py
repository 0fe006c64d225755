"""The folder of the releases: whether it takes one, is encrypted where the database is, and has space."""

from __future__ import annotations

import contextlib
import json
import shutil
import uuid
from pathlib import Path

import duckdb

from dpsql.errors import StoreError, first_line
from dpsql.release.plan import Plan
from dpsql.session.instance import Context
from dpsql.text.relation import literal, parquet
from dpsql.text.sealed import MARK, SEALED, to_write

_SPARE = 4 << 20  # bytes that the ledger, its checkpoint and a probe may take
_LISTED = 1 << 20  # integers of a release that lists what it holds
NO_KEY = (
    "database {database!r} is encrypted, and the release store {store} beside it would not be; no row was read and nothing more "
    "was charged. Give its key here, too: dpsql.load(con, encryption_key=...)"
)
OTHER_KEY = (
    "the release store {store} is encrypted, and this session has no key that opens it: dpsql.load(con, encryption_key=...) takes "
    "that of its database; no row was read and nothing more was charged"
)
NO_CIPHER = (
    "the release store {store} cannot be encrypted here ({why}); no row was read and nothing more was charged"
)


def check_store(context: Context, database: str, store: Path) -> None:
    """Write and read back a one-row file, so that a store which cannot take a release is found before anything is charged.

    What was read back once is only written from then on.

    Raises
    ------
    StoreError
        It cannot be written; or the database is encrypted, and the key of the store is not given, or is another one.
    """
    _seal(context, database, store)
    cursor, usable = context.cursor, context.instance.remembered.setdefault("stores", set())
    probe = store / f".probe-{uuid.uuid4().hex}.parquet"
    try:
        store.mkdir(parents=True, exist_ok=True, mode=0o700)
        cursor.execute(f"COPY (SELECT 1 AS probe) TO {literal(str(probe))} (FORMAT parquet{to_write(probe)})")
        if store not in usable:
            cursor.execute(f"SELECT probe FROM {parquet(probe)}").fetchall()  # noqa: S608
        usable.add(store)
    except (OSError, duckdb.Error) as error:
        raise StoreError(
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
    StoreError
        A disk has too little space.
    """
    cells = min(plan.cells, _LISTED) if plan.sparse else max(_LISTED, plan.cells) if plan.valued else plan.cells
    needed = _SPARE + 20 * cells + 2 * len(json.dumps(plan.to_json()))
    path = context.database_path(database)
    for folder, least in ((store, needed), (None if path is None else path.parent, _SPARE)):
        free = None if folder is None else shutil.disk_usage(folder).free
        if free is not None and free < least:
            raise StoreError(
                f"no space left on the disk of {folder}: {free / 1e6:,.1f} MB are free, {least / 1e6:,.1f} MB may be needed; no "
                "row was read and nothing more was charged. Free some, or keep releases elsewhere: dpsql.load(con, store='folder')"
            )


def _seal(context: Context, database: str, store: Path) -> None:
    """Encrypt what a store takes from now on, where its database is encrypted; check the key where it is encrypted already."""
    cursor, instance, mark = context.cursor, context.instance, store / MARK
    opened: set[Path] = instance.remembered.setdefault("opened stores", set())
    if mark.exists():
        if store not in opened:
            try:
                cursor.execute(f"SELECT key FROM {parquet(mark)}").fetchall()  # noqa: S608
            except duckdb.InterruptException:
                raise
            except duckdb.Error:
                raise StoreError(OTHER_KEY.format(store=store)) from None
            opened.add(store)
        return
    query = "SELECT encrypted FROM system.main.duckdb_databases() WHERE database_name = ?"
    if cursor.execute(query, [database]).fetchall() != [(True,)]:
        return
    if not instance.sealed:
        raise StoreError(NO_KEY.format(database=database, store=store))
    draft = store / f"{MARK}.{uuid.uuid4().hex}"
    try:
        store.mkdir(parents=True, exist_ok=True, mode=0o700)
        cursor.execute(f"COPY (SELECT 'that of the database' AS key) TO {literal(str(draft))} (FORMAT parquet{SEALED})")
        draft.replace(mark)
    except (OSError, duckdb.Error) as error:
        raise StoreError(NO_CIPHER.format(store=store, why=first_line(error))) from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
