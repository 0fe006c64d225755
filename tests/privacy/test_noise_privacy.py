"""What the noise is worth: exact ratios of probabilities on neighbours, and an audit from samples."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from dpsql.accounting import sensitivities
from dpsql.noise import discrete


def sampled_pmf(scale: Fraction) -> dict[int, Fraction]:
    """Return the probabilities that the tables of the Laplace sampler realise for |x| < 40, to 2^-190, as fractions.

    From the thresholds of 200 bits, with a fair sign and without minus zero; so a wrong table shows here.
    """
    table = discrete._geometric_tables(scale)[0]
    cumulative = [Fraction(c, 2**200) for c in table.weights.thresholds(200)]
    magnitude = [b - a for a, b in zip([Fraction(0), *cumulative], cumulative, strict=False)][:40]
    kept = 1 - magnitude[0] / 2
    pmf = {0: magnitude[0] / 2 / kept}
    for x in range(1, len(magnitude)):
        pmf[x] = pmf[-x] = magnitude[x] / 2 / kept
    return pmf


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one"])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 2), Fraction(1)])
def test_exact_ratio_on_neighbours(neighbors: str, epsilon: Fraction) -> None:
    """Two cells, counts (3, 5); the neighbour has one row less, or one row moved. Every ratio is at most exp(epsilon)."""
    l1, _ = sensitivities(neighbors)
    pmf = sampled_pmf(Fraction(l1) / epsilon)
    moved = (1, 0) if neighbors == "add_remove" else (1, -1)
    with mp.workdps(60):
        worst = max(
            abs(sum(_log(pmf[y]) - _log(pmf[y + shift]) for y, shift in zip((a, b), moved, strict=True)))
            for a in range(-30, 30)
            for b in range(-30, 30)
        )
        claimed = mp.mpf(epsilon.numerator) / epsilon.denominator
        assert worst <= claimed * (1 + mp.mpf(10) ** -30)
        assert worst > claimed * (1 - mp.mpf(10) ** -30)  # attained: not a digit of noise too much


def test_sensitivity_two_charged_as_one_is_caught() -> None:
    pmf = sampled_pmf(Fraction(1))  # scale for epsilon = 1 at sensitivity 1, used under replace_one
    with mp.workdps(40):
        assert 2 * abs(_log(pmf[0]) - _log(pmf[1])) > 1.9


def _log(p: Fraction) -> mp.mpf:
    return mp.log(mp.mpf(p.numerator) / p.denominator)


def audited_epsilon(mechanism, sensitivity: int, epsilon: float, size: int = 200_000) -> float:
    """Return a lower bound of epsilon (error 1e-6) from the event that best separates count 0 from its neighbour."""
    low, high = mechanism(0, size), mechanism(sensitivity, size)
    event = lambda x: np.count_nonzero(x >= sensitivity)  # noqa: E731 -- the likelihood ratio is exp(epsilon) there
    lower = stats.beta.ppf(5e-7, event(high), size - event(high) + 1)
    upper = stats.beta.isf(5e-7, event(low) + 1, size - event(low))
    return math.log(lower / upper)


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 2.0])
@pytest.mark.parametrize("sensitivity", [1, 2])
def test_audit(epsilon: float, sensitivity: int) -> None:
    scale = discrete.scale_grid(sensitivity / epsilon)

    def honest(count: int, size: int) -> np.ndarray:
        return discrete.add_noise(np.full(size, count, dtype=np.int64), "laplace", scale)

    def half(count: int, size: int) -> np.ndarray:
        return discrete.add_noise(np.full(size, count, dtype=np.int64), "laplace", scale / 2)

    found = audited_epsilon(honest, sensitivity, epsilon)
    assert found <= epsilon
    assert found > 0.8 * epsilon  # the audit sees nearly all of it
    assert audited_epsilon(half, sensitivity, epsilon) > epsilon


def test_audit_catches_one_draw_for_two_tables() -> None:
    """Two tables of epsilon each with the same noise: their difference shows the count exactly."""

    def reused(count: int, size: int) -> np.ndarray:
        once = discrete.discrete_laplace(4, size)
        first, second = count + once, once  # the second table does not contain the row
        return first - second

    def fresh(count: int, size: int) -> np.ndarray:
        return count + discrete.discrete_laplace(4, size) - discrete.discrete_laplace(4, size)

    assert audited_epsilon(fresh, 1, 0.5) <= 0.5
    assert audited_epsilon(reused, 1, 0.5) > 5


def test_gaussian_ratio_matches_its_loss() -> None:
    """The probabilities of the Gaussian table have log ratios of (2 x + 1) / (2 sigma^2), which the accounting uses."""
    variance = Fraction(7, 2)
    thresholds = discrete._gaussian_table(1 / (2 * variance)).weights.thresholds(300)
    masses = [b - a for a, b in zip([0, *thresholds], thresholds, strict=False)][:25]
    with mp.workdps(60):
        for x in range(24):
            ratio = mp.log(mp.mpf(masses[x]) / masses[x + 1])
            assert abs(ratio - (2 * x + 1) / (2 * mp.mpf(7) / 2)) < mp.mpf(10) ** -15
