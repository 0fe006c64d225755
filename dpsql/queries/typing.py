"""The SQL types of a query's answer, as DuckDB gives them to the same aggregates without privacy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb

from dpsql.algebra.aggregates import DISTINCT
from dpsql.errors import ArgumentError, first_line
from dpsql.queries.asked import Wanted
from dpsql.text import readable
from dpsql.text.relation import identifier, literal


def call_sql(aggregate: Wanted) -> str:
    """Return an aggregate over numbered columns, in DuckDB's SQL."""
    columns = [identifier(f"a{place}") for place in aggregate.arguments]
    if aggregate.function in ("count", "count_units", "count_distinct"):
        return "count(*)"
    if aggregate.quantiles:
        numbers = literal(list(aggregate.quantiles)) if aggregate.listed else literal(aggregate.quantiles[0])
        columns.append(numbers)
    if aggregate.function in DISTINCT:
        return f"{DISTINCT[aggregate.function]}(DISTINCT {columns[0]})"
    return f"{aggregate.function}({', '.join(columns)})"


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
    listed = ", ".join(f"{call_sql(aggregate)} AS a{place}" for place, aggregate in enumerate(wanted))
    try:
        rows = cursor.execute(f"DESCRIBE SELECT {listed} FROM (SELECT {nulls or '1'})").fetchall()  # noqa: S608
    except duckdb.Error as error:
        for aggregate in wanted if len(wanted) > 1 else ():
            types_of(cursor, [aggregate], columns)  # raises at the one that is wrong
        advice = f"DuckDB does not accept an aggregate ({first_line(error)})"
        raise ArgumentError("sql", readable.aggregate(wanted[0].text), advice) from None
    return [str(row[1]) for row in rows]
