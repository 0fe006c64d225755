"""Tables fitted each by itself: a baseline, in which rows are given to parents at random.

Privacy: post-processing of released statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dpsql.methods.nested_classes.efforts import USUAL, fit
from dpsql.methods.nested_classes.model import NestedClasses
from dpsql.methods.nested_classes.shapes import Block, Shape, TableShape
from dpsql.numerics.arrays import FloatArray


def fit_apart(
    shape: Shape,
    blocks: Sequence[Block],
    values: Sequence[FloatArray],
    deviations: Sequence[float],
    effort: str = USUAL,
    seed: int = 0,
) -> NestedClasses:
    """Fit classes of each table to its own noisy blocks; the class of a row says nothing of those above and below it.

    Parameters
    ----------
    shape : Shape
    blocks : sequence of Block
        Of kinds 'one' and 'pair'; the numbers of rows of child tables are columns of their parent's table.
    values : sequence of ndarray
        Noisy numbers of rows, each of its block's shape.
    deviations : sequence of float
        Standard deviation of the noise of each block's cells, in rows; 0: exact.
    effort : {'fast', 'balanced', 'best'}
    seed : int

    Notes
    -----
    Privacy: post-processing.
    """
    models = [_alone(shape, t, blocks, values, deviations, effort, seed + t) for t in range(len(shape.tables))]
    given = [np.zeros((models[0].shares.size, 0, 0))]
    for t, table in enumerate(shape.tables[1:], 1):
        own, above = models[t].shares, models[shape.parent(t)].shares
        given.append(np.broadcast_to(own[:, None, None], (own.size, table.slots, above.size)).copy())
    return NestedClasses(shape, models[0].shares, tuple(model.values[0] for model in models), tuple(given))


def _alone(
    shape: Shape,
    t: int,
    blocks: Sequence[Block],
    values: Sequence[FloatArray],
    deviations: Sequence[float],
    effort: str,
    seed: int,
) -> NestedClasses:
    """Fit one table, taken for a root: below it are its child tables without columns, so that it has numbers of rows."""
    below = [TableShape(shape.tables[child].name, 0, (), shape.tables[child].most) for child in shape.children(t)]
    lone = Shape((replace(shape.tables[t], parent=None, most=1, order=None, groups=(1,)), *below))
    own = [place for place, block in enumerate(blocks) if block.table == t]
    units = max(total([values[place] for place in own], [deviations[place] for place in own]), 1.0)
    moved = [_moved(blocks[place]) for place in own]
    shares, noise = [values[place] / units for place in own], [deviations[place] / units for place in own]
    return fit(lone, moved, shares, noise, units, effort, seed)


def _moved(block: Block) -> Block:
    """Return the block of the same columns of a root."""
    return Block(block.kind, (0, block.left[1]), None if block.right is None else (0, block.right[1]))


def total(values: Sequence[FloatArray], deviations: Sequence[float]) -> float:
    """Return the number of rows that noisy tables of all of them say: each adds up to it, weighted by the inverse of its variance.

    Examples
    --------
    >>> round(total([np.array([3.0, 5.0]), np.array([10.0])], [1.0, 1.0]), 3), total([], [])
    (9.333, 0.0)
    """
    weights = np.asarray([1.0 / (value.size * deviation**2 + 1e-12) for value, deviation in zip(values, deviations, strict=True)])
    sums = np.asarray([value.sum() for value in values])
    return float((weights * sums).sum() / weights.sum()) if weights.size else 0.0
