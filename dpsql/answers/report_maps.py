"""Maps of the dependence of pairs, for the report.

Privacy: post-processing, but for exact tables that the custodian hands in to compare with.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from dpsql.domains.attributes import Domain
from dpsql.numerics.arrays import Clique, FloatArray
from dpsql.page import dependence, figures
from dpsql.page.content import Maps
from dpsql.page.dependence import Strength


def pairs(domain: Domain, mapped: Sequence[int]) -> list[Clique]:
    """Return the pairs of the shown columns whose tables are not too large."""
    return [(i, j) for i, j in itertools.combinations(mapped, 2) if domain.sizes[i] * domain.sizes[j] <= dependence.LARGE]


def maps(
    names: Sequence[str],
    mapped: Sequence[int],
    strengths: Mapping[Clique, Strength],
    measured: figures.Measured,
    drawn: Mapping[Clique, FloatArray] | None,
    raw: Mapping[Clique, FloatArray] | None,
) -> Maps | None:
    """Return the maps of pairs; synthetic and raw tables are weighted as the released ones are."""
    noise = {pair: deviation for pair, (_, deviation) in dependence.pair_tables(measured).items()}

    def plain(counts: Mapping[Clique, FloatArray]) -> FloatArray | None:
        two_way = {clique: table for clique, table in counts.items() if len(clique) == 2}
        some: dict[Clique, Strength] = {
            clique: dependence.plain_strength(table, noise.get(clique, 0.0)) for clique, table in two_way.items()
        }
        return dependence.matrix(some, mapped) if some else None

    released = dependence.matrix(strengths, mapped) if strengths else None
    synthetic = None if drawn is None else plain(drawn)
    if len(mapped) < 2 or (released is None and synthetic is None):
        return None
    low, high = dependence.band_matrices(strengths, mapped) if strengths and any(noise.values()) else (None, None)
    return Maps(
        [names[i] for i in mapped], released, synthetic, None if raw is None else plain(raw), low, high,
        len(names) - len(mapped), sum(not s.told_apart for s in strengths.values()), len(strengths),
    )  # fmt: skip
