"""Aggregates of distinct values, from noisy counts of all values that are possible. Post-processing.

A value counts as there if its noisy count is above what the noise of a value that is not there exceeds: chosen so that among
all of a group's listed values half of one is expected to be taken for there without being. Values of a few rows are missed.
"""

from __future__ import annotations

import numpy as np

from dpsql.algebra.aggregates import DISTINCT
from dpsql.numerics.arrays import FloatArray
from dpsql.queries.estimating import Estimates

_NUMBERS = {"false": 0.0, "true": 1.0}
FALSE_VALUES = 0.5
"""Values of a group that are expected to be taken for there though no row has them."""


def numbers(function: str, estimates: Estimates, place: int, counters: FloatArray) -> list[float]:
    """Return an aggregate of each group's distinct values; NaN for NULL.

    Parameters
    ----------
    function : str
        A key of `dpsql.queries.aggregates.DISTINCT`.
    estimates : Estimates
    place : int
        Of the measure of kind 'values'.
    counters : float array, shape (groups, values)
        As released.
    """
    measure = estimates.query.measures[place]
    deviation = estimates.deviation(estimates.query.blocks_of(place).start)
    values = np.array([float(_NUMBERS.get(text, text)) for text in measure.values])
    present = counters > threshold(deviation, len(values), estimates.mechanism)
    return [_aggregate(DISTINCT[function], values[row]) for row in present]


def threshold(deviation: float, count: int, mechanism: str) -> float:
    """Return the noisy count above which a value is there.

    Examples
    --------
    >>> round(threshold(1.0, 100, "gaussian"), 3)
    2.576
    """
    tail = min(0.5, FALSE_VALUES / count)
    if mechanism == "laplace":
        return float(-np.log(2 * tail) * (deviation / np.sqrt(2)))
    from scipy.special import ndtri  # loaded when needed: scipy takes .2 s

    return float(-ndtri(tail) * deviation)


def _aggregate(name: str, values: FloatArray) -> float:
    ddof = 1 if name.endswith("_samp") else 0
    if len(values) <= ddof:
        return float("nan")
    if name in ("sum", "avg"):
        return float(values.sum() if name == "sum" else values.mean())
    variance = float(values.var(ddof=ddof))
    return variance if name.startswith("var") else float(np.sqrt(variance))
