"""Rows that are read once and then kept, for as long as counters are made of them: units above their bounds, rows of many readings.

Both are temporary tables of the connection that reads. They are gone with its transaction, however that ends.

Privacy: secret. Which statements run depends on the plan, and on whether a unit is above its bounds: that shows in the time alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from dpsql.domains.encoding import SOURCE_NAME, UNIT_COLUMN, guarded
from dpsql.measure.statement import NOBODY
from dpsql.measure.temporary import temporary_table
from dpsql.measure.values import one_form
from dpsql.protected.source import ProtectedSource
from dpsql.release.queried import QueryPlan
from dpsql.session.settings import plans_are_sound
from dpsql.text.relation import identifier, literal


def above_bounds(protected: ProtectedSource, plan: QueryPlan) -> tuple[str, str] | None:
    """Return the statements that ask whether a table is not DuckDB's own, and for units that may have more rows than the plan lets.

    The first has a row for every such database. None where it can't be asked.

    Privacy: secret. A unit that is not among them has no row that has to be left out, and the statements of the same snapshot may
    read its rows as they are: their counters are those that bounded rows have. What makes a row of it out of a row of the source
    must be the same in both readings, so it is asked of sources that are row by row alone (nothing among rows of a unit that are
    tied), over tables of DuckDB's own, of which a transaction sees one state: never of files, which are other ones once they are
    replaced, and not of another engine's rows, which have no such state.
    Rows of a linked table are row by row too: each stands beside the unit of the one row of its root that it leads to,
    or, as an orphan, beside NULL, which is a unit like others; its parents and public tables are in the same snapshot. It counts
    more rows than are kept, not fewer: those that are in no public group, or in no counter, too. A unit that is listed without
    need is bounded without need, and keeps all of its rows (`dpsql.domains.bounding.bounded_sql`).
    """
    source = protected.source
    tables = (source.table, *source.tables, *source.public_tables)
    elsewhere = protected.remote is not None or any(table.is_file for table in tables)
    if not plan.unit or source.local or source.row is not None or plan.other or elsewhere:
        return None
    # more units may be listed than are heavy, never fewer: what is listed without need keeps its rows
    unit, rows = identifier(UNIT_COLUMN), identifier(SOURCE_NAME)
    if plan.max_groups is None:
        above = f"SELECT {unit} FROM {rows} GROUP BY {unit} HAVING count(*) > {plan.max_rows}"  # noqa: S608 -- generated
    else:
        types = {column.name: column.sql_type for column in source.columns}
        keys = [one_form(identifier(SOURCE_NAME, f"k{i}"), types[f"k{i}"]) for i in range(len(plan.keys))]
        by = ", ".join([unit, *keys])
        most = "" if plan.max_rows_per_group is None else f" OR max(n) > {plan.max_rows_per_group}"
        each = f"SELECT {unit}, count(*) AS n FROM {rows} GROUP BY {by}"  # noqa: S608 -- generated
        above = f"SELECT {unit} FROM ({each}) GROUP BY {unit} HAVING count(*) > {plan.max_groups}{most}"  # noqa: S608
    databases = ", ".join(sorted({literal(table.database) for table in tables}))
    attached = (
        "SELECT database_name FROM system.main.duckdb_databases() "  # noqa: S608 -- generated
        f"WHERE database_name IN ({databases}) AND type <> 'duckdb'"
    )
    return attached, f"WITH {rows} AS (\n{source.sql}\n) {above}"


@contextmanager
def heavy_units(cursor: duckdb.DuckDBPyConnection, protected: ProtectedSource, plan: QueryPlan) -> Iterator[str | None]:
    """Give the units that may have more rows than the plan lets them have, as a relation; `NOBODY`; None where it isn't known.

    Privacy: secret; to be used in the snapshot of the other readings. See `above_bounds`. Rows of heavy units and of others are two
    joins of one source: where DuckDB might take them for one (`dpsql.session.settings.UNSOUND`) all rows are bounded together.
    """
    asked = above_bounds(protected, plan)
    if asked is None:
        yield None
        return
    attached, units = asked
    if guarded(cursor, attached).fetchall() or not plans_are_sound(cursor):
        yield None
        return
    with temporary_table(cursor, "units", units) as table:
        if not table.rows:
            yield NOBODY
        else:  # of rows that are different there are far fewer, so that most of these units are not heavy
            yield None if plan.different else table.name


@contextmanager
def held_rows(cursor: duckdb.DuckDBPyConnection, select: str | None) -> Iterator[str | None]:
    """Give the rows of a SELECT as a relation, read once; None where there is nothing to hold. Privacy: secret."""
    if select is None:
        yield None
        return
    with temporary_table(cursor, "rows", select) as made:
        yield made.name
