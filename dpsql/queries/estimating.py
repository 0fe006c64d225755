"""From released counters to the aggregates of a query. Post-processing: nothing here has seen a row."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpsql.errors import ReleaseError
from dpsql.estimates import moments as sums
from dpsql.estimates.measures import Measure
from dpsql.estimates.quantiles import Tree, extreme, quantiles, tree
from dpsql.numerics.arrays import FloatArray
from dpsql.queries.asked import Wanted
from dpsql.queries.choosing import LISTED, RANKED, counts
from dpsql.release.plan import Plan
from dpsql.release.queried import QueryPlan

Blocks = Sequence[FloatArray]
"""One array of shape (..., groups, counters) for each block of the plan."""


class Estimates:
    """The aggregates that one release gives.

    Parameters
    ----------
    plan : Plan
        Of the release.
    blocks : sequence of float arrays, shape (..., groups, counters)
        As released; or, in the leading dimensions, as they may have been before the noise.
    """

    def __init__(self, plan: Plan, blocks: Blocks) -> None:
        if plan.query is None:
            raise ReleaseError("the release is not the answer of a query")
        self.query: QueryPlan = plan.query
        self.blocks = list(blocks)
        self.mechanism = plan.mechanism
        self.scales = [float(scale) for scale in plan.scales]
        self._moments: dict[int, sums.Moments] = {}
        self._trees: dict[int, Tree] = {}

    @property
    def one_row(self) -> bool:
        """Whether a unit has at most one row in a group."""
        return self.query.max_rows == 1 or self.query.max_rows_per_group == 1

    def deviation(self, block: int) -> float:
        """Return the standard deviation of the noise of a block, as it was drawn."""
        return self.scales[block] * (math.sqrt(2) if self.mechanism == "laplace" else 1.0)

    def block(self, place: int) -> FloatArray:
        """Return the counters of a measure that has one block."""
        return np.asarray(self.blocks[self.query.blocks_of(place).start], dtype=np.float64)

    def find(self, one: Wanted) -> list[int]:
        """Return the measures that give an aggregate; none, if it was not measured."""
        if one.function == "count":
            return [i for i, measure in enumerate(self.query.measures) if counts(one, measure, one_row=self.one_row)]
        return [i for i, measure in enumerate(self.query.measures) if _gives(one, measure)]

    def value(self, one: Wanted) -> FloatArray:
        """Return an aggregate, see `_value`; what is beyond the range of numbers is infinite, without a warning."""
        with np.errstate(all="ignore"):
            return self._value(one)

    def _value(self, one: Wanted) -> FloatArray:
        """Return an aggregate: shape (..., groups), or (..., groups, quantiles); NaN for NULL. For `LISTED` ones: the counters."""
        found = self.find(one)
        if not found:
            raise ReleaseError(f"{one.text} is not in the release")
        if one.function == "count":
            return np.rint(self.count(one))
        place, measure = found[0], self.query.measures[found[0]]
        if one.function == "count_units":
            return np.rint(self.block(place)[..., 0])
        if one.function == "count_distinct":
            return np.clip(np.rint(self.block(place)[..., 0]), 0, measure.variables[0].upper)
        if measure.kind == "scaled":
            return sums.scaled_sum(measure, self.block(place))
        if measure.kind == "moments":
            return sums.estimate(one.function, self.moments(place))
        if measure.kind == "values":
            return self.block(place)
        return self.quantiles(place, one)

    def count(self, one: Wanted) -> FloatArray:
        """Return a number of rows, from all measures that hold it, by inverse variance."""
        estimates, variances = [], []
        for place in self.find(one):
            measure = self.query.measures[place]
            noise = self.deviation(self.query.blocks_of(place).start) / measure.grid
            cells = self.block(place) / measure.grid
            kept = cells if measure.kind != "moments" or one.there is None or not measure.nulls else cells[..., :-1]
            estimates.append(kept.sum(axis=-1))
            variances.append(kept.shape[-1] * noise**2)
        return sums.combine(estimates, variances)[0]

    def moments(self, place: int) -> sums.Moments:
        """Return what a vector of sums says."""
        if place not in self._moments:
            deviation = self.deviation(self.query.blocks_of(place).start)
            self._moments[place] = sums.moments(self.query.measures[place], self.block(place), deviation)
        return self._moments[place]

    def ends(self, one: Wanted) -> tuple[FloatArray, FloatArray] | None:
        """Return the least and the largest that an aggregate may be if these are the counters; None: it is what `value` says."""
        if one.function not in RANKED or one.function in ("min", "max"):
            return None
        place = self.find(one)[0]
        return self.quantiles(place, one, "low"), self.quantiles(place, one, "high")

    def quantiles(self, place: int, one: Wanted, end: str = "value") -> FloatArray:
        """Return quantiles of a tree of counts, shape (..., groups) or (..., groups, quantiles)."""
        found = self.tree(place)
        if one.function in ("min", "max"):
            return extreme(found, largest=one.function == "max")
        values = quantiles(found, one.quantiles, end)
        return values if one.listed else values[..., 0]

    def tree(self, place: int) -> Tree:
        """Return a tree of counts, made consistent."""
        if place not in self._trees:
            held = self.query.blocks_of(place)
            counters = np.concatenate([np.asarray(block, dtype=np.float64) for block in self.blocks[held]], axis=-1)
            deviations = [self.deviation(block) for block in range(held.start, held.stop)]
            self._trees[place] = tree(self.query.measures[place], counters, deviations)
        return self._trees[place]


def _gives(one: Wanted, measure: Measure) -> bool:
    if measure.filter != one.condition:
        return False
    places = tuple(variable.position for variable in measure.variables)
    if one.function == "count_units":
        return measure.kind == "units"
    if places != one.arguments:
        return False
    if one.function == "count_distinct":
        return measure.kind == "distinct"
    if one.function in RANKED:
        return measure.kind == "tree"
    if one.function in LISTED:
        return measure.kind == "values"
    if measure.kind == "scaled":
        return one.function == "sum"
    return measure.kind == "moments" and (measure.degree == 2 or one.function not in sums._NEEDS_SQUARES)
