"""Estimates from a counter per listed value: histogram, mode, which values occur and how many (bool_and, bool_or, DISTINCT).

Privacy: none; post-processing of released numbers.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from dpsql.errors import ArgumentError
from dpsql.estimates.measures import Measure
from dpsql.estimates.moments import SURE, counts
from dpsql.noise.entropy import BoolArray
from dpsql.numerics.arrays import FloatArray, IntArray

FALSE_VALUES = 0.02
"""Values of a group that are expected to be taken for there though no row has them."""
_NUMBERS = {"false": 0.0, "true": 1.0}


def _held(measure: Measure, counters: npt.ArrayLike) -> FloatArray:
    if measure.kind != "values":
        raise ArgumentError("measure", measure.kind, "must be of kind 'values'")
    numbers = np.asarray(counters, dtype=np.float64)
    if numbers.shape[-1:] != measure.lengths:
        raise ArgumentError("counters", str(numbers.shape), f"must have {measure.lengths[0]} counters in its last axis")
    return numbers


def _each(measure: Measure, counters: npt.ArrayLike) -> FloatArray:
    """Return the counters of single values: the others, which have one together, are many."""
    numbers = _held(measure, counters)
    return numbers[..., :-1] if measure.other else numbers


def histogram(measure: Measure, counters: npt.ArrayLike) -> FloatArray:
    """Return how often each value occurs: whole, at least 0, of the shape of the counters."""
    return counts(_held(measure, counters))


def mode(measure: Measure, counters: npt.ArrayLike) -> IntArray:
    """Return the place of the most frequent value, shape (..., groups); -1 (NULL) where no count rounds to 1 or more."""
    numbers = _each(measure, counters)
    return np.where(counts(numbers.max(axis=-1)) > 0, numbers.argmax(axis=-1), -1).astype(np.int64)


def present(measure: Measure, counters: npt.ArrayLike, deviation: float, mechanism: str) -> BoolArray:
    """Return which of the listed values are taken to be there, shape (..., groups, values): those with counts above `threshold`."""
    numbers = _each(measure, counters)
    return np.asarray(numbers > threshold(deviation, numbers.shape[-1], mechanism))


def threshold(deviation: float, count: int, mechanism: str) -> float:
    """Return the noisy count above which one of ``count`` values is there.

    Of all that are not, `FALSE_VALUES` are expected to be taken for there. A value of fewer rows, or units, is missed as a rule.

    Examples
    --------
    >>> round(threshold(1.0, 4, "gaussian"), 3), threshold(0.0, 4, "laplace")
    (2.576, 0.5)
    """
    tail = FALSE_VALUES / count
    if mechanism == "laplace":
        return max(0.5, -math.log(2 * tail) * (deviation / math.sqrt(2)))
    return max(0.5, -NormalDist().inv_cdf(tail) * deviation)


def of_present(name: str, measure: Measure, counters: npt.ArrayLike, deviation: float, mechanism: str) -> list[float]:
    """Return a sum, mean, variance or deviation of each group's distinct values; NaN for NULL.

    Parameters
    ----------
    name : str
        Of the aggregate.
    measure : Measure
        Of kind 'values', which are numbers or truths.
    counters : float array, shape (groups, values)
        As released.
    deviation : float
        Of their noise, whose law is ``mechanism``.
    """
    values = np.array([float(_NUMBERS.get(text, text)) for text in measure.values])
    return [_aggregate(name, values[row]) for row in present(measure, counters, deviation, mechanism)]


def _aggregate(name: str, values: FloatArray) -> float:
    ddof = 1 if name.endswith("_samp") else 0
    if len(values) <= ddof:
        return float("nan")
    if name in ("sum", "avg"):
        return float(values.sum() if name == "sum" else values.mean())
    variance = float(values.var(ddof=ddof))
    return variance if name.startswith("var") else float(np.sqrt(variance))


def interval(measure: Measure, counters: FloatArray, deviation: float, times: float) -> tuple[FloatArray, FloatArray]:
    """Return between which numbers the number of distinct values lies: those that are there for sure, those that may be.

    ``times``: how many deviations the noise of no counter of a group is beyond, but for a probability.
    """
    numbers = _each(measure, counters)
    sure = (numbers - times * deviation > 0).sum(axis=-1)
    return sure.astype(np.float64), (numbers + times * deviation >= 1).sum(axis=-1).astype(np.float64)


def occurs(measure: Measure, counters: npt.ArrayLike, sigma: float) -> BoolArray:
    """Return which values occur: their counts are above three deviations of the noise, and round to 1 at least.

    Notes
    -----
    A value that does not occur is taken to with a probability of about 1e-3; one that fewer rows than noise hold is missed. With
    the values ('false', 'true'): bool_or is the second of them, bool_and is not the first.
    """
    numbers = _held(measure, counters)
    return np.asarray(numbers > max(SURE * sigma, 0.5))
