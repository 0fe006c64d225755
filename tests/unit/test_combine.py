"""Reiter's combining rules: hand-computed cases, the ends, coverage, and what is refused."""

import math

import numpy as np
import pytest
from scipy import stats

from dpsql.answers.combine import Combined, combine, degrees_of_freedom, student_t_quantile
from dpsql.errors import ArgumentError


def test_by_hand() -> None:
    """q = 10, 12, 14: mean 12, b = 4; v = 1, 2, 3: vbar = 2; T = 4/3 + 2; df = 2 (1 + 6/4)^2 = 12.5."""
    found = combine([10, 12, 14], [1, 2, 3])
    assert found.estimate == 12.0
    assert found.between == 4.0
    assert found.within == 2.0
    assert found.sets == 3
    assert found.variance == pytest.approx(10 / 3, rel=1e-15)
    assert found.standard_error == pytest.approx(math.sqrt(10 / 3), rel=1e-15)
    assert found.df == 12.5
    half = stats.t.ppf(0.975, 12.5) * math.sqrt(10 / 3)
    assert (found.lower, found.upper) == pytest.approx((12 - half, 12 + half), rel=1e-12)


def test_tables_that_agree_have_infinite_df() -> None:
    found = combine([0.1] * 10, [0.04] * 10)
    assert found.between == 0.0  # although 0.1 is no binary fraction
    assert math.isinf(found.df)
    assert found.upper - found.estimate == pytest.approx(1.959963984540054 * 0.2, rel=1e-12)


def test_nothing_within_leaves_m_minus_1_df() -> None:
    found = combine([1.0, 2.0, 3.0], [0.0, 0.0, 0.0])
    assert found.df == 2.0
    assert found.variance == pytest.approx(1 / 3)


def test_nothing_at_all_is_a_point() -> None:
    assert combine([2.0, 2.0], [0.0, 0.0]) == Combined(2.0, 0.0, 0.0, math.inf, 2.0, 2.0, 0.0, 0.0, 2)


def test_tiny_between_does_not_overflow() -> None:
    assert math.isinf(degrees_of_freedom(1e-300, 1e300, 5))
    assert math.isfinite(combine([1.0, 1.0 + 1e-15], [1.0, 1.0]).upper)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999999, 1 - 1e-13])
@pytest.mark.parametrize("df", [0.3, 1, 2.25, 9, 1e6, 1e14])
def test_quantile_against_the_distribution(level: float, df: float) -> None:
    t = student_t_quantile(level, df)
    assert 2 * stats.t.sf(t, df) == pytest.approx(1 - level, rel=1e-6)


def test_quantile_at_infinity_continues_large_df() -> None:
    assert student_t_quantile(0.95, math.inf) == pytest.approx(student_t_quantile(0.95, 1e12), rel=1e-9)
    assert student_t_quantile(0.95, 1e300) == student_t_quantile(0.95, math.inf)


def test_coverage_of_partially_synthetic_means() -> None:
    """Posterior-predictive normal tables without noise: the interval covers the true mean 95 times in 100."""
    rng, repetitions, n, sets = np.random.default_rng(4), 4000, 50, 5
    data = rng.normal(3.0, 2.0, (repetitions, n))
    mean, variance = data.mean(1)[:, None], data.var(1, ddof=1)[:, None]
    sigma2 = (n - 1) * variance / rng.chisquare(n - 1, (repetitions, sets))
    mu = rng.normal(mean, np.sqrt(sigma2 / n))
    rows = rng.normal(mu[..., None], np.sqrt(sigma2)[..., None], (repetitions, sets, n))
    results = [combine(q, v) for q, v in zip(rows.mean(2), rows.var(2, ddof=1) / n, strict=True)]
    covered = sum(r.lower <= 3.0 <= r.upper for r in results) / repetitions
    # mu is drawn too, which b sees and T counts once: partially synthetic rules are conservative by little here
    assert 0.935 < covered < 0.975


@pytest.mark.parametrize(
    ("estimates", "variances", "text"),
    [
        ([1.0], [1.0], "at least two synthetic tables"),
        ([], [], "at least two synthetic tables"),
        ([1.0, math.nan], [1.0, 1.0], "estimates = .*finite numbers"),
        ([1.0, None], [1.0, 1.0], "estimates = .*finite numbers"),
        ([1.0, 2.0], [1.0, math.inf], "variances = .*finite numbers"),
        ([1.0, 2.0], [1.0, -1e-9], "at least 0; give the squared standard error"),
        ([1.0, 2.0], [1.0], "one variance for each of the 2 estimates"),
        (["x", 2.0], [1.0, 1.0], "estimates = .*finite numbers"),
    ],
)
def test_refused(estimates: list, variances: list, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        combine(estimates, variances)


@pytest.mark.parametrize("level", [0.0, 1.0, -1, math.nan, True, "0.95"])
def test_level_refused(level: object) -> None:
    with pytest.raises(ArgumentError, match="level"):
        combine([1.0, 2.0], [1.0, 1.0], level)


@pytest.mark.parametrize("df", [0.0, -1.0, math.nan])
def test_df_refused(df: float) -> None:
    with pytest.raises(ArgumentError, match="df"):
        student_t_quantile(0.95, df)
