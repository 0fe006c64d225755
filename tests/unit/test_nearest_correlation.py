import numpy as np
import pytest

from dpsql.errors import ArgumentError
from dpsql.numerics.nearest_correlation import lift_spectrum, nearest_correlation


def test_a_correlation_matrix_is_its_own_nearest() -> None:
    factor = np.random.default_rng(0).normal(size=(9, 9))
    covariance = factor @ factor.T
    scale = np.sqrt(np.diag(covariance))
    given = covariance / np.outer(scale, scale)
    assert np.allclose(nearest_correlation(given), given, rtol=0, atol=1e-12)


@pytest.mark.parametrize("d", [1, 2, 7])
def test_identity_ones_and_zeros(d: int) -> None:
    assert np.array_equal(nearest_correlation(np.eye(d)), np.eye(d))
    assert np.allclose(nearest_correlation(np.zeros((d, d))), np.eye(d))
    assert np.allclose(nearest_correlation(np.ones((d, d))), 1.0, atol=1e-12)


def test_a_negative_definite_matrix_has_one_too() -> None:
    found = nearest_correlation(-5.0 * np.eye(4) - 1.0)
    # Exchangeable, and as negatively correlated as four normals can be.
    assert np.allclose(found, np.eye(4) * 4 / 3 - 1 / 3, atol=1e-7)


def test_one_row_whatever_its_entry() -> None:
    assert nearest_correlation([[-3.0]]).tolist() == [[1.0]]


@pytest.mark.parametrize(
    "bad", [np.full((2, 2), np.nan), np.full((2, 2), np.inf), np.zeros((2, 3)), np.zeros((0, 0)), np.zeros(4)]
)
def test_what_is_no_finite_square_matrix_is_refused(bad: np.ndarray) -> None:
    for function in (nearest_correlation, lift_spectrum):
        with pytest.raises(ArgumentError, match="matrix"):
            function(bad)


@pytest.mark.parametrize("floor", [1e-8, 1e-3, 1.0])
def test_a_lifted_spectrum_can_be_factored(floor: float) -> None:
    lifted = lift_spectrum(np.ones((5, 5)), floor=floor)
    assert np.array_equal(np.diag(lifted), np.ones(5))
    assert np.linalg.eigvalsh(lifted)[0] > 0.1 * floor
    np.linalg.cholesky(lifted)


@pytest.mark.parametrize("floor", [0.0, -1.0, 2.0, float("nan")])
def test_a_floor_outside_its_range_is_refused(floor: float) -> None:
    with pytest.raises(ArgumentError, match="floor"):
        lift_spectrum(np.eye(2), floor=floor)
