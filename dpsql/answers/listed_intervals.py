"""Intervals of what is read off noisy counts of listed values: histogram, mode, bool_and, bool_or, sums of distinct values.

Post-processing. None of them is smooth in the counts, so what is drawn would say too little; these are statements about the counts
instead, which hold together with the confidence:

- ``histogram``: of each listed value the count without noise lies between both maps, each for itself.
- ``mode``: the first and the last, in their order, of the values that may be the most frequent: whose counts are within what
  the noise can make of a difference, for all of them together.
- ``bool_or``, ``bool_and``: whether a truth value surely occurs, and whether it may.
- sum and average of distinct values: over those that surely occur, and as many of those that may occur as make it smallest or
  largest. A value of one row can hardly be told from one of none, so most values that are rare may occur: the intervals are wide.
- Variances of distinct values: none.

The noise of a count is symmetric and known; half a row is added for its being whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import optimize, stats

from dpsql.accounting.accuracy import noise_band
from dpsql.answers.cells import cell_text
from dpsql.domains import sqltypes
from dpsql.estimates import listed
from dpsql.noise.entropy import BoolArray
from dpsql.numerics.arrays import FloatArray
from dpsql.queries.aggregates import DISTINCT
from dpsql.queries.asked import Wanted
from dpsql.queries.estimating import Estimates

Ends = tuple[list[str | None], list[str | None]]


def ends(estimates: Estimates, one: Wanted, sql_type: str, confidence: float) -> Ends:
    """Return the lower and the upper ends of an aggregate of listed values, as texts, one for each group."""
    place = estimates.find(one)[0]
    measure = estimates.query.measures[place]
    counters = estimates.block(place)
    scale, alpha = estimates.scales[estimates.query.blocks_of(place).start], 1 - confidence
    if one.function == "histogram":
        band = noise_band(estimates.mechanism, scale, confidence)
        return _maps(measure.values, counters - band), _maps(measure.values, counters + band)
    if one.function == "mode":
        return _modes(measure.values, counters, sql_type, beyond_difference(estimates.mechanism, scale, alpha, len(measure.values)),
                      listed.mode(measure, counters) >= 0)  # fmt: skip
    if one.function in DISTINCT:
        least = beyond(estimates.mechanism, scale, alpha / len(measure.values))
        values = np.array([float(text) for text in measure.values])
        pairs = [_distinct(DISTINCT[one.function], values, row >= least, row > 1 - least) for row in counters]
        low, high = ([cell_text(pair[end], sql_type) for pair in pairs] for end in (0, 1))
        return low, high
    least = beyond(estimates.mechanism, scale, alpha)
    column = counters[:, measure.values.index("true" if one.function == "bool_or" else "false")]
    surely, maybe = column >= least, column > 1 - least
    if one.function == "bool_and":
        surely, maybe = ~maybe, ~surely
    return _truths(surely), _truths(maybe)


def _truths(found: BoolArray) -> list[str | None]:
    return ["true" if one else "false" for one in found]


def beyond(mechanism: str, scale: float, tail: float) -> float:
    """Return what the noise of a count reaches with a probability of at most ``tail``, below 1/2.

    Examples
    --------
    >>> round(beyond("gaussian", 10.0, 0.025), 2), round(beyond("laplace", 10.0, 0.025), 2)
    (20.1, 30.46)
    """
    if mechanism == "laplace":
        return scale * math.log(0.5 / tail) + 0.5
    return float(stats.norm.isf(tail, scale=scale)) + 0.5


def beyond_difference(mechanism: str, scale: float, tail: float, count: int) -> float:
    """Return what none of ``count`` - 1 differences of the noise of two counts exceeds, but with probability ``tail``."""
    each = tail / max(1, count - 1)
    if mechanism == "laplace":  # P(X - Y > t) = (1 / 2 + t / 4 b) exp(-t / b)
        far = 4 * math.log(1 / each) + 10
        found = optimize.brentq(lambda t: math.log(0.5 + t / 4) - t - math.log(min(each, 0.5)), 0.0, far)
        return float(found) * scale + 1
    return float(stats.norm.isf(each, scale=scale * math.sqrt(2))) + 1


def _maps(values: Sequence[str], counts: FloatArray) -> list[str | None]:
    def text(value: str) -> str:
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

    held = np.maximum(np.rint(counts), 0)
    return [
        "[" + ", ".join(f"{{'k': {text(v)}, 'v': {int(n)}}}" for v, n in zip(values, row, strict=True)) + "]" for row in held
    ]


def _modes(values: Sequence[str], counters: FloatArray, sql_type: str, difference: float, known: BoolArray) -> Ends:
    numbers = sqltypes.parse(sql_type).family in ("integer", "decimal", "float")
    order = sorted(range(len(values)), key=(lambda i: (float(values[i]), "")) if numbers else (lambda i: (0.0, values[i])))
    possible = (counters >= counters.max(axis=-1, keepdims=True) - difference)[:, order]
    first, last = possible.argmax(axis=-1), len(order) - 1 - possible[:, ::-1].argmax(axis=-1)
    low, high = ([values[order[i]] if there else None for i, there in zip(end, known, strict=True)] for end in (first, last))
    return low, high


def _distinct(name: str, values: FloatArray, surely: BoolArray, maybe: BoolArray) -> tuple[float, float]:
    """Return the smallest and the largest sum or mean of values of which some occur and others may; NaN where there is none."""
    there, others = values[surely], values[maybe & ~surely]
    if name not in ("sum", "avg") or not len(there) + len(others):
        return math.nan, math.nan
    if name == "sum":
        if not len(there):  # at least one occurs, where the sum is not NULL
            return (float(others[others < 0].sum() if (others < 0).any() else others.min()),
                    float(others[others > 0].sum() if (others > 0).any() else others.max()))  # fmt: skip
        return float(there.sum() + others[others < 0].sum()), float(there.sum() + others[others > 0].sum())
    means = []
    for sign in (1, -1):
        joined = np.concatenate([there, sign * np.sort(sign * others)])
        upto = np.cumsum(joined) / np.arange(1, len(joined) + 1)
        means.append(sign * (sign * upto[max(0, len(there) - 1) :]).min())
    return float(means[0]), float(means[1])
