r"""Coarse two-way tables: what a second, adaptive round of measurements asks about pairs of ordered attributes.

A trend between two attributes of dozens of bins each is spread over hundreds of cells of their table, and summed over
as much noise. A table of three groups of bins by three bears the noise of nine cells. Good groups hold about a third of the rows
each, and where the rows lie is private. So there are two rounds:

1. The tables of the plan get their noise and are fixed.
2. `groups` cuts each attribute's bins where *those released* tables put a third and two thirds of the rows. The exact
   pair tables are summed over these groups (`coarsened`) and get noise of their own.

**Privacy.** Let the tables of the first round have the noisy value y. For every fixed y the groups are a fixed partition
of codes, so a coarse table is a contingency table: every row is in exactly one of its cells, whatever the partition, and its
sensitivities are those that `dpsql.accounting.events.sensitivities` states for any contingency table. Its noise scale is
in the plan, before a row is read. So this is an adaptive composition of Gaussian mechanisms of which only the queries,
not the parameters, depend on earlier answers, and it costs what the same tables would cost if they were fixed
beforehand: "Adaptive choice" in `dpsql.accounting.gaussian`. The shape of a coarse table is public too (`shape`): a group may
be without a code, but it is not left out. Nothing in this module draws noise; `coarsened` alone is given exact counts, by
`dpsql.measure.measuring` alone.

**Reproducible.** Whoever reads a release cuts again, from the same released integers, in integer arithmetic. So the rule
is part of the release format: a different one needs another format.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dpsql.domains.attributes import Attribute, Domain
from dpsql.numerics.arrays import Clique, IntArray

PARTS = 3
"""Groups of the values of one attribute; 'other' and NULL share one more."""


def ordered(attribute: Attribute) -> bool:
    """Return whether groups of neighbouring codes of the attribute mean something: bins do, categories do not."""
    return attribute.kind in ("numeric", "temporal") and attribute.values > 1


def group_count(attribute: Attribute) -> int:
    """Return the number of groups of an attribute: public.

    Examples
    --------
    >>> group_count(Attribute("age", "INTEGER", "numeric", edges=(0.0, 20.0, 40.0, 60.0, 80.0), nullable=True))
    4
    """
    return min(PARTS, attribute.values) + (attribute.size > attribute.values)


def shape(domain: Domain, clique: Clique) -> tuple[int, ...]:
    """Return the shape of a coarse table: public."""
    return tuple(group_count(domain.attributes[i]) for i in clique)


def groups(domain: Domain, released: Mapping[Clique, IntArray], attributes: Iterable[int]) -> dict[int, IntArray]:
    """Return the group of every code of some attributes.

    Parameters
    ----------
    domain : Domain
    released : mapping from clique to int64 array
        *Noisy* tables. An attribute is cut by the smallest table that holds it, of equal ones the first.
    attributes : iterable of int
        Positions; each in some table.

    Returns
    -------
    dict from position to int64 array, shape (codes,)
        Numbers below `group_count`, non-decreasing: values first, then the group of 'other' and NULL.

    Notes
    -----
    Privacy: post-processing of released counts.
    """
    chosen = sorted(set(attributes))
    smallest = _smallest(domain.sizes, released, set(chosen))
    return {i: _groups(domain.attributes[i], _counts(released, smallest[i], i)) for i in chosen}


def coarsened(table: IntArray, clique: Clique, grouped: Mapping[int, IntArray], sides: tuple[int, ...]) -> IntArray:
    """Return a table summed over groups, shape `sides` (one axis per attribute of the clique).

    Privacy: the result is as secret as the table. One row is in one cell, as in the table.

    Examples
    --------
    >>> coarsened(np.array([[1, 2, 3], [4, 5, 6]]), (0, 1), {0: np.array([0, 1]), 1: np.array([0, 0, 2])}, (2, 3)).tolist()
    [[3, 0, 3], [9, 0, 6]]
    """
    summed = np.zeros(sides, np.int64)
    np.add.at(summed, np.ix_(*(grouped[i] for i in clique)), table)
    return summed


def _smallest(sizes: Sequence[int], released: Mapping[Clique, IntArray], attributes: set[int]) -> dict[int, Clique]:
    """Return the clique of the smallest table that holds each attribute; of equal ones the first."""
    smallest: dict[int, tuple[int, Clique]] = {}
    for clique in released:
        for i in attributes.intersection(clique):
            key = math.prod(sizes[position] for position in clique), clique
            if i not in smallest or key < smallest[i]:
                smallest[i] = key
    return {i: clique for i, (_, clique) in smallest.items()}


def _counts(released: Mapping[Clique, IntArray], clique: Clique, i: int) -> IntArray:
    """Return the noisy one-way counts of an attribute, from one table that holds it."""
    kept = clique.index(i)
    counts: IntArray = released[clique].sum(axis=tuple(axis for axis in range(len(clique)) if axis != kept), dtype=np.int64)
    return counts


def _groups(attribute: Attribute, counts: IntArray) -> IntArray:
    values = attribute.values
    parts = min(PARTS, values)
    group = np.full(attribute.size, parts, np.int64)
    group[:values] = np.searchsorted(_cuts(counts[:values].tolist(), parts), np.arange(values), side="right")
    return group


def _cuts(counts: list[int], parts: int) -> list[int]:
    """Return, for each part but the last, the number of values up to its end: at least 1, fewer than all; non-decreasing.

    The end of part q is where the sum of the counts is nearest to q / parts of all; of equally near ends the first. Sums of
    noisy counts may fall, and the end of a part may then be before that of the part before it: so the ends are sorted.
    Python integers: no sum overflows, no division rounds.
    """
    sums, total = [], 0
    for count in counts:
        total += count
        sums.append(total)
    ends = range(1, len(counts))
    return sorted(min(ends, key=lambda k: (abs(parts * sums[k - 1] - q * total), k)) for q in range(1, parts))
