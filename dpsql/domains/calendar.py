"""Where the calendar's years, months, weeks, days and hours begin, in steps of a DuckDB type since 1970.

Privacy: public.
"""

from __future__ import annotations

import datetime as dt

from dpsql.domains import sqltypes
from dpsql.domains.sqltypes import SqlType

SECOND = 1_000_000
YEARS = {"millennium": 1000, "century": 100, "decade": 10, "year": 1, "quarter": 0, "month": 0}
"""Names of what begins with a month, with its number of years; 0 for less than one."""

_EPOCH = dt.date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = (dt.date(1, 1, 1) - _EPOCH).days, (dt.date(9999, 12, 31) - _EPOCH).days
_MONDAY = 4  # 1970-01-05


def calendar_marks(parsed: SqlType, first: int, last: int, name: str, most: int) -> list[int]:
    """Return the first steps of hours, days, weeks, months, quarters or years from ``first`` to ``last``, at most so many.

    Examples
    --------
    >>> date = sqltypes.parse("DATE")
    >>> [sqltypes.step_text(date, step) for step in calendar_marks(date, 18_270, 18_330, "month", 9)]
    ['2020-01-01', '2020-02-01', '2020-03-01']
    """
    day = 1 if parsed.text == "DATE" else 86_400 * SECOND // sqltypes.MICROSECONDS[parsed.text]
    if name in YEARS:
        return year_marks(day, first, last, name)[:most]
    width = {"hour": day // 24, "day": day, "week": 7 * day}[name]
    offset = _MONDAY * day if name == "week" else 0
    return [*range((first - offset) // width * width + offset, last + 1, width)[:most]]


def year_marks(day: int, first: int, last: int, name: str) -> list[int]:
    """Return the starts of months, quarters, years, decades, ... around two moments; ``day``: steps of one day."""
    start = _EPOCH + dt.timedelta(days=max(first // day, _FIRST_DAY))
    end = _EPOCH + dt.timedelta(days=min(last // day, _LAST_DAY))
    if name in ("month", "quarter"):
        months = range(start.year * 12 + start.month - 1, end.year * 12 + end.month)
        starts = [dt.date(m // 12, m % 12 + 1, 1) for m in months if name == "month" or m % 3 == 0]
    else:
        step = YEARS[name]
        starts = [dt.date(max(year, 1), 1, 1) for year in range(start.year // step * step, end.year + 1, step)]
    return [(date - _EPOCH).days * day for date in starts]
