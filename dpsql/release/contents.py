"""What a release holds: integers in the order of its plan, their fingerprint, and the statistics that they are.

Privacy: post-processing; the integers are released.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpsql.numerics.arrays import Clique, IntArray
from dpsql.release.plan import Plan
from dpsql.release.refined import Refinement, histograms
from dpsql.tables import coarse
from dpsql.tables.flat import FlatScales, FlatTables
from dpsql.tables.statistics import CoarseTables, Statistics

_HASHED = 1 << 22


def fingerprint(
    flat: IntArray, values: Sequence[str] = (), places: IntArray | None = None, refinement: Refinement | None = None
) -> str:
    """Return the SHA-256 of what a release holds; ``places``: table and cell of each count, where they are part of it."""
    digest = hashlib.sha256()
    for start in range(0, flat.size, _HASHED):  # an interrupt waits for one of them
        digest.update(flat[start : start + _HASHED].tobytes())
    if places is not None:
        digest.update(places.tobytes())
    if values:
        digest.update(json.dumps(list(values), ensure_ascii=False).encode())
    if refinement is not None:
        digest.update(json.dumps(refinement.to_json(), sort_keys=True, ensure_ascii=False).encode())
    return digest.hexdigest()


def as_statistics(
    plan: Plan,
    flat: IntArray,
    total: int | None,
    values: tuple[str, ...] = (),
    places: IntArray | None = None,
    refinement: Refinement | None = None,
) -> Statistics:
    """Cut the flat integers of a plan into its tables (with the coarse ones) or blocks; of sparse tables: table, cell, count.

    ``plan`` has the bins that were cut (`dpsql.release.refined.resolved`).
    """
    count = len(plan.cliques)
    common: dict[str, Any] = {
        "sizes": plan.domain.sizes, "mechanism": plan.mechanism, "total": total, "domain": plan.domain,
        "parameters": plan.parameters, "values": values, "fine": histograms(plan, refinement),
    }
    # Queries, drawn and open releases have no tables of a domain: integers in blocks.
    if plan.listed or plan.blocks is not None:
        pieces = (flat,) if plan.valued else tuple(np.split(flat, np.cumsum(plan.lengths)[:-1]))
        blocks = pieces if places is None else (places[0], places[1], flat)
        scales = {clique: float(scale) for clique, scale in zip(plan.cliques, plan.scales[:count], strict=False)}
        return Statistics(tables={}, scales=scales, blocks=blocks, **common)
    # Tables first, then the coarse ones, which were measured in a second round.
    first = int(plan.table_lengths.sum())
    tables = shaped(plan, flat[:first])
    second = _coarse(plan, tables, flat[first:]) if plan.coarse else CoarseTables()
    return Statistics(tables=tables, scales=FlatScales(plan.cliques, plan.scale_numbers[:count]), coarse=second, **common)


def shaped(plan: Plan, flat: IntArray) -> FlatTables:
    """Return the tables of a plan from their flat counts."""
    return FlatTables(plan.domain.sizes, plan.cliques, flat)


def _coarse(plan: Plan, tables: Mapping[Clique, IntArray], flat: IntArray) -> CoarseTables:
    """Give the coarse tables their groups again, which the released tables determine."""
    pieces = np.split(flat, np.cumsum(plan.lengths[len(plan.cliques) :])[:-1])
    return CoarseTables(
        coarse.groups(plan.domain, tables, itertools.chain.from_iterable(plan.coarse)),
        {pair: piece.reshape(coarse.shape(plan.domain, pair)) for pair, piece in zip(plan.coarse, pieces, strict=True)},
        dict(zip(plan.coarse, map(float, plan.scales[len(plan.cliques) : len(plan.cliques) + len(plan.coarse)]), strict=True)),
    )
