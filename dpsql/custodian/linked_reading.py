"""Codes of linked tables, read by SQL: whose parent each row is of, what is NULL, missing or twice there. NOT PRIVATE."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import duckdb
import numpy as np
from sqlglot import exp

from dpsql.custodian.linked_counts import Codes
from dpsql.custodian.value_table import number_text
from dpsql.domains.attributes import Attribute, Domain
from dpsql.domains.codes import number_expression
from dpsql.domains.encoding import SOURCE_NAME, code_text, column_types, guarded
from dpsql.errors import DomainError
from dpsql.release.ordered import order_values
from dpsql.text.names import fold
from dpsql.text.relation import identifier

_PARENT = "__dp_parent"


@dataclass(frozen=True)
class ComparedTable:
    """A table of a database with links, and what of it is compared.

    Parameters
    ----------
    name : str
        For the report.
    domain : Domain
        Its compared columns, with the types of this database.
    sql : str
        SELECT of all its columns.
    above : int or None
        Position of its parent in the list, before its own; None for the root, which is the first.
    link, key : str
        Its column, and the parent's unique column that it refers to.
    max_rows : int
        Rows that one row of the parent may have in a release.
    order : int or None
        Position of the column that rows of one parent are ordered by.
    rules, across, counted : tuples of str
        Rules of a row, of a row with those above it, and of the rows of one parent, in canonical text.
    """

    name: str
    domain: Domain
    sql: str
    above: int | None = None
    link: str = ""
    key: str = ""
    max_rows: int = 1
    order: int | None = None
    rules: tuple[str, ...] = ()
    across: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """What was read of a table.

    Parameters
    ----------
    codes : Codes
        Of the rows that have a parent, and that no column's 'drop' leaves out.
    rows, orphans, duplicates : int
        All rows; those whose link is NULL or leads nowhere; those whose key, if links lead to it, is NULL or another row's.
    broken : tuple of int
        Rows that break each of the table's rules, those across tables behind; then parents whose rows break rules that count them.
    """

    codes: Codes
    rows: int
    orphans: int
    duplicates: int
    broken: tuple[int, ...] = ()


def read(cursor: duckdb.DuckDBPyConnection, tables: Sequence[ComparedTable]) -> list[Reading]:
    """Read all tables of a database.

    Parameters
    ----------
    tables : sequence of ComparedTable
        The root first, parents before children.

    Returns
    -------
    list of Reading

    Raises
    ------
    DomainError
        A column that links is missing, or is not of the type of the key it refers to.

    Notes
    -----
    Privacy: NOT PRIVATE. Codes of all rows are held in memory: two to four bytes for each column of a row, eight for a number.
    """
    readings: list[Reading] = []
    with ExitStack() as stack:
        names = [f"__dp_linked_{secrets.token_hex(8)}" for _ in tables]
        for name in names:
            stack.callback(cursor.execute, f"DROP TABLE IF EXISTS {identifier(name)}")
        for position in range(len(tables)):
            readings.append(_read(cursor, tables, names, position))
    return readings


def _read(cursor: duckdb.DuckDBPyConnection, tables: Sequence[ComparedTable], names: list[str], position: int) -> Reading:
    """Read one table; those above it have been."""
    table = tables[position]
    kinds = {fold(name): kind for name, kind in column_types(cursor, table.sql).items()}
    keys = _keys(tables, position)
    for column in [*keys, *([table.link] if table.above is not None else [])]:
        if fold(column) not in kinds:
            raise DomainError(f"synthetic: table {table.name!r} lacks the column {column!r}, which links it")
    source, orphans = table.sql, 0
    if table.above is not None:
        parent = tables[table.above]
        kind = {fold(name): kind for name, kind in column_types(cursor, parent.sql).items()}.get(fold(table.key))
        if kind != kinds[fold(table.link)]:
            raise DomainError(
                f"synthetic: {table.name}.{table.link} is {kinds[fold(table.link)]} and the key it refers to, "
                f"{parent.name}.{table.key}, is {kind}; CAST one of them in a view"
            )
        link = key_text("child", table.link, kinds)
        above = f"SELECT DISTINCT {key_text('parent', table.key, {fold(table.key): kind})} AS k FROM ({parent.sql}) AS parent"  # noqa: S608 -- quoted
        missing = f"SELECT count(*) FROM ({table.sql}) AS child ANTI JOIN ({above}) AS parent ON {link} = parent.k"  # noqa: S608 -- quoted
        orphans = number_of(cursor, missing)
        column = f"k{_keys(tables, table.above).index(table.key)}"
        rows = f"SELECT min(r) AS r, {column} AS k FROM {identifier(names[table.above])} GROUP BY {column}"  # noqa: S608 -- quoted
        source = f"SELECT child.*, parent.r AS {_PARENT} FROM ({table.sql}) AS child JOIN ({rows}) AS parent ON {link} = parent.k"  # noqa: S608 -- quoted
    numeric = [i for i, a in enumerate(table.domain.attributes) if a.kind == "numeric"]
    chosen = [
        "row_number() OVER () - 1 AS r",
        *([f"{_PARENT} AS p"] if table.above is not None else []),
        *(f"{key_text(SOURCE_NAME, column, kinds)} AS k{i}" for i, column in enumerate(keys)),
        *(f"{code_text(a)} AS c{i}" for i, a in enumerate(table.domain.attributes)),
        *(f"{number_text(table.domain.attributes[i])} AS v{i}" for i in numeric),
        *([] if table.order is None else [f"{_order_text(table.domain.attributes[table.order])} AS o"]),
    ]
    where = " AND ".join(f"({code_text(a)}) IS NOT NULL" for a in table.domain.attributes if a.outside == "drop") or "true"
    statement = f"WITH {SOURCE_NAME} AS ({source}) SELECT {', '.join(chosen)} FROM {SOURCE_NAME} WHERE {where}"  # noqa: S608 -- quoted
    guarded(cursor, f"CREATE TEMP TABLE {identifier(names[position])} AS {statement}")
    total = number_of(cursor, f"SELECT count(*) FROM ({table.sql})")  # noqa: S608 -- checked
    twice = 0
    for column in keys:
        distinct = f"count(DISTINCT {key_text('t', column, kinds)})"
        twice += number_of(cursor, f"SELECT count(*) - {distinct} FROM ({table.sql}) AS t")  # noqa: S608 -- quoted
    return Reading(_fetched(cursor, names[position], table, numeric), total, orphans, twice)


def _fetched(cursor: duckdb.DuckDBPyConnection, name: str, table: ComparedTable, numeric: Sequence[int]) -> Codes:
    """Return the rows of a TEMP table in the order of their numbers."""

    def column(text: str) -> np.ndarray:
        fetched = guarded(cursor, f"SELECT {text} AS x FROM {identifier(name)} ORDER BY r ASC").fetchnumpy()  # noqa: S608 -- quoted
        return np.asarray(fetched["x"])

    rows = number_of(cursor, f"SELECT count(*) FROM {identifier(name)}")  # noqa: S608 -- quoted
    codes = tuple(np.asarray(column(f"c{i}")) for i in range(len(table.domain.attributes)))
    values = {i: np.asarray(column(f"coalesce(v{i}::DOUBLE, 'nan'::DOUBLE)"), dtype=np.float64) for i in numeric}
    parent = None if table.above is None else np.asarray(column("p"), dtype=np.int64)
    order = None
    if table.order is not None:
        order = order_values(table.domain.attributes[table.order], codes[table.order], np.asarray(column("o"), np.float64))
    return Codes(codes, table.domain.sizes, rows, parent, table.above, values, order)


def _order_text(attribute: Attribute) -> str:
    value = number_expression(attribute, exp.column(attribute.name, SOURCE_NAME, quoted=True))
    return str(value.sql(dialect="duckdb"))


def _keys(tables: Sequence[ComparedTable], position: int) -> list[str]:
    """Return the columns of a table that others refer to."""
    return list(dict.fromkeys(table.key for table in tables if table.above == position))


def key_text(relation: str, column: str, kinds: dict[str, str]) -> str:
    """Return a key such that it is equal where its bytes are: texts have a collation."""
    text, kind = identifier(relation, column), kinds[fold(column)]
    return f"encode({text}::VARCHAR)" if kind == "VARCHAR" or kind.startswith("ENUM(") else text


def number_of(cursor: duckdb.DuckDBPyConnection, statement: str) -> int:
    """Return the only number of a statement; the text of an error is withheld. NOT PRIVATE."""
    return int(guarded(cursor, statement).fetchall()[0][0])
