"""Fine histograms counted by Spark: numbers along their grids, an array of cells a task, one reduce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpsql.engines.base import Numbers
from dpsql.engines.spark import arrays, shipping
from dpsql.engines.spark.number_arrays import number_counting
from dpsql.engines.spark.reading import SparkReading, tasks
from dpsql.engines.spark.tables import DEFECT
from dpsql.errors import DpsqlError
from dpsql.numerics.arrays import IntArray


def count_numbers(session: Any, select: str, numbers: Sequence[Numbers]) -> list[IntArray]:
    """Count numbers of a SELECT along their grids.

    Parameters
    ----------
    session : SparkSession
    select : str
        In Spark's SQL, with the columns that ``numbers`` name.
    numbers : sequence of Numbers

    Returns
    -------
    list of int64 arrays, shape (cells,)

    Raises
    ------
    DpsqlError
        Spark failed, the reason is withheld.

    Notes
    -----
    Privacy: exact, secret counts. What moves is cells times tasks.
    """
    columns = [f"CAST({one.code} AS INT) AS k{i}, CAST({one.value} AS DOUBLE) AS v{i}" for i, one in enumerate(numbers)]
    wired = f"SELECT {', '.join(columns)} FROM ({select}) AS given"  # noqa: S608 -- our own statement

    def frame() -> Any:
        rows = session.sql(wired).coalesce(tasks(session))
        counted = shipping.mapped(rows, number_counting([np.asarray(one.edges, dtype=np.float64) for one in numbers]))
        return shipping.mapped(counted.repartition(1), arrays.adding())

    starts = np.cumsum([arrays.HEAD, *(one.edges.size - 1 for one in numbers)])
    with SparkReading(session) as reading:
        flat = arrays.gathered(reading.arrow(frame), int(starts[-1]))
    if flat[1]:
        raise DpsqlError(DEFECT)
    return [flat[first:behind] for first, behind in zip(starts[:-1], starts[1:], strict=True)]
