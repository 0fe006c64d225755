r"""Exact accounting of the Gaussian mechanism, and what of it holds for integer noise.

Conversions between mu and (epsilon, delta) are those of mu-GDP (Dong, Roth, Su 2019), that is of one Gaussian with
sensitivity / sigma = mu (Balle & Wang 2018, Theorem 8). The noise of dpsql is the *discrete* Gaussian. It is covered
as follows.

**Theorem.** Let Y have P(Y = y) proportional to exp(-y^2 / 2 sigma^2) on the integers. For an integer vector v, the pair
(Y_1, ..., Y_d), (Y_1 + v_1, ..., Y_d + v_d) of independent draws is mu-GDP for mu = |v|_2 / sigma_eff, where for sigma^2 > 1/3

    sigma_eff^2 = sigma^2 (1 + sqrt(1 - 1 / (3 sigma^2))) / 2  >=  sigma^2 - 1/12 - 1/(36 sigma^2),

and for sigma < 2 also sigma_eff = 1 / W, W the largest of the computed numbers of (1') below. ``effective_variance`` is the
larger of the two. So integer noise costs about 1/12 of variance against real-valued noise, without any slack in epsilon or
delta; where sigma is so small that noise is mostly 0, it costs more.

*Proof.* (1) Write S_t = P(Y >= t), z_t = -Phi^-1(S_t), w_t = z_{t+1} - z_t: the cells [z_t, z_{t+1}] cut the normal
line into pieces of mass p_t = P(Y = t). We show that no w_t exceeds w := 1/sigma_eff. As t grows, S_t = p_t (1 +
o(1)), hence z_t = t/sigma + O(log t / t) and w_t tends to 1/sigma < w, uniformly for sigma in a compact set. So W =
sup w_t depends continuously on sigma, and is at most 1/sigma or is attained. Let it be attained at t, a = z_t. The
neighbouring cells are not wider, and lie beside this one, so their masses are at most those of [a - W, a] and [a + W,
a + 2W]. With m = a + W/2 and G(x) = log of the integral of exp(-x v - v^2/2) over |v| <= W/2, the mass of [x - W/2, x
+ W/2] is const * exp(-x^2/2 + G(x)), so

    -1/sigma^2 = log p_{t+1} + log p_{t-1} - 2 log p_t <= -W^2 + G(m + W) + G(m - W) - 2 G(m) <= -W^2 + W^2 sup G''.

G''(x) is the variance of a log-concave density on an interval of length W. It is at most W^2/12: against the
truncated exponential of the same mean, the density has the sign pattern -,+,- (the difference of the logarithms is
concave), so it is smaller in convex order, and the truncated exponential has variance 1/x^2 - (W/2)^2 / sinh^2(x W/2)
<= W^2/12. Hence W^2 (1 - W^2/12) <= 1/sigma^2: for sigma^2 > 1/3, W^2 is at most the smaller root 6 (1 - sqrt(1 -
1/(3 sigma^2))) = w^2, or at least the larger one, above 6. At sigma = 1 it is not above 6 (t - 1 <= z_t <= t for t >=
1, so W <= 2), and W, being continuous, cannot jump across the gap between the roots.

(1') Any w will do that no w_t exceeds. w_-t = w_t. For sigma < 2 the first T = 40 of them are computed, from the logarithms of
S_t. For t >= T: with q = exp(-(2 t + 1) / 2 sigma^2), S_t <= p_t / (1 - q) and S_{t+1} >= p_{t+1}, so S_t / S_{t+1} <= e^A with
A = (2 t + 1) / 2 sigma^2 - log(1 - q). The tail of the normal law falls from z to z + w by at least e^(z w + w^2 / 2), z >= 0.
So z_t w_t + w_t^2 / 2 <= A, and w_t <= sqrt(z_t^2 + 2 A) - z_t, which falls in z_t. And z_t >= x = (t - 1/2) / sigma: the tail at
x is at least phi(x) / (x + 1), and S_t <= exp(-t^2 / 2 sigma^2) / (1 - q) is not more, since sqrt(2 pi) (x + 1) exp(-(t - 1/4) /
2 sigma^2) <= 1 - q at t = 40, sigma = 2 (0.37 there), and the left side falls in t and rises in sigma. Hence sigma w_t <=
sqrt((t + 1/2)^2 + 1 - 2 sigma^2 log(1 - q)) - (t - 1/2), which falls in t and rises in sigma: it is below 1.01235.

(2) In one coordinate the
likelihood ratio of Y + v to Y increases, so the best tests are thresholds, and the trade-off curve is the polygon
through the points (S_t, 1 - S_{t-v}) = (Phi(-z_t), Phi(z_{t-v})), where z_{t-v} >= z_t - |v| w. These points are on
or above the curve of (|v| w)-GDP; that curve is convex, so the polygon is above it too.

(3) Independent coordinates
compose to |v|_2 w (Dong, Roth, Su, Corollary 3.3). Cells in which the neighbours agree add nothing. (4) The rational
bound: sqrt(1 - x) >= 1 - x/2 - x^2/2 on [0, 1] at x = 1/(3 sigma^2).  QED

**Adaptive choice.** Let each mechanism and its mu_i be chosen from what was released before, as long as the sum of
mu_i^2 is at most B^2. By Blackwell's theorem each answer is a function of one draw from N(0, 1) or N(mu_i, 1), that
is of the increment over the next mu_i^2 units of time of a Brownian motion without or with drift 1. The whole
transcript is therefore a function of that motion up to time B^2, whose endpoint is sufficient: it is B-GDP (the same
statement: Smith & Thakurta 2022; Koskela, Tobaben & Honkela 2022). So sums of rho = mu^2/2 are a filter.

**Pure mechanisms.** A mechanism that is epsilon-DP is mu-GDP for mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)), which is
``gdp_of_pure``: its trade-off curve is above the polygon through (0, 1), (x, x) and (1, 0) with x = 1 / (1 + e^epsilon). The
curve of mu-GDP goes through the same three points (at its fixed point x it is Phi(-mu / 2) = x) and is convex, so it is below
the polygon. So the statement on adaptive choice holds for Gaussian and pure mechanisms together.

**Rounding.** Every result is rounded against the caller: delta and epsilon up, mu down. The margin covers the
rounding of floats.

References
----------
Balle & Wang (2018), arXiv:1805.06530. Dong, Roth & Su (2019), arXiv:1905.02383. Canonne, Kamath & Steinke (2020),
arXiv:2004.00010. Smith & Thakurta (2022), arXiv:2210.17520. Koskela, Tobaben & Honkela (2022), arXiv:2209.15596.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dpsql.accounting.checks import check_delta, check_nonnegative
from dpsql.accounting.search import exp_up, largest, smallest
from dpsql.numerics.arrays import FloatArray
from dpsql.numerics.products import multiplies

_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
_SQRT2 = math.sqrt(2.0)
_LOG_MU_RANGE = (-740.0, 700.0)
MINIMUM_VARIANCE = Fraction(1, 100)
"""The smallest sigma squared that is accounted for; its noise is 0 but once in 10^21 draws."""

_FORMULA_FROM = Fraction(1, 3)
_COMPUTED_BELOW = 4
_FIRST = 40  # T of (1')
_PLACES = 40


@lru_cache(maxsize=4096)
def effective_variance(variance: Fraction) -> Fraction:
    """Return the variance of the real-valued Gaussian that protects no better than discrete noise of ``variance``.

    Parameters
    ----------
    variance : Fraction
        sigma squared of the discrete Gaussian, at least 1/100.

    Returns
    -------
    Fraction
        sigma^2 - 1/12 - 1/(36 sigma^2), positive: a shift of L2 length s is (s / sqrt(result))-GDP. For sigma < 2 somewhat more,
        and far less than sigma^2 where sigma is small. Its quotient with sigma^2 rises.

    Raises
    ------
    ValueError
        The variance is below 1/100.

    Notes
    -----
    Privacy: the theorem in the head of this file.

    Examples
    --------
    >>> effective_variance(Fraction(6)), f"{float(effective_variance(Fraction(1, 4))):.4f}"
    (Fraction(1277, 216), '0.1615')
    """
    if variance < MINIMUM_VARIANCE:
        raise ValueError(f"variance = {variance}: the discrete Gaussian is accounted for from 1/100 upwards")
    effective = variance - Fraction(1, 12) - 1 / (36 * variance) if variance >= _FORMULA_FROM else Fraction(0)
    if variance < _COMPUTED_BELOW:
        effective = max(effective, variance * Fraction(math.floor(_share(float(variance)) * 2**_PLACES), 2**_PLACES))
    return effective


_REST = -2 * _COMPUTED_BELOW * math.log1p(-math.exp(-(2 * _FIRST + 1) / (2 * _COMPUTED_BELOW)))
_FAR = math.sqrt((_FIRST + 0.5) ** 2 + 1 + _REST) - (_FIRST - 0.5)
"""Of (1'): sigma w_t is at most this for t >= T, sigma < 2."""


def _share(variance: float) -> float:
    """Return 1 / (sigma W)^2, W that of (1'), rounded down."""
    from scipy.special import ndtri_exp  # loaded when needed: scipy takes .2 s

    j, t = np.arange(1.0, 100.0), np.arange(1.0, _FIRST + 1)
    whole = math.log1p(2 * float(np.exp(-(j**2) / (2 * variance)).sum()))
    beyond = np.log1p(np.exp(-(2 * np.outer(t, j) + j**2) / (2 * variance)).sum(axis=1))
    z = -ndtri_exp(beyond - whole - t**2 / (2 * variance))
    widest = max(2 * float(z[0]), float(np.diff(z).max())) * math.sqrt(variance)
    return max(widest, _FAR) ** -2 * (1 - 2e-9)


def gdp_of_pure(epsilon: Fraction) -> Fraction:
    """Return mu^2 / 2 for the mu-GDP of an epsilon-DP mechanism, rounded up.

    Parameters
    ----------
    epsilon : Fraction, >= 0

    Notes
    -----
    Privacy: see the head of this file. About 0.785 epsilon^2 for a small epsilon.

    Examples
    --------
    >>> f"{float(gdp_of_pure(Fraction(1, 100))):.6g}"
    '7.85395e-05'
    """
    from scipy.special import erfinv, ndtri

    if epsilon > 700:
        return epsilon**2  # mu < sqrt(2 epsilon) + 1
    value = float(epsilon) * (1 + 1e-15)
    # Each form where it keeps its digits: 2 Phi(mu/2) - 1 = tanh(epsilon/2), Phi(-mu/2) = 1 / (1 + e^epsilon).
    small = 2 * _SQRT2 * float(erfinv(math.tanh(min(value, 1.0) / 2)))
    mu = small if value < 1 else -2 * float(ndtri(1 / (1 + math.exp(value))))
    return Fraction(mu * (1 + 1e-12)) ** 2 / 2


@lru_cache(maxsize=1)
def _quadrature() -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights on [-1, 1]."""
    return np.polynomial.legendre.leggauss(96)


@multiplies
def _log_difference_of_mills(x: float, mu: float) -> float:
    """Return log of the integral over s > 0 of (1 - exp(-mu s)) exp(-x s - s^2/2), for small mu, without cancelling."""
    length = 90.0 / (x + math.hypot(x, math.sqrt(90.0)))  # beyond it the integrand is below exp(-45) of its size
    nodes, weights = _quadrature()
    s = 0.5 * length * (nodes + 1.0)
    values = -np.expm1(-mu * s) * np.exp(-s * (x + 0.5 * s))
    integral = 0.5 * length * float(weights @ values)
    return math.log(integral) if integral > 0 else -math.inf


def _log_delta(mu: float, epsilon: float) -> float:
    """Return log delta of mu-GDP at epsilon >= 0, for 0 < mu < inf, to nearly full relative precision of delta."""
    from scipy.special import erfcx, log_ndtr

    x = epsilon / mu - mu / 2
    y = epsilon / mu + mu / 2
    if x < -20:  # nearly certain loss; erfcx would overflow
        upper = float(log_ndtr(-x))
        gap = epsilon + float(log_ndtr(-y)) - upper
        return upper + math.log(-math.expm1(gap))
    mills_x, mills_y = float(erfcx(x / _SQRT2)), float(erfcx(y / _SQRT2))
    if mills_y < 0.9 * mills_x:
        return -0.5 * x * x + math.log(mills_x / 2) + math.log1p(-mills_y / mills_x)
    return -0.5 * x * x - _HALF_LOG_TAU + _log_difference_of_mills(x, mu)


def _log_delta_up(mu: float, epsilon: float) -> float:
    """Return an upper bound of log delta: the value plus what rounding can have taken from it."""
    if mu <= epsilon * 1e-100:  # beyond the range of floats, and far below any delta they can hold
        return -math.inf
    x = abs(epsilon / mu - mu / 2)
    return _log_delta(mu, epsilon) + 1e-12 + 4e-15 * (x + epsilon / mu + mu) * (1 + x)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the delta of mu-GDP at epsilon, rounded up.

    Parameters
    ----------
    mu : float, >= 0, may be inf
        L2 sensitivity / sigma of a real-valued Gaussian, or the root of the sum of the squares of several.
    epsilon : float, >= 0, may be inf

    Returns
    -------
    float
        Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu), at most 1.

    Raises
    ------
    ArgumentError
        An argument is negative or not a number.

    References
    ----------
    Balle & Wang (2018), Theorem 8.

    Examples
    --------
    >>> f"{gaussian_delta(1.0, 1.0):.6f}"
    '0.126937'
    """
    check_nonnegative("mu", mu)
    check_nonnegative("epsilon", epsilon)
    if mu == 0 or math.isinf(epsilon):
        return 0.0
    if math.isinf(mu):
        return 1.0
    return exp_up(_log_delta_up(mu, epsilon))


@lru_cache(maxsize=1024)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu for which mu-GDP implies (epsilon, delta), rounded down.

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
    >>> f"{105 ** 0.5 / gaussian_mu(1.0, 2.0**-30):.2f}"  # sigma of 105 tables
    '56.43'
    """
    check_nonnegative("epsilon", epsilon)
    check_delta(delta)
    if math.isinf(epsilon) or delta == 1:
        return math.inf
    if delta == 0:
        return 0.0
    target = math.log(delta)
    low, high = _LOG_MU_RANGE
    log_mu = largest(lambda u: _log_delta_up(math.exp(u), epsilon) <= target, low, high)
    return 0.0 if log_mu is None else math.exp(log_mu) * (1 - 1e-13 * max(1.0, abs(log_mu)))


@lru_cache(maxsize=1024)
def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon for which mu-GDP implies (epsilon, delta), rounded up.

    Parameters
    ----------
    mu : float, >= 0, may be inf
    delta : float, in [0, 1]

    Returns
    -------
    float
        0 where mu = 0 or delta = 1 (or large enough), inf where delta = 0 or mu = inf.

    Raises
    ------
    ArgumentError
        An argument is out of range.

    Examples
    --------
    >>> f"{gaussian_epsilon(1.0, 1e-6):.4f}"
    '4.8866'
    """
    check_nonnegative("mu", mu)
    check_delta(delta)
    if mu == 0 or delta == 1:
        return 0.0
    if delta == 0 or math.isinf(mu):
        return math.inf
    target = math.log(delta)
    return smallest(lambda e: _log_delta_up(mu, e) <= target)
