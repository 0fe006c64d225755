"""The entries of one source as a chain of hashes: read in order, checked, appended to. What they mean: `dpsql.books.ledger`."""

from __future__ import annotations

import datetime as dt
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

from dpsql.books.anchor import INTENT, WRITTEN, Anchor, Head
from dpsql.books.entries import (
    FIELDS,
    RESTORE,
    edited,
    reading,
)
from dpsql.books.hashes import TEXTS, entry_hash, first_hash, follows, shown, stored, types_hold
from dpsql.books.schema import Books, rollback
from dpsql.errors import LedgerError, first_line
from dpsql.text.bounded_json import load
from dpsql.text.relation import literal

_TRIES = 200
_NOT_A_CONFLICT = (
    "No space left", "Could not write", "IO Error", "fsync", "Input/output", "Read-only", "Permission denied", "quota",
)
MOST_AT_ONCE = 2_000
"""Entries of a source that are read and checked in Python; for a longer book DuckDB is faster."""
_MOST_KNOWN = 8
_writing = threading.Lock()  # saves retries within a process; what is right does not depend on it


@dataclass(frozen=True)
class _Known:
    """Entries of which each follows from the one before, as rows and by column, with the types of the columns.

    Rows of the same types and values do so too: hashing them once more would find what it found. Nothing but that equality is
    relied on, so it does not matter which state of which database they were read from, nor who wrote since.
    """

    types: Mapping[str, str]
    rows: Sequence[tuple[Any, ...]]
    entries: Sequence[dict[str, Any]]

    def starts(self, types: Mapping[str, str], rows: Sequence[tuple[Any, ...]]) -> bool:
        return self.types == types and rows[: len(self.rows)] == self.rows


_NONE_KNOWN = _Known({}, [], [])
_known: dict[tuple[str, str], _Known] = {}


class Chain:
    """The chained entries of one source, in the books of one database."""

    def __init__(self, books: Books, source: str, who: str, *, apart: bool = False) -> None:
        self.books = books
        self.source = source
        self.who = who
        self.owner = who if apart else ""  # whose releases are there; '': all
        self._table = books.table("ledger")
        self._held: list[dict[str, Any]] | None = None  # the whole book, while a block of `whole` runs
        self._read = _NONE_KNOWN  # what it was made of
        self._followed = 0  # so many of its first entries are known to follow
        self._typed = True  # whether its columns have the types that they were made with

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Read all entries at once, for a block that asks for several things and writes nothing: it sees one state of the book.

        In a transaction that state is the transaction's. A book of more than `MOST_AT_ONCE` entries is asked each time.
        """
        if self._held is not None or not self.books.exist():
            yield
            return
        names = [*FIELDS, "hash"]
        place = names.index("entry")
        few = f"(SELECT system.main.count_star() FROM {self._table} WHERE source = $source) <= {MOST_AT_ONCE}"  # noqa: S608
        query = f"SELECT {', '.join(names)} FROM {self._table} WHERE source = $source AND {few}"  # noqa: S608
        with reading(self.source):
            rows = self.books.cursor.execute(query, {"source": self.source}).fetchall()
            types = {str(column[0]): str(column[1]) for column in self.books.cursor.description or ()}
            if rows or not self._last()[0]:
                self._typed = types_hold(types)
                rows.sort(key=lambda row: int(row[place]))
                known = _known.get((self.books.database, self.source), _NONE_KNOWN)
                known = known if known.starts(types, rows) else _NONE_KNOWN
                self._followed = len(known.rows)
                self._held = [*known.entries, *(dict(zip(names, row, strict=True)) for row in rows[self._followed :])]
                self._read = _Known(types, rows, self._held)
        try:
            yield
        finally:
            self._held, self._read = None, _NONE_KNOWN

    def chain_holds(self) -> bool:
        """Return whether every entry of this source follows from the one before. The chain has no key, see `dpsql.books.ledger`."""
        if not self.books.exist():
            return True
        if self._held is not None:
            holds = self._typed and follows(self.source, self._held, self._followed)
            if holds:
                self._remember()
            return holds
        query = f"SELECT coalesce(system.main.bool_and(holds), true) FROM ({self.books.chain()}) WHERE source = ?"  # noqa: S608
        try:
            with reading(self.source):
                row = self.books.cursor.execute(query, [self.source]).fetchone()
        except LedgerError as error:
            if RESTORE in str(error):  # no chain can be computed of such columns
                return False
            raise
        return bool(row and row[0])

    def _remember(self) -> None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[self.books.database, self.source] = self._read

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
        if not self.chain_holds():
            raise edited(self.source, "its chain of hashes does not hold")

    def _head(self) -> Head:
        def hash_at(entry: int) -> str | None:
            rows = self._rows(["hash"], entry=entry)
            return str(rows[0][0]) if rows else None

        entry, newest = self._last()
        return Head(self.source, str(hash_at(1)), entry, str(newest), hash_at)

    def _last(self) -> tuple[int, str | None]:
        if self._held is not None:
            return (int(self._held[-1]["entry"]), str(self._held[-1]["hash"])) if self._held else (0, None)
        with reading(self.source):
            row = self.books.cursor.execute(
                f"SELECT system.main.max(entry), system.main.arg_max(hash, entry) FROM {self._table} WHERE source = ?",  # noqa: S608
                [self.source],
            ).fetchone()
            return (int(row[0]), str(row[1])) if row and row[0] is not None else (0, None)

    def _newest(self) -> tuple[int, str | None, Path | None]:
        """Return the number and hash of the newest entry, and the book's anchor."""
        if self._held is not None:
            return *self._last(), self.anchor()
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
        if self._held is not None:
            return [
                tuple(shown(row[name.removesuffix("_text")]) if name.endswith("_text") else row[name] for name in columns)
                for row in self._held
                if (not actions or row["action"] in actions)
                and (release is None or row["release"] == release)
                and (entry is None or row["entry"] == entry)
            ]
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
            rows = self.books.cursor.execute(query, values).fetchall()
            return [tuple(row[1:]) for row in sorted(rows, key=lambda row: int(row[0]))]  # sooner than DuckDB

    def _append(
        self, decide: Callable[[], Mapping[str, Any] | None], anchor: Path | None = None, *, few: bool = False
    ) -> dict[str, Any] | None:
        """Append what ``decide`` returns on the newest books; decide again if another session was faster.

        ``few``: it asks for a few entries, which take as long however long the book is; else the book is read as a whole.

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
                except (duckdb.ConstraintException, duckdb.TransactionException) as error:
                    reason = first_line(error)
                    rollback(cursor)
                    if any(text in reason for text in _NOT_A_CONFLICT):
                        raise self._unwritten(reason, committing) from None
                except duckdb.InterruptException:
                    rollback(cursor)
                    raise
                except duckdb.Error as error:
                    rollback(cursor)
                    raise self._unwritten(first_line(error), committing) from None
                except BaseException:
                    rollback(cursor)
                    raise
                else:
                    if noted is not None:
                        _confirm(*noted)
                    return entry
            time.sleep(random.uniform(0, 0.002 * (attempt + 1)))  # noqa: S311 -- spreads retries; no privacy in it
        raise LedgerError(f"the ledger of {self.source} is busy: {_TRIES} tries failed, the last with: {reason}; repeat the call")

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
            f"INSERT INTO {self._table} SELECT {', '.join(f'?::{kind}' for kind in FIELDS.values())}, ?",
            [*given, hashed],
        )
        self._held = None  # the book has one entry more now
        made = {**values, **{f"{name}_text": texts[name] for name in TEXTS}, "hash": hashed}
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


def _confirm(anchor: Anchor, head: Head) -> None:
    """Note that an entry was committed; where that fails the entry stands, and the next call notes it."""
    try:
        anchor.append(WRITTEN, head)
    except LedgerError as error:
        error.uncertain = True
        raise
