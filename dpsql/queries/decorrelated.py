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
from dpsql.queries.names import is_star
from dpsql.source.joins import conjuncts
from dpsql.source.layers import outermost
from dpsql.source.model import fold, identifier

_PARTS = frozenset({"expressions", "from_", "where"})
_NOTHING = frozenset({"count", "count_distinct"})
"""What aggregates are calculated as that are 0 of no rows; others, DuckDB's count_if among them, are NULL."""


@dataclass(frozen=True)
class _Tied:
    """A subquery, taken apart: its column and the column outside that it must equal, its other conditions, its aggregates."""

    inside: exp.Column
    outside: exp.Column
    others: tuple[exp.Expression, ...]
    aggregates: tuple[exp.Expression, ...]


def decorrelated(tree: exp.Expression, facts: Facts) -> exp.Expression:
    """Return a query with such subqueries as joins; it is changed."""
    for select in list(tree.find_all(exp.Select)):
        # a join would add columns to *
        if any(map(is_star, select.expressions)):
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
    tie, names = f"{alias}_tie", [f"{alias}_value{place}" for place in range(len(tied.aggregates))]
    listed = [exp.alias_(tied.inside.copy(), tie, quoted=True)]
    listed += [exp.alias_(aggregate.copy(), name, quoted=True) for aggregate, name in zip(tied.aggregates, names, strict=True)]
    grouped = exp.Select(expressions=listed, from_=inner.args["from_"].copy())
    if tied.others:
        grouped.set("where", exp.Where(this=exp.and_(*(other.copy() for other in tied.others), copy=False)))
    grouped.set("group", exp.Group(expressions=[tied.inside.copy()]))
    on = exp.EQ(this=tied.outside.copy(), expression=exp.column(tie, table=alias, quoted=True))
    joined = exp.Subquery(this=grouped, alias=exp.TableAlias(this=identifier(alias)))
    select.append("joins", exp.Join(this=joined, side="LEFT", on=on))
    # what stands around the aggregates is computed outside: of no rows it need not be NULL
    item = exp.Paren(this=inner.expressions[0].unalias().copy())
    for aggregate, name in zip(outermost(item.this, _is_aggregate), names, strict=True):
        value: exp.Expression = exp.column(name, table=alias, quoted=True)
        if INSIDE[_called(aggregate)] in _NOTHING:
            value = exp.Anonymous(this="coalesce", expressions=[value, exp.Literal.number(0)])
        aggregate.replace(value)
    bare = item.this if isinstance(item.this, exp.Column | exp.Anonymous) else item
    node.replace(exp.alias_(bare, node.alias, quoted=True) if node.alias else bare)


def _tied(select: exp.Select, inner: exp.Select, facts: Facts) -> _Tied | None:
    """Return what ties a subquery to the SELECT around it; None where it is another subquery than those above."""
    item = inner.expressions[0].unalias() if len(inner.expressions) == 1 else None
    where, start = inner.args.get("where"), inner.args.get("from_")
    if item is None or where is None or start is None or {key for key, value in inner.args.items() if value} - _PARTS:
        return None
    table = start.this
    aggregates = outermost(item, _is_aggregate)
    aggregated = {id(column) for aggregate in aggregates for column in aggregate.find_all(exp.Column)}
    if not aggregates or any(id(column) not in aggregated for column in _columns(item)) or not isinstance(table, exp.Table):
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
    if not _is_of_people(select, ties[0][1], facts):
        return None
    return _Tied(*ties[0], tuple(others), tuple(aggregates))


def _is_of_people(select: exp.Select, column: exp.Column, facts: Facts) -> bool:
    """Whether a column is one of people's rows: public rows that meet nobody are not counted."""
    start, joins = select.args.get("from_"), select.args.get("joins") or []
    items = [] if start is None else [start.this, *(join.this for join in joins)]
    if column.table:
        items = [item for item in items if fold(item.alias_or_name) == fold(column.table)]
    tables = [table for item in items for table in item.find_all(exp.Table) if isinstance(table.this, exp.Identifier)]
    named = {fold(cte.alias): cte for cte in select.root().find_all(exp.CTE)}
    inside = [inner for table in tables if fold(table.name) in named for inner in named[fold(table.name)].find_all(exp.Table)]
    listed = [table for table in (*tables, *inside) if fold(table.name) not in named and isinstance(table.this, exp.Identifier)]
    return any(facts(table).protected for table in listed)


def _is_cte(select: exp.Select, table: exp.Table) -> bool:
    return len(table.parts) == 1 and any(fold(cte.alias) == fold(table.name) for cte in select.root().find_all(exp.CTE))


def _columns(node: exp.Expression) -> list[exp.Column]:
    return [column for column in node.find_all(exp.Column) if not isinstance(column.this, exp.Star)]


def _is_own(column: exp.Column, table: exp.Table, names: Sequence[str]) -> bool:
    """Whether a name inside of a subquery is that of a column of its table."""
    if column.table:
        return fold(column.table) == fold(table.alias_or_name)
    return fold(column.name) in names


def _is_aggregate(node: exp.Expression) -> bool:
    return _called(node) in INSIDE


def _called(node: exp.Expression) -> str:
    """Return which function a call is of, also where FILTER stands behind it."""
    call = node.this if isinstance(node, exp.Filter) else node
    return fold(str(call.this)) if isinstance(call, exp.Anonymous) else ""
