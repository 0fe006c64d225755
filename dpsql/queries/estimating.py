"""From released counters to the aggregates of a query. Post-processing: nothing here has seen a row."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpsql.errors import ReleaseError
from dpsql.estimates import crossings, ranks
from dpsql.estimates import moments as sums
from dpsql.estimates.measures import Measure
from dpsql.estimates.quantiles import Tree, extreme, quantiles, tree
from dpsql.estimates.ranks import drawn_share
from dpsql.noise.entropy import BoolArray
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
    added : int
        How many released counters were added up, at most, in each of these.
    """

    def __init__(self, plan: Plan, blocks: Blocks, added: int = 1) -> None:
        if plan.query is None:
            raise ReleaseError("the release is not the answer of a query")
        self.query: QueryPlan = plan.query
        self.blocks = list(blocks)
        self.mechanism = plan.mechanism
        self.scales = [float(scale) * math.sqrt(added) for scale in plan.scales]
        self._moments: dict[int, sums.Moments] = {}
        self._trees: dict[int, Tree] = {}

    @property
    def one_row(self) -> bool:
        """Whether a unit has at most one row in a group."""
        return self.query.max_rows == 1 or self.query.max_rows_per_group == 1

    def deviation(self, block: int) -> float:
        """Return the standard deviation of the noise of a block."""
        return self.scales[block] * (math.sqrt(2) if self.mechanism == "laplace" else 1.0)

    def block(self, place: int) -> FloatArray:
        """Return the counters of a measure that has one block."""
        return np.asarray(self.blocks[self.query.blocks_of(place).start], dtype=np.float64)

    def find(self, one: Wanted) -> list[int]:
        """Return the measures that give an aggregate, those made for it first; none, if it was not measured."""
        measures = self.query.measures
        if one.function == "count":
            return [i for i, measure in enumerate(measures) if counted(one, measure, one_row=self.one_row)]
        direct = [i for i, measure in enumerate(measures) if _gives(one, measure)]
        return direct or [i for i, measure in enumerate(measures) if _holds(one, measure)]

    def spread(self, one: Wanted) -> float:
        """Return about how large the noise on an aggregate is: comparable between releases that give the same one."""
        found = self.find(one)
        if one.function == "count":
            return math.sqrt(sums.combine([np.zeros(1) for _ in found], [self._count_variance(place) for place in found])[1])
        measure, blocks = self.query.measures[found[0]], self.query.blocks_of(found[0])
        noise = [self.deviation(block) / measure.grid for block in range(blocks.start, blocks.stop)]
        if measure.kind == "scaled":
            return noise[0] * measure.variables[0].magnitude
        if measure.kind == "moments" and one.function == "sum":
            return noise[0] * sums.sum_norm(measure, self._variable(one, measure))
        return math.hypot(*noise) * (math.sqrt(measure.lengths[0]) if measure.kind == "moments" else 1.0)

    def value(self, one: Wanted) -> FloatArray:
        """Return an aggregate, see `_value`; what is beyond the range of numbers is infinite, without a warning."""
        with np.errstate(all="ignore"):
            return self._value(one)

    def _value(self, one: Wanted) -> FloatArray:
        """Return an aggregate: shape (..., groups), or (..., groups, quantiles); NaN for NULL. For `LISTED` ones: the counters."""
        places = self.find(one)
        if not places:
            raise ReleaseError(f"{one.text} is not in the release")
        if one.function == "count":
            return np.rint(self.count(one))
        place, measure = places[0], self.query.measures[places[0]]
        if one.function == "count_units":
            return np.rint(self.block(place)[..., 0])
        if one.function == "count_distinct":
            return np.clip(np.rint(self.block(place)[..., 0]), 0, measure.variables[0].upper)
        if measure.kind == "scaled":
            return sums.scaled_sum(measure, self.block(place))
        if measure.kind == "moments":
            found = self.moments(place)
            swapped = tuple(v.position for v in reversed(measure.variables)) == one.arguments and len(one.arguments) == 2
            return sums.estimate(one.function, sums.swapped(found) if swapped else found, self._variable(one, measure))
        if measure.kind == "values":
            return self.block(place)
        if measure.kind == "quantile":
            drawn = ranks.values(measure, self.block(place)[..., 0])
            drawn = np.where(self._empty(measure), np.nan, drawn)
            return drawn[..., None] if one.listed else drawn
        return self.quantiles(place, one)

    def _empty(self, measure: Measure) -> BoolArray:
        """Return which groups have no row that a measure is of, as far as another measure of the release says so."""
        found = np.zeros((), dtype=np.bool_)
        for place, other in enumerate(self.query.measures):
            if other.kind in ("count", "units") and other.filter in (None, measure.filter):
                found = found | (np.rint(self.block(place)[..., 0]) <= 0)
        return np.asarray(found)

    def drawn(self, one: Wanted) -> bool:
        """Return whether an aggregate was drawn by rank: it has no interval then."""
        found = self.find(one)
        return bool(found) and one.function in RANKED and self.query.measures[found[0]].kind == "quantile"

    def count(self, one: Wanted) -> FloatArray:
        """Return a number of rows, from all measures that hold it, by inverse variance."""
        estimates, variances = [], []
        for place in self.find(one):
            measure = self.query.measures[place]
            if measure.kind == "tree":
                for block in range(*self.query.blocks_of(place).indices(len(self.blocks))):
                    cells = np.asarray(self.blocks[block], dtype=np.float64)
                    estimates.append(cells.sum(axis=-1))
                    variances.append(cells.shape[-1] * self.deviation(block) ** 2)
                continue
            cells = self.block(place) / measure.grid
            kept = cells if measure.kind != "moments" or one.there is None or not measure.nulls else cells[..., :-1]
            estimates.append(kept.sum(axis=-1))
            variances.append(kept.shape[-1] * (self.deviation(self.query.blocks_of(place).start) / measure.grid) ** 2)
        return sums.combine(estimates, variances)[0]

    def _count_variance(self, place: int) -> float:
        """Return about the variance of a number of rows by one measure."""
        measure, blocks = self.query.measures[place], self.query.blocks_of(place)
        each = [
            length * (self.deviation(block) / measure.grid) ** 2
            for block, length in zip(range(blocks.start, blocks.stop), measure.lengths, strict=True)
        ]
        return 0.0 if 0.0 in each else 1 / sum(1 / variance for variance in each)

    @staticmethod
    def _variable(one: Wanted, measure: Measure) -> int:
        """Return which variable of a measure an aggregate of one argument is of."""
        places = [variable.position for variable in measure.variables]
        return places.index(one.arguments[0]) if len(one.arguments) == 1 else 0

    def moments(self, place: int) -> sums.Moments:
        """Return what a vector of sums says."""
        if place not in self._moments:
            deviation = self.deviation(self.query.blocks_of(place).start)
            self._moments[place] = sums.moments(self.query.measures[place], self.block(place), deviation)
        return self._moments[place]

    def quantiles(self, place: int, one: Wanted) -> FloatArray:
        """Return quantiles of a tree of counts, shape (..., groups) or (..., groups, quantiles)."""
        found = self.tree(place)
        if one.function in ("min", "max"):
            return extreme(found, largest=one.function == "max")
        values = quantiles(found, one.quantiles)
        return values if one.listed else values[..., 0]

    def shifted(self, place: int, one: Wanted, noisy: Blocks) -> FloatArray | None:
        """Return quantiles of a tree as they may be without noise, shape (draws, groups) or (draws, groups, quantiles).

        ``noisy``: blocks with noise taken off, whose first axis is that of draws. None where they are read from these themselves.
        """
        measure, held = self.query.measures[place], self.query.blocks_of(place)
        inside = bool(one.quantiles) and all(0 < share < 1 for share in one.quantiles)
        if measure.kind != "tree" or not inside or sum(measure.lengths) > crossings.MOST_COUNTERS:
            return None
        noise = np.concatenate(
            [np.asarray(self.blocks[i], np.float64)[None] - np.asarray(noisy[i], np.float64) for i in range(held.start, held.stop)],
            axis=-1,
        )  # fmt: skip
        sigmas = [self.deviation(block) for block in range(held.start, held.stop)]
        found = [crossings.drawn(self.tree(place), sigmas, noise, share) for share in one.quantiles]
        return np.stack(found, axis=-1) if one.listed else found[0]

    def tree(self, place: int) -> Tree:
        """Return a tree of counts, made consistent."""
        if place not in self._trees:
            held = self.query.blocks_of(place)
            counters = np.concatenate([np.asarray(block, dtype=np.float64) for block in self.blocks[held]], axis=-1)
            deviations = [self.deviation(block) for block in range(held.start, held.stop)]
            self._trees[place] = tree(self.query.measures[place], counters, deviations)
        return self._trees[place]


def counted(one: Wanted, measure: Measure, *, one_row: bool) -> bool:
    """Return whether a measure holds a number of rows, whether it was made for that or not."""
    if counts(one, measure, one_row=one_row):
        return True
    if measure.filter != one.condition or measure.kind not in ("moments", "tree"):
        return False
    return measure.complete if one.there is None else bool(one.arguments) and _rows_of(one.arguments[0], measure)


def _rows_of(place: int, measure: Measure) -> bool:
    """Return whether a measure is of all rows in which one argument is not NULL: no other variable leaves any out."""
    places = [variable.position for variable in measure.variables]
    return place in places and all(v.not_null for v in measure.variables if v.position != place)


def _holds(one: Wanted, measure: Measure) -> bool:
    """Return whether the sums of a pair hold those of one of its variables, or of the pair the other way round."""
    if measure.kind != "moments" or len(measure.variables) != 2 or measure.filter != one.condition:
        return False
    if measure.degree == 1 and one.function in sums._NEEDS_SQUARES:
        return False
    if len(one.arguments) == 2:
        return one.arguments == tuple(variable.position for variable in reversed(measure.variables))
    return len(one.arguments) == 1 and one.function in sums.SINGLE and _rows_of(one.arguments[0], measure)


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
        drawn = measure.kind == "quantile" and len(one.quantiles) == 1
        return measure.kind == "tree" or (drawn and drawn_share(one.quantiles[0]) == measure.share)
    if one.function in LISTED:
        return measure.kind == "values"
    if measure.kind == "scaled":
        return one.function == "sum"
    return measure.kind == "moments" and (measure.degree == 2 or one.function not in sums._NEEDS_SQUARES)
