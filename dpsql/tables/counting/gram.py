"""All one- and two-way tables of many small attributes at once: products of one-hot columns in BLAS, exact.

The first code of an attribute has no column; its counts are what the others leave. Blocks have at most `ROWS` rows, so two
counts fit into one float32: columns are multiplied with y1 + 4096 y2, and every sum stays below 2^24, where float32 holds
every whole number. Half the columns on one side, and only blocks on and above the diagonal: a quarter of the full product.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import TracebackType

import numpy as np
import numpy.typing as npt

from dpsql.numerics.arrays import IntArray
from dpsql.numerics.products import multiplies
from dpsql.running.blas import one_blas_thread
from dpsql.tables.counting.fold import Codes
from dpsql.tables.flat import FlatTables

Floats = npt.NDArray[np.float32]

ROWS = 4095  # 4095 + 4096 * 4095 < 2^24
_SHIFT = 12
_TILE = 256
_CELLS = 1 << 22  # gathered at a time


def workers() -> int:
    """Return the number of threads that count: the processors this process may use, at most 8 for the memory they take."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, 8)


def columns(sizes: Sequence[int], attributes: Sequence[int]) -> int:
    """Return the number of one-hot columns, made even."""
    count = sum(sizes[position] - 1 for position in attributes)
    return count + count % 2


class GramCounter:
    """Count every pair of one-hot columns, block by block, on all cores; a context manager, which stops the threads.

    Parameters
    ----------
    sizes : sequence of int, length m
    attributes : sequence of int
        Those that have one-hot columns, increasing.
    wanted : int64 array
        Positions of the tables that are counted, of at most two of the attributes each.
    tables : FlatTables
        Where they go.

    Notes
    -----
    Privacy: exact, secret counts. Whole numbers throughout, so the order of the threads does not matter.
    """

    def __init__(self, sizes: Sequence[int], attributes: Sequence[int], wanted: IntArray, tables: FlatTables) -> None:
        self._wanted, self._cliques, self._flat, self._offsets = wanted, tables.cliques, tables.flat, tables.offsets
        self._sizes, self._attributes = sizes, list(attributes)
        self.count = columns(sizes, attributes)
        self.rows = 0
        widths = [sizes[position] - 1 for position in attributes]
        self._starts = np.zeros(len(sizes), dtype=np.int64)
        self._starts[self._attributes] = np.concatenate([[0], np.cumsum(widths)[:-1]]) if widths else []
        self._products = np.zeros((self.count, self.count), dtype=np.int64)
        # Blocks of wide tables are shorter: 64 MB of one-hot columns for a thread.
        self._block = max(1, min(ROWS, 2**24 // max(self.count, 1)))
        self._lock, self._stop, self._local = threading.Lock(), threading.Event(), threading.local()
        self._pending: set[Future[None]] = set()
        self._threads = workers()

    def __enter__(self) -> GramCounter:
        """Start the threads."""
        self._blas = one_blas_thread()
        self._blas.__enter__()
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="dpsql-count")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop the threads, within a product of two blocks."""
        self._stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._blas.__exit__(kind, error, trace)

    def add(self, codes: Codes) -> None:
        """Count the rows of a block, one array of codes an attribute; waits while all threads have enough to do."""
        rows = len(codes[0]) if codes else 0
        parts = -(-rows // self._block)
        bounds = [rows * i // parts for i in range(parts + 1)] if parts else [0]
        for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
            self._wait(2 * self._threads - 1)
            self._pending.add(self._pool.submit(self._multiply, codes, start, stop))
        self.rows += rows

    def _wait(self, most: int) -> None:
        """Wait until at most ``most`` blocks are waiting; wakes up for an interruption."""
        while len(self._pending) > most:
            done, self._pending = wait(self._pending, timeout=0.2, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()

    @multiplies
    def _multiply(self, codes: Codes, start: int, stop: int) -> None:
        """Add one block's products."""
        hot, packed, room = self._buffers(stop - start)
        self._one_hot(codes, start, stop, hot)
        np.multiply(hot[1::2], np.float32(1 << _SHIFT), out=packed)
        packed += hot[0::2]
        for first in range(0, self.count, _TILE):
            if self._stop.is_set():
                return
            left, right = hot[first : first + _TILE], packed[first // 2 :]
            tile = room[: len(left) * len(right)].reshape(len(left), len(right))
            whole = np.matmul(left, right.T, out=tile).astype(np.int32)
            with self._lock:
                block = self._products[first : first + _TILE, first:]
                block[:, 0::2] += whole & ((1 << _SHIFT) - 1)
                block[:, 1::2] += whole >> _SHIFT

    def _buffers(self, rows: int) -> tuple[Floats, Floats, Floats]:
        """Return this thread's arrays, for a number of rows."""
        if not hasattr(self._local, "hot"):
            self._local.hot = np.zeros(self.count * self._block, dtype=np.float32)
            self._local.packed = np.empty(self.count // 2 * self._block, dtype=np.float32)
            self._local.room = np.empty(min(_TILE, self.count) * (self.count // 2), dtype=np.float32)
        hot: Floats = self._local.hot[: self.count * rows].reshape(self.count, rows)
        packed: Floats = self._local.packed[: self.count // 2 * rows].reshape(self.count // 2, rows)
        return hot, packed, self._local.room

    def _one_hot(self, codes: Codes, start: int, stop: int, hot: Floats) -> None:
        """Write the columns; one more is zero where their number is odd."""
        row = 0
        for position in self._attributes:
            column = codes[position][start:stop]
            if self._sizes[position] == 2:
                hot[row] = column
                row += 1
                continue
            for code in range(1, self._sizes[position]):
                np.equal(column, code, out=hot[row], casting="unsafe")
                row += 1
        hot[row:] = 0

    def finish(self) -> None:
        """Write the tables."""
        self._wait(0)
        margins = self._margins()
        pairs = []
        for place in self._wanted.tolist():
            clique = self._cliques[place]
            if len(clique) == 2:
                pairs.append(place)
            else:
                self._flat[self._offsets[place] : self._offsets[place + 1]] = margins[clique[0]] if clique else self.rows
        if pairs:
            attributes = np.asarray([self._cliques[place] for place in pairs], dtype=np.int64)
            self._pairs(attributes, np.asarray(pairs, dtype=np.int64), margins)

    def _margins(self) -> dict[int, IntArray]:
        """Return the one-way table of each attribute."""
        diagonal = np.diagonal(self._products)
        found = {}
        for position in self._attributes:
            start = int(self._starts[position])
            others = diagonal[start : start + self._sizes[position] - 1]
            found[position] = np.concatenate([[self.rows - others.sum()], others]).astype(np.int64)
        return found

    def _pairs(self, pairs: IntArray, places: IntArray, margins: dict[int, IntArray]) -> None:
        """Write the two-way tables, those of one shape together."""
        sizes = np.asarray(self._sizes, dtype=np.int64)[pairs]
        shape = sizes[:, 0] << 32 | sizes[:, 1]
        for kind in np.unique(shape).tolist():
            a, b = kind >> 32, kind & 0xFFFFFFFF
            chosen = np.flatnonzero(shape == kind)
            step = max(1, _CELLS // (a * b))
            for start in range(0, len(chosen), step):
                some = chosen[start : start + step]
                tables = self._gathered(pairs[some], a, b, margins)
                self._flat[self._offsets[places[some]][:, None] + np.arange(a * b)] = tables.reshape(len(some), a * b)

    def _gathered(self, pairs: IntArray, a: int, b: int, margins: dict[int, IntArray]) -> IntArray:
        """Return two-way tables of one shape, shape (n, a, b)."""
        left = (self._starts[pairs[:, 0]][:, None] + np.arange(a - 1))[:, :, None]
        right = (self._starts[pairs[:, 1]][:, None] + np.arange(b - 1))[:, None, :]
        inner = self._products[np.minimum(left, right), np.maximum(left, right)]
        rows, across = (self._stacked(pairs[:, side], size, margins) for side, size in ((0, a), (1, b)))
        tables = np.empty((len(pairs), a, b), dtype=np.int64)
        tables[:, 1:, 1:] = inner
        tables[:, 1:, 0] = rows[:, 1:] - inner.sum(axis=2)
        tables[:, 0, 1:] = across[:, 1:] - inner.sum(axis=1)
        tables[:, 0, 0] = rows[:, 0] - tables[:, 0, 1:].sum(axis=1)
        return tables

    def _stacked(self, positions: IntArray, size: int, margins: dict[int, IntArray]) -> IntArray:
        """Return the one-way tables of attributes of one size, one a row."""
        distinct, inverse = np.unique(positions, return_inverse=True)
        table = np.stack([margins[position] for position in distinct.tolist()])
        return table.reshape(len(distinct), size)[inverse.ravel()]
