"""Values of a synthetic table and of the raw one side by side, as numbers and groups. NOT PRIVATE."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

import duckdb

from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute, Domain
from dpsql.domains.encoding import SOURCE_NAME, code_text, guarded
from dpsql.source.functions import caught
from dpsql.text.relation import identifier, literal

NOTE = "not private: computed from raw rows, for the custodian only"
COLUMNS = {
    "measure": "VARCHAR",
    "column_name": "VARCHAR",
    "group_column": "VARCHAR",
    "group_value": "VARCHAR",
    "share": "DOUBLE",
    "raw": "DOUBLE",
    "synthetic": "DOUBLE",
    "error": "DOUBLE",
    "relative": "DOUBLE",
    "rows": "BIGINT",
    "synthetic_rows": "BIGINT",
    "private": "BOOLEAN",
    "note": "VARCHAR",
}
Row = tuple[str | float | int | bool | None, ...]
RAW, SYNTHETIC = 0, 1
_KEPT_AS_THEY_ARE = ("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT")


@dataclass(frozen=True)
class Figure:
    """One row of the relation, see `COLUMNS`.

    Parameters
    ----------
    rows : (int, int)
        Raw and synthetic values or rows that it is of.
    error, relative : float or None
        Left out: |raw - synthetic|, and that in units of `unit`.
    unit : float or None
        None or 0: no relative error.
    alike : bool
        Whether the raw and the synthetic figure should be the same, so that their difference is an error.
    """

    measure: str
    rows: tuple[int, int]
    raw: float | None = None
    synthetic: float | None = None
    error: float | None = None
    relative: float | None = None
    unit: float | None = None
    column: str | None = None
    group: str | None = None
    value: str | None = None
    share: float | None = None
    alike: bool = True
    notes: Sequence[str] = field(default=())

    def row(self, more: Sequence[str] = ()) -> Row:
        """Return the row; ``more``: notes that all rows carry."""
        raw, synthetic, error, relative = self.raw, self.synthetic, self.error, self.relative
        if self.alike and error is None and raw is not None and synthetic is not None:
            error = abs(raw - synthetic)
        if relative is None and error is not None and self.unit:
            relative = error / abs(self.unit)
        shown = [_finite(number) for number in (self.share, raw, synthetic, error, relative)]
        note = "; ".join((NOTE, *more, *self.notes))
        names = (self.measure, self.column, self.group, self.value)
        return (*names, *shown, *self.rows, False, note)


def _finite(value: float | None) -> float | None:
    return None if value is None or value != value or value in (float("inf"), float("-inf")) else float(value)


def grouped(attribute: Attribute) -> Attribute:
    """Return the attribute by which rows are grouped: each value for itself, other values and NULL apart."""
    return replace(attribute, nullable=True, outside="other")


def selection(source_sql: str, domain: Domain, columns: Sequence[str]) -> str:
    """Return a SELECT of these columns of the rows that 'drop' does not leave out."""
    kept = " AND ".join(f"({code_text(a)}) IS NOT NULL" for a in domain.attributes if a.outside == "drop")
    where = f" WHERE {kept}" if kept else ""
    return f"(WITH {SOURCE_NAME} AS (\n{source_sql}\n) SELECT {', '.join(columns)} FROM {SOURCE_NAME}{where})"  # noqa: S608


def both(first: Sequence[str], second: Sequence[str], sources: tuple[str, str], domains: tuple[Domain, Domain]) -> str:
    """Return a SELECT of columns of both relations, one below the other, after a column ``s`` that says which."""
    parts = [
        selection(sql, domain, (f"{which}::UTINYINT AS s", *columns))
        for which, columns, sql, domain in zip((RAW, SYNTHETIC), (first, second), sources, domains, strict=True)
    ]
    return " UNION ALL ".join(parts)


def number_text(attribute: Attribute) -> str:
    """Return a value as a number: days since 1970 of a DATE, seconds since 1970 of a timestamp and since midnight of a TIME.

    NULL and NaN are NULL, infinities the nearer bound, as in releases (NULL where values outside are a code of their own); it fails
    for no value.
    """
    column, kind = identifier(SOURCE_NAME, attribute.name), sqltypes.parse(attribute.sql_type)
    if kind.family in ("temporal", "float"):

        def number(value: str) -> str:
            if kind.family == "float":
                return f"{value}::DOUBLE"
            return f"{caught(f'epoch({value})')}{' / 86400' if kind.text == 'DATE' else ''}"

        if kind.text == "TIME":
            return number(column)
        infinite = "" if attribute.outside == "other" else "".join(
            f" WHEN {column} = CAST('{sign}infinity' AS {kind.text}) THEN {number(f'CAST({literal(edge)} AS {kind.text})')}"
            for sign, edge in (("-", str(attribute.edges[0])), ("", str(attribute.edges[-1])))
        )
        return f"CASE WHEN isfinite({column}) THEN {number(column)}{infinite} END"
    return column if kind.text in _KEPT_AS_THEY_ARE else f"{column}::DOUBLE"


class ValueTable:
    """Both relations as a TEMP table, which goes with the context.

    Its columns: ``s`` (0: raw, 1: synthetic), ``v0``, ``v1``, ... numbers, ``g0``, ``g1``, ... codes of `grouped` attributes, by
    positions in the domain.

    Parameters
    ----------
    cursor : DuckDB cursor
    sources : (str, str)
        SELECTs of the raw and of the synthetic rows.
    domains : (Domain, Domain)
        The same columns in the types that each has.
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection, sources: tuple[str, str], domains: tuple[Domain, Domain]) -> None:
        self.cursor, self.domain = cursor, domains[0]
        self.sources, self.domains = sources, domains
        self.name = identifier(f"__dp_values_{secrets.token_hex(8)}")
        attributes = self.domain.attributes
        self.numeric = tuple(i for i, a in enumerate(attributes) if a.kind != "categorical")
        self.categorical = tuple(i for i, a in enumerate(attributes) if a.kind == "categorical")
        self.rows = (0, 0)

    def __enter__(self) -> ValueTable:
        columns = [
            [
                f"{code_text(grouped(a))} AS g{i}" if a.kind == "categorical" else f"{number_text(a)} AS v{i}"
                for i, a in enumerate(domain.attributes)
            ]
            for domain in self.domains
        ]
        union = both(columns[0], columns[1], self.sources, self.domains)
        guarded(self.cursor, f"CREATE TEMP TABLE {self.name} AS {union}")
        try:
            counts = {row[0]: row[1] for row in self.fetch(f"SELECT s, count(*) FROM {self.name} GROUP BY s")}  # noqa: S608 -- quoted
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.rows = (int(counts.get(RAW, 0)), int(counts.get(SYNTHETIC, 0)))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.cursor.execute(f"DROP TABLE IF EXISTS {self.name}")

    def fetch(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query. NOT PRIVATE."""
        return guarded(self.cursor, statement).fetchall()
