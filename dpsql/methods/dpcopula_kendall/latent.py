"""From noisy values of Kendall's tau to the correlation matrix of the latent normals.

**As published** ('sine'): correlation = sin(pi tau / 2), which holds for columns without ties. A tie counts 0 in tau, so columns
of few values get correlations that are too small: those of two fair coins come out at most 0.71.

**With ties and noise** ('posterior'). The tau of two normals of correlation r that are cut where the released margins cut them
is a function of r that increases; `tau_curve`. With Laplace noise of known scale on tau, and r uniform from -1 to 1 a priori, the mean
of r given the noisy tau is taken. Little noise: the inverse of that function. Much noise, or columns so skewed that their tau
can hardly move: near 0, and not whatever the noise happens to be.

Either way the nearest correlation matrix follows, with its eigenvalues lifted off 0.

Privacy: none: post-processing of released statistics.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from scipy import interpolate, special

from dpsql.numerics.arrays import FloatArray
from dpsql.numerics.bivariate_normal import normal_cdf2
from dpsql.numerics.concordance import concordance
from dpsql.numerics.nearest_correlation import lift_spectrum, nearest_correlation
from dpsql.running import progress

_NODES = 17
"""Correlations at which a curve is computed; between them it is interpolated, monotonely."""

_FINE = 2001
_FLOOR = 1e-6
"""Smallest eigenvalue of the correlation matrix."""

_MOST_CELLS = 1 << 12
"""Cells of two columns up to which their curve is computed; beyond, ties are few, and a formula corrects for them."""


def latent_correlations(
    tau: FloatArray, margins: Sequence[FloatArray], scale: float, rule: str
) -> FloatArray:
    """Return the correlation matrix of the latent normals.

    Parameters
    ----------
    tau : ndarray, shape (m (m - 1) / 2,)
        Noisy values, in the order (0, 1), (0, 2), ..., (1, 2), ...; may lie outside [-1, 1].
    margins : sequence of m ndarrays
        Shares of each column's codes.
    scale : float, > 0
        Of the Laplace noise in tau.
    rule : {'posterior', 'sine'}

    Returns
    -------
    ndarray, shape (m, m)
        Positive definite, unit diagonal.
    """
    m = len(margins)
    found = np.eye(m)
    for place, (i, j) in enumerate(itertools.combinations(range(m), 2)):
        value = float(tau[place])
        found[i, j] = found[j, i] = (
            math.sin(0.5 * math.pi * min(max(value, -1.0), 1.0)) if rule == "sine" else posterior_mean(value, margins[i], margins[j], scale)
        )
        progress.advance((place + 1) / len(tau))
    return lift_spectrum(nearest_correlation(found), floor=_FLOOR) if m > 1 else found


def posterior_mean(tau: float, first: FloatArray, second: FloatArray, scale: float) -> float:
    """Return the mean correlation given a noisy tau; see the head of this file.

    Parameters
    ----------
    tau : float
    first, second : ndarray
        Shares of the codes of the two columns.
    scale : float, > 0
        Of the Laplace noise in tau.
    """
    correlations, expected = tau_curve(first, second)
    log_weight = -np.abs(tau - expected) / scale
    weight = np.exp(log_weight - log_weight.max())
    return float(weight @ correlations / weight.sum())


def tau_curve(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return correlations from -1 to 1, and Kendall's tau-a of two normals of that correlation cut to these shares.

    Examples
    --------
    >>> coin = np.array([0.5, 0.5])  # asin(r) / pi
    >>> correlations, tau = tau_curve(coin, coin)
    >>> [round(float(tau[i]), 4) for i in (0, 1000, 1500, 2000)]
    [-0.5, 0.0, 0.1667, 0.5]
    """
    angles = np.linspace(-0.5 * math.pi, 0.5 * math.pi, _NODES)
    fine = np.linspace(-1.0, 1.0, _FINE)
    one, two = (shares[shares > 1e-9] for shares in (first, second))
    if one.size * two.size > _MOST_CELLS:
        untied = math.sqrt(max(1.0 - float(one @ one), 0.0) * max(1.0 - float(two @ two), 0.0))
        return fine, untied * np.arcsin(fine) / (0.5 * math.pi)
    curve = np.array([_cut_tau(one, two, math.sin(angle)) for angle in angles])
    return fine, interpolate.PchipInterpolator(angles, np.maximum.accumulate(curve))(np.arcsin(fine))


def _cut_tau(first: FloatArray, second: FloatArray, correlation: float) -> float:
    """Return tau-a of two cut normals: twice the concordance of their table of shares."""
    up, across = np.cumsum(first), np.cumsum(second)
    below = np.zeros((first.size + 1, second.size + 1))
    below[1:, -1], below[-1, 1:] = up, across
    if first.size > 1 and second.size > 1:
        h, k = special.ndtri(np.minimum(up[:-1], 1.0)), special.ndtri(np.minimum(across[:-1], 1.0))
        grid = np.broadcast_arrays(h[:, None], k[None, :])
        below[1:-1, 1:-1] = normal_cdf2(grid[0].ravel(), grid[1].ravel(), correlation).reshape(h.size, k.size)
    table = np.maximum(np.diff(np.diff(below, axis=0), axis=1), 0.0)
    return 2.0 * float(concordance(table))
