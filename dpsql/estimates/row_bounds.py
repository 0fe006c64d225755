"""How many rows of a unit are to count: the number that balances the noise against the rows that are lost.

Noise of counts and sums grows in proportion to the number of rows of a unit that may count, whatever units have. So a number that
is far above what most units have costs accuracy for nothing, and one that is far below loses rows.

Privacy: post-processing of a released histogram, and of noise scales, which are public.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpsql.numerics.arrays import FloatArray, IntArray

_ALONE = 5.0
"""Units are in a bucket, wherever it stands, that is so many standard deviations of its noise above 0."""
_FULLEST = 3.0
"""Where there is no such bucket they are in the fullest one, if it is so many above 0."""
_NEXT = 2.5
"""Right above a bucket that units are in, so many are enough, ..."""
_TOGETHER = 3.0
"""... or of the sum of up to `_WIDEST` buckets, so many of its standard deviations."""
_WIDEST = 4
_DECLINE = 0.1
"""What is assumed above the last bucket that units are in: such a share of units for twice as many rows, ..."""
_UNSEEN = 0.35
"""... and no more than so much of the noise's standard deviation for rows from one number to its double."""


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
        ``[r - 1]``: units with r rows; below 0 where the noise was, so that sums of many are not too large.

    Notes
    -----
    Above the last bucket that units are in they are taken to decline, as they do in most tables: the noise of empty buckets would
    count as that many units with hundreds of rows each. A few units with very many rows cannot be told from it.
    """
    estimated = np.array(counts, np.float64)
    last = _last(estimated, deviation)
    estimated[last] = max(estimated[last], deviation)
    for place in range(last + 1, estimated.size):
        doublings = math.log2(lower[place] / lower[place - 1])
        declined = estimated[place - 1] * _DECLINE**doublings
        estimated[place] = min(declined, _UNSEEN * deviation * min(doublings, 1.0))
    ends = (*lower, 2 * lower[-1])
    out = np.zeros(ends[-1] - 1)
    for low, high, units in zip(ends[:-1], ends[1:], estimated, strict=True):
        weights = 1.0 / np.arange(low, high)
        out[low - 1 : high - 1] = units * weights / weights.sum()
    return out


def _last(counts: FloatArray, deviation: float) -> int:
    """Return the last bucket that units are in.

    One in a hundred tables has an empty bucket 2.5 standard deviations above 0 somewhere, and the number that is chosen would be
    hundreds of times too large. So a bucket far above all others has to be surer than one that carries them on.
    """
    alone = np.flatnonzero(counts > _ALONE * deviation)
    fullest = int(np.argmax(counts))
    last = int(alone[-1]) if alone.size else fullest if counts[fullest] > _FULLEST * deviation else 0
    while (width := _carried_on(counts[last + 1 :], deviation)) is not None:
        last += width
    return last


def _carried_on(above: FloatArray, deviation: float) -> int | None:
    """Return how many of the buckets above the last one that units are in have units, together; None where none have."""
    for width in range(1, min(_WIDEST, above.size) + 1):
        if above[:width].sum() > (_NEXT if width == 1 else _TOGETHER) * deviation * math.sqrt(width):
            return width
    return None


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
    ([3, 4, 7], 2)
    """
    units = units_by_rows(lower, counts, deviation)
    longest = min(most, units.size)
    # rows beyond r, of all units: of each r + 1, r + 2, ... the units with so many
    beyond = np.maximum(np.concatenate([np.cumsum(np.cumsum(units[::-1]))[::-1][1:], [0.0]])[:longest], 0.0)
    number = np.arange(1, longest + 1)
    return int(np.argmin((noise * number) ** 2 + (beyond / groups) ** 2)) + 1
