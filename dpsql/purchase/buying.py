"""The road of a release: check, plan, charge, then (and only then) measure, store.

A call is idempotent. The first one charges, measures and stores; a later one finds the stored release, whatever has
happened to the data since, and charges nothing. Killed after the charge, the same call finishes without a second one.
"""

from __future__ import annotations

import datetime as dt
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from dpsql import methods
from dpsql.books.entries import Purchase, failure
from dpsql.books.ledger import Ledger
from dpsql.books.schema import Books
from dpsql.calls.buying import BuyingCall
from dpsql.errors import DpsqlError, LedgerError, ReleaseError
from dpsql.kinds import measures
from dpsql.kinds.planned import total_is_public
from dpsql.kinds.plans import Request, request
from dpsql.measure.reading import Measured
from dpsql.protected.columns import spelled
from dpsql.protected.source import ProtectedSource, resolve
from dpsql.protected.universes import Resolved as Universe
from dpsql.purchase import failures
from dpsql.release import costs
from dpsql.release import store as release
from dpsql.release.plan import Plan, planned
from dpsql.release.store import Release
from dpsql.running import interruption
from dpsql.running.progress import Progress
from dpsql.session.instance import Context


def versions() -> dict[str, str]:
    """Return the versions that a ledger entry records."""
    return {
        "dpsql": version("dpsql"),
        "duckdb": duckdb.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def buy(context: Context, call: BuyingCall, progress: Progress) -> Release:
    """Return the release that a call asks for, buying it if it is not there yet.

    Privacy
    -------
    Charges the protected table once, by the plan's calibration, before any row is read. Everything after the stored release is
    post-processing.

    Raises
    ------
    ReleaseError
        The name is taken by a release with other parameters, or its file is gone.
    BudgetExceeded
        The budget does not cover it.
    """
    protected = resolve(context, call.source)
    if call.columns is not None:
        call = call.spelled(spelled(protected, call.columns))
    identifier_ = release.release_id(protected.key, call.operation, protected.query, call.release_name)
    interruption.about(lambda: _interrupted(context, protected, identifier_))
    with context.instance.lock(identifier_):
        store = context.store(protected.books.database)
        _record_failures(context, protected)
        purchase = protected.ledger.purchase(identifier_)
        if purchase is not None:
            check_same(protected, purchase, call)
        if purchase is None or purchase.status == "charged":
            with _one_at_a_time(context, protected):
                purchase = _bought(context, protected, store, identifier_, call, progress)
        if purchase.status == "failed":
            raise failure(purchase)
        path = release.path_of(store, identifier_, purchase.charge["hash"])
        release.publish(release.draft_of(path, str(purchase.contents)), path)
        return release.read(context.cursor, path, str(purchase.contents), purchase.plan)


@contextmanager
def _one_at_a_time(context: Context, protected: ProtectedSource) -> Iterator[None]:
    """Let one call at a time read a table through anything but a plain source, and none once such a reading has failed.

    Whether reading fails may depend on a row. So at most one such answer is given, however many calls run side by side: the others
    wait for its outcome and are refused.
    """
    if protected.plain:
        yield
        return
    with context.instance.lock(f"reading {protected.books.database} {protected.key}"):
        _record_failures(context, protected)
        stopped = protected.ledger.stopped()
        if stopped is not None:
            raise ReleaseError(stopped_text(protected, stopped) + ". Nothing was read, and nothing more was charged")
        yield


def stopped_text(protected: ProtectedSource, entry: int) -> str:
    """Return why a source that is more than plain is refused."""
    return (
        f"source: reading {protected.key} failed for release {_of_entry(protected, entry)!r} (entry {entry} of its ledger), and "
        "whether a call fails could show a row. Only the table itself, or some of its columns without WHERE, JOIN or expressions, "
        f"can be bought, until the custodian has looked at that entry and says CALL dp_protect('{protected.key}', resume := true)"
    )


def _of_entry(protected: ProtectedSource, entry: int) -> str:
    return next((name for name in protected.books.failed(protected.key, entry)), "")


def _record_failures(context: Context, protected: ProtectedSource) -> None:
    """Write down failures of this table that could not be written when they happened; nothing is read before that."""
    place = (protected.books.database, protected.key)
    store = context.store(place[0])
    for note in failures.noted(store, place[1]):
        purchase = protected.ledger.purchase(note.release)
        if note.instance != context.instance.key and purchase is not None and purchase.charge["hash"] == note.charge:
            protected.ledger.mark(note.release, "fail")  # of a reading whose process died, or whose database was closed
            note.forget(store)
    for found in [item for item in list(context.instance.unrecorded) if item[:2] == place]:
        protected.ledger.mark(found[2], "fail")
        context.instance.unrecorded.discard(found)


def _bought(
    context: Context,
    protected: ProtectedSource,
    store: Path,
    name: str,
    call: BuyingCall,
    progress: Progress,
) -> Purchase:
    """Charge, unless an earlier call has, then measure and store."""
    release.check_store(context.cursor, store)
    purchase = protected.ledger.purchase(name)
    if purchase is None:
        wanted = request(context, protected, call)
        costs.check_memory(wanted.plan, call.guessed_rows)
        release.check_space(context, protected.books.database, store, wanted.plan)
        purchase = _charge(context, protected, store, name, wanted)
    if purchase.status != "charged":
        return purchase
    plan = planned(purchase.plan, name)
    progress.expect(costs.stage_seconds(plan, call.guessed_rows))
    release.check_space(context, protected.books.database, store, plan)
    return measure(context, protected, purchase, release.path_of(store, name, purchase.charge["hash"]), progress)


def _interrupted(context: Context, protected: ProtectedSource, name: str) -> str:
    """Return what to know after an interruption: the books are asked on a new cursor, whatever the call's own was doing."""
    cursor = context.instance.cursor()
    try:
        purchase = Ledger(Books(cursor, protected.books.database), protected.key, context.user).purchase(name)
    finally:
        cursor.close()
    if purchase is None:
        return "interrupted before anything was charged"
    if purchase.status == "failed":
        return str(failure(purchase))
    if purchase.status == "charged":
        return f"interrupted; release {name!r} is charged and not finished: the same call finishes it without another charge"
    return f"interrupted; release {name!r} is bought: the same call goes on from it without another charge"


def check_same(protected: ProtectedSource, purchase: Purchase, call: BuyingCall) -> None:
    """Refuse a call that names a bought release but asks for something else."""
    if (purchase.operation, purchase.query) != (call.operation, protected.query):
        raise ReleaseError(
            f"release {purchase.release!r} belongs to another call, which by accident has the same identifier; "
            "say release := 'another name'"
        )
    asked = call.filled(purchase.parameters).canonical()
    for name, value in asked.items():
        bought = purchase.parameters.get(name)
        if value != bought:
            raise ReleaseError(
                f"release {purchase.release!r} was bought with {name} = {bought!r}, the call says {name} = {value!r}. "
                "The same name gives back what was bought; to buy another one say release := 'another name'"
            )


def _charge(context: Context, protected: ProtectedSource, store: Path, name: str, wanted: Request) -> Purchase:
    """Charge for a new release, after everything that can be checked without reading a row has been."""
    _bind(context, protected, wanted.plan)
    protected.ledger.charge(
        name,
        operation=wanted.operation,
        query=protected.query,
        parameters=wanted.parameters,
        plan=wanted.plan.to_json(),
        charge=wanted.calibration.charge,
        planned=protected.protection,
        versions=versions(),
        advice="Ask for a smaller epsilon (FROM dp_budget() shows what is left), or reread what was bought (FROM dp_releases()).",
    )
    return _prepare(protected, name, store)


def _bind(context: Context, protected: ProtectedSource, plan: Plan) -> None:
    """Try before the charge what can be tried without reading a row."""
    measures.bind(context, protected, plan)


def _prepare(protected: ProtectedSource, name: str, store: Path) -> Purchase:
    """Do what is left to do before the first row is read; a failure here is refunded."""
    try:
        purchase = _in_force(protected, name)
        release.remove_leftovers(release.path_of(store, name, purchase.charge["hash"]))
    except BaseException:
        protected.ledger.mark(name, "refund")
        raise
    return purchase


def _in_force(protected: ProtectedSource, name: str) -> Purchase:
    purchase = protected.ledger.purchase(name)
    if purchase is None:
        raise ReleaseError(f"release {name!r} is not charged; nothing is read")
    return purchase


def measure(context: Context, protected: ProtectedSource, purchase: Purchase, path: Path, progress: Progress) -> Purchase:
    """Measure what was charged for and store it, or record that it failed.

    Returns
    -------
    Purchase
        As it is now in the books: 'stored', with the hash of what was released (the file is a draft of ``path``), or 'failed'.

    Privacy
    -------
    Noise that was drawn but is not in the ledger is never shown, so a second try under the same charge, after an interruption or a
    kill, is not a second release. A failure whose reason could be a row or the noise is as final as a success: it is recorded
    before anybody is told, and nothing is read or drawn again. An interruption hides which of the two it would have been.

    Raises
    ------
    DpsqlError
        For a public reason, before a row was read: the same call finishes the release once it is gone.
    """
    plan, name = planned(purchase.plan, purchase.release), purchase.release
    protected.ledger.check_intact()  # an edited plan could have smaller noise
    check_unchanged(protected, plan, name)
    members = _public_facts(context, protected, plan, name)
    release.remove_leftovers(path)
    note = failures.Note(protected.key, name, purchase.charge["hash"], context.instance.key)
    if not protected.plain:
        note.write(path.parent)
    try:
        contents = _store(context, protected, purchase, plan, path, progress, members)
        if interruption.stopping():  # asked for before the outcome is known to anybody: there is none
            release.remove_leftovers(path)
            raise interruption.Stopped("interrupted")
    except BaseException:  # interrupted: nothing was decided by a row
        note.forget(path.parent)
        raise
    if contents is None:
        _fail(context, protected, purchase, path, note)
        return _in_force(protected, name)
    try:
        protected.ledger.mark(name, "store", contents)
    except LedgerError as error:
        if not error.uncertain:  # rolled back: these counts are not the release's
            release.draft_of(path, contents).unlink(missing_ok=True)
        raise
    finally:
        note.forget(path.parent)
    now = _in_force(protected, name)
    if now.contents != contents:  # another process was faster
        release.draft_of(path, contents).unlink(missing_ok=True)
    return now


def _public_facts(context: Context, protected: ProtectedSource, plan: Plan, name: str) -> Universe | None:
    """Check all that can be known without reading a row, so that what fails afterwards may be taken for a row's fault."""
    large = costs.too_large(plan, None)
    if large is not None:
        raise ReleaseError(f"release {name!r} is charged, nothing was read yet: the call {large}; then the same call finishes it")
    try:
        measures.bind(context, protected, plan)
        return measures.universe(context, protected, plan)
    except DpsqlError as error:
        raise ReleaseError(
            f"release {name!r} is charged, nothing was read yet, and the same call finishes it once this is mended: {error}"
        ) from None


def _store(
    context: Context,
    protected: ProtectedSource,
    purchase: Purchase,
    plan: Plan,
    path: Path,
    progress: Progress,
    members: Universe | None,
) -> str | None:
    """Write a draft with fresh noise and return the hash of its contents; None where that failed, whatever the reason.

    From here on anything can depend on rows or on noise: what DuckDB raises, memory, the size of a file, the method's own errors.
    """
    try:
        measured = measures.measure(context, protected, plan, progress, members)
        with progress.stage("store"):
            about = manifest(protected, purchase, measured.total, _notes(plan, measured))
            return release.write(context.cursor, path, plan, measured.flat, about, measured.values, measured.places)
    except (duckdb.InterruptException, interruption.Stopped):
        raise
    except Exception:  # its text could show a value
        return None


def _fail(context: Context, protected: ProtectedSource, purchase: Purchase, path: Path, note: failures.Note) -> None:
    """Record that a reading failed, on a cursor of its own: the call's own may be in any state.

    Where the books cannot take it down (a fatal error of DuckDB closes the database), the note beside the releases does, and the
    answer is the same.
    """
    with suppress(OSError):
        release.remove_leftovers(path)
    note.write(path.parent)
    found = (protected.books.database, protected.key, purchase.release)
    context.instance.unrecorded.add(found)  # the disk may be full as well
    try:
        cursor = context.instance.cursor()
        try:
            Ledger(Books(cursor, protected.books.database), protected.key, context.user).mark(purchase.release, "fail")
        finally:
            cursor.close()
    except (duckdb.Error, DpsqlError):
        raise failure(purchase) from None
    context.instance.unrecorded.discard(found)
    note.forget(path.parent)


def check_unchanged(protected: ProtectedSource, plan: Plan, name: str) -> None:
    """Refuse to read under another contract than was charged, or a private number of rows where a public one was charged."""
    if protected.ledger.protection() != protected.protection:  # a charge fixes the contract, but this call may be older
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
    statistics = release.as_statistics(plan, measured.flat, measured.total, tuple(measured.values), measured.places)
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
        "created": dt.datetime.now(dt.UTC).replace(microsecond=0).isoformat(),
        "versions": versions(),
    }
