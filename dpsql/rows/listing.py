"""The cells of released tables and the counts of tuples as rows: columns, values, n, written as Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import numpy.typing as npt
from sqlglot import exp

from dpsql.domains.attributes import Domain
from dpsql.domains.decoder import Columns, cast
from dpsql.numerics.arrays import Clique, IntArray
from dpsql.rows.writing import FileSink, select_of, write
from dpsql.tables.flat import FlatTables, by_order
from dpsql.tables.tuple_index import TupleIndex

if TYPE_CHECKING:
    import pandas as pd

_PART_ROWS = 1_000_000


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
    import pandas as pd  # loaded when needed: pandas takes .3 s

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
    blocks: Iterable[npt.NDArray[np.generic]], width: int, dtype: np.dtype[np.generic]
) -> Iterator[npt.NDArray[np.integer]]:
    """Join small blocks and split large ones; yield at least one block, so that an empty table has its columns."""
    waiting: list[npt.NDArray[np.generic]] = []
    length, yielded = 0, False
    for block in blocks:
        if block.ndim != 2 or block.shape[1] != width:
            raise ValueError(f"block of shape {block.shape}: (rows, {width}) is required")
        for start in range(0, len(block), _PART_ROWS):
            piece = block[start : start + _PART_ROWS]
            # Full: what would not fit begins the next block.
            if length and length + len(piece) > _PART_ROWS:
                yield np.concatenate(waiting).astype(dtype, copy=False)
                waiting, length, yielded = [], 0, True
            waiting.append(piece)
            length += len(piece)
    if waiting or not yielded:
        yield np.concatenate([np.empty((0, width), dtype), *waiting]).astype(dtype, copy=False)
