"""Conversions against mpmath and brute force; every function against its inverse."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from pairwise import grid

from dpsql import accounting as acc

DELTAS = [0.999, 0.5, 1e-3, 2.0**-30, 1e-12, 1e-100, 1e-300]
EPSILONS = [0.0, 1e-6, 1e-3, 0.1, 1.0, 5.0, 50.0]


def _mp_gaussian_delta(mu: float, epsilon: float) -> mp.mpf:
    with mp.workdps(60):
        m, e = mp.mpf(mu), mp.mpf(epsilon)
        cdf = lambda x: mp.erfc(-x / mp.sqrt(2)) / 2  # noqa: E731
        # mpmath's tails have all their digits, however small they are; their difference is a part mu of them or mu / (epsilon / mu + mu).
        lost = math.log10(1 + (epsilon / mu + mu) / mu) - math.log10(min(mu, 1))
        with mp.workdps(60 + int(lost)):
            return cdf(m / 2 - e / m) - mp.exp(e) * cdf(-m / 2 - e / m)


@pytest.mark.parametrize("mu", [1e-4, 1e-3, 0.02, 0.1816, 0.5, 1.0, 3.0, 10.0, 45.0, 100.0])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_gaussian_delta(mu: float, epsilon: float) -> None:
    found = acc.gaussian_delta(mu, epsilon)
    if abs(epsilon / mu - mu / 2) > 60 and epsilon > mu * mu / 2:
        assert 0 < found < 1e-300  # rounded up: never 0
        return
    exact = _mp_gaussian_delta(mu, epsilon)
    assert exact <= found
    assert found <= min(1, exact * (1 + mp.mpf(10) ** -9) + mp.mpf("5e-324"))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_gaussian_mu_and_epsilon_invert_delta(epsilon: float, delta: float) -> None:
    mu = acc.gaussian_mu(epsilon, delta)
    assert _mp_gaussian_delta(mu, epsilon) <= delta
    assert _mp_gaussian_delta(mu * (1 + 1e-7), epsilon) > delta
    back = acc.gaussian_epsilon(mu, delta)
    assert back <= epsilon + 1e-9 * max(1, epsilon)
    if back > 0:
        assert back >= epsilon * (1 - 1e-7) - 1e-9
        assert _mp_gaussian_delta(mu, back) <= delta


def _mp_zcdp_delta(rho: float, epsilon: float) -> mp.mpf:
    """Return the bound of Proposition 12 at its best order, found by bisection of its derivative."""
    with mp.workdps(60):
        r, e = mp.mpf(rho), mp.mpf(epsilon)
        low, high = mp.mpf(-1000), mp.mpf(1000)
        for _ in range(120):  # 1e-33 off the best order, where the bound is flat
            middle = (low + high) / 2
            t = mp.exp(middle)
            if (2 * t + 1) * r - e - mp.log1p(1 / t) < 0:
                low = middle
            else:
                high = middle
        t = mp.exp(low)
        return mp.exp(t * ((1 + t) * r - e) - t * mp.log1p(1 / t) - mp.log1p(t))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_zcdp_conversions(epsilon: float, delta: float) -> None:
    rho = acc.zcdp_rho(epsilon, delta)
    if epsilon == 0 and delta == 1e-300:
        assert rho == 0  # it underflows
        return
    assert 0 < rho < math.inf
    assert _mp_zcdp_delta(rho, epsilon) <= delta
    assert _mp_zcdp_delta(rho * (1 + 1e-8), epsilon) > delta
    found = acc.zcdp_delta(rho, epsilon)
    exact = _mp_zcdp_delta(rho, epsilon)
    assert exact <= found <= min(1, exact * (1 + mp.mpf(10) ** -10))
    back = acc.zcdp_epsilon(rho, delta)
    assert epsilon * (1 - 1e-9) - 1e-12 <= back <= epsilon * (1 + 1e-9) + 1e-9
    if back > 0:
        assert _mp_zcdp_delta(rho, back) <= delta


def _exact_pure_delta(k: int, epsilon_each: float, epsilon: float) -> mp.mpf:
    """Return the sum of Kairouz, Oh & Viswanath, Theorem 3.3, term by term."""
    with mp.workdps(450):
        e, target = mp.exp(mp.mpf(epsilon_each)), mp.exp(mp.mpf(epsilon))
        powers = [mp.mpf(1)]
        for _ in range(k):
            powers.append(powers[-1] * e)
        terms = (math.comb(k, x) * max(mp.mpf(0), powers[x] - target * powers[k - x]) for x in range((k + 1) // 2, k + 1))
        return min(mp.mpf(1), mp.fsum(terms) / (1 + e) ** k)


@grid(k=[1, 2, 3, 15, 16, 17, 105, 1000], epsilon_each=[1e-3, 0.015, 0.3, 1.0, 4.0, 30.0], epsilon=[0.0, 0.01, 1.0, 7.0])
def test_pure_delta(k: int, epsilon_each: float, epsilon: float) -> None:
    exact = _exact_pure_delta(k, epsilon_each, epsilon)
    found = acc.pure_delta(k, epsilon_each, epsilon)
    if exact < mp.mpf(10) ** -290:
        assert exact <= found < 1e-280
    else:
        assert exact <= found <= min(1, exact * (1 + mp.mpf(10) ** -8))


@grid(k=[1, 2, 105, 1000], epsilon=[0.0, 0.1, 1.0, 5.0], delta=[0.5, 1e-3, 2.0**-30, 1e-100])
def test_pure_epsilon_inverts(k: int, epsilon: float, delta: float) -> None:
    each = acc.pure_epsilon_each(k, epsilon, delta)
    assert each >= epsilon / k * (1 - 1e-12)
    assert _exact_pure_delta(k, each, epsilon) <= delta
    assert _exact_pure_delta(k, each * (1 + 1e-7), epsilon) > delta
    back = acc.pure_epsilon(k, each, delta)
    assert epsilon * (1 - 1e-7) - 1e-9 <= back <= epsilon * (1 + 1e-9) + 1e-9


def test_two_million_pure_mechanisms_agree_with_their_gaussian_limit() -> None:
    # the composition of k small losses tends to a Gaussian one with mu = sqrt(k) epsilon_each
    each = acc.pure_epsilon_each(2_000_000, 1.0, 2.0**-30)
    assert math.sqrt(2e6) * each == pytest.approx(acc.gaussian_mu(1.0, 2.0**-30), rel=1e-5)
    assert acc.pure_delta(2_000_000, each, 1.0) == pytest.approx(2.0**-30, rel=1e-7)


@grid(k=[1, 105, 2_000_000], epsilon=[1e-3, 1.0, 20.0], delta=[1e-3, 2.0**-30, 1e-300])
def test_advanced_composition_inverts(k: int, epsilon: float, delta: float) -> None:
    each = acc.advanced_epsilon_each(k, epsilon, delta)
    assert epsilon * (1 - 1e-9) <= acc.advanced_epsilon(k, each, delta) <= epsilon
    with mp.workdps(40):
        exact = mp.sqrt(-2 * k * mp.log(delta)) * each + k * mp.mpf(each) * mp.expm1(each)
    assert exact <= epsilon


@pytest.mark.parametrize("epsilon", [1e-4, 0.01, 0.5, 1.0, 3.0, 20.0])
def test_zcdp_cost_of_pure_mechanisms(epsilon: float) -> None:
    """The Renyi divergence of randomised response is at most alpha rho, and reaches it as alpha falls to 1."""
    rho = acc.rho_of_pure(Fraction(epsilon))
    with mp.workdps(50):
        e = mp.mpf(epsilon)
        claimed = mp.mpf(rho.numerator) / rho.denominator
        for alpha in (mp.mpf(1) + mp.mpf(10) ** -8, mp.mpf("1.1"), 2, 5, 30, 1000):
            p = 1 / (1 + mp.exp(-e))
            renyi = mp.log(p**alpha * (1 - p) ** (1 - alpha) + (1 - p) ** alpha * p ** (1 - alpha)) / (alpha - 1)
            assert renyi <= alpha * claimed
        assert claimed <= e * mp.tanh(e / 2) * (1 + mp.mpf(10) ** -13)


@pytest.mark.parametrize("epsilon", ["1/100", "1/2", "2"])
@pytest.mark.parametrize("delta", ["1/10000", "1/1000", "1/5"])
def test_zcdp_cost_of_selections(epsilon: str, delta: str) -> None:
    """Without what happens with probability delta on both sides (the lemma of ``dpsql.accounting.rules``), the Renyi divergence of
    a selection is at most alpha rho; two outputs of a set B, each possible on one side alone, and two others."""
    e, d = Fraction(epsilon), Fraction(delta)
    rho = float(acc.SelectionEvent(e, d).rho)
    ratio, small = math.exp(float(e)), float(d)
    worst = 0.0
    for lost_k, lost_l in ((0.0, small), (small, 0.0), (small / 3, small), (small, small)):
        for share in np.linspace(0.001, 0.999, 200):
            l0 = (1 - lost_l) * share
            k0 = min(ratio * l0, 1 - lost_k)
            k1, l1 = 1 - lost_k - k0, 1 - lost_l - l0
            if not (l1 / ratio <= k1 <= l1 * ratio and k0 >= l0 / ratio):
                continue
            k, l = np.array([k0, k1]), np.array([l0, l1])  # noqa: E741
            if k.sum() > l.sum():
                k, l = l, k  # noqa: E741
            mixing = (l.sum() - k.sum()) / (l.sum() - k.sum() / ratio)
            k, l = k / k.sum(), ((1 - mixing) * l + mixing * k / ratio) / k.sum()  # noqa: E741
            assert abs(l.sum() - 1) < 1e-12
            for alpha in (1.001, 1.5, 2.0, 5.0, 40.0):
                for a, b in ((k, l), (l, k)):
                    renyi = math.log(np.sum(a**alpha * b ** (1 - alpha))) / (alpha - 1)
                    worst = max(worst, renyi / (alpha * rho))
    assert (0.8 if d < e / 9 else 0.0) < worst <= 1 + 1e-9


@pytest.mark.parametrize("variance", ["0.01", "0.03", "0.1", "0.2", "0.334", "0.35", "0.5", "0.8", "1", "2", "3.3", "3.9", "5", "30"])
def test_theorem_on_the_discrete_gaussian(variance: str) -> None:
    """No cell of the discrete Gaussian is wider on the normal line than 1 / sigma_eff (``dpsql.accounting.gaussian``)."""
    with mp.workdps(50):
        s2 = mp.mpf(variance)
        reach = int(15 * mp.sqrt(s2)) + 40
        weights = [mp.exp(-(mp.mpf(x) ** 2) / (2 * s2)) for x in range(reach + 300)]
        mass = weights[0] + 2 * mp.fsum(weights[1:])
        tails, running = {}, mp.mpf(0)
        for x in range(reach + 299, 0, -1):
            running += weights[x]
            tails[x] = running / mass
        quantiles = [_mp_upper_quantile(tails[t]) for t in range(1, reach)]
        widths = [2 * quantiles[0], *(b - a for a, b in zip(quantiles, quantiles[1:], strict=False))]
        rational = acc.effective_variance(Fraction(variance))
        claimed = 1 / mp.sqrt(mp.mpf(rational.numerator) / rational.denominator)
        assert max(widths) <= claimed
        if s2 > mp.mpf(1) / 3:
            root = mp.sqrt(6 * (1 - mp.sqrt(1 - 1 / (3 * s2))))
            assert max(widths) <= root <= 1 / mp.sqrt(s2 - mp.mpf(1) / 12 - 1 / (36 * s2))
        if s2 < 3:
            assert claimed < max(widths) * (1 + mp.mpf(10) ** -8)  # computed, so nothing is given away
        assert max(widths) > 1 / mp.sqrt(s2)  # sigma itself would not do
        assert widths[-1] < widths[0]


def test_cells_far_out_are_narrow_enough_where_the_first_are_computed() -> None:
    """The bound of (1') in ``dpsql.accounting.gaussian`` for t >= 40, against the widths themselves."""
    with mp.workdps(60):
        for sigma in ("0.1", "0.5", "1", "1.7", "1.999"):
            s = mp.mpf(sigma)
            reach = int(30 * s) + 20
            for t in (40, 41, 60):
                tail = [mp.fsum(mp.exp(-(mp.mpf(x) ** 2 - t**2) / (2 * s**2)) for x in range(m, m + reach)) for m in (t, t + 1)]
                mass = mp.fsum(mp.exp(-(mp.mpf(x) ** 2) / (2 * s**2)) for x in range(-reach, reach + 1))
                z = [_mp_upper_quantile(part * mp.exp(-mp.mpf(t) ** 2 / (2 * s**2)) / mass) for part in tail]
                assert z[0] >= (t - mp.mpf(1) / 2) / s
                assert 1 / s < z[1] - z[0] < mp.mpf("1.01235") / s


def _mp_upper_quantile(p: mp.mpf) -> mp.mpf:
    x = mp.sqrt(-2 * mp.log(p)) if p < 0.3 else mp.mpf("0.5")
    for _ in range(60):
        tail = mp.erfc(x / mp.sqrt(2)) / 2
        step = mp.log(tail / p) * tail / mp.npdf(x)
        x += step
        if abs(step) < mp.mpf(10) ** -40:
            break
    return x
