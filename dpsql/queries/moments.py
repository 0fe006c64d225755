"""Ranges of dates and timestamps: their fields, truncations, differences and shifts, as far as the bounds tell.

Date functions of a source are NULL outside of years 1 to 9999 (`dpsql.source.functions.guard_temporal`), which Python's calendar
covers too. The local time of an instant (TIMESTAMP WITH TIME ZONE) depends on the session: it is known to a day.

Privacy: none; nothing in here has seen data.
"""

from __future__ import annotations

import calendar
import datetime as dt
import math

from dpsql.queries.ranges import DAY, INF, UNKNOWN, Range, as_sort

_EPOCH = dt.datetime(1970, 1, 1)
_FIRST = (dt.datetime(1, 1, 2) - _EPOCH).total_seconds()
_LAST = (dt.datetime(9999, 12, 30) - _EPOCH).total_seconds()
_BLUR = 2e-5
"""Seconds that a double is off at most, between years 1 and 9999."""

_CYCLES = {
    "quarter": (1, 4), "month": (1, 12), "day": (1, 31), "hour": (0, 23), "minute": (0, 59), "second": (0, 59), "week": (1, 53),
    "dow": (0, 6), "isodow": (1, 7), "doy": (1, 366), "millisecond": (0, 59_999), "microsecond": (0, 59_999_999), "era": (0, 1),
}
"""Field -> its smallest and largest value."""
_WITHIN = {"quarter": "year", "month": "year", "doy": "year", "day": "month", "hour": "day", "minute": "hour", "second": "minute"}
"""Field -> the unit in which it grows from beginning to end."""
_GROWING = ("year", "decade", "century", "millennium", "isoyear", "yearweek")
SAME = {
    "dayofweek": "dow", "weekday": "dow", "dayofmonth": "day", "dayofyear": "doy", "weekofyear": "week",
    "milliseconds": "millisecond", "microseconds": "microsecond",
    "datepart": "date_part", "datetrunc": "date_trunc", "datediff": "date_diff", "datesub": "date_sub",
}
"""Other names of fields and functions."""
FIELDS = frozenset([*_CYCLES, *_GROWING, "epoch", *SAME]) - {"datepart", "datetrunc", "datediff", "datesub"}


def moment(text: str, sort: str | None = None) -> Range | None:
    """Return the range of one ISO date or timestamp; None if it is none.

    Parameters
    ----------
    text : str
    sort : {'date', 'timestamp', 'instant'}, optional
        Where left out: a date without, a timestamp with a time of day.

    Examples
    --------
    >>> moment("1970-01-03"), moment("1970-01-01 00:01:00").lower
    (Range(lower=2.0, upper=2.0, whole=True, sort='date'), 60.0)
    """
    try:
        read = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    aware = read.tzinfo is not None
    if aware:
        read = read.astimezone(dt.UTC).replace(tzinfo=None)
    sort = sort or ("date" if len(text.strip()) <= 10 else "instant" if aware else "timestamp")
    seconds = (read - _EPOCH).total_seconds()
    value = float(math.floor(seconds / DAY)) if sort == "date" else seconds
    spread = DAY if sort == "instant" and not aware else 0.0  # local time of some zone
    return Range(value - spread, value + spread, value == math.floor(value), sort)


def _ends(value: Range) -> tuple[dt.datetime | None, dt.datetime | None]:
    """Return the local times of the bounds; None where there is none."""
    local = as_sort(value, "timestamp")
    if local.sort != "timestamp":
        return None, None
    blur = 0.0 if local.whole else _BLUR
    low = None if math.isinf(local.lower) else _EPOCH + dt.timedelta(seconds=min(max(_blurred(local.lower, -blur), _FIRST), _LAST))
    high = None if math.isinf(local.upper) else _EPOCH + dt.timedelta(seconds=min(max(_blurred(local.upper, blur), _FIRST), _LAST))
    return low, high


def _blurred(seconds: float, blur: float) -> float:
    return seconds if seconds == math.floor(seconds) else seconds + blur


def field(part: str, value: Range) -> Range:
    """Return the range of a field of a moment (or of a time of day, whose sort is unknown): ``date_part(part, value)``."""
    part = SAME.get(part, part)
    low, high = _ends(value)
    if part == "epoch":
        seconds = as_sort(value, "timestamp") if value.sort == "date" else value
        return Range(seconds.lower, seconds.upper, seconds.whole) if value.sort in ("date", "timestamp", "instant") else UNKNOWN
    if part in _GROWING:
        return Range(
            float(_number(part, low)) if low else -INF, float(_number(part, high)) if high else INF, True, "integer"
        )
    if part not in _CYCLES:
        return UNKNOWN
    first, last = _CYCLES[part]
    unit = _WITHIN.get(part)
    if unit and low and high and _cut(unit, low) == _cut(unit, high):
        first, last = _number(part, low), _number(part, high)
    return Range(float(first), float(last), True, "integer")


def _number(part: str, at: dt.datetime) -> int:
    iso = at.isocalendar()
    return {
        "year": at.year, "decade": at.year // 10, "century": (at.year - 1) // 100 + 1, "millennium": (at.year - 1) // 1000 + 1,
        "isoyear": iso.year, "yearweek": iso.year * 100 + iso.week, "quarter": (at.month - 1) // 3 + 1, "month": at.month,
        "day": at.day, "doy": at.timetuple().tm_yday, "hour": at.hour, "minute": at.minute, "second": at.second,
    }[part]


def _cut(unit: str, at: dt.datetime) -> dt.datetime:
    """Return the beginning of the unit that a moment lies in."""
    day = dt.datetime(at.year, at.month, at.day)
    years = {"year": 1, "decade": 10, "century": 100, "millennium": 1000}
    if unit in years:
        return dt.datetime(max(at.year - at.year % years[unit], 1), 1, 1)
    if unit == "week":
        return day - dt.timedelta(days=min(day.weekday(), (day - dt.datetime(1, 1, 1)).days))
    if unit in ("quarter", "month"):
        return dt.datetime(at.year, at.month - (at.month - 1) % 3 if unit == "quarter" else at.month, 1)
    steps = {"hour": at.replace(minute=0, second=0, microsecond=0), "minute": at.replace(second=0, microsecond=0), "day": day}
    return steps.get(unit, at.replace(microsecond=0))


def truncated(unit: str, value: Range) -> Range:
    """Return the range of ``date_trunc(unit, value)``, in seconds."""
    low, high = _ends(value)
    if value.sort not in ("date", "timestamp", "instant"):
        return UNKNOWN
    if unit in ("millisecond", "microsecond"):
        return as_sort(value, "timestamp") if value.sort == "date" else Range(value.lower - 1e-3, value.upper, False, value.sort)
    sort = "instant" if value.sort == "instant" else "timestamp"
    spread = DAY if sort == "instant" else 0.0
    lower = (_cut(unit, low) - _EPOCH).total_seconds() - spread if low else -INF
    upper = (_cut(unit, high) - _EPOCH).total_seconds() + spread if high else INF
    return Range(lower, upper, True, sort)


def last_day(value: Range) -> Range:
    """Return the range of ``last_day(value)``, in days."""

    def end(at: dt.datetime) -> float:
        return float((dt.datetime(at.year, at.month, calendar.monthrange(at.year, at.month)[1]) - _EPOCH).days)

    low, high = _ends(value)
    return Range(end(low) if low else -INF, end(high) if high else INF, True, "date")


def difference(unit: str, start: Range, end: Range, *, complete: bool = False) -> Range:
    """Return the range of ``date_diff(unit, start, end)``, or with ``complete`` of date_sub, which counts whole units only."""
    (start_low, start_high), (end_low, end_high) = _ends(start), _ends(end)
    # Centuries and millennia begin in year 0 for some functions and in year 1 for others.
    spread = int(complete or unit in ("century", "millennium") or unit == "decade")
    lower = _count(unit, end_low) - _count(unit, start_high) - spread if end_low and start_high else -INF
    upper = _count(unit, end_high) - _count(unit, start_low) + spread if end_high and start_low else INF
    return Range(float(lower), float(upper), True, "integer")


def _count(unit: str, at: dt.datetime) -> int:
    """Return the number of the unit that a moment lies in."""
    months = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200, "millennium": 12000}
    if unit in months:
        return (at.year * 12 + at.month - 1) // months[unit]
    days = (at - _EPOCH).days
    if unit in ("day", "week"):
        return days if unit == "day" else (days + 3) // 7  # Mondays
    micros = (at - _EPOCH) // dt.timedelta(microseconds=1)
    return micros // {"hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000, "millisecond": 1_000}.get(unit, 1)


def shifted(value: Range, amount: int, unit: str) -> Range:
    """Return the range of a moment plus an interval, in seconds."""
    moved = as_sort(value, "timestamp") if value.sort == "date" else value
    if moved.sort not in ("timestamp", "instant"):
        return UNKNOWN
    months = {"month": 1, "quarter": 3, "year": 12}
    if unit not in months:
        step = amount * {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}[unit]
        spread = DAY if moved.sort == "instant" else 0.0  # a day of local time may have 25 hours
        return Range(moved.lower + step - spread, moved.upper + step + spread, moved.whole, moved.sort)
    low, high = _ends(moved)
    lower = min(_months_later(low, amount * months[unit])) if low else -INF
    upper = max(_months_later(high, amount * months[unit])) if high else INF
    spread = DAY if moved.sort == "instant" else 0.0
    return Range(lower - spread, upper + spread, moved.whole, moved.sort)


def _months_later(at: dt.datetime, months: int) -> tuple[float, ...]:
    """Return the same day so many months later, or the last one of that month, in seconds; outside of the calendar two bounds."""
    year, month = divmod(at.year * 12 + at.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        seconds = (at - _EPOCH).total_seconds()
        return seconds + 28 * DAY * months - DAY, seconds + 31 * DAY * months + DAY
    day = min(at.day, calendar.monthrange(year, month + 1)[1])
    return ((at.replace(year=year, month=month + 1, day=day) - _EPOCH).total_seconds(),)
