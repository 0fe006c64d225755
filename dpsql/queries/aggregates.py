"""Aggregates of a query: which can be answered privately, in one form for all spellings; the others are refused with a way out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from dpsql.algebra.aggregates import AGGREGATES, DISTINCT, PAIRS, QUANTILES, SPELLINGS
from dpsql.errors import ArgumentError
from dpsql.source.model import fold, refuse
from dpsql.source.tuples import as_one

MOST_QUANTILES = 1000

@dataclass(frozen=True)
class Aggregate:
    """One aggregate call of a query.

    Parameters
    ----------
    function : str
        One of the values of `dpsql.algebra.aggregates.SPELLINGS`, or 'count_distinct'; 'count' without arguments counts rows.
    arguments : tuple of expressions
        Over the columns of the row source.
    condition : expression or None
        Of FILTER (WHERE ...).
    quantiles : tuple of float
        Of a quantile; median is .5.
    listed : bool
        Whether the quantiles were given as a list, and so is the answer.
    bounds : tuple of expressions, optional
        Lower and upper bound that GoogleSQL's ``contribution_bounds_per_group`` states.
    """

    function: str
    arguments: tuple[exp.Expression, ...] = ()
    condition: exp.Expression | None = None
    quantiles: tuple[float, ...] = ()
    listed: bool = False
    bounds: tuple[exp.Expression, ...] = ()

    def key(self, canonical: Callable[[exp.Expression], str]) -> str:
        """Return one text for all spellings of the same aggregate."""
        inside = ", ".join(canonical(argument) for argument in self.arguments)
        parts = [f"{self.function}({inside})"]
        if self.quantiles:
            parts.append(("list " if self.listed else "at ") + ", ".join(map(repr, self.quantiles)))
        if self.condition is not None:
            parts.append(f"filter {canonical(self.condition)}")
        return " ".join(parts)


def is_aggregate(node: exp.Expression) -> bool:
    """Return whether a node is a call of an aggregate function, whether it can be answered or not."""
    if isinstance(node, exp.Filter | exp.WithinGroup):
        return True
    return isinstance(node, exp.Anonymous) and isinstance(node.this, str) and fold(node.this) in AGGREGATES


def aggregate_of(node: exp.Expression) -> Aggregate:
    """Return the aggregate that a node (for which `is_aggregate` holds) asks for.

    Raises
    ------
    UnsupportedQuery
        It cannot be answered privately; says which can.
    ArgumentError
        It has other arguments than the function takes.
    """
    condition: exp.Expression | None = None
    ordered: exp.Expression | None = None
    # FILTER and WITHIN GROUP stand around the call, in either order
    while isinstance(node, exp.Filter | exp.WithinGroup):
        if isinstance(node, exp.Filter):
            condition = node.expression.this if isinstance(node.expression, exp.Where) else node.expression
        else:
            ordered = _within_group(node.expression, node)
        node = node.this
    name = fold(str(node.this))
    # what is refused for a reason of its own says that reason
    if name in AGGREGATES and AGGREGATES[name].refused:
        refuse(name, AGGREGATES[name].refused, node)
    if name not in SPELLINGS:
        refuse(f"{name} with FILTER or WITHIN GROUP", "not an aggregate that can be answered privately", node)
    # from here on `function` is the one name that all spellings of an aggregate have
    function, distinct, bounds = SPELLINGS[name], False, ()
    arguments: list[exp.Expression] = []
    for argument in node.expressions:
        if isinstance(argument, exp.Kwarg):
            bounds = _stated_bounds(argument) or bounds
        elif isinstance(argument, exp.Distinct):
            distinct = True
            arguments += argument.expressions
        elif isinstance(argument, exp.Order) and function in QUANTILES and len(node.expressions) == 1:  # DuckDB's WITHIN GROUP
            ordered = _within_group(argument, node)
            arguments.append(argument.this)
        elif isinstance(argument, exp.Order):
            if name in QUANTILES and any(_descends(item) for item in argument.expressions):
                refuse(f"{name}(... ORDER BY ... DESC)", "order ascending, and ask for 1 - q", node)
            arguments.append(argument.this)  # the order of rows does not matter to any of these, but for that
        else:
            arguments.append(argument)
    # WITHIN GROUP has the column, and the brackets the share: the column comes first, as in quantile_cont(x, q)
    if ordered is not None:
        arguments = [ordered, *arguments]
    if distinct:
        function = _distinct(function, node)
    return _checked(name, function, arguments, condition, bounds, node)


def _distinct(function: str, node: exp.Expression) -> str:
    if function in ("count", "count_distinct"):
        return "count_distinct"
    if AGGREGATES[function].idempotent:
        return function
    if f"{function}_distinct" in DISTINCT:
        return f"{function}_distinct"
    known = ", ".join(dict.fromkeys(DISTINCT.values()))
    way = f"only count, {known} of distinct values; or SELECT DISTINCT in a subquery"
    return str(refuse(f"{function}(DISTINCT ...)", way, node))


def _checked(
    name: str,
    function: str,
    arguments: list[exp.Expression],
    condition: exp.Expression | None,
    bounds: tuple[exp.Expression, ...],
    node: exp.Expression,
) -> Aggregate:
    quantiles: tuple[float, ...] = ()
    listed = False
    # the share is no argument of the rows: it is kept beside them
    if function in QUANTILES:
        if len(arguments) != 2:
            raise ArgumentError("sql", name, "takes a column and a quantile, or a list of quantiles: quantile_cont(x, 0.5)")
        quantiles, listed = _quantiles(arguments.pop())
    elif function == "median":
        function, quantiles = "quantile_cont", (0.5,)
    if function == "count" and (not arguments or isinstance(arguments[0], exp.Star)):
        arguments = []
    # a count of a condition is a count(*) with a filter, so both are one question
    if function == "count_if":
        if len(arguments) != 1:
            raise ArgumentError("sql", name, "takes one condition")
        both = arguments[0] if condition is None else exp.and_(condition.copy(), arguments[0].copy())
        return Aggregate("count", (), both)
    if function == "count_distinct" and len(arguments) != 1:
        refuse("count(DISTINCT a, b)", "write count(DISTINCT (a, b)) for combinations, as DuckDB does", node)
    # rows whose argument is NULL do not count, so a condition around it is a filter: then a person can be seen to count once
    if function == "count_distinct" and (chosen := _chosen(arguments[0])) is not None:
        inside, argument = chosen
        condition, arguments = inside if condition is None else exp.and_(condition.copy(), inside.copy()), [argument]
    if function in ("count", "count_distinct") and arguments and (combination := as_one(arguments[0])) is not None:
        arguments = [combination] if function == "count_distinct" else []  # a tuple is never NULL
    # by now every spelling has its arguments in one order
    needed = 2 if function in PAIRS else 0 if function == "count" and not arguments else 1
    if len(arguments) != needed:
        raise ArgumentError("sql", name, f"takes {needed} argument{'' if needed == 1 else 's'} here, not {len(arguments)}")
    for argument in arguments:
        if any(is_aggregate(inner) or isinstance(inner, exp.Window) for inner in argument.walk()):
            advice = "compute the inner one in a subquery that groups by the privacy unit"
            refuse(f"{name} of an aggregate or window", advice, node)
    return Aggregate(function, tuple(arguments), condition, quantiles, listed, bounds)


def _chosen(node: exp.Expression) -> tuple[exp.Expression, exp.Expression] | None:
    """Return condition and value of ``CASE WHEN condition THEN value END``, or of ``if(condition, value, NULL)``; else None."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Anonymous) and fold(str(node.this)) == "if" and len(node.expressions) == 3:
        condition, value, default = node.expressions
        return (condition, value) if isinstance(default, exp.Null) else None
    default = node.args.get("default")
    if not isinstance(node, exp.Case) or len(node.args["ifs"]) != 1 or not (default is None or isinstance(default, exp.Null)):
        return None
    [branch] = node.args["ifs"]
    compared = node.this
    return branch.this if compared is None else exp.EQ(this=compared.copy(), expression=branch.this.copy()), branch.args["true"]


def counts_if(node: exp.Expression) -> bool:
    """Return whether an aggregate is count_if, which DuckDB adds up as a HUGEINT, on every version."""
    while isinstance(node, exp.Filter | exp.Paren):
        node = node.this
    return isinstance(node, exp.Anonymous) and SPELLINGS.get(fold(str(node.this))) == "count_if"


def _within_group(order: exp.Expression, node: exp.Expression) -> exp.Expression:
    if not isinstance(order, exp.Order) or len(order.expressions) != 1:
        return refuse("WITHIN GROUP", "order by one expression", node)
    first = order.expressions[0]
    if _descends(first):
        return refuse("WITHIN GROUP (ORDER BY ... DESC)", "order ascending, and ask for 1 - q", node)
    return first.this if isinstance(first, exp.Ordered) else first


def _descends(item: exp.Expression) -> bool:
    return isinstance(item, exp.Ordered) and bool(item.args.get("desc"))


def _quantiles(node: exp.Expression) -> tuple[tuple[float, ...], bool]:
    listed = isinstance(node, exp.Array | exp.Tuple)
    nodes = node.expressions if listed else [node]
    numbers = []
    for item in nodes:
        inner = item.unnest() if isinstance(item, exp.Paren) else item
        # tools write shares as casts of constants
        while isinstance(inner, exp.Cast):
            inner = inner.this
        if not isinstance(inner, exp.Literal) or inner.is_string or not 0 <= float(inner.name) <= 1:
            refuse("a quantile", "write numbers from 0 to 1: 0.5, or [0.25, 0.5, 0.75]", item)
        numbers.append(float(inner.name))
    if not 1 <= len(numbers) <= MOST_QUANTILES:
        raise ArgumentError("sql", len(numbers), f"1 to {MOST_QUANTILES} quantiles in one list")
    return tuple(numbers), listed


def _stated_bounds(node: exp.Kwarg) -> tuple[exp.Expression, ...]:
    """Return the bounds of GoogleSQL's clause; its other clauses have no meaning here and are refused."""
    name = fold(node.this.name)
    if name in ("contribution_bounds_per_group", "contribution_bounds_per_row"):
        value = node.expression
        if isinstance(value, exp.Tuple) and len(value.expressions) == 2:
            _ascending(value, name)
            return tuple(value.expressions)
        if isinstance(value, exp.Null):
            return ()
        refuse(name, "two numbers: (lower, upper)", node)
    return refuse(f"{name} =>", "not known; bounds := {'column': [lower, upper]} states bounds, weights are an option", node)


def _ascending(pair: exp.Tuple, name: str) -> None:
    """Refuse two numbers of which the second is not larger."""
    numbers = []
    for node in pair.expressions:
        inner = node.this if isinstance(node, exp.Neg) else node
        if isinstance(inner, exp.Literal) and not inner.is_string:
            numbers.append(-float(inner.name) if isinstance(node, exp.Neg) else float(inner.name))
    if len(numbers) == 2 and numbers[0] >= numbers[1]:
        written = ", ".join(node.sql() for node in pair.expressions)
        raise ArgumentError("sql", f"{name} => ({written})", "the lower bound comes first")
