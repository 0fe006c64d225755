"""The SQL types of a query's answer, as DuckDB gives them to the same aggregates without privacy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb

from dpsql.algebra.aggregates import DISTINCT
from dpsql.errors import ArgumentError, first_line
from dpsql.queries.asked import Wanted
from dpsql.text import readable
from dpsql.text.relation import identifier, literal


def call_sql(one: Wanted) -> str:
    """Return an aggregate over numbered columns, in DuckDB's SQL."""
    given = [identifier(f"a{place}") for place in one.arguments]
    if one.function in ("count", "count_units", "count_distinct"):
        return "count(*)"
    if one.quantiles:
        numbers = literal(list(one.quantiles)) if one.listed else literal(one.quantiles[0])
        given.append(numbers)
    if one.function in DISTINCT:
        return f"{DISTINCT[one.function]}(DISTINCT {given[0]})"
    return f"{one.function}({', '.join(given)})"


def types_of(cursor: duckdb.DuckDBPyConnection, wanted: Sequence[Wanted], columns: Mapping[str, str]) -> list[str]:
    """Return the type of each aggregate; ``columns``: the types of the row source's columns.

    Raises
    ------
    ArgumentError
        DuckDB has no such aggregate for these types.
    """
    if not wanted:
        return []
    nulls = ", ".join(f"CAST(NULL AS {kind}) AS {identifier(name)}" for name, kind in columns.items() if name[:1] == "a")
    listed = ", ".join(f"{call_sql(one)} AS a{place}" for place, one in enumerate(wanted))
    try:
        rows = cursor.execute(f"DESCRIBE SELECT {listed} FROM (SELECT {nulls or '1'})").fetchall()  # noqa: S608
    except duckdb.Error as error:
        for one in wanted if len(wanted) > 1 else ():
            types_of(cursor, [one], columns)  # raises at the one that is wrong
        said = f"DuckDB does not accept an aggregate ({first_line(error)})"
        raise ArgumentError("sql", readable.aggregate(wanted[0].text), said) from None
    return [str(row[1]) for row in rows]
