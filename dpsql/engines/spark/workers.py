"""Whether the workers' Python can do what is asked of it: tried once, on no rows of anybody, before anything is charged."""

from __future__ import annotations

import sys
from typing import Any

from dpsql.engines.spark.reading import SparkReading
from dpsql.errors import DpsqlError, EngineLost

_counting: set[str] = set()
_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


def check_counting(session: Any, url: str) -> None:
    """Try once for each url whether workers can count.

    Raises
    ------
    DpsqlError
        Their Python lacks numpy or pyarrow, or is too different from this one.
    """
    if url in _counting:
        return

    def tried(batches: Any) -> Any:
        import numpy
        import pyarrow

        assert numpy and pyarrow  # noqa: S101 -- both are there
        yield from batches

    try:
        with SparkReading(session) as reading:
            reading.arrow(lambda: session.range(1).selectExpr("CAST(id AS BIGINT) AS id").mapInArrow(tried, "id bigint"))
    except EngineLost:
        told = f"url = {url!r}: Spark gives no worker, or was lost before anything was read. Does the cluster run?"
        raise EngineLost(told) from None
    except DpsqlError:
        raise DpsqlError(
            f"url = {url!r}: Spark's workers cannot run a function of this Python: they need its minor version ({_PYTHON}) with "
            "numpy and pyarrow; PYSPARK_PYTHON names the program that they start. Nothing was read"
        ) from None
    _counting.add(url)
