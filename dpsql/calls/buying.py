"""The calls that buy: what each asks for in one form (`canonical`), by which a release is known again."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dpsql import methods
from dpsql.accounting import CALIBRATIONS, MECHANISMS
from dpsql.calls import arguments
from dpsql.calls.declaration import Call
from dpsql.errors import ArgumentError
from dpsql.methods.base import Method
from dpsql.text.names import fold

NOISE_OPTIONS: dict[str, Any] = {"mechanism": "gaussian", "accountant": None, "fine": "auto"}
"""Options of every method that measures noisy tables: the noise, how it is calibrated, and the loss of fine histograms.

By default the tightest calibration that the ledger accepts, and the part that `dpsql.kinds.fine` gives fine histograms.
"""


class BuyingCall(Call):
    """A call that buys a release, or finds the one it bought before."""

    operation: ClassVar[str]
    local: ClassVar[bool] = False
    """Whether its source may combine rows of one unit."""
    unsaid: ClassVar[tuple[str, ...]] = ()
    """What `canonical` has only where it is said: a purchase that says it is another one."""

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

    def differing(self, bought: Mapping[str, Any]) -> list[str]:
        """Return the parameters of a purchase that are not what the call says, beside those that it leaves to the purchase."""
        asked, stored = self.filled(bought).canonical(), self.completed(bought)
        return [name for name in (*asked, *(set(self.unsaid) - asked.keys())) if asked.get(name) != stored.get(name)]

    def spelled(self, columns: tuple[str, ...]) -> Self:
        """Return the call with its columns as the source spells and orders them."""
        return self.changed(columns=columns)

    def filled(self, bought: Mapping[str, Any]) -> Self:
        """Return the call with epsilon as it was bought where it is left out."""
        if self.epsilon is None and "epsilon" in bought:
            return self.changed(epsilon=bought["epsilon"])
        return self

    def completed(self, bought: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a purchase with the options that an older dpsql did not have: their default, as nobody asked."""
        parameters, method = dict(bought), self.release_method
        if method is not None and parameters.get("method") == method.name and isinstance(parameters.get("options"), dict):
            parameters["options"] = {**default_options(method), **parameters["options"]}
        return parameters

    @property
    def release_name(self) -> str:
        """The name of the release: the caller's, else the columns', else 'default'.

        So calls about other columns of a source are other releases without being named.

        Examples
        --------
        >>> from dpsql.calls.tables import MarginalsCall
        >>> MarginalsCall(source="t", columns=["Race", "age"]).release_name, MarginalsCall(source="t").release_name
        ('age race', 'default')
        """
        if self.release is not None:
            return self.release
        return "default" if self.columns is None else " ".join(sorted(fold(name) for name in self.columns))

    @property
    def digest(self) -> str:
        """What `canonical` says, in ten characters: the same question for the same price is the same release."""
        text = json.dumps(self.canonical(), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:10]

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


def default_options(method: Method) -> dict[str, Any]:
    """Return the options of a call with a method that states none."""
    return {**(NOISE_OPTIONS if methods.measures_tables(method) else {}), **method.options}


def with_method(shared: Mapping[str, Any], method: Method, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the canonical parameters of a call with a method; ``given``: the options that were stated."""
    options = default_options(method)
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
