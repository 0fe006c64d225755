r"""Levels of k-tuples, k = 1 ... R: how the privacy loss is split between them, and which tuples are kept.

An attribute is a (column, value); a k-tuple is k attributes of k different columns. A row of d columns holds exactly
C(d, k) of them, one in each of the C(d, k) tables over k columns: so level k is measured as C(d, k) tables with noise of
one scale, and its sensitivity is public. The tuples that are measured at level k are chosen by what was released of the
levels before; the noise is not, so what a release costs is known before a row is read.

Privacy: functions of public parameters and of released counts.

References: [SDS], the differential privacy document of Synthetic Data Showcase; [Durfee & Rogers 2019],
arXiv:1905.04273.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dpsql.accounting.gaussian import MINIMUM_VARIANCE
from dpsql.errors import ArgumentError
from dpsql.noise.discrete import scale_grid
from dpsql.noise.inversion import Weights

PROPORTIONS = ("long", "short", "balanced")
FABRICATION_MODES = ("uncontrolled", "progressive", "balanced", "minimize")
_TAIL_BITS = 128
_SUMMED_UP_TO = 1 << 15  # of sigma: beyond, sums would take seconds, and the normal law is right to 1e-8


def sigma_proportions(choice: object, length: int) -> tuple[float, ...]:
    """Return p_1 ... p_R: the noise of level k relative to its sensitivity, before scaling.

    Parameters
    ----------
    choice : str or sequence of float
        'long': 1/k, the least noise on long tuples; 'short': 1/(R - k + 1); 'balanced': 1; or R numbers from 1e-6 to 1e6.
    length : int
        R.

    Raises
    ------
    ArgumentError
        Neither.

    Examples
    --------
    >>> sigma_proportions("short", 3)
    (0.3333333333333333, 0.5, 1.0)
    """
    if isinstance(choice, str) and choice in PROPORTIONS:
        divisors = {"long": range(1, length + 1), "short": range(length, 0, -1), "balanced": [1] * length}[choice]
        return tuple(1.0 / divisor for divisor in divisors)
    expected = f"must be one of {', '.join(map(repr, PROPORTIONS))}, or {length} numbers from 1e-6 to 1e6"
    return _numbers("sigma_proportions", choice, length, expected, lambda p: 1e-6 <= p <= 1e6)


def fabrication_rates(choice: object, length: int) -> tuple[float, ...]:
    """Return eta_2 ... eta_R: twice the chance that a measured tuple which nobody has is kept.

    Parameters
    ----------
    choice : str or sequence of float
        'uncontrolled': 1 throughout; 'progressive': evenly from 0.1 to 1; 'balanced': 0.55, then 1; 'minimize': 0.01
        throughout; or R - 1 numbers in (0, 1].
    length : int
        R.

    Raises
    ------
    ArgumentError
        Neither.

    Examples
    --------
    >>> fabrication_rates("progressive", 4), fabrication_rates("balanced", 3)
    ((0.1, 0.55, 1.0), (0.55, 1.0))
    """
    count = length - 1
    if isinstance(choice, str) and choice in FABRICATION_MODES:
        steps = [1.0 - 0.9 * (count - 1 - i) / (count - 1) for i in range(count)] if count > 1 else [1.0] * count
        rates = {
            "uncontrolled": [1.0] * count,
            "progressive": [round(step, 12) for step in steps],
            "balanced": [0.55, *[1.0] * count][:count],
            "minimize": [0.01] * count,
        }[choice]
        return tuple(rates)
    modes = ", ".join(map(repr, FABRICATION_MODES))
    expected = f"must be one of {modes}, or {count} numbers above 0 and at most 1, for k = 2 to {length}"
    return _numbers("fabrication_mode", choice, count, expected, lambda rate: 0 < rate <= 1)


def fixed_thresholds(choice: object, length: int) -> tuple[int, ...] | None:
    """Return t_2 ... t_R, or None where they are adaptive.

    Raises
    ------
    ArgumentError
        Neither 'adaptive' nor R - 1 whole numbers of at least 0.
    """
    if choice == "adaptive":
        return None
    expected = f"must be 'adaptive', or {length - 1} whole numbers of at least 0, for k = 2 to {length}"
    numbers = _numbers("thresholds", choice, length - 1, expected, lambda t: 0 <= t <= 2**53 and t == int(t))
    return tuple(int(t) for t in numbers)


def _numbers(argument: str, choice: object, count: int, expected: str, allowed: Any) -> tuple[float, ...]:
    if isinstance(choice, str) or not isinstance(choice, Sequence) or len(choice) != count:
        raise ArgumentError(argument, choice, expected)
    if not all(isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x) and allowed(x) for x in choice):
        raise ArgumentError(argument, choice, expected)
    return tuple(float(x) for x in choice)


@dataclass(frozen=True)
class PublishedSplit:
    """The budget as [SDS] splits it.

    Parameters
    ----------
    epsilon_records : float
        For the number of records.
    epsilon_percentile : float
        For the percentile, at every level.
    rho : float
        Of everything but the number of records.
    sigmas : tuple of float
        Noise of each level per unit of its L2 sensitivity.
    """

    epsilon_records: float
    epsilon_percentile: float
    rho: float
    sigmas: tuple[float, ...]


def published_split(
    epsilon: float, delta: float, proportions: Sequence[float], *, percentile_share: float, records_share: float
) -> PublishedSplit:
    """Return the published budget split.

    Parameters
    ----------
    epsilon : float, > 0
    delta : float, in (0, 1)
    proportions : sequence of float, length R
        p_k, see `sigma_proportions`.
    percentile_share, records_share : float, in [0, 1)
        Q_p and N_p.

    Returns
    -------
    PublishedSplit
        rho = (sqrt(epsilon_M + ln(2/delta)) - sqrt(ln(2/delta)))^2, epsilon_M = (1 - N_p) epsilon, and
        R epsilon_Q^2 / 2 + sum_k 1 / (2 sigma_k^2) = rho, epsilon_Q = sqrt(2 rho Q_p / R).

    Notes
    -----
    Privacy: public parameters alone. It spends more than it has to, since the conversion from rho to (epsilon, delta) is
    not tight.

    References
    ----------
    [SDS], equation 1.

    Examples
    --------
    >>> split = published_split(4.0, 1 / (50_000 * math.log(50_000)), (1.0, 1/2, 1/3), percentile_share=0.01, records_share=0.005)
    >>> f"{split.rho:.5f}", [f"{sigma:.2f}" for sigma in split.sigmas]
    ('0.25030', ['5.32', '2.66', '1.77'])
    """
    epsilon_records = records_share * epsilon
    log_term = math.log(2.0 / delta)
    root = (epsilon - epsilon_records) / (math.sqrt(epsilon - epsilon_records + log_term) + math.sqrt(log_term))
    rho = root**2
    total = math.fsum(p**-2 for p in proportions)
    sigmas = tuple(p * math.sqrt(total / (2.0 * rho * (1.0 - percentile_share))) for p in proportions)
    return PublishedSplit(epsilon_records, math.sqrt(2.0 * rho * percentile_share / len(proportions)), rho, sigmas)


def published_scales(split: PublishedSplit, columns: int, l2_sensitivity: float) -> tuple[Fraction, ...]:
    """Return the noise scale of every count at each level, on the sampler's grid.

    Parameters
    ----------
    columns : int
        d: a row has C(d, k) k-tuples.
    l2_sensitivity : float
        Of one table; 1 for one row a unit and add_remove.
    """
    smallest = math.sqrt(MINIMUM_VARIANCE) * (1 + 1e-9)
    needed = (s * math.sqrt(math.comb(columns, k)) * l2_sensitivity for k, s in enumerate(split.sigmas, 1))
    return tuple(scale_grid(max(scale, smallest)) for scale in needed)


def level_scale(unit: Fraction, tuples: int) -> Fraction:
    """Return the noise scale of a level's counts where a row has at most so many tuples: at least unit sqrt(tuples), on the grid.

    Notes
    -----
    Privacy: with sigma >= unit sqrt(D) the level costs no more than one count of noise ``unit``: effective_variance(D v) is at
    least D effective_variance(v) for D >= 1, because their quotient effective_variance(v) / v rises.

    Examples
    --------
    >>> level_scale(Fraction(3), 4) - 6 < Fraction(1, 10**4)
    True
    """
    root = Fraction(math.isqrt(max(tuples, 1) << 80) + 1, 1 << 40)
    return scale_grid(unit * root)


def published_units(split: PublishedSplit, l2_sensitivity: float) -> tuple[Fraction, ...]:
    """Return the noise of each level per root of the number of tuples, on the sampler's grid."""
    smallest = math.sqrt(MINIMUM_VARIANCE) * (1 + 1e-9)
    return tuple(scale_grid(max(sigma * l2_sensitivity, smallest)) for sigma in split.sigmas)


@lru_cache(maxsize=256)
def adaptive_threshold(scale: Fraction, rate: float) -> int:
    """Return the smallest t >= 0 for which integer noise is above t with a chance of at most eta / 2.

    Parameters
    ----------
    scale : Fraction
        sigma of the discrete Gaussian on a count.
    rate : float
        eta, in (0, 1].

    Notes
    -----
    Privacy: none; public parameters. Noise and threshold are integers, so what is compared is what is released.

    Examples
    --------
    >>> adaptive_threshold(Fraction(40), 1.0), adaptive_threshold(Fraction(40), 0.55), adaptive_threshold(Fraction(40), 0.01)
    (0, 24, 103)
    """
    if scale > _SUMMED_UP_TO:
        from scipy.special import ndtri  # loaded when needed: scipy takes .2 s

        return max(0, math.ceil(-float(scale) * float(ndtri(rate / 2)) - 0.5))
    lows, highs, beyond = Weights(1 / (2 * scale**2), square=True).bounds(_TAIL_BITS)
    total = 2 * sum(lows) - highs[0]  # at most the whole mass
    limit = Fraction(rate) / 2 * total
    above = beyond
    for t in range(len(highs) - 1, 0, -1):
        if above + highs[t] > limit:
            return t
        above += highs[t]
    return 0


def tail(scale: Fraction, threshold: int) -> float:
    """Return the chance that the noise on a count is above the threshold, to nearly all digits.

    Examples
    --------
    >>> f"{tail(Fraction(40), 24):.4f}"
    '0.2701'
    """
    if scale > _SUMMED_UP_TO:
        from scipy.special import ndtr

        return float(ndtr(-(threshold + 0.5) / float(scale)))
    _, highs, beyond = Weights(1 / (2 * scale**2), square=True).bounds(_TAIL_BITS)
    whole = 2 * (sum(highs) + beyond) - highs[0]
    return float(Fraction(sum(highs[threshold + 1 :]) + beyond, whole))


def threshold(k: int, scale: Fraction, options: Mapping[str, Any]) -> int:
    """Return t_k: a tuple is kept if its noisy count is above.

    Parameters
    ----------
    k : int
        The level, 1 ... R.
    scale : Fraction
        Of its noise.
    options : mapping
        ``reporting_length``, ``thresholds`` and ``fabrication_mode``.

    Notes
    -----
    t_1 = 0: the names of single attributes come from a declared domain, so nothing has to be hidden. Privacy:
    post-processing.
    """
    if k == 1:
        return 0
    fixed = fixed_thresholds(options["thresholds"], options["reporting_length"])
    if fixed is not None:
        return fixed[k - 2]
    return adaptive_threshold(scale, fabrication_rates(options["fabrication_mode"], options["reporting_length"])[k - 2])
