"""The loss of a call, divided among the releases that it buys."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from dpsql.accounting.rules import rho_limit
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
    low, high = float(Fraction(epsilon) * part), epsilon
    limit = Fraction(rho_limit(epsilon, delta, gaussian=True)) * part
    for _ in range(40):
        middle = (low + high) / 2
        if Fraction(rho_limit(middle, delta, gaussian=True)) <= limit:
            low = middle
        else:
            high = middle
    return float(f"{low * (1 - 1e-9):.9g}") * (1 - 1e-8)
