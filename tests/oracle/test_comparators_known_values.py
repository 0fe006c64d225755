"""Known values of `poisson_gamma` and `dpcopula_kendall`: computed by hand, by closed forms, or by scipy."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from dpsql.domains.attributes import FINE
from dpsql.mechanisms.kendall import kendall_sensitivity, kendall_steps, kendall_sum, tau_of_steps
from dpsql.mechanisms.poisson_gamma import (
    PoissonGammaPrior,
    keeping,
    largest_ratio,
    poisson_gamma,
    poisson_gamma_prior,
    relative_strength,
)
from dpsql.methods.dpcopula_kendall.latent import latent_correlations, posterior_means, tau_curve

ALPHA = 1e-6


def test_race_counts_with_equal_expectations() -> None:
    """[Hu]: n = 994, epsilon = 5: a = 6.742953, as for multinomial_dirichlet."""
    prior = poisson_gamma_prior(Fraction(5), 994, np.ones(6))
    assert prior.strength is not None and float(prior.strength) == pytest.approx(6.742953, abs=5e-7)
    assert relative_strength(5.0, np.ones(6)) * 994 == pytest.approx(994 / math.expm1(5.0), rel=1e-12)


def test_one_row_in_two_cells() -> None:
    """n = 1, a = 1, s = (1, 1/2), the row in the first cell: q_1 has density 2 x, so P(z = (1, 0)) is the integral of
    2 x * x / (x + (1 - x) / 2) = 4 x^2 / (1 + x) from 0 to 1: 4 ln 2 - 2 = 0.772589.

    30,000 draws; false alarm 1e-6. A share of 2 / 3, which all draws kept would have, and one of 0.75 are rejected.
    """
    share, draws = 4 * math.log(2) - 2, 30_000
    prior = PoissonGammaPrior(Fraction(1), np.array([1 << 20, 1 << 19]), 1000)
    found = sum(int(poisson_gamma(np.array([1, 0]), prior, 1)[0]) for _ in range(draws))
    deviation = math.sqrt(share * (1 - share) / draws)
    assert abs(found / draws - share) < stats.norm.isf(ALPHA / 2) * deviation
    assert abs(found / draws - 2 / 3) > 20 * deviation and abs(found / draws - 0.75) > 4 * deviation


def test_what_is_kept() -> None:
    """n = 60, E = (20, 40), a = 20: s = (1/2, 2/3), so three of four draws of the first cell are kept."""
    assert keeping(np.array([1.0, 2.0]), 20 / 60).tolist() == [3 << 18, 1 << 20]
    assert keeping(np.array([1.0, 2.0]), math.inf).tolist() == [1 << 19, 1 << 20]


def test_the_bound_of_two_cells() -> None:
    """n = 2, K = 2, a = 1, kappa = 2: b_4 = 6 / 10, b_l = (2 + l) / (4 + l + 1 + 2 / (1 + b_(l+1))), (1 + 2) (1 + b_0)."""
    b = Fraction(6, 10)
    for level in (3, 2, 1, 0):
        b = Fraction(2 + level) / (4 + level + 1 + 2 / (1 + b))
    found = largest_ratio(Fraction(1), 2, np.array([1, 2]))
    assert 3 * (1 + b) <= found <= 3 * (1 + b) * (1 + Fraction(1, 2**60))


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**6), Fraction(1, 100), Fraction(1), Fraction(20)])
@pytest.mark.parametrize("rows", [1, 40, 5_000_000, 10**9])
def test_strengths_satisfy_the_bound_and_hardly_smaller_ones_do(epsilon: Fraction, rows: int) -> None:
    expected = np.array([1.0, 1.0, 2.0, 30.0])
    prior = poisson_gamma_prior(epsilon, rows, expected)
    assert prior.strength is not None and prior.kept is not None
    assert prior.strength.denominator & (prior.strength.denominator - 1) == 0
    assert 4 * prior.strength + rows + prior.draws <= Fraction(2**62) / prior.strength.denominator
    with mp.workdps(60):
        allowed = mp.exp(mp.mpf(epsilon.numerator) / epsilon.denominator)
        ratio = largest_ratio(prior.strength, rows, prior.kept)
        assert mp.mpf(ratio.numerator) / ratio.denominator <= allowed
        less = largest_ratio(prior.strength * Fraction(999, 1000), rows, prior.kept)
        assert mp.mpf(less.numerator) / less.denominator > allowed
    if epsilon <= 1:
        assert float(prior.strength) / rows > relative_strength(float(epsilon), np.ones(4))


def test_four_ranks() -> None:
    """1 2 3 4 against 1 3 2 4: five pairs agree and one does not, so S = 4 and tau = 2 / 3."""
    table = np.zeros((4, 4), np.int64)
    table[[0, 1, 2, 3], [0, 2, 1, 3]] = 1
    assert kendall_sum(table) == 4
    (steps,) = kendall_steps([table], 4)
    assert steps == 4 * FINE // 3
    assert tau_of_steps(np.array([steps]), 4)[0] == pytest.approx(2 / 3, abs=1e-5)


def test_ties_count_nothing() -> None:
    """(0,0) (0,1) (1,1) (1,1): pairs of the first with the last two agree; all others are tied."""
    assert kendall_sum(np.array([[1, 1], [0, 2]])) == 2
    assert kendall_steps([np.array([[1, 1], [0, 2]])], 4).tolist() == [2 * FINE // 3]
    for rows in (0, 1):
        assert kendall_steps([np.zeros((2, 2), np.int64)], rows).tolist() == [0]


def test_sensitivities() -> None:
    """2 FINE floor(m^2 / 4) + m (m - 1) / 2 - 1; of two columns exactly twice FINE."""
    assert [kendall_sensitivity(m) for m in (2, 3, 4, 15)] == [2 << 16, (4 << 16) + 2, (8 << 16) + 5, (112 << 16) + 104]


@pytest.mark.parametrize("seed", range(5))
def test_without_ties_tau_is_that_of_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.permutation(60), rng.permutation(60)
    table = np.zeros((60, 60), np.int64)
    table[x, y] = 1
    found = tau_of_steps(kendall_steps([table], 60), 60)[0]
    assert found == pytest.approx(stats.kendalltau(x, y).statistic, abs=1e-5)


def test_the_published_correlation() -> None:
    """sin(pi tau / 2): tau = 1 / 3 is a correlation of 1 / 2; what lies outside is cut."""
    margins = [np.full(10, 0.1)] * 3
    found = latent_correlations(np.array([1 / 3, 0.0, 0.0]), margins, 0.01, "sine")
    assert found == pytest.approx(np.array([[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]]), abs=1e-9)
    assert latent_correlations(np.array([7.0]), margins[:2], 0.01, "sine")[0, 1] == pytest.approx(1, abs=1e-5)


def test_curves_of_two_coins_and_of_fine_columns() -> None:
    """Two coins: tau = angle / pi (Sheppard). Many values: tau = 2 angle / pi (Greiner), less the ties."""
    angles = np.linspace(-math.pi / 2, math.pi / 2, 3201)
    assert tau_curve(np.array([0.5, 0.5]), np.array([0.5, 0.5])) == pytest.approx(angles / math.pi, abs=1e-9)
    for values in (60, 100):  # computed, and by the formula
        fine = np.full(values, 1 / values)
        middle = slice(400, 2801)
        assert tau_curve(fine, fine)[middle] == pytest.approx((2 * angles / math.pi)[middle], abs=0.03)
    skewed, curve = np.array([0.95, 0.05]), tau_curve(np.array([0.95, 0.05]), np.array([0.9, 0.1]))
    assert curve[0] == pytest.approx(-2 * 0.05 * 0.1) and curve[-1] == pytest.approx(2 * 0.05 * 0.9)  # the ends of a 2 x 2 table
    assert tau_curve(skewed, np.array([1.0])).tolist() == [0.0] * 3201


@pytest.mark.parametrize("correlation", [-0.9, -0.3, 0.0, 0.6, 0.95])
def test_means_without_noise_invert_the_curve(correlation: float) -> None:
    shares = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.2, 0.3, 0.4])
    curve = tau_curve(*shares)
    tau = np.interp(math.asin(correlation), np.linspace(-math.pi / 2, math.pi / 2, 3201), curve)
    assert posterior_means(np.array([tau]), [shares], 1e-7)[0] == pytest.approx(correlation, abs=1e-3)


def test_noise_without_dependence_is_taken_for_noise() -> None:
    """Independent columns, seen through noise that would be correlations of 0.5 and more; a fixed seed."""
    shares, rng = np.array([0.9, 0.1]), np.random.default_rng(5)
    tau = rng.laplace(0.0, 0.1, 100)
    found = posterior_means(tau, [(shares, shares)] * 100, 0.1)
    assert np.abs(found).max() < 0.13 < np.abs(np.sin(np.pi / 2 * tau)).mean()
