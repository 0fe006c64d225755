"""Logistic regression of classes on sparse features, with a ridge.

Privacy: a function of the rows that it is given; as private as those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsql.numerics.arrays import FloatArray, IntArray
from dpsql.numerics.products import multiplies

RIDGE = 1.0
STEPS = 100
_LARGEST = 300.0  # of a score: its power, and a sum of many, are DOUBLEs
_NEAR = 1e-7  # relative change of the loss at which it is the least one


@dataclass(frozen=True)
class Fit:
    """Coefficients: scores of a row are ``features @ weights + offsets``.

    Parameters
    ----------
    weights : array of shape (features, classes), of two classes (features, 1)
        Of two classes the score is that of the second, and the first has 0.
    offsets : array of length classes, of two classes 1
    """

    weights: FloatArray
    offsets: FloatArray

    @multiplies
    def probabilities(self, features: Any) -> FloatArray:
        """Return the probability of each class for each row, shape (rows, classes)."""
        return _chances(np.asarray(features @ self.weights) + self.offsets)


@multiplies
def _chances(scores: FloatArray) -> FloatArray:
    powers = np.exp(np.clip(scores, -_LARGEST, _LARGEST))
    if powers.shape[1] == 1:
        second = powers / (1 + powers)
        return np.hstack([1 - second, second])
    chances: FloatArray = powers / (powers @ np.ones((powers.shape[1], 1)))
    return chances


def fit(features: Any, classes: IntArray, count: int, ridge: float = RIDGE, steps: int = STEPS) -> Fit:
    """Fit a multinomial logistic regression: the least of -log likelihood + ridge / 2 * sum of squared weights.

    Parameters
    ----------
    features : sparse or dense matrix, shape (rows, features)
    classes : int array of length rows
        From 0 to count - 1; a class without rows has a probability of about 0.
    count : int
        Number of classes, from 2.
    ridge : float
        Above 0; offsets are not penalised.
    steps : int
        Most iterations of L-BFGS.

    Returns
    -------
    Fit
        Finite: where the iteration leaves the finite numbers, the classes' overall shares for every row.

    References
    ----------
    Hastie, T., Tibshirani, R., & Friedman, J. (2009). The Elements of Statistical Learning, 4.4.
    """
    from scipy import optimize  # loaded when needed: scipy takes .2 s

    rows, width = features.shape
    columns = count if count > 2 else 1
    observed = np.zeros((rows, count))
    observed[np.arange(rows), classes] = 1.0
    across = features.T.tocsr() if hasattr(features, "tocsr") else features.T

    @multiplies
    def loss(flat: FloatArray) -> tuple[float, FloatArray]:
        weights, offsets = flat[: width * columns].reshape(width, columns), flat[width * columns :]
        chances = _chances(np.asarray(features @ weights) + offsets)
        missed = (chances - observed)[:, -columns:]
        likelihood = float(np.log(np.maximum(chances[np.arange(rows), classes], 1e-300)).sum())
        slope = np.asarray(across @ missed) + ridge * weights
        return ridge / 2 * float(np.vdot(weights, weights)) - likelihood, np.append(slope.ravel(), missed.sum(axis=0))

    shares = np.log(np.bincount(classes, minlength=count) + 0.5)
    first = shares - shares.mean() if columns > 1 else shares[1:] - shares[:1]
    start = np.append(np.zeros(width * columns), first)
    minimum = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": steps, "ftol": _NEAR})
    flat = np.asarray(minimum.x, dtype=np.float64)
    flat = flat if np.isfinite(flat).all() else start
    return Fit(flat[: width * columns].reshape(width, columns), flat[width * columns :])
