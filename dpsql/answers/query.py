"""dp_query: an aggregate query answered from what is bought, or buying it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dpsql.accounting.rules import rho_limit
from dpsql.answers import answered, auto, remembered
from dpsql.answers.held import Held, Part, of_release
from dpsql.answers.known import known
from dpsql.calls.query import QueryCall
from dpsql.errors import ArgumentError, DpsqlError, UnsupportedQuery
from dpsql.kinds.plans import request
from dpsql.protected.seen import grant_of
from dpsql.protected.source import ProtectedSource, resolve
from dpsql.purchase import buying, uses
from dpsql.queries.purchase import QueryPurchase
from dpsql.queries.reading import Read, about_the_query, first_asked, mark, read
from dpsql.running.progress import Progress
from dpsql.session.instance import Context
from dpsql.text.relation import literal

_STAND_INS = (("1", "2000-01-01"), ("0", "1970-01-01"), ("-1000000", "1900-01-01"), ("1000000", "2100-01-01"))
"""Numbers, and days, in the place of those that are not known yet."""


def query(context: Context, call: QueryCall) -> str:
    """Return the answer of a query, buying what was not bought before.

    Privacy
    -------
    Each core of the query is a release of its own, charged before a row is read. Everything else is post-processing.
    """
    there = remembered.recall(context, call)
    if there is not None:
        return there
    uses.whole(context, call.epsilon)
    with Progress("dp_query", show=context.progress) as progress:
        completed = _completed(context, call) if call.adaptive else call
        found, sources = _priced(context, completed, *checked(context, completed), alone=completed is call)
        parts = _bought(context, found, sources, progress)
        text = answered.relation(context, found, parts)
    if completed is call:  # else it is made of the releases of its subqueries too
        remembered.remember(context, call, call.sql, text, [(part.protected, part.held.release) for row in parts for part in row])
    return text


def _priced(
    context: Context, call: QueryCall, found: Read, sources: list[list[ProtectedSource]], *, alone: bool
) -> tuple[Read, list[list[ProtectedSource]]]:
    """Return a query with the epsilon that the grants of an analyst say, where she says none and has not bought it yet.

    Raises
    ------
    ArgumentError
        It has subqueries that are bought, too (``alone`` is false): then she says what the whole may cost.
    """
    if context.analyst is None or call.epsilon is not None or call.release is not None:
        return found, sources
    calls = [one for row in purchases(found, sources) for one in row]
    if all(known(context, source, one) for one, source in zip(calls, [s for sets in sources for s in sets], strict=True)):
        return found, sources
    if not alone or "adaptive" in context.known:
        raise ArgumentError("epsilon", None, "a query with subqueries says what the whole of it may cost, e.g. epsilon := 0.2")
    held = [grant_of(context, source.books.database, source.key) for sets in sources for source in sets]
    epsilon = min(grant.default_epsilon for grant in held if grant is not None)
    return checked(context, call.changed(epsilon=epsilon))


def _completed(context: Context, call: QueryCall) -> QueryCall:
    """Answer scalar subqueries over protected rows, and write their numbers into the text; the loss is divided among all parts.

    Privacy
    -------
    Each subquery is a release of its own. The rest is asked after it, of a text that holds released numbers alone.
    """
    with about_the_query():
        text, asked = first_asked(context, call.sql)
    if not asked:
        return call
    context.known["adaptive"] = True
    epsilon = call.epsilon
    if epsilon is not None:
        epsilon = epsilon / (len(asked) + 1)
    calls = [call.changed(sql=inner, epsilon=epsilon, adaptive=False, confidence=None, release=None) for inner in asked]
    _rehearsed(context, call.changed(sql=text, epsilon=epsilon, adaptive=False), calls)
    for place, (inner, each) in enumerate(zip(asked, calls, strict=True)):
        rows = context.cursor.execute(f"SELECT * FROM {query(context, each)}").fetchall()  # noqa: S608 -- a relation of ours
        if len(rows) != 1 or len(rows[0]) != 1:
            raise ArgumentError("sql", inner[:80], "a scalar subquery gives one number")
        value = rows[0][0]
        number = "NULL" if value is None else f"CAST({literal(str(value))} AS {_type(context, value)})"
        text = text.replace(literal(mark(place)), number)
    return call.changed(sql=text, epsilon=epsilon)


def _rehearsed(context: Context, outer: QueryCall, calls: Sequence[QueryCall]) -> None:
    """Check, bind and plan all parts of an adaptive query before the first one is charged, with stand-ins for their numbers.

    What is wrong with the text is wrong with any number in it; so it is refused only if none of several numbers will do.
    """
    types = []
    for each in calls:
        found, sources = checked(context, each)
        types.append(answered.check(context, found, sources))
        if len(types[-1]) != 1:
            raise ArgumentError("sql", each.sql[:80], "a scalar subquery gives one number")
        _planned(context, each)
    refused: DpsqlError | None = None
    for number, day in _STAND_INS:
        text = outer.sql
        for place, (kind,) in enumerate(types):
            value = literal(day if kind.startswith(("DATE", "TIMESTAMP")) else number)
            text = text.replace(literal(mark(place)), f"TRY_CAST({value} AS {kind})")
        try:
            _planned(context, outer.changed(sql=text))
        except (ArgumentError, UnsupportedQuery) as error:
            refused = refused or error
        else:
            return
    if refused is not None:
        raise refused


def _planned(context: Context, call: QueryCall) -> None:
    """Plan and price what a query would buy, if it is not there. No row is read, nothing is charged."""
    for source, purchase in queries(context, call):
        if purchase.call.release is not None or known(context, source, purchase) is None:
            request(context, source, purchase)


def _type(context: Context, value: object) -> str:
    """Return the SQL type of a released value."""
    row = context.cursor.execute("SELECT typeof(?)", [value]).fetchall()[0]
    return str(row[0])


def queries(context: Context, call: QueryCall) -> list[tuple[ProtectedSource, QueryPurchase]]:
    """Return what a query would buy, with the source of each release. No row is read."""
    found, sources = checked(context, call)
    return [
        (source, auto.reused(context, source, purchase))
        for bought, held in zip(purchases(found, sources), sources, strict=True)
        for purchase, source in zip(bought, held, strict=True)
    ]


def checked(context: Context, call: QueryCall) -> tuple[Read, list[list[ProtectedSource]]]:
    """Return a query that was read, and the sources of its cores' rows, once all of it was checked. No row is read.

    Raises
    ------
    ArgumentError, UnsupportedQuery, NotProtected
        It is no query that can be answered; says where and what to do.
    """
    with about_the_query():
        found = read(context, call)
    with about_the_query(text=False):
        sources = [[resolve(context, one.sql, local=True) for one in sets] for _, sets in found.asked]
        answered.check(context, found, sources)
        auto.check(found)
    return found, sources


def purchases(read: Read, sources: list[list[ProtectedSource]]) -> list[list[QueryPurchase]]:
    """Return what a query buys, the loss of each table divided among its cores and grouping sets."""
    keys = [source.key for sets in sources for source in sets]
    out: list[list[QueryPurchase]] = []
    for (_, sets), found in zip(read.asked, sources, strict=True):
        each: list[QueryPurchase] = []
        for one, source in zip(sets, found, strict=True):
            epsilon = read.call.epsilon
            if epsilon is not None:
                epsilon = share_of(epsilon, keys.count(source.key), source, read.call.mechanism)
            several = len(keys) > 1 and read.call.release is not None
            name = f"{read.call.release} {len(out)}-{len(each)}" if several else read.call.release
            each.append(QueryPurchase(one, read.call.changed(release=name), epsilon))
        out.append(each)
    return out


def share_of(epsilon: float, count: int, source: ProtectedSource, mechanism: str) -> float:
    """Return the epsilon of each of ``count`` releases that together cost at most one of this epsilon.

    Notes
    -----
    Under 'zcdp' losses of Gaussian noise add up in rho: count times the rho of the result is at most the rho of epsilon. Else
    epsilons add up.
    """
    budget = source.protection.budget
    if count == 1:
        return epsilon
    if mechanism != "gaussian" or budget.accountant != "zcdp":
        return epsilon / count
    delta, low, high = float(budget.delta), epsilon / count, epsilon
    limit = Fraction(rho_limit(epsilon, delta, gaussian=True))
    for _ in range(40):
        middle = (low + high) / 2
        if Fraction(rho_limit(middle, delta, gaussian=True)) * count <= limit:
            low = middle
        else:
            high = middle
    return float(f"{low * (1 - 1e-9):.9g}") * (1 - 1e-8)


def _bought(context: Context, found: Read, sources: list[list[ProtectedSource]], progress: Progress) -> list[list[Part]]:
    """Return the numbers of every grouping set of every core, bought where nothing stored holds them.

    What is held is looked for before anything is bought: else the coarser sets of a ROLLUP would be read off its finest one, with
    the noise of many groups. What was bought on the way is looked at again for the same groups alone.
    """
    calls = purchases(found, sources)
    held: list[list[Held | None]] = [
        [None if call.call.release is not None else known(context, source, call) for call, source in zip(*pair, strict=True)]
        for pair in zip(calls, sources, strict=True)
    ]
    out, bought = [], False
    for row, there, protected in zip(calls, held, sources, strict=True):
        parts = []
        for call, holds, source in zip(row, there, protected, strict=True):
            if holds is None and call.call.release is None and bought:
                holds = known(context, source, call, coarser=False)
            if holds is None:
                bought = True
                holds = of_release(context, buying.buy(context, auto.reused(context, source, call), progress))
            parts.append(Part(call.asked, holds, source))
        out.append(parts)
    return out
