"""Released tables of two or three columns as cross-tables that can be read: cells that are too many are put together.

Privacy: None: post-processing of released counts (and of what the custodian hands in to compare them with).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpsql.domains.attributes import Domain
from dpsql.numerics.arrays import Clique, FloatArray
from dpsql.page.figures import Grouping, Measured, grouping, half_width
from dpsql.page.markup import number
from dpsql.page.svg import width_of

MOST_TABLES = 3
_ACROSS, _DOWN, _BETWEEN = 12, 48, 8
_WORD = 13  # letters of a word that are not broken
_WIDEST, _BOLD = 920, 13.5  # pixels of all columns, and of bold letters


@dataclass(frozen=True)
class CrossTable:
    """One cross-table.

    Parameters
    ----------
    rows, across : names of the columns whose values begin the lines, and of the one whose values stand across
    labels : list of tuples of str
        Of the lines, one text for each of ``rows``.
    heads : list of str
        The values across.
    counts : array, shape (lines, heads)
    single : array of bool, of that shape
        Which cells stand for single values: the sums of all other ones set no scale.
    raw : array of that shape, or None
        NOT PRIVATE where given.
    note : str
    """

    rows: Sequence[str]
    across: str
    labels: Sequence[tuple[str, ...]]
    heads: Sequence[str]
    counts: FloatArray
    single: npt.NDArray[np.bool_]
    raw: FloatArray | None = None
    note: str = ""

    @property
    def title(self) -> str:
        """What is crossed with what."""
        return " × ".join([*self.rows, self.across])


def cross_tables(measured: Measured, domain: Domain, raw: Mapping[Clique, FloatArray]) -> list[CrossTable]:
    """Return the released tables of two and three columns; none where they are many."""
    cliques = [clique for clique in measured.tables if len(clique) in (2, 3)]
    if not cliques or len(cliques) > MOST_TABLES or len(cliques) < sum(len(clique) > 1 for clique in measured.tables):
        return []
    return [_cross_table(measured, domain, clique, raw.get(clique)) for clique in cliques]


def _cross_table(measured: Measured, domain: Domain, clique: Clique, raw: FloatArray | None) -> CrossTable:
    table = measured.tables[clique]
    axes = sorted(range(len(clique)), key=lambda axis: -table.shape[axis])  # the column with the fewest values stands across
    table = table.transpose(axes)
    order = [clique[axis] for axis in axes]

    def shown(axis: int, room: int) -> Grouping:
        weights = table.sum(axis=tuple(other for other in range(len(order)) if other != axis))
        return grouping(domain.attributes[order[axis]], weights, room, ranked=True)

    rooms = [_DOWN] if len(order) == 2 else [_DOWN // min(_BETWEEN, domain.sizes[order[1]]), _BETWEEN]
    # As many values across as have room for their heads.
    across = (shown(len(order) - 1, room) for room in range(_ACROSS, 1, -1))
    fitting = next((group for group in across if sum(map(_head_width, group.labels)) <= _WIDEST), shown(len(order) - 1, 2))
    groups = [*(shown(axis, room) for axis, room in enumerate(rooms)), fitting]
    labels = list(itertools.product(*(group.labels for group in groups[:-1])))

    def grouped(counts: FloatArray) -> FloatArray:
        for axis, group in enumerate(groups):
            counts = group.sums(counts, axis)
        return counts.reshape(len(labels), -1)

    single = np.ones(1, dtype=bool)
    for group in groups:
        single = np.multiply.outer(single, [not group.others or i != group.first_of_rest for i in range(len(group.codes))])
    names = [domain.names[i] for i in order]
    return CrossTable(
        names[:-1], names[-1], labels, groups[-1].labels, grouped(table), single.reshape(len(labels), -1),
        None if raw is None else grouped(raw.transpose(axes)),
        _note(measured, clique, groups),
    )


def breakable(head: str) -> list[list[str]]:
    """Return the words of a head, each in pieces between which a line may break.

    Examples
    --------
    >>> breakable("Ophthalmologische Ambulanz")
    [['Ophthalmologi', 'sche'], ['Ambulanz']]
    """
    return [[word[i : i + _WORD] for i in range(0, len(word), _WORD)] or [""] for word in head.split(" ")]


def _head_width(head: str) -> float:
    """Return how many pixels a head takes at least, over counts of seven digits."""
    return max(60.0, *(width_of(piece, _BOLD) for word in breakable(head) for piece in word)) + 14


def _note(measured: Measured, clique: Clique, groups: Sequence[Grouping]) -> str:
    deviation, laplace = measured.deviations.get(clique), measured.laplace.get(clique)
    sentence = "What was released are no counts with noise of a known size on each."
    if deviation is not None:
        width, most = number(half_width(deviation, laplace), 3), int(np.prod([int(group.merged.max()) for group in groups]))
        sentence = "Every cell has noise, so a count may be negative. In 95 of 100 cases it is within "
        sentence += f"±\N{NO-BREAK SPACE}{width} of the exact one"
        if most > 1:
            widest = number(half_width(deviation, None, most), 3)
            sentence += f"; lines and columns that stand for several values have more noise, up to ±\N{NO-BREAK SPACE}{widest}"
        sentence += "."
    return sentence + " Values are ordered by their counts, bins by size. The darker a cell, the larger the count."
