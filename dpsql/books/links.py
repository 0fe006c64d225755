"""The links of a database, whatever tables they lead to: what ``dp_link`` sets and everybody who reads tables asks.

The entries: `dpsql.books.linked`. What a link may be is decided here as far as the books know it; the catalog is asked by
`dpsql.custodian.linking` before a link is set, and by `dpsql.protected.linked` each time that it is followed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import duckdb

from dpsql.accounting import fits
from dpsql.books.anchor import WRITTEN, Anchor, Head
from dpsql.books.entries import Protection, canonical_json
from dpsql.books.ledger import Ledger
from dpsql.books.linked import ABOUT_LINKS, LINK, LINKED, UNLINK, UNLINKED, Link, charge_to_json, links_of, root_of
from dpsql.books.schema import Books
from dpsql.errors import ArgumentError, NotProtected
from dpsql.text.names import fold

Change = Literal["linked", "linked, its budget is given up", "merged", "changed", "in force"]
_MOVES = 20
MANY = (
    "a row of two kinds of people is refused: rows are bounded for each unit of one kind, by that unit's rows alone, and for each "
    "row of it that goes another row of the same unit comes in, which may be of anybody of the other kind. So one person of the "
    "other kind may change as many rows as there are, whichever kind is bounded first"
)


class Links:
    """The links in force in one attached database.

    Parameters
    ----------
    cursor : duckdb.DuckDBPyConnection
        A cursor of its own: what is written commits whatever the caller's transaction does.
    database : str
        Name of the attached database.
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection, database: str, books: Books | None = None) -> None:
        self.books = books or Books(cursor, database)

    def all(self) -> dict[str, Link]:
        """Return the links in force by the table that is linked, in the order in which the books name roots and entries.

        Raises
        ------
        LedgerError
            The book was edited.
        """
        return links_of(self.books.said(*ABOUT_LINKS))

    def of(self, source: str) -> Link | None:
        """Return the link of a table, None where it has none."""
        return self.all().get(source)

    def root(self, source: str) -> str:
        """Return the table whose budget a table has: itself, where it is not linked."""
        return root_of(self.all(), source)

    def set(self, wanted: Link, who: str, *, merge: bool = False, keyed: bool = True) -> tuple[Link, Change]:
        """Set or change a link; return it as it is in force then, and what that changed. Repeating it writes nothing.

        Parameters
        ----------
        wanted : Link
            Its root is not looked at: it follows from the parent. max_rows, orphans and order_by may be other ones than before,
            whatever was bought: every release bounds rows as its own plan says, and the neighbours are all rows of a unit anyway.
            Columns and parent may be other ones until a release has read the table: then the rows of a unit would be others than
            it was for.
        merge : bool
            Whether what the table has spent of a budget of its own is added to the root's losses.
        keyed : bool
            Whether the parent's column holds no NULL: needed where rows of the root are units themselves.

        Raises
        ------
        ArgumentError
            It would go in a circle, the table is linked another way or is itself a root, or has spent part of a budget of its own.
        NotProtected
            The parent has no budget and no link.
        LedgerError
            The books were edited or cannot be written.
        """
        for _ in range(_MOVES):
            root = self.root(wanted.above)
            link = _Setting(self.books, replace(wanted, root=root), who, merge=merge, keyed=keyed).run()
            if link is not None:
                return link
        raise ArgumentError("parent", wanted.above, "other sessions link it just now; repeat the call")  # pragma: no cover

    def remove(self, source: str, who: str) -> Link | None:
        """Take the link of a table back, if no release has read through it; return it. None: the table was unlinked before.

        The table is not public then: it needs a budget of its own or another link before anything can be asked about it.

        Raises
        ------
        ArgumentError
            The table has never been linked, tables are linked to it, a release has read it, or what it had spent was merged.
        LedgerError
            The books were edited or cannot be written.
        """
        link = self.of(source)
        if link is None:
            if Ledger(self.books, source, who).is_unlinked():
                return None
            raise ArgumentError("source", source, "is not linked (FROM dp_links())")
        _Removing(self.books, link, who).run()
        return link


class _Writing:
    """Entries about one link on the ledgers of its root and of the table, written in one transaction."""

    def __init__(self, books: Books, link: Link, who: str) -> None:
        self.books = books
        self.ledger, self.own = Ledger(books, link.root, who), Ledger(books, link.source, who)
        self._noted: tuple[Anchor, Head] | None = None

    def _decide(self) -> dict[str, Any] | None:
        """Return the entry of the root's ledger, on the newest books, within the transaction that writes it; None: none is."""
        raise NotImplementedError

    def _write(self) -> None:
        try:
            self.ledger._append(self._decide)
        finally:
            self.own._wrote()
        if self._noted is not None:
            anchor, head = self._noted
            anchor.append(WRITTEN, head)

    def _insert(self, action: str, link: Link) -> None:
        """Write the entry of the table's own ledger."""
        said = canonical_json({"root": link.root, "link": link.to_json()})
        _, self._noted = self.own._insert({"action": action, "parameters": said})


class _Removing(_Writing):
    """One link being taken back."""

    def __init__(self, books: Books, link: Link, who: str) -> None:
        super().__init__(books, link, who)
        self.link = link

    def run(self) -> None:
        """Write the entries; errors are those of `Links.remove`."""
        self._write()

    def _decide(self) -> dict[str, Any] | None:
        """Decide on the newest books, within the transaction that writes."""
        self._noted, source = None, self.link.source
        links = links_of(self.books.said(*ABOUT_LINKS))
        held = links.get(source)
        if held is None or held.root != self.link.root:
            return None  # another session was first
        self.ledger.check_intact()
        below = [link.source for link in links.values() if link.above == source]
        if below:
            raise ArgumentError("source", source, f"tables are linked to it ({', '.join(below)}): unlink these first")
        if any(place[0] == source for place in self.ledger.merged()):
            raise ArgumentError("source", source, f"what it had spent was added to {held.root}, for good")
        if is_read(self.ledger, source):
            told = "a release has read it under this link, so that it stays; dp_link changes max_rows and orphans"
            raise ArgumentError("source", source, told)
        self._insert(UNLINKED, held)
        return {"action": UNLINK, "parameters": canonical_json(held.to_json())}


class _Moved(Exception):
    """The parent has another root than when the ledger was chosen."""


class _Setting(_Writing):
    """One link being set or changed."""

    def __init__(self, books: Books, wanted: Link, who: str, *, merge: bool, keyed: bool) -> None:
        super().__init__(books, wanted, who)
        self.wanted, self.merge, self.keyed = wanted, merge, keyed
        self._change: Change = "in force"

    def run(self) -> tuple[Link, Change] | None:
        """Write the entries; None where the root is another one meanwhile."""
        try:
            self._write()
        except _Moved:
            return None
        return self.wanted, self._change

    def _decide(self) -> dict[str, Any] | None:
        """Decide on the newest books, within the transaction that writes: errors are those of `Links.set`."""
        self._noted, wanted = None, self.wanted
        links = links_of(self.books.said(*ABOUT_LINKS))
        check_shape(links, wanted)
        if root_of(links, wanted.above) != wanted.root:
            raise _Moved
        protection = self.ledger.protection()
        if protection is None:
            raise NotProtected(
                f"parent = {wanted.above!r} has no privacy budget that the rows of {wanted.source} could be under: "
                f"CALL dp_protect('{wanted.above}', epsilon := ..., delta := ...) first"
            )
        before = links.get(wanted.source)
        if protection.privacy_unit is None and wanted.above == wanted.root:
            self._check_unit(links)
        self.ledger.check_intact()
        if before is not None:
            return self._changed(before)
        merged = self._merged(protection)
        self._insert(LINKED, wanted)
        return {"action": LINK, "parameters": canonical_json({**wanted.to_json(), **({"merged": merged} if merged else {})})}

    def _changed(self, before: Link) -> dict[str, Any] | None:
        wanted = self.wanted
        if before == wanted:
            self._change = "in force"
            return None
        merged = any(place[0] == wanted.source for place in self.ledger.merged())
        if merged and wanted.orphans != "drop":
            raise ArgumentError("orphans", wanted.orphans, _DROP)
        if not same_way(before, wanted) and (merged or is_read(self.ledger, wanted.source)):
            raise ArgumentError(
                "source",
                wanted.source,
                f"is linked by {before.column!r} to {before.above} ({before.parent_column}) already, and there is one way up from "
                "each table: with two, a row could be of two people. Releases have read it under that link, so that it stays; "
                "max_rows, orphans and order_by can be changed",
            )
        self._change = "changed"
        return {"action": LINK, "parameters": canonical_json(self.wanted.to_json())}

    def _check_unit(self, links: Mapping[str, Link]) -> None:
        """Where a row of the root is a unit, the key that links point to is its name: one key, that every row has."""
        wanted = self.wanted
        others = {fold(link.parent_column) for link in links.values() if link.above == wanted.root and link.source != wanted.source}
        if others - {fold(wanted.parent_column)}:
            raise ArgumentError(
                "parent_column",
                wanted.parent_column,
                f"other links to {wanted.root} point to {min(others)!r}: it has no privacy_unit, so that key says whose row a row "
                "is, and there can be one only",
            )
        if not self.keyed:
            raise ArgumentError(
                "parent_column",
                wanted.parent_column,
                f"may be NULL in {wanted.root}, which has no privacy_unit, so that this key has to say whose row each row is; "
                "ALTER TABLE ... ALTER COLUMN ... SET NOT NULL, or take the PRIMARY KEY",
            )

    def _merged(self, protection: Protection) -> list[dict[str, Any]]:
        """Return what the table has spent under a budget of its own, if it may be added to the root's.

        Proof that it may. A release of the table alone, under a budget with privacy_unit = the link's column, bounded the loss for
        all rows with one value of that column. The rows of a unit of the root in this table are those with the unit's key, which is
        the parent's column: one such value. So to the pair of databases that differ in all rows of a unit, in all linked tables,
        its loss was the same, and losses of releases add up on the root's ledger as they are. Orphans are rows of no unit then:
        they have to be left out by later releases, else many values would be one unit.
        """
        own = self.own
        held = own.standing()
        charged = {} if held is None else own.charged()
        if held is None:
            self._change = "linked"
            return []
        own.check_intact()
        if not charged:
            self._change = "linked, its budget is given up"
            return []
        wanted = self.wanted
        if not self.merge:
            raise ArgumentError(
                "merge",
                False,
                f"{wanted.source} has spent part of a budget of its own, and rows of one person stand under both; merge := true "
                f"adds what it has spent to {wanted.root}, for good",
            )
        why = _unmergeable(held, protection, wanted)
        if why is None and own.stopped() is not None:
            why = f"a reading of it has failed: look at it, then CALL dp_protect('{wanted.source}', resume := true)"
        if why is not None:
            raise ArgumentError("merge", self.merge, f"what {wanted.source} has spent cannot be added to {wanted.root}: {why}")
        losses = [*self.ledger.charges(), *charged.values()]
        if not fits(protection.budget, losses):
            raise ArgumentError(
                "merge",
                self.merge,
                f"the budget of {wanted.root} does not cover what both have spent (FROM dp_budget()); nothing was changed. "
                f"Raise it first: CALL dp_protect('{wanted.root}', epsilon := ...)",
            )
        self._change = "merged"
        return [charge_to_json(wanted.source, release, charge) for release, charge in charged.items()]


_DROP = "after a merge it has to be 'drop': what was spent before protected each value of the link's column by itself"


def _unmergeable(held: Protection, protection: Protection, wanted: Link) -> str | None:
    """Return why losses of a table are none of its root's units; None where they are."""
    if (held.neighbors, protection.neighbors) != ("add_remove", "add_remove"):
        return "both budgets must have neighbors = 'add_remove': under 'replace_one' its number of rows was taken for public"
    if held.budget.accountant != protection.budget.accountant:
        return f"its accountant is {held.budget.accountant!r}, that of {wanted.root} is {protection.budget.accountant!r}"
    if held.privacy_unit is None or fold(held.privacy_unit) != fold(wanted.column):
        return f"its privacy_unit was {held.privacy_unit!r}, not {wanted.column!r}: other rows were protected together"
    if wanted.above != wanted.root or (
        protection.privacy_unit is not None and fold(protection.privacy_unit) != fold(wanted.parent_column)
    ):
        return f"{wanted.parent_column!r} of {wanted.above} is not what says whose row a row of {wanted.root} is"
    return None if wanted.orphans == "drop" else f"orphans = {wanted.orphans!r}; {_DROP}"


def check_shape(links: Mapping[str, Link], wanted: Link) -> None:
    """Refuse a link that makes no way up, or a second one."""
    source, above = wanted.source, wanted.above
    if above == source:
        raise ArgumentError(
            "parent",
            above,
            "is the table itself: whose row a row is would be found by following rows of the table, as deep as the data goes, and "
            "one row of a chain would decide for many others",
        )
    at: str | None = above
    while at is not None:
        link = links.get(at)
        at = None if link is None else link.above
        if at == source:
            raise ArgumentError("parent", above, f"is linked to {source} already: links would go in a circle")
    before = links.get(source)
    if before is None:
        below = [link.source for link in links.values() if link.root == source]
        if below:
            raise ArgumentError(
                "source",
                source,
                f"tables are linked to it ({', '.join(below)}), and their links stand on its ledger: link from the root downwards",
            )
        return
    old, new = (root_of(links, one) for one in (before.above, above))
    if old != new:
        raise ArgumentError("parent", above, f"{source} is linked to {before.above} already, of root {old}: {MANY}")


def is_read(ledger: Ledger, source: str) -> bool:
    """Return whether a release of a root has read a table that is linked to it, or one that is linked to that table."""
    links = ledger.links()
    for name in ledger.read():
        at: str | None = name
        while at is not None:
            if at == source:
                return True
            at = links[at].above if at in links else None
    return False


def same_way(one: Link, other: Link) -> bool:
    """Return whether two links say the same of whose row a row is."""
    ways = [(link.above, fold(link.column), fold(link.parent_column)) for link in (one, other)]
    return ways[0] == ways[1]
