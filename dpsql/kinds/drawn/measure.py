"""Measure what a method draws itself: from exact tables, or one with sums where the method asks for them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpsql import methods
from dpsql.domains import encoding
from dpsql.errors import ReleaseError
from dpsql.kinds.measured import Measurer
from dpsql.measure.fine import refined_by
from dpsql.measure.reading import Measured, Reading, reader_of
from dpsql.methods.base import Counted, DrawnMethod
from dpsql.numerics.arrays import Clique, IntArray
from dpsql.protected.source import ProtectedSource
from dpsql.protected.universes import Resolved as Universe
from dpsql.release.plan import Plan
from dpsql.release.refined import resolved
from dpsql.running.progress import Progress
from dpsql.session.instance import Context


class Drawn(Measurer):
    """The private output of a method that draws it itself."""

    def reading(self, protected: ProtectedSource, plan: Plan) -> Reading:
        """Read the codes, and the values that are summed."""
        summed = _method(plan).values(plan.domain, plan.options)
        return Reading(protected, plan, plan.domain, {f"z{i}": encoding.fixed_point(plan.domain.attributes[i]) for i in summed})

    def measure(
        self, context: Context, protected: ProtectedSource, plan: Plan, progress: Progress, members: Universe | None
    ) -> Measured:
        """Cut automatic bins, count the tables, with sums where asked for, and let the method draw at ``plan.parameters``."""
        reader, method = reader_of(context, protected), _method(plan)
        refinement = refined_by(reader, protected, plan, progress, exact=True)
        plan = resolved(plan, refinement)
        with self.reading(protected, plan).encoded(reader, progress) as codes:
            with progress.stage("count"):
                summed = [f"z{i}" for i in method.values(plan.domain, plan.options)]
                sums = products = None
                tables: Mapping[Clique, IntArray]
                if summed:
                    table, sums, products = codes.moments(plan.domain.sizes, plan.cliques[0], summed)
                    tables, total = {plan.cliques[0]: table}, int(table.sum())
                else:
                    tables, total = codes.tables(plan.domain.sizes, plan.cliques)
            with progress.stage("noise"):
                drawn = method.draw(Counted(tables, total, sums, products), plan.domain, plan.parameters, plan.options)
        return Measured(np.concatenate(drawn), [], total if plan.public_total else None, refinement=refinement)


def _method(plan: Plan) -> DrawnMethod:
    method = methods.of(plan.method)
    if not methods.is_drawn(method):
        raise ReleaseError(f"method {plan.method!r} draws nothing itself")
    return method
