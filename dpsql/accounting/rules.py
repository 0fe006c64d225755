r"""The filter of the 'zcdp' accountant: whether everything that was bought fits (epsilon, delta), and the proof of it.

**The rules.** The books hold Gaussian events, pure events (Laplace noise and whatever else is epsilon-DP; of bounded range:
``RangeEvent``, which have a smaller mu and zCDP parameter, proved in ``dpsql.accounting.other_events``) and
selections, which are (epsilon_i, delta_i)-DP (``SelectionEvent``), and thresholds, which cost delta_i alone
(``ThresholdEvent``). delta is split into fixed shares, 0.99 (G), 0.004 (M), 0.003 (H, a fifteenth of it for each j) and 0.003
(S). The books fit the budget iff the deltas of the selections and thresholds add up to at most the share S, and one of these
holds, where a selection counts like a pure event of its epsilon_i, and a threshold like nothing (0 to every sum):

- (G) the rho of the Gaussian events and the mu^2 / 2 of the others, mu as in ``gdp_of_pure``, add up to at most the
  largest rho for which sqrt(2 rho)-GDP implies (epsilon, share G), exactly (``gaussian_mu``); where there is no Gaussian
  event, (P) and (M) are asked instead;
- (P) there is no Gaussian event, and the epsilons of all others add up to at most epsilon;
- (M) the zCDP parameters of all events add up to at most the largest rho for which rho-zCDP implies (epsilon, share M)
  (``zcdp_rho``);
- (H_j), j = 1, ..., 15: the epsilons of the events that are not Gaussian add up to at most (j / 16) epsilon, and the
  rho of the Gaussian ones alone to at most what (G) admits at ((1 - j / 16) epsilon, a fifteenth of share H).

No limit depends on what is in the books: every rule has one limit and one share.

*Theorem.* Let every event, its kind and its parameters be chosen from what was released before, and be paid for only
if the books then fit. The transcript of the whole interaction is (epsilon, delta)-DP.

*Lemma* (Kairouz, Oh & Viswanath 2015). Let K(A) <= e^e L(A) + d and L(A) <= e^e K(A) + d for all A, 0 < d < 1. Then K =
(1 - d) K* + d K' and L = (1 - d) L* + d L' with laws such that K*(A) <= e^e L*(A) and L*(A) <= e^e K*(A) for all A.
*Proof.* Let K0 = min(K, e^e L) and L0 = min(L, e^e K), density by density: K0 <= e^e L0, L0 <= e^e K0 (where K0 < K, L0 is
L, and the other way round), and their masses k and l are at least 1 - d. Let k <= l, say. Among the mixtures of L0 and
e^-e K0, which is at most L0, there is one of mass k, since k lies between e^-e k and l; it keeps both inequalities with K0
and is at most L0. Scale it and K0 by (1 - d) / k. What is missing to K and to L is not negative, and of mass d.  QED

*Proof of the theorem.* Fix neighbours D, D', and let P and Q be the laws of the transcript on D and D'. (1) *Selections.*
Given the history, draw the answer of selection i in two steps, by the lemma: a coin shows heads with probability delta_i, on
D as on D'; with heads the answer is drawn from K' or L', else from K* or L*. Let the transcript show the coins (who sees less
learns less), and let Bad be the transcripts with some heads. The delta_i never add up to more than the share S, so P(Bad) <=
share S. *Thresholds.* A release with a threshold is drawn in two steps by its definition, with such a coin; with tails, its
answer is one that the other events of the release describe. Several thresholds of one release are several coins, independent
of each other.

(2) *Partition.* Put a transcript that is not in Bad into E_r where r is the first rule that holds for its books at
the end (of an endless one: the first that holds at all times). There is one, since each payment left the books
fitting. All sums only grow and no event is ever taken back, so a rule that holds for some books held for all earlier
ones: on E_r, rule r held at every time. Now halt the interaction at the first payment that would break r, and at the first
heads. On E_r the halted interaction has the same probabilities as the full one, on D and on D'. So it is enough to show, for
every rule r and every set E of transcripts outside Bad of the interaction halted by r alone and by heads,

    P(E) <= e^epsilon Q(E) + share r.

Since the sets E_r do not overlap, the sum over r, and (1), is the theorem: the shares add up to delta.

(3) *One event.* Halted by heads, a selection answers "heads" with probability delta_i on D and D' alike, else from K* or L*:
it is epsilon_i-DP, without any delta. A threshold's coin has the same law on D and D', whatever came before: randomness that
does not depend on which of the two it is, and costs nothing under any rule. So from here on there are Gaussian and pure events
only.

(P) P has the density of the product of the answers' laws on D, Q that of those on D': P(E) <= e^(sum of epsilon_i) Q(E) <=
e^epsilon Q(E).

(H_j) Let R be the interaction with the Gaussian events on D' and all others as on D. P and R differ in the Gaussian events
alone; what else happens, with the choices that follow from it, is randomness that does not depend on which of the two it is.
So the pair is a GDP filter (see ``dpsql.accounting.gaussian``): P(E) <= e^((1 - j/16) epsilon) R(E) + share. And R(E) <=
e^(j/16 epsilon) Q(E) as in (P). The replacement is made on the side of Q: made on the side of P, it would multiply the
share by e^(j/16 epsilon).

(G) is the GDP filter itself, of Gaussian and pure events together; that it is not asked for pure events alone only refuses
more. (M) is the zCDP filter (Feldman & Zrnic 2021): every event is zCDP with at most what it adds.  QED

The denials in between are functions of the transcript and of public numbers. The argument needs a limit fixed in
advance: where a custodian raises a budget, the guarantee is that of the raised budget. A refunded charge paid for
nothing: no row was read.

**Numbers.** Amounts are decimals, charges rounded up and limits rounded down (``dpsql.accounting.exact``); a release
calibrated to a whole budget fits it.

Privacy: nothing in here sees data.

References
----------
Kairouz, Oh & Viswanath (2015), arXiv:1311.0776. Feldman & Zrnic (2021), arXiv:2008.11193.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from dpsql.accounting.checks import as_decimal, whole
from dpsql.accounting.cost import NOTHING, Cost
from dpsql.accounting.exact import DELTA_PLACES, limit_down, round_down, subtract
from dpsql.accounting.gaussian import gaussian_epsilon, gaussian_mu, gdp_of_pure
from dpsql.accounting.search import largest
from dpsql.accounting.zcdp import rho_of_pure, zcdp_epsilon, zcdp_rho
from dpsql.errors import ArgumentError

PARTS = 16
"""Parts of epsilon of which the rules H_j give j to pure events."""

SELECTION_CALLS = 16
"""Selections of the default delta that a budget has room for."""

_SELECTION_SHARE = Fraction(3, 1000)


class Shares(NamedTuple):
    """The parts of delta of the rules G, M and each H_j, rounded down."""

    gaussian: float
    mixed: float
    split: float


def shares(delta: float) -> Shares:
    """Return the parts of delta (99 %, 0.4 %, fifteen times 0.02 %; the rest is ``selection_share``), rounded down."""
    return Shares(*(part * delta * (1 - 1e-15) for part in (0.99, 0.004, 0.003 / (PARTS - 1))))


def selection_share(delta: Decimal) -> Decimal:
    """Return what the deltas of all selections and thresholds may add up to, rounded down: 0.3 % of delta."""
    return round_down(Fraction(delta) * _SELECTION_SHARE, DELTA_PLACES)


def selection_delta(budget_delta: object, calls: int = SELECTION_CALLS) -> Decimal:
    """Return the delta of one selection where a budget should have room for several, under 'zcdp'.

    Parameters
    ----------
    budget_delta : float or Decimal, in (0, 1)
        Of the source.
    calls : int, >= 1
        Selections that fit.

    Returns
    -------
    Decimal
        0.003 delta / calls, rounded down to 37 places.

    Raises
    ------
    ArgumentError
        An argument is out of range, or the share is below 1e-37.

    Examples
    --------
    >>> f"{selection_delta(1e-9):.6g}"
    '1.87500e-13'
    """
    expected = "must be above 0 and below 1, and large enough that a selection's share of it is at least 1e-37"
    delta = as_decimal("delta", budget_delta, low=0, high=1, expected=expected)
    times = whole("calls", calls, "must be a number of selections, at least 1")
    share = round_down(Fraction(selection_share(delta)) / times, DELTA_PLACES)
    if share <= 0:
        raise ArgumentError("delta", budget_delta, expected)
    return share


@lru_cache(maxsize=1024)
def rho_limit(epsilon: float, delta: float, *, gaussian: bool) -> Decimal:
    """Return the limit of the sum of rho by the rules G (Gaussian events only) and M (any events), rounded down.

    Parameters
    ----------
    epsilon : float, > 0
    delta : float, in (0, 1)
    gaussian : bool
        Whether all events are Gaussian.

    Notes
    -----
    Privacy: see the head of this file.

    Examples
    --------
    >>> f"{rho_limit(1.0, 2.0**-30, gaussian=True):.6f} {rho_limit(1.0, 2.0**-30, gaussian=False):.6f}"
    '0.016476 0.011355'
    """
    if gaussian:
        return limit_down(gaussian_mu(epsilon, shares(delta).gaussian) ** 2 / 2 * (1 - 1e-15))
    return limit_down(zcdp_rho(epsilon, shares(delta).mixed))


@lru_cache(maxsize=4096)
def _split_limit(epsilon: Decimal, delta: Decimal, part: int) -> Decimal:
    """Return the limit of the Gaussian rho by rule H_j, j = ``part``."""
    rest = float(Fraction(epsilon) * (PARTS - part) / PARTS)
    return limit_down(gaussian_mu(rest, shares(float(delta)).split) ** 2 / 2 * (1 - 1e-15))


def _part(pure: Decimal, epsilon: Decimal) -> int:
    """Return the smallest j for which the plain sum is at most (j / 16) epsilon; the limits of H_j fall with j."""
    if not pure.is_finite():
        return PARTS
    return max(1, math.ceil(Fraction(pure) * PARTS / Fraction(epsilon)))


def allows(cost: Cost, epsilon: Decimal, delta: Decimal) -> bool:
    """Return whether the books of this cost fit a budget; the filter itself, see the head of this file.

    Parameters
    ----------
    cost : Cost
        Sum over everything that counts.
    epsilon, delta : Decimal, > 0
        As the books hold them (``Budget``).
    """
    if cost.selection_delta > selection_share(delta):
        return False
    if cost.gdp.is_finite() and cost.gdp <= rho_limit(float(epsilon), float(delta), gaussian=True):
        return True
    if cost.pure_only and cost.pure_epsilon <= epsilon:
        return True
    if cost.rho <= rho_limit(float(epsilon), float(delta), gaussian=False):
        return True
    part = _part(cost.pure_epsilon, epsilon)
    return part < PARTS and cost.gaussian_rho <= _split_limit(epsilon, delta, part)


def float_up(amount: Decimal | Fraction) -> float:
    """Return a float that is at least this number."""
    value = float(amount)
    return value if math.isinf(value) or Fraction(value) >= Fraction(amount) else math.nextafter(value, math.inf)


def mu_of(rho: Decimal) -> float:
    """Return mu of GDP for a rho of Gaussian events, rounded up."""
    return math.sqrt(2 * float_up(rho)) * (1 + 1e-15)


def least_epsilon(cost: Cost, delta: Decimal) -> float:
    """Return the epsilon of the smallest budget of this delta that these books fit, rounded up.

    Parameters
    ----------
    cost : Cost
    delta : Decimal, in (0, 1)

    Returns
    -------
    float
        inf where the selections need more than their share of delta.

    Notes
    -----
    Privacy: the inverse of ``allows``, rule by rule. Post-processing of public numbers.
    """
    if cost.selection_delta > selection_share(delta):
        return math.inf
    parts = shares(float(delta))
    if cost.gaussian_only:
        return gaussian_epsilon(mu_of(cost.rho), parts.gaussian)
    # Every rule that can hold gives a budget that suffices, of which the smallest counts.
    epsilons = [math.nextafter(zcdp_epsilon(float_up(cost.rho), parts.mixed), math.inf)]
    if cost.gdp.is_finite():
        epsilons.append(gaussian_epsilon(mu_of(cost.gdp), parts.gaussian))
    if cost.pure_only:
        return min(float_up(cost.pure_epsilon), *epsilons)
    if cost.pure_epsilon.is_finite():
        normal = Fraction(gaussian_epsilon(mu_of(cost.gaussian_rho), parts.split))
        pure = Fraction(cost.pure_epsilon)
        epsilons += [float_up(max(pure * PARTS / j, normal * PARTS / (PARTS - j))) for j in range(1, PARTS)]
    return min(epsilons)


def share_of_limit(cost: Cost, epsilon: Decimal, delta: Decimal) -> Fraction | None:
    """Return how much of the limit that binds these books use; None where no rule can hold for them.

    Each rule compares sums with limits: its share is the largest of the quotients. The books need one rule, so theirs is the
    smallest of those. It is at most 1 exactly where ``allows`` says yes; shares of selections count only where they do not
    fit, since room for other events is not lost with them.

    Post-processing of public numbers.
    """
    used: list[Fraction] = []

    def rule(*parts: tuple[Decimal, Decimal | Fraction]) -> None:
        if all(amount.is_finite() and (limit > 0 or amount == 0) for amount, limit in parts):
            used.append(max((Fraction(amount) / Fraction(limit) for amount, limit in parts if amount), default=Fraction(0)))

    rule((cost.gdp, rho_limit(float(epsilon), float(delta), gaussian=True)))
    if cost.pure_only:
        rule((cost.pure_epsilon, epsilon))
    rule((cost.rho, rho_limit(float(epsilon), float(delta), gaussian=False)))
    # Pure and Gaussian events apart, with the budget parted between them in steps.
    for j in range(1, PARTS):
        rule((cost.pure_epsilon, Fraction(epsilon) * j / PARTS), (cost.gaussian_rho, _split_limit(epsilon, delta, j)))
    room = selection_share(delta)
    if not used or cost.selection_delta > 0 == room:
        return None
    chosen = Fraction(cost.selection_delta) / Fraction(room) if room else Fraction(0)
    return max(chosen, min(used)) if chosen > 1 else min(used)


def gaussian_left(cost: Cost, epsilon: Decimal, delta: Decimal) -> Decimal:
    """Return the rho of the largest Gaussian release that still fits, exactly; 0 where none does, or the books do not fit."""
    if not allows(cost, epsilon, delta):
        return NOTHING
    # Each rule leaves something of its own, and one that accepts the sum suffices: so the largest counts.
    rests = [NOTHING, subtract(rho_limit(float(epsilon), float(delta), gaussian=False), cost.rho)]
    if cost.gdp_rho.is_finite():
        rests.append(subtract(rho_limit(float(epsilon), float(delta), gaussian=True), cost.gdp_rho))
    elif cost.gaussian_only:
        rests.append(subtract(rho_limit(float(epsilon), float(delta), gaussian=True), cost.rho))
    part = _part(cost.pure_epsilon, epsilon)
    if part < PARTS:
        rests.append(subtract(_split_limit(epsilon, delta, part), cost.gaussian_rho))
    return max(rests)


def pure_left(cost: Cost, epsilon: Decimal, delta: Decimal) -> Fraction:
    """Return the epsilon of the largest pure event that still fits, to nearly all digits of a float; 0 as in `gaussian_left`."""
    if not allows(cost, epsilon, delta):
        return Fraction(0)
    rest = subtract(rho_limit(float(epsilon), float(delta), gaussian=False), cost.rho)
    rests = [pure_epsilon_for(Fraction(rest))] if rest > 0 else [Fraction(0)]
    if cost.gdp.is_finite() and not cost.pure_only:
        rest = subtract(rho_limit(float(epsilon), float(delta), gaussian=True), cost.gdp)
        rests.append(_pure_epsilon_of_gdp(Fraction(rest)) if rest > 0 else Fraction(0))
    if cost.pure_epsilon.is_finite():
        spent = Fraction(cost.pure_epsilon)
        if cost.pure_only:
            rests.append(Fraction(epsilon) - spent)
        fitting = (j for j in range(PARTS - 1, 0, -1) if cost.gaussian_rho <= _split_limit(epsilon, delta, j))
        rests.append(Fraction(epsilon) * next(fitting, 0) / PARTS - spent)
    return max(rests)


def _pure_epsilon_of_gdp(rho: Fraction) -> Fraction:
    """Return an epsilon whose mechanism costs about ``rho`` under rule G, not more but for the last bits."""
    log_epsilon = largest(lambda u: gdp_of_pure(Fraction(math.exp(u))) <= rho, -80.0, 80.0)
    return Fraction(0) if log_epsilon is None else Fraction(math.exp(log_epsilon))


def pure_epsilon_for(rho: Fraction) -> Fraction:
    """Return an epsilon whose mechanism costs about ``rho``, not more but for the last bits (callers check)."""
    log_epsilon = largest(lambda u: rho_of_pure(Fraction(math.exp(u))) <= rho, -80.0, 80.0)
    return Fraction(0) if log_epsilon is None else Fraction(math.exp(log_epsilon))
