"""Texts of expressions: one for all spellings, to compare them by, and the name that DuckDB gives an unnamed item."""

from __future__ import annotations

from sqlglot import exp

from dpsql.source.model import fold
from dpsql.source.parse import render


def canonical(node: exp.Expression, *, unqualified: bool = False) -> str:
    """Return one text for all spellings of an expression: letters of names folded, brackets around a whole left out.

    Parameters
    ----------
    unqualified : bool
        Whether names of relations before columns mean nothing, since there is only one.

    Examples
    --------
    >>> import sqlglot
    >>> canonical(sqlglot.parse_one('(T."Age" + 1)'), unqualified=True) == canonical(sqlglot.parse_one("age + 1"))
    True
    """
    copy = node.copy()
    while isinstance(copy, exp.Paren):
        copy = copy.this
    for name in copy.find_all(exp.Identifier):
        name.set("this", fold(name.name))
        name.set("quoted", True)
    if unqualified:
        for column in copy.find_all(exp.Column):
            if not isinstance(column.this, exp.Star):
                for part in ("table", "db", "catalog"):
                    column.set(part, None)
    for call in copy.find_all(exp.Anonymous):
        if isinstance(call.this, str):
            call.set("this", fold(call.this))
    return render(copy, own=True)


def shown_name(node: exp.Expression) -> str:
    """Return the name of an item that has none: a column's own, else its text."""
    if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
        return str(node.name)
    if isinstance(node, exp.Anonymous) and isinstance(node.this, str) and fold(node.this) == "count":
        if not node.expressions or isinstance(node.expressions[0], exp.Star):
            return "count_star()"
    copy = node.copy()
    for call in copy.find_all(exp.Anonymous):
        if isinstance(call.this, str):
            call.set("this", fold(call.this))
    text = render(copy)
    return _lower_functions(text, copy)


def _lower_functions(text: str, node: exp.Expression) -> str:
    """Return the text with the names of functions in small letters, as DuckDB shows them."""
    for call in node.find_all(exp.Anonymous):
        if isinstance(call.this, str):
            text = text.replace(f"{call.this.upper()}(", f"{call.this}(")
    return text
