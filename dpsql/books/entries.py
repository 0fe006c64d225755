"""What the entries of a ledger say: contracts, purchases, charges. A book that was edited by hand is noticed, never guessed at."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any

import duckdb

from dpsql.accounting import NEIGHBORS, Budget, Charge, Event, event_from_json
from dpsql.errors import DpsqlError, LedgerError, ReleaseError, first_line
from dpsql.text.bounded_json import check_numbers, load

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
READS = "linked"
"""What the parameters of a charge have beside what was asked, where a release reads linked tables: their names."""
RESTORE = "Nothing more can be bought from it until the custodian restores the books from a backup."
_SHAPE = (
    duckdb.BinderException, duckdb.CatalogException, duckdb.ConversionException, duckdb.InvalidInputException,
    duckdb.OutOfRangeException, duckdb.TypeMismatchException,
)


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

    ``status`` is 'charged' until the release is 'stored' or has 'failed', which is final; ``charge`` is what it cost, in texts.
    ``contents`` is the SHA-256 of the noisy counts that were stored: no others are ever shown. ``entry`` is the number of the
    newest entry about it. ``parameters`` is what was asked; ``linked`` the tables that it reads, where some are linked.
    """

    release: str
    operation: str
    query: str
    parameters: dict[str, Any]
    plan: dict[str, Any]
    charge: dict[str, Any]
    status: str = "charged"
    contents: str | None = None
    entry: int = 0
    linked: dict[str, Any] = field(default_factory=dict)


def failure(purchase: Purchase) -> ReleaseError:
    """Return what every call about a failed release says, for ever: one text, whatever it was that failed."""
    return ReleaseError(
        f"release {purchase.release!r} failed: its rows could not be read or measured; the text is withheld because it could show "
        "a value. The charge stands, this is its final result, and nothing is read again under it. The custodian finds the cause "
        "by running the source's SELECT (FROM dp_ledger() shows the query); then release := 'another name' buys another one"
    )


@contextmanager
def reading(source: str) -> Iterator[None]:
    """Say that a book was edited where what it holds cannot be what dpsql wrote.

    Raises
    ------
    LedgerError
        A value, a type or a column is not what `FIELDS` says, or the database cannot be read.
    """
    try:
        yield
    except (duckdb.InterruptException, LedgerError):
        raise
    except _SHAPE as error:
        raise edited(source, f"its columns are not those of a ledger ({first_line(error)})") from None
    except duckdb.Error as error:
        raise LedgerError(f"the ledger of {source} cannot be read: {first_line(error)}") from None
    except (DpsqlError, ValueError, TypeError, KeyError, AttributeError, IndexError, ArithmeticError, RecursionError):
        raise edited(source, "an entry holds what dpsql never wrote") from None


def edited(source: str, what: str) -> LedgerError:
    """Return the error about a book that was tampered with."""
    return LedgerError(f"the ledger of {source} was edited: {what} (FROM dp_ledger() shows where). {RESTORE}")


def protection_of(source: str, row: Sequence[Any]) -> Protection:
    """Return the contract in an entry: epsilon, delta, accountant, neighbors, privacy_unit, max_contributions."""
    epsilon, delta, accountant, neighbors, unit, contributions = row
    whole = isinstance(contributions, int) and contributions >= 1
    if neighbors not in NEIGHBORS or not whole or not (unit is None or isinstance(unit, str)) or None in (epsilon, delta):
        raise ValueError("not a contract")
    return Protection(source, Budget(epsilon, delta, accountant), neighbors, unit, contributions)


def purchase_of(release: str, row: Sequence[Any]) -> Purchase:
    """Return the purchase in a 'charge' entry.

    That is: entry, operation, query, parameters, plan, then rho, epsilon, delta, events and hash, which are what it cost.
    """
    entry, operation, query, parameters, plan, *cost = row
    charge = dict(zip(("rho", "epsilon", "delta", "events", "hash"), cost, strict=True))
    charge["events"] = load(charge["events"])
    asked, wanted = load(parameters), load(plan)
    linked = asked.pop(READS, {}) if isinstance(asked, dict) else {}
    purchase = Purchase(release, operation, query, asked, wanted, charge, entry=entry, linked=linked)
    if not isinstance(asked, dict) or not isinstance(wanted, dict) or "epsilon" not in asked or not isinstance(charge["hash"], str):
        raise ValueError("not a purchase")
    if not isinstance(linked, dict):
        raise ValueError("not a purchase")
    if not isinstance(asked["epsilon"], (int, float)) or not isinstance(operation, str) or not isinstance(query, str):
        raise ValueError("not a purchase")
    return purchase


def charge_from_row(rho: Decimal, epsilon: Decimal, delta: Decimal, events: str) -> Charge:
    """Rebuild a charge from its ledger entry; unknown events are refused."""
    parsed = _events(events)
    return Charge(rho=rho, epsilon=epsilon, delta=delta, events=parsed, gaussian=all(e.gaussian for e in parsed))


@lru_cache(maxsize=4096)
def _events(text: str) -> tuple[Event, ...]:
    """Read events; kept, for every charge of a book is read at every new one, and a text has one meaning."""
    listed = load(text)
    check_numbers(listed)
    return tuple(event_from_json(item) for item in listed)


def contract(protection: Protection) -> dict[str, Any]:
    """Return whom a protection protects, as columns of an entry."""
    return {
        "neighbors": protection.neighbors,
        "privacy_unit": protection.privacy_unit,
        "max_contributions": protection.max_contributions,
    }


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no blanks: equal values have equal texts."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def same_contract(one: Protection, other: Protection) -> bool:
    """Return whether losses under two contracts add up: the same neighbors, unit, contributions and accountant."""
    return contract(one) == contract(other) and one.budget.accountant == other.budget.accountant
