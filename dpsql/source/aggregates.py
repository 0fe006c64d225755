"""The kernel of aggregates and windows: each with the types for which no value makes it fail and no order of rows changes it.

The tables (`dpsql.algebra.aggregates`) say how a user's aggregate is calculated, and which window functions there are;
`BOUND_AGGREGATES` and `BOUND_WINDOWS` are what the plan of DuckDB's binder may hold. No TRY can hold an aggregate, so arguments
are brought into range before it:

- Whole numbers of at most 64 bits and DECIMALs of at most 26 digits are added exactly, in 128 bits: no number of rows that a table
  can have overflows them.
- All other numbers are DOUBLEs within 1e140 (NULL beyond): squares and sums stay finite. Floating-point sums depend on the order
  of their terms, so they are taken of the sorted list, in the layer above, where a TRY stands.
- ``arg_min(x, y)`` is the least pair (y, x), ``any_value`` the least value, ``mode`` the least of the most frequent: a tie is no
  matter of chance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from dpsql.algebra.aggregates import AGGREGATES, INSIDE, WINDOWS, AggregateFunction
from dpsql.algebra.pieces import call, only_if, paren, try_cast
from dpsql.errors import ArgumentError, UnsupportedQuery
from dpsql.source import limits
from dpsql.source.catalog import shipped_kinds
from dpsql.source.expressions import Rewriter
from dpsql.source.kernel import COMPARABLE, INTEGERS, LARGEST_LITERAL, decimal_width, family, is_number
from dpsql.source.layers import Layer, canonical, comparable
from dpsql.source.model import Column, fold, refuse
from dpsql.source.parse import used
from dpsql.source.tuples import as_one

LARGEST = "1e140"
"""Numbers beyond it are NULL in sums, means, variances and quantiles."""
WIDEST_SUM = 26
"""Digits of a DECIMAL that is added as such: 10^12 of them stay within 38 digits."""

BOUND_AGGREGATES = {
    name: tuple(family for one in aggregate.bound for family in (COMPARABLE if one == "comparable" else (one,)))
    for name, aggregate in AGGREGATES.items() if aggregate.bound is not None
}
"""Aggregate -> families of its first argument; '' is any."""
BOUND_WINDOWS = frozenset(f"WINDOW_{name.upper()}" for name in (*WINDOWS, "aggregate"))


@dataclass(frozen=True)
class Combined:
    """A user's aggregate, with its arguments in a layer: what is called on them, and what is made of that in the layer above."""

    name: str
    columns: tuple[Column, ...] = ()
    constants: tuple[exp.Expression, ...] = ()
    distinct: bool = False
    condition: Column | None = None
    after: Callable[[exp.Expression], exp.Expression] | None = None

    def written(self, reference: Callable[[Column], exp.Column]) -> exp.Expression:
        """Return the call, over the columns of the layer below."""
        arguments: list[exp.Expression] = [reference(column) for column in self.columns] or [exp.Star()]
        if self.distinct:
            arguments = [exp.Distinct(expressions=arguments)]
        out: exp.Expression = call(self.name, *arguments, *(c.copy() for c in self.constants))
        return out if self.condition is None else exp.Filter(this=out, expression=exp.Where(this=reference(self.condition)))


def is_aggregate(node: exp.Expression) -> bool:
    """Whether a part of an expression is an aggregate, with its FILTER; one over a window is not."""
    if isinstance(node, exp.Filter):
        return not isinstance(node.parent, exp.Window)
    if not isinstance(node, exp.Anonymous) or not isinstance(node.this, str):
        return False
    holder = node.parent if isinstance(node.parent, exp.Filter) and node.arg_key == "this" else node
    if isinstance(holder.parent, exp.Window) and holder.arg_key == "this":
        return False
    name = node.this.lower()
    return (name in AGGREGATES or shipped_kinds().get(name) == "aggregate") and name not in WINDOWS


def composed(node: exp.Expression) -> exp.Expression | None:
    """Return what an aggregate is made of that is computed of others, ``exp(avg(ln(x)))`` of geomean; None of all others.

    Raises
    ------
    UnsupportedQuery, ArgumentError
        It has other arguments than the function takes.
    """
    called = node.this if isinstance(node, exp.Filter) else node
    name = fold(str(called.this)) if isinstance(called, exp.Anonymous) and isinstance(called.this, str) else ""
    made_of = AGGREGATES[name].composed if name in AGGREGATES else None
    if made_of is None:
        return None
    arguments = called.expressions
    if len(arguments) != 1:
        raise ArgumentError("sql", name, f"takes 1 argument here, not {len(arguments)}")
    if isinstance(arguments[0], exp.Distinct | exp.Order | exp.Star | exp.Kwarg):
        refuse(f"{name}(DISTINCT ...)", f"write {name}(x) of one column or expression", node)
    argument = call(AGGREGATES[name].of, arguments[0].copy()) if AGGREGATES[name].of else arguments[0]

    def of(function: str) -> exp.Expression:
        inner: exp.Expression = call(function, argument.copy())
        return exp.Filter(this=inner, expression=node.expression.copy()) if isinstance(node, exp.Filter) else inner

    return made_of(of)


def combined(node: exp.Expression, layer: Layer, *, repeated: bool = False) -> Combined:
    """Check a user's aggregate and compute its arguments in a layer; ``repeated``: what it gives is repeated for many rows.

    Raises
    ------
    UnsupportedQuery
    """
    scope, at = layer.rows.scope, node
    condition = None
    if isinstance(node, exp.Filter):
        condition = layer.add(Rewriter(scope)(node.expression.this))
        node = node.this
    name = str(node.this).lower() if isinstance(node, exp.Anonymous) else node.key
    if not isinstance(node, exp.Anonymous) or set(used(node)) - {"this", "expressions"} or name not in INSIDE:
        refuse(f"{name}()", AGGREGATES.get(name, AggregateFunction()).instead, at, scope.where)
    arguments, kind = list(node.expressions), INSIDE[name]
    distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
    if distinct:
        arguments = list(arguments[0].expressions)
    if any(isinstance(a, exp.Order | exp.IgnoreNulls | exp.RespectNulls) for a in arguments):
        refuse(f"{name}(... ORDER BY)", "write arg_min(x, y) or a window", at, scope.where)
    # count(*) looks at no value: nothing can fail, and nothing is copied
    if kind == "count" and not distinct and (not arguments or (len(arguments) == 1 and isinstance(arguments[0], exp.Star))):
        return Combined("count", condition=condition)
    if kind == "count_distinct":
        kind, distinct = "count", True
    # from here on the aggregate has a first argument that is an expression
    many = AGGREGATES[name].arguments
    if len(arguments) != many or isinstance(arguments[0], exp.Star):
        refuse(f"{name}()", f"takes {many} argument{'s' * (many > 1)} here", at, scope.where)
    if kind.startswith("arg_"):
        if distinct:
            refuse(f"{name}(DISTINCT)", "leave DISTINCT out", at, scope.where)
        return _pair(kind, arguments, condition, layer, at, repeated=repeated)
    if kind == "count" and (one := as_one(arguments[0])) is not None:
        if not distinct:  # a tuple is never NULL
            return Combined("count", condition=condition)
        arguments = [one]
    value = Rewriter(scope)(arguments[0])
    # a window gives one row's value to many rows: its size has to have a bound
    if repeated and kind != "count":
        value = limits.repeated(value, scope.type_of(value), at, scope.where)
    return _single(name, kind, value, arguments, distinct, condition, layer, at)


def _single(
    name: str,
    kind: str,
    value: exp.Expression,
    arguments: list[exp.Expression],
    distinct: bool,
    condition: Column | None,
    layer: Layer,
    at: exp.Expression,
) -> Combined:
    """Return an aggregate of one value."""
    scope = layer.rows.scope
    sql_type = scope.type_of(value)
    # a NULL that is written out has a type of its own, for which no aggregate is listed
    if sql_type == '"NULL"':
        value, sql_type = try_cast(value, "INTEGER"), "INTEGER"
    if kind in ("bool_and", "bool_or", "count_if"):
        if sql_type != "BOOLEAN":
            refuse(f"{name}()", f"needs a BOOLEAN, not {sql_type}; write a condition", at, scope.where)
        if kind == "count_if":
            return Combined("count", (layer.add(only_if(value, exp.Literal.number(1))),), condition=condition)
        return Combined(kind, (layer.add(value),), condition=condition)
    if kind == "count":
        if distinct and not comparable(sql_type):
            refuse("count(DISTINCT)", f"values of {sql_type} may be equal without being the same; CAST it", at, scope.where)
        return Combined("count", (layer.add(canonical(value, sql_type)),), distinct=distinct, condition=condition)
    # what comes out is one of the values: equal ones must be the same value, or chance would choose
    if AGGREGATES[kind].picks:
        if not comparable(sql_type):
            refuse(f"{name}()", f"not defined here for {sql_type}; CAST it", at, scope.where)
        column = layer.add(canonical(value, sql_type))
        if kind == "mode":
            return Combined("list", (column,), distinct=distinct, condition=condition, after=_of_list("mode"))
        constants = (_fraction(name, arguments[1], at, scope.where),) if kind == "quantile_disc" else ()
        return Combined(kind, (column,), constants, distinct and not AGGREGATES[kind].idempotent, condition)
    if sql_type == "BOOLEAN" and kind in ("sum", "avg"):
        value, sql_type = try_cast(value, "INTEGER"), "INTEGER"
    # from here on the value is calculated with
    if not is_number(sql_type):
        refuse(f"{name}()", f"needs a number, not {sql_type}; CAST it", at, scope.where)
    # exact sums do not depend on the order of rows, so DuckDB adds them up itself
    if sql_type in INTEGERS and kind in ("sum", "avg"):
        return Combined(kind, (layer.add(try_cast(value, "BIGINT")),), (), distinct, condition)
    if kind == "sum" and (decimal_width(sql_type) or 99) <= WIDEST_SUM:
        return Combined(kind, (layer.add(value),), (), distinct, condition)
    # the rest is floating point: brought into range, and taken of a sorted list where the order of terms would show
    column = layer.add(_in_range(value, sql_type))
    if kind in ("median", "quantile_cont"):
        fraction = _fraction(name, arguments[1], at, scope.where) if kind == "quantile_cont" else exp.Literal.number("0.5")
        return Combined("quantile_cont", (column,), (fraction,), distinct, condition)
    return Combined("list", (column,), (), distinct, condition, _of_list(kind))


def _in_range(value: exp.Expression, sql_type: str) -> exp.Expression:
    """Return a number as a DOUBLE, NULL where its square could leave the range; NaN is beyond every number."""
    double = value if sql_type == "DOUBLE" else try_cast(value, "DOUBLE")
    bound = exp.Literal.number(LARGEST)
    inside = exp.Between(this=paren(double.copy()), low=exp.Neg(this=bound), high=bound.copy())
    return only_if(inside, canonical(double, "DOUBLE"))


def _pair(
    kind: str, arguments: list[exp.Expression], condition: Column | None, layer: Layer, at: exp.Expression, *, repeated: bool
) -> Combined:
    """Return ``arg_min(x, y)``: x of the least pair (y, x) that has both."""
    scope = layer.rows.scope
    values = [Rewriter(scope)(a) for a in arguments]
    # both are compared: the least pair must be one pair, whatever the order of rows
    types = [scope.type_of(v) for v in values]
    for sql_type in types:
        if not comparable(sql_type):
            refuse(f"{kind}()", f"not defined here for {sql_type}; CAST it", at, scope.where)
    if repeated:
        values = [limits.repeated(v, t, at, scope.where) for v, t in zip(values, types, strict=True)]
    x, y = (canonical(v, t) for v, t in zip(values, types, strict=True))
    pair = call("struct_pack", *(exp.PropertyEQ(this=exp.to_identifier(n), expression=v) for n, v in (("y", y), ("x", x))))
    known = [exp.Not(this=exp.Is(this=paren(v.copy()), expression=exp.Null())) for v in values]
    column = layer.add(only_if(exp.and_(*known), pair))
    return Combined(
        kind[-3:], (column,), (), False, condition, lambda pair: call("struct_extract", pair, exp.Literal.string("x"))
    )


def _of_list(kind: str) -> Callable[[exp.Expression], exp.Expression]:
    return lambda values: call("list_aggregate", call("list_sort", values), exp.Literal.string(kind))


def _fraction(name: str, node: exp.Expression, at: exp.Expression, where: str) -> exp.Expression:
    """Return the constant of a quantile, from 0 to 1."""
    try:
        good = isinstance(node, exp.Literal) and not node.is_string and 0 <= float(node.name) <= 1
    except ValueError:
        good = False
    if not good:
        refuse(f"{name}()", "the second argument is a number from 0 to 1, written out", at, where)
    return exp.Cast(this=node.copy(), to=exp.DataType.build("DOUBLE"))


def whole(node: exp.Expression | None, name: str, least: int, at: exp.Expression, where: str) -> exp.Expression:
    """Return a constant whole number of a window."""
    good = (
        isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() and least <= int(node.name) <= LARGEST_LITERAL
    )
    if node is None or not good:
        refuse(name, f"this number must be whole, from {least} to {LARGEST_LITERAL}, written out", at, where)
    return node.copy()


def check_combining(node: dict[str, object], name: str, types: list[str]) -> set[str]:
    """Refuse an aggregate or window of the bound plan that is not listed; return the functions that it calls.

    Parameters
    ----------
    node : dict
        Of class BOUND_AGGREGATE or BOUND_WINDOW.
    name : str
        Of the aggregate, '' for a window function.
    types : list of str
        Of the arguments.

    Raises
    ------
    UnsupportedQuery
    """
    kind = str(node.get("type"))
    if node["expression_class"] == "BOUND_WINDOW" and kind not in BOUND_WINDOWS:
        raise UnsupportedQuery(kind, "not on the list of windows inside of a privacy unit")
    if kind not in ("BOUND_AGGREGATE", "WINDOW_AGGREGATE"):
        return {kind.removeprefix("WINDOW_").lower()} & WINDOWS.keys()
    families = BOUND_AGGREGATES.get(name)
    first = types[0] if types else ""
    good = families is not None and (
        families == ("",) or (first == "" and not families) or family(first) in families or first == "NULL"
    )
    if good and name == "sum" and family(first) == "DECIMAL":
        good = (decimal_width(first) or 99) <= WIDEST_SUM
    if not good:
        raise UnsupportedQuery(f"{name}({', '.join(types)})", "not on the list of aggregates inside of a privacy unit")
    return {name}
