"""Who stops when it pays: what ``epsilon_spent`` is worth then, and that the limit holds.

Gaussian releases alone, in a budget that they fill. The best time to stop is found by dynamic programming over the privacy loss,
whose increments between releases are normal: a loss is rounded down to a grid, so what is found is reached at least.
"""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest
from scipy.signal import fftconvolve
from scipy.special import ndtr

from dpsql import accounting as acc

DELTA = 1e-3
STEPS = 8


def spent(budget: acc.Budget, rho: Decimal) -> float:
    return acc.remaining(budget, [acc.Charge(rho, Decimal(0), Decimal(0), True)]).epsilon_spent


def reached(rhos: list[Decimal], epsilons: list[float]) -> float:
    """Return sup over stopping times of E[(1 - exp(epsilon - loss))_+], epsilon that of the time of stopping, at least."""
    mu_end = math.sqrt(2 * float(rhos[-1]))
    step = math.sqrt(2 * float(rhos[0])) / 6
    size = int((max(e for e in epsilons if math.isfinite(e)) + 8 * mu_end) / step) + 1
    losses = np.arange(-size, size + 1) * step

    def pay(epsilon: float) -> np.ndarray:
        return np.where(losses > epsilon, -np.expm1(np.minimum(epsilon - losses, 0)), 0.0)

    value = pay(epsilons[-1])
    for i in range(len(rhos) - 2, -2, -1):
        variance = 2 * float(rhos[i + 1] - (rhos[i] if i >= 0 else 0))
        reach = int((9 * math.sqrt(variance) + variance) / step) + 2
        edges = (np.arange(-reach, reach + 2) * step - variance / 2) / math.sqrt(variance)
        padded = np.concatenate([np.zeros(reach), value, np.full(reach, value[-1])])
        value = np.clip(fftconvolve(padded, np.diff(ndtr(edges))[::-1], mode="valid"), 0, 1)
        if i >= 0:
            value = np.maximum(value, pay(epsilons[i]))
    return float(value[size])


@pytest.fixture
def books() -> tuple[acc.Budget, list[Decimal]]:
    budget = acc.Budget(1.5, DELTA)
    whole = acc.rho_limit(1.5, DELTA, gaussian=True)
    return budget, [(whole / 2 ** (STEPS - i)).quantize(Decimal("1e-20")) for i in range(STEPS)] + [whole]


def test_the_limit_holds_whenever_somebody_stops(books) -> None:
    budget, rhos = books
    found = reached(rhos, [float(budget.epsilon)] * len(rhos))
    assert 0.7 * DELTA < found <= DELTA


def test_what_is_shown_as_spent_holds_for_a_number_of_releases_fixed_beforehand_alone(books) -> None:
    """So it may not be called the guarantee of an interaction that was stopped by what was seen."""
    budget, rhos = books
    epsilons = [spent(budget, rho) for rho in rhos]
    for stop in range(1, len(rhos) + 1, 3):  # fixed: nothing is paid before
        assert reached(rhos[:stop], [math.inf] * (stop - 1) + [epsilons[stop - 1]]) <= DELTA
    assert reached(rhos, epsilons) > 2 * DELTA
