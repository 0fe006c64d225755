r"""Latent classes from the counts of k-tuples, with pairs of values that do not occur together.

1. Every measured count of one, two or three attributes becomes an estimate of single counts and of pairs, weighted by its
   precision. A pair that was not measured, because one of its values was not kept, stands at 0: it is rare or absent.
2. A mixture of products is fitted to them (`dpsql.methods.mixture.fit`).
3. A pair of values is taken to be impossible where the fitted model has so few rows of it that they are within the noise, while
   independence would give many: P < 0.05 E + 0.35 s and E > s, with E the rows under independence and s the standard error of the
   pair's count. The mixture is fitted again, with those pairs at 0 and at a higher weight.

Privacy: post-processing of released statistics. The numbers of rule 3 were chosen on one simulated table with known structural
zeros, at four budgets; they are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dpsql.methods.mixture.fit import Mixture, pair_matrix
from dpsql.methods.mixture.starts import fit_from_starts, usual_classes, usual_steps
from dpsql.methods.mixture.targets import Targets
from dpsql.numerics.arrays import FloatArray, IntArray
from dpsql.numerics.products import multiplies
from dpsql.running.blas import one_blas_thread
from dpsql.tables.consistency import simplex_projection
from dpsql.tables.tuple_index import TupleIndex

BoolArray = npt.NDArray[np.bool_]

_RESTARTS = 2
_WORK = 4e11  # floating-point operations that a fit may take before it makes do with fewer classes
_LARGEST_STRENGTH = 1e4
_SMALLEST_VARIANCE = 1e-6
_SHARE_OF_INDEPENDENCE, _ERRORS = 0.05, 0.35
_IMPOSSIBLE_WEIGHT = 25.0


@dataclass(frozen=True)
class Level:
    """What was measured of the k-tuples.

    Parameters
    ----------
    attributes : int64 array, shape (N, k)
        Numbers of attributes over all columns, ascending.
    counts : int64 array, shape (N,)
        Noisy.
    scale : float
        Standard deviation of the noise; 0 for none (tests).
    """

    attributes: IntArray
    counts: IntArray
    scale: float


@dataclass(frozen=True)
class Seeded:
    """A fitted model.

    Parameters
    ----------
    mixture : Mixture
    impossible : bool array, shape (D, D)
        Pairs of attributes that no row is to have; symmetric.
    """

    mixture: Mixture
    impossible: BoolArray


@multiplies
def estimated_rows(levels: Sequence[Level], index: TupleIndex) -> float:
    """Return the precision-weighted mean of the sums of all completely measured tables, at least 0."""
    weights, sums = [], []
    for k, level in enumerate(levels, 1):
        first, behind = index.first_tables[k - 1], index.first_tables[k]
        columns = index.columns_of_attributes[level.attributes]
        table = columns[:, 0] if k == 1 else index.tables_of(index.keys(level.attributes)) - first
        cells = np.asarray([end - start for start, end in zip(index.starts[first:behind], index.ends[first:behind], strict=True)])
        measured = np.bincount(table, minlength=behind - first)
        # A table with an unmeasured cell sums to fewer rows than there are.
        complete = measured == cells
        weights.append(complete / (max(level.scale**2, _SMALLEST_VARIANCE) * cells))
        sums.append(np.bincount(table, weights=level.counts, minlength=behind - first))
        if k == 2:
            break
    weight = np.concatenate(weights)
    return max(float(np.concatenate(sums) @ weight / weight.sum()), 0.0)


@dataclass(frozen=True)
class Empty:
    """Columns with empty cells, which tuples do not show.

    Parameters
    ----------
    columns : tuple of int
    deviation : float
        Standard deviation of the number of rows.
    """

    columns: tuple[int, ...] = ()
    deviation: float = 0.0

    def sizes(self, index: TupleIndex) -> tuple[int, ...]:
        """Return the number of codes of every column: an empty cell is the last one."""
        return tuple(size + (i in self.columns) for i, size in enumerate(index.sizes))


_NO_EMPTY = Empty()


def pair_targets(
    levels: Sequence[Level], index: TupleIndex, total: int | None, empty: Empty = _NO_EMPTY
) -> tuple[Targets, FloatArray]:
    """Return what the mixture is fitted to, and the standard errors of the pairs' counts, shape (D, D) (inf: not measured).

    Parameters
    ----------
    levels : sequence of Level
        k = 1, 2, ...; those beyond 3 are not used.
    total : int or None
        Number of rows where it is known.
    empty : Empty
        Its columns get one more code, for the empty cell; its counts are what is missing to the totals.

    Notes
    -----
    A measured triple (a, b, c) counts for the pair (a, b) with the precision that a sum over c's column has; what is missing of
    that sum is taken to be 0, since a triple is not measured only if one of its pairs was below its threshold.
    """
    rows = float(max(total, 0)) if total is not None else estimated_rows(levels, index)
    sizes = np.asarray(index.sizes, dtype=np.int64)
    columns = int(sizes.sum())
    owner = index.columns_of_attributes
    precision_1 = 1.0 / max(levels[0].scale ** 2, _SMALLEST_VARIANCE)
    single = levels[0].counts.astype(float)
    one_way = np.stack([precision_1 * single, np.full(columns, precision_1)])
    values, precisions = np.zeros((columns, columns)), np.zeros((columns, columns))
    complete = ~np.isin(np.arange(sizes.size), empty.columns)
    if len(levels) > 1:
        _add_pairs(levels[1], owner, sizes, complete, values, precisions, one_way)
    if len(levels) > 2:
        _add_triples(levels[2], owner, sizes, complete, values, precisions)
    values, precisions = values + values.T, precisions + precisions.T
    # From here on a column with empty cells has one attribute more.
    if empty.columns:
        one_way, values, precisions = _with_empty(one_way, values, precisions, index, rows, empty)
        sizes = np.asarray(empty.sizes(index), dtype=np.int64)
        single, precision = one_way[0] / one_way[1], one_way[1]
    else:
        precision = np.full(columns, precision_1)
    # Weights are precisions in units of the usual one, so that a step of the fit means the same at any noise.
    scale = max(rows, 1.0)
    measured = precisions[precisions > 0.0]
    strength = min(scale * math.sqrt(float(measured.mean())), _LARGEST_STRENGTH) if measured.size else 0.0
    unit, largest = max(strength, 1.0) ** 2, _LARGEST_STRENGTH**2
    ends = np.cumsum(sizes)
    shares = [_shares(one_way[:, end - size : end], rows) for size, end in zip(sizes, ends, strict=True)]
    targets = Targets(
        sizes=tuple(sizes.tolist()),
        rows=rows,
        strength=strength,
        one_way=np.concatenate(shares),
        pairs=(values / np.maximum(precisions, np.finfo(float).tiny) / scale).astype(np.float32),
        pair_weights=(np.minimum(scale**2 * precisions, largest) / unit).astype(np.float32),
        singles=(single / scale).astype(np.float32),
        single_weights=(np.minimum(scale**2 * precision, largest) / unit).astype(np.float32),
        groups=np.zeros((0, single.size), np.float32),  # no coarse tables
        coarse=np.zeros((0, 0), np.float32),
        coarse_weights=np.zeros((0, 0), np.float32),
    )
    with np.errstate(divide="ignore"):
        return targets, 1.0 / np.sqrt(precisions)


def _with_empty(
    one_way: FloatArray, values: FloatArray, precisions: FloatArray, index: TupleIndex, rows: float, empty: Empty
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return single counts, pairs and precisions with an attribute for the empty cell of each such column.

    Its count is the number of rows without those of the column's values; together with another attribute, that attribute's
    count without those together with the column's values. Variances add up.
    """
    sizes = empty.sizes(index)
    starts = np.cumsum([0, *sizes[:-1]])
    owner = index.columns_of_attributes
    old = starts[owner] + np.arange(owner.size) - index.first_attributes[owner]
    total = sum(sizes)
    single, variance = np.zeros(total), np.zeros(total)
    single[old], variance[old] = one_way[0] / one_way[1], 1.0 / one_way[1]
    pairs, spread = np.zeros((total, total)), np.full((total, total), np.inf)
    known = precisions > 0.0
    place = np.ix_(old, old)
    pairs[place] = np.divide(values, precisions, out=np.zeros_like(values), where=known)
    spread[place] = np.divide(1.0, precisions, out=np.full_like(values, np.inf), where=known)
    # An empty cell is had by the rows that no value of the column accounts for; the noise of all its values adds up.
    for i in empty.columns:
        block = slice(starts[i], starts[i] + sizes[i] - 1)
        none = starts[i] + sizes[i] - 1
        single[none] = rows - single[block].sum()
        variance[none] = empty.deviation**2 + variance[block].sum()
    # A loop of its own: the single counts of all empty cells must stand first.
    for i in empty.columns:
        block, none = slice(starts[i], starts[i] + sizes[i] - 1), starts[i] + sizes[i] - 1
        others = np.ones(total, dtype=np.bool_)
        others[starts[i] : none + 1] = False
        pairs[others, none] = pairs[none, others] = single[others] - pairs[others, block].sum(axis=1)
        spread[others, none] = spread[none, others] = variance[others] + spread[others, block].sum(axis=1)
    precision = 1.0 / spread
    shares = 1.0 / np.maximum(variance, _SMALLEST_VARIANCE)
    return np.stack([shares * single, shares]), np.where(precision > 0.0, precision * pairs, 0.0), precision


def _add_pairs(
    level: Level,
    owner: IntArray,
    sizes: IntArray,
    complete: BoolArray,
    values: FloatArray,
    precisions: FloatArray,
    one_way: FloatArray,
) -> None:
    """Add the measured pairs to the upper triangle, and their sums over columns without empty cells to the single counts."""
    precision = 1.0 / max(level.scale**2, _SMALLEST_VARIANCE)
    a, b = level.attributes.T
    values[a, b] += precision * level.counts
    precisions[np.triu(owner[:, None] != owner[None, :])] += precision
    # A column without empty cells has one value in every row: pairs summed over it measure the other's single counts again.
    for kept, summed in ((a, b), (b, a)):
        share = complete[owner[summed]] * precision / sizes[owner[summed]]
        one_way[0] += np.bincount(kept, weights=share * level.counts, minlength=owner.size)
        seen = np.unique((kept * sizes.size + owner[summed])[complete[owner[summed]]])
        one_way[1] += np.bincount(seen // sizes.size, weights=precision / sizes[seen % sizes.size], minlength=owner.size)


def _add_triples(
    level: Level, owner: IntArray, sizes: IntArray, complete: BoolArray, values: FloatArray, precisions: FloatArray
) -> None:
    """Add the sums of measured triples over one of their columns, without empty cells, to the upper triangle."""
    precision = 1.0 / max(level.scale**2, _SMALLEST_VARIANCE)
    for i, j, summed in ((0, 1, 2), (0, 2, 1), (1, 2, 0)):
        usable = complete[owner[level.attributes[:, summed]]]
        pair = (level.attributes[:, i] * owner.size + level.attributes[:, j])[usable]
        column = owner[level.attributes[usable, summed]]
        counts = precision / sizes[column] * level.counts[usable]
        values += np.bincount(pair, weights=counts, minlength=values.size).reshape(values.shape)
        seen = np.unique(pair * sizes.size + column)
        weights = precision / sizes[seen % sizes.size]
        precisions += np.bincount(seen // sizes.size, weights=weights, minlength=values.size).reshape(values.shape)


def _shares(sums: FloatArray, rows: float) -> FloatArray:
    """Return one column's shares from precision-weighted counts and precisions."""
    size = sums.shape[1]
    if rows <= 0.0:
        return np.full(size, 1.0 / size)
    estimate = sums[0] / sums[1]
    return simplex_projection(estimate + (rows - estimate.sum()) / size, rows) / rows


def impossible_pairs(mixture: Mixture, targets: Targets, errors: FloatArray) -> BoolArray:
    """Return the pairs that rule 3 takes to be impossible, shape (D, D)."""
    rows = max(targets.rows, 1.0)
    expected = rows * np.outer(targets.one_way, targets.one_way)
    modelled = rows * pair_matrix(mixture, targets.sizes)
    finite = np.isfinite(errors)
    limit = np.where(finite, errors, 0.0)
    rare = modelled < _SHARE_OF_INDEPENDENCE * expected + _ERRORS * limit
    impossible: BoolArray = rare & (expected > limit) & finite
    return impossible


def fit_seeded(levels: Sequence[Level], index: TupleIndex, total: int | None, empty: Empty = _NO_EMPTY) -> Seeded:
    """Fit the model. Deterministic."""
    targets, errors = pair_targets(levels, index, total, empty)
    columns = targets.one_way.size
    nothing = np.zeros((columns, columns), dtype=np.bool_)
    if targets.strength == 0.0 or targets.rows < 1.0:
        return Seeded(Mixture(np.ones(1), targets.one_way[:, None]), nothing)
    with one_blas_thread():
        mixture = _fitted(targets)
        impossible = impossible_pairs(mixture, targets, errors)
        if not impossible.any():
            return Seeded(mixture, impossible)
        # Impossible pairs become measured zeros of a large weight for a second fit.
        pairs, weights = targets.pairs.copy(), targets.pair_weights.copy()
        pairs[impossible] = 0.0
        weights[impossible] *= np.float32(_IMPOSSIBLE_WEIGHT)
        return Seeded(_fitted(replace(targets, pairs=pairs, pair_weights=weights)), impossible)


def _fitted(targets: Targets) -> Mixture:
    classes, steps = schedule(targets.one_way.size, targets.strength)
    return fit_from_starts(targets, classes=classes, steps=steps, starts=_RESTARTS)


def schedule(columns: int, strength: float) -> tuple[int, int]:
    """Return the number of classes and of steps of one fit, for D attributes and n / sigma = ``strength``.

    Examples
    --------
    >>> schedule(71, 1600.0)
    (400, 240)
    """
    steps = usual_steps(strength)
    return usual_classes(columns, steps, strength, _WORK / _RESTARTS), steps
