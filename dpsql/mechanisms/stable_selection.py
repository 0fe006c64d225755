r"""A domain that nobody declared, bought with (epsilon, delta): values that enough units hold, by noisy count and threshold.

**What is released.** Each unit contributes at most D distinct values, and c(v) is the number of units that hold v.
Every value with c(v) >= 1 gets independent integer noise X, P(x) proportional to exp(-|x| / b), and is released with
c(v) + X if that exceeds t. Values that no unit holds are never released: nobody knows them. So a value that one unit
alone holds must stay below the threshold, except with probability delta. Its count is 1, and it passes with p = P(1 + X
> t) = P(X >= t). `threshold` gives the smallest t >= 1 with 1 - (1 - p)^D <= delta.

**Proof, both relations at once.** Let T and T' be neighbours. Only what one unit holds differs: V in T and V' in T', at
most D values each (one of them empty under add_remove). Call j the number of values that occur in T alone, j' of those
that occur in T' alone. That unit alone holds them, so j <= |V|, j' <= |V'|, and their counts are 1. Of the values that
occur in both tables (*shared*) at most |V| - j + |V'| - j' have another count, by one. Let f and f' be the
distributions of what is released of the shared values. Noise on a histogram and post-processing give f <= exp(e) f'
pointwise, e = (|V| + |V'| - j - j') / b.

b = D / epsilon under add_remove and b = 2 D / epsilon under replace_one make (|V| + |V'|) / b <= epsilon, so e <=
epsilon - (j + j') / b. The noise being independent, T releases none of its j own values with probability (1 - p)^j,
and then the rest is distributed as f; T' likewise with j' and f'. Write P, P' for the distributions of the output. An
output with own values of T has P at most 1 - (1 - p)^j in total; any other output s has P(s) = (1 - p)^j f(s) and
P'(s) = (1 - p)^j' f'(s). So for every set S of outputs

    P(S) - exp(epsilon) P'(S)
      <= 1 - (1 - p)^j + sum over s of max(0, (1 - p)^j f(s) - exp(epsilon) (1 - p)^j' f'(s))
      <= 1 - (1 - p)^j + max(0, (1 - p)^j - exp((j + j') / b) (1 - p)^j')        since f' >= exp(-e) f
      <= 1 - (1 - p)^max(j, j')                                                  since exp((j + j') / b) >= 1
      <= 1 - (1 - p)^D <= delta.

Hence (epsilon, delta) under both relations. Going from T to the table without the unit and from there to T' gives
delta (1 + exp(epsilon / 2)) only; taken together nothing of it is needed: delta is not split under replace_one.
tests/privacy computes the exact divergence of small cases.

**Composition.** Given that a table releases none of its own values, which has probability at least 1 - delta for both,
the outputs are distributed as f and f', which are epsilon-DP to each other. Not given, but cut down to such outputs, they
have the masses (1 - p)^j f and (1 - p)^j' f', whose ratio is at most exp(epsilon - (j + j') / b) / (1 - p)^j', hence at
most exp(epsilon) as long as p <= 1 - exp(-1 / b). `parameters` takes care of that where delta is larger than epsilon: p <=
1 / (1 + b) <= 1 - exp(-1 / b). So the selection is delta-approximately
epsilon-DP, and delta-approximately rho-zCDP with the rho of its Laplace noise: rho composes as ever, the deltas add up.

References
----------
Korolova, Kenthapadi, Mishra & Ntoulas (2009), Releasing Search Queries and Clicks Privately. Desfontaines, Voss, Gipson & Mandayam
(2022), arXiv:2006.03684. Bun & Steinke (2016), arXiv:1605.02065, section 8, for approximate zCDP.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpsql.accounting.checks import whole
from dpsql.accounting.events import NEIGHBORS
from dpsql.errors import ArgumentError
from dpsql.mechanisms.laplace_tail import smallest_threshold
from dpsql.mechanisms.weak_domain import MAXIMUM_THRESHOLD, counts_of
from dpsql.noise.discrete import MAXIMUM_LAPLACE_SCALE, checked_scale, discrete_laplace, scale_grid
from dpsql.numerics.arrays import IntArray


def _checked_delta(delta: object) -> Fraction:
    """Return delta as an exact fraction; a float counts as the exact binary fraction it is."""
    expected = "must be above 0 and below 1, e.g. 1e-9: well below one over the number of units"
    if isinstance(delta, bool):
        raise ArgumentError("delta", delta, expected)
    try:
        exact = Fraction(delta)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise ArgumentError("delta", delta, expected) from None
    if not 0 < exact < 1:
        raise ArgumentError("delta", delta, expected)
    return Fraction(exact)


def threshold(scale: Fraction, values_per_unit: int, delta: Fraction | float) -> int:
    """Return the smallest t >= 1 with 1 - (1 - P(1 + X > t))^D <= delta for integer Laplace noise X, proved.

    Parameters
    ----------
    scale : Fraction
        b, above 0 and at most 2^40.
    values_per_unit : int, at least 1
        D, distinct values that one unit contributes at most.
    delta : Fraction or float
        In (0, 1).

    Raises
    ------
    ArgumentError
        An argument is out of range.

    Notes
    -----
    P(1 + X > t) = P(X >= t) on the integers. Privacy: no data is seen; rounded towards a higher threshold.

    Examples
    --------
    >>> threshold(Fraction(1), 1, Fraction(1, 10**9))
    21
    """
    exact = checked_scale("scale", scale, MAXIMUM_LAPLACE_SCALE)
    values = whole("values_per_unit", values_per_unit, "must be a whole number of values, at least 1")
    return smallest_threshold(exact, values, 1 - _checked_delta(delta))


def parameters(epsilon: Fraction | float, delta: Fraction | float, neighbors: str, max_contributions: int) -> tuple[Fraction, int]:
    """Return the noise scale and the threshold of an (epsilon, delta) selection.

    Parameters
    ----------
    epsilon : Fraction or float, > 0
    delta : Fraction or float
        In (0, 1).
    neighbors : {'add_remove', 'replace_one'}
    max_contributions : int, at least 1
        Distinct values of one unit, at most (C rows hold at most C).

    Returns
    -------
    scale : Fraction
        C / epsilon (add_remove) or 2 C / epsilon (replace_one), rounded up to ``scale_grid``.
    threshold : int

    Raises
    ------
    ArgumentError
        An argument is out of range.

    Notes
    -----
    Privacy: `select` with these is (epsilon, delta)-DP under that relation; proved at the head of this file. delta is not split
    under replace_one.

    Examples
    --------
    >>> [(float(b), t) for b, t in (parameters(1, 1e-9, relation, 1) for relation in ("add_remove", "replace_one"))]
    [(1.0, 21), (2.0, 41)]
    """
    values = whole("max_contributions", max_contributions, "must be a whole number of rows, at least 1")
    if neighbors not in NEIGHBORS:
        raise ArgumentError("neighbors", neighbors, f"must be one of {', '.join(map(repr, NEIGHBORS))}")
    moved = values if neighbors == "add_remove" else 2 * values
    scale = scale_grid(moved / checked_scale("epsilon", epsilon))
    return scale, threshold(scale, values, min(_checked_delta(delta), 1 / (1 + scale)))


def select(texts: Sequence[str], counts: IntArray, scale: Fraction, threshold: int) -> list[tuple[str, int]]:
    """Return the values whose noisy count exceeds the threshold, with that count.

    Parameters
    ----------
    texts : sequence of str, length m
        The values that occur, each once. None (NULL) is left out: a category is a text.
    counts : int64 array, shape (m,)
        Number of units that hold each value, at least 1; a unit counts for at most D values.
    scale : Fraction
        b, above 0 and at most 2^40.
    threshold : int
        t, from 1 to 2^60: released if count + X > t.

    Returns
    -------
    list of (text, noisy count), ordered by text
        By text alone: the order that the database found them in says more than the counts.

    Raises
    ------
    ArgumentError
        An argument is out of range, or a text appears twice. No message carries a value.

    Notes
    -----
    Privacy: (epsilon, delta) with `parameters`, if every unit contributes at most D distinct values, chosen without regard to
    other units. Values with a count of 0 must not be given: they would be known. Entropy from the operating system, no seed.
    """
    exact = checked_scale("scale", scale, MAXIMUM_LAPLACE_SCALE)
    if isinstance(threshold, bool) or not isinstance(threshold, int) or not 1 <= threshold <= MAXIMUM_THRESHOLD:
        raise ArgumentError("threshold", threshold, f"must be a whole number from 1 to {MAXIMUM_THRESHOLD}; see threshold()")
    texts, values = counts_of((texts, counts))
    if values.size and int(values.min()) < 1:
        raise ArgumentError("counts", "(counts)", "must be at least 1 each: only values that some unit holds may be given")
    noisy = values + discrete_laplace(exact, values.size)
    kept = np.flatnonzero(noisy > threshold)
    return sorted((texts[i], int(noisy[i])) for i in kept.tolist() if texts[i] is not None)
