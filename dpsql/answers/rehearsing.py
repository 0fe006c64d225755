"""Before a query is charged, its answer is made of made-up rows: what cannot be answered is refused, and costs nothing.

The same code reads, adds up, draws, estimates and gives values back, over no row and over rows with the extreme values of every
type. What fails there could fail after the charge, for ever. What the caller writes around the aggregates is bound before, and may
fail on released numbers: then it can be changed, which costs nothing.

Privacy: free; no protected row is read, and no number of the rehearsal is shown.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import duckdb
import numpy as np

from dpsql.answers import answered
from dpsql.answers.held import Held, Part
from dpsql.answers.looking import Looking
from dpsql.engines.duckdb.reader import DuckReader
from dpsql.errors import ArgumentError, UnsupportedQuery, first_line
from dpsql.kinds.plans import request
from dpsql.measure.query import before, counted, learned, quantiles, released
from dpsql.protected.source import ProtectedSource
from dpsql.purchase import uses
from dpsql.queries.purchase import QueryPurchase
from dpsql.queries.reading import Read
from dpsql.release.plan import Plan
from dpsql.release.queried import Numbers, QueryPlan
from dpsql.release.refined import resolved
from dpsql.running import interruption
from dpsql.session.instance import Context
from dpsql.source.rehearsal import made_up

MOST_GROUPS = 20
"""Public groups of a rehearsal: of more, the first ones."""
MOST_KNOWN = 10_000
"""Questions that are remembered as rehearsed."""


def rehearse(
    context: Context, read: Read, purchases: Sequence[Sequence[QueryPurchase]], sources: Sequence[Sequence[ProtectedSource]],
    looking: Looking,
) -> None:
    """Answer a query from made-up rows, unless that was done before or nothing of it is to be charged.

    Raises
    ------
    UnsupportedQuery
        It fails on some values. Nothing was charged.
    """
    done: dict[str, None] = context.instance.remembered.setdefault("rehearsed", {})
    priced = all(call.epsilon is not None for calls in purchases for call in calls)
    mark = _mark(context, read, purchases, sources) if priced else ""  # without a price only what is bought can be given
    if mark in done:
        return
    pairs = [pair for each, calls in zip(sources, purchases, strict=True) for pair in zip(each, calls, strict=True)]
    if not any(_unpaid(context, looking, source, call) for source, call in pairs):
        return
    plans = [
        [request(context, source, looking.completed(source, call)).plan for call, source in zip(calls, each, strict=True)]
        for calls, each in zip(purchases, sources, strict=True)
    ]
    shape = _mark(context, read, purchases, sources, plans) if mark else ""
    if shape in done:
        done[mark] = None
        return
    try:
        cores = [
            [_part(context, *triple) for triple in zip(sources_, calls, plans_, strict=True)]
            for sources_, calls, plans_ in zip(sources, purchases, plans, strict=True)
        ]
        answered.rehearse(context, read, cores)
        answered.rehearse(context, read, [[_empty(part) for part in parts] for parts in cores])
    except (duckdb.InterruptException, interruption.Stopped, ArgumentError):  # the last says what to ask instead
        raise
    except Exception as error:
        reason = first_line(error) if isinstance(error, duckdb.Error) else str(error).partition("\n")[0]
        raise UnsupportedQuery(
            f"sql = {read.call.sql[:80]!r}",
            f"a rehearsal with made-up rows fails ({type(error).__name__}: {reason[:200]}), so it could be charged and not "
            "answered. Nothing was charged; write it otherwise, and please report it",
        ) from None
    if len(done) >= MOST_KNOWN:
        done.clear()
    if mark:
        done[mark] = done[shape] = None


def _unpaid(context: Context, looking: Looking, source: ProtectedSource, call: QueryPurchase) -> bool:
    if looking.there(source, call) is not None:
        return False
    if source.ledger.limit() is not None and call.release is None:
        return uses.hers(source, call) is None  # whether somebody else has paid for it changes nothing
    return source.ledger.purchase(uses.asked(context, source, call).release) is None


def _mark(
    context: Context, read: Read, purchases: Sequence[Sequence[QueryPurchase]], sources: Sequence[Sequence[ProtectedSource]],
    plans: Sequence[Sequence[Plan]] = (),
) -> str:
    """Return what says that two rehearsals are the same: of one analyst, so that the time does not say that another has asked.

    ``plans``: of the purchases. Then it does not matter which rows are asked for: made-up ones stand in their place, and what is
    done with them is in the plan.
    """
    asked = [{**call.canonical(), "epsilon": None} for calls in purchases for call in calls]
    if plans:
        readings = [[_way(source), plan.mechanism, _of(plan).to_json()] for pair in zip(sources, plans, strict=True)
                for source, plan in zip(*pair, strict=True)]
        asked = [
            {**question, "query": {**question["query"], "rows": None}, "plan": reading}
            for question, reading in zip(asked, readings, strict=True)
        ]
    types = [[column.sql_type for column in source.source.columns] for each in sources for source in each]
    text = None if read.call.confidence is None else read.call.sql  # intervals are made of what stands around the aggregates, too
    return json.dumps([context.analyst, text, read.call.confidence, asked, types], sort_keys=True, default=str)


def _way(protected: ProtectedSource) -> list[object]:
    """Return what decides how the rows of a source are bounded and counted, beside the plan."""
    source = protected.source
    tables = (source.table, *source.tables, *source.public_tables)
    where = [protected.remote is not None, any(table.is_file for table in tables)]
    return [source.unit, source.row, source.local, source.one_per_unit, *where]


def _part(context: Context, protected: ProtectedSource, call: QueryPurchase, plan: Plan) -> Part:
    """Return what a release of made-up rows would hold, with every group, as if its noise were large."""
    source = protected.source
    columns = [(column.name, column.sql_type) for column in source.columns]
    carried = [(name, "INTEGER") for name in (source.unit, source.row) if name is not None]
    sql = f"SELECT * FROM {made_up([*columns, *carried], 'rehearsed', ())}"  # noqa: S608 -- generated
    rehearsed = replace(protected, source=source.over(sql))
    plan = _smaller(plan)
    reader = DuckReader(context.cursor)  # made-up rows are here, wherever the others are
    with before(reader, rehearsed, _of(plan)) as early:
        charged, first = plan, learned(plan, early)
        plan = resolved(charged, first)
        exact = counted(reader, rehearsed, _of(plan), early)
        released(plan, exact)
        plan = resolved(charged, quantiles(reader, charged, early, first, exact.groups))
    numbers = Numbers(exact.groups, exact.blocks)
    return Part(call.asked, Held("", "0" * 64, plan, numbers, call.canonical()["query"]), protected)


def _empty(part: Part) -> Part:
    """Return what a release without rows would hold: zeros, or no group."""
    groups, blocks = part.held.numbers.groups, part.held.numbers.blocks
    if not _of(part.held.plan).public:
        groups = []
    numbers = Numbers(groups, [np.zeros((len(groups), block.shape[1]), np.int64) for block in blocks])
    return replace(part, held=replace(part.held, numbers=numbers))


def _of(plan: Plan) -> QueryPlan:
    if plan.query is None:
        raise TypeError("the plan is not one of a query")
    return plan.query


def _smaller(plan: Plan) -> Plan:
    """Return a plan with the first few of its public groups."""
    query = _of(plan)
    if not query.public or query.groups is None or query.groups <= MOST_GROUPS:
        return plan
    few = f"SELECT * FROM ({query.groups_sql}) LIMIT {MOST_GROUPS}"  # noqa: S608 -- generated
    return replace(plan, query=replace(query, groups=MOST_GROUPS, groups_sql=few))
