"""Bivariate normal distribution function and its inverse in the correlation, vectorised.

Two numbers decide the dependence of two 0/1 columns that are thresholded standard normals: the thresholds, which follow
from the two shares, and the correlation, which follows from the share of rows that have both. `normal_cdf2` is the way
there, `latent_correlation` the way back, for millions of pairs in chunks of bounded memory.

Both work in the angle theta, correlation = sin(theta): by Plackett's identity

    Phi2(h, k; sin theta) = Phi(h) Phi(k) + int_0^theta g(x) dx,
    g(x) = exp(-(h^2 - 2 h k sin x + k^2) / (2 cos^2 x)) / (2 pi),

so the derivative in theta is g: bounded, smooth, without the pole that the derivative in the correlation has at +-1.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import special

from dpsql.errors import ArgumentError
from dpsql.numerics.arrays import FloatArray
from dpsql.numerics.products import multiplies
from dpsql.running.parallel import Workers

_CHUNK = 16_384
"""Pairs worked on at a time: bounds the memory of the quadrature to some 10 MB a thread."""

_QUADRATURE_LIMIT = 0.8
"""|correlation| up to which quadrature is used; 20 nodes then reach machine precision. Beyond it, Owen's T."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_FEW_NODES, _FEW_WEIGHTS = np.polynomial.legendre.leggauss(8)
_FEW_ANGLE, _FEW_LIMIT = 0.5, 2.0
"""|angle|, and |angle| (1 + h^2 + k^2), up to which 8 nodes reach machine precision: most columns depend but weakly."""
_LARGEST = 38.0
"""Thresholds are cut here: Phi(-38) is the last one above the smallest normal double."""

_TINY = 1e-300
_NEAR = 1e-11  # error of the angle arcsin(s) at which the search stops
_STEPS = 100


def _exponent(h: FloatArray, k: FloatArray, theta: FloatArray) -> FloatArray:
    """Return log(2 pi g(theta)), written so that nothing cancels near theta = +-pi/2.

    With c = cos theta: (h^2 - 2 h k sin theta + k^2) / (2 c^2) = (h -+ k)^2 / (2 c^2) +- h k / (1 + |sin theta|),
    upper signs for theta >= 0.
    """
    sign = np.where(theta < 0.0, -1.0, 1.0)
    cosine = np.maximum(np.sin(0.5 * math.pi - np.abs(theta)), _TINY**0.5)
    gap = (h - sign * k) / cosine
    value: FloatArray = -0.5 * gap * gap - sign * h * k / (1.0 + np.abs(np.sin(theta)))
    return value


@multiplies
def _by_quadrature(
    h: FloatArray, k: FloatArray, theta: FloatArray, nodes: FloatArray = _NODES, weights: FloatArray = _WEIGHTS
) -> FloatArray:
    """Plackett's integral by Gauss-Legendre nodes; relative precision is kept far out in the tails."""
    half = 0.5 * theta
    angles = half[:, None] * (1.0 + nodes)
    integral = half * (np.exp(_exponent(h[:, None], k[:, None], angles)) @ weights) / (2.0 * math.pi)
    value: FloatArray = special.ndtr(h) * special.ndtr(k) + integral
    return value


def _by_few_nodes(h: FloatArray, k: FloatArray, theta: FloatArray) -> FloatArray:
    """Plackett's integral over a short way, where c = cos^2 x needs no care: one sine and one exponential a node."""
    half = 0.5 * theta
    square, product = 0.5 * (h * h + k * k), h * k
    integral = np.zeros_like(h)
    for node, weight in zip(_FEW_NODES, _FEW_WEIGHTS, strict=True):
        sine = np.sin(half * (1.0 + node))
        integral += weight * np.exp((product * sine - square) / (1.0 - sine * sine))
    value: FloatArray = special.ndtr(h) * special.ndtr(k) + half * integral / (2.0 * math.pi)
    return value


def _by_owens_t(h: FloatArray, k: FloatArray, theta: FloatArray) -> FloatArray:
    """Owen's formula, with its slopes (k - rho h) / (h sqrt(1 - rho^2)) free of cancellation for theta near +-pi/2."""
    h = np.where(h == 0.0, _TINY, h)
    k = np.where(k == 0.0, _TINY, k)
    sign = np.where(theta < 0.0, -1.0, 1.0)
    rest = 0.5 * math.pi - np.abs(theta)
    short = 2.0 * np.sin(0.5 * rest) ** 2  # 1 - |rho|
    cosine = np.maximum(np.sin(rest), _TINY)
    with np.errstate(over="ignore"):
        slope_h = ((k - sign * h) + sign * h * short) / cosine / h
        slope_k = ((h - sign * k) + sign * k * short) / cosine / k
    opposite = np.where((h < 0.0) != (k < 0.0), 0.5, 0.0)
    value: FloatArray = 0.5 * (special.ndtr(h) + special.ndtr(k)) - opposite
    value -= special.owens_t(h, slope_h) + special.owens_t(k, slope_k)
    return value


@multiplies
def _by_tail(h: FloatArray, k: FloatArray, theta: FloatArray) -> FloatArray:
    """Plackett's integral from -pi/2, for h + k < 0 and theta < 0: relative precision however small the value is.

    With v = -tan x the integrand is exp(-(h + k)^2 (1 + v^2) / 2 + h k / (1 + v / sqrt(1 + v^2))) / (1 + v^2) from
    v = |tan theta| on; it is cut where the first factor has fallen by exp(-40).
    """
    first = np.abs(np.tan(theta))
    gap = (h + k) ** 2
    span = np.sqrt(first * first + 80.0 / gap) - first
    v = first[:, None] + 0.5 * span[:, None] * (1.0 + _NODES)
    square = 1.0 + v * v
    log = -0.5 * gap[:, None] * square + (h * k)[:, None] / (1.0 + v / np.sqrt(square))
    value: FloatArray = 0.5 * span * ((np.exp(log) / square) @ _WEIGHTS) / (2.0 * math.pi)
    return value


def _cdf_at_angle(h: FloatArray, k: FloatArray, theta: FloatArray) -> FloatArray:
    """Phi2(h, k; sin theta) for one chunk of finite values, kept inside its Frechet bounds."""
    near = np.abs(theta) > math.asin(_QUADRATURE_LIMIT)
    # The two margins nearly exclude each other: the value may be far below the rounding of Owen's terms.
    tail = (theta < -0.5) & (h + k < 0.0) & ((h + k) * np.tan(theta) > 2.0)
    short = np.abs(theta) < np.minimum(_FEW_ANGLE, _FEW_LIMIT / (1.0 + h * h + k * k))
    value = np.empty_like(h)
    wide = ~near & ~tail & ~short
    for chosen, formula in (
        (short, _by_few_nodes), (wide, _by_quadrature), (near & ~tail & ~short, _by_owens_t), (tail & ~short, _by_tail)
    ):
        if chosen.any():
            value[chosen] = formula(h[chosen], k[chosen], theta[chosen])
    upper = special.ndtr(np.minimum(h, k))
    lower = np.where(h + k > 0.0, special.ndtr(np.maximum(h, k)) - special.ndtr(-np.minimum(h, k)), 0.0)
    bounded: FloatArray = np.clip(value, np.maximum(lower, 0.0), upper)
    return bounded


def normal_cdf2(h: npt.ArrayLike, k: npt.ArrayLike, correlation: npt.ArrayLike) -> FloatArray:
    """Return P(X <= h, Y <= k) for standard normal X, Y with the given correlation.

    Parameters
    ----------
    h, k : array_like
        Upper limits; infinite ones are allowed.
    correlation : array_like
        In [-1, 1]. The three arguments broadcast.

    Returns
    -------
    ndarray of float64
        Shape of the broadcast. Absolute error below 1e-14.

    Raises
    ------
    ArgumentError
        If a limit is NaN or a correlation lies outside [-1, 1].

    Notes
    -----
    Privacy: none; a function of its arguments.

    References
    ----------
    Plackett (1954); Owen (1956); Drezner & Wesolowsky (1990) for the quadrature in the angle.

    Examples
    --------
    >>> float(normal_cdf2(0.0, 0.0, 0.5).round(12))
    0.333333333333
    """
    a, b, r = np.broadcast_arrays(np.asarray(h, float), np.asarray(k, float), np.asarray(correlation, float))
    if np.isnan(a).any() or np.isnan(b).any():
        raise ArgumentError("h, k", "NaN", "limits must be numbers or infinite; remove the NaN")
    if not (np.abs(r) <= 1.0).all():
        raise ArgumentError("correlation", "outside [-1, 1]", "correlations lie in [-1, 1]; clip or correct them")
    shape = a.shape
    # Beyond this nothing changes in double precision, and infinities would give NaN.
    flat_a, flat_b = (np.clip(x.ravel(), -_LARGEST, _LARGEST) for x in (a, b))
    theta = np.arcsin(r.ravel())
    out = np.empty(theta.size)
    for start in range(0, theta.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        out[part] = _cdf_at_angle(flat_a[part], flat_b[part], theta[part])
    return out.reshape(shape)


def latent_correlation(share_a: npt.ArrayLike, share_b: npt.ArrayLike, share_both: npt.ArrayLike) -> FloatArray:
    """Return the correlation s with Phi2(Phi^-1(share_a), Phi^-1(share_b); s) = share_both.

    Parameters
    ----------
    share_a, share_b : array_like
        Shares of rows in which column a (column b) is 1, in [0, 1].
    share_both : array_like
        Share of rows in which both are 1; clipped to its Frechet bounds. The arguments broadcast.

    Returns
    -------
    ndarray of float64
        In [-1, 1]. At a Frechet bound -1 or 1. Where a share is 0 or 1 every correlation fits: 0.

    Raises
    ------
    ArgumentError
        If an argument is NaN or a share lies outside [0, 1].

    Notes
    -----
    Halley's iteration inside a bracket that shrinks at every step, and bisection where it would leave the bracket.
    Privacy: none; post-processing of whatever the shares were computed from.

    References
    ----------
    Asghar et al. (2019), section 4 (there: bisection on an integral), arXiv:1902.01499.

    Examples
    --------
    >>> float(latent_correlation(0.5, 0.5, 1 / 3).round(10))
    0.5
    """
    shares = (np.asarray(x, float) for x in (share_a, share_b, share_both))
    a, b, both = np.broadcast_arrays(*shares)
    if np.isnan(both).any() or not ((a >= 0.0) & (a <= 1.0) & (b >= 0.0) & (b <= 1.0)).all():
        raise ArgumentError("share_a, share_b, share_both", "NaN or outside [0, 1]", "shares lie in [0, 1]")
    flat = [x.ravel() for x in (a, b, both)]
    out = np.empty(flat[0].size)

    def chunk(start: int) -> None:
        part = slice(start, start + _CHUNK)
        out[part] = _invert(flat[0][part], flat[1][part], flat[2][part])

    starts = range(0, out.size, _CHUNK)
    if len(starts) < 2:
        for start in starts:
            chunk(start)
        return out.reshape(a.shape)
    with Workers() as workers:
        workers.map(chunk, starts)
    return out.reshape(a.shape)


def _invert(a: FloatArray, b: FloatArray, both: FloatArray) -> FloatArray:
    """Invert one chunk; only pairs strictly inside their Frechet bounds need a search."""
    lowest = np.maximum(0.0, a + b - 1.0)
    highest = np.minimum(a, b)
    inside = (lowest < both) & (both < highest)
    constant = (a <= 0.0) | (a >= 1.0) | (b <= 0.0) | (b >= 1.0)
    # At both bounds at once (a constant column) nothing can be said: 0.
    out = np.where(constant, 0.0, np.where(both >= highest, 1.0, -1.0))
    chosen = np.flatnonzero(inside & ~constant)
    if chosen.size:
        h, k = special.ndtri(a[chosen]), special.ndtri(b[chosen])
        product = a[chosen] * b[chosen]
        low, high, goal = lowest[chosen], highest[chosen], both[chosen]
        out[chosen] = np.sin(_search(h, k, goal, _start(h, k, goal - product, product - low, high - product)))
    return out


def _start(h: FloatArray, k: FloatArray, surplus: FloatArray, below: FloatArray, above: FloatArray) -> FloatArray:
    """Return the angle to start from.

    Two terms of the expansion about independence; far from it, the place between independence and the Frechet bound.
    """
    far = 0.5 * math.pi * surplus / np.maximum(np.where(surplus >= 0.0, above, below), _TINY)
    near = surplus * (2.0 * math.pi) * np.exp(np.minimum(0.5 * (h * h + k * k), 600.0))
    near -= 0.5 * h * k * near * near
    small = np.abs(near) * (1.0 + np.abs(h * k)) < 0.5
    return np.clip(np.where(small, near, far), -1.5, 1.5)


def _search(h: FloatArray, k: FloatArray, goal: FloatArray, theta: FloatArray) -> FloatArray:
    """Solve Phi2(h, k; sin theta) = goal from a start, dropping pairs as they converge."""
    answer = theta.copy()
    active = np.arange(theta.size)
    low, high = np.full(theta.size, -0.5 * math.pi), np.full(theta.size, 0.5 * math.pi)
    for _ in range(_STEPS):
        miss = _cdf_at_angle(h, k, theta) - goal
        above = miss > 0.0
        high, low = np.where(above, theta, high), np.where(above, low, theta)
        following = _halley(h, k, theta, miss)
        outside = ~((following > low) & (following < high))
        following = np.where(outside, 0.5 * (low + high), following)
        answer[active] = following
        # Convergence is cubic: what is left after a step is its cube times a constant, which the curvature bounds. A
        # bisected step says how wide the bracket still is, not how near the root.
        size = np.abs(following - theta)
        sharp = 10.0 * ((1.0 + h * h + k * k) / np.cos(np.abs(theta) + size) ** 2) ** 2
        done = (size <= _NEAR) | (~outside & (size < 0.01) & (size**3 * sharp <= _NEAR))
        left = ~done & (high - low > _NEAR) & (miss != 0.0)
        answer[active[miss == 0.0]] = theta[miss == 0.0]
        if not left.any():
            break
        active, h, k, goal = active[left], h[left], k[left], goal[left]
        low, high, theta = low[left], high[left], following[left]
    return answer


def _halley(h: FloatArray, k: FloatArray, theta: FloatArray, miss: FloatArray) -> FloatArray:
    """One step of Halley's iteration; NaN or infinite where the density vanishes (the caller bisects there)."""
    cosine = np.maximum(np.cos(theta), _TINY**0.5)
    sine = np.sin(theta)
    curvature = (h * k * (1.0 + sine * sine) - (h * h + k * k) * sine) / cosine**3  # g'/g in theta
    with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
        newton = miss * (2.0 * math.pi) * np.exp(-_exponent(h, k, theta))
        damping = 1.0 - 0.5 * newton * curvature
        # Far from the root the damping may turn the step round, or shrink it to nothing: then Newton's own step.
        step = newton / np.where((damping > 0.3) & (damping < 3.0), damping, 1.0)
        value: FloatArray = theta - step
    return value
