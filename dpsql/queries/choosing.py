"""Which measures answer the aggregates of a query: as few as will do, since each takes a share of the loss.

count, sum, avg, var and covar of one expression come from one vector of counters; count(*) comes with it. What the counters of a
row are, and how sensitive they make the release, is in `dpsql.estimates.measures`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dpsql.algebra.aggregates import DISTINCT, FIRST, OF_EQUAL_ROWS, PAIRS, RANKED, SECOND, SQUARED, measured
from dpsql.domains.attributes import OTHER_LABEL
from dpsql.errors import ArgumentError
from dpsql.estimates.measures import GRID, Measure, Variable
from dpsql.estimates.quantiles import choose_levels
from dpsql.queries.asked import Wanted

LISTED = measured("listed") | DISTINCT.keys()
OF_VALUES = LISTED | {"count_distinct"}
"""Aggregates that depend on which values their arguments have."""
UNKNOWN_VALUES = 1e18
"""Upper bound of a number of distinct values that nobody has listed."""
SELECTING_WEIGHT = 0.5
"""Share of a number of units that is measured only to choose groups, where an aggregate has 1."""


@dataclass(frozen=True)
class Argument:
    """What is publicly known of an argument.

    Parameters
    ----------
    lower, upper : float or None
        Its bounds; None where there are none.
    whole : bool
        Whether its values are integers.
    values : tuple of str, optional
        All of its values, where they are listed.
    nullable : bool
    nan : bool
        Whether a value may be NaN, which is no number and not NULL: its type is FLOAT or DOUBLE.
    open, text : bool
        Whether it has values besides the listed ones; whether it is a text, so that one text can stand for all of these.
    strays : bool
        Whether rows may have other values than those that were declared, for which nothing stands.
    learned : int, optional
        Which histogram its bounds will be chosen from; ``lower`` and ``upper`` are the widest then.
    declared : bool
        Whether these widest ones are declared, so that quantiles need no others.
    """

    lower: float | None = None
    upper: float | None = None
    whole: bool = False
    values: tuple[str, ...] | None = None
    nullable: bool = True
    nan: bool = False
    open: bool = False
    text: bool = False
    strays: bool = False
    learned: int | None = None
    declared: bool = False


def with_grid(measure: Measure, most: int) -> Measure:
    """Return a measure on the finest grid of at most ``most`` parts; one on which integers between the bounds are exact, if any is.

    Finer than 2^20 parts is of no use. The noise sampler draws up to a largest scale, which is in parts of the grid.
    """
    if measure.kind not in ("moments", "scaled"):
        return measure
    most = max(1, min(most, GRID))
    first = measure.variables[0]
    if len(measure.variables) == 1 and first.whole and first.learned is None:
        power = int(first.magnitude) if measure.kind == "scaled" else int(first.span) ** measure.degree
        if 0 < power <= most:
            return replace(measure, grid=power * (most // power))
    return replace(measure, grid=most)


def choose(
    aggregates: Sequence[Wanted], arguments: Mapping[int, Argument], groups: int, *, selecting: bool, one_row: bool,
    weights: Mapping[str, float], few: int = 0,
) -> tuple[tuple[Measure, ...], tuple[float, ...], int | None]:
    """Return the measures, a weight for each of their blocks, and which one chooses groups.

    Parameters
    ----------
    aggregates : sequence of Wanted
    arguments : mapping
        What is known of each argument, by position.
    groups : int
        Number of groups, or a guess: trees are as fine as it lets them be.
    selecting : bool
        Whether groups are private: then their units are counted.
    one_row : bool
        Whether a unit has at most one row in a group: then rows are units.
    weights : mapping of str to float
        By the text of an aggregate; 1 where it is not named.
    few : int
        Up to so many listed values are counted each for itself where it is asked how many there are.
    """
    chosen: list[Measure] = []
    shares: list[float] = []
    sums = _moments(aggregates, arguments)
    # sums first: they may hold the counts that are asked for as well
    for measure, users in sums:
        chosen.append(measure)
        shares.append(max(weights.get(user.text, 1.0) for user in users))
    select: int | None = None
    by_units = [w for w in aggregates if w.function == "count_units" or (one_row and w.function == "count" and w.there is None)]
    # numbers of units, and the one that private groups are chosen by, which has no condition
    for condition in dict.fromkeys([*([None] if selecting else []), *(w.condition for w in by_units)]):
        users = [w for w in by_units if w.condition == condition]
        if condition is None and selecting:
            select = len(chosen)
        distinct = any(w.function == "count_units" for w in users)
        if not distinct and not (condition is None and selecting):
            continue  # a count of rows, which the counts below give
        chosen.append(Measure("units", filter=condition, nulls=not distinct))
        shares.append(max((weights.get(w.text, 1.0) for w in users), default=SELECTING_WEIGHT))
    # the rest, each where nothing before gives it
    of_rows = {_parts(w) for w in aggregates if w.function in LISTED - OF_EQUAL_ROWS}
    for aggregate in aggregates:
        further = _other(aggregate, arguments, groups, of_rows=_parts(aggregate) in of_rows, few=few)
        if further is None or further in chosen or gives_count(aggregate, chosen, one_row=one_row):
            continue
        chosen.append(further)
        shares.append(weights.get(aggregate.text, 1.0))
    # which groups there are may be all that is asked of public ones: then a count stands for it
    if not chosen:
        chosen, shares = [Measure("count")], [1.0]
    # the levels of a tree have equal parts of its share
    blocks = [share / len(measure.lengths) for measure, share in zip(chosen, shares, strict=True) for _ in measure.lengths]
    return tuple(chosen), tuple(blocks), select


def gives_count(aggregate: Wanted, measures: Sequence[Measure], *, one_row: bool) -> bool:
    """Return whether a count is among what other measures give."""
    if aggregate.function != "count":
        return False
    return any(counts(aggregate, measure, one_row=one_row) for measure in measures)


def counts(aggregate: Wanted, measure: Measure, *, one_row: bool) -> bool:
    """Return whether a measure holds the number of rows that a count asks for."""
    if aggregate.there is None:
        if measure.kind == "moments":
            return measure.filter == aggregate.condition and measure.nulls
        return measure.filter == aggregate.condition and (measure.kind == "count" or (measure.kind == "units" and one_row))
    if measure.kind == "moments":
        return measure.filter == aggregate.condition and tuple(v.position for v in measure.variables) == aggregate.arguments
    return measure.kind == "count" and measure.filter == aggregate.there


def _moments(aggregates: Sequence[Wanted], arguments: Mapping[int, Argument]) -> list[tuple[Measure, list[Wanted]]]:
    """Return the vectors of sums, and which aggregates use each."""
    users: dict[tuple[tuple[int, ...], int | None], list[Wanted]] = {}
    for aggregate in aggregates:
        if aggregate.function in FIRST | SECOND | PAIRS:
            users.setdefault((aggregate.arguments, aggregate.condition), []).append(aggregate)
    rows = {aggregate.condition for aggregate in aggregates if aggregate.function == "count" and aggregate.there is None}
    vectors = []
    # aggregates of the same arguments under the same filter are read off one vector
    for (places, condition), those in users.items():
        variables = tuple(variable(place, arguments[place]) for place in places)
        functions = {aggregate.function for aggregate in those}
        degree = 1 if functions.isdisjoint(SQUARED) else 2
        with_rows = condition in rows
        alike = [aggregate for aggregate in aggregates if aggregate.arguments == places and aggregate.condition == condition]
        with_values = any(aggregate.there is not None for aggregate in alike)
        lone = functions == {"sum"} and not with_rows and not with_values
        # a sum alone needs no count beside it: one counter has all of its loss
        if lone:
            vectors.append((Measure("scaled", variables, filter=condition), those))
        else:
            nans = with_values and arguments[places[0]].nan
            measure = Measure("moments", variables, degree=degree, filter=condition, nulls=with_rows, nans=nans)
            vectors.append((measure, those))
    return vectors


def variable(place: int, known: Argument) -> Variable:
    """Return an argument with its bounds, which must be known; equal ones are moved apart."""
    if known.lower is None or known.upper is None:
        raise ArgumentError("bounds", None, "needed")  # pragma: no cover -- the plan has asked for them
    lower, upper = known.lower, known.upper
    if lower >= upper:
        upper = lower + 1.0 if known.whole else math.nextafter(lower, math.inf) if lower else 1.0
        upper = upper if math.isfinite(upper - lower) and upper - lower > 1e-300 else lower + 1.0
    whole = known.whole and all(abs(bound) <= 2**53 and bound == math.floor(bound) for bound in (lower, upper))
    return Variable(place, float(lower), float(upper), whole, known.learned)


def _parts(aggregate: Wanted) -> tuple[tuple[int, ...], int | None]:
    """Return of what, and of which rows, an aggregate is."""
    return aggregate.arguments, aggregate.condition


def _other(
    aggregate: Wanted, arguments: Mapping[int, Argument], groups: int, *, of_rows: bool, few: int
) -> Measure | None:
    """Return a measure of ranks, of listed values or of rows; ``of_rows``: whether it is asked how many rows have each value."""
    if aggregate.function in RANKED:
        known = arguments[aggregate.arguments[0]]
        over = variable(aggregate.arguments[0], replace(known, learned=None) if known.declared else known)
        return Measure("tree", (over,), filter=aggregate.condition, levels=choose_levels(over, groups))
    if aggregate.function in OF_VALUES:
        known = arguments[aggregate.arguments[0]]
        listed = known.values or ()
        if aggregate.function == "count_distinct" and not 0 < len(listed) <= few:
            most = float(len(listed)) if listed and not (known.open or known.strays) else UNKNOWN_VALUES
            return Measure("distinct", (Variable(aggregate.arguments[0], 0.0, most),), filter=aggregate.condition)
        # each declared value has a counter; rows with others count together where their values may be shown
        rest = known.open and known.text and of_rows
        values = (*listed, *([OTHER_LABEL] if rest else []))
        over = Variable(aggregate.arguments[0])
        return Measure("values", (over,), filter=aggregate.condition, values=values, other=rest, once=not of_rows)
    if aggregate.function == "count":
        return Measure("count", filter=aggregate.condition if aggregate.there is None else aggregate.there)
    return None
