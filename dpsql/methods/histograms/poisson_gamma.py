"""The method `poisson_gamma`: cell counts of a Poisson-gamma model whose prior is strong enough to be private.

Every cell has a public expected count E_k, and a prior of strength a, in rows: its rate is drawn from Gamma(y_k + a, 1 + a / E_k),
and n rows are shared out in proportion to the rates. A count is pulled towards its own expectation, not towards an equal
share; where all expectations are equal, this is `multinomial_dirichlet`. The law, the proof and the sampler:
`dpsql.mechanisms.poisson_gamma`.

Like that of `multinomial_dirichlet` the prior grows with n, and how far shares are pulled does not depend on it.

References: Quick (2021), *Generating Poisson-distributed differentially private synthetic data*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from dpsql.accounting import PureEvent
from dpsql.domains.attributes import Domain
from dpsql.errors import ArgumentError
from dpsql.mechanisms.poisson_gamma import LARGEST_RATIO, keeping, poisson_gamma, poisson_gamma_prior, relative_strength
from dpsql.methods.base import Contract, MeasurementPlan, Price
from dpsql.methods.histograms.histogram import HistogramMethod
from dpsql.numerics.arrays import FloatArray, IntArray

EQUAL = "equal"
MOST_EXPECTED = 10_000
"""Expected counts that a call may list: they are kept in the books."""


class PoissonGamma(HistogramMethod):
    """The method `poisson_gamma`.

    Attributes
    ----------
    name : str
    options : mapping
        sets : number of synthetic tables, 1 to 1000; each has epsilon / sets.
        expected : 'equal', or one number for each cell (row-major, in the order of the codes; NULL and 'other' too): the public
        expected count, up to a common factor. None may be more than 100 times another.

    Notes
    -----
    Privacy: epsilon-DP under replace_one where n is public. epsilon / sets a set. The bound is reached where all expected
    counts are equal.

    References
    ----------
    Quick (2021).
    """

    name = "poisson_gamma"
    options: Mapping[str, Any] = MappingProxyType({"sets": 1, "expected": EQUAL})

    def plan(self, domain: Domain, options: Mapping[str, Any]) -> MeasurementPlan:
        """Return the cross-tabulation of all columns; as `HistogramMethod.plan`, with the expected counts checked."""
        planned = super().plan(domain, options)
        self._expected(domain, options)
        return planned

    def price(self, domain: Domain, contract: Contract, epsilon: Fraction, options: Mapping[str, Any]) -> Price:
        """Return what a release of this epsilon does; as `HistogramMethod.price`, with the expected counts."""
        price = super().price(domain, contract, epsilon, options)
        expected = self._expected(domain, options)
        cells, share = self._cells(domain, self._sets(options)), epsilon / self._sets(options)
        if expected is None:
            x = relative_strength(float(share), np.ones(cells))
            kept = 1.0 / (1.0 + cells * x)
            told = f"expected counts are equal, as in multinomial_dirichlet; released shares are {1.0 - kept:.3g} uniform"
        else:
            x = relative_strength(float(share), expected)
            told = "a rate is expected at (count + prior strength) / (1 + prior strength / expected count)"
        note = f"prior strength of a cell: n * {x:.6g}; {told}, however large n is"
        return replace(
            price, parameters={**price.parameters, "expected": options.get("expected", EQUAL)}, notes=(*price.notes, note)
        )

    def forecast(self, sizes: Sequence[int], rows: int, options: Mapping[str, Any], measured: int = 0) -> tuple[float, float]:
        """Return roughly seconds and megabytes; draws that are not kept take time too. Post-processing of public sizes."""
        seconds, megabytes = super().forecast(sizes, rows, options, measured)
        expected = options.get("expected", EQUAL)
        if isinstance(expected, str):
            return seconds, megabytes
        kept = keeping(np.asarray(expected, np.float64), math.inf)
        return seconds + self._sets(options) * 1.5e-7 * rows * float(kept.max() / kept.mean()), megabytes

    def _price(self, cells: int, contract: Contract, epsilon: Fraction, sets: int) -> Price:
        return Price((PureEvent(epsilon, sets),), "poisson_gamma", None, {"epsilon": str(epsilon), "sets": sets})

    def _draw(self, counts: IntArray, epsilon: Fraction, parameters: Mapping[str, Any], sets: int) -> list[IntArray]:
        rows, expected = int(counts.sum()), parameters["expected"]
        if rows == 0:
            return [counts.copy() for _ in range(sets)]
        weights = np.ones(counts.size) if expected == EQUAL else np.asarray(expected, np.float64)
        prior = poisson_gamma_prior(epsilon, rows, weights)
        return [poisson_gamma(counts, prior, rows) for _ in range(sets)]

    def _expected(self, domain: Domain, options: Mapping[str, Any]) -> FloatArray | None:
        """Check the expected counts and return them; None where they are equal by name."""
        counts = options.get("expected", EQUAL)
        if isinstance(counts, str) and counts == EQUAL:
            return None
        cells = domain.cells(range(len(domain.attributes)))
        listed = isinstance(counts, Sequence) and not isinstance(counts, str)
        if not listed or len(counts) != cells or cells > MOST_EXPECTED:
            raise ArgumentError(
                "expected", f"a list of {len(counts)}" if listed else counts,
                f"must be 'equal' or a list of {cells} numbers, one for each cell of {list(domain.names)!r}: in the order of the "
                f"values, those of the last column changing first; at most {MOST_EXPECTED}",
            )
        if any(isinstance(v, bool) or not isinstance(v, int | float) or not 0 < v < math.inf for v in counts):
            raise ArgumentError("expected", list(counts), "must be finite numbers above 0, the public expectations")
        if max(counts) > LARGEST_RATIO * min(counts):
            expected = f"the largest may be at most {LARGEST_RATIO} times the smallest; raise the small ones, or merge cells"
            raise ArgumentError("expected", list(counts), expected)
        return np.asarray(counts, np.float64)
