"""Inference from several synthetic tables: one estimate, its variance and an interval [Reiter 2003].

An analysis is run on each of m synthetic tables and gives an estimate q_i and its variance v_i, as if the table were real. The mean
of the q_i is the estimate. Its variance T = b / m + vbar has two parts: b, the variance between the tables, which holds what
synthesis and noise add, and vbar, the mean of the v_i, which holds what sampling adds.

Privacy: none of this sees data; what is computed from synthetic tables is post-processing.

References: Reiter (2003), Inference for partially synthetic, public use microdata sets, Survey Methodology 29.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dpsql.errors import ArgumentError
from dpsql.numerics.arrays import FloatArray


@dataclass(frozen=True)
class Combined:
    """What m synthetic tables say together.

    Parameters
    ----------
    estimate : float
        Mean of the m estimates.
    variance : float
        T = between / sets + within.
    standard_error : float
        Root of the variance.
    df : float
        Degrees of freedom of the interval, at least ``sets - 1``; infinite where the tables agree.
    lower, upper : float
        Ends of the interval.
    between : float
        Sample variance of the m estimates.
    within : float
        Mean of the m variances.
    sets : int
        m.
    """

    estimate: float
    variance: float
    standard_error: float
    df: float
    lower: float
    upper: float
    between: float
    within: float
    sets: int


def combine(estimates: Iterable[float], variances: Iterable[float], level: float = 0.95) -> Combined:
    """Combine the results of one analysis on m synthetic tables.

    Parameters
    ----------
    estimates : iterable of float, length m >= 2
        Finite. NULL (None) and NaN are refused: an analysis that failed on one table must not vanish.
    variances : iterable of float, length m
        Variance of each estimate (the squared standard error), finite and not negative.
    level : float
        Coverage that the interval aims at, between 0 and 1.

    Raises
    ------
    ArgumentError
        Fewer than two tables, different lengths, a value that is not a finite number, a negative variance, or a level out of range.

    Notes
    -----
    Degrees of freedom: (m - 1) (1 + m vbar / b)^2, infinite for b = 0.

    Privacy: none: post-processing.

    References: [Reiter 2003], eqs. 1 to 3.

    Examples
    --------
    >>> result = combine([1.0, 3.0], [0.5, 0.5])
    >>> result.estimate, result.variance, result.df, result.between
    (2.0, 1.5, 2.25, 2.0)
    >>> round(result.lower, 6), round(result.upper, 6)
    (-2.746475, 6.746475)
    """
    points, spread = _finite("estimates", estimates), _finite("variances", variances)
    if len(points) < 2:
        raise ArgumentError(
            "estimates",
            points.tolist(),
            "results of at least two synthetic tables are required; synthesize with options := {'sets': m}",
        )
    if len(spread) != len(points):
        raise ArgumentError("variances", len(spread), f"one variance for each of the {len(points)} estimates is required")
    if (spread < 0).any():
        raise ArgumentError("variances", float(spread.min()), "a variance is at least 0; give the squared standard error")
    sets = len(points)
    estimate, within = math.fsum(points) / sets, math.fsum(spread) / sets
    between = float(np.var(points, ddof=1)) if np.ptp(points) > 0 else 0.0
    variance = between / sets + within
    df = degrees_of_freedom(between, within, sets)
    half = student_t_quantile(level, df) * math.sqrt(variance)
    return Combined(
        estimate, variance, math.sqrt(variance), df, estimate - half, estimate + half, between, within, sets
    )


def degrees_of_freedom(between: float, within: float, sets: int) -> float:
    """Return (m - 1) (1 + m vbar / b)^2; infinite for b = 0.

    Examples
    --------
    >>> degrees_of_freedom(2.0, 0.0, 5), degrees_of_freedom(0.0, 1.0, 5)
    (4.0, inf)
    """
    if between <= 0.0:
        return math.inf
    ratio = 1.0 + sets * within / between
    return (sets - 1) * ratio * ratio if ratio < 1e150 else math.inf


def student_t_quantile(level: float, df: float) -> float:
    """Return the t that a Student variable with ``df`` degrees of freedom stays within, on both sides, with probability ``level``.

    Parameters
    ----------
    level : float
        Between 0 and 1: P(|T| <= t).
    df : float
        Above 0; infinity gives the normal distribution.

    Raises
    ------
    ArgumentError
        A number is out of range.

    Examples
    --------
    >>> round(student_t_quantile(0.95, 9), 6), round(student_t_quantile(0.95, math.inf), 6)
    (2.262157, 1.959964)
    """
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0.0 < level < 1.0:
        raise ArgumentError("level", level, "a number between 0 and 1 is required, e.g. 0.95")
    if isinstance(df, bool) or not isinstance(df, int | float) or not df > 0.0:
        raise ArgumentError("df", df, "a number above 0 is required, or infinity")
    from scipy import special  # loaded when needed: scipy takes .2 s

    tail = (1.0 - level) / 2.0  # the lower tail keeps its digits where level is near 1
    return -float(special.ndtri(tail)) if df > 1e15 else -float(special.stdtrit(float(df), tail))


def _finite(argument: str, values: Iterable[float]) -> FloatArray:
    """Return numbers as an array, or raise ArgumentError."""
    expected = "a list of finite numbers is required, one for each synthetic table"
    listed = list(values)
    try:
        numbers = np.array([math.nan if value is None else float(value) for value in listed], dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(argument, listed, expected) from None
    if not np.isfinite(numbers).all():
        raise ArgumentError(argument, listed, expected)
    return numbers
