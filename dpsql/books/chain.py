"""The entries of one source as a chain of hashes: read in order, checked, appended to. What they mean: `dpsql.books.ledger`."""

from __future__ import annotations

import datetime as dt
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from decimal import Decimal
from functools import reduce
from operator import xor
from pathlib import Path
from typing import Any

import duckdb

from dpsql.books import files
from dpsql.books.anchor import INTENT, WRITTEN, Anchor, Head
from dpsql.books.book import EMPTY, LONG, NAMES, Book, Look
from dpsql.books.entries import (
    FIELDS,
    RESTORE,
    edited,
    reading,
)
from dpsql.books.hashes import TEXTS, entry_hash, first_hash, shown, stored, types_hold
from dpsql.books.schema import Books, rollback
from dpsql.errors import LedgerError, first_line
from dpsql.text.bounded_json import load
from dpsql.text.relation import literal

_TRIES = 200
_NOT_A_CONFLICT = (
    "No space left", "Could not write", "IO Error", "fsync", "Input/output", "Read-only", "Permission denied", "quota",
)
MOST_AT_ONCE = 2_000
"""New entries of a source that are checked in Python; for more of them DuckDB is faster."""
_MOST_KNOWN = 8
_FIRST = 1
"""Place of the first column of an entry beside its mark."""
_MARK = f"system.main.hash(system.main.hash({', '.join(NAMES)}))"
"""A number of a row. DuckDB mixes the hash of the last value in by XOR alone: without the second hash the XOR over all rows would
be the same whichever row has which of these values."""
_writing = threading.Lock()  # saves retries within a process; what is right does not depend on it
_written: dict[tuple[str, str], int] = {}
"""The last time that this process has written to a book, or tried to, as a number: nobody else may write while it is open here."""
_times = itertools.count(1)
_known: dict[tuple[str, str], Book] = {}
"""Books that hold, as they were read last. Nothing but their being equal to what stands there is relied on, so it does not matter
which state of which database they were read from, nor who wrote since."""


class Chain:
    """The chained entries of one source, in the books of one database."""

    def __init__(self, books: Books, source: str, who: str, *, apart: bool = False) -> None:
        self.books = books
        self.source = source
        self.who = who
        self.owner = who if apart else ""  # whose releases are there; '': all
        self._table = books.table("ledger")
        self._book: Book | None = None  # while a block of `whole` runs
        self._look: Look | None = None
        self._looked_at = 0  # as in `_written`
        self._place = (books.database, source)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Read all entries at once, for a block that asks for several things and writes nothing: it sees one state of the book.

        In a transaction that state is the transaction's.
        """
        if self._book is not None or not self.books.exist():
            yield
            return
        with reading(self.source):
            self._book = self._read()
        try:
            yield
        finally:
            self._book = None

    def look(self) -> None:
        """Read what is new of a book that this process knows, for what is asked of it from now on: one statement instead of many.

        To be called again wherever others may have written and it matters before an entry is decided on: after waiting for a lock,
        or a reading. Where nobody in this process has, the look is as it was; to what is written by SQL a call is blind until it
        decides. A book that is not known yet is asked one thing at a time.
        """
        written = _written.get(self._place, 0)
        if self._look is not None and self._looked_at == written:
            return
        self._look, self._looked_at = None, written
        known = _known.get(self._place, EMPTY)
        if not known.rows or self._book is not None or not self.books.exist():
            return
        try:
            book = self._continued(known)
        except duckdb.InterruptException:
            raise
        except duckdb.Error:  # said by what is asked next
            return
        self._look = None if book is None else Look(book)

    def may_have_bought(self, operation: str) -> bool:
        """Return whether something may have been charged by a kind of call: false where the book was looked at and has none."""
        return self.books.exist() and (self._look is None or operation in self._look.operations)

    def _continued(self, known: Book) -> Book | None:
        """Return a known book with the entries after its last one; None where that is not, or no more, the one that is known."""
        query = f"SELECT {_MARK}, {', '.join(NAMES)} FROM {self._table} WHERE source = ? AND entry >= ?"  # noqa: S608
        result = self.books.cursor.execute(query, [self.source, known.last[0]])
        types = {str(name): str(kind) for name, kind, *_ in result.description[1:]}
        rows = sorted(result.fetchall(), key=lambda row: int(row[_FIRST + NAMES.index("entry")]))
        # its hash is of all entries before it
        if types != known.types or not rows or rows[0][_FIRST + NAMES.index("hash")] != known.last[1]:
            return None
        new = rows[1:]
        book = known.with_new(self.source, [row[_FIRST:] for row in new], reduce(xor, (row[0] for row in new), 0))
        return self._kept(book) if book.holds else None

    def _kept(self, book: Book) -> Book:
        """Keep a book that holds for the calls of this process."""
        if book is not _known.get(self._place):
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[self._place] = book
        return book

    def _read(self) -> Book:
        """Return the book: what is known of it, if that is still what stands there, and what is new."""
        known = _known.get(self._place, EMPTY)
        book = self._with_new(known) if known.rows else None
        if book is None:
            book = self._with_new(EMPTY)
        if book is None:
            book = self._long()
        return self._kept(book) if book.holds and book.rows else book

    def _with_new(self, known: Book) -> Book | None:
        """Return a book with what is new; None where the known part is another one now, or too much is new to be read here."""
        names, old = ", ".join(NAMES), "(entry <= $last) IS TRUE"  # one without a number is new
        count = "system.main.count_star() FILTER"
        sums = f"{count} (WHERE {old}), system.main.bit_xor({_MARK}) FILTER (WHERE {old}), {count} (WHERE NOT ({old}))"
        query = (
            f"SELECT sums.*, fresh.* FROM (SELECT {sums} FROM {self._table} WHERE source = $source) AS sums(known, mark, more) "  # noqa: S608
            f"LEFT JOIN (SELECT {_MARK}, {names} FROM {self._table} WHERE source = $source AND NOT ({old})) AS fresh "
            f"ON sums.more <= {MOST_AT_ONCE}"
        )
        result = self.books.cursor.execute(query, {"source": self.source, "last": known.last[0]})
        types = {str(name): str(kind) for name, kind, *_ in result.description[4:]}
        read = result.fetchall()
        # equal numbers and hashes: what was known stands there still, so it need not be hashed again
        if read[0][:2] != (len(known.rows), known.mark if known.rows else None) or read[0][2] > MOST_AT_ONCE:
            return None
        if known.rows and types != known.types:
            return None
        fresh = [row[3:] for row in read if row[2]]
        fresh.sort(key=lambda row: int(row[1 + NAMES.index("entry")]))
        start = known if known.rows else Book(types, (), holds=types_hold(types), mark=0)
        return start.with_new(self.source, [row[1:] for row in fresh], reduce(xor, (row[0] for row in fresh), 0))

    def _long(self) -> Book:
        """Return a book that is read for the first time and that DuckDB checks sooner than we: without what is most of it."""
        names = ", ".join(f"CASE WHEN action <> 'charge' THEN {name} END" if name in LONG else name for name in NAMES)
        query = f"SELECT {names}, {_MARK} FROM {self._table} WHERE source = $source ORDER BY entry ASC"  # noqa: S608
        result = self.books.cursor.execute(query, {"source": self.source})
        types = {name: str(column[1]) for name, column in zip(NAMES, result.description, strict=False)}
        rows = result.fetchall()
        mark = reduce(xor, (row[-1] for row in rows), 0)
        return Book(types, (row[:-1] for row in rows), holds=types_hold(types) and self._chain_holds(), mark=mark)

    def chain_holds(self) -> bool:
        """Return whether every entry of this source follows from the one before. The chain has no key, see `dpsql.books.ledger`."""

        def holds() -> bool:
            with self.whole():
                return self._book is None or self._book.holds

        return _of_a_book(holds)

    def _chain_holds(self) -> bool:
        """Return what DuckDB says of the chain."""
        query = f"SELECT coalesce(system.main.bool_and(holds), true) FROM ({self.books.chain()}) WHERE source = ?"  # noqa: S608

        def holds() -> bool:
            with reading(self.source):
                row = self.books.cursor.execute(query, [self.source]).fetchone()
            return bool(row and row[0])

        return _of_a_book(holds)

    def anchor(self) -> Path | None:
        """Return the file outside the database that every entry is noted in, if there is one."""
        rows = self._rows(["parameters"], actions=("anchor",))
        with reading(self.source):
            return Path(str(load(rows[-1][0])["anchor"])) if rows else None

    def check_intact(self) -> None:
        """Refuse a book that was edited, cut or restored from a backup, as far as it can be told.

        Raises
        ------
        LedgerError
            The chain of hashes does not hold, or the book does not agree with its anchor.
        """
        with self.whole():
            self.check_chain()
            anchor = self.anchor()
            if anchor is not None:
                head = self._head()
                if Anchor(anchor).check(head):  # a crash came between the entry and the line that confirms it
                    Anchor(anchor).append(WRITTEN, head)

    def check_chain(self) -> None:
        """Refuse a book whose chain of hashes does not hold.

        Raises
        ------
        LedgerError
            It was edited.
        """
        with self.whole():
            if self._book is not None and not types_hold(self._book.types):
                raise edited(self.source, "columns of it have other types than they were made with")
            if not self.chain_holds():
                raise edited(self.source, "its chain of hashes does not hold")

    def _head(self) -> Head:
        def hash_at(entry: int) -> str | None:
            rows = self._rows(["hash"], entry=entry)
            return str(rows[0][0]) if rows else None

        entry, newest = self._last()
        return Head(self.source, str(hash_at(1)), entry, str(newest), hash_at)

    def _last(self) -> tuple[int, str | None]:
        known = self._book or self._look
        if known is not None:
            return known.last
        with reading(self.source):
            row = self.books.cursor.execute(
                f"SELECT system.main.max(entry), system.main.arg_max(hash, entry) FROM {self._table} WHERE source = ?",  # noqa: S608
                [self.source],
            ).fetchone()
            return (int(row[0]), str(row[1])) if row and row[0] is not None else (0, None)

    def _newest(self) -> tuple[int, str | None, Path | None]:
        """Return the number and hash of the newest entry, and the book's anchor."""
        known = self._book or self._look
        if known is not None:
            return *known.last, self.anchor()
        anchored = "system.main.arg_max(parameters, entry) FILTER (WHERE action = 'anchor')"
        newest = f"system.main.max(entry), system.main.arg_max(hash, entry), {anchored}"
        with reading(self.source):
            row = self.books.cursor.execute(f"SELECT {newest} FROM {self._table} WHERE source = ?", [self.source]).fetchone()  # noqa: S608
            if row is None or row[0] is None:
                return 0, None, None
            return int(row[0]), str(row[1]), None if row[2] is None else Path(str(load(row[2])["anchor"]))

    def _rows(
        self, columns: Sequence[str], *, actions: Sequence[str] = (), release: str | None = None, entry: int | None = None
    ) -> list[tuple[Any, ...]]:
        """Return columns of the entries with one of these actions, about this release, of this number; in the order of entries.

        Of a column in `TEXTS`, <column>_text is what DuckDB writes of it.
        """
        known = self._book or self._look
        rows = None if known is None else known.look_up(columns, actions=actions, release=release, entry=entry)
        if rows is not None:
            return rows
        listed = [f"{name.removesuffix('_text')}::VARCHAR" if name.endswith("_text") else name for name in columns]
        conditions, values = ["source = ?"], [self.source]
        if actions:
            conditions.append(f"action IN ({', '.join(map(literal, actions))})")
        if release is not None:
            conditions.append("release = ?")
            values.append(release)
        if entry is not None:
            conditions.append(f"entry = {entry:d}")
        query = f"SELECT entry, {', '.join(listed)} FROM {self._table} WHERE {' AND '.join(conditions)}"  # noqa: S608
        with reading(self.source):
            read = self.books.cursor.execute(query, values).fetchall()
            return [tuple(row[1:]) for row in sorted(read, key=lambda row: int(row[0]))]  # sooner than DuckDB

    def _append(
        self, decide: Callable[[], Mapping[str, Any] | None], anchor: Path | None = None, *, few: bool = False
    ) -> dict[str, Any] | None:
        """Append what ``decide`` returns on the newest books; decide again if another session was faster.

        ``few``: it asks for a few entries, which take as long however long the book is, or which the call has looked at: then
        nothing is read, and the entry's number is taken if anybody has written since. Else the book is read as a whole.

        Returns
        -------
        dict, optional
            The entry as the committed book has it, with its hash; None where nothing was to be written.

        Raises
        ------
        LedgerError
            The database or the anchor cannot be written. Nothing is, where ``uncertain`` is false.
        """
        self.books.open()
        cursor = self.books.cursor
        entry: dict[str, Any] | None
        before, twice = files.opened(cursor, self.books.database)
        if twice is not None:
            told = f"the file of database {self.books.database!r} is attached as {twice!r} too, with other books"
            raise LedgerError(f"{told}: DETACH both, ATTACH one of them, and repeat the call; nothing was written")
        why = None if before is None else files.not_alone(before)
        if why is not None:
            raise LedgerError(f"the file of database {self.books.database!r}: {why}, and repeat the call; nothing was written")
        for attempt in range(_TRIES):
            with _writing:
                committing = False
                cursor.execute("BEGIN")
                try:
                    with nullcontext() if few else self.whole():
                        fields = decide()
                        entry, noted = self._insert(fields, anchor) if fields is not None else (None, None)
                    committing = True
                    cursor.execute("COMMIT")
                # another session has written this number: decide on its books; unless the disk is what failed
                except (duckdb.ConstraintException, duckdb.TransactionException) as error:
                    reason = first_line(error)
                    self._undo()
                    if any(text in reason for text in _NOT_A_CONFLICT):
                        raise self._unwritten(reason, committing) from None
                except duckdb.InterruptException:
                    self._undo()
                    raise
                except duckdb.Error as error:
                    self._undo()
                    raise self._unwritten(first_line(error), committing) from None
                except BaseException:
                    self._undo()
                    raise
                else:
                    if entry is not None:
                        self._wrote()
                    if noted is not None:
                        _confirm(*noted)
                    if entry is not None and before is not None and not before.written_since():
                        raise self._forgotten()
                    return entry
            time.sleep(random.uniform(0, 0.002 * (attempt + 1)))  # noqa: S311 -- spreads retries; no privacy in it
        raise LedgerError(f"the ledger of {self.source} is busy: {_TRIES} tries failed, the last with: {reason}; repeat the call")

    def _wrote(self) -> None:
        """Note an entry, once it is committed. A look that has it is one of now: its number was free."""
        self._looked_at = _written[self._place] = next(_times)

    def _undo(self) -> None:
        rollback(self.books.cursor)
        self._wrote()  # it may be there: a commit can fail late
        self._look = None

    def _forgotten(self) -> LedgerError:
        database = self.books.database
        error = LedgerError(
            f"what the ledger of {self.source} was told is in memory and not in the file of database {database!r}, which is "
            "attached without a write-ahead log (RECOVERY_MODE no_wal_writes): it would be forgotten. DETACH the database, ATTACH "
            "it without that option, and repeat the call; nothing is read before"
        )
        error.uncertain = True
        return error

    def _unwritten(self, reason: str, committing: bool) -> LedgerError:
        if "No space left" in reason or "quota" in reason:
            reason = f"no space is left on the disk of database {self.books.database!r}. Free some and repeat the call ({reason})"
        error = LedgerError(f"the ledger of {self.source} cannot be written: {reason}")
        error.uncertain = committing
        return error

    def _insert(
        self, fields: Mapping[str, Any], anchor: Path | None = None
    ) -> tuple[dict[str, Any], tuple[Anchor, Head] | None]:
        """Insert an entry into the open transaction.

        Return it, then its anchor, which holds an intent now, and what to confirm there.
        """
        cursor = self.books.cursor
        entry, previous, held = self._newest()
        path = held if anchor is None else anchor
        values: dict[str, Any] = {
            "source": self.source,
            "entry": entry + 1,
            "written_at": dt.datetime.now(dt.UTC).replace(tzinfo=None),
            "who": self.who,
            **fields,
            "previous": first_hash(self.source) if previous is None else previous,
        }
        given = [str(v) if isinstance(v, Decimal) else v for v in (values.get(name) for name in FIELDS)]
        texts = {**dict(zip(FIELDS, given, strict=True)), **self._texts(values)}
        hashed = entry_hash(texts)
        cursor.execute(
            f"INSERT INTO {self._table} ({', '.join(NAMES)}) SELECT {', '.join(f'?::{kind}' for kind in FIELDS.values())}, ?",
            [*given, hashed],
        )
        made = {**values, **{f"{name}_text": texts[name] for name in TEXTS}, "hash": hashed}
        looked = self._look if self._book is None else Look(self._book)
        self._book, self._look = None, None if looked is None else looked.with_own(made)  # it has one entry more now
        if path is None:
            return made, None
        head = self._head()
        Anchor(path).append(INTENT, head)
        return made, (Anchor(path), head)

    def _texts(self, values: Mapping[str, Any]) -> dict[str, str | None]:
        """Return what DuckDB will write of the columns in `TEXTS` of a new entry."""
        try:
            return {name: shown(stored(values.get(name), FIELDS[name])) for name in TEXTS}
        except ValueError:  # it rounds, or converts
            casts = ", ".join(f"?::{FIELDS[name]}::VARCHAR" for name in TEXTS)
            given = [str(v) if isinstance(v, Decimal) else v for v in (values.get(name) for name in TEXTS)]
            row = self.books.cursor.execute(f"SELECT {casts}", given).fetchone() or ()
            return dict(zip(TEXTS, row, strict=True))


def _of_a_book(holds: Callable[[], bool]) -> bool:
    """Return whether something holds; it does not where what stands there is no book that can be read."""
    try:
        return holds()
    except LedgerError as error:
        if RESTORE in str(error):
            return False
        raise


def _confirm(anchor: Anchor, head: Head) -> None:
    """Note that an entry was committed; where that fails the entry stands, and the next call notes it."""
    try:
        anchor.append(WRITTEN, head)
    except LedgerError as error:
        error.uncertain = True
        raise
