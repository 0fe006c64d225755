"""Zero-concentrated differential privacy: conversions to and from (epsilon, delta), and the cost of pure mechanisms.

All conversions are the tight one of Canonne, Kamath & Steinke. Every order alpha > 1 gives a valid bound, so an
imperfect minimum costs tightness, never validity. Results are rounded against the caller: delta, epsilon and costs
up, rho of a target down.

References
----------
Bun & Steinke (2016), arXiv:1605.02065. Canonne, Kamath & Steinke (2020), arXiv:2004.00010, Proposition 12.
Feldman & Zrnic (2021), arXiv:2008.11193: sums of rho are a filter, also when every mechanism is chosen adaptively.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from dpsql.accounting.checks import check_delta, check_nonnegative
from dpsql.accounting.search import exp_up, largest, maximum

_ORDERS = (-700.0, 700.0)  # range of log(alpha - 1)


def _log_alpha_terms(u: float) -> tuple[float, float, float]:
    """Return t = alpha - 1, log alpha, and log(1 - 1/alpha), for u = log t."""
    t = math.exp(u)
    log_alpha = math.log1p(t)
    return t, log_alpha, u - log_alpha if t < 0.5 else math.log1p(-1 / (1 + t))


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return the delta that rho-zCDP implies at epsilon, rounded up.

    Parameters
    ----------
    rho : float, >= 0, may be inf
    epsilon : float, >= 0, may be inf

    Returns
    -------
    float
        inf over alpha > 1 of exp((alpha - 1)(alpha rho - epsilon)) (1 - 1/alpha)^(alpha - 1) / alpha, at most 1.

    Raises
    ------
    ArgumentError
        An argument is negative or not a number.

    Examples
    --------
    >>> zcdp_delta(0.014913, 1.0) <= 2.0**-30 < zcdp_delta(0.014914, 1.0)
    True
    """
    check_nonnegative("rho", rho)
    check_nonnegative("epsilon", epsilon)
    if rho == 0 or math.isinf(epsilon):
        return 0.0
    if math.isinf(rho):
        return 1.0

    def falls(u: float) -> bool:  # the bound is convex in alpha: this is the sign of its derivative
        t, _, log_rest = _log_alpha_terms(u)
        return (1 + 2 * t) * rho - epsilon + log_rest <= 0

    order = largest(falls, *_ORDERS)
    t, log_alpha, log_rest = _log_alpha_terms(_ORDERS[0] if order is None else order)
    rise, fall = (1 + t) * rho * t, t * epsilon
    margin = 4e-15 * (rise + fall + log_alpha) + 1e-14
    return exp_up(rise - fall - log_alpha + t * log_rest + margin)


@lru_cache(maxsize=1024)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho for which rho-zCDP implies (epsilon, delta), rounded down.

    Parameters
    ----------
    epsilon : float, >= 0, may be inf
    delta : float, in [0, 1]

    Returns
    -------
    float
        0 where delta = 0 (and epsilon is finite), inf where epsilon = inf or delta = 1.

    Raises
    ------
    ArgumentError
        An argument is out of range.

    Examples
    --------
    >>> f"{zcdp_rho(1.0, 2.0**-30):.6f}"
    '0.014913'
    """
    check_nonnegative("epsilon", epsilon)
    check_delta(delta)
    if math.isinf(epsilon) or delta == 1:
        return math.inf
    if delta == 0:
        return 0.0
    log_delta = math.log(delta)

    # The bound is convex in alpha for every rho, so the rho that an order admits is quasi-concave in it.
    def admitted(u: float) -> float:
        t, log_alpha, log_rest = _log_alpha_terms(u)
        slack = log_delta + log_alpha - t * log_rest
        margin = 4e-15 * (abs(log_delta) + log_alpha + 1)
        return epsilon / (1 + t) * (1 - 4e-15) + (slack - margin) / t / (1 + t)

    return max(0.0, maximum(admitted, *_ORDERS) * (1 - 1e-14))


@lru_cache(maxsize=1024)
def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the smallest epsilon that rho-zCDP implies at delta, rounded up.

    Parameters
    ----------
    rho : float, >= 0, may be inf
    delta : float, in [0, 1]

    Returns
    -------
    float
        0 where rho = 0 or delta = 1, inf where rho = inf or delta = 0.

    Raises
    ------
    ArgumentError
        An argument is out of range.

    Examples
    --------
    >>> f"{zcdp_epsilon(0.014913, 2.0**-30):.4f}"
    '1.0000'
    """
    check_nonnegative("rho", rho)
    check_delta(delta)
    if rho == 0 or delta == 1:
        return 0.0
    if delta == 0 or math.isinf(rho):
        return math.inf
    log_delta = math.log(delta)

    def negative_epsilon(u: float) -> float:
        t, log_alpha, log_rest = _log_alpha_terms(u)
        slack = log_delta + log_alpha - t * log_rest
        margin = 4e-15 * (abs(log_delta) + log_alpha + 1)
        return (slack - margin) / t - (1 + t) * rho * (1 + 4e-15)

    return max(0.0, -maximum(negative_epsilon, *_ORDERS) * (1 + 1e-14))


def rho_of_pure(epsilon: Fraction) -> Fraction:
    """Return the zCDP cost of one epsilon-DP mechanism, rounded up.

    Parameters
    ----------
    epsilon : Fraction, >= 0

    Returns
    -------
    Fraction
        epsilon tanh(epsilon / 2), which is below epsilon^2 / 2.

    Notes
    -----
    Privacy: an epsilon-DP pair is a function of randomised response (Kairouz, Oh & Viswanath 2015), whose Renyi
    divergence of order alpha is log(cosh(epsilon (alpha - 1/2)) / cosh(epsilon / 2)) / (alpha - 1). Divided by alpha,
    with y = (alpha - 1/2)^2, it is the slope of log cosh(epsilon sqrt(y)) between 1/4 and y. That function is concave
    in y, since tanh(s)/s decreases, so the slope is at most the derivative at 1/4, which is epsilon tanh(epsilon /
    2).

    Examples
    --------
    >>> f"{float(rho_of_pure(Fraction(1))):.6f}"
    '0.462117'
    """
    quadratic = epsilon * epsilon / 2
    if epsilon > 700:
        return epsilon
    tanh_up = Fraction(math.tanh(float(epsilon) / 2)) * (1 + Fraction(1, 10**14))
    return min(quadratic, epsilon * tanh_up)
