"""Calibration of latent loadings: move them until the decoded rows have the two-way tables that were measured.

The model, for a row with latent factors u ~ N(0, I_r): column utilities z = A u + o, one Gumbel variable added to each,
and attribute i takes the value whose utility is largest. Given u the attributes are independent with probabilities
q_i = softmax(z_i), so every two-way table of the decoded rows is E[q_i q_j'], smooth in A and o, and least squares
against the measured tables has a gradient that costs four matrix products. The expectation is taken over draws of u
that are renewed at every step; averaged Adam does the rest. The draws come from a fixed seed: fitting is
deterministic. Of an attribute with two values only the difference of the utilities is fitted (the other one is 0): the
softmax is then a logistic function.

Privacy: post-processing of released statistics throughout.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg

from dpsql.numerics.arrays import FloatArray, IntArray
from dpsql.numerics.products import multiplies
from dpsql.running import progress
from dpsql.running.parallel import Workers

Float32 = npt.NDArray[np.float32]
IndexArray = npt.NDArray[np.intp]

_SEED = 20190208
_MOMENTUM, _SQUARES = 0.9, 0.98
_HALVES = 2


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to calibrate.

    Parameters
    ----------
    steps : int
        Gradient steps, >= 0.
    draws : int
        Latent draws of a step, a multiple of 4.
    rate : float
        Step size of a loading, in units of the Gumbel noise.
    early : int
        Latent draws of a step in the first half of the steps, a multiple of 4; 0 for as many as later.
    """

    steps: int
    draws: int
    rate: float
    early: int = 0


def block_starts(sizes: Sequence[int]) -> IndexArray:
    """Return the position of each attribute's first column."""
    return np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.intp)


@dataclass(frozen=True)
class FreeColumns:
    """The columns whose utilities are free: one of an attribute of two values, all of an attribute of three or more.

    Of two values only the difference of their utilities matters; that of the first is 0. Free columns are ordered:
    attributes of two values first, as one block without loops, then the others.

    Parameters
    ----------
    columns : ndarray of int, shape (F,)
        Position of each free column among all D columns.
    firsts : ndarray of int, shape (m,)
        Position of each attribute's first free column; -1 for an attribute of one value.
    skipped : ndarray of int, shape (m,)
        Number of the attribute's codes that come before its first free column, 0 or 1.
    binary : int
        Number of attributes of two values.
    starts, counts : ndarray of int
        First free column and number of columns of the attributes of three values or more.
    """

    columns: IndexArray
    firsts: IndexArray
    skipped: IndexArray
    binary: int
    starts: IndexArray
    counts: IndexArray

    @classmethod
    def of(cls, sizes: Sequence[int]) -> FreeColumns:
        """Lay out attributes of these sizes."""
        counts, all_starts = np.asarray(sizes, np.intp), block_starts(sizes)
        two, more = np.flatnonzero(counts == 2), np.flatnonzero(counts > 2)
        parts = [all_starts[two] + 1, *(np.arange(all_starts[i], all_starts[i] + counts[i]) for i in more)]
        starts = two.size + block_starts(counts[more].tolist()) if more.size else np.zeros(0, np.intp)
        firsts = np.full(counts.size, -1, np.intp)
        firsts[two], firsts[more] = np.arange(two.size), starts
        return cls(np.concatenate(parts), firsts, (counts == 2).astype(np.intp), two.size, starts, counts[more])

    def choice(self, utilities: Float32) -> Float32:
        """Return probabilities of the free columns, in place: logistic for two values, softmax for more."""
        two = utilities[: self.binary]
        np.negative(two, out=two)
        np.minimum(two, np.float32(80.0), out=two)
        np.exp(two, out=two)
        two += np.float32(1.0)
        np.reciprocal(two, out=two)
        choice_probabilities(utilities, self.starts, self.counts)
        return utilities

    def utility_gradient(self, pull: Float32, choice: Float32) -> Float32:
        """Turn a gradient in the probabilities into one in the utilities, in place."""
        pull *= choice
        two = slice(0, self.binary)
        pull[two] -= pull[two] * choice[two]
        for start, count in zip(self.starts, self.counts, strict=True):
            block = slice(start, start + count)
            pull[block] -= choice[block] * pull[block].sum(axis=0)
        return pull

    def scatter(self, matrix: npt.NDArray[Any], pairs: IntArray, stack: npt.NDArray[Any]) -> None:
        """Write tables of one shape (pairs (N, 2), stack (N, c_i, c_j)) into a symmetric matrix (F, F)."""
        skip_i, skip_j = (int(self.skipped[pairs[0, side]]) for side in (0, 1))
        cells = stack[:, skip_i:, skip_j:]
        rows = (self.firsts[pairs[:, 0]][:, None] + np.arange(cells.shape[1]))[:, :, None]
        columns = (self.firsts[pairs[:, 1]][:, None] + np.arange(cells.shape[2]))[:, None, :]
        matrix[rows, columns] = cells
        matrix[columns, rows] = cells


@dataclass(frozen=True)
class Targets:
    """What the decoded rows are to have, in free columns.

    Parameters
    ----------
    tables : ndarray, shape (F, F)
        Share of rows with both; symmetric. May be noisy and negative.
    weights : ndarray, shape (F, F)
        Of the squared errors: 0 where nothing is known.
    shares : ndarray, shape (F,)
        One-way shares.
    """

    tables: Float32
    weights: Float32
    shares: Float32


def targets(
    free: FreeColumns, one_way: Sequence[FloatArray], stacks: Iterable[tuple[IntArray, FloatArray, FloatArray]]
) -> Targets:
    """Lay measured tables out as one matrix.

    Parameters
    ----------
    free : FreeColumns
    one_way : sequence of ndarray
        Shares of each attribute's codes.
    stacks : iterable of (pairs, tables, deviations)
        By shape: int (N, 2), float (N, c_i, c_j), float (N,): pairs i < j of attributes, their shares, and the standard
        deviation of the noise of one cell, > 0.

    Returns
    -------
    Targets
        A table counts by its precision, relative to the most precise one. The only free cell of a pair of binary
        attributes stands for four with the same error.
    """
    size = free.columns.size
    tables, weights = np.zeros((size, size), np.float32), np.zeros((size, size), np.float32)
    for pairs, stack, deviations in stacks:
        if min(stack.shape[1:]) < 2 or not len(pairs):
            continue
        free.scatter(tables, pairs, stack)
        # A free column stands for the one that was left out as well: its cells count for both.
        stands = float((1 + free.skipped[pairs[0, 0]]) * (1 + free.skipped[pairs[0, 1]]))
        precise = stands / np.square(np.asarray(deviations, float))
        free.scatter(weights, pairs, np.broadcast_to(precise[:, None, None], stack.shape))
    weights /= np.float32(max(float(weights.max(initial=0.0)), 1e-30))
    return Targets(tables, weights, np.concatenate([np.zeros(0), *one_way])[free.columns].astype(np.float32))


@multiplies
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


def choice_probabilities(utilities: Float32, starts: IndexArray, sizes: IndexArray) -> Float32:
    """Return the softmax of each attribute's block, in place.

    Parameters
    ----------
    utilities : ndarray, shape (D, b)
        One row a column of the one-hot table, one column a latent draw. Overwritten; rows of no attribute are left.
    starts, sizes : ndarray of int, shape (m,)
        First column and number of columns of each attribute.

    Returns
    -------
    ndarray, shape (D, b)
        Non-negative; each attribute's block sums to 1.
    """
    for start, size in zip(starts, sizes, strict=True):
        block = utilities[start : start + size]
        block -= block.max(axis=0)
        np.exp(block, out=block)
        block /= block.sum(axis=0)
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


class _Half:
    """One half of the draws of every step, with a generator and buffers of its own."""

    def __init__(self, rng: np.random.Generator, free: FreeColumns, measured: Targets) -> None:
        self._rng, self._free, self._measured = rng, free, measured
        self._tables = np.empty_like(measured.tables)

    @multiplies
    def gradient(self, loadings: Float32, offsets: Float32, size: int) -> tuple[Float32, Float32]:
        """Return the gradient in loadings and offsets, over new draws."""
        draws = even_normals(loadings.shape[1], size, self._rng)
        utilities = loadings @ draws
        utilities += offsets[:, None]
        choice = self._free.choice(utilities)
        np.matmul(choice, choice.T, out=self._tables)
        pull = utility_pull(self._tables, choice, self._measured, self._free)
        return pull @ draws.T, pull.sum(1)


@multiplies
def utility_pull(tables: Float32, choice: Float32, measured: Targets, free: FreeColumns) -> Float32:
    """Return the gradient of half the squared error of all two-way tables and one-way tables in the utilities.

    Parameters
    ----------
    tables : ndarray, shape (F, F)
        Their sum over the draws, choice @ choice.T. (Tables from other draws would make the gradient unbiased, but with
        far more noise: these ones share theirs with it.) Overwritten.
    choice : ndarray, shape (F, b)
        Probabilities given the draws.
    measured : Targets
    free : FreeColumns

    Returns
    -------
    ndarray, shape (F, b)
        Not divided by the number of draws.
    """
    tables *= np.float32(1.0 / choice.shape[1])
    tables -= measured.tables
    tables *= measured.weights
    pull: Float32 = np.matmul(tables, choice)
    pull += (choice.mean(1, dtype=np.float32) - measured.shares)[:, None]
    return free.utility_gradient(pull, choice)


@multiplies
def calibrate(
    loadings: Float32, offsets: Float32, free: FreeColumns, measured: Targets, schedule: Schedule
) -> tuple[Float32, Float32]:
    """Return loadings and offsets whose decoded two-way tables are nearest (least squares) to the given ones.

    Parameters
    ----------
    loadings : ndarray, shape (F, r)
    offsets : ndarray, shape (F,)
        The start.
    free : FreeColumns
    measured : Targets
    schedule : Schedule

    Returns
    -------
    loadings, offsets
        Arrays as given, and the given ones where the descent leaves the finite numbers. Deterministic: the two halves of
        the draws, each on its own thread, have generators of their own, and their gradients are added in a fixed order.
    """
    if not schedule.steps or not measured.weights.any():
        return loadings, offsets
    # Halves with generators of their own: what comes out does not depend on the number of threads.
    seeds = np.random.SeedSequence(_SEED).spawn(_HALVES)
    halves = [_Half(np.random.default_rng(seed), free, measured) for seed in seeds]
    moving, offset = _Adam(loadings), _Adam(offsets)
    with Workers(_HALVES) as workers:
        for step in range(schedule.steps):
            rate, weight = _pace(step, schedule)
            draws = schedule.early if schedule.early and 2 * step < schedule.steps else schedule.draws
            gradient = partial(_Half.gradient, loadings=moving.value, offsets=offset.value, size=draws // _HALVES)
            gradients = workers.map(gradient, halves)
            moving.move(gradients[0][0] + gradients[1][0], rate, weight)
            offset.move(gradients[0][1] + gradients[1][1], rate, weight)
            progress.advance((step + 1) / schedule.steps)
    # A descent that left the finite numbers is worse than none.
    finite = np.isfinite(moving.mean).all() and np.isfinite(offset.mean).all()
    return (moving.mean, offset.mean) if finite else (loadings, offsets)


def _pace(step: int, schedule: Schedule) -> tuple[float, float]:
    """Learning rate and averaging weight of a step: constant, then falling; averaged over the last third."""
    done = (step + 1) / schedule.steps
    rate = schedule.rate * min(1.0, 2.0 * (1.0 - done) + 0.05)
    return rate, 1.0 if done > 0.67 or step == schedule.steps - 1 else 0.0
