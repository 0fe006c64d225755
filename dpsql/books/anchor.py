"""A copy of the head of a ledger outside the database, by which a ledger that was cut or restored from a backup is noticed.

The chain of hashes has no key: whoever writes to the database file can delete the newest entries, restore yesterday's file or
compute all hashes anew, and the chain holds. An *anchor* is a text file elsewhere, to which dpsql only ever appends: at every entry
a line with the table, the number and the hash of the entry, in JSON.

The order of writing makes every crash a state that is recognised and never a lock-out:

1. the entry is inserted in a transaction that is still open;
2. a line 'intent' with its hash is appended to the anchor and synced;
3. the transaction commits;
4. a line 'written' is appended and synced. Only then rows are read, or the caller gets an answer.

Killed between 2 and 3, the anchor holds an intent that never came true: it is ignored. Killed between 3 and 4, the ledger's newest
entry is known by its intent: the next call writes the line that is missing. A ledger that ends before the last line 'written', that
has another hash there, or whose newest entries the anchor has never heard of, sells nothing.

It is as strong as the file is hard to rewrite: keep it where the people who use the database cannot write, or make it append-only
(``chattr +a FILE`` on Linux, ``chflags sappnd FILE`` on BSD and macOS, as root). dpsql does not do that itself: a file that even
its owner cannot delete should be somebody's decision.

Privacy: None: hashes of the books.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dpsql.books.files import open_here
from dpsql.errors import LedgerError

INTENT, WRITTEN = "intent", "written"


@dataclass(frozen=True)
class Line:
    """What an anchor says of one entry; ``book`` is the hash of the first entry of that table's ledger."""

    state: str
    source: str
    book: str
    entry: int
    hash: str
    at: str


@dataclass(frozen=True)
class Head:
    """Where the ledger of a table ends; ``hash_at`` gives the hash of any of its entries."""

    source: str
    book: str
    entry: int
    hash: str
    hash_at: Callable[[int], str | None]


_LONGEST = 1 << 16  # a line of an anchor is shorter


class Anchor:
    """One anchor file; it may serve several tables.

    Parameters
    ----------
    path : Path
        Absolute.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def is_one(self) -> bool:
        """Return whether the file is not there, empty, or an anchor already: nothing else is ever written to.

        A torn last line, which a crash leaves, is no other thing.
        """
        if not self.path.exists():
            return True
        if open_here(str(self.path)):  # a database: to open it, and close it, would give up DuckDB's lock on it
            return False
        try:
            with self.path.open("rb") as handle:
                first = handle.readline(_LONGEST)
        except OSError:
            return False
        return not first or (self.path.is_file() and _parsed(first.decode("utf-8", "replace")) is not None)

    def append(self, state: str, head: Head) -> None:
        """Append a line and wait until it is on disk.

        Raises
        ------
        LedgerError
            The file cannot be written.
        """
        now = dt.datetime.now(dt.UTC).replace(microsecond=0).isoformat()
        line = {"state": state, "source": head.source, "book": head.book, "entry": head.entry, "hash": head.hash, "at": now}
        created = not self.path.exists()
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                # A crash may have left half a line: it stays alone.
                size = os.fstat(handle).st_size
                torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
                data = (("\n" if torn else "") + json.dumps(line, ensure_ascii=False) + "\n").encode()
                if os.write(handle, data) != len(data):
                    raise OSError("not all of the line could be written")
                os.fsync(handle)
            finally:
                os.close(handle)
            if created:
                _sync_folder(self.path.parent)
        except OSError as error:
            raise LedgerError(
                f"the anchor of {head.source} cannot be written: {self.path} ({error.strerror or error}). {_way_out(head.source)}"
            ) from None

    def lines(self, source: str) -> list[Line]:
        """Return what the anchor says of a table, in the order it was written; a torn line says nothing.

        Raises
        ------
        LedgerError
            The file is not there or cannot be read.
        """
        try:
            text = self.path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise LedgerError(
                f"the anchor of {source} cannot be read: {self.path} ({error.strerror or error}), so nobody knows whether its "
                f"ledger is whole. {_way_out(source)}"
            ) from None
        return [line for line in map(_parsed, text.split("\n")[:-1]) if line is not None and line.source == source]

    def check(self, head: Head) -> bool:
        """Compare a ledger with its anchor; return whether its newest entry is still to be confirmed by a line 'written'.

        Raises
        ------
        LedgerError
            The ledger is behind, or contradicts the anchor, or the anchor knows nothing of it or cannot be read.
        """
        lines = self.lines(head.source)
        if not lines:
            raise self._refused(head, "the anchor has no line about it: the file was replaced")
        if any(line.book != head.book for line in lines):
            raise self._refused(head, "the anchor is that of another ledger of a table of this name")
        written = [line for line in lines if line.state == WRITTEN]
        last = max(written, key=lambda line: line.entry, default=None)
        if last is not None and head.entry < last.entry:
            raise self._refused(
                head,
                f"it ends at entry {head.entry}, and the anchor has seen entry {last.entry} ({last.at}): its end was cut off, or "
                "the database was restored from an older backup",
            )
        if last is not None and head.hash_at(last.entry) != last.hash:
            raise self._refused(head, f"entry {last.entry} is not the one that the anchor has seen: it was written anew")
        known = {(line.entry, line.hash) for line in lines}
        # An anchor that was named and never confirmed has seen the newest entry; the chain vouches for those before it.
        for entry in range(head.entry if last is None else last.entry + 1, head.entry + 1):
            if (entry, head.hash_at(entry)) not in known:
                why = f"the anchor has never heard of entry {entry}: it was not written by dpsql, or by an older one"
                raise self._refused(head, why)
        return last is None or last.entry < head.entry

    def _refused(self, head: Head, why: str) -> LedgerError:
        return LedgerError(
            f"the ledger of {head.source} does not agree with its anchor {self.path}: {why}. Nothing can be bought from it. "
            f"{_way_out(head.source)}"
        )


def _way_out(source: str) -> str:
    name = source.replace("'", "''")
    return (
        "The custodian puts the right file back, or, after comparing, accepts the ledger as it is: "
        f"CALL dp_protect('{name}', anchor := 'a new file'), which is an entry of its own"
    )


def _parsed(text: str) -> Line | None:
    try:
        item = json.loads(text)
        line = Line(**{name: item[name] for name in ("state", "source", "book", "entry", "hash", "at")})
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    good = isinstance(line.entry, int) and line.entry > 0 and line.state in (INTENT, WRITTEN)
    return line if good and all(isinstance(part, str) for part in (line.source, line.book, line.hash, line.at)) else None


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
