"""From noisy tables that contradict each other to shares that do not.

Noisy tables disagree: cells are negative, totals differ, the one-way table of an attribute is not the row sum of its
two-way tables. Every one of these contradictions is information about the noise. What comes out here has one total,
no negative cell, and two-way tables whose sums are the one-way tables.

There may be millions of tables. All tables of one shape are worked on together, in chunks of bounded memory.

Privacy: post-processing throughout; the inputs are released statistics, public sizes and public noise scales.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.errors import ArgumentError
from dpsql.numerics.arrays import FloatArray, IntArray
from dpsql.running import progress
from dpsql.tables.flat import FlatScales, FlatTables
from dpsql.tables.margins import fit_margins, fit_margins_linearly, shrink_to_independence, simplex_projection
from dpsql.tables.pairs import Pairs, PairTables, PairValues, cell_by_cell, empty_stack
from dpsql.tables.statistics import Statistics
from dpsql.tables.variance import noise_variance

ADJUSTMENTS = ("least_squares", "none")
SHRINKAGES = ("empirical_bayes", "none")

_SMALLEST_VARIANCE = 1e-6
"""Stands for the variance of a table without noise, so that precisions stay finite."""

_CHUNK = 1 << 17
"""Cells of tables that are worked on together; a larger table is a chunk of its own."""


@dataclass(frozen=True)
class ConsistentTables:
    """One-way and two-way tables as shares of the rows.

    Parameters
    ----------
    sizes : tuple of int, length m
        Number of codes of each attribute.
    total : float
        Number of rows: the public one, or an estimate; at least 0.
    one_way : tuple of ndarray
        Shares of each attribute's codes; non-negative, sum 1.
    two_way : PairTables, a mapping from (i, j), i < j, to ndarray of shape (c_i, c_j)
        Non-negative shares; sums are the one-way tables. Only pairs that were measured (within some table). `by_shape`
        gives all tables of a shape in one array.
    unbiased : PairTables like two_way
        Least squares estimates before anything was shrunk or clipped: cells may be negative, sums are the one-way
        tables. A model that is fitted to them does its own smoothing.
    deviation : PairValues, a mapping from (i, j) to float
        Standard deviation of the noise of one cell of `unbiased`, as a share.
    """

    sizes: tuple[int, ...]
    total: float
    one_way: tuple[FloatArray, ...]
    two_way: PairTables
    unbiased: PairTables
    deviation: PairValues

    def margins(self, pairs: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the one-way shares of both attributes of pairs whose tables have one shape.

        Parameters
        ----------
        pairs : array_like of int, shape (T, 2)

        Returns
        -------
        ndarrays, shapes (T, c_i) and (T, c_j)
        """
        return _margins(np.concatenate(self.one_way), self.sizes, np.asarray(pairs, np.int64).reshape(-1, 2))


def consistent_tables(
    statistics: Statistics, *, adjustment: str = "least_squares", shrinkage: str = "empirical_bayes"
) -> ConsistentTables:
    """Make noisy tables consistent.

    Parameters
    ----------
    statistics : Statistics
        Tables over any cliques with any noise scales; an attribute that no table covers gets uniform shares.
    adjustment : {'least_squares', 'none'}
        'least_squares': every attribute's shares and the total are estimated from all tables that know about them,
        weighted by precision, and the two-way tables are moved (least squares) to these shares. 'none': one-way
        shares come from the one-way tables alone, as they are, negative cells set to 0: the published procedure.
    shrinkage : {'empirical_bayes', 'none'}
        'empirical_bayes': see `shrink_to_independence`. 'none': negative cells are set to 0.

    Returns
    -------
    ConsistentTables
        With `adjustment='none'`, two-way sums need not agree with one-way shares.

    Raises
    ------
    ArgumentError
        If an option is unknown, or a table's shape contradicts the sizes.

    Notes
    -----
    Privacy: none; post-processing.
    """
    if adjustment not in ADJUSTMENTS:
        raise ArgumentError("consistency", adjustment, f"one of {', '.join(map(repr, ADJUSTMENTS))}")
    if shrinkage not in SHRINKAGES:
        raise ArgumentError("shrinkage", shrinkage, f"one of {', '.join(map(repr, SHRINKAGES))}")
    with progress.stage("consistency"):
        given = _given(statistics)
        total, weighted, precisions = _sums(given)
        total = float(max(statistics.total, 0)) if statistics.total is not None else total
        rows = max(total, 1.0)
        least_squares = adjustment == "least_squares"
        counts = _one_way(given, weighted, precisions, rows, least_squares)
        unbiased, variance = _pairs(given)
        two_way = [_empty_like(stack) for stack in unbiased.stacks]
        for done, (members, here) in _chunks(unbiased.index, unbiased.stacks):
            stack = unbiased.stacks[here[0]][here[1]]
            a, b = _margins(counts, given.sizes, unbiased.pairs[members])
            moved = fit_margins_linearly(stack, a, b) if least_squares else stack
            shrunk = shrink_to_independence(moved, a, b, variance[members]) if shrinkage == "empirical_bayes" else moved
            fitted = fit_margins(shrunk, a, b) if least_squares else np.maximum(shrunk, 0.0)
            np.divide(fitted, rows, out=two_way[here[0]][here[1]])
            np.divide(moved, rows, out=stack)
            progress.advance(0.3 + 0.7 * done)
        shares = tuple(np.split(counts / rows, np.cumsum(given.sizes)[:-1])) if given.sizes else ()
        deviation = PairValues(unbiased.index, np.sqrt(variance) / rows)
        return ConsistentTables(given.sizes, total, shares, PairTables(unbiased.index, two_way), unbiased, deviation)


@dataclass(frozen=True)
class _Given:
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
            for part in _slices(len(places), cells):
                counts = self.tables.stack(places[part], shape)
                done += counts.size
                progress.advance(0.15 * done / whole)
                small = len(shape) == 2 and cell_by_cell((shape[0], shape[1]))
                ordered = np.ascontiguousarray(np.moveaxis(counts, 0, -1), dtype=np.float64) if small else counts.astype(np.float64)
                yield places[part], cliques[part], np.moveaxis(ordered, -1, 0) if small else ordered


def _given(statistics: Statistics) -> _Given:
    """Lay the tables out in one array; refuse tables whose shape is not the domain's."""
    sizes, tables, scales = tuple(statistics.sizes), statistics.tables, statistics.scales
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
    distinct, which = np.unique(numbers, return_inverse=True)
    variances = np.asarray([max(noise_variance(scale, statistics.mechanism), _SMALLEST_VARIANCE) for scale in distinct.tolist()])
    return _Given(sizes, tables, variances[which], list(tables.by_shape()))


def _slices(tables: int, cells: int) -> Iterator[slice]:
    step = max(_CHUNK // max(cells, 1), 1)
    for start in range(0, tables, step):
        yield slice(start, min(start + step, tables))


def _sums(given: _Given) -> tuple[float, FloatArray, FloatArray]:
    """Sum up what all tables say, weighted by precision.

    Returns
    -------
    total : float
        Precision-weighted mean of the tables' sums, at least 0.
    weighted : ndarray, shape (D,)
        Precision times counts of each code, summed over all tables with its attribute.
    precisions : ndarray, shape (m,)
        Sum of those precisions.
    """
    m, codes, starts = len(given.sizes), sum(given.sizes), given.starts
    weighted, precisions = np.zeros(codes), np.zeros(m)
    sums = weights = 0.0
    for places, cliques, counts in given.chunks():
        axes, cells = tuple(range(1, counts.ndim)), counts[0].size
        weight = 1.0 / (given.variances[places] * cells)
        sums += float(weight @ counts.sum(axis=axes))
        weights += float(weight.sum())
        for axis in axes:
            summed, size = counts.sum(axis=tuple(other for other in axes if other != axis)), counts.shape[axis]
            precision = weight * size
            code = starts[cliques[:, axis - 1]][:, None] + np.arange(size)
            weighted += np.bincount(code.ravel(), (precision[:, None] * summed).ravel(), codes)
            precisions += np.bincount(cliques[:, axis - 1], precision, m)
    return max(sums / weights, 0.0) if weights else 0.0, weighted, precisions


def _one_way(given: _Given, weighted: FloatArray, precisions: FloatArray, rows: float, least_squares: bool) -> FloatArray:
    """Estimate the counts of all codes, shape (D,): tables' sums by precision, then the simplex of `rows` for each attribute."""
    found = np.empty(sum(given.sizes))
    alone = {}
    if not least_squares:
        alone = {i: place for places, cliques, shape in given.groups if len(shape) == 1
                 for place, (i,) in zip(places.tolist(), cliques.tolist(), strict=True)}  # fmt: skip
    for i, (start, size) in enumerate(zip(given.starts.tolist(), given.sizes, strict=True)):
        codes = slice(start, start + size)
        if i in alone:
            first = given.tables.offsets[alone[i]]
            found[codes] = np.clip(given.tables.flat[first : first + size].astype(np.float64), 0.0, rows)
        elif precisions[i] == 0.0:
            found[codes] = rows / size
        else:
            estimate = weighted[codes] / precisions[i]
            found[codes] = simplex_projection(estimate + (rows - estimate.sum()) / size, rows)
    return found


def _pairs(given: _Given) -> tuple[PairTables, FloatArray]:
    """Return two-way tables, the precision-weighted mean of all tables that contain the pair, and their variances."""
    m, wide = len(given.sizes), [cliques for _, cliques, shape in given.groups if len(shape) > 1]
    keys = [c[:, a] * m + c[:, b] for c in wide for a, b in itertools.combinations(range(c.shape[1]), 2)]
    ordered = np.sort(np.concatenate([np.zeros(0, np.int64), *keys]))
    distinct = ordered[np.diff(ordered, prepend=-1) > 0]
    index = Pairs(given.sizes, np.stack(np.divmod(distinct, max(m, 1)), axis=1))
    stacks = [empty_stack(members.size, shape) for members, shape in zip(index.members, index.shapes, strict=True)]
    for stack in stacks:
        stack[...] = 0.0
    precisions = np.zeros(len(index))
    for places, cliques, counts in given.chunks():
        cells = counts[0].size
        for a, b in itertools.combinations(range(cliques.shape[1]), 2):
            others = tuple(axis for axis in range(1, counts.ndim) if axis not in (a + 1, b + 1))
            collapsed = counts.sum(axis=others) if others else counts
            precision = collapsed[0].size / (given.variances[places] * cells)
            positions = index.positions(cliques[:, (a, b)])
            precisions += np.bincount(positions, precision, len(index)) if others else 0.0
            if not others:  # tables over distinct pairs
                precisions[positions] += precision
            collapsed = precision[:, None, None] * collapsed
            _add(stacks[int(index.shape_of[positions[0]])], index.rank[positions], collapsed)
    for members, stack in zip(index.members, stacks, strict=True):
        stack /= precisions[members][:, None, None]
    return PairTables(index, stacks), 1.0 / precisions


def _add(stack: FloatArray, rows: IntArray, tables: FloatArray) -> None:
    """Add tables to those of a stack, some of them perhaps to the same."""
    steps = np.diff(rows)
    if (steps == 1).all():
        stack[int(rows[0]) : int(rows[0]) + rows.size] += tables
        return
    order = np.argsort(rows, kind="stable")
    starts = np.flatnonzero(np.concatenate([[True], np.diff(rows[order]) > 0]))
    stack[rows[order][starts]] += np.add.reduceat(tables[order], starts, axis=0) if starts.size < rows.size else tables[order]


def _chunks(index: Pairs, stacks: Sequence[FloatArray]) -> Iterator[tuple[float, tuple[IntArray, tuple[int, slice]]]]:
    """Yield the share of cells that are done with this chunk, its pairs' positions, and where its tables are: stack, slice."""
    done, whole = 0, max(sum(stack.size for stack in stacks), 1)
    for number, (members, stack) in enumerate(zip(index.members, stacks, strict=True)):
        cells = stack[0].size
        for part in _slices(len(stack), cells):
            done += (part.stop - part.start) * cells
            yield done / whole, (members[part], (number, part))


def _empty_like(stack: FloatArray) -> FloatArray:
    return empty_stack(len(stack), (stack.shape[1], stack.shape[2]))


def _margins(counts: FloatArray, sizes: Sequence[int], pairs: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the counts of the codes of both attributes, shapes (T, c_i) and (T, c_j), in the memory order of stacks of tables."""
    starts = np.cumsum(sizes) - sizes
    if not len(pairs):
        return np.zeros((0, 0)), np.zeros((0, 0))
    shape = (sizes[int(pairs[0, 0])], sizes[int(pairs[0, 1])])
    if cell_by_cell(shape):
        a, b = (counts[np.arange(size)[:, None] + starts[column]].T for size, column in zip(shape, pairs.T, strict=True))
    else:
        a, b = (counts[starts[column][:, None] + np.arange(size)] for size, column in zip(shape, pairs.T, strict=True))
    return a, b


__all__ = [
    "ADJUSTMENTS", "SHRINKAGES", "ConsistentTables", "consistent_tables", "fit_margins", "fit_margins_linearly", "noise_variance",
    "shrink_to_independence", "simplex_projection",
]  # fmt: skip
