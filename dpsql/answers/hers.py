"""The books as an analyst of a served database sees them: her own grants and uses, and nothing that tells of others'.

No entry numbers, hashes or dates of purchases are among it: they would tell how often, and when, others have bought.

Privacy: None: of the books alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dpsql.accounting import share_used
from dpsql.books.entries import canonical_json
from dpsql.books.granted import Grant, now
from dpsql.books.ledger import Ledger
from dpsql.errors import NotGranted
from dpsql.protected.home import books_of
from dpsql.protected.seen import granted
from dpsql.session.instance import Context
from dpsql.text.relation import at_least, at_most, inline

BUDGET_COLUMNS = {
    "source": "VARCHAR", "epsilon": "DOUBLE", "per_query": "DOUBLE", "renew": "VARCHAR", "renews_on": "DATE",
    "epsilon_spent": "DOUBLE", "epsilon_left": "DOUBLE", "default_epsilon": "DOUBLE", "releases": "INTEGER", "methods": "VARCHAR[]",
    "columns": "VARCHAR[]", "delta": "DOUBLE", "accountant": "VARCHAR", "neighbors": "VARCHAR", "privacy_unit": "VARCHAR",
    "max_contributions": "INTEGER", "share_used": "DOUBLE", "suspended": "BOOLEAN",
}  # fmt: skip


def grants(context: Context, scope: tuple[str, str] | None) -> list[tuple[Ledger, Grant]]:
    """Return the grants of the analyst who asks, with the ledger of each table; ``scope``: database and table, None for all.

    Raises
    ------
    NotGranted
        The one table asked for is not granted.
    """
    found = []
    for database in context.databases() if scope is None else [scope[0]]:
        books = books_of(context, database)
        for source, grant in sorted(granted(context, database).grants.items()):
            if scope is None or scope[1] == source:
                found.append((Ledger(books, source, context.user), grant))
    if scope is not None and not found:
        raise NotGranted(scope[1])
    return found


def budget(context: Context, scope: tuple[str, str] | None) -> str:
    """Return limit, spent and left of each of her grants, in the present window: spent rounded up, left down, to five digits."""
    return inline(BUDGET_COLUMNS, [_budget(ledger, grant) for ledger, grant in grants(context, scope)])


def state(ledger: Ledger, grant: Grant) -> dict[str, Any]:
    """Return what a grant says, what is spent of it and what is left, as a custodian may see it, too."""
    protection, moment = ledger.protection(), now()
    if protection is None:  # an edited book
        raise NotGranted(grant.source)
    (left, spent), until = ledger.left(grant, protection, moment), grant.end(moment)
    return {
        "source": grant.source,
        "epsilon": grant.epsilon,
        "per_query": grant.per_query,
        "renew": grant.renew,
        "renews_on": None if until is None else f"{until:%Y-%m-%d}",
        "epsilon_spent": at_most(left.epsilon_spent),
        "epsilon_left": at_least(left.epsilon_left),
        "default_epsilon": grant.default_epsilon,
        "releases": len(spent),
        "methods": None if grant.methods is None else list(grant.methods),
        "columns": None if grant.columns is None else list(grant.columns),
        "delta": float(protection.budget.delta),
        "accountant": protection.budget.accountant,
        "neighbors": protection.neighbors,
        "privacy_unit": protection.privacy_unit,
        "max_contributions": protection.max_contributions,
        "share_used": min(1.0, at_most(share_used(grant.budget(protection), spent))),
        "suspended": grant.suspended,
    }


def _budget(ledger: Ledger, grant: Grant) -> tuple[Any, ...]:
    found = state(ledger, grant)
    if found["privacy_unit"] is not None and not grant.reads(str(found["privacy_unit"])):
        found["privacy_unit"] = "a column that is not granted"
    return tuple(found[name] for name in BUDGET_COLUMNS)


def releases(
    context: Context, scope: tuple[str, str] | None, columns: Mapping[str, str]
) -> list[tuple[Ledger, str, dict[str, Any]]]:
    """Return what she has paid for, in order: ledger, release, and its columns, with the date and cost of her own use."""
    found = []
    for ledger, grant in grants(context, scope):
        for use in ledger.uses(grant.analyst):
            purchase = ledger.purchase(use.release)
            if purchase is None:
                continue
            cost = use.charge
            said = {
                "release": use.release, "source": grant.source, "operation": purchase.operation, "query": purchase.query,
                "parameters": canonical_json(purchase.parameters), "epsilon": float(cost.epsilon), "delta": float(cost.delta),
                "rho": float(cost.rho), "status": purchase.status, "charged_at": use.at,
            }  # fmt: skip
            found.append((ledger, use.release, {name: said[name] for name in columns}))
    return sorted(found, key=lambda one: (one[2]["charged_at"], one[1]))


def ledger_rows(context: Context, scope: tuple[str, str] | None, columns: Mapping[str, str]) -> list[tuple[Any, ...]]:
    """Return her own entries: grants of hers, and uses; numbered among themselves, without hashes."""
    rows: list[tuple[Any, ...]] = []
    for ledger, grant in grants(context, scope):
        entries = [dict(one) for one in ledger.about(grant.analyst)]
        for number, entry in enumerate(entries, 1):
            said = {**dict.fromkeys(columns), **entry, "source": grant.source, "entry": number}
            if entry["action"] != "use":
                said["who"] = "custodian"
                said["parameters"] = json.dumps(json.loads(str(entry["parameters"])), sort_keys=True)
            rows.append(tuple(said[name] for name in columns))
    return rows
