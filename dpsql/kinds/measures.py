"""Which kind of statistics a plan measures, and how."""

from __future__ import annotations

from functools import cache

from dpsql import methods
from dpsql.books.linked import Reads
from dpsql.kinds.measured import Measurer
from dpsql.kinds.which import Kind, kind_of
from dpsql.measure.reading import Measured
from dpsql.protected.source import ProtectedSource
from dpsql.protected.universes import Resolved as Universe
from dpsql.release.plan import Plan
from dpsql.running.progress import Progress
from dpsql.session.instance import Context


@cache
def _measurer(kind: Kind) -> Measurer:
    """Return what measures a kind; loaded when it is needed: some of them take .3 s, for pandas."""
    match kind:
        case "tables":
            from dpsql.kinds.tables.measure import Tables

            return Tables()
        case "units":
            from dpsql.kinds.tables.measure import Units

            return Units()
        case "tuples":
            from dpsql.kinds.tuples.measure import Tuples

            return Tuples()
        case "drawn":
            from dpsql.kinds.drawn.measure import Drawn

            return Drawn()
        case "open":
            from dpsql.kinds.open.measure import Open

            return Open()
        case "query":
            from dpsql.kinds.query.measure import Query

            return Query()
        case "linked":
            from dpsql.kinds.linked.measure import Linked

            return Linked()


def measurer_of(plan: Plan) -> Measurer:
    """Return the kind of statistics that a plan measures."""
    query, linked = plan.query is not None, plan.linked is not None
    return _measurer(kind_of(methods.of(plan.method), units=plan.units, query=query, linked=linked))


def bind(context: Context, protected: ProtectedSource, plan: Plan) -> None:
    """Try what can be tried without reading a row, see `Measurer.bind`."""
    measurer_of(plan).bind(context, protected, plan)


def universe(context: Context, protected: ProtectedSource, plan: Plan) -> Universe | None:
    """Return the public universe that released values come from, see `Measurer.universe`. No protected row is read."""
    return measurer_of(plan).universe(context, protected, plan)


def reads(context: Context, protected: ProtectedSource, plan: Plan) -> Reads:
    """Return the protected tables whose rows a plan reads, with their links, see `Measurer.reads`. No row is read."""
    return measurer_of(plan).reads(context, protected, plan)


def check_unchanged(context: Context, protected: ProtectedSource, plan: Plan) -> None:
    """Refuse a source that is not what was charged for any more, see `Measurer.check_unchanged`. No row is read."""
    measurer_of(plan).check_unchanged(context, protected, plan)


def measure(
    context: Context, protected: ProtectedSource, plan: Plan, progress: Progress, members: Universe | None = None
) -> Measured:
    """Read the rows, count, draw, see `Measurer.measure`. Privacy: what is returned is private by the plan's events."""
    return measurer_of(plan).measure(context, protected, plan, progress, members)
