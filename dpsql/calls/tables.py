"""The calls that buy counts over declared columns: tables, units, combinations of values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from dpsql import methods
from dpsql.accounting import MECHANISMS
from dpsql.calls import arguments
from dpsql.calls.buying import BuyingCall, with_method
from dpsql.calls.declaration import (
    CHARGED,
    REQUIRED,
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
from dpsql.calls.words import COLUMNS, DELTA, EPSILON, RELEASE, SOURCE
from dpsql.errors import ArgumentError
from dpsql.methods.aggregate_seeded.levels import FABRICATION_MODES
from dpsql.methods.base import Method

AGGREGATES = "aggregate_seeded"
SHAPES = ("wide", "long")


def some_fabrication(given: Mapping[str, Any], name: str) -> Any:
    """Return a mode, or a list of probabilities, which the method checks; None where it is left out."""
    value = given.get(name)
    return arguments.choice(given, name, FABRICATION_MODES) if isinstance(value, str) else value


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
    )
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
        filled = super().filled(bought)
        return filled.changed(k=bought["k"]) if filled.k is None and "k" in bought else filled


@dataclass(frozen=True)
class ContributionsCall(BuyingCall):
    """Buy a noisy histogram of the number of rows per privacy unit, to choose max_contributions by.

    Every unit is counted once, in one bucket. max_contributions: the least number of the row; share_kept: about how many of all
    rows are kept under it. Of a linked table also per row of a table above it (per), to choose max_rows of a link by: then units
    are rows of that table, as many of each privacy unit as links allow.
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
    )
    release: str | None = argument(optional(arguments.text), RELEASE, python="str | None")

    per: str | None = argument(
        optional(arguments.text),
        "Of a linked table: the table above it whose rows take the place of units, such as 'visits' of procedures.",
        python="str | None",
    )

    @property
    def columns(self) -> None:
        """None: no column is measured."""
        return

    def canonical(self) -> dict[str, Any]:
        """Return noise and cost, and ``per`` where it is given."""
        return {**self._shared(), "mechanism": self.mechanism, **({} if self.per is None else {"per": self.per})}


@dataclass(frozen=True)
class RowsCall(ContributionsCall):
    """The same over the rows of a query, to bound them by: what ``max_rows := 'auto'`` buys first."""

    local: ClassVar[bool] = True

    @property
    def release_name(self) -> str:
        """The name of the query's release with 'rows', else one that its price makes: the same question is the same release."""
        if self.release is not None:
            return f"{self.release} rows"
        return f"rows {self.digest}"


@dataclass(frozen=True)
class LevelCall(ContributionsCall):
    """The same over a source that has one row for each row of ``per``, and their numbers (`dpsql.protected.levels`)."""

    local: ClassVar[bool] = True


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
    reporting_length: Any = argument(anything, "Most values of a combination, 1 to 10, or as many as columns.", python="int | None")
    epsilon: float | None = argument(some_epsilon, EPSILON, python="float | None")
    delta: float | None = argument(some_delta, DELTA, python="float | None")
    columns: tuple[str, ...] | None = argument(some_columns, COLUMNS, python="Sequence[str] | None")
    fabrication: Any = argument(
        some_fabrication,
        "How likely combinations that nobody has are reported: a mode, or a list of probabilities, one for each k = 2 ....",
        python="str | Sequence[float] | None",
        choices=FABRICATION_MODES,
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
        ):
            if value is not None:
                if option in options and options[option] != value:
                    raise ArgumentError(name, value, f"options say {option} = {options[option]!r}; leave one of them out")
                options[option] = value
        return with_method(self._shared(), self.release_method, options)
