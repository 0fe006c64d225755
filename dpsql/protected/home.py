"""The books of the databases that a call sees, and the catalog as it sees it: each looked at once."""

from __future__ import annotations

from dpsql.books.schema import Books
from dpsql.session.instance import Context
from dpsql.source.catalog import Catalog
from dpsql.source.listed import Functions


def books_of(context: Context, database: str) -> Books:
    """Return the books of a database, one object in a call: whether they exist is looked up once."""
    found = context.known.get(("books", database))
    if not isinstance(found, Books):
        number = next((oid for name, oid, _, _ in context.attached() if name == database), None)
        current: set[object] = context.instance.remembered.setdefault("books", set())
        found = context.known["books", database] = Books(context.cursor, database, current=(current, (database, number)))
    return found


def catalog_of(context: Context) -> Catalog:
    """Return the catalog as a call sees it: everything is looked up once."""
    found = context.known.get("catalog")
    if not isinstance(found, Catalog):
        functions = context.instance.remembered.setdefault("functions", Functions())
        found = context.known["catalog"] = Catalog(context.cursor, functions)
    return found
