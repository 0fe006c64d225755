r"""Synthetic counts from a Poisson-gamma model whose prior is strong enough to be private, exact.

**The model** [Quick 2021]. Cell k of K has a count y_k ~ Poisson(theta_k) with theta_k ~ Gamma(a, rate a / E_k): E_k is its
*public* expected count, a the strength of the prior, in rows. The posterior is Gamma(y_k + a, rate 1 + a / E_k), and n*
synthetic rows are drawn from Multinomial(n*, theta / sum theta). Here the E_k add up to n, the public number of rows, and
n* = n.

**Why the total is fixed.** Poisson counts of the posterior are negative binomial. One row more in a cell multiplies the
probability of its z by (y + a + z) / (y + a) times a constant, which grows with z without bound: no prior makes independent
draws epsilon-DP. With the total fixed z is at most n. So this holds where n is public and a unit replaces its one row.

**The law.** With s_k = E_k / (E_k + a), theta_k is s_k times a Gamma(y_k + a, 1) variate. So theta / sum theta is
(s_k q_k) / (s . q) with q ~ Dirichlet(y + a), and

    P(z | y) = n! / prod z_k!  *  E[prod (s_k q_k)^(z_k) / (s . q)^n].

Where all E_k are equal the s_k cancel, and this is the Dirichlet-multinomial of `dpsql.mechanisms.multinomial`.

**Privacy.** Neighbours are y = r + e_i and y' = r + e_j; r has n - 1 rows. Write alpha_k = r_k + a + z_k. Taking q_i out of
the Dirichlet density (size bias) gives

    P(z | y) / P(z | y') = (r_j + a) / (r_i + a)  *  alpha_i / alpha_j  *  R_i / R_j,
    R_i = E[(s . q)^(-n)],  q ~ Dirichlet(alpha + e_i).

The first two factors are those of the Dirichlet-multinomial: together at most 1 + n / a. For the third, a Dirichlet variate
is a vector of gamma variates over their sum, independent of it, and x^(-n) is the integral of t^(n-1) e^(-x t) / Gamma(n), so

    R_i / R_j = int w(t) / (1 + s_i t) dt  /  int w(t) / (1 + s_j t) dt,    w(t) = t^(n-1) prod (1 + s_k t)^(-alpha_k):

the mean of (1 + s_j t) / (1 + s_i t) under the density proportional to w(t) / (1 + s_j t). Let m be the smallest s, kappa_k
= s_k / m, kappa the largest of them. That ratio is at most 1 + (kappa - 1) v with v = m t / (1 + m t), which increases in t.
Putting m in the place of s_k in the density's (1 + s_k t)^(-r_k - z_k) multiplies it by a factor that increases in t, so it
raises the mean of v. The density is then t^(n-1) (1 + m t)^(-2n+1) (1 + s_j t)^(-1) prod (1 + s_k t)^(-a). In x = log t,
the mean of the derivative of a density's logarithm is 0:

    n = (2n - 1) E[v] + E[u_j] + a sum E[u_k],
    u_k = s_k t / (1 + s_k t) = kappa_k v / (1 + (kappa_k - 1) v) >= v.

1 / (1 + (kappa_k - 1) v) is convex in v, so (Jensen, under the density times v) E[u_k] >= E[v] kappa_k / (1 + (kappa_k - 1)
b_1), where b_1 is the mean of v under the density times v, or more. Hence E[v] <= b_0; with one more power of v in the
density the same holds for b_1 and b_2, and so on, and the last one takes u_k >= v:

    b_l = (n + l) / (2n + l + a sum_k kappa_k / (1 + (kappa_k - 1) b_(l+1))),    b_L = (n + L) / (2n + L + K a).

So epsilon-DP holds where (1 + n / a) (1 + (kappa - 1) b_0) <= e^epsilon. For equal E_k this is n / (e^epsilon - 1) <= a,
which is reached. Otherwise the exact loss lies a little below: `tests/privacy/test_exact_poisson_gamma.py`. The proof takes
any s: which s is used is decided by rounding, and the bound is computed from the s that are used.

**Exact draws.** Given q, draws from q of which a draw of cell k is kept with a probability in proportion to s_k are draws
from (s_k q_k) / (s . q). Draws from q are those of a Polya urn (`dpsql.mechanisms.multinomial`). So: draw from the urn, keep
with probability c_k / 2^20, integers c_k, until n are kept; what is not kept has been added to the urn too. Every decision
is a comparison of integers.

References
----------
Quick (2021), *Generating Poisson-distributed differentially private synthetic data*, arXiv:1906.00455. The bound is ours.
"""

from __future__ import annotations

import bisect
import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsql.errors import ArgumentError
from dpsql.mechanisms.multinomial import dirichlet_multinomial, dirichlet_prior, integer_weights, urn_sequence
from dpsql.noise.entropy import exp_bounds, integer_below, uniform_below
from dpsql.numerics.arrays import FloatArray, IntArray
from dpsql.numerics.products import multiplies

KEEP_BITS = 20
"""A draw of cell k is kept with probability c_k / 2^20."""

LARGEST_RATIO = 100
"""Largest ratio of two expected counts: about so many draws are needed for one that is kept, at worst."""

_WEIGHT_BITS = 62
_BLOCK = 1 << 18
_EXTRA_BITS = 96
_LEVELS = 4
"""L, in the bound of the third factor."""

_FRACTION_BITS = 64
_SLACK = 4
"""Draws that the grid of weights leaves room for, over the most that are needed on average."""


@dataclass(frozen=True)
class PoissonGammaPrior:
    """The strength of the prior and the probabilities with which draws are kept.

    Parameters
    ----------
    strength : Fraction or None
        a, a multiple of a power of two; None is infinite: the counts are not used at all.
    kept : int64 array, shape (K,), or None
        c_k, from 1 to 2^20; None where all expected counts are equal, and every draw is kept.
    draws : int
        Draws that the weights have room for; more are made by `_one_by_one`.
    """

    strength: Fraction | None
    kept: IntArray | None
    draws: int


def largest_ratio(strength: Fraction, rows: int, kept: IntArray) -> Fraction:
    """Return a bound of P(z | y) / P(z | y') over all outputs and neighbours; see the head of this file.

    Parameters
    ----------
    strength : Fraction, > 0
        a.
    rows : int, >= 1
        n.
    kept : int64 array, shape (K,), >= 1
        s, up to a common factor.

    Returns
    -------
    Fraction
        Rounded up. Attained where all s are equal.

    Notes
    -----
    Privacy: public numbers alone.

    Examples
    --------
    >>> largest_ratio(Fraction(2), 4, np.array([5, 5, 5]))
    Fraction(3, 1)
    """
    values, multiplicity = (some.tolist() for some in np.unique(kept, return_counts=True))
    smallest, one = values[0], 1 << _FRACTION_BITS
    bound = (rows + _LEVELS) / (2 * rows + _LEVELS + sum(multiplicity) * strength)
    for level in reversed(range(_LEVELS)):
        b = math.ceil(bound * one)
        # kappa / (1 + (kappa - 1) b), rounded down
        terms = sum(n * (c * one * one // (smallest * one + (c - smallest) * b)) for c, n in zip(values, multiplicity, strict=True))
        bound = (rows + level) / (2 * rows + level + Fraction(terms, one) * strength)
    ratio: Fraction = (1 + rows / strength) * (1 + Fraction(values[-1] - smallest, smallest) * bound)
    return ratio


def relative_strength(epsilon: float, expected: FloatArray, rows: float = math.inf) -> float:
    """Return about a / n: the prior strength of a cell as a multiple of the number of rows.

    Parameters
    ----------
    epsilon : float, > 0
    expected : float array, shape (K,), > 0
        Expected counts, up to a common factor.
    rows : float, >= 1
        n; infinite for the limit, which is near for some hundred rows.

    Notes
    -----
    Privacy: public numbers alone. For showing, and as the start of `poisson_gamma_prior`.
    """
    shares, multiplicity = np.unique(expected / expected.sum(), return_counts=True)

    @multiplies
    def log_ratio(x: float) -> float:
        kappa = shares / (shares + x) * ((shares[0] + x) / shares[0])
        bound = (1.0 + _LEVELS / rows) / (2.0 + _LEVELS / rows + expected.size * x)
        for level in reversed(range(_LEVELS)):
            pulled = float(multiplicity @ (kappa / (1.0 + (kappa - 1.0) * bound)))
            bound = (1.0 + level / rows) / (2.0 + level / rows + pulled * x)
        return math.log1p(1.0 / x) + math.log1p((float(kappa[-1]) - 1.0) * bound)

    # The first factor alone asks for this much: the search goes on upwards from here.
    below = -math.expm1(-epsilon)
    low = math.exp(-epsilon) / below if below else math.inf
    if not 0.0 < low < 1e150 or shares.size == 1:
        return max(low, 1e-150)
    high = low
    while log_ratio(high) > epsilon:
        high *= 2.0
    for _ in range(100):
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = (middle, high) if log_ratio(middle) > epsilon else (low, middle)
    return high


def keeping(expected: FloatArray, relative: float) -> IntArray:
    """Return c_k, s_k in proportion to its largest, rounded up, for a = ``relative`` n (infinite: s_k like E_k).

    Examples
    --------
    >>> keeping(np.array([1.0, 3.0]), 0.25).tolist(), keeping(np.array([1.0, 4.0]), math.inf).tolist()
    ([699051, 1048576], [262144, 1048576])
    """
    shares = expected / expected.sum()
    s = shares if math.isinf(relative) else shares / (shares + relative)
    keep: IntArray = np.clip(np.ceil(s / s.max() * 2**KEEP_BITS), 1, 2**KEEP_BITS).astype(np.int64)
    return keep


def poisson_gamma_prior(epsilon: Fraction, rows: int, expected: FloatArray) -> PoissonGammaPrior:
    """Return the weakest prior that the bound allows, for as many rows drawn as counted.

    Parameters
    ----------
    epsilon : Fraction, > 0
        Of one draw of all rows.
    rows : int, >= 1
        n, public.
    expected : float array, shape (K,), > 0
        Public expected counts, up to a common factor; none more than 100 times another.

    Raises
    ------
    ArgumentError
        An expected count is out of range.

    Notes
    -----
    Privacy: epsilon-DP under replace_one where n is public and a unit has one row. A guess in doubles is rounded up to the grid
    of weights; whether it does is then decided in fractions, with a lower bound of e^epsilon and the s that are used, and it
    is raised until it does.
    """
    if not (np.isfinite(expected).all() and (expected > 0).all() and expected.max() <= LARGEST_RATIO * expected.min()):
        raise ArgumentError("expected", None, f"must be above 0, the largest at most {LARGEST_RATIO} times the smallest")
    if expected.min() == expected.max():
        return PoissonGammaPrior(dirichlet_prior(epsilon, rows, expected.size), None, rows)
    small = max(0, epsilon.denominator.bit_length() - epsilon.numerator.bit_length() + 1)
    precision = _EXTRA_BITS + 2 * small
    allowed = Fraction(1 << precision, exp_bounds(epsilon, precision)[1])  # at most e^epsilon
    relative, more = relative_strength(float(epsilon), expected, rows), 2.0**-40
    while True:
        kept = keeping(expected, relative)
        draws = _SLACK * rows * math.ceil(kept.max() / kept.min()) + _BLOCK
        strength = None if math.isinf(relative) else _on_grid(Fraction(relative) * rows, expected.size, rows + draws)
        if strength is None:
            return PoissonGammaPrior(None, keeping(expected, math.inf), draws)
        if largest_ratio(strength, rows, kept) <= allowed:
            return PoissonGammaPrior(strength, kept, draws)
        relative, more = relative * (1.0 + more), 2.0 * more


def poisson_gamma(counts: IntArray, prior: PoissonGammaPrior, rows: int) -> IntArray:
    """Draw ``rows`` synthetic rows, as counts of the cells, exactly.

    Parameters
    ----------
    counts : int64 array, shape (K,)
        Exact counts, each at least 0.
    prior : PoissonGammaPrior
        For as many rows and cells.
    rows : int, >= 0

    Returns
    -------
    int64 array, shape (K,)
        Sums to ``rows``.

    Notes
    -----
    Privacy: see the head of this file. Entropy from the operating system; no seed. About 0.1 s for a million draws.
    """
    if prior.kept is None:
        return dirichlet_multinomial(counts, prior.strength, rows)
    weights, step = integer_weights(counts, prior.strength, prior.draws)
    result = np.zeros(counts.size, dtype=np.int64)
    drawn = np.zeros(counts.size, dtype=np.int64)
    used, left = 0, rows
    while left:
        size = min(_BLOCK, 64 + 2 * left, prior.draws - used if step else _BLOCK)
        # The prior was made for so many draws; what is still missing is drawn one by one, with integers of any size.
        if size <= 0:
            urn = [int(weight) + step * int(count) for weight, count in zip(weights, drawn, strict=True)]
            return result + _one_by_one(urn, step, prior.kept, left)
        cells = urn_sequence(np.cumsum(weights + drawn * step), step, size)
        accepted = np.flatnonzero(uniform_below(1 << KEEP_BITS, size) < prior.kept[cells])[:left]
        result += np.bincount(cells[accepted], minlength=counts.size)
        # Draws that are not kept stay in the urn too: the next ones have to see them.
        drawn += np.bincount(cells, minlength=counts.size)
        used, left = used + size, left - accepted.size
    return result


def _one_by_one(weights: list[int], step: int, kept: IntArray, rows: int) -> IntArray:
    """Go on in Python integers, where 64 bits have no room for more draws: hardly ever, and slow."""
    result = np.zeros(len(weights), dtype=np.int64)
    while rows:
        sums = list(itertools.accumulate(weights))
        cell = bisect.bisect_right(sums, integer_below(sums[-1]))
        weights[cell] += step
        if integer_below(1 << KEEP_BITS) < kept[cell]:
            result[cell] += 1
            rows -= 1
    return result


def _on_grid(strength: Fraction, cells: int, room: int) -> Fraction | None:
    """Return a prior strength rounded up to the finest grid on which all weights fit, or None where none does."""
    bits = _WEIGHT_BITS - (math.ceil(cells * strength) + room + cells).bit_length()
    return None if bits < 0 else Fraction(math.ceil(strength * 2**bits), 2**bits)
