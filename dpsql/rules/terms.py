"""Bounds of the sides of a comparison, for every code: what the values in a bin can be, whatever they are.

Numbers are float64 bounds, rounded outwards where a bound has no float64; moments are microseconds since 1970 (since midnight for
TIME). A side that is not understood has no bounds, and the comparison may come out in any way.

Privacy: none; public domains and rules alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from dpsql.algebra.functions import called
from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute
from dpsql.domains.sqltypes import SqlType
from dpsql.numerics.arrays import FloatArray

_DAY = 86_400_000_000
_UNITS = {
    "SECOND": (1_000_000, 1_000_000), "MINUTE": (60_000_000, 60_000_000), "HOUR": (_DAY // 24, _DAY // 24), "DAY": (_DAY, _DAY),
    "WEEK": (7 * _DAY, 7 * _DAY), "MONTH": (28 * _DAY, 31 * _DAY), "YEAR": (365 * _DAY, 366 * _DAY),
}
"""Least and most microseconds of a unit of time."""
_MICROS = {"DATE": _DAY, "TIMESTAMP_S": 1_000_000, "TIMESTAMP_MS": 1_000, "TIMESTAMP": 1, "TIMESTAMP WITH TIME ZONE": 1, "TIME": 1}
_ZONED = "TIMESTAMP WITH TIME ZONE"
_YEARS = (-62_135_596_800_000_000, 253_402_214_400_000_000)  # 0001-01-01 and 9999-12-31
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Term:
    """One side of a comparison.

    Parameters
    ----------
    low, high : float64 array
        Bounds of the values, of the shape that all codes together are broadcast to.
    null, value : bool array
        Whether NULL is possible; whether anything else is.
    kind : str
        'number', or the type of a moment; 'text' for a text constant that may be read as either.
    least, most : float
        Range in which its type surely holds results of arithmetic; beyond it, NULL is possible.
    single : bool
        Whether it is FLOAT, to which the other side is then rounded.
    text : str
        Of a text constant.
    """

    low: FloatArray
    high: FloatArray
    null: Mask
    value: Mask
    kind: str
    least: float = -math.inf
    most: float = math.inf
    single: bool = False
    text: str = ""


def exact(text: str) -> Fraction:
    """Return the number that a text writes out.

    Raises
    ------
    ValueError
        It is none, or so large or small that reading it would take long.
    """
    try:
        number = Decimal(text)
    except ArithmeticError:
        raise ValueError(text) from None
    if not number.is_finite() or len(text) > 1_000 or (number and abs(number.adjusted()) > 400):
        raise ValueError(text)
    return Fraction(number)


def outward(number: Fraction | int) -> tuple[float, float]:
    """Return the closest float64 numbers around an exact one, twice itself where it is one.

    Examples
    --------
    >>> outward(Fraction(1, 2)), outward(Fraction(1, 10))
    ((0.5, 0.5), (0.09999999999999999, 0.1))
    """
    try:
        near = float(number)
    except OverflowError:
        return (math.nextafter(math.inf, 0), math.inf) if number > 0 else (-math.inf, math.nextafter(-math.inf, 0))
    below = near if Fraction(near) <= number else math.nextafter(near, -math.inf)
    return below, near if Fraction(near) >= number else math.nextafter(near, math.inf)


def column_term(attribute: Attribute, axis: int, axes: int) -> Term | None:
    """Return the bounds of a column's values, code by code along its axis; None for texts and the like."""
    parsed = sqltypes.parse(attribute.sql_type)
    bounds = _bounds(attribute, parsed)
    if bounds is None:
        return None
    # Codes behind the values, NULL among them, have no bounds: zero stands there, and is not looked at.
    rest = attribute.size - attribute.values
    shape = [1] * axes
    shape[axis] = attribute.size
    low = np.asarray([b[0] for b in bounds] + [0.0] * rest).reshape(shape)
    high = np.asarray([b[1] for b in bounds] + [0.0] * rest).reshape(shape)
    null = (np.arange(attribute.size) >= attribute.values).reshape(shape)
    if parsed.family == "temporal":
        return Term(low, high, null, ~null, parsed.text, *_YEARS)
    least, most = (-math.inf, math.inf) if parsed.family == "float" else _range(parsed)
    return Term(low, high, null, ~null, "number", least, most, parsed.text == "FLOAT")


def _range(parsed: SqlType) -> tuple[float, float]:
    unit = 10**parsed.scale
    return outward(Fraction(parsed.low, unit))[1], outward(Fraction(parsed.high, unit))[0]


def _bounds(attribute: Attribute, parsed: SqlType) -> list[tuple[float, float]] | None:
    """Return least and largest value of each code that has values."""
    if parsed.family not in ("integer", "decimal", "float", "temporal"):
        return None
    if attribute.kind == "categorical":
        try:
            if parsed.family == "temporal":
                return None
            return [outward(exact(text)) for text in attribute.categories]
        except ValueError:
            return None
    grid = sqltypes.grid(parsed, attribute.edges)
    if grid is None:
        # Real numbers: a bin ends just below the next one's start.
        edges = [float(edge) for edge in attribute.edges]
        if parsed.text == "FLOAT":
            first, last = sqltypes.float32_bounds(edges)
            return list(zip(first.astype(float).tolist(), last.astype(float).tolist(), strict=True))
        ends = [math.nextafter(edge, -math.inf) for edge in edges[1:-1]] + edges[-1:]
        return list(zip(edges[:-1], ends, strict=True))
    if parsed.family == "temporal":
        size = Fraction(1, 1000) if parsed.text == "TIMESTAMP_NS" else Fraction(_MICROS[parsed.text])
    else:
        size = Fraction(1, 10**parsed.scale)
    return [(outward(a * size)[0], outward((b - 1) * size)[1]) for a, b in zip(grid[:-1], grid[1:], strict=True)]


def term(node: exp.Expression, columns: Mapping[str, Term | None], axes: int) -> Term | None:
    """Return the bounds of an expression, None where it is not understood."""
    if type(node) is exp.Paren:
        return term(node.this, columns, axes)
    if type(node) is exp.Column:
        return columns[node.name]
    if type(node) is exp.Literal:
        return _constant(node, axes)
    if type(node) is exp.Neg:
        inner = term(node.this, columns, axes)
        if inner is None or inner.kind != "number":
            return None
        return _within(replace(inner, low=-inner.high, high=-inner.low), inner)
    if type(node) in (exp.Cast, exp.TryCast):
        return _cast(node, columns, axes)
    if type(node) in (exp.Add, exp.Sub):
        return _sum(node, columns, axes)
    function = called(node)
    # Days alone: of other units a difference depends on where in the unit the moments lie.
    if function is not None and function.name == "date_diff" and len(node.expressions) == 3:
        unit, start, end = node.expressions
        if type(unit) is exp.Literal and unit.name.lower() == "day":
            left, right = term(end, columns, axes), term(start, columns, axes)
            return _days(left, right) if left is not None and right is not None else None
    return None


def _constant(node: exp.Literal, axes: int) -> Term | None:
    yes, no = np.ones([1] * axes, bool), np.zeros([1] * axes, bool)
    zero = np.zeros([1] * axes)
    if node.is_string:
        return Term(zero, zero, no, yes, "text", text=node.name)
    try:
        low, high = outward(exact(node.name))
    except ValueError:
        return None
    return Term(zero + low, zero + high, no, yes, "number")


def moment(constant: Term, kind: str) -> Term | None:
    """Return a text constant read as a moment of a type."""
    parsed = sqltypes.parse(kind)
    if parsed.text not in _MICROS:
        return None
    try:
        micros = sqltypes.steps_of(parsed, constant.text) * _MICROS[parsed.text]
    except (ValueError, OverflowError):
        return None
    low, high = outward(micros)
    return replace(constant, low=constant.low * 0 + low, high=constant.high * 0 + high, kind=parsed.text)


def _cast(node: exp.Expression, columns: Mapping[str, Term | None], axes: int) -> Term | None:
    """Return a constant date or timestamp, or a date as a timestamp."""
    known = {"DATE": "DATE", "TIMESTAMP": "TIMESTAMP", "TIMESTAMPNTZ": "TIMESTAMP", "TIME": "TIME", "TIMESTAMPTZ": _ZONED}
    kind = known.get(node.args["to"].this.value)
    inner = term(node.this, columns, axes)
    if kind is None or inner is None:
        return None
    if inner.kind == "text":
        return moment(inner, kind)
    return replace(inner, kind=kind) if inner.kind == kind or (inner.kind, kind) == ("DATE", "TIMESTAMP") else None


def _sum(node: exp.Expression, columns: Mapping[str, Term | None], axes: int) -> Term | None:
    """Return a sum or difference of numbers, a date plus days or an interval, or the days between two dates."""
    sign = 1 if type(node) is exp.Add else -1
    left = term(node.this, columns, axes)
    if left is None:
        return None
    if type(node.expression) is exp.Interval:
        size = _UNITS.get(node.expression.args["unit"].name.upper().removesuffix("S"))
        amount = node.expression.this.name
        if size is None or not amount.isdigit() or len(amount) > 9 or left.kind not in ("DATE", "TIMESTAMP"):
            return None
        least, most = sorted(float(sign * unit * int(amount)) for unit in size)
        return _within(replace(left, low=_added(left.low, least, -1), high=_added(left.high, most, 1), kind="TIMESTAMP"), left)
    right = term(node.expression, columns, axes)
    if right is None:
        return None
    if left.kind == right.kind == "DATE" and sign < 0:
        return _days(left, right)
    if left.kind == "DATE" and right.kind == "number":
        right = replace(right, low=right.low * _DAY, high=right.high * _DAY)
    elif left.kind != "number" or right.kind != "number" or left.single or right.single:
        return None
    # Subtracting exchanges the ends.
    ends = (right.low, right.high) if sign > 0 else (-right.high, -right.low)
    total = replace(
        left, low=_added(left.low, ends[0], -1), high=_added(left.high, ends[1], 1), null=left.null | right.null,
        value=left.value & right.value, least=max(left.least, right.least) if left.kind == "number" else left.least,
        most=min(left.most, right.most) if left.kind == "number" else left.most,
    )
    return _within(total, total)


def _days(left: Term, right: Term) -> Term | None:
    """Return the days from one date to another."""
    if (left.kind, right.kind) != ("DATE", "DATE"):
        return None
    return replace(
        left, low=(left.low - right.high) / _DAY, high=(left.high - right.low) / _DAY, null=left.null | right.null,
        value=left.value & right.value, kind="number", least=-math.inf, most=math.inf,
    )


def _within(side: Term, limits: Term) -> Term:
    """Return a result that may be NULL where its type may not hold it."""
    beyond = (side.low < limits.least) | (side.high > limits.most)
    return replace(side, null=side.null | (beyond & side.value))


def _added(a: FloatArray, b: FloatArray | float, way: int) -> FloatArray:
    """Return a sum, rounded down (way -1) or up (1) where it is not exact; whole numbers below 2^53 are."""
    total = a + b
    whole = (np.abs(total) < 2.0**53) & (a == np.floor(a)) & (b == np.floor(b))
    rounded: FloatArray = np.where(whole, total, np.nextafter(total, way * np.inf))
    return rounded
