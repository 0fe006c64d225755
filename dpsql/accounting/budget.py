r"""Budgets, charges, and the rule that says whether one more release fits. Pure: the books themselves are elsewhere.

**'basic'** adds epsilon and delta of the releases.

**'zcdp'** (the default) gives every release one number, rho, and compares the sum with a limit that depends on what
the books hold:

- only Gaussian events: the largest rho for which sqrt(2 rho)-GDP implies (epsilon, 0.99 delta), exactly
  (``gaussian_mu``);
- any other event among them: the largest rho for which rho-zCDP implies (epsilon, 0.01 delta) (``zcdp_rho``).

*Why this is valid*, also when every release is chosen after seeing the earlier ones, including whether it is
Gaussian. Take neighbours D, D' and any set E of transcripts of the whole interaction. Split E into E_G, transcripts
in which nothing but Gaussian events was paid for, and E_M, the rest. (G) Let the interaction be halted at the first
request that is not Gaussian. What is left is a sequence of GDP mechanisms whose sum of mu^2 never passes twice the
first limit: a GDP filter (see ``dpsql.accounting.gaussian``). On E_G it gives the same probabilities as the full
interaction, so P(E_G) <= e^epsilon Q(E_G) + 0.99 delta. (M) Let the interaction instead be halted when the sum of rho
would pass the second limit. All its events are zCDP with at most their rho (a Gaussian event's rho is at least its
zCDP parameter), so it is a zCDP filter (Feldman & Zrnic 2021). A transcript of E_M met the second limit when its
first other event was paid for, hence at every earlier time, since rho only adds up, and also later. So the halted
interaction agrees with the full one on E_M, and P(E_M) <= e^epsilon Q(E_M) + 0.01 delta. Add the two.

The denials in between are functions of the transcript and of public numbers. The argument needs a limit fixed in
advance: where a custodian raises a budget, the guarantee is that of the raised budget.

**Numbers.** Amounts are decimals, charges rounded up and limits rounded down (``dpsql.accounting.exact``); a release
calibrated to a whole budget fits it.

Privacy: nothing in here sees data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from dpsql.accounting.composition import pure_epsilon
from dpsql.accounting.events import Event, GaussianEvent
from dpsql.accounting.exact import (
    DELTA_PLACES,
    PLACES,
    as_decimal,
    limit_down,
    round_down,
    round_up,
    subtract,
    total,
)
from dpsql.accounting.gaussian import gaussian_epsilon, gaussian_mu
from dpsql.accounting.zcdp import zcdp_epsilon, zcdp_rho
from dpsql.errors import ArgumentError

ACCOUNTANTS = ("zcdp", "basic")
_EPSILON = "must be a positive finite number of at least 1e-24, e.g. epsilon := 1.0"
_DELTA_ZCDP = "must be above 0 and below 1 under the 'zcdp' accountant, far below 1 / (number of people), e.g. delta := 1e-9"
_DELTA_BASIC = "must be at least 0 and below 1, far below 1 / (number of people), e.g. delta := 1e-9"


def checked_accountant(accountant: object) -> str:
    """Return the name of an accountant, or raise ArgumentError."""
    if accountant not in ACCOUNTANTS:
        raise ArgumentError("accountant", accountant, f"must be one of {', '.join(map(repr, ACCOUNTANTS))}")
    return str(accountant)


def checked_guarantee(epsilon: object, delta: object, accountant: str) -> tuple[Decimal, Decimal]:
    """Return epsilon and delta as the books can hold them: 24 and 37 decimal places, rounded down (it is a limit).

    Raises
    ------
    ArgumentError
        One of them is out of range.
    """
    exact_epsilon = as_decimal("epsilon", epsilon, low=0, high=math.inf, expected=_EPSILON)
    needed = accountant == "zcdp"
    exact_delta = as_decimal("delta", delta, low=0, high=1, expected=_DELTA_ZCDP if needed else _DELTA_BASIC, closed=not needed)
    held_epsilon = round_down(Fraction(exact_epsilon), PLACES)
    held_delta = round_down(Fraction(exact_delta), DELTA_PLACES)
    if held_epsilon <= 0:
        raise ArgumentError("epsilon", epsilon, _EPSILON)
    if needed and held_delta <= 0:
        raise ArgumentError("delta", delta, _DELTA_ZCDP)
    return held_epsilon, held_delta


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

    Raises
    ------
    ArgumentError
        A cost is negative or not finite.
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


def shares(delta: float) -> tuple[float, float]:
    """Return the parts of delta for books of Gaussian events only, and for all others (99 % and 1 %, rounded down)."""
    return 0.99 * delta * (1 - 1e-15), 0.01 * delta * (1 - 1e-15)


@lru_cache(maxsize=1024)
def rho_limit(epsilon: float, delta: float, *, gaussian: bool) -> Decimal:
    """Return the limit of the sum of rho under the 'zcdp' accountant, rounded down.

    Parameters
    ----------
    epsilon : float, > 0
    delta : float, in (0, 1)
    gaussian : bool
        Whether all events are Gaussian.

    Notes
    -----
    Privacy: see the head of this file.

    Examples
    --------
    >>> f"{rho_limit(1.0, 2.0**-30, gaussian=True):.6f} {rho_limit(1.0, 2.0**-30, gaussian=False):.6f}"
    '0.016476 0.011826'
    """
    gaussian_share, other_share = shares(delta)
    if gaussian:
        return limit_down(gaussian_mu(epsilon, gaussian_share) ** 2 / 2 * (1 - 1e-15))
    return limit_down(zcdp_rho(epsilon, other_share))


def _limit(budget: Budget, gaussian: bool) -> Decimal:
    return rho_limit(float(budget.epsilon), float(budget.delta), gaussian=gaussian)


def _up(amount: Decimal) -> float:
    """Return a float that is at least this decimal."""
    value = float(amount)
    return value if Fraction(value) >= Fraction(amount) else math.nextafter(value, math.inf)


def _rho_epsilon(rho: Decimal, delta: float, gaussian: bool) -> float:
    """Return the guarantee of a sum of rho at the delta of the budget, rounded up."""
    gaussian_share, other_share = shares(delta)
    if gaussian:
        return gaussian_epsilon(math.sqrt(2 * _up(rho)) * (1 + 1e-15), gaussian_share)
    return zcdp_epsilon(_up(rho), other_share)


def charge_for(events: Sequence[Event], *, delta: object, accountant: str, epsilon: object = None) -> Charge:
    """Return what a release with these events costs.

    Parameters
    ----------
    events : sequence of Event
        Everything the release does to the data; at least one.
    delta : float or Decimal
        Of the release: under 'zcdp' that of the source.
    accountant : {'zcdp', 'basic'}
        Of the ledger.
    epsilon : float or Decimal, optional
        A guarantee that these events are known to have at ``delta`` (calibrated for it). The charge is then not above
        it.

    Returns
    -------
    Charge
        rho and epsilon rounded up.

    Raises
    ------
    ArgumentError
        No event, or delta out of range (Gaussian events need one above 0).

    Notes
    -----
    Privacy: 'basic' charges the exact epsilon of Gaussian events or of equal pure events at ``delta``, and the zCDP
    conversion of a mixture.
    """
    checked_accountant(accountant)
    if not events:
        raise ArgumentError("events", events, "a release does at least one thing to the data")
    rho = round_up(sum((event.rho for event in events), Fraction(0)))
    gaussian = all(event.gaussian for event in events)
    known, held_delta = checked_guarantee(1 if epsilon is None else epsilon, delta, accountant)
    if accountant == "zcdp":
        found = round_up(Fraction(_rho_epsilon(rho, float(held_delta), gaussian)))
        cost = found if epsilon is None else min(found, known)
    else:
        cost = _basic_epsilon(events, rho, float(held_delta)) if epsilon is None else known
    return Charge(rho=rho, epsilon=cost, delta=held_delta, gaussian=gaussian, events=tuple(events))


def _basic_epsilon(events: Sequence[Event], rho: Decimal, delta: float) -> Decimal:
    """Return the epsilon of events at delta, rounded up, for 'basic' composition of releases."""
    pure = [event for event in events if not isinstance(event, GaussianEvent)]
    if len(pure) < len(events) and delta == 0:
        raise ArgumentError("delta", delta, "Gaussian noise needs a delta above 0, e.g. delta := 1e-10")
    if not pure:
        return round_up(Fraction(gaussian_epsilon(math.sqrt(2 * _up(rho)) * (1 + 1e-15), delta)))
    concentrated = zcdp_epsilon(_up(rho), delta)
    if len(pure) < len(events):
        return round_up(Fraction(concentrated))
    plain = round_up(sum((event.epsilon * event.count for event in pure), Fraction(0)))
    if delta == 0:
        return plain
    each = {event.epsilon for event in pure}
    if len(each) == 1:
        count = sum(event.count for event in pure)
        return min(plain, round_up(Fraction(pure_epsilon(count, float(each.pop()) * (1 + 1e-15), delta))))
    return min(plain, round_up(Fraction(concentrated)))


class Guarantee(NamedTuple):
    """What is known about everything in the books together, at the budget's delta."""

    epsilon: float
    rho: Decimal


def total_guarantee(budget: Budget, charges: Sequence[Charge]) -> Guarantee:
    """Return the guarantee of all charges together.

    Returns
    -------
    Guarantee
        epsilon, rounded up but never above the budget's where the charges fit it; rho, the exact sum.

    Notes
    -----
    Privacy: under 'zcdp', at 0.99 delta for Gaussian books and at 0.01 delta for others (head of this file).
    """
    rho = total(charge.rho for charge in charges)
    if not charges:
        return Guarantee(0.0, rho)
    if budget.accountant == "basic":
        return Guarantee(float(total(charge.epsilon for charge in charges)), rho)
    epsilon = _rho_epsilon(rho, float(budget.delta), all(charge.gaussian for charge in charges))
    return Guarantee(min(epsilon, float(budget.epsilon)) if fits(budget, charges) else epsilon, rho)


def fits(budget: Budget, charges: Sequence[Charge], new: Charge | None = None) -> bool:
    """Return whether the budget covers these charges and a new one.

    Parameters
    ----------
    budget : Budget
    charges : sequence of Charge
        Everything that counts: refunded charges are not among them.
    new : Charge, optional

    Notes
    -----
    Privacy: this is the filter; see the head of this file.
    """
    held = [*charges, new] if new is not None else list(charges)
    if budget.accountant == "basic":
        within = total(c.epsilon for c in held) <= budget.epsilon
        return within and total(c.delta for c in held) <= budget.delta
    return total(c.rho for c in held) <= _limit(budget, all(c.gaussian for c in held))


class Shortfall(NamedTuple):
    """Why a charge does not fit: what it costs, what is left, in which unit ('rho', 'epsilon' or 'delta')."""

    requested: float
    left: float
    unit: str


def shortfall(budget: Budget, charges: Sequence[Charge], new: Charge) -> Shortfall:
    """Return what a charge costs and what is left for it, in the unit that does not suffice.

    Post-processing of the books. Meant for the message of a refusal; ``fits`` decides.
    """
    if budget.accountant == "basic":
        left = subtract(budget.epsilon, total(c.epsilon for c in charges))
        if new.epsilon > left:
            return Shortfall(float(new.epsilon), max(0.0, float(left)), "epsilon")
        left = subtract(budget.delta, total(c.delta for c in charges))
        return Shortfall(float(new.delta), max(0.0, float(left)), "delta")
    limit = _limit(budget, all(c.gaussian for c in [*charges, new]))
    return Shortfall(float(new.rho), max(0.0, float(subtract(limit, total(c.rho for c in charges)))), "rho")


@dataclass(frozen=True)
class Remaining:
    """What is spent and left of a budget, for display.

    Parameters
    ----------
    epsilon_spent : float
        Guarantee of everything bought so far, at the budget's delta under 'zcdp', the sum under 'basic'.
    epsilon_left : float
        Under 'zcdp' the largest epsilon of one more Gaussian release that fits; under 'basic' the difference.
    delta_spent, delta_left : float
        Under 'zcdp' releases share the budget's delta: it is spent by the first, and each can use it.
    rho_limit, rho_left : float or None
        Under 'zcdp', for Gaussian releases while the books hold nothing else; None under 'basic'.
    rho_spent : float
    """

    epsilon_spent: float
    epsilon_left: float
    delta_spent: float
    delta_left: float
    rho_limit: float | None
    rho_spent: float
    rho_left: float | None


def remaining(budget: Budget, charges: Sequence[Charge]) -> Remaining:
    """Return what is spent and left of a budget, for display; ``fits`` decides.

    Post-processing of the books.
    """
    spent = total_guarantee(budget, charges)
    if budget.accountant == "basic":
        delta = total(c.delta for c in charges)
        epsilon_left = subtract(budget.epsilon, total(c.epsilon for c in charges))
        return Remaining(
            epsilon_spent=spent.epsilon,
            epsilon_left=max(0.0, float(epsilon_left)),
            delta_spent=float(delta),
            delta_left=max(0.0, float(subtract(budget.delta, delta))),
            rho_limit=None,
            rho_spent=float(spent.rho),
            rho_left=None,
        )
    limit = _limit(budget, all(c.gaussian for c in charges))
    left = max(Decimal(0), subtract(limit, spent.rho))
    return Remaining(
        epsilon_spent=spent.epsilon,
        epsilon_left=_affordable_epsilon(left, float(budget.delta)),
        delta_spent=float(budget.delta) if charges else 0.0,
        delta_left=float(budget.delta),
        rho_limit=float(limit),
        rho_spent=float(spent.rho),
        rho_left=float(left),
    )


def _affordable_epsilon(left: Decimal, delta: float) -> float:
    """Return the largest epsilon of six digits whose Gaussian release costs at most ``left``."""
    if left <= 0:
        return 0.0
    value = _rho_epsilon(left, delta, True)
    if not 0 < value < math.inf:
        return 0.0
    digits = 5 - math.floor(math.log10(value))
    for candidate in (round(value, digits), round(value - 10.0**-digits, digits)):
        if candidate > 0 and rho_limit(candidate, delta, gaussian=True) <= left:
            return candidate
    return 0.0
