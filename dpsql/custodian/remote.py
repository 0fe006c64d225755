"""dp_remote: a table whose rows another engine has gets a name here, with types and no rows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import duckdb

from dpsql.calls.custody import RemoteCall
from dpsql.engines import registry
from dpsql.engines.remote import Described, Remote, files_of
from dpsql.errors import ArgumentError, DpsqlError, first_line
from dpsql.protected.booked import links_in
from dpsql.protected.home import books_of, catalog_of, named_files
from dpsql.protected.linked import key_of
from dpsql.protected.source import ledger_of, remote_of
from dpsql.session.instance import Context
from dpsql.source.analysis import TableId, relation_columns
from dpsql.source.parse import tokens
from dpsql.text.names import fold
from dpsql.text.relation import identifier, inline

REMOTE_COLUMNS = {"column_name": "VARCHAR", "type": "VARCHAR", "engine_type": "VARCHAR", "status": "VARCHAR"}


def remote(context: Context, call: RemoteCall) -> str:
    """Make an empty table with the columns of a remote one, and write down where its rows are. Returns a row a column.

    Privacy
    -------
    Free: names and types are read, no row. The table in DuckDB stays empty; nobody who opens the file finds a row in it. Rows that
    a budget was spent on stay those of the name: another relation needs another name.

    Raises
    ------
    ArgumentError
        The name is taken by another table, the url holds credentials, or the relation has no column that can be used.
    DpsqlError
        The engine cannot be reached, or what it has does not fit the name any more.
    """
    context.known.clear()
    if context.database not in context.databases():
        raise ArgumentError("source", call.source, f"a name cannot be made in {context.database!r}; USE a database of DuckDB's own")
    place = registry.checked(call.engine, call.url, call.relation)
    entry = catalog_of(context).find(context.database, context.schema, call.source)
    table = TableId(context.database, context.schema, call.source if entry is None else entry.table.name)
    known = remote_of(context, table)
    if entry is not None and known is None:
        raise ArgumentError("source", call.source, "is a table of this database already; choose another name for the remote one")
    if key_of(table) in links_in(context, table.database):
        raise ArgumentError("source", call.source, "is linked, and a linked table has its rows here; choose another name")
    if known is None or (known.engine, known.relation) != (place.engine, place.relation):
        _check_unspent(context, table, call, known)
    columns = registry.describe(place, context.cursor)
    place = replace(place, url=place.url or _kind(context, place))
    named_files(context).check_name(table.database, key_of(table), place)
    if entry is None:
        _create(context, table, columns, place.relation)
        types: dict[str, str | None] = {fold(column.name): column.sql_type for column in columns}
    else:
        types = {fold(column.name): column.sql_type for column in relation_columns(context.cursor, table)}
        _check_same(call, types, columns)
    books_of(context, table.database).set_remote(key_of(table), place, context.user)
    context.known.clear()
    names = [fold(column.name) for column in columns]
    twice = {name for name in names if names.count(name) > 1}
    return inline(REMOTE_COLUMNS, [_row(column, types, twice, new=entry is None) for column in columns])


def _kind(context: Context, place: Remote) -> str:
    """Return the type of the attached database that has the rows; '' for files. Books keep it: it may be detached later."""
    if files_of(place.relation):
        return ""
    name = fold(next(token.text for token in tokens(place.relation)))
    return next((attached.kind for attached in context.attached() if fold(attached.name) == name), "")


def _check_unspent(context: Context, table: TableId, call: RemoteCall, known: Remote | None) -> None:
    """Refuse to put other rows under a budget: what was spent was spent on those before."""
    if ledger_of(context, table).protection() is not None:
        before = "were in this database" if known is None else f"are {known.relation!r} of {known.engine}"
        raise ArgumentError(
            "relation",
            call.relation,
            f"{call.source} has a budget, and its rows {before}: what was spent was spent on these; choose another name, which "
            "gets a budget of its own",
        )


def _create(context: Context, table: TableId, columns: list[Described], relation: str) -> None:
    listed = ", ".join(f"{identifier(column.name)} {column.sql_type}" for column in columns if column.sql_type)
    if not listed:
        kinds = sorted({column.kind for column in columns})
        none = "no column of it can be used: those that the role may read (GRANT SELECT) have types that dpsql does not count"
        raise ArgumentError("relation", relation, f"{none} ({', '.join(kinds[:12])}); docs/places.md lists the types")
    try:
        context.cursor.execute(f"CREATE TABLE {identifier(table.database, table.schema, table.name)} ({listed})")
    except duckdb.Error as error:
        raise DpsqlError(f"source = {table.name!r}: the empty table cannot be made: {first_line(error)}") from None


def _check_same(call: RemoteCall, types: dict[str, str | None], columns: list[Described]) -> None:
    """Refuse a relation that lacks a column of the table, or has it with another type."""
    remote_types = {fold(column.name): column.sql_type for column in columns}
    changed = [name for name, sql_type in types.items() if remote_types.get(name) != sql_type]
    if changed:
        raise DpsqlError(
            f"relation = {call.relation!r}: columns {changed[:12]!r} of {call.source} have other types there now, or are gone. Put "
            f"them back; or drop the empty table here and call dp_remote again (budget, ledger and declarations stay)"
        )


def _row(column: Described, types: dict[str, str | None], twice: Collection[str], *, new: bool) -> tuple[str | None, ...]:
    if column.sql_type is None:
        why = "a name that is there twice" if fold(column.name) in twice else "no type of DuckDB that dpsql counts"
        status = f"left out: {why}"
    elif fold(column.name) in types:
        status = "added" if new else "there"
    else:
        status = "left out: came later; ALTER TABLE here adds it"
    return column.name, column.sql_type, column.kind, status
