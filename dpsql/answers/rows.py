"""dp_synthesize and dp_sample: synthetic rows as relations, or put into a table, here or where the source is.

All of it is post-processing of a release: free and seedable.
"""

from __future__ import annotations

from dpsql.answers import schemas, telling
from dpsql.calls.rows import SynthesizeCall
from dpsql.calls.stored import SampleCall
from dpsql.engines import registry
from dpsql.engines.registry import writes
from dpsql.errors import ArgumentError
from dpsql.protected.source import resolve
from dpsql.purchase import buying
from dpsql.release import costs
from dpsql.release.store import Release
from dpsql.rows import drawing
from dpsql.running.progress import Progress
from dpsql.session.instance import Context
from dpsql.text.relation import identifier, inline

_PUT = {"table_name": "VARCHAR", "rows": "BIGINT", "release": "VARCHAR"}
_TOGETHER = 500_000
"""Rows of a block."""


def synthesize(context: Context, call: SynthesizeCall) -> str:
    """Return synthetic rows, or where they were put (``into``), buying the release at the first call."""
    rows, seed, target = call.rows, call.seed, call.into
    if target is not None and writes(target):
        _check_writable(context, call, target)
    elif target is not None:
        drawing.check_target(context, target)
    with Progress("dp_synthesize", show=context.progress) as progress:
        bought = buying.buy(context, call, progress)
        progress.expect(costs.stage_seconds(bought.plan, rows))
        if target is None:
            answer = drawing.relation(bought, drawing.rows(context, bought, rows, seed, progress))
        elif writes(target):
            answer = inline(_PUT, [(target, _put_away(context, bought, call, target, progress), bought.identifier)])
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


def _check_writable(context: Context, call: SynthesizeCall, target: str) -> None:
    """Check, before anything is charged, that the engine of a source can write a target.

    Raises
    ------
    ArgumentError, DpsqlError
    """
    source = resolve(context, call.source, local=call.local)
    types = [(column.name, column.sql_type) for column in source.source.columns]
    registry.writer(source.remote, target).check(types)


def _put_away(context: Context, bought: Release, call: SynthesizeCall, target: str, progress: Progress) -> int:
    """Let the engine of a source keep rows of a release in a target that does not exist yet, and return how many.

    Raises
    ------
    ArgumentError
        Something has the name.
    EngineLost
        The engine went away.
    """
    relation = drawing.relation(bought, drawing.rows(context, bought, call.rows, call.seed, progress))
    cursor = context.cursor
    described = cursor.execute(f"DESCRIBE FROM {relation}").fetchall()
    columns = [(str(row[0]), str(row[1])) for row in described]
    texts = {name for name, kind in columns if kind.startswith("ENUM(")}  # arrow has dictionaries of them
    listed = ", ".join(f"{identifier(n)}::VARCHAR AS {identifier(n)}" if n in texts else identifier(n) for n, _ in columns)
    whole = cursor.sql(f"SELECT {listed} FROM {relation}").to_arrow_table()  # noqa: S608 -- quoted
    blocks = (whole.slice(start, _TOGETHER) for start in range(0, whole.num_rows, _TOGETHER))
    with progress.stage("writing"):
        registry.writer(resolve(context, call.source, local=call.local).remote, target).write(blocks, columns, whole.num_rows)
    return int(whole.num_rows)
