"""Aggregates and windows in Spark's SQL.

A sum of whole numbers is DuckDB's HUGEINT: DECIMAL(38,0), which does not wrap. A sum of floating-point numbers depends on the order
of the rows and is refused. Both engines count NaN as one value and 0.0 and -0.0 as another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.engines.spark.translate.types import NULL, WIDE, Typed, decimal, is_integer, of_type, refuse, spark_type
from dpsql.source.parse import used

if TYPE_CHECKING:
    from dpsql.engines.spark.translate.binding import Binder

AGGREGATES = ("count", "sum", "min", "max", "bool_and", "bool_or")
WINDOWS = ("row_number", "rank", "dense_rank", "count")
Translate = Callable[[exp.Expression], Typed]


def aggregate(name: str, call: exp.Anonymous, condition: str | None, scalar: Translate, binder: Binder) -> Typed:
    """Return an aggregate over rows for which a condition holds."""
    filtered = "" if condition is None else f" FILTER (WHERE {condition})"
    arguments = call.expressions
    if name == "count":
        return of_type(f"count({_counted(arguments, scalar)}){filtered}", "BIGINT")
    if len(arguments) != 1 or isinstance(arguments[0], exp.Distinct | exp.Star):
        refuse(f"{name}() of these arguments")
    value = scalar(arguments[0])
    if name == "sum":
        kind = binder.type_of("sum({})", value)
        size = decimal(kind)
        if not (is_integer(value.type) or value.type == "BOOLEAN" or decimal(value.type)) or not (kind == WIDE or size):
            refuse(f"sum() of {value.type}", "its last digit depends on the order of the rows; CAST to a DECIMAL")
        number = f"CAST({value.sql} AS INT)" if value.type == "BOOLEAN" else value.sql
        return of_type(f"sum(CAST({number} AS {spark_type(kind)})){filtered}", kind)
    if name.startswith("bool") and value.type != "BOOLEAN":
        refuse(f"{name}() of {value.type}")
    if value.type.endswith("[]") or value.type == NULL:
        refuse(f"{name}() of {value.type}")
    return of_type(f"{name}({value.sql}){filtered}", value.type)


def _counted(arguments: list[exp.Expression], scalar: Translate) -> str:
    if not arguments:
        return "*"
    if len(arguments) != 1:
        refuse("count() of several values")
    [inner] = arguments
    if isinstance(inner, exp.Star):
        return "*"
    if not isinstance(inner, exp.Distinct):
        return scalar(inner).sql
    if len(inner.expressions) != 1 or set(used(inner)) != {"expressions"}:
        refuse("count(DISTINCT ...) of several values")
    value = inner.expressions[0]
    if isinstance(value, exp.Struct):  # a NULL in it counts
        fields = [part.expression if isinstance(part, exp.PropertyEQ) else refuse("a struct") for part in value.expressions]
        return f"DISTINCT struct({', '.join(scalar(part).sql for part in fields)})"
    return f"DISTINCT {scalar(value).sql}"


def window(node: exp.Window, call: exp.Anonymous, scalar: Translate) -> Typed:
    """Return a window function without a frame; ``count(*)`` without an order, over all rows of a partition."""
    name, order = call.name.lower(), node.args.get("order")
    if name == "count" and (order is not None or not all(isinstance(each, exp.Star) for each in call.expressions)):
        refuse("count() over an ordered window")
    if name != "count" and (order is None or call.expressions):
        refuse(f"{name}() without ORDER BY")
    by = ", ".join(scalar(each).sql for each in node.args.get("partition_by") or [])
    parts = [f"PARTITION BY {by}"] if by else []
    if order is not None:
        parts.append("ORDER BY " + ", ".join(ordered(each, scalar) for each in order.expressions))
    return of_type(f"CAST({name}({'*' if name == 'count' else ''}) OVER ({' '.join(parts)}) AS BIGINT)", "BIGINT")


def ordered(entry: exp.Expression, scalar: Translate) -> str:
    """Return one key of an order; where NULL goes is always said, for the engines' own choices differ."""
    if not isinstance(entry, exp.Ordered):
        refuse("ORDER BY")
    value = scalar(entry.this)
    if value.constant:
        return "CAST(NULL AS INT)"
    first = bool(entry.args.get("nulls_first"))
    return f"{value.sql} {'DESC' if entry.args.get('desc') else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"
