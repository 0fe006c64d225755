"""What the methods of an open domain share: released values with weights, and rows drawn in proportion to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dpsql.domains.attributes import Domain
from dpsql.errors import ReleaseError
from dpsql.methods.base import MeasurementPlan
from dpsql.numerics.arrays import CodeArray, IntArray
from dpsql.tables.statistics import Statistics

_BLOCK = 1 << 20


class OpenValues:
    """Base of the methods that release the values of one column with weights. Everything in here is post-processing.

    The model is the array of weights, negative ones at 0, one per released value; a row's code is the value's position.
    """

    def plan(self, domain: Domain, options: Mapping[str, Any]) -> MeasurementPlan:
        """Return the one table: the values of the column."""
        return MeasurementPlan(((0,),))

    def fit(self, statistics: Statistics, options: Mapping[str, Any]) -> IntArray:
        """Return the weights of the released values."""
        return np.maximum(statistics.blocks[0], 0)

    def total(self, model: IntArray) -> int:
        """Return the sum of the weights."""
        return sum(model.tolist())

    def forecast(self, sizes: Sequence[int], rows: int, options: Mapping[str, Any], measured: int = 0) -> tuple[float, float]:
        """Return roughly the seconds and megabytes that drawing takes."""
        return 5e-8 * rows, 1e-5 * rows

    def output_domain(self, domain: Domain, options: Mapping[str, Any]) -> Domain:
        """Return the domain of the column; its categories are the released values."""
        return domain

    def sample(self, model: IntArray, rows: int, rng: np.random.Generator) -> Iterator[CodeArray]:
        """Yield blocks of shape (n, 1): positions of values, drawn in proportion to the weights.

        Raises
        ------
        ReleaseError
            Rows are wanted, and the release holds no value.
        """
        weight = self.total(model)
        if rows and not weight:
            raise ReleaseError(
                "the release holds no value to draw rows from: none passed the threshold. Say rows := 0, or buy another release "
                "with a larger epsilon and release := 'another name'"
            )
        shares = model / max(1, weight)
        for start in range(0, rows, _BLOCK):
            length = min(_BLOCK, rows - start)
            codes = np.repeat(np.arange(model.size, dtype=np.int32), rng.multinomial(length, shares))
            yield rng.permutation(codes)[:, None]
