"""Nearest correlation matrix in the Frobenius norm, and a positive floor under its eigenvalues.

Latent correlations found pair by pair rarely form a correlation matrix. The nearest one is the projection on the
intersection of the positive semidefinite cone with the matrices of unit diagonal. Its dual has one unknown a row:

    minimise  theta(y) = 1/2 ||(G + Diag y)_+||_F^2 - sum(y),   gradient  diag((G + Diag y)_+) - 1,

and the answer is (G + Diag y)_+. Newton's method on the (semismooth) gradient, with conjugate gradients inside,
converges quadratically: a handful of eigendecompositions, where alternating projections need hundreds. Large problems
begin in single precision and end in double, so the answer is as exact as without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg

from dpsql.errors import ArgumentError
from dpsql.numerics.arrays import FloatArray
from dpsql.numerics.products import multiplies
from dpsql.running.parallel import Workers

_NEWTON_STEPS = 200
_CG_STEPS = 200
_ARMIJO = 1e-4

_LARGE = 300
"""Rows from which a decomposition is worth a worker thread (an interrupt gets through) and a start in single precision."""

_SINGLE = 1e-5
"""Error of the diagonal that single precision is good for."""

Run = Callable[..., Any]
"""Calls its first argument with the others, on another thread perhaps."""


@dataclass(frozen=True)
class _Spectrum:
    """G + Diag y, decomposed: eigenvalues ascending, and what the dual needs of them."""

    values: FloatArray
    vectors: FloatArray
    objective: float
    gradient: FloatArray


def _checked(matrix: npt.ArrayLike) -> FloatArray:
    values = np.array(matrix, dtype=float)
    if values.ndim != 2 or values.shape[0] != values.shape[1] or values.shape[0] == 0:
        raise ArgumentError("matrix", values.shape, "a square matrix with at least one row")
    if not np.isfinite(values).all():
        raise ArgumentError("matrix", "NaN or infinite entries", "finite entries; replace the others first, by 0 say")
    symmetric: FloatArray = 0.5 * (values + values.T)
    return symmetric


@multiplies
def _spectrum(matrix: FloatArray, y: FloatArray) -> _Spectrum:
    """Decompose in the matrix's own precision."""
    shifted = matrix.copy()
    shifted[np.diag_indices_from(shifted)] += y.astype(matrix.dtype)
    values, vectors = linalg.eigh(shifted, driver="evd", check_finite=False, overwrite_a=True)
    positive = np.maximum(values, 0.0).astype(float)
    gradient = np.square(vectors) @ positive.astype(matrix.dtype) - 1.0
    return _Spectrum(values, vectors, 0.5 * float(positive @ positive) - float(y.sum()), gradient.astype(float))


@multiplies
def _hessian(spectrum: _Spectrum) -> tuple[Callable[[FloatArray], FloatArray], FloatArray]:
    """Return the product with an element of the generalised Hessian, and its diagonal.

    V h = diag(P (Omega o (P' Diag(h) P)) P'), Omega_ij = (l_i+ - l_j+) / (l_i - l_j). Omega is 1 where both eigenvalues
    are positive and 0 where none is, so only the smaller of the two groups is multiplied out.
    """
    # A direction is needed to a few digits: single precision does for the large ones, in half the time.
    lower = np.float32 if spectrum.values.size >= _LARGE else float
    values, vectors = spectrum.values.astype(lower), spectrum.vectors.astype(lower)
    split = int(np.searchsorted(values, 0.0, side="right"))
    negative, positive = vectors[:, :split], vectors[:, split:]
    ratio = values[split:, None] / (values[split:, None] - values[None, :split])
    few_positive = positive.shape[1] <= negative.shape[1]
    lead = positive if few_positive else negative
    mixed = ratio if few_positive else 1.0 - ratio.T
    rest = negative if few_positive else positive

    @multiplies
    def group(h: FloatArray) -> FloatArray:
        """Sum up the part in which at least one eigenvalue belongs to the leading group, Omega being 1 in it."""
        scaled = h.astype(lower)[:, None] * lead
        inner = lead.T @ scaled
        cross = mixed * (scaled.T @ rest)
        total: FloatArray = np.einsum("ij,ij->i", lead @ inner + 2.0 * (rest @ cross.T), lead)
        return total.astype(float)

    square_lead, square_other = lead * lead, rest * rest
    diagonal = np.square(square_lead.sum(1, dtype=float))
    diagonal = diagonal + 2.0 * np.einsum("ij,ij->i", square_lead @ mixed, square_other).astype(float)
    if few_positive:
        return group, diagonal
    # Omega = 1 - (the same with the signs of the eigenvalues exchanged); with Omega = 1 the product is h itself.
    return lambda h: h - group(h), 1.0 - diagonal


@multiplies
def _conjugate_gradients(
    product: Callable[[FloatArray], FloatArray], diagonal: FloatArray, right: FloatArray, tolerance: float
) -> FloatArray:
    """Solve V d = right approximately, preconditioned by the diagonal of V."""
    scale = 1.0 / np.maximum(diagonal, 1e-6)
    solution = np.zeros_like(right)
    residual = right.copy()
    direction = scale * residual
    size = float(residual @ direction)
    goal = tolerance * float(np.linalg.norm(right))
    for _ in range(_CG_STEPS):
        image = product(direction)
        curvature = float(direction @ image)
        # Without curvature along a direction its step would have no end.
        if curvature <= 0.0:
            break
        solution += (size / curvature) * direction
        residual -= (size / curvature) * image
        if float(np.linalg.norm(residual)) <= goal:
            break
        scaled = scale * residual
        following = float(residual @ scaled)
        direction = scaled + (following / size) * direction
        size = following
    # Nothing moved: the gradient itself is a direction that leads downwards.
    return solution if solution.any() else scale * right


@multiplies
def _newton(matrix: FloatArray, y: FloatArray, tolerance: float, run: Run) -> tuple[FloatArray, _Spectrum]:
    """Minimise the dual; stop when the diagonal is 1 to `tolerance` or rounding forbids progress."""
    now = run(_spectrum, matrix, y)
    rounding = 50.0 * float(np.finfo(matrix.dtype).eps)
    for _ in range(_NEWTON_STEPS):
        size = float(np.linalg.norm(now.gradient))
        if size <= tolerance:
            break
        step = run(_direction, now, size)
        slope = float(now.gradient @ step)
        if slope >= 0.0:
            step, slope = -now.gradient, -size * size
        length = 1.0
        following = run(_spectrum, matrix, y + step)
        slack = rounding * abs(now.objective)  # below it the objective is rounding
        # Not `>`: an objective that is no number is no progress either.
        while not following.objective <= now.objective + _ARMIJO * length * slope + slack and length > 1e-8:
            length *= 0.5
            following = run(_spectrum, matrix, y + length * step)
        if length <= 1e-8:
            break
        y, now = y + length * step, following
        if matrix.dtype == np.float32 and np.linalg.norm(now.gradient) > 0.5 * size:
            break
    return y, now


def _direction(now: _Spectrum, size: float) -> FloatArray:
    """Return Newton's direction, by conjugate gradients."""
    product, diagonal = _hessian(now)
    regular = min(1e-3, 0.1 * size) * 1e-3
    return _conjugate_gradients(lambda h: product(h) + regular * h, diagonal + regular, -now.gradient, min(0.05, size))


def _solved(matrix: FloatArray, tolerance: float, run: Run) -> _Spectrum:
    """Newton's method, begun in single precision where an eigendecomposition takes long."""
    y = 1.0 - np.diag(matrix)
    if len(matrix) >= _LARGE:
        y, _ = _newton(matrix.astype(np.float32), y, _SINGLE * len(matrix) ** 0.5, run)
    return _newton(matrix, y, tolerance, run)[1]


@multiplies
def nearest_correlation(matrix: npt.ArrayLike, *, tolerance: float = 1e-10) -> FloatArray:
    """Return the correlation matrix nearest to a symmetric matrix in the Frobenius norm.

    Parameters
    ----------
    matrix : array_like, shape (d, d)
        Finite; its symmetric part is used. The diagonal may be anything.
    tolerance : float
        Norm of (diagonal - 1) at which Newton's method stops.

    Returns
    -------
    ndarray, shape (d, d)
        Symmetric, positive semidefinite up to rounding, unit diagonal. The smallest eigenvalues are usually 0: see
        `lift_spectrum` for a matrix to factor.

    Raises
    ------
    ArgumentError
        If the matrix is not square, is empty, or has entries that are NaN or infinite.

    Notes
    -----
    Privacy: none; post-processing.

    References
    ----------
    Higham (2002), the problem; Qi & Sun (2006), *A Quadratically Convergent Newton Method for Computing the Nearest
    Correlation Matrix*, the algorithm.

    Examples
    --------
    >>> nearest_correlation([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]).round(4)
    array([[1.    , 0.7607, 0.1573],
           [0.7607, 1.    , 0.7607],
           [0.1573, 0.7607, 1.    ]])
    """
    symmetric = _checked(matrix)
    if symmetric.shape[0] == 1:
        return np.ones((1, 1))
    if len(symmetric) < _LARGE:
        result = _solved(symmetric, tolerance, lambda function, *arguments: function(*arguments))
    else:
        with Workers(1) as worker:
            result = _solved(symmetric, tolerance, worker.run)
    # What is nearest has the positive part of the spectrum; a root of it keeps the product semidefinite.
    split = int(np.searchsorted(result.values, 0.0, side="right"))
    root = result.vectors[:, split:] * np.sqrt(result.values[split:])
    return _unit_diagonal(root @ root.T)


def _unit_diagonal(matrix: FloatArray) -> FloatArray:
    """Rescale rows and columns to a diagonal of exactly 1."""
    scale = 1.0 / np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    scaled = matrix * scale[:, None] * scale[None, :]
    scaled[np.diag_indices_from(scaled)] = 1.0
    return scaled


@multiplies
def lift_spectrum(matrix: npt.ArrayLike, *, floor: float = 1e-8) -> FloatArray:
    """Return the matrix with eigenvalues of at least about `floor` and a diagonal of exactly 1.

    Parameters
    ----------
    matrix : array_like, shape (d, d)
        A correlation matrix, possibly singular.
    floor : float
        In (0, 1]. Smaller eigenvalues are raised to it, then rows and columns are rescaled.

    Returns
    -------
    ndarray, shape (d, d)
        Positive definite; `numpy.linalg.cholesky` accepts it.

    Raises
    ------
    ArgumentError
        If the matrix is not a finite square one or the floor lies outside (0, 1].

    Notes
    -----
    Privacy: none; post-processing.

    Examples
    --------
    >>> lift_spectrum([[1.0, 1.0], [1.0, 1.0]], floor=0.1).round(4)
    array([[1.    , 0.9048],
           [0.9048, 1.    ]])
    """
    if not 0.0 < floor <= 1.0:
        raise ArgumentError("floor", floor, "a number in (0, 1], such as 1e-8")
    symmetric = _checked(matrix)
    with Workers(1) as worker:
        values, vectors = worker.run(partial(linalg.eigh, symmetric, driver="evd", check_finite=False))
        root = vectors * np.sqrt(np.maximum(values, floor))
    return _unit_diagonal(root @ root.T)
