"""Rows of each group by the cells of a fine grid, from which quantiles are drawn by rank: only cells that hold any.

Privacy: `Cells` are secret; what is released of them is what `drawn` draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsql.estimates.measures import Measure
from dpsql.estimates.ranks import grid
from dpsql.mechanisms.ranked import private_quantile
from dpsql.noise.entropy import BoolArray
from dpsql.numerics.arrays import IntArray


@dataclass(frozen=True)
class Cells:
    """How many rows of each group are in each cell. Privacy: secret.

    Parameters
    ----------
    groups, cells, counts : int64 arrays of one length
        Place of the group, cell, rows; ascending by group and cell, each pair once.
    """

    groups: IntArray
    cells: IntArray
    counts: IntArray

    def kept(self, chosen: BoolArray) -> Cells:
        """Return those of the groups that are chosen, which are numbered anew."""
        there = chosen[self.groups]
        places = np.cumsum(chosen) - 1
        return Cells(places[self.groups[there]], self.cells[there], self.counts[there])


def cells_of(groups: IntArray, cells: IntArray, counts: IntArray) -> Cells:
    """Return rows by group and cell, in order."""
    order = np.lexsort((cells, groups))
    return Cells(groups[order], cells[order], counts[order])


def drawn(found: Cells, measure: Measure, groups: int, scale: Fraction) -> IntArray:
    """Return a place on the grid for each group, shape (groups, 1).

    Notes
    -----
    Privacy: of each group one draw of the exponential mechanism, whose penalty is in rows: P(t) proportional to exp(-u(t) /
    scale). What one unit's rows can make of u, in all of its groups, is `dpsql.estimates.ranks.ranked`'s; the cost: `Ranked.event`.
    """
    values, width = grid(measure)
    share = Fraction(measure.share)
    ends = np.searchsorted(found.groups, np.arange(groups + 1))
    out = np.empty((groups, 1), np.int64)
    for place in range(groups):
        inside = slice(int(ends[place]), int(ends[place + 1]))
        out[place, 0] = private_quantile(found.cells[inside], found.counts[inside], share, scale, values, width)
    return out
