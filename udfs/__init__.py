"""Thin adapters between DuckDB and dpsql: SQL types, side effects, errors."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import duckdb

from dpsql import sql
from dpsql.answers import cards
from dpsql.door import dispatch
from dpsql.door.clients import connection_of, is_engine, load_engine
from dpsql.errors import ArgumentError, DpsqlError, first_line
from dpsql.session.instance import Instance, current_user, find_instance, instance_with, new_instance
from dpsql.session.settings import settle
from dpsql.session.versions import warn_once

CALLS = ("__dp_call_needs_dpsql_load", "__dp_call")
COMBINES = ("__dp_combine_needs_dpsql_load", "__dp_combine")
"""What the macros call, and under which name those in files of older versions do."""
INSTANCE = "__dp_instance"
COMBINED = (
    "STRUCT(estimate DOUBLE, variance DOUBLE, standard_error DOUBLE, df DOUBLE, lower DOUBLE, upper DOUBLE, "
    '"between" DOUBLE, within DOUBLE, sets INTEGER)'
)
_loading = threading.Lock()
_parsed: dict[str, list[duckdb.Statement]] = {}
"""The statements that create the macros: reading their text takes half of the time of a load, so it is read once a process."""


def load(
    con: Any, *, store: str | Path | None = None, user: str | None = None, progress: bool | None = None, macros: bool = True
) -> None:
    """Register dpsql's functions and macros on a connection. Safe to repeat; a result that was not read to its end is over.

    Parameters
    ----------
    con : duckdb.DuckDBPyConnection, ibis DuckDB backend, or SQLAlchemy Connection, Session or Engine (duckdb-engine)
        Its cursors, and other connections of this process to the same database, can use the macros too. An engine has every
        connection that it opens from now on loaded.
    store : path, optional
        Folder of the release files. Default: ``<database file>.dpsql`` next to the database; a temporary folder for
        an in-memory database.
    user : str, optional
        Who is asking, for the ledger. Default: the login name.
    progress : bool, optional
        Whether a call that takes longer than a second shows a bar on standard error: stage, share done, time left. Default: on
        a terminal and in a notebook. ``SET VARIABLE dpsql_progress = false`` decides for one session and comes first; the
        environment variable DPSQL_PROGRESS (0 or 1) decides where neither does.
    macros : bool
        Whether the macros are written into the database, where its other connections find them. False before ``IMPORT DATABASE``
        of a database that had been loaded: its export brings them, and needs the functions behind them.

    Raises
    ------
    ArgumentError
        ``con`` is not a connection.
    DpsqlError
        The connection is closed or the macros cannot be created.

    Warns
    -----
    UntriedDuckDB
        DuckDB is newer than any version that dpsql was tried with; once a process.

    Examples
    --------
    >>> import duckdb, dpsql
    >>> con = duckdb.connect()
    >>> dpsql.load(con)
    >>> con.execute("FROM dp_ledger()").fetchall()
    []
    >>> con.close()
    """
    if is_engine(con):
        load_engine(con, lambda opened: load(opened, store=store, user=user, macros=macros))
        return
    con = connection_of(con)
    warn_once()
    with _loading:
        instance = instance_of(con) or _register(con)
    instance.add(con)
    if store is not None:
        instance.store = Path(store).expanduser().absolute()
    if user is not None:
        instance.user = user
    if progress is not None:
        instance.progress = progress
    _create_macros(con, stored=macros)
    cards.register()


def _numbers(argument: str, values: list[float | None] | None) -> list[float]:
    if values is None or any(value is None for value in values):
        shown = None if values is None else "a list"
        raise ArgumentError(argument, shown, "a number for each synthetic table is required, not NULL")
    return [float(value) for value in values if value is not None]


def instance_of(con: duckdb.DuckDBPyConnection) -> Instance | None:
    """Return what ``load`` registered for the database instance of this connection, or None.

    One that was loaded itself is not asked: a cursor is a new entry of the catalog, after which its functions are listed anew.
    """
    if (known := instance_with(con)) is not None:
        return known
    try:
        row = con.cursor().execute(f"SELECT system.main.{INSTANCE}()").fetchone()
    except duckdb.CatalogException:
        return None
    except duckdb.Error as error:
        raise DpsqlError(f"con: the connection cannot be used: {first_line(error)}") from None
    return find_instance(str(row[0])) if row else None


def _register(con: duckdb.DuckDBPyConnection) -> Instance:
    """Register the functions; they hold the key of the instance and nothing that keeps the connection alive."""
    instance = new_instance(current_user())
    key = instance.key

    def call(name: str, text: str) -> str:
        arguments = json.loads(text)
        database, schema = arguments.pop("__database"), arguments.pop("__schema")
        shown = arguments.pop("__progress", None)  # macros of an older dpsql in the file do not send it
        try:
            return dispatch.run(find_instance(key), name, arguments, database=database, schema=schema, progress=shown)
        except (DpsqlError, KeyboardInterrupt, duckdb.InterruptException) as error:
            raise error.with_traceback(None) from None  # DuckDB 1.x appends the trace to the text that SQL users read

    def instance_key() -> str:
        return key

    def combined(estimates: list[float | None] | None, variances: list[float | None] | None, level: float) -> dict[str, Any]:
        from dpsql.answers.combine import combine  # loads numpy

        try:
            return asdict(combine(_numbers("estimates", estimates), _numbers("variances", variances), level))
        except DpsqlError as error:
            raise error.with_traceback(None) from None

    # DuckDB lets go of the functions when this connection closes, and still calls them from the others.
    instance.functions = (call, instance_key, combined)
    con.execute("SELECT 1").fetchall()  # DuckDB 2 takes no functions while a result is read, if only to its one row
    for name in CALLS:
        con.create_function(name, call, ["VARCHAR", "VARCHAR"], "VARCHAR", side_effects=True)
    con.create_function(INSTANCE, instance_key, [], "VARCHAR", side_effects=True)
    special: Any = "special"  # NULL reaches the function; the stubs know the enumeration alone, which moved between versions
    for name in COMBINES:
        con.create_function(name, combined, ["DOUBLE[]", "DOUBLE[]", "DOUBLE"], COMBINED, null_handling=special)
    return instance


def interrupt(con: duckdb.DuckDBPyConnection) -> int:
    """Stop every dpsql call that is running on the database of a connection, from any thread.

    A call in another thread ends with duckdb.InterruptException within a second or two (``con.execute`` wraps it in its own
    error), and the books stay true. ``con.interrupt()`` of DuckDB stops a statement only once its dpsql call is over, because
    DuckDB does not tell a running function of it.

    Returns
    -------
    int
        Number of calls that were told to stop.
    """
    instance = instance_of(con)
    running = list(instance.running) if instance else []
    for call in running:
        call.stop()
    return len(running)


def _create_macros(con: duckdb.DuckDBPyConnection, *, stored: bool) -> None:
    """Create the macros for this connection, and in the file for its cursors and other connections.

    Temporary macros are found whatever database or schema is in use. A read-only file keeps only those.
    """
    try:
        _create(con, "TEMP MACRO ")
        settle(con)
        if not stored:
            return
        with con.cursor() as cursor:
            cursor.execute("BEGIN")  # a file waits for its disk once, not for each of them
            if _first_is_new(cursor):
                _create(cursor, "MACRO main.")
                cursor.execute("COMMIT")
                with suppress(duckdb.CatalogException):  # a name that is not found lets DuckDB make its own macros, see `settle`
                    cursor.execute(f"FROM system.main.{INSTANCE}_table()")
                return
            cursor.execute("ROLLBACK")
            row = cursor.execute("SELECT system.main.current_database()").fetchone()
            existing, temporary = _macros(con, str(row and row[0]))
            if not existing.items() >= temporary.items():
                cursor.execute("BEGIN")
                _create(cursor, "MACRO main.")
                cursor.execute("COMMIT")
    except duckdb.Error as error:
        if "read-only" not in str(error) and "conflict" not in str(error):
            raise DpsqlError(f"con: the macros cannot be created in the database: {first_line(error)}") from None


def _first_is_new(cursor: duckdb.DuckDBPyConnection) -> bool:
    """Create the first of the macros if there is none of its name; return whether it was. Asking the catalog takes far longer."""
    first = sql.statements("macros")[0].replace("CREATE OR REPLACE MACRO ", "CREATE MACRO main.", 1)
    try:
        cursor.execute(first)
    except duckdb.CatalogException:
        return False
    return True


def _create(con: duckdb.DuckDBPyConnection, what: str) -> None:
    """Create the macros, as temporary ones or in a schema."""
    if what not in _parsed:
        texts = (text.replace("CREATE OR REPLACE MACRO ", f"CREATE OR REPLACE {what}", 1) for text in sql.statements("macros"))
        _parsed[what] = con.extract_statements(";\n".join(texts))
    for statement in _parsed[what]:
        con.execute(statement)


def _macros(con: duckdb.DuckDBPyConnection, database: str) -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], str]]:
    """Return the text of dpsql's macros in a database and of the temporary ones, by kind and name; looking takes most of a load."""
    rows = con.execute(
        "SELECT database_name = 'temp', function_type, function_name, macro_definition FROM system.main.duckdb_functions() "
        "WHERE function_type IN ('macro', 'table_macro') AND system.main.starts_with(function_name, 'dp_') "
        "AND schema_name = 'main' AND database_name IN ('temp', ?)",
        [database],
    ).fetchall()
    stored, temporary = ({(kind, name): text for own, kind, name, text in rows if own is which} for which in (False, True))
    return stored, temporary
