"""Codes that nobody has, as far as released tables can say: their noise makes no rows.

A column that may be NULL by its type has a code for it, whether anybody has it or not. A model has no negative shares, so what
noise leaves above zero becomes rows, and what it leaves below is lost: one NULL in five hundred where there is none. All tables of
a column together say how many units a code has, and how sure that is (`column_shares`); where that does not pass `MISSING`
deviations of the noise, the code has none, in any table. Most columns without a constraint have either no NULL or many.

Declared categories stay, for they mostly exist, and one that is lost is missed by whoever groups by it: with one deviation for them
a tenth of a clinic's group means had no group.

Privacy: post-processing of released statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dpsql.methods.nested_classes.model import NestedClasses, slices
from dpsql.methods.nested_classes.shapes import ORDERED, Block, folded, unfolded
from dpsql.methods.nested_classes.targets import column_shares
from dpsql.numerics.arrays import FloatArray

MISSING = 3.0
"""Standard deviations that the number of units of a code has to pass: one code in 700 that nobody has does."""

Column = tuple[int, int]
Flags = npt.NDArray[np.bool_]


def absent(
    blocks: Sequence[Block], values: Sequence[FloatArray], deviations: Sequence[float], some: Mapping[Column, Flags]
) -> dict[Column, Flags]:
    """Return which codes of columns nobody has; columns without such a code, or with no other, are left out.

    Parameters
    ----------
    blocks : sequence of Block
    values : sequence of ndarray
        Noisy, each of its block's shape.
    deviations : sequence of float
        Of the noise of each block's cells.
    some : mapping of (table, column) to bool array, shape (codes,)
        Which codes it may be that nobody has: NULL, and what stands for other values.

    Notes
    -----
    Privacy: post-processing.

    Examples
    --------
    >>> absent([Block("one", (0, 0))], [np.array([90.0, 0.5, 2.0])], [1.0], {(0, 0): np.array([False, False, True])})
    {(0, 0): array([False, False,  True])}
    """
    kept = [place for place, block in enumerate(blocks) if block.kind not in ORDERED]
    precisions = [1.0 / max(deviations[place], 1e-30) ** 2 for place in kept]
    flags = {}
    for column, (counts, variances) in column_shares([blocks[p] for p in kept], [values[p] for p in kept], precisions).items():
        if column in some:
            none = some[column] & (counts <= MISSING * np.sqrt(variances))
            if none.any() and not none.all():
                flags[column] = none
    return flags


def without(block: Block, value: FloatArray, codes: Mapping[Column, Flags]) -> FloatArray:
    """Return a block whose cells of codes that nobody has are zero."""
    if block.kind == "gap":
        return value
    sides = [block.left] if block.right is None else [block.left, block.right]
    if not any(side in codes for side in sides):
        return value
    table = unfolded(value) if block.folded else np.array(value, float)
    for axis, side in enumerate(sides):
        if side in codes:
            np.moveaxis(table, table.ndim - len(sides) + axis, 0)[codes[side]] = 0.0
    return folded(table) if block.folded else table


def barred(model: NestedClasses, codes: Mapping[Column, Flags]) -> NestedClasses:
    """Return the model in which no class has codes that nobody has."""
    copies = [values.copy() for values in model.values]
    for (t, i), none in codes.items():
        part = copies[t][slices(model.shape, t)[i]]  # a view
        part[none] = 0.0
        part[~none] += 1e-12  # of a class that had no others
        part /= part.sum(axis=0)
    return replace(model, values=tuple(copies))
