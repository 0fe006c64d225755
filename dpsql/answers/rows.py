"""dp_synthesize and dp_sample: synthetic rows as relations, or put into a table, here or where the source is."""

from __future__ import annotations

from dpsql.answers import lake, schemas, telling
from dpsql.calls.rows import SynthesizeCall
from dpsql.calls.stored import SampleCall
from dpsql.engines.registry import writes
from dpsql.errors import ArgumentError
from dpsql.protected.source import resolve
from dpsql.purchase import buying
from dpsql.release import costs
from dpsql.rows import drawing
from dpsql.running.progress import Progress
from dpsql.session.instance import Context
from dpsql.text.relation import identifier, inline

_PUT = {"table_name": "VARCHAR", "rows": "BIGINT", "release": "VARCHAR"}


def synthesize(context: Context, call: SynthesizeCall) -> str:
    """Return synthetic rows, or where they were put (``into``), buying the release at the first call."""
    rows, seed, target = call.rows, call.seed, call.into
    if target is not None and writes(target):
        lake.check(context, call, target)
    elif target is not None:
        drawing.check_target(context, target)
    with Progress("dp_synthesize", show=context.progress) as progress:
        bought = buying.buy(context, call, progress)
        progress.expect(costs.stage_seconds(bought.plan, rows))
        if target is None:
            answer = drawing.relation(bought, drawing.rows(context, bought, rows, seed, progress))
        elif writes(target):
            answer = inline(_PUT, [(target, lake.put(context, bought, call, target, progress), bought.identifier)])
        else:
            # The statement that calls cannot see the table yet: it began before the table was there.
            count = drawing.into(context, bought, rows, seed, target, progress)
            answer = inline(_PUT, [(identifier(*drawing.table_name(context, target)), count, bought.identifier)])
    telling.tell(context, "dp_synthesize", resolve(context, call.source, local=call.local), None)
    context.instance.last_seconds, context.instance.last_peak_mb = dict(progress.seconds), dict(progress.peak_mb)
    return answer


def sample(context: Context, call: SampleCall) -> str:
    """Return other rows of a stored release; of linked tables where another database was put."""
    bought = drawing.find(context, call.release)
    with Progress("dp_sample", show=context.progress) as progress:
        if bought.plan.linked is not None:
            return schemas.sample(context, call, bought, progress)
        if call.into_schema is not None:
            expected = "the release is of one table, whose rows are the answer; leave it out"
            raise ArgumentError("into_schema", call.into_schema, expected)
        progress.expect(costs.stage_seconds(bought.plan, call.rows))
        return drawing.relation(bought, drawing.rows(context, bought, call.rows, call.seed, progress))


