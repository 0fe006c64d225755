"""Links of tables without a budget of their own to the table that has it: entries of that table's ledger.

A link is an entry 'link' of the root's ledger: it says whose rows the rows of a table are (`dpsql.source.linked`). The linked table
gets an entry 'linked' of its own, in the same transaction: so nobody protects or links it at the same time, and no reader that does
not know links takes it for a public table. What a table had spent before under a budget of its own is in the entry that
linked it, and counts as losses of the root. 'unlink' and 'unlinked' take a link back that no release has read through; the table is
not public then, but waits for a budget or another link: who bought nothing of it has no reason to see its rows.

Privacy: None: links are public facts of the schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from dpsql.accounting import Charge
from dpsql.books.entries import READS, canonical_json, charge_from_row, edited, reading
from dpsql.books.granted import Granted
from dpsql.errors import LedgerError
from dpsql.text.bounded_json import check_numbers, load
from dpsql.text.relation import key_name

LINK, LINKED = "link", "linked"
UNLINK, UNLINKED = "unlink", "unlinked"
ABOUT_LINKS = (LINK, LINKED, UNLINK)
"""Actions that decide which links are in force."""
Orphans = Literal["drop", "unit"]
ORPHANS: tuple[Orphans, ...] = ("drop", "unit")


@dataclass(frozen=True)
class Link:
    """A link in force.

    Parameters
    ----------
    child, parent : tuple of str
        Schema and name, as the catalog spelled them.
    column, parent_column : str
    max_rows : int, at least 1
        Rows of the child that one row of the parent may have in a release.
    orphans : {'drop', 'unit'}
    order_by : str or None
        The child's column in whose order the rows of one parent row stand.
    root : str
        The table that has the budget, as the books call it.
    """

    child: tuple[str, str]
    column: str
    parent: tuple[str, str]
    parent_column: str
    max_rows: int
    orphans: Orphans
    root: str
    order_by: str | None = None

    def __post_init__(self) -> None:
        whole = isinstance(self.max_rows, int) and not isinstance(self.max_rows, bool) and self.max_rows >= 1
        texts = (*self.child, self.column, *self.parent, self.parent_column, self.root, self.order_by or "")
        if not whole or self.orphans not in ORPHANS or not all(isinstance(text, str) for text in texts):
            raise ValueError("not a link")

    @property
    def source(self) -> str:
        """The table that is linked, as the books call it."""
        return key_name(*self.child)

    @property
    def above(self) -> str:
        """The parent, as the books call it."""
        return key_name(*self.parent)

    def to_json(self) -> dict[str, Any]:
        """Return what an entry says of the link; the root is whose ledger it is in."""
        return {
            "child": list(self.child), "column": self.column, "parent": list(self.parent), "parent_column": self.parent_column,
            "max_rows": self.max_rows, "orphans": self.orphans, **({} if self.order_by is None else {"order_by": self.order_by}),
        }

    @classmethod
    def from_json(cls, root: str, said: Mapping[str, Any]) -> Link:
        """Return the link that an entry says; the errors are those of an edited book."""
        (schema, name), (parent_schema, parent_name) = said["child"], said["parent"]
        return cls(
            (schema, name), said["column"], (parent_schema, parent_name), said["parent_column"], said["max_rows"], said["orphans"],
            root, said.get("order_by"),
        )


@dataclass(frozen=True)
class Reads:
    """What a release reads where some of it is linked.

    Parameters
    ----------
    tables : tuple of str
        The protected tables that it reads, the root among them if it is, as the books call them.
    links : tuple of Link
        The links of the ways up from them, as they were planned with.
    public : tuple of str
        The tables that it takes for public.
    """

    tables: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    public: tuple[str, ...] = ()


def links_of(rows: Iterable[tuple[str, str, str]]) -> dict[str, Link]:
    """Return the links in force by table, of the entries about links in order: source, action, parameters.

    Raises
    ------
    LedgerError
        An entry holds what dpsql never wrote, or links go in a circle.
    """
    in_force = _followed(rows)
    links = {link.source: link for link in in_force.values()}
    for link in in_force.values():
        if links[link.source] is not link or root_of(links, link.source) != link.root:
            raise edited(link.root, f"the links of {link.source} contradict one another")
    return links


def _followed(rows: Iterable[tuple[str, str, str]]) -> dict[tuple[str, str], Link]:
    """Return the links that entries leave in force, by the ledger that they are in and the table that is linked."""
    in_force: dict[tuple[str, str], Link] = {}
    for source, action, parameters in rows:
        with reading(source):
            if action == LINKED:  # it has no budget any more; the links that led to it stand on another ledger since
                in_force = {place: link for place, link in in_force.items() if place[0] != source}
                continue
            link = Link.from_json(source, load(parameters))
            if action == UNLINK:
                in_force.pop((source, link.source), None)
            else:
                in_force[source, link.source] = link
    return in_force


def root_of(links: Mapping[str, Link], source: str) -> str:
    """Return the table that links lead up to from a table, all as the books call them; the table itself where it has no link.

    Raises
    ------
    LedgerError
        They go in a circle: the book was edited.
    """
    at, seen = source, {source}
    while at in links:
        at = links[at].above
        if at in seen:
            raise edited(at, "its links go in a circle")
        seen.add(at)
    return at


class Linked(Granted):
    """Links to one source that has a budget, in the books of one database; or that it is linked itself."""

    def links(self, entry: int | None = None) -> dict[str, Link]:
        """Return the links in force that lead to this source, by the table that is linked; ``entry``: as it was written."""
        if not self.books.exist():
            return {}
        rows = self._rows(["entry", "action", "parameters"], actions=ABOUT_LINKS)
        with reading(self.source):
            until = [(self.source, action, said) for number, action, said in rows if entry is None or int(number) <= entry]
        return {link.source: link for link in _followed(until).values()}

    def links_of(self, release: str) -> dict[str, Link]:
        """Return the links that a release was charged under, by the table that is linked."""
        charged = [int(entry) for (entry,) in self._rows(["entry"], actions=("charge",), release=release)]
        return self.links(charged[-1]) if charged else {}

    def merged(self) -> dict[tuple[str, str, str], Charge]:
        """Return what linked tables had spent under budgets of their own before they were linked.

        By the table that was linked, the ledger that the release was charged on, and the release.
        """
        charges: dict[tuple[str, str, str], Charge] = {}
        rows = self._rows(["parameters"], actions=(LINK,))
        with reading(self.source):
            for (text,) in rows:
                said = load(text)
                for one in said.get("merged", ()):
                    charges[key_name(*said["child"]), str(one["from"]), str(one["release"])] = charge_from_json(one)
        return charges

    def check_reads(self, reads: Reads) -> None:
        """Refuse what was planned under links that are not in force now, or with public tables that are public no more.

        Raises
        ------
        LedgerError
        """
        links = self.links() if reads.links else {}
        changed = [link.source for link in reads.links if links.get(link.source) != link]
        if changed:
            told = f"the link of {changed[0]} was changed while the call was planned; nothing was charged, repeat the call"
            raise LedgerError(told)
        private = self.books.private(reads.public) if reads.public else []
        if private:
            told = f"{private[0]} was public while the call was planned, and is protected or linked now; nothing was charged, "
            raise LedgerError(f"{told}repeat the call")

    def read(self) -> set[str]:
        """Return the tables that releases have read which count, where some of what they read was linked."""
        tables: dict[str, set[str]] = {}
        for action, release, parameters in self._rows(["action", "release", "parameters"], actions=("charge", "refund")):
            tables.pop(release, None)
            with reading(self.source):
                if action == "charge":
                    tables[release] = {str(name) for name in load(parameters).get(READS, {}).get("tables", ())}
        return set().union(*tables.values())


def named(root: str, reads: Reads) -> dict[str, Any]:
    """Return what the parameters of a charge say beside what was asked: root and tables read; nothing where none is linked."""
    return {READS: {"root": root, "tables": sorted(reads.tables)}} if reads.links else {}


def charge_to_json(source: str, release: str, charge: Charge) -> dict[str, Any]:
    """Return what an entry that merges says of one charge, exactly; ``source``: on whose ledger it was charged."""
    return {
        "from": source, "release": release, "events": canonical_json([event.to_json() for event in charge.events]),
        "rho": f"{charge.rho:f}", "epsilon": f"{charge.epsilon:f}", "delta": f"{charge.delta:f}",
    }


def charge_from_json(said: Mapping[str, Any]) -> Charge:
    """Return the charge that an entry which merges says; the errors are those of an edited book."""
    costs = [said[name] for name in ("rho", "epsilon", "delta")]
    check_numbers(costs)
    rho, epsilon, delta = (Decimal(str(cost)) for cost in costs)
    return charge_from_row(rho, epsilon, delta, said["events"])
