"""Noisy tables as answers: long (a row of names and labels a cell), or one table wide, a column per attribute in its own type.

Privacy: None: post-processing of released counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np

from dpsql.calls.tables import MarginalsCall
from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute, Domain
from dpsql.domains.decoder import Columns
from dpsql.errors import ArgumentError
from dpsql.numerics.arrays import Clique, IntArray
from dpsql.release.plan import Plan
from dpsql.rows.writing import FileSink, parquet_files, select_of, write
from dpsql.text.names import fold
from dpsql.text.relation import identifier

if TYPE_CHECKING:
    import pandas as pd

COUNTS = ("n", "n_low", "n_high")
_PART_ROWS = 1_000_000


def check_shape(call: MarginalsCall) -> None:
    """Check, before anything is charged, that the answer can have the shape that was asked for.

    Raises
    ------
    ArgumentError
        Several tables have no wide shape, and a column cannot be called as the counts are.
    """
    named = call.columns
    if call.shape == "long":
        return
    if named is None or call.order != len(named):
        if call.shape == "wide":
            raise ArgumentError("shape", "wide", "needs one table: name its columns, one to three, with k their number (or no k)")
        return
    columns = {fold(name) for name in named}
    added = {*COUNTS, *(f"{fold(name)}_{end}" for name in named for end in ("lower", "upper", "other"))}
    if columns & added:
        twice = min(columns & added)
        expected = f"{twice!r} would stand twice in a wide answer: say shape := 'long', or call it otherwise in a view"
        raise ArgumentError("columns", list(named), expected)


def is_wide(call: MarginalsCall, plan: Plan) -> bool:
    """Return whether the answer of a call has one column per attribute: where it names the columns of the one table.

    Raises
    ------
    ArgumentError
        Asked for where the release, bought earlier, has several tables.
    """
    single = len(plan.cliques) == 1 and len(plan.cliques[0]) == len(plan.domain.attributes)
    if call.shape == "wide" and not single:
        expected = f"the release has {len(plan.cliques)} tables: say shape := 'long', or buy one table as release := 'another name'"
        raise ArgumentError("shape", "wide", expected)
    return single and call.columns is not None and call.shape != "long"


def ordered(tables: Mapping[Clique, IntArray], domain: Domain, order: list[int]) -> tuple[Mapping[Clique, IntArray], Domain]:
    """Return tables and domain with the attributes in another order: tables, axes and names follow it.

    Parameters
    ----------
    order : list of int
        A permutation of the attributes' positions.
    """
    if order == sorted(order):
        return tables, domain
    lengths = sorted({len(clique) for clique in tables})
    reordered: dict[Clique, IntArray] = {}
    for clique in itertools.chain.from_iterable(itertools.combinations(range(len(order)), k) for k in lengths):
        positions = [order[place] for place in clique]
        here = tuple(sorted(positions))
        if here in tables:
            reordered[clique] = tables[here].transpose([here.index(position) for position in positions])
    return reordered, Domain(tuple(domain.attributes[position] for position in order))


def write_wide(cursor: duckdb.DuckDBPyConnection, table: IntArray, domain: Domain, band: int, path: Path) -> None:
    """Write one table to a Parquet file: the columns of `wide_sql` as texts, in the order of the codes, last attribute fastest.

    Parameters
    ----------
    table : int64 array
        One axis per attribute of the domain.
    band : int
        See `dpsql.accounting.noise_band`.
    path : Path
        The file appears there when it is complete.
    """
    names = [name for attribute in domain.attributes for name in _columns(attribute)]
    texts = [f"{identifier(f'v{i}')} AS {identifier(name)}" for i, name in enumerate([*names, *COUNTS])]
    with FileSink(path) as sink:
        write(cursor, ([frame] for frame in _frames(table, domain, band)), select_of(texts), sink)


def _frames(table: IntArray, domain: Domain, band: int) -> Iterator[pd.DataFrame]:
    import pandas as pd  # loaded when needed: pandas takes .3 s

    flat = np.ascontiguousarray(table).ravel()
    values = [column for attribute in domain.attributes for column in _columns(attribute).values()]
    of = [i for i, attribute in enumerate(domain.attributes) for _ in _columns(attribute)]
    texts = [list(dict.fromkeys(v for v in column if v is not None)) for column in values]
    kinds = [pd.CategoricalDtype(pd.Index(some, dtype=object)) for some in texts]
    lookups = [
        np.asarray([-1 if v is None else kind.categories.get_loc(v) for v in column], dtype=np.int32)
        for column, kind in zip(values, kinds, strict=True)
    ]
    for start in range(0, flat.size, _PART_ROWS):
        some = flat[start : start + _PART_ROWS]
        codes = np.unravel_index(np.arange(start, start + some.size), table.shape)
        arrays: Columns = {
            f"v{j}": pd.Categorical.from_codes(lookups[j][codes[i]], dtype=kinds[j]) for j, i in enumerate(of)
        }
        for shift in (0, -band, band):
            arrays[f"v{len(arrays)}"] = some + shift
        yield pd.DataFrame(arrays, copy=False)


def wide_sql(domain: Domain, path: Path) -> str:
    """Return a relation that reads what `write_wide` wrote, in the attributes' own types.

    A categorical attribute is one column. Bins are ``<name>_lower`` and ``<name>_upper``: lower <= value < upper, in the last bin
    value <= upper too. NULL stands for NULL. Where values outside the domain have a code of their own, ``<name>_other`` is true
    in its cells, and the value is NULL there.
    """
    kinds = [(name, _type(attribute, name)) for attribute in domain.attributes for name in _columns(attribute)]
    # The types are DuckDB's own texts, written as they are: sqlglot would spell some of them in another way.
    columns = [f"CAST({identifier(name)} AS {kind}) AS {identifier(name)}" for name, kind in kinds]
    columns += [f"CAST({name} AS BIGINT) AS {name}" for name in COUNTS]
    return f"(SELECT {', '.join(columns)} FROM {parquet_files(path)})"  # noqa: S608 -- quoted


def _type(attribute: Attribute, name: str) -> str:
    return "BOOLEAN" if attribute.outside == "other" and name == f"{attribute.name}_other" else attribute.sql_type


def _columns(attribute: Attribute) -> dict[str, list[str | None]]:
    """Return the texts of each column of an attribute, one per code."""
    rest: list[str | None] = [None] * (attribute.size - attribute.values)
    if attribute.kind == "categorical":
        texts = {attribute.name: [*attribute.categories, *rest]}
    else:
        lower, upper = bounds(attribute)
        texts = {f"{attribute.name}_lower": [*lower, *rest], f"{attribute.name}_upper": [*upper, *rest]}
    if attribute.outside == "other":
        texts[f"{attribute.name}_other"] = [str(code == attribute.other_code).lower() for code in range(attribute.size)]
    return texts


def bounds(attribute: Attribute) -> tuple[list[str], list[str]]:
    """Return the lower and upper ends of the bins as texts of the column's type: lower <= value < upper, the last one inclusive.

    Examples
    --------
    >>> bounds(Attribute("age", "TINYINT", "numeric", edges=(0.0, 2.5, 5.0)))
    (['0', '3'], ['3', '5'])
    >>> bounds(Attribute("day", "DATE", "temporal", edges=("2024-01-01", "2024-02-01", "2024-03-01")))
    (['2024-01-01', '2024-02-01'], ['2024-02-01', '2024-03-01'])
    """
    parsed = sqltypes.parse(attribute.sql_type)
    if parsed.family == "temporal":
        texts = [sqltypes.step_text(parsed, sqltypes.steps_of(parsed, edge)) for edge in attribute.edges]
        return texts[:-1], texts[1:]
    grid = sqltypes.grid(parsed, attribute.edges)
    if grid is None:
        texts = [repr(float(edge)) for edge in attribute.edges]
        return texts[:-1], texts[1:]
    # The last bin ends with a value of its own, every other one with the first value of the next.
    inside = [min(value, parsed.high) for value in [*grid[:-1], grid[-1] - 1]]
    texts = [sqltypes.unit_text(parsed, value) for value in inside]
    return texts[:-1], texts[1:]
