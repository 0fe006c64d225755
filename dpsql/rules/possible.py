"""Combinations of codes in which a row may obey rules together; of rules across tables, which rows above can have rows at all.

Privacy: none; public domains and rules alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import duckdb
import numpy as np

from dpsql.domains.attributes import Attribute
from dpsql.numerics.arrays import IntArray
from dpsql.rules.grammar import Rule
from dpsql.rules.reasoning import MAY_FALSE, MOST_CELLS, outcomes
from dpsql.tables.emptied import Cells


def possible(cursor: duckdb.DuckDBPyConnection, rules: Sequence[Rule], attributes: Sequence[Attribute]) -> Cells | None:
    """Return in which combinations of codes a row may obey all rules; None where that is not known.

    It is not known where a rule is not understood, or there are more than 1,000,000 combinations.

    Parameters
    ----------
    rules : sequence of Rule
        Over the attributes.
    attributes : sequence of Attribute
        An axis each.
    """
    if math.prod(attribute.size for attribute in attributes) > MOST_CELLS:
        return None
    combinations = np.ones([attribute.size for attribute in attributes], bool)
    for rule in rules:
        cells = outcomes(cursor, rule, attributes)
        if cells is None:
            return None
        combinations &= cells != MAY_FALSE
    return combinations


class Choices:
    """Combinations of codes of some axes that are possible beside those of the others, which are given.

    Parameters
    ----------
    cells : bool array
        As `possible` returns them.
    free : sequence of int
        Axes whose codes are chosen; those of all others are given, in their order.

    Attributes
    ----------
    barren : bool array
        An axis for each given one: with which of their codes nothing is possible.
    """

    def __init__(self, cells: Cells, free: Sequence[int]) -> None:
        self._given = [axis for axis in range(cells.ndim) if axis not in set(free)]
        self._sizes = [cells.shape[axis] for axis in free]
        self._shape = [cells.shape[axis] for axis in self._given]
        table = cells.transpose([*self._given, *free]).reshape(math.prod(self._shape), math.prod(self._sizes))
        self._count = table.sum(axis=1)
        self._start = np.cumsum(self._count) - self._count
        self._chosen = np.nonzero(table)[1]
        self.barren: Cells = (self._count == 0).reshape(self._shape)

    def place(self, codes: Sequence[IntArray], rows: int) -> IntArray:
        """Return the number of each combination of given codes; zeros where none is given."""
        if not self._given:
            return np.zeros(rows, np.int64)
        return np.asarray(np.ravel_multi_index(tuple(codes), self._shape), np.int64)

    def none(self, places: IntArray) -> Cells:
        """Return beside which combinations nothing is possible."""
        return np.asarray(self._count[places] == 0)

    def draw(self, places: IntArray, rng: np.random.Generator) -> list[IntArray]:
        """Return codes of each free axis, at random among those that are possible beside a combination that has some."""
        which = np.floor(rng.random(len(places)) * self._count[places]).astype(np.int64)
        flat = self._chosen[self._start[places] + np.minimum(which, self._count[places] - 1)]
        return [np.asarray(codes, np.int64) for codes in np.unravel_index(flat, self._sizes)] if self._sizes else []
