"""What every kind of statistics does when it is measured."""

from __future__ import annotations

from abc import ABC, abstractmethod

from dpsql.books.linked import Reads
from dpsql.measure.fine import fine_statement
from dpsql.measure.reading import Measured, Reading, binding, reader_of
from dpsql.protected.linked import check_lineages
from dpsql.protected.source import ProtectedSource
from dpsql.protected.universes import Resolved as Universe
from dpsql.release.plan import Plan
from dpsql.running.progress import Progress
from dpsql.session.instance import Context


class Measurer(ABC):
    """The second half of a kind: from a charged plan to what is released."""

    def reading(self, protected: ProtectedSource, plan: Plan) -> Reading:
        """Return what is read of the source: the codes, where a kind needs no more."""
        return Reading(protected, plan, plan.domain, {})

    def statement(self, protected: ProtectedSource, plan: Plan) -> str:
        """Return the SELECT that will read the protected rows."""
        return self.reading(protected, plan).statement()

    def bind(self, context: Context, protected: ProtectedSource, plan: Plan) -> None:
        """Try what can be tried without reading a row: the types of the columns, and whether the engine binds the statement.

        Raises
        ------
        DomainError, DpsqlError
            A column has another type than its domain was declared for, or the engine does not accept the statement.
        """
        reader = reader_of(context, protected)
        with binding():
            self.check_types(context, protected, plan)
            reader.bind(self.statement(protected, plan))
            if plan.fine:
                reader.bind(fine_statement(protected, plan))

    def check_types(self, context: Context, protected: ProtectedSource, plan: Plan) -> None:
        """Refuse a source whose columns have other types than their domains were declared for. No row is read."""
        self.reading(protected, plan).check_types(context.cursor)

    def reads(self, context: Context, protected: ProtectedSource, plan: Plan) -> Reads:
        """Return the protected tables whose rows are read, with their links: those that the source names."""
        return protected.reads

    def check_unchanged(self, context: Context, protected: ProtectedSource, plan: Plan) -> None:
        """Refuse a source that is not what was charged for any more, on the books and the catalog as they are now.

        A call may have waited for another one since it looked at the keys of links.

        Raises
        ------
        DpsqlError
            No row was read; the charge stands, and the call finishes the release once the source is put back.
        """
        check_lineages(context, protected.lineages)

    def universe(self, context: Context, protected: ProtectedSource, plan: Plan) -> Universe | None:
        """Return the public universe that released values come from; None where there is none. No protected row is read."""
        return None

    @abstractmethod
    def measure(
        self, context: Context, protected: ProtectedSource, plan: Plan, progress: Progress, members: Universe | None
    ) -> Measured:
        """Read the rows, count, draw. What can fail for a public reason has been tried before (`bind`, `universe`).

        Parameters
        ----------
        members : from `universe`

        Privacy
        -------
        The exact counts leave this function only through the mechanism of the plan: noise of ``plan.scales`` on every cell, or
        what the method draws at ``plan.parameters``.
        """
