"""Linked tables as shapes: which columns they have, and which tables of counts are measured of them.

A row's weight is 1 in the root, and in a child table its parent row's weight divided by the number of that parent's rows. So
the weights of a unit's rows add up to at most 1 in every table, and every block below is a table of shares of units that one
unit changes by at most 1 in absolute sum.

Privacy: public sizes alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, combinations_with_replacement
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ArgumentError
from dpsql.numerics.arrays import FloatArray, IntArray

Number = TypeVar("Number", np.int64, np.float64)

GAPS = 32
"""Cells of the distances between rows that stand one after the other."""
ORDERED = ("first", "next", "gap")
"""Kinds of blocks that are there for tables with an order alone; the classes are not fitted to them (`order.py`)."""
GROUPS = 4
"""Groups of parents by their number of rows, at most."""
_ENOUGH = 100.0
"""Units of a group over the deviation of the noise: with fewer, tables of groups tell less than the tables of all."""
_MOST_SLOTS = 3
_ONE_WAY_SHARE, _FAN_OUT_SHARE, _ONE_WAY_POWER = 1.0 / 11.0, 1.0 / 7.0, 2.0 / 3.0


@dataclass(frozen=True)
class TableShape:
    """One table.

    Parameters
    ----------
    name : str
    parent : int or None
        Position of the parent's table; None: the root, one row a unit.
    sizes : tuple of int
        Codes of each declared column, at least 1.
    most : int
        Rows of one parent row at most, at least 1; not used for the root.
    order : int or None
        Position of the declared column in whose order the rows of one parent row stand; None: they stand in none.
    groups : tuple of int
        Numbers of rows with which groups of parent rows begin, ascending from 1: the tables of a child table are measured by
        groups of its parent rows (`cut`). Empty: by the groups that the parent's table is measured by, which its rows are in.
    """

    name: str
    parent: int | None
    sizes: tuple[int, ...]
    most: int = 1
    order: int | None = None
    groups: tuple[int, ...] = (1,)

    @property
    def slots(self) -> int:
        """Kinds of rows of one parent row: its first ones have a slot each, all later ones share the last."""
        return min(self.most, _MOST_SLOTS)

    def group_of(self, rows: IntArray) -> IntArray:
        """Return the group of each number of rows of a parent row; of none, which is in no group, the first."""
        return np.maximum(np.searchsorted(self.groups or (1,), rows, side="right") - 1, 0)


def cut(units: FloatArray, deviation: float) -> tuple[int, ...]:
    """Return the groups of parent rows, from released shares of units by their number of rows: as many as the noise can bear.

    Parameters
    ----------
    units : ndarray, shape (most + 1,)
        Noisy numbers of units by the number of rows of a parent row.
    deviation : float
        Standard deviation of the noise of the tables that are to be split, in units; about that of ``units`` too.

    Returns
    -------
    tuple of int
        Numbers of rows with which groups begin: up to four, about equally long in logs, each with enough units.

    Notes
    -----
    Privacy: post-processing of a released histogram; nobody's number of rows is looked at.

    Examples
    --------
    >>> cut(np.array([0.0, 900, 900, 600, 500, 300, 200, 100, 100]), 1.0), cut(np.array([0.0, 900, 900, 600, 10, 0, 0]), 1.0)
    ((1, 2, 3, 5), (1, 2, 3))
    >>> cut(np.array([0.0, 900, 900, 600]), 100.0), cut(np.zeros(2), 1.0)
    ((1,), (1,))
    """
    enough = _ENOUGH * deviation
    above = np.cumsum(units[:0:-1])[::-1]  # with so many rows or more
    needed = enough + 3.0 * deviation * np.sqrt(np.arange(above.size, 0, -1))
    most = int(np.flatnonzero(above >= needed).max(initial=0)) + 1
    starts = [1, *sorted({int(most ** (step / GROUPS)) + 1 for step in range(1, GROUPS)} - {1})]
    starts = [start for start in starts if start <= most]
    # A group that holds too little against the noise is joined with the next, the last with the one before.
    while len(starts) > 1:
        masses = [float(part.sum()) for part in np.split(units, starts)[1:]]
        least = int(np.argmin(masses))
        if masses[least] >= enough:
            break
        del starts[least + 1 if least + 1 < len(starts) else least]
    return tuple(starts)


def spread(units: FloatArray) -> float:
    """Return how unequal the numbers of rows of parent rows are: their mean square over the square of their mean; 1 where equal.

    Examples
    --------
    >>> spread(np.array([5.0, 0.0, 9.0])), spread(np.array([0.0, 1.0, 0.0, 1.0]))
    (1.0, 1.25)
    """
    numbers, weights = np.arange(1, units.size), np.maximum(units[1:], 0.0)
    total, mean = float(weights.sum()), float((weights * numbers).sum())
    return 1.0 if mean <= 0.0 else float((weights * numbers**2).sum()) * total / mean**2


@dataclass(frozen=True)
class Shape:
    """Linked tables.

    Parameters
    ----------
    tables : tuple of TableShape
        The root first, parents before children.

    Raises
    ------
    ArgumentError
        If the root is not the only table without a parent and the first, a parent does not stand before its child, or a
        size is below 1.
    """

    tables: tuple[TableShape, ...]

    def __post_init__(self) -> None:
        if not self.tables or self.tables[0].parent is not None:
            raise ArgumentError("tables", [table.name for table in self.tables], "the root first, without a parent")
        for t, table in enumerate(self.tables[1:], 1):
            if table.parent is None or not 0 <= table.parent < t:
                raise ArgumentError("parent", table.parent, f"the position of a table before {table.name!r}")
            if table.most < 1:
                raise ArgumentError("most", table.most, "an integer, at least 1")
        for table in self.tables:
            if any(size < 1 for size in table.sizes):
                raise ArgumentError("sizes", table.sizes, "integers, at least 1")
            own = table.groups or (1,)
            if own[0] != 1 or list(own) != sorted({*own}) or own[-1] > table.most or not (table.groups or table.parent):
                raise ArgumentError("groups", table.groups, "ascending numbers of rows from 1; none at most below a child table")
            if table.order is not None and (table.parent is None or not 0 <= table.order < len(table.sizes)):
                raise ArgumentError("order", table.order, f"the position of a column of a child table; {table.name!r}")

    @cached_property
    def _children(self) -> tuple[tuple[int, ...], ...]:
        positions = range(len(self.tables))
        return tuple(tuple(c for c in positions if self.tables[c].parent == t) for t in positions)

    def children(self, table: int) -> tuple[int, ...]:
        """Return the positions of a table's child tables."""
        return self._children[table]

    def extended(self, table: int) -> tuple[int, ...]:
        """Return the codes of each extended column: the declared ones, then the number of rows of each child table.

        Examples
        --------
        >>> shape = Shape((TableShape("homes", None, (4, 2)), TableShape("persons", 0, (3,), most=5)))
        >>> shape.extended(0), shape.extended(1), shape.fan_out(1)
        ((4, 2, 6), (3,), 2)
        """
        return (*self.tables[table].sizes, *(self.tables[child].most + 1 for child in self._children[table]))

    def fan_out(self, table: int) -> int:
        """Return the position, among its parent's extended columns, of the number of rows of a child table."""
        parent = self.parent(table)
        return len(self.tables[parent].sizes) + self._children[parent].index(table)

    def parent(self, table: int) -> int:
        """Return the position of the parent's table; an error for the root."""
        parent = self.tables[table].parent
        if parent is None:
            raise ArgumentError("table", table, "the position of a table that has a parent")
        return parent

    def home(self, table: int) -> int:
        """Return the table whose number of rows of a parent row decides the group of a table's rows."""
        return table if self.tables[table].groups else self.home(self.parent(table))

    def group_count(self, table: int) -> int:
        """Return the number of groups of a table's rows."""
        return len(self.tables[self.home(table)].groups)

    def path(self, table: int) -> tuple[int, ...]:
        """Return the tables from the root to this one, both included."""
        parent = self.tables[table].parent
        return (table,) if parent is None else (*self.path(parent), table)


@dataclass(frozen=True)
class Block:
    """A table of shares of units that is measured.

    Parameters
    ----------
    kind : {'one', 'pair', 'across', 'sibling', 'first', 'next', 'gap'}
        'one': a column. 'pair': two columns of the same row. 'across': a column of an ancestor's row (left) and one of the
        row itself (right), with the weight of the row. 'sibling': two columns of two different rows of one parent row: with
        k >= 2 rows, every ordered pair of them has the weight of the parent's row divided by k (k - 1); of one column twice the
        table is folded, so that a pair of codes is one cell whichever row has which. 'first': a column of the first row in a
        table's order, with the weight of the parent's row. 'next': a column of a row and the same one of the row
        after it: of k ordered rows, each of the k - 1 has the weight of the parent's row divided by k - 1. 'gap': how far, in the
        column of the order, the row after is from a row, in `GAPS` cells (`dpsql.release.ordered`); weights as 'next'.
    left, right : (int, int)
        Table and extended column; right is None for 'one', 'first' and 'gap'.

    Notes
    -----
    A 'pair', 'across' or 'sibling' block of rows of a child table is split by the groups of their parent rows, but where the left
    column is the number of rows itself: every row, or pair of rows, is in one group.
    """

    kind: Literal["one", "pair", "across", "sibling", "first", "next", "gap"]
    left: tuple[int, int]
    right: tuple[int, int] | None = None

    def shape(self, shape: Shape) -> tuple[int, ...]:
        """Return the numbers of cells: of groups, where it is split; then of codes."""
        if self.kind == "gap":
            return (GAPS,)
        sizes = tuple(shape.extended(t)[i] for t, i in (self.left, self.right or self.left)[: 1 if self.right is None else 2])
        if self.folded:
            sizes = (sizes[0] * (sizes[0] + 1) // 2,)
        return (shape.group_count(self.table), *sizes) if self.split(shape) else sizes

    @property
    def table(self) -> int:
        """The table whose rows are counted."""
        return (self.right or self.left)[0]

    @property
    def folded(self) -> bool:
        """Whether it is of one column of two rows that are told apart by nothing."""
        return self.kind == "sibling" and self.left == self.right

    def split(self, shape: Shape) -> bool:
        """Return whether it is split by groups of parent rows."""
        t = self.table
        if t == 0 or self.kind not in ("pair", "across", "sibling") or shape.group_count(t) == 1:
            return False
        home = shape.home(t)
        return self.left != (shape.parent(home), shape.fan_out(home))

    def whole(self, shape: Shape, values: FloatArray) -> FloatArray:
        """Return the table of the codes of both columns, of all groups together; of siblings of one column a symmetric one."""
        table = values.sum(axis=0) if self.split(shape) else values
        return unfolded(table) if self.folded else table


def folded(table: NDArray[Number]) -> NDArray[Number]:
    """Return the upper half of a square table, row by row, with what is below the diagonal added; last two axes.

    Examples
    --------
    >>> folded(np.array([[1, 2], [3, 4]])).tolist()
    [1, 5, 4]
    """
    rows, columns = np.triu_indices(table.shape[-1])
    cells = table[..., rows, columns] + np.where(rows == columns, 0, table[..., columns, rows])
    return np.asarray(cells, table.dtype)


def unfolded(cells: FloatArray) -> FloatArray:
    """Return the symmetric table of `folded` cells.

    Examples
    --------
    >>> unfolded(np.array([1.0, 5.0, 4.0])).tolist()
    [[1.0, 2.5], [2.5, 4.0]]
    """
    size = (math.isqrt(8 * cells.shape[-1] + 1) - 1) // 2
    rows, columns = np.triu_indices(size)
    table = np.zeros((*cells.shape[:-1], size, size))
    table[..., rows, columns] = cells / np.where(rows == columns, 1.0, 2.0)
    table[..., columns, rows] = table[..., rows, columns]
    return table


def blocks(shape: Shape, *, independent: bool = False) -> tuple[Block, ...]:
    """Return what is measured: every block whose columns have two codes or more; ``independent``: of each table by itself alone.

    Notes
    -----
    A column of one code tells nothing that the fan-out does not, and where a parent row has one row at most, there
    are no siblings.
    """
    measured: list[Block] = []
    columns = [
        [(t, i) for i, size in enumerate(shape.extended(t)) if size > 1] for t in range(len(shape.tables))
    ]
    for t, own in enumerate(columns):
        measured += [Block("one", column) for column in own]
        measured += [Block("pair", left, right) for left, right in combinations(own, 2)]
        if independent:
            continue
        for ancestor in shape.path(t)[:-1]:
            measured += [Block("across", left, right) for left in columns[ancestor] for right in own]
        if t and shape.tables[t].most > 1:
            measured += [Block("sibling", left, right) for left, right in combinations_with_replacement(own, 2)]
            measured += _ordered(shape, t)
    return tuple(measured)


def _ordered(shape: Shape, t: int) -> list[Block]:
    """Return the blocks of the order of a table's rows: none of the columns that count children, or of the order itself."""
    table = shape.tables[t]
    if table.order is None:
        return []
    others = [(t, i) for i, size in enumerate(table.sizes) if size > 1 and i != table.order]
    return [
        *(Block("first", column) for column in others),
        *(Block("next", column, column) for column in others),
        Block("gap", (t, table.order)),
    ]


def shares(shape: Shape, blocks: Sequence[Block], *, independent: bool = False) -> FloatArray:
    """Return the part of the privacy loss (rho) of each block: a rule of public sizes; sum 1.

    Notes
    -----
    As in `latent_class`: tables of one column together 1 / 11, a table of c cells ~ c^(2/3), so that the sum of their errors is
    smallest. Numbers of children have 1 / 7 for themselves, by the same rule: they say how many rows there are. All others the
    same. ``independent``: each table has the same part, and its own blocks share it by this rule.
    """
    if independent:
        whose = np.array([block.table for block in blocks])
        apart: FloatArray = np.zeros(whose.size)
        for table in set(whose.tolist()):
            apart[whose == table] = shares(shape, [block for block in blocks if block.table == table])
        apart /= apart.sum()
        return apart
    one_way = np.array([block.right is None for block in blocks], bool)
    fan_out = np.array([block.kind == "one" and _counts_children(shape, block.left) for block in blocks], bool)
    weights = np.where(one_way, [float(np.prod(block.shape(shape))) ** _ONE_WAY_POWER for block in blocks], 1.0)
    parts = [(one_way & ~fan_out, _ONE_WAY_SHARE), (fan_out, _FAN_OUT_SHARE), (~one_way, 1.0 - _ONE_WAY_SHARE - _FAN_OUT_SHARE)]
    whole = sum(part for chosen, part in parts if chosen.any())
    for chosen, part in parts:
        if chosen.any():
            weights[chosen] *= part / whole / weights[chosen].sum()
    return weights


def _counts_children(shape: Shape, column: tuple[int, int]) -> bool:
    """Return whether an extended column is the number of rows of a child table."""
    return column[1] >= len(shape.tables[column[0]].sizes)
