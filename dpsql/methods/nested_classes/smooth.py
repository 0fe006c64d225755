r"""Shares of numbers of children, from noisy ones: neighbouring numbers have similar shares, as far as the noisy ones say so.

The shares f of 1, 2, ... children are taken for a curve whose second differences are N(0, tau^2), that of none is free. With noisy
shares y = f + e, e of known variances V, and D the matrix of second differences,

    D y ~ N(0, Sigma),  Sigma = T + D V D^T;   E f = y - V D^T Sigma^-1 D y;   Var f = V - V D^T Sigma^-1 D V.

T is either tau^2 I or tau^2 diag(l^2), l the level of the curve: a curve bends where its shares are large, and a long tail has
hardly anything to bend. l is the mean of five neighbours of the curve that the last pass found, the largest of those of a second
difference. T and tau are where the likelihood of D y is largest, without limit: shares that jump by more than their noise stay as
they are.

Privacy: post-processing of released statistics.

References: Whittaker (1923), On a new method of graduation; Patterson & Thompson (1971) for the restricted likelihood.
"""

from __future__ import annotations

import numpy as np

from dpsql.numerics.arrays import FloatArray
from dpsql.numerics.products import multiplies

_RATIOS = 10.0 ** np.arange(-4.0, 4.5, 0.5)
"""tau over the root mean square of the noise."""
_FEWEST = 6
_PASSES = 3
_LEAST_LEVEL = 0.1
"""Over the deviation of the noise: no smaller level can be told from it."""


def smoothed(shares: FloatArray, variances: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return better estimates of shares of numbers of children, and their variances.

    Parameters
    ----------
    shares, variances : ndarray, shape (most + 1,)
        Noisy shares of 0, 1, ... children, and the variances of their noise.

    Notes
    -----
    Privacy: post-processing.

    Examples
    --------
    >>> estimates, variances = smoothed(np.array([0.5, *[0.1] * 10]), np.full(11, 1e-4))
    >>> estimates.round(6).tolist() == [0.5, *[0.1] * 10], bool(variances[0] > 3 * variances[5])
    (True, True)
    """
    y, v = np.asarray(shares[1:], float), np.asarray(variances[1:], float)
    if y.size < _FEWEST or not float(np.mean(v)) > 0.0:
        return shares, variances
    estimates, kept, _ = _curve(y, v, np.ones(y.size - 2))
    # Bends follow the curve of the last pass, but equal ones win where they are likelier.
    for _ in range(_PASSES):
        curves = (_curve(y, v, bends) for bends in (np.ones(y.size - 2), _levels(estimates, v)))
        estimates, kept, _ = max(curves, key=lambda curve: curve[2])
    return np.concatenate([shares[:1], estimates]), np.concatenate([variances[:1], np.clip(kept, 1e-6 * v, v)])


def _levels(curve: FloatArray, v: FloatArray) -> FloatArray:
    """Return how large the curve is about each second difference."""
    padded = np.pad(np.maximum(curve, 0.0), 2, mode="edge")
    means = np.maximum(np.convolve(padded, np.full(5, 0.2), "valid"), _LEAST_LEVEL * np.sqrt(v))
    levels: FloatArray = np.maximum.reduce([means[:-2], means[1:-1], means[2:]])
    return levels


@multiplies
def _curve(y: FloatArray, v: FloatArray, bends: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Return the best curve whose second differences have deviations in proportion to ``bends``, its variances and likelihood."""
    differences = np.diff(np.eye(y.size), 2, axis=0)
    rough, spread = differences @ y, (differences * v) @ differences.T
    # Bends are relative: only the ratio says how large they are against the noise.
    own = float(np.mean(v)) * bends**2 / float(np.mean(bends**2))
    best, curve, kept = -np.inf, y, v
    for ratio in _RATIOS:
        sigma = spread + np.diag(ratio**2 * own)
        solved = np.linalg.solve(sigma, np.column_stack([rough, differences * v]))
        likelihood = -0.5 * float(np.linalg.slogdet(sigma)[1] + rough @ solved[:, 0])
        if likelihood > best:
            best = likelihood
            curve = y - v * (differences.T @ solved[:, 0])
            kept = v - np.einsum("dk,dk->k", differences * v, solved[:, 1:])
    return curve, kept, best
