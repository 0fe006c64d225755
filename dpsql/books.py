"""Where the books are: the schema ``dpsql`` of the database that holds a protected table, and the declared domains."""

from __future__ import annotations

import getpass
import json
from contextlib import suppress
from dataclasses import asdict

import duckdb

from dpsql import sql
from dpsql.domain import Attribute, Domain
from dpsql.errors import LedgerError, first_line
from dpsql.relation import identifier

SCHEMA = "dpsql"


def current_user() -> str:
    """Return the name that ledger entries carry when ``load`` was given none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"


class Books:
    """The schema ``dpsql`` of one attached database.

    Parameters
    ----------
    cursor : duckdb.DuckDBPyConnection
        A cursor of its own: what is written here commits whatever the caller's transaction does.
    database : str
        Name of the attached database.
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection, database: str) -> None:
        self.cursor = cursor
        self.database = database
        self.schema = identifier(database, SCHEMA)

    def table(self, name: str) -> str:
        """Return the quoted name of one of the tables."""
        return f"{self.schema}.{identifier(name)}"

    def chain(self) -> str:
        """Return the SELECT that checks the hashes of the ledger: shipped text, so a book cannot bring its own check."""
        return sql.text("chain").format(books=self.schema, hash=sql.text("entry_hash"))

    def exist(self) -> bool:
        """Return whether this database has books."""
        query = "SELECT count(*) FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? AND table_name = 'ledger'"
        row = self.cursor.execute(query, [self.database, SCHEMA]).fetchone()
        return bool(row and row[0])

    def open(self) -> None:
        """Create the books if there are none.

        Raises
        ------
        LedgerError
            The database is read-only, or another session holds it.
        """
        if self.exist():
            return
        values = {"books": self.schema, "chain": self.chain()}
        try:
            self.cursor.execute("BEGIN")
            for statement in sql.statements("schema"):
                self.cursor.execute(statement.format(**values))
            self.cursor.execute("COMMIT")
        except duckdb.Error as error:
            rollback(self.cursor)
            if self.exist():  # another thread was faster
                return
            raise LedgerError(
                f"the books (schema {SCHEMA}) cannot be created in database {self.database!r}: {first_line(error)}. "
                "Open the database for writing."
            ) from None

    def declare(self, source: str, attribute: Attribute, who: str) -> None:
        """Store the public domain of one column, replacing an earlier declaration."""
        self.open()
        text = json.dumps(asdict(attribute), sort_keys=True, ensure_ascii=False)
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
        rows = self.cursor.execute(
            f'SELECT attribute FROM {self.table("domains")} WHERE source = ? ORDER BY "column"',  # noqa: S608
            [source],
        ).fetchall()
        attributes = Domain.from_json(json.loads(text) for (text,) in rows).attributes
        return {attribute.name: attribute for attribute in attributes}


    def charges_of(self, release: str) -> list[str]:
        """Return the hashes of the ledger entries that charged for a release, the newest first."""
        if not self.exist():
            return []
        rows = self.cursor.execute(
            f"SELECT hash FROM {self.table('ledger')} WHERE release = ? AND action = 'charge' ORDER BY written_at DESC",  # noqa: S608
            [release],
        ).fetchall()
        return [str(found) for (found,) in rows]


def rollback(cursor: duckdb.DuckDBPyConnection) -> None:
    """End a transaction, if one is open: a failed COMMIT has ended it already."""
    with suppress(duckdb.Error):
        cursor.execute("ROLLBACK")
