"""Logistic regression of classes on sparse features, with a ridge.

Privacy: a function of the rows that it is given; as private as those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsql.numerics.arrays import FloatArray, IntArray

RIDGE = 1.0
STEPS = 200


@dataclass(frozen=True)
class Fit:
    """Coefficients: scores of a row are ``features @ weights + offsets``, a column for each class.

    Parameters
    ----------
    weights : array of shape (features, classes)
    offsets : array of length classes
    """

    weights: FloatArray
    offsets: FloatArray

    def probabilities(self, features: Any) -> FloatArray:
        """Return the probability of each class for each row, shape (rows, classes)."""
        return _softmax(np.asarray(features @ self.weights) + self.offsets)


def _softmax(scores: FloatArray) -> FloatArray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: FloatArray = powers / powers.sum(axis=1, keepdims=True)
    return found


def fit(features: Any, classes: IntArray, count: int, ridge: float = RIDGE, steps: int = STEPS) -> Fit:
    """Fit a multinomial logistic regression: the least -log likelihood + ridge / 2 * sum of squared weights.

    Parameters
    ----------
    features : sparse or dense matrix, shape (rows, features)
    classes : int array of length rows
        From 0 to count - 1; a class without rows has a probability of about 0.
    count : int
        Number of classes.
    ridge : float
        Above 0; offsets are not penalised.
    steps : int
        Most iterations of L-BFGS.

    Notes
    -----
    With one set of weights a class (the softmax has one too many, and the ridge decides between them) two classes are the usual
    logistic regression with a ridge of half the size.
    """
    from scipy import optimize  # loaded when needed: scipy takes .2 s

    rows, width = features.shape
    shares = (np.bincount(classes, minlength=count) + 0.5) / (rows + 0.5 * count)
    wanted = np.zeros((rows, count))
    wanted[np.arange(rows), classes] = 1.0
    across = features.T.tocsr() if hasattr(features, "tocsr") else features.T

    def loss(flat: FloatArray) -> tuple[float, FloatArray]:
        weights, offsets = flat[: width * count].reshape(width, count), flat[width * count :]
        chances = _softmax(np.asarray(features @ weights) + offsets)
        missed = chances - wanted
        likelihood = float(np.log(np.maximum(chances[np.arange(rows), classes], 1e-300)).sum())
        slope = np.asarray(across @ missed) + ridge * weights
        return ridge / 2 * float(np.vdot(weights, weights)) - likelihood, np.append(slope.ravel(), missed.sum(axis=0))

    start = np.append(np.zeros(width * count), np.log(shares))
    found = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": steps})
    flat = np.asarray(found.x, dtype=np.float64)
    return Fit(flat[: width * count].reshape(width, count), flat[width * count :])
