r"""Rows of one parent row put in order: which row stands where, and where inside its bin each value of the order lies.

The rows of a family, and the bins of the column that they are ordered by, are those that nested classes draw. What is left to
choose is which row has which of the family's bins, and where in its bin each value lies. Both are drawn with probability ~ exp(E),

    E = sum_j sum_i h_i(bin_j, c_ij) + sum_i f_i(c_i1) + sum_j sum_i g_i(c_ij, c_i,j+1) + sum_j q(cell of x_j+1 - x_j),

for rows j = 1 ... k in order with columns c_i and values x: f favours what first rows have, g what follows on what, q distances,
and h keeps what the bin says of the row's columns (`order.py` fits them). Two rows of a family are exchanged, or one value is drawn
again, and the new state is kept by the rule of Metropolis, for all families at once.

What no column but that of the order says stays as it was drawn, number by number: tables of columns of a row, with those above it,
and of siblings.

Privacy: post-processing of released statistics.

Reference: Metropolis et al. (1953), Equation of state calculations by fast computing machines.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpsql.numerics.arrays import FloatArray, IntArray
from dpsql.running.blocks import Stop

_ROUNDS = 8
"""For each row of a family."""
_MOST_ROUNDS = 400


@dataclass(frozen=True)
class Scale:
    """The column that rows are ordered by.

    Parameters
    ----------
    bins : ndarray, shape (bins + 1,)
        Where they end; the codes from `bins` on are no bins, and such rows stand in no order.
    step : float
        Values are `bins[0]` and multiples of this above it; 0: all numbers.
    gaps : ndarray, shape (GAPS - 1,)
        Where the cells of distances begin, without the first one.
    """

    bins: FloatArray
    step: float
    gaps: FloatArray


@dataclass(frozen=True)
class Ordering:
    """How the rows of a table stand in order.

    Parameters
    ----------
    table, column : int
        The table, and the position of the column that its rows are ordered by.
    scale : Scale
    first, after : dict of int to ndarray, shapes (c,), (c, c)
        f and g, by column.
    within : dict of int to ndarray, shape (bins, c)
        h, by extended column.
    gap : ndarray, shape (GAPS,)
        q.
    """

    table: int
    column: int
    scale: Scale
    first: dict[int, FloatArray]
    after: dict[int, FloatArray]
    within: dict[int, FloatArray]
    gap: FloatArray


class Lines:
    """Families of rows in order; families with fewer than two ordered rows stay as they are.

    Parameters
    ----------
    ordering : Ordering
    codes : int array, shape (extended columns, rows)
    parent : int array, shape (rows,)
        Ascending.
    rng : numpy.random.Generator

    Attributes
    ----------
    at : int array, shape (rows,)
        Which row stands in a place: families as before, those that stand in no order last in each.
    bins : int array, shape (rows,)
        The code of the order's column in a place.
    values : ndarray, shape (rows,)
        Ascending in each family; NaN for rows that stand in no order.
    """

    def __init__(self, ordering: Ordering, codes: npt.NDArray[np.integer], parent: IntArray, rng: np.random.Generator) -> None:
        self.ordering, self._rng = ordering, rng
        scale, own = ordering.scale, codes[ordering.column].astype(np.intp)
        inside = own < scale.bins.size - 1
        safe = np.where(inside, own, 0)
        low, high = scale.bins[safe], scale.bins[safe + 1]
        values = np.where(inside, _between(low, self._top(low, high), scale.step, rng.random(own.size)), np.nan)
        self.at = np.lexsort((values, parent)) if own.size else np.zeros(0, np.intp)  # NaN is last
        self.bins, self.values = own[self.at], values[self.at]
        self.columns = {i: codes[i][self.at].astype(np.intp) for i in ordering.within}
        self._inside = np.where(np.isnan(self.values), 0, self.bins)
        known = parent[inside]
        count = np.bincount(known, minlength=int(parent[-1]) + 1 if parent.size else 0)
        whose = np.flatnonzero(count > 1)
        self.start = np.searchsorted(parent, whose).astype(np.intp)
        self.count = count[whose].astype(np.intp)

    def _top(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """Return the last value of a bin."""
        step = self.ordering.scale.step
        return np.asarray(np.maximum(high - step, low) if step else np.nextafter(high, low))

    def run(self, stop: Stop | None = None) -> None:
        """Exchange rows and draw values again, for every row of a family eight times or so."""
        rounds = np.minimum(_ROUNDS * self.count, _MOST_ROUNDS)
        for done in range(int(rounds.max(initial=0))):
            if stop is not None:
                stop.check()
            self.move(np.flatnonzero(rounds > done))

    def move(self, chosen: IntArray) -> None:
        """Exchange two rows of each of these families, and draw one value of each again."""
        if chosen.size:
            self._exchange(self.start[chosen], self.count[chosen])
            self._shift(self.start[chosen], self.count[chosen])

    def _exchange(self, start: IntArray, count: IntArray) -> None:
        first = self._rng.integers(0, count)
        second = self._rng.integers(0, count - 1)
        second += second >= first
        low, high = start + np.minimum(first, second), start + np.maximum(first, second)
        ends = start, start + count - 1
        before = self._energy(low, high, *ends)
        self._swap(low, high)
        refused = np.log(self._rng.random(low.size)) > self._energy(low, high, *ends) - before
        self._swap(low[refused], high[refused])

    def _swap(self, low: IntArray, high: IntArray) -> None:
        for array in (self.at, *self.columns.values()):
            array[low], array[high] = array[high], array[low]

    def _energy(self, low: IntArray, high: IntArray, start: IntArray, end: IntArray) -> FloatArray:
        """Return what depends on the rows of two places of each family, the first before the second."""
        ordering, energy = self.ordering, np.zeros(low.size)
        for i, table in ordering.within.items():
            column = self.columns[i]
            energy += table[self._inside[low], column[low]] + table[self._inside[high], column[high]]
        # Neighbours of the two places; side by side they have one pair in common, which counts once.
        left, right = low > start, high < end
        apart = high > low + 1
        for i, table in ordering.after.items():
            column = self.columns[i]
            lower, upper = column[low], column[high]
            energy += table[lower, column[low + 1]]
            energy += np.where(apart, table[column[high - 1], upper], 0.0)
            energy += np.where(left, table[column[low - left], lower], 0.0)
            energy += np.where(right, table[upper, column[high + right]], 0.0)
        for i, table in ordering.first.items():
            energy += np.where(left, 0.0, table[self.columns[i][low]])
        return energy

    def _shift(self, start: IntArray, count: IntArray) -> None:
        """Draw one value of each family again, between its neighbours' and inside its bin."""
        scale, chosen = self.ordering.scale, self._rng.integers(0, count)
        place, left, right = start + chosen, chosen > 0, chosen < count - 1
        values, own = self.values, self.bins[place]
        before, after = values[place - left], values[place + right]
        low, high = scale.bins[own], scale.bins[own + 1]
        # A value stays between its neighbours, or the order would be another one.
        least = np.where(left, np.maximum(low, before), low)
        most = np.where(right, np.minimum(self._top(low, high), after), self._top(low, high))
        proposed = _between(least, most, scale.step, self._rng.random(place.size))

        def energy(value: FloatArray) -> FloatArray:
            gap = self.ordering.gap
            behind = np.where(left, gap[self.cells(value - before)], 0.0)
            return np.asarray(behind + np.where(right, gap[self.cells(after - value)], 0.0))

        kept = np.log(self._rng.random(place.size)) <= energy(proposed) - energy(values[place])
        values[place[kept]] = proposed[kept]

    def cells(self, gaps: FloatArray) -> IntArray:
        """Return the cells of distances."""
        return np.searchsorted(self.ordering.scale.gaps * (1.0 - 1e-9), gaps, side="right").astype(np.int64)


def _between(low: FloatArray, high: FloatArray, step: float, share: FloatArray) -> FloatArray:
    """Return values from low to high, both included, where a share of the way says."""
    if not step:
        return np.asarray(low + share * (high - low))
    parts = np.floor(share * (np.floor((high - low) / step + 0.5) + 1.0))
    return np.asarray(np.minimum(low + parts * step, np.maximum(high, low)))
