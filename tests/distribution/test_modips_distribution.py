"""Laws of what `modips` releases and of the rows it draws: alpha 1e-6, and wrong parameters must be rejected."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpsql.domains.attributes import FINE, Attribute, Domain
from dpsql.mechanisms.moments import TOP
from dpsql.methods.base import Contract, Counted
from dpsql.methods.modips.method import Modips
from dpsql.methods.modips.statistics import exact_statistics, kind_of
from dpsql.tables.statistics import Statistics

ALPHA = 1e-6
METHOD = Modips()
FLAG = Domain((Attribute("f", "BOOLEAN", "categorical", ("false", "true"), nullable=False),))
X = Attribute("x", "DOUBLE", "numeric", edges=(0.0, 1.0), nullable=False)
KIND = Attribute("k", "VARCHAR", "categorical", ("a", "b", "c"), nullable=False)


def noise_z(noise: np.ndarray, scale: float) -> float:
    """z of the mean of |noise|, the sufficient statistic of a discrete Laplace scale."""
    q = np.exp(-1 / scale)
    mean, square = 2 * q / (1 - q * q), 2 * q / (1 - q) ** 2
    return float((np.abs(noise).mean() - mean) / np.sqrt((square - mean**2) / noise.size))


@pytest.mark.parametrize(
    ("domain", "counted", "epsilon", "calls"),
    [
        (FLAG, Counted({(0,): np.array([60, 40])}, 100), 200, 50),
        (Domain((X,)), Counted({(): np.array(10)}, 10, np.array([[9 * TOP]]), [9 * TOP**2]), 1, 50),
        (
            Domain((KIND, X)),
            Counted({(0,): np.array([5, 0, 5])}, 10, np.array([[4 * TOP], [0], [7]]), [4 * TOP**2 + 40]),
            40,
            50,
        ),
    ],
)
def test_noise_of_every_part_has_the_charged_scale(domain: Domain, counted: Counted, epsilon: int, calls: int) -> None:
    """50,000 draws of every part: OS entropy, so alpha is the chance of a false alarm."""
    options = {"sets": 1000}
    price = METHOD.price(domain, Contract("replace_one", 1, True), Fraction(epsilon), options)
    exact = exact_statistics(counted, domain)
    drawn = [METHOD.draw(counted, domain, price.parameters, options) for _ in range(calls)]
    limit = stats.norm.isf(ALPHA / 2)
    for part, text in enumerate(price.parameters["scales"]):
        noise = np.concatenate([block - exact[part] for blocks in drawn for block in blocks[part :: len(exact)]]).astype(np.float64)
        scale = float(Fraction(text))
        assert noise.size >= 50_000
        assert abs(noise_z(noise, scale)) < limit + 1  # several parts: 4e-9 each
        assert abs(noise_z(noise, 0.95 * scale)) > limit
        assert abs(noise_z(noise, 1.05 * scale)) > limit


def released(domain: Domain, blocks: list[list[int]], rows: int) -> Statistics:
    scales = ["1/1000"] * len(blocks)
    arrays = tuple(np.array(block, dtype=np.int64) for block in blocks)
    return Statistics(domain.sizes, {}, {}, "laplace", rows, arrays, domain, {"kind": kind_of(domain), "sets": 1, "scales": scales})


def test_binary_rows_are_beta_binomial() -> None:
    model = METHOD.fit(released(FLAG, [[1]], 10), {})
    rng = np.random.default_rng(1)
    ones = [int(next(METHOD.sample(model, 10, rng)).sum()) for _ in range(20_000)]
    observed = np.bincount(ones, minlength=11)

    def p_value(prior: float) -> float:
        expected = stats.betabinom(10, prior + 1, prior + 9).pmf(np.arange(11)) * len(ones)
        kept = expected >= 5
        pooled = [np.append(some[kept], some[~kept].sum()) if (~kept).any() else some for some in (observed, expected)]
        return float(stats.chisquare(*pooled).pvalue)

    assert p_value(1 / 3) > ALPHA
    assert p_value(1 / 2) < ALPHA
    assert p_value(0.2) < ALPHA


def test_normal_rows_are_student() -> None:
    """One row from a posterior of n = 3 rows, bounds far away: t with 2 degrees of freedom, variance s^2 (1 + 1/n)."""
    n, s2 = 3, 1e-6
    model = METHOD.fit(released(Domain((X,)), [[n * FINE // 2], [round(s2 * FINE * n * (FINE / TOP) ** 2)]], n), {})
    mean, variance = model.statistics[0]
    rng = np.random.default_rng(2)
    codes = np.array([int(next(METHOD.sample(model, 1, rng))[0, 0]) for _ in range(20_000)])
    t = ((codes + rng.random(codes.size)) / FINE - mean) / np.sqrt(variance * (1 + 1 / n))
    assert stats.kstest(t, stats.t(2).cdf).pvalue > ALPHA
    assert stats.kstest(t, stats.t(3).cdf).pvalue < ALPHA
    assert stats.kstest(t, stats.t(1).cdf).pvalue < ALPHA
    assert stats.kstest(t * (1 + 1 / n) ** 0.5, stats.t(2).cdf).pvalue < ALPHA  # mu not drawn


def test_mixed_cells_are_dirichlet() -> None:
    """The first row's cell: (1/K + n_k) / (1 + n)."""
    model = METHOD.fit(released(Domain((KIND,)), [[1, 0, 3]], 4), {})
    rng = np.random.default_rng(3)
    cells = [int(next(METHOD.sample(model, 1, rng))[0, 0]) for _ in range(20_000)]
    expected = (np.array([1, 0, 3]) + 1 / 3) / 5 * len(cells)
    assert stats.chisquare(np.bincount(cells, minlength=3), expected).pvalue > ALPHA
    both = np.array([[*next(METHOD.sample(model, 2, rng))[:, 0]] for _ in range(20_000)])
    same = np.mean(both[:, 0] == both[:, 1])
    alpha = np.array([1, 0, 3]) + 1 / 3
    assert same == pytest.approx((alpha * (alpha + 1)).sum() / 30, abs=5 * (0.25 / 20_000) ** 0.5)
