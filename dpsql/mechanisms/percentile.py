r"""A private percentile over a public range, by the exponential mechanism, drawn exactly.

Every row has a whole number s between 0 and a public bound. With q the wanted share and n rows, the penalty of t is the
distance of q n from the interval between #{s < t} and #{s <= t}:

    u(t) = max(q n - #{s <= t}, #{s < t} - q n, 0).

It is 0 exactly where t is a q-quantile, ties or not. One row more or fewer changes each of the two counts by 0 or 1 in the
direction of n, so q n - #{s <= t} moves by q or by q - 1, and the other one likewise: u moves by at most max(q, 1 - q). One row
exchanged for another moves it by at most 1 (q from one row, 1 - q from the other).

The published scoring [SDS] measures distance from the exact *position* of the percentile, which one row can move by the size of a
group of ties.

Privacy: exact; epsilon-DP and of bounded range (`dpsql.accounting.other_events`).

References: McSherry & Talwar (2007) for the mechanism.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.errors import ArgumentError
from dpsql.noise.discrete import accepts
from dpsql.noise.entropy import uniform_below
from dpsql.numerics.arrays import IntArray

_DRAWS = 64


def penalty_sensitivity(share: Fraction, neighbors: str, max_contributions: int) -> Fraction:
    """Return how far the penalty moves between neighbours.

    Parameters
    ----------
    share : Fraction, in [0, 1]
        q.
    neighbors : {'add_remove', 'replace_one'}
    max_contributions : int
        C, the rows of one unit at most.

    Returns
    -------
    Fraction
        C max(q, 1 - q), or C: a unit takes at most C rows away and brings at most C others, a of them removed and b added move the
        penalty by at most max(a, b) (q + 1 - q).

    Examples
    --------
    >>> penalty_sensitivity(Fraction(99, 100), "add_remove", 2), penalty_sensitivity(Fraction(99, 100), "replace_one", 2)
    (Fraction(99, 50), Fraction(2, 1))
    """
    if neighbors not in ("add_remove", "replace_one"):
        raise ArgumentError("neighbors", neighbors, "must be 'add_remove' or 'replace_one'")
    return max_contributions * (max(share, 1 - share) if neighbors == "add_remove" else Fraction(1))


def penalties(histogram: IntArray, share: Fraction) -> tuple[npt.NDArray[Any], int]:
    """Return the penalty of 0, 1, ... times the denominator of the share, and that denominator.

    Parameters
    ----------
    histogram : int64 array
        How many rows have s = 0, 1, ..., bound; fewer than 2^63 together.
    share : Fraction, in [0, 1]
        q, of any denominator.

    Notes
    -----
    Counts times the terms of the share can pass 2^63 (a share written as a float has a denominator of up to 10^326), so they are
    Python integers wherever they could: no product depends on the rows for whether it is right, or fails.

    Examples
    --------
    >>> penalties(np.array([0, 3, 0, 1]), Fraction(1, 2))  # q n = 2; one half of the rows have at most 1
    (array([4, 0, 2, 2]), 2)
    """
    upto: npt.NDArray[Any] = np.cumsum(histogram)
    if max(int(upto[-1]), 1) * share.denominator >= 2**62:  # bounds all products below, and their differences
        upto = upto.astype(object)
    target = share.numerator * int(upto[-1])
    below = upto - histogram
    penalty = np.maximum(np.maximum(target - share.denominator * upto, share.denominator * below - target), 0)
    return penalty, share.denominator


def private_percentile(histogram: IntArray, share: Fraction, epsilon: Fraction, sensitivity: Fraction) -> int:
    """Return a private q-quantile of whole numbers in a public range.

    Parameters
    ----------
    histogram : int64 array, shape (bound + 1,)
        How many rows have s = 0, 1, ..., bound; secret.
    share : Fraction, in [0, 1]
        q.
    epsilon : Fraction, > 0
    sensitivity : Fraction
        `penalty_sensitivity`.

    Returns
    -------
    int
        t with probability proportional to exp(-epsilon u(t) / (2 sensitivity)).

    Notes
    -----
    Privacy: epsilon-DP, and of bounded range epsilon: ``RangeEvent(epsilon)`` is what it may be charged as. Of several groups
    with a percentile each, a unit that is in at most G of them moves the penalties of G, and replaced by another those of 2 G,
    each by at most the sensitivity with C the rows of a unit in one group: ``RangeEvent(epsilon, G)``, or 2 G under replace_one.
    Exact: candidates are drawn alike and accepted with probability exp(-gamma), decided in
    integers with entropy from the operating system. The best penalty is taken off all of them, which changes no probability.
    """
    penalty, denominator = penalties(histogram, share)
    penalty = penalty - penalty.min()
    factor = epsilon / (2 * sensitivity * denominator)
    while True:
        for t in uniform_below(histogram.size, _DRAWS).tolist():
            if accepts(factor * int(penalty[t])):
                return int(t)
