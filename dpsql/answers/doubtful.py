"""What of an answer may be noise alone: the largest of many groups, means and numbers of values of small ones. Post-processing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from sqlglot import exp

from dpsql.algebra.aggregates import QUANTILES
from dpsql.answers.answered import translated
from dpsql.answers.held import Part
from dpsql.estimates.measures import Measure
from dpsql.noise.entropy import BoolArray
from dpsql.numerics.arrays import FloatArray
from dpsql.queries.reading import Read
from dpsql.source.model import fold
from dpsql.text import readable

_COUNTS = frozenset({"count", "count_units"})
_NUMBERS = QUANTILES | {"avg", "count_distinct"}
_CONFIDENCE = 0.95
_HIDDEN = 0.5
"""Of the distance of an argument's bounds: where an interval is wider, the noise hides the number."""
_MOST_GROUPS = 10_000


def doubts(read: Read, parts: Sequence[Sequence[Part]]) -> list[str]:
    """Return what is to be said of an answer without intervals of which some is noise."""
    order, each = _of_order(read, parts), [part for row in parts for part in row]
    chosen = read.call.groups == "private" or read.call.min_units is not None  # they are private as it was asked
    groups = [] if chosen else [line for part in each for line in _of_private(part)]
    numbers = [] if read.call.confidence is not None else [line for part in each for line in _of_numbers(part)]
    return [*([] if order is None else [order]), *dict.fromkeys([*groups, *numbers])]


def _of_private(part: Part) -> list[str]:
    """Return that groups are private, and how many units one needs to be shown; nothing where they alone are asked for."""
    query = part.held.plan.query
    if query is None or query.public or query.threshold is None or not part.asked.wanted:
        return []
    unit = part.protected.protection.privacy_unit
    needed = f"{query.threshold:,} {'rows' if unit is None else f'units ({unit})'}"
    why = "groups are private, since they are not all known without the data (dp_plan says why)"
    lines = [f"{why}: one of fewer than about {needed} is missing as a rule"]
    if not part.held.numbers.groups:
        apart = "" if unit is None else f"; where a subquery is to group the rows of each {unit}, {unit} has to be among its keys"
        lines.append(f"no group was found{apart}")
    return lines


def _of_numbers(part: Part) -> list[str]:
    """Return in how many groups the noise hides a mean, a quantile or a number of distinct values."""
    query, estimates = part.held.plan.query, part.held.estimates
    count = len(part.held.numbers.groups)
    if query is None or count > _MOST_GROUPS:
        return []
    lines = []
    for wanted, asked in zip(translated(part.asked, part.held.question), part.asked.wanted, strict=True):
        if wanted.function not in _NUMBERS:
            continue
        ends = estimates.interval(wanted, _CONFIDENCE)
        hidden = 0 if ends is None else int(_hides(query.measures[estimates.find(wanted)[0]], *ends).sum())
        if hidden:
            where = f"in {hidden:,} of {count:,} groups" if part.asked.places else "here"
            shown = readable.aggregate(asked.text, part.protected.protection.privacy_unit)
            lines.append(f"noise hides {shown} {where}; confidence := {_CONFIDENCE} says between which numbers it is")
    return lines


def _hides(measure: Measure, low: FloatArray, high: FloatArray) -> BoolArray:
    """Return in which groups noise hides a number, of which these are the ends of the interval."""
    if measure.kind == "distinct":  # which may be any number
        return np.asarray((low <= 0) & (high > 1))
    variable = measure.variables[0]
    span = float(len(measure.values)) if measure.values else variable.upper - variable.lower
    if span <= 0:
        return np.zeros(len(low), bool)
    width = np.atleast_2d((np.asarray(high) - np.asarray(low)).T)
    return np.asarray((width > _HIDDEN * span).any(axis=0))


def _of_order(read: Read, parts: Sequence[Sequence[Part]]) -> str | None:
    """Return what is to be said of a list of the largest public groups that reaches down to where noise alone is; None of others.

    Parameters
    ----------
    read : Read
        ``... ORDER BY count(*) DESC LIMIT n``.
    parts : sequence of sequence of Part

    Notes
    -----
    Of G groups without any row the largest noisy number is near sigma sqrt(2 ln G), or b ln G of Laplace noise.
    """
    outer = read.query.outer
    most = outer.args.get("limit")
    if len(parts) != 1 or len(parts[0]) != 1 or most is None or not most.expression.name.isdigit():
        return None
    place = _ordered_by(outer)
    [[part]] = parts
    query = part.held.plan.query
    if place is None or query is None or not query.public or part.asked.wanted[place].function not in _COUNTS:
        return None
    estimates, wanted = part.held.estimates, translated(part.asked, part.held.question)[place]
    values, shown = np.sort(estimates.value(wanted)), int(most.expression.name)
    deviation = estimates.linear_deviation(wanted)
    groups = math.log(max(len(values), 2))
    reach = deviation * (groups / math.sqrt(2) if estimates.mechanism == "laplace" else math.sqrt(2 * groups))
    if not 0 < shown < len(values) or values[-shown] >= reach:
        return None
    return (
        f"the largest {shown:,} of {len(values):,} groups: of so many, noise alone reaches about {reach:,.3g}, and numbers "
        "below that may be of groups that have few rows or none"
    )


def _ordered_by(outer: exp.Expression) -> int | None:
    """Return which aggregate a statement puts its rows in descending order of, by its number; None where it is no such order."""
    order = outer.args.get("order")
    first = order.expressions[0] if isinstance(outer, exp.Select) and order is not None else None
    if first is None or not first.args.get("desc"):
        return None
    key = first.this
    listed = outer.expressions
    if isinstance(key, exp.Literal) and key.name.isdigit() and 0 < int(key.name) <= len(listed):
        key = listed[int(key.name) - 1]
    elif isinstance(key, exp.Column):
        key = next((item for item in listed if fold(item.alias_or_name) == fold(key.name)), key)
    name = key.unalias().name if isinstance(key.unalias(), exp.Column) else ""
    return int(name[1:]) if name[:1] == "a" and name[1:].isdigit() else None
