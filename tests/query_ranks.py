"""Laws of quantiles that are drawn by rank, over all values of a grid, from secret rows by cell."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from dpsql.accounting.blocks import Ranked
from dpsql.estimates.measures import Measure
from dpsql.estimates.ranks import grid, ranked
from dpsql.measure.ranked import Cells
from dpsql.mechanisms.ranked import stretches
from dpsql.release.queried import QueryPlan


def claimed(plan: QueryPlan, measure: Measure, neighbors: str) -> Ranked:
    """Return what a plan's bounds say of how far penalties move."""
    return ranked(measure, plan.max_rows, plan.max_groups, plan.max_rows_per_group, neighbors, grouped=bool(plan.keys))


def steps(cells: Cells | None, measure: Measure, group: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the penalty of a group as a step function: where its steps begin, and the penalties times the share's denominator."""
    values, width = grid(measure)
    inside = np.zeros(0, bool) if cells is None else cells.groups == group
    empty = np.zeros(0, np.int64)
    found, counts = (empty, empty) if cells is None else (cells.cells[inside], cells.counts[inside])
    penalties, starts, _ = stretches(found, counts, Fraction(measure.share), values, width)
    return starts, penalties


def both(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the values at which one of two step functions begins a step, and both functions there."""
    starts = np.union1d(one[0], other[0])
    first, second = (found[1][np.searchsorted(found[0], starts, side="right") - 1] for found in (one, other))
    return starts, first, second


def apart(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray], measure: Measure) -> Fraction:
    """Return how far the penalty moves between two tables, at most, in rows."""
    _, first, second = both(one, other)
    return Fraction(int(np.abs(first - second).max()), Fraction(measure.share).denominator)


def logs(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray], measure: Measure, scale: Fraction) -> np.ndarray:
    """Return the log ratios of the probabilities of all values, one for each step of either law."""
    starts, first, second = both(one, other)
    sizes = np.diff(np.append(starts, grid(measure)[0])).astype(float)
    unit = 1 / (float(scale) * Fraction(measure.share).denominator)

    def normal(penalties: np.ndarray) -> np.ndarray:
        exponents = -(penalties - penalties.min()) * unit
        return np.asarray(exponents - math.log((sizes * np.exp(exponents)).sum()))

    return normal(first) - normal(second)
