"""The call that shows what another one would measure and cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dpsql import methods
from dpsql.accounting import MECHANISMS
from dpsql.calls import arguments
from dpsql.calls.declaration import (
    FREE,
    REQUIRED,
    Call,
    anything,
    argument,
    flag,
    one_of,
    optional,
    some_columns,
    some_delta,
    some_epsilon,
    some_options,
    whole,
)
from dpsql.calls.query import QueryCall
from dpsql.calls.rows import SynthesizeCall
from dpsql.calls.schemas import SynthesizeTablesCall
from dpsql.calls.tables import ContributionsCall, MarginalsCall
from dpsql.calls.values import DiscoverCall
from dpsql.calls.words import COLUMNS, DELTA, EPSILON, OPTIONS, RELEASE, SOURCE
from dpsql.errors import ArgumentError

OPERATIONS = ("synthesize", "synthesize_tables", "marginals", "contributions", "query", "discover")
_OTHERS = {"synthesize": ("k",), "marginals": ("method", "options"), "contributions": ("columns", "k", "method", "options"),
           "discover": ("k", "method", "options"), "synthesize_tables": ("columns", "k", "method")}
"""Arguments of dp_plan that a call does not have."""
_IN_OPTIONS = {"contributions": ("per",), "synthesize_tables": ("independent",)}
"""Arguments of calls that the options of dp_plan may hold."""
QUERY_OPTIONS = ("groups", "max_groups", "max_rows_per_group", "max_rows", "min_units", "bounds")
"""Arguments of dp_query that the options of dp_plan may hold."""
MOST_ROWS = 10**12
"""A guess of the rows of a source."""


@dataclass(frozen=True)
class PlanCall(Call):
    """Show what a dp_synthesize, dp_marginals (with k), dp_contributions or dp_query call would measure and cost.

    With operation := 'synthesize_tables' the plan is of a table and all that are linked to it; independent may stand in options.

    A source with aggregates is planned as a query; its bounds, groups, max_groups, ... may stand in options, as may per of
    dp_contributions. options := {'noise_scale': s} in the place of epsilon: the plan of the least epsilon with which no release has
    a larger noise scale.

    One row (of a query: one for each release that it buys): measures (which tables), epsilon, whether the budget covers it
    (affordable), noise_scale, expected errors, what is
    left after, notes; then operation, method, columns, left_out, cells, seconds (estimated_stages: a MAP by stage) and memory for
    two cores and rows rows (100,000 where none are given). noise_by_contributions: the noise scale for other max_contributions.
    """

    name: ClassVar[str] = "plan"
    function: ClassVar[str] = "plan"
    privacy: ClassVar[str] = f"{FREE}; no row is read"
    gives: ClassVar[str] = "one row"

    source: str = argument(arguments.text, SOURCE, default=REQUIRED, python="str")
    method: Any = argument(anything, "As in dp_synthesize.", python="str | None", choices=methods.names())
    epsilon: float | None = argument(some_epsilon, EPSILON, python="float | None")
    delta: float | None = argument(some_delta, DELTA, python="float | None")
    columns: tuple[str, ...] | None = argument(some_columns, COLUMNS, python="Sequence[str] | None")
    k: Any = argument(anything, "As in dp_marginals.", python="int | None")
    mechanism: Any = argument(anything, "'gaussian' or 'laplace'.", python="str | None", choices=MECHANISMS)
    rows: int | None = argument(whole(0, MOST_ROWS), "A guess of the number of rows, for time and memory.", python="int | None")
    options: dict[str, Any] = argument(some_options, OPTIONS, python="Mapping[str, Any] | None")
    release: str | None = argument(optional(arguments.text), RELEASE, python="str | None")
    operation: str | None = argument(
        optional(one_of(*OPERATIONS)),
        "The call that is meant ('discover': what dp_declare would buy); 'query' for aggregates, 'marginals' where k is given, "
        "else 'synthesize', if left out.",
        python="str | None",
        choices=OPERATIONS,
    )

    def as_query(self) -> QueryCall:
        """Return the dp_query call that is planned, its source the query.

        Raises
        ------
        ArgumentError
            It has no such argument.
        """
        for name in ("columns", "k", "method"):
            if getattr(self, name) is not None:
                raise ArgumentError(name, getattr(self, name), "dp_query has no such argument; leave it out")
        options = dict(self.options)
        own = {name: options.pop(name) for name in QUERY_OPTIONS if name in options}
        mechanism = self._with_mechanism().get("mechanism", "gaussian")
        options.pop("mechanism", None)
        return QueryCall(
            sql=self.source, epsilon=self.epsilon, delta=self.delta, release=self.release,
            mechanism=mechanism, options=options, **own,
        )

    def _with_mechanism(self, options: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the options, by default all that are given, with the mechanism, which may be said in either place."""
        options = dict(self.options) if options is None else options
        if self.mechanism is None:
            return options
        stated = options.get("mechanism", self.mechanism)
        if stated != self.mechanism:
            raise ArgumentError("mechanism", self.mechanism, f"options say mechanism = {stated!r}; leave one of them out")
        return {**options, "mechanism": self.mechanism}

    def asked(self) -> MarginalsCall | ContributionsCall | SynthesizeCall | SynthesizeTablesCall | DiscoverCall:
        """Return the call that is planned.

        Raises
        ------
        ArgumentError
            It has no such argument, or does not take this value.
        """
        operation = self.operation or ("marginals" if self.k is not None else "synthesize")
        if operation == "query":
            raise ArgumentError("operation", operation, "the source is no aggregate query")
        shared: dict[str, Any] = {"source": self.source, "epsilon": self.epsilon, "delta": self.delta, "release": self.release}
        options = dict(self.options)
        names = _IN_OPTIONS.get(operation, ())
        # arguments of other calls that dp_plan takes in its options
        extra = {name: options.pop(name) for name in names if name in options}
        stated = {"columns": self.columns, "k": self.k, "method": self.method, "options": options or None}
        # what the planned call does not have must not be silently dropped
        for name in _OTHERS[operation]:
            if stated[name] is not None:
                raise ArgumentError(name, stated[name], f"dp_{operation} has no such argument; leave it out")
        if operation == "discover":
            if self.columns is None or len(self.columns) != 1:
                advice = "name the one column whose values dp_declare would buy: columns := ['name']"
                raise ArgumentError("columns", self.columns, advice)
            if self.mechanism is not None:
                raise ArgumentError("mechanism", self.mechanism, "a list of values is bought with 'laplace' noise; leave it out")
            return DiscoverCall(**shared, column=self.columns[0])
        if operation == "contributions":
            return ContributionsCall(**shared, mechanism=self.mechanism or "gaussian", **extra)
        if operation == "marginals":
            return MarginalsCall(**shared, columns=self.columns, k=self.k, mechanism=self.mechanism or "gaussian")
        if operation == "synthesize_tables":
            independent = flag(extra, "independent")
            return SynthesizeTablesCall(**shared, independent=independent, options=self._with_mechanism(options))
        return SynthesizeCall(**shared, columns=self.columns, method=self.method, options=self._with_mechanism())
