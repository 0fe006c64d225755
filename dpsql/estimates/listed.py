"""Estimates from a counter per listed value: histogram, mode, and whether a value occurs (bool_and, bool_or).

Privacy: none; post-processing of released numbers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsql.errors import ArgumentError
from dpsql.estimates.measures import Measure
from dpsql.estimates.moments import SURE, counts
from dpsql.noise.entropy import BoolArray
from dpsql.numerics.arrays import FloatArray, IntArray


def _held(measure: Measure, counters: npt.ArrayLike) -> FloatArray:
    if measure.kind != "values":
        raise ArgumentError("measure", measure.kind, "must be of kind 'values'")
    numbers = np.asarray(counters, dtype=np.float64)
    if numbers.shape[-1:] != measure.lengths:
        raise ArgumentError("counters", str(numbers.shape), f"must have {measure.lengths[0]} counters in its last axis")
    return numbers


def histogram(measure: Measure, counters: npt.ArrayLike) -> FloatArray:
    """Return how often each value occurs: whole, at least 0, of the shape of the counters."""
    return counts(_held(measure, counters))


def mode(measure: Measure, counters: npt.ArrayLike) -> IntArray:
    """Return the place of the most frequent value, shape (..., groups); -1 (NULL) where no count rounds to 1 or more."""
    numbers = _held(measure, counters)
    if measure.other:  # which is many values
        numbers = numbers[..., :-1]
    return np.where(counts(numbers.max(axis=-1)) > 0, numbers.argmax(axis=-1), -1).astype(np.int64)


def occurs(measure: Measure, counters: npt.ArrayLike, sigma: float) -> BoolArray:
    """Return which values occur: their counts are above three deviations of the noise, and round to 1 at least.

    Notes
    -----
    A value that does not occur is taken to with a probability of about 1e-3; one that fewer rows than noise hold is missed. With
    the values ('false', 'true'): bool_or is the second of them, bool_and is not the first.
    """
    numbers = _held(measure, counters)
    return np.asarray(numbers > max(SURE * sigma, 0.5))
