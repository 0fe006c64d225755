"""The methods `multinomial_dirichlet` and `beta_binomial`: a Bayesian posterior whose prior is large enough to be private.

Every cell gets a prior count alpha = n / (e^epsilon - 1); shares are drawn from the Dirichlet posterior and n rows from
the shares. Proof, rounding and sampler: `dpsql.mechanisms.multinomial`.

The prior grows with n: released shares are expected at (n p + alpha) / (n + K alpha), which is (1 - w) p + w / K with w =
K / (K + e^epsilon - 1), however large n is.

References: [Hu] *Differentially Private Synthetic Tabular Data*. Bowen & Liu (2020), section 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dpsql.accounting import PureEvent
from dpsql.domains.attributes import Domain
from dpsql.errors import ArgumentError
from dpsql.mechanisms.multinomial import dirichlet_multinomial, dirichlet_prior
from dpsql.methods.base import Contract, Price
from dpsql.methods.histograms.histogram import HistogramMethod
from dpsql.numerics.arrays import IntArray


class MultinomialDirichlet(HistogramMethod):
    """The method `multinomial_dirichlet`.

    Notes
    -----
    Privacy: epsilon-DP under replace_one where n is public; the bound is reached. epsilon / sets a set.

    References
    ----------
    [Hu]. Bowen & Liu (2020), section 2.
    """

    name = "multinomial_dirichlet"

    def _price(self, cells: int, contract: Contract, epsilon: Fraction, sets: int) -> Price:
        # K / (K + e^epsilon - 1) without overflow
        q = math.exp(-float(epsilon))
        uniform = cells * q / (cells * q - math.expm1(-float(epsilon))) if cells > 1 else 0.0
        notes = (
            f"prior count of a cell: n * {_shown(epsilon)}; released shares are {uniform:.3g} uniform and {1 - uniform:.3g} "
            "the source's, on average, however large n is",
        )
        return Price(
            (PureEvent(epsilon, sets),), "dirichlet_multinomial", None, {"epsilon": str(epsilon), "sets": sets}, notes
        )

    def _draw(self, counts: IntArray, epsilon: Fraction, parameters: Mapping[str, Any], sets: int) -> list[IntArray]:
        rows = int(counts.sum())
        if rows == 0:
            return [counts.copy() for _ in range(sets)]
        alpha = dirichlet_prior(epsilon, rows, counts.size)
        return [dirichlet_multinomial(counts, alpha, rows) for _ in range(sets)]


class BetaBinomial(MultinomialDirichlet):
    """The method `beta_binomial`: `multinomial_dirichlet` with two cells.

    Notes
    -----
    Privacy: epsilon-DP under replace_one where n is public; the bound is reached. epsilon / sets a set.

    References
    ----------
    Bowen & Liu (2020), section 2. McClure & Reiter (2012).
    """

    name = "beta_binomial"

    def _cells(self, domain: Domain, sets: int) -> int:
        cells = super()._cells(domain, sets)
        if cells != 2:
            raise ArgumentError(
                "columns", list(domain.names),
                f"have {cells} cells, and beta_binomial needs exactly 2: one column of two values, declared with nullable := false "
                "and outside := 'clamp'; method := 'multinomial_dirichlet' takes any number",
            )
        return cells


def _shown(epsilon: Fraction) -> str:
    """Return 1 / (e^epsilon - 1) for reading."""
    x = float(epsilon)
    below = -math.expm1(-x)
    return f"{math.exp(-x) / below:.6g}" if below else "infinite"
