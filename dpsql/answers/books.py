"""The books as relations: ledger, budget, releases. Free, and computed from the books alone."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from dpsql.accounting import remaining, share_used
from dpsql.answers import hers
from dpsql.books.entries import Protection, reading
from dpsql.books.granted import Grant
from dpsql.books.ledger import Ledger
from dpsql.books.links import Links
from dpsql.books.schema import Books
from dpsql.calls.stored import BudgetCall, LedgerCall, ReleasesCall
from dpsql.errors import LedgerError, ReleaseError
from dpsql.session.instance import Context
from dpsql.session.versions import described
from dpsql.text.relation import at_least, at_most, inline

LEDGER_COLUMNS = {
    "source": "VARCHAR", "entry": "INTEGER", "written_at": "TIMESTAMP", "who": "VARCHAR", "action": "VARCHAR", "release": "VARCHAR",
    "operation": "VARCHAR", "query": "VARCHAR", "parameters": "VARCHAR", "epsilon": "DOUBLE", "delta": "DOUBLE", "rho": "DOUBLE",
    "events": "VARCHAR", "neighbors": "VARCHAR", "privacy_unit": "VARCHAR", "max_contributions": "INTEGER",
    "accountant": "VARCHAR", "versions": "VARCHAR", "contents": "VARCHAR",
    "previous": "VARCHAR", "hash": "VARCHAR", "chain_holds": "BOOLEAN",
}
BUDGET_COLUMNS = {
    "source": "VARCHAR", "accountant": "VARCHAR", "epsilon": "DOUBLE", "delta": "DOUBLE", "epsilon_spent": "DOUBLE",
    "delta_spent": "DOUBLE", "epsilon_left": "DOUBLE", "delta_left": "DOUBLE", "rho_limit": "DOUBLE", "rho_spent": "DOUBLE",
    "rho_left": "DOUBLE", "pure_epsilon_left": "DOUBLE", "releases": "INTEGER", "neighbors": "VARCHAR", "privacy_unit": "VARCHAR",
    "max_contributions": "INTEGER", "chain_holds": "BOOLEAN", "books": "VARCHAR", "anchor": "VARCHAR", "share_used": "DOUBLE",
    "duckdb": "VARCHAR", "grants": f"{hers.GRANT}[]",
}
RELEASE_COLUMNS = {
    "release": "VARCHAR", "source": "VARCHAR", "operation": "VARCHAR", "query": "VARCHAR", "parameters": "VARCHAR",
    "epsilon": "DOUBLE", "delta": "DOUBLE", "rho": "DOUBLE", "status": "VARCHAR", "charged_at": "TIMESTAMP",
}
ENDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "ledger": (("source", "release", "action", "entry", "operation"), ("written_at", "delta", "epsilon", "chain_holds")),
    "budget": (
        ("source", "epsilon", "epsilon_spent", "epsilon_left", "privacy_unit", "max_contributions"),
        ("delta", "share_used", "releases", "chain_holds"),
    ),
    "releases": (("release", "question", "operation", "source"), ("delta", "charged_at", "epsilon", "status")),
}
"""What stands first and last: terminals hide the columns in the middle."""


def _ordered(name: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a relation of these rows, the columns that matter most at both ends."""
    names = list(columns)
    first, last = ENDS[name]
    order = [*first, *(column for column in names if column not in (*first, *last)), *last]
    return inline({c: columns[c] for c in order}, [[row[names.index(c)] for c in order] for row in rows])


def _scope(context: Context, source: str | None) -> tuple[list[Books], str | None]:
    """Return the books to show, and the one source asked for."""
    if source is None:
        books = [Books(context.cursor, database) for database in context.databases()]
        return [b for b in books if b.exist()], None
    from dpsql.protected.source import describe_key  # loaded when needed: it reads SQL, for which sqlglot takes .1 s

    database, key = describe_key(context, source)
    books = [Books(context.cursor, database)]
    return [b for b in books if b.exist()], key


def ledger(context: Context, call: LedgerCall) -> str:
    """Return every entry of the books, with whether it follows from the one before; edited ones as far as they can be shown.

    To an analyst: her own entries, and of a table with a grant of hers what `dpsql.answers.hers` says.
    """
    books, key = _scope(context, call.source)
    rows: list[tuple[Any, ...]] = []
    for book in books:
        kinds = {name: kind for name, kind in LEDGER_COLUMNS.items() if name != "chain_holds"}
        columns = ", ".join(f"TRY_CAST(l.{name} AS {kind})::VARCHAR" for name, kind in kinds.items())
        query = (
            f"SELECT {columns}, c.holds FROM {book.table('ledger')} l JOIN ({book.chain()}) c USING (source, entry) "  # noqa: S608
            "WHERE (? IS NULL OR source = ?) AND (? OR who = ?) ORDER BY written_at ASC NULLS LAST, source ASC, entry ASC"
        )
        with reading(f"database {book.database}" if key is None else key):
            fetched = book.cursor.execute(query, [key, key, context.analyst is None, context.user]).fetchall()
        granted = _granted(context, book)
        # of a table that she has a grant of, an analyst sees her own entries
        rows += [row for row in fetched if str(row[0]) not in granted]
        for grant in _held(granted, key):
            rows += map(_texts, hers.entries(Ledger(book, grant.source, context.user), grant, LEDGER_COLUMNS))
    return _ordered("ledger", LEDGER_COLUMNS, rows)


def budget(context: Context, call: BudgetCall) -> str:
    """Return limit, spent and left of every protected table: losses rounded up, what is left rounded down, to five digits.

    What was granted to each analyst, and what she has spent of it in the present window, is a list in one column. To an analyst, of
    a table with a grant of hers: limit, spent and left of that, and nothing of the table's.
    """
    books, key = _scope(context, call.source)
    rows = []
    for book in books:
        with reading(f"database {book.database}" if key is None else key):
            sources = book.cursor.execute(
                f"SELECT DISTINCT source FROM {book.table('ledger')} WHERE ? IS NULL OR source = ? ORDER BY 1 ASC",  # noqa: S608
                [key, key],
            ).fetchall()
        granted = _granted(context, book)
        for source in _with_budget(book, [str(source) for (source,) in sources]):
            ledger_, grant = Ledger(book, source, context.user), granted.get(source)
            protection = None if grant is None else ledger_.protection()
            if grant is None:
                rows.append(_budget_row(ledger_, shown=context.analyst is None))
            elif protection is not None:
                rows.append(tuple({**dict.fromkeys(BUDGET_COLUMNS), **hers.budget(ledger_, grant, protection)}.values()))
    return _ordered("budget", BUDGET_COLUMNS, rows)


def _with_budget(book: Books, sources: Sequence[str]) -> list[str]:
    """Return the sources that have budgets of their own: linked tables are under their root's. Of an edited book all."""
    links = _links(book)
    return [source for source in sources if source not in links and not Ledger(book, source, "").is_unlinked()]


def _links(book: Books) -> Collection[str]:
    """Return the tables that are linked; of an edited book none."""
    with suppress(LedgerError):
        return Links(book.cursor, book.database, book).all()
    return ()


def _granted(context: Context, book: Books) -> dict[str, Grant]:
    """Return the grants of the analyst who asks, by table; none, to the custodian."""
    if context.analyst is None:
        return {}
    from dpsql.protected.seen import granted  # as in `_scope`

    return granted(context, book.database)


def _held(granted: Mapping[str, Grant], key: str | None) -> list[Grant]:
    return [grant for source, grant in sorted(granted.items()) if key in (None, source)]


def _texts(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row as those of SQL are, whose values are texts."""
    return tuple(None if value is None else str(value) for value in row)


def _budget_row(books: Ledger, *, shown: bool) -> tuple[Any, ...]:
    """Return a table's own budget; ``shown``: with the grants of it."""
    condition = books.condition()
    protection = state = used = None
    granted: list[dict[str, Any]] = []
    with suppress(LedgerError), reading(books.source), books.whole():  # `condition` says what is wrong
        charges, anchor, holds = books.charges(), books.anchor(), books.chain_holds()
        protection = books.protection()
        state = remaining(protection.budget, charges) if protection is not None else None
        used = min(1.0, at_most(share_used(protection.budget, charges))) if protection is not None else None
        granted = _shares(books, protection) if shown and protection is not None else []
    # books that cannot be read have a row all the same: it says what is wrong
    if protection is None or state is None or used is None:
        nothing = dict.fromkeys(BUDGET_COLUMNS)
        return tuple({**nothing, "source": books.source, "chain_holds": False, "books": condition, "duckdb": described()}.values())
    rho_limit, rho_left = (None if rho is None else at_least(rho) for rho in (state.rho_limit, state.rho_left))
    budget = protection.budget
    return (
        books.source, budget.accountant, float(budget.epsilon), float(budget.delta), at_most(state.epsilon_spent),
        state.delta_spent, at_least(state.epsilon_left), state.delta_left, rho_limit, at_most(state.rho_spent), rho_left,
        at_least(state.pure_epsilon_left), len(charges),
        protection.neighbors, protection.privacy_unit, protection.max_contributions,
        holds, condition, None if anchor is None else str(anchor), used, described(),
        granted,
    )


def _shares(books: Ledger, protection: Protection) -> list[dict[str, Any]]:
    """Return each grant in force of a table, and what is spent and left of it."""
    return [hers.shown(books, grant, protection) for _, grant in sorted(books.grants().items())]


def releases(context: Context, call: ReleasesCall) -> str:
    """Return what was bought; losses rounded up to five digits (``dpsql.ledger`` has them all). To an analyst: hers."""
    books, key = _scope(context, call.source)
    rows: list[tuple[Any, ...]] = []
    for book in books:
        columns = ", ".join(f"TRY_CAST({name} AS {kind})::VARCHAR" for name, kind in RELEASE_COLUMNS.items())
        query = (
            f"SELECT {columns} FROM ({book.releases()}) "  # noqa: S608
            "WHERE ? IS NULL OR source = ? ORDER BY charged_at ASC NULLS LAST, release ASC"
        )
        with reading(f"database {book.database}" if key is None else key):
            fetched = book.cursor.execute(query, [key, key]).fetchall()
        granted, links = _granted(context, book), _links(book)
        # each source's chain and entries are read once, not once for each release
        ledgers = {source: Ledger(book, source, context.user) for source in {*granted, *(str(row[1]) for row in fetched)}}
        intact = {source: ledgers[source].chain_holds() for source in {str(row[1]) for row in fetched}}
        entries = {source: _entries(ledger) for source, ledger in ledgers.items()}  # of all releases, not once for each
        fetched = [row for row in fetched if str(row[1]) not in granted]
        for grant in _held(granted, key):
            fetched += map(_texts, hers.releases(ledgers[grant.source], grant, RELEASE_COLUMNS))
        for row in fetched:
            source = str(row[1])
            notes = _notes(context, ledgers[source], entries[source], str(row[0])) if row[8] == "stored" else []
            warning = [] if intact.get(source, True) else ["the ledger was edited: its chain of hashes does not hold"]
            whole = str(row[3]) in links  # a linked table as it is
            filters = None if whole else _filters(str(row[3]), source)
            rows.append((*row, filters, _question(str(row[4]), filters), [*notes, *warning]))
    # losses are rounded up, as everywhere
    losses = [position for position, name in enumerate(RELEASE_COLUMNS) if name in ("epsilon", "rho")]
    shown = [[at_most(float(v)) if i in losses and _number(v) else v for i, v in enumerate(row)] for row in rows]
    return _ordered("releases", {**RELEASE_COLUMNS, "filters": "VARCHAR", "question": "VARCHAR", "notes": "VARCHAR[]"}, shown)


@lru_cache(maxsize=4096)
def _filters(query: str, source: str) -> str | None:
    """Return the conditions under which a release has rows of its source; None: all of them.

    Examples
    --------
    >>> [_filters(query, "main.t") for query in ('SELECT "sex" FROM "main"."t" WHERE "age" >= 65', "main.t", "main.v")]
    ['age >= 65', None, 'as in main.v']
    """
    import sqlglot
    from sqlglot import exp

    if query == source:
        return None
    if not query.lstrip().upper().startswith(("SELECT", "WITH")):
        return f"as in {query}"
    try:
        conditions = [clause.this for clause in sqlglot.parse_one(query, read="duckdb").find_all(exp.Where)]
    except sqlglot.errors.SqlglotError:  # a book that was edited
        return None
    # readable: names are quoted only where they have to be
    for part in conditions:
        for name in part.find_all(exp.Identifier):
            name.set("quoted", not name.name.isidentifier())
    return " AND ".join(part.sql(dialect="duckdb") for part in conditions) or None


@lru_cache(maxsize=4096)
def _question(parameters: str, filters: str | None) -> str:
    """Return in words what was asked for.

    Examples
    --------
    >>> _question('{"query": {"aggregates": ["count()", "avg(age)"], "keys": ["sex"]}}', "age > 7")
    'count(*), avg(age) by sex where age > 7'
    >>> _question('{"columns": ["age", "sex"], "k": 2}', None), _question('{"k": 2}', None)
    ('age, sex', 'all columns')
    """
    from dpsql.text import readable  # loaded when needed: sqlglot takes .1 s

    try:
        given = json.loads(parameters)
    except ValueError:  # a book that was edited
        return ""
    query, columns = given.get("query") or {}, given.get("columns")
    listed = ", ".join(columns) if isinstance(columns, list) and columns else "all columns"
    aggregates, keys = query.get("aggregates") or [], query.get("keys") or []
    if aggregates:
        listed = ", ".join(map(readable.aggregate, aggregates))
    if keys:
        listed = f"{listed if aggregates else 'groups'} by {', '.join(map(readable.expression, keys))}"
    return f"{listed} where {filters}" if filters else listed


def _number(value: Any) -> bool:
    return value is not None and math.isfinite(float(value))


def _entries(ledger: Ledger) -> dict[str, list[tuple[Any, ...]]] | None:
    """Return what a ledger says of each release; None where it was edited and cannot be read."""
    with suppress(LedgerError):
        return ledger.entries()
    return None


def _notes(context: Context, ledger: Ledger, entries: dict[str, list[tuple[Any, ...]]] | None, name: str) -> list[str]:
    """Return what a stored release says about itself (statistics that were thresholded, say)."""
    from dpsql.answers import kept
    from dpsql.rows import drawing

    with suppress(ReleaseError, LedgerError):
        if entries is None:
            raise LedgerError("the books were edited")
        bought = drawing.of_purchase(context, ledger, name, ledger.purchase_in(entries, name))
        if bought is None:
            return []
        sentence = kept.sentence(context, ledger.books.database, bought)
        return [*(str(note) for note in bought.manifest.get("notes", [])), *([] if sentence is None else [sentence])]
    return ["its file cannot be read: it was moved, edited or replaced"]
