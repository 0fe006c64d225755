"""The books of the databases that a call sees, and the links, sources and places of rows in them: looked at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dpsql.books.linked import ABOUT_LINKS, Link, links_of
from dpsql.books.schema import Books
from dpsql.engines.remote import Remote
from dpsql.session.instance import Context


class _Survey(NamedTuple):
    """What the books of a database say of all its tables; ``links``: the entries about them, in order."""

    sources: frozenset[str]
    links: list[tuple[str, str, str]]
    remotes: dict[str, Remote]


def books_of(context: Context, database: str) -> Books:
    """Return the books of a database, one object in a call: whether they exist is looked up once."""
    books = context.known.get(("books", database))
    if not isinstance(books, Books):
        number = next((one.number for one in context.attached() if one.name == database), None)
        current: set[object] = context.instance.remembered.setdefault("books", set())
        books = context.known["books", database] = Books(context.cursor, database, current=(current, (database, number)))
    return books


def links_in(context: Context, database: str) -> Mapping[str, Link]:
    """Return the links in force in a database by table, as the books call them; as they were when the call first asked."""
    links: Mapping[str, Link] | None = context.known.get(("links", database))
    if links is None:
        links = context.known["links", database] = links_of(_survey(context, database).links)
    return links


def sources_in(context: Context, database: str) -> frozenset[str]:
    """Return the tables and files that a database's ledger has entries of, as the books call them; as when the call first asked."""
    return _survey(context, database).sources


def remotes_in(context: Context, database: str) -> Mapping[str, Remote]:
    """Return where the rows are of the tables of a database that have none here, by their keys; as when the call first asked."""
    return _survey(context, database).remotes


def _survey(context: Context, database: str) -> _Survey:
    survey = context.known.get(("survey", database))
    if not isinstance(survey, _Survey):
        sources, links, remotes = books_of(context, database).survey(*ABOUT_LINKS)
        survey = context.known["survey", database] = _Survey(frozenset(sources), links, remotes)
    return survey
