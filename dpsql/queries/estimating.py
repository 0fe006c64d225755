"""From released counters to the aggregates of a query. Post-processing: nothing here has seen a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpsql.algebra.aggregates import AGGREGATES, EXTREMES, QUANTILES, RANKED, SQUARED
from dpsql.errors import ReleaseError
from dpsql.estimates import certain
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

    def block(self, place: int) -> FloatArray:
        """Return the counters of a measure that has one block."""
        return np.asarray(self.blocks[self.query.blocks_of(place).start], dtype=np.float64)

    def find(self, one: Wanted) -> list[int]:
        """Return the measures that give an aggregate; none, if it was not measured."""
        if one.function == "count":
            return [i for i, measure in enumerate(self.query.measures) if counts(one, measure, one_row=self.one_row)]
        return [i for i, measure in enumerate(self.query.measures) if _gives(one, measure)]

    def value(self, one: Wanted) -> FloatArray:
        """Return an aggregate, see `drawn`, in agreement with what is certain of it (`interval`)."""
        found = self.drawn(one)
        if one.function not in _HELD:
            return found
        ends = self.interval(one, certain.USUAL)
        return found if ends is None else np.clip(self._with_picks(one, found), *ends)

    def drawn(self, one: Wanted) -> FloatArray:
        """Return an aggregate, see `_value`; what is beyond the range of numbers is infinite, without a warning."""
        with np.errstate(all="ignore"):
            return self._value(one)

    def _with_picks(self, one: Wanted, found: FloatArray) -> FloatArray:
        """Return quantiles of a tree, shape (groups,) or (groups, quantiles), with those that were picked in their places."""
        if not one.quantiles or not self.query.picking:
            return found
        place, columns = self.find(one)[0], found.reshape(-1, len(one.quantiles)).copy()
        for i, share in enumerate(one.quantiles):
            for pick in self.query.picking:
                if pick.place == place and pick.share == Fraction(repr(share)) and len(pick.found) == len(columns):
                    near = trusted(pick, self.tree(place).count) & ~np.isnan(columns[:, i])
                    columns[near, i] = pick.values()[near]
        return columns if one.listed else columns[:, 0]

    def hidden(self, one: Wanted) -> BoolArray:
        """Return whether noise may hide a variance of a pair, see `dpsql.estimates.moments.hidden`."""
        with np.errstate(all="ignore"):
            return sums.hidden(self.moments(self.find(one)[0]))

    def farthest(self, one: Wanted) -> tuple[float, float] | None:
        """Return between which values a statistic lies of which the noise may hide everything; None of others."""
        measure = self.query.measures[self.find(one)[0]]
        return sums.farthest(one.function, measure) if measure.kind == "moments" and measure.degree == 2 else None

    def beyond(self, one: Wanted) -> tuple[float | None, float | None]:
        """Return how low a minimum and how high a maximum may be, whatever the counters say: a few rows do not show in them."""
        bounds = self.query.measures[self.find(one)[0]].variables[0]
        return (bounds.lower if one.function == "min" else None), (bounds.upper if one.function == "max" else None)

    def interval(self, one: Wanted, confidence: float) -> certain.Ends | None:
        """Return between which values an aggregate lies, by the law of the noise: arrays of the shape of `value`; None: not known.

        NaN where the aggregate is NULL.
        """
        times = certain.reach(self.mechanism, confidence)
        with np.errstate(all="ignore"):
            return self._certain(one, times)

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

    def _certain(self, one: Wanted, times: float) -> certain.Ends | None:
        if one.function == "count":
            return _whole(certain.linear(self.count(one), self._linear_deviation(one), times), math.inf)
        place = self.find(one)[0]
        measure = self.query.measures[place]
        if one.function in ("count_units", "count_distinct"):
            most = math.inf if one.function == "count_units" else measure.variables[0].upper
            return _whole(certain.linear(self.block(place)[..., 0], self._linear_deviation(one), times), most)
        if one.function == "sum":
            low, high = certain.linear(self._value(one), self._linear_deviation(one), times)
            return sums.possible_sum(low, measure.variables[0]), sums.possible_sum(high, measure.variables[0])
        if one.function in _MEANS:
            held, variable = self.moments(place), measure.variables[_MEANS[one.function]]
            ends = certain.mean(held.cells, held.places[:, _MEANS[one.function]], held.noise, times)
            null = np.isnan(sums.estimate(one.function, held))
            low, high = (np.where(null, np.nan, variable.lower + variable.span * end) for end in ends)
            return np.clip(low, variable.lower, variable.upper), np.clip(high, variable.lower, variable.upper)
        if one.function in EXTREMES:
            tree, bounds = self.tree(place), measure.variables[0]
            low, high = confident(tree, 0.0 if one.function == "min" else 1.0, times)
            if one.function == "min":
                low = np.full_like(low, bounds.lower)
            else:
                high = np.full_like(high, bounds.upper)
            return np.where(tree.some, low, np.nan), np.where(tree.some, high, np.nan)
        if one.quantiles:
            tree = self.tree(place)
            found = [confident(tree, share, times) for share in one.quantiles]
            low, high = (np.where(tree.some[..., None], np.stack(side, axis=-1), np.nan) for side in zip(*found, strict=True))
            return (low, high) if one.listed else (low[..., 0], high[..., 0])
        return None

    def _linear_deviation(self, one: Wanted) -> float:
        """Return the standard deviation of an aggregate that is linear in the counters: one of `LINEAR`."""
        weights = self._weights(one) or {}
        return math.sqrt(sum(self.deviation(block) ** 2 * float((w**2).sum()) for block, w in weights.items()))

    @multiplies
    def quotient(self, over: Wanted, under: Wanted, confidence: float, *, share: bool) -> certain.Ends | None:
        """Return between which numbers a quotient of counts and sums lies; None of others. ``share``: of a part and the whole."""
        above, below = (None if one.function == "count_distinct" else self._weights(one) for one in (over, under))
        if above is None or below is None:
            return None
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

    def _weights(self, one: Wanted) -> dict[int, FloatArray] | None:
        """Return by which weights an aggregate is made of the counters of blocks, where it is linear in them."""
        if one.function == "count":
            shares, found = [], {}
            for place in self.find(one):
                measure = self.query.measures[place]
                block = self.query.blocks_of(place).start
                ones = np.full(measure.lengths[0], 1.0 / measure.grid)
                if one.there is not None and measure.nulls:
                    ones[-1] = 0.0
                found[block] = ones
                shares.append(1.0 / max((ones**2).sum() * self.deviation(block) ** 2, 1e-300))
            return {block: w * share / sum(shares) for (block, w), share in zip(found.items(), shares, strict=True)}
        place = self.find(one)[0]
        measure, block = self.query.measures[place], self.query.blocks_of(place).start
        if one.function in ("count_units", "count_distinct"):
            return {block: np.ones(1)}
        if one.function != "sum":
            return None
        variable = measure.variables[0]
        if measure.kind == "scaled":
            return {block: np.full(1, variable.magnitude / measure.grid)}
        weights = (variable.lower + variable.span * self.moments(place).places[:, 0]) / measure.grid
        return {block: np.append(weights, np.zeros(measure.lengths[0] - weights.size))}

    def denominator(self, one: Wanted, value: FloatArray) -> FloatArray:
        """Return an aggregate as a denominator: where it cannot be negative, at least one deviation of its noise."""
        if one.function == "sum" and self.query.measures[self.find(one)[0]].variables[0].lower < 0:
            return value
        least = self._linear_deviation(one)
        whole = one.function != "sum" and least > 0
        return np.maximum(value, max(least, 1.0) if whole else least) if least else value

    def crowded(self, one: Wanted) -> BoolArray | None:
        """Return which groups have so many rows beyond a quantile that draws tell how exact it is; None of other aggregates."""
        if not one.quantiles or one.function in LISTED:
            return None
        tree = self.tree(self.find(one)[0])
        nearer = min(min(share, 1.0 - share) for share in one.quantiles)
        return np.asarray(2.0 * nearer * tree.count >= CROWDED * max(tree.deviation, 1e-9))

    def count(self, one: Wanted) -> FloatArray:
        """Return a number of rows, from all measures that hold it, by inverse variance."""
        estimates, variances = [], []
        for place in self.find(one):
            measure = self.query.measures[place]
            noise = self.deviation(self.query.blocks_of(place).start) / measure.grid
            cells = self.block(place) / measure.grid
            kept = cells[..., :-1] if one.there is not None and measure.nulls else cells
            estimates.append(kept.sum(axis=-1))
            variances.append(kept.shape[-1] * noise**2)
        return sums.combine(estimates, variances)[0]

    def moments(self, place: int) -> sums.Moments:
        """Return what a vector of sums says."""
        if place not in self._moments:
            deviation = self.deviation(self.query.blocks_of(place).start)
            self._moments[place] = sums.moments(self.query.measures[place], self.block(place), deviation)
        return self._moments[place]

    def ends(self, one: Wanted) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest that a quantile may be if these are the counters."""
        place = self.find(one)[0]
        return self.quantiles(place, one, "low"), self.quantiles(place, one, "high")

    def quantiles(self, place: int, one: Wanted, end: str = "value") -> FloatArray:
        """Return quantiles of a tree of counts, shape (..., groups) or (..., groups, quantiles)."""
        found = self.tree(place)
        if one.function in EXTREMES:
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


def _whole(ends: certain.Ends, most: float) -> certain.Ends:
    """Return ends of a number of things."""
    return np.clip(np.rint(ends[0]), 0.0, most), np.clip(np.rint(ends[1]), 0.0, most)


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
    return measure.kind == "moments" and (measure.degree == 2 or one.function not in SQUARED)
