"""Numeric values as codes of many fine bins, so that a continuous draw keeps its digits in the column's own type.

Values are drawn on the scale t = (x - lower) / (upper - lower). A column of INTEGER or DECIMAL with at most FINE values between
its bounds gets one bin a value, and t is rounded to the nearest value. Any other column gets FINE equal bins (fewer where the
type has no value in one of them), and decoding places the value inside its bin.

Privacy: none: public domains and post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.domains import sqltypes
from dpsql.domains.attributes import FINE, Attribute
from dpsql.domains.edges import empty_bin
from dpsql.numerics.arrays import FloatArray

_EXACT = 2**50
"""Units below this are told apart by doubles, and so are the points half-way between them."""


@dataclass(frozen=True)
class FineValues:
    """How the codes of a finely binned attribute lie on the scale t.

    Parameters
    ----------
    edges : tuple of float
        Of the bins.
    low, high : float
        Values of t that are kept: 0 and 1, or half a unit beyond the first and last unit.
    step : float
        Width of a unit in t, 0 where the bins are not units.
    """

    edges: tuple[float, ...]
    low: float = 0.0
    high: float = 1.0
    step: float = 0.0

    @property
    def rounding_variance(self) -> float:
        """Variance that rounding to units adds (Sheppard's correction), in t squared."""
        return self.step * self.step / 12.0

    def codes(self, t: FloatArray) -> npt.NDArray[np.int32]:
        """Return the bin of each t; what lies beyond ``low`` or ``high`` goes to the first or last bin."""
        bins = len(self.edges) - 1
        places = np.floor((t - self.low) * (bins / (self.high - self.low)))
        placed: npt.NDArray[np.int32] = np.clip(places, 0, bins - 1).astype(np.int32)
        return placed


def fine_attribute(attribute: Attribute) -> Attribute:
    """Return a numeric attribute, never NULL and never outside its bounds, with fine bins.

    Examples
    --------
    >>> age = Attribute("age", "INTEGER", "numeric", edges=(0.0, 60.0, 120.0), nullable=False)
    >>> fine_attribute(age).values, fine_attribute(age).edges[-2:]
    (121, (120.0, 120.5))
    """
    return replace(attribute, edges=fine_values(attribute).edges, nullable=False, outside="clamp")


def fine_values(attribute: Attribute) -> FineValues:
    """Return the fine bins of a numeric attribute.

    Examples
    --------
    >>> age = Attribute("age", "INTEGER", "numeric", edges=(0.0, 60.0, 120.0), nullable=False)
    >>> fine_values(age).codes(np.array([0.0, 0.3, 1.0])).tolist()
    [0, 36, 120]
    >>> len(fine_values(Attribute("x", "DOUBLE", "numeric", edges=(0.0, 1.0))).edges)
    65537
    """
    return _fine_values(attribute.sql_type, attribute.edges)


@lru_cache(maxsize=256)
def _fine_values(sql_type: str, edges: tuple[Any, ...]) -> FineValues:
    parsed, numbers = sqltypes.parse(sql_type), [float(edge) for edge in edges]
    bounds = sqltypes.grid(parsed, numbers)
    if bounds is not None and bounds[-1] - bounds[0] <= FINE and max(abs(bounds[0]), abs(bounds[-1])) < _EXACT:
        return _units(bounds[0], bounds[-1] - 1, 10**parsed.scale, numbers[0], numbers[-1])
    count = FINE
    while count >= len(edges):
        with np.errstate(all="ignore"):
            spaced = np.linspace(numbers[0], numbers[-1], count + 1)
        if np.isfinite(spaced).all() and (np.diff(spaced) > 0).all() and empty_bin(parsed, spaced.tolist()) is None:
            return FineValues(tuple(spaced.tolist()))
        count //= 2
    # Too few doubles between the bounds: one bin, in which decoding places values uniformly.
    return FineValues((numbers[0], numbers[-1]))


def _units(first: int, last: int, scale: int, lower: float, upper: float) -> FineValues:
    """Return one bin for each unit from first to last. The last bin holds its right edge, so it ends half a unit later."""
    edges = (*(unit / scale for unit in range(first, last + 1)), (last + 0.5) / scale)
    width = upper - lower
    low, high = ((2 * first - 1) / (2 * scale) - lower) / width, ((2 * last + 1) / (2 * scale) - lower) / width
    return FineValues(edges, low, high, 1 / (scale * width))
