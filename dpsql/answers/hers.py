"""The books as an analyst with a grant sees a table's: her own grants and uses, and nothing that tells of others'.

No entry numbers, hashes or dates of purchases are among it: they would tell how often, and when, others have bought.

Privacy: None: of the books alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dpsql.accounting import share_used
from dpsql.books.entries import Protection, canonical_json
from dpsql.books.granted import USE, Grant, now
from dpsql.books.ledger import Ledger
from dpsql.text.relation import at_least, at_most

GRANT = (
    "STRUCT(analyst VARCHAR, epsilon DOUBLE, epsilon_spent DOUBLE, epsilon_left DOUBLE, per_query DOUBLE, renew VARCHAR, "
    "renews_on DATE, methods VARCHAR[], columns VARCHAR[])"
)


def budget(ledger: Ledger, grant: Grant, protection: Protection) -> dict[str, Any]:
    """Return limit, spent and left of a grant in the present window, in the columns of dp_budget; rounded as there."""
    moment = now()
    left, spent = ledger.left(grant, protection, moment)
    unit = protection.privacy_unit
    return {
        "source": grant.source,
        "accountant": protection.budget.accountant,
        "epsilon": grant.epsilon,
        "delta": float(protection.budget.delta),
        "epsilon_spent": at_most(left.epsilon_spent),
        "delta_spent": left.delta_spent,
        "epsilon_left": at_least(left.epsilon_left),
        "delta_left": left.delta_left,
        "rho_limit": None if left.rho_limit is None else at_least(left.rho_limit),
        "rho_spent": at_most(left.rho_spent),
        "rho_left": None if left.rho_left is None else at_least(left.rho_left),
        "pure_epsilon_left": at_least(left.pure_epsilon_left),
        "releases": len(spent),
        "neighbors": protection.neighbors,
        "privacy_unit": unit if unit is None or grant.reads(unit) else "a column that is not granted",
        "max_contributions": protection.max_contributions,
        "share_used": min(1.0, at_most(share_used(grant.budget(protection), spent))),
        "grants": [shown(ledger, grant, protection)],
    }


def shown(ledger: Ledger, grant: Grant, protection: Protection) -> dict[str, Any]:
    """Return a grant, and what is spent and left of it in the present window, as a value of `GRANT`."""
    moment = now()
    (left, _), until = ledger.left(grant, protection, moment), grant.end(moment)
    return {
        "analyst": grant.analyst,
        "epsilon": grant.epsilon,
        "epsilon_spent": at_most(left.epsilon_spent),
        "epsilon_left": at_least(left.epsilon_left),
        "per_query": grant.per_query,
        "renew": grant.renew,
        "renews_on": None if until is None else f"{until:%Y-%m-%d}",
        "methods": None if grant.methods is None else list(grant.methods),
        "columns": None if grant.columns is None else list(grant.columns),
    }


def releases(ledger: Ledger, grant: Grant, columns: Mapping[str, str]) -> list[tuple[Any, ...]]:
    """Return what she has paid for, in order, with the date and cost of her own use."""
    rows = []
    for use in ledger.uses(grant.analyst):
        purchase = ledger.purchase(use.release)
        if purchase is not None:
            cost = use.charge
            row = {
                "release": use.release, "source": grant.source, "operation": purchase.operation, "query": purchase.query,
                "parameters": canonical_json(purchase.parameters), "epsilon": float(cost.epsilon), "delta": float(cost.delta),
                "rho": float(cost.rho), "status": purchase.status, "charged_at": f"{use.at}",
            }
            rows.append(tuple(row[name] for name in columns))
    return rows


def entries(ledger: Ledger, grant: Grant, columns: Mapping[str, str]) -> list[tuple[Any, ...]]:
    """Return her own entries: grants of hers, and uses; numbered among themselves, without hashes."""
    rows: list[tuple[Any, ...]] = []
    for number, entry in enumerate(ledger.about(grant.analyst), 1):
        row = {**dict.fromkeys(columns), **entry, "source": grant.source, "entry": number}
        if entry["action"] != USE:
            row["who"] = "custodian"
            row["parameters"] = json.dumps(json.loads(str(entry["parameters"])), sort_keys=True)
        elif (purchase := ledger.purchase(entry["release"])) is not None:
            row |= {"operation": purchase.operation, "query": purchase.query, "parameters": canonical_json(purchase.parameters)}
        rows.append(tuple(row[name] for name in columns))
    return rows
