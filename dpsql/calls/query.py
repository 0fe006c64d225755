"""The call that asks an aggregate query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

from dpsql.accounting import MECHANISMS
from dpsql.calls import arguments
from dpsql.calls.declaration import (
    CHARGED,
    FREE,
    NOT_PRIVATE,
    REQUIRED,
    Call,
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
from dpsql.calls.words import COLUMNS, DELTA, RELEASE, SOURCE, STORED
from dpsql.errors import ArgumentError

GROUPS = ("public", "private")
BOUNDS_SHARE = 0.15
"""Share of rho (of epsilon, for Laplace noise) that histograms of magnitudes have where bounds are to be learned."""
NARROWING_SHARE = {"gaussian": 0.08, "laplace": 0.04}
"""The same where declared bounds are wide: noise between bounds that fit is 1.04 times as large, whatever the mechanism is."""
ROWS_SHARE = {"gaussian": 0.1, "laplace": 0.05}
"""The same of the histogram of rows per unit, where how many of them count is to be learned."""
MOST_BOUND = 1_000_000_000
_BOUNDS = (
    "Bounds of expressions, as a struct: {'cost': [0, 5000]}. By default those of the declared columns, carried through the "
    "expression. 'auto': those that are not known are learned, for a share of the same loss; {'cost': 'auto'}: of some."
)


AUTO = "auto"
ALL = "*"
"""Stands for all expressions whose bounds are not known: ``'auto'`` is short for ``{'*': 'auto'}``."""


def some_bounds(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return bounds by text of an expression, a pair or 'auto'; empty where they are left out."""
    if given.get(name) == AUTO:
        return {ALL: AUTO}
    bounds: dict[str, Any] = {}
    for text, pair in _mapping(given, name).items():
        if pair == AUTO:
            bounds[text] = AUTO
            continue
        if text == ALL:
            raise ArgumentError(name, {text: pair}, "all expressions without bounds can be 'auto' only")
        if not isinstance(pair, list | tuple) or len(pair) != 2 or any(isinstance(end, bool) for end in pair):
            raise ArgumentError(name, {text: pair}, "lower and upper bound: {'cost': [0, 5000]}, or 'auto'")
        if not all(isinstance(end, int | float | str) for end in pair):
            raise ArgumentError(name, {text: pair}, "numbers, or dates as texts: {'cost': [0, 5000]}")
        bounds[text] = (pair[0], pair[1])
    return bounds


def some_rows(given: Mapping[str, Any], name: str) -> int | str | None:
    """Return a number of rows, 'auto', or None."""
    if isinstance(given.get(name), str) and given[name] != AUTO:
        raise ArgumentError(name, given[name], "a whole number from 1 on, or 'auto', is required")
    return AUTO if given.get(name) == AUTO else arguments.integer(given, name, 1, MOST_BOUND)


def _mapping(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = given.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ArgumentError(name, value, "'auto' or a struct of expressions is required: {'cost': [0, 5000]}")
    return dict(value)


def some_confidence(given: Mapping[str, Any], name: str) -> float | None:
    """Return a probability between .5 and 1, or None."""
    value = arguments.number(given, name)
    if value is not None and not 0.5 <= value < 1:
        raise ArgumentError(name, value, "must be at least 0.5 and below 1, e.g. confidence := 0.95")
    return value


@dataclass(frozen=True)
class QueryCall(Call):
    """Answer an aggregate query: noisy numbers for count, sum, avg, var, corr, median, ... by groups.

    The answer has the query's columns. HAVING, ORDER BY, LIMIT, other items and outer SELECTs work on released numbers and cost
    nothing more; so does any later query whose aggregates were bought. With confidence, each aggregate also has <name>_low and
    <name>_high.
    """

    name: ClassVar[str] = "query"
    function: ClassVar[str] = "query"
    privacy: ClassVar[str] = CHARGED
    gives: ClassVar[str] = "the columns of the query; with confidence also <name>_low, <name>_high of each aggregate"
    parametrized: ClassVar[str | None] = "sql"

    sql: str = argument(arguments.text, "A SELECT of aggregates over one protected table.", default=REQUIRED, python="str")
    epsilon: float | None = argument(
        some_epsilon, "Privacy loss of the answer; may be left out where it was bought before.", python="float | None"
    )
    delta: float | None = argument(some_delta, DELTA, python="float | None")
    groups: str | None = argument(
        optional(one_of(*GROUPS)),
        "'public': groups of declared values, all of them; 'private': those that enough units are in. By the keys, if left out.",
        python="str | None",
        choices=GROUPS,
    )
    max_groups: int | None = argument(
        whole(1, MOST_BOUND), "Groups that one unit counts in, at most, at random.", python="int | None"
    )
    max_rows_per_group: int | None = argument(
        whole(1, MOST_BOUND), "Rows of one unit that count in each of them, at most, at random.", python="int | None"
    )
    max_rows: int | str | None = argument(
        some_rows,
        "Rows of one unit that count in all, at most, at random; 'auto': learned from a histogram of rows per unit, for a tenth of "
        "the loss.",
        python="int | str | None",
        plain=True,
    )
    bounds: dict[str, Any] = argument(some_bounds, _BOUNDS, python="Mapping[str, Any] | str | None", plain=True)
    min_units: int | None = argument(
        whole(1, MOST_BOUND), "A private group has at least this many units.", python="int | None"
    )
    confidence: float | None = argument(
        some_confidence, "Intervals that hold the value without noise with this probability.", python="float | None"
    )
    mechanism: str = argument(
        one_of(*MECHANISMS), "'gaussian' or 'laplace' noise on integers.",
        default="gaussian", python="str", choices=MECHANISMS, null=False,
    )
    release: str | None = argument(optional(arguments.text), RELEASE, python="str | None")
    adaptive: bool = argument(
        flag,
        "true: a scalar subquery over protected rows is answered first, by a release of its own, and its number put into the text.",
        default=False,
        python="bool",
    )
    options: dict[str, Any] = argument(
        some_options,
        "{'weights': {'avg(cost)': 2}}: relative shares of the loss. {'bounds_share': 0.15}: of all learned bounds. {'cut': true}: "
        "counts, and sums of numbers of one sign, are cut at 0, for who shows single ones; added up they are then too high.",
        python="Mapping[str, Any] | None"
    )

    @property
    def weights(self) -> dict[str, float]:
        """Relative shares of the loss, by the text of an aggregate."""
        unknown = set(self.options) - {"weights", "bounds_share", "cut"}
        if unknown:
            raise ArgumentError("options", sorted(unknown), "dp_query has the options 'weights', 'bounds_share' and 'cut' alone")
        weights = self.options.get("weights") or {}
        if not isinstance(weights, Mapping):
            raise ArgumentError("options", {"weights": weights}, "a struct of aggregates: {'weights': {'avg(cost)': 2}}")
        for text, weight in weights.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < 1e6:
                raise ArgumentError("options", {"weights": {text: weight}}, "a weight is a number above 0 and below 1e6")
        return {str(text): float(weight) for text, weight in weights.items()}

    @property
    def cut(self) -> bool:
        """Whether counts, and sums of what has one sign, are cut at 0: single numbers look better, and no longer add up."""
        cut = self.options.get("cut", False)
        if not isinstance(cut, bool):
            raise ArgumentError("options", {"cut": cut}, "true or false")
        return cut

    @property
    def learns_rows(self) -> bool:
        """Whether how many rows of a unit count is to be learned."""
        return self.max_rows == AUTO

    @property
    def auto(self) -> tuple[str, ...]:
        """Texts of expressions whose bounds are to be learned; `ALL` for those that have none."""
        return tuple(text for text, pair in self.bounds.items() if pair == AUTO)

    @property
    def stated_bounds(self) -> dict[str, tuple[Any, Any]]:
        """Bounds that are given."""
        return {text: pair for text, pair in self.bounds.items() if pair != AUTO}

    @property
    def bounds_share(self) -> float:
        """Share of the loss that learned bounds have."""
        share = self.options.get("bounds_share")
        if share is None:
            return BOUNDS_SHARE if self.auto else NARROWING_SHARE[self.mechanism]
        number = isinstance(share, int | float | Decimal) and not isinstance(share, bool)
        if not number or not 0.01 <= float(share) <= 0.9:
            raise ArgumentError("options", {"bounds_share": share}, "a share of the loss is a number from 0.01 to 0.9")
        return float(share)


@dataclass(frozen=True)
class QueryExactCall(Call):
    """Answer an aggregate query without noise.

    Rows are bounded, values clipped and the query is split as dp_query does: to see what bounding and clipping do, apart from the
    noise. What is chosen at random (rows of a unit with many) is chosen anew by every call. Groups that are not public are all
    shown, from min_units units on.
    """

    name: ClassVar[str] = "query_exact"
    function: ClassVar[str] = "query_exact"
    privacy: ClassVar[str] = NOT_PRIVATE
    gives: ClassVar[str] = "the columns of the query"
    parametrized: ClassVar[str | None] = "sql"

    sql: str = argument(arguments.text, "A SELECT of aggregates over one protected table.", default=REQUIRED, python="str")
    groups: str | None = argument(optional(one_of(*GROUPS)), "As of dp_query.", python="str | None", choices=GROUPS)
    max_groups: int | None = argument(whole(1, MOST_BOUND), "As of dp_query.", python="int | None")
    max_rows_per_group: int | None = argument(whole(1, MOST_BOUND), "As of dp_query.", python="int | None")
    max_rows: int | None = argument(
        whole(1, MOST_BOUND), "As of dp_query, but nothing is learned: without a number as many count as may.", python="int | None"
    )
    bounds: dict[str, tuple[Any, Any]] = argument(
        some_bounds, "As of dp_query.", python="Mapping[str, Sequence[float]] | None", plain=True
    )
    min_units: int | None = argument(whole(1, MOST_BOUND), "As of dp_query.", python="int | None")

    def as_query(self) -> QueryCall:
        """Return the query that is answered."""
        return QueryCall(
            self.sql, groups=self.groups, max_groups=self.max_groups, max_rows_per_group=self.max_rows_per_group,
            max_rows=self.max_rows, bounds=self.bounds,
            min_units=self.min_units,
        )


@dataclass(frozen=True)
class SummarizeCall(Call):
    """Summarize every declared column, as DuckDB's SUMMARIZE does, privately: one release for all of them.

    Numbers: extremes (as extreme quantiles), mean, standard deviation, quartiles, counts. Categories: how many of the declared
    values occur, counts. What a column has no such statistic for is NULL.
    """

    name: ClassVar[str] = "summarize"
    function: ClassVar[str] = "summarize"
    privacy: ClassVar[str] = CHARGED
    gives: ClassVar[str] = (
        "column_name, column_type, min, max (as VARCHAR), approx_unique, avg, std, q25, q50, q75 (as VARCHAR), count, "
        "null_percentage"
    )

    source: str = argument(arguments.text, SOURCE, default=REQUIRED, python="str")
    epsilon: float | None = argument(
        some_epsilon, "Privacy loss of all of it; may be left out where it was bought before.", python="float | None"
    )
    delta: float | None = argument(some_delta, DELTA, python="float | None")
    columns: tuple[str, ...] | None = argument(some_columns, COLUMNS, python="Sequence[str] | None")
    release: str | None = argument(optional(arguments.text), RELEASE, python="str | None")


@dataclass(frozen=True)
class ExplainCall(Call):
    """Tell in words what the answer of a query is made of.

    What was bounded, selected and clipped, how large the noise is, why a group may be missing.
    """

    name: ClassVar[str] = "explain"
    function: ClassVar[str] = "explain"
    privacy: ClassVar[str] = FREE
    gives: ClassVar[str] = "about VARCHAR, explanation VARCHAR"

    release: str = argument(arguments.text, STORED, default=REQUIRED, python="str")
