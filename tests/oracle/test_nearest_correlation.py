"""Newton's method against alternating projections with Dykstra's correction [Higham 2002]."""

import numpy as np
import pytest
from correlation_optimality import optimality_residual

from dpsql.numerics.nearest_correlation import nearest_correlation


def by_alternating_projections(matrix: np.ndarray, rounds: int = 20_000) -> np.ndarray:
    y, correction = matrix.copy(), np.zeros_like(matrix)
    for _ in range(rounds):
        given = y - correction
        values, vectors = np.linalg.eigh(given)
        x = (vectors * np.maximum(values, 0)) @ vectors.T
        correction = x - given
        previous, y = y, x.copy()
        np.fill_diagonal(y, 1.0)
        if np.linalg.norm(y - previous) < 1e-13 * np.linalg.norm(y) and np.linalg.norm(y - x) < 1e-11:
            break
    return x


def random_symmetric(rng: np.random.Generator, d: int) -> np.ndarray:
    upper = np.triu(rng.uniform(-1, 1, (d, d)), 1)
    return upper + upper.T + np.eye(d)


def one_hot_like(d: int) -> np.ndarray:
    """Structural zeros as the published copula has them: -1 within blocks of 5, dependence across."""
    label = np.arange(d) // 5
    return np.where(label[:, None] == label[None, :], -1.0, 0.3) + np.diag(np.full(d, 2.0))


CASES = {
    **{f"random {d}": random_symmetric(np.random.default_rng(d), d) for d in (2, 3, 5, 17, 40)},
    "signs": np.sign(random_symmetric(np.random.default_rng(1), 12)),
    "all -1": 2 * np.eye(6) - 1,
    "all 1": np.ones((6, 6)),
    "structural zeros": one_hot_like(30),
    "free diagonal": random_symmetric(np.random.default_rng(2), 8) + np.diag(np.linspace(-0.5, 3, 8)),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_alternating_projections(name: str) -> None:
    matrix = CASES[name]
    fast, slow = nearest_correlation(matrix), by_alternating_projections(matrix)
    assert np.linalg.norm(matrix - fast) == pytest.approx(np.linalg.norm(matrix - slow), abs=1e-8)
    assert np.abs(fast - slow).max() < 1e-5


def test_highams_example() -> None:
    # Higham (2002), section 4: the tridiagonal matrix of ones.
    found = nearest_correlation([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    assert np.round(found[0], 4).tolist() == [1.0, 0.7607, 0.1573]


def noisy_factors(d: int, noise: float) -> np.ndarray:
    """Latent correlations of a few factors with the errors of noisy tables, as wide tables give them."""
    rng = np.random.default_rng(d)
    loadings = rng.normal(size=(6, d)) * rng.choice([0.15, 0.5, 1.0], size=d)
    loadings /= np.sqrt(1.0 + np.square(loadings).sum(0))
    upper = np.triu(loadings.T @ loadings + rng.normal(0.0, noise, (d, d)), 1)
    found = np.clip(upper + upper.T, -1.0, 1.0)
    np.fill_diagonal(found, 1.0)
    return found


def test_large_matrix_begun_in_single_precision_agrees_with_alternating_projections() -> None:
    matrix = noisy_factors(320, 0.08)
    assert np.linalg.eigvalsh(matrix)[0] < -0.5
    fast, slow = nearest_correlation(matrix), by_alternating_projections(matrix, 400)
    assert np.linalg.norm(fast - slow) < 1e-8
    assert optimality_residual(matrix, fast) < 1e-8
    assert np.array_equal(fast, nearest_correlation(matrix))


def test_optimality_residual_tells_the_nearest_matrix_from_others() -> None:
    matrix = noisy_factors(40, 0.3)
    nearest = nearest_correlation(matrix)
    assert optimality_residual(matrix, nearest) < 1e-9
    assert optimality_residual(matrix, 0.999 * nearest + 0.001 * np.eye(40)) > 1e-4
    assert optimality_residual(matrix, matrix) > 0.1
    assert optimality_residual(matrix, 1.01 * nearest) > 0.0099
