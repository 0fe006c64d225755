"""k-tuples as integers: which tuple a key stands for, over all tables of 1 ... R columns of a public domain.

The cells of all tables are numbered one after the other: the tables in the order of their columns (first all of one
column, then all of two, ...), the cells of a table row-major. The number of a tuple is its *key*.

Privacy: public.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from dpsql.errors import DomainError
from dpsql.numerics.arrays import Clique, IntArray

MAX_TABLES = 2_000_000
MAX_KEY = 2**62


@dataclass(frozen=True)
class TupleIndex:
    """The numbering of all tuples of up to R attributes.

    Parameters
    ----------
    sizes : tuple of int, length d
        Number of values of each column.
    length : int
        R, at most d.
    """

    sizes: tuple[int, ...]
    length: int

    def __post_init__(self) -> None:
        tables = sum(math.comb(len(self.sizes), k) for k in range(1, self.length + 1))
        if tables > MAX_TABLES:
            raise DomainError(
                f"reporting_length = {self.length} over {len(self.sizes)} columns are {tables} tables, at most {MAX_TABLES} can be "
                "counted; choose fewer columns or a smaller reporting_length"
            )
        if self.ends[-1] > MAX_KEY:
            raise DomainError(f"the columns have more than {MAX_KEY} tuples of {self.length} values; use coarser bins")

    @cached_property
    def cliques(self) -> tuple[Clique, ...]:
        """All sets of 1 ... R columns, in order."""
        return tuple(itertools.chain.from_iterable(itertools.combinations(range(len(self.sizes)), k) for k in self.levels))

    @property
    def levels(self) -> range:
        """1 ... R."""
        return range(1, self.length + 1)

    @cached_property
    def ends(self) -> list[int]:
        """The first key behind each table, as Python integers."""
        return list(itertools.accumulate(math.prod(self.sizes[i] for i in clique) for clique in self.cliques))

    @cached_property
    def starts(self) -> IntArray:
        """The first key of each table."""
        return np.asarray([0, *self.ends[:-1]], dtype=np.int64)

    @cached_property
    def first_tables(self) -> list[int]:
        """Position of the first table of each level, and the number of all tables."""
        return [0, *itertools.accumulate(math.comb(len(self.sizes), k) for k in self.levels)]

    @cached_property
    def first_attributes(self) -> IntArray:
        """Number of the first attribute of each column, over all attributes."""
        return np.cumsum([0, *self.sizes[:-1]], dtype=np.int64)

    @cached_property
    def columns_of_attributes(self) -> IntArray:
        """Column of each attribute."""
        return np.repeat(np.arange(len(self.sizes), dtype=np.int64), self.sizes)

    def level_keys(self, k: int) -> tuple[int, int]:
        """Return the first key of level k and the one behind its last."""
        first, behind = self.first_tables[k - 1], self.first_tables[k]
        return int(self.starts[first]), self.ends[behind - 1]

    def tables_of(self, keys: IntArray) -> IntArray:
        """Return the table of each key."""
        return np.searchsorted(self.starts, keys, side="right") - 1

    def attributes(self, keys: IntArray, k: int) -> IntArray:
        """Return the attributes of keys of level k, shape (len(keys), k), in ascending order.

        Examples
        --------
        >>> index = TupleIndex((2, 3), 2)
        >>> index.attributes(np.array([5, 9]), 2).tolist()  # keys 0 ... 4 are the single attributes
        [[0, 2], [1, 3]]
        """
        tables = self.tables_of(keys)
        rest = keys - self.starts[tables]
        columns = self._table_columns(k)[tables - self.first_tables[k - 1]]
        sizes = np.asarray(self.sizes, dtype=np.int64)
        attributes = np.empty((keys.size, k), dtype=np.int64)
        for position in range(k - 1, -1, -1):
            column = columns[:, position]
            attributes[:, position] = rest % sizes[column] + self.first_attributes[column]
            rest = rest // sizes[column]
        return attributes

    def keys(self, attributes: IntArray) -> IntArray:
        """Return the keys of tuples, shape (N, k), attributes in ascending order, of different columns.

        Examples
        --------
        >>> TupleIndex((2, 3), 2).keys(np.array([[0, 2], [1, 3]])).tolist()
        [5, 9]
        """
        k = attributes.shape[1]
        columns = self.columns_of_attributes[attributes]
        sizes = np.asarray(self.sizes, dtype=np.int64)
        cell = np.zeros(len(attributes), dtype=np.int64)
        for position in range(k):
            column = columns[:, position]
            cell = cell * sizes[column] + attributes[:, position] - self.first_attributes[column]
        return self.starts[self._rank(columns, k)] + cell

    def subkeys(self, attributes: IntArray) -> list[IntArray]:
        """Return, for each attribute that can be left out, the keys of what remains of tuples of two or more."""
        k = attributes.shape[1]
        return [self.keys(np.delete(attributes, position, axis=1)) for position in range(k)]

    def _rank(self, columns: IntArray, k: int) -> IntArray:
        """Return the position among all tables of k ascending columns each."""
        d = len(self.sizes)
        binomial = np.asarray([[math.comb(n, j) for j in range(k + 1)] for n in range(d + 1)], dtype=np.int64)
        # The combinations that come later: those whose first differing column is larger.
        later = sum(binomial[d - 1 - columns[:, position], k - position] for position in range(k))
        return self.first_tables[k] - 1 - np.asarray(later, dtype=np.int64)

    def _table_columns(self, k: int) -> IntArray:
        tables = self.cliques[self.first_tables[k - 1] : self.first_tables[k]]
        return np.asarray(tables, dtype=np.int64).reshape(-1, k)


@lru_cache(maxsize=16)
def tuple_index(sizes: tuple[int, ...], length: int) -> TupleIndex:
    """Return the numbering of these sizes; kept, since it is asked for several times."""
    return TupleIndex(sizes, length)

