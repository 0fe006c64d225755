"""Noise on exact tables, and the second round of coarse tables. The one step between secret counts and a release of tables."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from dpsql.noise import discrete
from dpsql.numerics.arrays import Clique, IntArray
from dpsql.release.contents import shaped
from dpsql.release.plan import Plan
from dpsql.tables import coarse
from dpsql.tables.flat import FlatTables


def released(plan: Plan, tables: Mapping[Clique, IntArray]) -> IntArray:
    """Return what a plan releases of exact tables: the tables with noise, then the coarse tables with noise, flat.

    Privacy: the second round sees the first one as it is released: its groups are made from noisy counts alone, and its scales are
    in the plan (`dpsql.tables.coarse`).
    """
    count, lengths = len(plan.cliques), plan.table_lengths
    exact = _flat(plan, tables)
    first = add_noise(exact, lengths, plan.scales[:count], plan.mechanism)
    if not plan.coarse:
        return first
    noisy = shaped(plan, first)
    groups = coarse.groups(plan.domain, noisy, itertools.chain.from_iterable(plan.coarse))
    summed = [coarse.coarsened(tables[pair], pair, groups, coarse.shape(plan.domain, pair)) for pair in plan.coarse]
    flat = np.concatenate([table.ravel() for table in summed])
    scales = plan.scales[count : count + len(plan.coarse)]
    return np.concatenate([first, add_noise(flat, [table.size for table in summed], scales, plan.mechanism)])


def _flat(plan: Plan, tables: Mapping[Clique, IntArray]) -> IntArray:
    """Return the counts of all tables in the order of the plan."""
    if isinstance(tables, FlatTables) and tables.sizes == plan.domain.sizes and tables.cliques == plan.cliques:
        return tables.flat
    return np.concatenate([tables[clique].ravel() for clique in plan.cliques])


def add_noise(flat: IntArray, lengths: Sequence[int] | IntArray, scales: Sequence[Fraction], mechanism: str) -> IntArray:
    """Add each table's noise to every one of its cells, the empty ones too.

    Raises
    ------
    ValueError
        There is not one scale for each table, or the tables are not all of the counts.
    """
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    if len(scales) != len(lengths) or ends[-1] != flat.size:
        raise ValueError(f"{len(scales)} scales for {len(lengths)} tables of {ends[-1]} cells, {flat.size} counts")
    by_scale: dict[Fraction, list[slice]] = {}
    first = 0
    for scale, run in itertools.groupby(scales):
        last = first + len(list(run))
        by_scale.setdefault(scale, []).append(slice(int(ends[first]), int(ends[last])))
        first = last
    noisy = np.empty_like(flat)
    for scale, parts in by_scale.items():
        drawn = discrete.add_noise(np.concatenate([flat[part] for part in parts]), mechanism, scale)
        start = 0
        for part in parts:
            noisy[part] = drawn[start : start + part.stop - part.start]
            start += part.stop - part.start
    return noisy
