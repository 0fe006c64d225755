"""A query's release in words: what is measured, how rows are bounded, how large the noise is."""

from __future__ import annotations

import math
from fractions import Fraction

from dpsql.calls.buying import BuyingCall
from dpsql.estimates.measures import Measure
from dpsql.queries.purchase import QueryPurchase
from dpsql.release.plan import Plan
from dpsql.release.queried import QueryPlan


def measures(query: QueryPlan) -> str:
    """Return what is measured: the aggregates, by how many groups.

    Aggregates are shown without the quotes of their one form.
    """
    asked = ", ".join(text.replace('"', "") for text in query.asked[:6]) + (", ..." if len(query.asked) > 6 else "")
    if not query.keys:
        return asked or "whether there are rows"
    groups = f"{query.groups:,} public groups" if query.public else "private groups"
    return f"{asked or 'which groups there are'} by {len(query.keys)} key{'' if len(query.keys) == 1 else 's'} ({groups})"


def keys(asked: BuyingCall) -> tuple[str, ...]:
    """Return the keys of a purchase, in their one form."""
    return tuple(text.replace('"', "") for text in asked.asked.key_texts) if isinstance(asked, QueryPurchase) else ()


def scale(plan: Plan) -> float | None:
    """Return the noise scale of the first measure, in rows: of its counters, over the grid on which they are counted."""
    if plan.query is None or not plan.scales:
        return None
    return float(plan.scales[0]) / plan.query.measures[0].grid


def bounding(query: QueryPlan, unit: str | None) -> list[str]:
    """Return how rows of a unit are bounded, and how private groups are chosen."""
    said = []
    if unit is not None and query.max_groups is not None:
        said.append(
            f"at most {query.max_groups:,} groups of each {unit} count, and at most {query.max_rows_per_group:,} of its rows in each, "
            "at random"
        )
    elif unit is not None:
        rows = "1 row" if query.max_rows == 1 else f"{query.max_rows:,} rows"
        said.append(f"at most {rows} of each {unit} count, at random")
    if not query.public:
        least = f", never with fewer than {query.min_units:,}" if (query.min_units or 1) > 1 else ""
        said.append(
            f"a group appears where its noisy number of {'rows' if unit is None else 'units'} reaches "
            f"{(query.threshold or 0) + (query.min_units or 1) - 1:,}{least}; "
            f"delta = {float(Fraction(query.delta or 0)):.3g} of it"
        )
    return said


def noise(plan: Plan) -> list[str]:
    """Return the standard deviation of the noise on what each measure gives."""
    query = plan.query
    if query is None:
        return []
    found, first = [], 0
    for measure in query.measures:
        sigma = float(plan.scales[first]) * (math.sqrt(2) if plan.mechanism == "laplace" else 1.0)
        found.append(_of(measure, sigma))
        first += len(measure.lengths)
    return [text for text in found if text]


def _of(measure: Measure, sigma: float) -> str:
    rows = sigma / measure.grid
    if measure.kind in ("count", "units", "distinct"):
        words = {"count": "a number of rows", "units": "a number of units", "distinct": "a number of distinct values"}
        return f"noise of {words[measure.kind]}: standard deviation {rows:.4g}"
    if measure.kind == "scaled":
        return f"noise of a sum: standard deviation {rows * measure.variables[0].magnitude:.4g}"
    if measure.kind == "moments" and len(measure.variables) == 1:
        one = measure.variables[0]
        count = rows * math.sqrt(measure.lengths[0])
        total = rows * math.hypot(one.lower, one.upper)
        return (
            f"noise of a number of rows: {count:.4g}; of their sum: about {total:.4g}; of their mean: about {rows * one.span:.4g} over "
            f"the number of rows (bounds {one.lower:g} to {one.upper:g})"
        )
    if measure.kind == "moments":
        return f"noise of each of {measure.lengths[0]} sums of two columns: {rows:.4g} rows"
    if measure.kind == "tree":
        one = measure.variables[0]
        return f"noise of each cell of {len(measure.levels)} histograms between {one.lower:g} and {one.upper:g}: {rows:.4g} rows"
    return f"noise of the number of rows of each of {measure.lengths[0]} values: {rows:.4g}"
