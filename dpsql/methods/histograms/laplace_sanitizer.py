"""The methods `laplace_sanitizer` and `perturbed_histogram`: integer Laplace noise on every cell, then shares.

Both add discrete Laplace noise to every cell of the cross-tabulation, the empty ones too, take negative counts as 0 and
draw rows from the shares. The published difference is that the sanitizer is for categories and the perturbed histogram
for bins of a continuous variable, within which the place is uniform; here bins always decode that way.

Privacy: a unit has at most C rows. Under add_remove the L1 sensitivity of a table of disjoint cells is C, under
replace_one it is 2 C (C rows leave their cells, C rows enter others). Noise of scale b makes it (L1 / b)-DP; b is L1 /
epsilon, rounded up to `dpsql.noise.discrete.scale_grid`. Bins come from public bounds, never from the data.

References: Dwork & Roth (2014), section 3.3. Wasserman & Zhou (2010), arXiv:0811.2501, section 4. Bowen & Liu (2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

from dpsql.accounting import LaplaceEvent, sensitivities
from dpsql.errors import ArgumentError
from dpsql.methods.base import Contract, Price
from dpsql.methods.histograms.histogram import HistogramMethod
from dpsql.noise import discrete
from dpsql.numerics.arrays import IntArray


class LaplaceSanitizer(HistogramMethod):
    """The method `laplace_sanitizer`: noisy counts of a column or a cross-tabulation, rows drawn from their shares.

    Notes
    -----
    Privacy: epsilon-DP under both relations; the noisy counts of a set are epsilon / sets. Where the number of rows is not public,
    all sets have one, which comes from the counts of all of them: then a set alone is not epsilon / sets.

    References
    ----------
    Bowen & Liu (2020), section 2.
    """

    name = "laplace_sanitizer"
    public_rows = None
    draws_rows: ClassVar[bool] = False

    def _price(self, cells: int, contract: Contract, epsilon: Fraction, sets: int) -> Price:
        l1, _ = sensitivities(contract.neighbors, contract.max_contributions)
        exact = Fraction(l1) / epsilon
        if exact > discrete.MAXIMUM_LAPLACE_SCALE:
            least = float(sets * Fraction(l1) / discrete.MAXIMUM_LAPLACE_SCALE)
            raise ArgumentError("epsilon", float(epsilon * sets), f"must be at least {least:.6g} for {sets} sets of {self.name}")
        scale = discrete.scale_grid(exact)
        notes = (f"noise of scale {float(scale):.6g} on each of {cells} cells; negative counts become 0",)
        return Price(
            (LaplaceEvent(scale, l1, sets),), "laplace", scale, {"epsilon": str(epsilon), "scale": str(scale), "sets": sets}, notes
        )

    def _draw(self, counts: IntArray, epsilon: Fraction, parameters: Mapping[str, Any], sets: int) -> list[IntArray]:
        scale = Fraction(parameters["scale"])
        return [discrete.add_noise(counts, "laplace", scale) for _ in range(sets)]


class PerturbedHistogram(LaplaceSanitizer):
    """The method `perturbed_histogram`: the same for bins of public bounds; a row is uniform within its bin.

    Categorical columns are cells like any other, so a cross-tabulation of both kinds is possible.

    Notes
    -----
    Privacy: epsilon-DP under both relations; the noisy counts of a set are epsilon / sets. Where the number of rows is not public,
    all sets have one, which comes from the counts of all of them: then a set alone is not epsilon / sets.

    References
    ----------
    Wasserman & Zhou (2010), arXiv:0811.2501, section 4.
    """

    name = "perturbed_histogram"
