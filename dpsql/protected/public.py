"""Public tables: where domains may be read from, because nothing in them is protected."""

from __future__ import annotations

import duckdb
import sqlglot
from sqlglot import exp

from dpsql.errors import ArgumentError
from dpsql.protected.renamed import check_renamed
from dpsql.protected.source import protection_of
from dpsql.session.instance import Context
from dpsql.source.analysis import TableId, find_table, relation_columns
from dpsql.text.names import fold
from dpsql.text.relation import identifier


def column_values(context: Context, argument: str, taken: object, most: int) -> list[str]:
    """Return the distinct values of a column of a *public* table, in order, NULL left out.

    Parameters
    ----------
    argument : str
        Name of the argument, for messages.
    taken : object
        What the caller wrote: 'table.column'.
    most : int
        At most so many values are read, and one more, so that the caller can refuse.

    Raises
    ------
    ArgumentError
        It is not a column of a table, or that table is protected.

    Privacy
    -------
    Refuses protected tables and views: a view over a public table can look into a protected one, in a subquery.
    """
    try:
        parsed = sqlglot.parse_one(str(taken), read="duckdb", into=exp.Column)
        *table, column = [part.name for part in parsed.parts]
    except (sqlglot.ParseError, ValueError, AttributeError):
        table, column = [], ""
    if not table or not column:
        raise ArgumentError(argument, taken, "must be 'table.column' of a public table")
    relation = _public(context, argument, taken, identifier(*table))
    spelled = {fold(c.name): c.name for c in relation_columns(context.cursor, relation)}
    if fold(column) not in spelled:
        raise ArgumentError(argument, taken, f"not a column of that table; it has {list(spelled.values())!r}")
    return listed(context.cursor, relation, spelled[fold(column)], most)


def table_values(context: Context, argument: str, taken: str, most: int) -> list[str]:
    """Return the distinct values of a public table of one column, or of 'table.column'; as `column_values`."""
    try:
        find_table(context.cursor, taken, database=context.database, schema=context.schema)
    except ArgumentError:
        if "." in taken:
            return column_values(context, argument, taken, most)
    relation = _public(context, argument, taken, taken)
    columns = relation_columns(context.cursor, relation)
    if len(columns) != 1:
        raise ArgumentError(argument, taken, f"that table has columns {[c.name for c in columns]!r}: say which, as 'table.column'")
    return listed(context.cursor, relation, columns[0].name, most)


def _public(context: Context, argument: str, taken: object, name: str) -> TableId:
    try:
        relation = find_table(context.cursor, name, database=context.database, schema=context.schema)
    except ArgumentError:
        raise ArgumentError(argument, taken, "must name a public table (not a view) that exists, as 'table.column'") from None
    if protection_of(context, relation)[1] is not None:
        raise ArgumentError(argument, taken, "that table is protected, and a domain read off it would show its values")
    check_renamed(context, [relation])
    return relation


def listed(cursor: duckdb.DuckDBPyConnection, table: TableId, column: str, most: int) -> list[str]:
    """Return the distinct values of a column of a public table, in order, NULL left out: at most so many and one more.

    Privacy: the caller has made sure that the table has no budget.
    """
    name = identifier(column)
    rows = cursor.execute(  # byte by byte: a collation would leave out values that it calls equal
        f"SELECT DISTINCT encode({name}::VARCHAR) FROM {table.sql} WHERE {name} IS NOT NULL ORDER BY 1 ASC LIMIT {most + 1}"  # noqa: S608
    ).fetchall()
    return [bytes(value).decode() for (value,) in rows]
