"""Which files hold rows of a table of the books: nothing else may call these public, give them another budget, or count them.

A path says little: a hard link, a symbolic link or a mount gives a file another one. So a file is looked up by where it lies and by
its device and inode, among the files of every folder and lake that the books name and among those that have a budget themselves.

Lemma: *a release counts rows of a file only if it is charged to every table of the books that has a budget and reads that file.*
A release reads one table's files. If a second table with a budget reads one of them, the release is refused: before its charge,
when the statement is bound, and again when it is read, for the files that are listed then (`NamedFiles.apart` and `check_own`).
So whatever links come later, between two tables with a budget neither is read, and no unit's rows are spent twice but charged once.
It holds for the files as they are listed: one that is replaced while DuckDB reads is not seen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import duckdb

from dpsql.books.schema import Books
from dpsql.engines.attached import lake_files
from dpsql.engines.attached.looked import Apart, withheld
from dpsql.engines.remote import Remote, files_of
from dpsql.errors import ArgumentError, UnsupportedQuery
from dpsql.source.model import TableId
from dpsql.source.parse import tokens
from dpsql.text.names import fold
from dpsql.text.paths import Identity, identity, is_folder, local_path

PROTECTED = "file:"
"""How the key of a file begins."""
_LAKE = "ducklake"
_REACHED = "whether files are those of {relation}, where the rows of {key} are, cannot be said"
_SHARED = (
    "{which} has rows of {key} as well, which has a budget of its own: they would be counted, and that budget not charged. Take "
    "the file, or the link to it, out of one of both, or {way}"
)


@dataclass(frozen=True)
class _Holder:
    """A table of the books whose rows are in files; ``remote`` is None for one that is a file itself."""

    database: str
    key: str
    remote: Remote | None
    budget: bool
    """Whether it has a budget, or had one."""

    def shared(self, which: str, database: str) -> str:
        """Return why what has rows of this table too is not read for a table of the books of a database, and the way out."""
        key, way = self.key, f"ask {self.key} alone"
        if self.database != database:
            key, way = f"{key} in the books of {self.database!r}", f"DETACH {self.database!r}"
        return _SHARED.format(which=which, key=key, way=way)

    def folder(self) -> Path | None:
        """Return the folder of this machine that the relation names; None where it names none."""
        files = files_of(self.remote.relation) if self.remote else None
        return local_path(files[1]) if files else None

    def parts(self) -> list[str]:
        """Return the name of the attached database that has the rows, the schema and the table; nothing where it is none."""
        if self.remote is None or self.remote.engine != "duckdb" or files_of(self.remote.relation):
            return []
        parts = [token.text for token in tokens(self.remote.relation)[0::2]]
        return parts if len(parts) == 3 else []

    def same(self, remote: Remote) -> bool:
        """Return whether it is another name of a table of an attached database, called as it is here."""
        mine, other = self.parts(), _Holder("", "", remote, budget=False).parts()
        return bool(mine) and mine[1:] == other[1:] and fold(mine[0]) == fold(other[0])


class NamedFiles:
    """The files of all tables that the books name; looked at once in a call, and only where a call reads or names files.

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
        self._known: dict[tuple[_Holder, str], set[Identity]] = {}

    def check(self, file: TableId) -> None:
        """Refuse a file without a budget whose rows have a name or a budget already: it is not public, and gets none of its own.

        Raises
        ------
        UnsupportedQuery
        """
        path = Path(file.name)
        for holder in self._holders:
            folder = holder.folder() or self._data_path(holder)
            if folder is not None and folder in path.parents:
                raise UnsupportedQuery(file.text, f"is in a folder whose rows are those of {holder.key}: name that")
        others = [holder for holder in self._holders if holder.key != f"{PROTECTED}{path}"]
        twin = self._other(_identities([path]), others, self._all)
        if twin is not None:
            what = "the file" if twin.remote is None else "a file with the rows of"
            raise UnsupportedQuery(file.text, f"is another name of {what} {twin.key}: name that")

    def check_own(self, database: str, file: TableId) -> None:
        """Refuse to read a file with a budget while it is one of another table that has one.

        Raises
        ------
        UnsupportedQuery
        """
        self._known.clear()  # the files as they are now: between charge and reading others may have come
        holder = self._other(_identities([Path(file.name)]), self._others(database, f"{PROTECTED}{file.name}"), self._now)
        if holder is not None:
            raise UnsupportedQuery(file.text, holder.shared("it", database))

    def apart(self, database: str, key: str, remote: Remote) -> Apart:
        """Return what refuses to read files for a name while one of them is a file of another table that has a budget.

        Raises
        ------
        ArgumentError
        """
        return lambda files: self._check_shared(database, key, remote, lambda: _identities(map(local_path, files)))

    def check_name(self, database: str, key: str, remote: Remote) -> None:
        """Refuse a name for rows that have another one with a budget, as far as its files say, or what an attached table is called.

        Raises
        ------
        ArgumentError
        """
        for holder in self._others(database, key):
            if holder.same(remote):
                raise ArgumentError("relation", remote.relation, f"is what {holder.key} stands for, which has a budget: name that")
        mine = _Holder(database, key, remote, budget=True)
        self._check_shared(database, key, remote, lambda: self._now(mine))

    def _check_shared(self, database: str, key: str, remote: Remote, mine: Callable[[], set[Identity]]) -> None:
        others = self._others(database, key)
        if not others:
            return
        self._known.clear()
        holder = self._other(mine(), others, self._ever if files_of(remote.relation) else self._now)
        if holder is not None:
            raise ArgumentError("relation", remote.relation, holder.shared("one of its files", database))

    def _others(self, database: str, key: str) -> list[_Holder]:
        return [holder for holder in self._holders if holder.budget and (holder.database, holder.key) != (database, key)]

    @staticmethod
    def _other(mine: set[Identity], holders: Iterable[_Holder], files: Callable[[_Holder], set[Identity]]) -> _Holder | None:
        """Return one that has one of some files; where there are none, none is asked for its own."""
        return next((holder for holder in holders if not mine.isdisjoint(files(holder))), None) if mine else None

    @cached_property
    def _holders(self) -> list[_Holder]:
        holders = []
        for books in self._books:
            remotes, budgets = books.remotes(), books.budgets()
            files = [key for key in budgets if key.startswith(PROTECTED)]
            holders += [_Holder(books.database, key, None, budget=True) for key in files]
            holders += [_Holder(books.database, key, remote, budget=key in budgets) for key, remote in remotes.items()]
        return holders

    def _now(self, holder: _Holder) -> set[Identity]:
        """Return the files that a table has now, of a lake those of the newest snapshot, by device and inode."""
        return self._files(holder, "now")

    def _ever(self, holder: _Holder) -> set[Identity]:
        """Return the files that a table has, of a lake all that it knows of."""
        return self._files(holder, "ever")

    def _all(self, holder: _Holder) -> set[Identity]:
        """Return the files that a table has, of a lake also those that lie where it writes."""
        return self._files(holder, "all")

    def _files(self, holder: _Holder, when: str) -> set[Identity]:
        identities = self._known.get((holder, when))
        if identities is None:
            folder = Path(holder.key.removeprefix(PROTECTED)) if holder.remote is None else holder.folder()
            if folder is None and when == "all":
                folder = self._data_path(holder)
            identities = {one for one in map(identity, self._lake_files(holder, when)) if one is not None}
            identities = self._known[holder, when] = identities | (set(_below(folder)) if folder else set())
        return identities

    def _lake_files(self, holder: _Holder, when: str) -> list[Path]:
        if not self._is_lake(holder):
            return []
        lake, schema, table = holder.parts()
        with withheld(self._unknown(holder, "the lake does not answer")):
            if when != "now":
                return lake_files.ever(self._cursor, lake)
            if not lake_files.has(self._cursor, lake, schema, table):
                return []
            return [path for file in lake_files.listed(self._cursor, lake, schema, table) if (path := local_path(file)) is not None]

    def _data_path(self, holder: _Holder) -> Path | None:
        if not self._is_lake(holder):
            return None
        with withheld(self._unknown(holder, "the lake does not answer")):
            return local_path(lake_files.data_path(self._cursor, holder.parts()[0]))

    def _is_lake(self, holder: _Holder) -> bool:
        """Return whether an attached database that is a lake has the rows; refuse where that is not known."""
        if holder.remote is None or not holder.parts():
            return False
        name = holder.parts()[0]
        kind = self._attached.get(fold(name))
        if kind is None and holder.remote.url in ("", _LAKE):  # books of before say nothing of its type
            raise self._unknown(holder, f"ATTACH {name!r} again")
        return kind == _LAKE

    @staticmethod
    def _unknown(holder: _Holder, way: str) -> UnsupportedQuery:
        relation = holder.remote.relation if holder.remote else ""
        return UnsupportedQuery(relation, f"{_REACHED.format(relation=relation, key=holder.key)}: {way}")


def _identities(paths: Iterable[Path | None]) -> set[Identity]:
    """Return which files some paths are, and which folders these lie in."""
    files = {path for path in paths if path is not None}
    folders = {folder for path in files for folder in path.parents}
    return {one for one in map(identity, files | folders) if one is not None}


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
            if is_folder(entry.path):
                waiting.append(Path(entry.path))
            elif (file := identity(entry.path)) is not None:
                yield file
