"""Two-way tables with given sums: one table, or stacks of millions of small ones at once.

Every function takes tables of shape (..., c_i, c_j) and works on each of them as if it were alone. Nothing but the two
last axes is summed, so stacks may lie in memory table by table or cell by cell.

Privacy: post-processing of released statistics throughout.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsql.errors import ArgumentError
from dpsql.numerics.arrays import FloatArray, IntArray

_FITTING_ROUNDS = 100
_FITTING_TOLERANCE = 1e-9
_NEGLIGIBLE = 1e-7
"""A share of the rows far below one row of any table that fits in memory."""

_PRIOR_SCALES = np.logspace(-6.0, 6.0, 73)

_BLOCK = 1 << 15
"""Cells that are looked at together for one prior after the other: they stay in the cache."""

_FACTORS = 40
"""Numbers up to 1e6 + 1 whose product a float holds."""


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
    vector = np.asarray(values, float)
    if vector.ndim != 1 or vector.size == 0 or not np.isfinite(vector).all():
        raise ArgumentError("values", vector.shape, "a vector of at least one finite number")
    if not total > 0.0:
        raise ArgumentError("total", total, "a positive number")
    vector = vector - vector.max()  # a total that rounding would lose beside the largest value is kept: the first cut is -total
    falling = np.sort(vector)[::-1]
    cut = (np.cumsum(falling) - total) / np.arange(1, vector.size + 1)
    last = int(np.flatnonzero(falling > cut)[-1])
    projected = np.maximum(vector - cut[last], 0.0)
    scaled: FloatArray = projected * (total / projected.sum())
    return scaled


def fit_margins_linearly(table: npt.ArrayLike, rows: npt.ArrayLike, columns: npt.ArrayLike) -> FloatArray:
    """Return the nearest table (least squares) with the given row and column sums; cells may be negative.

    Parameters
    ----------
    table : array_like, shape (..., c_i, c_j)
    rows, columns : array_like, shapes (..., c_i) and (..., c_j)
        With equal sums.

    Returns
    -------
    ndarray, shape (..., c_i, c_j)

    Notes
    -----
    Privacy: none; post-processing.

    Examples
    --------
    >>> fit_margins_linearly([[4.0, 1.0], [0.0, 3.0]], [6.0, 4.0], [5.0, 5.0])
    array([[4.5, 1.5],
           [0.5, 3.5]])
    """
    cells = np.asarray(table, float)
    missing_rows = np.asarray(rows, float) - cells.sum(-1)
    missing_columns = np.asarray(columns, float) - cells.sum(-2)
    height, width = cells.shape[-2:]
    shared = missing_rows.sum(-1) / (height * width)
    moved: FloatArray = cells + (missing_rows / width)[..., :, None]
    moved += (missing_columns / height)[..., None, :]
    moved -= shared[..., None, None]
    return moved


def shrink_to_independence(
    table: npt.ArrayLike, rows: npt.ArrayLike, columns: npt.ArrayLike, variance: npt.ArrayLike
) -> FloatArray:
    """Shrink a two-way table's deviations from independence by as much as they look like noise.

    Cell (a, b) deviates from e_ab = rows_a columns_b / n by a normal with variance t e_ab before noise: rare cells can
    deviate but little. The t of the table maximises the likelihood of what was observed, and each deviation is
    multiplied by t e_ab / (t e_ab + variance). Nothing is tuned: a table of noise gives t near 0, an exact one t
    large.

    Parameters
    ----------
    table : array_like, shape (..., c_i, c_j)
        Counts with the given sums, noisy.
    rows, columns : array_like, shapes (..., c_i) and (..., c_j)
        Non-negative counts with equal sums.
    variance : array_like, shape (...)
        Of one cell's noise, > 0.

    Returns
    -------
    ndarray, shape (..., c_i, c_j)
        Same sums up to the shrinkage's own unevenness; cells may be negative.

    Notes
    -----
    Privacy: none; post-processing: the noise's variance is public.

    References
    ----------
    Robbins (1956), empirical Bayes; James & Stein (1961).
    """
    cells, a, b = np.asarray(table, float), np.asarray(rows, float), np.asarray(columns, float)
    independent = _independent(a, b)
    deviation = cells - independent
    height, width = cells.shape[-2:]
    # What fitting the sums has taken out of the noise of a cell.
    noise = np.asarray(variance, float) * max(1.0 - 1.0 / height, 0.25) * max(1.0 - 1.0 / width, 0.25)
    prior = independent / np.maximum(independent.max((-2, -1)), np.finfo(float).tiny)[..., None, None]
    scaled = prior * _likeliest(prior, deviation * deviation / noise[..., None, None])[..., None, None]
    deviation *= scaled / (scaled + 1.0)
    deviation += independent
    return deviation


def _independent(rows: FloatArray, columns: FloatArray) -> FloatArray:
    """Return the tables of independent attributes, shape (..., c_i, c_j); of nothing where the rows are none."""
    totals = rows.sum(-1)
    product: FloatArray = rows[..., :, None] * columns[..., None, :]
    product /= np.where(totals > 0.0, totals, 1.0)[..., None, None]
    return product


def _likeliest(prior: FloatArray, observed: FloatArray) -> FloatArray:
    """Return, for each table, the scale t that minimises the sum of log(t prior + 1) + observed / (t prior + 1) over its cells."""
    shape = prior.shape[:-2]
    by_cell = len(shape) == 1 and prior.strides[0] == prior.itemsize and shape[0] > 1
    if by_cell:  # one row for each cell
        priors, squares = (np.moveaxis(x, 0, -1).reshape(-1, shape[0]) for x in (prior, observed))
        pieces = [(slice(start, start + _FACTORS), slice(None)) for start in range(0, priors.shape[0], _FACTORS)]
    else:
        priors, squares = (np.ascontiguousarray(x).reshape(int(np.prod(shape)), -1) for x in (prior, observed))
        pieces = [(slice(None), slice(start, start + _BLOCK)) for start in range(0, priors.shape[1], _BLOCK)]
    losses = np.zeros((_PRIOR_SCALES.size, priors.shape[1] if by_cell else priors.shape[0]))
    for piece in pieces:
        part, square = priors[piece], squares[piece]
        spread, fit = np.empty_like(part), np.empty_like(part)
        for loss, scale in zip(losses, _PRIOR_SCALES, strict=True):
            np.multiply(part, scale, out=spread)
            spread += 1.0
            np.divide(square, spread, out=fit)
            # The logarithm of a product costs less than a sum of logarithms.
            if by_cell:
                loss += fit.sum(0) + np.log(spread.prod(0))
            else:
                products = np.multiply.reduceat(spread, np.arange(0, spread.shape[1], _FACTORS), axis=1)
                loss += fit.sum(1) + np.log(products).sum(1)
    scales: FloatArray = _PRIOR_SCALES[losses.argmin(0)].reshape(shape)
    return scales


def fit_margins(table: npt.ArrayLike, rows: npt.ArrayLike, columns: npt.ArrayLike) -> FloatArray:
    """Return a non-negative table near the given one with the given row and column sums.

    Projections on the sums and on the non-negative tables in turn lead close to their intersection; scaling rows and
    columns in turn then makes it exact without leaving the non-negative tables.

    Parameters
    ----------
    table : array_like, shape (c_i, c_j) or (T, c_i, c_j)
        May have negative cells.
    rows, columns : array_like, shapes (c_i,) and (c_j,), or (T, c_i) and (T, c_j)
        Non-negative, equal sums, positive.

    Returns
    -------
    ndarray, shape of the table
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
    cells, a, b = np.asarray(table, float), np.asarray(rows, float), np.asarray(columns, float)
    if cells.ndim == 2:
        alone: FloatArray = fit_margins(cells[None], a[None], b[None])[0]
        return alone
    totals = a.sum(-1)
    fitted = _nearly_fitted(np.maximum(cells, 0.0), a, b, totals)
    # A trace of independence keeps every sum reachable where zeros would forbid it.
    np.maximum(fitted, 0.0, out=fitted)
    fitted += _NEGLIGIBLE * _independent(a, b)
    return _balanced(fitted, a, b, totals)


def _nearly_fitted(start: FloatArray, rows: FloatArray, columns: FloatArray, totals: FloatArray) -> FloatArray:
    """Project each table on its sums and on the non-negative tables in turn, until no cell is below 0 by much."""
    result, left = start, np.arange(len(start))
    fitted, a, b = start, rows, columns
    for _ in range(_FITTING_ROUNDS):
        fitted = fit_margins_linearly(fitted, a, b)
        open_ = fitted.min((-2, -1)) < -_NEGLIGIBLE * totals[left]
        _put(result, left, fitted, ~open_)
        if not open_.any():
            return result
        # Tables that fit are done; the others go on.
        left = left[open_]
        fitted, a, b = np.maximum(_picked(fitted, open_), 0.0), _picked(a, open_), _picked(b, open_)
    _put(result, left, fitted, np.ones(left.size, bool))
    return result


def _balanced(start: FloatArray, rows: FloatArray, columns: FloatArray, totals: FloatArray) -> FloatArray:
    """Scale rows and columns of each table in turn until their sums are right."""
    tiny = np.finfo(float).tiny
    result, left = start, np.arange(len(start))
    fitted, a, b = start.copy("K"), rows, columns
    for _ in range(_FITTING_ROUNDS):
        fitted *= (a / np.maximum(fitted.sum(-1), tiny))[..., :, None]
        fitted *= (b / np.maximum(fitted.sum(-2), tiny))[..., None, :]
        open_ = np.abs(fitted.sum(-1) - a).max(-1) > _FITTING_TOLERANCE * totals[left]
        _put(result, left, fitted, ~open_)
        if not open_.any():
            return result
        left = left[open_]
        fitted, a, b = _picked(fitted, open_), _picked(a, open_), _picked(b, open_)
    _put(result, left, fitted, np.ones(left.size, bool))
    return result


def _picked(stack: FloatArray, chosen: npt.NDArray[np.bool_]) -> FloatArray:
    """Return some tables of a stack, in its memory order."""
    if chosen.all():
        return stack
    if stack.strides[0] == stack.itemsize:
        return np.moveaxis(np.compress(chosen, np.moveaxis(stack, 0, -1), axis=-1), -1, 0)
    return stack[chosen]


def _put(result: FloatArray, places: IntArray, stack: FloatArray, done: npt.NDArray[np.bool_]) -> None:
    """Write the finished tables of a stack to their places."""
    if done.all() and places.size == len(result):
        result[...] = stack
    elif done.any():
        result[places[done]] = stack[done]


__all__ = ["fit_margins", "fit_margins_linearly", "shrink_to_independence", "simplex_projection"]
