"""Measure noisy contingency tables: encode and count in one pass where that is less work, add noise to every cell."""

from __future__ import annotations

from dpsql.domains import unit_rows
from dpsql.kinds.measured import Measurer
from dpsql.measure.fine import refined_by
from dpsql.measure.noising import released
from dpsql.measure.reading import Measured, reader_of
from dpsql.protected.source import ProtectedSource
from dpsql.protected.universes import Resolved as Universe
from dpsql.release.plan import Plan
from dpsql.release.refined import resolved
from dpsql.running.progress import Progress
from dpsql.session.instance import Context


class Tables(Measurer):
    """Tables over declared columns."""

    def measure(
        self, context: Context, protected: ProtectedSource, plan: Plan, progress: Progress, members: Universe | None
    ) -> Measured:
        """Buy the fine histograms and cut bins from them, then count, and add noise of ``plan.scales`` to every cell."""
        with progress.stage("encode"):
            self.check_types(context, protected, plan)
        reader = reader_of(context, protected)
        refinement = refined_by(reader, protected, plan, progress)
        plan = resolved(plan, refinement)
        select = self.statement(protected, plan)
        with progress.stage("count"):
            tables, rows = reader.tables(select, plan.domain.sizes, plan.cliques)
        with progress.stage("noise"):
            return Measured(released(plan, tables), [], rows if plan.public_total else None, refinement=refinement)


class Units(Tables):
    """Privacy units by their number of rows: one table like others, over one row a unit."""

    def statement(self, protected: ProtectedSource, plan: Plan) -> str:
        """Return the SELECT of one row a unit; rows are not bounded, for the unit counts once."""
        return unit_rows.statement(protected.source.sql, unit_rows.lower_of(plan.domain), protected.source.row is not None)

    def check_types(self, context: Context, protected: ProtectedSource, plan: Plan) -> None:
        """Check nothing: no column of the source is measured."""
