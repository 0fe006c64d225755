"""Public relations beside rows of people, brought into the forms that a source may have. Texts alone.

Rows of a public relation that meet nobody belong to no privacy unit. They are not counted: ``protected RIGHT JOIN public`` is an
inner join here, whose groups, where they are named by a column of the public side, are all of that side's values.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.queries.constant_rows import free_name
from dpsql.source.model import fold, identifier


def prepare(node: exp.Select, relations: Sequence[tuple[exp.Expression, bool]]) -> None:
    """Make outer joins that keep rows of nobody inner ones, and name the public side where USING leaves the side open.

    Parameters
    ----------
    node : sqlglot Select
        It is changed.
    relations : sequence of (expression, bool)
        What stands after FROM and JOIN, in order, and whether it has rows of people.
    """
    rows = {id(item): of_people for item, of_people in relations}
    clause = node.args.get("from_") or node.args.get("from")
    public: list[exp.Expression] = []
    seen = rows.get(id(clause.this), False)
    if not seen:
        public.append(clause.this)
    for join in node.args.get("joins") or []:
        item, here = join.this, rows.get(id(join.this), False)
        using = [name.name for name in join.args.get("using") or []]
        # rows that meet nobody have no unit and are not counted: a join that keeps them is an inner one here
        if join.side == "RIGHT" and seen and not here:
            _inner(node, join, item, using)
        elif join.side == "LEFT" and not seen and here and len(public) == 1:
            _inner(node, join, public[0], using)
        seen |= here


def prune(node: exp.Expression) -> None:
    """Leave out the CTEs of a query and of those inside of it that nothing uses."""
    for clause in list(node.find_all(exp.With)):
        left: list[exp.Expression] = []
        # what the query reads, apart from the clause
        named = _names(clause.parent, clause)
        for cte in reversed(clause.expressions):  # those behind may use those before
            if fold(cte.alias) in named:
                left.insert(0, cte)
                named |= _names(cte)
        if len(left) < len(clause.expressions):
            clause.set("expressions", left)
            if not left and clause.parent is not None:
                clause.parent.set(clause.arg_key or "with_", None)


def _names(node: exp.Expression | None, without: exp.Expression | None = None) -> set[str]:
    """Return the names of the relations that an expression reads, but for a part of it."""
    if node is None or node is without:
        return set()
    own = {fold(node.name)} if isinstance(node, exp.Table) else set()
    return own.union(*(_names(child, without) for child in node.iter_expressions()))


def _inner(node: exp.Select, join: exp.Join, public: exp.Expression, using: Sequence[str]) -> None:
    join.set("side", None)
    join.set("kind", None)
    if not public.alias_or_name:
        public.set("alias", exp.TableAlias(this=identifier(free_name(node))))
    compared = using or _compared(join.args.get("on"), public.alias_or_name)
    for name in dict.fromkeys(compared):  # a row that meets another one has no NULL there
        column = exp.Column(this=identifier(name), table=identifier(public.alias_or_name))
        node.where(exp.Not(this=exp.Is(this=column, expression=exp.Null())), copy=False)
    # USING gives one column of two: as an inner join it is the public side's, which is the same
    names = {fold(name) for name in using}
    for part in ("expressions", "where", "group", "having", "qualify", "order"):
        for value in _listed(node.args.get(part)):
            for column in list(own_columns(value)):
                if not column.table and fold(column.name) in names:
                    column.set("table", identifier(public.alias_or_name))


def _compared(on: exp.Expression | None, alias: str) -> list[str]:
    """Return the columns of a relation that a join condition says are equal to others."""
    if isinstance(on, exp.And | exp.Paren):
        return [name for part in (on.this, on.args.get("expression")) if part is not None for name in _compared(part, alias)]
    if not isinstance(on, exp.EQ):
        return []
    sides = [side for side in (on.this, on.expression) if isinstance(side, exp.Column)]
    return [side.name for side in sides if fold(side.table) == fold(alias)]


def own_columns(node: exp.Expression) -> list[exp.Column]:
    """Return the columns of an expression that are not in a subquery."""
    if isinstance(node, exp.Column):
        return [node]
    if isinstance(node, exp.Query):
        return []
    return [column for child in node.iter_expressions() for column in own_columns(child)]


def _listed(value: object) -> list[exp.Expression]:
    nodes = value if isinstance(value, list) else [value]
    return [item for item in nodes if isinstance(item, exp.Expression)]
