"""Measure the histogram of rows per unit: one row a unit, counted by bucket, noise on every bucket."""

from __future__ import annotations

from dpsql.domains import unit_rows
from dpsql.kinds.measured import Measurer
from dpsql.measure.counting import count_select
from dpsql.measure.noising import released
from dpsql.measure.reading import Measured
from dpsql.protected.source import ProtectedSource
from dpsql.protected.universes import Resolved as Universe
from dpsql.release.plan import Plan
from dpsql.running.progress import Progress
from dpsql.session.instance import Context


class Units(Measurer):
    """Privacy units by their number of rows."""

    def statement(self, protected: ProtectedSource, plan: Plan) -> str:
        """Return the SELECT of one row a unit; rows are not bounded, for the unit counts once."""
        return unit_rows.statement(protected.source.sql, protected.source.row is not None)

    def check_types(self, context: Context, protected: ProtectedSource, plan: Plan) -> None:
        """Check nothing: no column of the source is measured."""

    def measure(
        self, context: Context, protected: ProtectedSource, plan: Plan, progress: Progress, members: Universe | None
    ) -> Measured:
        """Count units, and add noise of ``plan.scales`` to every bucket."""
        with progress.stage("encode"):
            select = self.statement(protected, plan)
        with progress.stage("count"):
            tables, _ = count_select(context.cursor, select, plan.domain.sizes, plan.cliques)
        with progress.stage("noise"):
            return Measured(released(plan, tables), [], None)
