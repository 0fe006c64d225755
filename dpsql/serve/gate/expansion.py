"""How large DuckDB's own tree of a statement becomes: it writes out names, and cannot be stopped while it does.

A common table expression is bound anew wherever it is named, an alias of the same SELECT is replaced by its expression, a star by
the columns below it, CUBE by all subsets. Each doubles with a line of text: 25 lines made a tree of 2^25 relations, which no limit
of time reached. So the size is reckoned from the text beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Node = dict[str, Any]

MOST_NODES = 30_000
"""Parts of expressions, with aliases and common table expressions written out."""
MOST_RELATIONS = 256
"""Tables, subqueries and table functions, likewise."""
MOST_STARS = 256
"""How often the columns of one table may come by stars over stars."""
MOST_SETS = 128
"""Grouping sets of one GROUP BY: CUBE of seven."""


@dataclass(frozen=True)
class Size:
    """Of a relation or an expression; ``width``: how often it has the columns of a table; ``sets``: the most grouping sets."""

    nodes: int = 1
    relations: int = 0
    width: int = 1
    sets: int = 0

    def fits(self) -> bool:
        """Whether DuckDB makes this in no time."""
        return (
            self.nodes <= MOST_NODES and self.relations <= MOST_RELATIONS and self.width <= MOST_STARS and self.sets <= MOST_SETS
        )

    def with_(self, beside: Size) -> Size:
        """Return both beside each other."""
        return Size(self.nodes + beside.nodes, self.relations + beside.relations, self.width, max(self.sets, beside.sets))


Known = Mapping[str, Size]
_NOTHING = Size(0)


def size_of(query: Node) -> Size:
    """Return the size of a query node of DuckDB's tree; it need not have been checked.

    Examples
    --------
    >>> import duckdb, json
    >>> def size(text):
    ...     tree = json.loads(duckdb.connect().execute("SELECT json_serialize_sql(?)", [text]).fetchall()[0][0])
    ...     return size_of(tree["statements"][0]["node"])
    >>> size("WITH a AS (FROM t), b AS (FROM a x, a y), c AS (FROM b x, b y) FROM c x, c y").relations
    15
    >>> size("SELECT *, * FROM (SELECT *, * FROM (SELECT *, * FROM t))").width
    8
    """
    return _query(query, {})


def _query(node: Node, ctes: Known) -> Size:
    ctes, total = _with(node, ctes)
    if "select_list" in node:
        return _select(node, ctes, total)
    width = 1
    for key, value in node.items():
        if key in ("left", "right") and isinstance(value, dict):
            part = _query(value, ctes)
            total, width = total.with_(part), max(width, part.width)
        # DuckDB 1.4 writes both sides twice, once as children
        elif key == "children" and isinstance(value, list) and not isinstance(node.get("left"), dict):
            for part in (_query(one, ctes) for one in value if isinstance(one, dict)):
                total, width = total.with_(part), max(width, part.width)
        elif key not in ("cte_map", "children"):
            total = total.with_(_parts(value, ctes, {}, 1))
    return Size(total.nodes, total.relations, width, total.sets)


def _with(node: Node, ctes: Known) -> tuple[Known, Size]:
    total, known = Size(), dict(ctes)
    if node.get("type") == "RECURSIVE_CTE_NODE":
        known[str(node.get("cte_name", "")).lower()] = Size(1, 1)
    for entry in (node.get("cte_map") or {}).get("map") or []:
        value, name = entry.get("value") or {}, str(entry.get("key", "")).lower()
        inner = value.get("query_node") or (value.get("query") or {}).get("node") or {}
        itself = {name: Size(1, 1)} if inner.get("type") == "RECURSIVE_CTE_NODE" else {}
        known[name] = _query(inner, known | itself)
        total = total.with_(known[name])
    return known, total


def _select(node: Node, ctes: Known, total: Size) -> Size:
    start = node.get("from_table")
    below = _relation(start, ctes) if isinstance(start, dict) else _NOTHING
    total, width, aliases = total.with_(below), 0, dict[str, Size]()
    for item in node["select_list"]:
        size = _parts(item, ctes, aliases, below.width)
        total, width = total.with_(size), width + size.width
        if isinstance(item, dict) and item.get("alias"):
            aliases[str(item["alias"]).lower()] = size
    for key, value in node.items():
        if key not in ("cte_map", "select_list", "from_table", "group_sets"):
            total = total.with_(_parts(value, ctes, aliases, below.width))
    return Size(total.nodes, total.relations, max(width, 1), max(total.sets, len(node.get("group_sets") or [])))


def _relation(node: Node, ctes: Known) -> Size:
    kind = node.get("type")
    if kind == "BASE_TABLE":
        plain = not node.get("schema_name") and not node.get("catalog_name")
        named = ctes.get(str(node.get("table_name", "")).lower()) if plain else None
        return Size(1, 1) if named is None else Size(named.nodes + 1, named.relations, named.width, named.sets)
    total, width = Size(1, 0 if kind == "JOIN" else 1), 0
    for value in node.values():
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, dict):
                continue
            below = part.get("node")
            inner: Node = below if isinstance(below, dict) else part
            if _is_query(inner):
                size = _query(inner, ctes)
            else:
                size = _relation(part, ctes) if "sample" in part and "type" in part else _parts(part, ctes, {}, 1)
                size = size if "sample" in part else Size(size.nodes, size.relations, 0, size.sets)
            total, width = total.with_(size), width + size.width
    return Size(total.nodes, total.relations, max(width, 1), total.sets)


def _is_query(node: Any) -> bool:
    return isinstance(node, dict) and "cte_map" in node and "modifiers" in node


def _parts(value: Any, ctes: Known, aliases: Known, below: int) -> Size:
    """Return the size of an expression, or of whatever holds some; ``below``: the width of what its stars stand for."""
    if isinstance(value, list):
        total = _NOTHING
        for part in value:
            total = total.with_(_parts(part, ctes, aliases, below))
        return total
    if not isinstance(value, dict):
        return _NOTHING
    if _is_query(value):
        return _query(value, ctes)
    if value.get("class") == "COLUMN_REF":
        names = value.get("column_names") or []
        column = aliases.get(str(names[0]).lower()) if len(names) == 1 else None
        return Size() if column is None else Size(column.nodes + 1, column.relations, 1, column.sets)
    total, width = Size(), below if value.get("class") == "STAR" else 1
    for part in value.values():
        inner = _parts(part, ctes, aliases, below)
        total, width = total.with_(inner), max(width, inner.width)
    return Size(total.nodes, total.relations, width, total.sets)
