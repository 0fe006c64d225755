"""Rules of the table of aggregates: the range of what an aggregate or window function makes, from that of its argument.

They stand in subqueries that keep the privacy unit: ``SELECT unit, max(x) FROM t GROUP BY unit``. How many rows a unit has is not
known, so a sum has a bound on the side where its argument has none of that sign.

Privacy: none; nothing in here has seen data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.algebra.ranges import INF, NUMBER, TEMPORAL, UNKNOWN, Range, hull, made

Extent = Callable[[exp.Expression], Range]
Rule = Callable[[Extent, Sequence[exp.Expression]], Range]
_COUNT = Range(0.0, INF, True, "integer")


def _argument(extent: Extent, arguments: Sequence[exp.Expression]) -> Range:
    first = arguments[0]
    return extent(first.expressions[0] if isinstance(first, exp.Distinct) and first.expressions else first)


def same(extent: Extent, arguments: Sequence[exp.Expression]) -> Range:
    """Return the range of one of the values."""
    return _argument(extent, arguments)


def middle(extent: Extent, arguments: Sequence[exp.Expression]) -> Range:
    """Return the range of a mean or of an interpolated quantile: between the values; of dates a timestamp."""
    value = _argument(extent, arguments)
    if value.sort in TEMPORAL:
        seconds = 86_400.0 if value.sort == "date" else 1.0
        return Range(value.lower * seconds, value.upper * seconds, False, "instant" if value.sort == "instant" else "timestamp")
    return value if value.sort in ("unknown", "nothing", "time") else Range(value.lower, value.upper)


def total(extent: Extent, arguments: Sequence[exp.Expression]) -> Range:
    """Return the range of a sum of any number of values."""
    value = _argument(extent, arguments)
    lower, upper = (0.0 if value.lower >= 0 else -INF), (0.0 if value.upper <= 0 else INF)
    return Range(lower, upper, value.whole, value.sort) if value.sort in ("number", "integer") else UNKNOWN


def count(extent: Extent, arguments: Sequence[exp.Expression]) -> Range:
    """Return the range of a count: of DISTINCT whole numbers at most as many as there are."""
    if arguments and isinstance(arguments[0], exp.Distinct) and len(arguments[0].expressions) == 1:
        value = extent(arguments[0].expressions[0])
        if value.whole and value.finite:
            return replace(_COUNT, upper=math.floor(value.upper) - math.ceil(value.lower) + 1.0)
    return _COUNT


def spread(part: float, root: bool) -> Rule:
    """Return the rule of a variance: at most this part of the squared width (Popoviciu 1935), or of its root."""

    def rule(extent: Extent, arguments: Sequence[exp.Expression]) -> Range:
        value = _argument(extent, arguments)
        width = value.upper - value.lower
        return made(0.0, width * math.sqrt(part) if root else width * width * part)

    return rule


def _fixed(lower: float, upper: float, *, whole: bool = False) -> Rule:
    value = Range(lower, upper, whole, "integer" if whole else "number")
    return lambda extent, arguments: value


def neighbour(extent: Extent, arguments: Sequence[exp.Expression]) -> Range:
    """Return the range of lag or lead, whose third argument stands in where there is no row."""
    return hull(extent(arguments[0]), extent(arguments[2])) if len(arguments) > 2 else extent(arguments[0])


def parts(extent: Extent, arguments: Sequence[exp.Expression]) -> Range:
    """Return the range of ntile."""
    return replace(extent(arguments[0]), lower=1.0, whole=True, sort="integer") if extent(arguments[0]).upper >= 1 else NUMBER


NUMBER_OF = _fixed(0.0, INF, whole=True)
"""Of rows or values."""
PLACE = _fixed(1.0, INF, whole=True)
"""Of a row among others."""
TRUTH = _fixed(0.0, 1.0, whole=True)
SHARE = _fixed(0.0, 1.0)
WITHOUT_ARGUMENT = (count, PLACE, SHARE)
"""Those that need none."""
