"""Noisy blocks as what nested classes are fitted to: one matrix for each table, pair of tables and table of siblings.

Blocks are taken as they are, negative cells and contradictions included: the fit weighs them against each other.

Privacy: post-processing of released statistics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dpsql.errors import ArgumentError
from dpsql.methods.nested_classes.model import slices
from dpsql.methods.nested_classes.shapes import ORDERED, Block, Shape, unfolded
from dpsql.methods.nested_classes.smooth import smoothed
from dpsql.numerics.arrays import FloatArray
from dpsql.tables.consistency import simplex_projection

Float32 = npt.NDArray[np.float32]

LARGEST_STRENGTH = 1e4
"""Of 1 / deviation: beyond it the error of the model itself is larger than the noise, and float32 ends."""

_LEAST_TOTAL = 0.01


@dataclass
class Target:
    """One matrix of shares of units, with the precision of each cell relative to strength^2; 0: not measured."""

    shares: Float32
    weights: Float32


@dataclass(frozen=True)
class Targets:
    """What nested classes are fitted to.

    Parameters
    ----------
    shape : Shape
    strength : float
        1 / deviation of the blocks of two columns (root mean square precision of the cells), at most 1e4; 0: none.
    one_way : tuple of ndarray, shape (D_t,)
        Shares of each extended column's codes among a table's rows (by weight): non-negative, sum 1 a column.
    singles : tuple of Target, shape (D_t,)
        The 'one' blocks.
    pairs, siblings : tuple of Target, shape (G_t, D_t, D_t)
        By groups of parent rows, and symmetric. As every loss of a symmetric matrix is halved, a cell of a sibling's column with
        itself has twice its precision on the diagonal, and four times where it is half of what was released.
    across : dict of (int, int) to Target, shape (G_t, D_a, D_t)
        By the ancestor's table and the table; blocks that are not split stand in the first group.
    """

    shape: Shape
    strength: float
    one_way: tuple[FloatArray, ...]
    singles: tuple[Target, ...]
    pairs: tuple[Target, ...]
    siblings: tuple[Target, ...]
    across: dict[tuple[int, int], Target] = field(default_factory=dict)


def targets(shape: Shape, blocks: Sequence[Block], values: Sequence[FloatArray], deviations: Sequence[float]) -> Targets:
    """Collect noisy blocks.

    Parameters
    ----------
    values : sequence of ndarray
        Noisy shares of units, each of its block's shape.
    deviations : sequence of float
        Standard deviation of each block's noise, as a share; 0: exact.

    Raises
    ------
    ArgumentError
        If the lengths differ, or a block's values have another shape.

    Notes
    -----
    Privacy: post-processing.
    """
    if not len(blocks) == len(values) == len(deviations):
        raise ArgumentError("values", len(values), f"one array and one deviation for each of {len(blocks)} blocks")
    kept = [place for place, block in enumerate(blocks) if block.kind not in ORDERED]  # `order.py` takes the others
    blocks, values, deviations = ([listed[place] for place in kept] for listed in (blocks, values, deviations))  # type: ignore[assignment]
    precisions = [min(1.0 / max(deviation, 1e-30), LARGEST_STRENGTH) ** 2 for deviation in deviations]
    two = [(p, math.prod(b.shape(shape))) for b, p in zip(blocks, precisions, strict=True) if b.right is not None]
    cells = sum(count for _, count in two)
    strength = math.sqrt(sum(p * count for p, count in two) / cells) if cells else 0.0
    unit = max(strength, 1.0) ** 2
    tables = range(len(shape.tables))
    lengths, groups = [sum(shape.extended(t)) for t in tables], [shape.group_count(t) for t in tables]
    known = _smooth(shape, column_shares(blocks, values, precisions))
    collected = Targets(
        shape, strength, _one_way(shape, known), tuple(_empty(n) for n in lengths),
        tuple(_empty(g, n, n) for g, n in zip(groups, lengths, strict=True)),
        tuple(_empty(g, n, n) for g, n in zip(groups, lengths, strict=True)),
        {(a, t): _empty(groups[t], lengths[a], lengths[t]) for t in tables for a in shape.path(t)[:-1]},
    )  # fmt: skip
    for block, value, precision in zip(blocks, values, precisions, strict=True):
        _put(collected, block, np.asarray(value, float), precision / unit)
    # Numbers of children were estimated from all tables that hold them: that stands instead of a single table's.
    for (t, i), (estimate, variances) in known.items():
        if i >= len(shape.tables[t].sizes):
            place, most = slices(shape, t)[i], LARGEST_STRENGTH**2
            collected.singles[t].shares[place] = estimate
            collected.singles[t].weights[place] = np.minimum(1.0 / np.maximum(variances, 1e-30), most) / unit
    return collected


def _empty(*lengths: int) -> Target:
    return Target(np.zeros(lengths, np.float32), np.zeros(lengths, np.float32))


def _put(collected: Targets, block: Block, value: FloatArray, weight: float) -> None:
    """Write a block where it belongs."""
    if value.shape != block.shape(collected.shape):
        raise ArgumentError(f"values of {block}", value.shape, f"an array of shape {block.shape(collected.shape)}")
    (t, i), (u, j) = block.left, block.right or block.left
    rows, columns = slices(collected.shape, t)[i], slices(collected.shape, u)[j]
    if block.kind == "one":
        collected.singles[t].shares[rows], collected.singles[t].weights[rows] = value, weight
        return
    some = slice(None) if block.split(collected.shape) else slice(0, 1)
    if block.kind == "across":
        target = collected.across[t, u]
        target.shares[some, rows, columns], target.weights[some, rows, columns] = value, weight
        return
    target = (collected.pairs if block.kind == "pair" else collected.siblings)[t]
    if block.folded:
        target.shares[some, rows, rows] = unfolded(value)
        target.weights[some, rows, rows] = weight * (4.0 - 2.0 * np.eye(rows.stop - rows.start))
        return
    # Above the diagonal as it is, below it turned round.
    for place, part in (((some, rows, columns), value), ((some, columns, rows), np.swapaxes(value, -1, -2))):
        target.shares[place], target.weights[place] = part, weight


_Known = dict[tuple[int, int], tuple[FloatArray, FloatArray]]
"""Shares of units by the codes of columns, and the variances of their noise."""


def column_shares(blocks: Sequence[Block], values: Sequence[FloatArray], precisions: Sequence[float]) -> _Known:
    """Return each column's shares, from all blocks of its table that it is in but those of siblings."""
    sums: dict[tuple[int, int], FloatArray] = {}
    known: dict[tuple[int, int], float] = {}
    for block, value, precision in zip(blocks, values, precisions, strict=True):
        sides = [block.left] if block.right is None else [block.left, block.right]
        # Siblings, and the ancestor of an 'across' block, are not all of their table's rows.
        for axis in {"one": (0,), "pair": (0, 1), "across": (1,), "sibling": ()}[block.kind]:
            table = np.asarray(value, float)
            own = table.ndim - len(sides) + axis  # behind that of groups
            summed = table.sum(axis=tuple(a for a in range(table.ndim) if a != own))
            weight = precision * summed.size / table.size
            sums[sides[axis]] = sums.get(sides[axis], np.zeros_like(summed)) + weight * summed
            known[sides[axis]] = known.get(sides[axis], 0.0) + weight
    return {column: (summed / known[column], np.full(summed.size, 1.0 / known[column])) for column, summed in sums.items()}


def _smooth(shape: Shape, known: _Known) -> _Known:
    """Return the shares, those of numbers of children smoothed."""
    return {(t, i): smoothed(*estimates) if i >= len(shape.tables[t].sizes) else estimates for (t, i), estimates in known.items()}


def _one_way(shape: Shape, known: _Known) -> tuple[FloatArray, ...]:
    """Return each column's shares among its table's rows."""
    columns = [[(t, i) for i in range(len(shape.extended(t)))] for t in range(len(shape.tables))]
    return tuple(
        np.concatenate([
            np.zeros(0),
            *(_normalised(known[c][0], not c[0]) if c in known else _uniform(shape.extended(c[0])[c[1]]) for c in own),
        ])
        for own in columns
    )  # fmt: skip


def _uniform(size: int) -> FloatArray:
    return np.full(size, 1.0 / size)


def _normalised(estimate: FloatArray, root: bool) -> FloatArray:
    """Return non-negative shares, sum 1. Units without rows are not in a child table, so its total is estimated."""
    total = 1.0 if root else min(max(float(estimate.sum()), _LEAST_TOTAL), 1.0)
    shares: FloatArray = simplex_projection(estimate + (total - estimate.sum()) / estimate.size, total) / total
    return shares
