"""Bracketing by bisection, and rounding in the safe direction. Pure mathematics, no data.

Bisection rather than a faster root finder: a predicate that was seen to hold at the returned point is a
guarantee, a small residual is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable

_GOLDEN = (math.sqrt(5.0) - 1) / 2
_TINY = math.ulp(0.0)


def exp_up(log_value: float) -> float:
    """Return exp(log_value) rounded up, as a probability: at most 1, and never 0 by underflow."""
    if log_value >= 0:
        return 1.0
    value = math.exp(log_value) if log_value > -800 else 0.0
    return min(1.0, max(value * (1 + 1e-15), _TINY))


def largest(holds: Callable[[float], bool], low: float, high: float) -> float | None:
    """Return the largest float found in [low, high] at which a decreasing predicate holds; None if there is none."""
    if holds(high):
        return high
    if not holds(low):
        return None
    while True:
        middle = low + (high - low) / 2
        if not low < middle < high:
            return low
        if holds(middle):
            low = middle
        else:
            high = middle


def smallest(holds: Callable[[float], bool]) -> float:
    """Return the smallest float of at least 0 found at which an increasing predicate holds; inf if it holds nowhere."""
    if holds(0.0):
        return 0.0
    low, high = 0.0, 1.0
    # No upper end is known: it is looked for in steps that reach every float.
    while not holds(high):
        low, high = high, high * 4
        if math.isinf(high):
            return math.inf
    while True:
        middle = low + (high - low) / 2
        if not low < middle < high:
            return high
        if holds(middle):
            high = middle
        else:
            low = middle


def maximum(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the largest value found of a quasi-concave function on [low, high], by golden section."""
    a, b = low, high
    c, d = b - _GOLDEN * (b - a), a + _GOLDEN * (b - a)
    value_c, value_d = function(c), function(d)
    best = max(value_c, value_d)
    while b - a > 1e-13 * max(1.0, abs(a), abs(b)):
        if value_c >= value_d:
            b, d, value_d = d, c, value_c
            c = b - _GOLDEN * (b - a)
            value_c = function(c)
        else:
            a, c, value_c = c, d, value_d
            d = a + _GOLDEN * (b - a)
            value_d = function(d)
        best = max(best, value_c, value_d)
    return best
