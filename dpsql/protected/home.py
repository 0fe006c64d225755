"""The books of the databases that a call sees, and the catalog as it sees it: each looked at once."""

from __future__ import annotations

from dpsql.protected.booked import books_of, remotes_in
from dpsql.protected.files import NamedFiles
from dpsql.protected.seen import seen_by
from dpsql.session.instance import Context
from dpsql.source.catalog import Catalog
from dpsql.source.listed import Functions
from dpsql.text.names import fold

__all__ = ["books_of", "catalog_of", "named_files", "remotes_in"]


def named_files(context: Context) -> NamedFiles:
    """Return the files of all tables that the books of attached databases name, as a call sees them."""
    files = context.known.get("files")
    if not isinstance(files, NamedFiles):
        attached = {fold(one.name): one.kind for one in context.attached()}
        books = [books_of(context, name) for name in context.databases()]
        files = context.known["files"] = NamedFiles(context.cursor, books, attached)
    return files


def catalog_of(context: Context) -> Catalog:
    """Return the catalog as a call sees it: everything is looked up once."""
    catalog = context.known.get("catalog")
    if not isinstance(catalog, Catalog):
        functions = context.instance.remembered.setdefault("functions", Functions())
        tables = context.instance.remembered.setdefault("tables", {})
        catalog = context.known["catalog"] = Catalog(context.cursor, functions, seen_by(context), context.foreign(), tables)
    return catalog
