"""Measure the answer to an aggregate query: bounded rows added up by group, private groups chosen, noise on every counter."""

from __future__ import annotations

from contextlib import ExitStack

from dpsql.errors import ReleaseError
from dpsql.kinds.measured import Measurer
from dpsql.measure import query as reading
from dpsql.measure.groups import public_groups
from dpsql.measure.reading import Measured, binding, reader_of, snapshot
from dpsql.measure.rows import above_bounds
from dpsql.measure.statement import statements
from dpsql.noise.entropy import fresh_salt
from dpsql.protected.source import ProtectedSource
from dpsql.protected.universes import Resolved as Universe
from dpsql.release.plan import Plan
from dpsql.release.queried import QueryPlan, flat
from dpsql.release.refined import resolved
from dpsql.running.progress import Progress
from dpsql.session.instance import Context


class Query(Measurer):
    """Counters of an aggregate query, by group."""

    def bind(self, context: Context, protected: ProtectedSource, plan: Plan) -> None:
        """Try what can be tried without reading a row: whether the engine binds the statements, over no groups."""
        query, above = _of(plan), above_bounds(protected, _of(plan))
        heavy = None if above is None else f"({above[1]} LIMIT 0)"
        reader = reader_of(context, protected)
        with binding(), public_groups(reader, query, empty=True) as table:
            for text in statements(protected, query, table, fresh_salt(), heavy):
                reader.bind(text)

    def check_types(self, context: Context, protected: ProtectedSource, plan: Plan) -> None:
        """Refuse keys whose types have changed since the plan was made. No row is read."""
        types = {column.name: column.sql_type for column in protected.source.columns}
        if tuple(types.get(f"k{i}") for i in range(len(_of(plan).keys))) != _of(plan).keys:
            raise ReleaseError("the table was changed since the answer was charged for: its groups have other types")

    def measure(
        self, context: Context, protected: ProtectedSource, plan: Plan, progress: Progress, members: Universe | None
    ) -> Measured:
        """Add up the counters of every group, choose private groups, and add noise of ``plan.scales``.

        Where bounds are learned or leaves cut, histograms come first, with noise of their own; bounds and leaves follow from them.
        Quantiles that are picked come last, of the groups that were released.
        """
        query = _of(plan)
        self.check_types(context, protected, plan)
        charged, first, early = plan, None, None
        reader = reader_of(context, protected)
        with ExitStack() as reads:
            # all statements see one state of the rows, or a unit could count in one and not in another
            reads.enter_context(snapshot(context.cursor))
            if query.early:
                with progress.stage("bounds"):
                    early = reads.enter_context(reading.before(reader, protected, query))
                    first = reading.learned(plan, early)
                # learned bounds and leaves are in the plan from here on
                plan = resolved(plan, first)
                query = _of(plan)
            with progress.stage("count"):
                counted = reading.counted(reader, protected, query, early)
            with progress.stage("noise"):
                numbers = reading.released(plan, counted)
            # quantiles are picked last: their groups are known by then
            if early is not None:
                first = reading.quantiles(reader, charged, early, first, numbers.groups)
        integers, values = flat(query, numbers.groups, numbers.blocks)
        return Measured(integers, values, None, refinement=first)


def _of(plan: Plan) -> QueryPlan:
    if plan.query is None:
        raise ReleaseError("the plan is not one of a query")
    return plan.query
