"""The published procedure of aggregate-seeded synthesis, for comparison.

A record is built one attribute at a time from the attributes that are still available (their single counts are used up). The
weight of a candidate is, up to R attributes, the reported count of the record together with it; beyond, a percentile of the
reported counts of all tuples of at most R attributes of the two that contain it. A tuple that was not reported forbids it. With
``use_synthetic_counts`` what has already been synthesized is subtracted first. A record ends when nothing can be added.

Many records are built side by side: within a batch they do not see each other's use of the counts, but for an attribute of which
fewer are left than want it.

Privacy: post-processing of released statistics. It is known to lose the dependence between columns, and to leave cells empty.

References: [SDS].
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dpsql.numerics.arrays import CodeArray, FloatArray, IntArray
from dpsql.tables.tuple_index import TupleIndex

_BATCHES = 200
_LARGEST_BATCH = 512
_CELLS = 4_000_000
"""Weights that are held at a time."""


def published_rows(
    reported: Sequence[tuple[IntArray, IntArray]],
    index: TupleIndex,
    factor: float,
    rng: np.random.Generator,
    *,
    empty: Sequence[int],
    percentile: float = 95.0,
    use_synthetic_counts: bool = False,
) -> Iterator[CodeArray]:
    """Yield records.

    Parameters
    ----------
    reported : sequence of (attributes, counts)
        Of each level, k = 1 ... R.
    index : TupleIndex
    factor : float
        What single counts are multiplied with, to scale the number of records.
    empty : sequence of int, length d
        Code of an empty cell of each column.
    percentile : float, in [0, 100]
    use_synthetic_counts : bool

    Yields
    ------
    int32 array, shape (b, d)
        Codes.
    """
    builder = _Builder(reported, index, factor, rng, percentile, use_synthetic_counts)
    while True:
        records = builder.batch()
        if not len(records):
            return
        first = index.first_attributes
        yield np.where(records >= 0, records - first, np.asarray(empty, dtype=np.int64)).astype(np.int32)


class _Counts:
    """Reported counts by key, with a place for what is not reported: 0."""

    def __init__(self, reported: Sequence[tuple[IntArray, IntArray]], index: TupleIndex) -> None:
        self.keys = np.concatenate([index.keys(attributes) for attributes, _ in reported])
        self.counts = np.concatenate([counts for _, counts in reported]).astype(float)
        self.index = index

    def of(self, attributes: IntArray) -> tuple[IntArray, IntArray]:
        """Return places and whether there is something, for ascending attributes, shape (N, k)."""
        keys = self.index.keys(attributes)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return places, self.keys[places] == keys


class _Builder:
    """The state of a synthesis: what is left of every attribute, and what was synthesized."""

    def __init__(
        self,
        reported: Sequence[tuple[IntArray, IntArray]],
        index: TupleIndex,
        factor: float,
        rng: np.random.Generator,
        percentile: float,
        use_synthetic_counts: bool,
    ) -> None:
        self.index, self.rng, self.percentile, self.subtract = index, rng, percentile, use_synthetic_counts
        self.columns = index.columns_of_attributes
        self.counts = _Counts(reported, index)
        self.synthesized = np.zeros_like(self.counts.counts)
        self.left = np.zeros(self.columns.size)
        singles, single_counts = reported[0]
        self.left[singles[:, 0]] = np.rint(single_counts * factor)
        self.factor = factor
        # Records of one batch do not see each other: a batch is small against the rows there are to be.
        column_totals = np.bincount(self.columns, weights=self.left)
        size = int(column_totals.max(initial=0.0)) // _BATCHES + 1
        self.size = min(size, _LARGEST_BATCH, max(1, _CELLS // max(1, self.columns.size)))

    def batch(self) -> IntArray:
        """Return new records, shape (b, d): attributes, -1 where empty; none where nothing is available."""
        if self.left.max(initial=0.0) < 1.0:
            return np.zeros((0, len(self.index.sizes)), dtype=np.int64)
        records = np.full((self.size, len(self.index.sizes)), -1, dtype=np.int64)
        active = np.arange(self.size)
        for length in range(len(self.index.sizes)):
            chosen = self._next(records[active], length)
            accepted = self._use(chosen)
            active, chosen = active[accepted], chosen[accepted]
            if not active.size:
                break
            records[active, self.columns[chosen]] = chosen
        # Records to which nothing could be given are none.
        records = records[(records >= 0).any(axis=1)]
        if self.subtract:
            self._note(records)
        return records

    def _use(self, chosen: IntArray) -> npt.NDArray[np.bool_]:
        """Take one of each chosen attribute; return who gets one where fewer are left than are wanted. -1 gets nothing."""
        order = np.argsort(chosen, kind="stable")
        ordered = chosen[order]
        place = np.arange(ordered.size) - np.searchsorted(ordered, ordered)
        accepted = np.zeros(chosen.size, dtype=np.bool_)
        accepted[order] = (ordered >= 0) & (place < self.left[ordered])
        np.subtract.at(self.left, chosen[accepted], 1.0)
        return accepted

    def _next(self, records: IntArray, length: int) -> IntArray:
        """Return one attribute to add to each record of ``length`` attributes, -1 where there is none."""
        offered = np.flatnonzero(self.left >= 1.0)
        weights = np.zeros((len(records), offered.size))
        if offered.size and len(records):
            attributes = records[records >= 0].reshape(len(records), length)
            weights = self._weights(attributes, offered)
            weights[records[:, self.columns[offered]] >= 0] = 0.0
        sums = np.cumsum(weights, axis=1)
        total = sums[:, -1] if offered.size else np.zeros(len(records))
        place = (sums <= (self.rng.random(len(records)) * total)[:, None]).sum(axis=1)
        return np.where(total > 0.0, offered[np.minimum(place, offered.size - 1)] if offered.size else -1, -1)

    def _weights(self, attributes: IntArray, offered: IntArray) -> FloatArray:
        """Return the weight of every offered attribute for every record, shape (b, offered)."""
        length, most = attributes.shape[1], self.index.length
        if length < most:
            counts, allowed = self._tuples(attributes, offered)
            return np.where(allowed, counts, 0.0)
        # No count is reported of a record this long with one more: the tuples that it would complete speak for it.
        parts = [list(part) for k in range(most) for part in itertools.combinations(range(length), k)]
        some = [self._tuples(attributes[:, part], offered) for part in parts]
        values = np.stack([value for value, _ in some])
        allowed = np.logical_and.reduce([good for _, good in some])
        middle = self._percentile(values)
        return np.where(allowed, middle, 0.0)

    def _percentile(self, values: FloatArray) -> FloatArray:
        """Return the percentile over the first axis: the value at the rank ceil(p N / 100)."""
        rank = max(int(np.ceil(self.percentile / 100.0 * len(values))) - 1, 0)
        percentile: FloatArray = np.partition(values, rank, axis=0)[rank]
        return percentile

    def _tuples(self, part: IntArray, offered: IntArray) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """Return the count of each record's part together with each offered attribute, and whether it is reported."""
        rows, k = len(part), part.shape[1] + 1
        joint = np.empty((rows, offered.size, k), dtype=np.int64)
        joint[:, :, :-1] = part[:, None, :]
        joint[:, :, -1] = offered
        joint.sort(axis=2)
        flat = joint.reshape(-1, k)
        columns = self.columns[flat]
        # Two attributes of one column are no tuple.
        good = (columns[:, 1:] != columns[:, :-1]).all(axis=1)
        value, allowed = np.zeros(len(flat)), np.zeros(len(flat), dtype=np.bool_)
        places, known = self.counts.of(flat[good])
        counts = self.counts.counts[places]
        if self.subtract:
            counts = np.maximum(counts - self.synthesized[places] / max(self.factor, 1e-12), 0.0)
        value[good], allowed[good] = counts * known, known
        return value.reshape(rows, -1), allowed.reshape(rows, -1)

    def _note(self, records: IntArray) -> None:
        """Count the tuples of new records."""
        for k in self.index.levels:
            for columns in itertools.combinations(range(records.shape[1]), k):
                part = records[:, list(columns)]
                part = part[(part >= 0).all(axis=1)]
                places, known = self.counts.of(part)
                np.add.at(self.synthesized, places[known], 1.0)
