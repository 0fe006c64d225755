"""dp_grant: what analysts of a served database may spend of a protected table. No row is read."""

from __future__ import annotations

from typing import Any

from dpsql import methods
from dpsql.books.entries import Protection
from dpsql.books.granted import Grant, now
from dpsql.books.grants import Grants
from dpsql.books.ledger import Ledger
from dpsql.calls.declaration import CHARGED
from dpsql.calls.granting import GrantCall
from dpsql.calls.registry import declarations
from dpsql.errors import ArgumentError, NotProtected
from dpsql.protected.columns import check_known
from dpsql.protected.home import books_of, catalog_of
from dpsql.protected.linked import root_key
from dpsql.protected.source import ledger_of
from dpsql.session.instance import Context
from dpsql.source.analysis import find_table, relation_columns
from dpsql.source.model import TableId, fold
from dpsql.text.relation import at_least, at_most, inline, literal

GRANT_COLUMNS = {
    "source": "VARCHAR", "analyst": "VARCHAR", "epsilon": "DOUBLE", "per_query": "DOUBLE", "renew": "VARCHAR", "renews_on": "DATE",
    "epsilon_spent": "DOUBLE", "epsilon_left": "DOUBLE", "releases": "INTEGER", "methods": "VARCHAR[]", "columns": "VARCHAR[]",
    "change": "VARCHAR",
}

_PARTS = ("per_query", "renew", "methods", "columns")


def grant(context: Context, call: GrantCall) -> str:
    """Set, change, take back or list grants of a table.

    Raises
    ------
    NotProtected
        The table has no budget that a part of could be granted.
    ArgumentError
        An argument does not go with the table, or with another one.
    """
    if context.analyst is not None:  # the gate lets no such call through
        raise ArgumentError("call", "dp_grant", "is the custodian's")
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
            "epsilon := ..., delta := ...)"
        )
    if call.epsilon is None and not call.remove:
        _check_listed(call)
        grants = ledger.grants()
        names = sorted(grants) if call.analyst is None else [name for name in grants if name == call.analyst]
        return inline(GRANT_COLUMNS, [_row(ledger, protection, grants[name], "in force") for name in names])
    if call.analyst is None:
        raise ArgumentError("analyst", None, "say whose grant it is: her name in analysts.toml")
    if call.remove:
        for name in ("epsilon", *_PARTS):
            if getattr(call, name) is not None:
                raise ArgumentError("remove", True, f"takes the whole grant back: leave {name} out")
        before = ledger.grant(None, call.analyst)
        change = "removed" if before is not None else "had none"
        empty = {**dict.fromkeys(GRANT_COLUMNS), "source": ledger.source, "analyst": call.analyst, "change": change}
        return inline(GRANT_COLUMNS, [tuple(empty.values())])
    granted = _wanted(context, call, table, ledger.source)
    ledger.grant(granted, granted.analyst)
    return inline(GRANT_COLUMNS, [_row(ledger, protection, granted, "granted")])


def _listed(context: Context, call: GrantCall) -> str:
    """Return the grants in force of all tables, or those of one analyst."""
    if call.epsilon is not None or call.remove:
        raise ArgumentError("source", None, "say which table's grant is set or taken back")
    _check_listed(call)
    rows = []
    for database in context.databases():
        books = books_of(context, database)
        for granted in Grants(books).all():
            ledger = Ledger(books, granted.source, context.user)
            protection = ledger.protection()
            if protection is not None and call.analyst in (None, granted.analyst):
                rows.append(_row(ledger, protection, granted, "in force"))
    return inline(GRANT_COLUMNS, rows)


def _check_listed(call: GrantCall) -> None:
    for name in _PARTS:
        if getattr(call, name) is not None:
            raise ArgumentError("epsilon", None, f"{name} belongs to a grant: say the whole of it, with epsilon")


def _wanted(context: Context, call: GrantCall, table: TableId, source: str) -> Grant:
    """Return the grant that a call says, its names spelled as they are."""
    columns, names = call.columns, call.methods
    if columns is not None:
        known = [c.name for c in relation_columns(context.cursor, table, catalog_of(context))]
        check_known("columns", columns, known)
        asked = {fold(column) for column in columns}
        columns = tuple(name for name in known if fold(name) in asked)
    if names is not None:
        sold = [call.name for call in declarations() if call.privacy == CHARGED]
        grantable = [*sold, *methods.names()]
        by_short = {fold(name).removeprefix("dp_"): name for name in names}
        for short, name in by_short.items():
            if short not in map(fold, grantable):
                raise ArgumentError("methods", name, f"is no call or synthesizer; there are {', '.join(grantable)}")
        names = tuple(name for name in grantable if fold(name) in by_short)
    return Grant(str(call.analyst), source, float(call.epsilon or 0), call.per_query, call.renew, names, columns)


def _row(ledger: Ledger, protection: Protection, grant: Grant, change: str) -> tuple[Any, ...]:
    moment = now()
    (left, spent), until = ledger.left(grant, protection, moment), grant.end(moment)
    shown = {
        "source": grant.source, "analyst": grant.analyst, "epsilon": grant.epsilon, "per_query": grant.per_query,
        "renew": grant.renew, "renews_on": None if until is None else f"{until:%Y-%m-%d}",
        "epsilon_spent": at_most(left.epsilon_spent), "epsilon_left": at_least(left.epsilon_left), "releases": len(spent),
        "methods": None if grant.methods is None else list(grant.methods),
        "columns": None if grant.columns is None else list(grant.columns), "change": change,
    }
    return tuple(shown[name] for name in GRANT_COLUMNS)
