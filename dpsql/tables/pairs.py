"""Two-way tables by the million: one array for all tables of a shape, still readable as a mapping from pair to table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpsql.numerics.arrays import FloatArray, IntArray

Pair = tuple[int, ...]

_SMALL_TABLE = 256
"""Cells up to which the tables of a shape lie cell by cell in memory: sums over the two codes then run over many tables at once."""


class Pairs:
    """Distinct pairs of attributes, in ascending order, and which of them have tables of the same shape.

    Parameters
    ----------
    sizes : sequence of int, length m
        Number of codes of each attribute.
    pairs : int array, shape (T, 2)
        i < j; distinct, in lexicographic order.
    """

    def __init__(self, sizes: Sequence[int], pairs: IntArray) -> None:
        self.sizes = tuple(sizes)
        self.pairs = np.asarray(pairs, np.int64).reshape(-1, 2)
        self._keys = self.pairs[:, 0] * len(self.sizes) + self.pairs[:, 1]
        shapes = np.asarray(self.sizes, np.int64)[self.pairs]
        distinct, self.shape_of = np.unique(shapes[:, 0] << 32 | shapes[:, 1], return_inverse=True)
        self.shapes = [(int(key) >> 32, int(key) & 0xFFFFFFFF) for key in distinct]

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.pairs)

    @cached_property
    def members(self) -> list[IntArray]:
        """Positions, in ascending order, of the pairs of each shape."""
        if len(self.shapes) == 1:
            return [np.arange(len(self.pairs))]
        ends = np.cumsum(np.bincount(self.shape_of, minlength=len(self.shapes)))
        return np.split(np.argsort(self.shape_of, kind="stable"), ends[:-1]) if self.shapes else []

    @cached_property
    def rank(self) -> IntArray:
        """Position of each pair among those of its shape."""
        ranks = np.empty(len(self.pairs), np.int64)
        for members in self.members:
            ranks[members] = np.arange(members.size)
        return ranks

    def positions(self, pairs: npt.ArrayLike) -> IntArray:
        """Return where these pairs stand.

        Parameters
        ----------
        pairs : array_like of int, shape (N, 2)

        Returns
        -------
        int64 array, shape (N,)

        Raises
        ------
        KeyError
            One of them is not there.
        """
        asked = np.asarray(pairs, np.int64).reshape(-1, 2)
        inside = ((asked >= 0) & (asked < len(self.sizes))).all(axis=1)
        keys = asked[:, 0] * len(self.sizes) + asked[:, 1]
        positions: IntArray = np.searchsorted(self._keys, keys).astype(np.int64)
        inside &= positions < self._keys.size
        inside[inside] = self._keys[positions[inside]] == keys[inside]
        if not inside.all():
            raise KeyError(tuple(asked[~inside][0].tolist()))
        return positions

    def position(self, pair: object) -> int:
        """Return where one pair stands; KeyError if it is nowhere."""
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise KeyError(pair)
        return int(self.positions([pair])[0])

    def __iter__(self) -> Iterator[Pair]:
        """Iterate over the pairs in ascending order."""
        return zip(*self.pairs.T.tolist(), strict=True)


class PairTables(Mapping[Pair, FloatArray]):
    """A mapping from (i, j), i < j, to a table of shape (c_i, c_j), in ascending order of the pairs.

    The tables that are looked up are views. Work on all of them goes by `by_shape`, without an array for each table.

    Parameters
    ----------
    index : Pairs
    stacks : sequence of ndarray
        One for each shape of the index: (number of its pairs, c_i, c_j).

    Examples
    --------
    >>> index = Pairs([2, 2, 3], np.array([(0, 1), (0, 2), (1, 2)]))
    >>> tables = PairTables(index, [np.ones((1, 2, 2)), np.arange(12.0).reshape(2, 2, 3)])
    >>> tables[(1, 2)].tolist()
    [[6.0, 7.0, 8.0], [9.0, 10.0, 11.0]]
    >>> [(pairs.tolist(), stack.shape) for pairs, stack in tables.by_shape()]
    [([[0, 1]], (1, 2, 2)), ([[0, 2], [1, 2]], (2, 2, 3))]
    """

    def __init__(self, index: Pairs, stacks: Sequence[FloatArray]) -> None:
        self.index = index
        self.stacks = list(stacks)

    @property
    def pairs(self) -> IntArray:
        """All pairs, shape (T, 2), in ascending order."""
        return self.index.pairs

    def by_shape(self) -> Iterator[tuple[IntArray, FloatArray]]:
        """Yield the pairs with tables of one shape, (T, 2), and their tables, (T, c_i, c_j) in any memory order, shape by shape."""
        for members, stack in zip(self.index.members, self.stacks, strict=True):
            yield self.index.pairs[members], stack

    def __getitem__(self, pair: Pair) -> FloatArray:
        """Return one table: a view."""
        position = self.index.position(pair)
        table: FloatArray = self.stacks[int(self.index.shape_of[position])][int(self.index.rank[position])]
        return table

    def __iter__(self) -> Iterator[Pair]:
        """Iterate over the pairs in ascending order."""
        return iter(self.index)

    def __len__(self) -> int:
        """Return the number of tables."""
        return len(self.index)


class PairValues(Mapping[Pair, float]):
    """A mapping from (i, j), i < j, to a number.

    Parameters
    ----------
    index : Pairs
    numbers : ndarray, shape (T,)
        In the order of the index.

    Examples
    --------
    >>> values = PairValues(Pairs([2, 2, 3], np.array([(0, 1), (0, 2)])), np.array([0.5, 0.25]))
    >>> values[(0, 2)], values.of([[0, 1], [0, 2]]).tolist(), len(values)
    (0.25, [0.5, 0.25], 2)
    """

    def __init__(self, index: Pairs, numbers: FloatArray) -> None:
        self.index = index
        self.numbers = numbers

    def of(self, pairs: npt.ArrayLike) -> FloatArray:
        """Return the numbers of these pairs, shape (N, 2), as an array; KeyError where one is not there."""
        numbers: FloatArray = self.numbers[self.index.positions(pairs)]
        return numbers

    def __getitem__(self, pair: Pair) -> float:
        """Return one number."""
        return float(self.numbers[self.index.position(pair)])

    def __iter__(self) -> Iterator[Pair]:
        """Iterate over the pairs in ascending order."""
        return iter(self.index)

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.index)


def cell_by_cell(shape: tuple[int, int]) -> bool:
    """Return whether stacks of tables of this shape are laid out cell by cell, see `empty_stack`."""
    return shape[0] * shape[1] <= _SMALL_TABLE


def empty_stack(tables: int, shape: tuple[int, int]) -> FloatArray:
    """Return an unfilled stack, shape (tables, *shape): of small tables cell by cell in memory, of others table by table."""
    if cell_by_cell(shape):
        return np.moveaxis(np.empty((*shape, tables)), -1, 0)
    return np.empty((tables, *shape))
