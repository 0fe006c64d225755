"""Measure linked tables: rows bounded family by family, shares of units counted, noise on every cell of every block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dpsql.accounting import standard_deviation
from dpsql.books.linked import Reads
from dpsql.errors import ReleaseError
from dpsql.kinds.linked.plan import units_are_public
from dpsql.kinds.linked.schema import places_of
from dpsql.kinds.measured import Measurer
from dpsql.measure.fine import released
from dpsql.measure.linked import LinkedReading, Statements
from dpsql.measure.noising import add_noise
from dpsql.measure.reading import Measured, binding, snapshot
from dpsql.methods import nested_classes
from dpsql.numerics.arrays import IntArray
from dpsql.protected.linked import reads_of
from dpsql.protected.source import ProtectedSource
from dpsql.protected.universes import Resolved as Universe
from dpsql.release.linked import LinkedPlan
from dpsql.release.plan import Plan
from dpsql.release.refined import Refinement, column_grid, resolved
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
        """Release fine histograms and numbers of rows, cut bins and groups from them, then all other blocks, with noise on all.

        What a unit adds to a block is proved in `dpsql.measure.families`; a level of a fine histogram is such a block of one
        column, on cells that follow from what was released before it. Numbers of rows are blocks with scales of the plan as all
        others are: they are drawn once, before the others, whose cells are split by groups that follow from them. So all is one
        adaptive composition of mechanisms whose scales were charged for. How many bins are cut follows from released histograms
        too: a block has fewer cells then, which a unit still changes by at most W.
        """
        cursor, refinement = context.cursor, Refinement((), ())
        with snapshot(cursor):
            with progress.stage("encode"):
                reading = LinkedReading(cursor, _statements(context, protected, plan))
            if plan.fine:
                with progress.stage("fine histograms"):
                    grids = {column.position: column_grid(plan, column) for column in plan.fine}
                    refinement = released(plan, reading.fine(grids), exact=False)
            with progress.stage("count"):
                linked = _of(resolved(plan, refinement))
                first = linked.fan_outs()
                numbers = _noisy(reading, plan, linked, first)
                refinement = replace(refinement, groups=_groups(plan, linked, first, numbers))
                linked = _of(resolved(plan, refinement))
                others = [place for place in range(len(linked.blocks)) if place not in set(first)]
                parts = dict(zip([*first, *others], [*numbers, *_noisy(reading, plan, linked, others)], strict=True))
        flat = np.concatenate([parts[place] for place in range(len(linked.blocks))])
        return Measured(flat, [], reading.units if plan.public_total else None, refinement=refinement)


def _noisy(reading: LinkedReading, plan: Plan, linked: LinkedPlan, places: Sequence[int]) -> list[IntArray]:
    """Count some blocks, and return them with noise of their scales on every cell."""
    if not places:
        return []
    some = linked.only(places)
    flat = add_noise(reading.counted(some).flat(), some.lengths, [plan.scales[place] for place in places], plan.mechanism)
    return np.split(flat, np.cumsum(some.lengths)[:-1])


def _groups(
    plan: Plan, linked: LinkedPlan, places: Sequence[int], numbers: Sequence[IntArray]
) -> tuple[tuple[int, ...], ...]:
    """Return the groups of each table, cut from released numbers of rows; none: the parent's, by which rows differ more.

    Privacy: post-processing.
    """
    groups: list[tuple[int, ...]] = [(1,)] * len(linked.tables)
    if linked.independent:
        return tuple(groups)
    two = [scale for scale, block in zip(plan.scales, linked.blocks, strict=True) if block.right is not None]
    deviation = standard_deviation(plan.mechanism, max(two or plan.scales)) / linked.weight
    spreads = [1.0] * len(groups)
    for place, counts in zip(places, numbers, strict=True):
        table, column = linked.blocks[place].left
        child = linked.children(table)[column - len(linked.tables[table].domain.attributes)]
        units = np.asarray(counts, np.float64) / linked.weight
        groups[child], spreads[child] = nested_classes.cut(units, deviation), nested_classes.spread(units)
    for child, table_ in enumerate(linked.tables):
        above = table_.parent
        if above and len(groups[above]) != 1 and spreads[above] > spreads[child]:
            groups[child], spreads[child] = (), spreads[above]
    return tuple(groups)


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
