"""The books of the databases that a call sees, each looked at once."""

from __future__ import annotations

from dpsql.books.schema import Books
from dpsql.session.instance import Context


def books_of(context: Context, database: str) -> Books:
    """Return the books of a database, one object in a call: whether they exist is looked up once."""
    found = context.known.get(("books", database))
    if not isinstance(found, Books):
        number = next((oid for name, oid, _, _ in context.attached() if name == database), None)
        current: set[object] = context.instance.remembered.setdefault("books", set())
        found = context.known["books", database] = Books(context.cursor, database, current=(current, (database, number)))
    return found
