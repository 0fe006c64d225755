"""Plan the answer to an aggregate query: its groups, its measures, the noise that its price buys. No row is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from dpsql.accounting.blocks import Ranked, calibrate_blocks
from dpsql.accounting.calibration import Calibration
from dpsql.accounting.events import ThresholdEvent
from dpsql.accounting.rules import selection_delta
from dpsql.calls.buying import BuyingCall
from dpsql.domains.attributes import Domain
from dpsql.errors import ArgumentError
from dpsql.estimates.magnitudes import sensitivity_of
from dpsql.estimates.measures import Measure, sensitivity
from dpsql.estimates.ranks import ranked
from dpsql.estimates.thresholds import threshold
from dpsql.kinds.planned import Planned, release_delta
from dpsql.kinds.query.question import Bounding, Question
from dpsql.noise.discrete import MAXIMUM_LAPLACE_SCALE, MAXIMUM_SIGMA
from dpsql.protected.source import ProtectedSource
from dpsql.queries import choosing
from dpsql.queries.purchase import QueryPurchase
from dpsql.release.plan import Plan
from dpsql.release.queried import MOST_COUNTERS, QueryPlan
from dpsql.session.instance import Context

SELECTIONS = 1_024
"""Answers with private groups that a budget has delta for: sixteen times as many raise the threshold by some five per cent."""
GUESSED_GROUPS = 1_000
"""Private groups that are reckoned with where trees are planned."""


def plan(context: Context, protected: ProtectedSource, call: BuyingCall, parameters: Mapping[str, Any]) -> Planned:
    """Plan and price an answer, see `dpsql.kinds.planned.Planner`."""
    if not isinstance(call, QueryPurchase):
        raise ArgumentError("sql", call.operation, "is no query")
    return Planning(context, protected, call, parameters).planned()


class Planning(Question):
    """What a question buys: its measures, and the noise of each."""

    def planned(self) -> Planned:
        """Return the plan with its price."""
        held, call = self.protected.protection, self.call.call
        groups = self.groups()
        count = groups.count if groups is not None else None
        bounding, arguments, selecting = self.bounding(count), self.arguments(), groups is None
        measures, weights, select = choosing.choose(
            self.asked.wanted, arguments, count or GUESSED_GROUPS, selecting=selecting, one_row=bounding.one_row,
            weights=self._weights(), trees=self.call.trees,
        )  # fmt: skip
        counters = sum(length for measure in measures for length in measure.lengths)
        if (count or 1) * counters > MOST_COUNTERS:
            said = f"with {counters:,} counters each are more than {MOST_COUNTERS:,}: group coarser"
            raise ArgumentError("sql", f"{count:,} groups", said)
        grouped = bool(self.asked.keys)
        beside, delta_t = self._selection(selecting=selecting)
        learning = len(self.learning)
        histogram = sensitivity_of(bounding.most_rows, held.neighbors)
        each = sum(weights) * call.bounds_share / (1 - call.bounds_share) / max(1, learning)

        def priced(found: Sequence[Measure]) -> Calibration:
            blocks = [pair for measure in found for pair in self._sensitivity(measure, bounding, grouped=grouped)]
            return calibrate_blocks(
                mechanism=call.mechanism,
                sensitivities=[*blocks, *[histogram] * learning],
                weights=[*weights, *[each] * learning],
                epsilon=self.parameters["epsilon"],
                delta=release_delta(self.protected, call.delta, call.mechanism),
                accountant=held.budget.accountant,
                beside=beside,
            )

        measures = self._on_grids(measures, priced(tuple(choosing.with_grid(measure, 1) for measure in measures)))
        calibration = priced(measures)
        tau = None
        if selecting and select is not None and delta_t is not None:
            first = sum(len(measure.lengths) for measure in measures[:select])
            most = bounding.max_groups or bounding.max_rows or 1
            tau = threshold(call.mechanism, calibration.scales[first], most, delta_t)
        wanted = QueryPlan(
            keys=tuple(self.types[f"k{i}"] for i in range(len(self.asked.keys))),
            measures=measures,
            public=not selecting,
            groups=count,
            groups_sql="" if groups is None else groups.sql,
            unit=held.privacy_unit is not None,
            max_rows=bounding.max_rows,
            max_groups=bounding.max_groups,
            max_rows_per_group=bounding.max_rows_per_group,
            min_units=(call.min_units or 1) if selecting else None,
            threshold=tau,
            delta=None if delta_t is None else str(delta_t),
            selecting=select if selecting else None,
            asked=tuple(one.text for one in self.asked.wanted),
            learning=tuple(
                replace(one, scale=scale)
                for one, scale in zip(self.learning, calibration.scales[len(calibration.scales) - learning :], strict=True)
            ),
        )
        made = Plan(
            domain=Domain(()), cliques=(), scales=calibration.scales[: len(wanted.blocks)], mechanism=call.mechanism,
            public_total=False, method=None,
            options={}, query=wanted,
        )  # fmt: skip
        return Planned(made, calibration, (), (*self.notes, *calibration.notes))

    def _on_grids(self, measures: Sequence[Measure], coarse: Calibration) -> tuple[Measure, ...]:
        """Return the measures on the finest grids for which the sampler can draw the noise; ``coarse``: the noise in rows."""
        largest = MAXIMUM_SIGMA if self.call.call.mechanism == "gaussian" else MAXIMUM_LAPLACE_SCALE
        found, first = [], 0
        for measure in measures:
            found.append(choosing.with_grid(measure, int(largest / (2 * coarse.scales[first]))))
            first += len(measure.lengths)
        return tuple(found)

    def _sensitivity(self, measure: Measure, bounding: Bounding, *, grouped: bool) -> list[tuple[float, float] | Ranked]:
        """Return the sensitivities of each block of a measure."""
        bounds = (bounding.max_rows, bounding.max_groups, bounding.max_rows_per_group, self.protected.protection.neighbors)
        if measure.kind == "quantile":
            return [ranked(measure, *bounds, grouped=grouped)]
        return [sensitivity(measure, *bounds, grouped=grouped)] * len(measure.lengths)

    def _selection(self, *, selecting: bool) -> tuple[list[ThresholdEvent], Fraction | None]:
        """Return what choosing groups costs: a share of the budget's delta, under 'basic' half of the release's."""
        if not selecting:
            return [], None
        budget = self.protected.protection.budget
        if budget.accountant == "zcdp":
            given = self.call.call.delta  # a smaller delta of this answer has a share of its own
            share = Fraction(selection_delta(budget.delta if not given else min(budget.delta, Decimal(repr(given))), SELECTIONS))
        else:
            given = self.call.call.delta
            if not given:
                said = "private groups spend delta: name what this answer may spend, e.g. delta := 1e-10"
                raise ArgumentError("delta", given, said)
            share = Fraction(repr(given)) / 2
        return [ThresholdEvent(share)], share

    def _weights(self) -> dict[str, float]:
        """Return the weights that the options state, by the text of an aggregate in its one form."""
        given = self.call.call.weights
        known = {one.text for one in self.asked.wanted}
        found = {}
        for text, weight in given.items():
            same = [known_text for known_text in known if _spelling(known_text) == _spelling(text)]
            if not same:
                raise ArgumentError("options", {"weights": {text: weight}}, f"no such aggregate; there are {sorted(known)!r}")
            found[same[0]] = weight
        return found


def _spelling(text: str) -> str:
    return text.replace('"', "").replace(" ", "").lower()
