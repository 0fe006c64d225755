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

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg, special

from dpsql.domains.attributes import Domain
from dpsql.errors import ArgumentError
from dpsql.methods.base import MeasurementPlan
from dpsql.methods.gaussian_copula.fit import Float32, FreeColumns, Schedule, calibrate, targets
from dpsql.methods.gaussian_copula.sampling import forecast_draw, sample_codes, sample_thresholded
from dpsql.numerics.arrays import CodeArray, FloatArray, IntArray
from dpsql.numerics.bivariate_normal import latent_correlation
from dpsql.numerics.nearest_correlation import lift_spectrum, nearest_correlation
from dpsql.running import progress
from dpsql.running.blas import one_blas_thread
from dpsql.running.parallel import Workers
from dpsql.tables.consistency import ADJUSTMENTS, SHRINKAGES, ConsistentTables, consistent_tables
from dpsql.tables.flat import AllCliques
from dpsql.tables.statistics import Statistics

OUTPUTS = ("decoded", "one_hot")

_FLOOR = 1e-6
"""Smallest eigenvalue of the latent correlation matrix."""

_GUMBEL_DEVIATION = math.pi / math.sqrt(6.0)
_LOGISTIC_SCALE = 1.7
"""Of the normal that a logistic variable is nearest to in distribution (the difference of two Gumbel variables)."""

_LARGEST_SCALE = 100.0
"""Of a latent standard deviation in units of the Gumbel noise: what follows wholly from another attribute."""

_PLAIN = 3.0
"""How much further the noise is pushed back where no calibration follows that could make up for it."""

_FEWEST_FACTORS, _MOST_FACTORS = 8, 64
_COMMON = 1.1
"""Latent factors that calibration works with: as many as eigenvalues above this, within bounds. A factor too many costs
accuracy, for its loadings follow the random gradient; beyond 64 nothing was gained on any table."""

_DRAWS, _MANY_DRAWS, _MANY_UP_TO = 2048, 4096, 700
"""Draws of a step of calibration: the second number up to so many free columns. On Adult the two-way distance of the rows
is .0285 with 4096 draws and .0300 with 2048; on 1,273 columns they do equally well. The first half of the steps does with 2048."""

_RATE, _BINARY_RATE = 0.1, 0.03
"""Step sizes of calibration. The factors of binary attributes begin so near the answer that small steps do."""

_SHORTEST, _LONGEST, _WORK = 100, 600, 40_000
"""Bounds of the steps of calibration, and steps times free columns."""

_FACTOR_ROUNDS, _MOST_EXPLAINED = 20, 0.999
"""Of the search for common factors: rounds, and largest share of a column's variance that they explain."""

_TOLERANCE = 1e-8
"""Of the diagonal of the nearest correlation matrix."""

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
        cliques = AllCliques(m, [k for k, wanted in ((1, singles), (2, m > 1)) if wanted])
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
            factor, thresholds = _published(tables)
            no_offsets = np.zeros(shares.size, np.float32)
            return CopulaModel(tables.sizes, rows, shares, thresholds, factor, no_offsets, "one_hot")
        free = FreeColumns.of(tables.sizes)
        bounded = np.clip(shares, _SMALLEST_SHARE, 1.0 - _SMALLEST_SHARE)
        loadings, offsets = _calibrated(tables, free, bounded[free.columns], _schedule(chosen["calibration_steps"], tables.sizes))
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


def _rank(values: FloatArray) -> int:
    """Return the number of common factors that eigenvalues of a correlation matrix speak for."""
    return min(max(int((values > _COMMON).sum()), _FEWEST_FACTORS), _MOST_FACTORS, values.size)


def _schedule(wanted: int | str, sizes: Sequence[int]) -> Schedule:
    """Return how to calibrate: small tables can afford more steps for the same time, binary attributes need fewer."""
    binary = sum(size == 2 for size in sizes)
    columns = sum(size for size in sizes if size > 2) + binary
    fewest = _SHORTEST if 2 * binary > columns else _SHORTEST + 50
    steps = min(max(_WORK // max(columns, 1), fewest), _LONGEST) if isinstance(wanted, str) else wanted
    rate = _BINARY_RATE if 2 * binary > columns else _RATE
    return Schedule(steps, _MANY_DRAWS if columns <= _MANY_UP_TO else _DRAWS, rate, early=_DRAWS)


def fit_forecast(sizes: Sequence[int], chosen: Mapping[str, Any]) -> tuple[float, float]:
    """Return roughly the seconds and megabytes of a fit, from runs on tables of 227 to 2,000 free columns.

    In this order: fixed costs, tables and cells (consistency and correlations), decompositions, calibration.
    """
    free = sum(size for size in sizes if size > 2) + sum(size == 2 for size in sizes)
    tables = len(sizes) * (len(sizes) - 1) // 2
    cells = (sum(sizes) ** 2 - sum(size * size for size in sizes)) // 2
    schedule = _schedule(chosen["calibration_steps"], sizes)
    steps = schedule.steps if chosen["output"] == "decoded" else 0
    step = 0.5 * (schedule.draws + schedule.early) * free * (1.9e-11 * free + 6e-9)
    seconds = 0.3 + 3e-6 * tables + 1.2e-6 * cells + 1.7e-9 * free**3 + steps * step
    return seconds, 40.0 + 1e-6 * (45.0 * cells + 90.0 * free**2 + 12.0 * schedule.draws * free)


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
    """Root of the latent correlation matrix with structural zeros, and the thresholds, as published.

    The two columns of a binary attribute have one normal, with opposite signs: what the structural zero, correlation
    -1, asks for, and the only structural zeros that normals can have.
    """
    free = FreeColumns.of(tables.sizes)
    shares = np.clip(np.concatenate(tables.one_way), 0.0, 1.0)
    with progress.stage("correlations"):
        found = _pair_correlations(tables, free)
        for start, count in zip(free.starts, free.counts, strict=True):
            block = slice(start, start + count)
            own = shares[free.columns[block]]
            present = (own > 0.0) & (own < 1.0)
            found[block, block] = -1.0 * np.outer(present, present)
        found[np.diag_indices_from(found)] = 1.0
    if not free.columns.size:
        return np.eye(shares.size, dtype=np.float32), -special.ndtri(shares)
    with progress.stage("nearest correlation"), Workers(1) as worker:
        correlation = lift_spectrum(nearest_correlation(found, tolerance=_TOLERANCE), floor=_FLOOR)
        root = worker.run(np.linalg.cholesky, correlation).astype(np.float32)
    alone = np.flatnonzero(np.repeat(np.asarray(tables.sizes) == 1, tables.sizes))
    every = np.zeros((shares.size, len(root) + alone.size), np.float32)
    every[free.columns, : len(root)] = root
    every[free.columns[: free.binary] - 1, : len(root)] = -root[: free.binary]
    every[alone, len(root) + np.arange(alone.size)] = 1.0
    return every, -special.ndtri(shares)


@dataclass(frozen=True)
class _Latent:
    """The plain copula of the free columns, columns of one attribute being uncorrelated.

    Parameters
    ----------
    pairs : ndarray, shape (F, F)
        Latent correlations found pair by pair.
    correlation : ndarray, shape (F, F)
        The nearest correlation matrix, here with eigenvalues and eigenvectors, descending.
    """

    pairs: FloatArray
    correlation: FloatArray
    values: FloatArray
    vectors: FloatArray


def _latent(tables: ConsistentTables, free: FreeColumns) -> _Latent:
    with progress.stage("correlations"):
        pairs = _pair_correlations(tables, free)
    with progress.stage("nearest correlation"), Workers(1) as worker:
        correlation = nearest_correlation(pairs, tolerance=_TOLERANCE)
        values, vectors = worker.run(partial(linalg.eigh, correlation, driver="evd", check_finite=False))
    return _Latent(pairs, correlation, values[::-1], vectors[:, ::-1])


def _plain(latent: _Latent, shares: FloatArray, free: FreeColumns) -> tuple[FloatArray, FloatArray]:
    """Return loadings and scale of the plain copula in full rank.

    The Gumbel noise of the decoded utilities stands for what other attributes don't explain. So an attribute's
    latent normals are scaled until that part of them, 1 minus the largest squared correlation, is as large as the
    noise.
    """
    kept = latent.values > _FLOOR
    root = latent.vectors[:, kept] * np.sqrt(latent.values[kept])
    others = np.square(latent.pairs)
    others[np.diag_indices_from(others)] = 0.0
    return root, _PLAIN * _scale(others.max(1), shares, free)


def _scale(explained: FloatArray, shares: FloatArray, free: FreeColumns) -> FloatArray:
    """Return the scale of each column's utility that makes its unexplained part as large as the noise of its attribute."""
    typical, weight = explained.copy(), shares * (1.0 - shares)
    for start, count in zip(free.starts, free.counts, strict=True):
        block = slice(start, start + count)
        typical[block] = (weight[block] @ explained[block]) / weight[block].sum()
    noise = np.where(np.arange(shares.size) < free.binary, _LOGISTIC_SCALE, _GUMBEL_DEVIATION)
    return np.minimum(noise / np.sqrt(np.maximum(1.0 - typical, 1e-9)), _LARGEST_SCALE)


def _calibrated(
    tables: ConsistentTables, free: FreeColumns, shares: FloatArray, schedule: Schedule
) -> tuple[Float32, Float32]:
    """Return loadings and offsets of the utilities of the free columns."""
    if not free.columns.size:
        return np.zeros((0, 0), np.float32), np.zeros(0, np.float32)
    latent = _latent(tables, free)
    if schedule.steps:
        root, explained = _factors(latent, _rank(latent.values))
        scale = _scale(explained, shares, free)
    else:
        root, scale = _plain(latent, shares, free)
    loadings, offsets = (scale[:, None] * root).astype(np.float32), (scale * special.ndtri(shares)).astype(np.float32)
    with progress.stage("calibration"):
        return calibrate(loadings, offsets, free, targets(free, tables.one_way, _measured(tables)), schedule)


def _factors(latent: _Latent, rank: int) -> tuple[FloatArray, FloatArray]:
    """Return loadings of `rank` common factors, shape (F, rank), and how much of each column they explain.

    Principal factors: the diagonal is what the factors explain, found by iterating. The shift by 1 makes the matrix
    positive semidefinite, so that orthogonal iteration finds its largest eigenvalues.
    """
    basis = latent.vectors[:, :rank]
    explained = np.square(latent.pairs - np.diag(np.diag(latent.pairs))).max(1)
    unshifted = latent.correlation - np.eye(len(latent.correlation))
    for _ in range(_FACTOR_ROUNDS):
        basis, _ = np.linalg.qr(unshifted @ basis + (1.0 + explained)[:, None] * basis)
        inner = basis.T @ (unshifted @ basis) + (basis.T * explained) @ basis
        values, turn = np.linalg.eigh(0.5 * (inner + inner.T))
        basis = basis @ turn[:, ::-1]
        loadings = basis * np.sqrt(np.maximum(values[::-1], 0.0))
        explained = np.minimum(np.square(loadings).sum(1), _MOST_EXPLAINED)
    return loadings, explained
