"""dp_synthesize and dp_sample: synthetic rows as relations, or put into a table, here or where the source is."""

from __future__ import annotations

from dpsql.answers import lake, schemas
from dpsql.calls.rows import SynthesizeCall
from dpsql.calls.stored import SampleCall
from dpsql.engines.registry import writes
from dpsql.errors import ArgumentError
from dpsql.purchase import buying
from dpsql.release import costs
from dpsql.release.store import Release
from dpsql.rows import drawing
from dpsql.running.progress import Progress
from dpsql.session.instance import Context
from dpsql.text.relation import identifier, inline


def synthesize(context: Context, call: SynthesizeCall) -> str:
    """Return synthetic rows, or where they were put (``into``), buying the release at the first call."""
    if call.into is not None and writes(call.into):
        lake.check(context, call.source, call.into)
    elif call.into is not None:
        drawing.check_target(context, call.into)
    with Progress("dp_synthesize", show=context.progress) as progress:
        bought = buying.buy(context, call, progress)
        answer = _answer(context, bought, call, progress)
    context.instance.last_seconds, context.instance.last_peak_mb = dict(progress.seconds), dict(progress.peak_mb)
    return answer


def sample(context: Context, call: SampleCall) -> str:
    """Return other rows of a stored release, or where they were put (``into``); of linked tables another database."""
    bought = drawing.find(context, call.release)
    with Progress("dp_sample", show=context.progress) as progress:
        if bought.plan.linked is not None:
            return schemas.sample(context, call, bought, progress)
        if call.into_schema is not None:
            expected = "the release is of one table: into := 'name' says where its rows are put"
            raise ArgumentError("into_schema", call.into_schema, expected)
        return _answer(context, bought, call, progress)


def _answer(context: Context, bought: Release, call: SynthesizeCall | SampleCall, progress: Progress) -> str:
    rows, seed, target = call.rows, call.seed, call.into
    progress.expect(costs.stage_seconds(bought.plan, rows))
    if target is None:
        return drawing.relation(bought, drawing.rows(context, bought, rows, seed, progress))
    if writes(target):
        name, made = target, lake.put(context, bought, rows, seed, target, progress)
    else:
        # The statement that calls cannot see the table yet: it began before the table was there.
        made = drawing.into(context, bought, rows, seed, target, progress)
        name = identifier(*drawing.table_name(context, target))
    columns = {"table_name": "VARCHAR", "rows": "BIGINT", "release": "VARCHAR"}
    return inline(columns, [(name, made, bought.identifier)])
