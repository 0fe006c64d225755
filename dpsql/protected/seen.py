"""What an analyst of a served database may name: tables granted to her, and their columns; what is published; views of those.

A linked table goes with its root: it may be named where the root is granted without a list of columns.

Everything else does not exist for her: looking for it says what a misspelt name says. This is the wall behind the server's own
gate, which looks at the text of a statement; here it is every look-up of a name in the catalog, wherever the name comes from.

Privacy: None: names alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp

from dpsql.books.grants import Grant, Grants
from dpsql.errors import DpsqlError, NotGranted
from dpsql.protected.home import books_of
from dpsql.protected.linked import root_key
from dpsql.session.instance import Context
from dpsql.source.catalog import Catalog, Entry
from dpsql.source.model import TableId, fold
from dpsql.text.relation import key_name


@dataclass(frozen=True)
class Granted:
    """What an analyst may see in one database: her grants by table, what is published, and the views that this is made of."""

    grants: dict[str, Grant]
    published: frozenset[str]
    below: frozenset[str] = frozenset()


def granted(context: Context, database: str) -> Granted:
    """Return what the analyst who asks may see in a database, as it was when the call first asked; nothing, to a custodian."""
    found = context.known.get(("granted", database))
    if not isinstance(found, Granted):
        held = Grants(context.cursor, database, books_of(context, database))
        grants = {} if context.analyst is None else held.of(context.analyst)
        listed = [one for one, holds in held.publications() if holds]
        below = frozenset(name for one in listed for name in one.below())
        found = context.known["granted", database] = Granted(
            grants, frozenset(one.source for one in listed if one.protected() <= set(grants)), below
        )
    return found


def fingerprint(context: Context) -> str:
    """Return what the analyst who asks may see, as text: what was remembered for one text is not given out for another one."""
    if context.analyst is None:
        return ""
    listed = [(name, granted(context, name)) for name in context.databases()]
    return repr((context.analyst, [(name, sorted(one.grants.items()), sorted(one.published)) for name, one in listed]))


def grant_of(context: Context, database: str, source: str) -> Grant | None:
    """Return the grant under which a protected table is asked about; None: the custodian asks, who needs none.

    Raises
    ------
    NotGranted
        The analyst has none.
    """
    if context.analyst is None:
        return None
    found = granted(context, database).grants.get(source)
    if found is None:
        raise NotGranted(source)
    return found


def seen_by(context: Context) -> Seen | None:
    """Return what whoever asks may name; None, to a custodian: everything."""
    return None if context.analyst is None else Seen(context)


@dataclass
class Seen:
    """What the analyst who asks may name."""

    context: Context
    _known: dict[TableId, bool] = field(default_factory=dict)

    def relation(self, catalog: Catalog, entry: Entry) -> bool:
        """Return whether a table or view may be named: granted or published, or a view of such below a published one."""
        table = entry.table
        if table not in self._known:
            self._known[table] = False  # a view that reads itself is none
            held = granted(self.context, table.database)
            key = key_name(table.schema, table.name)
            if entry.is_view:
                self._known[table] = key in held.published or (key in held.below and self._view(catalog, entry))
            else:
                self._known[table] = key in held.published or key in held.grants or self._linked(table, held)
        return self._known[table]

    def column(self, table: TableId, name: str) -> bool:
        """Return whether a column of a table may be named."""
        grant = None if table.is_file else granted(self.context, table.database).grants.get(key_name(table.schema, table.name))
        return grant is None or grant.reads(name)

    def _linked(self, table: TableId, held: Granted) -> bool:
        """Return whether a table is linked to one that is granted with all columns: a list of columns names none of others."""
        root = root_key(self.context, table)
        grant = None if root is None else held.grants.get(root)
        return grant is not None and grant.columns is None

    def _view(self, catalog: Catalog, entry: Entry) -> bool:
        """Return whether all that the text of a view names may be named, and it calls no table function."""
        home = (entry.table.database, entry.table.schema)
        homes = [home] if fold(home[1]) == "main" else [home, (home[0], "main")]
        try:
            tree = sqlglot.parse_one(entry.sql, read="duckdb")
            body = tree.expression if isinstance(tree, exp.Create) else tree
            inside = {fold(cte.alias) for cte in body.find_all(exp.CTE)}
            for node in body.find_all(exp.Table):
                if not isinstance(node.this, exp.Identifier):
                    return False
                if len(node.parts) == 1 and fold(node.name) in inside:
                    continue
                if catalog.locate([part.name for part in node.parts], homes) is None:
                    return False
        except (sqlglot.errors.SqlglotError, DpsqlError, RecursionError):
            return False
        return True
