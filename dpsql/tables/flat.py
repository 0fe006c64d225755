"""Contingency tables in one flat array: millions of small tables without an array object for each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from operator import eq
from typing import overload

import numpy as np

from dpsql.numerics.arrays import Clique, FloatArray, IntArray

_LARGEST = 1 << 40


class AllCliques(Sequence[Clique]):
    """All sets of k of m attributes, for some k: a sequence of tuples that are made when they are asked for.

    Parameters
    ----------
    attributes : int
        m.
    orders : sequence of int
        The values of k, in this order; the sets of one k are in lexicographic order.

    Examples
    --------
    >>> cliques = AllCliques(3, (1, 2))
    >>> len(cliques), cliques[4], cliques == ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2))
    (6, (0, 2), True)
    """

    def __init__(self, attributes: int, orders: Sequence[int]) -> None:
        self.attributes = attributes
        self.orders = tuple(orders)
        self._length = sum(math.comb(attributes, k) for k in self.orders)

    def __len__(self) -> int:
        """Return the number of sets."""
        return self._length

    def __iter__(self) -> Iterator[Clique]:
        """Iterate over the sets in order."""
        return itertools.chain.from_iterable(itertools.combinations(range(self.attributes), k) for k in self.orders)

    @overload
    def __getitem__(self, place: int) -> Clique: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Clique, ...]: ...

    def __getitem__(self, place: int | slice) -> Clique | tuple[Clique, ...]:
        """Return one set, or a tuple of sets."""
        if isinstance(place, slice):
            return tuple(self[position] for position in range(*place.indices(len(self))))
        left = range(len(self))[place]
        for k in self.orders:
            if left < math.comb(self.attributes, k):
                return _combination(left, self.attributes, k)
            left -= math.comb(self.attributes, k)
        raise IndexError(place)  # pragma: no cover -- range has refused it

    def __eq__(self, other: object) -> bool:
        """Return whether another sequence holds the same sets in the same order."""
        if isinstance(other, AllCliques):
            return (self.attributes, self.orders) == (other.attributes, other.orders) or (
                len(self) == len(other) and all(map(eq, self, other))
            )
        return isinstance(other, tuple | list) and len(self) == len(other) and all(map(eq, self, other))

    def __hash__(self) -> int:
        """Return the hash of the tuple of all sets."""
        return hash(tuple(self))

    def __repr__(self) -> str:
        """Return how it is made."""
        return f"AllCliques({self.attributes}, {self.orders})"

    def arrays(self) -> list[tuple[IntArray, IntArray]]:
        """Return what `by_order` does."""
        groups, start = [], 0
        for k in self.orders:
            count = math.comb(self.attributes, k)
            if k == 2:
                sets = np.stack(np.triu_indices(self.attributes, 1), axis=1).astype(np.int64)
            else:
                flat = itertools.chain.from_iterable(itertools.combinations(range(self.attributes), k))
                sets = np.fromiter(flat, np.int64, count * k).reshape(count, k)
            groups.append((np.arange(start, start + count), sets))
            start += count
        return [item for item in sorted(groups, key=lambda item: item[1].shape[1]) if len(item[0])]


def _combination(place: int, attributes: int, k: int) -> Clique:
    """Return the set of k attributes at this place of the lexicographic order."""
    chosen, first = [], 0
    for left in range(k - 1, -1, -1):
        while place >= (passed := math.comb(attributes - first - 1, left)):
            place -= passed
            first += 1
        chosen.append(first)
        first += 1
    return tuple(chosen)


def by_order(cliques: Sequence[Clique]) -> list[tuple[IntArray, IntArray]]:
    """Return the cliques of every length as an array.

    Returns
    -------
    list of (positions, attributes)
        For each length k, ascending: places among the cliques, shape (T,), ascending, and the cliques, shape (T, k).

    Examples
    --------
    >>> [(places.tolist(), sets.tolist()) for places, sets in by_order([(0,), (0, 1), (1,)])]
    [([0, 2], [[0], [1]]), ([1], [[0, 1]])]
    """
    if isinstance(cliques, AllCliques) and len(set(cliques.orders)) == len(cliques.orders):
        return cliques.arrays()
    lengths = np.fromiter(map(len, cliques), np.int64, len(cliques))
    flat = np.fromiter(itertools.chain.from_iterable(cliques), np.int64, int(lengths.sum()))
    starts, groups = np.cumsum(lengths) - lengths, []
    for k in np.unique(lengths).tolist():
        places = np.flatnonzero(lengths == k)
        whole = places.size * k == flat.size
        groups.append((places, flat.reshape(-1, k) if whole and k else flat[starts[places][:, None] + np.arange(k)]))
    return groups


def cell_counts(sizes: Sequence[int], cliques: Sequence[Clique]) -> IntArray:
    """Return the number of cells of the table over each clique; 2^40 stands for all larger numbers.

    Examples
    --------
    >>> cell_counts([2, 3, 5], [(0,), (0, 2), ()]).tolist()
    [2, 10, 1]
    """
    known, counts = np.asarray(sizes, np.int64), np.ones(len(cliques), np.int64)
    for places, attributes in by_order(cliques):
        cells = np.ones(places.size, np.int64)
        for column in attributes.T:  # below 2^40 times a number of codes: no overflow
            cells = np.minimum(cells * known[column], _LARGEST)
        counts[places] = cells
    return counts


def total_cells(sizes: Sequence[int], cliques: Sequence[Clique]) -> int:
    """Return the number of cells of all tables together; 2^40 stands for all larger tables.

    Of all sets of k attributes without listing them: the elementary symmetric polynomial of the sizes.

    Examples
    --------
    >>> total_cells([2, 3, 5], [(0, 1), (0, 2), (1, 2)]), total_cells([2, 3, 5], AllCliques(3, [2]))
    (31, 31)
    """
    if not isinstance(cliques, AllCliques) or cliques.attributes != len(sizes):
        return int(cell_counts(sizes, cliques).sum())
    sums = [1] + [0] * max(cliques.orders, default=0)
    for size in sizes:
        for k in range(len(sums) - 1, 0, -1):
            sums[k] += sums[k - 1] * size
    return sum(sums[k] for k in cliques.orders)


class _Keyed:
    """Cliques in order, with a dict of their places that is made when the first one is looked up."""

    cliques: Sequence[Clique]

    @cached_property
    def _places(self) -> dict[Clique, int]:
        return {clique: place for place, clique in enumerate(self.cliques)}

    def __iter__(self) -> Iterator[Clique]:
        """Iterate over the cliques in order."""
        return iter(self.cliques)

    def __len__(self) -> int:
        """Return the number of cliques."""
        return len(self.cliques)


class FlatTables(_Keyed, Mapping[Clique, IntArray]):
    """Tables over cliques: a mapping whose arrays are views, made when they are asked for.

    Parameters
    ----------
    sizes : sequence of int, length m
        Number of codes of each attribute.
    cliques : sequence of tuples of int
        Attribute positions, distinct cliques.
    flat : int64 array
        The tables one after the other, each row-major.

    Raises
    ------
    ValueError
        The array has not as many counts as the tables have cells.

    Notes
    -----
    Privacy: as private or secret as what it is made of.

    Examples
    --------
    >>> tables = FlatTables([2, 3], [(0,), (0, 1)], np.arange(8))
    >>> tables[(0, 1)].tolist(), len(tables)
    ([[2, 3, 4], [5, 6, 7]], 2)
    """

    def __init__(self, sizes: Sequence[int], cliques: Sequence[Clique], flat: IntArray) -> None:
        self.sizes = tuple(sizes)
        self.cliques = cliques
        self.flat = flat
        self.offsets = np.zeros(len(cliques) + 1, dtype=np.int64)
        np.cumsum(cell_counts(self.sizes, cliques), out=self.offsets[1:])
        if self.offsets[-1] != flat.size:
            raise ValueError(f"{flat.size} counts for tables of {self.offsets[-1]} cells")

    def __getitem__(self, clique: Clique) -> IntArray:
        """Return one table, one axis per attribute: a view."""
        place = self._places[clique]
        part: IntArray = self.flat[self.offsets[place] : self.offsets[place + 1]]
        return part.reshape([self.sizes[i] for i in clique])

    def by_shape(self) -> Iterator[tuple[IntArray, IntArray, tuple[int, ...]]]:
        """Yield the tables of every shape: their places among the cliques (T,), the cliques (T, k), and the shape."""
        known = np.asarray(self.sizes, np.int64)
        distinct, number = np.unique(known, return_inverse=True)
        for places, attributes in by_order(self.cliques):
            keys = np.zeros(places.size, np.int64)
            for column in attributes.T:  # a dozen different attributes of a dozen different sizes: below 2^63
                keys = keys * distinct.size + number[column]
            for members in _alike(keys):
                yield places[members], attributes[members], tuple(known[attributes[members[0]]].tolist())

    def stack(self, places: IntArray, shape: tuple[int, ...]) -> IntArray:
        """Return the tables at these places, all of this shape, as one array (T, *shape); a view where they are neighbours."""
        starts, cells = self.offsets[places], int(np.prod(shape, dtype=np.int64))
        if starts.size and (np.diff(starts) == cells).all():
            tables = self.flat[int(starts[0]) : int(starts[-1]) + cells]
        else:
            tables = self.flat[starts[:, None] + np.arange(cells)]
        return tables.reshape(starts.size, *shape)


def _alike(keys: IntArray) -> list[IntArray]:
    """Return the positions of each key, ascending."""
    if not keys.size or (keys == keys[0]).all():
        return [np.arange(keys.size)] if keys.size else []
    order = np.argsort(keys, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)


class FlatScales(_Keyed, Mapping[Clique, float]):
    """Numbers of cliques: a mapping with one array behind it.

    Parameters
    ----------
    cliques : sequence of tuples of int
    numbers : float64 array, same length

    Examples
    --------
    >>> scales = FlatScales([(0,), (0, 1)], np.array([2.0, 3.0]))
    >>> scales[(0, 1)], dict(scales) == {(0,): 2.0, (0, 1): 3.0}
    (3.0, True)
    """

    def __init__(self, cliques: Sequence[Clique], numbers: FloatArray) -> None:
        if len(cliques) != len(numbers):
            raise ValueError(f"{len(numbers)} numbers for {len(cliques)} tables")
        self.cliques = cliques
        self.numbers = numbers

    def __getitem__(self, clique: Clique) -> float:
        """Return one number."""
        return float(self.numbers[self._places[clique]])
