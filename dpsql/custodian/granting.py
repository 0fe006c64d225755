"""dp_grant and dp_publish: what analysts of a served database may spend and read. No row is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import sqlglot
from sqlglot import exp

from dpsql import methods
from dpsql.books.entries import Protection
from dpsql.books.granted import Grant, now
from dpsql.books.grants import Grants
from dpsql.books.ledger import Ledger
from dpsql.calls.declaration import CHARGED
from dpsql.calls.granting import GrantCall, PublishCall
from dpsql.calls.registry import declarations
from dpsql.errors import ArgumentError, DpsqlError, NotProtected
from dpsql.protected.columns import check_known
from dpsql.protected.home import books_of
from dpsql.protected.linked import root_key
from dpsql.protected.source import catalog_of, key_of, ledger_of, protection_of
from dpsql.session.instance import Context
from dpsql.source.analysis import find_table, relation_columns
from dpsql.source.catalog import Catalog, Entry
from dpsql.source.model import TableId, fold
from dpsql.text.relation import at_least, at_most, inline, literal

GRANT_COLUMNS = {
    "source": "VARCHAR", "analyst": "VARCHAR", "epsilon": "DOUBLE", "per_query": "DOUBLE", "renew": "VARCHAR", "renews_on": "DATE",
    "epsilon_spent": "DOUBLE", "epsilon_left": "DOUBLE", "releases": "INTEGER", "methods": "VARCHAR[]", "columns": "VARCHAR[]",
    "change": "VARCHAR",
}  # fmt: skip
PUBLISH_COLUMNS = {"source": "VARCHAR", "kind": "VARCHAR", "change": "VARCHAR"}


def grant(context: Context, call: GrantCall) -> str:
    """Set, change, take back or list grants of a table.

    Raises
    ------
    NotProtected
        The table has no budget that a part of could be granted.
    ArgumentError
        An argument does not go with the table, or with another one.
    """
    if call.source is None:
        return _listed(context, call)
    table = find_table(context.cursor, call.source, database=context.database, schema=context.schema)
    if table.is_file:
        raise ArgumentError("source", call.source, "a file is not served; CREATE TABLE t AS FROM it, protect and grant that")
    root = root_key(context, table)
    if root is not None:
        told = f"is linked, and under the budget of {root}: grant a part of that; without columns it is seen there, too"
        raise ArgumentError("source", call.source, told)
    ledger = ledger_of(context, table)
    protection = ledger.protection()
    if protection is None:
        raise NotProtected(
            f"source = {call.source!r} has no privacy budget to grant a part of: CALL dp_protect({literal(call.source)}, "
            "epsilon := ..., delta := ...). If it holds no protected row: CALL dp_publish"
        )
    if call.epsilon is None and not call.remove:
        _check_listed(call)
        held = ledger.grants()
        names = sorted(held) if call.analyst is None else [name for name in held if name == call.analyst]
        return inline(GRANT_COLUMNS, [_row(ledger, protection, held[name], "in force") for name in names])
    if call.analyst is None:
        raise ArgumentError("analyst", None, "say whose grant it is, as in the file of tokens")
    if call.remove:
        ledger.grant(None, call.analyst)
        empty = {**dict.fromkeys(GRANT_COLUMNS), "source": ledger.source, "analyst": call.analyst, "change": "removed"}
        return inline(GRANT_COLUMNS, [tuple(empty.values())])
    wanted = _wanted(context, call, table, ledger.source)
    ledger.grant(wanted, wanted.analyst)
    return inline(GRANT_COLUMNS, [_row(ledger, protection, wanted, "granted")])


def _listed(context: Context, call: GrantCall) -> str:
    """Return the grants in force of all tables, or those of one analyst."""
    if call.epsilon is not None or call.remove:
        raise ArgumentError("source", None, "say which table's grant is set or taken back")
    _check_listed(call)
    rows = []
    for database in context.databases():
        books = books_of(context, database)
        for held in Grants(context.cursor, database, books).all() if books.exist() else []:
            ledger = Ledger(books, held.source, context.user)
            protection = ledger.protection()
            if protection is not None and call.analyst in (None, held.analyst):
                rows.append(_row(ledger, protection, held, "in force"))
    return inline(GRANT_COLUMNS, rows)


def _check_listed(call: GrantCall) -> None:
    for name in ("per_query", "renew", "methods", "columns"):
        if getattr(call, name) is not None:
            raise ArgumentError("epsilon", None, f"{name} belongs to a grant: say the whole of it, with epsilon")


def _wanted(context: Context, call: GrantCall, table: TableId, source: str) -> Grant:
    """Return the grant that a call says, its names spelled as they are."""
    columns, names = call.columns, call.methods
    if columns is not None:
        known = [c.name for c in relation_columns(context.cursor, table, catalog_of(context))]
        check_known("columns", columns, known)
        columns = tuple(name for name in known if fold(name) in {fold(one) for one in columns})
    if names is not None:
        sold = [one.name for one in declarations() if one.privacy == CHARGED and one.analysts is not None]
        there = [*sold, *methods.names()]
        check_methods(names, there)
        names = tuple(name for name in there if fold(name) in {fold(one) for one in names})
    return Grant(str(call.analyst), source, float(call.epsilon or 0), call.per_query, call.renew, names, columns)


def check_methods(names: tuple[str, ...], there: list[str]) -> None:
    """Refuse a name that is no call and no synthesizer.

    Raises
    ------
    ArgumentError
    """
    for name in names:
        if fold(name) not in {fold(one) for one in there}:
            raise ArgumentError("methods", name, f"is no call or synthesizer; there are {', '.join(there)}")


def _row(ledger: Ledger, protection: Protection, grant: Grant, change: str) -> tuple[Any, ...]:
    moment = now()
    (left, spent), until = ledger.left(grant, protection, moment), grant.end(moment)
    change = "suspended" if grant.suspended else change
    shown = {
        "source": grant.source, "analyst": grant.analyst, "epsilon": grant.epsilon, "per_query": grant.per_query,
        "renew": grant.renew, "renews_on": None if until is None else f"{until:%Y-%m-%d}",
        "epsilon_spent": at_most(left.epsilon_spent), "epsilon_left": at_least(left.epsilon_left), "releases": len(spent),
        "methods": None if grant.methods is None else list(grant.methods),
        "columns": None if grant.columns is None else list(grant.columns), "change": change,
    }  # fmt: skip
    return tuple(shown[name] for name in GRANT_COLUMNS)


def publish(context: Context, call: PublishCall) -> str:
    """Publish a table or view, take that back, or list what is published.

    A view of protected tables is published by name: who has a grant of them may ask about it, as about the tables.

    Raises
    ------
    ArgumentError
        It is protected, or what it reads cannot be seen in its text or is open to nobody.
    """
    if call.source is None:
        held = Grants(context.cursor, context.database)
        states = {True: "in force", False: "changed since: not published"}
        return inline(PUBLISH_COLUMNS, [(one.source, one.kind, states[holds]) for one, holds in held.publications()])
    table = find_table(context.cursor, call.source, database=context.database, schema=context.schema, views=True)
    if table.is_file:
        raise ArgumentError("source", call.source, "a file is not served; CREATE TABLE t AS FROM it, and publish that")
    catalog = catalog_of(context)
    entry = catalog.find(table.database, table.schema, table.name)
    kind = "view" if entry is not None and entry.is_view else "table"
    held = Grants(context.cursor, table.database)
    if call.remove:
        held.unpublish(key_of(table))
        return inline(PUBLISH_COLUMNS, [(key_of(table), kind, "removed")])
    views: dict[str, str] = {}
    tables = {one: None for one in _below(context, catalog, entry, call.source, views)} if entry is not None else {table: None}
    for below in tables:
        if below.database != table.database:
            raise ArgumentError("source", call.source, f"reads {below.text}, in another database; make it a table here first")
    protected = sorted(key_of(below) for below in tables if protection_of(context, below)[1] is not None)
    if key_of(table) in protected:
        told = "is protected: its rows are not published; CALL dp_grant gives access to answers about them"
        raise ArgumentError("source", call.source, told)
    open_ = {*protected, *held.published()}
    closed = sorted(key_of(below) for below in tables if protected and key_of(below) not in open_)
    if closed:
        told = f"reads protected rows, and {', '.join(closed)}, which is not published; publish that first"
        raise ArgumentError("source", call.source, told)
    columns = held.columns()
    below_it = sorted(key_of(one) for one in tables)
    definition = {
        "views": views, "tables": below_it, "protected": protected,
        "columns": {name: columns.get(name, []) for name in below_it if name not in protected},
    }  # fmt: skip
    held.publish(key_of(table), context.user, json.dumps(definition, sort_keys=True, ensure_ascii=False))
    return inline(PUBLISH_COLUMNS, [(key_of(table), kind, "published")])


def _below(context: Context, catalog: Catalog, entry: Entry, source: str, views: dict[str, str]) -> Iterator[TableId]:
    """Yield the tables that a table or view reads, and note the text of each view.

    Raises
    ------
    ArgumentError
        Its text does not show what it reads.
    """
    if not entry.is_view:
        yield entry.table
        return
    key = key_of(entry.table)
    if key in views:
        return
    views[key] = entry.sql
    home = (entry.table.database, entry.table.schema)
    homes = [home] if fold(home[1]) == "main" else [home, (home[0], "main")]
    unseen = f"view {entry.table.text} calls something whose readings its text does not show; make it a table, and publish that"
    try:
        tree = sqlglot.parse_one(entry.sql, read="duckdb")
    except (sqlglot.errors.SqlglotError, RecursionError):
        raise ArgumentError("source", source, unseen) from None
    body = tree.expression if isinstance(tree, exp.Create) else tree
    if body is None or _calls(body) & _macros(context):
        raise ArgumentError("source", source, unseen)
    inside = {fold(cte.alias) for cte in body.find_all(exp.CTE)}
    for node in body.find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier):
            raise ArgumentError("source", source, unseen)
        try:
            found = catalog.locate([part.name for part in node.parts], homes)
        except DpsqlError as error:
            raise ArgumentError("source", source, f"view {entry.table.text} cannot be published: {error}") from None
        if found is not None:
            yield from _below(context, catalog, found, source, views)
        elif not (len(node.parts) == 1 and fold(node.name) in inside):
            raise ArgumentError("source", source, f"view {entry.table.text} reads {node.name}, which is not there")


def _calls(node: exp.Expression) -> set[str]:
    """Return the names of all functions that an expression calls."""
    return {
        fold(str(one.this) if isinstance(one, exp.Anonymous) else one.sql_name())
        for one in node.find_all(exp.Func)
    }


def _macros(context: Context) -> set[str]:
    """Return the names of all macros and functions that DuckDB does not ship."""
    query = "SELECT DISTINCT function_name FROM system.main.duckdb_functions() WHERE NOT internal"
    return {fold(str(name)) for (name,) in context.cursor.execute(query).fetchall()}
