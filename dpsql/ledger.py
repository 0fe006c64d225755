"""The ledger: an append-only, hash-chained record of budgets and charges, and the hard limit that it enforces.

An entry is written in a transaction of its own on a cursor of its own, so a caller's ROLLBACK does not refund it. Entries
of a source are numbered 1, 2, 3, ... under a primary key: two sessions that decide on the same books write the same number,
one of them fails and decides again on the new books. So nobody overspends together.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb

from dpsql import sql
from dpsql.accounting import Budget, Charge, event_from_json, fits, remaining, shortfall
from dpsql.books import Books, rollback
from dpsql.errors import BudgetExceeded, LedgerError, first_line

FIELDS = {
    "source": "VARCHAR",
    "entry": "INTEGER",
    "written_at": "TIMESTAMP",
    "who": "VARCHAR",
    "action": "VARCHAR",
    "release": "VARCHAR",
    "operation": "VARCHAR",
    "query": "VARCHAR",
    "parameters": "VARCHAR",
    "plan": "VARCHAR",
    "events": "VARCHAR",
    "rho": "DECIMAL(38,24)",
    "epsilon": "DECIMAL(38,24)",
    "delta": "DECIMAL(38,37)",
    "neighbors": "VARCHAR",
    "privacy_unit": "VARCHAR",
    "max_contributions": "INTEGER",
    "accountant": "VARCHAR",
    "versions": "VARCHAR",
    "contents": "VARCHAR",
    "previous": "VARCHAR",
}
_TRIES = 200
_BUDGETS = "action IN ('protect', 'raise', 'lower')"
_writing = threading.Lock()  # saves retries within a process; what is right does not depend on it


@dataclass(frozen=True)
class Protection:
    """What was declared of a protected table: its budget and whom the guarantee protects."""

    source: str
    budget: Budget
    neighbors: str
    privacy_unit: str | None
    max_contributions: int


@dataclass(frozen=True)
class Purchase:
    """A charge as the ledger knows it: what was asked for, what it paid for, and how far it came.

    ``status`` is 'charged' until the release is stored, then 'stored'; ``charge`` is what it cost, in texts. ``contents`` is the
    SHA-256 of the noisy counts that were stored: no others are ever shown.
    """

    release: str
    operation: str
    query: str
    parameters: dict[str, Any]
    plan: dict[str, Any]
    charge: dict[str, Any]
    status: str = "charged"
    contents: str | None = None


class Ledger:
    """The entries of one source, in the books of one database."""

    def __init__(self, books: Books, source: str, who: str) -> None:
        self.books = books
        self.source = source
        self.who = who
        self._table = books.table("ledger")

    def protection(self) -> Protection | None:
        """Return the budget in force, or None if the source is not protected."""
        if not self.books.exist():
            return None
        rows = self._rows(
            "epsilon, delta, accountant, neighbors, privacy_unit, max_contributions", _BUDGETS
        )
        if not rows:
            return None
        epsilon, delta, accountant, neighbors, unit, contributions = rows[-1]
        return Protection(self.source, Budget(epsilon, delta, accountant), neighbors, unit, contributions)

    def charges(self) -> list[Charge]:
        """Return every charge that counts: all but the refunded ones."""
        rows = self._rows("action, release, rho, epsilon, delta, events", "action IN ('charge', 'refund')")
        counted: dict[str, Charge] = {}
        for action, release, rho, epsilon, delta, events in rows:
            if action == "refund":
                counted.pop(release, None)  # an edited book may refund what it never charged
            else:
                counted[release] = charge_from_row(rho, epsilon, delta, events)
        return list(counted.values())

    def purchase(self, release: str) -> Purchase | None:
        """Return the charge of a release, or None if there is none that counts."""
        if not self.books.exist():
            return None
        amounts = "rho::VARCHAR, epsilon::VARCHAR, delta::VARCHAR"
        columns = f"action, operation, query, parameters, plan, contents, {amounts}, events, hash"
        found: Purchase | None = None
        for action, operation, query, parameters, plan, contents, *cost in self._rows(columns, "release = ?", [release]):
            if action == "charge":
                charge = dict(zip(("rho", "epsilon", "delta", "events", "hash"), cost, strict=True))
                charge["events"] = json.loads(charge["events"])
                found = Purchase(release, operation, query, json.loads(parameters), json.loads(plan), charge)
            elif action == "refund":
                found = None
            elif found is not None:
                found = dataclasses.replace(found, status="stored", contents=contents)
        return found

    def protect(self, wanted: Protection) -> str:
        """Set the budget; return how the entry in force came about: 'protect', 'raise' or 'lower'.

        Repeating a call changes nothing and returns the same: DuckDB binds a statement more than once.

        Raises
        ------
        LedgerError
            The contract (neighbors, unit, contributions, accountant) would change after something was charged, or the
            new limit is below what is spent.
        """

        def decide() -> dict[str, Any] | None:
            change = budget_change(self.protection(), wanted, self.charges())
            if change == "unchanged":
                return None
            return {
                "action": change,
                "epsilon": wanted.budget.epsilon,
                "delta": wanted.budget.delta,
                "accountant": wanted.budget.accountant,
                **_contract(wanted),
            }

        self._append(decide)
        return str(self._rows("action", _BUDGETS)[-1][0])

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
    ) -> None:
        """Charge the source for a release, before a row is read; ``planned`` is the contract that its noise was calibrated for.

        Raises
        ------
        BudgetExceeded
            The budget does not cover it; nothing is written.
        LedgerError
            The chain of hashes is broken, the contract was changed meanwhile, or the release is charged already.
        """

        def decide() -> dict[str, Any]:
            protection = self._affordable(release, charge, planned, advice)
            return {
                "action": "charge",
                "release": release,
                "operation": operation,
                "query": query,
                "parameters": canonical_json(parameters),
                "plan": canonical_json(plan),
                "events": canonical_json([event.to_json() for event in charge.events]),
                "rho": charge.rho,
                "epsilon": charge.epsilon,
                "delta": charge.delta,
                "accountant": protection.budget.accountant,
                "versions": canonical_json(versions),
                **_contract(protection),
            }

        self._append(decide)

    def _affordable(self, release: str, charge: Charge, planned: Protection, advice: str) -> Protection:
        """Return the contract under which a release may be charged now; the errors are those of `charge`."""
        protection = self.protection()
        if protection is None or not self.chain_holds():
            raise LedgerError(
                f"the ledger of {self.source} was edited: its chain of hashes does not hold (FROM dp_ledger() shows where). "
                "Nothing more can be bought from it until the custodian restores the books from a backup."
            )
        if _contract(protection) != _contract(planned) or protection.budget.accountant != planned.budget.accountant:
            raise LedgerError(f"{self.source} was protected anew while the call was planned; nothing was charged, repeat the call")
        if self.purchase(release) is not None:
            raise LedgerError(f"release {release!r} is charged already; repeat the call to read it")
        spent = self.charges()
        if not fits(protection.budget, spent, charge):
            missing = shortfall(protection.budget, spent, charge)
            left = remaining(protection.budget, spent)
            hint = advice
            if missing.unit == "rho":
                most = left.epsilon_left
                hint = f"At the budget's delta, one more release with Gaussian noise can have epsilon := {most:g} at most. {advice}"
            elif missing.unit == "delta":
                hint = "Name a smaller delta for this release, or let the custodian raise the budget (CALL dp_protect)."
            elif missing.unit == "epsilon":
                hint = f"One more release of pure epsilon can have epsilon := {left.pure_epsilon_left:g} at most. {advice}"
            raise BudgetExceeded(self.source, missing.requested, missing.left, missing.unit, hint)
        return protection

    def mark(self, release: str, action: str, contents: str | None = None) -> None:
        """Write that a charged release is stored ('store'), or that it is refunded because no row was read ('refund').

        The first 'store' decides which noisy counts (``contents``, their SHA-256) are the release; a later one changes nothing.
        """

        def decide() -> dict[str, Any] | None:
            purchase = self.purchase(release)
            if purchase is None or purchase.status == "stored":
                return None
            return {"action": action, "release": release, "contents": contents}

        self._append(decide)

    def chain_holds(self) -> bool:
        """Return whether every entry of this source follows from the one before."""
        row = self.books.cursor.execute(
            f"SELECT coalesce(bool_and(holds), true) FROM ({self.books.chain()}) WHERE source = ?",  # noqa: S608
            [self.source],
        ).fetchone()
        return bool(row and row[0])

    def _rows(self, columns: str, condition: str, values: Sequence[str] = ()) -> list[tuple[Any, ...]]:
        query = f"SELECT {columns} FROM {self._table} WHERE source = ? AND {condition} ORDER BY entry"  # noqa: S608
        return self.books.cursor.execute(query, [self.source, *values]).fetchall()

    def _append(self, decide: Callable[[], Mapping[str, Any] | None]) -> None:
        """Append what ``decide`` returns on the newest books; decide again if another session was faster."""
        self.books.open()
        cursor = self.books.cursor
        for attempt in range(_TRIES):
            with _writing:
                cursor.execute("BEGIN")
                try:
                    fields = decide()
                    if fields is not None:
                        self._insert(fields)
                    cursor.execute("COMMIT")
                    return
                except (duckdb.ConstraintException, duckdb.TransactionException) as error:
                    reason = first_line(error)
                    rollback(cursor)
                except duckdb.Error as error:
                    rollback(cursor)
                    raise LedgerError(f"the ledger of {self.source} cannot be written: {first_line(error)}") from None
                except BaseException:
                    rollback(cursor)
                    raise
            time.sleep(random.uniform(0, 0.002 * (attempt + 1)))  # noqa: S311 -- spreads retries; no privacy in it
        raise LedgerError(f"the ledger of {self.source} is busy: {_TRIES} tries failed, the last with: {reason}; repeat the call")

    def _insert(self, fields: Mapping[str, Any]) -> None:
        cursor = self.books.cursor
        last = cursor.execute(
            f"SELECT entry, hash FROM {self._table} WHERE source = ? ORDER BY entry DESC LIMIT 1",  # noqa: S608
            [self.source],
        ).fetchone()
        entry, previous = last or (0, None)
        values: dict[str, Any] = {
            "source": self.source,
            "entry": entry + 1,
            "written_at": dt.datetime.now(dt.UTC).replace(tzinfo=None),
            "who": self.who,
            **fields,
        }
        texts = [str(v) if isinstance(v, Decimal) else v for v in (values.get(name) for name in FIELDS)]
        names = list(FIELDS)
        columns = ", ".join(f"?::{kind} AS {name}" for name, kind in FIELDS.items() if name != "previous")
        cursor.execute(
            f"INSERT INTO {self._table} SELECT *, {sql.text('entry_hash')} AS hash FROM "  # noqa: S608
            f"(SELECT {columns}, coalesce(?, sha256(?)) AS previous)",
            [*texts[: names.index("previous")], previous, self.source],
        )


def _contract(protection: Protection) -> dict[str, Any]:
    return {
        "neighbors": protection.neighbors,
        "privacy_unit": protection.privacy_unit,
        "max_contributions": protection.max_contributions,
    }


def budget_change(current: Protection | None, wanted: Protection, charges: Sequence[Charge]) -> str:
    """Return what setting ``wanted`` means ('protect', 'raise', 'lower', 'unchanged'); raise LedgerError if it may not be."""
    if current is None:
        return "protect"
    if current == wanted:
        return "unchanged"
    same_contract = _contract(current) == _contract(wanted) and current.budget.accountant == wanted.budget.accountant
    if charges and not same_contract:
        raise LedgerError(
            f"{wanted.source} has releases already, charged under neighbors = {current.neighbors!r}, privacy_unit = "
            f"{current.privacy_unit!r}, max_contributions = {current.max_contributions}, accountant = "
            f"{current.budget.accountant!r}; losses under another contract do not add up. Only epsilon and delta can change now."
        )
    if not fits(wanted.budget, charges, None):
        raise LedgerError(
            f"epsilon = {float(wanted.budget.epsilon):g}, delta = {float(wanted.budget.delta):g}: below what {wanted.source} has "
            f"spent (FROM dp_budget() shows it); a budget cannot be lowered below that. The present one is epsilon := "
            f"{float(current.budget.epsilon):g}, delta := {float(current.budget.delta):g}"
        )
    higher = (wanted.budget.epsilon, wanted.budget.delta) >= (current.budget.epsilon, current.budget.delta)
    return "raise" if higher or wanted.budget.delta > current.budget.delta else "lower"


def charge_from_row(rho: Decimal, epsilon: Decimal, delta: Decimal, events: str) -> Charge:
    """Rebuild a charge from its ledger entry; unknown events are refused."""
    parsed = tuple(event_from_json(item) for item in json.loads(events))
    return Charge(rho=rho, epsilon=epsilon, delta=delta, events=parsed, gaussian=all(e.gaussian for e in parsed))


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no blanks: equal values have equal texts."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
