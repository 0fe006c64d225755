"""Thin adapters between DuckDB and dpsql: SQL types, side effects, errors."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import duckdb

from dpsql import calls, sql
from dpsql.books import current_user
from dpsql.errors import DpsqlError, first_line
from dpsql.session import Instance, find_instance, new_instance

CALL = "__dp_call"
INSTANCE = "__dp_instance"
_loading = threading.Lock()


def load(con: duckdb.DuckDBPyConnection, *, store: str | Path | None = None, user: str | None = None) -> None:
    """Register dpsql's functions and macros on a connection. Safe to repeat.

    Parameters
    ----------
    con : duckdb.DuckDBPyConnection
        Its cursors, and other connections of this process to the same database, can use the macros too.
    store : path, optional
        Folder of the release files. Default: ``<database file>.dpsql`` next to the database; a temporary folder for
        an in-memory database.
    user : str, optional
        Who is asking, for the ledger. Default: the login name.

    Raises
    ------
    DpsqlError
        The connection is closed or the macros cannot be created.

    Examples
    --------
    >>> import duckdb, dpsql
    >>> con = duckdb.connect()
    >>> dpsql.load(con)
    >>> con.execute("FROM dp_ledger()").fetchall()
    []
    >>> con.close()
    """
    with _loading:
        instance = instance_of(con) or _register(con)
    instance.add(con)
    if store is not None:
        instance.store = Path(store).expanduser().absolute()
    if user is not None:
        instance.user = user
    _create_macros(con)


def instance_of(con: duckdb.DuckDBPyConnection) -> Instance | None:
    """Return what ``load`` registered for the database instance of this connection, or None."""
    try:
        row = con.cursor().execute(f"SELECT {INSTANCE}()").fetchone()
    except duckdb.CatalogException:
        return None
    except duckdb.Error as error:
        raise DpsqlError(f"con: the connection cannot be used: {first_line(error)}") from None
    return find_instance(str(row[0])) if row else None


def _register(con: duckdb.DuckDBPyConnection) -> Instance:
    """Register the functions; they hold the key of the instance and nothing that keeps the connection alive."""
    instance = new_instance(current_user())
    key = instance.key

    def call(name: str, given: str) -> str:
        arguments = json.loads(given)
        database, schema = arguments.pop("__database"), arguments.pop("__schema")
        try:
            return calls.run(find_instance(key), name, arguments, database=database, schema=schema)
        except DpsqlError as error:
            raise error.with_traceback(None) from None  # DuckDB 1.x appends the trace to the text that SQL users read

    def instance_key() -> str:
        return key

    # DuckDB lets go of the functions when this connection closes, and still calls them from the others.
    instance.functions = (call, instance_key)
    con.create_function(CALL, call, ["VARCHAR", "VARCHAR"], "VARCHAR", side_effects=True)
    con.create_function(INSTANCE, instance_key, [], "VARCHAR", side_effects=True)
    return instance


def _create_macros(con: duckdb.DuckDBPyConnection) -> None:
    """Create the macros for this connection, and in the file for its cursors and other connections.

    Temporary macros are found whatever database or schema is in use. A read-only file keeps only those.
    """
    for statement in sql.statements("macros"):
        con.execute(statement.replace("CREATE OR REPLACE MACRO", "CREATE OR REPLACE TEMP MACRO", 1))
    cursor = con.cursor()
    try:
        stored = {
            name: text
            for name, text in cursor.execute(
                "SELECT function_name, macro_definition FROM duckdb_functions() WHERE function_type = 'table_macro' "
                "AND function_name LIKE 'dp\\_%' ESCAPE '\\' AND database_name = current_database() AND schema_name = 'main'"
            ).fetchall()
        }
        temporary = {
            name: text
            for name, text in con.execute(
                "SELECT function_name, macro_definition FROM duckdb_functions() WHERE function_type = 'table_macro' "
                "AND function_name LIKE 'dp\\_%' ESCAPE '\\' AND database_name = 'temp'"
            ).fetchall()
        }
        if stored.items() >= temporary.items():
            return
        for statement in sql.statements("macros"):
            cursor.execute(statement.replace("CREATE OR REPLACE MACRO ", "CREATE OR REPLACE MACRO main.", 1))
    except duckdb.Error as error:
        if "read-only" not in str(error) and "conflict" not in str(error):
            raise DpsqlError(f"the macros cannot be created in the database: {first_line(error)}") from None
    finally:
        cursor.close()
