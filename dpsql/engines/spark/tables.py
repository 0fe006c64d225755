"""Contingency tables of encoded rows, counted by Spark: exact, and only counts leave its workers.

Two roads, chosen from sizes and cliques alone. *Groups*: Spark groups by the cells, all tables in one statement of GROUPING SETS;
for a few tables, and for one that is too large for an array on a worker. *Arrays*: every task counts its rows in arrays with numpy
(`dpsql.engines.spark.arrays`), as DuckDB's road does in its process, and the arrays are added up. Partitions are put together to a
number of tasks that is the cluster's (`dpsql.engines.spark.reading.tasks`), so what is moved, to other workers and to the driver,
does not grow with the rows.

Privacy
-------
*A row counts once.* A task that fails, or is run twice, counts once: results of the attempt that Spark takes are all there is, and
nothing is added up beside them (no accumulator). An attempt that is run again counts the same rows, for which rows of a unit are
kept follows from their values and the salt, not from chance.

*A table is of one statement.* All cells of a table come from one statement, so from one state of the relation: in each state a unit
has no more rows than the statement allows, in two it could have twice as many (`dpsql.engines.base`). So products of one-hot
columns, of which two-way tables are made with their margins, are one array in one pass, or not counted so at all; a table with many
cells is not read in parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpsql.engines.spark import arrays, shipping
from dpsql.engines.spark.arrays import HEAD, Pass, Square
from dpsql.engines.spark.reading import SparkReading, tasks
from dpsql.errors import DpsqlError
from dpsql.numerics.arrays import Clique, IntArray
from dpsql.tables.counting.fold import Fold
from dpsql.tables.counting.gram import GramCounter
from dpsql.tables.counting.products import columns
from dpsql.tables.counting.roads import Cliques, check_cliques, folds, streamed
from dpsql.tables.flat import FlatTables, cell_counts

MOST_CELLS = 1 << 23
"""Cells that a task counts in one pass: 64 MB."""
FEW = 3
"""So many tables are counted in groups: below that, no worker needs Python."""
_TOGETHER, _MOST_SETS = 1 << 24, 32  # cells, and tables, of one statement of groups
DEFECT = "source: a code is missing or no code; this is a defect of dpsql, please report it"


def count_select(session: Any, select: str, sizes: Sequence[int], cliques: Sequence[Clique]) -> tuple[FlatTables, int]:
    """Count contingency tables of what a SELECT yields.

    Parameters
    ----------
    session : SparkSession
    select : str
        A SELECT of codes in Spark's SQL: integer columns c0, c1, ..., in this order, none of them NULL or beyond its size. It has
        to yield the same rows whenever it is run, in any order.
    sizes : sequence of int, length m
        Number of codes of each attribute.
    cliques : sequence of tuples of int
        Attribute positions. The empty tuple counts all rows.

    Returns
    -------
    tables : FlatTables
        Clique to int64 array of shape (sizes[i] for i in clique), in the order given, repeated cliques once. Exact counts.
    total : int
        Number of rows.

    Raises
    ------
    ArgumentError, DomainError
        See `dpsql.tables.counting.roads.check_cliques`.
    DpsqlError
        Spark failed, the reason is withheld; or a row has a code that is missing or none.

    Notes
    -----
    Privacy: exact, secret counts. The road, the passes and what each of them moves are chosen from the sizes and cliques alone.
    """
    distinct = list(dict.fromkeys(cliques))
    check_cliques(sizes, distinct)
    asked = distinct or [()]  # the number of rows is the sum of any table
    cells = cell_counts(sizes, asked)
    tables = FlatTables(sizes, asked, np.zeros(int(cells.sum()), dtype=np.int64))
    grouped = (cells > MOST_CELLS) if len(asked) > FEW else np.ones(len(asked), np.bool_)
    with SparkReading(session) as reading:
        _group(reading, select, tables, np.flatnonzero(grouped).tolist())
        if not grouped.all():
            _arrays(reading, select, tables, np.flatnonzero(~grouped))
    total = int(tables.flat[: tables.offsets[1]].sum())
    return (tables if distinct else FlatTables(sizes, [], np.zeros(0, dtype=np.int64))), total


def _group(reading: SparkReading, select: str, tables: FlatTables, places: Sequence[int]) -> None:
    """Count tables with GROUP BY: small ones together."""
    cells = np.diff(tables.offsets)
    together: list[int] = []
    for place in places:
        if together and (sum(cells[together]) + cells[place] > _TOGETHER or len(together) == _MOST_SETS):
            _grouped(reading, select, tables, together)
            together = []
        together.append(place)
    if together:
        _grouped(reading, select, tables, together)


def _grouped(reading: SparkReading, select: str, tables: FlatTables, places: list[int]) -> None:
    """Count these tables in one statement."""
    session, few = reading.session, tasks(reading.session)
    listed = ", ".join(f"{cell_sql(tables.sizes, tables.cliques[place])} AS t{i}" for i, place in enumerate(places))
    inner = f"SELECT /*+ COALESCE({few}) */ {listed} FROM ({select}) AS codes"  # noqa: S608 -- our own statement
    if len(places) == 1:
        text = f"SELECT CAST(0 AS BIGINT) AS g, t0 AS cell, count(*) AS n FROM ({inner}) AS cells GROUP BY t0"  # noqa: S608
    else:
        # one reading of the rows for all of these tables
        names = [f"t{i}" for i in range(len(places))]
        sets = ", ".join(f"({name})" for name in names)
        which = f"CAST(grouping_id({', '.join(names)}) AS BIGINT) AS g, coalesce({', '.join(names)}) AS cell"
        text = f"SELECT {which}, count(*) AS n FROM ({inner}) AS cells GROUP BY GROUPING SETS ({sets})"  # noqa: S608
    _take(tables, places, reading.arrow(lambda: session.sql(text)))


def _take(tables: FlatTables, places: list[int], groups: Any) -> None:
    """Write the counts of groups: (g, cell, n), where all bits of g are set but that of the table."""
    which, cell, n = (groups.column(i).to_numpy() for i in range(3))
    if (cell < 0).any():
        raise DpsqlError(DEFECT)
    count = len(places)
    for i, place in enumerate(places):
        mine = slice(None) if count == 1 else which == (2**count - 1) ^ (1 << (count - 1 - i))
        tables.flat[tables.offsets[place] + cell[mine].astype(np.int64)] = n[mine]


def cell_sql(sizes: Sequence[int], clique: Clique) -> str:
    """Return the row-major index of a cell, BIGINT; -1 where a code is missing or none.

    Examples
    --------
    >>> cell_sql([4, 2, 3], (0, 2))
    'CASE WHEN c0 BETWEEN 0 AND 3 AND c2 BETWEEN 0 AND 2 THEN CAST(c0 AS BIGINT) * 3 + c2 ELSE CAST(-1 AS BIGINT) END'
    """
    if not clique:
        return "CAST(0 AS BIGINT)"
    index = f"CAST(c{clique[0]} AS BIGINT)"
    for i, position in enumerate(clique[1:]):
        index = f"{f'({index})' if i else index} * {sizes[position]} + c{position}"
    fine = " AND ".join(f"c{position} BETWEEN 0 AND {sizes[position] - 1}" for position in clique)
    return f"CASE WHEN {fine} THEN {index} ELSE CAST(-1 AS BIGINT) END"


def _arrays(reading: SparkReading, select: str, tables: FlatTables, places: IntArray) -> None:
    """Count tables in arrays, in as many passes as their cells need."""
    sizes = tables.sizes
    asked = [tables.cliques[place] for place in places.tolist()]
    # tables of pairs come out of one matrix product; what is left is counted by joint tables and summed from them
    work = streamed(sizes, asked, MOST_CELLS)
    rest = Cliques.of(asked).without(work.in_gram)
    square = Square(work.gram, columns(sizes, work.gram)) if work.gram else None
    todo = _passes(sizes, asked, folds(sizes, rest, asked, work.budget) if rest.by_order else [], square)
    if len(todo) > 1 and work.budget > 1:  # joint tables need room: another reading costs more than they save
        todo = min(todo, _passes(sizes, asked, folds(sizes, rest, asked, 1), square), key=len)
    whole = len(asked) == len(tables)
    # a task writes its tables side by side: where some are counted in groups, they need an array of their own
    counted = tables if whole else FlatTables(sizes, asked, np.zeros(int(cell_counts(sizes, asked).sum()), dtype=np.int64))
    for number, (task, in_pass) in enumerate(todo):
        reading.part(number, len(todo))
        flat = _run(reading, select, task)
        ends = (0, *task.ends)
        for i, place in enumerate(in_pass):
            counted.flat[counted.offsets[place] : counted.offsets[place + 1]] = flat[HEAD + ends[i] : HEAD + ends[i + 1]]
        if task.square is not None:
            gram = GramCounter(sizes, task.square.attributes, np.flatnonzero(work.in_gram), counted)
            gram.products[...] = flat[HEAD + task.cells :].reshape(task.square.count, task.square.count)
            gram.rows = int(flat[0])
            gram.finish()
    for i, place in enumerate([] if whole else places.tolist()):
        tables.flat[tables.offsets[place] : tables.offsets[place + 1]] = counted.flat[counted.offsets[i] : counted.offsets[i + 1]]


def _passes(
    sizes: tuple[int, ...], asked: Sequence[Clique], joint_tables: Sequence[Fold], square: Square | None
) -> list[tuple[Pass, list[int]]]:
    """Return what each pass counts, and which of the tables asked for its cells are."""
    cells = cell_counts(sizes, asked)
    passes: list[tuple[Pass, list[int]]] = []
    some: list[Fold] = []
    room = 0

    def close() -> None:
        nonlocal room
        those = [place for fold in some for place in fold.wanted]
        number = {place: i for i, place in enumerate(those)}
        numbered = tuple(Fold(fold.parts, tuple(number[place] for place in fold.wanted)) for fold in some)
        ends = tuple(np.cumsum(cells[those]).tolist())
        passes.append((Pass(sizes, tuple(asked[place] for place in those), ends, numbered, None if passes else square), those))
        some.clear()
        room = 0

    for fold in joint_tables:
        # A joint table and what is summed from it are there at the same time.
        alone = any(asked[place] == fold.attributes for place in fold.wanted)
        need = int(cells[list(fold.wanted)].sum()) + (0 if alone else fold.cells(sizes))
        if some and room + need > MOST_CELLS:
            close()
        some.append(fold)
        room += need
    if some or not passes:
        close()
    return passes


def _run(reading: SparkReading, select: str, task: Pass) -> IntArray:
    """Return the array of one pass, summed over all tasks."""
    session, few, text = reading.session, tasks(reading.session), wire_sql(select, task.sizes)

    def frame() -> Any:
        counted = shipping.mapped(session.sql(text).coalesce(few), arrays.counting(task))
        parts = max(1, min(few, task.length // arrays.CHUNK))
        return shipping.mapped(counted.repartition(parts, "chunk"), arrays.adding())

    flat = arrays.gathered(reading.arrow(frame), task.length)
    if flat[1]:
        raise DpsqlError(DEFECT)
    return flat


def wire_sql(select: str, sizes: Sequence[int]) -> str:
    """Return a SELECT of what goes to Python, see `dpsql.engines.spark.arrays.layout`.

    Each code is named once, so that Spark makes one projection of this and the SELECT below; and little is done to it, so that
    this is compiled code even of a thousand columns. ``least`` passes over NULL, so what is too large or missing comes as the
    attribute's size, and the workers find it.

    Examples
    --------
    >>> wire_sql("SELECT 0 AS c0, 250 AS c1", [2, 300])
    'SELECT CAST(least(c0, 2) AS BIGINT) AS w0, try_cast(c1 AS SMALLINT) AS w1 FROM (SELECT 0 AS c0, 250 AS c1) AS codes'
    """
    wire, listed = arrays.layout(sizes), []
    for fields in wire.words:
        capped = ((f"CAST(least(c{i}, {sizes[i]}) AS BIGINT)", shift) for i, shift, _ in fields)
        listed.append(" | ".join(f"shiftleft({code}, {shift})" if shift else code for code, shift in capped))
    for i in wire.alone:
        listed.append(f"try_cast(c{i} AS {'TINYINT' if sizes[i] <= 2**7 else 'SMALLINT' if sizes[i] <= 2**15 else 'INT'})")
    listed = listed or ["CAST(0 AS TINYINT)"]  # a row of no attributes is still a row
    named = ", ".join(f"{column} AS w{i}" for i, column in enumerate(listed))
    return f"SELECT {named} FROM ({select}) AS codes"  # noqa: S608 -- our own statement
