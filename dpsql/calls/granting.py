"""The call that says what analysts of a served database may spend and read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dpsql.calls import arguments
from dpsql.calls.declaration import FREE, Call, argument, flag, one_of, optional, some_columns
from dpsql.errors import ArgumentError
from dpsql.text.names import is_analyst

RENEWALS = ("month", "week")


def some_analyst(given: Mapping[str, Any], name: str) -> str | None:
    """Return the name of an analyst, None where it is left out."""
    analyst = None if given.get(name) is None else arguments.text(given, name)
    if analyst is not None and not is_analyst(analyst):
        raise ArgumentError(name, analyst, "letters, digits, '_', '-' and '.' are allowed, at most 63, a letter or digit first")
    return analyst


def some_limit(given: Mapping[str, Any], name: str) -> float | None:
    """Return a limit of epsilon above 0, at most 1000; None where it is left out."""
    limit = arguments.number(given, name)
    if limit is not None and not 0 < limit <= 1000:
        raise ArgumentError(name, limit, "a number above 0 (and at most 1000) is required")
    return limit


@dataclass(frozen=True)
class GrantCall(Call):
    """Say what an analyst of a served database may spend of a protected table, or show what was said.

    A grant is a part of the table's own budget, which stays the limit of all analysts together. What she buys counts against both,
    what others have bought before counts against her grant alone. A later grant takes the place of the one before; what she has
    spent stays spent. Without epsilon nothing is changed: the grants in force are listed.
    """

    name: ClassVar[str] = "grant"
    function: ClassVar[str] = "grant"
    privacy: ClassVar[str] = f"{FREE}; no row is read"
    gives: ClassVar[str] = (
        "source, analyst, epsilon, per_query, renew, renews_on, epsilon_spent, epsilon_left, releases, methods, columns, change; "
        "a row a grant"
    )

    source: str | None = argument(
        optional(arguments.text), "The protected table: its name; where grants are listed, those of all tables, if left out.",
        python="str | None",
    )
    analyst: str | None = argument(some_analyst, "Her name, as in analysts.toml; all, if left out.", python="str | None")
    epsilon: float | None = argument(some_limit, "The limit of what she spends within a window.", python="float | None")
    per_query: float | None = argument(
        some_limit,
        "The limit of one call, and the most that a query costs that does not say; else that is at most a tenth of epsilon.",
        python="float | None",
    )
    renew: str | None = argument(
        optional(one_of(*RENEWALS)),
        "The window: each calendar 'month' or ISO 'week' in UTC; for ever, if left out.",
        python="str | None",
        choices=RENEWALS,
    )
    methods: tuple[str, ...] | None = argument(
        some_columns, "Calls ('dp_query') and synthesizers ('latent_class') that she may buy with; all, if left out.",
        python="Sequence[str] | None",
    )
    columns: tuple[str, ...] | None = argument(
        some_columns, "Columns that she may read, also in WHERE; all, if left out.", python="Sequence[str] | None"
    )
    remove: bool = argument(flag, "true: the grant is taken back.", default=False, python="bool")

