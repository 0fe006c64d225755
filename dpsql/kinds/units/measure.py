"""Measure the histogram of rows per unit: one row a unit, counted by bucket, noise on every bucket."""

from __future__ import annotations

from dpsql.domains import unit_rows
from dpsql.kinds.tables.measure import Tables
from dpsql.protected.source import ProtectedSource
from dpsql.release.plan import Plan
from dpsql.session.instance import Context


class Units(Tables):
    """Privacy units by their number of rows: one table like others, over one row a unit."""

    def statement(self, protected: ProtectedSource, plan: Plan) -> str:
        """Return the SELECT of one row a unit; rows are not bounded, for the unit counts once."""
        return unit_rows.statement(protected.source.sql, protected.source.row is not None)

    def check_types(self, context: Context, protected: ProtectedSource, plan: Plan) -> None:
        """Check nothing: no column of the source is measured."""
