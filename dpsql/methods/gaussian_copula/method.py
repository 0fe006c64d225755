"""Gaussian copula over one-hot columns [Asghar 2019], with rows that hold exactly one value an attribute.

1. Measure one-way and two-way tables; make them consistent (`dpsql.tables.consistency`).
2. Column a of the one-hot table is 1 where a standard normal exceeds t_a = Phi^-1(1 - share_a). The latent correlation
   of two columns of different attributes is the one that gives the share of rows with both (`dpsql.numerics.bivariate_normal`).
3. Nearest correlation matrix (`dpsql.numerics.nearest_correlation`).
4. Rows. `output := 'one_hot'` thresholds the normals, as published: a row may then hold no value of an attribute, or
   several. `output := 'decoded'` gives every attribute the value of largest utility, Z_a - t_a + offset_a + Gumbel
   noise, after the latent loadings have been calibrated so that the decoded two-way tables are the measured ones
   (`dpsql.methods.gaussian_copula.fit`).

Between columns of one attribute the published method has structural zeros, correlation -1: no set of more than two
normals can have that, and the nearest matrix pays for it everywhere else. Two normals can: an attribute of two values
has one normal, in both outputs, and the other column is its opposite. Decoding makes the columns of one attribute
exclude each other anyway, so of larger attributes these correlations start at 0 and are calibrated. Calibration begins
at the common factors of the nearest correlation matrix, as many as its spectrum speaks for.

Privacy: `fit` and `sample` are post-processing of released statistics.

References: Asghar et al. (2019), arXiv:1902.01499.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from dpsql.domains.attributes import Domain
from dpsql.errors import ArgumentError
from dpsql.methods.base import MeasurementPlan
from dpsql.methods.gaussian_copula.fit import Float32, FreeColumns
from dpsql.methods.gaussian_copula.forecast import fit_forecast, forecast_draw
from dpsql.methods.gaussian_copula.latent import calibrated, published, schedule_for
from dpsql.methods.gaussian_copula.sampling import sample_codes, sample_thresholded
from dpsql.methods.options import check_choices, chosen_options, is_number, is_whole, row_count
from dpsql.numerics.arrays import CodeArray, FloatArray
from dpsql.running.blas import one_blas_thread
from dpsql.tables.consistency import ADJUSTMENTS, SHRINKAGES, consistent_tables
from dpsql.tables.flat import AllCliques
from dpsql.tables.statistics import Statistics

OUTPUTS = ("decoded", "one_hot")


_SMALLEST_SHARE = 1e-6


@dataclass(frozen=True)
class CopulaModel:
    """A fitted copula.

    Parameters
    ----------
    sizes : tuple of int, length m
    rows : int
        Rows that the statistics suggest, at least 0.
    shares : ndarray, shape (D,)
        One-way shares of all columns.
    thresholds : ndarray, shape (D,)
        t_a; infinite for columns of share 0 (one_hot only).
    loadings : ndarray of float32, shape (D, r)
        Root of the latent correlation matrix (one_hot), or calibrated utilities (decoded). Decoded: 0 for the first code
        of an attribute of two values (and the only code of one), so that the second one's row is the difference.
        One-hot: of an attribute of two values one row is the negative of the other.
    offsets : ndarray of float32, shape (D,)
        Of the utilities (decoded), 0 where loadings are; zeros for one_hot.
    output : {'decoded', 'one_hot'}
    """

    sizes: tuple[int, ...]
    rows: int
    shares: FloatArray
    thresholds: FloatArray
    loadings: Float32
    offsets: Float32
    output: str


class GaussianCopula:
    """The method `gaussian_copula`.

    Attributes
    ----------
    name : str
    options : mapping
        output : 'decoded' (one value an attribute) or 'one_hot' (the published 0/1 columns).
        consistency : 'least_squares', or 'none' (published: one-way shares from the one-way tables alone).
        shrinkage : 'empirical_bayes' (deviations from independence shrink as far as they look like noise), or 'none'.
        calibration_steps : gradient steps of the calibration of decoded rows, 0 to 100,000; 0 leaves the plain copula;
        'auto' takes 40,000 over the number of one-hot columns (one of a binary attribute), at most 600, at least 150, or
        100 where most columns are binary.
        one_way_weight : privacy loss (rho) of a one-way table relative to a two-way table, 0 to 1000; 0 measures none
        (where there are two attributes or more: their sums tell).
    """

    name = "gaussian_copula"
    options: Mapping[str, Any] = MappingProxyType(
        {
            "output": "decoded",
            "consistency": "least_squares",
            "shrinkage": "empirical_bayes",
            "calibration_steps": "auto",
            "one_way_weight": 1.0,
        }
    )

    def plan(self, domain: Domain, options: Mapping[str, Any]) -> MeasurementPlan:
        """Return all one-way and two-way tables.

        Parameters
        ----------
        domain : Domain
            At least one attribute.
        options : mapping
            As in `options`; what is missing has its default.

        Returns
        -------
        MeasurementPlan

        Raises
        ------
        ArgumentError
            If there is no attribute, or an option is unknown or out of range.

        Notes
        -----
        Privacy: looks at the public domain and options alone.
        """
        chosen = self._checked(options)
        m = len(domain.attributes)
        if not m:
            raise ArgumentError("columns", [], "at least one column with a domain is required")
        weight = float(chosen["one_way_weight"])
        singles = m if weight > 0.0 or m == 1 else 0
        cliques = AllCliques(m, [k for k, used in ((1, singles), (2, m > 1)) if used])
        weights = (weight or 1.0,) * singles + (1.0,) * (len(cliques) - singles)
        return MeasurementPlan(cliques, weights, self._notes(chosen))

    def output_domain(self, domain: Domain, options: Mapping[str, Any]) -> Domain:
        """Return the measured domain: rows have its columns."""
        return domain

    def fit(self, statistics: Statistics, options: Mapping[str, Any]) -> CopulaModel:
        """Fit the copula. Deterministic.

        Parameters
        ----------
        statistics : Statistics
        options : mapping
            As in `options`.

        Returns
        -------
        CopulaModel

        Raises
        ------
        ArgumentError
            If an option is unknown or out of range, or a table's shape contradicts the sizes.

        Notes
        -----
        Privacy: post-processing.
        """
        chosen = self._checked(options)
        with one_blas_thread():
            return self._fitted(statistics, chosen)

    @staticmethod
    def _fitted(statistics: Statistics, chosen: Mapping[str, Any]) -> CopulaModel:
        tables = consistent_tables(statistics, adjustment=chosen["consistency"], shrinkage=chosen["shrinkage"])
        rows, shares = round(tables.total), np.concatenate(tables.one_way)
        if chosen["output"] == "one_hot":
            factor, thresholds = published(tables)
            no_offsets = np.zeros(shares.size, np.float32)
            return CopulaModel(tables.sizes, rows, shares, thresholds, factor, no_offsets, "one_hot")
        free = FreeColumns.of(tables.sizes)
        bounded = np.clip(shares, _SMALLEST_SHARE, 1.0 - _SMALLEST_SHARE)
        loadings, offsets = calibrated(tables, free, bounded[free.columns], schedule_for(chosen["calibration_steps"], tables.sizes))
        # Columns that are not free have utility zero, against which all others are measured.
        every = np.zeros((shares.size, loadings.shape[1]), np.float32)
        every_offset = np.zeros(shares.size, np.float32)
        every[free.columns], every_offset[free.columns] = loadings, offsets
        return CopulaModel(tables.sizes, rows, shares, -special.ndtri(bounded), every, every_offset, "decoded")

    def forecast(self, sizes: Sequence[int], rows: int, options: Mapping[str, Any], measured: int = 0) -> tuple[float, float]:
        """Return roughly the seconds and megabytes that fitting and drawing take on two cores.

        Post-processing of public sizes.
        """
        fit_seconds, fit_megabytes = fit_forecast(sizes, {**self.options, **options})
        draw_seconds, draw_megabytes = forecast_draw(sizes, rows, {**self.options, **options}["output"])
        return fit_seconds + draw_seconds, max(fit_megabytes, draw_megabytes)

    def total(self, model: CopulaModel) -> int:
        """Return the number of rows that the statistics suggest, at least 0."""
        return model.rows

    def sample(self, model: CopulaModel, rows: int, rng: np.random.Generator) -> Iterator[CodeArray]:
        """Yield blocks of decoded rows.

        Parameters
        ----------
        model : CopulaModel
            Fitted with `output := 'decoded'`.
        rows : int
            At least 0.
        rng : numpy.random.Generator
            The same state gives the same rows.

        Yields
        ------
        ndarray of the smallest unsigned type, shape (b, m)

        Raises
        ------
        ArgumentError
            If rows is negative or the model was fitted for one-hot output.

        Notes
        -----
        Privacy: post-processing.
        """
        _check_request(model, rows, "decoded")
        return sample_codes(model.loadings, model.offsets, model.sizes, model.shares, rows, rng)

    def sample_one_hot(
        self, model: CopulaModel, rows: int, rng: np.random.Generator
    ) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield blocks of thresholded one-hot rows, the published output.

        Parameters
        ----------
        model : CopulaModel
            Fitted with `output := 'one_hot'`.
        rows : int
            At least 0.
        rng : numpy.random.Generator

        Yields
        ------
        ndarray of uint8, shape (b, D)
            Columns: the codes of the first attribute, then the second's, and so on. The two columns of a binary attribute
            come from one normal with opposite signs, so where their shares add up to 1 (`consistency := 'least_squares'`)
            a row has exactly one of the two.

        Raises
        ------
        ArgumentError
            If rows is negative or the model was fitted for decoded output.

        Notes
        -----
        Privacy: post-processing.
        """
        _check_request(model, rows, "one_hot")
        return sample_thresholded(model.loadings, model.thresholds, rows, rng)

    def _checked(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Fill in defaults; refuse unknown options and values."""
        chosen = chosen_options(self.options, options)
        check_choices(chosen, {"output": OUTPUTS, "consistency": ADJUSTMENTS, "shrinkage": SHRINKAGES})
        steps, weight = chosen["calibration_steps"], chosen["one_way_weight"]
        if steps != "auto" and not is_whole(steps, 0, 100_000):
            raise ArgumentError("calibration_steps", steps, "'auto' or a whole number from 0 to 100000")
        if not is_number(weight, 0.0, 1000.0):
            raise ArgumentError("one_way_weight", weight, "a number from 0 to 1000")
        return chosen

    @staticmethod
    def _notes(chosen: Mapping[str, Any]) -> tuple[str, ...]:
        if chosen["output"] == "one_hot":
            return ("output := 'one_hot': 0/1 columns; a row may hold no value of an attribute, or several, as published",)
        return ()


def _check_request(model: CopulaModel, rows: int, output: str) -> None:
    row_count(rows)
    if model.output != output:
        raise ArgumentError("output", model.output, f"this sample needs a model fitted with output := '{output}'")
