"""How many rows of a unit count in a query, where that is to be learned: a release before it, of rows per unit, says.

Privacy: two releases one after the other, charged each for itself, of parts of the loss that the call names. The first is a
histogram of units by their number of rows, each in one bucket (`dpsql.kinds.histograms`); the second is planned with a number that
follows from what the first one has released, as if the caller had said it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

from dpsql.accounting import standard_deviation
from dpsql.answers import held
from dpsql.books.entries import canonical_json
from dpsql.calls.buying import BuyingCall
from dpsql.calls.query import AUTO, ROWS_SHARE
from dpsql.calls.tables import RowsCall
from dpsql.domains import unit_rows
from dpsql.errors import ArgumentError, DpsqlError, ReleaseError
from dpsql.estimates import row_bounds
from dpsql.kinds.plans import request
from dpsql.protected.source import ProtectedSource
from dpsql.purchase import buying, uses
from dpsql.purchase.shares import part_of
from dpsql.queries.purchase import QueryPurchase
from dpsql.release.plan import Plan
from dpsql.running.progress import Progress
from dpsql.session.instance import Context

MANY = 16
"""So many rows of a unit have to be allowed by links before their number is learned though nobody says so."""
_PRIVATE_GROUPS = 10.0
"""So many private groups are reckoned with: how many there are is not known before."""


def settled(context: Context, source: ProtectedSource, call: QueryPurchase) -> QueryPurchase | None:
    """Return the purchase with the number of rows that is said, or was learned before; None where it is to be learned first.

    Notes
    -----
    Privacy: free; the books are read. What was bought without learning before that was the default is found as it was bought.
    """
    if source.protection.privacy_unit is None or not (call.call.learns_rows or _by_default(source, call)):
        return call  # of rows that are units the planner says why it cannot be
    if _most(source) == 1:
        return _with(call, None)
    before = _before(context, source, call)
    if before is None and not call.call.learns_rows and (call.epsilon is None or _is_there(context, source, call)):
        return call
    return before


def bought(context: Context, source: ProtectedSource, call: QueryPurchase) -> tuple[BuyingCall, ...]:
    """Return what a purchase buys: itself, after a histogram where one comes first. Nothing is bought."""
    rest = settled(context, source, call)
    if rest is None:
        return parts(source, call)
    if call.epsilon is not None and rest.call.max_rows not in (None, call.call.max_rows):
        return parts(source, call)[0], rest
    return (rest,)


def learned(context: Context, source: ProtectedSource, call: QueryPurchase, progress: Progress) -> QueryPurchase:
    """Return a purchase that is not `settled` with the number of rows that its histogram suggests, buying that at the first call.

    Raises
    ------
    ArgumentError, BudgetExceeded, BudgetExhausted, GrantExceeded
        Not both can be bought: nothing was charged.
    ReleaseError
        The name is taken: what it was bought with is not what the call says.
    """
    histogram, rest = parts(source, call)
    _check_name(context, source, rest)
    plan = request(context, source, rest).plan
    release = buying.buy(context, histogram, progress)
    counts = release.statistics(context.cursor).tables[(0,)]
    deviation = standard_deviation(release.plan.mechanism, release.plan.scales[0])
    return _with(rest, row_bounds.chosen(unit_rows.lower_of(release.plan.domain), counts, deviation, *_noise(plan)))


def _by_default(source: ProtectedSource, call: QueryPurchase) -> bool:
    """Return whether the number is learned though nobody says so: the product of links allows far more rows than units have."""
    said = call.call
    if (said.max_rows, said.max_groups, said.max_rows_per_group) != (None, None, None) or not source.source.linked:
        return False
    return _most(source) >= MANY


def _most(source: ProtectedSource) -> int:
    """Return how many rows of a unit may count."""
    return 1 if source.source.one_per_unit else source.most_rows


def _is_there(context: Context, source: ProtectedSource, call: QueryPurchase) -> bool:
    """Return whether a question was bought as it stands."""
    if held.known(context, source, call) is not None:
        return True
    asked = uses.asked(context, source, call)
    return asked.hers and source.ledger.purchase(asked.release) is not None


def parts(source: ProtectedSource, call: QueryPurchase) -> tuple[RowsCall, QueryPurchase]:
    """Return the purchase of the histogram, and that of the query with what is left of its loss."""
    if call.epsilon is None:
        raise ArgumentError("epsilon", None, "how many rows count is learned first: say a price")
    mechanism = call.call.mechanism
    share = Fraction(repr(ROWS_SHARE[mechanism]))
    own, rest = (part_of(call.epsilon, part, source, mechanism) for part in (share, 1 - share))
    delta = call.delta if mechanism == "gaussian" else None  # Laplace noise needs none, whatever the query spends it for
    histogram = RowsCall(call.source, epsilon=own, delta=delta, mechanism=mechanism, release=call.release)
    return histogram, replace(_with(call, AUTO), epsilon=rest)


def _with(call: QueryPurchase, number: int | str | None) -> QueryPurchase:
    return replace(call, call=call.call.changed(max_rows=number))


def _before(context: Context, source: ProtectedSource, call: QueryPurchase) -> QueryPurchase | None:
    """Return the purchase with a number of rows with which it was bought before, at no smaller epsilon: the most accurate one.

    Whatever was declared since: another number would be another release.
    """
    least = None if call.epsilon is None else parts(source, call)[1].epsilon
    tried = set()
    for name, _, parameters in held.stored(source, [canonical_json(call.asked.canonical()["rows"])]):
        number = parameters.get("max_rows")
        if not isinstance(number, int) or parameters.get("epsilon", 0.0) < (least or 0.0):
            continue
        with suppress(DpsqlError):
            made = _with(replace(call, epsilon=None), number).filled(parameters)
            asked = uses.asked(context, source, made)
            if asked.hers and asked.release == name and not made.differing(parameters):
                return made
        # of another name, or a question that holds this one
        if call.release is None and number not in tried and held.may_answer(call, parameters.get("query")):
            tried.add(number)
            wanted = _with(replace(call, epsilon=least), number)
            if held.known(context, source, wanted) is not None:
                return wanted
    return None


def _check_name(context: Context, source: ProtectedSource, rest: QueryPurchase) -> None:
    """Refuse a name that a query has which is not the call's, before its histogram is; in words of what the call says.

    Of one that is charged and not finished it is not known here whether it is the call's.
    """
    if rest.release is None:
        return
    asked = uses.asked(context, source, rest)
    purchase = source.ledger.purchase(asked.release) if asked.hers else None
    if purchase is not None and purchase.status == "stored":
        raise ReleaseError(
            f"release {rest.release!r} was bought for a smaller epsilon, another number of rows or another question than the call "
            "says. The same name gives back what was bought; to buy another one say release := 'another name'. Nothing was charged"
        )


def _noise(plan: Plan) -> tuple[int, float, float]:
    """Return how many rows of a unit may count, the least deviation of a count for each of them, and the number of groups."""
    query = plan.query
    assert query is not None and query.max_rows is not None  # noqa: S101 -- it is the plan of a query that bounds rows in all
    firsts = [plan.scales[query.blocks_of(place).start] for place in range(len(query.measures))]
    deviations = [
        standard_deviation(plan.mechanism, scale) / measure.grid for scale, measure in zip(firsts, query.measures, strict=True)
    ]
    groups = float(query.groups or 1) if query.public else _PRIVATE_GROUPS
    return query.max_rows, min(deviations, default=1.0) / query.max_rows, groups
