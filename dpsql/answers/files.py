"""dp_export and dp_import: releases as files that go from one database to another."""

from __future__ import annotations

import filecmp
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from dpsql.answers import linked_words
from dpsql.books.schema import Books
from dpsql.calls.stored import ExportCall, ImportCall
from dpsql.errors import DpsqlError, ReleaseError, first_line
from dpsql.release import identity
from dpsql.release import store as release
from dpsql.rows import drawing, obeying
from dpsql.session.instance import Context
from dpsql.text.relation import inline
from dpsql.text.sealed import is_sealed

_DAMAGED = (
    DpsqlError, duckdb.Error, ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, MemoryError,
    RecursionError,
)  # fmt: skip
"""What reading a file that somebody wrote by hand may raise."""



def export(context: Context, call: ExportCall) -> str:
    """Copy a release to a file of its own."""
    bought = drawing.find(context, call.release)
    target = Path(call.path).expanduser().absolute()
    if target.is_dir():
        target = target / bought.path.name
    if not target.parent.is_dir():
        raise ReleaseError(f"path = {str(target)!r}: its folder does not exist; create it or choose another one")
    if is_sealed(bought.path):
        _decrypted(context, bought, target)
    else:
        _copy(bought.path, target)
    return inline({"release": "VARCHAR", "path": "VARCHAR"}, [(bought.identifier, str(target))])


def _decrypted(context: Context, bought: release.Release, target: Path) -> None:
    """Write a release of an encrypted store where the custodian wants it, not encrypted."""
    with TemporaryDirectory(prefix="dpsql-") as folder:
        draft = Path(folder) / bought.path.name
        try:
            release.opened_copy(context.cursor, bought, draft)
        except duckdb.IOException as error:
            raise ReleaseError(f"path = {str(target)!r}: the release cannot be copied ({first_line(error)})") from None
        _copy(draft, target)


def _copy(path: Path, target: Path) -> None:
    """Copy a release file; nothing that exists is overwritten, and the same copy may be made again (a call is bound repeatedly)."""
    if target.exists():
        if target.is_file() and filecmp.cmp(path, target, shallow=False):
            return
        raise ReleaseError(f"path = {str(target)!r}: another file is there and was not replaced; choose another path")
    draft = identity.draft_of(target, uuid.uuid4().hex)
    try:
        shutil.copyfile(path, draft)
        release.publish(draft, target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ReleaseError(f"path = {str(target)!r}: cannot be written ({error.strerror}); choose another path") from None


def import_release(context: Context, call: ImportCall) -> str:
    """Open an exported release: check it and put it apart into the store, where dp_sample finds it.

    Raises
    ------
    ReleaseError
        The file is not a release, or holds what dpsql never wrote, or one of its identifier was bought here.
    """
    path = Path(call.path).expanduser().absolute()
    if not path.is_file():
        raise ReleaseError(f"path = {str(path)!r}: no such file; dp_export makes one")
    opened = release.read(context.cursor, path)
    for database in context.databases():
        if Books(context.cursor, database).sources_of(opened.identifier):
            if _is_the_bought_one(context, path, opened.identifier):
                return _imported(opened)
            raise ReleaseError(
                f"path = {str(path)!r}: it holds release {opened.identifier!r}, and database {database!r} has bought one of that "
                "identifier, in whose place an imported file never stands. FROM dp_releases() shows it; open the file in a "
                "database that has none: dpsql.load(duckdb.connect())"
            )
    try:
        opened.check()
        obeying.check(context.cursor, opened.plan.domain, opened.plan.rules)
        for place, table in enumerate(() if opened.plan.linked is None else opened.plan.linked.tables):
            obeying.check(context.cursor, table.domain, table.rules)
            if opened.plan.linked is not None and table.across:
                across = opened.plan.linked.joined(place)
                obeying.check_rules(context.cursor, across.domain, across.rules)
        opened.statistics(context.cursor)
    except (duckdb.InterruptException, ReleaseError):
        raise
    except _DAMAGED:
        raise ReleaseError(f"path = {str(path)!r}: it is damaged or was edited, and was not imported") from None
    _keep(context.store(context.database), path, opened)
    return _imported(opened)


def _imported(opened: release.Release) -> str:
    plan = opened.plan
    names = list(plan.domain.names) if plan.linked is None else linked_words.columns(plan.linked)
    rows = [(opened.identifier, opened.manifest["source"], plan.method, names)]
    return inline({"release": "VARCHAR", "source": "VARCHAR", "method": "VARCHAR", "columns": "VARCHAR[]"}, rows)


def _is_the_bought_one(context: Context, path: Path, identifier: str) -> bool:
    """Return whether a file is, byte for byte, the stored release that the ledger knows: then there is nothing to import."""
    with suppress(ReleaseError):
        return filecmp.cmp(path, drawing.find(context, identifier).path, shallow=False)
    return False


def _keep(store: Path, path: Path, opened: release.Release) -> None:
    """Copy a file to the imported ones, unless an older dpsql has put it into the store itself."""
    name = identity.path_of(store, opened.identifier, str(opened.manifest["charge"]["hash"])).name
    if (store / name).is_file() and filecmp.cmp(path, store / name, shallow=False):
        return
    folder = identity.imports_of(store)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        told = f"the release store {store} cannot be used ({error.strerror}); name another: dpsql.load(con, store='folder')"
        raise ReleaseError(told) from None
    _copy(path, folder / name)


