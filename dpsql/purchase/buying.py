"""The road of a release: check, plan, charge, then (and only then) measure, store.

A call is idempotent. The first one charges, measures and stores; a later one finds the stored release, whatever has
happened to the data since, and charges nothing. Killed after the charge, the same call finishes without a second one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpsql.books.entries import Purchase, canonical_json, failure
from dpsql.calls.buying import BuyingCall
from dpsql.errors import ReleaseError
from dpsql.kinds import measures
from dpsql.kinds.plans import Request, request
from dpsql.protected.columns import spelled
from dpsql.protected.linked import key_of
from dpsql.protected.source import ProtectedSource, own_ledger, resolve
from dpsql.purchase import failures, uses
from dpsql.purchase.measuring import WRITTEN, measure, switch_off_unsound, versions
from dpsql.purchase.uses import Asked
from dpsql.release import costs, identity
from dpsql.release import store as release
from dpsql.release.checking import check_readable, planned
from dpsql.release.plan import Plan
from dpsql.release.store import Release
from dpsql.running import interruption
from dpsql.running.progress import Progress
from dpsql.session.instance import Context


def buy(context: Context, call: BuyingCall, progress: Progress) -> Release:
    """Return the release that a call asks for, buying it if it is not there yet.

    Privacy
    -------
    Charges the protected table once, by the plan's calibration, before any row is read. Everything after the stored release is
    post-processing. An analyst's grant is charged in the same transaction, or, where the release is there, in one of its own.

    Raises
    ------
    ReleaseError
        The name is taken by a release with other parameters, or its file is gone.
    BudgetExceeded
        The budget does not cover it.
    NotGranted, GrantExceeded, BudgetExhausted
        An analyst asks, and her grant, or the table's budget, does not cover it.
    """
    protected = resolve(context, call.source, local=call.local)
    if call.columns is not None:
        call = call.spelled(spelled(protected, call.columns))
    asked = uses.asked(context, protected, call)
    identifier_ = asked.release
    if not asked.hers:
        uses.check(context, protected, call)
    # from here on Ctrl-C says whether something was charged
    interruption.about(lambda: _interrupted(context, protected, identifier_))
    with context.instance.lock(identifier_):
        store = context.store(protected.books.database)
        protected.ledger.look()  # another call may have come to an end while this one waited
        _record_failures(context, protected)
        purchase = protected.ledger.purchase(identifier_)
        if purchase is not None:
            check_same(protected, purchase, call)
        if purchase is None or purchase.status == "charged":
            with _one_at_a_time(context, protected):
                purchase = _bought(context, protected, store, asked, call, progress)
        else:
            _use(context, protected, purchase, asked, call)
        if purchase.status == "failed":
            raise failure(purchase)
        # whoever stored it, the file is shown only if it is the one that the ledger names
        path = identity.path_of(store, identifier_, purchase.charge["hash"])
        release.publish(identity.draft_of(path, str(purchase.contents)), path)
        return release.read(context.cursor, path, str(purchase.contents), purchase.plan, context.known.pop(WRITTEN, None))


def _use(context: Context, protected: ProtectedSource, purchase: Purchase, asked: Asked, call: BuyingCall) -> None:
    """Let an analyst pay for a release that was there.

    Her price is that of the plan that she would have bought, which is the plan that was bought. What would keep her from buying it
    keeps her from this as well, in the same words: she is not to learn whether it was there.
    """
    if asked.hers:
        return
    _check_not_stopped(protected)
    if asked.wanted is None or canonical_json(purchase.plan) != canonical_json(asked.wanted.plan.to_json()):
        raise ReleaseError(f"release {purchase.release!r} cannot be had under this name; say release := 'another name'")
    store = context.store(protected.books.database)
    release.check_store(context, store, protected.books.database)
    _check(context, protected, store, asked.wanted, call)
    _bind(context, protected, asked.wanted.plan)
    charge = asked.wanted.calibration.charge
    if protected.ledger.use(purchase.release, charge, protected.held, protected.ledger.affordable):
        uses.note(context, purchase.release, charge, shared=True)


@contextmanager
def _one_at_a_time(context: Context, protected: ProtectedSource) -> Iterator[None]:
    """Let one call at a time read a table through anything but a plain source, and none once such a reading has failed.

    Whether reading fails may depend on a row. So at most one such answer is given, however many calls run side by side: the others
    wait for its outcome and are refused. Plain sources fail for want of memory or disk alone; once something has failed they wait
    for one another, too.
    """
    if protected.plain and protected.ledger.stopped() is None:
        yield
        return
    with context.instance.lock(f"reading {protected.books.database} {protected.key}"):
        protected.ledger.look()
        _record_failures(context, protected)
        _check_not_stopped(protected)
        yield


def _check_not_stopped(protected: ProtectedSource) -> None:
    stopped = protected.ledger.stopped(plain=protected.plain)
    if stopped is not None:
        raise ReleaseError(stopped_text(protected, stopped) + ". Nothing was read, and nothing more was charged")


def stopped_text(protected: ProtectedSource, entry: int) -> str:
    """Return why a source is refused; to an analyst with a grant not whose reading failed."""
    key = protected.key
    allowed = f"only {key} itself, or some of its columns without WHERE, JOIN or expressions, can be bought"
    if protected.plain:
        allowed = f"nothing of {key} can be bought"
    if protected.ledger.limit() is not None:
        return f"source: {allowed} for now; the custodian knows why and can change it"
    failed = protected.books.failed(key, entry)
    happened = (
        f"failed for release {failed[0]!r} (entry {entry} of its ledger), and whether a call fails could show a row" if failed else
        f"was interrupted {protected.ledger.interruptions()[0]} times (last: entry {entry} of its ledger), and how long it takes "
        "could show a row"
    )
    until = f"until the custodian has looked at that entry and says CALL dp_protect('{key}', resume := true)"
    return f"source: reading {key} {happened}. {allowed[0].upper()}{allowed[1:]}, {until}"


def _record_failures(context: Context, protected: ProtectedSource) -> None:
    """Write down failures of this table that could not be written when they happened; nothing is read before that."""
    place = (protected.books.database, protected.key)
    store = context.store(place[0])
    for note in failures.noted(store, place[1]):
        purchase = protected.ledger.purchase(note.release)
        if note.instance != context.instance.key and purchase is not None and purchase.charge["hash"] == note.charge:
            protected.ledger.mark(note.release, "fail")  # of a reading whose process died, or whose database was closed
            note.forget(store)
    for failed in [item for item in list(context.instance.unrecorded) if item[:2] == place]:
        protected.ledger.mark(failed[2], "fail")
        context.instance.unrecorded.discard(failed)


def _bought(
    context: Context,
    protected: ProtectedSource,
    store: Path,
    asked: Asked,
    call: BuyingCall,
    progress: Progress,
) -> Purchase:
    """Charge, unless an earlier call has, then measure and store."""
    name = asked.release
    release.check_store(context, store, protected.books.database)
    purchase = protected.ledger.purchase(name)
    fresh = purchase is None
    if purchase is None:
        wanted = asked.wanted or request(context, protected, call)
        _check(context, protected, store, wanted, call)
        purchase = _charge(context, protected, store, name, wanted)
    else:
        check_same(protected, purchase, call)
        _use(context, protected, purchase, asked, call)
    if purchase.status != "charged":
        return purchase
    plan = planned(purchase.plan, name)
    progress.expect(costs.stage_seconds(plan, call.guessed_rows))
    release.check_space(context, protected.books.database, store, plan)
    return measure(context, protected, purchase, identity.path_of(store, name, purchase.charge["hash"]), progress, fresh)


def _check(context: Context, protected: ProtectedSource, store: Path, wanted: Request, call: BuyingCall) -> None:
    """Refuse what cannot be bought for want of memory or of space; no row is read."""
    check_readable(wanted.plan)
    costs.check_memory(wanted.plan, call.guessed_rows)
    release.check_space(context, protected.books.database, store, wanted.plan)


def _interrupted(context: Context, protected: ProtectedSource, name: str) -> str:
    """Return what to know after an interruption, as the books say."""
    with own_ledger(context, protected) as ledger:
        purchase, left, used = ledger.purchase(name), ledger.interruptions()[1], ledger.used()
    if purchase is None or not (used is None or name in used):
        return "interrupted before anything was charged"
    if purchase.status == "failed":
        return str(failure(purchase))
    if purchase.status == "charged":
        said = f"interrupted; release {name!r} is charged and not finished: the same call finishes it without another charge"
        if protected.plain:
            return said
        times = "once more" if left == 1 else f"{left} more times"
        return said + (
            f". Readings of {protected.key} through more than its columns can be interrupted {times} before they stop" if left else
            f", once the custodian says CALL dp_protect('{protected.key}', resume := true): readings were interrupted too often"
        )
    return f"interrupted; release {name!r} is bought: the same call goes on from it without another charge"


def check_same(protected: ProtectedSource, purchase: Purchase, call: BuyingCall) -> None:
    """Refuse a call that names a bought release but asks for something else."""
    if (purchase.operation, purchase.query) != (call.operation, protected.query):
        raise ReleaseError(
            f"release {purchase.release!r} belongs to another call, which by accident has the same identifier; "
            "say release := 'another name'"
        )
    for name in call.differing(purchase.parameters):
        bought, value = call.completed(purchase.parameters).get(name), call.filled(purchase.parameters).canonical().get(name)
        raise ReleaseError(
            f"release {purchase.release!r} was bought with {name} = {bought!r}, the call says {name} = {value!r}. "
            "The same name gives back what was bought; to buy another one say release := 'another name'"
        )


def _charge(context: Context, protected: ProtectedSource, store: Path, name: str, wanted: Request) -> Purchase:
    """Charge for a new release, after everything that can be checked without reading a row has been."""
    _bind(context, protected, wanted.plan)
    context.known["bound", name] = wanted.plan
    purchase = protected.ledger.charge(
        name,
        operation=wanted.operation,
        query=protected.query,
        parameters=wanted.parameters,
        plan=wanted.plan.to_json(),
        charge=wanted.calibration.charge,
        planned=protected.held,
        versions=versions(),
        advice=uses.ADVICE,
        reads=dataclasses.replace(measures.reads(context, protected, wanted.plan), public=_public(protected)),
    )
    uses.note(context, name, wanted.calibration.charge)
    _prepare(protected, purchase, store)
    return purchase


def _public(protected: ProtectedSource) -> tuple[str, ...]:
    """Return the tables that a source takes for public, as the books call them, of the database of its books."""
    beside = (table for table in protected.source.public_tables if not table.is_file)
    return tuple(key_of(table) for table in beside if table.database == protected.books.database)


def _bind(context: Context, protected: ProtectedSource, plan: Plan) -> None:
    """Try before the charge what can be tried without reading a row."""
    switch_off_unsound(context.cursor, protected)
    measures.bind(context, protected, plan)


def _prepare(protected: ProtectedSource, purchase: Purchase, store: Path) -> None:
    """Do what is left to do before the first row is read; a failure here is refunded."""
    try:
        release.remove_leftovers(identity.path_of(store, purchase.release, purchase.charge["hash"]))
    except BaseException:
        protected.ledger.mark(purchase.release, "refund")
        raise
