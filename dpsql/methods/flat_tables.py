"""Contingency tables in one flat array: millions of small tables without an array object for each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Clique = tuple[int, ...]


def table_lengths(sizes: Sequence[int], cliques: Sequence[Clique]) -> IntArray:
    """Return the number of cells of each table.

    Examples
    --------
    >>> table_lengths([2, 3], [(0, 1), (), (1,)]).tolist()
    [6, 1, 3]
    """
    orders = np.fromiter(map(len, cliques), dtype=np.int64, count=len(cliques))
    flat = np.fromiter(itertools.chain.from_iterable(cliques), dtype=np.int64, count=int(orders.sum()))
    found = np.ones(len(cliques), dtype=np.int64)
    if flat.size:
        factors = np.asarray(sizes, dtype=np.int64)[flat]
        found[orders > 0] = np.multiply.reduceat(factors, (np.cumsum(orders) - orders)[orders > 0])
    return found


class FlatTables(Mapping[Clique, IntArray]):
    """Tables over cliques: a mapping whose arrays are views, made when they are asked for.

    Parameters
    ----------
    sizes : sequence of int, length m
        Number of codes of each attribute.
    cliques : sequence of tuples of int
        Attribute positions, distinct cliques.
    flat : int64 array
        The tables one after the other, each row-major.

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
        np.cumsum(table_lengths(self.sizes, cliques), out=self.offsets[1:])
        if self.offsets[-1] != flat.size:
            raise ValueError(f"{flat.size} counts for tables of {self.offsets[-1]} cells")

    @cached_property
    def _places(self) -> dict[Clique, int]:
        return {clique: place for place, clique in enumerate(self.cliques)}

    def __getitem__(self, clique: Clique) -> IntArray:
        """Return one table, one axis per attribute: a view."""
        place = self._places[clique]
        part: IntArray = self.flat[self.offsets[place] : self.offsets[place + 1]]
        return part.reshape([self.sizes[i] for i in clique])

    def __iter__(self) -> Iterator[Clique]:
        """Iterate over the cliques in order."""
        return iter(self.cliques)

    def __len__(self) -> int:
        """Return the number of tables."""
        return len(self.cliques)
