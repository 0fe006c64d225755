"""Texts of expressions: one for all spellings, to compare them by, and the name that DuckDB gives an unnamed item."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
from sqlglot import exp

from dpsql.queries.naming import bare
from dpsql.source.model import fold
from dpsql.source.parse import render

_NAMED: dict[str, str] = {}
"""Names of expressions that DuckDB's parser was asked for in this process: they follow from the text alone."""
_MOST_NAMED = 1000


def comparable(node: exp.Expression, *, unqualified: bool = False) -> str:
    """Return one text for all spellings of an expression: letters of names folded, brackets around a whole left out.

    Questions are compared and shown by it. `dpsql.queries.naming.canonical` also levels brackets inside, for looking bounds up.

    Parameters
    ----------
    unqualified : bool
        Whether names of relations before columns mean nothing, since there is only one.

    Examples
    --------
    >>> import sqlglot
    >>> comparable(sqlglot.parse_one('(T."Age" + 1)'), unqualified=True) == comparable(sqlglot.parse_one("age + 1"))
    True
    """
    copy = bare(node.copy())
    for name in copy.find_all(exp.Identifier):
        name.set("this", fold(name.name))
        name.set("quoted", True)
    if unqualified and copy.find(exp.Query) is None:  # in a subquery names say whose column it is
        for column in copy.find_all(exp.Column):
            if not isinstance(column.this, exp.Star):
                for part in ("table", "db", "catalog"):
                    column.set(part, None)
    for call in copy.find_all(exp.Anonymous):
        if isinstance(call.this, str):
            call.set("this", fold(call.this))
    return render(copy, own=True)


def duckdb_names(cursor: duckdb.DuckDBPyConnection) -> Callable[[exp.Expression], str]:
    """Return what gives an expression the name that DuckDB gives it as an item, by DuckDB's own parser. Nothing is bound or run."""

    def name(text: str) -> str | None:
        if text in _NAMED:
            return _NAMED[text]
        try:
            row = cursor.execute(
                "SELECT system.main.json_deserialize_sql(system.main.json_serialize_sql(?::VARCHAR))", [f"SELECT {text}"]
            ).fetchone()
        except duckdb.InterruptException:
            raise
        except duckdb.Error:
            return None
        if row is None:
            return None
        if len(_NAMED) >= _MOST_NAMED:
            _NAMED.clear()
        return _NAMED.setdefault(text, str(row[0]).removeprefix("SELECT "))

    return lambda node: name(render(node)) or shown_name(node)


def shown_name(node: exp.Expression) -> str:
    """Return the name of an item that has none, without DuckDB: a column's own, else its text."""
    if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
        return str(node.name)
    counts = isinstance(node, exp.Anonymous) and isinstance(node.this, str) and fold(node.this) == "count"
    if counts and (not node.expressions or isinstance(node.expressions[0], exp.Star)):
        return "count_star()"
    return render(node)
