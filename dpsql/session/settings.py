"""The settings of DuckDB that what dpsql computes depends on, and how its own cursors are made independent of them.

A setting that anybody may change for the whole database (``SET default_order = 'DESC'``) must not change what the books say, how
rows are encoded or which expressions fail. DuckDB lets a session override almost all of them, so every cursor of dpsql does
(`pin`); the caller's own session keeps what it has. The SQL of dpsql says ASC or DESC all the same: the books are read without
dpsql too.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import duckdb

from dpsql.errors import DpsqlError, first_line


class Pinned(NamedTuple):
    """The value that a setting has on every cursor of dpsql, and why.

    ``same`` are other values that mean the same, or that are borne where the configuration is locked because they are DuckDB's own
    defaults and something else guards against them.
    """

    value: str
    why: str
    same: tuple[str, ...] = ()


PINNED = {
    # First, because it can be set where the configuration is locked. A macro of the database comes before DuckDB's function of the
    # same name, and +, ||, LIKE, [1] and count(*) are calls of functions too; on this path nothing of the database comes before
    # them. So a table is found on a cursor of dpsql under its database and schema only.
    "search_path": Pinned("system.main", "functions and operators are DuckDB's own, whatever macros the database holds"),
    "default_order": Pinned("ASCENDING", "the ledger was read backwards", ("ASC",)),
    "default_null_order": Pinned("NULLS_LAST", "where NULL stands in an order", ("NULLS LAST", "LAST")),
    "default_collation": Pinned("", "another one counts different texts, and units, together"),
    "ieee_floating_point_ops": Pinned("true", "pow(0, -1) and log(0) fail without it, if some row computes them"),
    "integer_division": Pinned("false", "what / means"),
    "error_on_division_by_zero": Pinned("false", "1 // 0 and 1 % 0 fail on 2.0, if some row computes them; NULL before", ("true",)),
    "TimeZone": Pinned("UTC", "dates and texts of moments", ("Etc/UTC", "Etc/UCT", "UCT", "GMT", "Etc/GMT")),
    "Calendar": Pinned("gregorian", "dates and parts of moments"),
    "disable_timestamptz_casts": Pinned("false", "which conversions there are"),
    "old_implicit_casting": Pinned("false", "conversions that the binder adds, and that can fail"),
    "scalar_subquery_error_on_multiple_rows": Pinned("true", "a subquery takes any row without it"),
    "order_by_non_integer_literal": Pinned("false", "what an order may name"),
    "regex_match_operator_semantics": Pinned("partial", "what ~ matches"),
    "dialect_compatibility_mode": Pinned("NONE", "what functions and operators mean"),
    "lambda_syntax": Pinned("DEFAULT", "what -> means"),
    "table_function_identifier_conversion": Pinned("DEFAULT", "what a table function takes a name for"),
    "show_behavior": Pinned("AUTO", "what DESCRIBE answers"),
    "legacy_disable_null_type": Pinned("false", "the type of NULL"),
    "variant_legacy_encoding": Pinned("false", "what a VARIANT holds"),
    "binary_as_string": Pinned("false", "types of columns of Parquet files"),
    "preserve_identifier_case": Pinned("true", "names of columns", ("preserve_case",)),
    "preserve_insertion_order": Pinned("true", "categories and drawn rows are read in the order they were given"),
    "max_expression_depth": Pinned("1000", "which sources can be planned"),
    "enable_optimizer": Pinned("true", "an expression that nobody reads is computed without it, and can fail"),
    "enable_macro_dependencies": Pinned("false", "our objects could not be replaced"),
    "enable_view_dependencies": Pinned("false", "our objects could not be replaced"),
    "immediate_transaction_mode": Pinned("false", "when a transaction of the ledger begins"),
    "default_transaction_invalidation_policy": Pinned("ALL_ERRORS_INVALIDATE_TRANSACTION", "an entry is whole or not there"),
    "max_execution_time": Pinned("0", "how long a statement takes depends on rows, so a limit of time tells something of them"),
    "errors_as_json": Pinned("false", "the first line of an error is its text"),
    "pandas_analyze_sample": Pinned("1000", "types of columns of frames that are stored"),
    "python_scan_all_frames": Pinned("false", "a name in SQL is never a Python variable"),
    "enable_progress_bar": Pinned("false", "DuckDB's bar would write to the line of ours", ("true",)),
}
"""Every setting that dpsql depends on and that a session can override; a version of DuckDB may not have all of them.

``disabled_optimizers`` can be set for the whole database only, see `sound_plans`; no SQL of the books depends on it.
``python_enable_replacements`` stays as it is: `dpsql.rows.writing` works with and without it, and names in a source are looked up
in the catalog.
"""

UNSOUND = ("common_subplan",)
"""Optimizers of DuckDB that give other rows than were asked for.

On 2.0.0 and 2.0.1 ``common_subplan`` takes two joins for one and mixes up their columns. Whether it is used depends on how many
rows tables have: so one person's rows could change those of all others.
"""

_TYPES = "SELECT system.main.count_star() FROM system.main.duckdb_types()"
_VIEWS = "SELECT system.main.count_star() FROM system.main.duckdb_views()"
_LATER = ("TimeZone", "Calendar")
"""Settings of an extension that may be loaded at any time."""
_unknown: set[str] = set()


def pin(cursor: duckdb.DuckDBPyConnection) -> None:
    """Give a cursor of dpsql the settings it depends on, whatever the database has; no other session is changed.

    On its search path functions and operators are DuckDB's own. A macro of the database otherwise comes before DuckDB's function
    of the same name, and ``+``, ``||``, LIKE, ``[1]`` and ``count(*)`` are calls of functions too. So a table is found under its
    database and schema only.

    Raises
    ------
    DpsqlError
        The configuration is locked with another value of one of them.
    """
    cursor.execute("SET search_path = 'system.main'")  # a locked configuration allows it
    for name, pinned in PINNED.items():
        if name in _unknown:
            continue
        try:
            cursor.execute(f"SET SESSION {name} = '{pinned.value}'")
        except duckdb.CatalogException:  # not in this version, or an extension that is not loaded yet
            if name not in _LATER:
                _unknown.add(name)
        except duckdb.InvalidInputException as error:
            _check_locked(cursor, error)
            return


def repin(cursor: duckdb.DuckDBPyConnection) -> None:
    """Make a cursor that a call has given back ready for the next one.

    Its session keeps what `pin` set, whatever is set for the whole database meanwhile. What a call may change is set again, and so
    is what could not be set: an extension may have been loaded since.

    Raises
    ------
    duckdb.Error
        The cursor was closed, or the configuration is locked now: it cannot be used again.
    """
    for name in ("search_path", "preserve_insertion_order", "enable_progress_bar"):
        cursor.execute(f"SET SESSION {name} = '{PINNED[name].value}'")
    for name in _LATER:
        with suppress(duckdb.CatalogException):
            cursor.execute(f"SET SESSION {name} = '{PINNED[name].value}'")


def settle(con: duckdb.DuckDBPyConnection, *, views: bool = False) -> None:
    """Let DuckDB make the entries of its own types, and views, that it would make when a statement first names them.

    Each takes a number of the counter by which `dpsql.source.listed` sees whether somebody created a function. Those of types are
    the session's, those of views the database's.
    """
    try:
        con.execute(f"{_TYPES} UNION ALL {_VIEWS}" if views else _TYPES).fetchall()
    except duckdb.InterruptException:
        raise
    except duckdb.Error:  # overloaded functions can break DuckDB's own views; then functions are listed more often
        return


def sound_plans(cursor: duckdb.DuckDBPyConnection) -> None:
    """Switch off `UNSOUND` optimizers, for the whole database: no session can do so for itself. To be called before joins are read.

    Raises
    ------
    DpsqlError
        The configuration is locked, and they are in use.
    """
    off = _switched_off(cursor)
    if off is None:
        return
    try:
        cursor.execute(f"SET GLOBAL disabled_optimizers = '{','.join(off)}'")
    except duckdb.InvalidInputException as error:
        raise DpsqlError(
            f"setting disabled_optimizers lacks {', '.join(UNSOUND)}, which gives wrong answers to joins on some versions of "
            f"DuckDB: {first_line(error)}. SET GLOBAL disabled_optimizers = '{','.join(off)}' before the configuration is locked"
        ) from None


def plans_are_sound(cursor: duckdb.DuckDBPyConnection) -> bool:
    """Return whether no `UNSOUND` optimizer is in use."""
    return _switched_off(cursor) is None


def encrypt_spilled(cursor: duckdb.DuckDBPyConnection) -> bool:
    """Have DuckDB encrypt what does not fit into memory, for all databases; return whether it does.

    Privacy: rows of an encrypted database would lie in its temporary files in the clear. The key is made for each instance.
    """
    asked = "SELECT system.main.current_setting('temp_file_encryption')"
    try:
        if cursor.execute(asked).fetchall()[0][0] not in (True, "true"):
            cursor.execute("SET GLOBAL temp_file_encryption = true")
        return cursor.execute(asked).fetchall()[0][0] in (True, "true")
    except (duckdb.InvalidInputException, duckdb.CatalogException):  # locked, or something lies there already
        return False


def _switched_off(cursor: duckdb.DuckDBPyConnection) -> list[str] | None:
    """Return the optimizers to switch off, those that are off already among them; None where it is done."""
    row = cursor.execute("SELECT system.main.current_setting('disabled_optimizers')").fetchone()  # duckdb_settings() lists them all
    off = [name.strip() for name in str(row[0] if row else "").split(",") if name.strip()]
    if set(UNSOUND) <= set(off):
        return None
    known = {str(name) for (name,) in cursor.execute("SELECT name FROM system.main.duckdb_optimizers()").fetchall()}
    all_off = [*off, *(name for name in UNSOUND if name in known and name not in off)]
    return None if all_off == off else all_off


def _check_locked(cursor: duckdb.DuckDBPyConnection, error: duckdb.Error) -> None:
    """Accept a locked configuration if it has the values that would have been set."""
    settings = cursor.execute("SELECT name, coalesce(value, '') FROM system.main.duckdb_settings()").fetchall()
    for name, value in settings:
        pinned = PINNED.get(name)
        if pinned is not None and value.lower() not in {text.lower() for text in (pinned.value, *pinned.same)}:
            raise DpsqlError(
                f"setting {name} = {value!r}: dpsql needs {pinned.value!r} ({pinned.why}) and cannot set it for its own cursor: "
                f"{first_line(error)}. Set it before the configuration is locked"
            ) from None
