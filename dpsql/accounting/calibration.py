"""Calibration: the smallest noise whose cost the accountant accepts, as an exact scale of the sampler.

A scale is rounded up to the sampler's grid, and the charge is computed from the rounded scale, exactly. So what is
charged is what is drawn, and a release for a whole budget fits it.

Privacy: scales and costs depend on public parameters alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from dpsql.accounting.budget import Charge, charge_for
from dpsql.accounting.checks import checked_accountant, checked_guarantee, whole
from dpsql.accounting.composition import advanced_epsilon_each, pure_epsilon_each
from dpsql.accounting.cost import gdp_of
from dpsql.accounting.events import Event, GaussianEvent, LaplaceEvent, PureEvent, RangeEvent, ThresholdEvent, sensitivities
from dpsql.accounting.exact import DELTA_PLACES, limit_down, round_up, subtract
from dpsql.accounting.gaussian import MINIMUM_VARIANCE, effective_variance, gaussian_mu
from dpsql.accounting.rules import pure_epsilon_for, rho_limit, selection_share
from dpsql.accounting.search import largest
from dpsql.accounting.zcdp import rho_of_pure, zcdp_rho
from dpsql.errors import ArgumentError, CalibrationError
from dpsql.noise.discrete import MAXIMUM_LAPLACE_SCALE, MAXIMUM_SIGMA, MECHANISMS, checked_mechanism, scale_grid

CALIBRATIONS = {"gaussian": ("exact", "zcdp"), "laplace": ("basic", "advanced", "zcdp", "exact")}
"""Methods of calibration that a mechanism has."""

_WORTH_SAYING = 1.05
_NEXT = 1 + Fraction(1, 2**21)  # less than one step of the grid


@dataclass(frozen=True)
class Calibration:
    """Noise scales and their price.

    Parameters
    ----------
    mechanism : {'gaussian', 'laplace'}
    scales : tuple of Fraction, one per table
        sigma or b, on the sampler's grid.
    charge : Charge
    method : {'basic', 'advanced', 'zcdp', 'exact'}
        How the scales were found.
    notes : tuple of str
        What the buyer should know of them.
    epsilons : tuple of Fraction
        Of exponential mechanisms that are measured with them, one for each.
    """

    mechanism: str
    scales: tuple[Fraction, ...]
    charge: Charge
    method: str
    notes: tuple[str, ...] = ()
    epsilons: tuple[Fraction, ...] = ()


def calibrate(
    *,
    mechanism: str,
    tables: int,
    epsilon: float | Decimal,
    delta: float | Decimal,
    neighbors: str,
    max_contributions: int = 1,
    accountant: str = "zcdp",
    calibration: str | None = None,
    weights: Sequence[float] | None = None,
    beside: Sequence[PureEvent | RangeEvent | ThresholdEvent] = (),
) -> Calibration:
    """Return the smallest noise for a release of (epsilon, delta), and its cost.

    Parameters
    ----------
    mechanism : {'gaussian', 'laplace'}
    tables : int, >= 1
        Contingency tables that the release measures, each with noise on every cell.
    epsilon, delta : float or Decimal
        Guarantee of this release alone. Under 'zcdp' delta is that of the source.
    neighbors, max_contributions
        As declared for the source; see ``sensitivities``.
    accountant : {'zcdp', 'basic'}
        Of the ledger.
    calibration : str, optional
        One of ``CALIBRATIONS[mechanism]``; by default the tightest that the ledger accepts for a whole budget:
        'exact' for Gaussian noise; for Laplace noise the smaller scale of 'basic' and 'zcdp' under 'zcdp', and under
        'basic' 'exact', which is 'basic' where delta = 0.
    weights : sequence of float, length ``tables``, optional
        Relative shares of rho; Gaussian noise only.
    beside : sequence of PureEvent, RangeEvent or ThresholdEvent, optional
        What else the release does to the data; Gaussian noise and the default calibration only. Under 'basic' the deltas of
        thresholds are taken off ``delta``; under 'zcdp' they have a share of it of their own (``selection_share``).

    Returns
    -------
    Calibration
        Scales rounded up, cost rounded up.

    Raises
    ------
    ArgumentError
        An argument is out of range, or the combination does not exist.
    CalibrationError
        The noise would be larger than the sampler draws.

    Notes
    -----
    Privacy: the sensitivities are those of contingency tables with disjoint cells. Under 'zcdp' a Gaussian release is
    calibrated at 0.99 delta, a Laplace release without delta ('basic', the better one for few tables) or at 0.004
    delta ('zcdp'): by the ledger's rules G, P and M (``dpsql.accounting.rules``). 'advanced' and 'exact' for Laplace
    noise use the full delta, so that a budget of the same (epsilon, delta) can be too small for them.

    Examples
    --------
    >>> bought = calibrate(mechanism="gaussian", tables=105, epsilon=1.0, delta=2.0**-30, neighbors="add_remove")
    >>> f"{float(bought.scales[0]):.2f}", bought.method, bought.charge.gaussian
    ('56.45', 'exact', True)
    """
    checked_mechanism(mechanism)
    if beside and (mechanism != "gaussian" or calibration not in (None, "exact")):
        raise ArgumentError("beside", "events", "they go beside Gaussian noise with calibration 'exact'")
    checked_accountant(accountant)
    count = whole("tables", tables, "must be a number of tables, at least 1")
    held_epsilon, held_delta = checked_guarantee(epsilon, delta, accountant)
    l1, l2 = sensitivities(neighbors, max_contributions)
    methods = _methods(mechanism, accountant, calibration, held_delta)
    method = methods[0]
    if mechanism == "gaussian":
        limit = _gaussian_limit(held_epsilon, _without_thresholds(held_delta, beside, accountant), accountant, method)
        # What goes beside the noise is paid for first: the noise gets the rest.
        limit = subtract(limit, round_up(sum((gdp_of(event) for event in beside), Fraction(0))))
        scales, times = _gaussian_scales(limit, l2, count, weights)
        events: tuple[Event, ...] = (*beside, *(GaussianEvent(scale, l2, times[scale]) for scale in sorted(times)))
    else:
        if weights is not None:
            raise ArgumentError("weights", "a list", "shares of rho exist for mechanism = 'gaussian' only; leave them out")
        scale, method = _smallest_laplace(held_epsilon, held_delta, accountant, methods, l1, count)
        scales, events = (scale,) * count, (LaplaceEvent(scale, l1, count),)
    # Pure events that are simply added up need no delta.
    spent_delta = held_delta if accountant == "zcdp" or method != "basic" else Decimal(0)
    charge = charge_for(events, delta=spent_delta, accountant=accountant, epsilon=held_epsilon)
    notes: tuple[str, ...] = ()
    if mechanism == "laplace" and accountant == "zcdp" and calibration is None:
        notes = _more_than_alone(float(scales[0]), l1, count, float(held_epsilon), float(held_delta))
    return Calibration(mechanism, scales, charge, method, notes)


def calibrate_blocks(
    *,
    mechanism: str,
    sensitivities: Sequence[tuple[float, float]],
    weights: Sequence[float],
    epsilon: float | Decimal,
    delta: float | Decimal,
    accountant: str = "zcdp",
    beside: Sequence[ThresholdEvent] = (),
    ranges: Sequence[tuple[int, float]] = (),
) -> Calibration:
    """Return the smallest noise for blocks of integers of different sensitivities, measured together, and its cost.

    Parameters
    ----------
    mechanism : {'gaussian', 'laplace'}
    sensitivities : sequence of (l1, l2)
        Of each block, at least 1.
    weights : sequence of float, above 0
        Relative shares of rho; of epsilon, for Laplace noise.
    epsilon, delta : float or Decimal
        Guarantee of this release alone; what `beside` adds to delta comes on top, from the share that the ledger has for it.
    accountant : {'zcdp', 'basic'}
        Of the ledger.
    beside : sequence of events
        Selections of groups, which cost delta alone.
    ranges : sequence of (count, weight)
        Exponential mechanisms, so many of the same epsilon each, with their weights among those of the blocks.

    Returns
    -------
    Calibration
        One scale for each block, rounded up, and one epsilon for each of ``ranges``, rounded down; the cost of all, rounded up.

    Raises
    ------
    ArgumentError, CalibrationError
        As `calibrate`.

    Notes
    -----
    Privacy: block i is an integer vector whose L1 and L2 distance between neighbours is at most its sensitivities; all blocks may
    reach theirs at once. Gaussian: rho_i = w_i / sum(w) of the limit buys sigma_i by l2_i, exactly as `calibrate` does for tables.
    Laplace: epsilon_i = w_i / sum(w) epsilon, scale l1_i / epsilon_i: they add up to epsilon. An exponential mechanism has its
    share of rho by what rule G adds for it (`gdp_of`), its share of epsilon beside Laplace noise.

    Examples
    --------
    >>> bought = calibrate_blocks(mechanism="gaussian", sensitivities=[(1, 1), (4, 2)], weights=[1, 1], epsilon=1.0, delta=1e-9)
    >>> round(float(bought.scales[1] / bought.scales[0]), 2), bought.charge.gaussian
    (2.0, True)
    """
    checked_mechanism(mechanism)
    checked_accountant(accountant)
    held_epsilon, held_delta = checked_guarantee(epsilon, delta, accountant)
    if len(weights) != len(sensitivities) or not sensitivities or not all(0 < weight < math.inf for weight in weights):
        raise ArgumentError("weights", list(weights), f"must be one number above 0 for each of {len(sensitivities)} blocks")
    shares = [Fraction(float(weight)) for weight in weights]
    picked = [Fraction(float(weight)) for _, weight in ranges]
    whole_of = sum([*shares, *picked], Fraction(0))
    events: list[Event] = [*beside]
    scales: list[Fraction] = []
    if mechanism == "gaussian":
        method = _methods(mechanism, accountant, None, held_delta)[0]
        limit = _gaussian_limit(held_epsilon, _without_thresholds(held_delta, beside, accountant), accountant, method)
        for share, (_, l2) in zip(shares, sensitivities, strict=True):
            scales.append(gaussian_scale(Fraction(limit) * share / whole_of, l2))
            events.append(GaussianEvent(scales[-1], l2))
        epsilons = [
            range_epsilon(Fraction(limit) * share / whole_of, count) for share, (count, _) in zip(picked, ranges, strict=True)
        ]
    else:
        # Epsilons of pure events add up, so each block gets its share of epsilon itself.
        method = "basic"
        for share, (l1, _) in zip(shares, sensitivities, strict=True):
            needed = Fraction(l1) * whole_of / (share * Fraction(held_epsilon))
            if needed > MAXIMUM_LAPLACE_SCALE:
                raise _too_much_noise(float(needed), float(MAXIMUM_LAPLACE_SCALE))
            scales.append(scale_grid(needed))
            events.append(LaplaceEvent(scales[-1], l1))
        epsilons = [
            _on_grid_below(share / whole_of * Fraction(held_epsilon) / count)
            for share, (count, _) in zip(picked, ranges, strict=True)
        ]
    events += [RangeEvent(each, count) for each, (count, _) in zip(epsilons, ranges, strict=True)]
    spent_delta = held_delta if accountant == "zcdp" or mechanism == "gaussian" or beside else Decimal(0)
    charge = charge_for(events, delta=spent_delta, accountant=accountant, epsilon=held_epsilon)
    return Calibration(mechanism, tuple(scales), charge, method, epsilons=tuple(epsilons))


def range_epsilon(rho: Fraction, count: int) -> Fraction:
    """Return about the largest epsilon of which ``count`` mechanisms of bounded range cost at most ``rho`` under rule G.

    Raises
    ------
    CalibrationError
        There is none.
    """
    log_epsilon = largest(lambda u: gdp_of(RangeEvent(_on_grid_below(Fraction(math.exp(u))), count)) <= rho, -40.0, 40.0)
    if log_epsilon is None:
        raise CalibrationError("the guarantee is too small to be bought; ask for a larger epsilon or delta")
    return _on_grid_below(Fraction(math.exp(log_epsilon)))


def _on_grid_below(number: Fraction) -> Fraction:
    """Return the largest number of 20 significant bits that is at most ``number``: its powers are cheap to bound."""
    return 1 / scale_grid(1 / number)


def _without_thresholds(delta: Decimal, beside: Sequence[PureEvent | RangeEvent | ThresholdEvent], accountant: str) -> Decimal:
    """Return the delta that is left for the noise, or say that the thresholds leave none of it, or take more than their share."""
    spent = sum((event.delta * event.count for event in beside if isinstance(event, ThresholdEvent)), Fraction(0))
    room = delta if accountant == "basic" else selection_share(delta)
    if spent > room or (spent and spent == delta):
        raise ArgumentError("beside", float(spent), f"thresholds may take {float(room):.6g} of delta at most; lower theirs")
    return subtract(delta, round_up(spent, DELTA_PLACES)) if accountant == "basic" else delta


def _more_than_alone(scale: float, l1: float, tables: int, epsilon: float, delta: float) -> tuple[str, ...]:
    """Return what a ledger that adds up Laplace and Gaussian noise alike costs a Laplace release, where it is worth saying."""
    factor = scale * pure_epsilon_each(tables, epsilon, delta) / l1
    if factor < _WORTH_SAYING:
        return ()
    return (
        f"Laplace noise is {factor:.2f} times what this release alone would need: under accountant 'zcdp' it is bought without "
        "delta, or with 0.004 of it. accountant := 'basic' has all of it; so has mechanism := 'gaussian', nearly",
    )


def _methods(mechanism: str, accountant: str, calibration: str | None, delta: Decimal) -> tuple[str, ...]:
    """Return the methods of calibration to choose from, or say why there is none."""
    allowed = CALIBRATIONS[mechanism]
    if calibration is not None and calibration not in allowed:
        raise ArgumentError(
            "calibration",
            calibration,
            f"must be one of {', '.join(map(repr, allowed))} for mechanism = {mechanism!r}, or left out",
        )
    if delta == 0 and (mechanism == "gaussian" or calibration not in (None, "basic")):
        what = "Gaussian noise" if mechanism == "gaussian" else f"calibration {calibration!r}"
        raise ArgumentError("delta", 0, f"{what} needs a delta above 0, e.g. delta := 1e-10; Laplace noise does without")
    if calibration is not None:
        return (calibration,)
    if mechanism == "gaussian":
        return ("exact",)
    if accountant == "zcdp":
        return ("basic", "zcdp")
    return ("exact",) if delta > 0 else ("basic",)


def _gaussian_limit(epsilon: Decimal, delta: Decimal, accountant: str, method: str) -> Decimal:
    """Return the rho that a Gaussian release may cost."""
    if method == "zcdp":
        return limit_down(zcdp_rho(float(epsilon), float(delta)))
    if accountant == "zcdp":
        return rho_limit(float(epsilon), float(delta), gaussian=True)
    return limit_down(gaussian_mu(float(epsilon), float(delta)) ** 2 / 2 * (1 - 1e-15))


def _gaussian_scales(
    limit: Decimal, l2: float, tables: int, weights: Sequence[float] | None
) -> tuple[tuple[Fraction, ...], Counter[Fraction]]:
    """Return one sigma per table, whose rho add up to at most ``limit``, and how often each value occurs."""
    if weights is None:
        scale = gaussian_scale(Fraction(limit) / tables, l2)
        return (scale,) * tables, Counter({scale: tables})
    if len(weights) != tables:
        raise ArgumentError("weights", len(weights), f"must be one number per table, {tables} of them")
    numbers = [float(weight) for weight in weights]
    if not all(0 < number < math.inf for number in numbers):
        raise ArgumentError("weights", "a list", "every table needs a positive finite share of rho")
    # Equal weights have equal scales: each is searched for once.
    parts = Counter(numbers)
    everything = sum((Fraction(number) * times for number, times in parts.items()), Fraction(0))
    scale_of = {number: gaussian_scale(Fraction(limit) * Fraction(number) / everything, l2) for number in parts}
    occurrences: Counter[Fraction] = Counter()
    for number, times in parts.items():
        occurrences[scale_of[number]] += times
    return tuple(scale_of[number] for number in numbers), occurrences


def gaussian_scale(rho: Fraction, l2: float) -> Fraction:
    """Return the smallest sigma of the sampler's grid at which one table of this L2 sensitivity costs at most ``rho``.

    Raises
    ------
    CalibrationError
        rho is not positive, or the noise would be larger than the sampler draws.
    """
    if rho <= 0:
        raise CalibrationError("the guarantee is too small to be bought: its rho is below 1e-24; ask for a larger epsilon or delta")
    needed = Fraction(l2) ** 2 / (2 * rho)
    if needed > (2 * MAXIMUM_SIGMA) ** 2:
        raise _too_much_noise(math.sqrt(float(needed)), float(MAXIMUM_SIGMA))
    shifted = float(needed) + 1 / 12
    high = (shifted + math.sqrt(shifted**2 + 1 / 9)) / 2  # there the closed formula is enough
    start = high * (1 - 1e-13) if high > 4 else _least_variance(needed, high)
    sigma = scale_grid(math.sqrt(max(start, float(MINIMUM_VARIANCE))))
    while sigma**2 < MINIMUM_VARIANCE or effective_variance(sigma**2) < needed:
        sigma = scale_grid(sigma * _NEXT)
    if sigma > MAXIMUM_SIGMA:
        raise _too_much_noise(float(sigma), float(MAXIMUM_SIGMA))
    return sigma


def _least_variance(needed: Fraction, high: float) -> float:
    """Return about the smallest variance whose effective variance suffices, where there is no formula for it; a bit too small."""
    variance = largest(lambda v: effective_variance(Fraction(v)) < needed, float(MINIMUM_VARIANCE), max(high, 0.02))
    return 0.0 if variance is None else variance


def _smallest_laplace(
    epsilon: Decimal, delta: Decimal, accountant: str, methods: Sequence[str], l1: float, tables: int
) -> tuple[Fraction, str]:
    """Return the smallest b of several methods, and the method; of equal ones the first."""
    choices: list[tuple[Fraction, str]] = []
    for method in methods:
        try:
            choices.append((_laplace_scale(epsilon, delta, accountant, method, l1, tables), method))
        except CalibrationError:
            if method == methods[-1] and not choices:
                raise
    return min(choices, key=lambda pair: pair[0])


def _laplace_scale(epsilon: Decimal, delta: Decimal, accountant: str, method: str, l1: float, tables: int) -> Fraction:
    """Return the smallest b of the grid that the method admits for ``tables`` equal tables."""
    epsilon_float, delta_float = float(epsilon), float(delta)
    limit: Decimal | None = None
    if method == "basic":
        each = Fraction(epsilon) / tables
    elif method == "advanced":
        each = Fraction(advanced_epsilon_each(tables, epsilon_float, delta_float))
    elif method == "exact":
        each = Fraction(pure_epsilon_each(tables, epsilon_float, delta_float))
    else:
        if accountant == "zcdp":
            limit = rho_limit(epsilon_float, delta_float, gaussian=False)
        else:
            limit = limit_down(zcdp_rho(epsilon_float, delta_float))
        each = pure_epsilon_for(Fraction(limit) / tables)
    if each <= 0:
        raise CalibrationError("the guarantee is too small for this many tables; ask for a larger epsilon or fewer tables")
    needed = Fraction(l1) / each
    if needed > MAXIMUM_LAPLACE_SCALE:
        raise _too_much_noise(float(needed), float(MAXIMUM_LAPLACE_SCALE))
    scale = scale_grid(needed)
    # The formula is right but for the last digits: the next scales of the grid make sure of it.
    while limit is not None and tables * rho_of_pure(Fraction(l1) / scale) > limit:
        scale = scale_grid(scale * _NEXT)
    return scale


def _too_much_noise(scale: float, allowed: float) -> CalibrationError:
    return CalibrationError(
        f"noise scale = {scale:.6g}: the samplers draw up to {allowed:.6g}; "
        "ask for a larger epsilon, fewer tables, or fewer rows per unit"
    )


__all__ = ["CALIBRATIONS", "MECHANISMS", "Calibration", "calibrate", "calibrate_blocks", "gaussian_scale"]
