"""Parts of a query that are written in the one way in which the rest of dpsql knows them; what they mean and are called stays."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from dpsql.algebra.functions import called
from dpsql.algebra.parts import INTERVALS
from dpsql.queries.names import keeping_names
from dpsql.queries.tool_grains import truncation
from dpsql.source.intervals import interval_of, whole_of
from dpsql.source.joins import chain

_TRUNCATED = {(1, unit): unit for unit in INTERVALS} | {
    (7, "day"): "week", (3, "month"): "quarter", (12, "month"): "year", (24, "hour"): "day", (60, "minute"): "hour",
    (60, "second"): "minute",
}
"""Widths of buckets that begin where a unit of the calendar does."""
_DIVIDED = {"hour": (24, "day"), "minute": (60, "hour"), "second": (60, "minute"), "month": (12, "year")}
"""Units of which a larger one has so many: of widths that divide it a bucket begins where it does."""


def respelled(
    tree: exp.Expression, named: Callable[[exp.Expression], str], type_of: Callable[[exp.Table, str], str | None]
) -> exp.Expression:
    """Return a query with powers and zones as calls, buckets and tools' grains as truncations, and joins without brackets.

    Parameters
    ----------
    tree : sqlglot expression
        It is changed.
    named : callable
        The name of an item that has none: it is kept where the item changes.
    type_of : callable
        A table and a name -> the type of its column, None where it has none.
    """
    for select in list(tree.find_all(exp.Select)):
        _unbracketed(select)
    kinds = _kinds(tree, type_of)

    def other(node: exp.Expression) -> exp.Expression | None:
        if isinstance(node, exp.In) and (rows := _rows(node)):
            return exp.In(this=node.this, expressions=rows)
        return _other(node) or _bucket(node, kinds) or truncation(node, kinds)

    return keeping_names(tree, named, lambda tree: _zoned(tree).transform(lambda node: other(node) or node, copy=False))


def _zoned(tree: exp.Expression) -> exp.Expression:
    """Return a query with ``x AT TIME ZONE z`` as ``timezone(z, x)``, as DuckDB reads it."""
    for node in reversed(list(tree.find_all(exp.AtTimeZone, bfs=False))):  # the inner ones first
        node.replace(exp.Anonymous(this="timezone", expressions=[node.args["zone"], node.this]))
    return tree


def _unbracketed(select: exp.Select) -> None:
    """Take the brackets from joins after FROM: ``c [LEFT] JOIN (a JOIN b)`` is ``a JOIN b [RIGHT] JOIN c``."""
    start = select.args.get("from_") or select.args.get("from")
    if start is None:
        return
    joins: list[exp.Join] = list(select.args.get("joins") or [])
    first, inner = chain(start.this)
    if inner:
        joins = [*inner, *joins]
    elif joins and joins[0].kind in ("", "INNER", "OUTER") and joins[0].side in ("", "LEFT") and not joins[0].method:
        # FROM c JOIN (a JOIN b): the bracket goes first, and c is joined to it, from the other side
        then, inside = chain(joins[0].this)
        if inside:
            side = "RIGHT" if joins[0].side == "LEFT" else None
            conditions = {key: joins[0].args[key] for key in ("on", "using") if joins[0].args.get(key)}
            turned = exp.Join(this=first, side=side, **conditions)
            first, joins = then, [*inside, turned, *joins[1:]]
    if joins and first is not start.this:
        first.set("joins", None)
        start.set("this", first)
        select.set("joins", joins)


def _kinds(tree: exp.Expression, type_of: Callable[[exp.Table, str], str | None]) -> Callable[[exp.Expression], str | None]:
    """Return what tells whether an argument is a DATE or a TIMESTAMP: a column of some table of the query, or a CAST."""
    tables = [table for table in tree.find_all(exp.Table) if isinstance(table.this, exp.Identifier)]

    def kind_of(node: exp.Expression) -> str | None:
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Cast):
            return "DATE" if node.to.this == exp.DataType.Type.DATE else None
        types = {type_of(table, node.name) for table in tables} - {None} if isinstance(node, exp.Column) else set()
        return next((kind for kind in ("DATE", "TIMESTAMP") if types == {kind}), None)

    return kind_of


def _rows(node: exp.In) -> list[exp.Expression]:
    """Return the values of ``x IN (VALUES (1), (2))``; nothing of other lists."""
    [values] = node.expressions if len(node.expressions) == 1 else [None]
    rows = [row.expressions for row in values.expressions] if isinstance(values, exp.Values) else []
    return [row[0] for row in rows] if all(len(row) == 1 for row in rows) else []


def _other(node: exp.Expression) -> exp.Expression | None:
    """Return the other spelling of a node, where it has one."""
    if isinstance(node, exp.Pow):
        return exp.Anonymous(this="power", expressions=[node.this, node.expression])
    function = called(node)
    if function is not None and function.unit and node.expressions:  # named in letters of any case
        unit = node.expressions[0]
        if isinstance(unit, exp.Literal) and unit.is_string and unit.name != unit.name.lower():
            return exp.Anonymous(this=node.this, expressions=[exp.Literal.string(unit.name.lower()), *node.expressions[1:]])
    return None


def _bucket(node: exp.Expression, kind_of: Callable[[exp.Expression], str | None]) -> exp.Expression | None:
    """Return what ``time_bucket`` is in units of the calendar; None where it is none."""
    if not isinstance(node, exp.Anonymous) or str(node.this).lower() != "time_bucket" or len(node.expressions) != 2:
        return None
    width, moment = interval_of(node.expressions[0]), node.expressions[1]
    size = None if width is None else whole_of(width)
    if width is None or size is None:
        return None
    unit, kind = str(width.args["unit"].name).lower().removesuffix("s"), kind_of(moment)
    truncated = _TRUNCATED.get((size, unit))
    if truncated is None:
        bucket = _divided(unit, size, moment) if kind == "TIMESTAMP" or (kind, unit) == ("DATE", "month") else None
    else:
        bucket = exp.Anonymous(this="date_trunc", expressions=[exp.Literal.string(truncated), moment])
    if bucket is None or kind is None:
        return bucket
    # which versions of DuckDB truncate to which type differs
    return exp.Cast(this=bucket, to=exp.DataType.build(kind, dialect="duckdb"))


def _divided(unit: str, size: int, moment: exp.Expression) -> exp.Expression | None:
    """Return a bucket of so many units as the larger unit's beginning and a constant interval; None where it divides none."""
    whole, larger = _DIVIDED.get(unit, (0, ""))
    if size < 2 or whole % size or whole <= size:
        return None
    field = exp.Anonymous(this=unit, expressions=[moment.copy()])
    if unit == "month":
        field = exp.Paren(this=exp.Sub(this=field, expression=exp.Literal.number(1)))
    place = exp.IntDiv(this=field, expression=exp.Literal.number(size))
    truncated = exp.Anonymous(this="date_trunc", expressions=[exp.Literal.string(larger), moment.copy()])
    start = exp.Cast(this=truncated, to=exp.DataType.build("TIMESTAMP", dialect="duckdb"))
    case = exp.Case(this=place)
    for number in range(whole // size):
        step = exp.Interval(this=exp.Literal.number(number * size), unit=exp.Var(this=unit.upper()))
        then = exp.Add(this=start.copy(), expression=step) if number else start.copy()
        case.append("ifs", exp.If(this=exp.Literal.number(number), true=then))
    return case
