"""The call that buys a synthetic database: a table and all that are linked to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dpsql.accounting import CALIBRATIONS, MECHANISMS
from dpsql.calls import arguments
from dpsql.calls.buying import BuyingCall
from dpsql.calls.declaration import CHARGED, REQUIRED, argument, flag, optional, some_delta, some_epsilon, some_options, whole
from dpsql.calls.stored import MAX_ROWS, MAX_SEED
from dpsql.calls.words import DELTA, EPSILON, INTO_SCHEMA, RELEASE, SEED, UNITS
from dpsql.errors import ArgumentError

OPTIONS: dict[str, Any] = {"mechanism": "gaussian", "accountant": None, "fine": "auto", "effort": "balanced"}
"""Options with their defaults: the noise, how it is calibrated, the loss of fine histograms, how long the model is fitted."""
EFFORTS = ("fast", "balanced", "best")


@dataclass(frozen=True)
class SynthesizeTablesCall(BuyingCall):
    """Buy a synthetic database: copies of a protected table and of all tables that are linked to it.

    They are called as the source's tables, with new keys: every row's parent is there, families are as large as released, and the
    constraints of the source that keys and declared columns can keep hold. All tables are written in one transaction, or none.
    The schema is made where it is not there; tables that an earlier call made in it are replaced. Columns without a domain are
    left out. One row of the answer for each table: table_name, rows, parent, release.
    """

    name: ClassVar[str] = "synthesize_tables"
    function: ClassVar[str] = "synthesize_tables"
    operation: ClassVar[str] = "synthesize_tables"
    privacy: ClassVar[str] = CHARGED
    gives: ClassVar[str] = "table_name, rows BIGINT, parent, release; a row per table, parents first"

    source: str = argument(
        arguments.text, "The protected table whose rows are the units; dp_link links others to it.", default=REQUIRED, python="str"
    )
    epsilon: float | None = argument(some_epsilon, EPSILON, python="float | None")
    into_schema: str | None = argument(optional(arguments.text), INTO_SCHEMA, python="str", needed=True)
    delta: float | None = argument(some_delta, DELTA, python="float | None")
    units: int | None = argument(whole(1, MAX_ROWS), UNITS, python="int | None")
    seed: int | None = argument(whole(0, MAX_SEED), SEED, python="int | None")
    independent: bool = argument(
        flag,
        "A baseline: each table by itself, with as many rows a parent row as released, given to parents at random.",
        default=False,
        python="bool",
    )
    options: dict[str, Any] = argument(
        some_options,
        "mechanism ('gaussian' or 'laplace'), accountant (of its calibration), fine (part of the loss of fine histograms), effort "
        "('fast', 'balanced' or 'best'), as a struct.",
        python="Mapping[str, Any] | None",
    )
    release: str | None = argument(optional(arguments.text), RELEASE, python="str | None")

    @property
    def columns(self) -> None:
        """None: all declared columns of all tables are measured."""
        return

    @property
    def guessed_rows(self) -> int | None:
        """The number of units that is asked for."""
        return self.units

    def canonical(self) -> dict[str, Any]:
        """Return noise, effort, cost, and whether tables are independent.

        Raises
        ------
        ArgumentError
            There is no such option, or it has no such value.
        """
        options = dict(OPTIONS)
        for key, value in self.options.items():
            if key not in options:
                raise ArgumentError("options", {key: value}, f"no such option; there are {', '.join(map(repr, options))}")
            options[key] = value
        arguments.choice(options, "mechanism", MECHANISMS)
        arguments.choice(options, "effort", EFFORTS)
        if options["accountant"] is not None:
            arguments.choice(options, "accountant", CALIBRATIONS[options["mechanism"]])
        shared = self._shared()
        del shared["columns"]
        return {**shared, "options": options, "independent": self.independent}

    def completed(self, bought: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a purchase; an older dpsql made no independent tables."""
        return {"independent": False, **super().completed(bought)}
