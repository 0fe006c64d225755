"""What a custodian's client is told of the tables when it attaches: a CREATE TABLE of each, which its own DuckDB can bind.

Quack's client asks for the server's text of every table, and attaches nothing if one of them does not bind where it is: without
the sequence, the macro or the table that a default, a check, a generated column or a foreign key names. Such a table is told by
names, types, NOT NULL and plain values of defaults. The server checks all that is written; a default that is not told would be NULL
without a word, so leaving its column out of an INSERT is an error at the client.
"""

from __future__ import annotations

from dpsql.text.relation import literal

UNTOLD = "this column has a default that only the server knows: give it a value, or send the INSERT through query()"
_ASKED = (
    "SELECT schema_name, sql, 'table' FROM duckdb_tables() UNION ALL SELECT schema_name, view_name, 'view' FROM duckdb_views()"
)
"""What the client of Quack asks, with single spaces; a client that asks otherwise gets what DuckDB says."""
_PLAIN = r"-?[0-9]+(\.[0-9]+)?|NULL|''([^'']|'''')*''|CAST\(''([^'']|'''')*'' AS [A-Za-z0-9_ \"(),]+\)"
"""A default that is a value, as a regular expression in a literal of SQL."""
# Every function is named in full: a macro of the database must not answer in its place.
_TOLD = r"""
WITH kept AS (
    SELECT c.table_oid, c.column_index,
        c.column_default IS NULL OR system.main.regexp_full_match(c.column_default, '{plain}') AS plain,
        system.main.concat('"', system.main.replace(c.column_name, '"', '""'), '" ', c.data_type,
            CASE WHEN c.column_default IS NULL THEN '' WHEN plain THEN system.main.concat(' DEFAULT (', c.column_default, ')')
                ELSE {error} END,
            CASE WHEN c.is_nullable THEN '' ELSE ' NOT NULL' END) AS said
    FROM system.main.duckdb_columns() c WHERE c.database_name = {database}
), columns AS (
    SELECT table_oid, system.main.bool_and(plain) AS plain, system.main.string_agg(said, ', ' ORDER BY column_index ASC) AS said
    FROM kept GROUP BY table_oid
), bound AS (
    SELECT DISTINCT table_oid FROM system.main.duckdb_constraints()
    WHERE database_name = {database} AND constraint_type IN ('CHECK', 'FOREIGN KEY')
)
SELECT t.schema_name, CASE WHEN c.plain AND b.table_oid IS NULL THEN t.sql
        ELSE system.main.concat('CREATE TABLE "', system.main.replace(t.schema_name, '"', '""'), '"."',
            system.main.replace(t.table_name, '"', '""'), '"(', c.said, ');') END AS sql, 'table'
FROM system.main.duckdb_tables() t JOIN columns c USING (table_oid) LEFT JOIN bound b USING (table_oid)
WHERE t.database_name = {database}
UNION ALL
SELECT schema_name, view_name, 'view' FROM system.main.duckdb_views() WHERE database_name = {database}
"""


def told(text: str, database: str) -> str:
    """Return what is run for a statement of a custodian's: if it is what a client asks that attaches, tables that it can bind.

    Parameters
    ----------
    text : str
    database : str
        That is served; tables of others are not told.
    """
    if " ".join(text.split()) != _ASKED:
        return text
    error = literal(f" DEFAULT (system.main.error({literal(UNTOLD)}))")
    return _TOLD.format(plain=_PLAIN, error=error, database=literal(database))
