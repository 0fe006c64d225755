"""The entries of one source as a process knows them: in order, by action and by release, and what those that charge add up to.

A book is read as a whole once in a process; later what is new of it, beside one number of all that was read before, which changes
where any value does. So a call takes as long after ten thousand releases as after ten.

Privacy: None: the books hold no rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpsql.accounting import Charge, Charges
from dpsql.books.entries import FIELDS, charge_from_row
from dpsql.books.hashes import TEXTS, follows, shown, stored

NAMES = (*FIELDS, "hash")
LONG = frozenset({"query", "parameters", "plan", "versions"})
"""Columns that are not kept of entries that charge: they are most of a book, and are asked for by the name of a release."""
_PLACE = {name: i for i, name in enumerate(NAMES)}
_ACTION, _RELEASE, _ENTRY, _OPERATION = (_PLACE[name] for name in ("action", "release", "entry", "operation"))
_COST = tuple(_PLACE[name] for name in ("rho", "epsilon", "delta", "events"))


def _brief(row: Sequence[Any]) -> tuple[Any, ...]:
    if row[_ACTION] != "charge":
        return tuple(row)
    return tuple(None if name in LONG else value for name, value in zip(NAMES, row, strict=True))


class Book:
    """Entries of one source, numbered without a gap, and whether each follows from the one before.

    Parameters
    ----------
    types : mapping
        What the columns are, by name.
    rows : sequence of tuple
        In the order of their numbers; columns as in `NAMES`. Of those that charge the `LONG` columns may be anything.
    holds : bool
        Whether the chain of hashes does.
    mark : int
        The XOR of DuckDB's hashes of the rows.

    Notes
    -----
    It is never changed, so threads may share it.
    """

    def __init__(self, types: Mapping[str, str], rows: Iterable[Sequence[Any]], *, holds: bool, mark: int) -> None:
        self.types = types
        self.rows = [_brief(row) for row in rows]
        self.holds = holds
        self.mark = mark
        self._by_action: dict[Any, list[int]] = {}
        self._by_release: dict[Any, list[int]] = {}
        self.operations: set[Any] = set()
        """What kinds of calls have charged."""
        self._index(0)
        self._counted: tuple[dict[str, Charge], Charges, int] = ({}, Charges(), 0)

    def _index(self, start: int) -> None:
        for place in range(start, len(self.rows)):
            row = self.rows[place]
            self._by_action.setdefault(row[_ACTION], []).append(place)
            self._by_release.setdefault(row[_RELEASE], []).append(place)
            self.operations.add(row[_OPERATION])

    def with_new(self, source: str, rows: Sequence[Sequence[Any]], mark: int) -> Book:
        """Return the book with entries after its last one, all columns of them given; ``mark`` is that of the new rows."""
        if not rows:
            return self
        entries = [dict(zip(NAMES, row, strict=True)) for row in rows]
        made = Book(self.types, (), holds=self.holds and follows(source, entries, self.last), mark=self.mark ^ mark)
        made.rows = [*self.rows, *map(_brief, rows)]
        made._by_action = {action: [*places] for action, places in self._by_action.items()}
        made._by_release = {release: [*places] for release, places in self._by_release.items()}
        made.operations = {*self.operations}
        made._index(len(self.rows))
        made._counted = self._counted
        return made

    @property
    def last(self) -> tuple[int, str | None]:
        """Number and hash of the newest entry; 0 and None where there is none."""
        return (int(self.rows[-1][_ENTRY]), str(self.rows[-1][_PLACE["hash"]])) if self.rows else (0, None)

    def look_up(
        self, columns: Sequence[str], *, actions: Collection[str] = (), release: str | None = None, entry: int | None = None
    ) -> list[tuple[Any, ...]] | None:
        """Return columns of the entries of these actions, about this release, of this number, in order; None: they are not kept.

        Of a column <name>_text, what DuckDB writes of <name>.
        """
        if release is not None:
            places = self._by_release.get(release, [])
        elif actions:
            places = sorted(place for action in actions for place in self._by_action.get(action, ()))
        else:
            places = list(range(len(self.rows)))
        rows = [self.rows[place] for place in places]
        rows = [row for row in rows if (not actions or row[_ACTION] in actions) and (entry is None or row[_ENTRY] == entry)]
        if not LONG.isdisjoint(columns) and any(row[_ACTION] == "charge" for row in rows):
            return None
        wanted = [(_PLACE[name.removesuffix("_text")], name.endswith("_text")) for name in columns]
        return [tuple(shown(row[place]) if text else row[place] for place, text in wanted) for row in rows]

    def charged(self) -> Mapping[str, Charge]:
        """Return every charge that counts, by release: all but the refunded ones.

        Raises
        ------
        LedgerError, ValueError and the like
            An entry holds what dpsql never wrote (`dpsql.books.entries.reading`).
        """
        return self._count()[0]

    def charges(self) -> Charges:
        """Return every charge that counts, with their sums; the errors are those of `charged`."""
        return self._count()[1]

    def _count(self) -> tuple[dict[str, Charge], Charges, int]:
        charged, charges, start = self._counted
        if start == len(self.rows):
            return self._counted
        charged, more, again = dict(charged), [], False
        for row in self.rows[start:]:
            release = row[_RELEASE]
            again |= row[_ACTION] in ("charge", "refund") and release in charged  # a sum of what is there now, not of what was
            if row[_ACTION] == "refund":
                charged.pop(release, None)  # an edited book may refund what it never charged
            elif row[_ACTION] == "charge":
                charged[release] = charge_from_row(*(row[place] for place in _COST))
                more.append(charged[release])
        self._counted = charged, Charges(charged.values()) if again else charges.plus(more), len(self.rows)
        return self._counted


EMPTY = Book({}, (), holds=True, mark=0)
"""What is known of a book before it was read."""


@dataclass(frozen=True)
class Look:
    """A book as a call has looked at it, and the entries that the call itself has appended since.

    What is looked up here is as old as the look: what an entry is decided on is read in its own transaction, or holds because the
    entry gets the number after `last`, which somebody else's would have.
    """

    book: Book
    own: tuple[Mapping[str, Any], ...] = ()

    @property
    def last(self) -> tuple[int, str | None]:
        """Number and hash of the newest entry; 0 and None where there is none."""
        return (int(self.own[-1]["entry"]), str(self.own[-1]["hash"])) if self.own else self.book.last

    @property
    def operations(self) -> set[Any]:
        """What kinds of calls have charged."""
        return self.book.operations | {entry.get("operation") for entry in self.own}

    def with_own(self, entry: Mapping[str, Any]) -> Look | None:
        """Return the look with an entry that was just appended; None where it has to be read as it stands there.

        ``entry``: all that it says, by the names of columns; and the texts of what is none, as <name>_text.
        """
        if int(entry["entry"]) != self.last[0] + 1 or entry["action"] not in ("charge", "store"):
            return None
        try:
            values = {name: stored(entry.get(name), FIELDS[name]) for name in TEXTS}
        except ValueError:  # DuckDB rounds, or converts
            return None
        return Look(self.book, (*self.own, {**entry, **values}))

    def look_up(
        self, columns: Sequence[str], *, actions: Collection[str] = (), release: str | None = None, entry: int | None = None
    ) -> list[tuple[Any, ...]] | None:
        """Return what `Book.look_up` does, the call's own entries among it."""
        rows = self.book.look_up(columns, actions=actions, release=release, entry=entry)
        if rows is None:
            return None
        own = [
            one for one in self.own
            if (not actions or one["action"] in actions) and release in (None, one.get("release")) and entry in (None, one["entry"])
        ]
        return rows + [tuple(one.get(name) for name in columns) for one in own]
