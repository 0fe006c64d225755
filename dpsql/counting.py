"""Contingency tables of encoded rows, counted in SQL: exact, every cell of the public domain, the empty ones too."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import duckdb
import numpy as np
from sqlglot import exp

from dpsql.encoding import guarded
from dpsql.errors import ArgumentError, DomainError
from dpsql.methods.base import Clique, IntArray

MAX_CELLS = 2**28
# One statement for this many tables: planning costs less per table, and DuckDB runs the parts side by side. On 1.4, 1.5 and
# 2.0 this beats one statement a table at any size, and GROUPING SETS except on 2.0 with a million rows.
_BATCH = 32


def cell_index(codes: Sequence[exp.Expression], sizes: Sequence[int]) -> exp.Expression:
    """Return the row-major index of a cell as UBIGINT, which holds every index below ``MAX_CELLS`` ** 2.

    Examples
    --------
    >>> cell_index([exp.column("c0"), exp.column("c2")], [4, 3]).sql(dialect="duckdb")
    'CAST(c0 AS UBIGINT) * 3 + c2'
    """
    if not codes:
        return exp.Literal.number(0)
    index = exp.cast(codes[0].copy(), exp.DataType.build("UBIGINT", dialect="duckdb"))
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        left: exp.Expression = exp.Paren(this=index) if isinstance(index, exp.Add) else index
        index = exp.Add(this=exp.Mul(this=left, expression=exp.Literal.number(size)), expression=code.copy())
    return index


def check_cliques(sizes: Sequence[int], cliques: Iterable[Clique]) -> None:
    """Refuse cliques that do not name attributes, name one twice, or have too many cells to count.

    Raises
    ------
    ArgumentError
        A position is not between 0 and the number of attributes, or is repeated.
    DomainError
        A table has more than ``MAX_CELLS`` cells.
    """
    for clique in cliques:
        if len(set(clique)) < len(clique) or not all(0 <= position < len(sizes) for position in clique):
            raise ArgumentError("cliques", clique, f"distinct positions from 0 to {len(sizes) - 1} are required")
        cells = math.prod(sizes[position] for position in clique)
        if cells > MAX_CELLS:
            raise DomainError(
                f"the table over attributes {clique} has {cells} cells, at most {MAX_CELLS} can be counted; "
                "choose fewer columns or coarser bins"
            )


def count_tables(
    cursor: duckdb.DuckDBPyConnection, codes_table: str, sizes: Sequence[int], cliques: Sequence[Clique]
) -> dict[Clique, IntArray]:
    """Count contingency tables.

    Parameters
    ----------
    cursor : DuckDB cursor
        The one that `dpsql.encoding.encode` was called with.
    codes_table : str
        Name of the table of codes, columns c0, c1, ...; no NULL.
    sizes : sequence of int, length m
        Number of codes of each attribute.
    cliques : sequence of tuples of int
        Attribute positions. The empty tuple counts all rows.

    Returns
    -------
    dict of clique to int64 array of shape (sizes[i] for i in clique)
        Exact counts; each table sums to the number of rows.

    Raises
    ------
    ArgumentError, DomainError
        See `check_cliques`.
    DpsqlError
        DuckDB failed; the reason is withheld.

    Notes
    -----
    Privacy: exact, secret counts. They must not leave the process without noise on every cell.
    """
    check_cliques(sizes, cliques)
    found: dict[Clique, IntArray] = {}
    distinct = list(dict.fromkeys(cliques))
    for start in range(0, len(distinct), _BATCH):
        batch = distinct[start : start + _BATCH]
        lengths = [math.prod(sizes[position] for position in clique) for clique in batch]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        parts = [table_query(codes_table, sizes, clique, int(o)) for clique, o in zip(batch, offsets[:-1], strict=True)]
        query = parts[0] if len(parts) == 1 else exp.union(*parts, distinct=False, copy=False)
        fetched = guarded(cursor, query.sql(dialect="duckdb")).fetchnumpy()
        flat = np.zeros(int(offsets[-1]), dtype=np.int64)
        flat[np.asarray(fetched["cell"], dtype=np.int64)] = np.asarray(fetched["n"], dtype=np.int64)
        for clique, a, b in zip(batch, offsets[:-1], offsets[1:], strict=True):
            found[clique] = flat[a:b].reshape([sizes[position] for position in clique])
    return found


def table_query(codes_table: str, sizes: Sequence[int], clique: Clique, offset: int) -> exp.Select:
    """Return the non-empty cells of one table: (cell, n), the cell's index moved by ``offset``."""
    columns = [exp.column(f"c{position}", quoted=True) for position in clique]
    index = cell_index(columns, [sizes[position] for position in clique])
    cell = exp.Add(this=index, expression=exp.cast(exp.Literal.number(offset), exp.DataType.build("UBIGINT", dialect="duckdb")))
    query = exp.select(exp.alias_(cell, "cell"), exp.alias_(exp.Count(this=exp.Star()), "n"))
    # Grouping by the codes, not by the index: DuckDB aggregates small unsigned columns without hashing.
    return query.from_(exp.to_table(exp.to_identifier(codes_table, quoted=True))).group_by(*columns)


def count_moments(
    cursor: duckdb.DuckDBPyConnection, codes_table: str, sizes: Sequence[int], clique: Clique, values: Sequence[str]
) -> tuple[IntArray, IntArray, list[int]]:
    """Count one table, and sum fixed-point values and their products.

    Parameters
    ----------
    clique : tuple of int
        The attributes whose cells are counted; () for one cell.
    values : sequence of str, length p
        Integer columns of the table of codes, below 2^16 in size.

    Returns
    -------
    counts : int64 array of shape (sizes[i] for i in clique)
    sums : int64 array, shape (cells, p)
        Sum of each value per cell.
    products : list of int, length p (p + 1) / 2
        Sum over all rows of the products (0, 0), (0, 1), ..., (1, 1), ....

    Notes
    -----
    Privacy: exact, secret. They must not leave the process without noise.
    """
    check_cliques(sizes, [clique])
    shape = [sizes[position] for position in clique]
    columns = [exp.column(f"c{position}", quoted=True) for position in clique]
    numbers = [exp.cast(exp.column(name, quoted=True), exp.DataType.build("BIGINT", dialect="duckdb")) for name in values]
    pairs = [(a, b) for i, a in enumerate(numbers) for b in numbers[i:]]
    query = exp.select(
        exp.alias_(cell_index(columns, shape), "cell"),
        exp.alias_(exp.Count(this=exp.Star()), "n"),
        *(exp.alias_(exp.Sum(this=number.copy()), f"s{i}") for i, number in enumerate(numbers)),
        *(exp.alias_(exp.Sum(this=exp.Mul(this=a.copy(), expression=b.copy())), f"p{i}") for i, (a, b) in enumerate(pairs)),
    ).from_(exp.to_table(exp.to_identifier(codes_table, quoted=True)))
    rows = guarded(cursor, query.group_by(*columns).sql(dialect="duckdb")).fetchall()
    cells = math.prod(shape)
    counts, sums = np.zeros(cells, dtype=np.int64), np.zeros((cells, len(values)), dtype=np.int64)
    products = [0] * len(pairs)
    for cell, n, *rest in rows:
        if n == 0:  # no rows at all: a sum of nothing is NULL
            continue
        counts[cell], sums[cell] = n, rest[: len(values)]
        products = [total + int(part) for total, part in zip(products, rest[len(values) :], strict=True)]
    return counts.reshape(shape), sums, products


def count_values(cursor: duckdb.DuckDBPyConnection, codes_table: str, column: str) -> tuple[list[str], IntArray]:
    """Count the values that occur in a column of UTF-8 texts (`dpsql.encoding.value_text`).

    Returns
    -------
    texts : list of str
    counts : int64 array of the same length

    Notes
    -----
    Privacy: secret, the list of values too: it may only be shown after a private selection.
    """
    value = exp.column(column, quoted=True)
    query = exp.select(exp.alias_(value, "value"), exp.alias_(exp.Count(this=exp.Star()), "n"))
    query = query.from_(exp.to_table(exp.to_identifier(codes_table, quoted=True))).group_by(value.copy())
    rows = guarded(cursor, query.sql(dialect="duckdb")).fetchall()
    return [bytes(text).decode() for text, _ in rows], np.asarray([n for _, n in rows], dtype=np.int64)
