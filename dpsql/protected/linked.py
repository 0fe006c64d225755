"""Whose rows the rows of a linked table are: the way up to its root, checked in the catalog each time that it is asked for.

Privacy: None: the books and the catalog are read, no row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dpsql.books.ledger import Ledger
from dpsql.books.linked import Link, Reads
from dpsql.errors import DpsqlError, LinkBroken, ReleaseError
from dpsql.protected.booked import books_of, links_in
from dpsql.protected.home import catalog_of
from dpsql.session.instance import Context
from dpsql.source.catalog import Catalog, Described, generated_columns
from dpsql.source.keys import KINDS, exact
from dpsql.source.linked import Hop, Lineage
from dpsql.source.model import TableId, fold
from dpsql.text.relation import key_name

_NONE = object()
_PRIMARY = """
SELECT constraint_column_names FROM system.main.duckdb_constraints() WHERE constraint_type = 'PRIMARY KEY'
AND database_name = $database AND schema_name = $schema AND table_name = $name
"""


def key_of(table: TableId) -> str:
    """Return the name under which the books know a table, whatever the database is attached as and in whatever case it is spelled.

    Examples
    --------
    >>> key_of(TableId("census", "main", "Adult")), key_of(TableId("census", "Odd one", "1a"))
    ('main.adult', '"odd one"."1a"')
    """
    return f"file:{table.name}" if table.is_file else key_name(table.schema, table.name)


def root_key(context: Context, table: TableId) -> str | None:
    """Return the root of a linked table, as the books call it; None where it is not linked. The books alone are asked."""
    link = None if table.is_file else links_in(context, table.database).get(key_of(table))
    return None if link is None else link.root


def lineage_of(context: Context, table: TableId) -> Lineage | None:
    """Return the way from a linked table up to its root; None where it is not linked. Within a call it is looked up once.

    Raises
    ------
    LinkBroken
        The schema does not hold what a link of the way says: a table or column is gone, a key is none any more.
    LedgerError
        The books were edited.
    """
    lineage = context.known.get(("lineage", table), _NONE)
    if lineage is _NONE:
        lineage = context.known["lineage", table] = _lineage(context, table)
    return lineage  # type: ignore[no-any-return]


def check_lineages(context: Context, lineages: Iterable[Lineage]) -> None:
    """Refuse ways up that the books and the catalog do not bear out any more, whatever this call has looked up before.

    To be called after the charge.

    Raises
    ------
    ReleaseError
        A link was changed, or the schema does not hold what it says.
    LedgerError
        The books were edited.
    """
    listed = tuple(lineages)
    if not listed:
        return
    known = context.known.items()
    books = {name: value for name, value in known if name == "call" or (isinstance(name, tuple) and name[0] == "books")}
    now = replace(context, known=books)
    catalog_of(now).look_up(table.name for lineage in listed for hop in lineage.hops for table in (hop.child, hop.parent))
    for lineage in listed:
        if any(other.hops[-len(lineage.hops) :] == lineage.hops for other in listed if len(other.hops) > len(lineage.hops)):
            continue  # it is a part of a longer way
        try:
            if lineage_of(now, lineage.table) == lineage:
                continue
            why = "it was changed meanwhile"
        except LinkBroken as broken:
            why = broken.why
        raise ReleaseError(
            f"the link of {key_of(lineage.table)} does not hold any more: {why}. Nothing was read; the charge stands, and the same "
            "call finishes the release once this is mended"
        )


def reads_of(context: Context, tables: Iterable[TableId]) -> Reads:
    """Return what `dpsql.books.ledger.Ledger.charge` is to know of the protected tables that a release reads.

    The links are those that the call was planned with: `lineage_of` remembers them.
    """
    listed = list(tables)
    links: dict[str, Link] = {}
    for table in listed:
        lineage = lineage_of(context, table)
        for hop in () if lineage is None else lineage.hops:
            links[key_of(hop.child)] = links_in(context, hop.child.database)[key_of(hop.child)]
    return Reads(tuple(key_of(table) for table in listed), tuple(links.values())) if links else Reads()


def tables_of(context: Context, root: TableId) -> tuple[Lineage, ...]:
    """Return the ways up of all tables that are linked to a root, parents first, then in the order in which they were linked.

    A table that was dropped has no rows and is left out. Errors are those of `lineage_of`, of any of them.
    """
    if root.is_file:
        return ()
    lineages = []
    for link in links_in(context, root.database).values():
        table = table_in(context, root.database, link.child) if link.root == key_of(root) else None
        lineage = None if table is None else lineage_of(context, table)
        if lineage is not None:
            lineages.append(lineage)
    return tuple(sorted(lineages, key=lambda lineage: len(lineage.hops)))


def is_root(context: Context, table: TableId) -> bool:
    """Return whether tables are linked to a table that has a budget, as the books say. No linked table is looked at."""
    return not table.is_file and any(link.root == key_of(table) for link in links_in(context, table.database).values())


def keys_linked(context: Context, root: TableId) -> dict[str, str]:
    """Return the columns of a root that links point to, by their names folded.

    The linked tables are not looked at, and may be gone: what a release that does not read them keeps of a unit depends on the
    root's rows alone. So the key is checked where it is, in the root.

    Raises
    ------
    LinkBroken
        A column is gone, may be NULL, or is not declared unique any more: it does not say whose row each row of the root is.
    """
    columns: dict[str, str] = {}
    catalog = catalog_of(context)
    for link in () if root.is_file else links_in(context, root.database).values():
        if link.above != key_of(root) or fold(link.parent_column) in columns:
            continue
        told = f"{link.parent_column!r} of {link.above} has to say whose row each row is: it has to be there, UNIQUE and NOT NULL"
        try:
            key = stored_column(catalog, root, link.parent_column, "parent_column")
        except Unfit:
            raise LinkBroken(link.source, link.above, told, everything=True) from None
        if key.nullable or fold(key.name) not in catalog.single_keys(root):
            raise LinkBroken(link.source, link.above, told, everything=True)
        columns[fold(key.name)] = key.name
    return columns


def _lineage(context: Context, table: TableId) -> Lineage | None:
    if table.is_file:
        return None
    links = links_in(context, table.database)
    hops: list[Hop] = []
    at, link, keyed = table, links.get(key_of(table)), True
    while link is not None:
        hop, keyed = _hop(context, at, link)
        hops.append(hop)
        at, last = hop.parent, link
        link = links.get(key_of(at))
    if not hops:
        return None
    if not keyed:
        held = Ledger(books_of(context, at.database), key_of(at), context.user).protection()
        if held is not None and held.privacy_unit is None:
            told = f"{hops[-1].parent_column!r} of {key_of(at)} may be NULL, and it has to say whose row each row is; SET NOT NULL"
            raise LinkBroken(last.source, last.above, told)
    return Lineage(table, at, tuple(hops))


def _hop(context: Context, child: TableId, link: Link) -> tuple[Hop, bool]:
    """Return a link with names as the catalog spells them, if the catalog still bears it out; and whether its key holds no NULL."""
    parent = table_in(context, child.database, link.parent)
    if parent is None:
        raise LinkBroken(link.source, link.above, f"{link.above} is gone; make the table anew under that name, with its key")
    try:
        column, key, keyed = check_columns(context, child, link.column, parent, link.parent_column)
    except DpsqlError as error:
        raise LinkBroken(link.source, link.above, str(error)) from None
    return Hop(child, column, parent, key, link.max_rows, link.orphans, link.order_by), keyed


class Unfit(DpsqlError):
    """Columns cannot be linked; ``argument``: which one of the call is at fault."""

    def __init__(self, argument: str, why: str) -> None:
        self.argument = argument
        super().__init__(why)


def check_columns(context: Context, child: TableId, column: str, parent: TableId, parent_column: str) -> tuple[str, str, bool]:
    """Check that a column of a table can hold the key of another one.

    Returns
    -------
    tuple of str, str, bool
        The columns as the catalog spells them, and whether the key holds no NULL.

    Raises
    ------
    Unfit
        A column is not there, of a type whose equality is not that of bytes, of another type than the other, or no key.
    """
    catalog = catalog_of(context)
    own, key = stored_column(catalog, child, column, "column"), stored_column(catalog, parent, parent_column, "parent_column")
    if own.sql_type != key.sql_type:
        raise Unfit(
            "column",
            f"column {own.name!r} of {key_of(child)} is {own.sql_type}, {key.name!r} of {key_of(parent)} is {key.sql_type}; "
            "both must be of one type, for several values may be equal after a conversion; ALTER TABLE ... ALTER COLUMN ... TYPE",
        )
    if not exact(key.sql_type):
        several = f"column {key.name!r} of {key_of(parent)} is {key.sql_type}, whose equal values have several forms"
        raise Unfit("parent_column", f"{several}; a key has to be {KINDS}")
    if key.sql_type == "VARCHAR":
        for table, one, argument in ((child, own, "column"), (parent, key, "parent_column")):
            if one.name in catalog.collated(table):
                several = "has a collation, under which texts that differ are equal: a row could be of two people"
                raise Unfit(argument, f"column {one.name!r} of {key_of(table)} {several}; make it a VARCHAR without one")
    if fold(key.name) not in catalog.single_keys(parent):
        listed = ", ".join(f"({', '.join(names)})" for names in catalog.keys(parent)) or "no key"
        raise Unfit(
            "parent_column",
            f"{key.name!r} of {key_of(parent)} is not declared unique, so a row could belong to several: it has {listed}; declare "
            f"it PRIMARY KEY or UNIQUE, or CREATE UNIQUE INDEX ... ON {key_of(parent)} ({key.name})",
        )
    return own.name, key.name, not key.nullable


def stored_column(catalog: Catalog, table: TableId, name: str, argument: str) -> Described:
    """Return a stored column of a table by its name, compared as DuckDB does.

    Raises
    ------
    Unfit
        There is none.
    """
    entry = catalog.find(table.database, table.schema, table.name)
    skip = generated_columns(entry.sql) if entry is not None else frozenset[str]()
    columns = {fold(one.name): one for one in catalog.columns(table) if fold(one.name) not in skip}
    described = columns.get(fold(name))
    if described is None:
        names = [one.name for one in columns.values()]
        raise Unfit(argument, f"{name!r} is not a stored column of {key_of(table)}; it has {names!r}")
    return described


def primary_key(context: Context, table: TableId) -> list[str]:
    """Return the columns of the PRIMARY KEY of a table; [] where it has none."""
    row = context.cursor.execute(_PRIMARY, {"database": table.database, "schema": table.schema, "name": table.name}).fetchone()
    return [] if row is None else [str(name) for name in row[0]]


def table_in(context: Context, database: str, name: tuple[str, str]) -> TableId | None:
    """Return the table of a name; None where there is none, or a view has it."""
    entry = catalog_of(context).find(database, *name)
    return None if entry is None or entry.is_view else entry.table
