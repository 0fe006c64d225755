"""MySQL's dates and times in DuckDB's words: what charting tools send, or a refusal where DuckDB has no words for it.

The weeks of MySQL are reckoned as its manual says (WEEK, modes 0 to 7), without a table: a week belongs to the year of one of its
days. Formats are those that sqlglot has turned into DuckDB's letters; where a letter means something else there, it is refused.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Final

import sqlglot
from sqlglot import exp

from dpsql.serve.passed import Refused

MADE: Final = "made"
"""Marks a node that is in DuckDB's words already."""
_MONDAY, _SUNDAY = "date_trunc('week', {day})", "(date_trunc('week', {day} + INTERVAL 1 DAY) - INTERVAL 1 DAY)"
_YEAR_OF: Final = {  # the day by whose year a week is counted: its first where weeks begin anew with a day, else its fourth
    0: _SUNDAY, 2: _SUNDAY, 4: f"({_SUNDAY} + INTERVAL 3 DAY)", 6: f"({_SUNDAY} + INTERVAL 3 DAY)", 5: _MONDAY, 7: _MONDAY,
}  # fmt: skip
_NUMBER: Final = "((dayofyear({of}) + 6) // 7)"
WEEKS: Final = {
    0: "CAST(strftime({day}, '%U') AS INTEGER)",
    1: "((dayofyear({day}) - isodow({day}) + 10) // 7)",
    2: _NUMBER.format(of=_YEAR_OF[2]),
    3: "week({day})",
    4: "((dayofyear({day}) - dayofweek({day}) + 9) // 7)",
    5: "CAST(strftime({day}, '%W') AS INTEGER)",
    6: _NUMBER.format(of=_YEAR_OF[6]),
    7: _NUMBER.format(of=_YEAR_OF[7]),
}
"""WEEK by its mode."""
YEARWEEKS: Final = {
    mode: "yearweek({day})" if mode in (1, 3) else f"(year({_YEAR_OF[mode]}) * 100 + {_NUMBER.format(of=_YEAR_OF[mode])})"
    for mode in range(8)
}
"""YEARWEEK by its mode: all count the weeks of a year from 1."""
_FIRST_DAYS: Final = {
    ("%X%V %A", "sunday", 0): _SUNDAY, ("%X%V %A", "sunday", 2): _SUNDAY, ("%G%v %A", "monday", 1): _MONDAY,
    ("%G%v %A", "monday", 3): _MONDAY,
}  # fmt: skip
"""The format and the day by which a YEARWEEK of a mode is made a date again -> that date."""
_CUT: Final = {
    "%Y-01-01": "year", "%Y-%m-01": "month", "%Y-%m-%d": "day", "%Y-01-01 00:00:00": "year", "%Y-%m-01 00:00:00": "month",
    "%Y-%m-%d 00:00:00": "day", "%Y-%m-%d %H:00:00": "hour", "%Y-%m-%d %H:%M:00": "minute", "%Y-%m-%d %H:%M:%S": "second",
    "%Y-%m-%d %T": "second",
}  # fmt: skip
"""Formats whose text is a moment again: the beginning of a unit."""
_ELSEWHERE: Final = {"D": "%D", "V": "%V", "W": "%u", "X": "%X"}
"""Letters that mean something else in DuckDB: as they were typed."""
_EPOCH: Final = dt.datetime(1970, 1, 1)
_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between)
_SHIFTS: Final[dict[type[exp.Expression] | str, type[exp.Expression]]] = {
    exp.DateAdd: exp.Add, exp.DateSub: exp.Sub, exp.TimestampAdd: exp.Add, "ADDDATE": exp.Add, "SUBDATE": exp.Sub,
}  # fmt: skip
_NAMES = frozenset({
    "ADDDATE", "FROM_DAYS", "MAKEDATE", "NOW", "SUBDATE", "SYSDATE", "TIMEDIFF", "UNIX_TIMESTAMP", "WEEKDAY", "YEARWEEK",
})  # fmt: skip


def moment(node: exp.Expression) -> exp.Expression:
    """Return a node about dates and times in DuckDB's words; others as they are.

    Raises
    ------
    Refused
    """
    for kind, meant in _MEANT:
        if isinstance(node, kind):
            return meant(node)
    name = node.name.upper() if isinstance(node, exp.Anonymous) else ""
    return _named(name, node) if name in _NAMES else node


def _made(text: str, **parts: exp.Expression) -> exp.Expression:
    """Return the tree of a text in DuckDB's words, with nodes in place of its names in braces."""
    holder = exp.Paren(this=sqlglot.parse_one(re.sub(r"\{(\w+)\}", r"__\1", text), read="duckdb"))
    for node in holder.walk():
        node.meta[MADE] = True
    for column in list(holder.find_all(exp.Column)):
        part = parts[column.name.removeprefix("__")].copy()
        column.replace(exp.paren(part) if isinstance(part, exp.Binary) else part)
    return holder.this


def day_of(node: exp.Expression) -> exp.Expression:
    """Return the day of a moment or of a text."""
    inner = node.this if isinstance(node, exp.TsOrDsToDate) else node
    if isinstance(inner, exp.TimeToStr):
        inner = _cut(inner) or inner
    return exp.cast(inner, "date")


def _text_of(node: exp.Expression) -> exp.Expression:
    """Return what a DATE_FORMAT is of, without the cast that sqlglot puts around it."""
    inner: exp.Expression = node.this
    return inner.this if isinstance(inner, exp.TsOrDsToTimestamp) else inner


def _cut(node: exp.Expression) -> exp.Expression | None:
    """Return the moment that a text is which DATE_FORMAT makes; None where it is none."""
    if isinstance(node, exp.Paren):
        return _cut(node.this)
    unit = _CUT.get(node.text("format")) if isinstance(node, exp.TimeToStr) else None
    if unit is None:
        return None
    of = _text_of(node)
    begun = _made(f"date_trunc('{unit}', {{of}})", of=of if isinstance(of, exp.Column) else exp.cast(of, "timestamp"))
    return exp.cast(begun, "date" if len(node.text("format")) < 9 else "timestamp")


def _moment_of(node: exp.Expression) -> exp.Expression:
    """Return what a number of units is added to: a text becomes a moment."""
    node = node.unnest()
    if isinstance(node, exp.TimeToStr | exp.Literal):
        return _cut(node) or exp.cast(node, "timestamp")
    return exp.paren(node) if isinstance(node, exp.Binary) else node


def _shifted(kind: type[exp.Expression], of: exp.Expression, step: exp.Expression) -> exp.Expression:
    return exp.paren(kind(this=_moment_of(of), expression=step))


def _by_units(node: exp.Expression) -> exp.Expression:
    """Return DATE_ADD, DATE_SUB or TIMESTAMPADD as a sum; a negative number of units is taken away."""
    kind, amount = _SHIFTS[type(node)], node.expression
    unit = node.args.get("unit")
    amount, negative = _unsigned(amount)
    if isinstance(amount, exp.Literal) and amount.name == "0":
        return exp.cast(_moment_of(node.this), "timestamp")
    if negative:
        kind = exp.Sub if kind is exp.Add else exp.Add
    return _shifted(kind, node.this, exp.Interval(this=amount, unit=unit.copy() if unit is not None else exp.Var(this="DAY")))


def _unsigned(amount: exp.Expression) -> tuple[exp.Expression, bool]:
    """Return a number of units and whether it is to be taken with the other sign: -3, and 1 - x as x - 1."""
    while isinstance(amount, exp.Paren):
        amount = amount.this
    if isinstance(amount, exp.Neg):
        return exp.paren(amount.this.copy()), True
    if isinstance(amount, exp.Literal) and amount.name.startswith("-"):
        return exp.Literal(this=amount.name[1:], is_string=amount.is_string), True
    if isinstance(amount, exp.Sub) and isinstance(amount.this, exp.Literal):
        return exp.paren(exp.Sub(this=exp.paren(amount.expression.copy()), expression=amount.this.copy())), True
    return amount.copy() if isinstance(amount, exp.Literal) else exp.paren(amount.copy()), False


def _interval(node: exp.Expression) -> exp.Expression:
    """Return a number of units as DuckDB's people write it, ``INTERVAL 9 DAY``: one question at all doors."""
    amount = node.this
    if isinstance(amount, exp.Literal) and amount.is_string and amount.name.isdecimal():
        node.set("this", exp.paren(exp.Literal.number(amount.name)))
    return node


def _interval_added(node: exp.Expression) -> exp.Expression:
    """Return ``text + INTERVAL 1 DAY`` with the text as a moment."""
    if isinstance(node.expression, exp.Interval) and isinstance(node.this, exp.TimeToStr | exp.Literal):
        node.set("this", _moment_of(node.this))
    return node


def _compared(node: exp.Expression) -> exp.Expression:
    """Return a comparison with a text that DATE_FORMAT makes of the time as it is now: as the moment that it is."""
    sides = [key for key in ("this", "expression", "low", "high") if node.args.get(key) is not None]
    texts = {key: node.args[key].unnest() for key in sides}
    if any(isinstance(text, exp.Literal) for text in texts.values()):
        return node
    for key, text in texts.items():
        instant = _cut(text) if isinstance(text, exp.TimeToStr) and not text.find(exp.Column) else None
        if instant is not None:
            node.set(key, instant)
    return node


def _formatted(node: exp.Expression) -> exp.Expression:
    """Return DATE_FORMAT: of a letter that DuckDB has otherwise, or not at all, a refusal."""
    text = node.text("format")
    for letter, typed in _ELSEWHERE.items():
        if f"%{letter}" in text.replace("%%", ""):
            raise Refused("unsupported", f"{typed} in a format of dates is not answered")
    node.set("format", exp.Literal.string(text.replace("%v", "%V")))
    return node


def _read(node: exp.Expression) -> exp.Expression:
    """Return STR_TO_DATE: of a YEARWEEK and the name of a day, the first day of that week."""
    text, (joined, *rest) = node.text("format"), _concatenated(node.this)
    called = joined.name.upper() == "YEARWEEK" if isinstance(joined, exp.Anonymous) else False
    if called and len(rest) == 1:
        mode = _mode(joined.expressions[1:])
        form = _FIRST_DAYS.get((text, rest[0].name.strip().lower(), mode))
        if form is not None:
            return exp.cast(_made(form, day=exp.cast(joined.expressions[0], "date")), "date")
    _formatted(node)
    return node


def _concatenated(node: exp.Expression) -> list[exp.Expression]:
    if isinstance(node, exp.Concat):
        return [part.this if isinstance(part, exp.Coalesce | exp.Cast) else part for part in node.expressions]
    return [node]


def _mode(arguments: list[exp.Expression]) -> int:
    if not arguments:
        return 0
    name = arguments[0].name if len(arguments) == 1 and isinstance(arguments[0], exp.Literal) else ""
    if name not in {str(mode) for mode in range(8)}:
        raise Refused("unsupported", "a mode of weeks is a number from 0 to 7, written out")
    return int(name)


def _week(node: exp.Expression) -> exp.Expression:
    mode = node.args.get("mode")
    return _made(WEEKS[_mode([] if mode is None else [mode])], day=day_of(node.this))


def _extracted(node: exp.Expression) -> exp.Expression:
    if node.this.name.upper() == "YEAR_MONTH":
        return _made("(year({of}) * 100 + month({of}))", of=node.expression)
    return node


def _from_seconds(node: exp.Expression) -> exp.Expression:
    """Return FROM_UNIXTIME as a timestamp in UTC, or the text that its format makes of it."""
    instant = _made("make_timestamp(CAST(CAST({n} AS DOUBLE) * 1000000 AS BIGINT))", n=node.this)
    if isinstance(node.this, exp.Literal) and node.this.name.isdigit() and len(node.this.name) < 12:
        instant = exp.cast(exp.Literal.string(str(_EPOCH + dt.timedelta(seconds=int(node.this.name)))), "timestamp")
    if node.args.get("format") is None:
        return instant
    return _formatted(exp.TimeToStr(this=instant, format=node.args["format"]))


def _cast(node: exp.Expression) -> exp.Expression:
    """Return a cast to a moment: MySQL's have no time zone, and a text of DATE_FORMAT is the moment that it is."""
    kind = node.args["to"].this
    moments = (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.DATETIME, exp.DataType.Type.DATE, exp.DataType.Type.TIMESTAMPTZ)
    if kind not in moments:
        return node
    instant = _cut(node.this) if isinstance(node.this.unnest(), exp.TimeToStr) else None
    return exp.cast(instant or node.this, "date" if kind == exp.DataType.Type.DATE else "timestamp")


def _named(name: str, node: exp.Expression) -> exp.Expression:
    """Return a function that sqlglot knows by its name alone."""
    arguments = list(node.expressions)
    if name in ("NOW", "SYSDATE"):
        return _now(node)
    if name in ("ADDDATE", "SUBDATE") and len(arguments) == 2:
        step = arguments[1]
        if not isinstance(step, exp.Interval):
            step = exp.Interval(this=step, unit=exp.Var(this="DAY"))
        kind = exp.DateAdd if name == "ADDDATE" else exp.DateSub
        return _by_units(kind(this=arguments[0], expression=step.this, unit=step.args.get("unit")))
    if name == "UNIX_TIMESTAMP" and len(arguments) < 2:
        return _made("CAST(floor(epoch({of})) AS BIGINT)", of=_moment_of(arguments[0]) if arguments else _now(node))
    if name == "TIMEDIFF" and len(arguments) == 2:
        return _made("({a} - {b})", a=_moment_of(arguments[0]), b=_moment_of(arguments[1]))
    if name == "FROM_DAYS" and len(arguments) == 1:
        return _made("CAST(DATE '0001-01-01' + (CAST({n} AS INTEGER) - 366) AS DATE)", n=arguments[0])
    if name == "YEARWEEK" and arguments:
        return _made(YEARWEEKS[_mode(arguments[1:])], day=day_of(arguments[0]))
    if name == "WEEKDAY" and len(arguments) == 1:
        return _made("(isodow({day}) - 1)", day=day_of(arguments[0]))
    if name == "MAKEDATE" and len(arguments) == 2 and arguments[1] == exp.Literal.number(1):  # the first of January
        return _made("make_date({year}, 1, 1)", year=arguments[0])
    raise Refused("unsupported", f"{name.lower()}() is not answered")


def _now(_: exp.Expression) -> exp.Expression:
    return exp.Anonymous(this="current_localtimestamp")


def _today(_: exp.Expression) -> exp.Expression:
    return exp.Anonymous(this="today")


def _timestamp(node: exp.Expression) -> exp.Expression:
    if node.args.get("zone") is not None:
        raise Refused("unsupported", "timestamp() of two values is not answered: add an INTERVAL")
    instant = _cut(node.this) if isinstance(node.this.unnest(), exp.TimeToStr) else None
    return exp.cast(instant or node.this, "timestamp")


def _date(node: exp.Expression) -> exp.Expression:
    return day_of(node.this)


def _between(node: exp.Expression) -> exp.Expression:
    """Return a difference of moments; that of TO_DAYS counts from a year 0 without a leap day."""
    for literal in node.expression.find_all(exp.Literal):
        if literal.name == "0000-01-01":
            literal.set("this", "0000-01-02")
    for key in ("this", "expression"):
        if isinstance(node.args.get(key), exp.Literal):
            node.set(key, exp.cast(node.args[key], "timestamp"))
    return node


def _day_of_week(node: exp.Expression) -> exp.Expression:
    return _made("(dayofweek({day}) + 1)", day=day_of(node.this))


_MEANT: Final[tuple[tuple[type | tuple[type, ...], Callable[[exp.Expression], exp.Expression]], ...]] = (
    ((exp.DateAdd, exp.DateSub, exp.TimestampAdd), _by_units),
    ((exp.CurrentTimestamp, exp.Localtime, exp.Localtimestamp, exp.UtcTimestamp), _now),
    ((exp.CurrentDate, exp.UtcDate), _today),
    (exp.Interval, _interval),
    (exp.DayOfWeek, _day_of_week),
    (exp.Week, _week),
    ((exp.DateDiff, exp.TimestampDiff), _between),
    (exp.Extract, _extracted),
    (exp.UnixToTime, _from_seconds),
    (exp.StrToDate, _read),
    (exp.TimeToStr, _formatted),
    ((exp.Cast, exp.TryCast), _cast),
    (exp.Timestamp, _timestamp),
    ((exp.Date, exp.TsOrDsToDate), _date),
    ((exp.Add, exp.Sub), _interval_added),
    (_COMPARED, _compared),
)
