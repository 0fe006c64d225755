"""dp_dummy: made-up rows in the columns and types of a source, out of what is declared. No row is read, nothing is charged."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from dpsql.calls.rows import DummyCall
from dpsql.protected.columns import chosen
from dpsql.protected.ruled import in_force
from dpsql.protected.seen import grant_of
from dpsql.protected.source import resolve
from dpsql.rows.dummy import Column, Dummy, relation
from dpsql.session.instance import Context

_KEPT, _KEPT_SECONDS = 32, 3600


def dummy(context: Context, call: DummyCall) -> str:
    """Return made-up rows.

    Privacy
    -------
    Free: a function of declarations, rules, the schema and the seed, all of which are public. The table is not read, nor its
    statistics: the columns come from the catalog.
    """
    protected = resolve(context, call.source)
    grant_of(context, protected.books.database, protected.key)
    domain, _ = chosen(protected, call.source, None)
    rules = [one.rule.text for one in in_force(context.cursor, protected, domain)]
    unit = protected.protection.privacy_unit
    most = None if unit is None else protected.protection.max_contributions
    made = Dummy(domain, rules, call.rows, call.seed, most)
    path = context.store(protected.books.database) / "drawn" / f"{made.name}.parquet"
    with context.instance.lock(f"dummy {path.parent}"):
        if path.exists():
            path.touch()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            made.write(context.cursor, path)
            _tidy(path.parent)
    return relation(made, [Column(c.name, c.sql_type, protected.is_unit(c)) for c in protected.source.columns], path)


def _tidy(folder: Path) -> None:
    """Remove the oldest made-up rows where there are many: they can be made again. None that a query may be about to read."""
    with suppress(OSError):
        files = sorted((file.stat().st_mtime, file) for file in folder.glob("dummy-*.parquet"))
        for moment, file in files[:-_KEPT]:
            if moment < time.time() - _KEPT_SECONDS:
                file.unlink(missing_ok=True)
