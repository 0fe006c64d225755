"""The road of a release: check, plan, charge, then (and only then) measure, store.

A call is idempotent. The first one charges, measures and stores; a later one finds the stored release, whatever has
happened to the data since, and charges nothing. Killed after the charge, the same call finishes without a second one.
"""

from __future__ import annotations

import datetime as dt
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from dpsql import arguments, costs, interruption, measuring, methods, release
from dpsql.books import Books
from dpsql.errors import DpsqlError, LedgerError, ReleaseError, first_line
from dpsql.ledger import Ledger, Purchase
from dpsql.planning import Request, canonical_parameters, release_name, request, spelled, total_is_public
from dpsql.progress import Progress
from dpsql.protected import ProtectedSource, resolve
from dpsql.release import Plan, Release
from dpsql.session import Context


def versions() -> dict[str, str]:
    """Return the versions that a ledger entry records."""
    return {
        "dpsql": version("dpsql"),
        "duckdb": duckdb.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def buy(context: Context, operation: str, given: Mapping[str, Any], progress: Progress) -> Release:
    """Return the release that a call asks for, buying it if it is not there yet.

    Parameters
    ----------
    operation : {'marginals', 'aggregates', 'synthesize', 'histogram', 'discover'}
    given : mapping
        The caller's arguments, ``source`` among them.

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
    protected = resolve(context, arguments.text(given, "source"))
    given = spelled(protected, given)
    identifier_ = release.release_id(protected.key, operation, protected.query, release_name(given))
    interruption.about(lambda: _interrupted(context, protected, identifier_))
    with context.instance.lock(identifier_):
        store = context.store(protected.books.database)
        purchase = protected.ledger.purchase(identifier_)
        if purchase is not None:
            check_same(protected, purchase, operation, given)
        if purchase is None or purchase.status == "charged":
            release.check_store(context.cursor, store)
        if purchase is None:
            wanted = request(context, protected, operation, given)
            costs.check_memory(wanted.plan, _rows(given))
            purchase = _charge(context, protected, store, identifier_, wanted)
        if purchase.status == "charged":
            progress.expect(costs.stage_seconds(Plan.from_json(purchase.plan), _rows(given)))
        path = release.path_of(store, identifier_, purchase.charge["hash"])
        if purchase.status == "charged":
            purchase = measure(context, protected, purchase, path, progress)
        if not path.is_file():
            release.publish(release.draft_of(path, str(purchase.contents)), path)
        return release.read(context.cursor, path, purchase.contents)


def _rows(given: Mapping[str, Any]) -> int | None:
    """Return the number of synthetic rows that a call asks for: all that is publicly known of the number of rows."""
    return arguments.integer(given, "rows", 0, 10**12)


def _interrupted(context: Context, protected: ProtectedSource, name: str) -> str:
    """Return what to know after an interruption: the books are asked on a new cursor, whatever the call's own was doing."""
    cursor = context.instance.cursor()
    try:
        purchase = Ledger(Books(cursor, protected.books.database), protected.key, context.user).purchase(name)
    finally:
        cursor.close()
    if purchase is None:
        return "interrupted before anything was charged"
    if purchase.status == "charged":
        return f"interrupted; release {name!r} is charged and not finished: the same call finishes it without another charge"
    return f"interrupted; release {name!r} is bought: the same call goes on from it without another charge"


def check_same(protected: ProtectedSource, purchase: Purchase, operation: str, given: Mapping[str, Any]) -> None:
    """Refuse a call that names a bought release but asks for something else."""
    if (purchase.operation, purchase.query) != (operation, protected.query):
        raise ReleaseError(
            f"release {purchase.release!r} belongs to another call, which by accident has the same identifier; "
            "say release := 'another name'"
        )
    filled = {**given, "epsilon": purchase.parameters["epsilon"] if given.get("epsilon") is None else given["epsilon"]}
    asked = canonical_parameters(operation, filled)
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
    """Let DuckDB bind the statement that will read the rows, so that it cannot fail for a reason known beforehand."""
    try:
        context.cursor.execute(f"DESCRIBE {measuring.statement(protected, plan)}")
    except duckdb.Error as error:
        raise DpsqlError(f"source: DuckDB does not accept it ({first_line(error)}); nothing was charged") from None


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
    """Measure what was charged for and store it.

    Returns
    -------
    Purchase
        As it is now in the books: stored, with the hash of what was released. The file is a draft of ``path``.

    Privacy
    -------
    Noise that was drawn but is not in the ledger is never shown, so a second try under the same charge is not a second release.
    """
    plan, name = Plan.from_json(purchase.plan), purchase.release
    check_unchanged(protected, plan, name)
    release.remove_leftovers(path)
    contents = _store(context, protected, purchase, path, progress)
    try:
        protected.ledger.mark(name, "store", contents)
    except LedgerError:  # rolled back: these counts are not the release's
        release.draft_of(path, contents).unlink(missing_ok=True)
        raise
    now = _in_force(protected, name)
    if now.contents != contents:  # another process was faster
        release.draft_of(path, contents).unlink(missing_ok=True)
    return now


def _store(context: Context, protected: ProtectedSource, purchase: Purchase, path: Path, progress: Progress) -> str:
    """Write a draft with fresh noise; return the hash of its contents. A failure says nothing about rows."""
    plan = Plan.from_json(purchase.plan)
    try:
        measured = measuring.measure(context, protected, plan, progress)
        with progress.stage("store"):
            about = manifest(protected, purchase, measured.total, _notes(plan, measured))
            return release.write(context.cursor, path, plan, measured.flat, about, measured.values, measured.places)
    except (duckdb.InterruptException, DpsqlError):
        raise
    except Exception as error:
        raise DpsqlError(
            f"release {purchase.release!r}: reading or storing failed ({type(error).__name__}); the text is withheld because it "
            "could show a value. The charge stands; the same call tries again without another one"
        ) from None


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


def _notes(plan: Plan, measured: measuring.Measured) -> list[str]:
    """Return what the method reports about the released statistics: post-processing."""
    method = methods.of(plan.method)
    if not methods.reports(method):
        return []
    statistics = release.as_statistics(plan, measured.flat, measured.total, tuple(measured.values), measured.places)
    return method.report(method.fit(statistics, plan.options))


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
