"""Which tuples of a level are counted: joined from the kept ones of the level before, which are released. No row is read.

A tuple of k attributes is a candidate if every tuple of k - 1 of them was kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np
import pandas as pd

from dpsql.engines.duckdb.registered import registered
from dpsql.numerics.arrays import IntArray
from dpsql.running.machine import memory_mb
from dpsql.tables.tuple_index import TupleIndex

MAX_CANDIDATES = 50_000_000
"""Tuples of one level that are counted, at most."""

MAX_JOINED = 2_000_000_000
"""Pairs of kept tuples that are looked at for the next level, at most: some seconds."""

_FEWEST = 100_000


@dataclass(frozen=True)
class Candidates:
    """The tuples to count at one level.

    Parameters
    ----------
    keys : int64 array
        Ascending.
    extended : int
        How many of the kept tuples of the level before they are made of: all, or those with the largest counts.
    limit : int
        What their number was limited to.
    """

    keys: IntArray
    extended: int
    limit: int


def most_candidates(k: int) -> int:
    """Return how many tuples of level k are counted at most: what half of the memory there is holds, or ``MAX_CANDIDATES``.

    Privacy: a function of the machine. How many candidates there are is one of noisy counts, so that running out of memory would
    be a function of them as well, and could be tried again.
    """
    memory = memory_mb()
    if memory is None:
        return MAX_CANDIDATES
    return min(MAX_CANDIDATES, max(_FEWEST, int(5e5 * memory / (100 + 40 * k))))  # bytes: keys, attributes, counts, their copies


def candidates(cursor: duckdb.DuckDBPyConnection, index: TupleIndex, k: int, kept: IntArray, counts: IntArray) -> Candidates:
    """Return the tuples to count at level k: all whose parts were kept, or of too many those with the most frequent parts.

    Parameters
    ----------
    index : TupleIndex
    k : int, 1 ... R
    kept : int64 array
        Keys of level k - 1 that were kept, ascending; not used for k = 1, whose candidates are all attributes of the domain.
    counts : int64 array of the same length
        Their released counts.

    Notes
    -----
    Privacy: post-processing of released counts, without any failure that depends on them: what is too much is left out. Kept
    tuples are ranked by count, ties by key; the longest beginning of that list is extended whose candidates are within the
    limits.
    """
    limit = most_candidates(k)
    if k == 1:
        return Candidates(np.arange(*index.level_keys(1), dtype=np.int64), 0, limit)
    if kept.size == 0:
        return Candidates(np.zeros(0, dtype=np.int64), 0, limit)
    attributes = index.attributes(kept, k - 1)
    frame = pd.DataFrame({f"a{i}": attributes[:, i].astype(np.uint32) for i in range(k - 1)})
    frame["last_column"] = index.columns_of_attributes[attributes[:, -1]].astype(np.uint32)
    frame["place"] = _places(kept, counts)
    joined = _joined(index, attributes, frame)
    extended = int(np.searchsorted(joined, limit if k == 2 else MAX_JOINED, side="right"))
    if k > 2 and joined[extended - 1] > limit:  # joined, most of them may lack another part
        with registered(cursor, frame[frame["place"] < extended]) as name:
            joins = _join(name, k, placed=True)
            news = cursor.execute(f"SELECT place, count(*) AS n FROM ({joins}) GROUP BY place").fetchnumpy()  # noqa: S608
        new = np.zeros(extended, dtype=np.int64)
        new[np.asarray(news["place"], dtype=np.int64)] = np.asarray(news["n"], dtype=np.int64)
        extended = int(np.searchsorted(np.cumsum(new), limit, side="right"))
    with registered(cursor, frame[frame["place"] < extended]) as name:
        tuples = cursor.execute(_join(name, k)).fetchnumpy()
    keys = index.keys(np.stack([np.asarray(tuples[f"a{i}"], dtype=np.int64) for i in range(k)], axis=1))
    return Candidates(np.sort(keys), extended, limit)


def _places(kept: IntArray, counts: IntArray) -> IntArray:
    """Return the place of every tuple in the order of falling counts, ties by key."""
    places = np.empty(kept.size, dtype=np.int64)
    places[np.lexsort((kept, -counts))] = np.arange(kept.size)
    return places


def _joined(index: TupleIndex, attributes: IntArray, frame: pd.DataFrame) -> IntArray:
    """Return how many pairs of tuples are joined if the first 1, 2, ... of the list are extended; see `_join`."""
    order = np.argsort(frame["place"].to_numpy())
    prefix = np.zeros(order.size, dtype=np.int64)
    if attributes.shape[1] > 1:
        prefix = np.unique(index.keys(attributes[:, :-1]), return_inverse=True)[1].reshape(-1)
    column = frame["last_column"].to_numpy().astype(np.int64)
    groups = prefix[order], (prefix * len(index.sizes) + column)[order]
    return np.cumsum(_earlier(groups[0]) - _earlier(groups[1]))


def _earlier(groups: IntArray) -> IntArray:
    """Return how many earlier entries are of the same group."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    earlier = np.empty(groups.size, dtype=np.int64)
    earlier[order] = np.arange(groups.size) - np.searchsorted(ordered, ordered)
    return earlier


def _join(name: str, k: int, *, placed: bool = False) -> str:
    """Return the tuples (a0, ..., a(k-1)) all of whose parts are in the relation of tuples (a0, ..., a(k-2)).

    Two tuples that agree but for their last attributes, of different columns, are joined; then each tuple that lacks one of
    the first k - 2 attributes has to be there too. ``placed``: with the place of the part that comes last in the list.
    """
    same = [f"l.a{i} = r.a{i}" for i in range(k - 2)]
    columns = [f"l.a{i} AS a{i}" for i in range(k - 1)] + [f"r.a{k - 2} AS a{k - 1}"]
    on = " AND ".join([*same, "l.last_column < r.last_column"])
    place = ", greatest(l.place, r.place) AS place" if placed else ""
    query = f"SELECT {', '.join(columns)}{place} FROM {name} l JOIN {name} r ON {on}"  # noqa: S608 -- fixed names
    kept = ", ".join(f"t.a{i}" for i in range(k))
    place, how = (", greatest(t.place, s.place) AS place", "JOIN") if placed else ("", "SEMI JOIN")
    for left_out in range(k - 2):
        rest = [i for i in range(k) if i != left_out]
        equal = " AND ".join(f"s.a{place_} = t.a{i}" for place_, i in enumerate(rest))
        query = f"SELECT {kept}{place} FROM ({query}) t {how} {name} s ON {equal}"  # noqa: S608
    return query
