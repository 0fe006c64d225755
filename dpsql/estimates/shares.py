r"""How a release divides its budget over measures, and the noise scales that follow from it.

The measures' noise variances, weighted by w_i, are to be as small as possible together, at a given sum of rho_i = Delta_i^2 / (2
sigma_i^2). Lagrange: w_i = lambda Delta_i^2 / sigma_i^4, so

    sigma_i^2 is proportional to Delta_i / sqrt(w_i), and rho_i to Delta_i sqrt(w_i).

``dpsql.accounting.calibrate`` finds scales for tables of sensitivity 1 (add_remove, one row per unit) of given shares of rho; a
measure of L2 sensitivity Delta takes Delta times that: `gaussian_scale`.

Privacy: decided by public numbers alone. What is charged follows from the scale that is drawn, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from dpsql.accounting.calibration import gaussian_scale as scale_of_rho
from dpsql.accounting.gaussian import effective_variance
from dpsql.errors import ArgumentError
from dpsql.estimates.measures import GRID
from dpsql.noise.discrete import MAXIMUM_SIGMA, checked_scale


def rho_shares(sensitivities: Sequence[float], weights: Sequence[float] | None = None) -> tuple[float, ...]:
    """Return the shares of rho that make the weighted sum of noise variances smallest; they add up to 1.

    Parameters
    ----------
    sensitivities : sequence of float, > 0
        L2, one per block. In the units in which variances are compared: that of a 'moments' or 'scaled' measure divided by its
        grid, times what a row is worth.
    weights : sequence of float, > 0, optional
        w_i of the variances; equal by default. For a tree all levels have equal ones (``dpsql.estimates.quantiles``).

    Returns
    -------
    tuple of float
        For ``calibrate(weights=...)``.

    Raises
    ------
    ArgumentError
        A number is not positive, or the lists differ in length.

    Examples
    --------
    >>> rho_shares([1.0, 1.0, 2.0]), rho_shares([1.0, 1.0], [1.0, 9.0])
    ((0.25, 0.25, 0.5), (0.25, 0.75))
    """
    held = [1.0] * len(sensitivities) if weights is None else list(weights)
    if len(held) != len(sensitivities) or not held:
        raise ArgumentError("weights", len(held), f"must be one number per sensitivity, {len(sensitivities)} of them, at least one")
    for name, numbers in (("sensitivities", sensitivities), ("weights", held)):
        for number in numbers:
            if not 0 < number < math.inf:
                raise ArgumentError(name, number, "must be positive finite numbers")
    parts = [float(s) * math.sqrt(w) for s, w in zip(sensitivities, held, strict=True)]
    return tuple(part / sum(parts) for part in parts)


def gaussian_scale(unit: Fraction, l2: float) -> Fraction:
    """Return the smallest sigma of the sampler's grid that costs a measure of this L2 sensitivity at most what ``unit`` costs at 1.

    Parameters
    ----------
    unit : Fraction
        sigma at sensitivity 1, from ``calibrate(neighbors='add_remove', max_contributions=1)``, whatever the neighbours are:
        these are in ``l2``.
    l2 : float, >= 1
        `dpsql.estimates.measures.sensitivity`.

    Raises
    ------
    ArgumentError
        l2 is below 1.
    CalibrationError
        The noise would be larger than the sampler draws; see `largest_grid`.

    Examples
    --------
    >>> float(gaussian_scale(Fraction(4), 3.0))
    11.9715576171875
    """
    exact = checked_scale("unit", unit)
    if not 1 <= l2 < math.inf:
        raise ArgumentError("l2", l2, "must be a finite number of at least 1")
    return scale_of_rho(1 / (2 * effective_variance(exact**2)), l2)


def largest_grid(unit: Fraction, l2: float) -> int:
    """Return the largest power of two, at most 2^20, that a measure's grid may be.

    Parameters
    ----------
    unit : Fraction
        As for `gaussian_scale`.
    l2 : float
        Sensitivity of the measure at grid 1.

    Returns
    -------
    int
        At least 1. At 1 / 2^12 of the noise in rows the rounding of a row is far below noise.

    Examples
    --------
    >>> largest_grid(Fraction(4), 10.0) == 2**19, largest_grid(Fraction(10**6), 1.0)
    (True, 32)
    """
    most = float(MAXIMUM_SIGMA) / (float(unit) * l2 * (1 + 1e-5))
    grid = GRID
    while grid > 1 and grid > most:
        grid //= 2
    return grid
