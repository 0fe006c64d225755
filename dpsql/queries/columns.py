"""Ranges of the columns of a query, through its CTEs and subqueries, and the bounds that a user gives.

Privacy: none; public bounds and the text of the query alone.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from dpsql.algebra.aggregates import INSIDE
from dpsql.algebra.moments import moment, time_of_day
from dpsql.algebra.ranges import INF, UNKNOWN, Range, alike, hull
from dpsql.domains.edges import HUGE, neighbours
from dpsql.errors import ArgumentError
from dpsql.queries.bounds import Known, extent, narrowed
from dpsql.queries.lineage import Constants, Leaf, Lineage, Made
from dpsql.queries.naming import canonical, read_expression

LeafRange = Callable[[exp.Table, str], Range | None]
"""A table and the name of a column -> its declared range, or the one of its type (`dpsql.queries.bounds.range_of_type`)."""

_ENDS_OF_TYPES = frozenset(sign * (2**bits - 1) for bits in (63, 64, 127, 128) for sign in (1, -1))
"""Of whole numbers; the double next to one is beyond all values of its type."""


@dataclass
class Relations:
    """Ranges of the columns that the SELECTs of one query see.

    Parameters
    ----------
    leaf : callable
        `LeafRange`.
    given : mapping of str to Range
        From `given_bounds`.
    counted : int, optional
        How high a number of rows is counted.
    """

    leaf: LeafRange
    given: Mapping[str, Range] = field(default_factory=dict)
    counted: int | None = None
    _known: dict[int, Known] = field(default_factory=dict, repr=False)
    _columns: dict[tuple[int, str], Range] = field(default_factory=dict, repr=False)
    _kept: list[Lineage] = field(default_factory=list, repr=False)

    def known(self, lineage: Lineage) -> Known:
        """Return what is known inside of a SELECT, of the rows and groups that its WHERE, its joins and HAVING let through."""
        known = self._known.get(id(lineage))
        if known is None:
            known = Known(lambda column: self._column(lineage, column), given=self.given)
            for join in lineage.select.args.get("joins") or []:
                # an outer join keeps rows for which its condition is not true
                if join.args.get("on") is not None and not (join.side or join.method or join.kind not in ("", "INNER")):
                    known = narrowed(join.args["on"], known)
            known = narrowed(lineage.select.args.get("where"), known)
            having = lineage.select.args.get("having")
            known = narrowed(having.this if having is not None else None, known)
            self._known[id(lineage)] = known
            self._kept.append(lineage)  # so that its id stays its own
        return known

    def outputs(self, lineage: Lineage) -> dict[str, Range]:
        """Return the ranges of the columns that a SELECT gives, by folded name; `UNKNOWN` sorts where nothing is known."""
        listed = lineage.outputs() or {}
        return {name: self.range_of(origin) for name, origin in listed.items()}

    def unstated(self, lineage: Lineage, node: exp.Expression) -> list[Range] | None:
        """Return the ranges of the largest parts of an expression of which the call states nothing; None where it states no part.

        What conditions compare changes no value by itself, and is no part.
        """
        if canonical(node, qualified=False) in self.given:
            return []
        if isinstance(node, exp.Column):
            computed = [part for part in lineage.origin(node) or () if isinstance(part, Made)]
            ranges = [self.unstated(part.inside, part.expression) for part in computed]
        else:
            ranges = [self.unstated(lineage, child) for child in _valued(node)]
        if all(unstated is None for unstated in ranges):
            return None
        # a part of which nothing is stated counts as a whole, as far as it goes
        parts = [] if isinstance(node, exp.Column) else _valued(node)
        out = [of for unstated in ranges if unstated is not None for of in unstated]
        whole = [child for child, unstated in zip(parts, ranges, strict=False) if unstated is None]
        return out + [extent(child, self.known(lineage)) for child in whole]

    def _column(self, lineage: Lineage, column: exp.Column) -> Range | None:
        key = (id(lineage), canonical(column))
        if key not in self._columns:
            origin = lineage.origin(column)
            self._columns[key] = UNKNOWN if not origin else self.range_of(origin)
        bounds = self._columns[key]
        return None if bounds == UNKNOWN else bounds

    def range_of(self, origin: Sequence[Any]) -> Range:
        """Return the range of the values that come from these parts (`dpsql.queries.lineage.Origin`)."""
        parts = []
        for part in origin:
            if isinstance(part, Leaf):
                bounds = self.leaf(part.relation, part.name)
                parts.append(UNKNOWN if bounds is None else bounds)
            elif isinstance(part, Constants):
                parts += [extent(value, Known(lambda column: None)) for value in part.expressions]
            elif self.counted is not None and _is_count(part.expression):
                parts.append(Range(0.0, float(self.counted), True, "integer"))
            else:
                parts.append(extent(part.expression, self.known(part.inside)))
        return hull(parts[0], *parts[1:]) if parts else UNKNOWN


def _is_count(node: exp.Expression) -> bool:
    return isinstance(node, exp.Anonymous) and INSIDE.get(str(node.this).lower()) in ("count", "count_if")


def _valued(node: exp.Expression) -> list[exp.Expression]:
    """Return the operands of a node that its value is made of: not those of its conditions."""
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        return [branch.args["true"] for branch in node.args["ifs"]] + ([] if default is None else [default])
    if isinstance(node, exp.Filter | exp.Window):
        return [node.this]
    return [
        child for child in node.iter_expressions()
        if not isinstance(child, exp.Predicate | exp.Connector | exp.Not | exp.DataType | exp.Query | exp.Identifier)
    ]


def given_bounds(bounds: Mapping[str, Sequence[Any]] | None, argument: str = "bounds") -> dict[str, Range]:
    """Read the bounds that a user gives for columns and expressions.

    Parameters
    ----------
    bounds : mapping of str to two values, optional
        Name of a column or text of an expression, such as ``'sum(cost)'`` -> lower and upper bound: numbers, or ISO dates.
    argument : str
        Of the call, for messages.

    Returns
    -------
    dict of str to Range
        For `dpsql.queries.bounds.Known`: canonical texts without qualifiers.

    Raises
    ------
    ArgumentError
        No expression; not two bounds; not finite, or of two sorts; the lower not below the upper; no number of double precision.

    Examples
    --------
    >>> given_bounds({"SUM( cost )": [0, 10]})
    {'SUM("cost")': Range(lower=0.0, upper=10.0, whole=False, sort='number')}
    """
    out: dict[str, Range] = {}
    for text, pair in (bounds or {}).items():
        ends = list(pair) if isinstance(pair, Sequence) and not isinstance(pair, str) else []
        read = [_end(value) for value in ends]
        if len(read) != 2 or read[0] is None or read[1] is None or not alike(read[0].sort, read[1].sort):
            way = f"wants two finite numbers, two ISO dates or two times of day: {argument} := {{'{text}': [0, 100]}}"
            raise ArgumentError(f"{argument}[{text!r}]", pair, way)
        # bounds are kept as doubles: an integer that is none would be moved unseen
        for value in ends:
            exact = isinstance(value, int) and value not in _ENDS_OF_TYPES and abs(value) < HUGE
            near = neighbours(value) if exact else None
            if near is not None:
                advice = f"{value} is no number of double precision, in which bounds are kept: take {near}"
                raise ArgumentError(f"{argument}[{text!r}]", pair, advice)
        # the hull has the larger end last; where that is the first one, they were given the wrong way round
        limits = hull(read[0], read[1])
        if limits.upper == read[0].upper:
            raise ArgumentError(f"{argument}[{text!r}]", pair, "wants the lower bound first, and an upper bound above it")
        name = canonical(read_expression(text, argument), qualified=False)
        if name in out:
            raise ArgumentError(f"{argument}[{text!r}]", pair, "is the same expression as another one there; give its bounds once")
        out[name] = limits
    return out


def _end(value: object) -> Range | None:
    """Return a bound: a number, or a moment."""
    if isinstance(value, bool):
        return None
    if isinstance(value, dt.date):
        return moment(value.isoformat())
    if isinstance(value, dt.time):
        return time_of_day(value.isoformat())
    if isinstance(value, str):
        return moment(value) or time_of_day(value)
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return Range(number, number) if math.isfinite(number) and abs(number) < INF else None
