"""What an analyst may see, with the walk that looks into views."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import duckdb

from dpsql.books.grants import Grants
from dpsql.books.schema import Books
from dpsql.errors import DpsqlError
from dpsql.serve.gate.reasons import Refusal
from dpsql.serve.gate.view import GRANTED, PUBLIC, Entry, Looked, View
from dpsql.serve.gate.walk import Walk, parsed
from dpsql.source.listed import Functions
from dpsql.source.parse import nodes
from dpsql.source.relations import view_query

_UNNAMED = ("PIVOT", "SHOW_REF")
"""What stands in FROM and means columns without naming them."""


def view_of(
    cursor: duckdb.DuckDBPyConnection,
    database: str,
    analyst: str,
    grants: Mapping[str, float],
    public: Collection[str],
    functions: Functions,
    binds: Callable[[View, Entry], bool],
    *,
    shown: str = "",
    books: Books | None = None,
) -> View:
    """Return what an analyst may see, for one statement; the parameters are those of `View`.

    Parameters
    ----------
    grants : mapping
        The tables that are open to her, with the epsilon of one question. Where the books have a grant of hers that is the limit;
        where they have taken one back, the table is closed.

    Notes
    -----
    Privacy: free; no row of a protected table is read.
    """
    books = books or Books(cursor, database)
    in_books = Grants(books).said(analyst)
    limits = {table: grant for table, grant in in_books.items() if grant is not None}
    prices = {
        table: min(epsilon, limits[table].default_epsilon) if table in limits else epsilon
        for table, epsilon in grants.items()
        if table in limits or table not in in_books
    }
    return View(cursor, database, shown or database, analyst, prices, limits, frozenset(public), _looked, binds, functions, books)


def _looked(view: View, entry: Entry, stack: tuple[str, ...]) -> Looked:
    """Return the status of a view that is public, or stands in one: its text passes the gate, and all that it reads is open.

    What is public may read tables that are not, but no protected one beside them. Where a grant lists columns the view is made of
    these alone, and names them: of others not even the names are hers to see.
    """
    walk = Walk(view, schema=entry.schema, inside=True, stack=(*stack, entry.key))
    walk.hidden = entry.key in view.public
    try:
        node = parsed(view.cursor, view_query(entry.sql, ""))["statements"][0]["node"]
        walk.query(node, {})
    except (Refusal, DpsqlError, RecursionError):
        return None, frozenset()
    reads = frozenset(key for entry_read in walk.read for key in entry_read.reads)
    if walk.hidden_read and reads:
        return None, frozenset()
    limits = (view.limits.get(key) for key in reads)
    listed = any(limit is not None and limit.columns is not None for limit in limits)
    if listed and (any(map(_means_columns_unnamed, nodes(node))) or not view.binds(view, entry)):
        return None, frozenset()
    return (GRANTED if reads else PUBLIC), reads


def _means_columns_unnamed(node: Mapping[str, Any]) -> bool:
    """Return whether a part of a tree means columns of a table without naming them: its rows depend on those that are not granted.

    A star (``FROM t`` and COLUMNS are one), names for a table's columns by their places, a NATURAL join, what PIVOT groups by.
    """
    kind = node.get("type")
    by_place = kind == "BASE_TABLE" and bool(node.get("column_name_alias"))
    return by_place or kind in _UNNAMED or node.get("class") == "STAR" or node.get("ref_type") == "NATURAL"
