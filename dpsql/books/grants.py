"""Grants of a database, whatever table they are of: what the server and ``dp_grant`` ask.

The entries, limits and uses of one table: `dpsql.books.granted`.
"""

from __future__ import annotations

from dpsql.books.granted import ABOUT_GRANTS, Grant, granted
from dpsql.books.schema import Books


class Grants:
    """Who may spend what in one attached database."""

    def __init__(self, books: Books) -> None:
        self.books = books

    def all(self) -> list[Grant]:
        """Return all grants in force, by table and analyst; the chains of hashes are checked where something is bought."""
        grants = granted(self.books.said(*ABOUT_GRANTS))
        return [grant for _, grant in sorted(grants.items()) if grant is not None]

    def said(self, analyst: str) -> dict[str, Grant | None]:
        """Return what is said of an analyst by table; None: her grant was taken back."""
        grants = granted(self.books.said(*ABOUT_GRANTS))
        return {source: grant for (source, who), grant in grants.items() if who == analyst}
