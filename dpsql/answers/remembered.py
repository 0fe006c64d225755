"""Answers that were given before in this process, given again while nothing that they were made of has changed.

An answer is the text of a relation over released numbers. It follows from the call, the caller's database and schema, what the
catalog says of every name that was looked up on the way (tables and views, their numbers, columns and texts), and the releases it
was made of. A remembered answer is given again only if all of that is as it was, seen by the call that asks: each name means the
same entries with the same texts, the ledger holds the same entries about each release, and its file has not been touched. What
else a call looks at (declarations, budgets, functions) decides what is bought, never what a stored release says; where a file, an
ENUM type of a user, or a table beside the protected one is involved, which may be protected one day, nothing is remembered.

Privacy: free. What is given again was released before; nothing is charged, and no row is read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsql.books.ledger import Ledger
from dpsql.books.schema import Books
from dpsql.calls.buying import BuyingCall
from dpsql.calls.query import QueryCall
from dpsql.errors import DpsqlError
from dpsql.protected.home import catalog_of
from dpsql.protected.seen import fingerprint
from dpsql.protected.source import ProtectedSource
from dpsql.release import identity
from dpsql.session.instance import NOTES, Context, Instance

MOST = 256
"""Answers that are remembered of one open database; the one that was asked for longest ago is forgotten."""
LONGEST = 1 << 20
_FILES = (".parquet", ".pq")
Key = tuple[str, str, str, str]
File = tuple[Path, tuple[int, int, int]]
"""A file, and its state: when it was changed, its size and inode."""


@dataclass(frozen=True)
class _Bought:
    """A release that an answer was made of: where its ledger is, what that says of it, and its file as it was."""

    database: str
    source: str
    name: str
    entries: list[tuple[Any, ...]]
    path: Path
    file: tuple[int, int, int]


@dataclass(frozen=True)
class _Answer:
    text: str
    named: dict[tuple[str, str], list[tuple[Any, ...]]]
    releases: tuple[_Bought, ...]
    files: tuple[File, ...]
    notes: tuple[str, ...]


def recall(context: Context, call: QueryCall | BuyingCall) -> str | None:
    """Return the answer of a call that was answered before, if it would be the same today; None where that is not known."""
    answers = _answers(context)
    key = _key(context, call)
    answer = answers.get(key)
    if answer is None:
        return None
    try:
        same = _same(context, answer) and not (answer.files and _without_files(context))
    except (DpsqlError, OSError):  # said in full on the usual way
        same = False
    if not same:
        answers.pop(key, None)
        return None
    answers.pop(key, None)
    answers[key] = answer  # the newest now
    notes: list[str] | None = context.known.get(NOTES)
    if notes is not None:
        notes += [line for line in answer.notes if line not in notes]
    return answer.text


def _without_files(context: Context) -> bool:
    """Whether the session may not read files: the usual way says so."""
    return not context.cursor.execute("SELECT system.main.current_setting('enable_external_access')").fetchall()[0][0]


def remember(
    context: Context,
    call: QueryCall | BuyingCall,
    asked: str,
    text: str,
    made_of: Iterable[tuple[ProtectedSource, str]],
    files: Sequence[Path] = (),
) -> None:
    """Keep the answer of a call with everything that it was made of.

    Parameters
    ----------
    asked : str
        The SQL that the call names.
    text : str
        The answer.
    made_of : iterable
        Each source, and the release that was bought of it.
    files : sequence of Path
        Others that the answer reads.
    """
    catalog, parts = catalog_of(context), list(made_of)
    named = catalog.looked_up()
    # an answer is remembered where all that it depends on can be looked at again
    tables = {(row[0], row[1], row[2]) for rows in named.values() for row in rows if row[3] == "table"}
    own = {(source.source.table.database, source.source.table.schema, source.source.table.name) for source, _ in parts}
    texts = [asked, *(str(row[4]) for rows in named.values() for row in rows)]
    of_files = any(ending in text.lower() for text in texts for ending in _FILES)  # no other files can be sources
    if len(text) > LONGEST or catalog.asked_types or of_files or tables != own:
        return
    try:
        bought = tuple(_bought(context, source, name) for source, name in parts)
        read = tuple((path, _file(path)) for path in files)
    except (DpsqlError, OSError, ValueError):
        return
    answers = _answers(context)
    answers[_key(context, call)] = _Answer(text, named, bought, read, tuple(context.known.get(NOTES, ())))
    while len(answers) > MOST:
        answers.popitem(last=False)


def releases_of(instance: Instance, text: str) -> list[str]:
    """Return which releases an answer was made of that is remembered; none where it is not."""
    answer = _with_text(instance, text)
    return [] if answer is None else [part.name for part in answer.releases]


def files_of(instance: Instance, text: str) -> tuple[File, ...] | None:
    """Return the files that an answer was made of that is remembered; None where it is not."""
    answer = _with_text(instance, text)
    return None if answer is None else (*((part.path, part.file) for part in answer.releases), *answer.files)


def are_untouched(files: Iterable[File]) -> bool:
    """Return whether files are as they were."""
    try:
        return all(_file(path) == state for path, state in files)
    except OSError:
        return False


def _with_text(instance: Instance, text: str) -> _Answer | None:
    answers: dict[Key, _Answer] = instance.remembered.get("answers", {})
    return next((answer for answer in list(answers.values()) if answer.text == text), None)


def _bought(context: Context, source: ProtectedSource, name: str) -> _Bought:
    entries = source.ledger.entries_of(name)
    (charge,) = {str(digest) for action, _, digest in entries if action == "charge"}
    path = identity.path_of(context.store(source.books.database), name, charge)
    return _Bought(source.books.database, source.key, name, entries, path, _file(path))


def _same(context: Context, answer: _Answer) -> bool:
    catalog = catalog_of(context)
    if any(catalog.entries(*place) != entries for place, entries in answer.named.items()):
        return False
    if any(_file(path) != file for path, file in answer.files):
        return False
    for bought in answer.releases:
        ledger = Ledger(Books(context.cursor, bought.database), bought.source, context.user)
        if _file(bought.path) != bought.file or ledger.entries_of(bought.name) != bought.entries:
            return False
    return True


def _answers(context: Context) -> OrderedDict[Key, _Answer]:
    answers: OrderedDict[Key, _Answer] = context.instance.remembered.setdefault("answers", OrderedDict())
    return answers


def _key(context: Context, call: QueryCall | BuyingCall) -> Key:
    return repr(call), context.database, context.schema, fingerprint(context)


def _file(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino
