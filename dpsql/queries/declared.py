"""Ranges of what is declared or written out: types, attributes, constants.

Privacy: none; public declarations alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from dpsql.algebra.moments import moment, time_of_day
from dpsql.algebra.ranges import INF, NUMBER, TEMPORAL, TRUTH, UNKNOWN, Range, as_sort, hull, meet
from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute

_NARROW = 200_000
"""Width of a type whose bounds are worth something: up to 16 bits or 5 digits."""
_ROUNDED, _MOST_STEPS = 1e-6, 10**12
"""By how much of a step of its type a bound is off that was computed, where doubles are much finer than its steps."""


def range_of_type(sql_type: str) -> Range:
    """Return the range of a type. Of types of more than 16 bits (or 5 digits) it is infinite: such bounds say nothing about values.

    Examples
    --------
    >>> range_of_type("UTINYINT"), range_of_type("BIGINT").finite
    (Range(lower=0.0, upper=255.0, whole=True, sort='integer'), False)
    """
    return typed_range(sql_type, _NARROW)


def range_of_attribute(attribute: Attribute) -> Range:
    """Return the range of a declared column; that of its type where it is a text.

    Examples
    --------
    >>> range_of_attribute(Attribute("d", "DATE", "temporal", edges=("1970-01-02", "1970-01-05")))
    Range(lower=1.0, upper=4.0, whole=True, sort='date')
    """
    return range_of_values(attribute.sql_type, attribute.categories if attribute.kind == "categorical" else attribute.edges)


def range_of_values(sql_type: str, values: Sequence[object]) -> Range:
    """Return the range of values of a type, as numbers or texts; that of the type where one of them is none.

    Examples
    --------
    >>> range_of_values("INTEGER", ["3", "10"]), range_of_values("DATE", [None, None]).finite
    (Range(lower=3.0, upper=10.0, whole=True, sort='integer'), False)
    """
    typed = typed_range(sql_type)
    if typed.sort == "unknown" or typed == TRUTH or not values:
        return range_of_type(sql_type)
    if typed.sort == "time":
        points = [time_of_day(str(text)) for text in values]
    else:
        points = [moment(str(text), typed.sort) if typed.sort in TEMPORAL else _number(str(text)) for text in values]
    readable = [p for p in points if p is not None]
    if len(readable) < len(points):
        return range_of_type(sql_type)
    if typed.sort in (*TEMPORAL, "time"):
        return replace(hull(*readable), whole=typed.whole)
    return replace(meet(typed, replace(hull(*readable), sort=typed.sort, whole=False)), whole=typed.whole)


def _number(text: str) -> Range | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return Range(value, value) if math.isfinite(value) else None


def typed_range(sql_type: str, widest: float = INF) -> Range:
    """Return the range of a type by its name, infinite beyond ``widest`` values."""
    parsed = sqltypes.parse(sql_type.replace(", ", ","))
    if parsed.family == "integer" or parsed.family == "decimal":
        scale = 10.0**-parsed.scale
        wide = (parsed.high - parsed.low) * scale > widest
        lower, upper = (-INF, INF) if wide else (parsed.low * scale, parsed.high * scale)
        lower = 0.0 if wide and parsed.family == "integer" and parsed.low == 0 else lower
        return Range(float(lower), float(upper), parsed.scale == 0, "integer" if parsed.family == "integer" else "number")
    if parsed.family == "temporal":
        kinds = {"DATE": "date", "TIMESTAMP WITH TIME ZONE": "instant", "TIME": "time"}
        return Range(-INF, INF, sql_type in ("DATE", "TIMESTAMP_S"), kinds.get(sql_type, "timestamp"))
    return {"float": NUMBER, "boolean": TRUTH}.get(parsed.family, UNKNOWN)


def literal_range(node: exp.Literal) -> Range:
    """Return the range of a constant; that of a text is unknown."""
    if node.is_string:
        return UNKNOWN
    text = node.name.replace("_", "")
    bounds = _number(text) or NUMBER
    if text.isdigit() and bounds.finite and int(text) != int(bounds.lower):  # it lies between two doubles
        bounds = Range(math.nextafter(bounds.lower, -INF), math.nextafter(bounds.upper, INF))
    whole = bounds.lower == math.floor(bounds.lower) if bounds.finite else False
    return replace(bounds, whole=whole, sort="integer" if node.name.isdigit() else "number")


def in_units_of(value: Range, sql_type: str) -> Range:
    """Return a range in the units of a type: dates in days, timestamps in seconds, decimals on its steps.

    ``date_trunc`` of a DATE is a DATE for some versions of DuckDB and a TIMESTAMP for others; its range is in seconds.

    Examples
    --------
    >>> in_units_of(Range(0.0, 864000.0, True, "timestamp"), "DATE")
    Range(lower=0.0, upper=10.0, whole=True, sort='date')
    >>> in_units_of(Range(0.05, 110000 * 0.07), "DECIMAL(38,4)")
    Range(lower=0.05, upper=7700.0, whole=False, sort='number')
    """
    parsed = sqltypes.parse(sql_type)
    if parsed.family == "decimal" and value.finite:
        return _on_steps(value, parsed.scale)
    sort = typed_range(sql_type).sort
    out = as_sort(value, sort)
    if sort != "date" or value.sort == "date":
        return out
    return Range(float(math.floor(out.lower)), float(math.ceil(out.upper)), True, "date") if out.finite else out


def _on_steps(value: Range, scale: int) -> Range:
    """Return a range with bounds that are multiples of 10^-scale but for roundings as these: computed ones are a bit too wide."""
    ends = []
    for end in (value.lower, value.upper):
        steps = Fraction(repr(end)) * 10**scale
        near = round(steps)
        exact = abs(steps - near) <= _ROUNDED and abs(near) < _MOST_STEPS
        ends.append(float(Fraction(near, 10**scale)) if exact else end)
    return replace(value, lower=ends[0], upper=ends[1]) if ends[0] < ends[1] else value


def type_name(target: exp.Expression) -> str:
    """Return the type of a CAST as DuckDB spells it; an empty text for one without a range."""
    sql_type = _SPELLED.get(target.this.value, "") if isinstance(target, exp.DataType) else ""
    if sql_type != "DECIMAL":
        return sql_type
    digits = [p.name for p in target.expressions] or ["18", "3"]
    return f"DECIMAL({digits[0]},{digits[1] if len(digits) > 1 else '0'})"


_SPELLED = {
    "INT": "INTEGER", "UINT": "UINTEGER", "INT128": "HUGEINT", "TIMESTAMPNTZ": "TIMESTAMP",
    "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE",
    **{name: name for name in ("BOOLEAN", "TINYINT", "SMALLINT", "BIGINT", "UTINYINT", "USMALLINT", "UBIGINT", "FLOAT", "DOUBLE",
                               "DECIMAL", "DATE", "TIME", "TIMESTAMP")},
}
