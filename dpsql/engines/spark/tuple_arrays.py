"""k-tuples counted on Spark's workers: which of the known tuples each row has, one block of rows after the other.

Goes to the workers by value, as `dpsql.engines.spark.arrays` does.

Privacy: exact, secret counts. In `bounded`, a row of more than ``most`` tuples keeps ``most`` of them, those whose keyed hash is
smallest: a function of the salt and of the row's codes, and of nothing else. So one row more or fewer changes no other row's
choice, however rows lie in tasks, and an attempt that is run again, or beside another one, counts the same. Equal rows choose
alike; chance on a worker, or the number of a row within its task, would be another choice with every layout of the rows. Nothing is
drawn here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpsql.engines.spark.arrays import HEAD, Batches, Ints, Mapper, chunks, codes_of, layout

_PLACES = 1 << 21  # places of rows and tables that are looked up at a time
_DENSE = 1 << 16  # cells of a table whose places are listed
_NONE = np.iinfo(np.uint64).max
_ODD = 0x9E3779B97F4A7C15
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Table:
    """The known tuples of one table.

    Parameters
    ----------
    clique : tuple of int
    cells : int
        Of the table.
    known : int64 array
        The cells that are known tuples, ascending; not needed where all are.
    first : int
        Place of the first of them among all known tuples.
    """

    clique: tuple[int, ...]
    cells: int
    known: Ints | None
    first: int


@dataclass(frozen=True)
class Tuples:
    """What is counted of tuples.

    Parameters
    ----------
    sizes : tuple of int
        Number of values of each column.
    limits : tuple of int
        Number of codes of each column.
    tables : tuple of Table
        The tables that have known tuples.
    count : int
        Number of known tuples.
    what : {'count', 'widths', 'bounded'}
        Rows of each tuple; rows of each number of tuples; rows of each tuple, of which a row keeps at most ``most``.
    most : int
    salt : int
        64 secret bits of the reading.
    """

    sizes: tuple[int, ...]
    limits: tuple[int, ...]
    tables: tuple[Table, ...]
    count: int
    what: str
    most: int = 0
    salt: int = 0

    @property
    def length(self) -> int:
        """Numbers that a task yields."""
        return HEAD + (len(self.tables) + 1 if self.what == "widths" else self.count)


def tuple_counting(task: Tuples) -> Mapper:
    """Return what counts the rows of a task, for mapInArrow."""

    def count(batches: Batches) -> Batches:
        flat = np.zeros(task.length, dtype=np.int64)
        counts = flat[HEAD:]
        lookups = [_lookup(table) for table in task.tables]
        # so many rows together that the places in all tables fit into memory
        step = max(1, _PLACES // max(len(task.tables), 1))
        wire = layout(task.limits)
        for batch in batches:
            codes = codes_of(batch, wire, task.limits, flat)
            if codes is None:
                continue
            flat[0] += batch.num_rows
            for start in range(0, batch.num_rows, step):
                part = [column[start : start + step].astype(np.int64) for column in codes]
                if task.what == "count":
                    for _, places in _places(task, lookups, part):
                        np.add.at(counts, places[places >= 0], 1)
                elif task.what == "widths":
                    widths = np.zeros(part[0].size, dtype=np.int64)
                    for _, places in _places(task, lookups, part):
                        widths += places >= 0
                    counts += np.bincount(widths, minlength=counts.size)
                else:
                    _bounded(task, lookups, part, counts)
        yield from chunks(flat)

    return count


def _lookup(table: Table) -> Ints | None:
    """Return the place of each cell among a table's known tuples, -1 where it is none; None where they are searched, or all are."""
    if table.known is None or table.cells > _DENSE:
        return None
    places = np.full(table.cells, -1, dtype=np.int64)
    places[table.known] = np.arange(table.first, table.first + table.known.size)
    return places


def _places(task: Tuples, lookups: list[Ints | None], codes: Sequence[Ints]) -> Iterator[tuple[int, Ints]]:
    """Yield, for each table, the place of every row's tuple among the known ones; -1 where it is none of them."""
    # A code behind the values stands for an empty cell, which is in no tuple.
    full = [column < size if limit > size else None for column, size, limit in zip(codes, task.sizes, task.limits, strict=True)]
    inside = [column if fine is None else np.where(fine, column, 0) for column, fine in zip(codes, full, strict=True)]
    for number, (table, lookup) in enumerate(zip(task.tables, lookups, strict=True)):
        cell: Ints = inside[table.clique[0]]
        for position in table.clique[1:]:
            cell = cell * task.sizes[position] + inside[position]
        if lookup is not None:
            places = lookup[cell]
        elif table.known is None:
            places = cell + table.first
        else:
            near = np.minimum(np.searchsorted(table.known, cell), table.known.size - 1)
            places = np.where(table.known[near] == cell, near + table.first, -1)
        for position in table.clique:
            if (fine := full[position]) is not None:
                places = np.where(fine, places, -1)
        yield number, places


def mixed(words: Words) -> Words:
    """Return words that look random, each a function of one word (the last step of SplitMix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _bounded(task: Tuples, lookups: list[Ints | None], codes: Sequence[Ints], counts: Ints) -> None:
    """Count every row's tuples, or ``most`` of them."""
    matrix = np.empty((len(task.tables), codes[0].size), dtype=np.int64)
    for number, places in _places(task, lookups, codes):
        matrix[number] = places
    has = matrix >= 0
    wide = has.sum(axis=0) > task.most
    narrow = matrix[:, ~wide]
    np.add.at(counts, narrow[narrow >= 0], 1)
    if task.most == 0 or not wide.any():
        return
    matrix, has = matrix[:, wide], has[:, wide]
    rows = np.full(matrix.shape[1], task.salt, dtype=np.uint64)
    for column in codes:
        rows = mixed(rows * np.uint64(_ODD) + column[wide].astype(np.uint64))
    # The tuples that a row has get a rank each that looks random over the salts, the others come last: the first `most` are kept.
    ranks = np.full(matrix.shape, _NONE, dtype=np.uint64)
    tuples, of_row = matrix[has].astype(np.uint64), np.broadcast_to(rows, matrix.shape)[has]
    ranks[has] = mixed(of_row ^ mixed(tuples * np.uint64(_ODD))) >> np.uint64(1)
    kept = np.take_along_axis(matrix, np.argpartition(ranks, task.most - 1, axis=0)[: task.most], axis=0)
    np.add.at(counts, kept[kept >= 0], 1)
