"""Composition of k equal pure mechanisms: basic, advanced, and exact.

Results are rounded against the caller: delta and epsilon of the whole up, epsilon of the parts down.

References
----------
Dwork, Rothblum & Vadhan (2010), as Theorem 3 of Asghar et al. (2019). Kairouz, Oh & Viswanath (2015),
arXiv:1311.0776, Theorem 3.3. Loader (2000), *Fast and accurate computation of binomial probabilities*.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dpsql.accounting.checks import check_count, check_delta, check_nonnegative
from dpsql.accounting.search import exp_up, largest, smallest

_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)
_CHUNK = 4096
_LOG_NEGLIGIBLE = -45.0


def advanced_epsilon(k: int, epsilon: float, delta: float) -> float:
    """Return the epsilon of k adaptive epsilon-DP mechanisms by advanced composition, rounded up.

    Parameters
    ----------
    k : int, >= 1
    epsilon : float, >= 0
        Of each mechanism.
    delta : float, in [0, 1]

    Returns
    -------
    float
        sqrt(2 k log(1/delta)) epsilon + k epsilon (exp(epsilon) - 1); inf where delta = 0.

    Raises
    ------
    ArgumentError
        An argument is out of range.

    References
    ----------
    Asghar et al. (2019), Theorem 3.

    Examples
    --------
    >>> f"{advanced_epsilon(105, 0.014783, 2.0**-30):.4f}"
    '1.0000'
    """
    check_count(k)
    check_nonnegative("epsilon", epsilon)
    check_delta(delta)
    if epsilon == 0:
        return 0.0
    if delta == 0 or epsilon > 700:
        return math.inf
    return (math.sqrt(2 * k * -math.log(delta)) * epsilon + k * epsilon * math.expm1(epsilon)) * (1 + 1e-14)


def advanced_epsilon_each(k: int, epsilon: float, delta: float) -> float:
    """Return the largest epsilon of each of k mechanisms that advanced composition admits, rounded down.

    Parameters and errors are those of ``advanced_epsilon``; ``epsilon`` is that of the whole.

    Examples
    --------
    >>> f"{1 / advanced_epsilon_each(105, 1.0, 2.0**-30):.2f}"  # Laplace scale of 105 tables
    '67.65'
    """
    check_count(k)
    check_nonnegative("epsilon", epsilon)
    check_delta(delta)
    if delta == 0 or epsilon == 0:
        return 0.0
    if math.isinf(epsilon):
        return math.inf
    each = largest(lambda e: advanced_epsilon(k, e, delta) <= epsilon, 0.0, 701.0)
    return each or 0.0


def _stirling_error(n: float) -> float:
    """Return log n! minus Stirling's approximation of it, for n >= 1."""
    if n < 16:
        return math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n - 0.5 * math.log(2 * math.pi)
    square = n * n
    result = 0.0
    for coefficient in reversed(_STIRLING):
        result = result / square + coefficient
    return result / n


def _deviance(x: float, mean: float) -> float:
    """Return x log(x / mean) + mean - x without cancellation."""
    d = (x - mean) / mean
    if abs(d) > 0.1:
        return x * math.log(x / mean) + mean - x
    term, result, n = d * d, 0.0, 2
    while n < 20:
        result += term / (n * (n - 1))
        term *= -d
        n += 1
    return mean * result


def _log_binomial(k: int, x: int, log_p: float, log_q: float) -> float:
    """Return log P(X = x), X ~ Binomial(k, p), to nearly full relative precision of the probability."""
    if x == k:
        return k * log_p
    if x == 0:
        return k * log_q
    rest = k - x
    stirling = _stirling_error(k) - _stirling_error(x) - _stirling_error(rest)
    deviance = _deviance(x, k * math.exp(log_p)) + _deviance(rest, k * math.exp(log_q))
    return stirling - deviance - 0.5 * math.log(2 * math.pi * x * (rest / k))


def _sum_from(k: int, start: int, stop: int, epsilon_each: float, epsilon: float) -> float:
    """Return the sum over l from ``start`` towards ``stop`` of P(l)/P(start) (1 - exp(epsilon - loss)).

    Runs upwards or downwards, until ``stop`` (inclusive) or until the rest is negligible: the ratios decrease, in a
    log-concave way.
    """
    step = 1 if stop >= start else -1
    sum_, log_ratio, position = 0.0, 0.0, start
    while True:
        count = min(_CHUNK, abs(stop - position) + 1)
        x = position + step * np.arange(count, dtype=np.float64)
        with np.errstate(divide="ignore"):  # there is nothing beyond 0 and k: log 0 = -inf is right
            steps = np.log((k - x) / (x + 1)) + epsilon_each if step > 0 else np.log(x / (k - x + 1)) - epsilon_each
        log_ratios = log_ratio + np.concatenate(([0.0], np.cumsum(steps[:-1])))
        losses = (2 * x - k) * (epsilon_each * (1 + 1e-15)) - epsilon * (1 - 1e-15)  # rounded up
        sum_ += float(np.sum(np.exp(log_ratios) * -np.expm1(-np.maximum(losses, 0.0))))
        position += step * count
        log_ratio = float(log_ratios[-1] + steps[-1]) if count == _CHUNK else -math.inf
        if (position - stop) * step > 0 or log_ratio < _LOG_NEGLIGIBLE:
            return sum_


def _log_pure_delta_up(k: int, epsilon_each: float, epsilon: float) -> float:
    """Return an upper bound of log delta of k mechanisms of ``epsilon_each`` at ``epsilon``; 0 < epsilon_each < inf."""
    if Fraction(epsilon) >= k * Fraction(epsilon_each):
        return -math.inf
    log_p = -math.log1p(math.exp(-epsilon_each))
    log_q = log_p - epsilon_each
    first = max(0, min(k, math.floor((k + epsilon / epsilon_each) / 2)))  # one early: its loss is clipped at 0
    peak = max(first, min(k, math.floor((k + 1) * math.exp(log_p))))
    above = _sum_from(k, peak, k, epsilon_each, epsilon)
    below = _sum_from(k, peak - 1, first, epsilon_each, epsilon) if peak > first else 0.0
    log_terms = [_log_binomial(k, peak, log_p, log_q) + math.log(above)] if above > 0 else []
    if below > 0:
        log_terms.append(_log_binomial(k, peak - 1, log_p, log_q) + math.log(below))
    if not log_terms:
        return -math.inf
    top = max(log_terms)
    value = top + math.log(sum(math.exp(t - top) for t in log_terms))
    return min(0.0, value + 1e-10 + 4e-15 * abs(value))


def pure_delta(k: int, epsilon_each: float, epsilon: float) -> float:
    """Return the exact delta of k adaptive ``epsilon_each``-DP mechanisms at ``epsilon``, rounded up.

    Parameters
    ----------
    k : int, >= 1
        Number of mechanisms; two million take milliseconds.
    epsilon_each : float, >= 0, may be inf
    epsilon : float, >= 0, may be inf

    Returns
    -------
    float
        E[max(0, 1 - exp(epsilon - L))] for the loss L = (2 l - k) epsilon_each, l ~ Binomial(k, 1 / (1 +
        exp(-epsilon_each))). This is the composition of randomised response, which dominates every pure mechanism.

    Raises
    ------
    ArgumentError
        An argument is out of range.

    References
    ----------
    Kairouz, Oh & Viswanath (2015), Theorem 3.3.

    Examples
    --------
    >>> f"{pure_delta(1, 1.0, 0.5):.6f}"  # (e - e^0.5) / (1 + e)
    '0.287649'
    """
    check_count(k)
    check_nonnegative("epsilon_each", epsilon_each)
    check_nonnegative("epsilon", epsilon)
    if epsilon_each == 0 or math.isinf(epsilon):
        return 0.0
    if epsilon_each > 700:
        return 1.0
    log_delta = _log_pure_delta_up(k, epsilon_each, epsilon)
    return 0.0 if math.isinf(log_delta) else exp_up(log_delta)


@lru_cache(maxsize=256)
def pure_epsilon(k: int, epsilon_each: float, delta: float) -> float:
    """Return the smallest epsilon of k adaptive ``epsilon_each``-DP mechanisms at delta, exact, rounded up.

    Never above k epsilon_each. Errors as ``pure_delta``.

    Examples
    --------
    >>> f"{pure_epsilon(105, 1 / 54.93, 2.0**-30):.3f}"
    '1.000'
    """
    check_count(k)
    check_nonnegative("epsilon_each", epsilon_each)
    check_delta(delta)
    if epsilon_each == 0 or delta == 1:
        return 0.0
    whole = k * epsilon_each * (1 + 1e-15)
    if delta == 0 or epsilon_each > 700:
        return whole
    target = math.log(delta)
    return min(whole, smallest(lambda e: _log_pure_delta_up(k, epsilon_each, e) <= target))


@lru_cache(maxsize=256)
def pure_epsilon_each(k: int, epsilon: float, delta: float) -> float:
    """Return the largest epsilon of each of k mechanisms whose exact composition is (epsilon, delta), rounded down.

    Errors as ``pure_delta``.

    Examples
    --------
    >>> f"{1 / pure_epsilon_each(105, 1.0, 2.0**-30):.2f}"  # Laplace scale of 105 tables
    '54.93'
    """
    check_count(k)
    check_nonnegative("epsilon", epsilon)
    check_delta(delta)
    if math.isinf(epsilon) or delta == 1:
        return math.inf
    # Basic composition needs no delta: what a delta allows is never less.
    basic = epsilon / k * (1 - 1e-15)
    if delta == 0:
        return basic
    target = math.log(delta)
    low, high = math.log(max(basic, 1e-300)), math.log(700.0)
    log_each = largest(lambda u: _log_pure_delta_up(k, math.exp(u), epsilon) <= target, min(low, high), high)
    return basic if log_each is None else max(basic, math.exp(log_each) * (1 - 1e-13))
