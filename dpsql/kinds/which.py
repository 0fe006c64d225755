"""Which kind of statistics a method needs, asked by plans and by measurements alike."""

from __future__ import annotations

from typing import Literal

from dpsql import methods
from dpsql.methods.base import Method

Kind = Literal["tables", "units", "tuples", "drawn", "open", "query"]


def kind_of(method: Method | None, *, units: bool, query: bool = False) -> Kind:
    """Return the kind: of a method, of plain tables (None), or of privacy units and queries, which no method is for.

    Examples
    --------
    >>> kind_of(None, units=True), kind_of(None, units=False), kind_of(methods.get("modips"), units=False)
    ('units', 'tables', 'drawn')
    """
    if query:
        return "query"
    if units:
        return "units"
    if methods.is_open(method):
        return "open"
    if methods.is_drawn(method):
        return "drawn"
    return "tuples" if methods.counts_tuples(method) else "tables"
