"""Calibration of blocks of integers of different sensitivities, and of ranks, that one release measures together.

Privacy: scales and costs depend on public parameters alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from dpsql.accounting.budget import charge_for
from dpsql.accounting.calibration import Calibration, gaussian_limit, gaussian_scale, methods_of, too_much_noise, without_thresholds
from dpsql.accounting.checks import checked_accountant, checked_guarantee
from dpsql.accounting.cost import gdp_of
from dpsql.accounting.events import Event, GaussianEvent, LaplaceEvent, RangeEvent, ThresholdEvent
from dpsql.accounting.search import largest
from dpsql.errors import ArgumentError, CalibrationError
from dpsql.noise.discrete import MAXIMUM_LAPLACE_SCALE, checked_mechanism, scale_grid

_LARGEST_EPSILON = 1e6


@dataclass(frozen=True)
class Ranked:
    """A block that exponential mechanisms draw, P(t) proportional to exp(-u(t) / scale): its scale is in units of the penalty u.

    Parameters
    ----------
    sensitivity : Fraction, > 0
        How far u moves between neighbours, at most.
    count : int, >= 1
        How many such mechanisms the block costs: 2 sensitivity / scale is the epsilon of each (``RangeEvent``).
    """

    sensitivity: Fraction
    count: int = 1

    def event(self, scale: Fraction) -> RangeEvent:
        """Return what the block costs."""
        return RangeEvent(2 * self.sensitivity / scale, self.count)


def calibrate_blocks(
    *,
    mechanism: str,
    sensitivities: Sequence[tuple[float, float] | Ranked],
    weights: Sequence[float],
    epsilon: float | Decimal,
    delta: float | Decimal,
    accountant: str = "zcdp",
    beside: Sequence[ThresholdEvent] = (),
) -> Calibration:
    """Return the smallest noise for blocks of different sensitivities, measured together, and its cost.

    Parameters
    ----------
    mechanism : {'gaussian', 'laplace'}
        Of the noise on integers.
    sensitivities : sequence of (l1, l2) or Ranked
        Of each block of integers, at least 1; of a block that is drawn by rank.
    weights : sequence of float, above 0
        Relative shares of rho; of epsilon, for Laplace noise.
    epsilon, delta : float or Decimal
        Guarantee of this release alone; what `beside` adds to delta comes on top, from the share that the ledger has for it.
    accountant : {'zcdp', 'basic'}
        Of the ledger.
    beside : sequence of events
        Selections of groups, which cost delta alone.

    Returns
    -------
    Calibration
        One scale for each block, rounded up; the cost of all, rounded up.

    Raises
    ------
    ArgumentError, CalibrationError
        As `calibrate`.

    Notes
    -----
    Privacy: block i is an integer vector whose L1 and L2 distance between neighbours is at most its sensitivities; all blocks may
    reach theirs at once. Gaussian: rho_i = w_i / sum(w) of the limit buys sigma_i by l2_i, exactly as `calibrate` does for tables.
    Laplace: epsilon_i = w_i / sum(w) epsilon, scale l1_i / epsilon_i: they add up to epsilon. A block that is drawn by rank is
    `Ranked.event`: next to Gaussian noise its mu^2 / 2 is at most rho_i (rule G of ``dpsql.accounting.rules``, and the composition
    of GDP under 'basic'); else its epsilons add up to at most epsilon_i. Under 'basic' a release without any noise on integers is
    bought without delta, as Laplace noise is.

    Examples
    --------
    >>> found = calibrate_blocks(mechanism="gaussian", sensitivities=[(1, 1), (4, 2)], weights=[1, 1], epsilon=1.0, delta=1e-9)
    >>> round(float(found.scales[1] / found.scales[0]), 2), found.charge.gaussian
    (2.0, True)
    >>> found = calibrate_blocks(
    ...     mechanism="laplace", sensitivities=[(1, 1), Ranked(Fraction(1, 2))], weights=[1, 1], epsilon=1.0, delta=1e-9
    ... )
    >>> [float(scale) for scale in found.scales], float(found.charge.epsilon)
    ([2.0, 2.0], 1.0)
    """
    checked_mechanism(mechanism)
    checked_accountant(accountant)
    held_epsilon, held_delta = checked_guarantee(epsilon, delta, accountant)
    if len(weights) != len(sensitivities) or not sensitivities or not all(0 < weight < math.inf for weight in weights):
        raise ArgumentError("weights", list(weights), f"must be one number above 0 for each of {len(sensitivities)} blocks")
    shares = [Fraction(float(weight)) for weight in weights]
    whole_of = sum(shares, Fraction(0))
    events: list[Event] = [*beside]
    scales: list[Fraction] = []
    only_ranks = all(isinstance(one, Ranked) for one in sensitivities)
    concentrated = mechanism == "gaussian" and not (only_ranks and accountant == "basic" and not beside)
    if concentrated:
        method = methods_of(mechanism, accountant, None, held_delta)[0]
        limit = Fraction(gaussian_limit(held_epsilon, without_thresholds(held_delta, beside, accountant), accountant, method))
    else:
        method, limit = "basic", Fraction(held_epsilon)
    for share, one in zip(shares, sensitivities, strict=True):
        part = limit * share / whole_of
        if isinstance(one, Ranked):
            scales.append(_rank_scale(one, part, concentrated=concentrated))
            events.append(one.event(scales[-1]))
        elif concentrated:
            scales.append(gaussian_scale(part, one[1]))
            events.append(GaussianEvent(scales[-1], one[1]))
        else:
            needed = Fraction(one[0]) / part
            if needed > MAXIMUM_LAPLACE_SCALE:
                raise too_much_noise(float(needed), float(MAXIMUM_LAPLACE_SCALE))
            scales.append(scale_grid(needed))
            events.append(LaplaceEvent(scales[-1], one[0]))
    spent_delta = held_delta if accountant == "zcdp" or concentrated or beside else Decimal(0)
    charge = charge_for(events, delta=spent_delta, accountant=accountant, epsilon=held_epsilon)
    return Calibration(mechanism, tuple(scales), charge, method)


def _rank_scale(block: Ranked, limit: Fraction, *, concentrated: bool) -> Fraction:
    """Return the smallest scale of the grid at which a block costs at most ``limit``: in mu^2 / 2, or in epsilon."""
    if concentrated:
        found = largest(lambda e: e <= 0 or gdp_of(RangeEvent(Fraction(e), block.count)) <= limit, 0.0, _LARGEST_EPSILON)
    else:
        found = float(limit / block.count)
    if not found:
        raise CalibrationError("the guarantee is too small to be bought; ask for a larger epsilon or delta")
    scale = scale_grid(2 * block.sensitivity / (Fraction(found) if concentrated else limit / block.count))
    if scale > MAXIMUM_LAPLACE_SCALE:
        raise too_much_noise(float(scale), float(MAXIMUM_LAPLACE_SCALE))
    return scale
