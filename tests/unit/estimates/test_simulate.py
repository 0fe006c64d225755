"""Intervals: how often they cover, that they are repeatable, and the noise they take off."""

import math
from fractions import Fraction

import numpy as np
import pytest
from estimate_counters import counters
from scipy.stats import binom

from dpsql import accounting as acc
from dpsql.errors import ArgumentError, CalibrationError
from dpsql.estimates import moments, quantiles
from dpsql.estimates.measures import Measure, Variable
from dpsql.estimates.shares import gaussian_scale, largest_grid, rho_shares
from dpsql.estimates.simulate import Noise, count_interval, intervals

FALSE_ALARM = 1e-6


def _covers(hits: int, trials: int, low: float, high: float) -> None:
    """Assert that a coverage between low and high explains these hits: each side has half the false alarm rate."""
    assert binom.sf(hits - 1, trials, high) > FALSE_ALARM / 2 and binom.cdf(hits, trials, low) > FALSE_ALARM / 2, hits / trials


@pytest.mark.parametrize("noise", [Noise("gaussian", 0.6), Noise("gaussian", 3.0), Noise("gaussian", 40.0), Noise("laplace", 0.7), Noise("laplace", 30.0)])
def test_noise_has_its_deviation(noise: Noise) -> None:
    draws = noise.draw(np.random.default_rng(1), (200_000,))
    fourth = float(np.mean(draws**4))
    spread = math.sqrt((fourth - noise.deviation**4) / draws.size)
    assert abs(float(np.mean(draws**2)) - noise.deviation**2) < 4.9 * spread
    assert abs(float(draws.mean())) < 4.9 * noise.deviation / math.sqrt(draws.size)
    assert noise.scale == 40.0 or (draws == np.rint(draws)).all()


def test_counts_have_exact_intervals() -> None:
    noise = Noise("gaussian", 2.0)
    released = 50 + noise.draw(np.random.default_rng(2), (20_000,))
    low, high = count_interval(released, noise, 0.9)
    _covers(int(((low <= 50) & (high >= 50)).sum()), 20_000, 0.9, 0.96)
    assert (low >= 0).all() and count_interval([-9.0], noise)[1].tolist() == [0.0]


@pytest.mark.parametrize("confidence", [0.5, 0.95])
@pytest.mark.parametrize("name", ["avg", "var_pop", "stddev_samp", "corr", "regr_slope"])
def test_intervals_of_moments_cover_as_often_as_they_say(name: str, confidence: float) -> None:
    """2,000 groups of 2,000 rows, sigma 10: one release gives 2,000 intervals, nearly independent."""
    rng, groups, n = np.random.default_rng(3), 2000, 2000
    paired = name in moments.PAIRED
    measure = Measure("moments", (Variable(0, 0, 10), Variable(1, 0, 10))[: 1 + paired], degree=2, grid=1024)
    x = rng.beta(2, 3, n) * 10
    rows = np.stack([np.clip(0.6 * x + rng.normal(1, 1.5, n), 0, 10), x], axis=1)[:, : 1 + paired]
    exact = np.tile(counters(measure, rows)[None].astype(float), (groups, 1))
    noise = Noise("gaussian", 10.0 * measure.grid)

    def estimate(blocks: object) -> np.ndarray:
        return moments.estimate(name, moments.moments(measure, blocks[0], noise.deviation))  # type: ignore[index]

    truth = float(moments.estimate(name, moments.moments(measure, exact[:1], 0.0))[0])
    low, high = intervals(estimate, [exact + noise.draw(rng, exact.shape)], [noise], 7, confidence, 200)
    _covers(int(((low <= truth) & (truth <= high)).sum()), groups, confidence - 0.03, confidence + 0.025)


def test_intervals_of_medians_cover_about_as_often_as_they_say() -> None:
    """400 groups of 3,000 rows, four levels of sigma 20."""
    rng, groups = np.random.default_rng(4), 400
    measure = Measure("tree", (Variable(0, 0, 100),), levels=(4,) * 4)
    rows = np.clip(rng.normal(45, 15, 3000), 0, 100)
    exact = np.tile(counters(measure, rows[:, None])[None].astype(float), (groups, 1))
    noise = Noise("gaussian", 20.0)

    def estimate(blocks: object) -> np.ndarray:
        built = quantiles.tree(measure, blocks[0], [noise.deviation] * 4)  # type: ignore[index]
        return quantiles.quantiles(built, [0.5, 0.9])

    low, high = intervals(estimate, [exact + noise.draw(rng, exact.shape)], [noise], 7, 0.95, 100)
    truth = quantiles.quantiles(quantiles.tree(measure, exact[:1], [0.0] * 4), [0.5, 0.9])[0]
    for k in range(2):
        _covers(int(((low[:, k] <= truth[k]) & (truth[k] <= high[:, k])).sum()), groups, 0.91, 0.985)
    assert (high - low < 12).all()


def test_intervals_are_repeatable_and_hold_the_estimate() -> None:
    noise, released = Noise("laplace", 3.0), [np.array([[4.0, 90.0]]), np.array([[7.0]])]
    noises = [noise, noise]

    def ratio(blocks: object) -> np.ndarray:
        first, second = blocks  # type: ignore[misc]
        return np.where(second > 0, first / np.where(second > 0, second, 1.0), np.nan)

    first, again, other = (intervals(ratio, released, noises, seed) for seed in ([1, 2], [1, 2], 3))
    assert all((a == b).all() for a, b in zip(first, again, strict=True)) and (first[0] != other[0]).any()
    value = ratio(released)
    assert ((first[0] <= value) & (value <= first[1])).all() and np.isfinite(first).all()
    wide = intervals(ratio, released, noises, [1, 2], 0.999)
    assert ((wide[0] <= first[0]) & (wide[1] >= first[1])).all()
    missing = intervals(ratio, [released[0], np.array([[-50.0]])], noises, 1)
    assert np.isnan(missing).all()
    for arguments in ((ratio, released, [noise], 1), (ratio, released, noises, 1, 1.0)):
        with pytest.raises(ArgumentError):
            intervals(*arguments)


def test_shares_make_the_weighted_variance_smallest() -> None:
    rng = np.random.default_rng(8)
    moved, weights = [1.0, 3.0, 0.2], [1.0, 0.1, 7.0]

    def objective(shares: np.ndarray) -> float:
        return float(sum(w * d**2 / s for w, d, s in zip(weights, moved, shares, strict=True)))

    best = rho_shares(moved, weights)
    assert sum(best) == pytest.approx(1)
    for other in rng.dirichlet([1, 1, 1], 2000):
        assert objective(other) >= objective(np.asarray(best)) * (1 - 1e-12)
    for wrong in ([0.0, 1.0], [1.0, math.inf]):
        with pytest.raises(ArgumentError):
            rho_shares(wrong)


@pytest.mark.parametrize("l2", [1.0, math.sqrt(2), 3.0, 2.0**19, 1.2345e5])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 20.0])
def test_measures_cost_what_tables_of_sensitivity_one_do(l2: float, epsilon: float) -> None:
    found = acc.calibrate(mechanism="gaussian", tables=2, epsilon=epsilon, delta=1e-9, neighbors="add_remove", weights=(1.0, 3.0))
    for unit in found.scales:
        if float(unit) * l2 > 2.0**25:
            with pytest.raises(CalibrationError, match="noise scale"):
                gaussian_scale(unit, l2)
            continue
        scale = gaussian_scale(unit, l2)
        there, here = acc.GaussianEvent(unit).rho, acc.GaussianEvent(scale, l2).rho
        assert here <= there <= here * (1 + Fraction(1, 1000) + (Fraction(1, 2) if unit < 2 else 0))
        grid = largest_grid(unit, 3.0)
        assert gaussian_scale(unit, 3.0 * grid) <= 2**25 and (grid == 2**20 or float(unit) * 6 * grid > 2**24.9)
