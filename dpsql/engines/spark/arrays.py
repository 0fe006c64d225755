"""Counts in arrays, on Spark's workers: one array of all cells for each task, and the sum of these arrays.

This file, `dpsql.tables.counting.fold` and `dpsql.tables.counting.products` go to the workers by value
(`dpsql.engines.spark.shipping`), so a worker needs numpy and pyarrow, but not dpsql. Nothing in them reads a value: rows are codes
when they come here.

An array leaves a task in chunks of `CHUNK` cells, (number, bytes). What is moved is proportional to cells and tasks, never to rows.
A task's chunks are made once all of its rows are counted. Of the attempts at a task Spark takes one, so no row counts twice.

Privacy: exact, secret counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsql.tables.counting.fold import Fold, FoldCounter
from dpsql.tables.counting.products import Products, blocks, unpack

Ints = npt.NDArray[np.int64]
Codes = list[npt.NDArray[np.integer]]
Batches = Iterator[pa.RecordBatch]
Mapper = Callable[[Batches], Batches]

CHUNK = 1024
"""Cells of a chunk: 8 kB, so that the 10,000 rows that Spark hands over together are 80 MB at most."""
SCHEMA = "chunk INT, cells BINARY"
HEAD = 2
"""Numbers before the cells: rows, and whether a row had a code that is missing or none."""
_EMITTED = 256  # chunks of a batch
_PACKED, _BITS = 16, 62  # the most codes of an attribute that shares a word, and the bits of a word


_NO_CODES: npt.NDArray[np.integer] = np.zeros(0, dtype=np.uint8)


@dataclass(frozen=True)
class Layout:
    """How codes come to a worker: small ones packed into words, which saves most of what a value costs on its way into Python.

    Above each code a bit is left free. A code that is too large, or missing, comes as its attribute's size, see
    `dpsql.engines.spark.tables.wire_sql`: beyond the attribute's codes, or that bit. A negative one sets free bits above it.

    Parameters
    ----------
    words : tuple of tuples of (position, shift, bits)
        Attributes of each BIGINT.
    alone : tuple of int
        Attributes with a column of their own, behind the words.
    """

    words: tuple[tuple[tuple[int, int, int], ...], ...]
    alone: tuple[int, ...]

    @property
    def free(self) -> tuple[int, ...]:
        """The bits of each word that no code has, as a signed number."""
        return tuple(~sum(((1 << bits) - 1) << shift for _, shift, bits in fields) for fields in self.words)


def layout(sizes: Sequence[int]) -> Layout:
    """Return how rows of attributes of these sizes come.

    Examples
    --------
    >>> layout([2, 300, 5])
    Layout(words=(((0, 0, 1), (2, 2, 3)),), alone=(1,))
    """
    words: list[list[tuple[int, int, int]]] = []
    used = _BITS
    for position in sorted((i for i, size in enumerate(sizes) if size <= _PACKED), key=lambda i: sizes[i]):
        bits = (sizes[position] - 1).bit_length()
        if used + bits + 1 > _BITS:
            words.append([])
            used = 0
        words[-1].append((position, used, bits))
        used += bits + 1
    return Layout(tuple(map(tuple, words)), tuple(i for i, size in enumerate(sizes) if size > _PACKED))


@dataclass(frozen=True)
class Square:
    """The products of the one-hot columns of some attributes, so many of them, with each other."""

    attributes: tuple[int, ...]
    count: int


@dataclass(frozen=True)
class Pass:
    """What is counted in one pass over the rows: products of one-hot columns, and tables by folds.

    Parameters
    ----------
    sizes : tuple of int
        Number of codes of each attribute.
    cliques : tuple of tuples of int
        Tables that the folds yield.
    ends : tuple of int
        Cells of these tables, added up.
    folds : tuple of Fold
        ``wanted`` are positions in ``cliques``.
    square : Square, optional
    """

    sizes: tuple[int, ...]
    cliques: tuple[tuple[int, ...], ...] = ()
    ends: tuple[int, ...] = ()
    folds: tuple[Fold, ...] = ()
    square: Square | None = None

    @property
    def cells(self) -> int:
        """Cells of the tables of the folds."""
        return self.ends[-1] if self.ends else 0

    @property
    def length(self) -> int:
        """Numbers that a task yields."""
        return HEAD + self.cells + (self.square.count**2 if self.square else 0)


@dataclass(frozen=True)
class _Tables:
    """As much of `dpsql.tables.flat.FlatTables` as a `FoldCounter` needs."""

    sizes: Sequence[int]
    cliques: Sequence[tuple[int, ...]]
    flat: Ints
    offsets: Ints = field(repr=False)


def counting(task: Pass) -> Mapper:
    """Return what counts the rows of a task, for mapInArrow."""

    def count(batches: Batches) -> Batches:
        flat = np.zeros(task.length, dtype=np.int64)
        behind = HEAD + task.cells
        offsets = np.asarray((0, *task.ends), dtype=np.int64)
        counter = FoldCounter(_Tables(task.sizes, task.cliques, flat[HEAD:behind], offsets), task.folds)  # type: ignore[arg-type]
        products = square = None
        if task.square is not None:
            products = Products(task.sizes, task.square.attributes)
            square = flat[behind:].reshape(task.square.count, task.square.count)
        wire = layout(task.sizes)
        for batch in batches:
            codes = codes_of(batch, wire, task.sizes, flat)
            if codes is None:
                continue
            flat[0] += batch.num_rows
            if task.folds:
                counter.add(codes)  # type: ignore[arg-type]
            if products is not None and square is not None:
                _multiply(products, codes, batch.num_rows, square)
        counter.finish()
        yield from chunks(flat)

    return count


def _multiply(products: Products, codes: Codes, rows: int, square: Ints) -> None:
    for start, stop in blocks(products.count, rows):
        for first, tile in products.tiles(codes, start, stop):
            unpack(tile, square[first : first + len(tile), first:])


def codes_of(batch: pa.RecordBatch, wire: Layout, sizes: Sequence[int], head: Ints) -> Codes | None:
    """Return the codes of a batch, an array for each attribute; None, and a mark in the head, where one is missing or no code."""
    by_position: Codes = [_NO_CODES] * len(sizes)
    # an error that a worker raises would quote its rows: all that comes out is a mark in the head
    if any(column.null_count for column in batch.columns):
        head[1] = 1
        return None
    columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
    for word, fields, free in zip(columns, wire.words, wire.free, strict=False):
        if (word & free).any():
            head[1] = 1
            return None
        # a word of flags alone is unpacked at once
        if all(bits == 1 for _, _, bits in fields):
            single = np.unpackbits(word.astype("<i8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
            across = np.ascontiguousarray(single.T)
            for position, shift, _ in fields:
                by_position[position] = across[shift]
        else:
            for position, shift, bits in fields:
                codes = ((word >> shift) & ((1 << bits) - 1)).astype(np.uint8)
                if sizes[position] < 1 << bits and codes.size and codes.max() >= sizes[position]:
                    head[1] = 1
                    return None
                by_position[position] = codes
    # attributes that share no word have columns of their own
    for alone, position in zip(columns[len(wire.words) :], wire.alone, strict=False):
        if alone.dtype.kind != "i" or (alone.size and (alone.min() < 0 or alone.max() >= sizes[position])):
            head[1] = 1
            return None
        by_position[position] = alone
    return by_position


def chunks(flat: Ints) -> Batches:
    """Yield an array in chunks, but those that are all zero."""
    starts = [start for start in range(0, flat.size, CHUNK) if flat[start : start + CHUNK].any()]
    for at in range(0, len(starts), _EMITTED):
        some = starts[at : at + _EMITTED]
        numbers = pa.array([start // CHUNK for start in some], pa.int32())
        yield pa.RecordBatch.from_arrays(
            [numbers, pa.array([flat[start : start + CHUNK].tobytes() for start in some], pa.binary())], names=["chunk", "cells"]
        )


def adding() -> Mapper:
    """Return what adds the chunks of one number, for mapInArrow."""

    def add(batches: Batches) -> Batches:
        totals: dict[int, Ints] = {}
        for batch in batches:
            for number, cells in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                part = np.frombuffer(cells.as_buffer(), dtype=np.int64)
                if number in totals:
                    totals[number] += part
                else:
                    totals[number] = part.copy()
        for at in range(0, len(numbers := sorted(totals)), _EMITTED):
            some = numbers[at : at + _EMITTED]
            yield pa.RecordBatch.from_arrays(
                [pa.array(some, pa.int32()), pa.array([totals[number].tobytes() for number in some], pa.binary())],
                names=["chunk", "cells"],
            )

    return add


def gathered(table: pa.Table, length: int) -> Ints:
    """Return the array that chunks are of."""
    flat = np.zeros(length, dtype=np.int64)
    for number, cells in zip(table.column(0).to_pylist(), table.column(1), strict=True):
        part = np.frombuffer(cells.as_buffer(), dtype=np.int64)
        flat[number * CHUNK : number * CHUNK + part.size] += part
    return flat
