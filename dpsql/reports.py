"""The books as relations: ledger, budget, releases. Free, and computed from the books alone."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from dpsql import arguments, release
from dpsql.accounting import remaining
from dpsql.books import Books
from dpsql.custodian import describe_key
from dpsql.errors import ReleaseError
from dpsql.ledger import Ledger
from dpsql.relation import at_least, at_most, inline
from dpsql.session import Context

LEDGER_COLUMNS = {
    "source": "VARCHAR", "entry": "INTEGER", "written_at": "TIMESTAMP", "who": "VARCHAR", "action": "VARCHAR", "release": "VARCHAR",
    "operation": "VARCHAR", "query": "VARCHAR", "parameters": "VARCHAR", "epsilon": "DOUBLE", "delta": "DOUBLE", "rho": "DOUBLE",
    "events": "VARCHAR", "neighbors": "VARCHAR", "privacy_unit": "VARCHAR", "max_contributions": "INTEGER",
    "accountant": "VARCHAR", "versions": "VARCHAR", "contents": "VARCHAR",
    "previous": "VARCHAR", "hash": "VARCHAR", "chain_holds": "BOOLEAN",
}  # fmt: skip
BUDGET_COLUMNS = {
    "source": "VARCHAR", "accountant": "VARCHAR", "epsilon": "DOUBLE", "delta": "DOUBLE", "epsilon_spent": "DOUBLE",
    "delta_spent": "DOUBLE", "epsilon_left": "DOUBLE", "delta_left": "DOUBLE", "rho_limit": "DOUBLE", "rho_spent": "DOUBLE",
    "rho_left": "DOUBLE", "pure_epsilon_left": "DOUBLE", "releases": "INTEGER", "neighbors": "VARCHAR", "privacy_unit": "VARCHAR",
    "max_contributions": "INTEGER", "chain_holds": "BOOLEAN",
}  # fmt: skip
RELEASE_COLUMNS = {
    "release": "VARCHAR", "source": "VARCHAR", "operation": "VARCHAR", "query": "VARCHAR", "parameters": "VARCHAR",
    "epsilon": "DOUBLE", "delta": "DOUBLE", "rho": "DOUBLE", "status": "VARCHAR", "charged_at": "TIMESTAMP",
}  # fmt: skip


def _scope(context: Context, given: Mapping[str, Any]) -> tuple[list[Books], str | None]:
    """Return the books to show, and the one source asked for."""
    if given.get("source") is None:
        books = [Books(context.cursor, database) for database in context.databases()]
        return [b for b in books if b.exist()], None
    database, key = describe_key(context, arguments.text(given, "source"))
    books = [Books(context.cursor, database)]
    return [b for b in books if b.exist()], key


def ledger(context: Context, given: Mapping[str, Any]) -> str:
    """Return every entry of the books, with whether it follows from the one before."""
    books, key = _scope(context, given)
    rows: list[tuple[Any, ...]] = []
    for book in books:
        columns = ", ".join(f"l.{name}" for name in LEDGER_COLUMNS if name != "chain_holds")
        query = (
            f"SELECT {columns}, c.holds FROM {book.table('ledger')} l JOIN ({book.chain()}) c USING (source, entry) "  # noqa: S608
            "WHERE ? IS NULL OR source = ? ORDER BY written_at, source, entry"
        )
        rows += book.cursor.execute(query, [key, key]).fetchall()
    return inline(LEDGER_COLUMNS, rows)


def budget(context: Context, given: Mapping[str, Any]) -> str:
    """Return limit, spent and left of every protected table: losses rounded up, what is left rounded down, to five digits."""
    books, key = _scope(context, given)
    rows = []
    for book in books:
        sources = book.cursor.execute(
            f"SELECT DISTINCT source FROM {book.table('ledger')} WHERE ? IS NULL OR source = ? ORDER BY 1",  # noqa: S608
            [key, key],
        ).fetchall()
        rows += [_budget_row(Ledger(book, source, context.user)) for (source,) in sources]
    return inline(BUDGET_COLUMNS, rows)


def _budget_row(books: Ledger) -> tuple[Any, ...]:
    found = books.protection()
    if found is None:  # pragma: no cover -- a source in the ledger has an entry that protects it
        return (books.source, *[None] * (len(BUDGET_COLUMNS) - 1))
    charges = books.charges()
    state = remaining(found.budget, charges)
    rho_limit, rho_left = (None if rho is None else at_least(rho) for rho in (state.rho_limit, state.rho_left))
    return (
        books.source, found.budget.accountant, float(found.budget.epsilon), float(found.budget.delta), at_most(state.epsilon_spent),
        state.delta_spent, at_least(state.epsilon_left), state.delta_left, rho_limit, at_most(state.rho_spent), rho_left,
        at_least(state.pure_epsilon_left), len(charges), found.neighbors, found.privacy_unit, found.max_contributions,
        books.chain_holds(),
    )  # fmt: skip


def releases(context: Context, given: Mapping[str, Any]) -> str:
    """Return what was bought; losses rounded up to five digits (``dpsql.ledger`` has them all)."""
    books, key = _scope(context, given)
    rows: list[tuple[Any, ...]] = []
    for book in books:
        query = (
            f"SELECT {', '.join(RELEASE_COLUMNS)} FROM {book.table('releases')} "  # noqa: S608
            "WHERE ? IS NULL OR source = ? ORDER BY charged_at, release"
        )
        found = book.cursor.execute(query, [key, key]).fetchall()
        rows += [(*row, _notes(context, book, str(row[0]))) for row in found]
    losses = [position for position, name in enumerate(RELEASE_COLUMNS) if name in ("epsilon", "rho")]
    shown = [[at_most(float(v)) if i in losses else v for i, v in enumerate(row)] for row in rows]
    return inline({**RELEASE_COLUMNS, "notes": "VARCHAR[]"}, shown)


def _notes(context: Context, book: Books, name: str) -> list[str]:
    """Return what a stored release says about itself (statistics that were thresholded, say)."""
    for charge in book.charges_of(name):
        path = release.path_of(context.store(book.database), name, charge)
        with suppress(ReleaseError):
            return list(release.read(context.cursor, path).manifest.get("notes", []))
    return []
