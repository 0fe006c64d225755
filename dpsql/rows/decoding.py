"""From codes back to values in the source's own types, written as Parquet or into a table. Everything here is post-processing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import duckdb
import numpy as np
import numpy.typing as npt
from sqlglot import exp

from dpsql.domains.attributes import Domain
from dpsql.domains.decoder import Columns, Decoder
from dpsql.domains.grid import Histogram
from dpsql.rows.writing import FileSink, Sink, parquet_files, select_of, write
from dpsql.running.blocks import Stop, drawn, generators, threads
from dpsql.text.relation import identifier

if TYPE_CHECKING:
    import pandas as pd

_ROW_GROUP = 122_880
"""Rows that DuckDB stores together."""

_GROUP_BYTES, _STATEMENT_BYTES = 1 << 28, 1 << 27
_MOST_GROUPS = 8
_BLOCKS = 1 << 40

Codes = npt.NDArray[np.integer]
Mend = Callable[[Codes, Columns, np.random.Generator], Columns]
Made = TypeVar("Made")
_NOTHING: Codes = np.empty((0, 0), np.uint8)
Histograms = Mapping[str, Histogram]
_NONE: Histograms = {}


def write_rows(
    cursor: duckdb.DuckDBPyConnection,
    blocks: Iterable[Codes],
    domain: Domain,
    rng: np.random.Generator,
    path: Path,
    total: int | None = None,
    mend: Mend | None = None,
    histograms: Histograms = _NONE,
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
    mend : function, optional
        Repairs the decoded arrays of a block of codes, see `dpsql.rows.obeying`.
    histograms : mapping of column name to Histogram
        Where in their bins values lie.

    Notes
    -----
    The columns have the domain's names and order; read them with `rows_sql`, which restores types that Parquet lacks.
    NULL's code becomes NULL, the 'other' code '(other)' in a VARCHAR column and NULL in any other.

    Privacy: None: post-processing.
    """
    decoders = _decoders(domain, histograms)
    with FileSink(path) as sink:
        write(cursor, _decoded(blocks, decoders, rng, mend), select_of(_stored(decoders)), sink, total)


def put_rows(
    cursor: duckdb.DuckDBPyConnection,
    blocks: Iterable[Codes],
    domain: Domain,
    rng: np.random.Generator,
    sink: Sink,
    shape: Callable[[str], str],
    total: int | None = None,
    mend: Mend | None = None,
    histograms: Histograms = _NONE,
) -> None:
    """Write synthetic rows elsewhere, in the source's own names and types; parameters and values as in `write_rows`.

    Parameters
    ----------
    sink : Sink
    shape : function
        Takes the text of a query of rows to the one that is written.
    """
    decoders = _decoders(domain, histograms)
    stored = select_of(_stored(decoders))

    def select(name: str) -> str:
        return shape(f"SELECT {_casts(domain)} FROM ({stored(name)})")  # noqa: S608 -- quoted

    write(cursor, _decoded(blocks, decoders, rng, mend), select, sink, total)


def _decoders(domain: Domain, histograms: Histograms) -> list[Decoder]:
    return [Decoder(attribute, f"v{i}", histograms.get(attribute.name)) for i, attribute in enumerate(domain.attributes)]


def _stored(decoders: Sequence[Decoder]) -> list[str]:
    """Return the expressions of the columns over the decoders' arrays."""
    named = (exp.alias_(d.expression(), d.attribute.name, quoted=True, copy=False) for d in decoders)
    return [column.sql(dialect="duckdb") for column in named]


def _decoded(
    blocks: Iterable[Codes], decoders: Sequence[Decoder], rng: np.random.Generator, mend: Mend | None
) -> Iterator[list[pd.DataFrame]]:
    """Yield frames of decoded values, those of a statement together."""
    import pandas as pd  # loaded when needed: pandas takes .3 s

    def arrays(block: Codes, own: np.random.Generator, stop: Stop) -> Columns:
        columns: Columns = {}
        for i, decoder in enumerate(decoders):
            stop.check()
            columns.update(decoder.arrays(block[:, i], own))
        return columns

    def frame(block: Codes, own: np.random.Generator, stop: Stop) -> pd.DataFrame:
        return pd.DataFrame(arrays(block, own, stop), copy=False)

    own = generators(rng, _BLOCKS)
    for batch in _batches(blocks, len(decoders), sum(decoder.width for decoder in decoders)):
        if mend is None:
            yield list(drawn([_task(frame, block, next(own)) for block in _taken(batch)]))
            continue
        parts = [(block, next(own)) for block in _taken(batch)]
        frames = []
        # Repairs run on the one cursor, block by block; the generator of a block goes on where decoding it has ended.
        for (block, after), values in zip(parts, drawn([_task(arrays, *part) for part in parts]), strict=True):
            frames.append(pd.DataFrame(mend(block, values, after), copy=False))
            del block, values
        parts.clear()
        yield _taken(frames)


def _task(
    make: Callable[[Codes, np.random.Generator, Stop], Made], block: Codes, own: np.random.Generator
) -> Callable[[Stop], Made]:
    return lambda stop: make(block, own, stop)


def _batches(blocks: Iterable[Codes], width: int, row_bytes: int) -> Iterator[list[Codes]]:
    """Yield row groups, as many together as are written with one statement; the rows decide, not the number of cores."""
    # Row groups of bounded memory, as DuckDB writes them best.
    rows = _ROW_GROUP
    while rows > 1024 and rows * row_bytes > _GROUP_BYTES:
        rows //= 2
    # Several groups a statement keep all threads busy, as far as memory allows.
    together = max(threads(), min(_MOST_GROUPS, _STATEMENT_BYTES // (rows * max(row_bytes, 1))))
    batch: list[Codes] = []
    for group in _groups(blocks, width, rows):
        batch.append(group)
        del group
        if len(batch) == together:
            yield _taken(batch)
    if batch:
        yield _taken(batch)


def _taken(batch: list[Made]) -> list[Made]:
    """Empty a list and return what it held: a generator that waits must not keep the rows that it gave away."""
    contents = batch.copy()
    batch.clear()
    return contents


def _groups(blocks: Iterable[Codes], width: int, rows: int) -> Iterator[Codes]:
    """Join and split blocks to this many rows, each column contiguous; yield at least one, so that an empty table has columns."""
    waiting: list[Codes] = []
    length, yielded = 0, False
    for block in blocks:
        if block.ndim != 2 or block.shape[1] != width:
            raise ValueError(f"block of shape {block.shape}: (rows, {width}) is required")
        rest = block
        del block
        while len(rest):
            piece, rest = rest[: rows - length], rest[rows - length :]
            length += len(piece)
            waiting.append(piece)
            rest = rest if len(rest) else _NOTHING
            del piece
            if length == rows:
                length, yielded = 0, True
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
    used: set[str] = set()
    for attribute in domain.attributes:
        for label in attribute.labels():
            plain = name = f"{attribute.name}={'NULL' if label is None else label}"
            number = 1
            while name.lower() in used:
                number += 1
                name = f"{plain} ({number})"
            used.add(name.lower())
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
    import pandas as pd  # loaded when needed: pandas takes .3 s

    names = one_hot_names(domain)
    columns = [f"{identifier(f'v{i}')} AS {identifier(name)}" for i, name in enumerate(names)]

    def frames() -> Iterator[list[pd.DataFrame]]:
        for batch in _batches((block.astype(np.uint8, copy=False) for block in blocks), len(names), len(names)):
            yield [pd.DataFrame({f"v{i}": block[:, i] for i in range(len(names))}, copy=False) for block in _taken(batch)]

    write(cursor, frames(), select_of(columns), sink, total)
