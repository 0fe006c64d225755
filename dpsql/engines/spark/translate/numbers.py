"""Functions of numbers, and of any values: Spark's SQL that gives what DuckDB gives.

Floating-point functions are those that IEEE 754 rounds correctly. exp, ln, sin and the like are refused: the last digit of a
library's result is its own. Where the two differ: Spark's floor of a DOUBLE is a BIGINT, cut to its range; its isnan(NULL) is
false; its trim, round and greatest know other types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dpsql.engines.spark.translate.binding import Binder
from dpsql.engines.spark.translate.casts import WHOLE, converted
from dpsql.engines.spark.translate.moments import finite
from dpsql.engines.spark.translate.operators import unified
from dpsql.engines.spark.translate.types import (  # fmt: skip
    BITS,
    FLOATS,
    NULL,
    TEMPORAL,
    WIDE,
    Typed,
    decimal,
    is_exact,
    is_integer,
    of_type,
    refuse,
    spark_type,
)

Rule = Callable[[str, Sequence[Typed], Binder], Typed]

def _type(name: str, values: Sequence[Typed], binder: Binder) -> str:
    return binder.type_of(f"{name}({', '.join(['{}'] * len(values))})", *values)


def _double(value: Typed) -> str:
    return converted(value, "DOUBLE", checked=False).sql


def _abs(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    [value] = values
    if value.type in FLOATS or decimal(value.type) or value.type == WIDE:
        return of_type(f"abs({value.sql})", value.type)
    return refuse(f"{name}() of {value.type}")


def _sign(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    [value] = values
    if not (value.type in FLOATS or is_exact(value.type)):
        refuse(f"{name}() of {value.type}")
    number = f"CAST('NaN' AS {value.type})"
    low = f"CASE WHEN {value.sql} < 0 THEN -1Y WHEN {value.sql} = 0{f' OR {value.sql} = {number}' if value.type in FLOATS else ''} "
    kind = _type(name, values, binder)
    return converted(of_type(f"{low}THEN 0Y WHEN {value.sql} > 0 THEN 1Y END", "TINYINT"), kind, checked=False)


def _cut(function: str) -> Rule:
    """Return the rule of a function that gives a whole number."""

    def rule(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
        if len(values) > 1 and values[1].value != 0:
            return _decimals(name, values, binder)
        value = values[0]
        kind = _type(name, values, binder)
        if is_integer(value.type):
            return converted(value, kind, checked=False)
        if decimal(value.type) and is_exact(kind):
            return of_type(f"CAST({_written(function, value.sql)} AS {spark_type(kind)})", kind)
        if value.type not in FLOATS:
            refuse(f"{name}() of {value.type}")
        number = _double(value)
        if function == "round":
            return converted(of_type(f"round({number}, 0)", "DOUBLE"), kind, checked=False)
        small = f"CASE WHEN abs({number}) < {WHOLE} THEN CAST({_written(function, number)} AS DOUBLE) ELSE {number} END"
        return converted(of_type(f"({small})", "DOUBLE"), kind, checked=False)

    return rule


def _written(function: str, value: str) -> str:
    if function == "trunc":
        return f"(CASE WHEN {value} < 0 THEN ceil({value}) ELSE floor({value}) END)"
    return f"round({value}, 0)" if function == "round" else f"{function}({value})"


def _decimals(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    """Round a DECIMAL to a number of digits; of a DOUBLE, DuckDB rounds the product with a power of ten."""
    value, places = values
    kind = _type(name, values, binder)
    if name != "round" or not decimal(value.type) or not decimal(kind) or not isinstance(places.value, int):
        refuse(f"{name}() of {value.type} to some digits", "CAST it to a DECIMAL")
    return of_type(f"CAST(round({value.sql}, {places.value}) AS {spark_type(kind)})", kind)


def _root(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    return of_type(f"sqrt({_double(values[0])})", "DOUBLE")


def _nan(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    [value] = values
    if value.type not in FLOATS:
        return refuse(f"{name}() of {value.type}")
    return of_type(f"(CASE WHEN {value.sql} IS NOT NULL THEN isnan({value.sql}) END)", "BOOLEAN")


def _infinite(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    [value] = values
    if value.type in TEMPORAL:  # Spark has no infinite dates
        return of_type(f"({value.sql} <> {value.sql})", "BOOLEAN")
    if value.type not in FLOATS:
        return refuse(f"{name}() of {value.type}")
    return of_type(f"(abs({value.sql}) = CAST('Infinity' AS {value.type}))", "BOOLEAN")


def _one_of(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    """Return greatest, least or coalesce: NULL is left out by both engines, NaN is the greatest number of both."""
    kind = binder.common(values) if name != "coalesce" else _type(name, values, binder)
    if all(value.type == NULL for value in values):
        return of_type("NULL", NULL)
    listed = unified(values, binder, kind)
    if len(listed) == 1:
        return listed[0]
    if name != "coalesce" and kind in (BITS, "BOOLEAN", "VARCHAR[]"):
        refuse(f"{name}() of {kind}")
    return of_type(f"{name}({', '.join(value.sql for value in listed)})", kind)


def _hash(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    """Return 64 bits of the values.

    Other bits than DuckDB's: `dpsql.domains.bounding` proves its bound for every function of a unit's own rows and the salt, and
    puts rows together by their values and not by their hash. NULL adds nothing to Spark's hash, so rows may have equal ones; they
    are ordered by their values then.
    """
    return of_type(f"xxhash64({', '.join(value.sql for value in values)})", BITS)


def _pi(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    return of_type("pi()", "DOUBLE")


NUMBERS: dict[str, Rule] = {
    "abs": _abs,
    "sign": _sign,
    "floor": _cut("floor"),
    **dict.fromkeys(("ceil", "ceiling"), _cut("ceil")),
    "trunc": _cut("trunc"),
    "round": _cut("round"),
    "sqrt": _root,
    "isnan": _nan,
    "isinf": _infinite,
    "isfinite": finite,
    **dict.fromkeys(("greatest", "least", "coalesce"), _one_of),
    "hash": _hash,
    "pi": _pi,
}
"""Name -> rule. What is not here is refused: exp, ln, log, sin, pow and other functions whose last digit is a library's own."""
