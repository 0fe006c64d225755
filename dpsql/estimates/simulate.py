r"""Intervals of estimates: noise as it was drawn is taken off the released counters, many times, and the estimate made anew.

A released counter is r = t + z: t the exact one, z noise of a known law, symmetric and independent of t. For a count alone t lies
within the noise's own quantile of r (`count_interval`, exact). For an estimate f(r), the values f(r - z') with z' from the same law
are where f(t) would be if only the noise were unknown: the interval runs between their quantiles (1 - confidence) / 2 and (1 +
confidence) / 2, widened to hold f(r) itself. Where f is nearly linear on the scale of the noise it covers f(t) as often as it says
(tests/unit/estimates measure it: averages, variances, medians); where a group has hardly more rows than noise, f is clipped and
leans on other groups, and the interval says less.

What it does not tell: what was clipped, which rows of a unit were left out, and groups that did not appear.

Privacy: none; post-processing of released numbers with ordinary random numbers, whose seed is given, so that the same question
has the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dpsql.accounting.accuracy import noise_band, standard_deviation
from dpsql.errors import ArgumentError
from dpsql.noise.discrete import checked_mechanism, checked_scale
from dpsql.numerics.arrays import FloatArray

REPLICATES = 400
"""Times that noise is taken off, by default."""

_LARGEST = 10_000_000
_TABLE_BELOW = 16.0

Estimator = Callable[[Sequence[FloatArray]], FloatArray]
"""From blocks of counters to estimates: an array of any shape, NaN where there is none."""


@dataclass(frozen=True)
class Noise:
    """Noise on every counter of a block.

    Parameters
    ----------
    mechanism : {'gaussian', 'laplace'}
    scale : Fraction or float, > 0
        sigma or b, as it was drawn.
    """

    mechanism: str
    scale: Fraction | float

    def __post_init__(self) -> None:
        checked_mechanism(self.mechanism)
        checked_scale("scale", self.scale)

    @property
    def deviation(self) -> float:
        """Standard deviation on one counter."""
        return standard_deviation(self.mechanism, self.scale)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
        """Return noise of this law, or, for sigma from 16, of the normal law: for figures, never for a release."""
        scale = float(self.scale)
        if self.mechanism == "laplace":
            success = -math.expm1(-1 / scale)
            return (rng.geometric(success, shape) - rng.geometric(success, shape)).astype(np.float64)
        if scale >= _TABLE_BELOW:
            return rng.normal(0.0, scale, shape)
        upto = _cumulated(scale)
        return (np.searchsorted(upto, rng.uniform(0.0, upto[-1], shape), side="right") - upto.size // 2).astype(np.float64)


@lru_cache(maxsize=64)
def _cumulated(sigma: float) -> FloatArray:
    reach = math.ceil(9 * sigma) + 1
    return np.asarray(np.cumsum(np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)))


def _checked_confidence(confidence: float) -> float:
    if isinstance(confidence, bool) or not isinstance(confidence, (int, float)) or not 0 < confidence < 1:
        raise ArgumentError("confidence", confidence, "must be a probability above 0 and below 1, e.g. 0.95")
    return float(confidence)


def count_interval(released: npt.ArrayLike, noise: Noise, confidence: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper ends of the exact counts, by the exact quantile of the integer noise; at least 0.

    Parameters
    ----------
    released : array
        Noisy counts, each a single counter.
    noise : Noise
    confidence : float in (0, 1)

    Examples
    --------
    >>> count_interval([5.0, 400.0], Noise("gaussian", 10.0))
    (array([  0., 380.]), array([ 25., 420.]))
    """
    band = noise_band(noise.mechanism, noise.scale, _checked_confidence(confidence))
    held = np.asarray(released, dtype=np.float64)
    return np.maximum(held - band, 0.0), np.maximum(held + band, 0.0)


def intervals(
    estimate: Estimator,
    blocks: Sequence[npt.ArrayLike],
    noises: Sequence[Noise],
    seed: Sequence[int] | int,
    confidence: float = 0.95,
    replicates: int = REPLICATES,
) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper ends of intervals around estimates, of the shape of ``estimate(blocks)``.

    Parameters
    ----------
    estimate : callable
        From a list of blocks to an array of estimates: all steps between the released counters and the answer.
    blocks : sequence of arrays, any shapes
        Released counters.
    noises : sequence of Noise
        One per block.
    seed : int or sequence of int, >= 0
        Public: of the release, say. Equal seeds give equal intervals.
    confidence : float in (0, 1)
    replicates : int
        At least 20 / (1 - confidence) are drawn, but fewer (at least 100) where there are very many estimates.

    Returns
    -------
    low, high : float arrays
        NaN where the estimate is NaN. A replicate that gives NaN is left out.

    Raises
    ------
    ArgumentError
        The lists differ in length, or the confidence is out of range.
    """
    share = _checked_confidence(confidence)
    if len(blocks) != len(noises):
        raise ArgumentError("noises", len(noises), f"must be one per block, {len(blocks)} of them")
    held = [np.asarray(block, dtype=np.float64) for block in blocks]
    found = np.asarray(estimate(held), dtype=np.float64)
    times = max(replicates, math.ceil(20 / (1 - share)))
    times = max(100, min(times, _LARGEST // max(found.size, 1)))
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    drawn = np.empty((times, *found.shape))
    for k in range(times):
        drawn[k] = estimate([block - noise.draw(rng, block.shape) for block, noise in zip(held, noises, strict=True)])
    return _between(found, drawn, share)


def _between(found: FloatArray, drawn: FloatArray, share: float) -> tuple[FloatArray, FloatArray]:
    """Return the quantiles of the replicates, without NaN, widened to hold the estimates."""
    missing = np.isnan(drawn)
    ordered = np.sort(np.where(missing, np.inf, drawn), axis=0)
    number = (~missing).sum(axis=0)
    ends = []
    for tail in ((1 - share) / 2, (1 + share) / 2):
        place = np.clip(np.rint(tail * (number - 1)), 0, None).astype(np.int64)
        ends.append(np.take_along_axis(ordered, place[None], axis=0)[0])
    known = ~np.isnan(found) & (number > 0)
    low, high = (np.where(known, end, found) for end in ends)
    return np.fmin(low, found), np.fmax(high, found)
