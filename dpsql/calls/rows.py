"""The calls that give rows: synthetic ones, which are bought, and made-up ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dpsql import methods
from dpsql.calls import arguments
from dpsql.calls.buying import BuyingCall, with_method
from dpsql.calls.declaration import (
    CHARGED,
    FREE,
    REQUIRED,
    Call,
    argument,
    optional,
    some_columns,
    some_delta,
    some_epsilon,
    some_options,
    whole,
)
from dpsql.calls.stored import MAX_ROWS, MAX_SEED
from dpsql.calls.words import COLUMNS, DELTA, EPSILON, OPTIONS, RELEASE, ROWS, SEED, SOURCE
from dpsql.methods.base import Method

MAX_DUMMY_ROWS = 100_000


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
    )

    @property
    def release_method(self) -> Method:
        """The method that was named, else the default."""
        return methods.get(methods.DEFAULT if self.method is None else self.method)

    def canonical(self) -> dict[str, Any]:
        """Return columns, method, its options and cost."""
        return with_method(self._shared(), self.release_method, self.options)

    @property
    def guessed_rows(self) -> int | None:
        """The number of synthetic rows."""
        return self.rows


@dataclass(frozen=True)
class DummyCall(Call):
    """Make up rows out of the declared domains alone, to try queries on before anything is bought.

    Names, order and types of the columns are the source's. Values lie in the declared domains and obey the rules, each column drawn
    by itself and uniform. The privacy unit is made up, with one row or several; a column without a domain is NULL.
    """

    name: ClassVar[str] = "dummy"
    function: ClassVar[str] = "dummy"
    privacy: ClassVar[str] = f"{FREE}; no row is read"
    gives: ClassVar[str] = "the columns of the source, in its types"

    source: str = argument(arguments.text, SOURCE, default=REQUIRED, python="str")
    rows: int = argument(whole(0, MAX_DUMMY_ROWS), f"Number of rows, at most {MAX_DUMMY_ROWS:,}.", default=1000, python="int")
    seed: int = argument(whole(0, MAX_SEED), SEED, default=0, python="int")
