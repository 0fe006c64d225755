"""Bounds of a query's arguments, chosen from the histograms of magnitudes that its release measures first.

A plan is fixed before a row is read, and of an argument with learned bounds says only how its histogram is measured, and the widest
bounds. After the histograms were released the bounds are chosen, and the measures are taken between these: `resolved_query` is the
plan with them. Sums are cut at the bounds of least expected error; histograms and quantiles reach over all values that seem to be
there. Counts and bounds are stored with the release.

Privacy: post-processing of released counts throughout. No sensitivity depends on the bounds, see `dpsql.estimates.magnitudes`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.errors import ReleaseError
from dpsql.estimates.leaves import Cells, Cutting, Level, Units, cut, released
from dpsql.estimates.magnitudes import Bounds, Learning, chosen, covering, likely
from dpsql.estimates.measures import Measure
from dpsql.numerics.arrays import IntArray
from dpsql.release.queried import QueryPlan

_FINE = 16
_DIGITS = 4
"""Digits of the span that bounds of sums are given with."""


@dataclass(frozen=True)
class Learned:
    """What was chosen from one histogram.

    Parameters
    ----------
    sums : (lower, upper)
        Of values that are added up.
    range : (lower, upper)
        Of all values that seem to be there.
    """

    sums: Bounds
    range: Bounds

    def to_json(self) -> list[float]:
        """Return a plain list."""
        return [*self.sums, *self.range]

    @classmethod
    def from_json(cls, item: Any) -> Learned:
        """Read what ``to_json`` wrote; ValueError where it is something else."""
        _require(isinstance(item, list) and len(item) == 4 and all(type(n) in (float, int) for n in item))
        return cls((float(item[0]), float(item[1])), (float(item[2]), float(item[3])))


def learned(plan: QueryPlan, scales: Sequence[Fraction], mechanism: str, counts: Sequence[IntArray]) -> tuple[Learned, ...]:
    """Return the bounds that noisy histograms suggest.

    Parameters
    ----------
    plan : QueryPlan
    scales : sequence of Fraction
        Noise scale of each block of its measures.
    mechanism : {'gaussian', 'laplace'}
    counts : sequence of int64 arrays
        As released, one for each of ``plan.learning``.
    """
    bounds = []
    for place, (learning, noisy) in enumerate(zip(plan.learning, counts, strict=True)):
        reach = covering(learning, noisy)
        users = [
            (measure, float(scales[plan.blocks_of(i).start]) / measure.grid)
            for i, measure in enumerate(plan.measures)
            if measure.kind in ("moments", "scaled") and any(variable.learned == place for variable in measure.variables)
        ]
        best = reach
        if users:
            # Of several measures over one argument that of the highest degree loses most by a wrong bound.
            measure, noise = max(users, key=lambda user: (user[0].degree, -user[1]))
            noise *= math.sqrt(2) if mechanism == "laplace" else 1.0
            groups = _groups(plan, float(likely(learning, noisy).sum()))
            if learning.declared and any(text.startswith("sum(") for text in plan.asked):
                groups = math.sqrt(groups)  # the bias of a total over them, against its noise
            best = chosen(learning, noisy, noise, degree=measure.degree, span=measure.kind == "moments", groups=groups)
        bounds.append(Learned(_short(learning, best), reach))
    return tuple(bounds)


def _short(learning: Learning, bounds: Bounds) -> Bounds:
    """Return bounds of sums of few digits, at most a thousandth further apart: in steps of a DECIMAL they are whole mostly.

    Between such bounds DECIMALs are added up exactly (`dpsql.measure.steps`): sooner, and not rounded row by row.
    """
    if learning.whole:
        return bounds
    digits = _DIGITS - 1 - math.floor(math.log10(bounds[1] - bounds[0]))
    lower, upper = (
        float(Decimal(repr(bound)).quantize(Decimal((0, (1,), -digits)), rounding=way))
        for bound, way in zip(bounds, (ROUND_FLOOR, ROUND_CEILING), strict=True)
    )
    return max(lower, learning.edges[0]), min(upper, learning.edges[-1])


def _groups(plan: QueryPlan, rows: float) -> float:
    """Return about how many groups share a bias.

    Public ones, of which each has a row; of private ones the middle, on a log scale, of one and as many as can reach the threshold.
    """
    if plan.public:
        return max(1.0, min(float(plan.groups or 1), rows))
    return max(1.0, math.sqrt(rows / max(1, plan.threshold or 1)))


def leaves(plan: QueryPlan, counts: Sequence[IntArray]) -> tuple[tuple[int, ...], ...]:
    """Return the ends of the leaves of each of ``plan.cutting`` that its released counts suggest."""
    return tuple(
        cut(plan.cells(cutting)[0], levels_of(plan, cutting, flat), plan.measures[cutting.place].lengths[-1])
        for cutting, flat in zip(plan.cutting, counts, strict=True)
    )


def levels_of(plan: QueryPlan, cutting: Cutting, counts: IntArray) -> list[Level]:
    """Return the cells of every level with their counts from a release's flat ones; ValueError where they are too few or many."""
    start = 0

    def take(_: int, cells: Cells) -> IntArray:
        nonlocal start
        start += cells[0].size
        _require(start <= counts.size)
        return counts[start - cells[0].size : start]

    levels = released(plan.cells(cutting)[0], cutting, plan.measures[cutting.place].lengths[-1], take)
    _require(start == counts.size)
    return levels


def resolved_query(
    plan: QueryPlan, bounds: Sequence[Learned], ends: Sequence[Sequence[int]] = (), picks: Sequence[IntArray] = ()
) -> QueryPlan:
    """Return the plan with the bounds, leaves and quantiles that were chosen: its variables are plain ones.

    Notes
    -----
    Where the planned grid is much finer than integers between the bounds need, the largest multiple of the span below it is taken:
    on it they are exact. A row's counters then have slightly smaller norms than was charged for.
    """
    measures = [_resolved(measure, bounds) for measure in plan.measures]
    for cutting, edges in zip(plan.cutting, ends, strict=True):
        measures[cutting.place] = replace(measures[cutting.place], edges=tuple(edges))
    picking = tuple(pick.over(measures[pick.place].variables[0]) for pick in plan.picking)
    if picks:
        picking = tuple(pick.picked(values) for pick, values in zip(picking, picks, strict=True))
    return replace(plan, measures=tuple(measures), picking=picking)


def weighed(plan: QueryPlan, resolved: QueryPlan, counts: Sequence[IntArray]) -> list[Sequence[int]]:
    """Return for each of ``plan.picking`` the ends of leaves that weigh the same, in units.

    Those of its tree, where they were cut. Under learned bounds they are cut from the histogram of magnitudes, whose cells follow
    the rows better than equal leaves. Else all units are one leaf.

    Parameters
    ----------
    resolved : QueryPlan
        The plan with what was learned and cut.
    counts : sequence of int64 arrays
        As released, one for each of ``plan.learning``.
    """
    ends: list[Sequence[int]] = []
    for picking, bounded in zip(plan.picking, resolved.picking, strict=True):
        measure, units = resolved.measures[picking.place], bounded.units
        place = plan.measures[picking.place].variables[0].learned
        if units is None:
            raise ReleaseError("the plan picks a quantile between bounds that it has not")
        if place is not None:
            learning, most = plan.learning[place], min(measure.lengths[-1], units.count)
            ends.append(cut(units, [_magnitudes(units, learning, counts[place])], most) if most > 1 else (0, units.count))
        else:
            ends.append(measure.edges if measure.units is not None else (0, units.count))
    return ends


def _magnitudes(units: Units, learning: Learning, counts: IntArray) -> Level:
    """Return a released histogram of magnitudes as cells of units; of cells beyond them all is in the outermost."""
    starts = np.ceil((np.asarray(learning.edges[:-1]) - units.lower) / units.width)
    first = np.clip(starts, 0, units.count - 1).astype(np.int64)
    first[0] = 0
    cells, owner = np.unique(first, return_inverse=True)
    masses = np.zeros(cells.size)
    np.add.at(masses, owner, likely(learning, counts))
    return Level(cells, np.append(cells[1:], units.count), np.rint(masses).astype(np.int64), np.zeros(cells.size, np.int64))


def _resolved(measure: Measure, bounds: Sequence[Learned]) -> Measure:
    if all(variable.learned is None for variable in measure.variables):
        return measure
    variables = []
    for variable in measure.variables:
        if variable.learned is not None:
            bound = bounds[variable.learned]
            # Trees reach over the whole range that was seen; sums are clamped where that costs less than the noise.
            lower, upper = bound.range if measure.kind == "tree" else bound.sums
            variable = replace(variable, lower=lower, upper=upper, learned=None)
        variables.append(variable)
    first, grid = variables[0], measure.grid
    if len(variables) == 1 and first.whole and measure.kind in ("moments", "scaled"):
        # Of whole numbers within small bounds the grid can be a multiple of them: then nothing is rounded.
        power = int(first.magnitude) if measure.kind == "scaled" else int(first.span) ** measure.degree
        grid = power * (grid // power) if 0 < _FINE * power <= grid else grid
    return replace(measure, variables=tuple(variables), grid=grid)


def check_learned(learning: Sequence[Learning], counts: Sequence[IntArray], bounds: Sequence[Learned]) -> None:
    """Refuse counts and bounds that no release of such histograms has.

    Raises
    ------
    ValueError
    """
    _require(len(learning) == len(counts) == len(bounds))
    for histogram, noisy, bound in zip(learning, counts, bounds, strict=True):
        _require(noisy.shape == (histogram.cells,))
        for lower, upper in (bound.sums, bound.range):
            _require(histogram.edges[0] <= lower < upper <= histogram.edges[-1])
            _require(not histogram.whole or (lower == math.floor(lower) and upper == math.floor(upper)))


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("not what a release holds of learned bounds")
