"""The tables of `information_schema`, in a database that holds nothing else: names and types of what an analyst may see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import duckdb

from dpsql.serve.mysql.lexing import named
from dpsql.serve.mysql.types import LONGEST_TEXT, Type, of_duckdb
from dpsql.serve.passed import Column, Table

SCHEMA: Final = "listed"
COLLATION: Final = "utf8mb4_general_ci"
PROTECTED: Final = "protected: aggregates alone"
"""What is said of a table whose rows are never shown."""

_KEY = "constraint_catalog, constraint_schema, constraint_name, table_catalog, table_schema, table_name"
COLUMNS: Final[dict[str, str]] = {
    "schemata": "catalog_name, schema_name, default_character_set_name, default_collation_name, sql_path, default_encryption",
    "tables": "table_catalog, table_schema, table_name, table_type, engine, version #, row_format, table_rows #, avg_row_length #,"
    " data_length #, max_data_length #, index_length #, data_free #, auto_increment #, create_time, update_time, check_time,"
    " table_collation, checksum #, create_options, table_comment",
    "columns": "table_catalog, table_schema, table_name, column_name, ordinal_position #, column_default, is_nullable, data_type,"
    " character_maximum_length #, character_octet_length #, numeric_precision #, numeric_scale #, datetime_precision #,"
    " character_set_name, collation_name, column_type, column_key, extra, privileges, column_comment, generation_expression,"
    " srs_id #",
    "views": "table_catalog, table_schema, table_name, view_definition, check_option, is_updatable, definer, security_type,"
    " character_set_client, collation_connection",
    "statistics": "table_catalog, table_schema, table_name, non_unique #, index_schema, index_name, seq_in_index #, column_name,"
    " collation, cardinality #, sub_part #, packed, nullable, index_type, comment, index_comment, is_visible, expression",
    "key_column_usage": f"{_KEY}, column_name, ordinal_position #, position_in_unique_constraint #, referenced_table_schema,"
    " referenced_table_name, referenced_column_name",
    "table_constraints": f"{_KEY}, constraint_type, enforced",
    "referential_constraints": "constraint_catalog, constraint_schema, constraint_name, unique_constraint_catalog,"
    " unique_constraint_schema, unique_constraint_name, match_option, update_rule, delete_rule, table_name, referenced_table_name",
    "check_constraints": "constraint_catalog, constraint_schema, constraint_name, check_clause",
    "routines": "specific_name, routine_catalog, routine_schema, routine_name, routine_type, data_type, dtd_identifier,"
    " routine_body, routine_definition, external_language,"
    " is_deterministic, sql_data_access, security_type, created, last_altered, sql_mode,"
    " routine_comment, definer",
    "parameters": "specific_catalog, specific_schema, specific_name, ordinal_position #, parameter_mode, parameter_name, data_type,"
    " character_maximum_length #, character_octet_length #, numeric_precision #, numeric_scale #, dtd_identifier, routine_type",
    "triggers": "trigger_catalog, trigger_schema, trigger_name, event_manipulation, event_object_catalog, event_object_schema,"
    " event_object_table, action_order #, action_condition, action_statement, action_orientation, action_timing, created, sql_mode,"
    " definer",
    "events": "event_catalog, event_schema, event_name, definer, time_zone, event_body, event_definition, event_type, execute_at,"
    " interval_value, interval_field, status, event_comment",
    "partitions": "table_catalog, table_schema, table_name, partition_name, subpartition_name, partition_ordinal_position #,"
    " partition_method, partition_expression, partition_description, table_rows #, tablespace_name",
    "files": "file_id #, file_name, file_type, tablespace_name, table_catalog, table_schema, table_name, logfile_group_name,"
    " engine, total_extents #, initial_size #, extra",
    "table_privileges": "grantee, table_catalog, table_schema, table_name, privilege_type, is_grantable",
    "column_privileges": "grantee, table_catalog, table_schema, table_name, column_name, privilege_type, is_grantable",
    "schema_privileges": "grantee, table_catalog, table_schema, privilege_type, is_grantable",
    "user_privileges": "grantee, table_catalog, privilege_type, is_grantable",
    "engines": "engine, support, comment, transactions, xa, savepoints",
    "plugins": "plugin_name, plugin_version, plugin_status, plugin_type, plugin_description, load_option",
    "character_sets": "character_set_name, default_collate_name, description, maxlen #",
    "collations": "collation_name, character_set_name, id #, is_default, is_compiled, sortlen #, pad_attribute",
    "collation_character_set_applicability": "collation_name, character_set_name",
    "processlist": "id #, user, host, db, command, time #, state, info",
    "keywords": "word, reserved #",
    "innodb_tables": "table_id #, name",
}
"""Tables and their columns, which MySQL shows in capitals; a sign: numbers."""


def fill(connection: duckdb.DuckDBPyConnection, database: str, tables: Sequence[Table]) -> None:
    """Make the tables and write into them what is known of these tables: no row of them, no count, no size.

    Privacy
    -------
    None: names and types of what this analyst may see.
    """
    connection.execute(f"CREATE SCHEMA {SCHEMA}")
    for name, columns in COLUMNS.items():
        typed = ", ".join(
            f'"{column.removesuffix(" #").upper()}" {"BIGINT" if column.endswith(" #") else "VARCHAR COLLATE NOCASE"}'
            for column in columns.split(", ")
        )
        connection.execute(f'CREATE TABLE {SCHEMA}."{name}" ({typed})')
    places = sorted({database, *(place_of(table, database) for table in tables)})
    rows: dict[str, list[dict[str, Any]]] = {
        "schemata": [
            {"catalog_name": "def", "schema_name": place, "default_character_set_name": "utf8mb4"}
            | {"default_collation_name": COLLATION}
            for place in ["information_schema", *places]
        ],
        "tables": [_table(table, database) for table in tables],
        "columns": [row for table in tables for row in _columns(table, database)],
        "views": [_named(table, database) | {"check_option": "NONE", "is_updatable": "NO"} for table in tables if table.is_view],
        "engines": [
            {"engine": "InnoDB", "support": "DEFAULT", "comment": "dpsql", "transactions": "NO", "xa": "NO", "savepoints": "NO"}
        ],
        "character_sets": [
            {"character_set_name": "utf8mb4", "default_collate_name": COLLATION, "description": "UTF-8 Unicode", "maxlen": 4}
        ],
        "collations": [
            {"collation_name": COLLATION, "character_set_name": "utf8mb4", "id": 45, "is_default": "Yes", "is_compiled": "Yes"}
        ],
        "collation_character_set_applicability": [{"collation_name": COLLATION, "character_set_name": "utf8mb4"}],
    }
    for name, listed in rows.items():
        for row in listed:
            columns = ", ".join(f'"{column}"' for column in row)
            places_of = ", ".join("?" for _ in row)
            connection.execute(f'INSERT INTO {SCHEMA}."{name}" ({columns}) VALUES ({places_of})', list(row.values()))  # noqa: S608


def place_of(table: Table, database: str) -> str:
    """Return the database that a table is in for clients: the served one, or a schema beside ``main`` by its name."""
    return database if table.schema == "main" else table.schema


def _named(table: Table, database: str) -> dict[str, Any]:
    return {"table_catalog": "def", "table_schema": place_of(table, database), "table_name": table.name}


def _table(table: Table, database: str) -> dict[str, Any]:
    base = {"table_type": "BASE TABLE", "engine": "InnoDB", "table_collation": COLLATION}
    kind = {"table_type": "VIEW"} if table.is_view else base
    return _named(table, database) | kind | {"create_options": "", "table_comment": PROTECTED if table.protected else ""}


def _columns(table: Table, database: str) -> list[dict[str, Any]]:
    listed = []
    for place, column in enumerate(table.columns, 1):
        kind = column_type(table, column)
        row = _named(table, database) | {
            "column_name": column.name, "ordinal_position": place, "is_nullable": "YES", "data_type": kind.name,
            "column_type": kind.full, "column_key": "", "extra": "", "privileges": "select", "column_comment": "",
            "generation_expression": "", "numeric_precision": kind.precision, "numeric_scale": kind.scale,
        }  # fmt: skip
        if kind.name == "varchar":
            row |= {"character_maximum_length": LONGEST_TEXT, "character_octet_length": 4 * LONGEST_TEXT}
            row |= {"character_set_name": "utf8mb4", "collation_name": COLLATION}
        elif kind.name in ("datetime", "time"):
            row["datetime_precision"] = 6
        listed.append(row)
    return listed


def column_type(table: Table, column: Column) -> Type:
    """Return a column's type in the catalogue.

    Of a protected table decimal numbers are listed as DOUBLE, which private sums and means of them are: DuckDB's extension hands
    over `sum` and `avg` of a DOUBLE, and of a DECIMAL would ask for the rows.
    """
    kind = of_duckdb(column.type)
    return of_duckdb("DOUBLE") if table.protected and kind.shape == "decimal" else kind


def create_text(table: Table) -> str:
    """Return a statement that would make a table of these columns, as SHOW CREATE TABLE has it."""
    columns = ",\n".join(f"  {named(column.name)} {column_type(table, column).full} DEFAULT NULL" for column in table.columns)
    comment = f" COMMENT='{PROTECTED}'" if table.protected else ""
    return f"CREATE TABLE {named(table.name)} (\n{columns}\n) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4{comment}"
