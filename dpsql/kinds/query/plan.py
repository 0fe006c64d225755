"""Plan the answer to an aggregate query: its groups, its measures, the noise that its price buys. No row is read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from sqlglot import exp

from dpsql.accounting.calibration import Calibration, calibrate_blocks
from dpsql.accounting.events import ThresholdEvent
from dpsql.accounting.rules import selection_delta
from dpsql.calls.buying import BuyingCall
from dpsql.calls.query import ALL
from dpsql.domains import sqltypes
from dpsql.domains.attributes import OTHER_LABEL, Domain
from dpsql.errors import ArgumentError
from dpsql.estimates.leaves import SHARE, Cutting, depth, units_of
from dpsql.estimates.magnitudes import Learning, edges_of, sensitivity_of
from dpsql.estimates.measures import Measure, sensitivity
from dpsql.estimates.thresholds import threshold
from dpsql.kinds.planned import Planned, release_delta
from dpsql.noise.discrete import MAXIMUM_LAPLACE_SCALE, MAXIMUM_SIGMA
from dpsql.protected.source import ProtectedSource
from dpsql.queries import choosing
from dpsql.queries.aggregates import DISTINCT, PAIRS
from dpsql.queries.asked import Wanted
from dpsql.queries.bounds import extent
from dpsql.queries.choosing import Argument
from dpsql.queries.columns import Relations, given_bounds
from dpsql.queries.declared import in_units_of
from dpsql.queries.groups import Groups, public_groups
from dpsql.queries.inner import InnerValues
from dpsql.queries.leaves import Facts
from dpsql.queries.lineage import Lineage, Made
from dpsql.queries.listed import check_listed
from dpsql.queries.naming import canonical, read_expression
from dpsql.queries.purchase import QueryPurchase
from dpsql.queries.ranges import Range, alike
from dpsql.queries.together import Together
from dpsql.queries.universes import Universe
from dpsql.release.plan import Plan
from dpsql.release.queried import MOST_COUNTERS, Counting, QueryPlan
from dpsql.session.instance import Context
from dpsql.text import readable

_BOUNDED = choosing.FIRST | choosing.SECOND | PAIRS | choosing.RANKED
MOST_LISTED = 10_000
"""Whole numbers that are listed one by one."""
SELECTIONS = 1_024
"""Answers with private groups that a budget has delta for: sixteen times as many raise the threshold by some five per cent."""
GUESSED_GROUPS = 1_000
"""Private groups that are reckoned with where trees are planned."""
_NUMBERS = ("integer", "decimal", "float", "boolean")
_OF_DIFFERENT_ROWS = frozenset({"count_units", "count_distinct"})
"""Aggregates that are the same of rows of one unit that are equal, however many they are."""


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


def plan(context: Context, protected: ProtectedSource, call: BuyingCall, parameters: Mapping[str, Any]) -> Planned:
    """Plan and price an answer, see `dpsql.kinds.planned.Planner`."""
    if not isinstance(call, QueryPurchase):
        raise ArgumentError("sql", call.operation, "is no query")
    return Planning(context, protected, call, parameters).planned()


class Planning:
    """What is publicly known of one grouping set of a query: its groups, how rows are bounded, its arguments."""

    def __init__(
        self, context: Context, protected: ProtectedSource, call: QueryPurchase, parameters: Mapping[str, Any]
    ) -> None:
        self.context, self.protected, self.call, self.asked = context, protected, call, call.asked
        self.parameters = parameters
        self.types = {column.name: column.sql_type for column in protected.source.columns}
        self.facts = Facts(context)
        self.one_per_unit = protected.source.one_per_unit
        self.lineage = Lineage(self.asked.source, self.facts.names)
        given = {**given_bounds(call.call.stated_bounds), **self._stated()}
        self.auto = {canonical(read_expression(text, "bounds"), qualified=False) for text in call.call.auto if text != ALL}
        self.learning: list[Learning] = []
        self.given = given
        self.relations = Relations(self.facts.range, given)
        self.universes = InnerValues(context.cursor, self.facts.universe, given).universes(self.lineage)
        self.notes: list[str] = []
        self._check_columns()
        check_listed(self.asked.source, self.lineage, self.facts)

    def _stated(self) -> dict[str, Range]:
        """Return the bounds that GoogleSQL's clause states, which hold for a group's total there and for a row here."""
        pairs = {text: [_constant(node) for node in pair] for text, pair in self.asked.stated.items()}
        return given_bounds(pairs, "sql") if pairs else {}

    def _check_columns(self) -> None:
        """Refuse keys and arguments that say whose row it is, or of types that have no text or number."""
        for column in self.protected.source.columns:
            if column.name[:1] in ("k", "a") and self.protected.is_unit(column):
                texts = self.asked.key_texts if column.name[0] == "k" else self.asked.argument_texts
                text = readable.expression(texts[int(column.name[1:])])
                raise ArgumentError("sql", text, "is the privacy unit: whose row it is cannot be released")
            if column.name[:1] == "k" and sqltypes.parse(column.sql_type).family == "other":
                text = readable.expression(self.asked.key_texts[int(column.name[1:])])
                raise ArgumentError("sql", text, f"is {column.sql_type}: group by a text, number, date or truth value")
            if column.name[:1] == "f" and column.sql_type != "BOOLEAN":
                text = readable.expression(self.asked.condition_texts[int(column.name[1:])])
                raise ArgumentError("sql", text, f"is {column.sql_type}: FILTER (WHERE ...) takes a condition")

    # -- groups -----------------------------------------------------------------------------------------------------------

    def groups(self) -> Groups | None:
        """Return the public groups, or None where groups are private."""
        wanted, fewest = self.call.call.groups, self.call.call.min_units
        if fewest is not None and wanted == "public":
            raise ArgumentError("min_units", fewest, "public groups are all shown, also empty ones; say groups := 'private'")
        if self.asked.keys and (wanted == "private" or fewest is not None):
            return None
        if not self.asked.wanted and wanted is None and self.asked.keys:
            return None  # which groups there are is all that is asked
        if not self.asked.keys:
            return Groups("SELECT 1 AS one", (), 1)
        where = self.asked.source.args.get("where")
        together = Together(self.context.cursor, self.facts, self.lineage).values(self.asked.source, self.asked.keys)
        found = public_groups(self.context.cursor, self.asked.keys, self._universe, where, together=together)
        if found and found.types != tuple(self.types[f"k{i}"] for i in range(len(self.asked.keys))):
            found = Groups("", reason="the types of its keys differ between the rows and the declarations")
        if found:
            for name in found.lost:
                self.notes.append(
                    f"rows whose value of {name} is not in its declared list may be in no group; groups := 'private' finds "
                    "other values that enough units have"
                )
            for place in found.other:
                name = readable.expression(self.asked.key_texts[place])
                self.notes.append(
                    f"rows whose value of {name} is not in its declared list are the group '{OTHER_LABEL}'; "
                    "groups := 'private' finds other values that enough units have"
                )
            return found
        if wanted == "public":
            said = f"{found.reason}. Declare the column (CALL dp_declare), or say groups := 'private'"
            raise ArgumentError("groups", "public", said)
        self.notes.append(f"groups are private: {found.reason}")
        return None

    def _universe(self, node: exp.Column) -> Universe | None:
        """Return what is known of the values of a column of the rows."""
        return self.universes(node)

    def bounding(self, *, selecting: bool) -> Bounding:
        """Return how rows of a unit are bounded; ``selecting``: whether groups are chosen by the number of their units."""
        found, wanted = self._bounds(), self.asked.wanted
        if self.protected.protection.privacy_unit is None:
            return found
        counting = dict.fromkeys(_counting(one) for one in wanted)
        every = selecting or not wanted or Counting() in counting
        different = all(one.function in _OF_DIFFERENT_ROWS for one in wanted)
        return replace(found, different=different, counting=() if every else tuple(counting))

    def _bounds(self) -> Bounding:
        """Return how many rows of a unit count."""
        held, call = self.protected.protection, self.call.call
        if held.privacy_unit is None:
            for name in ("max_groups", "max_rows_per_group"):
                if getattr(call, name) is not None:
                    raise ArgumentError(name, getattr(call, name), "every row is a unit of its own here; leave it out")
            return Bounding(1, None, None)
        most = 1 if self.one_per_unit else self.protected.source.most_rows or held.max_contributions
        groups, rows = call.max_groups, call.max_rows_per_group
        if not self.asked.keys or self.one_per_unit:
            return Bounding(min(rows, most) if self.one_per_unit and rows else rows or most, None, None)
        if groups is None and rows is None:
            return Bounding(most, None, None)
        if groups is None and rows is not None:
            groups = max(1, most // rows)
        if rows is None and groups is not None:
            rows = max(1, most // groups)
        return Bounding(None, groups, rows)

    # -- arguments --------------------------------------------------------------------------------------------------------

    def arguments(self) -> dict[int, Argument]:
        """Return what is known of the arguments that need bounds or values."""
        known = self.relations.known(self.lineage)
        needed: dict[int, set[str]] = {}
        for wanted in self.asked.wanted:
            for place in wanted.arguments:
                needed.setdefault(place, set()).add(wanted.function)
        found = {}
        for place, functions in needed.items():
            node, text = self.asked.arguments[place], readable.expression(self.asked.argument_texts[place])
            family = sqltypes.parse(self.types[f"a{place}"]).family
            if functions & _BOUNDED:
                self._check_type(functions, text, family, place)
            limits = self._counted(node, text, in_units_of(extent(node, known), self.types[f"a{place}"]))
            values = self._values(node, family)
            if values is None and functions & set(DISTINCT) and family == "integer" and limits.whole:
                values = whole_values(limits)
            if functions & choosing.LISTED and values is None:
                function = sorted(functions & choosing.LISTED)[0]
                way = "CALL dp_declare(..., categories := [...]), or bounds of whole numbers" if function in DISTINCT else (
                    "CALL dp_declare(..., categories := [...])"
                )
                shown = f"{DISTINCT[function]}(DISTINCT {text})" if function in DISTINCT else f"{function}({text})"
                raise ArgumentError("sql", shown, f"its values are not declared: {way}")
            traits = {"nan": family == "float", "open": self._open(node), "text": family == "text"}
            bounded = bool(functions & _BOUNDED)
            self._check_sort(node, text, family, self.types[f"a{place}"])
            finite = limits.finite and limits.sort not in ("unknown", "nothing")
            whole = limits.whole and family in ("integer", "boolean", "temporal", "decimal")
            if bounded and self._is_learned(place, finite=finite):
                learned = self._learned(place, limits, whole=whole)
                found[place] = replace(learned, values=values, **traits)
                continue
            if bounded and not finite:
                raise ArgumentError(
                    "sql", text,
                    "has no bounds: declare the columns that it is made of (CALL dp_declare(..., lower := ..., upper := ...)), "
                    f"bound it in the text (least, greatest, CASE, BETWEEN in WHERE) or by bounds := {{{text!r}: [lower, upper]}}, "
                    f"or have them learned for a share of the loss: bounds := 'auto'{self._of_units()}",
                )
            lower, upper = (limits.lower, limits.upper) if bounded else (None, None)
            found[place] = Argument(lower, upper, whole, values, **traits)
        return found

    def _counted(self, node: exp.Expression, text: str, limits: Range) -> Range:
        """Return the range of a number of rows of one unit, which nothing else bounds: as many as count of it."""
        origin = self.lineage.origin(node) if isinstance(node, exp.Column) and limits.upper == math.inf else None
        if not origin or not all(isinstance(part, Made) and _is_count(part.expression) for part in origin):
            return limits
        if ALL in self.call.call.auto:
            return limits
        held = self.protected.protection
        self.notes.append(
            f"{text} is bounded by max_contributions = {held.max_contributions}, above which it counts as that; "
            f"bounds := {{{text!r}: [1, 100]}} says more, bounds := {{{text!r}: 'auto'}} has it learned"
        )
        return replace(limits, upper=float(held.max_contributions))

    def _check_auto(self, arguments: Mapping[int, Argument]) -> None:
        """Refuse to learn bounds where all are known: it would change nothing."""
        if ALL not in self.call.call.auto or self.learning or self.call.learned:
            return
        texts = [readable.expression(self.asked.argument_texts[place]) for place, one in arguments.items() if one.lower is not None]
        if texts:
            said = f"all arguments have bounds: leave it out, or say which are to be learned: bounds := {{{texts[0]!r}: 'auto'}}"
            raise ArgumentError("bounds", "auto", said)

    def _check_sort(self, node: exp.Expression, text: str, family: str, sql_type: str) -> None:
        """Refuse dates as bounds of a number, and numbers as bounds of a date."""
        given = self.given.get(canonical(node, qualified=False))
        kind = ("time" if sql_type == "TIME" else "date") if family == "temporal" else "number"
        if given is not None and not alike(given.sort, kind):
            examples = {
                "time": "times of day: ['08:00', '18:00']", "date": "dates: ['2025-01-01', '2025-12-31']",
                "number": "numbers: [0, 5000]",
            }
            wanted = examples[kind]
            raise ArgumentError(f"bounds[{text!r}]", [given.lower, given.upper], f"it is bounded by {wanted}")

    def _of_units(self) -> str:
        """Return what to know of sums over the rows of one unit, which have no bounds by themselves."""
        advice = ". A sum over all rows of one unit needs a bound of its own: least(sum(x), 1000)"
        return advice if "SUM(" in self.asked.rows else ""

    def _is_learned(self, place: int, *, finite: bool) -> bool:
        """Return whether bounds of an argument are to be learned: it is named, or all are that have none."""
        return canonical(self.asked.arguments[place], qualified=False) in self.auto or (ALL in self.call.call.auto and not finite)

    def _learned(self, place: int, limits: Range, *, whole: bool) -> Argument:
        """Return an argument with bounds that an earlier release has learned, or that this one will, inside of what is known."""
        held = self.call.learned.get(self.asked.argument_texts[place])
        if held is not None:
            return Argument(*held, whole)
        known = (limits.lower, limits.upper) if limits.sort not in ("unknown", "nothing") else (-math.inf, math.inf)
        conditions = {one.condition for one in self.asked.wanted if place in one.arguments and one.function in _BOUNDED}
        edges = edges_of(self.types[f"a{place}"], *known, whole=whole)
        condition = conditions.pop() if len(conditions) == 1 else None
        self.learning.append(Learning(place, edges, Fraction(1), self.call.call.mechanism, condition, whole))
        return Argument(edges[0], edges[-1], whole, learned=len(self.learning) - 1)

    def _check_type(self, functions: set[str], text: str, family: str, place: int) -> None:
        if family in _NUMBERS or (family == "temporal" and functions & _BOUNDED <= choosing.RANKED):
            return
        function = sorted(functions & _BOUNDED)[0]
        raise ArgumentError("sql", f"{function}({text})", f"is of {self.types[f'a{place}']}: a number is needed; CAST it")

    def _values(self, node: exp.Expression, family: str) -> tuple[str, ...] | None:
        """Return all values of an argument, where they are listed."""
        if family == "boolean":
            return ("false", "true")
        found = self._universe(node) if isinstance(node, exp.Column) else None
        return None if found is None else found.values

    def _open(self, node: exp.Expression) -> bool:
        """Whether an argument has values besides the listed ones."""
        found = self._universe(node) if isinstance(node, exp.Column) else None
        return found is not None and found.open

    # -- plan -------------------------------------------------------------------------------------------------------------

    def planned(self) -> Planned:
        """Return the plan with its price."""
        held, call = self.protected.protection, self.call.call
        groups = self.groups()
        selecting = groups is None
        bounding, arguments = self.bounding(selecting=selecting), self.arguments()
        self._check_auto(arguments)
        count = groups.count if groups is not None else None
        measures, weights, select = choosing.choose(
            self.asked.wanted, arguments, count or GUESSED_GROUPS, selecting=selecting, one_row=bounding.one_row,
            weights=self._weights(),
        )
        measures, weights, cutting = self._with_leaves(measures, weights)
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
                sensitivities=[*blocks, *[histogram] * (learning + sum(levels for _, levels, _ in cutting))],
                weights=[*weights, *[each] * learning, *[weight for _, levels, weight in cutting for _ in range(levels)]],
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
        rows = self.protected.source.most_rows
        if rows is not None and bounding.max_rows == rows > held.max_contributions:
            self.notes.append(
                f"{held.max_contributions} rows of a {held.privacy_unit} can become {rows:,} in this FROM, and so many count; "
                "fewer, with less noise: max_rows_per_group := n"
            )
        rest = iter(calibration.scales[sum(len(measure.lengths) for measure in measures) :])
        wanted = QueryPlan(
            keys=tuple(self.types[f"k{i}"] for i in range(len(self.asked.keys))),
            measures=measures,
            public=not selecting,
            groups=count,
            groups_sql="" if groups is None else groups.sql,
            other=() if groups is None else groups.other,
            unit=held.privacy_unit is not None,
            max_rows=bounding.max_rows,
            max_groups=bounding.max_groups,
            max_rows_per_group=bounding.max_rows_per_group,
            different=bounding.different and all(measure.kind in ("units", "distinct") for measure in measures),
            counting=bounding.counting,
            min_units=(call.min_units or 1) if selecting else None,
            threshold=tau,
            delta=None if delta_t is None else str(delta_t),
            selecting=select if selecting else None,
            asked=tuple(one.text for one in self.asked.wanted),
            learning=tuple(replace(one, scale=next(rest)) for one in self.learning),
            cutting=tuple(
                Cutting(place, tuple(itertools.islice(rest, levels)), call.mechanism) for place, levels, _ in cutting
            ),
        )
        made = Plan(
            domain=Domain(()), cliques=(), scales=calibration.scales[: len(wanted.blocks)], mechanism=call.mechanism,
            public_total=False, method=None,
            options={}, query=wanted,
        )
        return Planned(made, calibration, (), (*self.notes, *calibration.notes))

    def _with_leaves(
        self, measures: Sequence[Measure], weights: Sequence[float]
    ) -> tuple[tuple[Measure, ...], tuple[float, ...], list[tuple[int, int, float]]]:
        """Return measures whose trees have leaves that will be cut, where there are more values than leaves; weights of the blocks.

        For each of these: its place, the number of levels of the histograms that come before it, and the weight of one of them.
        """
        found, shares, cutting = [*measures], [*weights], []
        first = 0
        for place, measure in enumerate(measures):
            behind = first + len(measure.lengths)
            if measure.kind == "tree" and measure.variables[0].learned is None:
                one = measure.variables[0]
                units = units_of(self.types[f"a{one.position}"], one.lower, one.upper, whole=one.whole)
                if units.count > measure.lengths[-1]:
                    found[place] = replace(measure, units=units)
                    levels = depth(units, self.call.call.mechanism)[1]
                    cutting.append((place, levels, SHARE * sum(shares[first:behind]) / levels))
                    shares[first:behind] = [(1 - SHARE) * share for share in shares[first:behind]]
            first = behind
        return tuple(found), tuple(shares), cutting

    def _on_grids(self, measures: Sequence[Measure], coarse: Calibration) -> tuple[Measure, ...]:
        """Return the measures on the finest grids for which the sampler can draw the noise; ``coarse``: the noise in rows."""
        largest = MAXIMUM_SIGMA if self.call.call.mechanism == "gaussian" else MAXIMUM_LAPLACE_SCALE
        found, first = [], 0
        for measure in measures:
            found.append(choosing.with_grid(measure, int(largest / (2 * coarse.scales[first]))))
            first += len(measure.lengths)
        return tuple(found)

    def _sensitivity(self, measure: Measure, bounding: Bounding, *, grouped: bool) -> list[tuple[float, float]]:
        """Return the sensitivities of each block of a measure."""
        found = sensitivity(
            measure, bounding.max_rows, bounding.max_groups, bounding.max_rows_per_group, self.protected.protection.neighbors,
            grouped=grouped,
        )
        return [found] * len(measure.lengths)

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


def _is_count(node: exp.Expression) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).lower() in ("count", "count_star", "count_if", "countif")


def _counting(one: Wanted) -> Counting:
    """Return what a row has to be to count in an aggregate."""
    return Counting(one.condition, one.arguments) if one.there is None else Counting(one.there)


def whole_values(limits: Range) -> tuple[str, ...] | None:
    """Return all whole numbers between two bounds, as texts; None if there are too many."""
    if not limits.finite or limits.upper - limits.lower >= MOST_LISTED:
        return None
    return tuple(str(i) for i in range(math.ceil(limits.lower), math.floor(limits.upper) + 1)) or None


def _spelling(text: str) -> str:
    return text.replace('"', "").replace(" ", "").lower()


def _constant(node: exp.Expression) -> float | str:
    """Return a bound that a text states."""
    sign = 1.0
    while isinstance(node, exp.Neg | exp.Paren | exp.Cast):
        sign = -sign if isinstance(node, exp.Neg) else sign
        node = node.this
    if isinstance(node, exp.Literal):
        return str(node.name) if node.is_string else sign * float(node.name)
    raise ArgumentError("sql", node.sql(dialect="duckdb"), "bounds are two constants")

