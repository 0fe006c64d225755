"""Which files hold rows that a name of the books has: nothing else may call these public, or give them another budget.

A path says little: a hard link, a symbolic link or a mount gives a file another one. So a file is looked up by where it lies and by
its device and inode, among the files of every folder and lake that the books name and among those that have a budget themselves.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import duckdb

from dpsql.books.schema import Books
from dpsql.engines.remote import Remote, files_of
from dpsql.errors import UnsupportedQuery
from dpsql.source.model import TableId
from dpsql.source.parse import tokens
from dpsql.text.names import fold
from dpsql.text.paths import Identity, identity, local_path
from dpsql.text.relation import literal

PROTECTED = "file:"
"""How the key of a file begins."""
_REACHED = "whether the file is one of {relation}, where the rows of {key} are, cannot be said"


@dataclass(frozen=True)
class _Named:
    """Where the rows of a table of the books are."""

    books: Books
    key: str
    remote: Remote

    def folder(self) -> Path | None:
        """Return the folder of this machine that the relation names; None where it names none."""
        found = files_of(self.remote.relation)
        return local_path(found[1]) if found else None

    def lake(self) -> str | None:
        """Return the name of the attached database that has the rows, with engine 'duckdb'."""
        if self.remote.engine != "duckdb" or files_of(self.remote.relation):
            return None
        return next((token.text for token in tokens(self.remote.relation)), None)


class NamedFiles:
    """The files of all places that the books name; looked at once in a call, and only where a file without a budget is named.

    Parameters
    ----------
    cursor : duckdb.DuckDBPyConnection
    books : iterable of Books
        Of all attached databases.
    attached : mapping of str to str
        The type of each attached database, by its folded name.
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection, books: Iterable[Books], attached: Mapping[str, str]) -> None:
        self._cursor, self._books, self._attached = cursor, list(books), attached

    def check(self, file: TableId) -> None:
        """Refuse a file whose rows have a name or a budget already.

        Raises
        ------
        UnsupportedQuery
        """
        path = Path(file.name)
        for key, folder in self._folders:
            if folder in path.parents:
                raise UnsupportedQuery(file.text, f"is in a folder whose rows are those of {key}: name that")
        for one in map(identity, (path, *path.parents)):
            if one is not None and one in self._held:
                key, what = self._held[one]
                if key == f"{PROTECTED}{path}":  # under its own name
                    continue
                raise UnsupportedQuery(file.text, f"is another name of {what} {key}: name that")

    @cached_property
    def _named(self) -> list[_Named]:
        return [_Named(books, key, remote) for books in self._books for key, remote in books.remotes().items()]

    @cached_property
    def _folders(self) -> list[tuple[str, Path]]:
        found = [(one.key, folder) for one in self._named if (folder := one.folder()) is not None]
        return found + [(one.key, folder) for one in self._named if (folder := self._data_path(one)) is not None]

    @cached_property
    def _held(self) -> dict[Identity, tuple[str, str]]:
        """Return whose rows each file has, and each folder: by device and inode."""
        found: dict[Identity, tuple[str, str]] = {}
        for books in self._books:
            for key in books.files():
                own = identity(key.removeprefix(PROTECTED))
                if own is not None:
                    found[own] = (key, "the file")
        for key, folder in self._folders:
            found |= dict.fromkeys(_below(folder), (key, "a file or folder with the rows of"))
        for one in self._named:
            for path in self._lake_files(one):
                own = identity(path)
                if own is not None:
                    found[own] = (one.key, "a file with the rows of")
        return found

    def _data_path(self, one: _Named) -> Path | None:
        if self._lake(one) is None:
            return None
        rows = self._ask(one, f"SELECT data_path FROM system.main.ducklake_settings({literal(one.lake() or '')})")  # noqa: S608
        return local_path(str(rows[0][0])) if rows and rows[0][0] else None

    def _lake_files(self, one: _Named) -> list[Path]:
        """Return the files of a lake's table, now: those that were added to it may lie elsewhere."""
        if self._lake(one) is None:
            return []
        name, schema, table = (token.text for token in tokens(one.remote.relation)[0::2])
        listed = f"system.main.ducklake_list_files({literal(name)}, {literal(table)}, schema => {literal(schema)})"
        rows = self._ask(one, f"SELECT data_file FROM {listed}")  # noqa: S608 -- quoted
        return [path for (file,) in rows if (path := local_path(str(file))) is not None]

    def _ask(self, one: _Named, query: str) -> list[tuple[object, ...]]:
        try:
            return self._cursor.execute(query).fetchall()
        except duckdb.InterruptException:
            raise
        except duckdb.Error:  # its text may name files
            raise UnsupportedQuery(one.remote.relation, self._unknown(one, "the lake does not answer")) from None

    def _lake(self, one: _Named) -> str | None:
        """Return the type of the attached database that has the rows if it is a lake; refuse where it is not attached."""
        name = one.lake()
        if name is None:
            return None
        kind = self._attached.get(fold(name))
        if kind is None:
            raise UnsupportedQuery(one.remote.relation, self._unknown(one, f"ATTACH {name!r} again"))
        return kind if kind == "ducklake" else None

    def _unknown(self, one: _Named, way: str) -> str:
        return f"{_REACHED.format(relation=one.remote.relation, key=one.key)}: {way}"


def _below(root: Path) -> Iterator[Identity]:
    """Yield a folder or file, and all that is in it, through symbolic links too, each folder once."""
    seen: set[Identity] = set()
    waiting = [root]
    while waiting:
        path = waiting.pop()
        own = identity(path)
        if own is None or own in seen:
            continue
        seen.add(own)
        yield own
        try:
            with os.scandir(path) as entries:
                below = list(entries)
        except OSError:  # a file, or one may not look into it: then neither may who would read it
            continue
        for entry in below:
            if entry.is_dir():
                waiting.append(Path(entry.path))
            elif (found := identity(entry.path)) is not None:
                yield found
