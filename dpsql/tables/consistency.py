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

import numpy as np
import numpy.typing as npt

from dpsql.errors import ArgumentError
from dpsql.numerics.arrays import FloatArray, IntArray
from dpsql.running import progress
from dpsql.tables.margins import fit_margins, fit_margins_linearly, shrink_to_independence, simplex_projection
from dpsql.tables.measured import Measured, Sums, laid_out, slices, summed
from dpsql.tables.pairs import Pairs, PairTables, PairValues, cell_by_cell, empty_stack
from dpsql.tables.statistics import Statistics
from dpsql.tables.variance import noise_variance

ADJUSTMENTS = ("least_squares", "none")
SHRINKAGES = ("empirical_bayes", "none")


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
        measured = laid_out(statistics.sizes, statistics.tables, statistics.scales, statistics.mechanism)
        # With fine histograms `dpsql.tables.tails` has asked for the sums already.
        sums = statistics.sums if statistics.fine else summed(measured)
        total = float(max(statistics.total, 0)) if statistics.total is not None else sums.total
        rows = max(total, 1.0)
        least_squares = adjustment == "least_squares"
        counts = _one_way(measured, sums, rows, least_squares)
        unbiased, variance = _pairs(measured)
        two_way = [_empty_like(stack) for stack in unbiased.stacks]
        for done, (members, here) in _chunks(unbiased.index, unbiased.stacks):
            stack = unbiased.stacks[here[0]][here[1]]
            a, b = _margins(counts, measured.sizes, unbiased.pairs[members])
            moved = fit_margins_linearly(stack, a, b) if least_squares else stack
            shrunk = shrink_to_independence(moved, a, b, variance[members]) if shrinkage == "empirical_bayes" else moved
            fitted = fit_margins(shrunk, a, b) if least_squares else np.maximum(shrunk, 0.0)
            np.divide(fitted, rows, out=two_way[here[0]][here[1]])
            np.divide(moved, rows, out=stack)
            progress.advance(0.3 + 0.7 * done)
        shares = tuple(np.split(counts / rows, np.cumsum(measured.sizes)[:-1])) if measured.sizes else ()
        deviation = PairValues(unbiased.index, np.sqrt(variance) / rows)
        return ConsistentTables(measured.sizes, total, shares, PairTables(unbiased.index, two_way), unbiased, deviation)


def _one_way(measured: Measured, sums: Sums, rows: float, least_squares: bool) -> FloatArray:
    """Estimate the counts of all codes, shape (D,): tables' sums by precision, then the simplex of `rows` for each attribute."""
    counts = np.empty(sum(measured.sizes))
    alone = {}
    # Without least squares the table of a column alone says what its codes have; no sums are reconciled.
    if not least_squares:
        alone = {i: place for places, cliques, shape in measured.groups if len(shape) == 1
                 for place, (i,) in zip(places.tolist(), cliques.tolist(), strict=True)}
    for i, (start, size) in enumerate(zip(measured.starts.tolist(), measured.sizes, strict=True)):
        codes = slice(start, start + size)
        if i in alone:
            first = measured.tables.offsets[alone[i]]
            counts[codes] = np.clip(measured.tables.flat[first : first + size].astype(np.float64), 0.0, rows)
        elif sums.precisions[i] == 0.0:
            counts[codes] = rows / size
        else:
            estimate = sums.counts(i)
            shown = estimate != 0.0  # `dpsql.tables.tails` has taken the rows of the others: noise of the total gives them none
            even = shown / shown.sum() if shown.any() else 1.0 / size
            counts[codes] = simplex_projection(estimate + (rows - estimate.sum()) * even, rows)
    return counts


def _pairs(measured: Measured) -> tuple[PairTables, FloatArray]:
    """Return two-way tables, the precision-weighted mean of all tables that contain the pair, and their variances."""
    m, wide = len(measured.sizes), [cliques for _, cliques, shape in measured.groups if len(shape) > 1]
    keys = [c[:, a] * m + c[:, b] for c in wide for a, b in itertools.combinations(range(c.shape[1]), 2)]
    ordered = np.sort(np.concatenate([np.zeros(0, np.int64), *keys]))
    distinct = ordered[np.diff(ordered, prepend=-1) > 0]
    index = Pairs(measured.sizes, np.stack(np.divmod(distinct, max(m, 1)), axis=1))
    stacks = [empty_stack(members.size, shape) for members, shape in zip(index.members, index.shapes, strict=True)]
    for stack in stacks:
        stack[...] = 0.0
    precisions = np.zeros(len(index))
    for places, cliques, counts in measured.chunks():
        cells = counts[0].size
        for a, b in itertools.combinations(range(cliques.shape[1]), 2):
            others = tuple(axis for axis in range(1, counts.ndim) if axis not in (a + 1, b + 1))
            collapsed = counts.sum(axis=others) if others else counts
            # A pair's cell in a larger table is a sum of noisy cells: the more of them, the less precise.
            precision = collapsed[0].size / (measured.variances[places] * cells)
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
        for part in slices(len(stack), cells):
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
]
