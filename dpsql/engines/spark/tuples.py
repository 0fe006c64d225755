"""Count tuples of encoded rows on Spark: how many rows have each of them, and how many of them a row has.

The known tuples go to the workers with the function that counts; rows stay there. `dpsql.tables.tuple_index` says which tuple a key
is.

Privacy
-------
What `count_bounded` needs is that one row is in at most ``most`` of the counts that arrive, once in each, whatever is run again or
speculatively:

1. A row is in one partition, and a partition in one task: the rows of a SELECT that yields the same rows whenever it is run are
   divided by files, ranges or hashes of values, never by turns (which row is next may differ when a task is run again, and rows
   would be lost or doubled); `coalesce` puts whole partitions together.
2. Which tuples a row keeps follows from a hash with a key, the salt of this count, of the row's codes alone
   (`dpsql.engines.spark.tuple_arrays`): two attempts at a task count the same, so a sum of parts of both is that of either. (With
   chance in the place of the hash a row could have more than ``most`` in such a sum.)
3. There is one reducer (`repartition(1)`), and the driver takes the result of one attempt at it.
4. One job counts all tuples: there is no second pass in which a row could keep others.

Tasks that fail have no output. Nothing is added up beside the shuffle. Levels, and the numbers of tuples of rows, are counted by
statements of their own, each a mechanism by itself (`dpsql.engines.base`).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from dpsql.engines.spark import arrays, shipping
from dpsql.engines.spark.arrays import HEAD
from dpsql.engines.spark.reading import SparkReading, tasks
from dpsql.engines.spark.tables import DEFECT, MOST_CELLS, count_select, wire_sql
from dpsql.engines.spark.tuple_arrays import Table, Tuples, tuple_counting
from dpsql.errors import DpsqlError
from dpsql.numerics.arrays import IntArray
from dpsql.tables.tuple_index import TupleIndex


def count_tuples(
    session: Any, select: str, index: TupleIndex, keys: IntArray, empty: Collection[int] = ()
) -> IntArray:
    """Count the rows that have each tuple.

    Parameters
    ----------
    session : SparkSession
    select : str
        A SELECT of codes, as in `dpsql.engines.spark.tables.count_select`.
    index : TupleIndex
    keys : int64 array
        Keys of one level, ascending.
    empty : collection of int
        Columns whose codes from ``index.sizes[i]`` upwards stand for an empty cell, which is in no tuple.

    Returns
    -------
    int64 array of the same length

    Raises
    ------
    DpsqlError
        Spark failed, the reason is withheld; or a row has a code that is missing or none.

    Notes
    -----
    Privacy: exact, secret counts. They must not leave the process without noise on every one of them. The road is chosen from the
    keys, which are released or public.
    """
    if not keys.size:
        return np.zeros(0, dtype=np.int64)
    present = np.unique(index.tables_of(keys)).tolist()
    wider = [size + (i in empty) for i, size in enumerate(index.sizes)]
    cliques = [index.cliques[t] for t in present]
    if sum(math.prod(wider[i] for i in clique) for clique in cliques) <= MOST_CELLS:  # all cells of the tables in one pass
        tables, _ = count_select(session, _rows_sql(select, index, empty), wider, cliques)
        behind = np.searchsorted(keys, [index.ends[t] for t in present])
        parts, start = [], 0
        for t, clique, stop in zip(present, cliques, behind.tolist(), strict=True):
            whole = tables[clique][tuple(slice(index.sizes[i]) for i in clique)].ravel()
            parts.append(whole[keys[start:stop] - index.starts[t]])
            start = stop
        return np.concatenate(parts)
    return _counted(session, _rows_sql(select, index, empty), _task(index, keys, empty, "count"))[1]


def _rows_sql(select: str, index: TupleIndex, empty: Collection[int]) -> str:
    """Return a SELECT in which all codes of empty cells are the same one, the first behind the values."""
    listed = [
        f"CASE WHEN c{i} >= 0 THEN least(c{i}, {size}) END AS c{i}" if i in empty else f"c{i}" for i, size in enumerate(index.sizes)
    ]
    return f"SELECT {', '.join(listed)} FROM ({select}) AS given"  # noqa: S608 -- our own statement


def widths(
    session: Any, select: str, index: TupleIndex, k: int, keys: IntArray, empty: Collection[int]
) -> IntArray:
    """Count how many of these tuples each row has.

    Parameters
    ----------
    session, select, index, empty
        As in `count_tuples`.
    k : int
    keys : int64 array
        Keys of level k, ascending.

    Returns
    -------
    int64 array, shape (C(d, k) + 1,)
        How many rows have 0, 1, ... of them.

    Notes
    -----
    Privacy: exact, secret.
    """
    total, by_width = _counted(session, _rows_sql(select, index, empty), _task(index, keys, empty, "widths"))
    histogram = np.zeros(math.comb(len(index.sizes), k) + 1, dtype=np.int64)
    histogram[: by_width.size] = by_width
    histogram[0] = total - int(by_width[1:].sum())
    return histogram


def count_bounded(
    session: Any,
    select: str,
    index: TupleIndex,
    keys: IntArray,
    empty: Collection[int],
    *,
    most: int,
    salt: str,
) -> IntArray:
    """Count the rows that have each tuple, where a row keeps at most so many of its tuples, at random.

    Parameters
    ----------
    session, select, index, keys, empty
        As in `count_tuples`.
    most : int, at least 0
        Tuples that a row keeps.
    salt : str
        Fresh random bits as hexadecimal digits, secret until they are forgotten.

    Returns
    -------
    int64 array of the same length

    Notes
    -----
    Privacy: exact, secret counts. A row's tuples are kept without replacement, by a hash of the row's own codes: as by chance over
    the salts, equal rows alike. For any salt a row is in at most ``most`` counts, once in each, and changes nothing of other rows:
    the L2 sensitivity of the counts to one row is the root of ``most``. See the head of this file for tasks that are run again.
    """
    if not keys.size:
        return np.zeros(0, dtype=np.int64)
    task = _task(index, keys, empty, "bounded", int(most), int(salt[:16], 16))
    return _counted(session, _rows_sql(select, index, empty), task)[1]


def _task(
    index: TupleIndex, keys: IntArray, empty: Collection[int], what: str, most: int = 0, salt: int = 0
) -> Tuples:
    """Return what the workers are told."""
    tables = []
    present, firsts = np.unique(index.tables_of(keys), return_index=True)
    for t, first, behind in zip(present.tolist(), firsts.tolist(), [*firsts.tolist(), keys.size][1:], strict=True):
        cells = index.ends[t] - int(index.starts[t])
        # a table all of whose tuples are known needs no list of them
        known = None if behind - first == cells else keys[first:behind] - index.starts[t]
        tables.append(Table(index.cliques[t], cells, known, first))
    limits = tuple(size + (i in empty) for i, size in enumerate(index.sizes))
    return Tuples(index.sizes, limits, tuple(tables), keys.size, what, most, salt)


def _counted(session: Any, select: str, task: Tuples) -> tuple[int, IntArray]:
    """Return the number of rows, and the counts: one job, one reducer."""
    text = wire_sql(select, task.limits)

    def frame() -> Any:
        rows = session.sql(text).coalesce(tasks(session))
        return shipping.mapped(shipping.mapped(rows, tuple_counting(task)).repartition(1), arrays.adding())

    with SparkReading(session) as reading:
        flat = arrays.gathered(reading.arrow(frame), task.length)
    if flat[1]:
        raise DpsqlError(DEFECT)
    return int(flat[0]), flat[HEAD:]
