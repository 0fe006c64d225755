"""Noisy tables as what a mixture is fitted to: shares of one- and two-way tables, each cell with its precision.

The tables are taken as they are, negative cells and contradictions included: the fit weighs them against each other.

Privacy: post-processing of released statistics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from dpsql.errors import ArgumentError
from dpsql.numerics.arrays import Clique, FloatArray
from dpsql.numerics.products import multiplies
from dpsql.tables.consistency import noise_variance, simplex_projection
from dpsql.tables.statistics import Statistics

Float32 = npt.NDArray[np.float32]

LARGEST_STRENGTH = 1e4
"""Of n / sigma: beyond it the error of the model itself is larger than the noise, and float32 ends."""

_EMPHASIS, _EMPHASIS_UNIT = 100.0, 25.0
_SMALLEST_VARIANCE = 1e-6
"""Stands for the variance of a table without noise."""


@dataclass(frozen=True)
class Targets:
    """What a mixture is fitted to.

    Parameters
    ----------
    sizes : tuple of int, length m
    rows : float
        Number of rows: public, or the estimate of all tables; at least 0.
    strength : float
        n / sigma of the two-way tables (root mean square of the cells), at most 1e4; 0 where there are none.
    one_way : ndarray, shape (D,)
        Shares of each attribute's codes, from all tables; non-negative, sum 1 over each attribute.
    pairs : ndarray of float32, shape (D, D)
        Y: noisy shares of pairs of codes of different attributes, symmetric; 0 where not measured.
    pair_weights : ndarray of float32, shape (D, D)
        S / max(strength^2, 1); 0 where not measured, and between codes of one attribute.
    singles, single_weights : ndarray of float32, shape (D,)
        y and s / max(strength^2, 1) of the one-way tables that were measured.
    groups : ndarray of float32, shape (G, D)
        C: 1 where a code is in a group of a coarse table, else 0; G = 0 where there is no coarse table.
    coarse, coarse_weights : ndarray of float32, shape (G, G)
        Z: noisy shares of pairs of groups less the product of the groups' shares, symmetric, and `emphasis` times their
        precisions / max(strength^2, 1); 0 where not measured.

    Notes
    -----
    Privacy: post-processing.
    """

    sizes: tuple[int, ...]
    rows: float
    strength: float
    one_way: FloatArray
    pairs: Float32
    pair_weights: Float32
    singles: Float32
    single_weights: Float32
    groups: Float32
    coarse: Float32
    coarse_weights: Float32


def targets(statistics: Statistics) -> Targets:
    """Collect noisy tables of any order as one- and two-way shares with their precisions.

    Parameters
    ----------
    statistics : Statistics
        Larger tables are summed over all pairs of their attributes.

    Returns
    -------
    Targets

    Raises
    ------
    ArgumentError
        If a table's shape contradicts the sizes.

    Notes
    -----
    Privacy: post-processing.
    """
    sizes, variances = tuple(statistics.sizes), _variances(statistics)
    rows = _total(statistics, variances)
    ends = np.cumsum((0, *sizes))
    blocks = [slice(int(start), int(end)) for start, end in zip(ends[:-1], ends[1:], strict=True)]
    columns = int(ends[-1])
    pairs, singles, sums = _Means((columns, columns)), _Means((columns,)), _Means((columns,))
    for clique, table in statistics.tables.items():
        counts, precision = np.asarray(table, float), 1.0 / variances[clique]
        for (i,), summed in _collapsed(counts, clique, 1):
            sums.add((blocks[i],), summed, precision * summed.size / counts.size)
            if len(clique) == 1:
                # A table of one column says something of its own; sums of larger tables follow from the pairs.
                singles.add((blocks[i],), summed, precision)
        for (i, j), summed in _collapsed(counts, clique, 2):
            pairs.add((blocks[i], blocks[j]), summed, precision * summed.size / counts.size)
    pairs = pairs.symmetric()
    scale = max(rows, 1.0)
    measured = pairs.precisions[pairs.precisions > 0.0]
    strength = min(scale * math.sqrt(float(measured.mean())), LARGEST_STRENGTH) if measured.size else 0.0
    one_way = [_one_way(sums.means()[block], sums.precisions[block], scale) for block in blocks]
    return Targets(
        sizes, rows, strength, np.concatenate([np.zeros(0), *one_way]),
        (pairs.means() / scale).astype(np.float32), _relative(pairs.precisions, scale, strength),
        (singles.means() / scale).astype(np.float32), _relative(singles.precisions, scale, strength),
        *_coarse(statistics, np.concatenate([np.zeros(0), *one_way]), scale, strength),
    )


@multiplies
def _coarse(statistics: Statistics, one_way: FloatArray, scale: float, strength: float) -> tuple[Float32, Float32, Float32]:
    """Return the groups of codes, and the noisy covariances of pairs of groups with their weights."""
    coarse, ends = statistics.coarse, np.cumsum((0, *statistics.sizes))
    lengths = {i: table.shape[pair.index(i)] for pair, table in coarse.tables.items() for i in pair}
    rows, start = {}, 0
    for i in sorted(lengths):
        rows[i] = slice(start, start + lengths[i])
        start += lengths[i]
    groups, pairs = np.zeros((start, int(ends[-1])), np.float32), _Means((start, start))
    for i, block in rows.items():
        groups[block.start + np.asarray(coarse.groups[i]), np.arange(ends[i], ends[i + 1])] = 1.0
    for (i, j), table in coarse.tables.items():
        variance = max(noise_variance(coarse.scales[i, j], statistics.mechanism), _SMALLEST_VARIANCE)
        pairs.add((rows[i], rows[j]), np.asarray(table, float), 1.0 / variance)
    pairs, shares = pairs.symmetric(), groups @ one_way
    # Dependence alone is compared: what the columns have of each group is told by the one-way shares.
    covariances = np.where(pairs.precisions > 0.0, pairs.means() / scale - np.outer(shares, shares), 0.0)
    weights = emphasis(scale * np.sqrt(pairs.precisions)).astype(np.float32) * _relative(pairs.precisions, scale, strength)
    return groups, covariances.astype(np.float32), weights


def emphasis(strength: FloatArray) -> FloatArray:
    """Return the weight of coarse tables relative to their precision, from their n / sigma.

    The pull, which is set for the noise of the fine tables, would hold weak trends down. A coarse table has so few cells that
    to fit its noise costs little where that noise is small: the standard deviation of a rank correlation read off a table of three
    by three groups is about 2.7 sigma / n. Where it is a tenth, nothing is emphasised; where a hundredth, a hundredfold.
    The constants were chosen on public tables.

    Examples
    --------
    >>> emphasis(np.array([0.0, 25.0, 250.0, 1e4])).tolist()
    [1.0, 2.0, 100.0, 100.0]
    """
    weights: FloatArray = np.minimum(1.0 + (strength / _EMPHASIS_UNIT) ** 2, _EMPHASIS)
    return weights


class _Means:
    """Means of several estimates of the same counts, weighted by precision."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.sums, self.precisions = np.zeros(shape), np.zeros(shape)

    def add(self, block: tuple[slice, ...], counts: FloatArray, precision: float) -> None:
        self.sums[block] += precision * counts
        self.precisions[block] += precision

    def symmetric(self) -> _Means:
        """Return the same with the lower triangle filled."""
        whole = _Means(self.sums.shape)
        whole.sums, whole.precisions = self.sums + self.sums.T, self.precisions + self.precisions.T
        return whole

    def means(self) -> FloatArray:
        means: FloatArray = self.sums / np.maximum(self.precisions, np.finfo(float).tiny)
        return means


def _relative(precisions: FloatArray, scale: float, strength: float) -> Float32:
    """Return the precisions of shares, relative to the square of the strength."""
    weights: Float32 = (np.minimum(scale**2 * precisions, LARGEST_STRENGTH**2) / max(strength, 1.0) ** 2).astype(np.float32)
    return weights


def _collapsed(counts: FloatArray, clique: Clique, order: int) -> Iterator[tuple[Clique, FloatArray]]:
    """Yield the sums of a table over all its attributes but `order`, for every choice of them."""
    for kept in combinations(range(counts.ndim), order):
        summed = counts.sum(axis=tuple(axis for axis in range(counts.ndim) if axis not in kept))
        yield tuple(clique[axis] for axis in kept), summed


def _one_way(estimate: FloatArray, precisions: FloatArray, rows: float) -> FloatArray:
    """Return one attribute's shares; uniform where nothing was measured."""
    if not precisions.any():
        return np.full(estimate.size, 1.0 / estimate.size)
    shares: FloatArray = simplex_projection(estimate + (rows - estimate.sum()) / estimate.size, rows) / rows
    return shares


def _variances(statistics: Statistics) -> dict[Clique, float]:
    variances = {}
    for clique, table in statistics.tables.items():
        expected = tuple(statistics.sizes[i] for i in clique)
        if np.shape(table) != expected:
            raise ArgumentError(f"tables[{clique}]", np.shape(table), f"an array of shape {expected}")
        variances[clique] = max(noise_variance(statistics.scales[clique], statistics.mechanism), _SMALLEST_VARIANCE)
    return variances


def _total(statistics: Statistics, variances: Mapping[Clique, float]) -> float:
    """Return the public number of rows, or the precision-weighted mean of the tables' sums, at least 0."""
    if statistics.total is not None:
        return float(max(statistics.total, 0))
    precisions = {clique: 1.0 / (variances[clique] * np.size(table)) for clique, table in statistics.tables.items()}
    sums = [precisions[clique] * float(np.sum(table, dtype=float)) for clique, table in statistics.tables.items()]
    return max(math.fsum(sums) / math.fsum(precisions.values()), 0.0) if sums else 0.0
