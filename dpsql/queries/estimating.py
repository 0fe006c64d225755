"""From released counters to the aggregates of a query. Post-processing: nothing here has seen a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpsql.algebra.aggregates import AGGREGATES, EXTREMES, QUANTILES, RANKED, SQUARED
from dpsql.errors import ReleaseError
from dpsql.estimates import certain, listed
from dpsql.estimates import moments as sums
from dpsql.estimates.measures import Measure
from dpsql.estimates.picks import trusted
from dpsql.estimates.quantiles import Tree, confident, extreme, quantiles, tree
from dpsql.noise.entropy import BoolArray
from dpsql.numerics.arrays import FloatArray
from dpsql.numerics.products import multiplies
from dpsql.queries.asked import Wanted
from dpsql.queries.choosing import LISTED, counts
from dpsql.release.plan import Plan
from dpsql.release.queried import QueryPlan

CROWDED = 10.0
"""Deviations of its noisy number of rows from which on a group's median is as exact as draws say; of others: twice those beyond."""
_MEANS = {name: one.mean for name, one in AGGREGATES.items() if one.mean is not None and name == one.answers}
_HELD = _MEANS.keys() | QUANTILES
"""Estimates that may lean on other groups, as far as the group's own counters allow."""

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

    def deviation_of(self, place: int) -> float:
        """Return that of a measure that has one block."""
        return self.deviation(self.query.blocks_of(place).start)

    def block(self, place: int) -> FloatArray:
        """Return the counters of a measure that has one block."""
        return np.asarray(self.blocks[self.query.blocks_of(place).start], dtype=np.float64)

    def find(self, aggregate: Wanted) -> list[int]:
        """Return the measures that give an aggregate; none, if it was not measured."""
        if aggregate.function == "count":
            return [i for i, measure in enumerate(self.query.measures) if counts(aggregate, measure, one_row=self.one_row)]
        places = [i for i, measure in enumerate(self.query.measures) if _gives(aggregate, measure)]
        if aggregate.function == "count_distinct":  # counts of the values say it where nothing else does
            return sorted(places, key=lambda i: self.query.measures[i].kind != "distinct")
        return places

    def value(self, aggregate: Wanted) -> FloatArray:
        """Return an aggregate, see `drawn`, in agreement with what is certain of it (`interval`)."""
        drawn = self.drawn(aggregate)
        if aggregate.function not in _HELD:
            return drawn
        ends = self.interval(aggregate, certain.USUAL)
        return drawn if ends is None else np.clip(self._with_picks(aggregate, drawn), *ends)

    def drawn(self, aggregate: Wanted) -> FloatArray:
        """Return an aggregate, see `_value`; what is beyond the range of numbers is infinite, without a warning."""
        with np.errstate(all="ignore"):
            return self._value(aggregate)

    def _with_picks(self, aggregate: Wanted, drawn: FloatArray) -> FloatArray:
        """Return quantiles of a tree, shape (groups,) or (groups, quantiles), with those that were picked in their places."""
        if not aggregate.quantiles or not self.query.picking:
            return drawn
        place, columns = self.find(aggregate)[0], drawn.reshape(-1, len(aggregate.quantiles)).copy()
        for i, share in enumerate(aggregate.quantiles):
            for pick in self.query.picking:
                if pick.place == place and pick.share == Fraction(repr(share)) and len(pick.found) == len(columns):
                    # a pick is worth more than the tree only where a group has rows enough
                    near = trusted(pick, self.tree(place).count) & ~np.isnan(columns[:, i])
                    columns[near, i] = pick.values()[near]
        return columns if aggregate.listed else columns[:, 0]

    def hidden(self, aggregate: Wanted) -> BoolArray:
        """Return whether noise may hide a variance of a pair, see `dpsql.estimates.moments.hidden`."""
        with np.errstate(all="ignore"):
            return sums.hidden(self.moments(self.find(aggregate)[0]))

    def farthest(self, aggregate: Wanted) -> tuple[float, float] | None:
        """Return between which values a statistic lies of which the noise may hide everything; None of others."""
        measure = self.query.measures[self.find(aggregate)[0]]
        return sums.farthest(aggregate.function, measure) if measure.kind == "moments" and measure.degree == 2 else None

    def beyond(self, aggregate: Wanted) -> tuple[float | None, float | None]:
        """Return how low a minimum and how high a maximum may be, whatever the counters say: a few rows do not show in them."""
        bounds = self.query.measures[self.find(aggregate)[0]].variables[0]
        return (bounds.lower if aggregate.function == "min" else None), (bounds.upper if aggregate.function == "max" else None)

    def interval(self, aggregate: Wanted, confidence: float) -> certain.Ends | None:
        """Return between which values an aggregate lies, by the law of the noise: arrays of the shape of `value`; None: not known.

        NaN where the aggregate is NULL.
        """
        times = certain.reach(self.mechanism, confidence)
        with np.errstate(all="ignore"):
            if aggregate.function == "count_distinct" and (values := self.values_counted(aggregate)):
                # none of the counters' noise may be beyond
                times = certain.reach(self.mechanism, 1.0 - (1.0 - confidence) / values)
            return self._certain(aggregate, times)

    def values_counted(self, aggregate: Wanted) -> int:
        """Return how many values are counted for an aggregate; 0 where none are."""
        return len(self.query.measures[self.find(aggregate)[0]].values)

    def _value(self, aggregate: Wanted) -> FloatArray:
        """Return an aggregate: shape (..., groups), or (..., groups, quantiles); NaN for NULL. For `LISTED` ones: the counters."""
        places = self.find(aggregate)
        if not places:
            raise ReleaseError(f"{aggregate.text} is not in the release")
        # a count may be in several measures, and is the mean of all
        if aggregate.function == "count":
            return np.rint(self.count(aggregate))
        place, measure = places[0], self.query.measures[places[0]]
        if aggregate.function == "count_units":
            return np.rint(self.block(place)[..., 0])
        if aggregate.function == "count_distinct" and measure.kind == "values":
            there = listed.present(measure, self.block(place), self.deviation_of(place), self.mechanism)
            return np.asarray(there.sum(axis=-1), np.float64)
        if aggregate.function == "count_distinct":
            return np.clip(np.rint(self.block(place)[..., 0]), 0, measure.variables[0].upper)
        if measure.kind == "scaled":
            return sums.scaled_sum(measure, self.block(place))
        if measure.kind == "moments":
            return sums.estimate(aggregate.function, self.moments(place))
        if measure.kind == "values":
            return self.block(place)
        return self.quantiles(place, aggregate)

    def _certain(self, aggregate: Wanted, times: float) -> certain.Ends | None:
        if aggregate.function == "count":
            return _whole(certain.linear(self.count(aggregate), self.linear_deviation(aggregate), times), math.inf)
        place = self.find(aggregate)[0]
        measure = self.query.measures[place]
        if aggregate.function == "count_distinct" and measure.kind == "values":
            return listed.interval(measure, self.block(place), self.deviation_of(place), times)
        if aggregate.function in ("count_units", "count_distinct"):
            most = math.inf if aggregate.function == "count_units" else measure.variables[0].upper
            return _whole(certain.linear(self.block(place)[..., 0], self.linear_deviation(aggregate), times), most)
        if aggregate.function == "sum":
            low, high = certain.linear(self._value(aggregate), self.linear_deviation(aggregate), times)
            return sums.possible_sum(low, measure.variables[0]), sums.possible_sum(high, measure.variables[0])
        # a mean is a quotient of two sums, in places between 0 and 1; then moved to the column's bounds
        if aggregate.function in _MEANS:
            sums_held, variable = self.moments(place), measure.variables[_MEANS[aggregate.function]]
            ends = certain.mean(sums_held.cells, sums_held.places[:, _MEANS[aggregate.function]], sums_held.noise, times)
            null = np.isnan(sums.estimate(aggregate.function, sums_held))
            low, high = (np.where(null, np.nan, variable.lower + variable.span * end) for end in ends)
            return np.clip(low, variable.lower, variable.upper), np.clip(high, variable.lower, variable.upper)
        # a few rows do not show in the counters, so on its own side an extreme may be anything to the bound
        if aggregate.function in EXTREMES:
            tree, bounds = self.tree(place), measure.variables[0]
            low, high = confident(tree, 0.0 if aggregate.function == "min" else 1.0, times)
            if aggregate.function == "min":
                low = np.full_like(low, bounds.lower)
            else:
                high = np.full_like(high, bounds.upper)
            return np.where(tree.some, low, np.nan), np.where(tree.some, high, np.nan)
        # each share has an interval of its own
        if aggregate.quantiles:
            tree = self.tree(place)
            ends_of_shares = [confident(tree, share, times) for share in aggregate.quantiles]
            sides = zip(*ends_of_shares, strict=True)
            low, high = (np.where(tree.some[..., None], np.stack(side, axis=-1), np.nan) for side in sides)
            return (low, high) if aggregate.listed else (low[..., 0], high[..., 0])
        return None

    def linear_deviation(self, aggregate: Wanted) -> float:
        """Return the standard deviation of an aggregate that is linear in the counters: one of `LINEAR`."""
        # the noise of different blocks is independent
        weights = self._weights(aggregate) or {}
        return math.sqrt(sum(self.deviation(block) ** 2 * float((w**2).sum()) for block, w in weights.items()))

    @multiplies
    def quotient(self, over: Wanted, under: Wanted, confidence: float, *, share: bool) -> certain.Ends | None:
        """Return between which numbers a quotient of counts and sums lies; None of others. ``share``: of a part and the whole."""
        above, below = (None if aggregate.function == "count_distinct" else self._weights(aggregate) for aggregate in (over, under))
        if above is None or below is None:
            return None
        # of the numerator, of both together, of the denominator: they share the noise of the blocks that both use
        variance = [0.0, 0.0, 0.0]
        for block in {*above, *below}:
            noise = self.deviation(block) ** 2
            zero = np.zeros(1)
            a, b = above.get(block, zero), below.get(block, zero)
            for i, product in enumerate((a * a, a * b, b * b)):
                variance[i] += noise * float(product.sum())
        times = certain.reach(self.mechanism, confidence)
        value = tuple(sum((self.blocks[i] @ w for i, w in each.items()), np.zeros(())) for each in (above, below))
        positive = over.function != "sum" or self.query.measures[self.find(over)[0]].variables[0].lower >= 0
        least, most = (0.0, 1.0) if share else (0.0 if positive else -math.inf, math.inf)
        return certain.quotient((value[0], value[1]), (variance[0], variance[1], variance[2]), times, least, most)

    def _weights(self, aggregate: Wanted) -> dict[int, FloatArray] | None:
        """Return by which weights an aggregate is made of the counters of blocks, where it is linear in them."""
        if aggregate.function == "count":
            # of a count: that of each measure by inverse variance
            shares, weights_of = [], {}
            for place in self.find(aggregate):
                measure = self.query.measures[place]
                block = self.query.blocks_of(place).start
                ones = np.full(measure.lengths[0], 1.0 / measure.grid)
                if aggregate.there is not None and measure.nulls:
                    ones[-1] = 0.0
                weights_of[block] = ones
                shares.append(1.0 / max((ones**2).sum() * self.deviation(block) ** 2, 1e-300))
            return {block: w * share / sum(shares) for (block, w), share in zip(weights_of.items(), shares, strict=True)}
        place = self.find(aggregate)[0]
        measure, block = self.query.measures[place], self.query.blocks_of(place).start
        if measure.kind in ("units", "distinct"):
            return {block: np.ones(1)}
        if aggregate.function != "sum":
            return None
        variable = measure.variables[0]
        if measure.kind == "scaled":
            return {block: np.full(1, variable.magnitude / measure.grid)}
        # a sum is the count times the lower bound, and the sum of the places times the span
        weights = (variable.lower + variable.span * self.moments(place).places[:, 0]) / measure.grid
        return {block: np.append(weights, np.zeros(measure.lengths[0] - weights.size))}

    def denominator(self, aggregate: Wanted, value: FloatArray) -> FloatArray:
        """Return an aggregate as a denominator: where it cannot be negative, at least one deviation of its noise."""
        if aggregate.function == "sum" and self.query.measures[self.find(aggregate)[0]].variables[0].lower < 0:
            return value
        least = self.linear_deviation(aggregate)
        return np.maximum(value, least if aggregate.function == "sum" else max(least, 1.0))

    def crowded(self, aggregate: Wanted) -> BoolArray | None:
        """Return which groups have so many rows beyond a quantile that draws tell how exact it is; None of other aggregates."""
        if not aggregate.quantiles or aggregate.function in LISTED:
            return None
        tree = self.tree(self.find(aggregate)[0])
        # a quantile near an end has few rows beyond it
        nearer = min(min(share, 1.0 - share) for share in aggregate.quantiles)
        return np.asarray(2.0 * nearer * tree.count >= CROWDED * max(tree.deviation, 1e-9))

    def count(self, aggregate: Wanted) -> FloatArray:
        """Return a number of rows, from all measures that hold it, by inverse variance."""
        estimates, variances = [], []
        for place in self.find(aggregate):
            measure = self.query.measures[place]
            noise = self.deviation_of(place) / measure.grid
            cells = self.block(place) / measure.grid
            kept = cells[..., :-1] if aggregate.there is not None and measure.nulls else cells
            estimates.append(kept.sum(axis=-1))
            variances.append(kept.shape[-1] * noise**2)
        return sums.combine(estimates, variances)[0]

    def moments(self, place: int) -> sums.Moments:
        """Return what a vector of sums says."""
        if place not in self._moments:
            deviation = self.deviation_of(place)
            self._moments[place] = sums.moments(self.query.measures[place], self.block(place), deviation)
        return self._moments[place]

    def ends(self, aggregate: Wanted) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest that a quantile may be if these are the counters."""
        place = self.find(aggregate)[0]
        return self.quantiles(place, aggregate, "low"), self.quantiles(place, aggregate, "high")

    def quantiles(self, place: int, aggregate: Wanted, end: str = "value") -> FloatArray:
        """Return quantiles of a tree of counts, shape (..., groups) or (..., groups, quantiles)."""
        counts_tree = self.tree(place)
        if aggregate.function in EXTREMES:
            return extreme(counts_tree, largest=aggregate.function == "max")
        values = quantiles(counts_tree, aggregate.quantiles, end)
        return values if aggregate.listed else values[..., 0]

    def tree(self, place: int) -> Tree:
        """Return a tree of counts, made consistent."""
        if place not in self._trees:
            span = self.query.blocks_of(place)
            counters = np.concatenate([np.asarray(block, dtype=np.float64) for block in self.blocks[span]], axis=-1)
            deviations = [self.deviation(block) for block in range(span.start, span.stop)]
            self._trees[place] = tree(self.query.measures[place], counters, deviations)
        return self._trees[place]


def _whole(ends: certain.Ends, most: float) -> certain.Ends:
    """Return ends of a number of things."""
    return np.clip(np.rint(ends[0]), 0.0, most), np.clip(np.rint(ends[1]), 0.0, most)


def _gives(aggregate: Wanted, measure: Measure) -> bool:
    if measure.filter != aggregate.condition:
        return False
    places = tuple(variable.position for variable in measure.variables)
    if aggregate.function == "count_units":
        return measure.kind == "units"
    if places != aggregate.arguments:
        return False
    if aggregate.function == "count_distinct":
        return measure.kind in ("distinct", "values")
    if aggregate.function in RANKED:
        return measure.kind == "tree"
    if aggregate.function in LISTED:
        return measure.kind == "values"
    if measure.kind == "scaled":
        return aggregate.function == "sum"
    return measure.kind == "moments" and (measure.degree == 2 or aggregate.function not in SQUARED)
