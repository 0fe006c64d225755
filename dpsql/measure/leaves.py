"""Rows by the unit of an argument, read no more finely than leaves need: two levels at a time, and only in opened cells.

The rows of a column of reals are nearly all different. Added up by cell they are few, and most often one reading is enough: it
gives the first levels of all groups together (`dpsql.estimates.leaves`), and the leaves of each group.

Privacy: exact counts, secret. What is read follows from released counts; what leaves is `dpsql.measure.query`'s, with noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsql.estimates.leaves import Cells, Units, shifts
from dpsql.numerics.arrays import IntArray

Regions = Sequence[tuple[int, Sequence[int]]]
"""Pairs of a shift and numbers of cells of 2^shift units."""
Read = Callable[[int, Regions], Mapping[str, Any]]
Parts = list[tuple[Mapping[str, Any], IntArray, IntArray]]
"""Columns of groups, leaves and numbers of rows."""


@dataclass
class _Frame:
    """Rows by group and cell of 2^shift units, but for cells that a later frame has more finely."""

    shift: int
    columns: Mapping[str, Any]
    cells: IntArray
    rows: IntArray

    def without(self, regions: Regions) -> _Frame:
        kept = np.ones(self.cells.size, bool)
        for shift, numbers in regions:
            if shift >= self.shift:
                kept &= ~np.isin(self.cells >> (shift - self.shift), np.asarray(numbers, np.int64))
        columns = {name: column[kept] for name, column in self.columns.items()}
        return _Frame(self.shift, columns, self.cells[kept], self.rows[kept])


class UnitRows:
    """Rows of an argument by group and unit. Privacy: exact, secret.

    Parameters
    ----------
    units : Units
    mechanism : {'gaussian', 'laplace'}
        On which the levels depend.
    read : function of (shift, regions)
        Gives columns ``cell`` (of 2^shift units), ``n`` and those of the groups; regions: where alone, all where there are none.
    """

    def __init__(self, units: Units, mechanism: str, read: Read) -> None:
        self._shifts, self._read = shifts(units, mechanism), read
        self._frames: list[_Frame] = []

    def inside(self, level: int, cells: Cells) -> IntArray:
        """Return the number of rows in each cell of a level. Levels come one after the other."""
        first, behind = cells
        if level % 2 == 0:
            finest = self._shifts[min(level + 1, len(self._shifts) - 1)]
            above = self._shifts[level - 1]
            self._add(finest, [(above, np.unique(first >> above).tolist())] if level else [])
        starts = np.concatenate([frame.cells << frame.shift for frame in self._frames])
        rows = np.concatenate([frame.rows for frame in self._frames])
        order = np.argsort(starts)
        upto = np.concatenate([[0], np.cumsum(rows[order], dtype=np.int64)])
        inside = upto[np.searchsorted(starts[order], behind)] - upto[np.searchsorted(starts[order], first)]
        return np.asarray(inside, np.int64)

    def leaves(self, edges: Sequence[int]) -> Parts:
        """Return the columns of groups, the leaf, and the number of rows of each part of the rows; leaves end at ``edges``."""
        ends = np.asarray(edges, np.int64)
        regions, finest = [], 64
        for frame in self._frames:
            cut = ends[(ends & ((1 << frame.shift) - 1)) != 0]
            here = np.isin(cut >> frame.shift, frame.cells)
            if here.any():
                regions.append((frame.shift, np.unique(cut[here] >> frame.shift).tolist()))
                finest = min(finest, *(((end & -end).bit_length() - 1) for end in cut[here].tolist()))
        if regions:
            self._add(finest, regions)
        return [
            (frame.columns, np.searchsorted(ends, frame.cells << frame.shift, side="right") - 1, frame.rows)
            for frame in self._frames
        ]

    def _add(self, shift: int, regions: Regions) -> None:
        frame = dict(self._read(shift, regions))
        cells, rows = (np.asarray(frame.pop(name), np.int64) for name in ("cell", "n"))
        self._frames = [earlier.without(regions) for earlier in self._frames] + [_Frame(shift, frame, cells, rows)]


__all__ = ["Parts", "Regions", "UnitRows"]
