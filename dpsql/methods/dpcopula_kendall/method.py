"""DPCopula with Kendall's tau [Li, Xiong & Jiang 2014]: noisy margins, a noisy rank correlation of every pair, a Gaussian copula.

1. Laplace noise on every one-way table, which together have epsilon_1.
2. Laplace noise on Kendall's sum of every pair of columns, which together have epsilon_2 = epsilon_1 / ratio: one row changes all
   sums together by less than it changes one after the other (`dpsql.mechanisms.kendall`).
3. Margins: the nearest shares (least squares) of the noisy counts. Correlations: `dpsql.methods.dpcopula_kendall.latent`.
4. Rows: normals with these correlations, cut at the quantiles of the margins.

Codes are taken in their order: bins of numbers and times in theirs, categories in the declared one, then 'other', then NULL. For
categories without an order that is what the published method does too; a correlation says little about them then.

Published differently: the margins (a Fourier transform with Laplace noise; any private histogram will do), noise on tau whose
scale says the private number of rows (it is public here), epsilon_2 split between the pairs, and the correlation
matrix made positive definite by taking the absolute values of its eigenvalues (here: the nearest one).

References: Li, Xiong & Jiang (2014), *Differentially Private Synthesization of Multi-Dimensional Data using Copula Functions*.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy import linalg, special

from dpsql.accounting.events import LaplaceEvent
from dpsql.domains.attributes import FINE, Domain
from dpsql.errors import ArgumentError
from dpsql.mechanisms import kendall
from dpsql.methods.base import Contract, Counted, MeasurementPlan, Price
from dpsql.methods.dpcopula_kendall.latent import latent_correlations
from dpsql.methods.options import check_choices, chosen_options, is_number, row_count
from dpsql.methods.public_rows import PublicRows
from dpsql.noise import discrete
from dpsql.numerics.arrays import CodeArray, FloatArray, IntArray
from dpsql.numerics.products import multiplies
from dpsql.running.blas import one_blas_thread
from dpsql.tables.flat import AllCliques
from dpsql.tables.margins import simplex_projection
from dpsql.tables.statistics import Statistics

RULES = ("posterior", "sine")
MOST_COLUMNS = 200

_BLOCK = 1 << 17
_NAMED = 5


@dataclass(frozen=True)
class KendallModel:
    """Margins and latent correlations.

    Parameters
    ----------
    rows : int
        n, public.
    thresholds : tuple of ndarray
        Of each column: where normals are cut, one fewer than it has codes, ascending; may be infinite.
    correlations : ndarray, shape (m, m)
        Positive definite, unit diagonal.
    """

    rows: int
    thresholds: tuple[FloatArray, ...]
    correlations: FloatArray


class DpcopulaKendall:
    """The method `dpcopula_kendall`.

    Attributes
    ----------
    name : str
    options : mapping
        ratio : epsilon of all margins over that of all correlations, 0.01 to 100; the paper's k, which it sets to 8.
        correlation : 'posterior' (ties and noise are allowed for) or 'sine' (published: sin(pi tau / 2)).

    Notes
    -----
    Privacy: epsilon-DP under replace_one where n is public.

    References
    ----------
    Li, Xiong & Jiang (2014).
    """

    name = "dpcopula_kendall"
    options: Mapping[str, Any] = MappingProxyType({"ratio": 8, "correlation": "posterior"})
    public_rows = PublicRows(
        "one row changes Kendall's sums by up to twice the number of rows", "method := 'latent_class' or 'gaussian_copula'"
    )

    def plan(self, domain: Domain, options: Mapping[str, Any]) -> MeasurementPlan:
        """Return all one-way and two-way tables: the latter are only looked at to compute Kendall's sums.

        Raises
        ------
        ArgumentError
            There is no column, or an option is unknown or out of range.

        Notes
        -----
        Privacy: looks at the public domain and options alone.
        """
        self._checked(options)
        m = len(domain.attributes)
        if not 1 <= m <= MOST_COLUMNS:
            raise ArgumentError("columns", m, f"must be 1 to {MOST_COLUMNS} columns with a declared domain")
        named = [a.name for a in domain.attributes if a.kind == "categorical" and a.values > 2]
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        notes = (f"taken in the order in which they were declared: {', '.join(named[:_NAMED])}{more}",) if named and m > 1 else ()
        return MeasurementPlan(AllCliques(m, [1, 2] if m > 1 else [1]), notes=notes)

    def lengths(self, domain: Domain, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the number of codes of every column, then, for two columns and more, the number of pairs of columns."""
        m = len(domain.attributes)
        return (*domain.sizes, math.comb(m, 2)) if m > 1 else domain.sizes

    def values(self, domain: Domain, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return (): counts are enough."""
        return ()

    def price(self, domain: Domain, contract: Contract, epsilon: Fraction, options: Mapping[str, Any]) -> Price:
        """Return the noise of the margins and of Kendall's sums, and what it costs.

        Raises
        ------
        ArgumentError
            The number of rows is not public; an option or epsilon is out of range.

        Notes
        -----
        Privacy: one row changes a one-way table by 2 (L1), and the sums as `dpsql.mechanisms.kendall` says.
        Scales are rounded up, and the charge follows from what they are rounded to.
        """
        self.public_rows.require(self.name, contract)
        if epsilon <= 0:
            raise ArgumentError("epsilon", float(epsilon), "must be above 0")
        m, ratio = len(domain.attributes), Fraction(repr(self._checked(options)["ratio"]))
        # The ratio is that of epsilon for margins to epsilon for correlations.
        first = epsilon * ratio / (ratio + 1) if m > 1 else epsilon
        margin = _scale(2 * m / first, epsilon)
        events = [LaplaceEvent(margin, 2.0, m)]
        notes = [f"noise of scale {float(margin):.6g} on the counts of {m} columns (epsilon {float(2 * m / margin):.6g})"]
        if m == 1:
            return Price(tuple(events), "laplace", margin, {"scales": [str(margin)]}, tuple(notes))
        steps = _scale(kendall.kendall_sensitivity(m) / (epsilon - first), epsilon)
        events.append(kendall.kendall_event(m, steps))
        pairs = math.comb(m, 2)
        notes.append(
            f"noise of scale {2 * float(steps) / FINE:.6g} / n on Kendall's tau of {pairs} pair{'s' * (pairs > 1)} "
            f"(epsilon {float(kendall.kendall_sensitivity(m) / steps):.6g})"
        )
        return Price(tuple(events), "laplace", None, {"scales": [str(margin), str(steps)]}, tuple(notes))

    def draw(self, counted: Counted, domain: Domain, parameters: Mapping[str, Any], options: Mapping[str, Any]) -> list[IntArray]:
        """Return the noisy one-way tables, then the noisy sums of all pairs in steps.

        Notes
        -----
        Privacy: adds to exact statistics the noise that `price` has charged. Entropy from the operating system.
        """
        m, scales = len(domain.attributes), [Fraction(text) for text in parameters["scales"]]
        blocks = [discrete.add_noise(np.ascontiguousarray(counted.tables[(i,)], np.int64), "laplace", scales[0]) for i in range(m)]
        if m > 1:
            pairs = (counted.tables[pair] for pair in AllCliques(m, [2]))
            blocks.append(kendall.noisy_kendall(kendall.kendall_steps(pairs, counted.total), scales[1]))
        return blocks

    def fit(self, statistics: Statistics, options: Mapping[str, Any]) -> KendallModel:
        """Return margins and correlations. Deterministic.

        Parameters
        ----------
        statistics : Statistics
            With blocks, total and parameters.

        Raises
        ------
        ArgumentError
            The statistics are not those of a release of this method.

        Notes
        -----
        Privacy: post-processing.
        """
        rows, sizes, m = statistics.total, statistics.sizes, len(statistics.sizes)
        if rows is None or len(statistics.blocks) != m + (m > 1):
            raise ArgumentError("statistics", None, "a release of dpcopula_kendall with its number of rows is required")
        margins = [simplex_projection(block.astype(np.float64) / max(rows, 1)) for block in statistics.blocks[:m]]
        thresholds = tuple(special.ndtri(np.minimum(np.cumsum(shares)[:-1], 1.0)) for shares in margins)
        # One column, or hardly any row: there is nothing that could be correlated.
        if m == 1 or rows < 2:
            return KendallModel(rows, thresholds, np.eye(m))
        scale = 2.0 * float(Fraction(statistics.parameters["scales"][1])) / (rows * FINE)
        with one_blas_thread():
            tau = kendall.tau_of_steps(statistics.blocks[m], rows)
            correlations = latent_correlations(tau, margins, scale, self._checked(options)["correlation"])
        return KendallModel(rows, tuple(thresholds[: len(sizes)]), correlations)

    def total(self, model: KendallModel) -> int:
        """Return n."""
        return model.rows

    def forecast(self, sizes: Sequence[int], rows: int, options: Mapping[str, Any], measured: int = 0) -> tuple[float, float]:
        """Return roughly the seconds and megabytes that fitting and drawing take. Post-processing of public sizes."""
        m, cells = len(sizes), sum(sizes)
        seconds = 0.1 + 1e-6 * m * m
        if {**self.options, **options}["correlation"] == "posterior":
            seconds += 1.2e-3 * m * m + 0.9e-5 * (cells * cells - sum(size * size for size in sizes))
        return seconds + 1.2e-7 * rows * m * (1.0 + m / 200.0), 60.0 + 1.6e-5 * _BLOCK * m + 1e-4 * m * m

    def output_domain(self, domain: Domain, options: Mapping[str, Any]) -> Domain:
        """Return the measured domain."""
        return domain

    def sample(self, model: KendallModel, rows: int, rng: np.random.Generator) -> Iterator[CodeArray]:
        """Yield blocks of independent rows.

        Raises
        ------
        ArgumentError
            ``rows`` is negative.

        Notes
        -----
        Privacy: post-processing.
        """
        return self._blocks(model, row_count(rows), rng)

    @staticmethod
    def _blocks(model: KendallModel, rows: int, rng: np.random.Generator) -> Iterator[CodeArray]:
        factor = linalg.cholesky(model.correlations, lower=True)
        m = len(model.thresholds)
        for start in range(0, rows, _BLOCK):
            size = min(_BLOCK, rows - start)
            with one_blas_thread():
                normals = _correlated(factor, rng.standard_normal((m, size)))
            codes = np.empty((m, size), dtype=np.int32)
            for column, cuts, values in zip(codes, model.thresholds, normals, strict=True):
                column[:] = np.searchsorted(cuts, values, side="left")
            yield codes.T

    def _checked(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Fill in defaults; refuse unknown options and values."""
        chosen = chosen_options(self.options, options)
        ratio = chosen["ratio"]
        if not is_number(ratio, 0.01, 100):
            raise ArgumentError("ratio", ratio, "a number from 0.01 to 100: epsilon of the margins over that of the correlations")
        check_choices(chosen, {"correlation": RULES})
        return chosen


def _scale(scale: Fraction, epsilon: Fraction) -> Fraction:
    """Return a noise scale, rounded up, or refuse an epsilon that is too small for the sampler."""
    if scale > discrete.MAXIMUM_LAPLACE_SCALE:
        least = float(scale * epsilon / discrete.MAXIMUM_LAPLACE_SCALE)
        raise ArgumentError("epsilon", float(epsilon), f"must be at least {least:.6g} with these columns and this ratio")
    return discrete.scale_grid(scale)


@multiplies
def _correlated(factor: FloatArray, normals: FloatArray) -> FloatArray:
    """Return independent standard normals, one row an attribute, with the correlations of a Cholesky factor."""
    correlated: FloatArray = factor @ normals
    return correlated
