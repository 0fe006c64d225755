"""What an analyst may see, with the walk that looks into views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import duckdb

from dpsql.books.schema import Books
from dpsql.errors import DpsqlError
from dpsql.serve.gate.reasons import Refusal
from dpsql.serve.gate.view import GRANTED, PUBLISHED, Entry, Looked, View
from dpsql.serve.gate.walk import Walk, parsed
from dpsql.source.listed import Functions
from dpsql.source.relations import view_query


def view_of(
    cursor: duckdb.DuckDBPyConnection,
    database: str,
    schema: str,
    analyst: str,
    grants: Mapping[str, Any],
    published: Iterable[str],
    functions: Functions | None = None,
    books: Books | None = None,
) -> View:
    """Return what an analyst may see, for one statement.

    Parameters
    ----------
    cursor : DuckDB cursor
        One of dpsql's own; catalogs and books are read on it.
    database, schema : str
        The served database, and where unqualified names are looked up.
    analyst : str
    grants : mapping of str to Grant
        By table, as the books call it ('main.adult').
    published : iterable of str
        Tables and views, as the books call them.
    functions : Functions, optional
        Of the instance (``instance.remembered["functions"]``): without it all functions are listed for every statement.
    books : Books, optional
        Of the database, on this cursor.

    Returns
    -------
    View

    Notes
    -----
    Privacy: free; no row of a protected table is read.
    """
    return View(cursor, database, schema, analyst, dict(grants), frozenset(published), _looked, functions, books)


def _looked(view: View, entry: Entry, stack: tuple[str, ...]) -> Looked:
    """Return the status of a view that is published, or stands in one: its text passes the gate, and all that it reads is open."""
    walk = Walk(view, schema=entry.schema, inside=True, stack=(*stack, entry.key))
    walk.hidden = entry.key in view.published
    try:
        walk.query(parsed(view.cursor, view_query(entry.sql, ""))["statements"][0]["node"], {})
    except (Refusal, DpsqlError):
        return None, frozenset()
    reads = frozenset(key for found in walk.read for key in found.reads)
    if walk.hidden_read and reads:
        return None, frozenset()
    return (GRANTED if reads else PUBLISHED), reads
