"""How many rows of a unit count in a query, where that is to be learned: a release before it, of rows per unit, says.

Privacy: two releases one after the other, charged each for itself, of parts of the loss that the call names. The first is a
histogram of units by their number of rows, each in one bucket (`dpsql.kinds.units.plan`); the second is planned with a number that
follows from what the first one has released, as if the caller had said it.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

from dpsql.accounting import fits
from dpsql.answers import held
from dpsql.books.entries import canonical_json
from dpsql.calls.buying import BuyingCall
from dpsql.calls.query import ROWS_SHARE
from dpsql.calls.tables import RowsCall
from dpsql.errors import ArgumentError, DpsqlError
from dpsql.estimates import row_bounds
from dpsql.kinds.plans import request
from dpsql.protected.source import ProtectedSource
from dpsql.purchase import buying, uses
from dpsql.purchase.shares import part_of
from dpsql.queries.purchase import QueryPurchase
from dpsql.release.plan import Plan
from dpsql.running.progress import Progress
from dpsql.session.instance import Context

_PRIVATE_GROUPS = 10.0
"""So many private groups are reckoned with: how many there are is not known before."""


def first(source: ProtectedSource, call: QueryPurchase) -> tuple[RowsCall, QueryPurchase]:
    """Return the purchase of the histogram, and that of the query with what is left of its loss.

    Raises
    ------
    ArgumentError
        The query has no epsilon.
    """
    if call.epsilon is None:
        said = "max_rows := 'auto' finds what it bought by its price: say the epsilon again"
        raise ArgumentError("epsilon", None, said)
    mechanism = call.call.mechanism
    share = Fraction(repr(ROWS_SHARE[mechanism]))
    own, rest = (part_of(call.epsilon, part, source, mechanism) for part in (share, 1 - share))
    histogram = RowsCall(call.source, epsilon=own, delta=call.delta, mechanism=mechanism, release=call.release)
    return histogram, replace(call, epsilon=rest)


def bought(context: Context, source: ProtectedSource, call: QueryPurchase) -> tuple[BuyingCall, ...]:
    """Return what a purchase buys: itself, after a histogram where one is asked for. Nothing is bought."""
    if not call.call.learns_rows:
        return (call,)
    if _is_one(source):
        return (_without(call),)
    histogram, rest = first(source, call)
    asked = uses.asked(context, source, histogram)
    there = source.ledger.purchase(asked.release) if asked.hers else None
    if there is not None and there.status == "stored":  # then it is free
        with Progress("dp_plan", show=False) as progress:
            rest = learned(context, source, call, progress)
    return histogram, rest


def learned(context: Context, source: ProtectedSource, call: QueryPurchase, progress: Progress) -> QueryPurchase:
    """Return a purchase with the number of rows that its histogram suggests, buying that at the first call.

    Raises
    ------
    BudgetExceeded, BudgetExhausted, GrantExceeded
        Not both can be bought: nothing was charged.
    """
    if _is_one(source):
        return _without(call)
    histogram, rest = first(source, call)
    before = _before(context, source, rest)
    if before is not None:
        return before
    plan = request(context, source, rest).plan
    _check_both(context, source, histogram, rest, call.epsilon)
    release = buying.buy(context, histogram, progress)
    counts = release.statistics(context.cursor).tables[(0,)]
    number = row_bounds.chosen(counts, _deviation(release.plan), *_noise(plan))
    return _with(rest, number)


def _is_one(source: ProtectedSource) -> bool:
    """Whether a unit has one row at most: then there is nothing to learn."""
    most = source.source.most_rows or source.protection.max_contributions
    return source.protection.privacy_unit is not None and (source.source.one_per_unit or most == 1)


def _with(call: QueryPurchase, number: int) -> QueryPurchase:
    return replace(call, call=call.call.changed(max_rows=number))


def _without(call: QueryPurchase) -> QueryPurchase:
    return replace(call, call=call.call.changed(max_rows=None))


def _before(context: Context, source: ProtectedSource, rest: QueryPurchase) -> QueryPurchase | None:
    """Return the purchase as it was made before, whatever was declared since: another number would be another release."""
    for name, operation, _, parameters in held.stored(source, canonical_json(rest.asked.canonical()["rows"])):
        number = parameters.get("max_rows")
        if operation == "query" and isinstance(number, int):
            made = _with(rest, number)
            with suppress(DpsqlError):
                asked = uses.asked(context, source, made)
                if asked.hers and asked.release == name and not made.differing(parameters):
                    return made
    return None


def _check_both(
    context: Context, source: ProtectedSource, histogram: RowsCall, rest: QueryPurchase, epsilon: float | None
) -> None:
    """Refuse where the query could not be bought after its histogram; what is there already is not charged."""
    asked = uses.asked(context, source, histogram)
    if asked.hers and source.ledger.purchase(asked.release) is not None:
        return
    if not asked.hers:
        uses.check(context, source, histogram)
    budget, charges = uses.limit(source)
    both = [request(context, source, one).calibration.charge for one in (histogram, rest)]
    if fits(budget, charges, both[0]) and not fits(budget, [*charges, both[0]], both[1]):
        whose = "the budget of" if source.ledger.limit() is None else "your grant on"
        said = f"{whose} {source.key} covers its histogram of rows per unit and not the query after it; FROM dp_budget()"
        raise ArgumentError("epsilon", epsilon, f"{said} shows what is left. Nothing was charged")


def _deviation(plan: Plan) -> float:
    scale = float(plan.scales[0])
    return scale * (math.sqrt(2) if plan.mechanism == "laplace" else 1.0)


def _noise(plan: Plan) -> tuple[int, float, float]:
    """Return how many rows of a unit may count, the least deviation of a count for each of them, and the number of groups."""
    query = plan.query
    assert query is not None and query.max_rows is not None  # noqa: S101 -- it is the plan of a query that bounds rows in all
    scales = [float(plan.scales[query.blocks_of(place).start]) / measure.grid for place, measure in enumerate(query.measures)]
    deviation = min(scales, default=1.0) * (math.sqrt(2) if plan.mechanism == "laplace" else 1.0)
    return query.max_rows, deviation / query.max_rows, float(query.groups or 1) if query.public else _PRIVATE_GROUPS
