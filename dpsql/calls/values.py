"""The calls that buy the values of a column that nobody has listed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dpsql import methods
from dpsql.calls import arguments
from dpsql.calls.buying import BuyingCall, with_method
from dpsql.calls.declaration import CHARGED, REQUIRED, anything, argument, optional, some_delta, some_epsilon
from dpsql.calls.words import COLUMN, EPSILON, PURE_DELTA, RELEASE, SOURCE
from dpsql.errors import ArgumentError
from dpsql.methods.base import Method


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
        stated = {"domain": self.domain, "domain_size": self.domain_size, "rho": self.rho, "separator": self.separator}
        return {name: value for name, value in stated.items() if value is not None}

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
        method = self.release_method  # what is wrong with a domain is said first
        return with_method(self._shared(), method, self.stated_options)


@dataclass(frozen=True)
class DiscoveryCall(OpenCall):
    """The purchase inside of a dp_declare with discover."""

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


@dataclass(frozen=True)
class DiscoverCall(DiscoveryCall):
    """Of the list of values of a column."""

    @property
    def release_method(self) -> Method:
        """Stable selection."""
        return methods.get("stable_selection")

    def canonical(self) -> dict[str, Any]:
        """Return column and cost."""
        return with_method(self._shared(), self.release_method, {})


@dataclass(frozen=True)
class BoundsCall(DiscoveryCall):
    """Of a numeric column: between which powers of two its values lie."""

    def canonical(self) -> dict[str, Any]:
        """Return column and cost."""
        return {**self._shared(), "discover": "bounds"}
