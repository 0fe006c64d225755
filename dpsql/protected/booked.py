"""The books of the databases that a call sees, and the links in them: each looked at once."""

from __future__ import annotations

from collections.abc import Mapping

from dpsql.books.linked import Link
from dpsql.books.links import Links
from dpsql.books.schema import Books
from dpsql.session.instance import Context


def books_of(context: Context, database: str) -> Books:
    """Return the books of a database, one object in a call: whether they exist is looked up once."""
    books = context.known.get(("books", database))
    if not isinstance(books, Books):
        number = next((one.number for one in context.attached() if one.name == database), None)
        current: set[object] = context.instance.remembered.setdefault("books", set())
        books = context.known["books", database] = Books(context.cursor, database, current=(current, (database, number)))
    return books


def links_in(context: Context, database: str) -> Mapping[str, Link]:
    """Return the links in force in a database by table, as the books call them; as they were when the call first asked."""
    links: Mapping[str, Link] | None = context.known.get(("links", database))
    if links is None:
        links = context.known["links", database] = Links(context.cursor, database, books_of(context, database)).all()
    return links


def sources_in(context: Context, database: str) -> frozenset[str]:
    """Return the tables and files that a database's ledger has entries of, as the books call them; as when the call first asked."""
    sources: frozenset[str] | None = context.known.get(("sources", database))
    if sources is None:
        sources = context.known["sources", database] = frozenset(books_of(context, database).budgets())
    return sources
