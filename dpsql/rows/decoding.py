"""From codes back to values in the source's own types, written as Parquet or into a table. Everything here is post-processing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd
from sqlglot import exp

from dpsql.domains.attributes import Domain
from dpsql.domains.decoder import Columns, Decoder, cast
from dpsql.numerics.arrays import Clique, IntArray
from dpsql.rows.writing import FileSink, Sink, parquet_files, select_of, write
from dpsql.running.blocks import Stop, drawn, generators, threads
from dpsql.tables.flat import FlatTables, by_order
from dpsql.tables.tuple_index import TupleIndex
from dpsql.text.relation import identifier

_PART_ROWS = 1_000_000
_ROW_GROUP = 122_880
"""Rows that DuckDB stores together."""

_GROUP_BYTES, _STATEMENT_BYTES = 1 << 28, 1 << 27
_MOST_GROUPS = 8
_BLOCKS = 1 << 40

Codes = npt.NDArray[np.integer]
_NOTHING: Codes = np.empty((0, 0), np.uint8)


def write_rows(
    cursor: duckdb.DuckDBPyConnection,
    blocks: Iterable[Codes],
    domain: Domain,
    rng: np.random.Generator,
    path: Path,
    total: int | None = None,
) -> None:
    """Write synthetic rows to one Parquet file, or a folder of them where they are many, in bounded memory.

    Parameters
    ----------
    blocks : iterable of integer arrays, shape (rows, m)
        Codes, columns in the domain's order.
    rng : numpy Generator
        Places values inside bins; the same state and rows give the same values.
    path : Path
        The file or folder appears there when it is complete.
    total : int, optional
        Number of rows, to show how far it is.

    Notes
    -----
    The columns have the domain's names and order; read them with `rows_sql`, which restores types that Parquet lacks.
    NULL's code becomes NULL, the 'other' code '(other)' in a VARCHAR column and NULL in any other.

    Privacy: None: post-processing.
    """
    decoders = _decoders(domain)
    with FileSink(path) as sink:
        write(cursor, _decoded(blocks, decoders, rng), select_of(_stored(decoders)), sink, total)


def put_rows(
    cursor: duckdb.DuckDBPyConnection,
    blocks: Iterable[Codes],
    domain: Domain,
    rng: np.random.Generator,
    sink: Sink,
    shape: Callable[[str], str],
    total: int | None = None,
) -> None:
    """Write synthetic rows elsewhere, in the source's own names and types; parameters and values as in `write_rows`.

    Parameters
    ----------
    sink : Sink
    shape : function
        Takes the text of a query of rows to the one that is written.
    """
    decoders = _decoders(domain)
    stored = select_of(_stored(decoders))

    def select(name: str) -> str:
        return shape(f"SELECT {_casts(domain)} FROM ({stored(name)})")  # noqa: S608 -- quoted

    write(cursor, _decoded(blocks, decoders, rng), select, sink, total)


def _decoders(domain: Domain) -> list[Decoder]:
    return [Decoder(attribute, f"v{i}") for i, attribute in enumerate(domain.attributes)]


def _stored(decoders: Sequence[Decoder]) -> list[str]:
    """Return the expressions of the columns over the decoders' arrays."""
    named = (exp.alias_(d.expression(), d.attribute.name, quoted=True, copy=False) for d in decoders)
    return [column.sql(dialect="duckdb") for column in named]


def _decoded(blocks: Iterable[Codes], decoders: Sequence[Decoder], rng: np.random.Generator) -> Iterator[list[pd.DataFrame]]:
    """Yield frames of decoded values, those of a statement together."""

    def frame(block: Codes, own: np.random.Generator, stop: Stop) -> pd.DataFrame:
        arrays: Columns = {}
        for i, decoder in enumerate(decoders):
            stop.check()
            arrays.update(decoder.arrays(block[:, i], own))
        return pd.DataFrame(arrays, copy=False)

    own = generators(rng, _BLOCKS)
    for batch in _batches(blocks, len(decoders), sum(decoder.width for decoder in decoders)):
        yield list(drawn([_task(frame, block, next(own)) for block in _taken(batch)]))


def _task(
    frame: Callable[[Codes, np.random.Generator, Stop], pd.DataFrame], block: Codes, own: np.random.Generator
) -> Callable[[Stop], pd.DataFrame]:
    return lambda stop: frame(block, own, stop)


def _batches(blocks: Iterable[Codes], width: int, row_bytes: int) -> Iterator[list[Codes]]:
    """Yield row groups, as many together as are written with one statement; the rows decide, not the number of cores."""
    rows = _ROW_GROUP
    while rows > 1024 and rows * row_bytes > _GROUP_BYTES:
        rows //= 2
    together = max(threads(), min(_MOST_GROUPS, _STATEMENT_BYTES // (rows * max(row_bytes, 1))))
    batch: list[Codes] = []
    for group in _groups(blocks, width, rows):
        batch.append(group)
        del group
        if len(batch) == together:
            yield _taken(batch)
    if batch:
        yield _taken(batch)


def _taken(batch: list[Codes]) -> list[Codes]:
    """Empty a list and return what it held: a generator that waits must not keep the rows that it gave away."""
    taken = batch.copy()
    batch.clear()
    return taken


def _groups(blocks: Iterable[Codes], width: int, rows: int) -> Iterator[Codes]:
    """Join and split blocks to this many rows, each column contiguous; yield at least one, so that an empty table has columns."""
    waiting: list[Codes] = []
    held, yielded = 0, False
    for block in blocks:
        if block.ndim != 2 or block.shape[1] != width:
            raise ValueError(f"block of shape {block.shape}: (rows, {width}) is required")
        rest = block
        del block
        while len(rest):
            piece, rest = rest[: rows - held], rest[rows - held :]
            held += len(piece)
            waiting.append(piece)
            rest = rest if len(rest) else _NOTHING
            del piece
            if held == rows:
                held, yielded = 0, True
                yield _joined(_taken(waiting), width)
    if waiting or not yielded:
        yield _joined(_taken(waiting), width)


def _joined(pieces: Sequence[Codes], width: int) -> Codes:
    if len(pieces) == 1:
        return np.asfortranarray(pieces[0])
    kind = np.result_type(*(piece.dtype for piece in pieces)) if pieces else np.dtype(np.uint8)
    whole = np.empty((width, sum(map(len, pieces))), kind)
    start = 0
    for piece in pieces:
        whole[:, start : start + len(piece)] = piece.T
        start += len(piece)
    return whole.T


def rows_sql(domain: Domain, path: Path) -> str:
    r"""Return a SELECT that reads what `write_rows` wrote, in the source's own column names and types.

    Examples
    --------
    >>> from dpsql.domains.attributes import Attribute
    >>> rows_sql(Domain((Attribute("a", "HUGEINT", "numeric", edges=(0.0, 9.0)),)), Path("s.parquet"))
    'SELECT CAST("a" AS HUGEINT) AS "a" FROM read_parquet(\'s.parquet\')'
    """
    return f"SELECT {_casts(domain)} FROM {parquet_files(path)}"  # noqa: S608 -- quoted


def _casts(domain: Domain) -> str:
    # The types are DuckDB's own texts, written as they are: sqlglot would spell some of them in another way.
    return ", ".join(f"CAST({identifier(a.name)} AS {a.sql_type}) AS {identifier(a.name)}" for a in domain.attributes)


def one_hot_names(domain: Domain) -> list[str]:
    """Return one column name per code of every attribute: ``column=label``, distinct as DuckDB compares names.

    Examples
    --------
    >>> from dpsql.domains.attributes import Attribute
    >>> one_hot_names(Domain((Attribute("a", "VARCHAR", "categorical", categories=("x", "X")),)))
    ['a=x', 'a=X (2)', 'a=NULL']
    """
    names: list[str] = []
    taken: set[str] = set()
    for attribute in domain.attributes:
        for label in attribute.labels():
            plain = name = f"{attribute.name}={'NULL' if label is None else label}"
            number = 1
            while name.lower() in taken:
                number += 1
                name = f"{plain} ({number})"
            taken.add(name.lower())
            names.append(name)
    return names


def write_one_hot(
    cursor: duckdb.DuckDBPyConnection,
    blocks: Iterable[Codes],
    domain: Domain,
    path: Path,
    total: int | None = None,
) -> None:
    """Write one-hot rows to one Parquet file or a folder of them: a UTINYINT column for every code of every attribute.

    Parameters
    ----------
    blocks : iterable of integer arrays of 0 and 1, shape (rows, D)
        D is the sum of the domain's sizes, columns in the order of `one_hot_names`.
    path : Path
        The file or folder appears there when it is complete.
    total : int, optional
        Number of rows, to show how far it is.

    Notes
    -----
    Privacy: None: post-processing.
    """
    with FileSink(path) as sink:
        put_one_hot(cursor, blocks, domain, sink, total)


def put_one_hot(
    cursor: duckdb.DuckDBPyConnection,
    blocks: Iterable[Codes],
    domain: Domain,
    sink: Sink,
    total: int | None = None,
) -> None:
    """Write one-hot rows elsewhere; parameters and values as in `write_one_hot`."""
    names = one_hot_names(domain)
    columns = [f"{identifier(f'v{i}')} AS {identifier(name)}" for i, name in enumerate(names)]

    def frames() -> Iterator[list[pd.DataFrame]]:
        for batch in _batches((block.astype(np.uint8, copy=False) for block in blocks), len(names), len(names)):
            yield [pd.DataFrame({f"v{i}": block[:, i] for i in range(len(names))}, copy=False) for block in _taken(batch)]

    write(cursor, frames(), select_of(columns), sink, total)


def write_cells(cursor: duckdb.DuckDBPyConnection, tables: Mapping[Clique, IntArray], domain: Domain, path: Path) -> None:
    """Write every cell of noisy tables to one Parquet file: columns VARCHAR[], values VARCHAR[], n BIGINT.

    Parameters
    ----------
    tables : mapping of clique to int64 array
        One axis per attribute of the clique.
    path : Path
        The file appears there when it is complete.

    Notes
    -----
    ``values`` holds labels: the category, the bin as ``[a, b)``, '(other)', NULL. Rows are in the order of the mapping and, within
    a table, row-major.

    Privacy: None: post-processing of released counts.
    """
    order = max((len(clique) for clique in tables), default=0)
    cells = _cell_codes(tables, [attribute.size for attribute in domain.attributes], order)
    _write_labelled(cursor, _labelled(cells, domain, order), order, path)


def write_tuples(
    cursor: duckdb.DuckDBPyConnection,
    keys: IntArray,
    counts: IntArray,
    index: TupleIndex,
    domain: Domain,
    names: Sequence[str],
    path: Path,
) -> None:
    """Write counts of tuples as (columns VARCHAR[], values VARCHAR[], n BIGINT) to one Parquet file.

    Parameters
    ----------
    keys : int64 array
        Ascending.
    index : TupleIndex
        Over the domain's values.
    names : sequence of str
        What each column is called; a name may come several times.

    Notes
    -----
    Privacy: None: post-processing of released counts. Names and values are those of the public domain.
    """
    blocks = _labelled(_tuple_codes(keys, counts, index), domain, index.length, names)
    _write_labelled(cursor, blocks, index.length, path)


def _write_labelled(cursor: duckdb.DuckDBPyConnection, frames: Iterable[pd.DataFrame], order: int, path: Path) -> None:
    columns = [*(_list_column(p, order, a) for p, a in (("a", "columns"), ("v", "values"))), exp.column("n")]
    texts = [column.sql(dialect="duckdb") for column in columns]
    with FileSink(path) as sink:
        write(cursor, ([frame] for frame in frames), select_of(texts), sink)


def _labelled(
    blocks: Iterable[IntArray], domain: Domain, order: int, shown_names: Sequence[str] | None = None
) -> Iterator[pd.DataFrame]:
    """Yield frames of k, n and names a0, ... and labels v0, ..., from blocks (k, n, attribute 0 ..., code 0 ...)."""
    called = domain.names if shown_names is None else shown_names
    names = pd.CategoricalDtype(pd.Index(list(dict.fromkeys(called)), dtype=object))
    place_of = np.asarray([*(names.categories.get_loc(name) for name in called), -1], dtype=np.int64)
    labels = [attribute.labels() for attribute in domain.attributes]
    texts = list(dict.fromkeys(label for some in labels for label in some if label is not None))
    position = {label: i for i, label in enumerate(texts)}
    lookup = np.asarray([-1 if v is None else position[v] for some in labels for v in some], dtype=np.int32)
    starts = np.cumsum([0, *(len(some) for some in labels)])
    values = pd.CategoricalDtype(pd.Index(texts, dtype=object))
    for piece in _regroup(blocks, 2 * order + 2, np.dtype(np.int64)):
        arrays: Columns = {"k": piece[:, 0], "n": piece[:, 1]}
        for i in range(order):
            column, code = piece[:, 2 + i], piece[:, 2 + order + i]
            shown = np.where(column >= 0, lookup[np.where(column >= 0, starts[column] + code, 0)], -1) if len(lookup) else column
            arrays[f"a{i}"] = pd.Categorical.from_codes(place_of[column], dtype=names)
            arrays[f"v{i}"] = pd.Categorical.from_codes(shown, dtype=values)
        yield pd.DataFrame(arrays, copy=False)


def _list_column(prefix: str, order: int, alias: str) -> exp.Expression:
    """Return the first k entries of a list of the columns prefix0, prefix1, ... as VARCHAR[]."""
    entries = [cast(exp.column(f"{prefix}{i}", quoted=True), "VARCHAR") for i in range(order)]
    whole = cast(exp.Anonymous(this="list_value", expressions=entries), "VARCHAR[]")
    cut = exp.Anonymous(this="list_slice", expressions=[whole, exp.Literal.number(1), exp.column("k")])
    return exp.alias_(cut, alias, quoted=True)


def _cell_codes(tables: Mapping[Clique, IntArray], sizes: Sequence[int], order: int) -> Iterator[IntArray]:
    """Yield cells as rows (k, n, attribute 0.., code 0..), at most ``_PART_ROWS`` at once."""
    if not isinstance(tables, FlatTables):
        counts = np.concatenate([np.zeros(0, np.int64), *(table.ravel() for table in tables.values())])
        tables = FlatTables(sizes, tuple(tables), counts)
    lengths, attributes = np.zeros(len(tables), np.int64), np.full((len(tables), order), -1, np.int64)
    for places, cliques in by_order(tables.cliques):
        lengths[places] = cliques.shape[1]
        attributes[places, : cliques.shape[1]] = cliques
    shapes = np.append(np.asarray(sizes, np.int64), 1)[attributes]  # 1 where there is no attribute
    for start in range(0, tables.flat.size, _PART_ROWS):
        some = tables.flat[start : start + _PART_ROWS]
        cell = np.arange(start, start + some.size)
        table = np.searchsorted(tables.offsets, cell, side="right") - 1
        cell -= tables.offsets[table]
        rows = np.empty((some.size, 2 * order + 2), np.int64)
        rows[:, 0], rows[:, 1], rows[:, 2 : 2 + order] = lengths[table], some, attributes[table]
        for axis in range(order - 1, -1, -1):
            cell, code = np.divmod(cell, shapes[table, axis])
            rows[:, 2 + order + axis] = np.where(rows[:, 2 + axis] >= 0, code, -1)
        yield rows


def _tuple_codes(keys: IntArray, counts: IntArray, index: TupleIndex) -> Iterator[IntArray]:
    """Yield tuples as rows (k, n, attribute 0.., code 0..), at most ``_PART_ROWS`` at once."""
    for k in index.levels:
        first, behind = np.searchsorted(keys, index.level_keys(k))
        for start in range(first, behind, _PART_ROWS):
            some = slice(start, min(start + _PART_ROWS, behind))
            attributes = index.attributes(keys[some], k)
            columns = index.columns_of_attributes[attributes]
            rows = np.full((len(attributes), 2 * index.length + 2), -1, dtype=np.int64)
            rows[:, 0], rows[:, 1] = k, counts[some]
            rows[:, 2 : 2 + k] = columns
            rows[:, 2 + index.length : 2 + index.length + k] = attributes - index.first_attributes[columns]
            yield rows


def _regroup(
    blocks: Iterable[npt.NDArray[np.generic]], width: int, dtype: np.dtype[np.generic], most: int = _PART_ROWS
) -> Iterator[npt.NDArray[np.integer]]:
    """Join small blocks and split large ones; yield at least one block, so that an empty table has its columns."""
    waiting: list[npt.NDArray[np.generic]] = []
    held, yielded = 0, False
    for block in blocks:
        if block.ndim != 2 or block.shape[1] != width:
            raise ValueError(f"block of shape {block.shape}: (rows, {width}) is required")
        for start in range(0, len(block), most):
            piece = block[start : start + most]
            if held and held + len(piece) > most:
                yield np.concatenate(waiting).astype(dtype, copy=False)
                waiting, held, yielded = [], 0, True
            waiting.append(piece)
            held += len(piece)
    if waiting or not yielded:
        yield np.concatenate([np.empty((0, width), dtype), *waiting]).astype(dtype, copy=False)
