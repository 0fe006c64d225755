"""Aggregates of a row's own rows in another table, ``(SELECT count(*) FROM visits v WHERE v.id = p.id)``, as joins.

Where the column that ties both together tells whose rows they are (a privacy unit, a key, a link), this is ``p LEFT JOIN (SELECT
id, count(*) AS n FROM visits GROUP BY id) USING (id)``, which the rest of dpsql knows. Others are aggregates of other people's
rows, and stay as they are. Privacy: none; the text alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from dpsql.algebra.aggregates import INSIDE
from dpsql.queries.constant_rows import free_name
from dpsql.queries.leaves import Facts
from dpsql.source.joins import conjuncts
from dpsql.source.model import fold, identifier

_PARTS = frozenset({"expressions", "from_", "where"})
_TIE, _VALUE = "tie", "value"


@dataclass(frozen=True)
class _Tied:
    """A subquery, taken apart: its column and the column outside that it must equal, its other conditions."""

    inside: exp.Column
    outside: exp.Column
    others: tuple[exp.Expression, ...]


def decorrelated(tree: exp.Expression, facts: Facts) -> exp.Expression:
    """Return a query with such subqueries as joins; it is changed."""
    for select in list(tree.find_all(exp.Select)):
        # a join would add columns to *
        if any(isinstance(item.this if isinstance(item, exp.Column) else item, exp.Star) for item in select.expressions):
            continue
        where = select.args.get("where")
        for part in [*select.expressions, *([] if where is None else [where])]:
            for node in list(part.find_all(exp.Subquery)):
                beside = isinstance(node.parent, exp.In | exp.Exists | exp.From | exp.Join)
                if node.find_ancestor(exp.Select) is select and not beside:
                    _join(select, node, facts)
    return tree


def _join(select: exp.Select, node: exp.Subquery, facts: Facts) -> None:
    inner = node.this
    tied = _tied(select, inner, facts) if isinstance(inner, exp.Select) else None
    if tied is None or select.args.get("from_") is None:
        return
    alias = free_name(select, fold(inner.args["from_"].this.name))
    aggregate = inner.expressions[0].unalias()
    listed = [exp.alias_(tied.inside.copy(), _TIE, quoted=True), exp.alias_(aggregate.copy(), _VALUE, quoted=True)]
    grouped = exp.Select(expressions=listed, from_=inner.args["from_"].copy())
    if tied.others:
        grouped.set("where", exp.Where(this=exp.and_(*(other.copy() for other in tied.others), copy=False)))
    grouped.set("group", exp.Group(expressions=[tied.inside.copy()]))
    on = exp.EQ(this=tied.outside.copy(), expression=exp.column(_TIE, table=alias, quoted=True))
    joined = exp.Subquery(this=grouped, alias=exp.TableAlias(this=identifier(alias)))
    select.append("joins", exp.Join(this=joined, side="LEFT", on=on))
    value: exp.Expression = exp.column(_VALUE, table=alias, quoted=True)
    if INSIDE.get(_called(aggregate)) == "count":
        value = exp.Anonymous(this="coalesce", expressions=[value, exp.Literal.number(0)])
    name = node.alias
    node.replace(exp.alias_(value, name, quoted=True) if name else value)


def _tied(select: exp.Select, inner: exp.Select, facts: Facts) -> _Tied | None:
    """Return what ties a subquery to the SELECT around it; None where it is another subquery than those above."""
    item = inner.expressions[0].unalias() if len(inner.expressions) == 1 else None
    where, start = inner.args.get("where"), inner.args.get("from_")
    if item is None or where is None or start is None or {key for key, value in inner.args.items() if value} - _PARTS:
        return None
    table = start.this
    calls = {_called(call) for call in item.find_all(exp.Anonymous)} & INSIDE.keys()
    counts = {name for name in calls if INSIDE[name] == "count"}
    if not calls or (counts and _called(item) not in counts) or not isinstance(table, exp.Table):
        return None
    if not isinstance(table.this, exp.Identifier) or inner.find(exp.Subquery, exp.Window) or _is_cte(select, table):
        return None
    leaf = facts(table)
    ties: list[tuple[exp.Column, exp.Column]] = []
    others: list[exp.Expression] = []
    for condition in conjuncts(where.this):
        sides = (condition.this, condition.expression) if isinstance(condition, exp.EQ) else ()
        own = [isinstance(side, exp.Column) and _is_own(side, table, leaf.columns) for side in sides]
        if sorted(own) == [False, True] and all(isinstance(side, exp.Column) for side in sides):
            ties.append((sides[own.index(True)], sides[own.index(False)]))
        else:
            others.append(condition)
    inside_only = all(_is_own(column, table, leaf.columns) for part in (item, *others) for column in _columns(part))
    if len(ties) != 1 or not inside_only or not leaf.protected or fold(ties[0][0].name) not in leaf.units | leaf.keys:
        return None
    return _Tied(*ties[0], tuple(others))


def _is_cte(select: exp.Select, table: exp.Table) -> bool:
    return len(table.parts) == 1 and any(fold(cte.alias) == fold(table.name) for cte in select.root().find_all(exp.CTE))


def _columns(node: exp.Expression) -> list[exp.Column]:
    return [column for column in node.find_all(exp.Column) if not isinstance(column.this, exp.Star)]


def _is_own(column: exp.Column, table: exp.Table, names: Sequence[str]) -> bool:
    """Whether a name inside of a subquery is that of a column of its table."""
    if column.table:
        return fold(column.table) == fold(table.alias_or_name)
    return fold(column.name) in names


def _called(node: exp.Expression) -> str:
    return fold(str(node.this)) if isinstance(node, exp.Anonymous) else ""
