"""The mixed model of `modips`: cells of the categorical columns, normal numeric columns within, one pooled covariance.

Works on w = t - 1/2, between -1/2 and 1/2; see `dpsql.methods.fine_values` for t. From one set of noisy statistics:

1. Counts n_k: the nearest non-negative numbers that add up to the public n (Euclidean projection).
2. Means. The mean m of all rows is the sum of all noisy sums over n. A noisy cell mean m_k has noise of known variance v_k, and
   v_k is large where the cell is small. So its deviation from m is multiplied by tau^2 / (tau^2 + v_k), for each column, with the
   tau^2 that makes the observed spread of the cells what it should be (weighted moments; 0 where cells differ by noise alone).
3. Pooled covariance: (second moments - sum of n_k m_k m_k') / (n - K), with the means of step 2, so that the rows have the released
   second moments whatever was shrunk. K is the number of means that were told apart: 1 + the sum of the shrinkage factors.
   Variances, then covariances, are replaced by their mean given the noise and what the bounds allow (`bounded_mean`); then the
   nearest correlation matrix is taken.
4. Draws: shares ~ Dirichlet(1/K + n_k); covariance ~ inverse Wishart with n - K degrees of freedom; mean of a cell ~
   N(m_k, covariance / n_k); rows normal around it, kept inside the bounds.

Shrinking is post-processing; the published method fixes what is sanitised. Without it the means of small cells are noise.

Privacy: none: post-processing of released statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpsql.mechanisms.moments import FINE
from dpsql.methods.fine_values import FineValues
from dpsql.methods.modips_posterior import (
    SMALLEST_VARIANCE,
    FloatArray,
    RowSource,
    bounded_mean,
    inverse_wishart_factor,
    truncated_rows,
)
from dpsql.nearest_correlation import lift_spectrum, nearest_correlation

_ITERATIONS = 30
_FLOOR = 1e-6
"""Smallest eigenvalue of the correlation matrix within a cell."""


@dataclass(frozen=True)
class Cells:
    """Statistics of one synthetic table after thresholding.

    Parameters
    ----------
    counts : ndarray, shape (K,)
        Not negative, sum n.
    means : ndarray, shape (K, p)
        Between -1/2 and 1/2.
    covariance : ndarray, shape (p, p)
        Positive definite.
    df : float
        Degrees of freedom of the covariance, above p.
    negative : bool
        Whether a noisy count was negative.
    adjusted : bool
        Whether the covariance, as it was released, was out of its bounds or not positive definite.
    """

    counts: FloatArray
    means: FloatArray
    covariance: FloatArray
    df: float
    negative: bool
    adjusted: bool


def simplex_projection(values: FloatArray, total: float) -> FloatArray:
    """Return the non-negative numbers with this sum that are nearest to ``values``.

    Examples
    --------
    >>> simplex_projection(np.array([5.0, 3.0, -2.0]), 8.0).tolist()
    [5.0, 3.0, 0.0]
    """
    if total <= 0.0:
        return np.zeros_like(values)
    descending = np.sort(values)[::-1]
    excess = (np.cumsum(descending) - total) / np.arange(1, len(values) + 1)
    threshold = excess[np.flatnonzero(descending > excess)[-1]]
    found: FloatArray = np.maximum(values - threshold, 0.0)
    return found


def fit_cells(
    noisy: Sequence[npt.NDArray[np.int64]], noise_scales: Sequence[float], cells: int, rows: int, fine: Sequence[FineValues]
) -> Cells:
    """Return what the noisy statistics of one set say.

    Parameters
    ----------
    noisy : counts (left out for one cell with numeric columns), sums, moments
        As in `dpsql.mechanisms.moments.mixed_statistics`, with noise.
    noise_scales : sequence of float
        Laplace scale of each of them.
    cells : int
        K.
    rows : int
        n, public.
    fine : sequence of FineValues, length p
        The numeric columns.
    """
    p, n = len(fine), float(max(rows, 1))
    counted = cells > 1 or not p
    observed = noisy[0].astype(np.float64) if counted else np.array([float(rows)])
    counts, negative = simplex_projection(observed, float(rows)), bool((observed < 0).any())
    if not p:
        return Cells(counts, np.zeros((cells, 0)), np.zeros((0, 0)), 1.0, negative, False)
    sums = noisy[-2].astype(np.float64).reshape(cells, p) / (2.0 * FINE)
    sum_scale, moment_scale = noise_scales[-2] / (2.0 * FINE), noise_scales[-1] / (4.0 * FINE)
    centre = np.clip(sums.sum(axis=0) / n, -0.5, 0.5)
    means, factors = _shrunk_means(sums, counts, centre, sum_scale, noise_scales[0] if counted else 0.0)
    # floor() has taken half a step on average
    second = _symmetric((noisy[-1].astype(np.float64) + 0.5) / (4.0 * FINE), p)
    told_apart = min(float(np.count_nonzero(counts > 0)), 1.0 + float(factors.sum(axis=0).mean())) if cells > 1 else 1.0
    df = max(n - told_apart, 1.0)
    raw = (second - (means * counts[:, None]).T @ means) / df
    raw[np.diag_indices(p)] -= [values.rounding_variance for values in fine]
    # what noise does to an entry: that of the moments, and that of the mean of all rows
    spread = 2.0 * np.abs(centre) * np.sqrt(cells) * sum_scale
    scale = np.sqrt(moment_scale**2 + np.add.outer(spread**2, spread**2) / 2.0) / df
    covariance, adjusted = _within_bounds(raw, scale)
    return Cells(counts, means, covariance, max(df, p + 1.0), negative, adjusted)


def _shrunk_means(
    sums: FloatArray, counts: FloatArray, centre: FloatArray, sum_scale: float, count_scale: float
) -> tuple[FloatArray, FloatArray]:
    """Return cell means, shape (K, p), and shrinkage factors between 0 (the mean of all rows) and 1 (as observed)."""
    means, factors = np.tile(centre, (len(counts), 1)), np.zeros_like(sums)
    held = counts > 1e-9
    if len(counts) == 1 or not held.any():
        return means, factors
    size = counts[held][:, None]
    deviations = sums[held] / size - centre
    noise = 2.0 * (sum_scale**2 + np.square(centre) * count_scale**2) / size**2
    spread = np.zeros(sums.shape[1])
    for _ in range(_ITERATIONS):
        weights = 1.0 / np.square(spread + noise)
        spread = np.clip((weights * (np.square(deviations) - noise)).sum(axis=0) / weights.sum(axis=0), 0.0, 0.25)
    factors[held] = spread / (spread + noise)
    means[held] = np.clip(centre + factors[held] * deviations, -0.5, 0.5)
    return means, factors


def _symmetric(upper: FloatArray, p: int) -> FloatArray:
    matrix = np.zeros((p, p))
    matrix[np.triu_indices(p)] = upper
    return np.triu(matrix) + np.triu(matrix, 1).T


def _within_bounds(raw: FloatArray, scale: FloatArray) -> tuple[FloatArray, bool]:
    """Return a positive definite covariance near the released one, and whether that one was none."""
    p = len(raw)
    released = np.diagonal(raw)
    adjusted = bool((released < SMALLEST_VARIANCE).any() or (released > 0.25).any() or np.linalg.eigvalsh(raw)[0] <= 0.0)
    deviations = np.sqrt(bounded_mean(released, np.diagonal(scale), SMALLEST_VARIANCE, 0.25))
    most = np.outer(deviations, deviations)
    correlation = bounded_mean(raw, scale, -most, most) / most
    correlation[np.diag_indices(p)] = 1.0
    if p > 1:
        correlation = lift_spectrum(nearest_correlation((correlation + correlation.T) / 2.0), floor=_FLOOR)
    return correlation * most, adjusted


def cell_shares(cells: Cells, rng: np.random.Generator) -> FloatArray:
    """Draw the shares of the cells from Dirichlet(1/K + n_k)."""
    weights = rng.standard_gamma(1.0 / len(cells.counts) + cells.counts)
    if weights.sum() <= 0.0:
        weights = np.ones_like(weights)
    found: FloatArray = weights / weights.sum()
    return found


def cell_rows(cells: Cells, sizes: tuple[int, ...], fine: Sequence[FineValues], rng: np.random.Generator) -> RowSource:
    """Draw parameters and return a source of rows: codes of the categorical columns, then of the numeric ones."""
    cumulative = np.cumsum(cell_shares(cells, rng))
    cumulative /= cumulative[-1]
    p = len(fine)
    if p:
        factor = inverse_wishart_factor(cells.df, cells.covariance, rng)
        errors = rng.standard_normal((len(cells.counts), p)) @ factor.T
        means = 0.5 + cells.means + errors / np.sqrt(np.maximum(cells.counts, 1.0))[:, None]
        low, high = np.array([values.low for values in fine]), np.array([values.high for values in fine])

    def rows(size: int) -> npt.NDArray[np.int32]:
        found = np.minimum(np.searchsorted(cumulative, rng.random(size), side="right"), len(cumulative) - 1)
        codes = np.empty((size, len(sizes) + p), dtype=np.int32)
        if sizes:
            for column, some in enumerate(np.unravel_index(found, sizes)):
                codes[:, column] = some
        if p:
            drawn = truncated_rows(means[found], factor, low, high, rng)
            for column, values in enumerate(fine):
                codes[:, len(sizes) + column] = values.codes(drawn[:, column])
        return codes

    return rows
