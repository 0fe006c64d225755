"""The claimed delta of composed discrete Gaussians against exact enumeration of their privacy losses."""

import itertools
import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from dpsql import accounting as acc
from dpsql.accounting import rules
from dpsql.accounting.cost import Cost
from dpsql.accounting.exact import round_down

EPSILONS = (0.0, 0.05, 0.3, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)

# (sigma^2, shift of one touched cell) of every cell that neighbours differ in
CASES = [
    [("0.02", 1)],
    [("0.05", 1)],
    [("0.1", 1), ("0.1", -1)],
    [("0.2", 1)],
    [("0.2", 2), ("3", 1)],
    [("0.3", 1), ("0.4", 1)],
    [("0.335", 1)],
    [("0.4", 1)],
    [("0.5", 1), ("0.5", -1)],
    [("1", 1)],
    [("1", 2)],
    [("1", 1), ("1", 1)],
    [("1", 1), ("1", -1), ("1", 2)],
    [("1", 1), ("2", 1)],
    [("0.4", 1), ("3", -2)],
    [("4", 1)] * 4,
    [("4", 3), ("9", 1)],
    [("30", 5)],
    [("400", 1), ("400", -1)],
    [("400", 20), ("400", 1)],
]


def _pmf(variance: Fraction) -> tuple[np.ndarray, np.ndarray]:
    reach = math.ceil(14 * math.sqrt(variance)) + 3
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-(x**2) / (2 * float(variance)))
    return x, weights / weights.sum()


def true_delta(case: Sequence[tuple[str, int]], epsilon: float) -> float:
    """Return delta exactly but for rounding: over all outcomes of the touched cells, with equal losses merged."""
    losses, mass = np.zeros(1), np.ones(1)
    for text, shift in case:
        variance = Fraction(text)
        x, p = _pmf(variance)  # noise; the outcome is x + shift, its log likelihood ratio that of x + shift against x
        loss = (shift * (2 * x + shift)) / (2 * float(variance))
        losses = np.round(np.add.outer(losses, loss).ravel(), 9)
        losses, where = np.unique(losses, return_inverse=True)
        mass = np.bincount(where, np.multiply.outer(mass, p).ravel())
    return float(np.sum(mass * -np.expm1(np.minimum(0.0, epsilon - losses))))


def claimed_delta(case: Sequence[tuple[str, int]], epsilon: float) -> float:
    mu2 = sum(shift**2 / acc.effective_variance(Fraction(text)) for text, shift in case)
    return acc.gaussian_delta(math.sqrt(mu2), epsilon)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_claim_holds(case) -> None:
    ratios = []
    for epsilon in EPSILONS:
        claimed = claimed_delta(case, epsilon)
        if claimed < 1e-13:  # beyond what double precision enumerates
            continue
        true = true_delta(case, epsilon)
        assert true <= claimed * (1 + 1e-7)
        ratios.append(true / claimed)
    assert max(ratios) > 0.3  # and it is not idle


@pytest.mark.parametrize("text", ["0.4", "1", "2", "4"])
def test_the_check_can_fail(text: str) -> None:
    """Accounting integer noise like real-valued noise of the same sigma would claim too much."""
    naive = 1 / math.sqrt(float(text))
    epsilons = [(2 * t + 1) / (2 * float(text)) for t in range(-1, 12)] + list(np.linspace(0, 6, 100))
    violated = [e for e in epsilons if e >= 0 and true_delta([(text, 1)], e) > acc.gaussian_delta(naive, e) * (1 + 1e-6) > 1e-12]
    assert violated


@pytest.mark.parametrize(("mistake", "caught"), [(1.0, False), (0.5, True), (2**-0.5, True)])
def test_a_release_keeps_its_promise(mistake: float, caught: bool) -> None:
    """Three tables under replace_one, calibrated to (1, 1e-6): enumerate what they leak. Too little noise is caught."""
    found = acc.calibrate(mechanism="gaussian", tables=3, epsilon=1.0, delta=1e-6, neighbors="replace_one")
    variance = Fraction(found.scales[0]) ** 2 * Fraction(mistake) ** 2
    x = np.arange(-2000, 2001)
    pmf = np.exp(-(x**2) / (2 * float(variance)))
    pmf /= pmf.sum()
    # each table: one cell up, one down; all six cells have the same sigma, so the loss depends on the sum of signed noise
    total = np.ones(1)
    for _ in range(6):
        total = np.convolve(total, pmf)
    noise = np.arange(total.size) - (total.size - 1) // 2
    loss = (2 * noise + 6) / (2 * float(variance))
    true = float(np.sum(total * -np.expm1(np.minimum(0.0, 1.0 - loss))))
    assert (true > 1e-6) is caught
    if not caught:
        assert true > 0.9e-6


def test_the_rules_together_keep_delta() -> None:
    """What each rule of the filter can lose, at its limits, adds up to delta (``dpsql.accounting.rules``)."""
    for epsilon, delta in itertools.product((0.1, 1.0, 5.0), (1e-3, 1e-9)):
        budget = acc.Budget(epsilon, delta)
        rho = {g: float(acc.rho_limit(epsilon, delta, gaussian=g)) for g in (True, False)}
        assert rho[False] < rho[True]
        lost = [acc.gaussian_delta(math.sqrt(2 * rho[True]), epsilon), acc.zcdp_delta(rho[False], epsilon)]
        for j in range(1, rules.PARTS):  # Gaussian events at their limit next to pure ones of j / 16 epsilon
            left = rules.gaussian_left(_pure_cost(Fraction(budget.epsilon) * j / 16), budget.epsilon, budget.delta)
            mu = math.sqrt(2 * float(left))
            lost.append(acc.gaussian_delta(mu, epsilon * (1 - j / 16)))
        lost.append(float(acc.selection_share(budget.delta)))
        assert delta * (1 - 1e-6) < math.fsum(lost) <= delta


def _pure_cost(epsilon: Fraction) -> Cost:
    rounded = round_down(epsilon)
    return Cost(Decimal(10**9), Decimal(0), rounded, Decimal(0))  # too much for rule M


def test_laplace_release_keeps_its_promise_by_exact_composition() -> None:
    """The default Laplace calibration under 'zcdp' spends no delta or 0.004 delta, by the exact composition of pure mechanisms."""
    for tables, method in ((1, "basic"), (10, "basic"), (105, "zcdp")):
        found = acc.calibrate(mechanism="laplace", tables=tables, epsilon=1.0, delta=1e-9, neighbors="replace_one")
        each = 2 / float(found.scales[0])
        assert found.method == method
        assert acc.pure_delta(tables, each * (1 - 1e-12), 1.0) <= (0.0 if method == "basic" else 4e-12)
        assert found.charge.epsilon <= Decimal(1)
        assert found.charge.delta == (0 if method == "basic" else Decimal("1e-9"))
