"""What noise does to one cell, in closed form or by summation. Depends on public parameters alone.

Privacy: None: nothing is measured.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dpsql.noise import checked_mechanism, checked_scale

_SUMMED_UP_TO = 1000.0


@lru_cache(maxsize=4096)
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
