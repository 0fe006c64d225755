"""Gaussian copula over one-hot columns [Asghar 2019], with rows that hold exactly one value an attribute.

1. Measure one-way and two-way tables; make them consistent (`dpsql.consistency`).
2. Column a of the one-hot table is 1 where a standard normal exceeds t_a = Phi^-1(1 - share_a). The latent correlation
   of two columns of different attributes is the one that gives the share of rows with both (`dpsql.bivariate_normal`).
3. Nearest correlation matrix (`dpsql.nearest_correlation`).
4. Rows. `output := 'one_hot'` thresholds the normals, as published: a row may then hold no value of an attribute, or
   several. `output := 'decoded'` gives every attribute the value of largest utility, Z_a - t_a + offset_a + Gumbel
   noise, after the latent loadings have been calibrated so that the decoded two-way tables are the measured ones
   (`dpsql.methods.latent_fit`).

Between columns of one attribute the published method has structural zeros, correlation -1: no set of more than two
normals can have that, and the nearest matrix pays for it everywhere else. Decoding makes the columns of one attribute
exclude each other anyway, so these correlations start at 0 and are calibrated.

Privacy: `fit` and `sample` are post-processing of released statistics.

References: Asghar et al. (2019), arXiv:1902.01499.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg, special

from dpsql import progress
from dpsql.bivariate_normal import latent_correlation
from dpsql.consistency import ADJUSTMENTS, SHRINKAGES, ConsistentTables, consistent_tables
from dpsql.domain import Domain
from dpsql.errors import ArgumentError
from dpsql.methods.base import CodeArray, MeasurementPlan, Statistics
from dpsql.methods.blas import one_blas_thread
from dpsql.methods.latent_fit import Float32, FreeColumns, Schedule, block_starts, calibrate, targets
from dpsql.methods.latent_sampling import sample_codes, sample_thresholded
from dpsql.nearest_correlation import lift_spectrum, nearest_correlation

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

OUTPUTS = ("decoded", "one_hot")

_FLOOR = 1e-6
"""Smallest eigenvalue of the latent correlation matrix."""

_GUMBEL_DEVIATION = math.pi / math.sqrt(6.0)
_LOGISTIC_DEVIATION = math.pi / math.sqrt(3.0)
_LARGEST_SCALE = 100.0
"""Of a latent standard deviation in units of the Gumbel noise: what follows wholly from another attribute."""

_PLAIN = 3.0
"""How much further the noise is pushed back where no calibration follows that could make up for it."""

_RANK = 64
"""Latent factors that calibration works with: beyond it neither error nor speed gained."""

_DRAWS, _RATE = 2048, 0.1

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
        Root of the latent correlation matrix (one_hot), or calibrated utilities (decoded).
    offsets : ndarray of float32, shape (D,)
        Of the utilities (decoded); zeros for one_hot.
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
        'auto' takes 40,000 over the number of one-hot columns, between 150 and 600.
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
        singles = [(i,) for i in range(m)] if weight > 0.0 or m == 1 else []
        pairs = [(i, j) for i in range(m) for j in range(i + 1, m)]
        weights = (weight or 1.0,) * len(singles) + (1.0,) * len(pairs)
        return MeasurementPlan((*singles, *pairs), weights, self._notes(chosen))

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
            factor, thresholds = _published(tables)
            no_offsets = np.zeros(shares.size, np.float32)
            return CopulaModel(tables.sizes, rows, shares, thresholds, factor, no_offsets, "one_hot")
        free = FreeColumns.of(tables.sizes)
        steps = _steps(chosen["calibration_steps"], free.columns.size)
        root, thresholds, scale = _initial(tables, free)
        scale *= 1.0 if steps else _PLAIN
        loadings = (scale[:, None] * root[:, : _RANK if steps else None]).astype(np.float32)
        offsets = (-scale * thresholds).astype(np.float32)
        schedule = Schedule(steps=steps, draws=_DRAWS, rate=_RATE)
        with progress.stage("calibration"):
            given = targets(free, tables.one_way, _measured(tables))
            loadings, offsets = calibrate(loadings, offsets, free, given, schedule)
        every = np.zeros((shares.size, loadings.shape[1]), np.float32)
        every[free.columns] = loadings
        every_offset = np.zeros(shares.size, np.float32)
        every_offset[free.columns] = offsets
        thresholds = -special.ndtri(np.clip(shares, _SMALLEST_SHARE, 1.0 - _SMALLEST_SHARE))
        return CopulaModel(tables.sizes, rows, shares, thresholds, every, every_offset, "decoded")

    def forecast(self, sizes: Sequence[int], rows: int, options: Mapping[str, Any]) -> tuple[float, float]:
        """Return roughly the seconds and megabytes that fitting and drawing take on two cores.

        Fitted to runs on Adult (194 one-hot columns) and a hospital table (1,273). Post-processing of public sizes.
        """
        columns = sum(sizes)
        steps = _steps({**self.options, **options}["calibration_steps"], columns)
        fit = 0.4 + steps * (4.5e-5 * columns + 8.8e-8 * columns**2) + 3e-9 * columns**3
        draw = rows * (4e-8 * columns + 3e-7 * len(sizes))
        return fit + draw, 1e-6 * (80.0 * columns**2 + 300_000.0 * columns)

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
        ndarray of int32, shape (b, m)

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
            Columns: the codes of the first attribute, then the second's, and so on.

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
        for option in options:
            if option not in self.options:
                raise ArgumentError("options", option, f"not an option; there are {', '.join(map(repr, self.options))}")
        chosen = {**self.options, **options}
        for option, allowed in (("output", OUTPUTS), ("consistency", ADJUSTMENTS), ("shrinkage", SHRINKAGES)):
            if chosen[option] not in allowed:
                raise ArgumentError(option, chosen[option], f"one of {', '.join(map(repr, allowed))}")
        steps, weight = chosen["calibration_steps"], chosen["one_way_weight"]
        if steps != "auto" and (isinstance(steps, bool) or not isinstance(steps, int) or not 0 <= steps <= 100_000):
            raise ArgumentError("calibration_steps", steps, "'auto' or a whole number from 0 to 100000")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0.0 <= weight <= 1000.0:
            raise ArgumentError("one_way_weight", weight, "a number from 0 to 1000")
        return chosen

    @staticmethod
    def _notes(chosen: Mapping[str, Any]) -> tuple[str, ...]:
        if chosen["output"] == "one_hot":
            return ("output := 'one_hot': 0/1 columns; a row may hold no value of an attribute, or several, as published",)
        return ()


def _steps(wanted: int | str, columns: int) -> int:
    """Return the number of calibration steps: small tables can afford more for the same time."""
    return min(max(40_000 // columns, 150), 600) if isinstance(wanted, str) else wanted


def _check_request(model: CopulaModel, rows: int, output: str) -> None:
    if rows < 0:
        raise ArgumentError("rows", rows, "a whole number of at least 0")
    if model.output != output:
        raise ArgumentError("output", model.output, f"this sample needs a model fitted with output := '{output}'")


def _measured(tables: ConsistentTables) -> Iterator[tuple[IntArray, FloatArray, FloatArray]]:
    """Yield pairs, unbiased tables and deviations of their cells, by shape."""
    for pairs, stack in tables.unbiased.by_shape():
        yield pairs, stack, tables.deviation.of(pairs)


def _pair_correlations(tables: ConsistentTables, free: FreeColumns) -> FloatArray:
    """Latent correlation of every pair of free columns; 0 between columns of one attribute and where unmeasured."""
    matrix = np.eye(free.columns.size)
    for pairs, stack in tables.two_way.by_shape():
        if min(stack.shape[1:]) < 2:
            continue
        skip_i, skip_j = (int(free.skipped[pairs[0, side]]) for side in (0, 1))
        a, b = (np.clip(margin, 0.0, 1.0) for margin in tables.margins(pairs))
        cells = stack[:, skip_i:, skip_j:]
        found = latent_correlation(a[:, skip_i:, None], b[:, None, skip_j:], cells)
        free.scatter(matrix, pairs, np.pad(found, ((0, 0), (skip_i, 0), (skip_j, 0))))
    return matrix


def _published(tables: ConsistentTables) -> tuple[Float32, FloatArray]:
    """Root of the latent correlation matrix with structural zeros, and the thresholds, as published."""
    free = FreeColumns.of(tables.sizes)
    with progress.stage("correlations"):
        found = _pair_correlations(tables, free)
        for start, count in zip(free.starts, free.counts, strict=True):
            block, shares = slice(start, start + count), np.concatenate(tables.one_way)[free.columns[start : start + count]]
            present = (shares > 0.0) & (shares < 1.0)
            found[block, block] = -1.0 * np.outer(present, present)
        found[np.diag_indices_from(found)] = 1.0
    with progress.stage("nearest correlation"):
        correlation = lift_spectrum(nearest_correlation(found), floor=_FLOOR)
        root = np.linalg.cholesky(correlation).astype(np.float32)
    shares = np.clip(np.concatenate(tables.one_way), 0.0, 1.0)
    return root, -special.ndtri(shares)


def _initial(tables: ConsistentTables, free: FreeColumns) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return root, thresholds and scale of the plain copula, columns of one attribute being uncorrelated.

    The Gumbel noise of the decoded utilities stands for what other attributes don't explain. So an attribute's
    latent normals are scaled until that part of them, 1 minus the largest squared correlation, is as large as the
    noise.
    """
    with progress.stage("correlations"):
        pairs = _pair_correlations(tables, free)
    with progress.stage("nearest correlation"):
        values, vectors = linalg.eigh(nearest_correlation(pairs), driver="evd", check_finite=False)
    kept = values > _FLOOR
    root = vectors[:, kept] * np.sqrt(values[kept])
    shares = np.clip(np.concatenate(tables.one_way), _SMALLEST_SHARE, 1.0 - _SMALLEST_SHARE)[free.columns]
    pairs[np.diag_indices_from(pairs)] = 0.0
    explained, weight = np.square(pairs).max(1), shares * (1.0 - shares)
    typical = explained.copy()
    for start, count in zip(free.starts, free.counts, strict=True):
        block = slice(start, start + count)
        typical[block] = (weight[block] @ explained[block]) / weight[block].sum()
    noise = np.where(np.arange(shares.size) < free.binary, _LOGISTIC_DEVIATION, _GUMBEL_DEVIATION)
    scale = np.minimum(noise / np.sqrt(np.maximum(1.0 - typical, 1e-9)), _LARGEST_SCALE)
    return root[:, ::-1], -special.ndtri(shares), scale
