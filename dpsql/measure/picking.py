"""Draw quantiles of every released group by the exponential mechanism, from the rows near their ranks.

Rows near the ranks of all quantiles of one measure are read together; all rows, where those near a rank do not tell.

Privacy. What is read is exact and secret; what leaves is drawn by `dpsql.mechanisms.ranked`, whose gamma stands in the plan, and is
charged as so many mechanisms of bounded range as the plan's bounds of a unit's rows say. *Public groups*: a draw for each of them.
*Private groups*: a draw for each that was released. Let C be the groups that have enough units in both of two neighbours, as in
the theorem of `dpsql.estimates.thresholds`. There M, the noisy counters of C cut down to the groups that pass, is extended by a
draw for each group of C, of which those are shown that pass: still a function of mechanisms over a fixed set of groups, whose draws
are charged like those of public groups, since a unit is in no more groups of C than of all. Draws for groups that are not shown
change no law, so they need not be made. Groups that one of two neighbours alone has appear with a probability of at most delta, by
noise that is independent of C; where none does, none is drawn for. How rows are bounded does not depend on which groups were
released: these are found among the bounded rows. Whether groups are too many is a function of their released number.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dpsql.engines.base import Reader
from dpsql.errors import DpsqlError
from dpsql.estimates.picks import Picking, of_one_measure
from dpsql.measure.statement import Statement
from dpsql.mechanisms.ranked import NO_ROWS, Ranked, Uniform, picked
from dpsql.numerics.arrays import IntArray

Held = Mapping[int, Ranked]
"""Rows near a rank, by the place of the group."""
Ranks = Callable[[Sequence[Picking], bool, str | None], list[Held]]
"""Gives for each quantile of one measure the rows near its rank, or all; of private groups in a relation, or of public ones."""


def read_ranks(
    reader: Reader, made: Statement, ones: Sequence[Picking], every: bool, listed: str | None
) -> list[Held]:
    """Read rows near ranks, see `Ranks`. Privacy: secret."""
    frame = reader.frame(made.ranks(ones, every=every, listed=listed))
    groups, cells, rows, upto, total = (np.asarray(frame[name], np.int64) for name in ("ord", "cell", "n", "upto", "total"))
    order = np.lexsort((cells, groups))
    ranked: list[Held] = []
    for place, one in enumerate(ones):
        kept = order[np.asarray(frame[f"near{place}"], bool)[order]]
        ends = np.flatnonzero(np.diff(groups[kept], prepend=-1, append=-1))
        reach = None if every else one.reach
        ranked.append({
            int(groups[part[0]]): Ranked(cells[part], rows[part], upto[part], int(total[part[0]]), reach)
            for part in (kept[a:b] for a, b in itertools.pairwise(ends.tolist()))
        })
    return ranked


def draw(
    picking: Sequence[Picking], edges: Sequence[Sequence[int]], ranks: Ranks, groups: int, listed: str | None
) -> list[IntArray]:
    """Draw quantiles, each of every group.

    Parameters
    ----------
    edges : sequence of sequences of int
        For each quantile the ends of leaves that weigh the same, from released counts; those of one measure are the same.
    groups : int
        Public groups, or private ones that were released, which ``listed`` has.
    """
    drawn: list[IntArray] = []
    for ones in of_one_measure(picking):
        near, every = ranks(ones, False, listed), None
        for place, one in enumerate(ones):
            units = np.zeros(groups, np.int64)
            for group in range(groups):
                number = Uniform()
                unit = picked(near[place].get(group, NO_ROWS), one.share, edges[len(drawn)], one.gamma, number)
                if unit is None:
                    every = ranks(ones, True, listed) if every is None else every
                    unit = picked(every[place].get(group, NO_ROWS), one.share, edges[len(drawn)], one.gamma, number)
                if unit is None:
                    raise DpsqlError("all rows of a group tell where a quantile is")
                units[group] = unit
            drawn.append(units)
    return drawn
