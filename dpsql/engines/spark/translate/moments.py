"""Functions of dates and timestamps without a zone: Spark's SQL that gives what DuckDB gives. The session's zone must be UTC.

Both count in the proleptic Gregorian calendar. A TIMESTAMP WITH TIME ZONE is compared and counted from 1970 alone, for its date
depends on a setting of DuckDB's session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dpsql.engines.spark.translate.binding import Binder
from dpsql.engines.spark.translate.types import FLOATS, ZONED, Typed, of_type, refuse, spark_type

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_ISO_DAY = "(pmod(dayofweek({}) + 5, 7) + 1)"
"""From dayofweek(), for weekday() of a Sunday is not the same on every server."""
_ISO_YEAR, _WEEK = f"year(date_add(CAST({{}} AS DATE), 4 - {_ISO_DAY}))", "weekofyear({})"
_PARTS = {
    "year": "year({})", "month": "month({})", "day": "day({})", "quarter": "quarter({})", "week": _WEEK,
    "dow": "(dayofweek({}) - 1)", "isodow": _ISO_DAY, "doy": "dayofyear({})", "isoyear": _ISO_YEAR,
    "yearweek": f"({_ISO_YEAR} * 100 + {_WEEK})", "decade": "(year({}) div 10)", "century": "((year({}) + 99) div 100)",
    "millennium": "((year({}) + 999) div 1000)", "hour": "hour({})", "minute": "minute({})", "second": "second({})",
    "millisecond": "floor(extract(SECOND FROM {}) * 1000)", "microsecond": "(extract(SECOND FROM {}) * 1000000)",
}  # fmt: skip
_SAME = {
    "dayofmonth": "day", "weekofyear": "week", "dayofweek": "dow", "weekday": "dow", "dayofyear": "doy",
    "milliseconds": "millisecond", "microseconds": "microsecond",
}  # fmt: skip
_OF_TIME = ("hour", "minute", "second", "millisecond", "microsecond")
_MICROSECONDS = {"hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000, "millisecond": 1000, "microsecond": 1}
_TRUNCATED = ("year", "quarter", "month", "week", "day", *_OF_TIME)
_MONTHS_OF = {"month": 1, "quarter": 3, "year": 12}
_STEPS = {"day": (1, "DAY"), "week": (7, "DAY"), "hour": (1, "HOUR"), "minute": (1, "MINUTE"), "second": (1, "SECOND")}
_FIRST_DAYS = {
    "year": "make_date(year({}), 1, 1)", "quarter": "make_date(year({}), quarter({}) * 3 - 2, 1)",
    "month": "make_date(year({}), month({}), 1)", "week": f"date_sub({{}}, {_ISO_DAY} - 1)", "day": "{}",
}  # fmt: skip
"""The beginnings of a date's year and so on: date_trunc() itself raises far from 1970 on a server that counts nanoseconds."""
Rule = Callable[[str, Sequence[Typed], Binder], Typed]


def _moment(name: str, value: Typed) -> str:
    if value.type not in ("DATE", "TIMESTAMP"):
        refuse(f"{name}() of {value.type}", "its date depends on the session's time zone" if value.type == ZONED else "")
    return value.sql


def _word(name: str, value: Typed) -> str:
    return value.value.lower() if isinstance(value.value, str) else refuse(f"{name}()", "the part must be a constant text")


def micros(value: Typed) -> str:
    """Return the microseconds since 1970 of a date or timestamp."""
    return f"unix_micros({value.sql if value.type == ZONED else f'CAST({value.sql} AS TIMESTAMP)'})"


def part(name: str, word: str, value: Typed, binder: Binder) -> Typed:
    """Return one part of a date or timestamp."""
    word = _SAME.get(word, word)
    if word == "epoch":
        return _epoch(name, [value], binder)
    if word not in _PARTS:
        refuse(f"{name}() of {word!r}")
    moment = _moment(name, value)
    return of_type(f"CAST({_PARTS[word].replace('{}', moment)} AS BIGINT)", "BIGINT")


def _part(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    return part(name, _word(name, values[0]), values[1], binder)


def _named(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    return part(name, name, values[0], binder)


def _epoch(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    if values[0].type not in ("DATE", "TIMESTAMP", ZONED):
        refuse(f"{name}() of {values[0].type}")
    return of_type(f"(CAST({micros(values[0])} AS DOUBLE) / CAST('1e6' AS DOUBLE))", "DOUBLE")


def _epoch_us(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    if values[0].type not in ("TIMESTAMP", ZONED):
        refuse(f"{name}() of {values[0].type}")
    return of_type(micros(values[0]), "BIGINT")


def _truncated(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    word = _word(name, values[0])
    if word not in _TRUNCATED:
        refuse(f"{name}() of {word!r}")
    moment = _moment(name, values[1])
    kind = binder.type_of(f"{name}('{word}', {{}})", values[1])
    day = f"CAST({moment} AS DATE)"
    # parts of a day begin at whole multiples of their length since 1970
    if word in _MICROSECONDS:
        size, now = _MICROSECONDS[word], micros(values[1])
        truncated = f"CAST(timestamp_micros({now} - pmod({now}, {size}L)) AS TIMESTAMP_NTZ)"
    else:
        truncated = _FIRST_DAYS[word].replace("{}", day)
    return of_type(f"CAST({truncated} AS {spark_type(kind)})", kind)


def _difference(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    """Return how many times a unit begins between two moments; weeks are counted otherwise in each version of DuckDB."""
    word = _word(name, values[0])
    start, end = values[1], values[2]
    if start.type != end.type:
        refuse(f"{name}() of {start.type} and {end.type}")
    a, b = _moment(name, start), _moment(name, end)
    if word == "day":
        times = f"datediff(CAST({b} AS DATE), CAST({a} AS DATE))"
    elif word in _MICROSECONDS:
        size = _MICROSECONDS[word]
        first, second = (f"({m} - pmod({m}, {size}L)) div {size}L" for m in (micros(start), micros(end)))
        times = f"({second} - {first})"
    elif word in _MONTHS_OF:
        times = f"({_months(b, word)} - {_months(a, word)})"
    else:
        refuse(f"{name}() of {word!r}")
    return of_type(f"CAST({times} AS BIGINT)", "BIGINT")


def _months(moment: str, word: str) -> str:
    return f"((year({moment}) * 12 + month({moment}) - 1) div {_MONTHS_OF[word]})"


def _last_day(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    return of_type(f"last_day(CAST({_moment(name, values[0])} AS DATE))", "DATE")


def _day_name(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    listed = ", ".join(f"'{word}'" for word in _WEEKDAYS)
    return of_type(f"get(array({listed}), dayofweek({_moment(name, values[0])}) - 1)", "VARCHAR")


def _month_name(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    listed = ", ".join(f"'{word}'" for word in _MONTHS)
    return of_type(f"get(array({listed}), month({_moment(name, values[0])}) - 1)", "VARCHAR")


def finite(name: str, values: Sequence[Typed], binder: Binder) -> Typed:
    """Return whether a value is finite: every date of Spark is."""
    [value] = values
    if value.type in FLOATS:
        return of_type(f"(abs({value.sql}) < CAST('Infinity' AS {value.type}))", "BOOLEAN")
    if value.type in ("DATE", "TIMESTAMP", ZONED):
        return of_type(f"({value.sql} = {value.sql})", "BOOLEAN")
    return refuse(f"{name}() of {value.type}")


def moved(symbol: str, value: Typed, interval: str, binder: Binder) -> Typed:
    """Return a date or timestamp plus or minus a constant interval, as ``'3 month'``."""
    amount, _, unit = interval.partition(" ")
    if not amount.lstrip("-").isdigit() or (unit not in _STEPS and unit not in _MONTHS_OF):
        refuse(f"INTERVAL {interval!r}")
    _moment(symbol, value)
    size, word = (_MONTHS_OF[unit], "MONTH") if unit in _MONTHS_OF else _STEPS[unit]
    kind = binder.type_of(f"{{}} {symbol} CAST('{int(amount)} {unit}' AS INTERVAL)", value)
    if kind != "TIMESTAMP":
        refuse(f"{value.type} {symbol} INTERVAL")
    return of_type(f"(CAST({value.sql} AS TIMESTAMP_NTZ) {symbol} INTERVAL '{int(amount) * size}' {word})", kind)


MOMENTS: dict[str, Rule] = {
    **dict.fromkeys(("date_part", "datepart"), _part),
    **dict.fromkeys((*(word for word in _PARTS if word not in ("dow", "doy")), *_SAME), _named),
    "epoch": _epoch,
    "epoch_us": _epoch_us,
    **dict.fromkeys(("date_trunc", "datetrunc"), _truncated),
    **dict.fromkeys(("date_diff", "datediff"), _difference),
    "last_day": _last_day,
    "dayname": _day_name,
    "monthname": _month_name,
}
"""Name -> rule. What is not here is refused: date_sub, strftime, strptime, era."""
