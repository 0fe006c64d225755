"""Distances between two empirical distributions, from how often each value occurs; and the area under a ROC curve.

Privacy: functions of counts; they are as private as those.
"""

from __future__ import annotations

import math

import numpy as np

from dpsql.numerics.arrays import FloatArray, IntArray
from dpsql.numerics.products import multiplies


@multiplies
def distances(values: FloatArray, first: IntArray, second: IntArray) -> tuple[float, float]:
    """Return the Kolmogorov-Smirnov and the Wasserstein distance of two samples.

    Parameters
    ----------
    values : float64 array
        The values of both, finite, strictly increasing.
    first, second : int64 arrays of the same length
        How often each value occurs in the one and in the other sample.

    Returns
    -------
    ks : float
        Largest difference of the two distribution functions, from 0 to 1; NaN if a sample is empty.
    wasserstein : float
        Area between them, in units of the values: how far a row has to be moved on average; NaN if a sample is empty.

    References
    ----------
    Villani, C. (2003). Topics in Optimal Transportation, Theorem 2.18: on the line the Wasserstein-1 distance is that area.

    Examples
    --------
    >>> distances(np.array([0.0, 1.0, 3.0]), np.array([1, 1, 0]), np.array([0, 1, 1]))
    (0.5, 1.5)
    """
    if not first.sum() or not second.sum():
        return math.nan, math.nan
    apart = np.abs(np.cumsum(first) / first.sum() - np.cumsum(second) / second.sum())
    size = max(1.0, float(np.abs(values).max()))  # the difference of two values may be more than a DOUBLE can be
    moved = float(apart[:-1] @ np.diff(values / size)) * size
    return float(apart.max()), moved


def area_under_curve(scores: FloatArray, positive: np.ndarray) -> float:
    """Return the probability that a positive has a larger score than a negative, ties counted half; NaN where one kind is missing.

    References
    ----------
    Hanley, J. A., & McNeil, B. J. (1982). The meaning and use of the area under a ROC curve. Radiology 143.

    Examples
    --------
    >>> area_under_curve(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True]))
    0.75
    """
    yes = int(positive.sum())
    no = len(positive) - yes
    if not yes or not no:
        return math.nan
    _, place, times = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(times) - (times - 1) / 2  # the mean rank of equal scores
    return float((ranks[place][positive].sum() - yes * (yes + 1) / 2) / (yes * no))
