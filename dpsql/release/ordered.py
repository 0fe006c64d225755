"""The order of rows: values of the column that they are ordered by, and the cells of distances between neighbours.

Privacy: functions of public domains, and of one value each.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute
from dpsql.domains.grid import edge_numbers
from dpsql.domains.within import Within
from dpsql.methods.nested_classes import GAPS, Scale
from dpsql.numerics.arrays import FloatArray, IntArray

_ROUNDING = 1e-9
_FINEST = 2.0**-15
"""Of the span between the bounds: distances below it are one cell, where the type has no larger step."""


def can_order(attribute: Attribute) -> bool:
    """Return whether rows can be ordered by a column: a number, date or time with two values or more between its bounds."""
    if not Within.fits(attribute):
        return False
    edges = edge_numbers(attribute)
    return bool(edges[-1] - edges[0] >= 2.0 * step_of(attribute) and edges[-1] > edges[0])


def step_of(attribute: Attribute) -> float:
    """Return how far neighbouring values are apart, on the scale of `dpsql.domains.grid`; 0: there is no such number.

    Examples
    --------
    >>> step_of(Attribute("day", "DATE", "temporal", edges=("2020-01-01", "2021-01-01")))
    1.0
    """
    parsed = sqltypes.parse(attribute.sql_type)
    if parsed.family == "float":
        return 0.0
    return 1.0 if parsed.family == "temporal" else 1.0 / 10**parsed.scale


def gap_edges(attribute: Attribute) -> FloatArray:
    """Return where the cells of distances begin, without the first one, which begins at 0; shape (GAPS - 1,), ascending.

    Notes
    -----
    Each is the same multiple of the one before. The second cell begins at the type's step, or at the 2^15th part of the span.

    Examples
    --------
    >>> edges = gap_edges(Attribute("day", "DATE", "temporal", edges=("2020-01-01", "2022-01-01")))
    >>> float(edges[0]), round(float(edges[-1] * edges[1])), edges.size
    (1.0, 731, 31)
    """
    edges = edge_numbers(attribute)
    span = float(edges[-1] - edges[0])
    first = max(step_of(attribute), span * _FINEST)
    starts: FloatArray = first * (span / first) ** (np.arange(GAPS - 1) / (GAPS - 1))
    return starts


def gap_cells(attribute: Attribute, gaps: FloatArray) -> IntArray:
    """Return the cells of distances, 0 to GAPS - 1; neighbours in a decimal's grid are a step apart, whatever float64 says."""
    return np.searchsorted(gap_edges(attribute) * (1.0 - _ROUNDING), gaps, side="right").astype(np.int64)


def scale_of(attribute: Attribute) -> Scale:
    """Return the column of an order for `dpsql.methods.nested_classes`."""
    edges, step = edge_numbers(attribute), step_of(attribute)
    if attribute.kind == "temporal" and step:
        edges[-1] += step  # its last value is the upper bound itself
    return Scale(edges, step, gap_edges(attribute))


def order_values(attribute: Attribute, codes: npt.NDArray[np.integer], values: FloatArray) -> FloatArray:
    """Return what rows are ordered by: values within the bounds, NaN for rows whose code is no bin, which stand in no order.

    Parameters
    ----------
    codes : int array, shape (n,)
        Of the attribute.
    values : ndarray, shape (n,)
        As `dpsql.domains.codes.number_expression` has them: infinities beyond the bounds, NaN for NULL.
    """
    edges = edge_numbers(attribute)  # of whole numbers and decimals the last edge is one step past the last value
    last = edges[-1] - (0.0 if attribute.kind == "temporal" else step_of(attribute))
    inside = np.clip(np.where(np.isnan(values), edges[0], values), edges[0], last)
    placed: FloatArray = np.where(np.asarray(codes) < attribute.values, inside, np.nan)
    return placed
