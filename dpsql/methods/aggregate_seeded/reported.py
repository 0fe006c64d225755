"""The counts of tuples that a release reports, and the model that is fitted to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from dpsql.methods.aggregate_seeded import levels as tuple_levels
from dpsql.methods.aggregate_seeded.model import Empty, Level, Seeded, estimated_rows, fit_seeded
from dpsql.numerics.arrays import IntArray
from dpsql.tables.statistics import Statistics
from dpsql.tables.tuple_index import TupleIndex


@dataclass(frozen=True)
class Aggregates:
    """Reported tuples of one level.

    Parameters
    ----------
    attributes : int64 array, shape (N, k)
    counts : int64 array, shape (N,)
        Above 0.
    """

    attributes: IntArray
    counts: IntArray


@dataclass(frozen=True)
class AggregateModel:
    """What rows are drawn from; the mixture is fitted when it is first needed.

    Parameters
    ----------
    levels : tuple of Level
        All measured counts.
    index : TupleIndex
    total : int or None
        Number of rows where it is public, or was measured.
    missing : Empty
        Columns with empty cells.
    thresholds : tuple of int
    options : mapping
    empty : tuple of int
        Code of an empty cell of each column in the output domain of the published sampler.
    bounds : tuple of int
        Tuples of each level that a row was counted in at most, where rows have empty cells.
    """

    levels: tuple[Level, ...]
    index: TupleIndex
    total: int | None
    missing: Empty
    thresholds: tuple[int, ...]
    options: Mapping[str, Any]
    empty: tuple[int, ...]
    bounds: tuple[int, ...] = ()

    @cached_property
    def seeded(self) -> Seeded:
        """The fitted mixture."""
        return fit_seeded(self.levels, self.index, self.total, self.missing)

    @cached_property
    def reported(self) -> tuple[Aggregates, ...]:
        """The kept tuples, capped."""
        return reported(self.levels, self.thresholds, self.index)

    @cached_property
    def rows(self) -> int:
        """Number of rows that the counts suggest."""
        return round(estimated_rows(self.levels, self.index)) if self.total is None else max(self.total, 0)


def reported(levels: Sequence[Level], thresholds: Sequence[int], index: TupleIndex) -> tuple[Aggregates, ...]:
    """Return the tuples above their level's threshold, each count capped by the smallest of its parts' counts.

    Notes
    -----
    Privacy: post-processing. Counts fall down the lattice, as those of rows do.
    """
    aggregates: list[Aggregates] = []
    keys = counts = np.zeros(0, dtype=np.int64)
    for k, (level, threshold) in enumerate(zip(levels, thresholds, strict=True), 1):
        kept = level.counts > threshold
        attributes, capped = level.attributes[kept], level.counts[kept]
        if k > 1:
            # Only tuples of kept parts were counted, so every part is there.
            for part in index.subkeys(attributes):
                capped = np.minimum(capped, counts[np.searchsorted(keys, part)]) if keys.size else capped
        keys, counts = index.keys(attributes), capped
        aggregates.append(Aggregates(attributes, capped))
    return tuple(aggregates)


def levels_of(statistics: Statistics, index: TupleIndex) -> tuple[tuple[Level, ...], tuple[Fraction, ...]]:
    """Return the measured counts of each level, and its noise scale, from a release (table, cell, count)."""
    table, cell, counts = statistics.blocks
    tuples = table < len(index.cliques)
    keys, counts = index.starts[table[tuples]] + cell[tuples], counts[tuples]
    units, bounds = statistics.parameters.get("units"), extra_of(statistics, index)
    levels, scales = [], []
    for k in index.levels:
        first, behind = np.searchsorted(keys, index.level_keys(k))
        scale = Fraction(statistics.scales[index.cliques[index.first_tables[k - 1]]])
        # Where rows have empty cells, noise depends on the bound of each level, which was bought with the release.
        if units is not None:
            scale = tuple_levels.level_scale(Fraction(units[k - 1]), int(bounds[k]))
        levels.append(Level(index.attributes(keys[first:behind], k), counts[first:behind], float(scale)))
        scales.append(scale)
    return tuple(levels), tuple(scales)


def extra_of(statistics: Statistics, index: TupleIndex) -> IntArray:
    """Return what is released of rows with empty cells: their number, and the bound of each level."""
    table, _, counts = statistics.blocks
    extra: IntArray = counts[table == len(index.cliques)]
    return extra
