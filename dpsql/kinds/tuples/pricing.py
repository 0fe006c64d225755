"""What counts of tuples cost: events and noise scales of every level, fixed before a row is read.

Privacy: which tuples a level counts is a function of what was released before it. Whichever they are, a row is in at most
C(d, k) of level k's counts, once in each; or in at most Delta_k where rows with empty cells are bounded by a private
percentile. So with L2 sensitivity l2 of one table (C rows a unit; sqrt 2 more under replace_one) a level's is l2 times the root
of that number, and noise in proportion to it has the same cost whatever Delta_k turns out to be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpsql.accounting import Charge, Event, GaussianEvent, PureEvent, calibrate, charge_for, gaussian_mu, sensitivities
from dpsql.errors import ArgumentError, CalibrationError
from dpsql.kinds.fine import SHARE
from dpsql.mechanisms.percentile import penalty_sensitivity
from dpsql.methods.aggregate_seeded import levels
from dpsql.methods.base import Contract, TuplePlan
from dpsql.noise.discrete import MAXIMUM_SIGMA, scale_grid


@dataclass(frozen=True)
class TuplePrice:
    """Noise and cost.

    Parameters
    ----------
    scales : tuple of Fraction, length R
        Noise scale of each level's counts; where rows have empty cells, the largest that it can be.
    rows_scale : Fraction or None
        Of the number of rows, where it is measured.
    charge : Charge
    parameters : mapping
        For rows with empty cells: what is drawn with.
    calibration : str
    fine_scales : tuple of Fraction
        Noise scale of each level of fine histograms.
    """

    scales: tuple[Fraction, ...]
    rows_scale: Fraction | None
    charge: Charge
    parameters: Mapping[str, Any]
    calibration: str
    fine_scales: tuple[Fraction, ...] = ()


def price(
    tuples: TuplePlan, contract: Contract, epsilon: float, delta: float, accountant: str, fine_levels: int = 0
) -> TuplePrice:
    """Return noise and cost of a release of (epsilon, delta).

    Parameters
    ----------
    fine_levels : int
        Levels of fine histograms, each a contingency table with Gaussian noise of its own (`dpsql.kinds.fine`).

    Raises
    ------
    ArgumentError, CalibrationError
        No noise of the samplers' range has that guarantee.
    """
    if fine_levels and tuples.published is not None:
        expected = "the published split knows no automatic bins: declare bins := ... or edges := [...] for every numeric column"
        raise ArgumentError("options", "published", expected)
    priced = _sparse if tuples.empty else _full
    tuple_price = priced(tuples, contract, epsilon, delta, accountant, fine_levels)
    # Where rows have empty cells, a level's own scale follows from its private bound: it is at most this one.
    largest = max(*tuple_price.scales, tuple_price.rows_scale or Fraction(0))
    if largest > MAXIMUM_SIGMA:
        raise CalibrationError(
            f"noise scale = {float(largest):.6g}: the samplers draw up to {float(MAXIMUM_SIGMA):.6g}; ask for a larger epsilon, "
            "fewer columns, a smaller reporting_length, or fewer rows per unit"
        )
    return tuple_price


def _with_fine(weights: list[float], fine_levels: int) -> list[float]:
    """Return the weights with those of levels of fine histograms behind."""
    share = SHARE / (1.0 - SHARE) * sum(weights) / max(fine_levels, 1)
    return [*weights, *[share] * fine_levels]


def _full(
    tuples: TuplePlan, contract: Contract, epsilon: float, delta: float, accountant: str, fine_levels: int
) -> TuplePrice:
    """Every row is in one cell of each table: a level of C(d, k) tables."""
    _, l2 = sensitivities(contract.neighbors, contract.max_contributions)
    d = len(tuples.sizes)
    tables = [math.comb(d, k) for k in range(1, tuples.length + 1)]
    if tuples.published is not None:
        scales = levels.published_scales(tuples.published, d, l2)
        events = [GaussianEvent(scale, l2, count) for scale, count in zip(scales, tables, strict=True)]
        return TuplePrice(scales, None, charge_for(events, delta=delta, accountant=accountant), {}, "published")
    weights = [weight / count for weight, count in zip(tuples.weights, tables, strict=True) for _ in range(count)]
    counted = len(weights)
    weights = _with_fine(weights, fine_levels)
    calibration = calibrate(
        mechanism="gaussian", tables=len(weights), epsilon=epsilon, delta=delta, neighbors=contract.neighbors,
        max_contributions=contract.max_contributions, accountant=accountant, weights=weights,
    )
    firsts = [sum(tables[:k]) for k in range(tuples.length)]
    scales = tuple(calibration.scales[first] for first in firsts)
    return TuplePrice(scales, None, calibration.charge, {}, calibration.method, tuple(calibration.scales[counted:]))


def _sparse(
    tuples: TuplePlan, contract: Contract, epsilon: float, delta: float, accountant: str, fine_levels: int
) -> TuplePrice:
    """Rows differ in their number of tuples: noise per root of that number, percentiles, and the number of rows."""
    _, l2 = sensitivities(contract.neighbors, contract.max_contributions)
    length, published = tuples.length, tuples.published
    with_rows = not contract.public_total
    rho = gaussian_mu(epsilon, delta) ** 2 / 2
    each = math.sqrt(4.0 * tuples.percentile_share * rho / (math.pi * length))
    if published is not None:
        each = published.epsilon_percentile
    fine_scales: tuple[Fraction, ...] = ()
    beside = [PureEvent(Fraction(each), length)] if tuples.percentile is not None and each > 0 else []
    if published is not None:
        units = list(levels.published_units(published, l2))
        if with_rows:
            units.append(scale_grid(max(l2 * math.sqrt(2.0) / max(published.epsilon_records, 1e-6), 1.0)))
        events: list[Event] = [*beside, *(GaussianEvent(unit, l2, 1) for unit in units)]
        charge, name = charge_for(events, delta=delta, accountant=accountant), "published"
    else:
        weights = list(tuples.weights)
        if with_rows:
            weights.append(sum(weights) * max(tuples.rows_share, 1e-3) / (1.0 - tuples.rows_share))
        counted = len(weights)
        weights = _with_fine(weights, fine_levels)
        calibration = calibrate(
            mechanism="gaussian", tables=len(weights), epsilon=epsilon, delta=delta, neighbors=contract.neighbors,
            max_contributions=contract.max_contributions, accountant=accountant, weights=weights, beside=beside,
        )
        units, charge, name = list(calibration.scales[:counted]), calibration.charge, calibration.method
        fine_scales = tuple(calibration.scales[counted:])
    share = tuples.percentile if beside else None
    parameters = {
        "units": [str(unit) for unit in units],
        "share": None if share is None else str(share),
        "epsilon_percentile": str(Fraction(each)) if beside else None,
        "penalty_sensitivity": None
        if share is None
        else str(penalty_sensitivity(share, contract.neighbors, contract.max_contributions)),
    }
    d = len(tuples.sizes)
    scales = tuple(levels.level_scale(units[k - 1], math.comb(d, k)) for k in range(1, length + 1))
    return TuplePrice(scales, units[length] if with_rows else Fraction(1), charge, parameters, name, fine_scales)
