"""Plan the answer to an aggregate query: its groups, its measures, the noise that its price buys. No row is read."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from dpsql.accounting.calibration import Calibration, calibrate_blocks
from dpsql.accounting.events import ThresholdEvent
from dpsql.accounting.rules import selection_delta
from dpsql.algebra.aggregates import OF_EQUAL_ROWS
from dpsql.calls.buying import BuyingCall
from dpsql.domains.attributes import OTHER_LABEL, Domain
from dpsql.errors import ArgumentError
from dpsql.estimates import picks
from dpsql.estimates.leaves import SHARE, Cutting, Units, depth, units_of
from dpsql.estimates.magnitudes import sensitivity_of
from dpsql.estimates.measures import Measure, sensitivity
from dpsql.estimates.picks import Picking
from dpsql.estimates.thresholds import threshold
from dpsql.kinds.planned import Planned, release_delta
from dpsql.kinds.query.asking import Asking
from dpsql.mechanisms.ranked import sensitivity as penalty_sensitivity
from dpsql.noise.discrete import MAXIMUM_LAPLACE_SCALE, MAXIMUM_SIGMA
from dpsql.protected.source import ProtectedSource
from dpsql.queries import choosing
from dpsql.queries.asked import Wanted
from dpsql.queries.choosing import Argument
from dpsql.queries.groups import Groups, left_out, of_declared, public_groups
from dpsql.queries.purchase import QueryPurchase
from dpsql.queries.together import Together
from dpsql.release.plan import Plan
from dpsql.release.queried import MOST_COUNTERS, Counting, QueryPlan
from dpsql.session.instance import Context
from dpsql.text import readable

SELECTIONS = 1_024
"""Answers with private groups that a budget has delta for: sixteen times as many raise the threshold by some five per cent."""
GUESSED_GROUPS = 1_000
"""Private groups that are reckoned with where trees are planned."""


@dataclass(frozen=True)
class Bounding:
    """How rows of a unit are bounded: in all, or by groups; all None where every row is a unit of its own."""

    max_rows: int | None
    max_groups: int | None
    max_rows_per_group: int | None
    different: bool = False
    """Whether rows that are equal in group, unit and what is asked of them are one row, before they are bounded."""
    counting: tuple[Counting, ...] = ()
    """What a row has to be to count; rows that count nowhere are not among those that are bounded. Empty: every row counts."""

    @property
    def one_row(self) -> bool:
        """Whether a unit has at most one row in a group."""
        return self.max_rows == 1 or self.max_rows_per_group == 1

    @property
    def most_rows(self) -> int:
        """Rows of one unit that count, at most, in all groups together."""
        return self.max_rows if self.max_rows is not None else (self.max_groups or 1) * (self.max_rows_per_group or 1)


@dataclass(frozen=True)
class _Wish:
    """A quantile that is to be picked: beside which measure, at what sensitivity, as how many mechanisms, for which weight."""

    place: int
    share: Fraction
    units: Units | None
    sql_type: str
    sensitivity: Fraction
    count: int
    weight: float


def _picking(wishes: Sequence[_Wish], priced: Calibration) -> list[Picking]:
    """Return what quantiles become at the epsilons that are charged for them."""
    return [
        Picking(wish.place, wish.share, wish.units, epsilon / (2 * wish.sensitivity), sql_type=wish.sql_type)
        for wish, epsilon in zip(wishes, priced.epsilons, strict=True)
    ]


def plan(context: Context, protected: ProtectedSource, call: BuyingCall, parameters: Mapping[str, Any]) -> Planned:
    """Plan and price an answer, see `dpsql.kinds.planned.Planner`."""
    if not isinstance(call, QueryPurchase):
        raise ArgumentError("sql", call.operation, "is no query")
    return Planning(context, protected, call, parameters).planned()


class Planning(Asking):
    """The groups of one grouping set of a query, how rows are bounded, its measures and their price."""

    # -- groups -----------------------------------------------------------------------------------------------------------

    def groups(self) -> Groups | None:
        """Return the public groups, or None where groups are private."""
        strategy, fewest = self.call.call.groups, self.call.call.min_units
        if fewest is not None and strategy == "public":
            raise ArgumentError("min_units", fewest, "public groups are all shown, also empty ones; say groups := 'private'")
        # a least number of units is a question about the data, so groups with it are private
        if self.asked.keys and (strategy == "private" or fewest is not None):
            return None
        if not self.asked.wanted and strategy is None and self.asked.keys:
            return None  # which groups there are is all that is asked
        if not self.asked.keys:
            return Groups("SELECT 1 AS one", (), 1)
        public = self._public()
        # a group that cannot be compared with the rows would be empty, whatever is in the table
        if public and public.types != tuple(self.types[f"k{i}"] for i in range(len(self.asked.keys))):
            public = Groups("", reason="the types of its keys differ between the rows and the declarations")
        if public:
            self.notes += map(left_out, dict.fromkeys((*public.lost, *public.strays)))
            for place in public.other:
                name = readable.expression(self.asked.key_texts[place])
                self.notes.append(
                    f"rows whose value of {name} is not in its declared list are the group '{OTHER_LABEL}'; "
                    "groups := 'private' finds other values that enough units have"
                )
            return public
        if strategy == "public":
            advice = f"{public.reason}. Declare the column (CALL dp_declare), or say groups := 'private'"
            raise ArgumentError("groups", "public", advice)
        self.notes.append(f"groups are private: {public.reason}")
        return None

    def _public(self) -> Groups:
        cursor, asked, known = self.context.cursor, self.asked, self.understood
        if known.groups is not None:
            return known.groups
        together = Together(cursor, self.facts, self.lineage).values(asked.source, asked.keys)
        where = asked.source.args.get("where")
        groups = public_groups(cursor, asked.keys, known.universes, where, together=together, bare=known.bare)
        known.groups = groups
        return groups

    def bounding(self, *, selecting: bool) -> Bounding:
        """Return how rows of a unit are bounded; ``selecting``: whether groups are chosen by the number of their units."""
        bounds, aggregates = self._bounds(), self.asked.wanted
        if not self.protected.of_units:
            return bounds
        counting = dict.fromkeys(_counting(aggregate) for aggregate in aggregates)
        every = selecting or not aggregates or Counting() in counting
        different = all(aggregate.function in OF_EQUAL_ROWS for aggregate in aggregates)
        return replace(bounds, different=different, counting=() if every else tuple(counting))

    def _bounds(self) -> Bounding:
        """Return how many rows of a unit count."""
        call = self.call.call
        if not self.protected.of_units:
            for name in ("max_groups", "max_rows_per_group", "max_rows"):
                if getattr(call, name) is not None:
                    raise ArgumentError(name, getattr(call, name), "every row is a unit of its own here; leave it out")
            return Bounding(1, None, None)
        most = 1 if self.one_per_unit else self.protected.most_rows
        groups, rows, whole = call.max_groups, call.max_rows_per_group, call.max_rows
        if whole is not None:
            if groups is not None or rows is not None:
                advice = "says how many rows of a unit count in all groups together; leave max_groups and max_rows_per_group out"
                raise ArgumentError("max_rows", whole, advice)
            # in a FROM that makes several rows of one, more of them may be there than are reckoned with
            if isinstance(whole, int) and (self.one_per_unit or not self.protected.source.local):
                whole = min(whole, most)
            return Bounding(whole if isinstance(whole, int) else most, None, None)
        if not self.asked.keys or self.one_per_unit:
            return Bounding(min(rows, most) if self.one_per_unit and rows else rows or most, None, None)
        # no bound by group: rows of a unit may be in any groups
        if groups is None and rows is None:
            return Bounding(most, None, None)
        if groups is None and rows is not None:
            groups = max(1, most // rows)
        if rows is None and groups is not None:
            rows = max(1, most // groups)
        return Bounding(None, groups, rows)

    # -- plan -------------------------------------------------------------------------------------------------------------

    def planned(self) -> Planned:
        """Return the plan with its price."""
        protection, call = self.protected.protection, self.call.call
        groups = self.groups()
        selecting = groups is None
        bounding, arguments = self.bounding(selecting=selecting), self.arguments()
        self._check_auto(arguments)
        count = groups.count if groups is not None else None
        # what is measured, in what shares of the loss
        measures, weights, select = choosing.choose(
            self.asked.wanted, arguments, count or GUESSED_GROUPS, selecting=selecting, one_row=bounding.one_row,
            weights=self._weights(), few=self._few(arguments, bounding, selecting=selecting),
        )
        self._say_partial(measures, arguments)
        measures, weights, cutting = self._with_leaves(measures, weights)
        counters = sum(length for measure in measures for length in measure.lengths)
        # how many private groups there will be is not known yet
        if (count or 1) * counters > MOST_COUNTERS:
            words = f"with {counters:,} counters each are more than {MOST_COUNTERS:,}: group coarser"
            raise ArgumentError("sql", f"{count:,} groups", words)
        grouped = bool(self.asked.keys)
        # what is charged besides the counters: choosing groups, learning bounds, picking quantiles
        beside, delta_t = self._selection(selecting=selecting)
        learning = len(self.learning)
        histogram = sensitivity_of(bounding.most_rows, protection.neighbors)
        each = sum(weights) * call.bounds_share / (1 - call.bounds_share) / max(1, learning)
        wishes = self._wishes(measures, weights, cutting, bounding, grouped=grouped)

        def priced(gridded: Sequence[Measure]) -> Calibration:
            blocks = [pair for measure in gridded for pair in self._sensitivity(measure, bounding, grouped=grouped)]
            places = [place for place, measure in enumerate(gridded) for _ in measure.lengths]
            left = {wish.place: 1.0 - float(picks.SHARE) for wish in wishes}
            return calibrate_blocks(
                mechanism=call.mechanism,
                sensitivities=[*blocks, *[histogram] * (learning + sum(levels for _, levels, _ in cutting))],
                weights=[
                    *[weight * left.get(place, 1.0) for place, weight in zip(places, weights, strict=True)],
                    *[each] * learning,
                    *[weight * left.get(place, 1.0) for place, levels, weight in cutting for _ in range(levels)],
                ],
                epsilon=self.parameters["epsilon"],
                delta=release_delta(self.protected, call.delta, call.mechanism),
                accountant=protection.budget.accountant,
                beside=beside,
                ranges=[(wish.count, wish.weight) for wish in wishes],
            )

        # priced first in whole rows, to see how large the noise is
        in_rows = tuple(choosing.with_grid(measure, 1) for measure in measures)
        coarse = priced(in_rows)

        def passing(price: Calibration) -> int | None:
            if not selecting or select is None or delta_t is None:
                return None
            first = sum(len(measure.lengths) for measure in measures[:select])
            most = bounding.max_groups or bounding.max_rows or 1
            return threshold(call.mechanism, price.scales[first], most, delta_t)

        least, pickings = passing(coarse), _picking(wishes, coarse)
        # picking takes time and a share of the trees': it has to be worth both
        few = picks.worth(pickings, picks.LIKELY_GROUPS if count is None else count)
        pairs = zip(wishes, pickings, strict=True)
        kept = [wish for wish, picking in pairs if few and (least is None or picks.used(picking, least))]
        if len(kept) < len(wishes):
            wishes = kept
            coarse = priced(in_rows)
        # counters are multiples of a grid, as fine as the sampler can draw; shares of the loss stay
        measures = self._on_grids(measures, coarse)
        calibration = priced(measures)
        # the threshold follows from the noise that is drawn in the end
        tau = passing(calibration)
        # from here on: what dp_plan says, and the plan itself
        rows = self.protected.source.most_rows
        if rows is not None and bounding.max_rows == rows > protection.max_contributions and not call.learns_rows:
            unit, one, fewer = protection.privacy_unit, "a row", "max_rows := n"
            if unit is not None:
                one, fewer = f"{protection.max_contributions} rows of a {unit}", f"{fewer}, or 'auto' to learn how many"
            self.notes.append(f"{one} can become {rows:,} in this FROM, and so many count; fewer, with less noise: {fewer}")
        if call.learns_rows and bounding.max_rows != 1:
            words = f"how many rows of a {protection.privacy_unit} count is learned first"
            self.notes.append(f"{words}, at most {bounding.max_rows:,}: the noise is that of so many")
        # behind the scales of the measures stand those of learning, then those of cutting
        rest = iter(calibration.scales[sum(len(measure.lengths) for measure in measures) :])
        query_plan = QueryPlan(
            keys=tuple(self.types[f"k{i}"] for i in range(len(self.asked.keys))),
            measures=measures,
            public=not selecting,
            groups=count,
            groups_sql="" if groups is None else groups.sql,
            other=() if groups is None else groups.other,
            lost=() if groups is None else tuple(dict.fromkeys((*groups.lost, *groups.strays))),
            partial=tuple(dict.fromkeys(self.partial)),
            unit=self.protected.of_units,
            max_rows=bounding.max_rows,
            max_groups=bounding.max_groups,
            max_rows_per_group=bounding.max_rows_per_group,
            different=bounding.different and all(measure.kind in ("units", "distinct") or measure.once for measure in measures),
            counting=bounding.counting,
            min_units=(call.min_units or 1) if selecting else None,
            threshold=tau,
            delta=None if delta_t is None else str(delta_t),
            selecting=select if selecting else None,
            asked=tuple(aggregate.text for aggregate in self.asked.wanted),
            learning=tuple(replace(learned, scale=next(rest)) for learned in self.learning),
            cutting=tuple(
                Cutting(place, tuple(itertools.islice(rest, levels)), call.mechanism) for place, levels, _ in cutting
            ),
            picking=tuple(_picking(wishes, calibration)),
        )
        release_plan = Plan(
            domain=Domain(()), cliques=(), scales=calibration.scales[: len(query_plan.blocks)], mechanism=call.mechanism,
            public_total=False, method=None,
            options={}, query=query_plan,
        )
        return Planned(release_plan, calibration, (), (*self.notes, *calibration.notes))

    def _say_partial(self, measures: Sequence[Measure], arguments: Mapping[int, Argument]) -> None:
        """Say which aggregates are of listed values alone, beside which others may be; a number of them where it is counted so."""
        counted = {variable.position for measure in measures if measure.kind == "values" for variable in measure.variables}
        for aggregate in self.asked.wanted:
            place = aggregate.arguments[0] if aggregate.arguments else -1
            if aggregate.function == "count_distinct" and place in counted:
                text = readable.expression(self.asked.argument_texts[place])
                self.partial += self.partial_of([aggregate.function], text, arguments[place])
        self.notes += map(of_declared, dict.fromkeys(self.partial))

    def _few(self, arguments: Mapping[int, Argument], bounding: Bounding, *, selecting: bool) -> int:
        """Return up to how many listed values are counted each for itself: as many as the noise is large on their number.

        Each of them is wrong by itself alone, so that all are by less than that noise.
        """
        numbers = [aggregate for aggregate in self.asked.wanted if aggregate.function == "count_distinct"]
        if not any(arguments[aggregate.arguments[0]].values for aggregate in numbers):
            return 0
        measures, weights, _ = choosing.choose(
            self.asked.wanted, arguments, GUESSED_GROUPS, selecting=selecting, one_row=bounding.one_row, weights=self._weights(),
        )
        places = [place for place, measure in enumerate(measures) for _ in measure.lengths]
        grouped = bool(self.asked.keys)
        price = calibrate_blocks(
            mechanism=self.call.call.mechanism,
            # in whole rows: on their own grids sums of little price are beyond what the sampler draws
            sensitivities=[
                pair for measure in measures
                for pair in self._sensitivity(choosing.with_grid(measure, 1), bounding, grouped=grouped)
            ],
            weights=weights, epsilon=self.parameters["epsilon"],
            delta=release_delta(self.protected, self.call.call.delta, self.call.call.mechanism),
            accountant=self.protected.protection.budget.accountant,
        )
        return int(max(s for place, s in zip(places, price.scales, strict=True) if measures[place].kind == "distinct"))

    def _with_leaves(
        self, measures: Sequence[Measure], weights: Sequence[float]
    ) -> tuple[tuple[Measure, ...], tuple[float, ...], list[tuple[int, int, float]]]:
        """Return measures whose trees have leaves that will be cut, where there are more values than leaves; weights of the blocks.

        For each of these: its place, the number of levels of the histograms that come before it, and the weight of one of them.

        Privacy: leaves are cut where rows are by several statements, whose counts are put together: they have to see one state of
        the table. Over rows of another engine they may not (`dpsql.engines.base`), and leaves are of one width.
        """
        with_leaves, shares = [*measures], [*weights]
        cutting: list[tuple[int, int, float]] = []
        if self.protected.remote is not None:
            return tuple(with_leaves), tuple(shares), cutting
        first = 0
        for place, measure in enumerate(measures):
            behind = first + len(measure.lengths)
            if measure.kind == "tree" and measure.variables[0].learned is None:
                variable = measure.variables[0]
                units = units_of(self.types[f"a{variable.position}"], variable.lower, variable.upper, whole=variable.whole)
                # with as many leaves as values there is nothing to cut
                if units.count > measure.lengths[-1]:
                    with_leaves[place] = replace(measure, units=units)
                    levels = depth(units, self.call.call.mechanism)[1]
                    cutting.append((place, levels, SHARE * sum(shares[first:behind]) / levels))
                    shares[first:behind] = [(1 - SHARE) * share for share in shares[first:behind]]
            first = behind
        return tuple(with_leaves), tuple(shares), cutting

    def _wishes(
        self, measures: Sequence[Measure], weights: Sequence[float], cutting: Sequence[tuple[int, int, float]],
        bounding: Bounding, *, grouped: bool,
    ) -> list[_Wish]:
        """Return which quantiles are to be picked beside their trees, and for how much.

        Privacy: what is picked may need two statements over one state of the rows; so over another engine's none is.
        """
        wishes: list[_Wish] = []
        if self.protected.remote is not None:
            return wishes
        first = 0
        for place, measure in enumerate(measures):
            behind = first + len(measure.lengths)
            weight = sum(weights[first:behind]) + sum(each * levels for at, levels, each in cutting if at == place)
            first = behind
            if measure.kind != "tree":
                continue
            variable = measure.variables[0]
            users = [w for w in self.asked.wanted if w.arguments == (variable.position,) and w.condition == measure.filter]
            shares = sorted({Fraction(repr(share)) for w in users for share in w.quantiles})
            if not 0 < len(shares) <= picks.MOST_PICKS or not all(picks.pickable(share) for share in shares):
                continue
            units, sql_type = None, self.types[f"a{variable.position}"]
            # between learned bounds the units are known when the bounds are
            if variable.learned is None:
                units, sql_type = units_of(sql_type, variable.lower, variable.upper, whole=variable.whole), ""
            for share in shares:
                moved, count = penalty_sensitivity(
                    share, self.protected.protection.neighbors, bounding.max_rows, bounding.max_groups,
                    bounding.max_rows_per_group, grouped=grouped,
                )
                wishes.append(_Wish(place, share, units, sql_type, moved, count, weight * float(picks.SHARE) / len(shares)))
        return wishes

    def _on_grids(self, measures: Sequence[Measure], coarse: Calibration) -> tuple[Measure, ...]:
        """Return the measures on the finest grids for which the sampler can draw the noise; ``coarse``: the noise in rows."""
        largest = MAXIMUM_SIGMA if self.call.call.mechanism == "gaussian" else MAXIMUM_LAPLACE_SCALE
        on_grids, first = [], 0
        for measure in measures:
            on_grids.append(choosing.with_grid(measure, int(largest / (2 * coarse.scales[first]))))
            first += len(measure.lengths)
        return tuple(on_grids)

    def _sensitivity(self, measure: Measure, bounding: Bounding, *, grouped: bool) -> list[tuple[float, float]]:
        """Return the sensitivities of each block of a measure."""
        norms = sensitivity(
            measure, bounding.max_rows, bounding.max_groups, bounding.max_rows_per_group, self.protected.protection.neighbors,
            grouped=grouped,
        )
        return [norms] * len(measure.lengths)

    def _selection(self, *, selecting: bool) -> tuple[list[ThresholdEvent], Fraction | None]:
        """Return what choosing groups costs: a share of the budget's delta, under 'basic' half of the release's."""
        if not selecting:
            return [], None
        budget = self.protected.protection.budget
        if budget.accountant == "zcdp":
            delta = self.call.call.delta  # a smaller delta of this answer has a share of its own
            share = Fraction(selection_delta(budget.delta if not delta else min(budget.delta, Decimal(repr(delta))), SELECTIONS))
        else:
            delta = self.call.call.delta
            if not delta:
                advice = "private groups spend delta: name what this answer may spend, e.g. delta := 1e-10"
                raise ArgumentError("delta", delta, advice)
            # the other half is the noise's
            share = Fraction(repr(delta)) / 2
        return [ThresholdEvent(share)], share

    def _weights(self) -> dict[str, float]:
        """Return the weights that the options state, by the text of an aggregate in its one form."""
        stated = self.call.call.weights
        unit = self.protected.protection.privacy_unit
        # a weight may be spelt as in the text, the aggregate has its one form
        known = {aggregate.text: readable.aggregate(aggregate.text, unit) for aggregate in self.asked.wanted}
        weights = {}
        for text, weight in stated.items():
            same = [own for own, shown in known.items() if _spelling(text) in (_spelling(own), _spelling(shown))]
            if not same:
                shown = sorted(set(known.values()))
                raise ArgumentError("options", {"weights": {text: weight}}, f"no such aggregate; there are {shown!r}")
            weights[same[0]] = weight
        return weights


def _counting(aggregate: Wanted) -> Counting:
    """Return what a row has to be to count in an aggregate."""
    return Counting(aggregate.condition, aggregate.arguments) if aggregate.there is None else Counting(aggregate.there)


def _spelling(text: str) -> str:
    return text.replace('"', "").replace(" ", "").lower()
