"""Shares of units by families of rows: the exact blocks of linked tables, counted family by family in bounded memory.

Every row has a weight. A row of the root, which is a unit, has W. A row that is one of k rows of its parent in its table has the
weight of the parent's row divided by k, rounded down. A row is counted in the cells of its own columns with its weight; a pair of
different rows of one parent's row, in order, with the weight of the parent's row divided by k (k - 1), rounded down. Where rows
stand in an order, the first of each family is counted with the weight of the parent's row, and two neighbours of the k' rows that
stand in it with that divided by k' - 1, rounded down.

What a unit adds to a block, in absolute value over all cells
-------------------------------------------------------------
Claim: at most W, for every block. Proof. The k rows of a parent's row of weight w have k floor(w / k) <= w together. So, by
induction from the root down, the weights of a unit's rows in one table add up to at most W, since the table's rows of that unit
are the disjoint families of the unit's rows in the parent table.

- ``one``, ``pair``: each row of table t adds its weight to one cell. ``across``: each row of t adds its weight to one cell,
  that of its own value and of its one ancestor's. Both: at most W.
- ``sibling``: a parent's row of weight w with k >= 2 rows has k (k - 1) ordered pairs of different rows, and each adds
  floor(w / (k (k - 1))) to one cell: at most w. The parent's rows of a unit add up to at most W. Where both columns are the same
  the table is folded, (x, y) and (y, x) are one cell: what is added to it is added once.
- A block that is split by groups has a table for each group of parent rows by their number of rows, k (or of rows above them by
  theirs). Every row, and every pair, is of one parent's row, and so in one group: it adds its weight to one cell of one of these
  tables. Where groups begin was decided by what was released before (`dpsql.kinds.linked.measure`), and is the same for both
  databases then.
- ``first``: a parent's row of weight w adds w to one cell, or nothing. ``next``, ``gap``: of k' >= 2 rows each but the last adds
  floor(w / (k' - 1)) to one cell: at most w. The parent's rows of a unit add up to at most W.

Lemma for independent tables (`LinkedPlan.independent`): a row of a parent's row of weight w weighs floor(w / m) instead, m the
most rows that a parent's row may have (``max_rows``, which is public), and there are blocks ``one`` and ``pair`` alone. The claim
holds as it stands: of a parent's row k <= m rows are kept, so they have k floor(w / m) <= w together, and each adds its weight to
one cell. All rows of a table then weigh the same, floor(W / product of the m on the way): a block is a table of counts of rows.
The blocks of all tables are one composition of mechanisms of sensitivity W, whose scales are those that were charged for.

The order of a family's rows is that of the values of a column, and of equal values that of all codes of the row, the numbers of its
children among them. Rows that are equal in both may stand either way: the tables are the same. So it is a function of the unit's
rows alone, and not of where they stand in the table. Rows without a value stand in no order, and are not among the k'.

All numbers are integers that are not negative, so a block of the database with a unit and one without all of its rows differ by
at most W in L1, and so in L2: that of a table of counts, times W, in which every unit has one row. Where a unit is replaced by
another one the difference is x - y with x, y >= 0, and |x|, |y| <= W in L2: at most 2 W in L1, sqrt(2) W in L2. Weights do not
cross units: each is a function of the unit's own rows, and so are the rows that are kept (`dpsql.measure.linked`).

Exactness: sums of a chunk are float64 products of integers. An entry of a chunk is at most 2 W times the units in it
(k^2 / (k (k - 1)) <= 2), which is checked to be below 2^53; chunks are added up as int64.

Privacy: exact, secret numbers.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpsql.methods.nested_classes import GAPS, ORDERED, Block, folded
from dpsql.numerics.arrays import FloatArray, IntArray
from dpsql.numerics.products import multiplies
from dpsql.release.linked import WEIGHTS, LinkedPlan
from dpsql.release.ordered import gap_cells

_EXACT = 1 << 53
_HOT = 1 << 22
"""Numbers of a matrix of families by codes that are made at once."""
FEWEST_UNITS = _EXACT // (2 * WEIGHTS[-1])
"""Units of a chunk that are few enough for any weight."""
Place = tuple[int, int]


@dataclass(frozen=True)
class Rows:
    """Rows of one table in a chunk; those of a parent's row need not stand together.

    Parameters
    ----------
    codes : int array, shape (columns of the domain, rows)
    parent : int array, shape (rows,)
        Place of the parent's row among the parent table's rows of this chunk; empty for the root.
    order : ndarray, shape (rows,), optional
        What rows of one parent's row are ordered by; NaN: the row stands in no order.
    """

    codes: IntArray
    parent: IntArray
    order: FloatArray | None = None

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self.codes.shape[1])


class Families:
    """Adds up the blocks of a plan, chunk by chunk.

    Parameters
    ----------
    plan : LinkedPlan
    """

    def __init__(self, plan: LinkedPlan) -> None:
        self._plan, self._shape = plan, plan.shape
        self._sizes = [tuple(self._shape.extended(place)) for place in range(len(plan.tables))]
        self._cells = [np.zeros(shape, np.int64) for shape in plan.shapes]
        self._siblings: dict[int, list[int]] = defaultdict(list)
        for place, block in enumerate(plan.blocks):
            if block.kind == "sibling":
                self._siblings[block.left[0]].append(place)

    @cached_property
    def most_units(self) -> int:
        """Units of a chunk, at most: beyond, sums could be inexact."""
        return (_EXACT - 1) // (2 * self._plan.weight)

    def add(self, tables: Sequence[Rows]) -> None:
        """Add a chunk: whole units, with all their kept rows.

        Raises
        ------
        ValueError
            There are too many units, or a family is larger than it may be: a fault of the caller.
        """
        if tables[0].count > self.most_units:
            raise ValueError("too many units at once: sums would not be exact")
        chunk = _Chunk(self._plan, self._sizes, tables)
        for place, block in enumerate(self._plan.blocks):
            if block.kind == "one":
                self._cells[place] += chunk.one(block.left)
            elif block.kind in ORDERED:
                self._cells[place] += chunk.ordered(block)
            elif block.right is not None and block.kind != "sibling":
                self._cells[place] += chunk.pair(block.left, block.right, split=block.split(self._shape))
        for table, places in self._siblings.items():
            starts = np.concatenate([[0], np.cumsum(self._sizes[table])])
            for group, products in chunk.siblings(table):
                for place in places:
                    block = self._plan.blocks[place]
                    (_, i), (_, j) = block.left, block.right or block.left
                    pairs = products[starts[i] : starts[i + 1], starts[j] : starts[j + 1]].astype(np.int64)
                    pairs -= chunk.same(table, i, j, group)
                    into = self._cells[place]
                    if block.split(self._shape):
                        into = into[group]
                    into += folded(pairs) if block.folded else pairs

    def flat(self) -> IntArray:
        """Return the cells of all blocks, one block after the other, in the order of the plan."""
        return np.concatenate([cells.reshape(-1) for cells in self._cells])


@dataclass(frozen=True)
class _Line:
    """Rows of a table in order: `rows`, where in it families start, which have one of their family after them, rows by parent."""

    rows: IntArray
    starts: IntArray
    follows: IntArray
    count: IntArray


class _Chunk:
    """Weights, family sizes and ancestors of the rows of a chunk, each made once."""

    def __init__(self, plan: LinkedPlan, sizes: Sequence[tuple[int, ...]], tables: Sequence[Rows]) -> None:
        self._plan, self._sizes, self._tables = plan, sizes, tables
        self._above: dict[Place, IntArray] = {}
        self._lines: dict[int, _Line] = {}
        self._grouped: dict[int, IntArray] = {}
        self._alike: dict[tuple[Place, Place], IntArray] = {}
        self._left: tuple[object, IntArray] = (None, np.zeros(0, np.int64))
        counts = [(rows.count, rows.parent) for rows in tables]
        self._families = [families(plan, place, counts) for place in range(len(tables))]
        self.weights = weighted(plan, counts)
        self._floats = [weights.astype(np.float64) for weights in self.weights]  # exact: at most W
        self._paired: dict[int, FloatArray] = {}
        self._columns = [
            [*(rows.codes[i] for i in range(rows.codes.shape[0])), *(self._families[child] for child in plan.children(place))]
            for place, rows in enumerate(tables)
        ]

    def _parent(self, table: int) -> int:
        above = self._plan.tables[table].parent
        if above is None:
            raise ValueError("the root has no parent")
        return above

    def one(self, place: Place) -> IntArray:
        """Return the weight of the rows of each code."""
        (t, i) = place
        return _summed(self._columns[t][i], self._floats[t], self._sizes[t][i])

    def pair(self, left: Place, right: Place, *, split: bool) -> IntArray:
        """Return the weight of the rows of the right table by their code, and their own or their ancestor's code of the left.

        ``split``: by groups of their parent rows, on the first axis.
        """
        sums = self._table(left, right, self._floats[right[0]], split=split)
        return sums if split else sums[0]

    def _table(self, left: Place, right: Place, weights: FloatArray, *, split: bool) -> IntArray:
        """Return sums of weights of rows by both codes, and by groups; one group, where it is not split."""
        (a, i), (t, j) = left, right
        m, n, groups = self._sizes[a][i], self._sizes[t][j], self._plan.shape.group_count(t) if split else 1
        if self._left[0] != (left, t, split):  # the blocks of one left column stand together
            codes = self._columns[a][i] if a == t else self._columns[a][i][self._ancestor(a, t)]
            self._left = (left, t, split), (self._rows_groups(t) * m + codes if split else codes)
        cells = self._left[1] * n
        cells += self._columns[t][j]
        return _summed(cells, weights, groups * m * n).reshape(groups, m, n)

    def _rows_groups(self, table: int) -> IntArray:
        """Return the group of each row of a table."""
        if table not in self._grouped:
            self._grouped[table] = self._groups(table)[self._tables[table].parent]
        return self._grouped[table]

    def _groups(self, table: int) -> IntArray:
        """Return the group that a table's rows of each parent's row are in: by their number, or that of the parent's row."""
        shape = self._plan.shape
        if shape.tables[table].groups:
            return shape.tables[table].group_of(self._families[table])
        return self._rows_groups(self._parent(table))

    def _ancestor(self, a: int, t: int) -> IntArray:
        """Return the place of the row of table a above each row of table t."""
        if (a, t) not in self._above:
            above, parent = self._parent(t), self._tables[t].parent
            self._above[a, t] = parent if above == a else self._ancestor(a, above)[parent]
        return self._above[a, t]

    def _shares(self, table: int) -> IntArray:
        """Return the weight of a pair of rows of each parent's row; 0 where it has fewer than two."""
        count, weights = self._families[table], self.weights[self._parent(table)]
        return np.where(count > 1, shared(weights, count * (count - 1)), 0)

    def ordered(self, block: Block) -> IntArray:
        """Return the weight of the first rows by their code, or of neighbours by both codes or how far they are apart."""
        (t, i), size = block.left, self._sizes[block.left[0]][block.left[1]]
        if t not in self._lines:
            self._lines[t] = self._line(t)
        line, column = self._lines[t], self._columns[t][i]
        above = self.weights[self._parent(t)]
        if block.kind == "first":
            first = line.rows[line.starts]
            return _summed(column[first], above[self._tables[t].parent[first]], size)
        before, after = line.rows[line.follows], line.rows[line.follows + 1]
        parent = self._tables[t].parent[before]
        shares = shared(above[parent], line.count[parent] - 1)
        if block.kind == "next":
            return _summed(column[before] * size + column[after], shares, size * size).reshape(size, size)
        order = self._tables[t].order
        if order is None:
            raise ValueError("a table without an order has no distances")
        attribute = self._plan.tables[t].domain.attributes[i]
        return _summed(gap_cells(attribute, order[after] - order[before]), shares, GAPS)

    def _line(self, table: int) -> _Line:
        """Return the rows of a table in order, family by family, those that stand in no order left out."""
        rows, order = self._tables[table], self._tables[table].order
        if order is None:
            raise ValueError("a table without an order has no first rows")
        kept = np.flatnonzero(~np.isnan(order))
        parent = rows.parent[kept]
        placed = kept[np.lexsort((*(column[kept] for column in self._columns[table]), order[kept], parent))]
        parent = rows.parent[placed]
        same = parent[1:] == parent[:-1]
        starts = np.flatnonzero(np.concatenate([np.ones(min(placed.size, 1), bool), ~same]))
        count = np.bincount(parent, minlength=self._tables[self._parent(table)].count)
        return _Line(placed, starts, np.flatnonzero(same), count)

    def siblings(self, table: int) -> Iterator[tuple[int, FloatArray]]:
        """Yield for each group the sum over its families of share times the product of the numbers of rows of every two codes.

        Shape (D, D), D the number of codes of all columns: rows that are paired with themselves are among them, see `same`.
        """
        shares, groups = self._shares(table), self._groups(table)
        for group in range(self._plan.shape.group_count(table)):
            yield group, self._products(table, np.where(groups == group, shares, 0))

    @multiplies
    def _products(self, table: int, shares: IntArray) -> FloatArray:
        sizes = self._sizes[table]
        starts, width = np.concatenate([[0], np.cumsum(sizes)[:-1]]), sum(sizes)
        large = np.flatnonzero(shares)
        number = np.full(shares.size, -1, np.int64)
        number[large] = np.arange(large.size)
        family = number[self._tables[table].parent]
        kept = np.flatnonzero(family >= 0)
        order = kept[np.argsort(family[kept], kind="stable")]
        family, columns = family[order], [column[order] for column in self._columns[table]]
        sums = np.zeros((width, width))
        step = max(_HOT // width, 1)
        for first in range(0, large.size, step):
            last = min(first + step, large.size)
            rows = slice(*np.searchsorted(family, [first, last]))
            base = (family[rows] - first) * width
            cells = np.concatenate([base + (start + column[rows]) for start, column in zip(starts, columns, strict=True)])
            hot = np.bincount(cells, minlength=(last - first) * width).reshape(last - first, width).astype(np.float64)
            sums += (hot * shares[large[first:last], None]).T @ hot
        return sums

    def same(self, table: int, i: int, j: int, group: int) -> IntArray:
        """Return what rows of a group that are paired with themselves add to `siblings`."""
        left, right = (table, i), (table, j)
        if (left, right) not in self._alike:
            if table not in self._paired:
                self._paired[table] = self._shares(table)[self._tables[table].parent].astype(np.float64)
            self._alike[left, right] = self._table(left, right, self._paired[table], split=True)
        sums: IntArray = self._alike[left, right][group]
        return sums


def families(plan: LinkedPlan, place: int, rows: Sequence[tuple[int, IntArray]]) -> IntArray:
    """Return how many rows of a table each row of its parent has; nothing for the root.

    Parameters
    ----------
    rows : sequence of (number, parent)
        Of each table, as `Rows` has them.

    Raises
    ------
    ValueError
        A family is larger than it may be.
    """
    above, table = plan.tables[place].parent, plan.tables[place]
    if above is None:
        return np.zeros(0, np.int64)
    sizes = np.bincount(rows[place][1], minlength=rows[above][0])
    if sizes.size != rows[above][0] or (sizes.size and int(sizes.max()) > table.most):
        raise ValueError("a family is larger than it may be")
    return sizes


def weighted(plan: LinkedPlan, rows: Sequence[tuple[int, IntArray]]) -> list[IntArray]:
    """Return the weight of every row of each table; ``rows`` as in `families`, which refuses families that are too large."""
    weights = [np.full(rows[0][0], plan.weight, np.int64)]
    for place, table in enumerate(plan.tables[1:], start=1):
        among = families(plan, place, rows)
        among = np.full_like(among, table.most) if plan.independent else among
        weights.append(shared(weights[table.parent or 0], among)[rows[place][1]])
    return weights


def shared(weights: IntArray, among: IntArray) -> IntArray:
    """Return the weight that each of so many has, rounded down: together they have the weight at most."""
    return weights // np.maximum(among, 1)


def _summed(codes: IntArray, weights: IntArray | FloatArray, size: int) -> IntArray:
    """Add up weights by code: float64 sums of integers, exact below 2^53."""
    return np.bincount(codes, weights, size).astype(np.int64)


def chunks(units: int, most: int) -> list[tuple[int, int]]:
    """Return the ranges of units that are read together.

    Examples
    --------
    >>> chunks(5, 2), chunks(0, 2)
    ([(0, 2), (2, 4), (4, 5)], [])
    """
    edges = [*range(0, units, most), units]
    return [pair for pair in itertools.pairwise(edges) if pair[0] < pair[1]]
