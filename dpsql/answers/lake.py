"""Synthetic rows that another engine draws and keeps, where the source is. Post-processing: free, repeatable, seedable."""

from __future__ import annotations

from dataclasses import replace

from dpsql.books.schema import Books
from dpsql.engines import registry
from dpsql.engines.remote import Remote
from dpsql.errors import ArgumentError
from dpsql.protected.source import resolve
from dpsql.release.costs import DRAWING
from dpsql.release.store import Release
from dpsql.rows import drawing
from dpsql.rows.parts import Parts
from dpsql.running.progress import Progress
from dpsql.session.instance import Context


def check(context: Context, source: str, target: str) -> None:
    """Check, before anything is charged, that the engine of a source can write a target.

    Raises
    ------
    ArgumentError, DpsqlError
    """
    registry.writer(resolve(context, source).remote, target).check()


def remote_of(context: Context, bought: Release) -> Remote | None:
    """Return where the rows of a release's source are, as the attached books say: an imported file names no cluster to go to."""
    for database in context.databases():
        books = Books(context.cursor, database)
        for source in books.sources_of(bought.identifier):
            found = books.remote(source)
            if found is not None:
                return found
    return None


def put(context: Context, bought: Release, count: int | None, seed: int | None, target: str, progress: Progress) -> int:
    """Let the engine of a release's source draw rows into a target that does not exist yet, and return how many.

    Where the target holds this very draw already, it stays. Parameters as in `dpsql.rows.drawing.rows`; the rows are as good, and
    not the same, as those that are drawn here.

    Raises
    ------
    ArgumentError
        Something else has the name.
    EngineLost
        The engine went away; nothing has the name.
    """
    writer = registry.writer(remote_of(context, bought), target)
    model, wanted = drawing.model_and_rows(context, bought, count, progress)
    mark = f"{bought.identifier}, {drawing.draw_name(bought, wanted, seed)}"
    found = writer.check()
    if found == mark:
        return wanted
    if found:
        raise ArgumentError("into", target, "holds another draw of dpsql already; choose another name or remove it")
    parts = Parts.of(bought, model, wanted, seed)
    columns = parts.columns()
    types = writer.types(columns)
    with progress.stage(DRAWING):
        handed = [(name, kind) for (name, _), kind in zip(columns, types, strict=True)]
        writer.write(replace(parts, types=types), parts.count, handed, wanted, mark)
    return wanted
