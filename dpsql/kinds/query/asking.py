"""What is publicly known of the keys and arguments of a query: their types, values and bounds. No row is read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from sqlglot import exp

from dpsql.algebra.aggregates import DISTINCT, EXTREMES, FIRST, PAIRS, RANKED, SECOND
from dpsql.algebra.ranges import Range, alike
from dpsql.calls.query import ALL
from dpsql.domains import sqltypes
from dpsql.errors import ArgumentError
from dpsql.estimates.magnitudes import Learning, edges_of, wide
from dpsql.protected.source import ProtectedSource
from dpsql.queries import choosing
from dpsql.queries.asked import Asked
from dpsql.queries.bounds import extent
from dpsql.queries.choosing import Argument
from dpsql.queries.columns import Relations, given_bounds
from dpsql.queries.condition_lists import listed_by
from dpsql.queries.declared import in_units_of
from dpsql.queries.groups import Groups, Universes
from dpsql.queries.inner import InnerValues
from dpsql.queries.leaves import facts_of
from dpsql.queries.lineage import Lineage
from dpsql.queries.listed import check_listed
from dpsql.queries.naming import canonical, read_expression
from dpsql.queries.purchase import QueryPurchase
from dpsql.queries.universes import Universe, grid_values
from dpsql.session.instance import Context
from dpsql.text import readable

_SUMMED = FIRST | SECOND | PAIRS
_BOUNDED = _SUMMED | RANKED
MOST_LISTED = 10_000
"""Whole numbers that are listed one by one."""
_MOST_COUNTED = 1_000
"""Of which it is asked alone how many there are."""
_OF_DISTINCT = {**DISTINCT, "count_distinct": "count"}
_MOST_SHOWN = 3
"""Expressions that a note names."""
_NUMBERS = ("integer", "decimal", "float", "boolean")


@dataclass
class _Understood:
    """What the columns of one grouping set are, kept for all plans that a call makes of it."""

    asked: Asked
    lineage: Lineage
    relations: Relations
    universes: Universes
    bare: Universes
    groups: Groups | None = None


def _understood(context: Context, asked: Asked, given: Mapping[str, Range]) -> _Understood:
    # the same question is planned, rehearsed and bought: it is understood once
    key = ("understood", id(asked), tuple(sorted(given.items())))
    understood = context.known.get(key)
    if not isinstance(understood, _Understood):
        facts = facts_of(context)
        lineage = Lineage(asked.source, facts.names)
        inner = InnerValues(context.cursor, facts.universe, dict(given), facts.bare)
        understood = _Understood(
            asked, lineage, Relations(facts.range, given), inner.universes(lineage), inner.universes(lineage, bare=True)
        )
        context.known[key] = understood
    return understood


class Asking:
    """What is publicly known of one grouping set of a query: its columns, and the values and bounds of its arguments."""

    def __init__(
        self, context: Context, protected: ProtectedSource, call: QueryPurchase, parameters: Mapping[str, Any]
    ) -> None:
        self.context, self.protected, self.call, self.asked = context, protected, call, call.asked
        self.parameters = parameters
        self.types = {column.name: column.sql_type for column in protected.source.columns}
        self.facts = facts_of(context)
        self.one_per_unit = protected.source.one_per_unit
        stated = {**given_bounds(call.call.stated_bounds), **self._stated()}
        self.auto = {canonical(read_expression(text, "bounds"), qualified=False) for text in call.call.auto if text != ALL}
        self.learning: list[Learning] = []
        self.given = stated
        self.understood = _understood(context, self.asked, stated)
        self.lineage, self.relations = self.understood.lineage, self.understood.relations
        self.notes: list[str] = []
        self.partial: list[str] = []
        self._check_columns()
        check_listed(self.asked.source, self.lineage, self.facts)
        self._say_undefined()

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

    def _universe(self, node: exp.Column) -> Universe | None:
        """Return what is known of the values of a column of the rows."""
        return self.understood.universes(node)

    def _say_undefined(self) -> None:
        """Say which quotients and remainders of the rows are NULL where DuckDB has infinity or NaN, or fails.

        Divided by what cannot be zero, as declared or by WHERE, they have a value.
        """
        known, undefined = self.relations.known(self.lineage), dict[str, None]()
        asked = self.asked
        parts = (asked.source, *asked.keys, *asked.arguments, *asked.conditions)
        for node in (division for part in parts for division in part.find_all(exp.Div, exp.IntDiv, exp.Mod, bfs=False)):
            # inside of a subquery other rows are divided, of which WHERE here says nothing
            here = node.find_ancestor(exp.Select) in (None, asked.source)
            divisor = extent(node.expression, known if here else lambda column: None)
            if divisor.lower <= 0 <= divisor.upper:
                undefined[readable.expression(canonical(node, qualified=False))] = None
        if undefined:
            shown = ", ".join(list(undefined)[:_MOST_SHOWN]) + (", ..." if len(undefined) > _MOST_SHOWN else "")
            self.notes.append(f"NULL where it is divided by zero, and a condition over it is not true: {shown}")

    # -- arguments --------------------------------------------------------------------------------------------------------

    def arguments(self) -> dict[int, Argument]:
        """Return what is known of the arguments that need bounds or values."""
        known = self.relations.known(self.lineage)
        # one argument serves several aggregates: bounds and values are those that all of them need
        needed: dict[int, set[str]] = {}
        for aggregate in self.asked.wanted:
            for place in aggregate.arguments:
                needed.setdefault(place, set()).add(aggregate.function)
        arguments = {}
        for place, functions in needed.items():
            node, text = self.asked.arguments[place], readable.expression(self.asked.argument_texts[place])
            family = sqltypes.parse(self.types[f"a{place}"]).family
            if functions & _BOUNDED:
                self._check_type(functions, text, family, place)
            # between which bounds values are counted: those beyond them are moved
            limits = self._counted(node, text, in_units_of(extent(node, known), self.types[f"a{place}"]))
            listed = bool(functions & choosing.OF_VALUES)  # else it is not asked which values there are: that takes time
            values = self._values(node, family, self.types[f"a{place}"]) if listed else None
            if values is None and listed:
                most = MOST_LISTED if functions & choosing.LISTED else _MOST_COUNTED
                values = grid_values(self.context.cursor, Universe(self.types[f"a{place}"], None, limits, False), most)
            # an aggregate of listed values has a counter for each
            if functions & choosing.LISTED and values is None:
                function = sorted(functions & choosing.LISTED)[0]
                way = "CALL dp_declare(..., categories := [...]), or lower and upper of whole numbers, DECIMALs or dates"
                raise ArgumentError("sql", _called(function, text), f"its values are not declared: {way}")
            is_open, strays = listed and self._open(node), listed and self._strays(node)
            traits = Argument(values=values, nan=family == "float", text=family == "text", open=is_open, strays=strays)
            self.partial += self.partial_of(functions & choosing.LISTED, text, traits)
            # from here on: sums and quantiles, which need finite bounds
            bounded = bool(functions & _BOUNDED)
            self._check_sort(node, text, family, self.types[f"a{place}"])
            finite = limits.finite and limits.sort not in ("unknown", "nothing")
            whole = limits.whole and family in ("integer", "boolean", "temporal", "decimal")
            if bounded and self._is_learned(place, finite=finite):
                arguments[place] = _bounded_as(traits, self._learned(place, limits, whole=whole))
                continue
            if bounded and not finite:
                raise ArgumentError(
                    "sql", text,
                    "has no bounds: declare the columns that it is made of (CALL dp_declare(..., lower := ..., upper := ...)), "
                    f"bound it in the text (least, greatest, CASE, BETWEEN in WHERE) or by bounds := {{{text!r}: [lower, upper]}}, "
                    f"or have them learned for a share of the loss: bounds := 'auto'{self._of_units()}",
                )
            # of a wide range most is noise: narrower bounds are learned first
            if functions & _SUMMED and self._is_narrowed(node, limits):
                arguments[place] = _bounded_as(traits, self._narrowed(place, text, limits, whole=whole))
                continue
            lower, upper = (limits.lower, limits.upper) if bounded else (None, None)
            arguments[place] = replace(traits, lower=lower, upper=upper, whole=whole)
        return arguments

    def _counted(self, node: exp.Expression, text: str, limits: Range) -> Range:
        """Return the range of what is made of numbers of rows of one unit, which nothing else bounds: as many as count of it."""
        if limits.upper < math.inf or ALL in self.call.call.auto:
            return limits
        contributions, along = self.protected.held.max_contributions, [way.most for way in self.protected.lineages]
        most, source = contributions * max(along, default=1), self.protected.source
        # public rows, or elements of lists, make several of one before they are grouped
        if not along and source.limited is None:
            most = max(most, source.gathered or 0)
        capped = extent(node, Relations(self.facts.range, self.given, most).known(self.lineage))
        if not capped.finite:
            return limits
        by = f"max_contributions = {contributions}"
        if along:
            by = f"the {most} rows of a unit that links allow"
        elif most > contributions:
            by = f"the {most} rows that {by} of a unit can become"
        self.notes.append(
            f"{text} is bounded by {by}, above which it counts as that; "
            f"bounds := {{{text!r}: [1, 100]}} says more, bounds := {{{text!r}: 'auto'}} has it learned"
        )
        return capped

    def _check_auto(self, arguments: Mapping[int, Argument]) -> None:
        """Refuse to learn bounds where all are known: it would change nothing."""
        if ALL not in self.call.call.auto or self.learning or self.call.learned:
            return
        bounded = [place for place, argument in arguments.items() if argument.lower is not None]
        if bounded:
            texts = [readable.expression(self.asked.argument_texts[place]) for place in bounded]
            advice = f"all arguments have bounds: leave it out, or say which are to be learned: bounds := {{{texts[0]!r}: 'auto'}}"
            raise ArgumentError("bounds", "auto", advice)

    def _check_sort(self, node: exp.Expression, text: str, family: str, sql_type: str) -> None:
        """Refuse dates as bounds of a number, and numbers as bounds of a date."""
        stated = self.given.get(canonical(node, qualified=False))
        kind = ("time" if sql_type == "TIME" else "date") if family == "temporal" else "number"
        if stated is not None and not alike(stated.sort, kind):
            examples = {
                "time": "times of day: ['08:00', '18:00']", "date": "dates: ['2025-01-01', '2025-12-31']",
                "number": "numbers: [0, 5000]",
            }
            example = examples[kind]
            raise ArgumentError(f"bounds[{text!r}]", [stated.lower, stated.upper], f"it is bounded by {example}")

    def _of_units(self) -> str:
        """Return what to know of sums over the rows of one unit, which have no bounds by themselves."""
        advice = ". A sum over all rows of one unit needs a bound of its own: least(sum(x), 1000)"
        return advice if "SUM(" in self.asked.rows else ""

    def _is_learned(self, place: int, *, finite: bool) -> bool:
        """Return whether bounds of an argument are to be learned: it is named, or all are that have none."""
        return canonical(self.asked.arguments[place], qualified=False) in self.auto or (ALL in self.call.call.auto and not finite)

    def _learned(self, place: int, limits: Range, *, whole: bool) -> Argument:
        """Return an argument with bounds that an earlier release has learned, or that this one will, inside of what is known."""
        bounds = self.call.learned.get(self.asked.argument_texts[place])
        if bounds is not None:
            return Argument(*bounds, whole)
        known = (limits.lower, limits.upper) if limits.sort not in ("unknown", "nothing") else (-math.inf, math.inf)
        return self._histogram(place, edges_of(self.types[f"a{place}"], *known, whole=whole), _BOUNDED, whole=whole)

    def _histogram(
        self, place: int, edges: tuple[float, ...], functions: frozenset[str], *, whole: bool, declared: bool = False
    ) -> Argument:
        """Return an argument with bounds that a histogram of magnitudes will say; ``functions``: what is asked of its rows."""
        users = [aggregate for aggregate in self.asked.wanted if place in aggregate.arguments and aggregate.function in functions]
        conditions = {aggregate.condition for aggregate in users}
        condition = conditions.pop() if len(conditions) == 1 else None
        self.learning.append(Learning(place, edges, Fraction(1), self.call.call.mechanism, condition, whole, declared))
        return Argument(edges[0], edges[-1], whole, learned=len(self.learning) - 1, declared=declared)

    def _is_narrowed(self, node: exp.Expression, limits: Range) -> bool:
        """Return whether bounds are wide, and not by those that the call gives for this argument or for what it is made of."""
        if not wide(limits.lower, limits.upper):
            return False
        parts = self.relations.unstated(self.lineage, node)
        return parts is None or any(not part.finite or (part.lower < part.upper and wide(part.lower, part.upper)) for part in parts)

    def _narrowed(self, place: int, text: str, limits: Range, *, whole: bool) -> Argument:
        """Return an argument with wide bounds, of which narrower ones will be learned; those of an earlier release, where it may.

        Privacy: public. That bounds are wide follows from declarations and the text; what it costs stands in the plan.
        """
        # the release was bought with these: another try must not learn others
        bounds = self.call.learned.get(self.asked.argument_texts[place])
        if bounds is not None:
            return Argument(*bounds, whole)
        kind = self.types[f"a{place}"]
        edges = edges_of(kind, limits.lower, limits.upper, whole=whole)
        shown = f"[{limits.lower:.15g}, {limits.upper:.15g}]"
        self.notes.append(
            f"{text} may be anything from {limits.lower:,.15g} to {limits.upper:,.15g}, far more than values usually are: "
            f"{self.call.call.bounds_share:.0%} of the loss buys a histogram of magnitudes first, and sums and means are of values "
            f"moved to the bounds that it suggests; bounds := {{{text!r}: {shown}}} takes these as they are"
        )
        return self._histogram(place, edges, _SUMMED, whole=whole, declared=True)

    def _check_type(self, functions: set[str], text: str, family: str, place: int) -> None:
        # order is enough for an extreme or a quantile of dates, a sum of dates is not a date
        if family in _NUMBERS or (family == "temporal" and functions & _BOUNDED <= RANKED):
            return
        function = sorted(functions & _BOUNDED)[0]
        if family == "text" and function in EXTREMES:
            way = f"mode({text}) and histogram({text}) are answered of declared categories"
            some = f"list_filter(map_entries(histogram({text})), lambda e: e.value > 20)"
            instead = f"list_{function}(map_keys(map_from_entries({some}))) is that of those with over 20 rows"
            raise ArgumentError("sql", f"{function}({text})", f"is a text of one row; {way}: {instead}")
        sql_type = self.types[f"a{place}"]
        days = f"{function}(date_diff('day', DATE '2000-01-01', {text})) is one, of days"
        way = days if sql_type in ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE") else "CAST it"
        raise ArgumentError("sql", f"{function}({text})", f"is of {sql_type}: a number is needed; {way}")

    def _values(self, node: exp.Expression, family: str, sql_type: str) -> tuple[str, ...] | None:
        """Return all values of an argument, where they are listed: declared, or named by WHERE."""
        if family == "boolean":
            return ("false", "true")
        universe = self._universe(node) if isinstance(node, exp.Column) else None
        if universe is not None and universe.values is not None:
            return universe.values
        where = self.asked.source.args.get("where")
        return listed_by(self.context.cursor, None if where is None else where.this, node, sql_type)

    def _open(self, node: exp.Expression) -> bool:
        """Whether an argument has values besides the listed ones."""
        universe = self._universe(node) if isinstance(node, exp.Column) else None
        return universe is not None and universe.open

    def _strays(self, node: exp.Expression) -> bool:
        """Whether what an argument is made of may have values besides the declared ones."""
        universes = [self._universe(column) for column in node.find_all(exp.Column)]
        return any(universe is not None and universe.strays for universe in universes)

    @staticmethod
    def partial_of(functions: Iterable[str], text: str, known: Argument) -> list[str]:
        """Return which aggregates over a list of values leave rows out that have others."""
        others = [f for f in sorted(functions) if known.open and not (known.text and f == "histogram")]
        return [_called(function, text) for function in (sorted(functions) if known.strays else others)]


def _bounded_as(known: Argument, other: Argument) -> Argument:
    """Return what is known of an argument with the bounds of another one."""
    return replace(
        known, lower=other.lower, upper=other.upper, whole=other.whole, learned=other.learned, declared=other.declared
    )


def _called(function: str, text: str) -> str:
    return f"{_OF_DISTINCT[function]}(DISTINCT {text})" if function in _OF_DISTINCT else f"{function}({text})"


def _constant(node: exp.Expression) -> float | str:
    """Return a bound that a text states."""
    sign = 1.0
    while isinstance(node, exp.Neg | exp.Paren | exp.Cast):
        sign = -sign if isinstance(node, exp.Neg) else sign
        node = node.this
    if isinstance(node, exp.Literal):
        return str(node.name) if node.is_string else sign * float(node.name)
    raise ArgumentError("sql", node.sql(dialect="duckdb"), "bounds are two constants")

