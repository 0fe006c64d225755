"""Calls of an analyst's: answered as any other call is, in her name, and without what others have asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb

from dpsql.answers import query, summary, tables
from dpsql.door import dispatch
from dpsql.purchase.uses import Paid
from dpsql.serve.copy import columns_of
from dpsql.serve.errors import UNDESCRIBED, UNFORESEEN
from dpsql.serve.gate.calls import BUYING, Call
from dpsql.serve.gate.view import View
from dpsql.serve.passed import Refused
from dpsql.session.instance import Context, Instance
from dpsql.text.relation import inline, literal

_LISTED = {
    "summarize": summary.COLUMNS,
    "contributions": tables.CONTRIBUTION_COLUMNS,
    "histogram": {"value": "VARCHAR", "n": "BIGINT"},
}
"""Columns of calls that always have the same."""


def called(
    instance: Instance, database: str, view: View, call: Call, paid: list[Paid] | None = None, notes: list[str] | None = None
) -> str:
    """Answer a call with the text of a relation; ``paid`` gets what it has paid for, ``notes`` what is to be said beside it.

    The books are hers alone: entries and releases of others are left out, and budgets of tables that are not granted to her.
    """
    try:
        return _hers(view, call, _run(instance, database, view, call, paid=paid, notes=notes))
    except (duckdb.BinderException, duckdb.CatalogException):  # of SQL that is dpsql's own, not the analyst's
        raise Refused("failed", UNFORESEEN) from None


def nothing(instance: Instance, database: str, view: View, call: Call) -> str:
    """Return the columns of the answer of a call as a relation without rows; nothing is bought.

    Raises
    ------
    Refused
        They follow from what is bought.
    """
    if call.name in _LISTED:
        return inline(_LISTED[call.name], [])
    if call.name == "query":
        return _run(instance, database, view, call, query.without_rows)
    if call.name in BUYING:
        raise Refused("unsupported", UNDESCRIBED)
    columns = columns_of(view.cursor, f"FROM {called(instance, database, view, call)}")  # a file of ours is out of the copy's reach
    return inline({column.name: column.type for column in columns}, [])


def _run(
    instance: Instance, database: str, view: View, call: Call, answered: Callable[[Context, Any], str] | None = None,
    paid: list[Paid] | None = None, notes: list[str] | None = None,
) -> str:
    return dispatch.run(
        instance, call.name, call.arguments, database=database, schema="main", progress=False, analyst=view.who,
        answered=answered, paid=paid, notes=notes,
    )


def _hers(view: View, call: Call, text: str) -> str:
    """Return the rows of a relation of the books that an analyst may read."""
    tables = _listed(sorted(view.grants))
    if call.name == "ledger":
        return f"(SELECT * FROM {text} WHERE source IN {tables})"  # noqa: S608 -- literals
    if call.name == "releases":
        return f"(SELECT * FROM {text} WHERE release IN {_listed(view.releases())} AND source IN {tables})"  # noqa: S608
    if call.name == "budget":  # what is wrong with the books, and where an anchor is, is the custodian's
        shown = "NULL::VARCHAR AS anchor, CASE WHEN books = 'intact' THEN books END AS books"
        return f"(SELECT * REPLACE ({shown}) FROM {text} WHERE source IN {tables})"  # noqa: S608
    return text


def _listed(names: list[str]) -> str:
    return f"({', '.join(map(literal, names)) or 'NULL'})"
