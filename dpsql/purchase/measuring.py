"""What was charged for is measured and stored, or recorded as failed: from here on anything can depend on a row."""

from __future__ import annotations

import dataclasses
import datetime as dt
import platform
from contextlib import ExitStack, nullcontext, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from dpsql import methods
from dpsql.books.entries import Purchase, failure
from dpsql.errors import DpsqlError, EngineLost, LedgerError, ReleaseError
from dpsql.kinds import measures
from dpsql.kinds.planned import total_is_public
from dpsql.measure.reading import Measured, snapshot
from dpsql.protected.home import catalog_of
from dpsql.protected.source import ProtectedSource, own_ledger
from dpsql.protected.universes import Resolved as Universe
from dpsql.purchase import failures
from dpsql.release import costs, identity
from dpsql.release import store as release
from dpsql.release.checking import planned
from dpsql.release.contents import as_statistics
from dpsql.release.plan import Plan
from dpsql.release.refined import resolved
from dpsql.running import interruption
from dpsql.running.progress import Progress
from dpsql.session.instance import Context
from dpsql.session.settings import sound_plans

WRITTEN = "written"
"""Where a call's context has what it has stored last."""


@cache
def _own_version() -> str:
    return version("dpsql")


def versions() -> dict[str, str]:
    """Return the versions that a ledger entry records."""
    return {
        "dpsql": _own_version(),
        "duckdb": duckdb.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def in_force(protected: ProtectedSource, name: str) -> Purchase:
    """Return a purchase as the books have it now."""
    protected.ledger.look()
    purchase = protected.ledger.purchase(name)
    if purchase is None:
        raise ReleaseError(f"release {name!r} is not charged; nothing is read")
    return purchase


def measure(
    context: Context, protected: ProtectedSource, purchase: Purchase, path: Path, progress: Progress, fresh: bool = False
) -> Purchase:
    """Measure what was charged for and store it, or record that it failed.

    Parameters
    ----------
    fresh : bool
        Whether this call has charged for it, on books that were intact then: it is as it was written, not as it was read again.

    Returns
    -------
    Purchase
        As it is now in the books: 'stored', with the hash of what was released (the file is a draft of ``path``), or 'failed'.

    Privacy
    -------
    Noise that was drawn but is not in the ledger is never shown, so a second try under the same charge, after an interruption or a
    kill, is not a second release. A failure whose reason could be a row or the noise is as final as a success: it is recorded
    before anybody is told, and nothing is read or drawn again. An interruption hides which of the two it would have been. So does
    the loss of an engine that has the rows: nothing was released, the noise is forgotten, and of a source that is more than plain
    it counts as an interruption.

    Raises
    ------
    DpsqlError
        For a public reason, before a row was read: the same call finishes the release once it is gone.
    """
    plan, name = planned(purchase.plan, purchase.release), purchase.release
    with nullcontext() if fresh else protected.ledger.whole():
        if not fresh:
            protected.ledger.check_intact()  # an edited plan could have smaller noise
        protected = dataclasses.replace(protected, reads=measures.reads(context, protected, plan))
        check_unchanged(protected, purchase, plan, fresh=fresh)
    members = _public_facts(context, protected, plan, name)
    release.remove_leftovers(path)
    note = failures.Note(protected.key, name, purchase.charge["hash"], context.instance.key)
    with ExitStack() as state:
        if protected.reads.links:
            state.enter_context(snapshot(context.cursor))
        measures.check_unchanged(context, protected, plan)  # of the state that is read: a key could go, and come back, around it
        # of a source whose failure could be a row's the reading is noted before it begins: a kill leaves the note
        if not protected.plain:
            note.write(path.parent)
        try:
            written = _store(context, protected, purchase, plan, path, progress, members)
            contents = None if written is None else written.contents
            state.close()  # what follows looks at what is there now
            if interruption.stopping():  # asked for before the outcome is known to anybody: there is none
                release.remove_leftovers(path)
                raise interruption.Stopped("interrupted")
            if contents is None and not _bound(context, protected, plan):
                release.remove_leftovers(path)
                told = "the source was changed while it was read. Put it back, and the same call finishes it"
                raise ReleaseError(f"release {name!r} is charged and not finished: {told}")
        except BaseException:  # interrupted, its engine lost, its source changed: nothing was decided by a row, but when could be
            if not protected.plain:
                _interrupted(context, protected, name)
            note.forget(path.parent)
            raise
    if contents is None:
        _fail(context, protected, purchase, path, note)
        return in_force(protected, name)
    try:
        now = protected.ledger.mark(name, "store", contents)
    except LedgerError as error:
        if not error.uncertain:  # rolled back: these counts are not the release's
            identity.draft_of(path, contents).unlink(missing_ok=True)
        raise
    finally:
        note.forget(path.parent)
    if now is None:  # another process was faster
        now = in_force(protected, name)
        if now.contents != contents:
            identity.draft_of(path, contents).unlink(missing_ok=True)
    context.known[WRITTEN] = written
    return now


def switch_off_unsound(cursor: duckdb.DuckDBPyConnection, protected: ProtectedSource) -> None:
    """Switch off the optimizers that joins of people's rows must not be planned by; try to, where units are bounded.

    Raises
    ------
    DpsqlError
        The configuration is locked, and rows of people meet. Rows of units are then bounded another way (`dpsql.measure.rows`).
    """
    if protected.source.meets:
        sound_plans(cursor)
    elif protected.protection.privacy_unit is not None:
        with suppress(DpsqlError):
            sound_plans(cursor)


def _public_facts(context: Context, protected: ProtectedSource, plan: Plan, name: str) -> Universe | None:
    """Check all that can be known without reading a row, so that what fails afterwards may be taken for a row's fault."""
    large = costs.too_large(plan, None)
    if large is not None:
        raise ReleaseError(f"release {name!r} is charged, nothing was read yet: the call {large}; then the same call finishes it")
    try:
        catalog_of(context).check_functions(again=True)  # once more: another thread may have registered one
        if protected.source.meets:  # else the reading looks whether it may be planned so
            switch_off_unsound(context.cursor, protected)  # once more, too: it is a setting of the whole database
        if context.known.pop(("bound", name), None) != plan:  # else it was bound just before the charge
            measures.bind(context, protected, plan)
        return measures.universe(context, protected, plan)
    except DpsqlError as error:
        raise ReleaseError(
            f"release {name!r} is charged, nothing was read yet, and the same call finishes it once this is mended: {error}"
        ) from None


def _bound(context: Context, protected: ProtectedSource, plan: Plan) -> bool:
    """Return whether DuckDB still takes the statement that failed.

    Privacy: follows from names and types alone, which another connection has changed since the statement was bound. Whether it is
    that which made the reading fail, or a row, is left open, as by an interruption: nothing was released, and a row would make
    the next reading fail.
    """
    context.known.clear()
    try:
        measures.bind(context, protected, plan)
    except (DpsqlError, duckdb.Error):
        return False
    return True


def _store(
    context: Context,
    protected: ProtectedSource,
    purchase: Purchase,
    plan: Plan,
    path: Path,
    progress: Progress,
    members: Universe | None,
) -> release.Written | None:
    """Write a draft with fresh noise and return it; None where that failed, whatever the reason.

    From here on anything can depend on rows or on noise: what DuckDB raises, memory, the size of a file, the method's own errors.
    """
    try:
        measured = measures.measure(context, protected, plan, progress, members)
        with progress.stage("store"):
            about = manifest(protected, purchase, measured.total, _notes(plan, measured))
            return release.write(
                context.cursor, path, plan, measured.flat, about, measured.values, measured.places, measured.refinement
            )
    except (duckdb.InterruptException, interruption.Stopped):
        raise
    except EngineLost as error:
        told = "is charged and not finished, and the same call finishes it without another charge"
        raise EngineLost(f"release {purchase.release!r} {told}: {error}") from None
    except Exception:  # its text could show a value
        return None


def _interrupted(context: Context, protected: ProtectedSource, name: str) -> None:
    """Write an interruption down. Where the books cannot take it, the reading has failed."""
    unrecorded = (protected.books.database, protected.key, name)
    context.instance.unrecorded.add(unrecorded)
    with own_ledger(context, protected) as ledger:
        ledger.interrupted(name)
    context.instance.unrecorded.discard(unrecorded)


def _fail(context: Context, protected: ProtectedSource, purchase: Purchase, path: Path, note: failures.Note) -> None:
    """Record that a reading failed.

    Where the books cannot take it down (a fatal error of DuckDB closes the database), the note beside the releases does, and the
    answer is the same.
    """
    with suppress(OSError):
        release.remove_leftovers(path)
    note.write(path.parent)
    unrecorded = (protected.books.database, protected.key, purchase.release)
    context.instance.unrecorded.add(unrecorded)  # the disk may be full as well
    try:
        with own_ledger(context, protected) as ledger:
            ledger.mark(purchase.release, "fail")
    except (duckdb.Error, DpsqlError):
        raise failure(purchase) from None
    context.instance.unrecorded.discard(unrecorded)
    note.forget(path.parent)


def check_unchanged(protected: ProtectedSource, purchase: Purchase, plan: Plan, *, fresh: bool = False) -> None:
    """Refuse to read under another contract or other links than were charged, or private rows where a public number was charged."""
    name, reads = purchase.release, protected.reads
    moments: list[int | None] = [] if fresh else [purchase.entry]  # as it was charged
    moments = [*moments, None] if reads.links else []  # and as they are now
    if set(purchase.linked.get("tables", ())) != set(reads.tables) or any(
        links.get(link.source) != link for links in map(protected.ledger.links, moments) for link in reads.links
    ):
        raise ReleaseError(
            f"release {name!r} was charged with other links than are in force now; nothing was read. Link the tables as they were "
            "(FROM dp_ledger() shows it) to finish the release, or buy another one: release := 'another name'"
        )
    if protected.ledger.protection() != protected.held:  # a charge fixes the contract, but this call may be older
        raise ReleaseError(f"release {name!r}: {protected.key} was protected anew meanwhile; repeat the call")
    if plan.public_total and not total_is_public(protected, plan.domain):
        raise ReleaseError(
            f"release {name!r} was charged for a source with a public number of rows, and the source was changed before it was "
            "read: rows may be left out of it now. Put it back as it was to finish the release, or buy another one: "
            "release := 'another name'"
        )


def _notes(plan: Plan, measured: Measured) -> list[str]:
    """Return what the method reports about the released statistics: post-processing."""
    method = methods.of(plan.method)
    if not methods.reports(method):
        return [*measured.notes]
    plan = resolved(plan, measured.refinement)
    statistics = as_statistics(
        plan, measured.flat, measured.total, tuple(measured.values), measured.places, measured.refinement
    )
    try:
        said = method.report(method.fit(statistics, plan.options))
    except interruption.Stopped:
        raise
    except Exception:  # it could only fail by the noisy numbers, before they are stored: a release must not depend on that
        said = ["its method could not describe it"]
    return [*measured.notes, *said]


def manifest(protected: ProtectedSource, purchase: Purchase, total: int | None, notes: list[str]) -> dict[str, Any]:
    """Return the provenance that is stored with a release."""
    contract = protected.protection
    return {
        "release": purchase.release,
        "source": protected.key,
        "operation": purchase.operation,
        "query": protected.query,
        "parameters": purchase.parameters,
        "neighbors": contract.neighbors,
        "privacy_unit": contract.privacy_unit,
        "max_contributions": contract.max_contributions,
        "accountant": contract.budget.accountant,
        "charge": purchase.charge,
        "total": total,
        "notes": notes,
        **({"linked": purchase.linked} if purchase.linked else {}),
        **({"views": protected.source.views} if protected.source.views else {}),
        "created": dt.datetime.now(dt.UTC).replace(microsecond=0).isoformat(),
        "versions": versions(),
    }
