"""The ledger: an append-only, hash-chained record of budgets and charges, and the hard limit that it enforces.

An entry is written in a transaction of its own on a cursor of its own, so a caller's ROLLBACK does not refund it. Entries
of a source are numbered 1, 2, 3, ... under a primary key: two sessions that decide on the same books write the same number,
one of them fails and decides again on the new books. So nobody overspends together.

The chain of hashes shows edits by people who do not compute it anew. It has no key, so it does not stop those who do, nor shows
a ledger whose end was cut off: for that an anchor is kept outside the database (`dpsql.books.anchor`).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpsql.accounting import Charge, Charges, fits, remaining, shortfall
from dpsql.books.anchor import WRITTEN, Anchor
from dpsql.books.entries import (
    Protection,
    Purchase,
    canonical_json,
    contract,
    edited,
    protection_of,
    purchase_of,
    reading,
    same_contract,
)
from dpsql.books.granted import losses, now
from dpsql.books.linked import LINKED, UNLINKED, Linked, Reads, named
from dpsql.errors import BudgetExceeded, BudgetExhausted, DpsqlError, LedgerError, NotProtected
from dpsql.text.relation import identifier

_NOTHING = Reads()
_BUDGETS = ("protect", "raise", "lower")
MOST_FAILURES = 2
"""Readings that fail before nothing is sold at all."""
MOST_INTERRUPTIONS = 3
"""Readings of a table, through more than its columns, that may be interrupted before the custodian resumes: how long one lasts can
depend on a row."""
MOST_OF_ONE = 2
"""Of these, those of one analyst of a served database."""
_CONTRACT = ("epsilon", "delta", "accountant", "neighbors", "privacy_unit", "max_contributions")
_PURCHASE = (
    "action", "contents", "entry", "operation", "query", "parameters", "plan", "rho_text", "epsilon_text", "delta_text", "events",
    "hash",
)


def _counting(release: str, rows: Sequence[Sequence[Any]]) -> Purchase | None:
    """Return the charge of a release that counts, of its entries in order, as `_PURCHASE` lists them."""
    purchase: Purchase | None = None
    for action, contents, entry, *bought in rows:
        if action == "charge":
            purchase = purchase_of(release, [entry, *bought])
        elif action == "refund":
            purchase = None
        elif action == "store" and purchase is not None:
            purchase = dataclasses.replace(purchase, status="stored", contents=contents, entry=entry)
        elif action == "fail" and purchase is not None:
            purchase = dataclasses.replace(purchase, status="failed", contents=None, entry=entry)
    return purchase


def _texts(item: Any) -> Iterator[str]:
    """Give the texts in what was JSON, without the names of its fields."""
    if isinstance(item, str):
        yield item
    elif isinstance(item, list | dict):
        for inner in item.values() if isinstance(item, dict) else item:
            yield from _texts(inner)


class Ledger(Linked):
    """Budgets and charges of one source, in the books of one database."""

    def protection(self) -> Protection | None:
        """Return the budget in force, or None if the source is not protected.

        Raises
        ------
        LedgerError
            The book was edited and holds no budget any more: the table must not look public. Or it is linked, and so protected by
            the budget of another table (`dpsql.protected.source.protection_of`).
        NotProtected
            It was linked, and has neither link nor budget now: it is not public for that.
        """
        action, held = self._contract()
        if action == UNLINKED:
            told = f"CALL dp_protect('{self.source}', epsilon := ..., delta := ...), or dp_link it again"
            raise NotProtected(f"{self.source} was linked, and has neither link nor budget now, but is not public for that: {told}")
        return self._protection(action, held)

    def is_unlinked(self) -> bool:
        """Return whether the source was linked, and has neither a link nor a budget now."""
        return self._contract()[0] == UNLINKED

    def standing(self) -> Protection | None:
        """Return the budget that a new one would change: as `protection`, but None of a source that is unlinked."""
        action, held = self._contract()
        return None if action == UNLINKED else self._protection(action, held)

    def _contract(self) -> tuple[str | None, Sequence[Any]]:
        """Return the newest entry that decides whose budget the source is under: its action, and the values of `_CONTRACT`.

        The action is None where there is no book, or nothing in it; and '' where there are entries, but none that decides.
        """
        if not self.books.exist():
            return None, ()
        columns, actions = ("action", *_CONTRACT), (*_BUDGETS, LINKED, UNLINKED)
        contracts = self._rows(columns, actions=actions)
        if not contracts:
            if self._last() == (0, None):
                return None, ()
            contracts = self._rows(columns, actions=actions)  # another session may have begun the book just now
        return (str(contracts[-1][0]), contracts[-1][1:]) if contracts else ("", ())

    def _protection(self, action: str | None, held: Sequence[Any]) -> Protection | None:
        if action is None:
            return None
        if action == LINKED:
            raise LedgerError(f"{self.source} is linked: it has no budget of its own but that of its root (FROM dp_links())")
        with reading(self.source):
            return protection_of(self.source, held)  # no budget, and entries: it was edited

    def naming(self, column: str) -> list[str]:
        """Return the releases, not refunded, that are about a column: the latest first."""
        rows = self._rows(["action", "release", "parameters", "plan"], actions=("charge", "refund"))
        releases: dict[str, bool] = {}
        name = column.lower()
        spelled = [json.dumps(text, ensure_ascii=False)[1:-1] for text in (name, identifier(name))]
        with reading(self.source):
            for action, release, *about in rows:
                releases.pop(release, None)
                if action == "charge":
                    near = [item for item in about if item and any(text in item.lower() for text in spelled)]
                    values = [text.lower() for item in near for text in _texts(json.loads(item))]
                    releases[release] = any(value == name or identifier(name) in value for value in values)
        return [release for release, named in reversed(releases.items()) if named]

    def charges(self) -> Charges:
        """Return every charge that counts: all but the refunded ones, and those of linked tables that were merged."""
        with self.whole():
            if self._book is None:
                return Charges()
            merged = self.merged()
            with reading(self.source):
                return self._book.charges().plus([*merged.values()]) if merged else self._book.charges()

    def charged(self) -> dict[str, Charge]:
        """Return every charge of this source's own that counts, by release."""
        with self.whole(), reading(self.source):
            return {} if self._book is None else dict(self._book.charged())

    def purchase(self, release: str) -> Purchase | None:
        """Return the charge of a release, or None if there is none that counts."""
        if not self.books.exist():
            return None
        rows = self._rows(_PURCHASE, release=release)
        with reading(self.source):
            return _counting(release, rows)

    def entries(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return what `purchase_in` reads a charge from, by release, of all at once."""
        by_release: dict[str, list[tuple[Any, ...]]] = {}
        if self.books.exist():
            for release, *row in self._rows(["release", *_PURCHASE]):
                by_release.setdefault(str(release), []).append(tuple(row))
        return by_release

    def purchase_in(self, entries: Mapping[str, Sequence[tuple[Any, ...]]], release: str) -> Purchase | None:
        """Return the charge of a release among `entries`, or None if there is none that counts."""
        with reading(self.source):
            return _counting(release, entries.get(release, ()))

    def entries_of(self, release: str) -> list[tuple[Any, ...]]:
        """Return action, contents and hash of the entries about a release, in order; who uses it does not matter."""
        return self._rows(["action", "contents", "hash"], actions=("charge", "store", "fail", "refund"), release=release)

    def stored(self, holding: Sequence[str], tables_of: str | None = None) -> list[tuple[str, str, str]]:
        """Return release, operation and parameters of stored answers whose parameters hold one of some texts, or of its tables.

        The oldest come first. An analyst sees those that she has uses of.
        """
        texts = {f"text{place}": text for place, text in enumerate(dict.fromkeys(holding))}
        holds = " OR ".join(f"system.main.contains(parameters, ${name})" for name in texts)
        query = (
            f"SELECT entry, release, operation, parameters FROM {self._table} WHERE source = $source AND action = 'charge' "  # noqa: S608
            f"AND (operation = 'query' AND ({holds}) OR operation = 'marginals' AND query = $tables) "
            f"AND release IN (SELECT release FROM {self._table} WHERE source = $source AND action = 'store')"
        )
        with reading(self.source):
            values = {"source": self.source, "tables": tables_of, **texts}
            rows = self.books.cursor.execute(query, values).fetchall()
            used = self.used() if rows else None
            rows = sorted((row for row in rows if used is None or row[1] in used), key=lambda row: int(row[0]))
            return [(str(name), str(operation), str(parameters)) for _, name, operation, parameters in rows]

    def stopped(self, *, plain: bool = False) -> int | None:
        """Return the entry after which only plain sources may be bought, until the custodian resumes; ``plain``: not even these.

        That is the last failed reading (for what is plain, and fails for want of memory or disk alone, the last of
        `MOST_FAILURES`), or the last of `MOST_INTERRUPTIONS` interrupted ones; for an analyst of a served database already that of
        `MOST_OF_ONE` of her own, so that nobody stops the sales of all others alone.
        """
        return self._stopped(self._outcomes(), plain=plain)

    def _stopped(self, since: list[tuple[str, int, str]], *, plain: bool = False) -> int | None:
        failed = [entry for action, entry, _ in since if action == "fail"]
        if plain or failed:
            return failed[-1] if len(failed) >= (MOST_FAILURES if plain else 1) else None
        hers = [entry for _, entry, who in since if who == self.owner]
        if len(hers) >= MOST_OF_ONE:
            return hers[-1]
        return since[-1][1] if len(since) >= MOST_INTERRUPTIONS else None

    def interruptions(self) -> tuple[int, int]:
        """Return how many readings were interrupted since the custodian resumed last, and how many more may be."""
        since = [who for action, _, who in self._outcomes() if action == "interrupt"]
        left = MOST_INTERRUPTIONS - len(since)
        return len(since), max(0, min(left, MOST_OF_ONE - since.count(self.owner)) if self.owner else left)

    def _outcomes(self) -> list[tuple[str, int, str]]:
        """Return action, entry and who of readings that failed or were interrupted since the custodian resumed last."""
        rows = self._rows(["action", "entry", "who"], actions=("fail", "interrupt", "resume"))
        resumed = max((i for i, (action, _, _) in enumerate(rows) if action == "resume"), default=-1)
        return [(str(action), int(entry), str(who)) for action, entry, who in rows[resumed + 1 :]]

    def interrupted(self, release: str) -> None:
        """Write down that a reading for a release was interrupted; it stays charged, and is finished by the same call."""
        self._append(lambda: {"action": "interrupt", "parameters": canonical_json({"release": release})}, few=True)

    def protect(self, wanted: Protection, anchor: Path | None = None) -> str:
        """Set the budget; return how the entry in force came about: 'protect', 'raise' or 'lower'.

        Repeating a call changes nothing and returns the same: DuckDB binds a statement more than once. A new ``anchor`` is an entry
        of its own, which accepts the ledger as it is, whatever the anchor before said of it.

        Raises
        ------
        LedgerError
            The contract (neighbors, unit, contributions, accountant) would change after something was charged, the new limit is
            below what is spent, or the book was edited or does not agree with its anchor.
        """

        def decide() -> dict[str, Any] | None:
            self.check_intact()
            standing = self.standing()
            change = budget_change(standing, wanted, self.charges(), bounded=self._bounded())
            if change == "unchanged":
                return None
            if both is not None and standing is not None:
                raise LedgerError(f"{self.source} was protected meanwhile; nothing was changed, repeat the call")
            entry = {
                "action": change,
                "epsilon": wanted.budget.epsilon,
                "delta": wanted.budget.delta,
                "accountant": wanted.budget.accountant,
                **contract(wanted),
            }
            if both is None:
                return entry
            # of one transaction: a budget whose anchor cannot be written, or knows another ledger, must not stand without one
            self._insert(entry)
            self._check_known(both)
            return _anchored(both, None)

        before = self.standing()
        both = anchor if before is None and not (self.books.exist() and self.anchor()) else None
        moved = anchor is not None and before is not None and anchor != self.anchor()
        if moved and anchor is not None:
            budget_change(before, wanted, self.charges(), bounded=self._bounded())  # refused before anything is written
            self._anchor(anchor)
        self._append(decide, both)
        if not moved and anchor is not None and anchor != self.anchor():
            self._anchor(anchor)
        with reading(self.source):
            return str(self._rows(["action"], actions=_BUDGETS)[-1][0])

    def _anchor(self, path: Path) -> None:
        """Append the entry that names another anchor; it is the first one that the new anchor sees."""
        self.check_chain()
        self._check_known(path)
        entry = _anchored(path, self.anchor())
        self._append(lambda: None if self.anchor() == path else entry, path)

    def _check_known(self, path: Path) -> None:
        """Refuse a file that has seen another book of this source, or a longer one."""
        if path.exists() and any(line.state == WRITTEN for line in Anchor(path).lines(self.source)):
            Anchor(path).check(self._head())

    def resume(self) -> int | None:
        """Allow sources beyond plain ones again; return the last failed or interrupted reading's entry, None if there is none.

        Repeating a call returns the same.
        """

        def decide() -> dict[str, Any] | None:
            self.check_intact()
            since = self._outcomes()
            return {"action": "resume", "parameters": canonical_json({"entry": since[-1][1]})} if since else None

        self._append(decide)
        looked = self._rows(["entry"], actions=("fail", "interrupt"))
        return looked[-1][0] if looked else None

    def _bounded(self) -> bool:
        """Return whether something was bought whose noise depends on max_contributions: all but histograms of rows per unit.

        What a linked table had spent before it was linked counts: its entries stand under the contract of the root since.
        """
        if self.merged():
            return True
        bought: dict[str, str] = {}
        for action, release, operation in self._rows(["action", "release", "operation"], actions=("charge", "refund")):
            if action == "charge":
                bought[release] = operation
            else:
                bought.pop(release, None)
        return any(operation != "contributions" for operation in bought.values())

    def charge(
        self,
        release: str,
        *,
        operation: str,
        query: str,
        parameters: Mapping[str, Any],
        plan: Mapping[str, Any],
        charge: Charge,
        planned: Protection,
        versions: Mapping[str, str],
        advice: str,
        reads: Reads = _NOTHING,
    ) -> Purchase:
        """Charge the source for a release, before a row is read; ``planned`` is the contract that its noise was calibrated for.

        What is returned is the entry as it was written, whatever happens to the book afterwards.

        ``reads``: the linked tables that it reads, with their links as they were planned with; the entry names them.

        Raises
        ------
        BudgetExceeded
            The budget does not cover it; nothing is written. To an analyst with a grant: `BudgetExhausted`.
        NotGranted, GrantExceeded
            The analyst's grant does not cover it.
        LedgerError
            The book was edited or does not agree with its anchor, the contract or a link was changed meanwhile, or the release is
            charged already.
        """

        def decide() -> dict[str, Any]:
            moment = now()
            protection = self._affordable(release, charge, planned, advice, moment)
            self.check_reads(reads)
            return {
                "action": "charge",
                "written_at": moment,
                "release": release,
                "operation": operation,
                "query": query,
                "parameters": canonical_json({**parameters, **named(self.source, reads)}),
                "plan": canonical_json(plan),
                **losses(charge),
                "accountant": protection.budget.accountant,
                "versions": canonical_json(versions),
                **contract(protection),
            }

        made = self._append(decide)
        purchase = None if made is None else _counting(release, [tuple(made.get(name) for name in _PURCHASE)])
        if purchase is None:
            raise DpsqlError(f"the charge of {release} is no entry of a ledger")
        return purchase

    def _affordable(self, release: str, charge: Charge, planned: Protection, advice: str, moment: dt.datetime) -> Protection:
        """Return the contract under which a release may be charged now; the errors are those of `charge`."""
        self.check_intact()
        protection = self.protection()
        if protection is None:
            raise edited(self.source, "its budget has gone")
        if not same_contract(protection, planned):
            raise LedgerError(f"{self.source} was protected anew while the call was planned; nothing was charged, repeat the call")
        if self.purchase(release) is not None:
            raise LedgerError(f"release {release!r} is charged already; repeat the call to read it")
        self._check_left(protection, [charge], moment, advice)
        return protection

    def check_together(self, charges: Sequence[Charge], advice: str) -> None:
        """Refuse releases that one call is to buy one after the other, where what is left does not cover all of them.

        Raises
        ------
        BudgetExceeded, BudgetExhausted, NotGranted, GrantExceeded
            As for one of `charge`; nothing was charged.
        """
        protection = self.protection()
        if protection is not None:
            self._check_left(protection, charges, now(), advice)

    def _check_left(self, protection: Protection, charges: Sequence[Charge], moment: dt.datetime, advice: str) -> None:
        """Refuse charges that are more than an analyst's grant, or the budget, has left."""
        self.check_grant(protection, charges, moment)
        # her grant was looked at before the table's budget, so that a refusal tells her nothing of others
        spent = self.charges()
        if fits(protection.budget, spent, *charges):
            return
        if self.limit() is not None:  # how much others have left is not hers to know
            raise BudgetExhausted(self.source)
        missing, left = shortfall(protection.budget, spent, *charges), remaining(protection.budget, spent)
        hint = advice
        if missing.unit == "rho":
            most = left.epsilon_left
            hint = f"At the budget's delta, one more release with Gaussian noise can have epsilon := {most:g} at most. {advice}"
        elif missing.unit == "delta":
            hint = "Name a smaller delta for this release, or let the custodian raise the budget (CALL dp_protect)."
        elif missing.unit == "epsilon":
            hint = f"One more release of pure epsilon can have epsilon := {left.pure_epsilon_left:g} at most. {advice}"
        raise BudgetExceeded(self.source, missing.requested, missing.left, missing.unit, hint)

    def affordable(self, charge: Charge) -> bool:
        """Return whether the budget covers one more charge."""
        protection = self.protection()
        return protection is not None and fits(protection.budget, self.charges(), charge)

    def mark(self, release: str, action: str, contents: str | None = None) -> Purchase | None:
        """Write what became of a charged release; return the purchase as it is then, None where nothing was written.

        That is: it is stored ('store'), reading it failed for good ('fail'), or it is refunded because no row was read ('refund').
        The first outcome is final: it decides which noisy counts (``contents``, their SHA-256) are the release, or that there are
        none. A later one changes nothing.
        """
        rows: list[tuple[Any, ...]] = []

        def decide() -> dict[str, Any] | None:
            rows[:] = self._rows(_PURCHASE, release=release)
            purchase = _counting(release, rows)
            if purchase is None or purchase.status != "charged":
                return None
            return {"action": action, "release": release, "contents": contents}

        made = self._append(decide, few=True)
        return None if made is None else _counting(release, [*rows, tuple(made.get(name) for name in _PURCHASE)])

    def condition(self) -> str:
        """Return 'intact', or what is wrong with the book: that it was edited, does not agree with its anchor, or is stopped."""
        try:
            with self.whole():
                self.check_chain()
                anchor = self.anchor()
                if anchor is not None:
                    Anchor(anchor).check(self._head())
                self.standing()
                self.charges()
                since = self._outcomes()
        except LedgerError as error:
            return str(error)
        if (stopped := self._stopped(since, plain=True)) is not None:
            return f"intact; nothing can be bought since {MOST_FAILURES} readings failed: entry {stopped}"
        if (stopped := self._stopped(since)) is not None:
            why = "a reading failed" if any(action == "fail" for action, _, _ in since) else "readings were interrupted"
            return f"intact; only tables and their columns can be bought since {why}: entry {stopped}"
        return "intact"


def _anchored(path: Path, before: Path | None) -> dict[str, Any]:
    """Return the entry that names an anchor."""
    parameters = {"anchor": str(path), "before": None if before is None else str(before)}
    return {"action": "anchor", "parameters": canonical_json(parameters)}


def budget_change(current: Protection | None, wanted: Protection, charges: Sequence[Charge], *, bounded: bool = True) -> str:
    """Return what setting ``wanted`` means ('protect', 'raise', 'lower', 'unchanged'); raise LedgerError if it may not be.

    ``bounded``: whether the noise of a charge depends on max_contributions, which else may still change.
    """
    if current is None:
        return "protect"
    if current == wanted:
        return "unchanged"
    before = current if bounded else dataclasses.replace(current, max_contributions=wanted.max_contributions)
    if charges and not same_contract(before, wanted):
        raise LedgerError(
            f"{wanted.source} has releases already, charged under neighbors = {current.neighbors!r}, privacy_unit = "
            f"{current.privacy_unit!r}, max_contributions = {current.max_contributions}, accountant = "
            f"{current.budget.accountant!r}; losses under another contract do not add up. Only epsilon and delta can change now."
        )
    if not fits(wanted.budget, charges):
        raise LedgerError(
            f"epsilon = {float(wanted.budget.epsilon):g}, delta = {float(wanted.budget.delta):g}: below what {wanted.source} has "
            f"spent (FROM dp_budget() shows it); a budget cannot be lowered below that. The present one is epsilon := "
            f"{float(current.budget.epsilon):g}, delta := {float(current.budget.delta):g}"
        )
    higher = (wanted.budget.epsilon, wanted.budget.delta) >= (current.budget.epsilon, current.budget.delta)
    return "raise" if higher or wanted.budget.delta > current.budget.delta else "lower"
