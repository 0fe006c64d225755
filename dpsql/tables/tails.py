"""Tails that are noise: bins at the ends of a column's range whose noisy counts do not differ from 0, but would move its mean.

Bounds are public and generous, so the last bins often hold nobody. A fitted model has no negative counts, and a
hundred rows that are not there, at a thousand times the median, are most of a mean. So the longest run of bins from an end whose
sums from that end stay within the noise is taken to be empty, as far as its noise could move the mean by `LEVERAGE` of the column's
spread. What is truly there and as small as the noise is lost: no estimate could tell it from nothing.

Privacy: post-processing of released statistics.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dpsql.domains.grid import Histogram, centres, edge_numbers
from dpsql.numerics.arrays import Clique, FloatArray
from dpsql.tables.emptied import emptied
from dpsql.tables.fine import inside
from dpsql.tables.margins import simplex_projection
from dpsql.tables.statistics import Statistics

SIGNIFICANT = 1.5
"""Standard deviations that the sum of a run has to pass."""

LEVERAGE = 0.02
"""Part of the sum of all rows' distances from the median that the noise of one bin could add."""


def trimmed(statistics: Statistics) -> Statistics:
    """Return statistics whose columns with fine histograms have no rows in tails that are noise.

    Only noisy tables are changed; other statistics are returned as they are.
    """
    domain = statistics.domain
    if domain is None or not statistics.fine or not statistics.tables:
        return statistics
    known = statistics.sums
    empty: dict[Clique, npt.NDArray[np.bool_]] = {}
    for position in sorted(statistics.fine):
        if not known.precisions[position]:
            continue
        attribute = domain.attributes[position]
        edges, cells = edge_numbers(attribute), np.zeros(attribute.size, bool)
        cells[: attribute.values] = noise_cells(
            edges[:-1], edges[1:], known.counts(position)[: attribute.values], known.deviation(position)
        )
        if cells.any():
            empty[(position,)] = cells
    return replace(statistics, tables=emptied(statistics, empty)) if empty else statistics


def placed(statistics: Statistics) -> dict[int, Histogram]:
    """Return where inside its bins each column with a fine histogram has its values, agreeing with what the tables say of bins."""
    domain = statistics.domain
    if domain is None or not statistics.fine:
        return {}
    known, found = statistics.sums, {}
    for position, histogram in statistics.fine.items():
        shown, attribute = without_tails(histogram), domain.attributes[position]
        if known.precisions[position]:
            counts = known.counts(position)[: attribute.values]
            rows = simplex_projection(counts, max(float(counts.sum()), 0.0)) if counts.sum() > 0.0 else np.zeros(counts.size)
            shown = inside(shown, edge_numbers(attribute), rows)
        found[position] = shown
    return found


def without_tails(histogram: Histogram) -> Histogram:
    """Return a fine histogram without rows in tails that are noise."""
    cells = noise_cells(histogram.low, histogram.high, histogram.counts, histogram.noise)
    return replace(histogram, counts=np.where(cells, 0.0, histogram.counts), raw=np.where(cells, 0.0, histogram.raw))


def noise_cells(low: FloatArray, high: FloatArray, counts: FloatArray, deviation: float) -> npt.NDArray[np.bool_]:
    """Return which of neighbouring cells are in a tail that is noise.

    Parameters
    ----------
    low, high : float64 arrays
        Ends of each cell, ascending.
    counts : float64 array
        Noisy counts.
    deviation : float
        Standard deviation of each.
    """
    middle = centres(low, high)
    rows = np.maximum(counts, 0.0)
    found = np.zeros(counts.size, bool)
    if rows.sum() <= 0.0:
        return found
    median = middle[int(np.searchsorted(np.cumsum(rows), rows.sum() / 2.0))]
    spread = float((rows * np.abs(middle - median)).sum())
    for order in (np.arange(counts.size), np.arange(counts.size)[::-1]):
        sums = np.cumsum(counts[order])
        noise = SIGNIFICANT * deviation * np.sqrt(np.arange(1, counts.size + 1))
        run = order[: int(np.argmin(sums <= noise)) if (sums > noise).any() else 0]
        strong = deviation * np.abs(middle[run] - median) > LEVERAGE * spread
        weak = np.flatnonzero(~strong)
        found[run[: int(weak[0])] if weak.size else run] = True
    return found
