"""Statements whose answer follows from no row: LIMIT 0, WHERE 1 = 0. Clients send them to learn names and types, not to buy."""

from __future__ import annotations

from typing import Any

from dpsql.serve.gate.sizes import number, plain
from dpsql.source.parse import nodes

Node = dict[str, Any]


def is_probe(node: Node) -> bool:
    """Return whether a query gives the same whatever rows its tables have, or none: then empty ones answer it.

    Parameters
    ----------
    node : dict
        A query node of DuckDB's parser, before it is checked.
    """
    if any(_none(modifier.get("limit")) for modifier in node.get("modifiers") or [] if modifier.get("type") == "LIMIT_MODIFIER"):
        return True
    if node.get("type") != "SELECT_NODE":
        return False
    where = node.get("where_clause")
    if isinstance(where, dict) and _never(where):  # what stands in the list may read other tables, and have a row of its own
        return not any(one.get("class") == "SUBQUERY" for one in nodes([node.get("select_list"), node.get("having")]))
    table = node.get("from_table") or {}
    alone = table.get("type") == "SUBQUERY" and not any(one.get("class") == "SUBQUERY" for one in nodes(_without(node)))
    return alone and is_probe(_inner(table))


def _without(node: Node) -> list[Any]:
    return [part for name, part in node.items() if name != "from_table"]


def _none(limit: Node | None) -> bool:
    return isinstance(limit, dict) and number(limit) == 0


def _never(where: Node) -> bool:
    """Whether a condition is false by itself: ``false``, ``1 = 0``."""
    if where.get("type") == "CONJUNCTION_AND":
        return any(map(_never, where.get("children") or []))
    if where.get("type") == "COMPARE_EQUAL":
        sides = number(where["left"]), number(where["right"])
        return None not in sides and sides[0] != sides[1]
    if where.get("class") == "CAST":  # how DuckDB 1.x reads false
        return (where.get("cast_type") or {}).get("id") == "BOOLEAN" and plain(where["child"]) in ("f", "false")
    literal: Node = where.get("literal") or {}
    return literal.get("kind") == "BOOLEAN" and str(literal.get("text")).lower() == "false"


def _inner(table: Node) -> Node:
    subquery: Node = table.get("subquery") or {}
    found: Node = subquery.get("node") or subquery
    return found
