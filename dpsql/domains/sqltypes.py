"""DuckDB column types as far as domains need them: their family, their range, and the grid of values that a bin holds.

Everything but FLOAT and DOUBLE is a grid: a value is an integer number of units (1 for integers, 10**-scale for DECIMAL, a
day, a second, a millisecond, a microsecond or a nanosecond for dates and times). A bin of a grid is a range of integers,
which makes encoding and decoding exact inverses of each other.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

_INTEGERS = {
    f"{sign}{name}": (0 if sign else -(2 ** (bits - 1)), 2 ** (bits - (not sign)) - 1)
    for name, bits in (("TINYINT", 8), ("SMALLINT", 16), ("INTEGER", 32), ("BIGINT", 64), ("HUGEINT", 128))
    for sign in ("", "U")
}
_EPOCH = dt.datetime(1970, 1, 1)
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
# Type -> microseconds that one declared step takes. A TIMESTAMP_NS is declared in microseconds and holds nanoseconds.
MICROSECONDS = {
    "DATE": _DAY,
    "TIME": 1,
    "TIMESTAMP": 1,
    "TIMESTAMP_S": _SECOND,
    "TIMESTAMP_MS": 1000,
    "TIMESTAMP_NS": 1,
    "TIMESTAMP WITH TIME ZONE": 1,
}
_NS_RANGE = (-9_223_372_036_854_775, 9_223_372_036_854_775)


@dataclass(frozen=True)
class SqlType:
    """A DuckDB type.

    Parameters
    ----------
    text : str
        As DuckDB spells it.
    family : {'integer', 'decimal', 'float', 'temporal', 'text', 'enum', 'boolean', 'uuid', 'other'}
    scale : int
        Decimal digits after the point (DECIMAL), else 0.
    low, high : int
        Range in units of the grid ('integer' and 'decimal').
    members : tuple of str
        Values of an ENUM.
    """

    text: str
    family: str
    scale: int = 0
    low: int = 0
    high: int = 0
    members: tuple[str, ...] = ()

    @property
    def binned(self) -> bool:
        """Whether the type can have bins."""
        return self.family in ("integer", "decimal", "float", "temporal")

    @property
    def kind(self) -> str:
        """Kind of an attribute with bins: 'numeric' or 'temporal'."""
        return "temporal" if self.family == "temporal" else "numeric"


def parse(text: str) -> SqlType:
    """Read the text of a DuckDB type, as DESCRIBE or typeof() give it.

    Examples
    --------
    >>> parse("DECIMAL(4,2)").high
    9999
    >>> parse("ENUM('a', 'it''s')").members
    ('a', "it's")
    >>> parse("INTEGER[]").family
    'other'
    """
    if text in _INTEGERS:
        low, high = _INTEGERS[text]
        return SqlType(text, "integer", low=low, high=high)
    if match := re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", text):
        high = 10 ** int(match[1]) - 1
        return SqlType(text, "decimal", int(match[2]), -high, high)
    if text in ("FLOAT", "DOUBLE"):
        return SqlType(text, "float")
    if text in MICROSECONDS:
        return SqlType(text, "temporal")
    if re.fullmatch(r"ENUM\(\s*'(?:[^']|'')*'(?:\s*,\s*'(?:[^']|'')*')*\s*\)", text):
        members = re.findall(r"'((?:[^']|'')*)'", text)
        return SqlType(text, "enum", members=tuple(member.replace("''", "'") for member in members))
    families = {"VARCHAR": "text", "BOOLEAN": "boolean", "UUID": "uuid"}
    return SqlType(text, families.get(text, "other"))


def steps_of(sql_type: SqlType, value: object) -> int:
    """Read a date, time or timestamp as a whole number of the type's steps (days, seconds, ..., microseconds) since 1970.

    Parameters
    ----------
    sql_type : SqlType
        A temporal type.
    value : str, date, datetime or time
        ISO text or a Python value. A time zone is wanted, and allowed, for TIMESTAMP WITH TIME ZONE only; none means UTC.

    Raises
    ------
    ValueError
        It is not such a value, lies out of the type's range or between two steps. The text says which.
    """
    micros = _micros(sql_type.text, value)
    step = MICROSECONDS[sql_type.text]
    if micros % step:
        raise ValueError(f"a {sql_type.text} cannot hold it exactly")
    if sql_type.text == "TIMESTAMP_NS" and not _NS_RANGE[0] <= micros <= _NS_RANGE[1]:
        raise ValueError("a TIMESTAMP_NS reaches from 1677-09-22 to 2262-04-11")
    return micros // step


def _micros(name: str, value: object) -> int:
    """Return microseconds since 1970 (since midnight for TIME)."""
    if name == "TIME":
        time = dt.time.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(time, dt.time) or time.tzinfo is not None:
            raise ValueError("a time such as '08:30:00' is required")
        return ((time.hour * 60 + time.minute) * 60 + time.second) * _SECOND + time.microsecond
    if isinstance(value, str):
        # Python also reads '2020-01-01+01' as one o'clock; nobody means that.
        if not re.match(r"\d{4}-\d{2}-\d{2}([T ]|$)", value.strip()):
            raise ValueError("an ISO date or timestamp such as '2020-01-31' is required")
        value = dt.datetime.fromisoformat(value.strip())
    elif isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    if not isinstance(value, dt.datetime):
        raise ValueError("an ISO date or timestamp such as '2020-01-31' is required")
    if value.tzinfo is not None:
        if name != "TIMESTAMP WITH TIME ZONE":
            raise ValueError(f"a {name} has no time zone")
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return (value - _EPOCH) // dt.timedelta(microseconds=1)


def step_text(sql_type: SqlType, step: int) -> str:
    """Write what ``steps_of`` read: an ISO text that DuckDB casts to the type, whatever the session's time zone is.

    Examples
    --------
    >>> step_text(parse("DATE"), 1), step_text(parse("TIMESTAMP_S"), 61)
    ('1970-01-02', '1970-01-01 00:01:01')
    """
    moment = _EPOCH + dt.timedelta(microseconds=step * MICROSECONDS[sql_type.text])
    if sql_type.text == "DATE":
        return moment.date().isoformat()
    if sql_type.text == "TIME":
        return moment.time().isoformat()
    zone = "+00" if sql_type.text == "TIMESTAMP WITH TIME ZONE" else ""
    return moment.isoformat(sep=" ") + zone


def first_at_or_above(edge: float, scale: int) -> int:
    """Return the smallest integer v for which v / 10**scale, rounded to the nearest double, is at least ``edge``.

    That is the test that numpy makes after a cast to float64, made exact for integers and decimals of any width.

    Examples
    --------
    >>> first_at_or_above(0.1, 1), first_at_or_above(0.30000000000000004, 1), first_at_or_above(2.5, 0)
    (1, 4, 3)
    """
    below = math.nextafter(edge, -math.inf)
    if math.isinf(below):
        return int(math.ceil(Fraction(edge) * 10**scale))
    # Values up to the midpoint round down to ``below``; at the midpoint itself the rule is ties to even.
    value: int = math.ceil((Fraction(edge) + Fraction(below)) / 2 * 10**scale)
    if value / 10**scale < edge:
        value += 1
    return value


def grid(sql_type: SqlType, edges: Sequence[float] | Sequence[str]) -> list[int] | None:
    """Return the first value of every bin, then one past the last value, in units of the type's grid.

    Parameters
    ----------
    edges : sequence of float or str, length bins + 1
        As in ``Attribute``.

    Returns
    -------
    list of int, length bins + 1, or None
        Bin i holds the integers from result[i] to result[i + 1] - 1. Clipped to the type's range, so an entry that is not
        larger than the one before marks a bin that the type cannot fill. None for FLOAT and DOUBLE.
    """
    if sql_type.family == "float":
        return None
    if sql_type.family == "temporal":
        # The nanoseconds between two declared microseconds belong to the grid too.
        factor = 1000 if sql_type.text == "TIMESTAMP_NS" else 1
        steps = [steps_of(sql_type, edge) * factor for edge in edges]
        return [*steps[:-1], steps[-1] + 1]
    numbers = [float(edge) for edge in edges]
    numbers[-1] = math.nextafter(numbers[-1], math.inf)
    if math.isinf(numbers[-1]):
        return [*grid(sql_type, [*numbers[:-1], 1e300])[:-1], sql_type.high + 1]  # type: ignore[index]
    return [min(max(first_at_or_above(e, sql_type.scale), sql_type.low), sql_type.high + 1) for e in numbers]


def unit_text(sql_type: SqlType, value: int) -> str:
    """Return the text of a value of the grid ('integer' and 'decimal').

    Examples
    --------
    >>> unit_text(parse("DECIMAL(4,2)"), -5)
    '-0.05'
    """
    if sql_type.scale == 0:
        return str(value)
    digits = str(abs(value)).rjust(sql_type.scale + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[: -sql_type.scale]}.{digits[-sql_type.scale :]}"


def edge_text(sql_type: SqlType, edge: float | str) -> str:
    """Return the text of an edge of bins: ISO texts as they are, whole numbers of an integer type with all digits.

    Examples
    --------
    >>> edge_text(parse("BIGINT"), 2.0**60), edge_text(parse("BIGINT"), 2.5), edge_text(parse("DOUBLE"), 2.0**60)
    ('1152921504606846976', '2.5', '1.15292150460685e+18')
    >>> edge_text(parse("BIGINT"), float(2**63 - 1))
    '9223372036854775807'
    """
    if isinstance(edge, str):
        return edge
    if sql_type.family != "integer" or not float(edge).is_integer():
        return f"{edge:.15g}"
    whole = int(edge)  # beyond 2^53 the ends of a type are no doubles: the nearest one stands for them
    return str(min(max(whole, sql_type.low), sql_type.high) if abs(whole) > 1 << 53 else whole)


def float32_bounds(edges: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and largest FLOAT of every bin, as float32 arrays of length bins.

    The smallest lies above the largest where a bin holds no FLOAT.
    """
    exact = np.asarray(edges, dtype=np.float64)
    with np.errstate(over="ignore"):
        near = exact.astype(np.float32)
        at_least = np.where(near.astype(np.float64) < exact, np.nextafter(near, np.float32(np.inf)), near)
        below = np.nextafter(at_least, np.float32(-np.inf))
        at_most = np.where(near.astype(np.float64) > exact, np.nextafter(near, np.float32(-np.inf)), near)
    return at_least[:-1], np.append(below[1:-1], at_most[-1])
