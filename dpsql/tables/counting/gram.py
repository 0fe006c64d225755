"""All one- and two-way tables of many small attributes at once, from products of one-hot columns, on all cores."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import TracebackType

import numpy as np

from dpsql.numerics.arrays import IntArray
from dpsql.running.blas import one_blas_thread
from dpsql.tables.counting.fold import Codes
from dpsql.tables.counting.products import Products, blocks, columns, unpack
from dpsql.tables.flat import FlatTables

_CELLS = 1 << 22  # gathered at a time


def workers() -> int:
    """Return the number of threads that count: the processors this process may use, at most 8 for the memory they take."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, 8)


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

    def __init__(self, sizes: Sequence[int], attributes: Sequence[int], places: IntArray, tables: FlatTables) -> None:
        self._places, self._cliques, self._flat, self._offsets = places, tables.cliques, tables.flat, tables.offsets
        self._sizes, self._attributes = sizes, list(attributes)
        self.count = columns(sizes, attributes)
        self.rows = 0
        widths = [sizes[position] - 1 for position in attributes]
        self._starts = np.zeros(len(sizes), dtype=np.int64)
        self._starts[self._attributes] = np.concatenate([[0], np.cumsum(widths)[:-1]]) if widths else []
        self.products = np.zeros((self.count, self.count), dtype=np.int64)
        """Of every pair of columns, on and above the diagonal; may be added to from elsewhere, together with ``rows``."""
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
        for start, stop in blocks(self.count, rows):
            self._wait(2 * self._threads - 1)
            self._pending.add(self._pool.submit(self._multiply, codes, start, stop))
        self.rows += rows

    def _wait(self, most: int) -> None:
        """Wait until at most ``most`` blocks are waiting; wakes up for an interruption."""
        while len(self._pending) > most:
            done, self._pending = wait(self._pending, timeout=0.2, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()

    def _multiply(self, codes: Codes, start: int, stop: int) -> None:
        """Add one block's products."""
        for first, tile in self._own().tiles(codes, start, stop):
            if self._stop.is_set():
                return
            with self._lock:
                unpack(tile, self.products[first : first + len(tile), first:])

    def _own(self) -> Products:
        """Return this thread's arrays."""
        if not hasattr(self._local, "products"):
            self._local.products = Products(self._sizes, self._attributes)
        products: Products = self._local.products
        return products

    def finish(self) -> None:
        """Write the tables."""
        # Products may still be under way on other threads.
        self._wait(0)
        margins = self._margins()
        pairs = []
        for place in self._places.tolist():
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
        diagonal = np.diagonal(self.products)
        margins = {}
        for position in self._attributes:
            start = int(self._starts[position])
            others = diagonal[start : start + self._sizes[position] - 1]
            margins[position] = np.concatenate([[self.rows - others.sum()], others]).astype(np.int64)
        return margins

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
        inner = self.products[np.minimum(left, right), np.maximum(left, right)]
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
