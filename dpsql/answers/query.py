"""dp_query: an aggregate query answered from what is bought, or buying it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from dpsql.answers import answered, auto, held, rehearsing, remembered, row_bounds, telling
from dpsql.answers.held import Part
from dpsql.answers.looking import Looking
from dpsql.calls.query import QueryCall
from dpsql.errors import ArgumentError
from dpsql.protected.source import ProtectedSource, resolve
from dpsql.purchase import buying, uses
from dpsql.purchase.shares import part_of
from dpsql.queries.purchase import QueryPurchase
from dpsql.queries.reading import Read, about_the_query, first_asked, mark, read
from dpsql.running.progress import Progress
from dpsql.session.instance import Context
from dpsql.text.relation import literal


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
    if completed is call:  # else it is made of the releases of its subqueries too
        remembered.remember(context, call, call.sql, text, [(part.protected, part.held.release) for row in parts for part in row])
    return text


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
    for place, inner in enumerate(asked):
        each = call.changed(sql=inner, epsilon=epsilon, adaptive=False, confidence=None, release=None)
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


def _bought(context: Context, read_query: Read, sources: list[list[ProtectedSource]], progress: Progress) -> list[list[Part]]:
    wanted, looking = purchases(read_query, sources), Looking(context)
    settled = [
        [row_bounds.settled(context, source, call) for call, source in zip(calls, protected, strict=True)]
        for calls, protected in zip(wanted, sources, strict=True)
    ]
    wanted = [[done or call for done, call in zip(*pair, strict=True)] for pair in zip(settled, wanted, strict=True)]
    # what the answer is made of fails here or not at all: nothing is charged before all of it was tried
    rehearsing.rehearse(context, read_query, wanted, sources, looking)
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
