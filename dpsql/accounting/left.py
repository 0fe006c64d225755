"""What a budget has left, what is missing for a charge, and how much is used. Pure: the books hand in what they hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from dpsql.accounting.budget import Budget, Charge, charges_of, together, total_guarantee
from dpsql.accounting.cost import Cost, sum_of
from dpsql.accounting.exact import round_up, subtract, total
from dpsql.accounting.gaussian import gdp_of_pure
from dpsql.accounting.rules import (
    allows,
    float_up,
    gaussian_left,
    least_epsilon,
    pure_left,
    rho_limit,
    selection_share,
    share_of_limit,
)
from dpsql.accounting.zcdp import rho_of_pure


class Shortfall(NamedTuple):
    """Why a charge does not fit: what it costs, what is left, in which unit ('rho', 'epsilon' or 'delta')."""

    requested: float
    left: float
    unit: str


def shortfall(budget: Budget, charges: Sequence[Charge], *new: Charge) -> Shortfall:
    """Return what charges cost, together, and what is left for them, in the unit that does not suffice.

    Under 'zcdp': 'epsilon' for pure events and selections, with what is left for one pure event; 'rho' for Gaussian
    ones; 'delta' where selections have used up their share of it.

    Post-processing of the books. Meant for the message of a refusal; ``fits`` decides.
    """
    asked = charges_of(new)
    if budget.accountant == "basic":
        left = subtract(budget.epsilon, charges_of(charges).epsilon)
        if asked.epsilon > left:
            return Shortfall(float(asked.epsilon), max(0.0, float(left)), "epsilon")
        left = subtract(budget.delta, charges_of(charges).delta)
        return Shortfall(float(asked.delta), max(0.0, float(left)), "delta")
    spent, cost = together(charges), asked.cost
    # Selections have a part of delta of their own: it may be used up while the rest of the budget is not.
    left = subtract(selection_share(budget.delta), spent.selection_delta)
    if cost.selection_delta > max(left, Decimal(0)):
        return Shortfall(float(cost.selection_delta), max(0.0, float(left)), "delta")
    if cost.pure_only:
        most = _affordable_pure(budget, spent)
        epsilon = float(asked.epsilon)
        return Shortfall(epsilon if epsilon > most else float(cost.pure_epsilon), most, "epsilon")
    left = gaussian_left(spent if cost.gaussian_only else sum_of([spent, _without_gaussian(cost)]), budget.epsilon, budget.delta)
    return Shortfall(float(cost.gaussian_rho), float(left), "rho")


def _without_gaussian(cost: Cost) -> Cost:
    rest = (max(Decimal(0), subtract(part, cost.gaussian_rho)) for part in (cost.rho, cost.gdp_rho))
    return cost._replace(rho=next(rest), gaussian_rho=Decimal(0), gdp_rho=next(rest))


@dataclass(frozen=True)
class Remaining:
    """What is spent and left of a budget, for display.

    Parameters
    ----------
    epsilon_spent : float
        Under 'zcdp' what everything bought so far would guarantee together at the budget's delta, had the number of releases and
        their noise been fixed beforehand (see `Guarantee`: the limit alone holds however they were chosen); under 'basic' the
        sum, which holds in any case.
    epsilon_left : float
        Under 'zcdp' the largest epsilon of one more Gaussian release that fits; under 'basic' the difference.
    delta_spent, delta_left : float
        Under 'zcdp' releases share the budget's delta: it is spent by the first, and each can use it.
    rho_limit, rho_left : float or None
        Under 'zcdp' the rho of the largest Gaussian release that still fits, and the sum of rho with it: what the
        limit is depends on what else is in the books. None under 'basic'.
    rho_spent : float
        Sum over everything bought so far.
    pure_epsilon_left : float
        The largest epsilon of one more pure release that fits.
    """

    epsilon_spent: float
    epsilon_left: float
    delta_spent: float
    delta_left: float
    rho_limit: float | None
    rho_spent: float
    rho_left: float | None
    pure_epsilon_left: float


def remaining(budget: Budget, charges: Sequence[Charge]) -> Remaining:
    """Return what is spent and left of a budget, for display; ``fits`` decides.

    Post-processing of the books.
    """
    guarantee = total_guarantee(budget, charges)
    if budget.accountant == "basic":
        delta = charges_of(charges).delta
        epsilon_left = max(0.0, float(subtract(budget.epsilon, charges_of(charges).epsilon)))
        return Remaining(
            epsilon_spent=guarantee.epsilon,
            epsilon_left=epsilon_left,
            delta_spent=float(delta),
            delta_left=max(0.0, float(subtract(budget.delta, delta))),
            rho_limit=None,
            rho_spent=float(guarantee.rho),
            rho_left=None,
            pure_epsilon_left=epsilon_left,
        )
    # Under 'zcdp' the rules say in rho what is left; epsilon and delta follow from it.
    cost = together(charges)
    left = gaussian_left(cost, budget.epsilon, budget.delta)
    return Remaining(
        epsilon_spent=guarantee.epsilon,
        epsilon_left=_affordable_epsilon(left, float(budget.delta)),
        delta_spent=float(budget.delta) if charges else 0.0,
        delta_left=float(budget.delta),
        rho_limit=float(total([guarantee.rho, left])),
        rho_spent=float(guarantee.rho),
        rho_left=float(left),
        pure_epsilon_left=_affordable_pure(budget, cost),
    )


def share_used(budget: Budget, charges: Sequence[Charge]) -> float:
    """Return the share of the limit that everything bought so far has used, rounded up.

    Parameters
    ----------
    budget : Budget
    charges : sequence of Charge
        Everything that counts: refunded charges are not among them.

    Returns
    -------
    float
        0 where nothing was bought; at most 1 exactly where the charges fit the budget, more where a budget was lowered below
        what had been bought (inf where no budget of this delta holds it).

    Notes
    -----
    Measured in what the limit adds up. Under 'zcdp': rho of the largest that is allowed where everything is Gaussian;
    where there are other events, of the rule that leaves most room (``dpsql.accounting.rules``). Under 'basic': the
    larger share of epsilon and delta. Equal releases use equal shares, which a quotient of epsilons does not.

    Post-processing of the books.

    Examples
    --------
    >>> from dpsql.accounting.calibration import calibrate
    >>> half = calibrate(mechanism="gaussian", tables=1, epsilon=0.5, delta=1e-9, neighbors="add_remove").charge
    >>> f"{share_used(Budget(Decimal(1), Decimal('1e-9')), [half]):.3f}"
    '0.265'
    """
    if budget.accountant == "basic":
        shares = [Fraction(charges_of(charges).epsilon) / Fraction(budget.epsilon)]
        delta = Fraction(charges_of(charges).delta)
        if delta > 0 == budget.delta:
            return math.inf
        shares += [delta / Fraction(budget.delta)] if delta else []
        return float_up(max(shares))
    share = share_of_limit(together(charges), budget.epsilon, budget.delta) if charges else Fraction(0)
    return math.inf if share is None else float_up(share)


def _six_digits(value: float) -> tuple[str, ...]:
    """Return the two decimals of six digits next to a positive number, the larger one first."""
    digits = 5 - math.floor(math.log10(value))
    step = Fraction(10) ** -digits
    near = round(Fraction(value) / step)
    return tuple(f"{units}e{-digits}" for units in (near, near - 1))


def _affordable_epsilon(left: Decimal, delta: float) -> float:
    """Return the largest epsilon of six digits whose Gaussian release costs at most ``left``."""
    if left <= 0:
        return 0.0
    value = least_epsilon(Cost(left, left, Decimal(0), Decimal(0)), Decimal(delta))
    if not 0 < value < math.inf:
        return 0.0
    for candidate in map(float, _six_digits(value)):
        if candidate > 0 and rho_limit(candidate, delta, gaussian=True) <= left:
            return candidate
    return 0.0


def _affordable_pure(budget: Budget, cost: Cost) -> float:
    """Return the largest epsilon of six digits whose pure release fits, read as a decimal."""
    left = pure_left(cost, budget.epsilon, budget.delta)
    if left <= 0:
        return 0.0
    for text in _six_digits(float(left)):
        epsilon = Fraction(text)
        more = Cost(round_up(rho_of_pure(epsilon)), Decimal(0), round_up(epsilon), Decimal(0), round_up(gdp_of_pure(epsilon)))
        if epsilon > 0 and allows(sum_of([cost, more]), budget.epsilon, budget.delta):
            return float(text)
    return 0.0
