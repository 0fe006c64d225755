"""Measure a column whose values no declared domain lists: count those that occur, let the method choose."""

from __future__ import annotations

from dpsql import methods
from dpsql.domains import encoding
from dpsql.domains.attributes import Domain
from dpsql.errors import ReleaseError
from dpsql.kinds.measured import Measurer
from dpsql.measure.reading import Measured, Reading, reader_of
from dpsql.methods.base import OpenMethod
from dpsql.protected import universes
from dpsql.protected.source import ProtectedSource
from dpsql.protected.universes import Resolved as Universe
from dpsql.release.plan import Plan
from dpsql.running.progress import Progress
from dpsql.session.instance import Context

VALUE = "v"


class Open(Measurer):
    """Values of one column, and how often each occurs."""

    def reading(self, protected: ProtectedSource, plan: Plan) -> Reading:
        """Read the values as texts; of a unit equal ones once, where the method counts units."""
        extra = {VALUE: encoding.value_text(plan.domain.attributes[0])}
        return Reading(protected, plan, Domain(()), extra, distinct=not _method(plan).universe)

    def universe(self, context: Context, protected: ProtectedSource, plan: Plan) -> Universe | None:
        """Return the public universe that the values come from, as it was charged for; None where the method needs none.

        Raises
        ------
        ReleaseError
            It was changed since. No protected row was read.
        """
        if not _method(plan).universe:
            return None
        universe = universes.resolve(context, protected, protected.column(plan.domain.names[0]), plan.options)
        if universe.fingerprint != plan.parameters["universe"]:
            raise ReleaseError(
                f"options = {dict(plan.options)!r}: the public domain was changed after it was charged for. Put it back as it "
                "was to finish the release, or buy another one: release := 'another name'"
            )
        return universe

    def measure(
        self, context: Context, protected: ProtectedSource, plan: Plan, progress: Progress, members: Universe | None
    ) -> Measured:
        """Count the values that occur, and let the method choose which of them, and of the others, are released."""
        self.check_types(context, protected, plan)
        with self.reading(protected, plan).encoded(reader_of(context, protected), progress) as codes:
            with progress.stage("count"):
                values, counts = codes.values(VALUE)
            with progress.stage("noise"):
                chosen, weights = _method(plan).select(values, counts, members, plan.parameters)
        return Measured(weights, chosen, None)


def _method(plan: Plan) -> OpenMethod:
    method = methods.of(plan.method)
    if not methods.is_open(method):
        raise ReleaseError(f"method {plan.method!r} selects no values")
    return method
