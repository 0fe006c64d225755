r"""Private groups: a group appears where the noisy number of its units reaches a threshold.

Whoever reads the table finds the groups that occur, and with them n_g, the number of privacy units in group g. Groups with fewer
than ``min_units`` = k units are dropped, without noise. What is left gets integer noise on n_g, and on every other counter of the
release. A group appears, with all its noisy counters, iff n_g + Z_g >= tau + k - 1.

**Theorem.** Let a unit be in at most G groups, and let

    1 - (1 - P(Z >= tau - 1))^G <= delta.

For any two neighbours D, D' let C be the groups that have at least k units in both. Let M be the release with noise on the
counters of the groups of C alone: a noisy vector of a fixed set of counters, cut down to the groups of C that pass, so a
function of the noisy vector. Its neighbouring pair (M(D), M(D')) is what the events of the noise describe (``GaussianEvent``,
``LaplaceEvent``, of the sensitivities over all groups: those over C are not larger). Then the release on D is (1 - delta) M(D) +
delta K', and that on D' is (1 - delta) M(D') + delta L', with some laws K' and L': the events of the noise and one
``ThresholdEvent(delta)`` describe it.

*Proof.* The choice of rows and groups of every unit is randomness of its own that does not depend on other units: fix it, and
mix afterwards. Let A be the groups that have at least k units in D, but not in D'. The number of units of a group differs by
at most 1 between neighbours (one unit comes, or goes, or one goes and one comes), so n_g = k in D, for all g in A. Only the unit
that is in D alone can make the difference, so it is in every group of A, and A has at most G groups. A group of A appears iff k +
Z_g >= tau + k - 1. So the event B that some group of A appears has probability 1 - (1 - P(Z >= tau - 1))^|A| =: d, at most
delta; it depends on the noise of the counts of A alone, which is independent of the noise of C. Where B does not happen, the
release on D is M(D): groups of C, with the noise of C. So the release on D is (1 - d) M(D) + d K'' = (1 - delta) M(D) + ((delta -
d) M(D) + d K''). Likewise on D', with A', the groups of D' alone, also at most G. Both with the same delta, under add_remove
(where A or A' is empty) and under replace_one.  QED

Neither delta nor G is doubled under replace_one; sigma is (through the sensitivities). ``min_units`` costs nothing: it moves the
point where a group exists, and the threshold with it. That no group of fewer than k units appears is certain.

*Tails, rounded up.* With S the sum of exp(-x^2 / 2 sigma^2) over all integers, S >= sqrt(2 pi) sigma by Poisson's summation (all
its terms are positive), and S >= 1. (1) f(x) = exp(-x^2 / 2 sigma^2) is convex for x >= sigma, so f(x) is at most its integral over
[x - 1/2, x + 1/2] where x - 1/2 >= sigma (Hermite & Hadamard): P(Z >= t) <= Q((t - 1/2) / sigma), Q the tail of the normal law. Its
relative error is below (x / sigma)^2 / (20 sigma^2). (2) For small sigma the terms are summed up to t + m, and the rest is at most
f(t + m) / (1 - exp(-(2 (t + m) + 1) / 2 sigma^2)), since the quotients of successive terms fall; S is summed too, its terms up to
m, rounded down. Errors of floats are below 1e-12 of the result: the exponents are at most 750, and wrong by 4e-16 of that; so
1e-10 is added. Laplace: ``dpsql.mechanisms.laplace_tail``, proved on integers.

Privacy: `threshold` sees no data. `present` and `passing` see secret counts and noisy ones, as they say.

References
----------
Korolova, Kenthapadi, Mishra & Ntoulas (2009), Releasing Search Queries and Clicks Privately. Karrer, Kifer, Wilkins & Zhang
(2022), arXiv:2202.01100, Exact Privacy Analysis of the Gaussian Sparse Histogram Mechanism.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dpsql.accounting.checks import whole
from dpsql.errors import ArgumentError
from dpsql.mechanisms.laplace_tail import smallest_threshold
from dpsql.noise.discrete import MAXIMUM_LAPLACE_SCALE, MAXIMUM_SIGMA, checked_mechanism, checked_scale
from dpsql.noise.entropy import BoolArray
from dpsql.numerics.arrays import IntArray

_SUMMED_UP_TO = 256.0
_MARGIN = 1e-10
_SMALLEST_DELTA = 1e-290


def _checked_delta(delta: Fraction | float) -> Fraction:
    expected = "must be from 1e-290 to below 1, e.g. 1e-9: well below one over the number of units"
    if isinstance(delta, bool) or not isinstance(delta, (int, float, Fraction)) or not _SMALLEST_DELTA <= delta < 1:
        raise ArgumentError("delta", delta, expected)
    return Fraction(delta)


def gaussian_tail(sigma: float, at: int) -> float:
    """Return P(Z >= at) of the discrete Gaussian, rounded up.

    The relative error is below 1e-9 up to sigma = 256; above, below 1e-3 beyond sigma, and P(Z >= 0) is returned before it.

    Parameters
    ----------
    sigma : float, > 0
    at : int, >= 0

    Notes
    -----
    Privacy: no data is seen; proved at the head of this file.

    Examples
    --------
    >>> f"{gaussian_tail(1.0, 3):.6f} {gaussian_tail(1000.0, 5000):.4e}"
    '0.004567 2.8740e-07'
    """
    if sigma > _SUMMED_UP_TO and at - 0.5 < sigma:
        return 0.5 + 0.2 / sigma  # (1 + P(Z = 0)) / 2, and P(Z = 0) <= 1 / (sqrt(2 pi) sigma)
    if sigma > _SUMMED_UP_TO:
        from scipy.special import log_ndtr

        return float(np.exp(log_ndtr((0.5 - at) / sigma))) * (1 + 1e-8) + 5e-324
    terms = math.ceil(10 * sigma) + 1
    x = np.arange(at, at + terms, dtype=np.float64)
    weights = np.exp(-0.5 * (x / sigma) ** 2)
    last = at + terms
    rest = math.exp(-0.5 * (last / sigma) ** 2) / -math.expm1(-(last + 0.5) / sigma**2)
    half = float(np.exp(-0.5 * (np.arange(1, terms, dtype=np.float64) / sigma) ** 2).sum())
    return min(1.0, (float(weights.sum()) + rest) / (1 + 2 * half) * (1 + _MARGIN) + 5e-324)


@lru_cache(maxsize=1024)
def threshold(mechanism: str, scale: Fraction | float, max_groups: int, delta: Fraction | float) -> int:
    """Return tau: the smallest one that is proved to have 1 - (1 - P(Z >= tau - 1))^G <= delta.

    Parameters
    ----------
    mechanism : {'gaussian', 'laplace'}
    scale : Fraction or float
        sigma or b of the noise on the number of units.
    max_groups : int, >= 1
        G, groups of one unit at most (rows of it at most, if nothing bounds its groups).
    delta : Fraction or float
        Of all groups of the release together, from 1e-290 to below 1; ``ThresholdEvent(delta)`` is what to charge.

    Returns
    -------
    int
        At least 2. With ``min_units`` = k a group appears where its noisy count is at least tau + k - 1.

    Raises
    ------
    ArgumentError
        An argument is out of range.

    Notes
    -----
    Privacy: proved at the head of this file. Rounded towards a higher threshold.

    Examples
    --------
    >>> threshold("gaussian", 4.25, 1, 1e-9), threshold("gaussian", 4.25, 10, 1e-9), threshold("laplace", Fraction(1), 1, 1e-9)
    (27, 29, 22)
    """
    checked_mechanism(mechanism)
    groups = whole("max_groups", max_groups, "must be a whole number of groups, at least 1")
    exact = checked_scale("scale", scale, MAXIMUM_SIGMA if mechanism == "gaussian" else MAXIMUM_LAPLACE_SCALE)
    exact_delta = _checked_delta(delta)
    if mechanism == "laplace":
        return smallest_threshold(exact, groups, 1 - exact_delta) + 1
    sigma = float(exact) * (1 + 1e-15)  # more noise only raises a tail above its middle
    # 1 - (1 - p)^G <= delta iff p <= 1 - (1 - delta)^(1 / G); floats are rounded down
    allowed = -math.expm1(math.log1p(-float(exact_delta) * (1 - 1e-15)) / groups) * (1 - 1e-14)
    low, high = (math.ceil(sigma) if sigma > _SUMMED_UP_TO else 0), math.ceil(40 * sigma) + 2
    while high - low > 1:  # the tail at ``high`` is small enough
        middle = (low + high) // 2
        if gaussian_tail(sigma, middle) <= allowed:
            high = middle
        else:
            low = middle
    return high + 1


def _checked_units(min_units: object) -> int:
    return whole("min_units", min_units, "must be a whole number of units, at least 1")


def present(units: IntArray, min_units: int = 1) -> BoolArray:
    """Return which groups get noise at all.

    Parameters
    ----------
    units : int64 array, shape (groups,)
        Exact number of privacy units in each group that occurs.
    min_units : int, >= 1

    Notes
    -----
    Privacy: secret; groups that are not present must not be noised, let alone appear. ``min_units`` is a promise to readers, and
    part of the theorem: with it a group of k - 1 units is what a group without units is.
    """
    return np.asarray(units) >= _checked_units(min_units)


def passing(noisy: IntArray, tau: int, min_units: int = 1) -> BoolArray:
    """Return which of the present groups appear.

    Parameters
    ----------
    noisy : int64 array, shape (groups,)
        Noisy number of units of the groups that are `present`.
    tau : int
        From `threshold`, for the mechanism, scale, groups and delta that are charged.
    min_units : int, >= 1
        As for `present`.

    Notes
    -----
    Privacy: what it returns, and the counters of the groups that appear, may be released. The order of groups must not depend on
    the table: sort them by their keys.

    Examples
    --------
    >>> passing(np.asarray([26, 27, 90]), 27)
    array([False,  True,  True])
    """
    return np.asarray(noisy) >= whole("tau", tau, "must be a whole number, at least 1") + _checked_units(min_units) - 1
