"""Functions for Spark's workers, which need not have dpsql: the modules that they are from go with them."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from dpsql.engines.spark import arrays, number_arrays, tuple_arrays
from dpsql.numerics import products as matrices
from dpsql.tables.counting import fold, products

MODULES = (arrays, number_arrays, tuple_arrays, fold, products, matrices)
"""They use each other, numpy and pyarrow when they run, and nothing else."""


@cache
def _register() -> None:
    pickle = importlib.import_module("pyspark.cloudpickle")  # Spark's own copy
    for module in MODULES:
        pickle.register_pickle_by_value(module)


def mapped(frame: Any, function: arrays.Mapper) -> Any:
    """Return a data frame of what a function makes of another one's rows, (chunk, cells)."""
    _register()
    return frame.mapInArrow(function, arrays.SCHEMA)
