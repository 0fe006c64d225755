"""All histograms of a few rows and cells, and their neighbours: what exact tests of privacy go through."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

Histogram = tuple[int, ...]


def histograms(rows: int, cells: int) -> Iterator[Histogram]:
    """All histograms of this many rows."""
    if cells == 1:
        yield (rows,)
        return
    for first in range(rows + 1):
        for rest in histograms(rows - first, cells - 1):
            yield (first, *rest)


def neighbours(counts: Histogram) -> Iterator[Histogram]:
    """All histograms with one row replaced."""
    for i, j in itertools.permutations(range(len(counts)), 2):
        if counts[i] > 0:
            moved = list(counts)
            moved[i], moved[j] = moved[i] - 1, moved[j] + 1
            yield tuple(moved)
