"""Parts of dates and times: each with all that is known of it, for the fields of moments, units of time and intervals.

Privacy: none; the calendar.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A field of a moment, and often a unit of time.

    Parameters
    ----------
    name : str
        The one of its spellings by which it is known here.
    grain : {'day', 'hour', 'minute', 'second', ''}
        The unit whose beginnings stand for all moments where nothing but this field is looked at; '' where it sees more.
    ends, within
        Smallest and largest value of a field that comes round, and the unit in which it grows from beginning to end.
    years, days : int
        Of units of years, how many; and the days that an interval of it has at most, 0 where there are no such intervals.
    unit, clock : bool
        Whether moments may be truncated to it, and be so many of it apart; whether a time of day has it too.
    """

    name: str
    grain: str = ""
    ends: tuple[int, int] | None = None
    within: str = ""
    years: int = 0
    days: int = 0
    unit: bool = False
    clock: bool = False


PARTS: dict[str, Part] = {
    spelling: part
    for spellings, part in {
        "year": Part("year", "day", years=1, days=366, unit=True),
        "decade": Part("decade", "day", years=10, unit=True),
        "century": Part("century", "day", years=100, unit=True),
        "millennium": Part("millennium", "day", years=1000, unit=True),
        "isoyear": Part("isoyear", "day"),
        "yearweek": Part("yearweek", "day"),
        "era": Part("era", "day", (0, 1)),
        "quarter": Part("quarter", "day", (1, 4), "year", days=92, unit=True),
        "month": Part("month", "day", (1, 12), "year", days=31, unit=True),
        "week weekofyear": Part("week", "day", (1, 53), days=7, unit=True),
        "day dayofmonth": Part("day", "day", (1, 31), "month", days=1, unit=True),
        "dow dayofweek weekday": Part("dow", "day", (0, 6)),
        "isodow": Part("isodow", "day", (1, 7)),
        "doy dayofyear": Part("doy", "day", (1, 366), "year"),
        "hour": Part("hour", "hour", (0, 23), "day", days=1, unit=True, clock=True),
        "minute": Part("minute", "minute", (0, 59), "hour", days=1, unit=True, clock=True),
        "second": Part("second", "second", (0, 59), "minute", days=1, unit=True, clock=True),
        "millisecond milliseconds": Part("millisecond", ends=(0, 59_999), unit=True, clock=True),
        "microsecond microseconds": Part("microsecond", ends=(0, 59_999_999), unit=True, clock=True),
        "epoch": Part("epoch"),
    }.items()
    for spelling in spellings.split()
}
"""Every spelling of a part -> the part."""

UNITS = frozenset(name for name, part in PARTS.items() if part.unit)
CLOCK = frozenset(name for name, part in PARTS.items() if part.clock)
"""What a time of day has."""
INTERVALS = {name: part.days for name, part in PARTS.items() if part.days and name == part.name}
"""Unit that a constant interval may have -> days of one of it, at most."""

SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
"""Unit of one length, without a calendar -> seconds of one of it."""
_COMPARED = SECONDS | {name: days * SECONDS["day"] for name, days in (("month", 30), ("quarter", 90), ("year", 360))}
SPANS = {name: 1_000_000 * seconds for name, seconds in _COMPARED.items()}
"""Unit of a constant interval -> microseconds of one of it, where intervals are compared: months have 30 days."""


def part_of(name: str) -> str:
    """Return the one spelling of a part; what is none stays.

    Examples
    --------
    >>> part_of("dayofweek"), part_of("fortnight")
    ('dow', 'fortnight')
    """
    return PARTS[name].name if name in PARTS else name
