"""Ranges of dates and timestamps: their fields, truncations, differences and shifts, as far as the bounds tell.

Date functions of a source are NULL further than 100,000 years away (`dpsql.source.functions.guard_temporal`); so far the
calendar of `_Local` reaches. The local time of an instant (TIMESTAMP WITH TIME ZONE) depends on the session: it is known to a day.

Privacy: none; nothing in here has seen data.
"""

from __future__ import annotations

import calendar
import datetime as dt
import math
from dataclasses import dataclass

from dpsql.algebra.parts import PARTS, SECONDS, UNITS, part_of
from dpsql.algebra.ranges import DAY, INF, UNKNOWN, Range, as_sort

_EPOCH = dt.datetime(1970, 1, 1)
_CYCLE = 146_097
"""Days of 400 years, after which the calendar repeats, weekdays too."""
_ZERO = (dt.datetime(2000, 1, 1) - _EPOCH).days
_FARTHEST = 100_001
"""Years from which on date functions are NULL."""
_BLUR = 2e-5
"""Seconds that a double is off at most, between years 1 and 9999."""

_UTC = frozenset(["UTC", "ETC/UTC", "ZULU", "ETC/ZULU", "UCT", "ETC/UCT", "GMT", "ETC/GMT"])


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


def time_of_day(text: str) -> Range | None:
    """Return the range of one time of day, in seconds since midnight; None if it is none.

    Examples
    --------
    >>> time_of_day("08:00"), time_of_day("24:00:00").upper, time_of_day("8")
    (Range(lower=28800.0, upper=28800.0, whole=False, sort='time'), 86400.0, None)
    """
    if text.strip() in ("24:00", "24:00:00"):
        return Range(DAY, DAY, False, "time")
    try:
        read = dt.time.fromisoformat(text.strip())
    except ValueError:
        return None
    if ":" not in text or read.tzinfo is not None:
        return None
    seconds = (dt.datetime.combine(_EPOCH, read) - _EPOCH).total_seconds()
    return Range(seconds, seconds, False, "time")


@dataclass(frozen=True)
class _Local:
    """A moment of the Gregorian calendar, in any year: one of the years 2000 to 2399, and how many times 400 years later."""

    at: dt.datetime
    cycles: int

    @classmethod
    def of(cls, seconds: float) -> _Local:
        """Return the moment so many seconds after 1970-01-01."""
        cycles = math.floor((seconds / DAY - _ZERO) / _CYCLE)
        return cls(_EPOCH + dt.timedelta(seconds=seconds - cycles * _CYCLE * DAY), cycles)

    @classmethod
    def date(cls, year: int, month: int = 1, day: int = 1) -> _Local:
        """Return the beginning of a day; one that the month does not have is its last."""
        cycles, rest = divmod(year - 2000, 400)
        last = calendar.monthrange(2000 + rest, month)[1]
        return cls(dt.datetime(2000 + rest, month, min(day, last)), cycles)

    @property
    def year(self) -> int:
        """Its year; 0 is 1 BC."""
        return self.at.year + 400 * self.cycles

    @property
    def days(self) -> int:
        """Days since 1970-01-01."""
        return (self.at - _EPOCH).days + _CYCLE * self.cycles

    @property
    def micros(self) -> int:
        """Microseconds since 1970-01-01."""
        return (self.at - _EPOCH) // dt.timedelta(microseconds=1) + _CYCLE * self.cycles * 86_400_000_000

    @property
    def seconds(self) -> float:
        """Seconds since 1970-01-01."""
        return (self.at - _EPOCH).total_seconds() + _CYCLE * self.cycles * DAY


def _ends(value: Range) -> tuple[_Local | None, _Local | None]:
    """Return the local times of the bounds; None where there is none."""
    local = as_sort(value, "timestamp")
    if local.sort != "timestamp":
        return None, None
    sides = (local.lower, -1), (local.upper, 1)
    low, high = (None if math.isinf(end) else _within(end if local.whole else _blurred(end, way)) for end, way in sides)
    return low, high


def _within(seconds: float) -> _Local:
    """Return a moment within the years in which functions have a value."""
    first, last = _Local.date(-_FARTHEST).seconds, _Local.date(_FARTHEST).seconds
    return _Local.of(min(max(seconds, first), last))


def _blurred(seconds: float, way: int) -> float:
    return seconds if seconds == math.floor(seconds) else seconds + way * max(_BLUR, abs(seconds) * 2.0**-51)


def field(part: str, value: Range) -> Range:
    """Return the range of a field of a moment (or of a time of day, whose sort is unknown): ``date_part(part, value)``."""
    part = part_of(part)
    low, high = _ends(value)
    if part == "epoch":
        seconds = as_sort(value, "timestamp") if value.sort == "date" else value
        return Range(seconds.lower, seconds.upper, seconds.whole) if value.sort in ("date", "timestamp", "instant") else UNKNOWN
    known = PARTS.get(part)
    if known is None:
        return UNKNOWN
    if known.ends is None:
        least = _number(part, low) - _slack(part, low) if low else -INF
        most = _number(part, high) + _slack(part, high) if high else INF
        return Range(float(least), float(most), True, "integer")
    first, last = known.ends
    unit = known.within
    if unit and low and high and _cut(unit, low) == _cut(unit, high):
        first, last = _number(part, low), _number(part, high)
    return Range(float(first), float(last), True, "integer")


def _slack(part: str, at: _Local) -> int:
    """Return how far DuckDB's field may be from that of `_number`: before year 1 some are cut towards 0."""
    return 0 if at.year >= 1 or part == "year" else 200 if part == "yearweek" else 2


def _number(part: str, local: _Local) -> int:
    at, year = local.at, local.year
    iso = at.isocalendar()
    iso_year = iso.year + 400 * local.cycles
    return {
        "year": year, "decade": year // 10, "century": (year - 1) // 100 + 1, "millennium": (year - 1) // 1000 + 1,
        "isoyear": iso_year, "yearweek": iso_year * 100 + iso.week, "quarter": (at.month - 1) // 3 + 1, "month": at.month,
        "day": at.day, "doy": at.timetuple().tm_yday, "hour": at.hour, "minute": at.minute, "second": at.second,
    }[part]


def _cut(unit: str, local: _Local) -> _Local:
    """Return the beginning of the unit that a moment lies in."""
    at, year = local.at, local.year
    if (years := PARTS[unit].years):
        return _Local.date(year - year % years)
    if unit in ("quarter", "month"):
        return _Local.date(year, at.month - (at.month - 1) % 3 if unit == "quarter" else at.month)
    if unit == "week":
        return _Local.of((local.days - at.weekday()) * DAY)
    steps = {
        "hour": at.replace(minute=0, second=0, microsecond=0), "minute": at.replace(second=0, microsecond=0),
        "day": at.replace(hour=0, minute=0, second=0, microsecond=0),
    }
    return _Local(steps.get(unit, at.replace(microsecond=0)), local.cycles)


def truncated(unit: str, value: Range) -> Range:
    """Return the range of ``date_trunc(unit, value)``, in seconds."""
    unit, (low, high) = part_of(unit), _ends(value)
    if value.sort not in ("date", "timestamp", "instant") or unit not in UNITS:
        return UNKNOWN
    if unit in ("millisecond", "microsecond"):
        return as_sort(value, "timestamp") if value.sort == "date" else Range(value.lower - 1e-3, value.upper, False, value.sort)
    sort = "instant" if value.sort == "instant" else "timestamp"
    spread = DAY if sort == "instant" else 0.0
    lower = _cut(unit, low).seconds - spread if low else -INF
    upper = _cut(unit, high).seconds + spread if high else INF
    if high and high.year < 0:  # before year 1 units of years are cut towards 0
        upper += PARTS[unit].years * 366 * DAY
    return Range(lower, upper, True, sort)


def in_zone(zone: str, value: Range) -> Range:
    """Return the range of ``value AT TIME ZONE zone``, in seconds: the local time of an instant, or the instant of a local time.

    No zone has ever been a day away from UTC, and UTC has always been UTC.

    Examples
    --------
    >>> in_zone("UTC", Range(0.0, 5.0, True, "instant")), in_zone("Asia/Tokyo", Range(0.0, 5.0, True, "timestamp")).upper
    (Range(lower=0.0, upper=5.0, whole=True, sort='timestamp'), 86405.0)
    """
    if value.sort not in ("date", "timestamp", "instant"):
        return UNKNOWN
    local = value.sort != "instant"
    seconds = as_sort(value, "timestamp") if value.sort == "date" else value
    spread = 0.0 if zone.upper() in _UTC else DAY
    return Range(seconds.lower - spread, seconds.upper + spread, seconds.whole and not spread, "instant" if local else "timestamp")


def last_day(value: Range) -> Range:
    """Return the range of ``last_day(value)``, in days."""

    def end(local: _Local) -> float:
        return float(_Local.date(local.year, local.at.month, 31).days)

    low, high = _ends(value)
    return Range(end(low) if low else -INF, end(high) if high else INF, True, "date")


def difference(unit: str, start: Range, end: Range, *, complete: bool = False) -> Range:
    """Return the range of ``date_diff(unit, start, end)``, or with ``complete`` of date_sub, which counts whole units only."""
    unit, (start_low, start_high), (end_low, end_high) = part_of(unit), _ends(start), _ends(end)
    if unit not in UNITS:
        return UNKNOWN
    # Centuries and millennia begin in year 0 for some functions and in year 1 for others.
    spread = int(complete or unit in ("century", "millennium") or unit == "decade")
    lows = [end for end in (start_low, end_low) if end is not None]
    # Before year 1, and before 1970 for parts of days, numbers of units are cut towards 0; weeks are not those of Mondays.
    spread += 2 * any(end.year < 1 for end in lows) + (unit == "week" or (unit != "day" and any(end.days < 0 for end in lows)))
    lower = _count(unit, end_low) - _count(unit, start_high) - spread if end_low and start_high else -INF
    upper = _count(unit, end_high) - _count(unit, start_low) + spread if end_high and start_low else INF
    return Range(float(lower), float(upper), True, "integer")


def _count(unit: str, local: _Local) -> int:
    """Return the number of the unit that a moment lies in."""
    months = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200, "millennium": 12000}
    if unit in months:
        return (local.year * 12 + local.at.month - 1) // months[unit]
    if unit in ("day", "week"):
        return local.days if unit == "day" else (local.days + 3) // 7  # Mondays
    micros = local.micros
    return micros // {"hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000, "millisecond": 1_000}.get(unit, 1)


def shifted(value: Range, amount: int, unit: str) -> Range:
    """Return the range of a moment plus an interval, in seconds."""
    moved = as_sort(value, "timestamp") if value.sort == "date" else value
    if moved.sort not in ("timestamp", "instant"):
        return UNKNOWN
    months = {"month": 1, "quarter": 3, "year": 12}
    if unit not in months:
        step = amount * SECONDS[unit]
        spread = DAY if moved.sort == "instant" else 0.0  # a day of local time may have 25 hours
        return Range(moved.lower + step - spread, moved.upper + step + spread, moved.whole, moved.sort)
    low, high = _ends(moved)
    lower = _months_later(low, amount * months[unit]) if low else -INF
    upper = _months_later(high, amount * months[unit]) if high else INF
    spread = DAY if moved.sort == "instant" else 0.0
    return Range(lower - spread, upper + spread, moved.whole, moved.sort)


def _months_later(local: _Local, months: int) -> float:
    """Return the same day so many months later, or the last one of that month, in seconds."""
    year, month = divmod(local.year * 12 + local.at.month - 1 + months, 12)
    time = local.seconds - local.days * DAY
    return _Local.date(year, month + 1, local.at.day).seconds + time
