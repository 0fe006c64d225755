"""Where the books are: the schema ``dpsql`` of the database that holds a protected table, and the declared domains and rules."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import suppress

import duckdb

from dpsql import sql
from dpsql.books.entries import reading
from dpsql.domains.attributes import Attribute, Domain
from dpsql.engines.remote import Remote
from dpsql.errors import LedgerError, first_line
from dpsql.text.bounded_json import load
from dpsql.text.relation import identifier, literal

SCHEMA = "dpsql"


class Books:
    """The schema ``dpsql`` of one attached database.

    Parameters
    ----------
    cursor : duckdb.DuckDBPyConnection
        A cursor of its own: what is written here commits whatever the caller's transaction does.
    database : str
        Name of the attached database.
    current : tuple of set and key, optional
        Which databases were found to have all that this version's books have; books never lose any of it again.
    """

    def __init__(
        self, cursor: duckdb.DuckDBPyConnection, database: str, current: tuple[set[object], object] | None = None
    ) -> None:
        self.cursor = cursor
        self.database = database
        self.schema = identifier(database, SCHEMA)
        self._found = False  # books are never removed, and looking takes longer than reading an entry
        self._known, self._key = current or (set(), (database,))

    def table(self, name: str) -> str:
        """Return the quoted name of one of the tables."""
        return f"{self.schema}.{identifier(name)}"

    def chain(self) -> str:
        """Return the SELECT that checks the hashes of the ledger: shipped text, so a book cannot bring its own check."""
        return sql.text("chain").format(books=self.schema, hash=sql.text("entry_hash"))

    def releases(self) -> str:
        """Return the SELECT of what was bought: shipped text, whatever view a book has."""
        return sql.text("releases").format(books=self.schema)

    def exist(self) -> bool:
        """Return whether this database has books."""
        if not self._found:
            self._found = (self._key in self._known and self._answer()) or self._has("ledger")
        return self._found

    def _answer(self) -> bool:
        """Return whether books that were there are there still: sooner than asking the catalog, and an error where they are not."""
        try:
            self.cursor.execute(f"SELECT 1 FROM {self.table('ledger')} LIMIT 0").fetchall()  # noqa: S608 -- quoted
        except duckdb.CatalogException:
            return False
        return True

    def _has(self, table: str) -> bool:
        query = (
            "SELECT system.main.count_star() FROM system.main.duckdb_tables() "
            "WHERE database_name = ? AND schema_name = ? AND table_name = ?"
        )
        row = self.cursor.execute(query, [self.database, SCHEMA, table]).fetchone()
        return bool(row and row[0])

    def _current(self) -> bool:
        """Return whether views and tables are this version's: an older one's know less of releases, rules and links."""
        query = (
            "SELECT system.main.count_star() FROM system.main.duckdb_views() WHERE database_name = ? AND schema_name = ? "
            "AND (view_name = 'releases' AND system.main.contains(sql, '''refund''') "
            "OR view_name = 'budgets' AND system.main.contains(sql, '''unlinked'''))"
        )
        row = self.cursor.execute(query, [self.database, SCHEMA]).fetchone()
        return row == (2,) and self._has("remotes")  # the newest table: it is made with all others

    def open(self) -> None:
        """Create the books if there are none, and what an older version's lack: a table, the views for readers without dpsql.

        Raises
        ------
        LedgerError
            The database is read-only, or another session holds it.
        """
        if self.exist() and (self._key in self._known or self._current()):
            self._known.add(self._key)
            return
        values = {"books": self.schema, "chain": self.chain(), "releases": self.releases()}
        try:
            self.cursor.execute("BEGIN")
            for statement in sql.statements("schema"):
                self.cursor.execute(statement.format(**values))
            self.cursor.execute("COMMIT")
        except duckdb.Error as error:
            rollback(self.cursor)
            if self.exist() and self._has("remotes"):  # another thread was faster
                return
            raise LedgerError(
                f"the books (schema {SCHEMA}) cannot be created in database {self.database!r}: {first_line(error)}. "
                "Open the database for writing."
            ) from None

    def declare(self, source: str, attribute: Attribute, who: str) -> None:
        """Store the public domain of one column, replacing an earlier declaration."""
        self.open()
        text = json.dumps(attribute.to_json(), sort_keys=True, ensure_ascii=False)
        if self.declared(source).get(attribute.name) == attribute:
            return
        try:
            self.cursor.execute(
                f"INSERT OR REPLACE INTO {self.table('domains')} VALUES (?, ?, ?, (now() AT TIME ZONE 'UTC')::TIMESTAMP, ?)",  # noqa: S608
                [source, attribute.name, text, who],
            )
        except duckdb.Error as error:
            raise LedgerError(f"the domain of column {attribute.name!r} cannot be written: {first_line(error)}") from None

    def declared(self, source: str) -> dict[str, Attribute]:
        """Return the declared attributes of a source by column name."""
        if not self.exist():
            return {}
        with reading(source):
            return self._declared(source)

    def _declared(self, source: str) -> dict[str, Attribute]:
        rows = self.cursor.execute(
            f'SELECT attribute FROM {self.table("domains")} WHERE source = ? ORDER BY "column" ASC',  # noqa: S608
            [source],
        ).fetchall()
        attributes = Domain.from_json(load(text) for (text,) in rows).attributes
        return {attribute.name: attribute for attribute in attributes}

    def remotes(self) -> dict[str, Remote]:
        """Return where the rows are of all tables that have none here; an older version's books know of none."""
        if not self.exist():
            return {}
        query = f"SELECT source, engine, url, relation FROM {self.table('remotes')} ORDER BY source ASC"  # noqa: S608 -- quoted
        with reading(f"database {self.database}"), suppress(duckdb.CatalogException):
            return {str(source): Remote(*map(str, place)) for source, *place in self.cursor.execute(query).fetchall()}
        return {}

    def budgets(self) -> list[str]:
        """Return the tables and files, as keys, that have or had a budget in these books."""
        if not self.exist():
            return []
        return self._texts(f"SELECT DISTINCT source FROM {self.table('ledger')} ORDER BY source ASC")  # noqa: S608 -- quoted

    def set_remote(self, source: str, remote: Remote, who: str) -> None:
        """Store where the rows of a table are, replacing what was stored before."""
        self.open()
        now = "(now() AT TIME ZONE 'UTC')::TIMESTAMP"
        values = [source, remote.engine, remote.url, remote.relation, who]
        try:
            self.cursor.execute(f"INSERT OR REPLACE INTO {self.table('remotes')} VALUES (?, ?, ?, ?, {now}, ?)", values)  # noqa: S608
        except duckdb.Error as error:
            raise LedgerError(f"where the rows of {source} are cannot be written: {first_line(error)}") from None

    def add_rule(self, source: str, rule: str, who: str) -> None:
        """Store a rule of a source."""
        self.open()
        if rule in self.rules(source):
            return
        now = "(now() AT TIME ZONE 'UTC')::TIMESTAMP"
        self._change_rules(f"INSERT OR IGNORE INTO {self.table('rules')} VALUES (?, ?, {now}, ?)", [source, rule, who])  # noqa: S608 -- quoted

    def remove_rule(self, source: str, rule: str) -> None:
        """Take a rule of a source back."""
        self._change_rules(f"DELETE FROM {self.table('rules')} WHERE source = ? AND rule = ?", [source, rule])  # noqa: S608

    def _change_rules(self, statement: str, values: list[str]) -> None:
        try:
            self.cursor.execute(statement, values)
        except duckdb.Error as error:
            raise LedgerError(f"the rules of {values[0]} cannot be written: {first_line(error)}") from None

    def rules(self, source: str) -> list[str]:
        """Return the declared rules of a source, in the order in which they were; an older version's books have none."""
        if not self.exist() or not self._has("rules"):
            return []
        query = f"SELECT rule FROM {self.table('rules')} WHERE source = ? ORDER BY written_at ASC, rule ASC"  # noqa: S608
        with reading(source):
            return self._texts(query, [source])

    def private(self, tables: Collection[str]) -> list[str]:
        """Return those of some tables that have, or had, a budget or a link, in order: none of them is public."""
        if not tables or not self.exist():
            return []
        listed = ", ".join(map(literal, tables))
        ledger = self.table("ledger")
        return self._texts(f"SELECT DISTINCT source FROM {ledger} WHERE source IN ({listed}) ORDER BY source ASC")  # noqa: S608

    def said(self, *actions: str) -> list[tuple[str, str, str]]:
        """Return source, action and parameters of all entries with one of these actions, in order."""
        if not self.exist():
            return []
        query = (
            f"SELECT source, action, parameters FROM {self.table('ledger')} "  # noqa: S608
            f"WHERE action IN ({', '.join(map(literal, actions))}) ORDER BY source ASC, entry ASC"
        )
        with reading(f"database {self.database}"):
            return [(str(source), str(action), str(said)) for source, action, said in self.cursor.execute(query).fetchall()]

    def survey(self, *actions: str) -> tuple[list[str], list[tuple[str, str, str]], dict[str, Remote]]:
        """Return `budgets`, what was `said` by these actions, and `remotes`, by one statement where the books have all of it."""
        if not self.exist():
            return [], [], {}
        ledger = self.table("ledger")
        query = (
            f"SELECT 's', source, NULL, NULL, NULL, NULL FROM (SELECT DISTINCT source FROM {ledger}) UNION ALL "  # noqa: S608
            f"SELECT 'a', source, action, parameters, NULL, entry FROM {ledger} "
            f"WHERE action IN ({', '.join(map(literal, actions))}) UNION ALL "
            f"SELECT 'r', source, engine, url, relation, NULL FROM {self.table('remotes')}"
        )
        try:
            with reading(f"database {self.database}"):
                rows = self.cursor.execute(query).fetchall()
        except LedgerError:  # an older version's books, or edited ones, of which each part says what is wrong
            return self.budgets(), self.said(*actions), self.remotes()
        parts: dict[str, list[tuple[str, ...]]] = {"s": [], "a": [], "r": []}
        for kind, source, *said, _ in sorted(rows, key=lambda row: (str(row[1]), row[5] or 0)):
            parts[kind].append((str(source), *map(str, said)))
        remotes = {source: Remote(*place) for source, *place in parts["r"]}
        return [source for source, *_ in parts["s"]], [(source, action, told) for source, action, told, _ in parts["a"]], remotes

    def sources_of(self, release: str) -> list[str]:
        """Return the sources on whose ledgers a release was charged; one, but for an edited book."""
        if not self.exist():
            return []
        table = self.table("ledger")
        query = f"SELECT DISTINCT source FROM {table} WHERE release = ? AND action = 'charge' ORDER BY source ASC"  # noqa: S608
        return self._texts(query, [release])

    def failed(self, source: str, entry: int) -> list[str]:
        """Return the release whose reading failed, as an entry says; none of an entry of another kind."""
        query = f"SELECT release FROM {self.table('ledger')} WHERE source = ? AND entry = ? AND action = 'fail'"  # noqa: S608
        return self._texts(query, [source, entry])

    def sold(self) -> list[str]:
        """Return the identifiers of all releases that were ever charged for here."""
        if not self.exist():
            return []
        query = f"SELECT DISTINCT release FROM {self.table('ledger')} WHERE action = 'charge' ORDER BY release ASC"  # noqa: S608
        return self._texts(query)

    def _texts(self, query: str, values: Sequence[object] = ()) -> list[str]:
        with reading(f"database {self.database}"):
            return [str(text) for (text,) in self.cursor.execute(query, list(values)).fetchall()]


def rollback(cursor: duckdb.DuckDBPyConnection) -> None:
    """End a transaction, if one is open: a failed COMMIT has ended it already."""
    with suppress(duckdb.Error):
        cursor.execute("ROLLBACK")
