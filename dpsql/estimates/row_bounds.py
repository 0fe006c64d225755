"""How many rows of a unit are to count: the number that balances the noise against the rows that are lost.

Noise of counts and sums grows in proportion to the number of rows of a unit that may count, whatever units have. So a number that
is far above what most units have costs accuracy for nothing, and one that is far below loses rows.

Privacy: post-processing of a released histogram, and of noise scales, which are public.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsql.numerics.arrays import FloatArray, IntArray

_SURE = 2.5
"""A bucket that is so many standard deviations above 0 is there."""
_DECLINE = 0.25
"""What is assumed of buckets above the last one that is there: each has this share of the units of the one below."""


def units_by_rows(lower: Sequence[int], counts: Sequence[int] | IntArray, deviation: float) -> FloatArray:
    """Return about how many units have 1, 2, 3, ... rows, up to twice the beginning of the last bucket.

    Parameters
    ----------
    lower : sequence of int
        The least number of rows of each bucket, the first one 1.
    counts : int64 array of the same length
        Noisy numbers of units in each bucket.
    deviation : float
        Standard deviation of their noise.

    Returns
    -------
    float64 array, shape (2 * lower[-1] - 1,)
        ``[r - 1]``: units with r rows.

    Notes
    -----
    Above the last bucket that is surely there units are taken to decline by bucket, as they do in most tables: the noise of empty
    buckets would count as that many units with hundreds of rows each. A few units with very many rows cannot be told from it.
    """
    estimated = np.maximum(np.asarray(counts, np.float64), 0.0)
    sure = np.flatnonzero(np.asarray(counts) > _SURE * deviation)
    last = int(sure[-1]) if sure.size else 0
    estimated[last] = max(estimated[last], deviation)
    for place in range(last + 1, estimated.size):
        estimated[place] = min(_DECLINE * estimated[place - 1], deviation)
    ends = (*lower, 2 * lower[-1])
    out = np.zeros(ends[-1] - 1)
    for low, high, units in zip(ends[:-1], ends[1:], estimated, strict=True):
        weights = 1.0 / np.arange(low, high)
        out[low - 1 : high - 1] = units * weights / weights.sum()
    return out


def chosen(
    lower: Sequence[int], counts: Sequence[int] | IntArray, deviation: float, most: int, noise: float, groups: float
) -> int:
    """Return how many rows of a unit are to count, 1 to ``most``.

    Parameters
    ----------
    lower, counts, deviation
        Those of `units_by_rows`.
    most : int
        What the contract allows.
    noise : float
        Standard deviation of a group's count, in rows, for each row of a unit that may count.
    groups : float
        About how many groups share the rows.

    Notes
    -----
    The expected squared error of a group, of noise and of its share of the rows that are lost, is least.

    Examples
    --------
    Ten thousand units with one to four rows each, of at most 287: four rows count, or a few more, where there is less noise.

    >>> lower, counts = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000), [4000, 3000, 3000, 12, -30, 25, 9, -14, 3, 20, -11]
    >>> [chosen(lower, counts, 40.0, 287, noise, 4) for noise in (200.0, 14.0, 1.0)], chosen(lower, counts, 40.0, 2, 14.0, 4)
    ([3, 5, 21], 2)
    """
    units = units_by_rows(lower, counts, deviation)
    longest = min(most, units.size)
    # rows beyond r, of all units: of each r + 1, r + 2, ... the units with so many
    beyond = np.concatenate([np.cumsum(np.cumsum(units[::-1]))[::-1][1:], [0.0]])[:longest]
    number = np.arange(1, longest + 1)
    return int(np.argmin((noise * number) ** 2 + (beyond / groups) ** 2)) + 1
