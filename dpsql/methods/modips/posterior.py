"""Posteriors of `modips`: from the noisy statistics of one synthetic table to draws of parameters and of rows.

All numeric values are on the scale t = (x - lower) / (upper - lower), see `dpsql.methods.modips.fine_values`.

Privacy: none: post-processing of released statistics.

References: [Bowen & Liu 2020]; Liu (2016), arXiv:1602.01063.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import special

from dpsql.domains.attributes import FINE
from dpsql.methods.modips.fine_values import FineValues
from dpsql.numerics.arrays import FloatArray
from dpsql.numerics.products import multiplies

RowSource = Callable[[int], npt.NDArray[np.int32]]
"""Gives that many rows of codes from parameters that have been drawn."""

PRIOR = 1.0 / 3.0
"""Of the Beta distribution of a share, at both ends [Bowen & Liu 2020]."""

UNIFORM_VARIANCE = 1.0 / 12.0
"""Variance between the bounds where fewer than two rows say nothing."""

SMALLEST_VARIANCE = 1.0 / (12.0 * FINE * FINE)
"""That of one step of the fixed-point scale."""

_REJECTIONS = 30
"""Rounds in which rows outside the bounds are drawn again, before they are drawn column by column."""


def truncated_tail(scale: float, width: float, rng: np.random.Generator) -> float:
    """Draw from the density proportional to exp(-x / scale) on [0, width].

    It is the law of the distance from the bound of an exact number, known only to lie within ``width`` of it, given that Laplace
    noise of this scale has pushed it beyond the bound.
    """
    return min(width, max(0.0, -scale * math.log1p(rng.random() * math.expm1(-width / scale))))


def redrawn(value: float, low: float, high: float, scale: float, rng: np.random.Generator) -> float:
    """Return a value inside [low, high] unchanged, and one outside redrawn from `truncated_tail` at the bound it has passed."""
    if value < low:
        return low + truncated_tail(scale, high - low, rng)
    if value > high:
        return high - truncated_tail(scale, high - low, rng)
    return value


def bounded_mean(observed: FloatArray, scale: FloatArray | float, low: FloatArray | float, high: FloatArray | float) -> FloatArray:
    """Return the mean of a number that is uniform on [low, high] a priori and was seen through Laplace noise.

    For small noise it is the observed number, for large noise the middle of the range; never outside of it.

    Examples
    --------
    >>> bounded_mean(np.array([0.3, 5.0]), np.array([1e-6, 1e6]), 0.0, 1.0).round(6).tolist()
    [0.3, 0.5]
    """
    nearest = np.clip(observed, low, high)
    left, right = (nearest - low) / scale, (high - nearest) / scale
    mass = -np.expm1(-left) - np.expm1(-right)
    shift = special.gammainc(2.0, right) - special.gammainc(2.0, left)
    middle = nearest + scale * np.divide(shift, mass, out=np.zeros_like(nearest), where=mass > 0)
    mean: FloatArray = np.clip(middle, low, high)
    return mean


def truncated_normal(
    mean: FloatArray | float, deviation: FloatArray | float, low: float, high: float, size: int, rng: np.random.Generator
) -> FloatArray:
    """Draw normal numbers given that they lie in [low, high].

    A draw outside is replaced by one from the truncated law, by inversion in log space, which works in any tail: the same law as
    rejection without end.

    Parameters
    ----------
    mean, deviation : float, or ndarray of shape (size,)
        Before truncation; deviation above 0.
    """
    centre, spread = np.broadcast_to(mean, (size,)), np.broadcast_to(deviation, (size,))
    drawn: FloatArray = rng.standard_normal(size)
    drawn *= deviation
    drawn += mean
    outside = np.flatnonzero((drawn < low) | (drawn > high))
    if outside.size:
        near, width = centre[outside], spread[outside]
        a, b = (low - near) / width, (high - near) / width
        flip = a + b > 0  # the nearer end of the interval comes from the right tail: mirror it
        a, b = np.where(flip, -b, a), np.where(flip, -a, b)
        top = special.log_ndtr(b)
        with np.errstate(over="ignore", under="ignore"):
            rest = np.exp(special.log_ndtr(a) - top)
            uniform = rng.random(outside.size)
            placed = special.ndtri_exp(top + np.log(uniform + (1.0 - uniform) * rest))
        placed = np.clip(placed, a, b)
        drawn[outside] = np.clip(near + width * np.where(flip, -placed, placed), low, high)
    return drawn


@multiplies
def truncated_rows(
    means: FloatArray, factor: FloatArray, low: FloatArray, high: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Draw one normal row around each mean, given that it lies inside a box.

    Parameters
    ----------
    means : ndarray, shape (b, p)
    factor : ndarray, shape (p, p)
        Lower Cholesky factor of the covariance.
    low, high : ndarray, shape (p,)

    Returns
    -------
    ndarray, shape (b, p)

    Notes
    -----
    Rejection; rows that are still outside after 30 rounds are drawn column by column, each given those before it and the bounds,
    which keeps them inside but is no longer exactly the truncated law. With one column the law is exact.
    """
    p = means.shape[1]
    if p == 1:
        return truncated_normal(means[:, 0], float(factor[0, 0]), float(low[0]), float(high[0]), len(means), rng)[:, None]
    rows = np.empty_like(means)
    left = np.arange(len(means))
    for _ in range(_REJECTIONS):
        drawn = means[left] + rng.standard_normal((left.size, p)) @ factor.T
        rows[left] = drawn
        left = left[((drawn < low) | (drawn > high)).any(axis=1)]
        if not left.size:
            return rows
    # What rejection left over is drawn column by column: inside the box, though no longer by the exact law.
    errors = np.zeros((left.size, p))
    for j in range(p):
        centres = means[left, j] + errors @ factor[j]
        rows[left, j] = truncated_normal(centres, float(factor[j, j]), float(low[j]), float(high[j]), left.size, rng)
        errors[:, j] = (rows[left, j] - centres) / factor[j, j]
    return rows


def inverse_wishart_factor(df: float, mean: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return the lower Cholesky factor of a draw from the inverse Wishart distribution with scale matrix df times ``mean``.

    Parameters
    ----------
    df : float, > p - 1
    mean : ndarray, shape (p, p)
        Positive definite.

    Notes
    -----
    Bartlett: with S = df * mean = L L' and B lower triangular, B_ii^2 ~ chi2(df - i), normal below, (B^-1 L')' (B^-1 L') is such a
    draw. For p = 1 it is the inverse gamma distribution with shape df / 2 and scale df mean / 2.
    """
    p = len(mean)
    root = np.linalg.cholesky(df * mean)
    bartlett = np.tril(rng.standard_normal((p, p)), -1)
    bartlett[np.diag_indices(p)] = np.sqrt(np.maximum(rng.chisquare(df - np.arange(p)), 1e-300))
    half = np.linalg.solve(bartlett, root.T)
    # QR instead of Cholesky of the product: no digits are lost where the draw is nearly singular.
    upper: FloatArray = np.linalg.qr(half)[1]
    signs = np.where(np.diagonal(upper) < 0, -1.0, 1.0)
    lower: FloatArray = (upper * signs[:, None]).T
    deviations = np.sqrt(np.square(lower).sum(axis=1))
    lower[np.diag_indices(p)] = np.maximum(np.diagonal(lower), 1e-9 * deviations + 1e-300)
    return lower


def binary_rows(count: float, rows: int, rng: np.random.Generator) -> RowSource:
    """Draw p ~ Beta(1/3 + s, 1/3 + n - s) and return a source of Bernoulli(p) codes."""
    share = float(rng.beta(PRIOR + count, PRIOR + rows - count))
    return lambda size: (rng.random(size) < share).astype(np.int32)[:, None]


def normal_parameters(mean: float, variance: float, rows: int, rng: np.random.Generator) -> tuple[float, float]:
    """Draw sigma^2 ~ InvGamma((n - 1) / 2, (n - 1) s^2 / 2) and mu ~ N(mean, sigma^2 / n); return mu and sigma^2.

    For n < 2 there is no such posterior, and sigma^2 is that of the uniform distribution between the bounds; for n = 0 mu is its
    middle.
    """
    if rows < 2:
        return (mean if rows else 0.5), UNIFORM_VARIANCE
    half = (rows - 1) / 2.0
    with np.errstate(over="ignore", divide="ignore"):
        sigma2 = float(np.clip(half * variance / rng.gamma(half), SMALLEST_VARIANCE, 1e12))
    return mean + math.sqrt(sigma2 / rows) * float(rng.standard_normal()), sigma2


def normal_rows(mean: float, variance: float, rows: int, fine: FineValues, rng: np.random.Generator) -> RowSource:
    """Draw mu and sigma^2 and return a source of codes of N(mu, sigma^2), kept inside the bounds."""
    mu, sigma2 = normal_parameters(mean, variance, rows, rng)
    deviation = math.sqrt(max(sigma2 - fine.rounding_variance, SMALLEST_VARIANCE))
    return lambda size: fine.codes(truncated_normal(mu, deviation, fine.low, fine.high, size, rng))[:, None]
