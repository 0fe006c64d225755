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
    held = np.asarray(counters, dtype=np.float64)
    if held.shape[-1:] != measure.lengths:
        raise ArgumentError("counters", str(held.shape), f"must have {measure.lengths[0]} counters in its last axis")
    return held


def histogram(measure: Measure, counters: npt.ArrayLike) -> FloatArray:
    """Return how often each value occurs: whole, at least 0, of the shape of the counters."""
    return counts(_held(measure, counters))


def mode(measure: Measure, counters: npt.ArrayLike) -> IntArray:
    """Return the place of the most frequent value, shape (..., groups); -1 (NULL) where no count rounds to 1 or more."""
    held = _held(measure, counters)
    if measure.other:  # which is many values
        held = held[..., :-1]
    return np.where(counts(held.max(axis=-1)) > 0, held.argmax(axis=-1), -1).astype(np.int64)


def occurs(measure: Measure, counters: npt.ArrayLike, sigma: float) -> BoolArray:
    """Return which values occur: their counts are above three deviations of the noise, and round to 1 at least.

    Notes
    -----
    A value that does not occur is taken to with a probability of about 1e-3; one that fewer rows than noise hold is missed. With
    the values ('false', 'true'): bool_or is the second of them, bool_and is not the first.
    """
    held = _held(measure, counters)
    return np.asarray(held > max(SURE * sigma, 0.5))
