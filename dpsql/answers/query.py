"""dp_query: an aggregate query answered from what is bought, or buying it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from fractions import Fraction
from itertools import chain

from dpsql.answers import answered, auto, held, rehearsing, remembered, row_bounds, telling
from dpsql.answers.doubtful import doubts
from dpsql.answers.held import Part
from dpsql.answers.looking import Looking
from dpsql.books.entries import canonical_json
from dpsql.calls.buying import BuyingCall
from dpsql.calls.query import QueryCall
from dpsql.errors import ArgumentError, DpsqlError, UnsupportedQuery
from dpsql.kinds.plans import request
from dpsql.protected.source import ProtectedSource, resolve
from dpsql.purchase import buying, uses
from dpsql.purchase.shares import part_of
from dpsql.queries.leaves import facts_of
from dpsql.queries.purchase import QueryPurchase
from dpsql.queries.reading import Read, about_the_query, first_asked, mark, read
from dpsql.running.progress import Progress
from dpsql.session.instance import Context
from dpsql.text.relation import literal

_BUCKETS = 1024
_BOUGHT_HERE = "releases that this process bought"


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
        completed = _completed(context, call, query) if call.adaptive else call
        read_query, sources = checked(context, completed)
        nothing = answered.without_rows(context, read_query, sources)
        if nothing is not None:
            return nothing
        parts = _bought(context, read_query, sources, progress)
        text = answered.relation(context, read_query, parts)
    for part in (part for row in parts for part in row):
        telling.tell(context, "dp_query", part.protected, part.held.plan.query)
        texts, ends = list(part.held.question["arguments"]), call.confidence is not None
        telling.tell_narrowed(context, "dp_query", part.protected, part.held.plan.query, texts, intervals=ends)
    _tell_older(context, read_query, parts)
    for line in _said(context, read_query, parts) if telling.heard(context) else ():
        telling.say(context, f"dp_query of {telling.about(parts[0][0].protected)}: {line}")
    if completed is call:  # else it is made of the releases of its subqueries too
        remembered.remember(context, call, call.sql, text, [(part.protected, part.held.release) for row in parts for part in row])
    return text


def _said(context: Context, read_query: Read, parts: list[list[Part]]) -> list[str]:
    zone = telling.in_utc(read_query, facts_of(context))
    return [*([] if zone is None else [zone]), *doubts(read_query, parts)]


def _tell_older(context: Context, read_query: Read, parts: list[list[Part]]) -> None:
    """Say of what was not bought by this call when it was bought, and what is declared otherwise since.

    Not to an analyst: when it was bought says that somebody else had asked.
    """
    if context.analyst is not None or not telling.heard(context):
        return
    here = context.instance.remembered.setdefault(_BOUGHT_HERE, set())
    new = {one.release for one in context.known.get(uses.PAID, ())}
    here |= new
    wanted = purchases(read_query, [[part.protected for part in row] for row in parts])
    for part, call in zip(chain.from_iterable(parts), chain.from_iterable(wanted), strict=True):
        if part.held.release in new:
            continue
        today = None
        with suppress(DpsqlError):
            plan = request(context, part.protected, replace(call, epsilon=call.epsilon or 1.0)).plan.query
            today = None if plan is None else (plan, call.canonical()["query"]["arguments"])
        # a client that runs a statement twice to show its rows bought it once, just now
        telling.tell_older(context, "dp_query", part.protected, part.held, today, just_now=part.held.release in here)


def without_rows(context: Context, call: QueryCall) -> str:
    """Return the columns that a query would have, in their types, as a relation without rows.

    Privacy
    -------
    Free: the query is checked as if it was bought, and bound over empty answers; no row is read.
    """
    completed = _completed(context, call, without_rows) if call.adaptive else call
    return answered.nothing(context, *checked(context, completed))


def _completed(context: Context, call: QueryCall, answer: Callable[[Context, QueryCall], str]) -> QueryCall:
    """Answer scalar subqueries over protected rows, and write their numbers into the text; the loss is divided among all parts.

    Privacy
    -------
    Each subquery is a release of its own. The rest is asked after it, of a text that holds released numbers alone.
    """
    with about_the_query():
        text, asked = first_asked(context, call.sql)
    if not asked:
        return call
    epsilon = call.epsilon
    if epsilon is not None:
        epsilon = epsilon / (len(asked) + 1)
    parts = [call.changed(sql=inner, epsilon=epsilon, adaptive=False, confidence=None, release=None) for inner in asked]
    if answer is query:
        with suppress(ArgumentError, UnsupportedQuery):  # the rest may not be understood without their numbers
            rest = _completed(context, call, without_rows)
            uses.check_together(context, [pair for part in (*parts, rest) for pair in unpaid(context, part)])
    for place, (inner, each) in enumerate(zip(asked, parts, strict=True)):
        relation = answer(context, each)
        rows = context.cursor.execute(f"SELECT * FROM {relation}").fetchall()  # noqa: S608 -- a relation of ours
        if len(rows) > 1 or (not rows and answer is query) or any(len(row) != 1 for row in rows):
            raise ArgumentError("sql", inner[:80], "a scalar subquery gives one number")
        value = rows[0][0] if rows else None
        number = "NULL" if value is None else f"CAST({literal(str(value))} AS {_type(context, value)})"
        text = text.replace(literal(mark(place)), number)
    return call.changed(sql=text, epsilon=epsilon)


def _type(context: Context, value: object) -> str:
    """Return the SQL type of a released value."""
    row = context.cursor.execute("SELECT typeof(?)", [value]).fetchall()[0]
    return str(row[0])


def queries(context: Context, call: QueryCall) -> list[tuple[ProtectedSource, QueryPurchase]]:
    """Return what a query would buy, with the source of each release. No row is read."""
    read_query, sources = checked(context, call)
    return [
        (source, auto.reused(context, source, purchase))
        for bought, held in zip(purchases(read_query, sources), sources, strict=True)
        for purchase, source in zip(bought, held, strict=True)
    ]


def unpaid(context: Context, call: QueryCall) -> list[tuple[ProtectedSource, BuyingCall]]:
    """Return what a query would buy and what is not there already. No row is read."""
    pairs = [(source, row_bounds.settled(context, source, purchase), purchase) for source, purchase in queries(context, call)]
    looking = Looking(context)
    return [pair for source, settled, purchase in pairs for pair in _unpaid(source, settled or purchase, settled, looking)]


def checked(context: Context, call: QueryCall) -> tuple[Read, list[list[ProtectedSource]]]:
    """Return a query that was read, and the sources of its cores' rows, once all of it was checked. No row is read.

    Raises
    ------
    ArgumentError, UnsupportedQuery, NotProtected
        It is no query that can be answered; says where and what to do.
    """
    with about_the_query():
        read_query = read(context, call)
    with about_the_query(text=False):
        sources = [[resolve(context, one.sql, local=True) for one in sets] for _, sets in read_query.asked]
        answered.check(context, read_query, sources)
        auto.check(read_query)
    return read_query, sources


def purchases(read: Read, sources: list[list[ProtectedSource]]) -> list[list[QueryPurchase]]:
    """Return what a query buys, the loss of each table divided among its cores and grouping sets."""
    keys = [source.key for sets in sources for source in sets]
    out: list[list[QueryPurchase]] = []
    for (_, sets), protected in zip(read.asked, sources, strict=True):
        each: list[QueryPurchase] = []
        for one, source in zip(sets, protected, strict=True):
            epsilon = read.call.epsilon
            if epsilon is not None:
                epsilon = part_of(epsilon, Fraction(1, keys.count(source.key)), source, read.call.mechanism)
            several = len(keys) > 1 and read.call.release is not None
            name = f"{read.call.release} {len(out)}-{len(each)}" if several else read.call.release
            each.append(QueryPurchase(one, read.call.changed(release=name), epsilon))
        out.append(each)
    return out


def _unpaid(
    source: ProtectedSource, call: QueryPurchase, settled: QueryPurchase | None, looking: Looking
) -> list[tuple[ProtectedSource, BuyingCall]]:
    """Return what is still to be bought for one grouping set: nothing, itself, or a histogram and then itself."""
    if settled is None:
        return [(source, part) for part in row_bounds.parts(source, call)]
    return [] if looking.there(source, call) is not None else [(source, looking.completed(source, call))]


def _bought(context: Context, read_query: Read, sources: list[list[ProtectedSource]], progress: Progress) -> list[list[Part]]:
    wanted = purchases(read_query, sources)
    with ExitStack() as locks:
        # the same question in another spelling, or a part of it, waits for what answers it
        every = zip(chain.from_iterable(sources), chain.from_iterable(wanted), strict=True)
        for name in sorted({_bucket(source, call) for source, call in every}):
            locks.enter_context(context.instance.lock(name))
        for source in chain.from_iterable(sources):
            source.ledger.look()
        return _parts(context, read_query, sources, wanted, progress)


def _bucket(source: ProtectedSource, call: QueryPurchase) -> str:
    """Return the lock of all questions about the same groups of the same rows: one of `_BUCKETS`, since a process keeps locks."""
    asked = call.asked.canonical()
    text = canonical_json([source.books.database, source.key, asked["rows"], asked["keys"]])
    return f"asking {int(hashlib.sha256(text.encode()).hexdigest(), 16) % _BUCKETS}"


def _parts(
    context: Context, read_query: Read, sources: list[list[ProtectedSource]], wanted: list[list[QueryPurchase]], progress: Progress
) -> list[list[Part]]:
    looking = Looking(context)
    settled = [
        [row_bounds.settled(context, source, call) for call, source in zip(calls, protected, strict=True)]
        for calls, protected in zip(wanted, sources, strict=True)
    ]
    wanted = [[done or call for done, call in zip(*pair, strict=True)] for pair in zip(settled, wanted, strict=True)]
    # what the answer is made of fails here or not at all: nothing is charged before all of it was tried
    rehearsing.rehearse(context, read_query, wanted, sources, looking)
    # and all of it can be paid, or none is charged
    pairs = zip(chain.from_iterable(wanted), chain.from_iterable(settled), chain.from_iterable(sources), strict=True)
    uses.check_together(context, [pair for call, done, source in pairs for pair in _unpaid(source, call, done, looking)])
    for calls, done, protected in zip(wanted, settled, sources, strict=True):
        for place, source in enumerate(protected):
            if done[place] is None:
                calls[place] = row_bounds.learned(context, source, calls[place], progress)
                looking = Looking(context)
    # a number of rows that was learned makes another question, so what answers it was looked for anew above
    out = []
    for calls, protected in zip(wanted, sources, strict=True):
        parts = []
        for call, source in zip(calls, protected, strict=True):
            there = looking.there(source, call)
            if there is None:
                there = held.of_release(context, buying.buy(context, looking.completed(source, call), progress)), call.asked
                looking.bought()
            numbers, asked = there
            parts.append(Part(asked, numbers, source))
        out.append(parts)
    return out
