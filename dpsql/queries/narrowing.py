"""What a condition says about the values of the expressions in it.

Privacy: none; the text of the query and public bounds alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from dpsql.algebra.moments import moment, time_of_day
from dpsql.algebra.ranges import INF, TEMPORAL, Range, as_sort, hull, meet
from dpsql.queries.naming import canonical
from dpsql.source.joins import conjuncts

Limits = dict[str, Range]
Extent = Callable[[exp.Expression], Range]

_FLIPPED = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE, exp.EQ: exp.EQ, exp.NullSafeEQ: exp.NullSafeEQ}
_OPPOSITE = {exp.LT: exp.GTE, exp.LTE: exp.GT, exp.GT: exp.LTE, exp.GTE: exp.LT, exp.NEQ: exp.EQ}
_ORDERED = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)
_STEP = 0.5e-6
"""Seconds: less than a moment is at least away from another one, by more than a number of seconds is rounded."""
_FAR = 3e12
"""Seconds from 1970 to moments that sources compute with (`dpsql.source.functions.guard_temporal`), almost."""


def limits_of(condition: exp.Expression, extent: Extent, mode: str) -> Limits:
    """Return limits of expressions that follow from a condition.

    Parameters
    ----------
    condition : sqlglot expression
    extent : callable
        Range of an expression, which may be infinite.
    mode : {'true', 'false', 'untrue'}
        What the condition comes out as; 'untrue' is false or NULL.

    Returns
    -------
    dict of str to Range
        Canonical text -> range that the expression's value lies in where it is not NULL.
    """
    while isinstance(condition, exp.Paren):
        condition = condition.this
    if isinstance(condition, exp.Not):
        # NOT p is untrue where p is true or NULL, of which nothing follows
        return {} if mode == "untrue" else limits_of(condition.this, extent, "false" if mode == "true" else "true")
    if isinstance(condition, exp.And | exp.Or):
        parts = [limits_of(side, extent, mode) for side in (condition.this, condition.expression)]
        return _both(*parts) if isinstance(condition, exp.And) == (mode == "true") else _either(*parts)
    if isinstance(condition, exp.Is) and isinstance(condition.expression, exp.Boolean) and condition.expression.this:
        return limits_of(condition.this, extent, "true" if mode == "true" else "untrue")
    if mode == "true" and isinstance(condition, exp.Between):
        low = _compared(exp.GTE, condition.this, condition.args["low"], extent)
        return _both(low, _compared(exp.LTE, condition.this, condition.args["high"], extent))
    if mode == "true" and isinstance(condition, exp.In) and condition.expressions:
        listed = [_point(value, condition.this, extent) for value in condition.expressions]
        return {canonical(condition.this): replace(hull(listed[0], *listed[1:]), whole=False)}
    kind = type(condition)
    if mode != "true":
        # Where the condition is NULL, the other side may be the NULL: then nothing follows unless it is a constant.
        if kind not in _OPPOSITE or (mode == "untrue" and not (_constant(condition.expression) or _constant(condition.this))):
            return {}
        kind = _OPPOSITE[kind]
    if kind not in _FLIPPED:
        return {}
    left, right = _bare(condition.this), _bare(condition.expression)
    if kind is exp.NullSafeEQ and not isinstance(right, exp.Literal | exp.Cast):
        return {}
    return _both(_compared(kind, left, right, extent), _compared(_FLIPPED[kind], right, left, extent))


def is_between(condition: exp.Expression | None, column: exp.Column, extent: Extent) -> bool:
    """Return whether a condition is true only where a column lies between two values: of no NULL, and of nothing infinite.

    ``extent``: range of an expression, as far as nothing is declared.
    """
    # a comparison that is true has no NULL on either side
    parts = () if condition is None else conjuncts(condition)
    limit = _both(*(limits_of(part, extent, "true") for part in parts if isinstance(part, _ORDERED))).get(canonical(column))
    return limit is not None and limit.finite and max(abs(limit.lower), abs(limit.upper)) < _FAR


def _bare(node: exp.Expression) -> exp.Expression:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _constant(node: exp.Expression) -> bool:
    """Return whether a node is a constant that is not NULL (a text that is cast may be none of its type, and NULL)."""
    node = _bare(node)
    return isinstance(node, exp.Literal) or (isinstance(node, exp.Neg | exp.Cast) and _number_or_moment(node))


def _number_or_moment(node: exp.Expression) -> bool:
    inner = _bare(node.this)
    if isinstance(node, exp.Neg) or not isinstance(inner, exp.Literal) or not inner.is_string:
        return isinstance(inner, exp.Literal) and isinstance(node, exp.Neg)
    if node.args["to"].this.value == "TIME":
        return time_of_day(inner.name) is not None
    return moment(inner.name) is not None and node.args["to"].this.value in ("DATE", "TIMESTAMP", "TIMESTAMPNTZ", "TIMESTAMPTZ")


def _point(value: exp.Expression, beside: exp.Expression, extent: Extent) -> Range:
    """Return the range of a value that something is compared with: a text beside a date is a date."""
    if isinstance(value, exp.Literal) and value.is_string and (sort := extent(beside).sort) in (*TEMPORAL, "time"):
        return (time_of_day(value.name) if sort == "time" else moment(value.name, sort)) or extent(value)
    return extent(value)


def _compared(kind: type[exp.Expression], node: exp.Expression, other: exp.Expression, extent: Extent) -> Limits:
    """Return the limit of one side of a comparison that is true."""
    if isinstance(node, exp.Literal | exp.Null | exp.Boolean):
        return {}
    bounds, own = _point(other, node, extent), extent(node)
    if bounds.sort in ("unknown", "nothing"):
        return {}
    lower = bounds.lower if kind in (exp.GT, exp.GTE, exp.EQ, exp.NullSafeEQ) else -INF
    upper = bounds.upper if kind in (exp.LT, exp.LTE, exp.EQ, exp.NullSafeEQ) else INF
    if bounds.sort == "number" and upper < INF and kind not in (exp.EQ, exp.NullSafeEQ) and not _constant(other):
        upper = INF  # the other side may be NaN, than which everything is smaller
    # strictly below a whole number is at most the one before it
    same = own.sort == bounds.sort or not {own.sort, bounds.sort} & {*TEMPORAL}
    if kind in (exp.LT, exp.GT) and own.whole and bounds.whole and same:
        lower, upper = lower + 1, upper - 1
    elif kind in (exp.LT, exp.GT) and own.sort == "timestamp" and bounds.sort in ("date", "timestamp"):
        limit = as_sort(Range(lower, upper, False, bounds.sort), "timestamp")
        return {canonical(node): replace(limit, lower=limit.lower + _STEP, upper=limit.upper - _STEP)}
    return {canonical(node): Range(lower, upper, False, "number" if bounds.sort == "integer" else bounds.sort)}


def _both(*parts: Limits) -> Limits:
    out: Limits = {}
    for part in parts:
        for name, limit in part.items():
            out[name] = meet(out[name], limit) if name in out else limit
    return out


def _either(first: Limits, second: Limits) -> Limits:
    return {name: hull(first[name], second[name]) for name in first.keys() & second.keys()}
