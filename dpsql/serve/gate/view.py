"""What one analyst may see of a served database: tables that are granted, and tables and views that are public."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import duckdb

from dpsql.books.ledger import Ledger
from dpsql.books.linked import Link
from dpsql.books.links import Links
from dpsql.books.schema import SCHEMA, Books
from dpsql.source.listed import Functions
from dpsql.text.names import fold
from dpsql.text.relation import identifier

GRANTED, PUBLISHED = "granted", "published"
BOOKS = SCHEMA
"""The schema of the books, which no analyst sees."""

# Every function of these queries is named in full: a macro of the database must not answer in its place.
_ENTRIES = """
SELECT schema_name, table_name, false, '' FROM system.main.duckdb_tables() WHERE database_name = $database AND NOT internal
UNION ALL SELECT schema_name, view_name, true, sql FROM system.main.duckdb_views() WHERE database_name = $database AND NOT internal
"""
_COLUMNS = """
SELECT schema_name, table_name, column_name, data_type FROM system.main.duckdb_columns()
WHERE database_name = $database AND NOT internal ORDER BY schema_name ASC, table_name ASC, column_index ASC
"""
_MADE = "SELECT DISTINCT system.main.lower(function_name) FROM system.main.duckdb_functions() WHERE NOT internal"


Looked = tuple[str | None, frozenset[str]]


@dataclass(frozen=True)
class Entry:
    """A table or view of the served database. ``status``: `GRANTED` or `PUBLISHED`; None: it is hidden.

    ``reads``: the tables that are granted and are read in the end.
    """

    schema: str
    name: str
    is_view: bool
    sql: str
    status: str | None = None
    reads: frozenset[str] = frozenset()

    @property
    def key(self) -> str:
        """The name under which the books know it."""
        return ".".join(part if part.isidentifier() else identifier(part) for part in (fold(self.schema), fold(self.name)))


class Look(Protocol):
    """Looks into a view."""

    def __call__(self, view: View, entry: Entry, stack: tuple[str, ...]) -> Looked:
        """Return its status, and the granted tables that it reads; ``stack``: the views that it stands in."""


@dataclass
class View:
    """What an analyst may see; made by `view_of` for one statement, on one cursor, of which catalogs alone are read.

    Parameters
    ----------
    cursor : DuckDB cursor
    database, schema : str
        Where names without a database or schema are looked up.
    analyst : str
    grants : mapping
        Her grants by table, as the books call it ('main.adult'); of each, ``default_epsilon`` and ``columns`` are used.
    published : frozenset of str
        Tables and views that are public.
    looked : callable
        Looks into a view: its status, and the granted tables that it reads.
    functions : Functions, optional
        What is known of the functions of the database, kept from statement to statement.
    books : Books, optional
        Of the database.
    """

    cursor: duckdb.DuckDBPyConnection
    database: str
    schema: str
    analyst: str
    grants: Mapping[str, Any]
    published: frozenset[str]
    looked: Look
    functions: Functions | None = None
    books: Books | None = None
    sizes: list[int] = field(default_factory=list, repr=False)
    """Of the values that the statement makes; views that it reads, too."""
    _entries: dict[tuple[str, str], Entry] | None = field(default=None, repr=False)
    _seen: dict[tuple[str, bool], Entry] = field(default_factory=dict, repr=False)
    _columns: dict[str, list[tuple[str, str]]] | None = field(default=None, repr=False)
    _made: frozenset[str] | None = field(default=None, repr=False)
    _links: Mapping[str, Link] | None = field(default=None, repr=False)

    def find(self, parts: list[str], schema: str, stack: tuple[str, ...] = ()) -> Entry | None:
        """Return what a name of one to three parts means in a schema, with its status; None where there is nothing."""
        if self._entries is None:
            rows = self.cursor.execute(_ENTRIES, {"database": self.database}).fetchall()
            self._entries = {(fold(s), fold(n)): Entry(s, n, bool(v), q or "") for s, n, v, q in rows}
        places = [(schema, parts[0]), ("main", parts[0])] if len(parts) == 1 else [(parts[-2], parts[-1])]
        if len(parts) == 3 and fold(parts[0]) != fold(self.database):
            return None
        if len(parts) == 2 and fold(parts[0]) == fold(self.database):
            places.append(("main", parts[1]))
        known = [e for s, n in places if (e := self._entries.get((fold(s), fold(n)))) is not None]
        if stack and len({e.key for e in known}) > 1:  # which one a view means depends on who asks
            return None
        found = known[0] if known else None
        return None if found is None or found.key in stack else self._with_status(found, stack)

    def shown(self) -> list[Entry]:
        """Return all tables and views that she may see, by schema and name."""
        self.find(["."], self.schema)
        found = [self._with_status(entry, ()) for entry in (self._entries or {}).values()]
        return sorted((e for e in found if e.status is not None), key=lambda e: (e.schema, e.name))

    def columns(self, entry: Entry) -> list[tuple[str, str]]:
        """Return names and types of the columns that she may see."""
        if self._columns is None:
            self._columns = {}
            for schema, table, name, kind in self.cursor.execute(_COLUMNS, {"database": self.database}).fetchall():
                self._columns.setdefault(Entry(schema, table, False, "").key, []).append((name, kind))
        grant = self.grants.get(entry.key) if entry.status == GRANTED else None
        allowed = None if grant is None or grant.columns is None else {fold(name) for name in grant.columns}
        return [c for c in self._columns.get(entry.key, []) if allowed is None or fold(c[0]) in allowed]

    def texts(self) -> list[str]:
        """Return the texts of all views, hidden ones too."""
        self.find(["."], self.schema)
        return [entry.sql for entry in (self._entries or {}).values() if entry.is_view]

    def made_here(self) -> frozenset[str]:
        """Return the names of all functions and macros that DuckDB did not ship: none of them may answer for one that it did."""
        if self._made is None and self.functions is not None:
            self._made = self.functions.changed(self.cursor)
        if self._made is None:
            self._made = frozenset(str(name) for (name,) in self.cursor.execute(_MADE).fetchall())
        return self._made

    def owner(self, key: str) -> str:
        """Return the table under whose budget a table is, as the books call both: itself, or the root that it is linked to."""
        self.books = self.books or Books(self.cursor, self.database)
        if self._links is None:
            self._links = Links(self.cursor, self.database, self.books).all()
        link = self._links.get(key)
        return key if link is None else link.root

    def protected(self, key: str) -> bool:
        """Return whether a table has a budget."""
        self.books = self.books or Books(self.cursor, self.database)
        return Ledger(self.books, self.owner(key), "").protection() is not None

    def _with_status(self, entry: Entry, stack: tuple[str, ...]) -> Entry:
        place = (entry.key, bool(stack))
        if place not in self._seen:
            status: str | None = None
            reads: frozenset[str] = frozenset()
            if fold(entry.schema) != BOOKS:
                status, reads = self._view(entry, stack) if entry.is_view else self._table(entry)
            self._seen[place] = Entry(entry.schema, entry.name, entry.is_view, entry.sql, status, reads)
        return self._seen[place]

    def _view(self, entry: Entry, stack: tuple[str, ...]) -> Looked:
        """Return the status of a view: only what is published by name is open, with the views below it."""
        if not stack and entry.key not in self.published:
            return None, frozenset()
        return self.looked(self, entry, stack)

    def _table(self, entry: Entry) -> tuple[str | None, frozenset[str]]:
        if self.protected(entry.key):
            owner = self.owner(entry.key)
            grant = self.grants.get(owner)
            granted = grant is not None and (owner == entry.key or grant.columns is None)
            return (GRANTED, frozenset({owner})) if granted else (None, frozenset())
        return (PUBLISHED if entry.key in self.published else None), frozenset()
