"""Contingency tables of encoded rows: exact, every cell of the public domain, the empty ones too."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import Any

import duckdb
import numpy as np
from sqlglot import exp

from dpsql.domains.codes import code_type
from dpsql.domains.encoding import guarded, withheld
from dpsql.engines.duckdb.registered import drop
from dpsql.errors import DpsqlError
from dpsql.noise.entropy import clamped
from dpsql.numerics.arrays import Clique, IntArray
from dpsql.running import progress
from dpsql.running.background import Background
from dpsql.running.parallel import waited
from dpsql.tables.counting.fold import Codes, FoldCounter
from dpsql.tables.counting.gram import GramCounter
from dpsql.tables.counting.roads import Cliques, Work, check_cliques, choose, folds
from dpsql.tables.flat import FlatTables, cell_counts
from dpsql.text.relation import identifier

# One statement for this many tables: planning costs less per table, and DuckDB runs the parts side by side. On 1.4, 1.5 and
# 2.0 this beats one statement a table at any size, and GROUPING SETS except on 2.0 with a million rows.
_BATCH = 32
_VECTOR = 2048  # rows that DuckDB hands over together
_CHUNK_BYTES = 1 << 25  # larger ones are slower: they leave the caches
_NUMPY = {"UTINYINT": np.uint8, "USMALLINT": np.uint16, "UINTEGER": np.uint32}


def cell_index(codes: Sequence[exp.Expression], sizes: Sequence[int]) -> exp.Expression:
    """Return the row-major index of a cell as UBIGINT, which holds every index below 2^56.

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


def count_tables(
    cursor: duckdb.DuckDBPyConnection, codes_table: str, sizes: Sequence[int], cliques: Sequence[Clique]
) -> FlatTables:
    """Count contingency tables of a table of codes.

    Parameters
    ----------
    cursor : DuckDB cursor
        The one that `dpsql.domains.encoding.encode` was called with.
    codes_table : str
        Name of the table of codes, columns c0, c1, ...; no NULL.
    sizes : sequence of int, length m
        Number of codes of each attribute.
    cliques : sequence of tuples of int
        Attribute positions. The empty tuple counts all rows.

    Returns
    -------
    FlatTables
        Clique to int64 array of shape (sizes[i] for i in clique), in the order given, repeated cliques once. Exact counts; each
        table sums to the number of rows.

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
    distinct = list(dict.fromkeys(cliques))
    check_cliques(sizes, distinct)
    used = sorted(set().union(*distinct)) if distinct else []
    place = {position: i for i, position in enumerate(used)}
    columns = [exp.column(f"c{position}", quoted=True).as_(f"c{i}", quoted=True) for position, i in place.items()]
    query = exp.select(*(columns or [exp.Literal.number(1).as_("c0")])).from_(exp.to_identifier(codes_table, quoted=True))
    within = distinct if len(used) == len(sizes) else [tuple(place[position] for position in clique) for clique in distinct]
    tables, _ = count_select(cursor, query.sql(dialect="duckdb"), [sizes[position] for position in used], within)
    return FlatTables(sizes, distinct, tables.flat)


def count_select(
    cursor: duckdb.DuckDBPyConnection, select: str, sizes: Sequence[int], cliques: Sequence[Clique]
) -> tuple[FlatTables, int]:
    """Count contingency tables of what a SELECT yields, without keeping its rows where one pass over them is enough.

    Parameters
    ----------
    select : str
        A SELECT of codes as in `dpsql.domains.encoding.encode_sql`: columns c0, c1, ..., in this order.
    sizes, cliques
        As in `count_tables`.

    Returns
    -------
    tables : FlatTables
    total : int
        Number of rows.

    Raises
    ------
    ArgumentError, DomainError, DpsqlError
        As in `count_tables`.

    Notes
    -----
    Privacy: exact, secret counts. The road is chosen from the sizes and cliques alone. Memory does not grow with the rows.
    """
    distinct = list(dict.fromkeys(cliques))
    check_cliques(sizes, distinct)
    # The number of rows is the sum of any table; where there is none it is counted as the table of no attributes.
    asked = distinct or [()]
    work = choose(sizes, asked)
    tables = FlatTables(sizes, asked, np.zeros(int(cell_counts(sizes, asked).sum()), dtype=np.int64))
    if work.road == "sql":
        _group(cursor, select, tables)
    else:
        _stream(cursor, select, work, tables)
    total = int(tables.flat[: tables.offsets[1]].sum())
    return (tables if distinct else FlatTables(sizes, [], np.zeros(0, dtype=np.int64))), total


def _group(cursor: duckdb.DuckDBPyConnection, select: str, tables: FlatTables) -> None:
    """Count with GROUP BY: one table straight from the SELECT, more of them from a TEMP table of its rows."""
    if len(tables) == 1:
        query = table_query("codes", tables.sizes, tables.cliques[0], 0).sql(dialect="duckdb")
        with ProtectedReading(cursor) as background:
            _take(tables, background.numpy(f"WITH codes AS ({select}) {query}"))
        return
    name = f"__dp_codes_{secrets.token_hex(8)}"
    try:
        with ProtectedReading(cursor) as background:
            background.numpy(f"CREATE TEMP TABLE {identifier(name)} AS {select}")
            for start in range(0, len(tables), _BATCH):
                batch = range(start, min(start + _BATCH, len(tables)))
                parts = [table_query(name, tables.sizes, tables.cliques[i], int(tables.offsets[i])) for i in batch]
                query = (parts[0] if len(parts) == 1 else exp.union(*parts, distinct=False, copy=False)).sql(dialect="duckdb")
                _take(tables, background.numpy(query))
                progress.advance((start + _BATCH) / len(tables))
    finally:
        drop(cursor, name)


def _take(tables: FlatTables, fetched: dict[str, Any]) -> None:
    tables.flat[np.asarray(fetched["cell"], dtype=np.int64)] = np.asarray(fetched["n"], dtype=np.int64)


def _stream(cursor: duckdb.DuckDBPyConnection, select: str, work: Work, tables: FlatTables) -> None:
    """Count in one pass over blocks of rows: DuckDB makes the next one while the last ones are counted."""
    sizes, cliques = tables.sizes, tables.cliques
    rest = Cliques.of(cliques).without(work.in_gram)
    with ExitStack() as stack:
        counters: list[FoldCounter | GramCounter] = []
        if work.gram:
            gram = stack.enter_context(GramCounter(sizes, work.gram, np.flatnonzero(work.in_gram), tables))
            counters.append(gram)
        if rest.by_order:
            counters.append(FoldCounter(tables, folds(sizes, rest, cliques, work.budget)))
        for codes in _blocks(stack.enter_context(ProtectedReading(cursor)), select, sizes):
            for counter in counters:
                counter.add(codes)
        for counter in counters:
            counter.finish()


def _blocks(background: ProtectedReading, select: str, sizes: Sequence[int]) -> Iterator[Codes]:
    """Yield blocks of rows, an array of codes for each attribute, and read one ahead."""
    width = sum(np.dtype(_NUMPY[code_type(size)]).itemsize for size in sizes)
    vectors = max(1, min(64, _CHUNK_BYTES // (_VECTOR * max(width, 1))))
    for frame in background.frames(select, vectors):
        codes = [column.to_numpy() for _, column in frame.items()]
        if any(column.dtype.kind != "u" for column in codes[: len(sizes)]):
            raise DpsqlError("source: a code is missing or no code; this is a defect of dpsql, please report it")
        yield codes


class ProtectedReading(Background):
    """Statements that read protected rows: an error of DuckDB is withheld."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        super().__init__(cursor, "dpsql-read")
        self._cursor = cursor

    def numpy(self, statement: str) -> dict[str, Any]:
        """Execute a statement and return its whole result."""
        return self.run(lambda: guarded(self._cursor, statement).fetchnumpy())

    def start(self, statement: str) -> None:
        """Begin a statement whose result is read in chunks."""
        with suppress(duckdb.InvalidInputException):  # the configuration is locked: `advance` knows nothing then
            for setting in ("enable_progress_bar = true", "enable_progress_bar_print = false"):
                self._cursor.execute(f"SET SESSION {setting}")
        self.run(lambda: guarded(self._cursor, statement))

    def chunk(self, vectors: int) -> Future[Any]:
        """Begin to read the next rows as a frame; there are none left where it is empty."""

        def read() -> Any:
            with withheld():
                return self._cursor.fetch_df_chunk(vectors)

        return self.begin(read)

    def frames(self, select: str, vectors: int) -> Iterator[Any]:
        """Yield the rows of a statement, so many vectors together, and read one frame ahead."""
        self.start(select)
        waiting = self.chunk(vectors)
        while True:
            frame = waited(waiting)
            if not len(frame):
                return
            self.advance()
            waiting = self.chunk(vectors)
            yield frame

    def advance(self) -> None:
        """Show how far the statement is, where DuckDB knows; not while it is running."""
        percent = self._cursor.query_progress()
        if percent >= 0:
            progress.advance(percent / 100)


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
        counts[cell], sums[cell] = n, clamped(rest[: len(values)])
        products = [total + int(part) for total, part in zip(products, rest[len(values) :], strict=True)]
    return counts.reshape(shape), sums, products


def count_values(cursor: duckdb.DuckDBPyConnection, codes_table: str, column: str) -> tuple[list[str], IntArray]:
    """Count the values that occur in a column of UTF-8 texts (`dpsql.domains.encoding.value_text`).

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
