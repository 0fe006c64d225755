"""What one analyst may see of a served database: tables that are granted, and tables and views that are public."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import duckdb

from dpsql.books.granted import USE, Grant
from dpsql.books.ledger import Ledger
from dpsql.books.linked import Link, root_of
from dpsql.books.links import Links
from dpsql.books.schema import SCHEMA, Books
from dpsql.session.instance import ANALYST
from dpsql.source.listed import Functions
from dpsql.text.names import fold
from dpsql.text.relation import key_name

GRANTED, PUBLIC = "granted", "public"
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

Looked = tuple[str | None, frozenset[str]]


@dataclass(frozen=True)
class Entry:
    """A table or view of the served database. ``status``: `GRANTED` or `PUBLIC`; None: it is hidden.

    ``reads``: the granted tables that it reads in the end; of linked ones the root, which is what is granted and pays.
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
        return key_name(self.schema, self.name)


@dataclass
class View:
    """What an analyst may see; made by `dpsql.serve.gate.seen.view_of` for one statement, on one cursor; catalogs alone are read.

    Parameters
    ----------
    cursor : DuckDB cursor
        One of dpsql's own.
    database : str
        The served database, as it is attached.
    shown : str
        The name under which analysts know it; both mean it.
    analyst : str
    grants : mapping
        The epsilon of one question that does not say, by table as the books call it ('main.visits'); others are not hers to ask.
    limits : mapping
        What the books say that she may spend, by table; of a table that is not here she has no limit but the table's.
    public : frozenset of str
        Tables and views that are public.
    looked : callable
        Looks into a view, which stands in others (its third argument): its status, and the granted tables that it reads.
    binds : callable
        Says whether a view is made of columns that she may name; asked where a grant lists columns.
    functions : Functions
        What is known of the functions of the database, kept from statement to statement.
    books : Books
        Of the database, on this cursor.
    """

    cursor: duckdb.DuckDBPyConnection
    database: str
    shown: str
    analyst: str
    grants: Mapping[str, float]
    limits: Mapping[str, Grant]
    public: frozenset[str]
    looked: Callable[[View, Entry, tuple[str, ...]], Looked]
    binds: Callable[[View, Entry], bool]
    functions: Functions
    books: Books
    sizes: list[int] = field(default_factory=list, repr=False)
    """Of the values that the statement makes; views that it reads, too."""
    names: set[str] = field(default_factory=set, repr=False)
    """Of the functions that it calls."""
    reads_views: bool = field(default=False, repr=False)
    """Whether a view was looked up by name."""
    _entries: dict[tuple[str, str], Entry] | None = field(default=None, repr=False)
    _seen: dict[tuple[str, bool], Entry] = field(default_factory=dict, repr=False)
    _columns: dict[str, list[tuple[str, str]]] | None = field(default=None, repr=False)
    _releases: list[str] | None = field(default=None, repr=False)
    _payers: dict[str, str | None] = field(default_factory=dict, repr=False)
    _links: dict[str, Link] | None = field(default=None, repr=False)

    @property
    def who(self) -> str:
        """What the books call her: no user of the file's is called so, whose releases would else be hers."""
        return f"{ANALYST}{self.analyst}"

    @property
    def entries(self) -> dict[tuple[str, str], Entry]:
        """All tables and views of the database, hidden ones too, without their status."""
        if self._entries is None:
            rows = self.cursor.execute(_ENTRIES, {"database": self.database}).fetchall()
            self._entries = {(fold(s), fold(n)): Entry(s, n, bool(v), q or "") for s, n, v, q in rows}
        return self._entries

    def find(self, parts: list[str], schema: str, stack: tuple[str, ...] = ()) -> Entry | None:
        """Return what a name of one to three parts means in a schema, with its status; None where there is nothing."""
        own = (fold(self.database), fold(self.shown))
        # as DuckDB looks names up: two parts may be schema and table, or database and table
        places = [(schema, parts[0]), ("main", parts[0])] if len(parts) == 1 else [(parts[-2], parts[-1])]
        if len(parts) > 3 or (len(parts) == 3 and fold(parts[0]) not in own):
            return None
        if len(parts) == 2 and fold(parts[0]) in own:
            places.append(("main", parts[1]))
        known = [e for s, n in places if (e := self.entries.get((fold(s), fold(n)))) is not None]
        if stack and len({e.key for e in known}) > 1:  # which one a view means depends on who asks
            return None
        entry = known[0] if known else None
        self.reads_views |= entry is not None and entry.is_view
        return None if entry is None or entry.key in stack else self._with_status(entry, stack)

    def all(self) -> list[Entry]:
        """Return all tables and views that she may see, by schema and name."""
        entries = [self._with_status(entry, ()) for entry in self.entries.values()]
        return sorted((e for e in entries if e.status is not None), key=lambda e: (e.schema, e.name))

    def columns(self, entry: Entry) -> list[tuple[str, str]]:
        """Return names and types of the columns of a table or view that she may name."""
        if self._columns is None:
            self._columns = {}
            for schema, table, name, kind in self.cursor.execute(_COLUMNS, {"database": self.database}).fetchall():
                self._columns.setdefault(Entry(schema, table, False, "").key, []).append((name, kind))
        limit, columns = self.limits.get(entry.key), self._columns.get(entry.key, [])
        return columns if limit is None else [(name, kind) for name, kind in columns if limit.reads(name)]

    def protected(self, key: str) -> bool:
        """Return whether a table has a budget, or is linked to one that has."""
        return self.payer(key) is not None

    def payer(self, key: str) -> str | None:
        """Return the table whose budget a table is under, itself or the root that it is linked to; None: it is not protected.

        Privacy: a linked table is as its root: never public, there for whoever has a grant of the root, who pays with that.
        """
        if key not in self._payers:
            if self._links is None:
                self._links = Links(self.cursor, self.database, self.books).all()
            root = root_of(self._links, key)
            ledger = Ledger(self.books, root, "")
            # a table that was linked once stays protected: its rows were counted under a budget
            protected = key in self._links or ledger.is_unlinked() or ledger.protection() is not None
            self._payers[key] = root if protected else None
        return self._payers[key]

    def releases(self) -> list[str]:
        """Return the releases that she has bought."""
        if self._releases is None:
            table, exist = self.books.table("ledger"), self.books.exist()
            asked = f"SELECT DISTINCT release FROM {table} WHERE action IN ('charge', ?) AND who = ?"  # noqa: S608
            self._releases = [str(r) for (r,) in self.cursor.execute(asked, [USE, self.who]).fetchall()] if exist else []
        return self._releases

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
        """Return the status of a view: only what is public by name is open, with the views below it."""
        if not stack and entry.key not in self.public:
            return None, frozenset()
        return self.looked(self, entry, stack)

    def _table(self, entry: Entry) -> Looked:
        payer = self.payer(entry.key)
        # with a budget, her grant decides; without one, whether it was published
        if payer is not None:
            limit = self.limits.get(payer)
            listed = limit is not None and limit.columns is not None and payer != entry.key  # columns of the root, and of no other
            return (GRANTED, frozenset({payer})) if payer in self.grants and not listed else (None, frozenset())
        return (PUBLIC if entry.key in self.public else None), frozenset()
