"""Privacy events: what was done to the data, as parameters. The books store them; their meaning never changes.

An event describes a mechanism completely as far as privacy is concerned: noise, sensitivity, number of tables. It
does not say how the mechanism is implemented. An event that this version does not know is refused, never guessed.

Privacy: events are public.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as fields_of
from fractions import Fraction
from typing import Any, ClassVar

from dpsql.accounting.checks import positive, whole
from dpsql.accounting.gaussian import MINIMUM_VARIANCE, effective_variance
from dpsql.accounting.other_events import RangeEvent, ThresholdEvent
from dpsql.accounting.zcdp import rho_of_pure
from dpsql.errors import ArgumentError, CalibrationError, LedgerError

NEIGHBORS = ("add_remove", "replace_one")


def sensitivities(neighbors: str, max_contributions: int = 1) -> tuple[float, float]:
    """Return the L1 and L2 sensitivity of one contingency table over disjoint cells.

    Parameters
    ----------
    neighbors : {'add_remove', 'replace_one'}
    max_contributions : int, >= 1
        Rows that one privacy unit has at most in what is counted.

    Returns
    -------
    l1, l2 : float
        add_remove: (C, C), all rows of a unit may fall into one cell. replace_one: (2 C, sqrt(2) C), C rows leave a
        cell and C rows enter another. The root is rounded up.

    Raises
    ------
    ArgumentError
        Unknown relation, or fewer than one row.

    Examples
    --------
    >>> sensitivities("add_remove"), sensitivities("replace_one", 3)
    ((1.0, 1.0), (6.0, 4.242640687119286))
    """
    rows = whole("max_contributions", max_contributions, "must be a whole number of rows, at least 1")
    if neighbors == "add_remove":
        return float(rows), float(rows)
    if neighbors != "replace_one":
        raise ArgumentError("neighbors", neighbors, f"must be one of {', '.join(map(repr, NEIGHBORS))}")
    square = 2 * rows * rows
    root = math.sqrt(square)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return 2.0 * rows, root


def _count(value: int) -> int:
    return whole("count", value, "must be a number of mechanisms, at least 1")


@dataclass(frozen=True)
class GaussianEvent:
    """``count`` tables of integers, each with an independent discrete Gaussian draw on every cell.

    Parameters
    ----------
    sigma : Fraction
        Parameter of the noise, P(x) proportional to exp(-x^2 / 2 sigma^2); sigma at least 0.1.
    l2_sensitivity : float
        L2 distance of one table between neighbours, at most.
    count : int
        Number of tables, whose sensitivities may all be reached at once.

    Raises
    ------
    ArgumentError
        A parameter is not positive.
    CalibrationError
        sigma is too small for the accounting of integer noise.
    """

    sigma: Fraction
    l2_sensitivity: float = 1.0
    count: int = 1
    kind: ClassVar[str] = "gaussian"
    gaussian: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", positive("sigma", self.sigma))
        object.__setattr__(self, "l2_sensitivity", float(positive("l2_sensitivity", self.l2_sensitivity)))
        object.__setattr__(self, "count", _count(self.count))
        if self.sigma**2 < MINIMUM_VARIANCE:
            raise CalibrationError(
                f"sigma = {float(self.sigma):.6g}: discrete Gaussian noise is accounted for from sigma = 0.1 "
                "upwards; use at least that, or mechanism := 'laplace'"
            )

    @property
    def rho(self) -> Fraction:
        """Cost, exact: mu^2 / 2 for the mu-GDP of all tables together, which is also at least their zCDP parameter.

        Privacy: see the head of ``dpsql.accounting.gaussian``; the zCDP parameter is count l2^2 / (2 sigma^2)
        (Canonne et al. 2020).
        """
        return self.count * Fraction(self.l2_sensitivity) ** 2 / (2 * effective_variance(self.sigma**2))

    def to_json(self) -> dict[str, Any]:
        """Return plain values that ``event_from_json`` reads back, exactly."""
        return {
            "event": self.kind,
            "sigma": str(self.sigma),
            "l2_sensitivity": self.l2_sensitivity,
            "count": self.count,
        }


@dataclass(frozen=True)
class LaplaceEvent:
    """``count`` tables of integers, each with an independent discrete Laplace draw on every cell.

    Parameters
    ----------
    scale : Fraction
        b of the noise, P(x) proportional to exp(-|x| / b).
    l1_sensitivity : float
        L1 distance of one table between neighbours, at most.
    count : int
        Number of tables, whose sensitivities may all be reached at once.

    Raises
    ------
    ArgumentError
        A parameter is not positive.
    """

    scale: Fraction
    l1_sensitivity: float = 1.0
    count: int = 1
    kind: ClassVar[str] = "laplace"
    gaussian: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", positive("scale", self.scale))
        object.__setattr__(self, "l1_sensitivity", float(positive("l1_sensitivity", self.l1_sensitivity)))
        object.__setattr__(self, "count", _count(self.count))

    @property
    def epsilon(self) -> Fraction:
        """Pure epsilon of one table, exact: l1 / b."""
        return Fraction(self.l1_sensitivity) / self.scale

    @property
    def rho(self) -> Fraction:
        """Cost in zCDP, rounded up."""
        return self.count * rho_of_pure(self.epsilon)

    def to_json(self) -> dict[str, Any]:
        """Return plain values that ``event_from_json`` reads back, exactly."""
        return {
            "event": self.kind,
            "scale": str(self.scale),
            "l1_sensitivity": self.l1_sensitivity,
            "count": self.count,
        }


@dataclass(frozen=True)
class PureEvent:
    """``count`` mechanisms, each epsilon-DP, whatever they do (an exponential mechanism, say).

    Parameters
    ----------
    epsilon : Fraction
        Of each of them.
    count : int

    Raises
    ------
    ArgumentError
        A parameter is not positive.
    """

    epsilon: Fraction
    count: int = 1
    kind: ClassVar[str] = "pure"
    gaussian: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon))
        object.__setattr__(self, "count", _count(self.count))

    @property
    def rho(self) -> Fraction:
        """Cost in zCDP, rounded up."""
        return self.count * rho_of_pure(self.epsilon)

    def to_json(self) -> dict[str, Any]:
        """Return plain values that ``event_from_json`` reads back, exactly."""
        return {"event": self.kind, "epsilon": str(self.epsilon), "count": self.count}


@dataclass(frozen=True)
class SelectionEvent:
    """``count`` mechanisms, each epsilon-DP but for outputs of probability at most delta (stable selection).

    Each is (epsilon, delta)-DP, in both directions: for any two neighbours there is a set B of outputs that has probability at
    most delta on each of them, and outside of B probabilities differ by factors of at most exp(epsilon).

    Parameters
    ----------
    epsilon : Fraction
        Of each of them.
    delta : Fraction, below 1
        Of each of them.
    count : int

    Raises
    ------
    ArgumentError
        A parameter is out of range.
    """

    epsilon: Fraction
    delta: Fraction
    count: int = 1
    kind: ClassVar[str] = "selection"
    gaussian: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", positive("delta", self.delta))
        object.__setattr__(self, "count", _count(self.count))
        if self.delta >= 1:
            raise ArgumentError("delta", float(self.delta), "must be above 0 and below 1")

    @property
    def rho(self) -> Fraction:
        """Cost in zCDP, rounded up, beside delta: that of a pure event of this epsilon (``dpsql.accounting.rules``)."""
        return self.count * rho_of_pure(self.epsilon)

    def to_json(self) -> dict[str, Any]:
        """Return plain values that ``event_from_json`` reads back, exactly."""
        return {"event": self.kind, "epsilon": str(self.epsilon), "delta": str(self.delta), "count": self.count}


Event = GaussianEvent | LaplaceEvent | PureEvent | SelectionEvent | RangeEvent | ThresholdEvent
"""Any event; ``isinstance`` works on it."""

_KINDS: dict[
    str,
    type[GaussianEvent] | type[LaplaceEvent] | type[PureEvent] | type[SelectionEvent] | type[RangeEvent] | type[ThresholdEvent],
] = {
    GaussianEvent.kind: GaussianEvent,
    LaplaceEvent.kind: LaplaceEvent,
    PureEvent.kind: PureEvent,
    SelectionEvent.kind: SelectionEvent,
    RangeEvent.kind: RangeEvent,
    ThresholdEvent.kind: ThresholdEvent,
}
_FRACTIONS = ("sigma", "scale", "epsilon", "delta")


def event_from_json(item: Mapping[str, Any]) -> Event:
    """Read what an event's ``to_json`` wrote.

    Raises
    ------
    LedgerError
        The kind of event or one of its fields is not known to this version, or a field is missing or damaged.

    Examples
    --------
    >>> event_from_json({"event": "pure", "epsilon": "1/2", "count": 3})
    PureEvent(epsilon=Fraction(1, 2), count=3)
    """
    fields = dict(item)
    name = fields.pop("event", None)
    kind = _KINDS.get(name) if isinstance(name, str) else None
    advice = "open the books with a newer dpsql"
    if kind is None:
        raise LedgerError(f"event = {name!r}: this version knows {', '.join(map(repr, _KINDS))}; {advice}")
    expected = {field.name for field in fields_of(kind)}
    if set(fields) != expected:
        raise LedgerError(f"event {name!r} has fields {sorted(fields)!r}, expected are {sorted(expected)!r}; {advice}")
    try:
        values: dict[str, Any] = {key: Fraction(v) if key in _FRACTIONS else v for key, v in fields.items()}
        return kind(**values)
    except (ArgumentError, CalibrationError, TypeError, ValueError, ZeroDivisionError) as error:
        raise LedgerError(f"event {name!r} is damaged: {error}") from None


__all__ = ["NEIGHBORS", "Event", "GaussianEvent", "LaplaceEvent", "PureEvent", "RangeEvent", "SelectionEvent", "ThresholdEvent",
           "event_from_json", "sensitivities"]
