"""Statements that dpsql generates for DuckDB, in Spark's SQL: what is on a list passes, anything else is refused.

A list of what passes, and never a dialect: sqlglot translates the syntax of functions and not what they mean at the edges. Each
entry has a rule that was written for the two engines, and a test on edge values that both give the same value.

Privacy: that both engines give the same code to a value is a promise of comfort. Where they did not, a row would still have one
code, by an expression of its own values alone, and be in one cell of a table; which rows of a unit are kept is a function of the
unit's own rows for any hash (`dpsql.domains.bounding.bounded_sql`). So the noise covers a row's or a unit's share on either engine.
What the guarantee does need is here: no expression raises for a value (a statement's failure would depend on the rows), integers
are added without wrapping, a relation is read once, and no text of a name or constant is read as SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb

from dpsql.engines.spark.translate.relations import Translator
from dpsql.source.parse import parse_query

SETTINGS = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    "spark.sql.variable.substitute": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.legacy.ctePrecedencePolicy": "CORRECTED",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.legacy.sizeOfNull": "false",
    "spark.sql.legacy.followThreeValuedLogicInArrayExists": "true",
    "spark.sql.legacy.statisticalAggregate": "false",
    "spark.sql.legacy.integerGroupingId": "false",
    "spark.sql.legacy.literal.pickMinimumPrecision": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.groupByOrdinal": "true",
    "spark.sql.orderByOrdinal": "true",
    "spark.sql.parser.escapedStringLiterals": "false",
}
"""Settings of Spark's session under which the rules hold."""


@dataclass(frozen=True)
class Statement:
    """A statement for Spark.

    Parameters
    ----------
    sql : str
    columns : tuple of (name, DuckDB type)
        What comes back, in order; the types of DuckDB that the values stand for.
    texts : tuple of str
        Columns that the statement asks for as texts and that come back in their own type instead: DuckDB is to write
        ``CAST(value AS VARCHAR)``, for its texts of floating-point numbers and timestamps are its own. They are keys of groups.
    """

    sql: str
    columns: tuple[tuple[str, str], ...]
    texts: tuple[str, ...] = ()


def translated(cursor: duckdb.DuckDBPyConnection, statement: str, relations: Mapping[str, str]) -> Statement:
    """Return a statement that dpsql generated for DuckDB, for Spark.

    Parameters
    ----------
    cursor : DuckDB cursor
        On which the remote tables exist, empty. It binds types and computes constants; no row is read.
    statement : str
        A SELECT that DuckDB binds.
    relations : mapping
        Quoted name of each remote table as the statement has it (``"memory"."main"."people"``), to the text of Spark's relation
        (the quoted name of a table or temporary view). This text is not looked at.

    Returns
    -------
    Statement

    Raises
    ------
    UnsupportedQuery
        Names the first construct that is not on the list, and the way out.

    Notes
    -----
    Privacy: text from text; no row is read.
    """
    translator = Translator(cursor, relations)
    rewritten = translator.query(parse_query(statement), {}, outermost=True)
    return Statement(rewritten.sql, rewritten.columns, tuple(translator.texts))


__all__ = ["SETTINGS", "Statement", "translated"]
