"""The calls that buy: what each asks for in one form (`canonical`), by which a release is known again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dpsql import methods
from dpsql.accounting import CALIBRATIONS, MECHANISMS
from dpsql.calls import arguments
from dpsql.calls.declaration import (
    CHARGED,
    FREE,
    REQUIRED,
    Call,
    anything,
    argument,
    one_of,
    optional,
    some_columns,
    some_delta,
    some_epsilon,
    some_options,
    whole,
)
from dpsql.calls.stored import MAX_ROWS, MAX_SEED
from dpsql.calls.words import COLUMN, COLUMNS, DELTA, EPSILON, OPTIONS, PURE_DELTA, RELEASE, ROWS, SEED, SOURCE
from dpsql.errors import ArgumentError
from dpsql.methods.base import Method
from dpsql.text.names import fold

NOISE_OPTIONS: dict[str, Any] = {"mechanism": "gaussian", "accountant": None}
"""Options of every method that measures noisy tables: the noise, and how it is calibrated.

By default the tightest that the ledger accepts.
"""
AGGREGATES = "aggregate_seeded"
SHAPES = ("wide", "long")
OPERATIONS = ("synthesize", "marginals", "contributions")
MOST_ROWS = 10**12
"""A guess of the rows of a source."""


class BuyingCall(Call):
    """A call that buys a release, or finds the one it bought before."""

    operation: ClassVar[str]

    if TYPE_CHECKING:

        @property
        def source(self) -> str:
            """The SQL of the source."""

        @property
        def columns(self) -> tuple[str, ...] | None:
            """The columns, as named or as the source spells them; None for all."""

        @property
        def epsilon(self) -> float | None:
            """What it may cost; None where a stored release is asked for again."""

        @property
        def delta(self) -> float | None:
            """Its delta, or None."""

        @property
        def release(self) -> str | None:
            """The name of the release, or None."""

    @property
    def release_method(self) -> Method | None:
        """The method that the release is for; None for plain tables."""
        return None

    @abstractmethod
    def canonical(self) -> dict[str, Any]:
        """Return what identifies the release besides source and name; defaults filled in, numbers in one form.

        ``rows``, ``seed`` and ``into`` are not among them: they draw again from what was bought.

        Raises
        ------
        ArgumentError
            Something is missing, or not what the method takes.
        """

    def spelled(self, columns: tuple[str, ...]) -> Self:
        """Return the call with its columns as the source spells and orders them."""
        return self.changed(columns=columns)

    def filled(self, bought: Mapping[str, Any]) -> Self:
        """Return the call with epsilon as it was bought where it is left out."""
        if self.epsilon is None and "epsilon" in bought:
            return self.changed(epsilon=bought["epsilon"])
        return self

    @property
    def release_name(self) -> str:
        """The name of the release: the caller's, else the columns', else 'default'.

        So calls about other columns of a source are other releases without being named.

        Examples
        --------
        >>> MarginalsCall(source="t", columns=["Race", "age"]).release_name, SynthesizeCall(source="t").release_name
        ('age race', 'default')
        """
        if self.release is not None:
            return self.release
        return "default" if self.columns is None else " ".join(sorted(fold(name) for name in self.columns))

    @property
    def guessed_rows(self) -> int | None:
        """The number of synthetic rows that is asked for: all that is publicly known of the number of rows."""
        return None

    def _shared(self) -> dict[str, Any]:
        return {
            "epsilon": arguments.epsilon({"epsilon": self.epsilon}),
            "delta": self.delta,
            "columns": None if self.columns is None else list(self.columns),
        }


def _with_method(shared: Mapping[str, Any], method: Method, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the canonical parameters of a call with a method; ``given``: the options that were stated."""
    options = {**(NOISE_OPTIONS if methods.measures_tables(method) else {}), **method.options}
    for key, value in given.items():
        if key not in options:
            known = ", ".join(map(repr, options)) or "none"
            raise ArgumentError("options", {key: value}, f"{method.name} has no such option; it has {known}")
        options[key] = value
    if methods.measures_tables(method):
        arguments.choice(options, "mechanism", MECHANISMS)
        if options["accountant"] is not None:
            arguments.choice(options, "accountant", CALIBRATIONS[options["mechanism"]])
    return {**shared, "method": method.name, "options": options}


@dataclass(frozen=True)
class MarginalsCall(BuyingCall):
    """Buy noisy contingency tables: every cell of the public domain.

    Without k: one table of the named columns where they are up to three, else all one-way tables. One table of named columns is
    wide: a column per attribute in its own type (bins: <name>_lower, <name>_upper; with outside 'other' also <name>_other), then
    n BIGINT (noisy; may be negative), n_low, n_high (95 % of the noise). Otherwise, and with shape 'long': columns VARCHAR[],
    values VARCHAR[], n. Columns come in the order asked for.
    """

    name: ClassVar[str] = "marginals"
    function: ClassVar[str] = "marginals"
    operation: ClassVar[str] = "marginals"
    privacy: ClassVar[str] = CHARGED
    gives: ClassVar[str] = "a row per cell: its values, n, n_low, n_high; or columns, values, n"

    source: str = argument(arguments.text, SOURCE, default=REQUIRED, python="str")
    columns: tuple[str, ...] | None = argument(some_columns, COLUMNS, python="Sequence[str] | None")
    k: int | None = argument(whole(1, 3), "Tables of all sets of k of the columns, 1 to 3.", python="int | None")
    epsilon: float | None = argument(some_epsilon, EPSILON, python="float | None")
    delta: float | None = argument(some_delta, DELTA, python="float | None")
    mechanism: str = argument(
        one_of(*MECHANISMS), "'gaussian' or 'laplace' noise on integers.",
        default="gaussian", python="str", choices=MECHANISMS, null=False,
    )  # fmt: skip
    release: str | None = argument(optional(arguments.text), RELEASE, python="str | None")
    shape: str | None = argument(
        optional(one_of(*SHAPES)), "'wide' or 'long'; wide for one table, if left out.", python="str | None", choices=SHAPES
    )

    @property
    def order(self) -> int:
        """Number of columns of each table: k, or the one that goes without saying."""
        return self.k or arguments.usual_k(self.columns)

    def canonical(self) -> dict[str, Any]:
        """Return columns, k, noise and cost."""
        return {**self._shared(), "k": self.order, "mechanism": self.mechanism}

    def filled(self, bought: Mapping[str, Any]) -> Self:
        """Return the call with epsilon and k as they were bought where they are left out: a call without k once meant k = 1."""
        found = super().filled(bought)
        return found.changed(k=bought["k"]) if found.k is None and "k" in bought else found


@dataclass(frozen=True)
class AggregatesCall(BuyingCall):
    """Buy noisy counts of combinations of values.

    Every combination of up to reporting_length values that is frequent enough is reported.
    """

    name: ClassVar[str] = "aggregates"
    function: ClassVar[str] = "aggregates"
    operation: ClassVar[str] = "aggregates"
    privacy: ClassVar[str] = CHARGED
    gives: ClassVar[str] = "columns VARCHAR[], values VARCHAR[], n BIGINT (noisy, above 0)"

    source: str = argument(arguments.text, SOURCE, default=REQUIRED, python="str")
    reporting_length: Any = argument(anything, "Most values of a combination, 1 to 10.", python="int | None")
    epsilon: float | None = argument(some_epsilon, EPSILON, python="float | None")
    delta: float | None = argument(some_delta, DELTA, python="float | None")
    columns: tuple[str, ...] | None = argument(some_columns, COLUMNS, python="Sequence[str] | None")
    fabrication: Any = argument(
        anything,
        "How likely combinations that nobody has are reported: 'minimize', 'balance', 'uncontrolled', or a list of probabilities.",
        python="str | Sequence[float] | None",
        plain=True,
    )
    release: str | None = argument(optional(arguments.text), RELEASE, python="str | None")
    options: dict[str, Any] = argument(some_options, "Options of aggregate_seeded as a struct.", python="Mapping[str, Any] | None")

    @property
    def release_method(self) -> Method:
        """The method that counts tuples."""
        return methods.get(AGGREGATES)

    def canonical(self) -> dict[str, Any]:
        """Return columns, options of the method and cost."""
        options = dict(self.options)
        for name, value, option in (
            ("reporting_length", self.reporting_length, "reporting_length"), ("fabrication", self.fabrication, "fabrication_mode"),
        ):  # fmt: skip
            if value is not None:
                if option in options and options[option] != value:
                    raise ArgumentError(name, value, f"options say {option} = {options[option]!r}; leave one of them out")
                options[option] = value
        return _with_method(self._shared(), self.release_method, options)


class OpenCall(BuyingCall):
    """A call about the values of one column that nobody has listed; its release is named after the column."""

    if TYPE_CHECKING:

        @property
        def column(self) -> str:
            """The column."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The one column."""
        return (self.column,)

    def spelled(self, columns: tuple[str, ...]) -> Self:
        """Return the call with its column as the source spells it."""
        return self.changed(column=columns[0])


@dataclass(frozen=True)
class HistogramCall(OpenCall):
    """Buy noisy counts of the values of a column whose domain nobody can list.

    domain: words, pairs of words, a pattern (pure epsilon). Without one the domain is not known at all: stable selection, with
    epsilon and delta.
    """

    name: ClassVar[str] = "histogram"
    function: ClassVar[str] = "histogram"
    operation: ClassVar[str] = "histogram"
    privacy: ClassVar[str] = CHARGED
    gives: ClassVar[str] = "value VARCHAR, n BIGINT (noisy), the largest first"

    source: str = argument(arguments.text, SOURCE, default=REQUIRED, python="str")
    column: str = argument(arguments.text, COLUMN, python="str", also="column_name", needed=True)
    epsilon: float | None = argument(some_epsilon, EPSILON, python="float", needed=True)
    delta: float | None = argument(some_delta, PURE_DELTA, python="float | None")
    domain: Any = argument(
        anything,
        "Where values may come from: 'table.column' of a public table, a list, or 'pattern:[A-Z]{2}[0-9]{4}'.",
        python="str | Sequence[str] | None",
        plain=True,
    )
    domain_size: Any = argument(anything, "Number of members; beyond the words pairs, triples, ... are meant.", python="int | None")
    rho: Any = argument(
        anything, "Share of the values that occur whose count should pass the threshold, in (0, 1).", python="float | None"
    )
    separator: Any = argument(anything, "Between the words of a pair; '-', if left out.", python="str | None")
    release: str | None = argument(optional(arguments.text), RELEASE, python="str | None")

    @property
    def stated_options(self) -> dict[str, Any]:
        """The options of the method that the arguments state."""
        found = {"domain": self.domain, "domain_size": self.domain_size, "rho": self.rho, "separator": self.separator}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def release_method(self) -> Method:
        """The method: with a domain the one of weak domains, without one stable selection."""
        options = self.stated_options
        if options and "domain" not in options:
            expected = f"{', '.join(options)} says something about a domain: name one, a public table of words, a list or a pattern"
            raise ArgumentError("domain", None, expected)
        return methods.get("weak_domain" if options else "stable_selection")

    def canonical(self) -> dict[str, Any]:
        """Return the column, what its values may be, and cost."""
        method = self.release_method
        return _with_method(self._shared(), method, self.stated_options)


@dataclass(frozen=True)
class DiscoverCall(OpenCall):
    """The purchase inside of a dp_declare with discover: the list of values of a column."""

    name: ClassVar[str] = "declare"
    function: ClassVar[str] = "declare"
    operation: ClassVar[str] = "discover"
    privacy: ClassVar[str] = CHARGED
    gives: ClassVar[str] = ""

    source: str = argument(arguments.text, SOURCE, default=REQUIRED, python="str")
    column: str = argument(arguments.text, COLUMN, default=REQUIRED, python="str")
    epsilon: float | None = argument(some_epsilon, EPSILON, python="float | None")
    delta: float | None = argument(some_delta, PURE_DELTA, python="float | None")
    release: str | None = argument(optional(arguments.text), RELEASE, python="str | None")

    @property
    def release_method(self) -> Method:
        """Stable selection."""
        return methods.get("stable_selection")

    def canonical(self) -> dict[str, Any]:
        """Return column and cost."""
        return _with_method(self._shared(), self.release_method, {})


@dataclass(frozen=True)
class ContributionsCall(BuyingCall):
    """Buy a noisy histogram of the number of rows per privacy unit, to choose max_contributions by.

    Every unit is counted once, in one bucket. max_contributions: the least number of the row; share_kept: about how many of all
    rows are kept under it.
    """

    name: ClassVar[str] = "contributions"
    function: ClassVar[str] = "contributions"
    operation: ClassVar[str] = "contributions"
    privacy: ClassVar[str] = CHARGED
    gives: ClassVar[str] = (
        "rows_per_unit, units BIGINT (noisy; may be negative), units_low, units_high (95 % of the noise), "
        "max_contributions, share_kept"
    )

    source: str = argument(arguments.text, SOURCE, default=REQUIRED, python="str")
    epsilon: float | None = argument(some_epsilon, EPSILON, python="float | None")
    delta: float | None = argument(some_delta, DELTA, python="float | None")
    mechanism: str = argument(
        one_of(*MECHANISMS), "'gaussian' or 'laplace' noise on integers.",
        default="gaussian", python="str", choices=MECHANISMS, null=False,
    )  # fmt: skip
    release: str | None = argument(optional(arguments.text), RELEASE, python="str | None")

    @property
    def columns(self) -> None:
        """None: no column is measured."""
        return

    def canonical(self) -> dict[str, Any]:
        """Return noise and cost."""
        return {**self._shared(), "mechanism": self.mechanism}


@dataclass(frozen=True)
class SynthesizeCall(BuyingCall):
    """Buy a synthetic table with the source's column names and types; rows are drawn from the release for free.

    With into_table the rows go straight into that table, and the answer is one row: table_name, rows, release.
    """

    name: ClassVar[str] = "synthesize"
    function: ClassVar[str] = "synthesize"
    operation: ClassVar[str] = "synthesize"
    privacy: ClassVar[str] = CHARGED
    gives: ClassVar[str] = "the columns of the source, in its types; or table_name, rows, release"

    source: str = argument(arguments.text, SOURCE, default=REQUIRED, python="str")
    method: str | None = argument(
        optional(arguments.text), "The method; latent_class, if left out.", python="str | None", choices=methods.names()
    )
    epsilon: float | None = argument(some_epsilon, EPSILON, python="float | None")
    delta: float | None = argument(some_delta, DELTA, python="float | None")
    columns: tuple[str, ...] | None = argument(some_columns, COLUMNS, python="Sequence[str] | None")
    rows: int | None = argument(whole(0, MAX_ROWS), ROWS, python="int | None")
    seed: int | None = argument(whole(0, MAX_SEED), SEED, python="int | None")
    options: dict[str, Any] = argument(some_options, OPTIONS, python="Mapping[str, Any] | None")
    release: str | None = argument(optional(arguments.text), RELEASE, python="str | None")
    into: str | None = argument(
        optional(arguments.text), "A table that the rows are put into (into_table in SQL; into is a reserved word).",
        python="str | None", also="into_table",
    )  # fmt: skip

    @property
    def release_method(self) -> Method:
        """The method that was named, else the default."""
        return methods.get(methods.DEFAULT if self.method is None else self.method)

    def canonical(self) -> dict[str, Any]:
        """Return columns, method, its options and cost."""
        return _with_method(self._shared(), self.release_method, self.options)

    @property
    def guessed_rows(self) -> int | None:
        """The number of synthetic rows."""
        return self.rows


@dataclass(frozen=True)
class PlanCall(Call):
    """Show what a dp_synthesize, dp_marginals (with k) or dp_contributions call would measure and cost.

    One row: measures (which tables), epsilon, whether the budget covers it (affordable), noise_scale, expected errors, what is
    left after, notes; then operation, method, columns, left_out, cells, seconds (estimated_stages: a MAP by stage) and memory for
    two cores and rows rows (100,000 where none are given). noise_by_contributions: the noise scale for other max_contributions.
    """

    name: ClassVar[str] = "plan"
    function: ClassVar[str] = "plan"
    privacy: ClassVar[str] = f"{FREE}; no row is read"
    gives: ClassVar[str] = "one row"

    source: str = argument(arguments.text, SOURCE, default=REQUIRED, python="str")
    method: Any = argument(anything, "As in dp_synthesize.", python="str | None", choices=methods.names())
    epsilon: float | None = argument(some_epsilon, EPSILON, python="float", needed=True)
    delta: float | None = argument(some_delta, DELTA, python="float | None")
    columns: tuple[str, ...] | None = argument(some_columns, COLUMNS, python="Sequence[str] | None")
    k: Any = argument(anything, "As in dp_marginals.", python="int | None")
    mechanism: Any = argument(anything, "'gaussian' or 'laplace'.", python="str | None", choices=MECHANISMS)
    rows: int | None = argument(whole(0, MOST_ROWS), "A guess of the number of rows, for time and memory.", python="int | None")
    options: dict[str, Any] = argument(some_options, OPTIONS, python="Mapping[str, Any] | None")
    release: str | None = argument(optional(arguments.text), RELEASE, python="str | None")
    operation: str | None = argument(
        optional(one_of(*OPERATIONS)),
        "The call that is meant; 'marginals' where k is given, else 'synthesize', if left out.",
        python="str | None",
        choices=OPERATIONS,
    )

    def asked(self) -> MarginalsCall | ContributionsCall | SynthesizeCall:
        """Return the call that is planned.

        Raises
        ------
        ArgumentError
            It has no such argument, or does not take this value.
        """
        operation = self.operation or ("marginals" if self.k is not None else "synthesize")
        shared: dict[str, Any] = {"source": self.source, "epsilon": self.epsilon, "delta": self.delta, "release": self.release}
        if operation == "contributions":
            named = {"columns": self.columns, "k": self.k, "method": self.method, "options": self.options or None}
            for name, value in named.items():
                if value is not None:
                    raise ArgumentError(name, value, "dp_contributions has no such argument; leave it out")
            return ContributionsCall(**shared, mechanism=self.mechanism or "gaussian")
        if operation == "marginals":
            return MarginalsCall(**shared, columns=self.columns, k=self.k, mechanism=self.mechanism or "gaussian")
        options = self.options if self.mechanism is None else {**self.options, "mechanism": self.mechanism}
        return SynthesizeCall(**shared, columns=self.columns, method=self.method, options=options)
