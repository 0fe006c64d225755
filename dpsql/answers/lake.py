"""Synthetic rows that are drawn here and kept by another engine, where the source is. Post-processing: free and seedable."""

from __future__ import annotations

from dpsql.calls.rows import SynthesizeCall
from dpsql.engines import registry
from dpsql.protected.source import resolve
from dpsql.release.store import Release
from dpsql.rows import drawing
from dpsql.running.progress import Progress
from dpsql.session.instance import Context
from dpsql.text.relation import identifier

_TOGETHER = 500_000
"""Rows of a block."""


def check(context: Context, call: SynthesizeCall, target: str) -> None:
    """Check, before anything is charged, that the engine of a source can write a target.

    Raises
    ------
    ArgumentError, DpsqlError
    """
    source = resolve(context, call.source, local=call.local)
    types = [(column.name, column.sql_type) for column in source.source.columns]
    registry.writer(source.remote, target).check(types)


def put(context: Context, bought: Release, call: SynthesizeCall, target: str, progress: Progress) -> int:
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
