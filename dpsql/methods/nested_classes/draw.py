"""Rows of linked tables from nested classes, with far less sampling noise than independent draws have.

1. Units' classes by systematic sampling; within a class every extended column (fan-outs too) takes each value as often as the
   model says, rounded up or down, and what rounding leaves over is carried from class to class. Values are in random order.
2. A table's rows are then known: so many of each parent row. Of all rows in one slot whose parents' rows are of one class, each
   class of their own comes out as often as expected, in random order; then their columns as in 1. And so on down.

3. An average of models is drawn model by model: as many units of each, and in one part of the units one of them where there are
   parts enough. So a class has more rows at once, of which less is rounded, and tables of shares are smaller.
4. Rows of a table with an order are put into it, family by family (`lines.py`), before rows below them are drawn.

Rows of a parent stand together, in the order of the parents. Memory is linear in the units drawn at once; `draw_parts` bounds it.

Privacy: post-processing of released statistics.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.methods.mixture.rows import rounded, shuffled, systematic
from dpsql.methods.nested_classes.lines import Lines
from dpsql.methods.nested_classes.model import NestedClasses, parted, slices, slot_shares, slots_of
from dpsql.methods.nested_classes.shapes import Shape
from dpsql.numerics.arrays import FloatArray
from dpsql.numerics.products import multiplies
from dpsql.running.blocks import Stop, generators
from dpsql.running.blocks import drawn as drawn_blocks

Int32 = npt.NDArray[np.int32]
IndexArray = npt.NDArray[np.intp]

LONGEST_PART = 1 << 16
"""Units drawn at once, and fewer where a unit may have many rows."""


@dataclass(frozen=True)
class Drawn:
    """Rows of one table.

    Parameters
    ----------
    codes : ndarray of int32, shape (rows, extended columns)
        Each column contiguous.
    parent : ndarray of int64, shape (rows,)
        Position of each row's parent row in the parent's table, ascending; empty for the root.
    order : ndarray of float64, shape (rows,), optional
        Values of the column that rows of one parent row are ordered by: inside the bins, ascending; NaN where the code is no bin.
    """

    codes: Int32
    parent: npt.NDArray[np.int64]
    order: FloatArray | None = None


def draw(model: NestedClasses, units: int, rng: np.random.Generator, stop: Stop | None = None) -> list[Drawn]:
    """Return the rows of every table.

    Parameters
    ----------
    model : NestedClasses
    units : int
        Rows of the root, at least 0.
    rng : numpy.random.Generator
        The same state gives the same rows.
    stop : Stop, optional
        Looked at before each column.

    Notes
    -----
    Privacy: post-processing.
    """
    stop, pieces = stop or Stop(), parted(model)
    if len(pieces) == 1:
        return _drawn(model, units, rng, stop)
    first = int(rng.integers(len(pieces)))  # none has a unit more than others on the average
    counts = [len(range((first + i) % len(pieces), units, len(pieces))) for i in range(len(pieces))]
    return _together(model.shape, [_drawn(piece, count, rng, stop) for piece, count in zip(pieces, counts, strict=True)])


def _together(shape: Shape, parts: Sequence[list[Drawn]]) -> list[Drawn]:
    """Return the rows of parts, one after the other."""
    together = []
    for t, table in enumerate(shape.tables):
        rows = [part[t] for part in parts]
        above = [0 if table.parent is None else len(part[table.parent].codes) for part in parts]
        parent = np.concatenate([drawn.parent + start for drawn, start in zip(rows, np.cumsum(above) - above, strict=True)])
        orders = [drawn.order for drawn in rows if drawn.order is not None]
        codes = np.concatenate([drawn.codes.T for drawn in rows], axis=1).T  # each column contiguous
        together.append(Drawn(codes, parent, np.concatenate(orders) if orders else None))
    return together


def _drawn(model: NestedClasses, units: int, rng: np.random.Generator, stop: Stop) -> list[Drawn]:
    shape = model.shape
    orders = {ordering.table: ordering for ordering in model.orders}
    tables: list[Drawn] = []
    classes: list[IndexArray] = []
    for t, table in enumerate(shape.tables):
        if table.parent is None:
            parents = np.zeros(0, np.int64)
            # A random order of classes makes what systematic sampling rounds unbiased; then units are shuffled.
            order = rng.permutation(model.shares.size)
            own = rng.permutation(np.repeat(order, systematic(model.shares[order], units, rng)))
        else:
            # The place of a row among its siblings says which slot it is in.
            fan_out = tables[table.parent].codes[:, shape.fan_out(t)]
            parents = np.repeat(np.arange(fan_out.size, dtype=np.int64), fan_out)
            first = np.cumsum(fan_out) - fan_out
            slots = slots_of(table, np.arange(parents.size) - first[parents])
            given = model.given[t].reshape(len(model.given[t]), table.slots * model.given[t].shape[2])
            own = allocated(slots * model.given[t].shape[2] + classes[table.parent][parents], given.T, rng).astype(np.intp)
        codes = np.empty((len(shape.extended(t)), own.size), np.int32)
        by_class = np.argsort(own.astype(_smallest(model.values[t].shape[1])), kind="stable")
        for column, block in zip(codes, slices(shape, t), strict=True):
            stop.check()
            column[:] = allocated(own, model.values[t][block].T, rng, by_class)
        values: FloatArray | None = None
        if t in orders:
            # Rows change places among their siblings only: parents stay as they are.
            lines = Lines(orders[t], codes, parents, rng)
            lines.run(stop)
            codes, own, values = codes[:, lines.at], own[lines.at], lines.values
            codes[orders[t].column] = lines.bins
        tables.append(Drawn(codes.T, parents, values))
        classes.append(own)
    return tables


def draw_parts(
    model: NestedClasses, units: int, rng: np.random.Generator, longest: int | None = None
) -> Iterator[list[Drawn]]:
    """Yield the rows of part after part of the units, drawn by several threads; memory does not grow with the units.

    Parameters
    ----------
    model : NestedClasses
    units : int
        At least 0.
    rng : numpy.random.Generator
        The same state gives the same rows, however many threads there are.
    longest : int, optional
        Units of a part at most; by default 65,536, and fewer where units have more than about eight rows.

    Yields
    ------
    list of Drawn
        As `draw` gives; positions of parents count from the start of the part. Nothing for no units.
    """
    length = longest or part_length(model)
    parts, pieces = -(-units // length), parted(model)
    if parts < len(pieces):
        pieces = [model]
    parts = -(-parts // len(pieces)) * len(pieces)

    def task(piece: NestedClasses, count: int, own: np.random.Generator) -> Callable[[Stop], list[Drawn]]:
        return lambda stop: draw(piece, count, own, stop)

    lengths = [units // parts + (part < units % parts) for part in range(parts)]
    owners = zip(itertools.cycle(pieces), lengths, generators(rng, parts))
    yield from drawn_blocks([task(*owner) for owner in owners])


def part_length(model: NestedClasses) -> int:
    """Return how many units are drawn at once by default: about half a million rows in all tables at most."""
    return int(min(LONGEST_PART, max((8 * LONGEST_PART) // rows_of_a_unit(model), 1)))


def rows_of_a_unit(model: NestedClasses) -> float:
    """Return the model's mean number of rows of a unit in all tables together, at least 1."""
    return max(float(np.mean([_rows_of_a_unit(part) for part in parted(model)])), 1.0)


@multiplies
def _rows_of_a_unit(model: NestedClasses) -> float:
    shape, rows = model.shape, [model.shares]
    for t, table in enumerate(shape.tables[1:], 1):
        parent, numbers = shape.parent(t), np.arange(table.most + 1)
        counts = slot_shares(table)[0].sum(axis=0) * numbers[:, None]
        fan_out = model.values[parent][slices(shape, parent)[shape.fan_out(t)]]
        rows.append(np.einsum("ysk,ns,nk->y", model.given[t], counts, fan_out * rows[parent], optimize=True))
    return float(sum(table.sum() for table in rows))


def allocated(
    classes: IndexArray, shares: FloatArray, rng: np.random.Generator, order: IndexArray | None = None
) -> npt.NDArray[Any]:
    """Return a value for each row: in every class each as often as its shares say, rounded, in random order.

    Parameters
    ----------
    classes : ndarray, shape (n,)
    shares : ndarray, shape (K, c)
        Rows sum to 1.
    order : ndarray, shape (n,), optional
        Positions of the rows sorted by class.

    Returns
    -------
    ndarray of the smallest unsigned type, shape (n,)
    """
    size = shares.shape[1]
    kind = _smallest(size)
    if order is None:
        order = np.argsort(classes.astype(_smallest(shares.shape[0])), kind="stable")
    counts = np.bincount(classes, minlength=shares.shape[0])
    present = rng.permutation(np.flatnonzero(counts))  # in random order, so that what is carried favours no class
    counted = rounded(shares[present] * counts[present, None], counts[present], rng)
    whole = np.zeros((shares.shape[0], size), np.intp)
    whole[present] = counted
    values = np.repeat(np.tile(np.arange(size, dtype=kind), shares.shape[0]), whole.ravel())
    drawn = np.empty(classes.size, kind)
    drawn[order] = shuffled(values, np.repeat(np.arange(counts.size), counts), size, rng)
    return drawn


def _smallest(size: int) -> np.dtype[Any]:
    return np.min_scalar_type(max(size, 2) - 1)
