"""One table of all calls: what a `dp_*` macro or a Python function runs, and the relation that it answers with."""

from __future__ import annotations

import filecmp
import shutil
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from dpsql.accounting import noise_band
from dpsql.answers import books as reports
from dpsql.answers import forecast, kept
from dpsql.answers import report as reporting
from dpsql.books.schema import Books
from dpsql.calls import arguments
from dpsql.custodian import contract
from dpsql.domains import unit_rows
from dpsql.domains.declare import MAX_VALUES
from dpsql.errors import ArgumentError, DomainError, DpsqlError, ReleaseError
from dpsql.protected.columns import asked_order
from dpsql.purchase import buying
from dpsql.release import costs
from dpsql.release import store as release
from dpsql.rows import crosstab, drawing
from dpsql.rows.writing import parquet_files
from dpsql.running import interruption
from dpsql.running.progress import Progress
from dpsql.running.progress_bar import switch
from dpsql.session.instance import Context, Instance, open_context
from dpsql.text.relation import identifier, inline, parquet

CONTRIBUTION_COLUMNS = {
    "rows_per_unit": "VARCHAR", "units": "BIGINT", "units_low": "BIGINT", "units_high": "BIGINT",
    "max_contributions": "INTEGER", "share_kept": "DOUBLE",
}  # fmt: skip
_DAMAGED = (
    DpsqlError, duckdb.Error, ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, MemoryError,
    RecursionError,
)  # fmt: skip
"""What reading a file that somebody wrote by hand may raise."""


def marginals(context: Context, given: Mapping[str, Any]) -> str:
    """Return noisy contingency tables, buying them at the first call.

    The order of ``columns`` and ``shape`` say how the answer looks; they are not part of what is bought.
    """
    crosstab.check_shape(given)
    with Progress("dp_marginals", show=context.progress) as progress:
        bought = buying.buy(context, "marginals", given, progress)
        order = asked_order(given, bought.plan.domain.names)
        if crosstab.is_wide(given, bought.plan):
            return drawing.wide(context, bought, order)
        return f"(SELECT columns, values, n FROM {parquet_files(drawing.cells(context, bought, order))})"  # noqa: S608


def aggregates(context: Context, given: Mapping[str, Any]) -> str:
    """Return the reported counts of tuples, buying them at the first call."""
    with Progress("dp_aggregates", show=context.progress) as progress:
        bought = buying.buy(context, "aggregates", given, progress)
        return f"(SELECT columns, values, n FROM {parquet_files(drawing.reported(context, bought))})"  # noqa: S608


def histogram(context: Context, given: Mapping[str, Any]) -> str:
    """Return the released values of one column and their noisy counts, buying them at the first call."""
    with Progress("dp_histogram", show=context.progress) as progress:
        bought = buying.buy(context, "histogram", _as_open(given), progress)
        bought.statistics(context.cursor)  # what is in the file is what the ledger knows
        return f"(SELECT value, n FROM {parquet(bought.path)} ORDER BY n DESC, value ASC NULLS LAST)"  # noqa: S608


def declare(context: Context, given: Mapping[str, Any]) -> str:
    """Declare the public domain of a column, or buy the list of its values (``discover``) and declare that."""
    if not arguments.boolean(given, "discover"):
        named = [name for name in ("epsilon", "delta", "release") if given.get(name) is not None]
        if named:
            raise ArgumentError(named[0], given[named[0]], "a declaration costs nothing; it belongs to discover := true")
        return contract.declare(context, given)
    contract.check_discoverable(context, given)
    with Progress("dp_declare", show=context.progress) as progress:
        bought = buying.buy(context, "discover", _as_open(given), progress)
    released = bought.statistics(context.cursor)
    most = sorted(np.argsort(-released.blocks[0], kind="stable")[:MAX_VALUES].tolist())
    values = [released.values[place] for place in most]
    if not values:
        raise DomainError(
            f"column {given['column']!r}: the bought list of values (release {bought.identifier!r}) is empty, so there is nothing "
            "to declare; the charge stands. Buy another one with a larger epsilon and release := 'another name', or list the values"
        )
    return contract.declare(context, {**given, "categories": values})


def _as_open(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call about the values of one column; its release is named after the column."""
    column = arguments.text(given, "column")
    shared = {"source": given["source"], "columns": [column], "epsilon": given.get("epsilon"), "delta": given.get("delta")}
    options = {name: given.get(name) for name in ("domain", "domain_size", "rho", "separator") if given.get(name) is not None}
    method = "stable_selection"
    if "domain" in options:
        method = "weak_domain"
    elif options:
        named = ", ".join(options)
        expected = f"{named} says something about a domain: name one, a public table of words, a list or a pattern"
        raise ArgumentError("domain", None, expected)
    return {**shared, "method": method, "options": options, "release": given.get("release")}


def contributions(context: Context, given: Mapping[str, Any]) -> str:
    """Return noisy numbers of units by their number of rows, buying them at the first call."""
    with Progress("dp_contributions", show=context.progress) as progress:
        bought = buying.buy(context, "contributions", given, progress)
    plan, counts = bought.plan, bought.statistics(context.cursor).tables[(0,)]
    band = noise_band(plan.mechanism, plan.scales[0])
    shares = [kept.share_of(context.cursor, bought, low) for low in unit_rows.LOWER]
    rows = [
        (label, int(n), int(n) - band, int(n) + band, low, None if share is None else round(share, 3))
        for label, n, low, share in zip(plan.domain.attributes[0].categories, counts, unit_rows.LOWER, shares, strict=True)
    ]
    return inline(CONTRIBUTION_COLUMNS, rows)


def synthesize(context: Context, given: Mapping[str, Any]) -> str:
    """Return synthetic rows, or where they were put (``into``), buying the release at the first call."""
    rows, seed = _draw(given)
    target = given.get("into")
    if target is not None:
        drawing.check_target(context, arguments.text(given, "into"))
    with Progress("dp_synthesize", show=context.progress) as progress:
        bought = buying.buy(context, "synthesize", given, progress)
        progress.expect(costs.stage_seconds(bought.plan, rows))
        if target is None:
            answer = drawing.relation(bought, drawing.rows(context, bought, rows, seed, progress))
        else:
            # The statement that calls cannot see the table yet: it began before the table was there.
            made = drawing.into(context, bought, rows, seed, target, progress)
            columns = {"table_name": "VARCHAR", "rows": "BIGINT", "release": "VARCHAR"}
            answer = inline(columns, [(identifier(*drawing.table_name(context, target)), made, bought.identifier)])
    context.instance.last_seconds, context.instance.last_peak_mb = dict(progress.seconds), dict(progress.peak_mb)
    return answer


def sample(context: Context, given: Mapping[str, Any]) -> str:
    """Return other rows of a stored release."""
    rows, seed = _draw(given)
    bought = drawing.find(context, arguments.text(given, "release"))
    with Progress("dp_sample", show=context.progress) as progress:
        progress.expect(costs.stage_seconds(bought.plan, rows))
        return drawing.relation(bought, drawing.rows(context, bought, rows, seed, progress))


def _draw(given: Mapping[str, Any]) -> tuple[int | None, int | None]:
    return arguments.integer(given, "rows", 0, drawing.MAX_ROWS), arguments.integer(given, "seed", 0, 2**63 - 1)


def export(context: Context, given: Mapping[str, Any]) -> str:
    """Copy a release to a file of its own."""
    bought = drawing.find(context, arguments.text(given, "release"))
    target = Path(arguments.text(given, "path")).expanduser().absolute()
    if target.is_dir():
        target = target / bought.path.name
    if not target.parent.is_dir():
        raise ReleaseError(f"path = {str(target)!r}: its folder does not exist; create it or choose another one")
    _copy(bought.path, target)
    return inline({"release": "VARCHAR", "path": "VARCHAR"}, [(bought.identifier, str(target))])


def _copy(path: Path, target: Path) -> None:
    """Copy a release file; nothing that exists is overwritten, and the same copy may be made again (a call is bound repeatedly)."""
    if target.exists():
        if target.is_file() and filecmp.cmp(path, target, shallow=False):
            return
        raise ReleaseError(f"path = {str(target)!r}: another file is there and was not replaced; choose another path")
    draft = release.draft_of(target, uuid.uuid4().hex)
    try:
        shutil.copyfile(path, draft)
        release.publish(draft, target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ReleaseError(f"path = {str(target)!r}: cannot be written ({error.strerror}); choose another path") from None


def import_release(context: Context, given: Mapping[str, Any]) -> str:
    """Open an exported release: check it and put it apart into the store, where dp_sample finds it.

    Raises
    ------
    ReleaseError
        The file is not a release, or holds what dpsql never wrote, or one of its identifier was bought here.
    """
    path = Path(arguments.text(given, "path")).expanduser().absolute()
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
        opened.statistics(context.cursor)
    except (duckdb.InterruptException, ReleaseError):
        raise
    except _DAMAGED:
        raise ReleaseError(f"path = {str(path)!r}: it is damaged or was edited, and was not imported") from None
    _keep(context.store(context.database), path, opened)
    return _imported(opened)


def _imported(opened: release.Release) -> str:
    rows = [(opened.identifier, opened.manifest["source"], opened.plan.method, list(opened.plan.domain.names))]
    return inline({"release": "VARCHAR", "source": "VARCHAR", "method": "VARCHAR", "columns": "VARCHAR[]"}, rows)


def _is_the_bought_one(context: Context, path: Path, identifier: str) -> bool:
    """Return whether a file is, byte for byte, the stored release that the ledger knows: then there is nothing to import."""
    with suppress(ReleaseError):
        return filecmp.cmp(path, drawing.find(context, identifier).path, shallow=False)
    return False


def _keep(store: Path, path: Path, opened: release.Release) -> None:
    """Copy a file to the imported ones, unless an older dpsql has put it into the store itself."""
    name = release.path_of(store, opened.identifier, str(opened.manifest["charge"]["hash"])).name
    if (store / name).is_file() and filecmp.cmp(path, store / name, shallow=False):
        return
    folder = release.imports_of(store)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        told = f"the release store {store} cannot be used ({error.strerror}); name another: dpsql.load(con, store='folder')"
        raise ReleaseError(told) from None
    _copy(path, folder / name)


CALLS: dict[str, Callable[[Context, Mapping[str, Any]], str]] = {
    "protect": contract.protect,
    "declare": declare,
    "domain": contract.domain,
    "evaluate": contract.evaluate,
    "plan": forecast.plan,
    "marginals": marginals,
    "aggregates": aggregates,
    "histogram": histogram,
    "contributions": contributions,
    "synthesize": synthesize,
    "sample": sample,
    "export": export,
    "import": import_release,
    "report": reporting.report,
    "ledger": reports.ledger,
    "budget": reports.budget,
    "releases": reports.releases,
}


def run(instance: Instance, name: str, given: Mapping[str, Any], *, database: str, schema: str, progress: object = None) -> str:
    """Run a call and return the text of the relation that answers it.

    Parameters
    ----------
    progress : object
        What the session's variable ``dpsql_progress`` says, None where it is not set.

    Raises
    ------
    Interrupted
        Ctrl-C stopped it; a KeyboardInterrupt.
    duckdb.InterruptException
        `dpsql.interrupt` stopped it.
    """
    if name not in CALLS:
        raise DpsqlError(
            f"dp_{name} is not known to this dpsql: the file's macros are newer; update dpsql, or call dpsql.load(con) again"
        )
    with open_context(instance, database, schema, switch(progress)) as context:
        running = interruption.Running(context.cursor)
        try:
            with instance.listed(running), interruption.call(running):
                if instance.prepare is not None:
                    instance.prepare(context)
                return CALLS[name](context, given)
        except interruption.Stopped as stopped:
            raise duckdb.InterruptException(str(stopped)) from None
