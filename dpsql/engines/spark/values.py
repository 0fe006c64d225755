"""Grouped integers of Spark: sums of fixed-point numbers and their products, the texts that occur, and any statement of such.

Only groups come to the driver. Sums that may pass 64 bits are DECIMAL in Spark, and integers of Python here.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dpsql.engines.spark.reading import SparkReading, tasks, withheld
from dpsql.engines.spark.tables import DEFECT, cell_sql
from dpsql.errors import DpsqlError
from dpsql.noise.entropy import clamped
from dpsql.numerics.arrays import Clique, IntArray
from dpsql.tables.counting.roads import check_cliques


def count_moments(
    session: Any, select: str, sizes: Sequence[int], clique: Clique, values: Sequence[str]
) -> tuple[IntArray, IntArray, list[int]]:
    """Count one table, and sum fixed-point values and their products.

    Parameters
    ----------
    session : SparkSession
    select : str
        A SELECT of codes, as in `dpsql.engines.spark.tables.count_select`, and of the values.
    sizes : sequence of int
    clique : tuple of int
        The attributes whose cells are counted; () for one cell.
    values : sequence of str, length p
        Integer columns, below 2^16 in size.

    Returns
    -------
    counts : int64 array of shape (sizes[i] for i in clique)
    sums : int64 array, shape (cells, p)
        Sum of each value per cell.
    products : list of int, length p (p + 1) / 2
        Sum over all rows of the products (0, 0), (0, 1), ..., (1, 1), ....

    Raises
    ------
    DpsqlError
        Spark failed, the reason is withheld; or a row has a code that is missing or none.

    Notes
    -----
    Privacy: exact, secret. They must not leave the process without noise.
    """
    check_cliques(sizes, [clique])
    shape = [sizes[position] for position in clique]
    names = [f"x{i}" for i in range(len(values))]
    summed = [f"CAST({_quoted(value)} AS BIGINT) AS {name}" for name, value in zip(names, values, strict=True)]
    inner = ", ".join([f"{cell_sql(sizes, clique)} AS cell", *summed])
    # A sum of BIGINT would wrap behind 2^63; one of DECIMAL(20, 0) holds 2^33 of the largest.
    sums = [f"sum(CAST({name} AS DECIMAL(20, 0)))" for name in names]
    sums += [f"sum(CAST({a} * {b} AS DECIMAL(20, 0)))" for i, a in enumerate(names) for b in names[i:]]
    coded = f"SELECT /*+ COALESCE({tasks(session)}) */ {inner} FROM ({select}) AS codes"  # noqa: S608 -- our own statement
    text = f"SELECT {', '.join(['cell', 'count(*)', *sums])} FROM ({coded}) AS cells GROUP BY cell"  # noqa: S608
    cells, p = math.prod(shape), len(values)
    counts, totals = np.zeros(cells, dtype=np.int64), np.zeros((cells, p), dtype=np.int64)
    products = [0] * (len(sums) - p)
    for cell, n, *rest in rows(session, text):
        if cell < 0:
            raise DpsqlError(DEFECT)
        counts[cell], totals[cell] = n, clamped(rest[:p])
        products = [total + part for total, part in zip(products, rest[p:], strict=True)]
    return counts.reshape(shape), totals, products


def count_values(session: Any, select: str, column: str) -> tuple[list[str], IntArray]:
    """Count the values that occur in a column of UTF-8 texts (BINARY) of a SELECT.

    Returns
    -------
    texts : list of str
    counts : int64 array of the same length

    Notes
    -----
    Privacy: secret, the list of values too: it may only be shown after a private selection.
    """
    coded = f"SELECT /*+ COALESCE({tasks(session)}) */ {_quoted(column)} AS value FROM ({select}) AS codes"  # noqa: S608
    groups = rows(session, f"SELECT value, count(*) AS n FROM ({coded}) AS texts GROUP BY value")  # noqa: S608
    with withheld():  # `dpsql.engines.spark.relation.viewed` has made all texts UTF-8
        texts = [bytes(text).decode() for text, _ in groups]
    return texts, np.asarray([n for _, n in groups], dtype=np.int64)


def rows(session: Any, statement: str) -> list[tuple[Any, ...]]:
    """Return the result of a statement that groups: rows of Python's values, whole decimals as integers.

    Raises
    ------
    DpsqlError
        Spark failed; the reason is withheld.

    Notes
    -----
    Privacy: secret. The statement must add up or group: what it yields comes to the driver.
    """
    table = _table(session, statement)
    columns = [_plain(column) for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * int(table.num_rows)


def arrays(table: Any) -> dict[str, Any]:
    """Return the columns of a pyarrow table, the result of a statement that groups, by their names.

    Integers and whole decimals become int64, cut off at +-2^62 (`dpsql.noise.entropy.clamped`), missing ones masked; other columns
    are of Python's values.

    Notes
    -----
    Privacy: as `rows`.
    """
    return {name: _array(column) for name, column in zip(table.column_names, table.columns, strict=True)}


def _table(session: Any, statement: str) -> Any:
    with SparkReading(session) as reading:
        return reading.arrow(lambda: session.sql(statement))


def _plain(column: Any) -> list[Any]:
    """Return a column's values; decimals without places behind the point as integers."""
    with withheld():  # a text that is no UTF-8 would be quoted
        values: list[Any] = column.to_pylist()
    whole = str(column.type).startswith("decimal") and column.type.scale == 0
    return [None if value is None else int(value) for value in values] if whole else values


def _array(column: Any) -> Any:
    values = _plain(column)
    kind = str(column.type)
    if kind.startswith("int") or (kind.startswith("decimal") and column.type.scale == 0):
        missing = np.array([value is None for value in values], dtype=np.bool_)
        whole = clamped([value or 0 for value in values])
        return np.ma.MaskedArray(whole, missing) if missing.any() else whole
    objects = np.empty(len(values), dtype=object)
    objects[:] = values
    return objects


@contextmanager
def kept(session: Any, select: str) -> Iterator[str]:
    """Keep what a SELECT yields on Spark's workers until the block ends, and give a SELECT of it, for several readings.

    Notes
    -----
    Privacy: the rows stay on the workers, in memory and on their disks, as those of a shuffle do. An engine may keep nothing, or
    lose what it kept, and read the relation again: nothing relies on equal rows in two statements (`dpsql.engines.base`).
    """
    name = f"dpsql_codes_{secrets.token_hex(8)}"
    with withheld():
        frame = session.sql(select).persist()
        frame.createOrReplaceTempView(name)
    try:
        yield f"SELECT * FROM {name}"  # noqa: S608 -- our own name
    finally:
        with withheld():
            session.catalog.dropTempView(name)
            frame.unpersist()


def _quoted(name: str) -> str:
    """Return an identifier as Spark reads it."""
    return "`" + name.replace("`", "``") + "`"
