"""Which codes of other rows leave a row with a combination of codes in which it may obey the rules of a group.

Privacy: post-processing; codes of synthetic rows, and the public rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpsql.numerics.arrays import FloatArray
from dpsql.numerics.products import multiplies
from dpsql.rows.block import Block, Places
from dpsql.tables.emptied import Cells

_MOST_PAIRS = 1 << 22
"""Combinations of codes that are looked at together, of rows and those to exchange with."""
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PossibleCodes:
    """The combinations of codes with which rows may obey.

    Parameters
    ----------
    cells : bool array
        An axis for each column of the rules.
    positions : sequence of int
        These columns of a block.
    free : int
        How many of them, the first ones, may change.
    """

    cells: Cells
    positions: Sequence[int]
    free: int

    @multiplies
    def near(self, block: Block) -> FloatArray:
        """Return how many codes of all rows of a block make, instead of one of a combination of codes, a possible one of it."""
        ways = np.zeros(self.cells.shape)
        for axis, position in enumerate(self.positions):
            counts = np.bincount(block.codes(position), minlength=self.cells.shape[axis])
            ways += np.expand_dims(np.tensordot(counts, self.cells, (0, axis)), axis)
        return ways

    def fitting(
        self, block: Block, broken: Places, donors: Places, rng: np.random.Generator, count: int, *, both: bool = True
    ) -> Places:
        """Return donors for each row with whose codes an exchange of one column may leave both with codes of rows that obey.

        Where there is none any donor is returned. ``both``: or the donor alone.
        """
        shape = self.cells.shape
        own, which = np.unique(self._combined(block, broken), return_inverse=True)
        combined = self._combined(block, donors)
        order = rng.permutation(len(donors))
        order = order[np.argsort(combined[order], kind="stable")]
        theirs, start, numbers = np.unique(combined[order], return_index=True, return_counts=True)
        if len(own) * len(theirs) > _MOST_PAIRS:
            some = np.sort(rng.choice(len(theirs), max(_MOST_PAIRS // len(own), 1), replace=False))
            theirs, start, numbers = theirs[some], start[some], numbers[some]
        left, right = np.unravel_index(own, shape), np.unravel_index(theirs, shape)
        may = np.zeros((len(own), len(theirs)), bool)
        for axis in range(self.free):
            ours = self._with_any(right, axis)[:, left[axis]].T
            may |= (ours & self._with_any(left, axis)[:, right[axis]]) if both else ours
        # A row that no donor suits draws from all of them, so that each row gets as many.
        may[~may.any(axis=1)] = True
        sums = np.cumsum(may * numbers, axis=1)  # a row of numbers of donors after the other, each begun where the last one ended
        ends = np.cumsum(sums[:, -1])
        begun = (ends - sums[:, -1])[which, None]
        drawn = begun + np.floor(rng.random((len(broken), count)) * sums[which, -1:]).astype(np.int64)
        flat = np.searchsorted((sums + (ends - sums[:, -1])[:, None]).ravel(), drawn.ravel(), side="right")
        place = flat.reshape(drawn.shape) % len(theirs)
        inside = np.floor(rng.random(drawn.shape) * numbers[place]).astype(np.int64)
        return np.asarray(donors[order[start[place] + inside]])

    def _with_any(self, codes: Sequence[Places], axis: int) -> Mask:
        """Return of combinations of codes whether a row may obey that has another code of one axis, for each, shape (n, codes)."""
        every = np.arange(self.cells.shape[axis])
        may = self.cells[tuple(every if a == axis else own[:, None] for a, own in enumerate(codes))]
        return np.broadcast_to(may, (len(codes[axis]), every.size))

    def _combined(self, block: Block, rows: Places) -> Places:
        """Return the number of the combination of codes of each row."""
        codes = tuple(block.codes(position)[rows].astype(np.int64) for position in self.positions)
        return np.asarray(np.ravel_multi_index(codes, self.cells.shape), np.int64)
