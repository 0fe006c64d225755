"""What noise does to one cell, in closed form or by summation. Depends on public parameters alone.

Privacy: None: nothing is measured.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from dpsql.noise.discrete import checked_mechanism, checked_scale
from dpsql.numerics.products import multiplies

_SUMMED_UP_TO = 1000.0


@lru_cache(maxsize=4096)
@multiplies
def _gaussian_moments(sigma: float) -> tuple[float, float]:
    """Return mean |x| and standard deviation of the discrete Gaussian."""
    if sigma > _SUMMED_UP_TO:  # Euler-Maclaurin; relative error below 1e-12
        return sigma * math.sqrt(2 / math.pi) * (1 - 1 / (12 * sigma**2)), sigma
    x = np.arange(1, math.ceil(40 * sigma) + 2, dtype=np.float64)
    weights = np.exp(-0.5 * (x / sigma) ** 2)
    mass = 1 + 2 * float(weights.sum())
    return 2 * float(x @ weights) / mass, math.sqrt(2 * float(x**2 @ weights) / mass)


def expected_absolute_error(mechanism: str, scale: Fraction | float) -> float:
    """Return the mean of |noise| on one cell.

    Parameters
    ----------
    mechanism : {'gaussian', 'laplace'}
    scale : Fraction or float, > 0
        sigma or b.

    Returns
    -------
    float
        About 0.8 sigma or b; for small scales that of the integer noise.

    Raises
    ------
    ArgumentError
        Unknown mechanism, or a scale that is not positive and finite.

    Examples
    --------
    >>> f"{expected_absolute_error('gaussian', 56.45):.2f} {expected_absolute_error('laplace', 1):.4f}"
    '45.04 0.8509'
    """
    checked_mechanism(mechanism)
    value = float(checked_scale("scale", scale))
    if mechanism == "gaussian":
        return _gaussian_moments(value)[0]
    return 1 / math.sinh(1 / value) if value > 1e-2 else 0.0


def standard_deviation(mechanism: str, scale: Fraction | float) -> float:
    """Return the standard deviation of the noise on one cell.

    Parameters and errors are those of ``expected_absolute_error``.

    Examples
    --------
    >>> f"{standard_deviation('gaussian', 56.45):.2f} {standard_deviation('laplace', 1):.4f}"
    '56.45 1.3570'
    """
    checked_mechanism(mechanism)
    value = float(checked_scale("scale", scale))
    if mechanism == "gaussian":
        return _gaussian_moments(value)[1]
    return 1 / (math.sqrt(2) * math.sinh(0.5 / value)) if value > 1e-2 else 0.0


@lru_cache(maxsize=4096)
def _gaussian_band(sigma: float, share: float) -> int:
    """Return the least t for which the discrete Gaussian has |x| <= t with probability ``share``."""
    if sigma > _SUMMED_UP_TO:  # Euler-Maclaurin: the sum is the integral to t + 1/2, but for less than 1e-7
        return math.ceil(NormalDist().inv_cdf((1 + share) / 2) * sigma * (1 + 1e-6) - 0.5)
    x = np.arange(1, math.ceil(40 * sigma) + 2, dtype=np.float64)
    weights = 2 * np.exp(-0.5 * (x / sigma) ** 2)
    within = np.cumsum(np.concatenate([[1.0], weights]))
    return int(np.searchsorted(within, share * within[-1]))


def noise_band(mechanism: str, scale: Fraction | float, share: float = 0.95) -> int:
    """Return the least t for which |noise| on one cell is at most t with probability ``share``, at least.

    Parameters
    ----------
    mechanism, scale
        As in ``expected_absolute_error``.
    share : float in (0, 1)

    Returns
    -------
    int
        The exact quantile of the integer noise: a count lies within t of the released one with this probability.

    Raises
    ------
    ArgumentError
        Unknown mechanism, or a scale that is not positive and finite.

    Examples
    --------
    >>> noise_band("gaussian", 56.45), noise_band("laplace", 1), noise_band("gaussian", 0.1)
    (111, 3, 0)
    """
    checked_mechanism(mechanism)
    value = float(checked_scale("scale", scale))
    if mechanism == "gaussian":
        return _gaussian_band(value, share)
    # P(|x| > t) = 2 p^(t + 1) / (1 + p) with p = exp(-1 / b)
    outside = math.log((1 - share) * (1 + math.exp(-1 / value)) / 2)
    return max(0, math.ceil(-value * outside * (1 - 1e-12)) - 1)
