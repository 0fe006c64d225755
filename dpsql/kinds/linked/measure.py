"""Measure linked tables: rows bounded family by family, shares of units counted, noise on every cell of every block."""

from __future__ import annotations

from dataclasses import replace

from dpsql.books.linked import Reads
from dpsql.errors import ReleaseError
from dpsql.kinds.linked.plan import units_are_public
from dpsql.kinds.linked.schema import places_of
from dpsql.kinds.measured import Measurer
from dpsql.measure.fine import released
from dpsql.measure.linked import LinkedReading, Statements
from dpsql.measure.noising import add_noise
from dpsql.measure.reading import Measured, binding, snapshot
from dpsql.protected.linked import reads_of
from dpsql.protected.source import ProtectedSource
from dpsql.protected.universes import Resolved as Universe
from dpsql.release.linked import LinkedPlan
from dpsql.release.plan import Plan
from dpsql.release.refined import column_grid, resolved
from dpsql.running.progress import Progress
from dpsql.session.instance import Context
from dpsql.source.analysis import relation_columns


class Linked(Measurer):
    """Blocks of linked tables."""

    def bind(self, context: Context, protected: ProtectedSource, plan: Plan) -> None:
        """Try what can be tried without reading a row: whether links are those of the plan, whether DuckDB binds its SELECTs."""
        statements = _statements(context, protected, plan)
        with binding():
            for place in range(len(statements.plan.tables)):
                context.cursor.execute(f"DESCRIBE {statements.codes(place)}").fetchall()

    def reads(self, context: Context, protected: ProtectedSource, plan: Plan) -> Reads:
        """Return all tables of the plan, with their links."""
        return reads_of(context, places_of(context, protected, _of(plan).tables, anew=False))

    def check_unchanged(self, context: Context, protected: ProtectedSource, plan: Plan) -> None:
        """Refuse links, keys or columns that are others than those that were charged for, and units whose number is private now."""
        _statements(context, protected, plan)

    def measure(
        self, context: Context, protected: ProtectedSource, plan: Plan, progress: Progress, members: Universe | None
    ) -> Measured:
        """Buy the fine histograms and cut bins from them, then count the blocks, and add noise of ``plan.scales`` to every cell.

        What a unit adds to a block is proved in `dpsql.measure.families`; a level of a fine histogram is such a block of one
        column, on cells that follow from what was released before it.
        """
        cursor, refinement = context.cursor, None
        with snapshot(cursor):
            with progress.stage("encode"):
                reading = LinkedReading(cursor, _statements(context, protected, plan))
            if plan.fine:
                with progress.stage("fine histograms"):
                    grids = {column.position: column_grid(plan, column) for column in plan.fine}
                    refinement = released(plan, reading.fine(grids), exact=True)
            linked = _of(resolved(plan, refinement))
            with progress.stage("count"):
                found = reading.counted(linked)
        with progress.stage("noise"):
            flat = add_noise(found.flat(), linked.lengths, plan.scales, plan.mechanism)
        return Measured(flat, [], found.units if plan.public_total else None, refinement=refinement)


def _statements(context: Context, protected: ProtectedSource, plan: Plan) -> Statements:
    linked = _of(plan)
    if plan.public_total:
        columns = tuple(relation_columns(context.cursor, protected.source.table))  # as they are now
        source = replace(protected.source, columns=columns)
        if not units_are_public(replace(protected, source=source), linked.tables):
            raise ReleaseError(
                f"{protected.key} was changed since the release was planned: the number of its units was public, and is not now, "
                "for a key may be NULL. Put it back (SET NOT NULL) to finish the release, or buy another one: "
                "release := 'another name'"
            )
    return Statements(linked, places_of(context, protected, linked.tables), protected.protection.privacy_unit)


def _of(plan: Plan) -> LinkedPlan:
    if plan.linked is None:
        raise ReleaseError("the plan is not one of linked tables")
    return plan.linked
