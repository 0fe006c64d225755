"""Subqueries of the outer statement that name columns of a row around them: each is an answer by groups, looked up for the row.

``SELECT w.name, (SELECT count(*) FROM visits v WHERE v.ward = w.ward) FROM wards w`` asks for visits by ward. Texts alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sqlglot import exp

from dpsql.queries.aggregates import Aggregate
from dpsql.queries.public_rows import own_columns
from dpsql.source.model import fold, refuse

_OF_NOTHING = frozenset({"count", "count_distinct", "count_units", "regr_count"})
"""Aggregates that are 0 of no rows."""


def may_be_correlated(node: exp.Expression) -> bool:
    """Return whether a SELECT stands where columns of a query around it may be named: in an expression, or in LATERAL."""
    at = node.parent
    while isinstance(at, exp.Subquery | exp.Paren):
        at = at.parent
    return at is not None and not isinstance(at, exp.From | exp.Join | exp.CTE | exp.SetOperation)


def split_where(
    where: exp.Expression, is_own: Callable[[exp.Column], bool]
) -> tuple[list[tuple[exp.Expression, exp.Expression]], exp.Expression | None]:
    """Return the equalities of a condition with columns of a query around it, as (inside, outside), and what is left of it."""
    found: list[tuple[exp.Expression, exp.Expression]] = []
    kept: list[exp.Expression] = []
    for part in _conjuncts(where):
        pair = _pair(part, is_own)
        if pair is None:
            kept.append(part)
        else:
            found.append(pair)
    return found, exp.and_(*kept, copy=True) if kept else None


def _conjuncts(node: exp.Expression) -> list[exp.Expression]:
    if isinstance(node, exp.Paren) and isinstance(node.this, exp.Paren | exp.And):
        return _conjuncts(node.this)
    return [*_conjuncts(node.this), *_conjuncts(node.expression)] if isinstance(node, exp.And) else [node]


def _pair(node: exp.Expression, is_own: Callable[[exp.Column], bool]) -> tuple[exp.Expression, exp.Expression] | None:
    while isinstance(node, exp.Paren):
        node = node.this
    if type(node) is not exp.EQ or node.find(exp.Query) is not None:
        return None
    for inside, outside in ((node.this, node.expression), (node.expression, node.this)):
        for column in own_columns(outside):
            if not column.table and re.fullmatch(r"[akg][0-9]+", fold(column.name)) and not is_own(column):
                refuse(f"column {column.name!r}", "an answer has a column of that name: write relation.column", column)
        ours, theirs = own_columns(inside), own_columns(outside)
        if ours and theirs and all(map(is_own, ours)) and not any(map(is_own, theirs)):
            return inside, outside
    return None


def of_one_row(node: exp.Expression, aggregates: Sequence[Aggregate]) -> exp.Expression:
    """Return an expression over the answer's columns that has a value where the group is not there, as one of no rows has."""
    out = exp.Paren(this=node.copy())
    for column in list(out.find_all(exp.Column)):
        name = column.name
        if column.table or not (name[:1] == "a" and name[1:].isdigit()) or column.find_ancestor(exp.Query) is not None:
            continue
        value: exp.Expression = exp.Anonymous(this="any_value", expressions=[column.copy()])
        if aggregates[int(name[1:])].function in _OF_NOTHING:
            value = exp.Anonymous(this="coalesce", expressions=[value, exp.Literal.number(0)])
        column.replace(value)
    inner: exp.Expression = out.this
    return inner
