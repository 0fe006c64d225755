"""Grants and publications of a database, whatever table they are of: what the server and ``dp_grant`` ask.

The entries, limits and uses of one table: `dpsql.books.granted`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass

import duckdb

from dpsql.accounting import Charge
from dpsql.books.granted import ABOUT_GRANTS, Grant, Use, granted, now
from dpsql.books.ledger import Ledger
from dpsql.books.schema import Books
from dpsql.text.bounded_json import load
from dpsql.text.relation import key_name

__all__ = ["Grant", "Grants", "Published", "Use", "now"]


@dataclass(frozen=True)
class Published:
    """A table or view without protected rows that analysts may read as it is.

    Parameters
    ----------
    source : str
        Schema-qualified, as the books spell names: 'main.wards'.
    definition : str or None
        As JSON, what it was when it was published: ``views``, the texts of the views that it is made of, by name; ``tables``,
        below it; ``columns``, the names and types of their columns, by table; ``protected``, those that had a budget. None: a
        table, published by an older version.
    """

    source: str
    definition: str | None

    def below(self) -> frozenset[str]:
        """Return the views that it is made of."""
        return self._said("views")

    def protected(self) -> frozenset[str]:
        """Return the protected tables that it reads: whoever asks about it needs a grant of each."""
        return self._said("protected")

    def _said(self, name: str) -> frozenset[str]:
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            return frozenset(load(self.definition or "{}").get(name, ()))
        return frozenset()

    @property
    def kind(self) -> str:
        """Whether it was a 'table' or a 'view'."""
        return "view" if self.below() else "table"

    def holds(self, views: Mapping[str, str], protected: Set[str], columns: Mapping[str, Sequence[Sequence[str]]]) -> bool:
        """Return whether it is what was published.

        That is: the views are, by their texts, the columns of the tables are, and no table below was protected since.
        """
        if self.definition is None:
            return self.source not in views and self.source not in protected
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            said = load(self.definition)
            listed = said["views"]
            same = all(views.get(name) == text for name, text in listed.items()) and (listed or self.source not in views)
            for name, found in said.get("columns", {}).items():
                same = same and [list(one) for one in columns.get(name, ())] == found
            return bool(same) and not (protected & set(said["tables"])) - set(said.get("protected", ()))
        return False


class Grants:
    """Who may spend what, and what is public, in one attached database.

    Parameters
    ----------
    cursor : duckdb.DuckDBPyConnection
        A cursor of its own: what is written commits whatever the caller's transaction does.
    database : str
        Name of the attached database.
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection, database: str, books: Books | None = None) -> None:
        self.books = books or Books(cursor, database)

    def set(self, grant: Grant, who: str) -> Grant | None:
        """Grant, or change a grant; return the one before. Errors are those of the ledger."""
        return self._ledger(grant.source, who).grant(grant, grant.analyst)

    def remove(self, analyst: str, source: str, who: str) -> Grant | None:
        """Take a grant back; return it, None where there was none. What she has bought is not seen by her any more."""
        return self._ledger(source, who).grant(None, analyst)

    def of(self, analyst: str) -> dict[str, Grant]:
        """Return the grants of an analyst by table."""
        return {grant.source: grant for grant in self.all() if grant.analyst == analyst}

    def all(self) -> list[Grant]:
        """Return all grants in force, by table and analyst; the chains of hashes are checked where something is bought."""
        return granted(self.books.said(*ABOUT_GRANTS))

    def spent(self, analyst: str, source: str, moment: dt.datetime | None = None) -> list[Charge]:
        """Return the losses that count against an analyst's grant in the window of a moment (UTC); [] without a grant."""
        ledger = self._ledger(source)
        grant = ledger.grants().get(analyst)
        return [] if grant is None else ledger.window(grant, moment or now())

    def uses(self, analyst: str, source: str) -> list[Use]:
        """Return the releases that an analyst has paid for, of any window."""
        return self._ledger(source).uses(analyst)

    def published(self) -> list[str]:
        """Return the tables and views that analysts may read as they are.

        What has become protected since is none of it, nor a view whose text, or that of a view below it, is another one now, nor
        what reads a table whose columns are others now.
        """
        return [one.source for one, holds in self.publications() if holds]

    def publications(self) -> list[tuple[Published, bool]]:
        """Return all that was published, and whether it still is what it was then."""
        listed = [Published(*row) for row in self.books.published()] if self.books.exist() else []
        if not listed:
            return []
        protected, views, columns = set(self.books.sources()), self._views(), self.columns()
        return [(one, one.source not in protected and one.holds(views, protected, columns)) for one in listed]

    def columns(self) -> dict[str, list[list[str]]]:
        """Return names and types of the columns of each table and view, by the name that the books give it."""
        query = (
            "SELECT schema_name, table_name, column_name, data_type FROM system.main.duckdb_columns() WHERE database_name = ? "
            "AND NOT internal ORDER BY schema_name ASC, table_name ASC, column_index ASC"
        )
        found: dict[str, list[list[str]]] = {}
        for schema, table, name, kind in self.books.cursor.execute(query, [self.books.database]).fetchall():
            found.setdefault(key_name(str(schema), str(table)), []).append([str(name), str(kind)])
        return found

    def _views(self) -> dict[str, str]:
        """Return the text of each view, by the name that the books give it."""
        query = "SELECT schema_name, view_name, sql FROM system.main.duckdb_views() WHERE database_name = ? AND NOT internal"
        rows = self.books.cursor.execute(query, [self.books.database]).fetchall()
        return {key_name(str(schema), str(name)): str(text) for schema, name, text in rows}

    def publish(self, source: str, who: str, definition: str | None = None) -> bool:
        """Publish a table or view; return whether that is new. Who asks has checked that it has no protected row."""
        return self.books.publish(source, definition, who)

    def unpublish(self, source: str) -> bool:
        """Take a publication back; return whether there was one."""
        return self.books.unpublish(source)

    def _ledger(self, source: str, who: str = "") -> Ledger:
        return Ledger(self.books, source, who)
