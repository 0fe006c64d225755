"""`dp_report`: one HTML page about a release. The page is post-processing; with ``compare`` it is NOT PRIVATE and marked."""

from __future__ import annotations

import dataclasses
import os
import uuid
from pathlib import Path
from typing import Any

from dpsql.answers import report_figures, report_linked, report_maps, report_query, ruled
from dpsql.answers.report_figures import Synthetic
from dpsql.books.entries import Protection
from dpsql.books.files import open_here
from dpsql.books.ledger import Ledger
from dpsql.books.links import Links
from dpsql.books.schema import Books
from dpsql.calls.stored import ReportCall
from dpsql.custodian import comparing
from dpsql.errors import ArgumentError, ReleaseError
from dpsql.numerics.arrays import Clique
from dpsql.page import dependence, document, figures, fine
from dpsql.page.content import Content, Listing
from dpsql.page.crosstab import cross_tables
from dpsql.release.store import Release
from dpsql.rows import drawing
from dpsql.running.progress import Progress
from dpsql.session.instance import Context
from dpsql.text.relation import inline

MOST_MAPPED = 24
MOST_CHARTS = 40
_NAMES_SHOWN = 400


def report(context: Context, call: ReportCall) -> str:
    """Write the page of a release; return a relation of one row: release, path, publishable, note.

    Privacy
    -------
    Post-processing of the release. With ``compare`` NOT PRIVATE: the protected table is read, and the page says so throughout.

    Raises
    ------
    ReleaseError
        There is no such release, or another file is where the page would be.
    """
    bought, compare = drawing.find(context, call.release), call.compare
    target = _target(call.path, bought.identifier, compare)
    first = document.marker(bought.identifier, compared=compare)
    _check_replaceable(target, first)
    with Progress("dp_report", show=context.progress) as progress:
        written = document.page(gather(context, bought, compare, progress))
        _write(target, written, first)
    note = document.WARNING if compare else "computed from the release alone; may be published where the release may"
    columns = {"release": "VARCHAR", "path": "VARCHAR", "publishable": "BOOLEAN", "note": "VARCHAR"}
    return inline(columns, [(bought.identifier, str(target), not compare, note)])


def _target(path: str | None, identifier: str, compare: bool) -> Path:
    """Return where the page goes; by default a file of the release's name in the working directory."""
    name = f"{identifier}{'.not-for-publication' if compare else ''}.html"
    target = Path(name if path is None else path).expanduser().absolute()
    if target.is_dir():
        target = target / name
    if not target.parent.is_dir():
        raise ReleaseError(f"path = {str(target)!r}: its folder does not exist; create it or choose another one")
    return target


def _check_replaceable(target: Path, first: str) -> None:
    """Refuse to replace anything but an earlier page of the same release and kind: a call is bound, and so run, repeatedly."""
    if not target.exists():
        return
    if target.is_file() and not open_here(str(target)):  # a database: to close it would give up DuckDB's lock on it
        with target.open(encoding="utf-8", errors="replace") as handle:
            if handle.readline().rstrip("\n") == first:
                return
    raise ReleaseError(
        f"path = {str(target)!r}: another file is there (a page with and one without a comparison do not replace each "
        "other) and was not "
        "replaced; choose another path"
    )


def _write(target: Path, written: str, first: str) -> None:
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        draft.write_text(written, encoding="utf-8")
        _check_replaceable(target, first)
        os.replace(draft, target)  # noqa: PTH105 -- as publish does
    except OSError as error:
        raise ReleaseError(f"path = {str(target)!r}: cannot be written ({error.strerror}); choose another path") from None
    finally:
        draft.unlink(missing_ok=True)


def gather(context: Context, bought: Release, compare: bool, progress: Progress) -> Content:
    """Return what the page says."""
    plan = bought.plan
    if plan.query is not None:
        return _of_query(context, bought, compare)
    if plan.linked is not None:
        return _of_linked(context, bought, compare, progress)
    statistics = bought.statistics(context.cursor)
    domain = report_figures.shown_domain(plan, statistics)
    measured = report_figures.measured(plan, statistics)
    count = len(domain.attributes) if 0 not in domain.sizes else 0
    with progress.stage("dependence"):
        # all columns are measured, and the most dependent ones are shown
        strengths = dependence.released_strengths(measured, count)
        mapped = dependence.most_dependent(strengths, count, MOST_MAPPED)
        charted = dependence.most_dependent(strengths, count, MOST_CHARTS)
    pairs = report_maps.pairs(domain, mapped)
    drawn = report_figures.synthetic(context, bought, domain, pairs, progress)
    # fine histograms of what is charted: values inside the bins
    parts = {i: fine.cuts(domain.attributes[i]) for i in charted if drawn is not None}
    cut = {i: some for i, some in parts.items() if some is not None}
    inside = report_figures.fine_counts(context, bought, drawn, cut)
    books, entries = _books(context, bought)
    # the one part that reads the protected rows again, on the custodian's word
    raw = None
    if compare:
        with progress.stage("compare"):
            home = books.books.database if books else context.database
            some = {i: cut[i] for i in inside}
            raw = comparing.compare(context, bought, domain, pairs, home, None if drawn is None else drawn.path, some)
    # from here on it is put together
    released = report_figures.released_one_way(plan, statistics, measured) if count else []
    kept: dict[Clique, Any] = {} if drawn is None else dict(drawn.counts)
    columns = [
        figures.column_of(domain, i, released[i], kept.get((i,)), None if raw is None else raw.counts.get((i,))) for i in charted
    ]
    if plan.units:
        columns = [dataclasses.replace(column, in_order=True) for column in columns]
    state = _contract(books)
    return Content(
        manifest=bought.manifest,
        method=plan.method,
        budget=None if state is None else (float(state.budget.epsilon), float(state.budget.delta)),
        rows=_rows(measured, drawn, report_figures.sets_of(plan)),
        public_total=plan.public_total,
        counted=report_figures.counted(context, bought, books.books.database if books else None),
        measured=report_figures.measurements(plan, statistics),
        domain=report_figures.domain_listing(plan.domain),
        rules=ruled.listing(context.cursor, plan),
        ledger=entries,
        chain_holds=books.chain_holds() if books else None,
        synthetic_rows=None if drawn is None else drawn.rows,
        sets=report_figures.sets_of(plan),
        columns=columns,
        fine=[fine.fine(domain.names[i], cut[i], inside[i], released[i], None if raw is None else raw.fine.get(i)) for i in inside],
        columns_left_out=[name for i, name in enumerate(domain.names[:count]) if i not in set(charted)][:_NAMES_SHOWN],
        listings=report_figures.listings(context, bought, statistics),
        tables=[] if plan.method and statistics.tables else cross_tables(measured, domain, {} if raw is None else raw.counts),
        maps=report_maps.maps(
            domain.names, mapped, strengths, measured, None if drawn is None else drawn.counts, None if raw is None else raw.counts
        ),
        notes=report_figures.method_notes(bought),
        comparison=None if raw is None else comparing.as_content(raw, released, kept, domain),
    )


def _of_query(context: Context, bought: Release, compare: bool) -> Content:
    """Return what the page of a query's release says."""
    if compare:
        raise ArgumentError("compare", compare, "the answer of a query is not compared with the table; leave it out")
    books, entries = _books(context, bought)
    state = _contract(books)
    home = books.books.database if books else context.database
    return Content(
        manifest=bought.manifest,
        method=None,
        budget=None if state is None else (float(state.budget.epsilon), float(state.budget.delta)),
        rows=None,
        public_total=False,
        counted=report_figures.counted(context, bought, home),
        measured=report_query.measurements(context, bought),
        domain=Listing("", [], []),
        ledger=entries,
        chain_holds=books.chain_holds() if books else None,
        answer=report_query.answer(context, bought),
        notes=[str(note) for note in bought.manifest.get("notes", [])],
    )


def _of_linked(context: Context, bought: Release, compare: bool, progress: Progress) -> Content:
    """Return what the page of linked tables says."""
    if compare:
        expected = "is of several tables, which are not compared on the page; leave it out: FROM dp_evaluate('{}', 'schema') "
        expected += "compares a synthetic database with the protected one"
        raise ArgumentError("compare", compare, expected.format(bought.manifest["source"]))
    books, entries = _books(context, bought)
    state = _contract(books)
    return report_linked.content(
        context,
        bought,
        progress,
        budget=None if state is None else (float(state.budget.epsilon), float(state.budget.delta)),
        ledger=entries,
        chain_holds=books.chain_holds() if books else None,
    )


def _contract(books: Ledger | None) -> Protection | None:
    """Return the contract in force that a ledger's releases count under: of a table that was linked since, its root's."""
    if books is None:
        return None
    root = Links(books.books.cursor, books.books.database, books.books).root(books.source)
    return Ledger(books.books, root, books.who).protection()


def _rows(measured: figures.Measured, drawn: Synthetic | None, sets: int) -> float | None:
    known = figures.total_rows(measured)
    if known is None and drawn is not None:
        known = drawn.rows / sets
    return known


def _books(context: Context, bought: Release) -> tuple[Ledger | None, Listing | None]:
    """Return the ledger that this very release was charged on, and its entries; None where it is not here."""
    manifest = bought.manifest
    for database in context.databases():
        books = Books(context.cursor, database)
        if str(manifest["source"]) in books.sources_of(bought.identifier):
            ledger = Ledger(books, str(manifest["source"]), context.user)
            purchase = ledger.purchase(bought.identifier)
            if purchase is None or purchase.charge["hash"] != manifest["charge"]["hash"]:
                continue
            rows = context.cursor.execute(
                f"SELECT entry, written_at, action, epsilon, delta, hash FROM {books.table('ledger')} "  # noqa: S608
                "WHERE release = ? AND source = ? ORDER BY entry ASC",
                [bought.identifier, manifest["source"]],
            ).fetchall()
            shown = [
                (
                    entry,
                    f"{written:%Y-%m-%d %H:%M:%S} UTC",
                    action,
                    *("" if v is None else f"{float(v):.6g}" for v in (e, d)),
                    hash_,
                )
                for entry, written, action, e, d, hash_ in rows
            ]
            head = ["Entry", "Written", "Action", "Epsilon", "Delta", "Hash"]
            return ledger, Listing(f"Ledger of {manifest['source']}", head, shown, numeric=(0, 3, 4))
    return None, None
