"""Whether the largest groups of an answer may be the largest by their noise alone. Post-processing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from sqlglot import exp

from dpsql.answers.answered import translated
from dpsql.answers.held import Part
from dpsql.queries.estimating import Estimates
from dpsql.queries.reading import Read
from dpsql.source.model import fold

_COUNTS = frozenset({"count", "count_units"})


def of_noise(read: Read, parts: Sequence[Sequence[Part]]) -> str | None:
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
    numbers = part.held.numbers
    estimates = Estimates(part.held.plan, [np.asarray(block, dtype=np.float64) for block in numbers.blocks])
    wanted = translated(part.asked, part.held.question)[place]
    values, shown = np.sort(estimates.value(wanted)), int(most.expression.name)
    measure = estimates.find(wanted)[0]
    deviation = estimates.deviation(query.blocks_of(measure).start) / query.measures[measure].grid
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
