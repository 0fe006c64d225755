"""k-tuples of encoded rows, in SQL: which ones to count, and how many rows have each of them.

A tuple of k attributes is a candidate if every tuple of k - 1 of them was kept. Candidates are joined from kept tuples, which are
released; only `count_tuples` reads rows.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import duckdb
import numpy as np
import pandas as pd
from sqlglot import exp

from dpsql.domains.encoding import guarded
from dpsql.measure.counting import cell_index, table_query
from dpsql.numerics.arrays import Clique, IntArray
from dpsql.running.machine import memory_mb
from dpsql.tables.tuple_index import TupleIndex

MAX_CANDIDATES = 50_000_000
"""Tuples of one level that are counted, at most."""

MAX_JOINED = 2_000_000_000
"""Pairs of kept tuples that are looked at for the next level, at most: some seconds."""

_BATCH = 32  # as in dpsql.measure.counting
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
        with _registered(cursor, frame[frame["place"] < extended]) as name:
            joins = _join(name, k, placed=True)
            found = cursor.execute(f"SELECT place, count(*) AS n FROM ({joins}) GROUP BY place").fetchnumpy()  # noqa: S608
        new = np.zeros(extended, dtype=np.int64)
        new[np.asarray(found["place"], dtype=np.int64)] = np.asarray(found["n"], dtype=np.int64)
        extended = int(np.searchsorted(np.cumsum(new), limit, side="right"))
    with _registered(cursor, frame[frame["place"] < extended]) as name:
        found = cursor.execute(_join(name, k)).fetchnumpy()
    keys = index.keys(np.stack([np.asarray(found[f"a{i}"], dtype=np.int64) for i in range(k)], axis=1))
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
    found = np.empty(groups.size, dtype=np.int64)
    found[order] = np.arange(groups.size) - np.searchsorted(ordered, ordered)
    return found


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


def count_tuples(
    cursor: duckdb.DuckDBPyConnection, codes_table: str, index: TupleIndex, keys: IntArray, empty: Collection[int] = ()
) -> IntArray:
    """Count the rows that have each tuple.

    Parameters
    ----------
    codes_table : str
        Name of the table of codes, columns c0, c1, ...; no NULL.
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
        DuckDB failed; the reason is withheld.

    Notes
    -----
    Privacy: exact, secret counts. They must not leave the process without noise on every one of them.
    """
    counts = np.zeros(keys.size, dtype=np.int64)
    for batch in _batches(index, keys):
        start, end = index.starts[batch[0]], index.ends[batch[-1]]
        first, behind = np.searchsorted(keys, [start, end])
        parts = [_filled(codes_table, index, t, empty) for t in batch]
        query = parts[0] if len(parts) == 1 else exp.union(*parts, distinct=False, copy=False)
        some = keys[first:behind]
        if some.size == end - start:  # every cell of these tables: the key says where its count goes
            found = guarded(cursor, query.sql(dialect="duckdb")).fetchnumpy()
            counts[np.asarray(found["cell"], dtype=np.int64) - start + first] = np.asarray(found["n"], dtype=np.int64)
            continue
        frame = pd.DataFrame({"cell": some.astype(np.uint64), "place": np.arange(first, behind)})
        with _registered(cursor, frame) as name:
            text = f"SELECT place, n FROM ({query.sql(dialect='duckdb')}) JOIN {name} USING (cell)"  # noqa: S608
            found = guarded(cursor, text).fetchnumpy()
        counts[np.asarray(found["place"], dtype=np.int64)] = np.asarray(found["n"], dtype=np.int64)
    return counts


def _filled(codes_table: str, index: TupleIndex, table: int, empty: Collection[int]) -> exp.Select:
    """Return the counts of one table over the rows that have a value in all of its columns, by key."""
    clique = index.cliques[table]
    query = table_query(codes_table, index.sizes, clique, int(index.starts[table]))
    return query.where(*_has_values(index, clique, empty), copy=False)


def _has_values(index: TupleIndex, clique: Clique, empty: Collection[int]) -> list[exp.Expression]:
    return [
        exp.LT(this=exp.column(f"c{i}", quoted=True), expression=exp.Literal.number(index.sizes[i])) for i in clique if i in empty
    ]


def widths(
    cursor: duckdb.DuckDBPyConnection, codes_table: str, index: TupleIndex, k: int, keys: IntArray, empty: Collection[int]
) -> tuple[str, IntArray]:
    """Count how many of these tuples each row has.

    Parameters
    ----------
    keys : int64 array
        Keys of level k, ascending.

    Returns
    -------
    name : str
        A TEMP table (r, s): row id and number of tuples, for the rows that have any; the caller drops it.
    histogram : int64 array, shape (C(d, k) + 1,)
        How many rows have 0, 1, ... of them.

    Notes
    -----
    Privacy: exact, secret.
    """
    name = f"__dp_widths_{uuid.uuid4().hex}"
    guarded(cursor, f"CREATE TEMP TABLE {name} (r BIGINT, s INTEGER)")
    with _registered(cursor, pd.DataFrame({"cell": keys.astype(np.uint64)})) as known:
        for batch in _batches(index, keys):
            rows = " UNION ALL ".join(_row_keys(codes_table, index, t, empty) for t in batch)
            text = f"SELECT r, count(*) AS s FROM ({rows}) SEMI JOIN {known} USING (cell) GROUP BY r"  # noqa: S608
            guarded(cursor, f"INSERT INTO {name} {text}")
    guarded(cursor, f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT r, sum(s)::INTEGER AS s FROM {name} GROUP BY r")  # noqa: S608
    found = guarded(cursor, f"SELECT s, count(*) AS n FROM {name} GROUP BY s").fetchnumpy()  # noqa: S608
    row = guarded(cursor, f'SELECT count(*) FROM "{codes_table}"').fetchone()  # noqa: S608
    histogram = np.zeros(math.comb(len(index.sizes), k) + 1, dtype=np.int64)
    histogram[np.asarray(found["s"], dtype=np.int64)] = np.asarray(found["n"], dtype=np.int64)
    histogram[0] = (int(row[0]) if row else 0) - int(histogram[1:].sum())
    return name, histogram


def _batches(index: TupleIndex, keys: IntArray) -> Iterator[list[int]]:
    """Yield the tables that these keys are in, a few at a time."""
    tables = np.unique(index.tables_of(keys)).tolist()
    for at in range(0, len(tables), _BATCH):
        yield tables[at : at + _BATCH]


def _row_keys(codes_table: str, index: TupleIndex, table: int, empty: Collection[int]) -> str:
    """Return (r, cell): the key of every row in one table."""
    clique = index.cliques[table]
    columns = [exp.column(f"c{i}", quoted=True) for i in clique]
    start = exp.cast(exp.Literal.number(int(index.starts[table])), exp.DataType.build("UBIGINT", dialect="duckdb"))
    cell = exp.Add(this=cell_index(columns, [index.sizes[i] for i in clique]), expression=start)
    query = exp.select(exp.alias_(exp.column("rowid"), "r"), exp.alias_(cell, "cell"))
    query = query.from_(exp.to_table(exp.to_identifier(codes_table, quoted=True)))
    return str(query.where(*_has_values(index, clique, empty)).sql(dialect="duckdb"))


def count_bounded(
    cursor: duckdb.DuckDBPyConnection,
    codes_table: str,
    index: TupleIndex,
    keys: IntArray,
    empty: Collection[int],
    *,
    row_widths: str,
    most: int,
    salt: str,
) -> IntArray:
    """Count the rows that have each tuple, where a row keeps at most so many of its tuples, at random.

    Parameters
    ----------
    row_widths : str
        The table of `widths` for the same keys.
    most : int, at least 0
        Tuples that a row keeps.
    salt : str
        128 fresh random bits as hexadecimal digits, secret until it is forgotten.

    Returns
    -------
    int64 array of the same length

    Notes
    -----
    Privacy: exact, secret counts. A row's tuples are kept by the order of a salted hash of (row, tuple): uniformly, without
    replacement, and whatever other rows there are. So a row is in at most ``most`` counts, once in each: their L2 sensitivity to
    one row is the root of ``most``.
    """
    token = uuid.uuid4().hex
    narrow = f"__dp_narrow_{token}"
    wide = f"(SELECT r FROM {row_widths} WHERE s > {int(most)})"  # noqa: S608
    guarded(cursor, f'CREATE TEMP TABLE {narrow} AS SELECT * FROM "{codes_table}" ANTI JOIN {wide} w ON rowid = w.r')  # noqa: S608
    try:
        counts = count_tuples(cursor, narrow, index, keys, empty)
    finally:
        cursor.execute(f"DROP TABLE IF EXISTS {narrow}")
    rows = " UNION ALL ".join(
        f"SELECT * FROM ({_row_keys(codes_table, index, t, empty)}) SEMI JOIN {wide} w USING (r)"  # noqa: S608
        for batch in _batches(index, keys)
        for t in batch
    )
    if not rows or most == 0:
        return counts
    with _registered(cursor, pd.DataFrame({"cell": keys.astype(np.uint64), "place": np.arange(keys.size)})) as known:
        order = f"md5_number_lower(concat_ws(',', '{salt}', r, cell)) ASC, cell ASC"
        rank = f"row_number() OVER (PARTITION BY r ORDER BY {order}) AS rank"
        ranked = f"SELECT place, {rank} FROM ({rows}) JOIN {known} USING (cell)"  # noqa: S608
        text = f"SELECT place, count(*) AS n FROM ({ranked}) WHERE rank <= {int(most)} GROUP BY place"  # noqa: S608
        found = guarded(cursor, text).fetchnumpy()
    counts[np.asarray(found["place"], dtype=np.int64)] += np.asarray(found["n"], dtype=np.int64)
    return counts


@contextmanager
def _registered(cursor: duckdb.DuckDBPyConnection, frame: pd.DataFrame) -> Iterator[str]:
    name = f"__dp_tuples_{uuid.uuid4().hex}"
    cursor.register(name, frame)
    try:
        yield name
    finally:
        with suppress(duckdb.Error):  # the cursor is closed soon, and the frame goes with it
            cursor.execute("SELECT 1").fetchall()  # DuckDB 2.0 lets nothing go while a result was not read to its end
            cursor.unregister(name)
