"""Rows from a mixture without pairs of values that are taken to be impossible.

Rows are written as in `dpsql.methods.mixture.rows`. Then in every row that has an impossible pair the value that takes part in
most of them is drawn again, from its row's class, among the values that fit the rest of the row; a few times over. What cannot
be repaired stays.

Privacy: post-processing of released statistics.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dpsql.methods.aggregate_seeded.model import BoolArray, Seeded
from dpsql.methods.mixture.fit import pair_matrix
from dpsql.methods.mixture.rows import class_rows, exchange, sweeps
from dpsql.numerics.arrays import CodeArray, FloatArray
from dpsql.numerics.products import multiplies

_LONGEST_BLOCK = 1 << 16
_ROUNDS = 30

IndexArray = npt.NDArray[np.intp]


def seeded_rows(model: Seeded, sizes: tuple[int, ...], rows: int, rng: np.random.Generator) -> Iterator[CodeArray]:
    """Yield blocks of codes, shape (b, d), ``rows`` rows in total.

    Parameters
    ----------
    rng : numpy.random.Generator
        The same state gives the same rows.
    """
    blocks = -(-rows // _LONGEST_BLOCK)
    rounds = sweeps(rows, len(sizes))
    matrix = pair_matrix(model.mixture, sizes) if rounds else None
    for block in range(blocks):
        length = rows // blocks + (block < rows % blocks)
        codes, classes = class_rows(model.mixture, sizes, length, rng)
        if matrix is not None:
            codes = exchange(codes, classes, length * matrix, sizes, rounds, rng)
        if model.impossible.any():
            repair(codes, model, sizes, rng)
        yield codes[rng.permutation(length)].astype(np.int32)


def repair(codes: IndexArray, model: Seeded, sizes: tuple[int, ...], rng: np.random.Generator) -> None:
    """Draw values again until no row has an impossible pair, in place.

    Notes
    -----
    A value is drawn with the probabilities of a class that is itself drawn given the rest of the row, so that a repaired row is
    one that the mixture could have given.
    """
    starts = np.cumsum((0, *sizes[:-1]))
    bad = np.arange(len(codes))
    log_values = np.log(np.maximum(model.mixture.values, 1e-12))
    log_shares = np.log(np.maximum(model.mixture.shares, 1e-300))
    for _ in range(_ROUNDS):
        placed = codes[bad] + starts
        conflicts = _conflicts(placed, model.impossible)
        broken = conflicts.any(axis=1)
        bad, placed, conflicts = bad[broken], placed[broken], conflicts[broken]
        if not bad.size:
            return
        # Ties are broken at random: else the same column would give way every time.
        worst = np.argmax(conflicts + rng.random(conflicts.shape) * 0.5, axis=1)
        for i in np.unique(worst):
            some = worst == i
            codes[bad[some], i] = _redraw(placed[some], int(i), int(starts[i]), sizes[i], model, log_values, log_shares, rng)


def _conflicts(placed: IndexArray, impossible: BoolArray) -> IndexArray:
    """Return in how many impossible pairs each value of each row takes part, shape (n, d)."""
    conflicts = np.zeros(placed.shape, dtype=np.intp)
    for i in range(placed.shape[1]):
        for j in range(i + 1, placed.shape[1]):
            hit = impossible[placed[:, i], placed[:, j]]
            conflicts[:, i] += hit
            conflicts[:, j] += hit
    return conflicts


@multiplies
def _redraw(
    placed: IndexArray, i: int, start: int, size: int, model: Seeded, log_values: FloatArray, log_shares: FloatArray,
    rng: np.random.Generator,
) -> IndexArray:
    """Return new codes of column i for rows of attributes, by the mixture given the other columns."""
    others = np.delete(placed, i, axis=1)
    # Half a column of a few thousand classes a row: small, since few rows are repaired at a time.
    weight = np.tile(log_shares, (len(placed), 1))
    for j in range(others.shape[1]):
        weight += log_values[others[:, j]]
    weight = np.exp(weight - weight.max(axis=1, keepdims=True))
    chances = weight @ model.mixture.values[start : start + size].T
    for j in range(others.shape[1]):
        chances[model.impossible[start : start + size][:, others[:, j]].T] = 0.0
    sums = chances.sum(axis=1, keepdims=True)
    stuck = sums[:, 0] <= 0.0
    chances[stuck], sums[stuck] = 1.0, float(size)  # nothing fits: any value, and another column gives way next time
    drawn = (np.cumsum(chances / sums, axis=1) < rng.random((len(placed), 1))).sum(axis=1)
    codes: IndexArray = np.minimum(drawn, size - 1)
    return codes
