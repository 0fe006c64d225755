"""Bounds of a numeric column about which nothing is known: cells between powers of two, with sign, zero apart.

A noisy histogram over these cells says between which powers of two the values lie; `bounds_of` reads that off. The cells follow
from the column's type alone.

Privacy: public (`magnitudes`), and post-processing of released counts (`bounds_of`).

References: Karwa & Vadhan (2018), arXiv:1711.03908, for bounds from a noisy histogram.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute
from dpsql.domains.edges import without_empty_bins
from dpsql.numerics.arrays import IntArray

_LEAST, _MOST = -30, 100
"""Exponents of the smallest and largest powers of two for FLOAT and DOUBLE; beyond them lie the first and the last cell."""

_SURE = {"gaussian": 4.5, "laplace": 10.0}
"""Noise scales that a count passes where there are no rows with probability below 5e-5: at most one cell in a hundred releases."""


def magnitudes(name: str, sql_type: str, *, nullable: bool) -> Attribute:
    """Return an attribute whose bins end at powers of two, from the type alone.

    Examples
    --------
    >>> magnitudes("n", "UTINYINT", nullable=False).edges
    (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 255.0)
    """
    parsed = sqltypes.parse(sql_type)
    if parsed.family == "float":
        powers, high, low = [2.0**k for k in range(_LEAST, _MOST + 1)], 2.0 ** (_MOST + 1), -(2.0 ** (_MOST + 1))
    else:
        unit = Fraction(1, 10**parsed.scale)
        least = math.ceil(math.log2(unit)) if parsed.scale else 0
        high, low = float(parsed.high * unit), float(parsed.low * unit)
        powers = [2.0**k for k in range(least, math.frexp(high)[1]) if 2.0**k < high]
    # Powers beyond what the type holds are no bins; the last bin ends where the type does.
    edges = [*(-power for power in reversed(powers) if -power > low), 0.0, *powers]
    edges = [low, *(edge for edge in edges if low < edge < high), high]
    return Attribute(name, sql_type, "numeric", edges=tuple(without_empty_bins(parsed, edges)), nullable=nullable)


def bounds_of(attribute: Attribute, counts: IntArray, scale: float, mechanism: str) -> tuple[float, float, bool]:
    """Return lower and upper bounds of the values, of all cells whose noisy counts are surely not 0, and whether there are any.

    Parameters
    ----------
    attribute : Attribute
        From `magnitudes`.
    counts : int64 array, shape (codes,)
        Noisy counts.
    scale : float
        Of their noise.

    Notes
    -----
    Where no count is, the cell of the largest one is taken, which may be anywhere: the answer is never an error that depends on the
    data, and says so. Privacy: post-processing.
    """
    cells = np.flatnonzero(counts[: attribute.values] > _SURE[mechanism] * scale)
    if sqltypes.parse(attribute.sql_type).family == "float":  # infinities are in the first and the last cell
        cells = cells[(cells > 0) & (cells < attribute.values - 1)]
    sure = cells.size > 0
    if not sure:
        cells = np.asarray([int(np.argmax(counts[: attribute.values]))])
    edges = [float(edge) for edge in attribute.edges]
    low, high = edges[int(cells[0])], edges[int(cells[-1]) + 1]
    parsed = sqltypes.parse(attribute.sql_type)
    if parsed.family == "integer" and high != edges[-1] and high - 1.0 > low:
        high -= 1.0  # the last value below a power of two
    # Values near zero are few where cells grow with their distance from it: the range reaches to zero, which costs next to nothing.
    low, high = min(low, 0.0), max(high, 0.0)
    return max(low, edges[0]), min(high, edges[-1]), sure
