"""Noisy tables in one array, worked on by shape in chunks of bounded memory, and what all of them say of each attribute.

Privacy: post-processing; the inputs are released statistics, public sizes and public noise scales.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsql.errors import ArgumentError
from dpsql.numerics.arrays import Clique, FloatArray, IntArray
from dpsql.numerics.products import multiplies
from dpsql.running import progress
from dpsql.tables.flat import FlatScales, FlatTables
from dpsql.tables.pairs import cell_by_cell
from dpsql.tables.variance import noise_variance

_SMALLEST_VARIANCE = 1e-6
"""Stands for the variance of a table without noise, so that precisions stay finite."""

_CHUNK = 1 << 17
"""Cells of tables that are worked on together; a larger table is a chunk of its own."""


@dataclass(frozen=True)
class Measured:
    """Tables in one array, the variance of one cell of each, and the tables of every shape: places, cliques (T, k), shape."""

    sizes: tuple[int, ...]
    tables: FlatTables
    variances: FloatArray
    groups: list[tuple[IntArray, IntArray, tuple[int, ...]]]

    @property
    def starts(self) -> IntArray:
        """Position of each attribute's first code among all codes."""
        return (np.cumsum(self.sizes) - self.sizes).astype(np.int64)

    def chunks(self) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
        """Yield places, cliques (n, k) and counts (n, *shape) of a few tables of one shape at a time."""
        done, whole = 0, max(self.tables.flat.size, 1)
        for places, cliques, shape in self.groups:
            cells = int(np.prod(shape, dtype=np.int64))
            for part in slices(len(places), cells):
                counts = self.tables.stack(places[part], shape)
                done += counts.size
                progress.advance(0.15 * done / whole)
                small = len(shape) == 2 and cell_by_cell((shape[0], shape[1]))
                ordered = np.ascontiguousarray(np.moveaxis(counts, 0, -1), dtype=np.float64) if small else counts.astype(np.float64)
                yield places[part], cliques[part], np.moveaxis(ordered, -1, 0) if small else ordered


@dataclass(frozen=True)
class Sums:
    """What all tables say together, weighted by precision.

    Parameters
    ----------
    sizes : tuple of int, length m
        Number of codes of each attribute.
    total : float
        Precision-weighted mean of the tables' sums, at least 0; 0 where there is no table.
    weighted : ndarray, shape (D,)
        Precision times counts of each code, summed over all tables with its attribute.
    precisions : ndarray, shape (m,)
        Sum of those precisions; 0 of an attribute that no table has.
    """

    sizes: tuple[int, ...]
    total: float
    weighted: FloatArray
    precisions: FloatArray

    def counts(self, position: int) -> FloatArray:
        """Return the estimated counts of the codes of an attribute that some table has; they may be negative."""
        start = sum(self.sizes[:position])
        counts: FloatArray = self.weighted[start : start + self.sizes[position]] / self.precisions[position]
        return counts

    def deviation(self, position: int) -> float:
        """Return the standard deviation of the noise of each of them."""
        return 1.0 / math.sqrt(self.precisions[position])


def laid_out(
    sizes: Sequence[int], tables: Mapping[Clique, IntArray], scales: Mapping[Clique, float], mechanism: str
) -> Measured:
    """Lay tables out in one array; parameters as in `dpsql.tables.statistics.Statistics`.

    Raises
    ------
    ArgumentError
        A table's shape is not the domain's.
    """
    sizes = tuple(sizes)
    if not isinstance(tables, FlatTables) or tables.sizes != sizes:
        for clique, table in tables.items():
            expected = tuple(sizes[i] for i in clique)
            if np.shape(table) != expected:
                raise ArgumentError(f"tables[{clique}]", np.shape(table), f"an array of shape {expected}")
        flat: Any = np.concatenate([np.zeros(0, np.int64), *(np.ravel(table) for table in tables.values())])
        tables = FlatTables(sizes, tuple(tables), flat)
    if isinstance(scales, FlatScales) and (scales.cliques is tables.cliques or scales.cliques == tables.cliques):
        numbers = scales.numbers
    else:
        numbers = np.asarray([scales[clique] for clique in tables.cliques], dtype=np.float64)
    # Tables by the million have few scales.
    distinct, which = np.unique(numbers, return_inverse=True)
    variances = np.asarray([max(noise_variance(scale, mechanism), _SMALLEST_VARIANCE) for scale in distinct.tolist()])
    return Measured(sizes, tables, variances[which], list(tables.by_shape()))


def slices(tables: int, cells: int) -> Iterator[slice]:
    """Yield slices of so many tables of so many cells, a chunk each."""
    step = max(_CHUNK // max(cells, 1), 1)
    for start in range(0, tables, step):
        yield slice(start, min(start + step, tables))


@multiplies
def summed(measured: Measured) -> Sums:
    """Sum up what all tables say, weighted by precision."""
    m, codes, starts = len(measured.sizes), sum(measured.sizes), measured.starts
    weighted, precisions = np.zeros(codes), np.zeros(m)
    sums = weights = 0.0
    for places, cliques, counts in measured.chunks():
        axes, cells = tuple(range(1, counts.ndim)), counts[0].size
        weight = 1.0 / (measured.variances[places] * cells)
        sums += float(weight @ counts.sum(axis=axes))
        weights += float(weight.sum())
        for axis in axes:
            kept, size = counts.sum(axis=tuple(other for other in axes if other != axis)), counts.shape[axis]
            precision = weight * size
            code = starts[cliques[:, axis - 1]][:, None] + np.arange(size)
            weighted += np.bincount(code.ravel(), (precision[:, None] * kept).ravel(), codes)
            precisions += np.bincount(cliques[:, axis - 1], precision, m)
    return Sums(measured.sizes, max(sums / weights, 0.0) if weights else 0.0, weighted, precisions)
