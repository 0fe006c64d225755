"""Numbers counted along grids by a task of Spark. Shipped to the workers: numpy and pyarrow alone.

A row counts where its code is 0, in the cell that its number is in: `dpsql.domains.grid.Grid.place`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.engines.spark.arrays import HEAD, chunks

Batches = Iterator[pa.RecordBatch]


def number_counting(grids: Sequence[NDArray[np.float64]]) -> Callable[[Batches], Batches]:
    """Return what counts batches of columns code, number, code, number, ..., for mapInArrow; ``grids``: edges of each."""
    starts = np.cumsum([HEAD, *(edges.size - 1 for edges in grids)])

    def count(batches: Batches) -> Batches:
        flat = np.zeros(int(starts[-1]), dtype=np.int64)
        for batch in batches:
            flat[0] += batch.num_rows
            for i, edges in enumerate(grids):
                codes, numbers = batch.column(2 * i), batch.column(2 * i + 1)
                if codes.null_count or numbers.null_count:
                    flat[1] = 1
                    continue
                values = numbers.to_numpy(zero_copy_only=False)[codes.to_numpy(zero_copy_only=False) == 0]
                cells = np.searchsorted(edges, values, side="right") - 1
                cells[np.isnan(values)] = 0
                flat[starts[i] : starts[i + 1]] += np.bincount(np.clip(cells, 0, edges.size - 2), minlength=edges.size - 1)
        yield from chunks(flat)

    return count
