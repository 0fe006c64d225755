"""Texts of expressions: one for all spellings, to compare them by, and the name that DuckDB gives an unnamed item."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
from sqlglot import exp

from dpsql.source.model import fold
from dpsql.source.parse import render
from dpsql.text.strict import IS_NOT

_MOST_NAMES = 4_096
_names: dict[str, str | None] = {}


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


def keeping_names(
    tree: exp.Expression, named: Callable[[exp.Expression], str], change: Callable[[exp.Expression], exp.Expression]
) -> exp.Expression:
    """Return what a change makes of a query, where items without a name that it changes have the name that they had.

    Parameters
    ----------
    tree : sqlglot expression
        It is changed.
    named : callable
        The name of an item that has none.
    change : callable
        It keeps every SELECT, and the number and order of its items.
    """
    selects = list(tree.find_all(exp.Select))
    before = [(select, place, render(item)) for select in selects for place, item in enumerate(select.expressions)]
    tree = change(tree)
    for select, place, text in before:
        item = select.expressions[place]
        if not isinstance(item, exp.Alias | exp.Column | exp.Star) and render(item) != text and not spreads(item):
            item.replace(exp.alias_(item.copy(), named(exp.Var(this=text)), quoted=True))
    return tree


def duckdb_names(cursor: duckdb.DuckDBPyConnection) -> Callable[[exp.Expression], str]:
    """Return what gives an expression the name that DuckDB gives it as an item, by DuckDB's own parser. Nothing is bound or run.

    A text has one name in a process.
    """

    def name(text: str) -> str | None:
        if text in _names:
            return _names[text]
        try:
            row = cursor.execute(
                "SELECT system.main.json_deserialize_sql(system.main.json_serialize_sql(?::VARCHAR))", [f"SELECT {text}"]
            ).fetchone()
        except duckdb.InterruptException:
            raise
        except duckdb.Error:
            return None
        if len(_names) >= _MOST_NAMES:
            _names.clear()
        return _names.setdefault(text, None if row is None else str(row[0]).removeprefix("SELECT "))

    return lambda node: name(render(_as_written(node))) or shown_name(node)


def _as_written(node: exp.Expression) -> exp.Expression:
    """Return an expression with ``x IS NOT NULL`` where that was written: another tree than NOT (x IS NULL), by another name."""
    holder = exp.Paren(this=node.copy())
    for negation in list(holder.find_all(exp.Not)):
        if negation.meta.get(IS_NOT) and isinstance(negation.this, exp.Is) and isinstance(negation.this.expression, exp.Null):
            negation.replace(exp.Is(this=negation.this.this.copy(), expression=exp.Var(this="NOT NULL")))
    out: exp.Expression = holder.this
    return out


def star_of(item: exp.Expression) -> exp.Star | None:
    """Return the star of an item that stands for all columns, or all of one relation: ``*``, ``t.*``; None of other items."""
    bare = item.this if isinstance(item, exp.Column) else item
    return bare if isinstance(bare, exp.Star) else None


def is_star(item: exp.Expression) -> bool:
    """Return whether an item stands for all columns, or all of one relation."""
    return star_of(item) is not None


def spreads(item: exp.Expression) -> bool:
    """Return whether an item stands for several columns, which have names of their own: ``COLUMNS(...)``, ``* LIKE 'n%'``.

    Examples
    --------
    >>> from dpsql.source.parse import parse
    >>> [spreads(item) for item in parse("SELECT COLUMNS('n.*') + 1, * LIKE 'n%', count(*), a").expressions]
    [True, True, False, False]
    """
    bare = item.this if isinstance(item, exp.Not) else item
    matched = isinstance(bare, exp.Like | exp.ILike | exp.SimilarTo | exp.Glob) and isinstance(bare.this, exp.Star)
    return matched or any(str(call.this).lower() == "columns" for call in item.find_all(exp.Anonymous))


def shown_name(node: exp.Expression) -> str:
    """Return the name of an item that has none, without DuckDB: a column's own, else its text."""
    if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
        return str(node.name)
    counts = isinstance(node, exp.Anonymous) and isinstance(node.this, str) and fold(node.this) == "count"
    if counts and (not node.expressions or isinstance(node.expressions[0], exp.Star)):
        return "count_star()"
    return render(node)


def operands(node: exp.Expression) -> list[exp.Expression]:
    """Return the operands of a node: expressions, without types, names, units and constants; of CASE its conditions and values."""
    out = []
    for child in node.iter_expressions():
        if isinstance(child, exp.If):
            out += [child.this, child.args["true"]]
        elif not isinstance(child, exp.DataType | exp.Var | exp.Identifier | exp.Literal | exp.Null | exp.Boolean | exp.Interval):
            out.append(child)
    return out
