"""Tails that are noise: bins at the ends of a column's range whose noisy counts do not differ from 0, but would move its mean.

Bounds are public and generous, so the last bins often hold nobody. A fitted model has no negative counts, and a
hundred rows that are not there, at a thousand times the median, are most of a mean. So the longest run of bins from an end whose
sums from that end stay within the noise is joined to the bin before it, as far as its noise could move the mean by `LEVERAGE` of
the column's spread. Its counts, those below zero too, are added to that bin's: nothing is lost of what is truly there, and what is
noise has no sign. Where inside of that bin the rows are, the fine histogram says (`dpsql.tables.extent`).

Privacy: post-processing of released statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dpsql.domains.grid import Histogram, centres, edge_numbers
from dpsql.numerics.arrays import FloatArray, IntArray
from dpsql.tables.emptied import emptied
from dpsql.tables.fine import inside
from dpsql.tables.flat import FlatTables
from dpsql.tables.margins import simplex_projection
from dpsql.tables.statistics import Statistics

SIGNIFICANT = 3.0
"""Standard deviations that the sum of a run has to pass."""

LEVERAGE = 0.02
"""Part of the sum of all rows' distances from the median that the noise of one bin could add."""


def trimmed(statistics: Statistics) -> Statistics:
    """Return statistics whose columns with fine histograms have no rows in tails that are noise: these are in the bin before.

    Only noisy tables are changed; other statistics are returned as they are.
    """
    domain = statistics.domain
    if domain is None or not statistics.fine or not statistics.tables:
        return statistics
    known = statistics.sums
    joined: dict[int, IntArray] = {}
    for position in sorted(statistics.fine):
        if not known.precisions[position]:
            continue
        attribute = domain.attributes[position]
        edges, cells = edge_numbers(attribute), np.zeros(attribute.size, bool)
        cells[: attribute.values] = noise_cells(
            edges[:-1], edges[1:], known.counts(position)[: attribute.values], known.deviation(position)
        )
        # A column all of whose bins are noise stays: there is no bin to put its rows in.
        if cells.any() and not cells[: attribute.values].all():
            joined[position] = _nearest(cells, attribute.values)
    return replace(statistics, tables=_joined(statistics, joined)) if joined else statistics


def _nearest(cells: npt.NDArray[np.bool_], values: int) -> IntArray:
    """Return for each code the one that its rows are added to: of bins in tails the nearest one that is in none."""
    codes = np.arange(cells.size)
    kept = np.flatnonzero(~cells[:values])
    codes[:values] = np.clip(codes[:values], kept[0], kept[-1])
    return codes


def _joined(statistics: Statistics, joined: Mapping[int, IntArray]) -> FlatTables:
    """Return the tables with the counts of some codes added to those of others; those of the statistics stay as they are."""
    copy = emptied(statistics, {})  # a copy
    for clique in copy.cliques:
        for position in set(clique) & set(joined):
            axis, codes = clique.index(position), joined[position]
            table = copy[clique]  # a view
            summed = np.zeros_like(table)
            np.add.at(np.moveaxis(summed, axis, 0), codes, np.moveaxis(table, axis, 0))
            table[...] = summed
    return copy


def placed(statistics: Statistics) -> dict[int, Histogram]:
    """Return where inside its bins each column with a fine histogram has its values, agreeing with what the tables say of bins."""
    domain = statistics.domain
    if domain is None or not statistics.fine:
        return {}
    known, histograms = statistics.sums, {}
    for position, histogram in statistics.fine.items():
        shown, attribute = histogram, domain.attributes[position]
        if known.precisions[position]:
            counts = known.counts(position)[: attribute.values]
            rows = simplex_projection(counts, max(float(counts.sum()), 0.0)) if counts.sum() > 0.0 else np.zeros(counts.size)
            shown = inside(shown, edge_numbers(attribute), rows)
        histograms[position] = shown
    return histograms


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
    noisy = np.zeros(counts.size, bool)
    if rows.sum() <= 0.0:
        return noisy
    median = middle[int(np.searchsorted(np.cumsum(rows), rows.sum() / 2.0))]
    spread = float((rows * np.abs(middle - median)).sum())
    # From each end inwards, as long as the sum of all cells so far is within its noise.
    for order in (np.arange(counts.size), np.arange(counts.size)[::-1]):
        sums = np.cumsum(counts[order])
        noise = SIGNIFICANT * deviation * np.sqrt(np.arange(1, counts.size + 1))
        run = order[: int(np.argmin(sums <= noise)) if (sums > noise).any() else 0]
        strong = deviation * np.abs(middle[run] - median) > LEVERAGE * spread
        weak = np.flatnonzero(~strong)
        noisy[run[: int(weak[0])] if weak.size else run] = True
    return noisy
