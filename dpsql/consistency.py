"""From noisy tables that contradict each other to shares that do not.

Noisy tables disagree: cells are negative, totals differ, the one-way table of an attribute is not the row sum of its
two-way tables. Every one of these contradictions is information about the noise. What comes out here has one total,
no negative cell, and two-way tables whose sums are the one-way tables.

Privacy: post-processing throughout; the inputs are released statistics, public sizes and public noise scales.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dpsql.errors import ArgumentError

if TYPE_CHECKING:  # dpsql.methods imports this module
    from dpsql.methods.base import Clique, Statistics

FloatArray = npt.NDArray[np.float64]

ADJUSTMENTS = ("least_squares", "none")
SHRINKAGES = ("empirical_bayes", "none")

_SMALLEST_VARIANCE = 1e-6
"""Stands for the variance of a table without noise, so that precisions stay finite."""

_FITTING_ROUNDS = 100
_FITTING_TOLERANCE = 1e-9
_NEGLIGIBLE = 1e-7
"""A share of the rows far below one row of any table that fits in memory."""

_PRIOR_SCALES = np.logspace(-6.0, 6.0, 73)


@dataclass(frozen=True)
class ConsistentTables:
    """One-way and two-way tables as shares of the rows.

    Parameters
    ----------
    sizes : tuple of int, length m
        Number of codes of each attribute.
    total : float
        Number of rows: the public one, or an estimate; at least 0.
    one_way : tuple of ndarray
        Shares of each attribute's codes; non-negative, sum 1.
    two_way : mapping from (i, j), i < j, to ndarray of shape (c_i, c_j)
        Non-negative shares; sums are the one-way tables. Only pairs that were measured (within some table).
    unbiased : mapping like two_way
        Least squares estimates before anything was shrunk or clipped: cells may be negative, sums are the one-way
        tables. A model that is fitted to them does its own smoothing.
    deviation : mapping from (i, j) to float
        Standard deviation of the noise of one cell of `unbiased`, as a share.
    """

    sizes: tuple[int, ...]
    total: float
    one_way: tuple[FloatArray, ...]
    two_way: Mapping[Clique, FloatArray]
    unbiased: Mapping[Clique, FloatArray]
    deviation: Mapping[Clique, float]


def noise_variance(scale: float, mechanism: str) -> float:
    """Return the variance of one cell's noise.

    Parameters
    ----------
    scale : float
        Standard deviation (Gaussian) or b (Laplace); 0 for no noise.
    mechanism : {'gaussian', 'laplace'}

    Returns
    -------
    float
        sigma^2, or 2 b^2 (the discrete distributions differ from it by less than 1/6 for scales above 1).

    Raises
    ------
    ArgumentError
        If the mechanism is unknown or the scale negative.

    Notes
    -----
    Privacy: none; public parameters.

    Examples
    --------
    >>> noise_variance(3.0, "laplace")
    18.0
    """
    if mechanism not in ("gaussian", "laplace"):
        raise ArgumentError("mechanism", mechanism, "'gaussian' or 'laplace'")
    if not scale >= 0.0:
        raise ArgumentError("scale", scale, "a noise scale of at least 0")
    return float(scale) ** 2 * (2.0 if mechanism == "laplace" else 1.0)


def simplex_projection(values: npt.ArrayLike, total: float = 1.0) -> FloatArray:
    """Return the nearest point (least squares) with non-negative entries and the given sum.

    Parameters
    ----------
    values : array_like, shape (c,)
        Finite, c >= 1.
    total : float
        Sum of the result, > 0.

    Returns
    -------
    ndarray, shape (c,)

    Raises
    ------
    ArgumentError
        If there is no entry, one is not finite, or the total is not positive.

    Notes
    -----
    Privacy: none; post-processing.

    References
    ----------
    Duchi et al. (2008), *Efficient Projections onto the l1-Ball*.

    Examples
    --------
    >>> simplex_projection([0.7, 0.6, -0.5]).round(3)
    array([0.55, 0.45, 0.  ])
    """
    given = np.asarray(values, float)
    if given.ndim != 1 or given.size == 0 or not np.isfinite(given).all():
        raise ArgumentError("values", given.shape, "a vector of at least one finite number")
    if not total > 0.0:
        raise ArgumentError("total", total, "a positive number")
    falling = np.sort(given)[::-1]
    cut = (np.cumsum(falling) - total) / np.arange(1, given.size + 1)
    last = int(np.flatnonzero(falling > cut)[-1])
    projected = np.maximum(given - cut[last], 0.0)
    scaled: FloatArray = projected * (total / projected.sum())
    return scaled


def consistent_tables(
    statistics: Statistics, *, adjustment: str = "least_squares", shrinkage: str = "empirical_bayes"
) -> ConsistentTables:
    """Make noisy tables consistent.

    Parameters
    ----------
    statistics : Statistics
        Tables over any cliques with any noise scales; an attribute that no table covers gets uniform shares.
    adjustment : {'least_squares', 'none'}
        'least_squares': every attribute's shares and the total are estimated from all tables that know about them,
        weighted by precision, and the two-way tables are moved (least squares) to these shares. 'none': one-way
        shares come from the one-way tables alone, as they are, negative cells set to 0: the published procedure.
    shrinkage : {'empirical_bayes', 'none'}
        'empirical_bayes': see `shrink_to_independence`. 'none': negative cells are set to 0.

    Returns
    -------
    ConsistentTables
        With `adjustment='none'`, two-way sums need not agree with one-way shares.

    Raises
    ------
    ArgumentError
        If an option is unknown, or a table's shape contradicts the sizes.

    Notes
    -----
    Privacy: none; post-processing.
    """
    if adjustment not in ADJUSTMENTS:
        raise ArgumentError("consistency", adjustment, f"one of {', '.join(map(repr, ADJUSTMENTS))}")
    if shrinkage not in SHRINKAGES:
        raise ArgumentError("shrinkage", shrinkage, f"one of {', '.join(map(repr, SHRINKAGES))}")
    variances = _variances(statistics)
    total = _total(statistics, variances)
    rows = max(total, 1.0)
    least_squares = adjustment == "least_squares"
    counts = tuple(_one_way(statistics, variances, i, rows, least_squares) for i in range(len(statistics.sizes)))
    two_way: dict[Clique, FloatArray] = {}
    unbiased: dict[Clique, FloatArray] = {}
    deviation: dict[Clique, float] = {}
    for pair, (table, variance) in _pairs(statistics, variances).items():
        a, b = counts[pair[0]], counts[pair[1]]
        moved = fit_margins_linearly(table, a, b) if least_squares else table
        unbiased[pair], deviation[pair] = moved / rows, variance**0.5 / rows
        if shrinkage == "empirical_bayes":
            moved = shrink_to_independence(moved, a, b, variance)
        two_way[pair] = (fit_margins(moved, a, b) if least_squares else np.maximum(moved, 0.0)) / rows
    shares = tuple(c / rows for c in counts)
    return ConsistentTables(tuple(statistics.sizes), total, shares, two_way, unbiased, deviation)


def _variances(statistics: Statistics) -> dict[Clique, float]:
    """Variance of one cell of each table; refuse tables whose shape is not the domain's."""
    variances = {}
    for clique, table in statistics.tables.items():
        expected = tuple(statistics.sizes[i] for i in clique)
        if np.shape(table) != expected:
            raise ArgumentError(f"tables[{clique}]", np.shape(table), f"an array of shape {expected}")
        variance = noise_variance(statistics.scales[clique], statistics.mechanism)
        variances[clique] = max(variance, _SMALLEST_VARIANCE)
    return variances


def _total(statistics: Statistics, variances: Mapping[Clique, float]) -> float:
    """Return the public number of rows, or the precision-weighted mean of the tables' sums, at least 0."""
    if statistics.total is not None:
        return float(max(statistics.total, 0))
    sums = precisions = 0.0
    for clique, table in statistics.tables.items():
        precision = 1.0 / (variances[clique] * np.size(table))
        sums += precision * float(np.sum(table, dtype=np.float64))
        precisions += precision
    return max(sums / precisions, 0.0) if precisions else 0.0


def _one_way(
    statistics: Statistics, variances: Mapping[Clique, float], i: int, rows: float, least_squares: bool
) -> FloatArray:
    """Estimate the counts of attribute i's codes: all tables' sums by precision, then the simplex of `rows`."""
    size = statistics.sizes[i]
    covering = [c for c in statistics.tables if i in c]
    if not least_squares and (i,) in statistics.tables:
        clipped: FloatArray = np.clip(np.asarray(statistics.tables[(i,)], float), 0.0, rows)
        return clipped
    if not covering:
        return np.full(size, rows / size)
    weighted, precisions = np.zeros(size), 0.0
    for clique in covering:
        table = np.asarray(statistics.tables[clique], float)
        others = tuple(axis for axis, attribute in enumerate(clique) if attribute != i)
        precision = 1.0 / (variances[clique] * (table.size // size))
        weighted += precision * table.sum(axis=others)
        precisions += precision
    estimate = weighted / precisions
    return simplex_projection(estimate + (rows - estimate.sum()) / size, rows)


def _pairs(statistics: Statistics, variances: Mapping[Clique, float]) -> dict[Clique, tuple[FloatArray, float]]:
    """Return two-way tables, the precision-weighted mean of all tables that contain the pair, and their variance."""
    sums: dict[Clique, FloatArray] = {}
    precisions: dict[Clique, float] = {}
    for clique, table in statistics.tables.items():
        counts = np.asarray(table, float)
        for first in range(len(clique)):
            for second in range(first + 1, len(clique)):
                pair = (clique[first], clique[second])
                others = tuple(axis for axis in range(len(clique)) if axis not in (first, second))
                collapsed = counts.sum(axis=others)
                precision = collapsed.size / (variances[clique] * counts.size)
                sums[pair] = sums.get(pair, np.zeros_like(collapsed)) + precision * collapsed
                precisions[pair] = precisions.get(pair, 0.0) + precision
    return {pair: (sums[pair] / precisions[pair], 1.0 / precisions[pair]) for pair in sorted(sums)}


def fit_margins_linearly(table: npt.ArrayLike, rows: npt.ArrayLike, columns: npt.ArrayLike) -> FloatArray:
    """Return the nearest table (least squares) with the given row and column sums; cells may be negative.

    Parameters
    ----------
    table : array_like, shape (c_i, c_j)
    rows, columns : array_like, shapes (c_i,) and (c_j,)
        With equal sums.

    Returns
    -------
    ndarray, shape (c_i, c_j)

    Notes
    -----
    Privacy: none; post-processing.

    Examples
    --------
    >>> fit_margins_linearly([[4.0, 1.0], [0.0, 3.0]], [6.0, 4.0], [5.0, 5.0])
    array([[4.5, 1.5],
           [0.5, 3.5]])
    """
    given = np.asarray(table, float)
    missing_rows = np.asarray(rows, float) - given.sum(1)
    missing_columns = np.asarray(columns, float) - given.sum(0)
    height, width = given.shape
    shared = missing_rows.sum() / (height * width)
    moved: FloatArray = given + missing_rows[:, None] / width + missing_columns[None, :] / height - shared
    return moved


def shrink_to_independence(
    table: npt.ArrayLike, rows: npt.ArrayLike, columns: npt.ArrayLike, variance: float
) -> FloatArray:
    """Shrink a two-way table's deviations from independence by as much as they look like noise.

    Cell (a, b) deviates from e_ab = rows_a columns_b / n by a normal with variance t e_ab before noise: rare cells can
    deviate but little. The t of the table maximises the likelihood of what was observed, and each deviation is
    multiplied by t e_ab / (t e_ab + variance). Nothing is tuned: a table of noise gives t near 0, an exact one t
    large.

    Parameters
    ----------
    table : array_like, shape (c_i, c_j)
        Counts with the given sums, noisy.
    rows, columns : array_like
        Non-negative counts with equal, positive sums.
    variance : float
        Of one cell's noise, > 0.

    Returns
    -------
    ndarray, shape (c_i, c_j)
        Same sums up to the shrinkage's own unevenness; cells may be negative.

    Notes
    -----
    Privacy: none; post-processing: the noise's variance is public.

    References
    ----------
    Robbins (1956), empirical Bayes; James & Stein (1961).
    """
    given, a, b = np.asarray(table, float), np.asarray(rows, float), np.asarray(columns, float)
    independent = np.outer(a, b) / a.sum()
    deviation = given - independent
    height, width = given.shape
    # What fitting the sums has taken out of the noise of a cell.
    noise = variance * max(1.0 - 1.0 / height, 0.25) * max(1.0 - 1.0 / width, 0.25)
    prior = independent / max(float(independent.max()), np.finfo(float).tiny)
    observed = deviation * deviation / noise
    losses = []
    for scale in _PRIOR_SCALES:  # one at a time: the table may have millions of cells
        spread = scale * prior + 1.0
        losses.append(float((np.log(spread) + observed / spread).sum()))
    scaled = _PRIOR_SCALES[int(np.argmin(losses))] * prior
    shrunk: FloatArray = independent + deviation * (scaled / (scaled + 1.0))
    return shrunk


def fit_margins(table: npt.ArrayLike, rows: npt.ArrayLike, columns: npt.ArrayLike) -> FloatArray:
    """Return a non-negative table near the given one with the given row and column sums.

    Projections on the sums and on the non-negative tables in turn lead close to their intersection; scaling rows and
    columns in turn then makes it exact without leaving the non-negative tables.

    Parameters
    ----------
    table : array_like, shape (c_i, c_j)
        May have negative cells.
    rows, columns : array_like
        Non-negative, equal sums, positive.

    Returns
    -------
    ndarray, shape (c_i, c_j)
        Non-negative; column sums exact, row sums to about 1e-6 of the total.

    Notes
    -----
    Privacy: none; post-processing.

    References
    ----------
    von Neumann's alternating projections; Deming & Stephan (1940), iterative proportional fitting.

    Examples
    --------
    >>> fit_margins([[1.0, 1.0], [1.0, 1.0]], [3.0, 1.0], [2.0, 2.0])
    array([[1.5, 1.5],
           [0.5, 0.5]])
    """
    a, b = np.asarray(rows, float), np.asarray(columns, float)
    total = float(a.sum())
    fitted = np.maximum(np.asarray(table, float), 0.0)
    for _ in range(_FITTING_ROUNDS):
        fitted = fit_margins_linearly(fitted, a, b)
        if float(fitted.min()) >= -_NEGLIGIBLE * total:
            break
        fitted = np.maximum(fitted, 0.0)
    # A trace of independence keeps every sum reachable where zeros would forbid it.
    fitted = np.maximum(fitted, 0.0) + _NEGLIGIBLE * np.outer(a, b) / total
    tiny = np.finfo(float).tiny
    for _ in range(_FITTING_ROUNDS):
        fitted = fitted * (a / np.maximum(fitted.sum(1), tiny))[:, None]
        fitted = fitted * (b / np.maximum(fitted.sum(0), tiny))[None, :]
        if float(np.abs(fitted.sum(1) - a).max()) <= _FITTING_TOLERANCE * total:
            break
    balanced: FloatArray = fitted
    return balanced
