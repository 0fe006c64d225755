"""The loss of a call, divided among the releases that it buys."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from dpsql.accounting.gaussian import gaussian_epsilon
from dpsql.accounting.rules import rho_limit, shares
from dpsql.protected.source import ProtectedSource


def part_of(epsilon: float, part: Fraction, source: ProtectedSource, mechanism: str) -> float:
    """Return the epsilon of a release that has this part of the loss of one of ``epsilon``.

    Parameters
    ----------
    part : Fraction
        Above 0, at most 1.

    Notes
    -----
    Privacy: releases whose parts add up to 1 cost at most one of ``epsilon``. Under 'zcdp' losses of Gaussian noise add up in rho:
    the rho of the result is at most the part of the rho of epsilon. Else epsilons add up.
    """
    budget = source.protection.budget
    if part == 1:
        return epsilon
    if mechanism != "gaussian" or budget.accountant != "zcdp":
        return float(Fraction(epsilon) * part)
    return _part_of(epsilon, part, float(budget.delta))


@lru_cache(maxsize=64)
def _part_of(epsilon: float, part: Fraction, delta: float) -> float:
    """Return what `part_of` does of Gaussian noise under 'zcdp'."""
    low = float(Fraction(epsilon) * part)
    limit = Fraction(rho_limit(epsilon, delta, gaussian=True)) * part
    step = (epsilon - low) / 2**40

    def fits(steps: int) -> bool:
        return Fraction(rho_limit(low + steps * step, delta, gaussian=True)) <= limit

    near = gaussian_epsilon(math.sqrt(2 * float(limit)), shares(delta).gaussian)
    steps = min(max(0, int((near - low) / step)), 2**40 - 1)
    while steps > 0 and not fits(steps):
        steps -= 1
    while steps < 2**40 - 1 and fits(steps + 1):
        steps += 1
    return float(f"{(low + steps * step) * (1 - 1e-9):.9g}") * (1 - 1e-8)
