"""Calibration of latent loadings: move them until the decoded rows have the two-way tables that were measured.

The model, for a row with latent factors u ~ N(0, I_r): column utilities z = A u + o, one Gumbel variable added to each,
and attribute i takes the value whose utility is largest. Given u the attributes are independent with probabilities
q_i = softmax(z_i), so every two-way table of the decoded rows is E[q_i q_j'], smooth in A and o, and least squares
against the measured tables has a gradient that costs four matrix products. The expectation is taken over draws of u
that are renewed at every step; averaged Adam does the rest. The draws come from a fixed seed: fitting is
deterministic.

Privacy: post-processing of released statistics throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg

Float32 = npt.NDArray[np.float32]
FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]

_SEED = 20190208
_MOMENTUM, _SQUARES = 0.9, 0.98


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to calibrate.

    Parameters
    ----------
    steps : int
        Gradient steps, >= 0.
    draws : int
        Latent draws a step, even.
    rate : float
        Step size of a loading, in units of the Gumbel noise.
    """

    steps: int
    draws: int
    rate: float


def block_starts(sizes: Sequence[int]) -> IndexArray:
    """Return the position of each attribute's first column."""
    return np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.intp)


def even_normals(rank: int, size: int, rng: np.random.Generator) -> Float32:
    """Return standard normal vectors in antithetic pairs, with mean 0 and covariance I as exactly as float32 allows.

    Parameters
    ----------
    rank : int
        Length of a vector, >= 0.
    size : int
        Number of vectors; an odd one is rounded up to even. Fewer than 4 x rank are left unscaled (antithetic only).
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of float32, shape (rank, size)

    Notes
    -----
    Privacy: none; independent of any data.
    """
    half = (size + 1) // 2
    draws = rng.standard_normal((rank, half), dtype=np.float32)
    if 0 < 2 * rank <= half:
        root = linalg.cholesky((draws @ draws.T / np.float32(half)).astype(np.float64), lower=True)
        draws = linalg.solve_triangular(root, np.eye(rank), lower=True).astype(np.float32) @ draws
    return np.concatenate((draws, -draws), axis=1)


def _spread_blocks(values: Float32, starts: IndexArray, sizes: IndexArray, reduce: Callable[..., Any]) -> Float32:
    """Reduce each attribute's block over its rows and repeat the result over the block.

    A loop of contiguous reductions: 20 times as fast as `reduceat` along the first axis.
    """
    spread = np.empty_like(values)
    for start, size in zip(starts, sizes, strict=True):
        spread[start : start + size] = reduce(values[start : start + size], axis=0)
    return spread


def choice_probabilities(utilities: Float32, starts: IndexArray, sizes: IndexArray) -> Float32:
    """Return the softmax of each attribute's block, in place.

    Parameters
    ----------
    utilities : ndarray, shape (D, b)
        One row a column of the one-hot table, one column a latent draw. Overwritten.
    starts, sizes : ndarray of int, shape (m,)
        First column and number of columns of each attribute.

    Returns
    -------
    ndarray, shape (D, b)
        Non-negative; each attribute's block sums to 1.
    """
    utilities -= _spread_blocks(utilities, starts, sizes, np.max)
    np.exp(utilities, out=utilities)
    utilities /= _spread_blocks(utilities, starts, sizes, np.sum)
    return utilities


class _Adam:
    """Adam on one array, with the mean of its later iterates."""

    def __init__(self, start: Float32) -> None:
        self.value = start.copy()
        self.mean = np.zeros_like(start)
        self._weight = 0.0
        self._first = np.zeros_like(start)
        self._second = np.zeros_like(start)
        self._step = 0

    def move(self, gradient: Float32, rate: float, weight: float) -> None:
        self._step += 1
        self._first += np.float32(1.0 - _MOMENTUM) * (gradient - self._first)
        self._second += np.float32(1.0 - _SQUARES) * (gradient * gradient - self._second)
        size = rate / (1.0 - _MOMENTUM**self._step)
        root = np.sqrt(self._second / np.float32(1.0 - _SQUARES**self._step)) + np.float32(1e-9)
        self.value -= np.float32(size) * self._first / root
        if weight > 0.0:
            self._weight += weight
            self.mean += np.float32(weight / self._weight) * (self.value - self.mean)


def calibrate(
    loadings: Float32,
    offsets: Float32,
    sizes: Sequence[int],
    one_way: Sequence[FloatArray],
    two_way: Mapping[tuple[int, ...], FloatArray],
    deviation: Mapping[tuple[int, ...], float],
    schedule: Schedule,
) -> tuple[Float32, Float32]:
    """Return loadings and offsets whose decoded two-way tables are nearest (least squares) to the given ones.

    Parameters
    ----------
    loadings : ndarray, shape (D, r)
    offsets : ndarray, shape (D,)
        The start.
    sizes : sequence of int
        Number of codes of each attribute; they sum to D.
    one_way : sequence of ndarray
        Shares of each attribute's codes.
    two_way : mapping from (i, j) to ndarray
        Shares; may be noisy and negative. Pairs that are missing stay free.
    deviation : mapping from (i, j) to float
        Standard deviation of the noise of one cell, > 0; the squared errors of a table count by its precision.
    schedule : Schedule

    Returns
    -------
    loadings, offsets
        Arrays as given. Deterministic.
    """
    if not schedule.steps or not two_way:
        return loadings, offsets
    starts, counts = block_starts(sizes), np.asarray(sizes, np.intp)
    target, precision = _target(starts, counts, two_way, deviation)
    shares = np.concatenate(list(one_way)).astype(np.float32)
    rng = np.random.default_rng(_SEED)
    rank = loadings.shape[1]
    moving, offset = _Adam(loadings), _Adam(offsets)
    for step in range(schedule.steps):
        draws = even_normals(rank, schedule.draws, rng)
        choice = choice_probabilities(moving.value @ draws + offset.value[:, None], starts, counts)
        gradient = _utility_gradient(choice, target, precision, shares, starts, counts)
        rate, weight = _pace(step, schedule)
        moving.move(gradient @ draws.T, rate, weight)
        offset.move(gradient.sum(1), rate, weight)
    return moving.mean, offset.mean


def _pace(step: int, schedule: Schedule) -> tuple[float, float]:
    """Learning rate and averaging weight of a step: constant, then falling; averaged over the last third."""
    done = (step + 1) / schedule.steps
    rate = schedule.rate * min(1.0, 2.0 * (1.0 - done) + 0.05)
    return rate, 1.0 if done > 0.67 or step == schedule.steps - 1 else 0.0


def _target(
    starts: IndexArray,
    counts: IndexArray,
    two_way: Mapping[tuple[int, ...], FloatArray],
    deviation: Mapping[tuple[int, ...], float],
) -> tuple[Float32, Float32]:
    """Lay the tables out as one symmetric matrix, with relative precisions: at most 1, and 0 where nothing is known."""
    columns = int(counts.sum())
    target = np.zeros((columns, columns), np.float32)
    precision = np.zeros((columns, columns), np.float32)
    least = min(deviation[pair] for pair in two_way)
    for (i, j), table in two_way.items():
        rows, others = slice(starts[i], starts[i] + counts[i]), slice(starts[j], starts[j] + counts[j])
        target[rows, others], target[others, rows] = table, table.T
        precision[rows, others] = precision[others, rows] = (least / deviation[(i, j)]) ** 2
    return target, precision


def _utility_gradient(
    choice: Float32,
    target: Float32,
    precision: Float32,
    shares: Float32,
    starts: IndexArray,
    counts: IndexArray,
) -> Float32:
    """Gradient of half the squared error of all two-way tables and one-way tables in the utilities."""
    miss = choice @ choice.T
    miss /= np.float32(choice.shape[1])
    miss -= target
    miss *= precision
    pull: Float32 = np.matmul(miss, choice, dtype=np.float32)
    pull += (choice.mean(1, dtype=np.float32) - shares)[:, None]
    pull *= choice
    pull -= choice * _spread_blocks(pull, starts, counts, np.sum)
    return pull
