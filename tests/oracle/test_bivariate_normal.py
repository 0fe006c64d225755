"""The bivariate normal and its inverse against 40-digit integrals."""

import mpmath
import numpy as np
import pytest
from pairwise import WHOLE
from scipy import special

from dpsql.numerics.bivariate_normal import latent_correlation, normal_cdf2

LIMITS = [
    (0.0, 0.0), (0.0, 1.3), (1e-9, -1e-9), (-1.0, -1.0), (-2.3, 0.4), (2.0, 1.5), (-3.0, -3.0 + 1e-5),
    (-4.753424308822899, -4.753424308822899), (-4.753424308822899, 2.1), (-4.75, -4.7), (4.75, -4.75), (1.0, 5.5),
]
CORRELATIONS = [0.0, 0.3, -0.3, 0.79, 0.81, -0.79, -0.81, 0.95, -0.95, 0.9999, -0.9999, 1 - 1e-8, -1 + 1e-8]


def exact(h: float, k: float, correlation: float) -> mpmath.mpf:
    """Plackett's integral in 40 digits, split ever more finely towards the end of the angle."""
    with mpmath.workdps(40):
        h, k, r = mpmath.mpf(h), mpmath.mpf(k), mpmath.mpf(correlation)
        theta, sign = mpmath.asin(r), -1 if correlation < 0 else 1

        def density(x: mpmath.mpf) -> mpmath.mpf:
            square = h * h - 2 * h * k * mpmath.sin(x) + k * k
            return mpmath.exp(-square / (2 * mpmath.cos(x) ** 2)) / (2 * mpmath.pi)

        splits = [sign * mpmath.pi / 2 * (1 - mpmath.mpf(2) ** -j) for j in range(40)]
        points = [x for x in splits if abs(x) < abs(theta)] + [theta]
        return mpmath.ncdf(h) * mpmath.ncdf(k) + (mpmath.quad(density, points) if r else 0)


def limits(correlation: float, turn: int) -> list[tuple[float, float]]:
    """Return every other pair of limits, in turn, so that each correlation and each pair is tried; all when thorough."""
    return LIMITS if WHOLE else LIMITS[(CORRELATIONS.index(correlation) + turn) % 2 :: 2]


@pytest.mark.parametrize("correlation", CORRELATIONS)
def test_cdf_equals_the_40_digit_integral(correlation: float) -> None:
    for h, k in limits(correlation, 0):
        assert float(abs(exact(h, k, correlation) - float(normal_cdf2(h, k, correlation)))) < 1e-14, (h, k)


def test_inverse_gives_the_correlation_back_wherever_double_precision_determines_it() -> None:
    tried = 0
    for correlation in CORRELATIONS:
        for h, k in limits(correlation, 1):
            a, b = float(special.ndtr(h)), float(special.ndtr(k))
            both = exact(float(special.ndtri(a)), float(special.ndtri(b)), correlation)
            # What one unit in the last place of the three shares moves the correlation by, seen numerically.
            r = mpmath.mpf(correlation)
            steep = mpmath.exp(-(h * h - 2 * h * k * r + k * k) / (2 * (1 - r * r)))
            steep /= 2 * mpmath.pi * mpmath.sqrt(1 - r * r)
            room = mpmath.mpf(max(a, b, float(both))) * 2**-52 / steep if steep > 1e-300 else mpmath.inf
            if room > 1e-9 or both < 1e-30:
                continue
            tried += 1
            assert abs(float(latent_correlation(a, b, float(both))) - correlation) < 1e-8, (h, k, correlation)
    assert tried > 35


def test_inverse_of_tiny_margins() -> None:
    # Two columns of share 1e-6, both in a share of 1e-12 (independent) to 0.9e-6 (nearly the same).
    h = float(special.ndtri(1e-6))
    for correlation in (-0.2, 0.0, 0.1, 0.5, 0.9, 0.99, 0.999999):
        both = float(exact(h, h, correlation))
        assert abs(float(latent_correlation(1e-6, 1e-6, both)) - correlation) < 1e-8


@pytest.mark.parametrize("share", [1e-9, 1e-12, 3e-15])
@pytest.mark.parametrize("other", [None, 0.3])
def test_inverse_of_margins_below_one_row_in_a_billion(share: float, other: float | None) -> None:
    a, b = share, share if other is None else other
    h, k = float(special.ndtri(a)), float(special.ndtri(b))
    for correlation in (-0.15, -1e-3, 1e-4, 0.05, 0.3, 0.7, 0.95):
        both = float(exact(h, k, correlation))
        if not max(0.0, a + b - 1.0) < both < min(a, b) * (1.0 - 1e-9):
            continue  # rounded to a Frechet bound
        assert abs(float(latent_correlation(a, b, both)) - correlation) < 1e-8, (share, other, correlation)
    assert float(latent_correlation(a, b, min(a, b))) == 1.0
    assert float(latent_correlation(a, b, 0.0)) == -1.0


def test_weak_dependence_by_few_nodes_equals_the_40_digit_integral() -> None:
    rng = np.random.default_rng(7)
    for h, k in rng.uniform(-7, 2, (25, 2)):
        # Both sides of the limit up to which few nodes are used.
        limit = min(0.5, 2.0 / (1.0 + h * h + k * k))
        for theta in (-1.01, -0.99, 0.2, 0.99, 1.01):
            correlation = float(np.sin(theta * limit))
            value, found = exact(h, k, correlation), float(normal_cdf2(h, k, correlation))
            assert float(abs(value - found)) < 1e-15
            assert correlation < 0 or float(abs(value - found) / value) < 1e-10


def test_chunks_agree_with_single_pairs() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.uniform(0, 1, 150_000), rng.uniform(0, 1, 150_000) ** 4
    wanted = rng.uniform(-0.9, 0.9, a.size)
    both = normal_cdf2(special.ndtri(a), special.ndtri(b), wanted)
    found = latent_correlation(a, b, both)
    assert np.abs(normal_cdf2(special.ndtri(a), special.ndtri(b), found) - both).max() < 1e-11
    for i in (0, 65_535, 65_536, 149_999):
        assert found[i] == pytest.approx(float(latent_correlation(a[i], b[i], both[i])), abs=1e-9)
