"""Contingency tables from blocks of codes by counting cell numbers: joint tables over groups of attributes, summed afterwards.

A joint table over several small attributes holds every table over some of them. So attributes are packed into groups, one
table a pair (triple, ...) of groups is counted, and the tables that were asked for are sums of its cells. Post-processing of
codes; what comes out is as secret as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpsql.numerics.arrays import Clique, IntArray
from dpsql.tables.flat import FlatTables

Part = tuple[int, ...]
Codes = Sequence[npt.NDArray[np.unsignedinteger]]

MEGABYTES = 32  # of cell numbers at a time: they should stay in a cache, and many parts need room for theirs


@dataclass(frozen=True)
class Fold:
    """One joint table, and the tables that are summed from it.

    ``parts``: groups of attributes, disjoint; the joint table has the attributes in the order of the parts. ``wanted``: positions
    in the list of cliques of the tables within it.
    """

    parts: tuple[Part, ...]
    wanted: tuple[int, ...]

    @property
    def attributes(self) -> Clique:
        """Attributes of the joint table, in its order."""
        return tuple(position for part in self.parts for position in part)

    def cells(self, sizes: Sequence[int]) -> int:
        """Return the number of cells of the joint table."""
        return math.prod(sizes[position] for position in self.attributes)


class FoldCounter:
    """Count joint tables block by block.

    Parameters
    ----------
    tables : FlatTables
        Where the counts go; tables of no fold are not touched.
    folds : sequence of Fold

    Notes
    -----
    Privacy: exact, secret counts.
    """

    def __init__(self, tables: FlatTables, folds: Sequence[Fold]) -> None:
        self._sizes, self._cliques, self._folds = tables.sizes, tables.cliques, folds
        self._flat, self._offsets = tables.flat, tables.offsets
        self._tables = [self._table(fold) for fold in folds]
        self._parts = list(dict.fromkeys(part for fold in folds for part in fold.parts))
        self._lengths = {part: math.prod(self._sizes[position] for position in part) for part in self._parts}
        self._rows = int(np.clip(MEGABYTES * 2**20 // (8 * max(len(self._parts), 1)), 2**10, 2**14))

    def _table(self, fold: Fold) -> IntArray:
        """Return room for a joint table: the result's own, where it is one of the tables asked for."""
        for place in fold.wanted:
            if self._cliques[place] == fold.attributes:
                return self._flat[self._offsets[place] : self._offsets[place + 1]]
        return np.zeros(fold.cells(self._sizes), dtype=np.int64)

    def add(self, codes: Codes) -> None:
        """Count the rows of a block, one array of codes an attribute."""
        rows = len(codes[0]) if codes else 0
        for start in range(0, rows, self._rows):
            stop = min(start + self._rows, rows)
            places = {part: self._places(part, codes, start, stop) for part in self._parts}
            buffer = np.empty(stop - start, dtype=np.intp)
            for fold, table in zip(self._folds, self._tables, strict=True):
                joint = places[fold.parts[0]] if fold.parts else np.zeros(stop - start, dtype=np.intp)
                for part in fold.parts[1:]:
                    np.multiply(joint, self._lengths[part], out=buffer)
                    joint = np.add(buffer, places[part], out=buffer)
                # Not bincount: it makes a table for each block of rows, this adds to ours.
                np.add.at(table, joint, 1)

    def _places(self, part: Part, codes: Codes, start: int, stop: int) -> npt.NDArray[np.intp]:
        """Return the row-major cell numbers of a part."""
        places = codes[part[0]][start:stop].astype(np.intp)
        for position in part[1:]:
            places *= self._sizes[position]
            places += codes[position][start:stop]
        return places

    def finish(self) -> None:
        """Sum the joint tables to those that were asked for."""
        for fold, table in zip(self._folds, self._tables, strict=True):
            attributes = fold.attributes
            # Attributes of one code have no axis: there may be more of them than an array can have.
            axes = {position: axis for axis, position in enumerate(p for p in attributes if self._sizes[p] > 1)}
            shaped = table.reshape([self._sizes[position] for position in axes])
            for place in fold.wanted:
                clique = self._cliques[place]
                if clique == attributes:
                    continue
                dropped = tuple(axis for position, axis in axes.items() if position not in clique)
                summed = shaped.sum(axis=dropped)
                kept = [position for position in axes if position in clique]
                summed = summed.transpose([kept.index(position) for position in clique if position in axes])
                self._flat[self._offsets[place] : self._offsets[place + 1]] = summed.ravel()
