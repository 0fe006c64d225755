"""The methods `dp_prior` and `smoothed_histogram`: n rows from fixed shares, mixed with uniform ones.

Every cell gets a prior count alpha = 1 / (e^(epsilon / n) - 1), about n / epsilon, and n rows are drawn from the shares (y +
alpha) / (n + K alpha). The smoothed histogram, (1 - lambda) f + lambda uniform with lambda = K / (K + n (e^(epsilon / n) -
1)), has the same shares: (y_k + alpha) / (n + K alpha) in both cases; it differs in being meant for bins, within which the place is
uniform. Proof, rounding and sampler: `dpsql.mechanisms.multinomial`. "Uniform" is over cells: where bins have unequal
widths, it is uniform over bins, not over the line.

Each of n rows costs epsilon / n, so shares are pulled towards uniform with weight about K / (K + epsilon), however large
n is (and, a little, more the larger it is).

References: McClure & Reiter (2012). Wasserman & Zhou (2010), arXiv:0811.2501, section 4. Bowen & Liu (2020), section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dpsql.accounting import PureEvent
from dpsql.mechanisms.multinomial import fixed_prior, multinomial
from dpsql.methods.base import Contract, Price
from dpsql.methods.histograms.histogram import HistogramMethod
from dpsql.numerics.arrays import IntArray


class DpPrior(HistogramMethod):
    """The method `dp_prior`.

    Notes
    -----
    Privacy: epsilon-DP under replace_one where n is public; the bound is reached. epsilon / sets a set.

    References
    ----------
    McClure & Reiter (2012).
    """

    name = "dp_prior"

    def _price(self, cells: int, contract: Contract, epsilon: Fraction, sets: int) -> Price:
        uniform = cells / (cells + float(epsilon)) if cells > 1 else 0.0
        notes = (
            f"released shares are about {uniform:.3g} uniform and {1 - uniform:.3g} the source's, on average, however large n is "
            "(n well above epsilon); method := 'multinomial_dirichlet' keeps more of the source at the same epsilon",
        )
        return Price((PureEvent(epsilon, sets),), "multinomial", None, {"epsilon": str(epsilon), "sets": sets}, notes)

    def _draw(self, counts: IntArray, epsilon: Fraction, parameters: Mapping[str, Any], sets: int) -> list[IntArray]:
        rows = int(counts.sum())
        if rows == 0:
            return [counts.copy() for _ in range(sets)]
        alpha = fixed_prior(epsilon, rows, counts.size)
        return [multinomial(counts, alpha, rows) for _ in range(sets)]


class SmoothedHistogram(DpPrior):
    """The method `smoothed_histogram`: the same shares, for bins of public bounds; a row is uniform within its bin.

    Notes
    -----
    Privacy: epsilon-DP under replace_one where n is public; the bound is reached. epsilon / sets a set.

    References
    ----------
    Wasserman & Zhou (2010), arXiv:0811.2501, section 4.
    """

    name = "smoothed_histogram"
