"""Ranges of aggregates and window functions, from the ranges of what they summarise.

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


def _argument(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    first = given[0]
    return extent(first.expressions[0] if isinstance(first, exp.Distinct) and first.expressions else first)


def _same(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    return _argument(extent, given)


def _middle(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    """Return the range of a mean or of an interpolated quantile: between the values; of dates a timestamp."""
    value = _argument(extent, given)
    if value.sort in TEMPORAL:
        seconds = 86_400.0 if value.sort == "date" else 1.0
        return Range(value.lower * seconds, value.upper * seconds, False, "instant" if value.sort == "instant" else "timestamp")
    return value if value.sort in ("unknown", "nothing", "time") else Range(value.lower, value.upper)


def _sum(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    value = _argument(extent, given)
    lower, upper = (0.0 if value.lower >= 0 else -INF), (0.0 if value.upper <= 0 else INF)
    return Range(lower, upper, value.whole, value.sort) if value.sort in ("number", "integer") else UNKNOWN


def _count(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    """Return the range of a count: of DISTINCT whole numbers at most as many as there are."""
    if given and isinstance(given[0], exp.Distinct) and len(given[0].expressions) == 1:
        value = extent(given[0].expressions[0])
        if value.whole and value.finite:
            return replace(_COUNT, upper=math.floor(value.upper) - math.ceil(value.lower) + 1.0)
    return _COUNT


def _spread(part: float, root: bool) -> Rule:
    """Return the rule of a variance: at most this part of the squared width (Popoviciu 1935), or of its root."""

    def rule(extent: Extent, given: Sequence[exp.Expression]) -> Range:
        value = _argument(extent, given)
        width = value.upper - value.lower
        return made(0.0, width * math.sqrt(part) if root else width * width * part)

    return rule


def _between(lower: float, upper: float, *, whole: bool = False) -> Rule:
    value = Range(lower, upper, whole, "integer" if whole else "number")
    return lambda extent, given: value


def _neighbour(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    """Return the range of lag or lead, whose third argument stands in where there is no row."""
    return hull(extent(given[0]), extent(given[2])) if len(given) > 2 else extent(given[0])


def _parts(extent: Extent, given: Sequence[exp.Expression]) -> Range:
    return replace(extent(given[0]), lower=1.0, whole=True, sort="integer") if extent(given[0]).upper >= 1 else NUMBER


SUMMARIES: dict[str, Rule] = {
    **dict.fromkeys(
        ("min", "max", "first", "last", "any_value", "arbitrary", "mode", "quantile_disc", "arg_max", "arg_min", "max_by", "min_by",
         "first_value", "last_value", "nth_value", "argmax", "argmin"),
        _same,
    ),
    **dict.fromkeys(
        ("avg", "mean", "median", "quantile", "quantile_cont", "approx_quantile", "favg", "geomean", "geometric_mean"), _middle
    ),
    **dict.fromkeys(("sum", "fsum", "sumkahan", "kahan_sum", "sum_no_overflow"), _sum),
    **dict.fromkeys(("count", "count_star"), _count),
    **dict.fromkeys(("count_if", "countif", "approx_count_distinct"), _between(0.0, INF, whole=True)),
    **dict.fromkeys(("row_number", "rank", "dense_rank", "rank_dense"), _between(1.0, INF, whole=True)),
    **dict.fromkeys(("bool_and", "bool_or"), _between(0.0, 1.0, whole=True)),
    **dict.fromkeys(("percent_rank", "cume_dist", "regr_r2"), _between(0.0, 1.0)),
    "corr": _between(-1.0, 1.0),
    "ntile": _parts,
    **dict.fromkeys(("lag", "lead"), _neighbour),
    "var_pop": _spread(0.25, root=False),
    **dict.fromkeys(("var_samp", "variance"), _spread(0.5, root=False)),
    "stddev_pop": _spread(0.25, root=True),
    **dict.fromkeys(("stddev_samp", "stddev"), _spread(0.5, root=True)),
}
"""Aggregate or window function -> range of its values."""

NO_ARGUMENT = frozenset(
    ["count", "count_star", "row_number", "rank", "dense_rank", "rank_dense", "percent_rank", "cume_dist"]
)
"""Those that may be called without an argument."""
