"""Splitting the budget between lengths of tuples, and thresholds: worked values, ends, errors."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from scipy.stats import norm

from dpsql.accounting import effective_variance
from dpsql.errors import ArgumentError
from dpsql.methods.aggregate_seeded import levels

ROWS = 50_000
LONG = {2: (1.0, 1 / 2), 3: (1.0, 1 / 2, 1 / 3)}


def published_delta(rows: float) -> float:
    """Return delta where none is given: 1 / (n ln n).

    Examples
    --------
    >>> f"{published_delta(50_000):.3g}"
    '1.85e-06'
    """
    return 1.0 / (rows * math.log(rows))


def published_threshold(sigma: float, sensitivity: int, rate: float) -> float:
    """Return the published adaptive threshold of level k >= 2: sigma_k sqrt(Delta_k) Phi^-1(1 - eta_k / 2)."""
    return sigma * math.sqrt(sensitivity) * float(norm.ppf(1.0 - rate / 2.0))


def published_name_threshold(sigma: float, sensitivity: int, delta: float) -> float:
    """Return the published threshold of level 1: 1 + sigma_1 sqrt(Delta_1) Phi^-1((1 - delta/2)^(1/Delta_1)).

    It protects names that were read off the data. Where every attribute comes from a declared domain it is not needed.
    """
    # Phi^-1(1 - x) = -Phi^-1(x), and x = 1 - (1 - delta/2)^(1/Delta), which rounding would lose.
    tail = -math.expm1(math.log1p(-delta / 2.0) / sensitivity)
    return 1.0 - sigma * math.sqrt(sensitivity) * float(norm.ppf(tail))


@pytest.mark.parametrize(
    ("epsilon", "length", "rho", "percentile", "sigmas"),
    [
        (1.0, 2, ".01720", ".0131", ["12.12", "6.06"]),
        (1.0, 3, ".01720", None, ["20.27", "10.14", "6.76"]),
        (4.0, 3, ".25030", None, ["5.32", "2.66", "1.77"]),
    ],
)
def test_the_published_split_has_the_worked_values(epsilon, length, rho, percentile, sigmas):
    """METHODS.md section 6: n = 50,000, delta = 1 / (n ln n), N_p = 0.005, Q_p = 0.01."""
    found = levels.published_split(
        epsilon, published_delta(ROWS), LONG[length], percentile_share=0.01, records_share=0.005
    )
    assert f"{found.rho:.5f}".lstrip("0") == rho
    if percentile:
        assert f"{found.epsilon_percentile:.4f}".lstrip("0") == percentile
    assert [f"{sigma:.2f}" for sigma in found.sigmas] == sigmas
    assert found.epsilon_records == pytest.approx(0.005 * epsilon)
    # equation 1 holds
    spent = length * found.epsilon_percentile**2 / 2 + sum(1 / (2 * s**2) for s in found.sigmas)
    assert spent == pytest.approx(found.rho, rel=1e-12)


def test_proportions_and_rates():
    assert levels.sigma_proportions("long", 3) == (1, 1 / 2, 1 / 3)
    assert levels.sigma_proportions("short", 3) == (1 / 3, 1 / 2, 1)
    assert levels.sigma_proportions("balanced", 2) == (1, 1)
    assert levels.sigma_proportions([2, 1], 2) == (2.0, 1.0)
    assert levels.fabrication_rates("uncontrolled", 4) == (1, 1, 1)
    assert levels.fabrication_rates("progressive", 3) == (0.1, 1)
    assert levels.fabrication_rates("progressive", 2) == (1,)
    assert levels.fabrication_rates("balanced", 4) == (0.55, 1, 1)
    assert levels.fabrication_rates("minimize", 3) == (0.01, 0.01)
    assert levels.fabrication_rates([0.3], 2) == (0.3,)
    for mode in levels.FABRICATION_MODES:
        assert levels.fabrication_rates(mode, 1) == ()


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: levels.sigma_proportions("longest", 2), "sigma_proportions"),
        (lambda: levels.sigma_proportions([1, 0], 2), "sigma_proportions"),
        (lambda: levels.sigma_proportions([1, math.inf], 2), "sigma_proportions"),
        (lambda: levels.sigma_proportions([1], 2), "sigma_proportions"),
        (lambda: levels.fabrication_rates([0.0], 2), "fabrication_mode"),
        (lambda: levels.fabrication_rates([1.1], 2), "fabrication_mode"),
        (lambda: levels.fabrication_rates("none", 2), "fabrication_mode"),
        (lambda: levels.fabrication_rates(True, 2), "fabrication_mode"),
        (lambda: levels.fixed_thresholds([1.5], 2), "thresholds"),
        (lambda: levels.fixed_thresholds([-1], 2), "thresholds"),
        (lambda: levels.fixed_thresholds("fixed", 2), "thresholds"),
    ],
)
def test_what_is_refused(call, argument):
    with pytest.raises(ArgumentError, match=argument):
        call()


@pytest.mark.parametrize("sigma", [Fraction(3, 5), Fraction(1), Fraction(6), Fraction(57), Fraction(1001, 3)])
@pytest.mark.parametrize("rate", [1.0, 0.55, 0.1, 0.01, 1e-9])
def test_an_adaptive_threshold_is_the_smallest_that_keeps_the_rate(sigma, rate):
    found = levels.adaptive_threshold(sigma, rate)
    reach = range(-40 * math.ceil(sigma), 40 * math.ceil(sigma) + 1)
    weights = {x: math.exp(-x * x / 2 / float(sigma) ** 2) for x in reach}
    whole = math.fsum(weights.values())

    def above(t: int) -> float:
        return math.fsum(w for x, w in weights.items() if x > t) / whole

    assert above(found) <= rate / 2 * (1 + 1e-9)
    assert found == 0 or above(found - 1) > rate / 2 * (1 - 1e-9)
    assert levels.tail(sigma, found) == pytest.approx(above(found), rel=1e-9)


def test_integer_thresholds_are_near_the_published_ones():
    """The published one compares real noise, so it may be up to one lower or higher."""
    for scale, rate in ((40.6, 0.55), (12.0, 0.01), (300.0, 0.1)):
        assert abs(levels.adaptive_threshold(Fraction(scale), rate) - published_threshold(scale, 1, rate)) <= 1
    assert published_threshold(6.06, 45, 0.55) == pytest.approx(6.06 * math.sqrt(45) * norm.isf(0.275))
    # 1 + sigma sqrt(Delta) Phi^-1((1 - delta/2)^(1/Delta)), also where 1 - delta rounds to 1
    assert published_name_threshold(12.0, 10, 1e-6) == pytest.approx(
        1 + 12 * math.sqrt(10) * norm.ppf((1 - 5e-7) ** 0.1), rel=1e-6
    )
    assert 1 + 12 * math.sqrt(10) * 12 < published_name_threshold(12.0, 10, 1e-40) < 1 + 12 * math.sqrt(10) * 14


def test_thresholds_of_a_release():
    scales = (Fraction(30), Fraction(40), Fraction(50))
    options = {"reporting_length": 3, "thresholds": "adaptive", "fabrication_mode": "minimize"}
    assert [levels.threshold(k, scale, options) for k, scale in enumerate(scales, 1)] == [0, 103, 129]
    fixed = {**options, "thresholds": [7, 9]}
    assert [levels.threshold(k, scale, fixed) for k, scale in enumerate(scales, 1)] == [0, 7, 9]


def test_a_level_costs_no_more_than_its_unit():
    """sigma for D tuples: rho = D / (2 effective_variance(sigma^2)) at most 1 / (2 effective_variance(unit^2)), exactly."""
    for unit in (Fraction(15, 100), Fraction(58, 100), Fraction(1), Fraction(199, 100), Fraction(6061, 500)):
        for tuples in (0, 1, 2, 45, 161_700):
            scale = levels.level_scale(unit, tuples)
            assert max(tuples, 1) / effective_variance(scale**2) <= 1 / effective_variance(unit**2)
            assert scale <= unit * Fraction(math.sqrt(max(tuples, 1))) * (1 + Fraction(1, 10**5))


def test_weights_give_each_level_its_share():
    """sigma_k = p_k c per unit of sqrt(C(d, k)): rho_k in proportion to 1 / p_k^2."""
    split = levels.published_split(1.0, 1e-6, (1.0, 0.5, 0.25), percentile_share=0.0, records_share=0.0)
    assert [(split.sigmas[0] / sigma) ** 2 for sigma in split.sigmas] == pytest.approx([1, 4, 16])


@pytest.mark.parametrize("scale", [3000, 20_000])
def test_large_scales_have_the_same_thresholds_by_the_normal_law(scale, monkeypatch):
    """Beyond 2^15 nothing is summed: checked where both can be."""
    for rate in (1.0, 0.55, 0.1, 0.01, 1e-6):
        levels.adaptive_threshold.cache_clear()
        summed = levels.adaptive_threshold(Fraction(scale), rate)
        with monkeypatch.context() as patch:
            patch.setattr(levels, "_SUMMED_UP_TO", 1)
            levels.adaptive_threshold.cache_clear()
            assert levels.adaptive_threshold(Fraction(scale), rate) == summed
            approximate = levels.tail(Fraction(scale), summed)
        assert approximate == pytest.approx(levels.tail(Fraction(scale), summed), rel=1e-5)
    levels.adaptive_threshold.cache_clear()
