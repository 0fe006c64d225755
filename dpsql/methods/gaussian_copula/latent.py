"""From consistent tables to latent normals: correlations, common factors, loadings and offsets, published or calibrated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import linalg, special

from dpsql.methods.gaussian_copula.fit import Float32, FreeColumns, Schedule, calibrate, targets
from dpsql.numerics.arrays import FloatArray, IntArray
from dpsql.numerics.bivariate_normal import latent_correlation
from dpsql.numerics.nearest_correlation import lift_spectrum, nearest_correlation
from dpsql.numerics.products import multiplies
from dpsql.running import progress
from dpsql.running.parallel import Workers
from dpsql.tables.consistency import ConsistentTables

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


def _rank(values: FloatArray) -> int:
    """Return the number of common factors that eigenvalues of a correlation matrix speak for."""
    return min(max(int((values > _COMMON).sum()), _FEWEST_FACTORS), _MOST_FACTORS, values.size)


def schedule_for(iterations: int | str, sizes: Sequence[int]) -> Schedule:
    """Return how to calibrate: small tables can afford more steps for the same time, binary attributes need fewer."""
    binary = sum(size == 2 for size in sizes)
    columns = sum(size for size in sizes if size > 2) + binary
    fewest = _SHORTEST if 2 * binary > columns else _SHORTEST + 50
    steps = min(max(_WORK // max(columns, 1), fewest), _LONGEST) if isinstance(iterations, str) else iterations
    rate = _BINARY_RATE if 2 * binary > columns else _RATE
    return Schedule(steps, _MANY_DRAWS if columns <= _MANY_UP_TO else _DRAWS, rate, early=_DRAWS)


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
        correlations = latent_correlation(a[:, skip_i:, None], b[:, None, skip_j:], cells)
        free.scatter(matrix, pairs, np.pad(correlations, ((0, 0), (skip_i, 0), (skip_j, 0))))
    return matrix


def published(tables: ConsistentTables) -> tuple[Float32, FloatArray]:
    """Root of the latent correlation matrix with structural zeros, and the thresholds, as published.

    The two columns of a binary attribute have one normal, with opposite signs: what the structural zero, correlation
    -1, asks for, and the only structural zeros that normals can have.
    """
    free = FreeColumns.of(tables.sizes)
    shares = np.clip(np.concatenate(tables.one_way), 0.0, 1.0)
    with progress.stage("correlations"):
        correlations = _pair_correlations(tables, free)
        # A row has one value of an attribute: its columns exclude each other, as far as a normal can say so.
        for start, count in zip(free.starts, free.counts, strict=True):
            block = slice(start, start + count)
            own = shares[free.columns[block]]
            present = (own > 0.0) & (own < 1.0)
            correlations[block, block] = -1.0 * np.outer(present, present)
        correlations[np.diag_indices_from(correlations)] = 1.0
    if not free.columns.size:
        return np.eye(shares.size, dtype=np.float32), -special.ndtri(shares)
    with progress.stage("nearest correlation"), Workers(1) as worker:
        correlation = lift_spectrum(nearest_correlation(correlations, tolerance=_TOLERANCE), floor=_FLOOR)
        root = worker.run(np.linalg.cholesky, correlation).astype(np.float32)
    # An attribute of a single value takes part in no correlation: it gets a normal of its own.
    alone = np.flatnonzero(np.repeat(np.asarray(tables.sizes) == 1, tables.sizes))
    every = np.zeros((shares.size, len(root) + alone.size), np.float32)
    every[free.columns, : len(root)] = root
    # The first column of a binary attribute is the second one turned round.
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


@multiplies
def _scale(explained: FloatArray, shares: FloatArray, free: FreeColumns) -> FloatArray:
    """Return the scale of each column's utility that makes its unexplained part as large as the noise of its attribute."""
    typical, weight = explained.copy(), shares * (1.0 - shares)
    for start, count in zip(free.starts, free.counts, strict=True):
        block = slice(start, start + count)
        typical[block] = (weight[block] @ explained[block]) / weight[block].sum()
    noise = np.where(np.arange(shares.size) < free.binary, _LOGISTIC_SCALE, _GUMBEL_DEVIATION)
    return np.minimum(noise / np.sqrt(np.maximum(1.0 - typical, 1e-9)), _LARGEST_SCALE)


def calibrated(
    tables: ConsistentTables, free: FreeColumns, shares: FloatArray, schedule: Schedule
) -> tuple[Float32, Float32]:
    """Return loadings and offsets of the utilities of the free columns."""
    if not free.columns.size:
        return np.zeros((0, 0), np.float32), np.zeros(0, np.float32)
    latent = _latent(tables, free)
    # Without steps there is no fit: loadings are those of the latent correlations as they are.
    if schedule.steps:
        root, explained = _factors(latent, _rank(latent.values))
        scale = _scale(explained, shares, free)
    else:
        root, scale = _plain(latent, shares, free)
    loadings, offsets = (scale[:, None] * root).astype(np.float32), (scale * special.ndtri(shares)).astype(np.float32)
    with progress.stage("calibration"):
        return calibrate(loadings, offsets, free, targets(free, tables.one_way, _measured(tables)), schedule)


@multiplies
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
