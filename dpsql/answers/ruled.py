"""What plans and reports say of rules: which shape tables, which rows alone obey, and which a call cannot keep. No row is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import duckdb

from dpsql import methods
from dpsql.page.content import Listing
from dpsql.protected.ruled import counted_of, rules_of
from dpsql.protected.source import ProtectedSource
from dpsql.release.plan import Plan
from dpsql.rules.effects import ALWAYS, ROWS, TABLES, effect
from dpsql.rules.grammar import stored

_SAID = {
    TABLES: "rules that shape tables (impossible cells are zero before the fit) and rows",
    ROWS: "rules that shape rows alone (those that break one are repaired)",
    ALWAYS: "rules that the declared domain keeps by itself",
}

_KEPT = {
    TABLES: "cells of released tables that it makes impossible were set to zero; rows that break it were repaired",
    ROWS: "rows that break it were repaired",
    ALWAYS: "every value of the public domain obeys it",
}


def notes(protected: ProtectedSource, plan: Plan, kinds: Mapping[str, Sequence[str]]) -> list[str]:
    """Return what the rules of a source mean for a plan of rows; nothing for plans of tables. ``kinds``: see `effects`.

    Privacy: free; public domains and rules.
    """
    if plan.method is None or plan.units:
        return []
    left = [declared.rule.text for declared in rules_of(protected) if declared.rule.text not in plan.rules]
    sentences = [f"{_SAID[kind]}: {_listed(texts)}" for kind, texts in kinds.items() if texts]
    if left:
        why = "since it leaves out or splits a column of theirs"
        sentences.append(f"rules that rows of this call cannot obey, {why}: {_listed(left)}")
    counting = [declared.text for declared in counted_of(protected)]
    if counting:
        sentences.append(f"rules that count the rows of one parent, which a table by itself does not keep: {_listed(counting)}")
    return sentences


def effects(cursor: duckdb.DuckDBPyConnection, plan: Plan) -> dict[str, list[str]]:
    """Return the rules of a plan of rows by what they do: 'tables', 'rows' or 'always'.

    Privacy: free; public domains and rules.
    """
    kinds: dict[str, list[str]] = {TABLES: [], ROWS: [], ALWAYS: []}
    if not plan.rules:
        return kinds
    fitted = methods.measures_tables(methods.of(plan.method))
    measured = {frozenset(clique) for clique in plan.cliques if len(clique) <= 2} if fitted else set()
    for text in plan.rules:
        consequence = effect(cursor, stored(text), plan.domain)
        shapes = consequence.kind != TABLES or any(set(consequence.positions) <= clique for clique in measured)
        kinds[consequence.kind if shapes else ROWS].append(text)
    return kinds


def breakable(plan: Plan, kinds: Mapping[str, Sequence[str]]) -> Plan:
    """Return a plan with those rules alone that a row may break, which take time: for a forecast. ``kinds``: see `effects`."""
    return replace(plan, rules=tuple(text for text in plan.rules if text not in kinds[ALWAYS]))


def listing(cursor: duckdb.DuckDBPyConnection, plan: Plan) -> Listing | None:
    """Return the rules that the rows of a release obey, for the report; None where there are none.

    Privacy: rules are public knowledge, and part of the stored plan.
    """
    if not plan.rules:
        return None
    rows = [(text, _KEPT[kind]) for kind, texts in effects(cursor, plan).items() for text in texts]
    which = "Every synthetic row obeys them"
    if plan.options.get("output") == "one_hot":
        which = "Every row obeys them that has one value of each column they look at"
    note = f"Public knowledge about the table, declared by its custodian. {which}; a rule that comes out as NULL is not broken."
    return Listing("Rules that rows obey", ["Rule", "How it is kept"], rows, note=note)


def _listed(texts: Sequence[str]) -> str:
    return "; ".join(texts)
