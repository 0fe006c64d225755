import math

import numpy as np
import pytest

from dpsql.errors import ArgumentError
from dpsql.numerics.bivariate_normal import latent_correlation, normal_cdf2


def test_quadrants_have_a_closed_form() -> None:
    r = np.array([-1.0, -0.999999, -0.9, -0.5, 0.0, 0.2, 0.8, 0.95, 0.999999, 1.0])
    assert np.allclose(normal_cdf2(0.0, 0.0, r), 0.25 + np.arcsin(r) / (2 * math.pi), rtol=0, atol=1e-15)


def test_infinite_limits() -> None:
    assert float(normal_cdf2(-np.inf, 0.3, 0.5)) == 0.0
    assert float(normal_cdf2(np.inf, 0.0, -0.9)) == 0.5
    assert float(normal_cdf2(np.inf, np.inf, 0.1)) == 1.0


def test_shapes_broadcast() -> None:
    assert normal_cdf2(np.zeros((3, 1)), np.zeros(4), 0.5).shape == (3, 4)
    assert latent_correlation(np.full((3, 1), 0.5), np.full(4, 0.5), 0.25).shape == (3, 4)
    assert latent_correlation(np.zeros(0), np.zeros(0), np.zeros(0)).shape == (0,)


def test_frechet_bounds_and_constant_columns() -> None:
    assert float(latent_correlation(0.3, 0.4, 0.3)) == 1.0
    assert float(latent_correlation(0.3, 0.4, 0.9)) == 1.0
    assert float(latent_correlation(0.3, 0.4, 0.0)) == -1.0
    assert float(latent_correlation(0.7, 0.8, 0.5)) == -1.0
    assert float(latent_correlation(0.0, 0.4, 0.0)) == 0.0
    assert float(latent_correlation(1.0, 0.4, 0.4)) == 0.0


@pytest.mark.parametrize("bad", [math.nan, 1.1, -1.1])
def test_a_correlation_outside_its_range_is_refused(bad: float) -> None:
    with pytest.raises(ArgumentError, match="correlation"):
        normal_cdf2(0.0, 0.0, bad)


def test_nan_limits_and_shares_outside_their_range_are_refused() -> None:
    with pytest.raises(ArgumentError, match="limits must be numbers"):
        normal_cdf2(math.nan, 0.0, 0.0)
    for a, b, both in ((math.nan, 0.5, 0.2), (0.5, 1.5, 0.2), (-0.1, 0.5, 0.2), (0.5, 0.5, math.nan)):
        with pytest.raises(ArgumentError, match="shares lie in"):
            latent_correlation(a, b, both)
