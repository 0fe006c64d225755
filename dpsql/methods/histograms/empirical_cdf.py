"""The method `empirical_cdf`: a distribution function close to the source's in Kolmogorov-Smirnov distance.

The exponential mechanism over all distribution functions of n rows on the bins, drawn exactly; proof and sampler:
`dpsql.mechanisms.distribution_function`. The bins are in the order of their codes: declared values or bins, then 'other',
then NULL; for a categorical column that order is the declared one.

References: Wasserman & Zhou (2010), arXiv:0811.2501, section 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from dpsql.accounting import PureEvent
from dpsql.domains.attributes import Domain
from dpsql.errors import ArgumentError
from dpsql.mechanisms.distribution_function import LIMIT, cost, draw_histograms
from dpsql.methods.base import Contract, Price
from dpsql.methods.histograms.histogram import HistogramMethod
from dpsql.numerics.arrays import IntArray


class EmpiricalCdf(HistogramMethod):
    """The method `empirical_cdf`: one column.

    Notes
    -----
    Privacy: epsilon-DP under replace_one where n is public; epsilon / sets a set.

    References
    ----------
    Wasserman & Zhou (2010), arXiv:0811.2501, section 5.
    """

    name = "empirical_cdf"

    def forecast(self, sizes: Sequence[int], rows: int, options: Mapping[str, Any], measured: int = 0) -> tuple[float, float]:
        """Return roughly seconds and megabytes for a source of `rows` rows. Post-processing of public sizes.

        How long the draw takes depends on epsilon, which is not known here; `price` says it.
        """
        sets = self._sets(options)
        return 0.1 + sets * (5e-8 * rows + 0.005), 80.0

    def _cells(self, domain: Domain, sets: int) -> int:
        cells = super()._cells(domain, sets)
        if len(domain.attributes) != 1:
            raise ArgumentError("columns", list(domain.names), "must be one column: empirical_cdf needs an order of all cells")
        return cells

    def _price(self, cells: int, contract: Contract, epsilon: Fraction, sets: int) -> Price:
        work = cost(cells, None, epsilon, sets)
        if work > LIMIT:
            least = _least_epsilon(cells, epsilon, sets)
            way = f"an epsilon of at least about {least:.2g}, or " if least is not None else ""
            raise ArgumentError(
                "epsilon", float(epsilon * sets),
                f"for {cells} bins and {sets} sets the exact draw of empirical_cdf would take too long or too much memory; "
                f"use {way}fewer bins or sets; or method := 'perturbed_histogram'",
            )
        distance = 2.0 * (cells - 1) / float(epsilon)
        notes = (
            f"Kolmogorov-Smirnov distance to the source: about {distance:.3g} / n or less, on average",
            f"drawing takes about {work * 1e-9:.1g} s",
        )
        return Price((PureEvent(epsilon, sets),), "exponential_cdf", None, {"epsilon": str(epsilon), "sets": sets}, notes)

    def _draw(self, counts: IntArray, epsilon: Fraction, parameters: Mapping[str, Any], sets: int) -> list[IntArray]:
        return draw_histograms(counts, epsilon, sets)


def _least_epsilon(cells: int, epsilon: Fraction, sets: int) -> float | None:
    """Return about the smallest total epsilon that the draw can do, in steps of a quarter; None where none up to 1000 can."""
    tried = float(epsilon)
    while tried < 1000.0:
        tried *= 1.25
        if cost(cells, None, tried, sets) <= LIMIT:
            return tried * sets
    return None
