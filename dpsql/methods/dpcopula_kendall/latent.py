"""From noisy values of Kendall's tau to the correlation matrix of the latent normals.

**As published** ('sine'): correlation = sin(pi tau / 2), which holds for columns without ties. A tie counts 0 in tau, so columns
of few values get correlations that are too small: those of two fair coins come out at most 0.71.

**With ties and noise** ('posterior'). The tau of two normals of correlation sin(x) that are cut where the released margins cut
them is a function of x that increases (`tau_curve`), and noise on tau is Laplace of known scale. A priori the angles x of all
pairs are normal around 0, between -pi/2 and pi/2, with the width under which the noisy values are most likely; of each pair the
mean of sin(x) given its noisy tau is taken. Little noise: the inverse of that function. Much noise, or columns so skewed that
their tau can hardly move: near 0, and not whatever the noise happens to be.

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
from dpsql.numerics.products import multiplies
from dpsql.running import progress

_NODES = 17
"""Angles at which a curve is computed; between them it is interpolated, monotonely."""

_ANGLES = np.linspace(-0.5 * math.pi, 0.5 * math.pi, 3201)
_WIDTHS = np.geomspace(0.01, 3.0, 25)
"""Widths that the prior of the angles is chosen from."""

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
    if m == 1:
        return np.eye(1)
    pairs = list(itertools.combinations(range(m), 2))
    if rule == "sine":
        values = np.sin(0.5 * math.pi * np.clip(tau, -1.0, 1.0))
    else:
        values = posterior_means(tau, [(margins[i], margins[j]) for i, j in pairs], scale)
    matrix = np.eye(m)
    first, second = np.array(pairs).T
    matrix[first, second] = matrix[second, first] = values
    return lift_spectrum(nearest_correlation(matrix), floor=_FLOOR)


@multiplies
def posterior_means(tau: FloatArray, margins: Sequence[tuple[FloatArray, FloatArray]], scale: float) -> FloatArray:
    """Return the mean correlation of every pair given its noisy tau; see the head of this file.

    Parameters
    ----------
    tau : ndarray, shape (P,)
    margins : sequence of P pairs of ndarrays
        Shares of the codes of both columns.
    scale : float, > 0
        Of the Laplace noise in tau.

    Examples
    --------
    >>> coin = np.array([0.5, 0.5])
    >>> [posterior_means(np.array([1 / 6]), [(coin, coin)], scale).round(3).tolist() for scale in (1e-6, 1e3)]
    [[0.5], [0.0]]
    """
    # Priors of several widths: the one under which all pairs together are likeliest is used for each.
    priors = np.exp(-0.5 * np.square(_ANGLES / _WIDTHS[:, None]))
    priors /= priors.sum(axis=1, keepdims=True)
    both = np.concatenate((priors, priors * np.sin(_ANGLES))).T
    evidence, means = np.zeros(len(_WIDTHS)), np.empty((len(tau), len(_WIDTHS)))
    for place, (value, (first, second)) in enumerate(zip(tau, margins, strict=True)):
        distance = np.abs(value - tau_curve(first, second)) / scale
        mass, moment = np.split(np.exp(distance.min() - distance) @ both, 2)
        mass = np.maximum(mass, 1e-300)
        evidence += np.log(mass)
        means[place] = moment / mass
        progress.advance((place + 1) / len(tau))
    chosen: FloatArray = means[:, int(np.argmax(evidence))]
    return chosen


@multiplies
def tau_curve(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return Kendall's tau-a of two normals that are cut to these shares, for 3,201 angles of their correlation, -pi/2 to pi/2.

    Examples
    --------
    >>> coin = np.array([0.5, 0.5])  # angle / pi
    >>> tau_curve(coin, coin)[[0, 1600, 2400, 3200]].round(4).tolist()
    [-0.5, 0.0, 0.25, 0.5]
    """
    left, right = (shares[shares > 1e-9] for shares in (first, second))
    # So many cells are nearly continuous: then only the ties lower tau.
    if left.size * right.size > _MOST_CELLS:
        untied = math.sqrt(max(1.0 - float(left @ left), 0.0) * max(1.0 - float(right @ right), 0.0))
        return untied * _ANGLES / (0.5 * math.pi)
    nodes = np.linspace(_ANGLES[0], _ANGLES[-1], _NODES)
    curve = _cut_tau(left, right, np.sin(nodes))
    taus: FloatArray = interpolate.PchipInterpolator(nodes, np.maximum.accumulate(curve))(_ANGLES)
    return taus


def _cut_tau(first: FloatArray, second: FloatArray, correlations: FloatArray) -> FloatArray:
    """Return tau-a of two cut normals for each correlation: twice the concordance of their table of shares."""
    up, across = np.cumsum(first), np.cumsum(second)
    below = np.zeros((correlations.size, first.size + 1, second.size + 1))
    below[:, 1:, -1], below[:, -1, 1:] = up, across
    if first.size > 1 and second.size > 1:
        h, k = special.ndtri(np.minimum(up[:-1], 1.0)), special.ndtri(np.minimum(across[:-1], 1.0))
        below[:, 1:-1, 1:-1] = normal_cdf2(h[:, None], k, correlations[:, None, None])
    table = np.maximum(np.diff(np.diff(below, axis=1), axis=2), 0.0)
    taus: FloatArray = 2.0 * concordance(table)
    return taus
