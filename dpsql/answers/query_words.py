"""A query's release in words: what is measured, how rows are bounded, how large the noise is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

from dpsql.estimates.measures import Measure, Variable
from dpsql.release.plan import Plan
from dpsql.release.queried import QueryPlan
from dpsql.text import readable

_SHOWN = 6  # aggregates
_MEAN_OF = 1_000
"""Rows over which a mean is taken as an example: how many there are is not public."""
Texts = Mapping[int, Callable[[float], str | None]]
"""By position of an argument: how its values are shown, where it is no number."""


def measures(query: QueryPlan, unit: str | None = None) -> str:
    """Return what is measured: the aggregates as they stand in SQL, by how many groups. ``unit``: its column."""
    asked = ", ".join(readable.aggregate(text, unit) for text in query.asked[:_SHOWN])
    asked += f" and {len(query.asked) - _SHOWN} more" if len(query.asked) > _SHOWN else ""
    if not query.keys:
        return asked or "whether there are rows"
    groups = ("1 public group" if query.groups == 1 else f"{query.groups:,} public groups") if query.public else "private groups"
    return f"{asked or 'which groups there are'} by {len(query.keys)} key{'' if len(query.keys) == 1 else 's'} ({groups})"


def scale(plan: Plan) -> float | None:
    """Return the noise scale of the first measure, in rows: of its counters, over the grid on which they are counted."""
    if plan.query is None or not plan.scales:
        return None
    return float(plan.scales[0]) / plan.query.measures[0].grid


def bounding(query: QueryPlan, unit: str | None) -> list[str]:
    """Return how rows of a unit are bounded, and how private groups are chosen; nothing where all rows and groups count."""
    sentences = []
    if query.unit and query.max_groups is not None:
        sentences.append(
            f"at most {_count(query.max_groups, 'group')} of each {unit or 'row of the table'}, and at most "
            f"{_count(query.max_rows_per_group or 1, 'row')} of it in each, are kept, at random: numbers are of the kept rows"
        )
    elif query.unit and unit is None and query.max_rows is not None:
        most = _count(query.max_rows, "row")
        sentences.append(f"a row that becomes several in this FROM counts as at most {most}, at random")
    elif unit is not None and query.max_rows is not None:
        are = "is" if query.max_rows == 1 else "are"
        which = ", of those that differ in group or counted value," if query.different else ""
        most = _count(query.max_rows, "row")
        sentences.append(f"at most {most} of each {unit}{which} {are} kept, at random: numbers are of the kept rows")
    if not query.public:
        units = "rows" if unit is None else f"{unit}s" if unit.isalpha() and not unit.endswith("s") else "units"
        least = f", and never one with fewer than {query.min_units:,} {units}" if (query.min_units or 1) > 1 else ""
        # the threshold is of the units above those that a group has to have
        reached = (query.threshold or 0) + (query.min_units or 1) - 1
        sentences.append(
            f"a group is released where its noisy number of {units} is at least {reached:,}{least}; that fails to hide a group of "
            f"{'too few' if least else 'one'} with a probability of at most {float(Fraction(query.delta or 0)):.3g} (of delta)"
        )
    return sentences


def limiting(most: int | None, unit: str | None) -> list[str]:
    """Return how many rows of a unit meet each other in the source, where that is limited."""
    if most is None:
        return []
    return [
        f"where rows of one {unit} meet others of the same, in a join, EXISTS or a window over sums, each side takes at "
        f"most {most:,} of them, chosen by a hash of the columns that are used: equal rows stay or go together"
    ]


def _count(number: int, of: str) -> str:
    return f"{number:,} {of}{'' if number == 1 else 's'}"


def noise(plan: Plan, texts: Texts | None = None) -> list[str]:
    """Return how large the noise is on what each measure gives. ``texts``: of values of arguments that are dates or times."""
    query = plan.query
    if query is None:
        return []
    lines, first = [], 0
    for measure in query.measures:
        sigma = float(plan.scales[first]) * (math.sqrt(2) if plan.mechanism == "laplace" else 1.0)
        line = _of(measure, sigma, texts or {})
        lines.append(f"{line}, of the rows of a FILTER" if measure.filter is not None else line)
        first += len(measure.lengths)
    lines += [
        f"standard deviation {learned.deviation:.4g} rows on each of {learned.cells:,} cells of a histogram of magnitudes, which "
        f"bounds are learned from: fewer than about {learned.sure:,.0f} rows far from all others do not show in it, and are moved "
        "to them"
        for learned in query.learning
        if any(variable.learned is not None for measure in query.measures for variable in measure.variables)
    ]
    for cutting in query.cutting:
        cells = f"each cell of {_count(len(cutting.scales), 'histogram')} of all groups together"
        line = "which say where the rows are: there the others are finer"
        lines.append(f"standard deviation {cutting.deviation:.4g} rows on {cells}, {line}")
    lines += [
        f"the quantile at {float(pick.share):g} is drawn by the exponential mechanism, of a rank that is off by about "
        f"{pick.deviation:.4g} rows (standard deviation); the histograms say within what interval"
        for pick in query.picking
    ]
    return list(dict.fromkeys(lines))


def ends(variable: Variable, texts: Texts) -> tuple[str, str]:
    """Return the bounds of a variable for reading."""
    shown = texts.get(variable.position, "{:g}".format)
    return shown(variable.lower) or "", shown(variable.upper) or ""


def _of(measure: Measure, sigma: float, texts: Texts) -> str:
    rows = sigma / measure.grid
    # the bounds are not known before they are bought, so the noise is said in multiples of them
    if any(variable.learned is not None for variable in measure.variables):
        if measure.kind == "tree":
            trees = _count(len(measure.levels), "histogram")
            return f"standard deviation {rows:.4g} rows on each cell of {trees} between learned bounds"
        if measure.kind == "scaled":
            return f"standard deviation {rows:.4g} times the larger learned bound on a sum"
        mean = f", and at most {rows / _MEAN_OF:.4g} times on a mean over {_MEAN_OF:,} rows" if len(measure.variables) == 1 else ""
        return f"standard deviation {rows:.4g} times the distance of the learned bounds on a sum{mean}"
    if measure.kind in ("count", "units", "distinct"):
        words = {"count": "a number of rows", "units": "a number of units", "distinct": "a number of distinct values"}
        return f"standard deviation {rows:.4g} on {words[measure.kind]}"
    if measure.kind == "scaled":
        return f"standard deviation {rows * measure.variables[0].magnitude:.4g} on a sum"
    if measure.kind == "moments" and len(measure.variables) == 1:
        over = measure.variables[0]
        count = rows * math.sqrt(measure.lengths[0])
        total = rows * math.hypot(over.lower, over.upper)
        return (
            f"standard deviation {count:.4g} on a number of rows, about {total:.4g} on their sum, and at most "
            f"{rows * over.span / _MEAN_OF:.4g} on a mean over {_MEAN_OF:,} rows of values from {over.lower:g} to {over.upper:g}, "
            "less over more rows"
        )
    if measure.kind == "moments":
        return f"standard deviation {rows:.4g} rows on each of the {measure.lengths[0]} sums that two columns are described by"
    if measure.kind == "tree":
        over = measure.variables[0]
        levels, (low, high) = _count(len(measure.levels), "histogram"), ends(over, texts)
        return f"standard deviation {rows:.4g} rows on each cell of {levels} of values from {low} to {high}"
    of = "units that have" if measure.once else "rows of"
    return f"standard deviation {rows:.4g} on the number of {of} each of {measure.lengths[0]:,} values"
