r"""Tail of integer Laplace noise, and thresholds that empty cells stay below: proved bounds on Python integers.

X has P(x) proportional to exp(-|x| / b). With q = exp(-1/b), P(X >= t) = q^t / (1 + q) for t >= 1. The smallest t
whose (1 - P(X >= t))^n reaches a probability is what both a domain that nobody can list (n its size) and the selection of
an undeclared one (n the values of one unit) need.

Privacy: none of these functions sees data.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dpsql.noise.entropy import exp_bounds

_START = 64


def tail_bounds(scale: Fraction, threshold: int, precision: int) -> tuple[int, int]:
    """Return integers around 2^precision P(X >= threshold).

    Parameters
    ----------
    scale : Fraction, > 0
        b.
    threshold : int, at least 1
    precision : int, >= 1

    Returns
    -------
    low, high : int
        low <= 2^precision P(X >= threshold) <= high, proved.

    Examples
    --------
    >>> tail_bounds(Fraction(1), 1, 20)  # e^-1 / (1 + e^-1) = 0.268941...
    (282005, 282006)
    """
    guard = precision + 4
    one = 1 << guard
    low, high = exp_bounds(threshold / scale, guard)
    q_low, q_high = exp_bounds(1 / scale, guard)
    return (low << precision) // (one + q_high), -((-high << precision) // (one + q_low))


def power_bounds(low: int, high: int, exponent: int, precision: int) -> tuple[int, int]:
    """Return integers around 2^precision x^exponent for every x in [low, high] / 2^precision, x <= 1.

    Squares and multiplies, rounding outwards; the rounding errors add up to less than 2 exponent units.
    """
    result_low = result_high = 1 << precision
    for digit in bin(exponent)[2:]:
        result_low, result_high = result_low * result_low >> precision, -(-result_high * result_high >> precision)
        if digit == "1":
            result_low, result_high = result_low * low >> precision, -(-result_high * high >> precision)
    return result_low, result_high


def silence_bounds(scale: Fraction, threshold: int, cells: int, precision: int) -> tuple[int, int]:
    """Return integers around 2^precision (1 - P(X >= threshold))^cells: that no empty cell reaches the threshold.

    Parameters
    ----------
    scale : Fraction, > 0
    threshold : int, at least 1
    cells : int, >= 1
        May be far above 2^63.
    precision : int, >= 1
    """
    drop = cells.bit_length() + 8
    work = precision + drop
    low, high = tail_bounds(scale, threshold, work)
    low, high = power_bounds((1 << work) - high, (1 << work) - low, cells, work)
    return low >> drop, -(-high >> drop)


def _reaches(scale: Fraction, threshold: int, cells: int, probability: Fraction) -> bool:
    """Return whether (1 - P(X >= threshold))^cells >= probability.

    Equality cannot happen: both sides are algebraic in exp(-1/b), which is transcendental. So some precision decides.
    """
    precision = _START
    while True:
        low, high = silence_bounds(scale, threshold, cells, precision)
        limit = probability * (1 << precision)
        if low >= limit:
            return True
        if high < limit:
            return False
        precision *= 2


def smallest_threshold(scale: Fraction, cells: int, probability: Fraction) -> int:
    """Return the smallest t >= 1 with (1 - P(X >= t))^cells >= probability, proved.

    Parameters
    ----------
    scale : Fraction, > 0
        b of the noise.
    cells : int, >= 1
        Number of independent draws of X.
    probability : Fraction
        In (0, 1).

    Notes
    -----
    Privacy: post-processing; sees no data.

    Examples
    --------
    >>> smallest_threshold(Fraction(10), 1000, Fraction(9, 10))
    86
    """
    # a guess in floats, from the approximation P(X >= t) = -ln(probability) / cells; what is returned is proved below
    missing = float(1 - probability)
    above = 1
    if 0 < missing < 1:
        loss = -math.log1p(-missing)
        above = max(1, math.ceil(float(scale) * (math.log(cells) - math.log(loss) - math.log1p(math.exp(-float(1 / scale))))))
    step = 1
    while not _reaches(scale, above, cells, probability):
        above += step
        step *= 2
    below = above - 1
    step = 1
    while below > 0 and _reaches(scale, below, cells, probability):
        above, below, step = below, max(0, below - step), 2 * step
    while above - below > 1:
        middle = (above + below) // 2
        if _reaches(scale, middle, cells, probability):
            above = middle
        else:
            below = middle
    return above
