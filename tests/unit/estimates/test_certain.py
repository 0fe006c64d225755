"""Confidence sets: against dense algebra, and as often right as they say, for any number of rows."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from dpsql.estimates import certain
from dpsql.estimates.trees import least_squares

FALSE_ALARM = 1e-9


def covers(hits, trials, low, high=1.0):
    assert binom.cdf(hits, trials, low) > FALSE_ALARM and binom.sf(hits - 1, trials, high) > FALSE_ALARM, hits / trials


@pytest.mark.parametrize("branching", [(3,), (2, 3), (4, 2, 3), (2, 2, 2, 2)])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_deviations_are_those_of_dense_algebra(branching, share):
    rng = np.random.default_rng(len(branching))
    lengths = [math.prod(branching[: k + 1]) for k in range(len(branching))]
    sigmas = rng.uniform(0.5, 3.0, len(lengths))
    size, count = lengths[-1], sum(lengths)
    solve = np.zeros((size, count))  # least squares is linear: its matrix, column by column
    for i in range(count):
        unit = np.zeros(count)
        unit[i] = 1.0
        levels, spreads = least_squares(np.split(unit[None], np.cumsum(lengths)[:-1], axis=-1), (sigmas**2).tolist())
        solve[:, i] = levels[-1][0]
    covariance = solve @ np.diag(np.repeat(sigmas**2, lengths)) @ solve.T
    found = certain.deviations(branching, spreads, share)
    assert found.shape == (size + 1,)
    for place in range(size + 1):
        weights = (np.arange(size) < place) - share
        assert found[place] == pytest.approx(math.sqrt(max(weights @ covariance @ weights, 0.0)), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.9999])
def test_reach_is_a_quantile_of_the_noise(mechanism, confidence):
    rng, draws = np.random.default_rng(1), 400_000
    noise = np.abs(rng.normal(0, 1, draws) if mechanism == "gaussian" else rng.laplace(0, math.sqrt(0.5), draws))
    covers(int((noise <= certain.reach(mechanism, confidence)).sum()), draws, confidence, confidence)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("rows", [0.0, 1.0, 2.0, 20.0, 1000.0])
@pytest.mark.parametrize("truth", [0.013, 0.5, 0.9, 1.0])
def test_means_are_covered_whatever_the_number_of_rows(mechanism, rows, truth):
    rng, draws, sigma = np.random.default_rng(2), 40_000, 8.0
    places = np.array([0.0, 1.0])
    scale = (draws, 2)
    noise = rng.normal(0, sigma, scale) if mechanism == "gaussian" else rng.laplace(0, sigma / math.sqrt(2), scale)
    cells = np.array([rows * (1 - truth), rows * truth]) + noise
    low, high = certain.mean(cells, places, sigma, certain.reach(mechanism, 0.95))
    assert (low <= high).all() and (low >= 0).all() and (high <= 1).all()
    covers(int(((low <= truth) & (truth <= high)).sum()), draws, 0.95, 0.975 if rows >= 1000 else 1.0)


def test_means_of_degree_two_and_of_pairs():
    rng, draws, sigma = np.random.default_rng(3), 20_000, 5.0
    y = rng.beta(2, 5, 30)
    exact = np.array([((1 - y) ** 2).sum(), (2 * y * (1 - y)).sum(), (y**2).sum()])
    low, high = certain.mean(exact + rng.normal(0, sigma, (draws, 3)), np.array([0.0, 0.5, 1.0]), sigma, 1.96)
    covers(int(((low <= y.mean()) & (y.mean() <= high)).sum()), draws, 0.949, 0.98)


def test_a_mean_of_nothing_may_be_anything():
    low, high = certain.mean(np.array([[0.0, 0.0], [-3.0, 2.0]]), np.array([0.0, 1.0]), 5.0, 1.96)
    assert low.tolist() == [0.0, 0.0] and high.tolist() == [1.0, 1.0]
    exact = certain.mean(np.array([[30.0, 10.0]]), np.array([0.0, 1.0]), 0.0, 1.96)
    assert exact[0] == exact[1] == pytest.approx(0.25)


@pytest.mark.parametrize("rows", [1, 2, 5, 20, 300])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_quantiles_are_covered_whatever_the_number_of_rows(rows, share):
    rng, draws, sigma = np.random.default_rng(4), 4_000, 6.0
    values = rng.uniform(0, 1, rows)
    truth = float(np.quantile(values, share))
    lengths = (4, 16, 64)
    exact = [np.histogram(values, np.linspace(0, 1, length + 1))[0] for length in lengths]
    levels, spreads = least_squares([e + rng.normal(0, sigma, (draws, e.size)) for e in exact], [sigma**2] * 3)
    spread = certain.deviations((4, 4, 4), spreads, share)
    first, last = certain.leaves(levels[-1], share, spread, 1.96)
    covers(int(((first / 64 <= truth) & (truth <= (last + 1) / 64)).sum()), draws, 0.95)
    if rows == 300:
        assert np.median(last - first) < 40


def test_without_noise_a_quantile_is_in_its_leaf():
    counts = np.array([[0.0, 3.0, 5.0, 2.0]])
    first, last = certain.leaves(counts, 0.5, np.zeros(5), 1.96)
    assert (first, last) == ([2], [2])
