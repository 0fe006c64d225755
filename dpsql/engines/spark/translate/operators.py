"""Arithmetic and comparisons: DuckDB's rules in Spark's SQL.

Whole numbers and decimals are exact on both sides, or refused. Where DuckDB raises (and a source's TRY gives NULL), ``try_`` gives
NULL, in both of Spark's modes; of decimals, whose ``try_`` functions not every server has, the number of digits shows that nothing
can overflow. Floating-point numbers are IEEE doubles on both sides; each operand is brought to the type of the result first, for
Spark would divide FLOATs as DOUBLEs, and what divides is NULL where it is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from dpsql.engines.spark.translate.binding import Binder
from dpsql.engines.spark.translate.casts import converted
from dpsql.engines.spark.translate.literals import constant
from dpsql.engines.spark.translate.types import (  # fmt: skip
    BITS,
    FLOATS,
    NULL,
    SIGNED,
    TEXT,
    UNSIGNED,
    WIDE,
    Typed,
    decimal,
    digits,
    is_exact,
    is_integer,
    of_type,
    refuse,
    spark_type,
    tried,
)

_TRY = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "%": "try_mod"}


def implicit(value: Typed, target: str, binder: Binder) -> Typed:
    """Return a value in the type that DuckDB's binder brings it to."""
    # constants are cast by DuckDB: of a text the two might make different values
    if value.constant and value.type == TEXT and target != TEXT and isinstance(value.value, str):
        return binder.cast_text(value.value, target)
    if value.constant and isinstance(value.value, Decimal) and target in FLOATS:
        return binder.cast_decimal(value.value, value.type, target)
    return converted(value, target, checked=False)


def unified(values: Sequence[Typed], binder: Binder, target: str = "") -> list[Typed]:
    """Return values in one type, the one in which DuckDB compares them or returns one of them."""
    if not target:
        # a constant text takes the type of what it is compared with
        typed = [v for v in values if not (v.constant and v.type == TEXT)]
        target = binder.common(typed) if typed else TEXT
    return [implicit(value, target, binder) for value in values]


def compared(left: Typed, right: Typed, binder: Binder) -> tuple[str, str]:
    """Return both sides of a comparison in types that Spark compares as DuckDB does."""
    a, b = digits(left), digits(right)
    if a and b:  # Spark finds the type that holds both where there is one
        if max(a[0], b[0]) + max(a[1], b[1]) > 38:
            refuse(f"a comparison of {left.type} with {right.type}", "38 digits are too few")
        return left.sql, right.sql
    if BITS in (left.type, right.type) and left.type != right.type:
        refuse(f"a comparison of {left.type} with {right.type}")
    first, second = unified([left, right], binder)
    return first.sql, second.sql


def arithmetic(symbol: str, left: Typed, right: Typed, binder: Binder) -> Typed:
    """Return an operation on two numbers.

    Parameters
    ----------
    symbol : {'+', '-', '*', '/', '//', '%'}

    Raises
    ------
    UnsupportedQuery
    """
    kind = binder.type_of(f"{{}} {symbol} {{}}", left, right)
    if BITS in (left.type, right.type):
        return _bits(symbol, left, right)
    if left.type == "DATE" and symbol in "+-":
        return _days(symbol, left, right, kind)
    if kind in FLOATS:
        return _floating(symbol, converted(left, kind, checked=False), converted(right, kind, checked=False), kind)
    if kind in SIGNED and is_integer(left.type) and is_integer(right.type):
        return _whole(symbol, converted(left, kind, checked=False), converted(right, kind, checked=False), kind)
    if kind == WIDE and is_integer(left.type) and is_integer(right.type):
        return _wide(symbol, left, right)
    if decimal(kind) and is_exact(left.type) and is_exact(right.type):
        return _decimal(symbol, left, right, kind)
    return refuse(f"{left.type} {symbol} {right.type}")


def _bits(symbol: str, left: Typed, right: Typed) -> Typed:
    """Return a sum or product of packed codes, which are below 2^63."""
    if symbol not in "+*" or not all(v.type == BITS or is_integer(v.type) for v in (left, right)):
        refuse(f"{left.type} {symbol} {right.type}")
    sides = ((value if value.type == BITS else converted(value, "BIGINT", checked=False)).sql for value in (left, right))
    return of_type(f"{_TRY[symbol]}({', '.join(sides)})", BITS)


def _days(symbol: str, left: Typed, right: Typed, kind: str) -> Typed:
    if right.type == "DATE" and symbol == "-" and kind == "BIGINT":
        return of_type(f"CAST(datediff({left.sql}, {right.sql}) AS BIGINT)", kind)
    if kind == "DATE" and right.type in SIGNED and right.type != "BIGINT":
        return of_type(f"{'date_add' if symbol == '+' else 'date_sub'}({left.sql}, {right.sql})", kind)
    return refuse(f"{left.type} {symbol} {right.type}")


def _floating(symbol: str, left: Typed, right: Typed, kind: str) -> Typed:
    if symbol in "/%":
        # a divisor of zero gives NULL in a source, and no infinity
        safe = right.constant and right.value not in (0, None)
        divisor = right.sql if safe else f"nullif({right.sql}, CAST(0 AS {kind}))"
        quotient = f"({left.sql} {symbol} {divisor})"
        return of_type(quotient if kind == "DOUBLE" else f"CAST({quotient} AS FLOAT)", kind)
    if symbol == "//":
        refuse("// of floating-point numbers", "write floor(a / b)")
    return of_type(f"({left.sql} {symbol} {right.sql})", kind)


def _whole(symbol: str, left: Typed, right: Typed, kind: str) -> Typed:
    if symbol == "/":
        refuse("/ of whole numbers as a whole number")
    if symbol != "//":
        return of_type(f"{_TRY[symbol]}({left.sql}, {right.sql})", kind)
    if right.constant and isinstance(right.value, int) and right.value > 0:
        return of_type(f"CAST(({left.sql} div {right.sql}) AS {spark_type(kind)})", kind)
    return of_type(tried(_divided(left.sql, right.sql), spark_type(kind)), kind)


def _divided(left: str, right: str) -> str:
    """Return a quotient cut towards zero, as a DECIMAL(38,0): the one that leaves 64 bits is there."""
    negative = f"CAST((CAST(0 AS DECIMAL(20,0)) - CAST({left} AS DECIMAL(20,0))) AS DECIMAL(38,0))"
    quotient = f"CAST((CAST({left} AS BIGINT) div CAST({right} AS BIGINT)) AS DECIMAL(38,0))"
    return f"(CASE WHEN {right} = -1 THEN {negative} WHEN {right} <> 0 THEN {quotient} END)"


def _wide(symbol: str, left: Typed, right: Typed) -> Typed:
    if symbol == "//":
        return of_type(_divided(_narrow(left), _narrow(right)), WIDE)
    if symbol == "/":
        refuse("/ of HUGEINT")
    if symbol == "%":  # the smallest number by -1 is no quotient of 64 bits
        if not all(map(_is_narrow, (left, right))):
            dividend, divisor = (f"CAST({(value.narrow or value).sql} AS DECIMAL(38,0))" for value in (left, right))
            return of_type(f"CAST(({dividend} % nullif({divisor}, CAST(0 AS DECIMAL(38,0)))) AS DECIMAL(38,0))", WIDE)
        dividend, divisor = (f"CAST({_narrow(value)} AS BIGINT)" for value in (left, right))
        rest = f"({dividend} % nullif(nullif({divisor}, 0L), -1L))"
        exact = f"(CASE WHEN {divisor} = -1L THEN {dividend} - {dividend} ELSE {rest} END)"
        return replace(of_type(f"CAST({exact} AS DECIMAL(38,0))", WIDE), narrow=of_type(exact, "BIGINT"))
    exact, most = _exactly(symbol, left, right, "")
    narrow = of_type(exact, f"DECIMAL({most[0]},0)")
    return replace(of_type(f"CAST({exact} AS DECIMAL(38,0))", WIDE), narrow=narrow)


def _is_narrow(value: Typed) -> bool:
    """Return whether a whole number is known to be one of 64 bits."""
    if value.constant and isinstance(value.value, int):
        return -(1 << 63) <= value.value < 1 << 63
    return (value if value.narrow is None else value.narrow).type in (*SIGNED, *UNSIGNED)


def _narrow(value: Typed) -> str:
    """Return a HUGEINT that is a number of 64 bits as that."""
    if not _is_narrow(value):
        return refuse("// of HUGEINT")
    if value.constant and isinstance(value.value, int):
        return constant(value.value, "BIGINT").sql
    return (value.narrow or value).sql


def _decimal(symbol: str, left: Typed, right: Typed, kind: str) -> Typed:
    """Return exact decimal arithmetic: Spark rounds where 38 digits are too few, and then it is refused."""
    exact, _ = _exactly(symbol, left, right, "; CAST both to DOUBLE")
    return of_type(tried(exact, spark_type(kind)), kind)


def _exactly(symbol: str, left: Typed, right: Typed, way: str) -> tuple[str, tuple[int, int]]:
    """Return a sum, difference or product of whole numbers and decimals, which cannot overflow, and its digits around the point."""
    left, right = left.narrow or left, right.narrow or right  # as few digits as there are
    a, b = digits(left), digits(right)
    if a is None or b is None or symbol not in "+-*":
        return refuse(f"{left.type} {symbol} {right.type}", f"no exact rule{way}")
    before, behind = (a[0] + b[0], a[1] + b[1]) if symbol == "*" else (max(a[0], b[0]) + 1, max(a[1], b[1]))
    if before + behind + (symbol == "*" and behind > 0) > 38:
        refuse(f"{left.type} {symbol} {right.type}", f"38 digits are too few{way}")
    sides = [f"CAST({value.sql} AS DECIMAL({max(sum(size), 1)},{size[1]}))" for value, size in ((left, a), (right, b))]
    return f"({sides[0]} {symbol} {sides[1]})", (max(before, 1), behind)


def negative(value: Typed, binder: Binder) -> Typed:
    """Return a number with the other sign; NULL where its type does not hold it."""
    kind = binder.type_of("-{}", value)
    if kind == NULL or not (kind in FLOATS or is_exact(kind)):
        refuse(f"- of {value.type}")
    if kind in SIGNED:
        return of_type(f"try_subtract(CAST(0 AS {spark_type(kind)}), {converted(value, kind, checked=False).sql})", kind)
    if kind in FLOATS:
        return of_type(f"(-{converted(value, kind, checked=False).sql})", kind)
    narrow = value.narrow or value
    size = digits(narrow) if narrow.type != WIDE else None
    if size is None:
        return refuse(f"- of {value.type}")
    exact = f"DECIMAL({max(sum(size), 1)},{size[1]})"
    return of_type(f"CAST((CAST(0 AS {exact}) - CAST({narrow.sql} AS {exact})) AS {spark_type(kind)})", kind)


def shifted(symbol: str, left: Typed, right: Typed) -> Typed:
    """Return an operation on the bits of packed codes and hashes."""
    if left.type != BITS:
        refuse(f"{left.type} {symbol} {right.type}")
    if symbol == ">>" and right.constant and isinstance(right.value, int) and 0 <= right.value < 64:
        if not right.value:
            return left
        return of_type(f"(shiftright({left.sql}, {right.value}) & {(1 << 64 - right.value) - 1}L)", BITS)  # signed on every server
    if symbol in "&|" and right.constant and isinstance(right.value, int) and 0 <= right.value < 1 << 64:
        return of_type(f"({left.sql} {symbol} {constant(right.value, BITS).sql})", BITS)
    if symbol in "&|" and right.type == BITS:
        return of_type(f"({left.sql} {symbol} {right.sql})", BITS)
    return refuse(f"{left.type} {symbol} {right.type}")
