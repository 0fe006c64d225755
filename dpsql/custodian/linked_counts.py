"""Exact tables of linked rows, from codes: pairs of columns along a link, and between rows of one parent. NOT PRIVATE.

Everything here is arithmetic on arrays of codes: no SQL. A database is a list of `Codes`, the root first, parents before children.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dpsql.numerics.arrays import FloatArray, IntArray
from dpsql.numerics.products import multiplies

_CELLS = 1 << 22  # of one block of parents: 32 MB


@dataclass(frozen=True)
class Codes:
    """The rows of one table that have a parent, as codes.

    Parameters
    ----------
    columns : tuple of integer arrays, each (rows,)
        Code of each column, 0 to its size - 1.
    sizes : tuple of int
    parent : integer array (rows,) or None
        Position of each row's parent; None for the root.
    above : int or None
        Position of the parent's table in the database.
    values : dict of int to float array (rows,)
        Values of the numeric columns by position; NaN where there is none.
    rows : int
    order : float array (rows,) or None
        What rows of one parent are ordered by; NaN: the row stands in no order.
    """

    columns: tuple[npt.NDArray[np.integer], ...]
    sizes: tuple[int, ...]
    rows: int
    parent: IntArray | None = None
    above: int | None = None
    values: dict[int, FloatArray] = field(default_factory=dict)
    order: FloatArray | None = None

    @property
    def linked(self) -> tuple[IntArray, int]:
        """`parent` and `above` of a table that is not the root."""
        if self.parent is None or self.above is None:
            raise ValueError("the root has no parent")
        return self.parent, self.above


Database = Sequence[Codes]


def numbers_of_children(database: Database, child: int) -> IntArray:
    """Return how many rows of a table each row of its parent has, (rows of the parent,)."""
    parent, above = database[child].linked
    return np.bincount(parent, minlength=database[above].rows)


def weights(database: Database, position: int) -> FloatArray:
    """Return the share of its unit that each row has: of the root 1, of a child its parent's over the number of its siblings.

    Examples
    --------
    >>> root = Codes((), (), 2)
    >>> child = Codes((), (), 3, parent=np.array([0, 1, 1]), above=0)
    >>> weights([root, child], 1)
    array([1. , 0.5, 0.5])
    """
    if database[position].parent is None:
        return np.ones(database[position].rows)
    parent, above = database[position].linked
    share = weights(database, above) / np.maximum(numbers_of_children(database, position), 1)
    return np.asarray(share[parent], dtype=np.float64)


def rows_above(database: Database, position: int, ancestor: int) -> IntArray:
    """Return the position of each row's ancestor in the ancestor's table, (rows,)."""
    rows, at = np.arange(database[position].rows), position
    while at != ancestor:
        parent, at = database[at].linked
        rows = parent[rows]
    return rows


def ancestors(database: Database, position: int) -> list[int]:
    """Return the tables above one, the parent first."""
    chain: list[int] = []
    above = database[position].above
    while above is not None:
        chain.append(above)
        above = database[above].above
    return chain


def crossed(
    left: npt.NDArray[np.integer],
    right: npt.NDArray[np.integer],
    shape: tuple[int, int],
    weight: FloatArray | None = None,
) -> FloatArray:
    """Return the table of two columns of the same rows, of float64.

    Examples
    --------
    >>> crossed(np.array([0, 1, 1]), np.array([1, 0, 0]), (2, 2))
    array([[0., 1.],
           [2., 0.]])
    """
    places = left.astype(np.int64) * shape[1] + right
    return np.bincount(places, weights=weight, minlength=shape[0] * shape[1]).astype(np.float64).reshape(shape)


def distance(first: FloatArray, second: FloatArray) -> float:
    """Return the total variation distance of two tables of counts, each as shares of its own total; 1 if just one is empty.

    Examples
    --------
    >>> distance(np.array([1.0, 3.0]), np.array([2.0, 2.0])), distance(np.zeros(2), np.ones(2)), distance(np.zeros(2), np.zeros(2))
    (0.25, 1.0, 0.0)
    """
    totals = float(first.sum()), float(second.sum())
    if totals[0] <= 0 or totals[1] <= 0:
        return float((totals[0] > 0) != (totals[1] > 0))
    return float(np.abs(first / totals[0] - second / totals[1]).sum()) / 2


def dependence(table: FloatArray) -> float:
    """Return how far a table of two columns is from the one that they would have if they were independent.

    Examples
    --------
    >>> dependence(np.eye(2)), dependence(np.ones((2, 2)))
    (0.5, 0.0)
    """
    total = float(table.sum())
    return distance(table, np.outer(table.sum(axis=1), table.sum(axis=0)) / total) if total > 0 else 0.0


@dataclass(frozen=True)
class Siblings:
    """Ordered pairs of different rows of one parent row, by the values of two columns.

    Parameters
    ----------
    shares : dict of (int, int) to array
        For columns i <= j: over all ordered pairs (r, s), the cell (i of r, j of s). The pairs of a parent with k rows have its
        weight together, so each of the k (k - 1) has an equal part of it.
    both : dict of (int, int) to array
        For columns i <= j: the number of parent rows that have two different children, one with this value of i and the other with
        this value of j.
    parents : int
        Rows of the parent's table.
    pairs : dict of (int, int) to array
        As `shares`, where every pair counts 1, as a self-join has them: a parent with k rows counts k (k - 1).
    """

    shares: dict[tuple[int, int], FloatArray]
    both: dict[tuple[int, int], FloatArray]
    parents: int
    pairs: dict[tuple[int, int], FloatArray] = field(default_factory=dict)


@multiplies
def siblings(database: Database, position: int) -> Siblings:
    """Return the tables of pairs of siblings of a table that has a parent, for all pairs of its columns.

    Notes
    -----
    With n(p, x) the number of children of p with the value x, and n(p, x, y) of those with both x and y, the ordered pairs of
    *different* children with x and y are n(p, x) n(p, y) - n(p, x, y): a product of matrices, less one table of rows. For time
    proportional to the parents times the square of the number of codes.
    """
    table = database[position]
    parent, above = table.linked
    parents, width, count = database[above].rows, sum(table.sizes), len(table.columns)
    starts = np.concatenate(([0], np.cumsum(table.sizes)))
    children = numbers_of_children(database, position)
    pairs = np.maximum(children * (children - 1.0), 1.0)
    weight = np.where(children > 1, weights(database, above) / pairs, 0.0)
    order = np.argsort(parent, kind="stable")
    ends = np.concatenate(([0], np.cumsum(children)))
    products, plain, existing = (np.zeros((width, width)) for _ in range(3))
    alone = {(i, j): np.zeros((table.sizes[i], table.sizes[j])) for i in range(count) for j in range(i + 1, count)}
    twice = np.zeros(width)
    step = max(1, _CELLS // max(width, 1))
    for first in range(0, parents, step):
        last = min(first + step, parents)
        rows = order[ends[first] : ends[last]]
        local = parent[rows].astype(np.int64) - first
        places = [local * width + starts[i] + table.columns[i][rows] for i in range(count)]
        flat = np.bincount(np.concatenate(places), minlength=(last - first) * width) if places else np.zeros(0)
        counts = flat.astype(np.float64)
        single = [counts[place] == 1 for place in places]
        for (i, j), counted in alone.items():
            only = single[i] & single[j]
            counted += crossed(table.columns[i][rows[only]], table.columns[j][rows[only]], counted.shape)
        block = counts.reshape(last - first, width)
        products += (block * weight[first:last, None]).T @ block
        plain += block.T @ block
        present = (block > 0).astype(np.float64)
        existing += present.T @ present
        twice += (block > 1).sum(axis=0)
    shares, both, every = {}, {}, {}
    of_rows = weight[parent]
    for i in range(count):
        for j in range(i, count):
            cells = (slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1]))
            same = crossed(table.columns[i], table.columns[j], (table.sizes[i], table.sizes[j]), of_rows)
            shares[i, j] = np.maximum(products[cells] - same, 0.0)  # rounding can leave -1e-12 where there are none
            every[i, j] = plain[cells] - crossed(table.columns[i], table.columns[j], (table.sizes[i], table.sizes[j]))
            if i == j:
                both[i, j] = existing[cells].copy()
                np.fill_diagonal(both[i, j], twice[cells[0]])
            else:
                both[i, j] = existing[cells] - alone[i, j]
    return Siblings(shares, both, parents, every)


@dataclass(frozen=True)
class Line:
    """Rows of a table in order: the first of each parent, and neighbours with what each pair counts: one a parent of weight 1.

    Parameters
    ----------
    first, before, after : integer arrays
        Positions of rows.
    weights, shares : float arrays
        Of the first rows, and of the neighbours.
    """

    first: IntArray
    before: IntArray
    after: IntArray
    weights: FloatArray
    shares: FloatArray


def line(database: Database, position: int) -> Line:
    """Return the rows of a table in order: those of equal values by their codes, as a release puts them."""
    table = database[position]
    parent, above = table.linked
    order = np.full(table.rows, np.nan) if table.order is None else table.order
    kept = np.flatnonzero(~np.isnan(order))
    placed = kept[np.lexsort((*(column[kept] for column in table.columns), order[kept], parent[kept]))]
    same = parent[placed[1:]] == parent[placed[:-1]]
    first = placed[np.concatenate([np.ones(min(placed.size, 1), bool), ~same])]
    before, after = placed[:-1][same], placed[1:][same]
    weight, count = weights(database, above), np.bincount(parent[placed], minlength=database[above].rows)
    return Line(first, before, after, weight[parent[first]], weight[parent[before]] / (count[parent[before]] - 1.0))


def relative_errors(raw: Siblings, synthetic: Siblings, columns: tuple[int, int], bound: float = 0.01) -> tuple[float, float]:
    """Return mean and largest relative error of the counts of parents with two children of given values.

    Parameters
    ----------
    columns : (int, int)
        i <= j.
    bound : float
        The sanity bound: an error is over the count, or over this share of the raw parents where the count is smaller.

    Returns
    -------
    (float, float)
        Over the pairs of values that some parent of either database has; synthetic counts are scaled to the raw number of parents.
        (0, 0) if there are none.
    """
    a, b = raw.both[columns], synthetic.both[columns]
    if columns[0] == columns[1]:
        upper = np.triu_indices(len(a))
        a, b = a[upper], b[upper]
    present = (a > 0) | (b > 0)
    if not present.any() or not raw.parents:
        return (float(present.any()), float(present.any()))
    scaled = b[present] * (raw.parents / synthetic.parents if synthetic.parents else 0.0)
    errors = np.abs(a[present] - scaled) / np.maximum(a[present], bound * raw.parents)
    return float(errors.mean()), float(errors.max())


def group_means(values: FloatArray, groups: npt.NDArray[np.integer], size: int) -> tuple[FloatArray, FloatArray]:
    """Return the mean of each group (NaN of an empty one) and the number of values in it; NaN is no value."""
    known = ~np.isnan(values)
    rows = np.bincount(groups[known], minlength=size).astype(np.float64)
    sums = np.bincount(groups[known], weights=values[known], minlength=size)
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums / rows, rows


@multiplies
def mean_errors(raw: tuple[FloatArray, FloatArray], synthetic: tuple[FloatArray, FloatArray]) -> tuple[float, float, int]:
    """Return mean (weighted by raw rows) and largest relative error of the means of groups, and how many groups there are.

    A group without values in the synthetic database has the error 1; one whose raw mean is 0 is left out.
    """
    means, rows = raw
    chosen = (rows > 0) & (np.nan_to_num(means) != 0)
    if not chosen.any():
        return 0.0, 0.0, 0
    errors = np.abs(np.nan_to_num(synthetic[0][chosen]) - means[chosen]) / np.abs(means[chosen])
    return float(errors @ rows[chosen] / rows[chosen].sum()), float(errors.max()), int(chosen.sum())
