"""What a charge costs under every rule of the filter, each number rounded up; the rules: `dpsql.accounting.rules`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from dpsql.accounting.events import Event, GaussianEvent, RangeEvent, SelectionEvent, ThresholdEvent
from dpsql.accounting.exact import DELTA_PLACES, round_up, total
from dpsql.accounting.gaussian import gdp_of_pure

NOTHING = Decimal(0)

_UNKNOWN = Decimal("Infinity")


class Cost(NamedTuple):
    """What the rules add up, each rounded up.

    ``rho`` of all events (zCDP), ``gaussian_rho`` of the Gaussian ones alone, ``pure_epsilon``, the plain sum of the
    epsilons of all others (infinite where the events are not known), ``selection_delta`` of selections and thresholds, and
    ``gdp_rho``, the mu^2 / 2 of all events (infinite where they are not known).
    """

    rho: Decimal
    gaussian_rho: Decimal
    pure_epsilon: Decimal
    selection_delta: Decimal
    gdp_rho: Decimal = _UNKNOWN

    @property
    def gaussian_only(self) -> bool:
        """Whether there is nothing but Gaussian events (and thresholds)."""
        return self.pure_epsilon == 0

    @property
    def gdp(self) -> Decimal:
        """What rule G adds up; infinite where it is not asked: for pure events alone."""
        if self.gaussian_only:
            return self.rho
        return _UNKNOWN if self.pure_only else self.gdp_rho

    @property
    def pure_only(self) -> bool:
        """Whether there is no Gaussian event."""
        return self.gaussian_rho == 0


def cost_of(rho: Decimal, gaussian: bool, events: Sequence[Event]) -> Cost:
    """Return what a charge costs: of this rho, for these events (all Gaussian, if ``gaussian``; unknown, if none).

    Examples
    --------
    >>> from dpsql.accounting.events import PureEvent
    >>> cost_of(Decimal("0.02"), False, [PureEvent(Fraction(1, 10), 4)]).pure_epsilon
    Decimal('0.400000000000000000000000')
    """
    if gaussian:
        return Cost(rho, rho, NOTHING, NOTHING, rho)
    if not events:
        return Cost(rho, rho, _UNKNOWN, NOTHING)
    normal = sum((e.rho for e in events if isinstance(e, GaussianEvent)), Fraction(0))
    pure = sum((e.epsilon * e.count for e in events if not isinstance(e, GaussianEvent)), Fraction(0))
    selections = sum((e.delta * e.count for e in events if isinstance(e, (SelectionEvent, ThresholdEvent))), Fraction(0))
    others = (e for e in events if not isinstance(e, (GaussianEvent, ThresholdEvent)))
    gdp = normal + sum((gdp_of(e) for e in others), Fraction(0))
    return Cost(rho, round_up(normal), round_up(pure), round_up(selections, DELTA_PLACES), round_up(gdp))


def gdp_of(event: Event) -> Fraction:
    """Return the mu^2 / 2 that rule G adds for an event, rounded up."""
    if isinstance(event, GaussianEvent):
        return event.rho
    return event.count * gdp_of_pure(event.epsilon / 2 if isinstance(event, RangeEvent) else event.epsilon)


def sum_of(costs: Iterable[Cost]) -> Cost:
    """Return the exact sum of costs."""
    listed = list(costs)
    return Cost(*(total(cost[i] for cost in listed) for i in range(len(Cost._fields))))
