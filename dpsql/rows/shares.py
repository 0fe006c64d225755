"""Shares of units in families of synthetic rows: what the blocks of a release of linked tables would be without noise.

Privacy: post-processing; the rows are drawn from a release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dpsql.methods.nested_classes import GAPS, Block, Drawn, folded
from dpsql.numerics.arrays import FloatArray, IntArray
from dpsql.numerics.products import multiplies
from dpsql.release.linked import LinkedPlan
from dpsql.release.ordered import gap_cells


def counts(linked: LinkedPlan, blocks: Sequence[Block], parts: Iterable[Sequence[Drawn]]) -> list[FloatArray]:
    """Return the tables of some blocks, in numbers of units.

    Parameters
    ----------
    linked : LinkedPlan
    blocks : sequence of Block
        As `dpsql.methods.nested_classes.Block` defines them.
    parts : iterable of sequences of Drawn
        Whole units; a sequence holds all tables.

    Returns
    -------
    list of float arrays
        Of the blocks' shapes. Every unit adds 1 to a block at most; of independent tables every row adds 1.
    """
    tables = [np.zeros(block.shape(linked.shape)) for block in blocks]
    for drawn in parts:
        part = _Part(linked, drawn)
        for table, block in zip(tables, blocks, strict=True):
            table += part.count(block)
    return tables


class _Part:
    """Rows of some units, with their weights."""

    def __init__(self, linked: LinkedPlan, drawn: Sequence[Drawn]) -> None:
        self._linked, self._shape, self._drawn = linked, linked.shape, drawn
        self._children: list[IntArray] = [np.ones(0, np.int64)]
        self._groups: list[IntArray] = [np.zeros(0, np.int64)]
        """Of parents' rows, by their number of rows of a table."""
        self._weights: list[FloatArray] = [np.ones(len(drawn[0].codes))]
        for t, table in enumerate(linked.tables[1:], 1):
            above, parent = table.parent or 0, drawn[t].parent
            self._children.append(np.bincount(parent, minlength=len(drawn[above].codes)))
            own = self._shape.tables[t]
            # Each table measured by itself counts rows, not units.
            self._groups.append(own.group_of(self._children[t]) if own.groups else self._groups[above][drawn[above].parent])
            among = np.ones(1) if linked.independent else np.maximum(self._children[t], 1)
            self._weights.append((self._weights[above] / among)[parent])
        self._lines: Mapping[int, tuple[IntArray, IntArray, IntArray, IntArray]] = {
            t: self._line(t) for t, rows in enumerate(drawn) if rows.order is not None
        }

    def _line(self, table: int) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return the first ordered row of each parent, rows with one after them, those after, and how many each parent has."""
        rows = self._drawn[table]
        assert rows.order is not None  # noqa: S101 -- for the type checker
        known = np.flatnonzero(~np.isnan(rows.order))
        known = known[np.lexsort((rows.order[known], rows.parent[known]))]
        whose = rows.parent[known]
        new = np.ones(known.size, np.bool_)
        new[1:] = whose[1:] != whose[:-1]
        after = np.flatnonzero(~new)
        return known[new], known[after - 1], known[after], np.bincount(whose, minlength=len(self._above(table)))

    def _above(self, table: int) -> FloatArray:
        """Return the weights of the rows of a table's parent."""
        return self._weights[self._linked.tables[table].parent or 0]

    def _codes(self, place: tuple[int, int]) -> IntArray:
        return self._drawn[place[0]].codes[:, place[1]].astype(np.int64)

    def count(self, block: Block) -> FloatArray:
        """Return one block's table."""
        (t, i), (u, j) = block.left, block.right or block.left
        shape = tuple(block.shape(self._shape))
        if block.kind == "one":
            return _summed(shape, self._weights[t], self._codes(block.left))
        group = [self._groups[u][self._drawn[u].parent]] if block.split(self._shape) else []
        if block.kind == "pair":
            return _summed(shape, self._weights[t], *group, self._codes((t, i)), self._codes((u, j)))
        if block.kind == "across":
            # Up to the row above, table by table.
            at = np.arange(len(self._drawn[u].codes))
            for step in reversed(self._shape.path(u)[self._shape.path(u).index(t) + 1 :]):
                at = self._drawn[step].parent[at]
            return _summed(shape, self._weights[u], *group, self._codes((t, i))[at], self._codes((u, j)))
        if block.kind == "sibling":
            sizes = self._shape.extended(t)
            groups = [self._groups[t] == g for g in range(shape[0])] if block.split(self._shape) else [np.True_]
            tables = np.stack([self._siblings(t, i, j, (sizes[i], sizes[j]), some) for some in groups])
            return (folded(tables) if block.folded else tables).reshape(shape)
        return self._ordered(block, shape)

    @multiplies
    def _siblings(self, t: int, i: int, j: int, shape: tuple[int, int], some: npt.NDArray[np.bool_] | np.bool_) -> FloatArray:
        """Every ordered pair of different rows of some parents; all pairs but those of a row with itself."""
        parent, families = self._drawn[t].parent, self._children[t]
        weights = np.where(some & (families > 1), self._above(t) / np.maximum(families * (families - 1), 1), 0.0)
        left, right = self._codes((t, i)), self._codes((t, j))
        own = np.ones(parent.size)
        a = sparse.csr_array((own, (parent, left)), shape=(families.size, shape[0]))
        b = sparse.csr_array((weights[parent], (parent, right)), shape=(families.size, shape[1]))
        every = np.asarray((a.T @ b).todense(), np.float64)
        return every - _summed(shape, weights[parent], left, right)

    def _ordered(self, block: Block, shape: tuple[int, ...]) -> FloatArray:
        (t, i), rows = block.left, self._drawn[block.left[0]]
        first, before, after, families = self._lines[t]
        if block.kind == "first":
            return _summed(shape, self._above(t)[rows.parent[first]], self._codes((t, i))[first])
        # A family of n rows has n - 1 pairs of neighbours, which share its weight.
        whose = rows.parent[before]
        weights = self._above(t)[whose] / np.maximum(families[whose] - 1, 1)
        if block.kind == "next":
            codes = self._codes((t, i))
            return _summed(shape, weights, codes[before], codes[after])
        assert rows.order is not None  # noqa: S101 -- for the type checker
        cells = gap_cells(self._linked.tables[t].domain.attributes[i], rows.order[after] - rows.order[before])
        return _summed((GAPS,), weights, cells)


def _summed(shape: tuple[int, ...], weights: FloatArray, *codes: IntArray) -> FloatArray:
    """Return the sums of weights by cell."""
    size = int(np.prod(shape))
    flat = np.ravel_multi_index(codes, shape) if weights.size else np.zeros(0, np.int64)
    return np.bincount(flat, weights, size).reshape(shape).astype(np.float64)
