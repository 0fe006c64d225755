"""The mixed model of `modips`: cells of the categorical columns, normal numeric columns within, one pooled covariance.

Works on w = t - 1/2, between -1/2 and 1/2; see `dpsql.methods.modips.fine_values` for t. From the noisy statistics of m sets:

1. Counts n_k of a set: the nearest non-negative numbers that add up to the public n (Euclidean projection).
2. Means. The mean c of all rows is the sum of all noisy sums over n. A noisy cell mean has noise of known variance v_k, large where
   the cell is small. With tau^2 the variance between cells (from all sets: the tau^2 that explains their spread together with the
   noise; 0 where cells differ by noise alone), the deviation of a cell mean from c is multiplied by tau^2 / (tau^2 + v_k / m), for
   each column. That is what has the smallest error once m sets are combined.
3. Pooled covariance: (second moments - sum of n_k m_k m_k') / (n - K). For the sum, deviations are multiplied by the root of
   tau^2 / (tau^2 + v_k), which makes it have the right mean whatever the noise. K is the number of means that noise lets one tell
   apart: 1 + the sum of these factors.
4. The mean of all rows, variances and then covariances are replaced by their mean given noise and what the bounds allow
   (`bounded_mean`, with the noise of m sets combined); then the nearest correlation matrix is taken.
5. Draws: shares ~ Dirichlet(1/K + n_k); covariance ~ inverse Wishart with n - K degrees of freedom; mean of a cell ~
   N(m_k, covariance / n_k); rows normal around it, kept inside the bounds.

Shrinking is post-processing; the published method fixes what is sanitised. Without it the means of small cells are noise.

Privacy: none: post-processing of released statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpsql.domains.attributes import FINE
from dpsql.methods.modips.fine_values import FineValues
from dpsql.methods.modips.posterior import SMALLEST_VARIANCE, RowSource, bounded_mean, inverse_wishart_factor, truncated_rows
from dpsql.numerics.arrays import FloatArray
from dpsql.numerics.nearest_correlation import lift_spectrum, nearest_correlation
from dpsql.numerics.products import multiplies
from dpsql.tables.margins import simplex_projection

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


def fit_cells(
    noisy: Sequence[Sequence[npt.NDArray[np.int64]]],
    noise_scales: Sequence[float],
    cells: int,
    rows: int,
    fine: Sequence[FineValues],
) -> list[Cells]:
    """Return what the noisy statistics say, for each set.

    Parameters
    ----------
    noisy : for each of m sets: counts (left out for one cell with numeric columns), sums, moments
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
    counted, sets = cells > 1 or not fine, len(noisy)
    observed = np.array([some[0] for some in noisy], dtype=np.float64) if counted else np.full((sets, 1), float(rows))
    counts = np.stack([simplex_projection(values, float(rows)) for values in observed]) if rows > 0 else np.zeros_like(observed)
    negative = [bool((values < 0).any()) for values in observed]
    if not fine:
        none, nothing = np.zeros((cells, 0)), np.zeros((0, 0))
        return [Cells(counts[i], none, nothing, 1.0, negative[i], False) for i in range(sets)]
    fitted = _numeric_columns(noisy, noise_scales, counts, float(max(rows, 1)), fine)
    return [Cells(counts[i], *fitted[i][:3], negative[i], fitted[i][3]) for i in range(sets)]


@multiplies
def _numeric_columns(
    noisy: Sequence[Sequence[npt.NDArray[np.int64]]],
    noise_scales: Sequence[float],
    counts: FloatArray,
    n: float,
    fine: Sequence[FineValues],
) -> list[tuple[FloatArray, FloatArray, float, bool]]:
    """Return means, covariance, its degrees of freedom and whether it was adjusted, for each set."""
    (sets, cells), p = counts.shape, len(fine)
    sums = np.array([some[-2] for some in noisy], dtype=np.float64).reshape(sets, cells, p) / (2.0 * FINE)
    # floor() has taken half a step on average
    seconds = [_symmetric((some[-1].astype(np.float64) + 0.5) / (4.0 * FINE), p) for some in noisy]
    sum_scale, moment_scale = noise_scales[-2] / (2.0 * FINE), noise_scales[-1] / (4.0 * FINE)
    spread = np.sqrt(cells) * sum_scale  # Laplace scale with the variance of the sum over cells
    centres = bounded_mean(sums.sum(axis=1) / n, spread / (n * np.sqrt(sets)), -0.5, 0.5)
    deviations, noise = _deviations(sums, counts, centres, sum_scale, noise_scales[0])
    between = _between(deviations, noise)
    single, together = between / (between + noise), between / (between + noise / sets)
    fitted = []
    for i in range(sets):
        # what noise does to an entry: that of the moments, and that of the mean of all rows
        mean_noise = np.square(2.0 * centres[i] * spread)
        scale = np.sqrt((moment_scale**2 + np.add.outer(mean_noise, mean_noise) / 2.0) / sets)
        df = max(n - min(float(cells), 1.0 + float(single[i].sum(axis=0).mean())), 1.0)
        kept = np.sqrt(counts[i][:, None] * single[i]) * deviations[i]
        raw = (seconds[i] - n * np.outer(centres[i], centres[i]) - kept.T @ kept) / df
        raw[np.diag_indices(p)] -= [values.rounding_variance for values in fine]
        covariance, adjusted = _within_bounds(raw, scale / df)
        means = np.clip(centres[i] + together[i] * deviations[i], -0.5, 0.5)
        fitted.append((means, covariance, max(df, p + 1.0), adjusted))
    return fitted


def _deviations(
    sums: FloatArray, counts: FloatArray, centres: FloatArray, sum_scale: float, count_scale: float
) -> tuple[FloatArray, FloatArray]:
    """Return noisy cell means minus the mean of all rows, and their noise variances: shape (sets, K, p).

    For a single cell, and where a count is 0, there is no deviation, and its noise is infinite.
    """
    counted = np.broadcast_to((counts > 1e-9) & (counts.shape[1] > 1), counts.shape)[:, :, None]
    size = np.where(counted, counts[:, :, None], 1.0)
    deviations = np.where(counted, sums / size - centres[:, None, :], 0.0)
    noise = 2.0 * (sum_scale**2 + np.square(centres)[:, None, :] * count_scale**2) / np.square(size)
    return deviations, np.where(counted, noise, np.inf)


def _between(deviations: FloatArray, noise: FloatArray) -> FloatArray:
    """Return tau^2 of each column, shape (p,): weighted moments, the weights those of the last tau^2."""
    spread = np.zeros(deviations.shape[2])
    if not np.isfinite(noise).any():
        return spread
    surplus = np.square(deviations) - np.where(np.isfinite(noise), noise, 0.0)
    for _ in range(_ITERATIONS):
        weights = 1.0 / np.square(spread + noise)
        spread = np.clip((weights * surplus).sum(axis=(0, 1)) / weights.sum(axis=(0, 1)), 0.0, 0.25)
    return spread


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
    shares: FloatArray = weights / weights.sum()
    return shares


@multiplies
def cell_rows(cells: Cells, sizes: tuple[int, ...], fine: Sequence[FineValues], rng: np.random.Generator) -> RowSource:
    """Draw parameters and return a source of rows: codes of the categorical columns, then of the numeric ones."""
    cumulative = np.cumsum(cell_shares(cells, rng))
    cumulative /= cumulative[-1]
    p = len(fine)
    if p:
        factor = inverse_wishart_factor(cells.df, cells.covariance, rng)
        # Of a cell of few rows the mean is uncertain, and is drawn so.
        errors = rng.standard_normal((len(cells.counts), p)) @ factor.T
        means = 0.5 + cells.means + errors / np.sqrt(np.maximum(cells.counts, 1.0))[:, None]
        low, high = np.array([values.low for values in fine]), np.array([values.high for values in fine])

    def rows(size: int) -> npt.NDArray[np.int32]:
        cell = np.minimum(np.searchsorted(cumulative, rng.random(size), side="right"), len(cumulative) - 1)
        codes = np.empty((size, len(sizes) + p), dtype=np.int32)
        if sizes:
            for column, some in enumerate(np.unravel_index(cell, sizes)):
                codes[:, column] = some
        if p:
            drawn = truncated_rows(means[cell], factor, low, high, rng)
            for column, values in enumerate(fine):
                codes[:, len(sizes) + column] = values.codes(drawn[:, column])
        return codes

    return rows
