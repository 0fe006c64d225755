"""Scalar subqueries over public tables in a condition: their values, which everybody may read, stand in the place of them.

Privacy: free; no protected table is read. The value is the one of now, as everything that is public.
"""

from __future__ import annotations

import duckdb
from sqlglot import exp

from dpsql.algebra.aggregates import INSIDE
from dpsql.algebra.functions import FUNCTIONS
from dpsql.errors import ArgumentError, DpsqlError
from dpsql.queries.leaves import Facts
from dpsql.session.instance import Context
from dpsql.source.model import fold
from dpsql.source.parse import render

_FUNCTIONS = FUNCTIONS.keys() | INSIDE.keys()


def with_values(tree: exp.Expression, context: Context, facts: Facts) -> exp.Expression:
    """Return a query with the values of public scalar subqueries in its conditions; it is changed.

    Raises
    ------
    ArgumentError
        A subquery has several rows.
    """
    for where in list(tree.find_all(exp.Where)):
        for node in list(where.find_all(exp.Subquery)):
            if _is_scalar(node) and _is_public(node, facts):
                value = _value(node, context, facts)
                if value is not None:
                    node.replace(value)
    return tree


def _is_scalar(node: exp.Subquery) -> bool:
    inner = node.this
    beside = isinstance(node.parent, exp.From | exp.Join | exp.In | exp.Exists | exp.SetOperation | exp.CTE | exp.Subquery)
    return isinstance(inner, exp.Select) and len(inner.expressions) == 1 and not beside and not node.alias


def _is_public(node: exp.Subquery, facts: Facts) -> bool:
    """Whether a subquery reads tables alone, all of them public, and calls but a few functions."""
    tables = list(node.find_all(exp.Table))
    called = {fold(str(call.this)) for call in node.find_all(exp.Anonymous)}
    if not tables or called - _FUNCTIONS or node.find(exp.CTE, exp.Unnest, exp.Lateral, exp.Window):
        return False
    try:
        return all(isinstance(table.this, exp.Identifier) and not facts(table).protected for table in tables)
    except DpsqlError:  # a CTE, or nothing
        return False


def _value(node: exp.Subquery, context: Context, facts: Facts) -> exp.Expression | None:
    """Return the value as a constant; None where it has none by itself, since it names columns around it."""
    inner = node.this.copy()
    for table in inner.find_all(exp.Table):
        facts.qualify(table)
    text = render(inner)
    try:
        rows = context.cursor.execute(f"SELECT CAST(v AS VARCHAR), typeof(v) FROM ({text}) AS q(v) LIMIT 2").fetchall()  # noqa: S608 -- public
    except duckdb.Error:
        return None
    if len(rows) > 1:
        raise ArgumentError("sql", node.sql(dialect="duckdb")[:80], "has several rows; one is compared: IN (...), max, min")
    value, kind = rows[0] if rows else (None, "")
    if value is None:
        return exp.Null()
    # written as people write it, so that the question is the same as with the constant
    if kind == "VARCHAR":
        return exp.Literal.string(value)
    if kind in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT") and value.isdecimal():
        return exp.Literal.number(value)
    return exp.Cast(this=exp.Literal.string(value), to=exp.DataType.build(kind, dialect="duckdb"))
