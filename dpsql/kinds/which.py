"""Which kind of statistics a method needs, asked by plans and by measurements alike."""

from __future__ import annotations

from typing import Literal

from dpsql import methods
from dpsql.methods.base import Method

Kind = Literal["tables", "units", "tuples", "drawn", "open", "query", "linked"]


def kind_of(method: Method | None, *, units: bool, query: bool = False, linked: bool = False) -> Kind:
    """Return the kind: of a method, of plain tables (None), or of privacy units, queries and linked tables, which no method is for.

    Examples
    --------
    >>> kind_of(None, units=True), kind_of(None, units=False), kind_of(methods.get("modips"), units=False)
    ('units', 'tables', 'drawn')
    """
    if query or linked:
        return "query" if query else "linked"
    if units:
        return "units"
    if methods.is_open(method):
        return "open"
    if methods.is_drawn(method):
        return "drawn"
    return "tuples" if methods.counts_tuples(method) else "tables"
