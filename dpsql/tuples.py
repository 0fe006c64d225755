"""k-tuples of encoded rows, in SQL: which ones to count, and how many rows have each of them.

A tuple of k attributes is a candidate if every tuple of k - 1 of them was kept. Candidates are joined from kept tuples, which are
released; only `count_tuples` reads rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import numpy as np
import pandas as pd
from sqlglot import exp

from dpsql.counting import table_query
from dpsql.encoding import guarded
from dpsql.errors import DpsqlError
from dpsql.methods.base import IntArray
from dpsql.methods.tuple_index import TupleIndex

MAX_CANDIDATES = 50_000_000
_BATCH = 32  # as in dpsql.counting


def candidates(cursor: duckdb.DuckDBPyConnection, index: TupleIndex, k: int, kept: IntArray) -> IntArray:
    """Return the keys of the tuples to count at level k, ascending.

    Parameters
    ----------
    index : TupleIndex
    k : int, 1 ... R
    kept : int64 array
        Keys of level k - 1 that were kept, ascending; not used for k = 1, whose candidates are all attributes of the domain.

    Raises
    ------
    DpsqlError
        There are more than ``MAX_CANDIDATES``.

    Notes
    -----
    Privacy: post-processing of released counts.
    """
    if k == 1:
        return np.arange(*index.level_keys(1), dtype=np.int64)
    if kept.size == 0:
        return np.zeros(0, dtype=np.int64)
    attributes = index.attributes(kept, k - 1)
    frame = pd.DataFrame({f"a{i}": attributes[:, i].astype(np.uint32) for i in range(k - 1)})
    frame["last_column"] = index.columns_of_attributes[attributes[:, -1]].astype(np.uint32)
    with _registered(cursor, frame) as name:
        joined = _join(name, k)
        row = cursor.execute(f"SELECT count(*) FROM ({joined})").fetchone()  # noqa: S608 -- fixed names
        number = int(row[0]) if row else 0
        if number > MAX_CANDIDATES:
            raise DpsqlError(
                f"level {k} has {number} tuples to count, at most {MAX_CANDIDATES} can be; buy another release with a smaller "
                "reporting_length, fewer columns, or fabrication 'minimize'"
            )
        found = cursor.execute(joined).fetchnumpy()
    return np.sort(index.keys(np.stack([np.asarray(found[f"a{i}"], dtype=np.int64) for i in range(k)], axis=1)))


def _join(name: str, k: int) -> str:
    """Return the tuples (a0, ..., a(k-1)) all of whose parts are in the relation of tuples (a0, ..., a(k-2)).

    Two tuples that agree but for their last attributes, of different columns, are joined; then each tuple that lacks one of
    the first k - 2 attributes has to be there too.
    """
    same = [f"l.a{i} = r.a{i}" for i in range(k - 2)]
    columns = [f"l.a{i} AS a{i}" for i in range(k - 1)] + [f"r.a{k - 2} AS a{k - 1}"]
    on = " AND ".join([*same, "l.last_column < r.last_column"])
    query = f"SELECT {', '.join(columns)} FROM {name} l JOIN {name} r ON {on}"  # noqa: S608 -- fixed names
    for left_out in range(k - 2):
        rest = [i for i in range(k) if i != left_out]
        equal = " AND ".join(f"s.a{place} = t.a{i}" for place, i in enumerate(rest))
        query = f"SELECT t.* FROM ({query}) t SEMI JOIN {name} s ON {equal}"  # noqa: S608
    return query


def count_tuples(cursor: duckdb.DuckDBPyConnection, codes_table: str, index: TupleIndex, keys: IntArray) -> IntArray:
    """Count the rows that have each tuple.

    Parameters
    ----------
    codes_table : str
        Name of the table of codes, columns c0, c1, ...; no NULL.
    keys : int64 array
        Keys of one level, ascending.

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
    tables = np.unique(index.tables_of(keys)).tolist()
    for at in range(0, len(tables), _BATCH):
        batch = tables[at : at + _BATCH]
        start, end = index.starts[batch[0]], index.ends[batch[-1]]
        first, behind = np.searchsorted(keys, [start, end])
        parts = [table_query(codes_table, index.sizes, index.cliques[t], int(index.starts[t])) for t in batch]
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


@contextmanager
def _registered(cursor: duckdb.DuckDBPyConnection, frame: pd.DataFrame) -> Iterator[str]:
    name = f"__dp_tuples_{uuid.uuid4().hex}"
    cursor.register(name, frame)
    try:
        yield name
    finally:
        cursor.unregister(name)
