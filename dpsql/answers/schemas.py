"""dp_synthesize_tables, and dp_sample of its releases: synthetic databases, put into a schema."""

from __future__ import annotations

from dpsql.calls.schemas import SynthesizeTablesCall
from dpsql.calls.stored import SampleCall
from dpsql.errors import ArgumentError, DpsqlError
from dpsql.kinds.plans import request
from dpsql.protected.source import resolve
from dpsql.purchase import buying
from dpsql.purchase.uses import asked
from dpsql.release.store import Release
from dpsql.rows import schemas
from dpsql.rows.families import check_rules
from dpsql.running.progress import Progress
from dpsql.session.instance import Context
from dpsql.text.relation import inline

COLUMNS = {"table_name": "VARCHAR", "rows": "BIGINT", "parent": "VARCHAR", "release": "VARCHAR"}


def synthesize_tables(context: Context, call: SynthesizeTablesCall) -> str:
    """Return where the tables of a synthetic database were put, buying the release at the first call."""
    name = _named(call.into_schema)
    _rehearse(context, call, name)
    with Progress("dp_synthesize_tables", show=context.progress) as progress:
        bought = buying.buy(context, call, progress)
        answer = _put(context, bought, name, call.units, call.seed, progress)
    context.instance.last_seconds, context.instance.last_peak_mb = dict(progress.seconds), dict(progress.peak_mb)
    return answer


def _rehearse(context: Context, call: SynthesizeTablesCall, name: str) -> None:
    """Try to write before anything is charged: whatever is released must not be lost to a table that cannot be made.

    What is wrong with the source is said where it is bought, and a stored release needs no source: it has rules of its own.
    """
    schemas.check_target(context, name, [])
    try:
        protected = resolve(context, call.source)
        linked = request(context, protected, call).plan.linked
        bought = protected.ledger.purchase(asked(context, protected, call).release) is not None
    except DpsqlError:
        return
    if linked is not None:
        if not bought:
            check_rules(context.cursor, linked)
        schemas.rehearse(context, linked, name)


def sample(context: Context, call: SampleCall, bought: Release, progress: Progress) -> str:
    """Return where another synthetic database of a stored release was put; ``rows``: of its first table."""
    return _put(context, bought, _named(call.into_schema), call.rows, call.seed, progress)


def _named(name: str | None) -> str:
    if name is None:
        raise ArgumentError("into_schema", None, "name the schema that the tables are put into, e.g. into_schema := 'synth'")
    return name


def _put(context: Context, bought: Release, name: str, units: int | None, seed: int | None, progress: Progress) -> str:
    return inline(COLUMNS, schemas.write(context, bought, name, units, seed, progress))
