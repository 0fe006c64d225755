"""What dp_plan says of rules: which shape tables, which rows alone obey, and which a call cannot keep. No row is read."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from dpsql import methods
from dpsql.protected.ruled import rules_of
from dpsql.protected.source import ProtectedSource
from dpsql.release.plan import Plan
from dpsql.rules.effects import ALWAYS, ROWS, TABLES, effect
from dpsql.rules.grammar import stored

_SAID = {
    TABLES: "rules that shape tables (impossible cells are zero before the fit) and rows",
    ROWS: "rules that shape rows alone (those that break one are repaired)",
    ALWAYS: "rules that the declared domain keeps by itself",
}


def notes(cursor: duckdb.DuckDBPyConnection, protected: ProtectedSource, plan: Plan) -> list[str]:
    """Return what the rules of a source mean for a plan of rows; nothing for plans of tables.

    Privacy: free; public domains and rules.
    """
    if plan.method is None or plan.units:
        return []
    kinds: dict[str, list[str]] = {TABLES: [], ROWS: [], ALWAYS: []}
    fitted = methods.measures_tables(methods.of(plan.method))
    measured = {frozenset(clique) for clique in plan.cliques if len(clique) <= 2} if plan.rules and fitted else set()
    for text in plan.rules:
        found = effect(cursor, stored(text), plan.domain)
        shapes = found.kind != TABLES or any(set(found.positions) <= clique for clique in measured)
        kinds[found.kind if shapes else ROWS].append(text)
    left = [one.rule.text for one in rules_of(protected) if one.rule.text not in plan.rules]
    said = [f"{_SAID[kind]}: {_listed(texts)}" for kind, texts in kinds.items() if texts]
    if left:
        said.append(f"rules that rows of this call cannot obey, since it leaves out or splits a column of theirs: {_listed(left)}")
    return said


def _listed(texts: Sequence[str]) -> str:
    return "; ".join(texts)
