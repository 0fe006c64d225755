"""From codes back to values in the source's own types, written as Parquet. Everything here is post-processing."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd
from sqlglot import exp

from dpsql import sqltypes
from dpsql.domain import OTHER_LABEL, Attribute, Domain
from dpsql.methods.base import Clique, CodeArray, IntArray
from dpsql.methods.flat_tables import FlatTables, by_order
from dpsql.methods.tuple_index import TupleIndex
from dpsql.relation import identifier, literal
from dpsql.sqltypes import SqlType

_PART_ROWS = 1_000_000
_EXACT = 2**62  # bounds below this leave room for int64 arithmetic
# Parquet has no such types; the rows are written as text and cast when they are read.
_AS_TEXT = ("HUGEINT", "UHUGEINT")
Columns = dict[str, "npt.NDArray[np.generic] | pd.Categorical"]


class Decoder:
    """Values of one attribute: arrays for a block of codes, and the SQL that gives them the column's type.

    Parameters
    ----------
    attribute : Attribute
        The attribute.
    name : str
        Prefix of the arrays' column names.

    Notes
    -----
    Privacy: none needed, post-processing. A bin's value is uniform in the bin; encoding it again gives the same code.
    """

    def __init__(self, attribute: Attribute, name: str) -> None:
        self.attribute = attribute
        self.name = name
        self.parsed = sqltypes.parse(attribute.sql_type)
        values = attribute.values
        if attribute.kind == "categorical":
            labels = [*attribute.categories]
            if attribute.outside == "other" and self.parsed.family == "text":
                labels.append(OTHER_LABEL)
            self._labels = pd.CategoricalDtype(pd.Index(labels, dtype=object))
            return
        bounds = sqltypes.grid(self.parsed, attribute.edges)
        if bounds is None:
            edges = np.asarray([float(edge) for edge in attribute.edges])
            self._low, self._high = edges[:-1], np.append(np.nextafter(edges[1:-1], -np.inf), edges[-1])
            if self.parsed.text == "FLOAT":
                self._low, self._high = sqltypes.float32_bounds(edges.tolist())
            return
        self._exact = bounds[0] > -_EXACT and bounds[-1] < _EXACT
        widths = [b - a for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
        if self._exact:
            self._starts = np.asarray(bounds[:-1], dtype=np.int64)
            self._widths = np.asarray(widths, dtype=np.int64)
        else:
            self._labels = pd.CategoricalDtype(pd.Index([str(bound) for bound in bounds[:values]], dtype=object))
            self._spans = np.asarray(widths, dtype=np.float64)
            # The largest double that is no larger than width - 1.
            tops = [(float(w - 1), w - 1) for w in widths]
            self._tops = np.asarray([t if int(t) <= exact else math.nextafter(t, 0.0) for t, exact in tops])

    def arrays(self, codes: npt.NDArray[np.integer], rng: np.random.Generator) -> Columns:
        """Return what the SQL reads: arrays of the length of ``codes``."""
        attribute, values = self.attribute, self.attribute.values
        if attribute.kind == "categorical":
            known = len(self._labels.categories)
            return {self.name: pd.Categorical.from_codes(np.where(codes < known, codes, -1), dtype=self._labels)}
        found: Columns = {}
        inside = codes
        if attribute.size > values:
            found[f"{self.name}_null"] = codes >= values
            inside = np.minimum(codes, values - 1)
        if self.parsed.family == "float":
            found[self.name] = self._floats(inside, rng)
        elif self._exact:
            found[self.name] = self._integers(inside, rng)
        else:
            offset = np.minimum(np.floor(rng.random(len(inside)) * self._spans[inside]), self._tops[inside])
            found[self.name] = pd.Categorical.from_codes(inside, dtype=self._labels)
            # Two halves: the width of a bin may exceed what the integer type can hold.
            found[f"{self.name}_half"] = half = np.floor(offset / 2)
            found[f"{self.name}_rest"] = offset - half
        return found

    def _floats(self, codes: npt.NDArray[np.integer], rng: np.random.Generator) -> npt.NDArray[np.floating]:
        low, high = self._low[codes], self._high[codes]
        share = rng.random(len(codes))
        mixed = low.astype(np.float64) * (1 - share) + high.astype(np.float64) * share
        placed: npt.NDArray[np.floating] = np.clip(mixed.astype(low.dtype), low, high)
        return placed

    def _integers(self, codes: npt.NDArray[np.integer], rng: np.random.Generator) -> IntArray:
        starts: IntArray = self._starts[codes]
        if self._widths.max() == 1:
            return starts
        width = self._widths[codes]
        offset = (rng.random(len(codes)) * width).astype(np.int64)
        starts += np.minimum(offset, width - 1)
        return starts

    def expression(self) -> exp.Expression:
        """Return the value as it is stored in Parquet, computed from the arrays."""
        column, text = exp.column(self.name, quoted=True), self.attribute.sql_type
        if self.attribute.kind == "categorical":
            if self.parsed.family in ("text", "enum") or text in _AS_TEXT:
                return _cast(column, "VARCHAR")
            return _cast(_cast(column, "VARCHAR"), text)
        if self.parsed.family == "float":
            value: exp.Expression = column
        elif self.parsed.family == "temporal":
            # Nanoseconds may be as far apart as int64 reaches.
            value = _moment(text, column if self._exact else _cast(self._large(column), "BIGINT"))
        elif self._exact:
            value = _from_units(self.parsed, column)
        else:
            value = _from_units(self.parsed, self._large(column))
        if text in _AS_TEXT:
            value = _cast(value, "VARCHAR")
        if self.attribute.size == self.attribute.values:
            return value
        return exp.Case(ifs=[exp.If(this=exp.column(f"{self.name}_null", quoted=True), true=exp.null())], default=value)

    def _large(self, column: exp.Expression) -> exp.Expression:
        wide = "UHUGEINT" if self.parsed.text == "UHUGEINT" else "HUGEINT"
        start = _cast(_cast(column, "VARCHAR"), wide)
        half, rest = (_cast(exp.column(f"{self.name}_{part}", quoted=True), wide) for part in ("half", "rest"))
        return exp.Paren(this=exp.Add(this=exp.Add(this=start, expression=half), expression=rest))


def _cast(value: exp.Expression, text: str) -> exp.Expression:
    return exp.Cast(this=value, to=exp.DataType.build(text, dialect="duckdb"))


def _from_units(parsed: SqlType, value: exp.Expression) -> exp.Expression:
    """Return an integer or decimal from a whole number of units."""
    if parsed.scale == 0:
        return _cast(value, parsed.text)
    # Exact: the product of DECIMAL(w, 0) and 10**-scale has the digits of the first factor.
    wide = "DECIMAL(18,0)" if parsed.high < 10**18 else "DECIMAL(38,0)"
    unit = _cast(exp.Literal.string(sqltypes.unit_text(parsed, 1)), f"DECIMAL({parsed.scale},{parsed.scale})")
    return _cast(exp.Mul(this=_cast(value, wide), expression=unit), parsed.text)


def _moment(text: str, value: exp.Expression) -> exp.Expression:
    """Return a date or time from days, seconds, milliseconds, microseconds or nanoseconds since 1970."""
    if text == "DATE":
        return exp.Add(this=_cast(exp.Literal.string("1970-01-01"), "DATE"), expression=_cast(value, "INTEGER"))
    if text == "TIMESTAMP_NS":
        return exp.Anonymous(this="make_timestamp_ns", expressions=[value])
    factor = {"TIMESTAMP_S": 1_000_000, "TIMESTAMP_MS": 1000}.get(text, 1)
    micros = exp.Mul(this=value, expression=exp.Literal.number(factor)) if factor > 1 else value
    stamp = exp.Anonymous(this="make_timestamp", expressions=[micros])
    if text == "TIMESTAMP WITH TIME ZONE":
        return exp.AtTimeZone(this=stamp, zone=exp.Literal.string("UTC"))
    return stamp if text == "TIMESTAMP" else _cast(stamp, text)


def write_rows(
    cursor: duckdb.DuckDBPyConnection, blocks: Iterable[CodeArray], domain: Domain, rng: np.random.Generator, path: Path
) -> None:
    """Write synthetic rows to one Parquet file, in bounded memory.

    Parameters
    ----------
    blocks : iterable of int32 arrays, shape (rows, m)
        Codes, columns in the domain's order.
    rng : numpy Generator
        Places values inside bins; the same state and blocks give the same rows.
    path : Path
        The file appears there when it is complete.

    Notes
    -----
    The columns have the domain's names and order; read them with `rows_sql`, which restores types that Parquet lacks.
    NULL's code becomes NULL, the 'other' code '(other)' in a VARCHAR column and NULL in any other.

    Privacy: None: post-processing.
    """
    decoders = [Decoder(attribute, f"v{i}") for i, attribute in enumerate(domain.attributes)]
    columns = [exp.alias_(decoder.expression(), decoder.attribute.name, quoted=True, copy=False) for decoder in decoders]

    def frames() -> Iterator[pd.DataFrame]:
        for block in _regroup(blocks, len(decoders), np.dtype(np.int32), max(1, 14 * _PART_ROWS // max(1, len(decoders)))):
            arrays: Columns = {}
            for i, decoder in enumerate(decoders):
                arrays.update(decoder.arrays(block[:, i], rng))
            yield pd.DataFrame(arrays, copy=False)

    _write(cursor, frames(), columns, path)


def rows_sql(domain: Domain, path: Path) -> str:
    r"""Return a SELECT that reads what `write_rows` wrote, in the source's own column names and types.

    Examples
    --------
    >>> rows_sql(Domain((Attribute("a", "HUGEINT", "numeric", edges=(0.0, 9.0)),)), Path("s.parquet"))
    'SELECT CAST("a" AS HUGEINT) AS "a" FROM read_parquet(\'s.parquet\')'
    """
    # The types are DuckDB's own texts, written as they are: sqlglot would spell some of them in another way.
    columns = ", ".join(f"CAST({identifier(a.name)} AS {a.sql_type}) AS {identifier(a.name)}" for a in domain.attributes)
    return f"SELECT {columns} FROM read_parquet({literal(str(path))})"  # noqa: S608


def one_hot_names(domain: Domain) -> list[str]:
    """Return one column name per code of every attribute: ``column=label``, distinct as DuckDB compares names.

    Examples
    --------
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


def write_one_hot(cursor: duckdb.DuckDBPyConnection, blocks: Iterable[npt.NDArray[np.uint8]], domain: Domain, path: Path) -> None:
    """Write one-hot rows to one Parquet file: a UTINYINT column for every code of every attribute.

    Parameters
    ----------
    blocks : iterable of uint8 arrays, shape (rows, D)
        D is the sum of the domain's sizes, columns in the order of `one_hot_names`.
    path : Path
        The file appears there when it is complete.

    Notes
    -----
    Privacy: None: post-processing.
    """
    names = one_hot_names(domain)
    columns = [exp.alias_(exp.column(f"v{i}", quoted=True), name, quoted=True) for i, name in enumerate(names)]

    def frames() -> Iterator[pd.DataFrame]:
        for block in _regroup(blocks, len(names), np.dtype(np.uint8), max(1, 40 * _PART_ROWS // len(names))):
            yield pd.DataFrame({f"v{i}": column for i, column in enumerate(np.ascontiguousarray(block.T))}, copy=False)

    _write(cursor, frames(), columns, path)


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
    _write(cursor, _labelled(cells, domain, order), _labelled_columns(order), path)


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
    _write(cursor, blocks, _labelled_columns(index.length), path)


def _labelled_columns(order: int) -> list[exp.Expression]:
    return [*(_list_column(p, order, a) for p, a in (("a", "columns"), ("v", "values"))), exp.column("n")]


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
    entries = [_cast(exp.column(f"{prefix}{i}", quoted=True), "VARCHAR") for i in range(order)]
    whole = _cast(exp.Anonymous(this="list_value", expressions=entries), "VARCHAR[]")
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


def _write(
    cursor: duckdb.DuckDBPyConnection, frames: Iterable[pd.DataFrame], columns: Sequence[exp.Expression], path: Path
) -> None:
    """Write frames through these expressions to one Parquet file, which appears under its name when it is complete."""
    token = secrets.token_hex(8)
    statement = exp.select(*columns, copy=False).from_(exp.to_table(f"__dp_block_{token}")).sql(dialect="duckdb")
    parts: list[Path] = []
    whole = path.with_name(f".{path.name}.{token}.tmp")
    try:
        for frame in frames:
            parts.append(path.with_name(f".{path.name}.{token}.part{len(parts)}"))
            with _registered(cursor, f"__dp_block_{token}", frame):
                _copy(cursor, statement, parts[-1])
        if len(parts) > 1:
            listed = literal([str(part) for part in parts])
            _copy(cursor, f"SELECT * FROM read_parquet({listed})", whole)  # noqa: S608
            whole.replace(path)
        else:
            parts[0].replace(path)
    finally:
        for part in (*parts, whole):
            part.unlink(missing_ok=True)


def _copy(cursor: duckdb.DuckDBPyConnection, statement: str, path: Path) -> None:
    cursor.execute(f"COPY ({statement}) TO {literal(str(path))} (FORMAT parquet)")


@contextmanager
def _registered(cursor: duckdb.DuckDBPyConnection, name: str, frame: pd.DataFrame) -> Iterator[None]:
    """Let the cursor's SQL read a frame under a name."""
    cursor.register(name, frame)
    try:
        yield
    finally:
        with suppress(duckdb.Error):
            cursor.unregister(name)
