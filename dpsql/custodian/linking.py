"""dp_link, dp_unlink and dp_links: whose rows the rows of a table are. No row is read."""

from __future__ import annotations

from typing import Any

from dpsql.books.linked import Link
from dpsql.books.links import Links, check_shape
from dpsql.calls.custody import LinkCall, LinksCall, UnlinkCall
from dpsql.errors import ArgumentError, NotProtected
from dpsql.protected.booked import links_in
from dpsql.protected.home import books_of, catalog_of
from dpsql.protected.linked import (
    Unfit,
    check_columns,
    key_of,
    lineage_of,
    primary_key,
    stored_column,
    table_in,
)
from dpsql.protected.source import protection_of, remote_of
from dpsql.session.instance import Context
from dpsql.source.analysis import TableId, find_table
from dpsql.text.names import fold
from dpsql.text.relation import inline, literal

LINK_COLUMNS = {
    "source": "VARCHAR", "column_name": "VARCHAR", "parent": "VARCHAR", "parent_column": "VARCHAR", "root": "VARCHAR",
    "max_rows": "INTEGER", "orphans": "VARCHAR", "order_by": "VARCHAR",
}
UNLINK_COLUMNS = {"source": "VARCHAR", "parent": "VARCHAR", "root": "VARCHAR", "change": "VARCHAR"}
_CHOOSE = (
    "is needed: so many rows of {source} a row of {parent} may have; what a unit has beyond that is left out of a release, at "
    "random, and noise grows with it. Begin with what is usual, e.g. max_rows := 10; it can be changed at any time, for releases "
    "that are bought from then on"
)


def link(context: Context, call: LinkCall) -> str:
    """Link a table to its parent, or change a link. Returns a relation of one row.

    Raises
    ------
    ArgumentError
        The tables or columns cannot be linked; see `dpsql.books.links.Links.set` for what the books refuse.
    NotProtected
        The parent has no budget.

    Privacy
    -------
    Free: no row is read. What is said must be true of the schema, which is public.
    """
    context.known.clear()
    child = _table(context, "source", call.source)
    column, parent, key = _way(context, call, child)
    for argument, table in (("source", child), ("parent", parent)):
        if remote_of(context, table) is not None:
            told = "its rows are in another place, where links are not followed: join the tables there"
            raise ArgumentError(argument, key_of(table), told)
    if parent.database != child.database:
        told = f"is in database {parent.database!r}, {key_of(child)} in {child.database!r}: one budget is in one database; copy one"
        raise ArgumentError("parent", call.parent, told)
    if protection_of(context, parent)[1] is None:
        raise NotProtected(
            f"parent = {key_of(parent)!r} has no privacy budget that the rows of {key_of(child)} could be under: "
            f"CALL dp_protect({literal(key_of(parent))}, epsilon := ..., delta := ...) first"
        )
    ends = (child.schema, child.name), (parent.schema, parent.name)
    check_shape(links_in(context, child.database), Link(ends[0], column, ends[1], key, 1, "drop", ""))
    lineage_of(context, parent)  # a broken link above is said here
    try:
        column, key, keyed = check_columns(context, child, column, parent, key)
    except Unfit as error:
        end = {"column": column, "parent_column": key}[error.argument]
        raise ArgumentError(error.argument, end, str(error)) from None
    links = Links(context.cursor, child.database, books_of(context, child.database))
    before = links_in(context, child.database).get(key_of(child))
    most = call.max_rows or (None if before is None else before.max_rows)
    if most is None:
        raise ArgumentError("max_rows", None, _CHOOSE.format(source=key_of(child), parent=key_of(parent)))
    orphans = call.orphans or ("drop" if before is None else before.orphans)
    order = _order(context, call, child, None if before is None else before.order_by)
    declared = Link(ends[0], column, ends[1], key, most, "unit" if orphans == "unit" else "drop", "", order)
    stored, change = links.set(declared, context.user, merge=call.merge, keyed=keyed)
    context.known.clear()
    return inline({**LINK_COLUMNS, "change": "VARCHAR"}, [(*_row(stored), change)])


def unlink(context: Context, call: UnlinkCall) -> str:
    """Take the link of a table back, before a release has read it. Returns a relation of one row.

    Raises
    ------
    ArgumentError
        There is no such table, or `dpsql.books.links.Links.remove` refuses.

    Privacy
    -------
    Free: no row is read. The table is asked about, or taken for public, by nobody until it has a budget or a link again.
    """
    context.known.clear()
    table = _table(context, "source", call.source)
    removed = Links(context.cursor, table.database, books_of(context, table.database)).remove(key_of(table), context.user)
    context.known.clear()
    parent, root, change = (None, None, "no link is left") if removed is None else (removed.above, removed.root, "unlinked")
    return inline(UNLINK_COLUMNS, [(key_of(table), parent, root, change)])


def links(context: Context, call: LinksCall) -> str:
    """List links: all of them, that of a table, or those that lead to a root. Free: from the books.

    Raises
    ------
    ArgumentError
        There is no such table.
    """
    context.known.clear()
    if call.source is None:
        listed = [link for database in context.databases() for link in _ordered(context, database)]
        return inline(LINK_COLUMNS, [_row(link) for link in listed])
    table = _table(context, "source", call.source)
    key = key_of(table)
    return inline(LINK_COLUMNS, [_row(link) for link in _ordered(context, table.database) if key in (link.source, link.root)])


def _ordered(context: Context, database: str) -> list[Link]:
    """Return the links of a database, those of a root together and parents first."""
    by_child = links_in(context, database)

    def depth(link: Link) -> int:
        above = by_child.get(link.above)
        return 0 if above is None else 1 + depth(above)

    return sorted(by_child.values(), key=lambda link: (link.root, depth(link)))


def _row(link: Link) -> tuple[Any, ...]:
    return link.source, link.column, link.above, link.parent_column, link.root, link.max_rows, link.orphans, link.order_by


def _order(context: Context, call: LinkCall, child: TableId, before: str | None) -> str | None:
    """Return the column that rows of one parent row are ordered by, as the catalog spells it; '' takes an order back."""
    if call.order_by is None:
        return before
    if not call.order_by:
        return None
    try:
        return stored_column(catalog_of(context), child, call.order_by, "order_by").name
    except Unfit as error:
        raise ArgumentError(error.argument, call.order_by, str(error)) from None


def _table(context: Context, argument: str, name: str) -> TableId:
    """Return the base table of a name; errors name the argument."""
    try:
        table = find_table(context.cursor, name, database=context.database, schema=context.schema)
    except ArgumentError as error:
        told = error.expected.replace("a budget belongs to the table that holds the rows", "a link is one of tables that hold rows")
        raise ArgumentError(argument, name, told) from None
    if table.is_file:
        raise ArgumentError(argument, name, "is a file, which has no keys; CREATE TABLE t AS FROM it, and link that")
    return table


def _way(context: Context, call: LinkCall, child: TableId) -> tuple[str, TableId, str]:
    """Return column, parent and key of a link: as they are given, or as the link before, the only FOREIGN KEY or the keys say."""
    parent = None if call.parent is None else _table(context, "parent", call.parent)
    before = links_in(context, child.database).get(key_of(child))
    if before is not None and parent is None and call.column is None:
        parent = table_in(context, child.database, before.parent)
        if parent is None:
            raise ArgumentError("parent", before.above, "is gone; make the table anew under that name, with its key")
    if before is not None and parent is not None and (parent.database, key_of(parent)) == (child.database, before.above):
        column = call.column or before.column
        if fold(column) == fold(before.column):
            return column, parent, call.parent_column or before.parent_column
    references = catalog_of(context).references(child)
    fits = [
        (name, table, key)
        for name, (table, key) in references.items()
        if (parent is None or table == parent) and (call.column is None or fold(name) == fold(call.column))
    ]
    if call.column is not None and parent is not None:
        return call.column, parent, call.parent_column or (fits[0][2] if fits else _only_key(context, parent))
    if len(fits) != 1:
        listed = "; ".join(
            f"column_name := {literal(name)}, parent := {literal(key_of(table))}, parent_column := {literal(key)}"
            for name, (table, key) in references.items()
        )
        has = f"its FOREIGN KEYs are: {listed}" if listed else "it has no FOREIGN KEY of one column to take it from"
        missing = "parent" if parent is None else "column"
        raise ArgumentError(missing, None, f"say which link it is of {key_of(child)}; {has}")
    ((column, target, key),) = fits
    return column, _table(context, "parent", target.text), call.parent_column or key


def _only_key(context: Context, parent: TableId) -> str:
    """Return the PRIMARY KEY of one column of a table, or its only UNIQUE column."""
    catalog = catalog_of(context)
    primary = primary_key(context, parent)
    if len(primary) == 1:
        return primary[0]
    single = catalog.single_keys(parent)
    if len(single) != 1:
        told = "has no PRIMARY KEY of one column" + (
            f" and several unique ones ({', '.join(single.values())}): name one" if single else " and no UNIQUE one: declare one"
        )
        raise ArgumentError("parent_column", None, f"{key_of(parent)} {told}")
    return next(iter(single.values()))
