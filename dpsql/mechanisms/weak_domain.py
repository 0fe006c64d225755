r"""Noisy counts over a public domain that nobody can list: the values that occur, and the few others that the noise lifts.

**What is released.** The noisy histogram of the whole universe, of which only the cells at or above a threshold t are shown. Each
of the n_dom members has a count c (0 for nearly all) and an independent X, P(x) proportional to exp(-|x| / b); the member
is shown with the weight c + X if c + X >= t.

**How, without visiting them.** Let q = exp(-1/b) and p = P(X >= t) = q^t / (1 + q), t >= 1. Think of an X for every member
of the universe, the *lifted* members being those with X >= t. The X are independent and alike, hence
1. the number k of lifted members is Binomial(n_dom, p);
2. given k, every set of k members is equally likely to be the set of lifted ones;
3. given the set, the weights are independent, each X given X >= t. P(X = t + j | X >= t) = q^j (1 - q), so the weight
   is t plus a geometric number.
`release` draws k, the set and the weights, in this order, and so the X of the inactive members (count 0), as far as
they are seen: lifted members that do occur are dropped from the set, for the active members have an X of their own,
drawn one by one. What is left of k is Binomial(n_dom - |active|, p), and of the set uniform over the inactive part.
So the output has the very distribution of n_dom independent noises and a threshold. Whether a member with count 0 is
treated as active or not does not change it. Nothing here needs a list of the universe, or the places of active members.

**Privacy.** Independent noise on the cells of a public histogram of L1 sensitivity s is (s/b)-DP; the threshold and the
order of the result are post-processing. s = C under add_remove and 2 C under replace_one for C rows a unit. Values
outside the universe are dropped before anything else: to release one, or to show that one is there, would have
probability 0 without the one row that holds it, so no epsilon would cover it.

**Slips in the source** (METHODS.md section 0, slip 4). k fixed at its expectation has no finite epsilon: a table without
rows always gives k values, a table with one row gives k + 1 with positive probability. Other values drawn from the
whole domain instead of its inactive part can be an active value, which then comes twice, as it never does in the
neighbour that lacks it. tests/privacy/test_exact_weak_domain.py catches both.

References
----------
Rodriguez & Howe (2017), Privacy-Preserving Synthetic Datasets Over Weakly Constrained Domains, Algorithm 1. Cormode, Procopiuc,
Srivastava & Tran (2012), arXiv:1103.0825, for the same idea on sparse tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from operator import itemgetter

import numpy as np

from dpsql.errors import ArgumentError
from dpsql.mechanisms.binomial import binomial
from dpsql.mechanisms.laplace_tail import smallest_threshold, tail_bounds
from dpsql.mechanisms.words import Universe
from dpsql.noise.discrete import MAXIMUM_LAPLACE_SCALE, checked_scale, discrete_laplace, geometric
from dpsql.noise.entropy import integer_below
from dpsql.numerics.arrays import IntArray

MAXIMUM_THRESHOLD = 1 << 60
MAXIMUM_OTHERS = 1 << 22
"""Values that do not occur and are to be expected in a release, at most."""

_SMALL_DOMAIN = 1 << 60
_NEXT_TO_CERTAIN = Fraction(1, 10**300)


def checked_rho(rho: object) -> Fraction:
    """Return rho as an exact fraction in (0, 1); a float counts as the decimal it is written as.

    Raises
    ------
    ArgumentError
        Not a number, or out of range.

    Examples
    --------
    >>> checked_rho(0.9)
    Fraction(9, 10)
    """
    expected = "must be a probability above 0 and below 1, e.g. 0.9: the chance that no value is shown that does not occur"
    if isinstance(rho, bool):
        raise ArgumentError("rho", rho, expected)
    try:
        exact = Fraction(rho if isinstance(rho, int | Fraction) else str(rho))
    except (ValueError, ZeroDivisionError):
        raise ArgumentError("rho", rho, expected) from None
    if not 0 < exact < 1 or 1 - exact < _NEXT_TO_CERTAIN:
        raise ArgumentError("rho", rho, expected)
    return exact


def _checked(rho: object, domain_size: object) -> tuple[Fraction, int]:
    """Return rho and the size, if rho^(1/n) >= 1/2."""
    exact = checked_rho(rho)
    if isinstance(domain_size, bool) or not isinstance(domain_size, int) or domain_size < 1:
        raise ArgumentError("domain_size", domain_size, "must be a whole number of members, at least 1")
    if domain_size < exact.denominator.bit_length() and exact.numerator << domain_size < exact.denominator:
        raise ArgumentError(
            "rho", rho, f"must be at least 1 / 2^{domain_size}, the smallest that a threshold above 0 gives for this domain_size"
        )
    return exact, domain_size


def threshold(epsilon: float | Fraction, rho: float | Fraction, domain_size: int) -> float:
    """Return tau = -ln(2 (1 - rho^(1/n))) / epsilon: that of continuous noise, to compare with published numbers.

    Parameters
    ----------
    epsilon : float or Fraction, > 0
    rho : float or Fraction
        In (0, 1), at least 2^-n.
    domain_size : int, at least 1
        n, of any size.

    Returns
    -------
    float, at least 0

    Raises
    ------
    ArgumentError
        An argument is out of range.

    Notes
    -----
    1 - rho^(1/n) is -expm1(ln(rho) / n): 1 - rho^(1/n) itself has no digits left at n = 1e16. For n above 2^60, where n may
    not fit a float, it is -ln(rho) / n to 1e-15. Post-processing: no data is seen. What is used is `integer_threshold`.

    Examples
    --------
    >>> round(threshold(0.1, 0.9, 29_400_000_000), 6)
    256.614807
    """
    exact, size = _checked(rho, domain_size)
    scale = float(1 / checked_scale("epsilon", epsilon))
    small = exact < Fraction(1, 2)
    loss = math.log(exact.denominator) - math.log(exact.numerator) if small else -math.log1p(-float(1 - exact))
    if size >= _SMALL_DOMAIN:
        return scale * (math.log(size) - math.log(loss) - math.log(2))
    return max(0.0, -scale * math.log(-2 * math.expm1(-loss / size)))


def integer_threshold(scale: Fraction, rho: float | Fraction, domain_size: int) -> int:
    """Return the smallest t with (1 - P(X >= t))^n >= rho for integer Laplace noise X, proved.

    Parameters
    ----------
    scale : Fraction
        b, above 0 and at most 2^40.
    rho : float or Fraction
        In (0, 1), at least 2^-n: the probability that no value is released that does not occur.
    domain_size : int, at least 1
        n, also far above 2^63.

    Returns
    -------
    int, at least 1
        A value is released if its noisy count is at least t. The probability that no other value is shown is at least rho, as
        fewer than n members do not occur, and would fall below it for t - 1 and n of them.

    Raises
    ------
    ArgumentError
        An argument is out of range.

    Examples
    --------
    >>> integer_threshold(Fraction(10), 0.9, 29_400_000_000)
    258
    """
    exact, size = _checked(rho, domain_size)
    return smallest_threshold(checked_scale("scale", scale, MAXIMUM_LAPLACE_SCALE), size, exact)


def _subset(count: int, size: int) -> list[int]:
    """Return ``count`` distinct integers below ``size``, every set equally likely.

    The first ``count`` places of a shuffle of all (Fisher & Yates), of which only the entries that moved are stored.
    """
    moved: dict[int, int] = {}
    chosen = []
    for place in range(count):
        partner = place + integer_below(size - place)
        chosen.append(moved.get(partner, partner))
        moved[partner] = moved.get(place, place)
    return chosen


def _lifted(universe: Universe, scale: Fraction, at_least: int) -> list[tuple[str, int]]:
    """Return the members of the universe whose own noise reaches the threshold, with that noise."""
    count = binomial(universe.size, lambda precision: tail_bounds(scale, at_least, precision))
    members = [universe.unrank(place) for place in _subset(count, universe.size)]
    return list(zip(members, (at_least + geometric(scale, count)).tolist(), strict=True))


def _check_threshold(scale: Fraction, threshold: object, domain_size: int) -> None:
    if isinstance(threshold, bool) or not isinstance(threshold, int) or not 1 <= threshold <= MAXIMUM_THRESHOLD:
        raise ArgumentError("threshold", threshold, f"must be a whole number from 1 to {MAXIMUM_THRESHOLD}; see integer_threshold")
    precision = 64 + domain_size.bit_length()
    if tail_bounds(scale, threshold, precision)[1] * domain_size >> precision > MAXIMUM_OTHERS:
        raise ArgumentError("threshold", threshold, "would release millions of values that do not occur; see integer_threshold")


def release(
    counts: Mapping[str, int] | tuple[Sequence[str], IntArray], universe: Universe, scale: Fraction, threshold: int
) -> list[tuple[str, int]]:
    """Return the members of a universe whose noisy count reaches the threshold, with that count.

    Parameters
    ----------
    counts : mapping of text to count, or (texts, int64 array)
        Exact counts of the values that occur, each text once. Values outside the universe are dropped.
    universe : Universe
        Public.
    scale : Fraction
        b of the integer Laplace noise, above 0 and at most 2^40.
    threshold : int
        t, from 1 to 2^60; see `integer_threshold`.

    Returns
    -------
    list of (text, weight), ordered by text
        The order is that of the texts alone, so that it does not tell values that occur from others.

    Raises
    ------
    ArgumentError
        The scale or the threshold is out of range, or a text appears twice. No message carries a value.

    Notes
    -----
    Privacy: (s / scale)-DP for counts of L1 sensitivity s; proved at the head of this file. Exact draws, entropy from the operating
    system, no seed. One call is one release: the same counts given twice cost twice.
    """
    exact = checked_scale("scale", scale, MAXIMUM_LAPLACE_SCALE)
    _check_threshold(exact, threshold, universe.size)
    texts, values = counts_of(counts)
    noisy = values + discrete_laplace(exact, values.size)
    kept = np.flatnonzero(noisy >= threshold)
    reached = zip(kept.tolist(), noisy[kept].tolist(), strict=True)
    result = [(texts[i], weight) for i, weight in reached if universe.rank(texts[i]) is not None]
    # What occurs has had its noise; only values that do not occur may be lifted.
    active = set(texts)
    result += [(text, weight) for text, weight in _lifted(universe, exact, threshold) if text not in active]
    result.sort(key=itemgetter(0))
    return result


def counts_of(counts: Mapping[str, int] | tuple[Sequence[str], IntArray]) -> tuple[Sequence[str], IntArray]:
    """Return texts and counts, checked: one count a text, no text twice. Messages carry no value."""
    if isinstance(counts, Mapping):
        return list(counts), np.fromiter(counts.values(), dtype=np.int64, count=len(counts))
    texts, values = counts
    if not isinstance(values, np.ndarray) or values.dtype != np.int64 or values.shape != (len(texts),):
        raise ArgumentError("counts", type(values).__name__, "must be a flat int64 array with one count a text")
    if len(set(texts)) < len(texts):
        raise ArgumentError("counts", "(texts)", "must hold each text once; group by the value")
    return texts, values
