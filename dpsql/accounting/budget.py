"""Budgets, charges, and whether one more release fits. Pure: the books themselves are elsewhere.

**'basic'** adds epsilon and delta of the releases.

**'zcdp'** (the default) adds what the rules of ``dpsql.accounting.rules`` need: the rho of all events, that of the
Gaussian ones, the epsilons of the others, and the deltas of selections and thresholds. The rules, and the proof that they are a
filter, are there.

Privacy: nothing in here sees data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from dpsql.accounting.checks import checked_accountant, checked_guarantee
from dpsql.accounting.composition import pure_epsilon
from dpsql.accounting.cost import Cost, cost_of, sum_of
from dpsql.accounting.events import Event, GaussianEvent, LaplaceEvent, PureEvent, RangeEvent, SelectionEvent, ThresholdEvent
from dpsql.accounting.exact import round_up, total
from dpsql.accounting.gaussian import gaussian_epsilon
from dpsql.accounting.rules import allows, float_up, least_epsilon, mu_of, selection_share
from dpsql.accounting.zcdp import zcdp_epsilon
from dpsql.errors import ArgumentError, CalibrationError


@dataclass(frozen=True)
class Budget:
    """The hard limit of a source.

    Parameters
    ----------
    epsilon, delta : Decimal (or float, read as the decimal it prints as)
        epsilon > 0; delta in (0, 1) under 'zcdp', in [0, 1) under 'basic'. Rounded down to 24 and 37 places.
    accountant : {'zcdp', 'basic'}

    Raises
    ------
    ArgumentError
        Something is out of range.
    """

    epsilon: Decimal
    delta: Decimal
    accountant: str = "zcdp"

    def __post_init__(self) -> None:
        checked_accountant(self.accountant)
        epsilon, delta = checked_guarantee(self.epsilon, self.delta, self.accountant)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)


@dataclass(frozen=True)
class Charge:
    """What one release costs.

    Parameters
    ----------
    rho : Decimal
        Cost under 'zcdp', rounded up; shown only under 'basic'.
    epsilon, delta : Decimal
        Under 'basic' what is charged. Under 'zcdp' the guarantee that this release alone has, for display.
    gaussian : bool
        Whether every event is Gaussian.
    events : tuple of Event
        Where there are none and ``gaussian`` is false, no more is known than rho.

    Raises
    ------
    ArgumentError
        A cost is negative or not finite, or ``gaussian`` contradicts the events.
    """

    rho: Decimal
    epsilon: Decimal
    delta: Decimal
    gaussian: bool
    events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        for name in ("rho", "epsilon", "delta"):
            amount = getattr(self, name)
            if not isinstance(amount, Decimal) or not amount.is_finite() or amount < 0:
                raise ArgumentError(name, amount, "a charge must be a finite decimal of at least 0")
        if self.events and self.gaussian is not all(event.gaussian for event in self.events):
            raise ArgumentError("gaussian", self.gaussian, "must say whether every event is Gaussian")

    @cached_property
    def cost(self) -> Cost:
        """What the 'zcdp' accountant adds; it follows from rho and the events."""
        return cost_of(self.rho, self.gaussian, self.events)


class Charges(tuple[Charge, ...]):
    """Charges that know what they add up to: one more is added to the sums, and not all of them again.

    Examples
    --------
    >>> one = charge_for([PureEvent(Fraction(1, 10), 1)], delta=0, accountant="basic")
    >>> Charges([one]).plus([one, one]).epsilon
    Decimal('0.300000000000000000000000')
    """

    @cached_property
    def cost(self) -> Cost:
        """What the 'zcdp' accountant adds, exactly."""
        return sum_of(charge.cost for charge in self)

    @cached_property
    def epsilon(self) -> Decimal:
        """What the 'basic' accountant adds, exactly."""
        return total(charge.epsilon for charge in self)

    @cached_property
    def delta(self) -> Decimal:
        """What the 'basic' accountant adds beside it, exactly."""
        return total(charge.delta for charge in self)

    def plus(self, more: Sequence[Charge]) -> Charges:
        """Return these and more."""
        made, added = Charges((*self, *more)), Charges(more)
        made.__dict__ |= {
            "cost": sum_of([self.cost, added.cost]),
            "epsilon": total([self.epsilon, added.epsilon]),
            "delta": total([self.delta, added.delta]),
        }
        return made


def charges_of(charges: Sequence[Charge]) -> Charges:
    """Return charges with their sums: the same ones where they have them."""
    return charges if isinstance(charges, Charges) else Charges(charges)


def charge_for(events: Sequence[Event], *, delta: object, accountant: str, epsilon: object = None) -> Charge:
    """Return what a release with these events costs.

    Parameters
    ----------
    events : sequence of Event
        Everything the release does to the data; at least one.
    delta : float or Decimal
        Of the release, with that of its selections: under 'zcdp' that of the source.
    accountant : {'zcdp', 'basic'}
        Of the ledger.
    epsilon : float or Decimal, optional
        A guarantee that these events are known to have at ``delta`` (calibrated for it). The charge is then not above
        it.

    Returns
    -------
    Charge
        rho and epsilon rounded up. Under 'zcdp' epsilon is that of the smallest budget which the release fits alone,
        and delta the budget's; or the plain sum of the epsilons, with no delta but that of selections, where it is
        not larger. Under 'basic' delta is what was given, or what the selections take if that is more.

    Raises
    ------
    ArgumentError
        No event, or delta out of range (Gaussian events need one above 0).
    CalibrationError
        The selections of a release with Gaussian noise take more than their share of delta, under 'zcdp'.

    Notes
    -----
    Privacy: 'basic' charges the exact epsilon of Gaussian events or of equal pure events at ``delta``, the zCDP
    conversion of a mixture, and adds epsilon and delta of selections, and delta of thresholds: with d their sum, P(A) <= d +
    (1 - d) (e^epsilon Q*(A) + rest) <= e^epsilon Q(A) + rest + d, where Q* is Q given tails (``ThresholdEvent``).
    """
    checked_accountant(accountant)
    if not events:
        raise ArgumentError("events", events, "a release does at least one thing to the data")
    rho = round_up(sum((event.rho for event in events), Fraction(0)))
    gaussian = all(event.gaussian for event in events)
    known, held_delta = checked_guarantee(1 if epsilon is None else epsilon, delta, accountant)
    cost = cost_of(rho, gaussian, events)
    if accountant == "zcdp":
        amount, spent = _alone(cost, held_delta, known if epsilon is not None else None)
    else:
        spent = max(held_delta, cost.selection_delta)
        amount = _basic_epsilon(events, float(held_delta), cost.selection_delta) if epsilon is None else known
    return Charge(rho=rho, epsilon=amount, delta=spent, gaussian=gaussian, events=tuple(events))


def _alone(cost: Cost, delta: Decimal, known: Decimal | None) -> tuple[Decimal, Decimal]:
    """Return the guarantee (epsilon, delta) of a release alone, under 'zcdp'; ``known`` is one at ``delta``."""
    epsilon = least_epsilon(cost, delta)
    best = known if math.isinf(epsilon) else round_up(Fraction(epsilon))
    # Asked for and accounted: of two proofs of the same release the smaller epsilon holds.
    if known is not None and best is not None:
        best = min(best, known)
    # A pure event alone has no use for a delta but that of its selections.
    if cost.pure_only and (best is None or cost.pure_epsilon <= best):
        return cost.pure_epsilon, cost.selection_delta
    if best is None:
        share = float(selection_share(delta))
        raise CalibrationError(
            f"delta = {float(cost.selection_delta):.6g} of the selections: next to Gaussian noise they can have "
            f"{share:.6g} at most, 0.003 of the source's delta"
        )
    return best, delta


def _basic_epsilon(events: Sequence[Event], delta: float, selection: Decimal) -> Decimal:
    """Return the epsilon of events at delta, rounded up, for 'basic' composition of releases."""
    selections = [event for event in events if isinstance(event, (SelectionEvent, ThresholdEvent))]
    others = [event for event in events if not isinstance(event, (SelectionEvent, ThresholdEvent))]
    chosen = sum((event.epsilon * event.count for event in selections), Fraction(0))
    if not others:
        return round_up(chosen)
    rest = math.nextafter(delta - float_up(selection), 0) if selections else delta
    return total([round_up(chosen), _composed_epsilon(others, max(0.0, rest))])


def _composed_epsilon(events: Sequence[GaussianEvent | LaplaceEvent | PureEvent | RangeEvent], delta: float) -> Decimal:
    """Return the epsilon of events that are no selections at delta, rounded up."""
    pure = [event for event in events if not isinstance(event, GaussianEvent)]
    rho = round_up(sum((event.rho for event in events), Fraction(0)))
    if len(pure) < len(events) and delta == 0:
        raise ArgumentError("delta", delta, "Gaussian noise needs a delta above 0, e.g. delta := 1e-10")
    if not pure:
        return round_up(Fraction(gaussian_epsilon(mu_of(rho), delta)))
    # Beside Gaussian noise pure events are accounted by their rho; among themselves there may be something better.
    concentrated = zcdp_epsilon(float_up(rho), delta)
    if len(pure) < len(events):
        return round_up(Fraction(concentrated))
    plain = round_up(sum((event.epsilon * event.count for event in pure), Fraction(0)))
    if delta == 0:
        return plain
    # Of equal pure events the exact composition is known.
    each = {event.epsilon for event in pure}
    if len(each) == 1:
        count = sum(event.count for event in pure)
        return min(plain, round_up(Fraction(pure_epsilon(count, float(each.pop()) * (1 + 1e-15), delta))))
    return min(plain, round_up(Fraction(concentrated)))


class Guarantee(NamedTuple):
    """What is known about everything in the books together, at the budget's delta, had it been fixed beforehand.

    epsilon is a guarantee where the number of releases and their noise were fixed before the first one was seen; what is asked
    of each may be chosen by what was seen. Where it was decided by what was seen when to stop, or how much to buy next, it is a
    figure and not a guarantee (somebody who stops in the best moment reaches a delta that is several times the budget's). What
    holds then, and always, is the limit: the budget's own epsilon.
    """

    epsilon: float
    rho: Decimal


def together(charges: Sequence[Charge]) -> Cost:
    """Return the exact sum of what charges cost under 'zcdp'."""
    return charges_of(charges).cost


def total_guarantee(budget: Budget, charges: Sequence[Charge]) -> Guarantee:
    """Return what all charges guarantee together if they were fixed beforehand; see `Guarantee`.

    Returns
    -------
    Guarantee
        epsilon, rounded up but never above the budget's where the charges fit it; rho, the exact sum.

    Notes
    -----
    Privacy: under 'zcdp' the epsilon of the smallest budget of the same delta that the charges would fit; inf where
    selections need more than their share of delta.
    """
    cost = together(charges)
    if not charges:
        return Guarantee(0.0, cost.rho)
    if budget.accountant == "basic":
        return Guarantee(float(charges_of(charges).epsilon), cost.rho)
    epsilon = least_epsilon(cost, budget.delta)
    return Guarantee(min(epsilon, float(budget.epsilon)) if fits(budget, charges) else epsilon, cost.rho)


def fits(budget: Budget, charges: Sequence[Charge], *new: Charge) -> bool:
    """Return whether the budget covers these charges and new ones, together.

    Parameters
    ----------
    budget : Budget
    charges : sequence of Charge
        Everything that counts: refunded charges are not among them.
    *new : Charge

    Notes
    -----
    Privacy: this is the filter; see the head of ``dpsql.accounting.rules``.
    """
    spent = charges_of(charges)
    spent = spent.plus(new) if new else spent
    if budget.accountant == "basic":
        return spent.epsilon <= budget.epsilon and spent.delta <= budget.delta
    return allows(spent.cost, budget.epsilon, budget.delta)
