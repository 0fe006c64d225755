"""Paths within a tube: how many there are, exactly, in doubles or bounded, and a uniform one; see `distribution_function`."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.noise.entropy import integer_below

_RESCALE_ABOVE, _RESCALE_TO = 930, 880


@dataclass(frozen=True)
class Step:
    """Paths up to one bin: ``sums[i]`` is the number, times 2^-(all shifts so far), of those that end at most at low + i."""

    low: int
    sums: npt.NDArray[np.generic]
    shift: int


def steps(cumulative: list[int], rows: int, radius: int, *, integers: bool = False) -> Iterator[Step]:
    """Yield the cumulative numbers of paths of a tube, bin by bin.

    Parameters
    ----------
    cumulative : list of int, length K - 1
        F(1) ... F(K - 1).
    rows : int
        n.
    radius : int, >= 0
        J.
    integers : bool
        Python integers instead of doubles.

    Notes
    -----
    Privacy: secret, made of exact counts.
    """
    sums: npt.NDArray[np.generic] | None = None
    previous = 0
    for value in cumulative:
        low, high = max(value - radius, 0), min(value + radius, rows)
        shift = 0
        if sums is None:
            weights: npt.NDArray[np.generic] = np.ones(high - low + 1, dtype=object if integers else np.float64)
        else:
            weights = np.full(high - low + 1, sums[-1], dtype=sums.dtype)  # beyond the earlier tube nothing is added
            known = sums[low - previous :]
            weights[: known.size] = known
            if not integers and weights[-1] > 2.0**_RESCALE_ABOVE:
                shift = math.frexp(weights[-1])[1] - _RESCALE_TO
                weights = np.ldexp(weights, -shift)
        sums, previous = np.cumsum(weights), low
        yield Step(low, sums, shift)


def draw_path(tube: list[Step], rows: int) -> tuple[list[int], Fraction]:
    """Return a path of a tube, F*(1) ... F*(K - 1), and its exact probability.

    Notes
    -----
    Privacy: secret until it is accepted.
    """
    path, numerator, denominator = [], 1, 1
    value = rows
    # From the last value backwards: sums count the ways that lead to each.
    for step in reversed(tube):
        last = min(value - step.low, step.sums.size - 1)
        scale = _Integers(step.sums)
        total = scale[last]
        chosen = bisect_right(range(last), integer_below(total), key=scale.__getitem__)
        numerator *= scale[chosen] - (scale[chosen - 1] if chosen else 0)
        denominator *= total
        value = step.low + chosen
        path.append(value)
    return path[::-1], Fraction(numerator, denominator)


class _Integers:
    """Doubles of an increasing array as integers: multiples of the last binary place of the first one, which all are."""

    def __init__(self, values: npt.NDArray[np.generic]) -> None:
        self._values = values
        self._integers = values.dtype == object
        self._place = 0 if self._integers else math.frexp(float(values[0]))[1] - 53

    def __getitem__(self, position: int) -> int:
        value: Any = self._values[position]
        if self._integers:
            return int(value)
        mantissa, exponent = math.frexp(float(value))
        return int(mantissa * 2.0**53) << exponent - 53 - self._place


def most_paths(cells: int, rows: int, radius: int) -> int:
    """Return an upper bound of the number of paths of any tube."""
    box: int = (min(2 * radius, rows) + 1) ** (cells - 1)
    return min(box, math.comb(rows + cells - 1, cells - 1))


def _log_comb(top: float, chosen: float) -> float:
    return math.lgamma(top + 1) - math.lgamma(chosen + 1) - math.lgamma(top - chosen + 1)


def log_paths(cells: int, rows: int, radius: int) -> float:
    """Return an upper bound of the logarithm of that number."""
    box = (cells - 1) * math.log(min(2.0 * radius, rows) + 1.0)
    return min(box, _log_comb(rows + cells - 1.0, cells - 1.0)) if rows < 1 << 40 else box


def range_bits(cells: int, rows: int, radius: int) -> float:
    """Return an upper bound of the binary logarithm of the largest over the smallest number of a step."""
    return _log_comb(min(2.0 * radius, rows) + cells, cells) / math.log(2.0) + 1.0
