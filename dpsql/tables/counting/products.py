"""Products of one-hot columns of a block of rows, in BLAS on one thread, exact.

The first code of an attribute has no column; its counts are what the others leave. Blocks have at most `ROWS` rows, so two
counts fit into one float32: columns are multiplied with y1 + 4096 y2, and every sum stays below 2^24, where float32 holds
every whole number. Half the columns on one side, and only blocks on and above the diagonal: a quarter of the full product.

Nothing but numpy and `dpsql.numerics.products` is needed here: an engine may ship both files to its workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dpsql.numerics.products import multiplies

Floats = npt.NDArray[np.float32]

ROWS = 4095  # 4095 + 4096 * 4095 < 2^24
TILE = 256
_SHIFT = 12


def columns(sizes: Sequence[int], attributes: Sequence[int]) -> int:
    """Return the number of one-hot columns, made even."""
    count = sum(sizes[position] - 1 for position in attributes)
    return count + count % 2


def blocks(count: int, rows: int) -> list[tuple[int, int]]:
    """Return the beginnings and ends of blocks of rows of about equal length, for so many one-hot columns."""
    parts = -(-rows // _most_rows(count))
    return [(rows * i // parts, rows * (i + 1) // parts) for i in range(parts)]


def _most_rows(count: int) -> int:
    """Return the rows of a block: those of wide tables are shorter, 64 MB of one-hot columns."""
    return max(1, min(ROWS, 2**24 // max(count, 1)))


class Products:
    """Products of the one-hot columns of blocks of rows, one block after the other; for one thread.

    Parameters
    ----------
    sizes : sequence of int, length m
    attributes : sequence of int
        Those that have one-hot columns, increasing.

    Notes
    -----
    Privacy: exact, secret counts.
    """

    def __init__(self, sizes: Sequence[int], attributes: Sequence[int]) -> None:
        self._sizes, self._attributes = sizes, list(attributes)
        self.count = columns(sizes, attributes)
        most = _most_rows(self.count)
        self._hot = np.zeros(self.count * most, dtype=np.float32)
        self._packed = np.empty(self.count // 2 * most, dtype=np.float32)
        self._room = np.empty(min(TILE, self.count) * (self.count // 2), dtype=np.float32)

    def tiles(
        self, codes: Sequence[npt.NDArray[np.integer]], start: int, stop: int
    ) -> Iterator[tuple[int, npt.NDArray[np.int32]]]:
        """Yield the products of a block, for every tile of columns those with the columns from its first one on, packed.

        Parameters
        ----------
        codes : sequence of arrays
            One for each attribute.
        start, stop : int
            One of `blocks`.
        """
        rows = stop - start
        hot = self._hot[: self.count * rows].reshape(self.count, rows)
        packed = self._packed[: self.count // 2 * rows].reshape(self.count // 2, rows)
        self._one_hot(codes, start, stop, hot)
        np.multiply(hot[1::2], np.float32(1 << _SHIFT), out=packed)
        packed += hot[0::2]
        for begin in range(0, self.count, TILE):
            yield begin, self._multiplied(hot[begin : begin + TILE], packed[begin // 2 :])

    @multiplies
    def _multiplied(self, left: Floats, right: Floats) -> npt.NDArray[np.int32]:
        """Return whole numbers, each of which is two products."""
        tile = self._room[: len(left) * len(right)].reshape(len(left), len(right))
        return np.matmul(left, right.T, out=tile).astype(np.int32)

    def _one_hot(self, codes: Sequence[npt.NDArray[np.integer]], start: int, stop: int, hot: Floats) -> None:
        """Write the columns; one more is zero where their number is odd."""
        row = 0
        for position in self._attributes:
            column = codes[position][start:stop]
            # Of two codes the column is the code itself.
            if self._sizes[position] == 2:
                hot[row] = column
                row += 1
                continue
            for code in range(1, self._sizes[position]):
                np.equal(column, code, out=hot[row], casting="unsafe")
                row += 1
        # One column too many, where the product wants an even number of them.
        hot[row:] = 0


def unpack(products: npt.NDArray[np.int32], block: npt.NDArray[np.int64]) -> None:
    """Add packed products of a tile to an array of twice as many columns."""
    block[:, 0::2] += products & ((1 << _SHIFT) - 1)
    block[:, 1::2] += products >> _SHIFT
