"""Count tuples of encoded rows in SQL: how many rows have each of them, and how many of them a row has."""

from __future__ import annotations

import math
import uuid
from collections.abc import Collection, Iterator

import duckdb
import numpy as np
import pandas as pd
from sqlglot import exp

from dpsql.domains.encoding import guarded
from dpsql.engines.duckdb.counting import cell_index, table_query
from dpsql.engines.duckdb.registered import drop, registered
from dpsql.numerics.arrays import Clique, IntArray
from dpsql.tables.tuple_index import TupleIndex

_BATCH = 32  # as in dpsql.engines.duckdb.counting


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
            counted = guarded(cursor, query.sql(dialect="duckdb")).fetchnumpy()
            counts[np.asarray(counted["cell"], dtype=np.int64) - start + first] = np.asarray(counted["n"], dtype=np.int64)
            continue
        # some of many cells: DuckDB joins the counts with those that are asked for, and hands over no others
        frame = pd.DataFrame({"cell": some.astype(np.uint64), "place": np.arange(first, behind)})
        with registered(cursor, frame) as name:
            text = f"SELECT place, n FROM ({query.sql(dialect='duckdb')}) JOIN {name} USING (cell)"  # noqa: S608
            counted = guarded(cursor, text).fetchnumpy()
        counts[np.asarray(counted["place"], dtype=np.int64)] = np.asarray(counted["n"], dtype=np.int64)
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
    with registered(cursor, pd.DataFrame({"cell": keys.astype(np.uint64)})) as known:
        for batch in _batches(index, keys):
            rows = " UNION ALL ".join(_row_keys(codes_table, index, t, empty) for t in batch)
            text = f"SELECT r, count(*) AS s FROM ({rows}) SEMI JOIN {known} USING (cell) GROUP BY r"  # noqa: S608
            guarded(cursor, f"INSERT INTO {name} {text}")
    guarded(cursor, f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT r, sum(s)::INTEGER AS s FROM {name} GROUP BY r")  # noqa: S608
    by_width = guarded(cursor, f"SELECT s, count(*) AS n FROM {name} GROUP BY s").fetchnumpy()  # noqa: S608
    row = guarded(cursor, f'SELECT count(*) FROM "{codes_table}"').fetchone()  # noqa: S608
    histogram = np.zeros(math.comb(len(index.sizes), k) + 1, dtype=np.int64)
    histogram[np.asarray(by_width["s"], dtype=np.int64)] = np.asarray(by_width["n"], dtype=np.int64)
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
    # rows that have no more than `most` keep all their tuples: only the others are ranked
    guarded(cursor, f'CREATE TEMP TABLE {narrow} AS SELECT * FROM "{codes_table}" ANTI JOIN {wide} w ON rowid = w.r')  # noqa: S608
    try:
        counts = count_tuples(cursor, narrow, index, keys, empty)
    finally:
        drop(cursor, narrow)
    rows = " UNION ALL ".join(
        f"SELECT * FROM ({_row_keys(codes_table, index, t, empty)}) SEMI JOIN {wide} w USING (r)"  # noqa: S608
        for batch in _batches(index, keys)
        for t in batch
    )
    if not rows or most == 0:
        return counts
    with registered(cursor, pd.DataFrame({"cell": keys.astype(np.uint64), "place": np.arange(keys.size)})) as known:
        # ranked by the salt, the row and the tuple alone, so that no row's choice depends on another row
        order = f"md5_number_lower(concat_ws(',', '{salt}', r, cell)) ASC, cell ASC"
        rank = f"row_number() OVER (PARTITION BY r ORDER BY {order}) AS rank"
        ranked = f"SELECT place, {rank} FROM ({rows}) JOIN {known} USING (cell)"  # noqa: S608
        text = f"SELECT place, count(*) AS n FROM ({ranked}) WHERE rank <= {int(most)} GROUP BY place"  # noqa: S608
        counted = guarded(cursor, text).fetchnumpy()
    counts[np.asarray(counted["place"], dtype=np.int64)] += np.asarray(counted["n"], dtype=np.int64)
    return counts
