"""What a question about the catalogue may be made of, judged on DuckDB's own tree of its text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import duckdb

from dpsql.serve.gate.expansion import size_of
from dpsql.serve.mysql.listed import COLUMNS, SCHEMA

FUNCTIONS: Final = frozenset({
    "+", "-", "*", "/", "//", "%", "~~", "!~~", "||", "&", "|", "abs", "ceil", "chr", "coalesce", "concat", "concat_ws", "count",
    "count_star", "current_date", "current_localtimestamp", "floor", "greatest", "least", "left", "length", "like_escape",
    "lower", "ltrim", "max", "min", "mod", "not_like_escape", "now", "nullif", "pow", "power", "right", "round", "rtrim", "sign",
    "strlen", "strpos", "substring", "sum", "today", "trim", "trunc", "upper",
})  # fmt: skip
"""Functions of their arguments alone, none of whose values grows faster than the text of the question (`catalogue._bounded`)."""

MOST_FUNCTIONS: Final = 200
"""Functions of a question: each may need memory for a vector of rows, of texts as long as `catalogue._bounded` lets them be."""
_REFERENCES: Final = frozenset({"BASE_TABLE", "SUBQUERY", "JOIN", "EMPTY"})
_NODES: Final = frozenset({"SELECT_NODE", "SET_OPERATION_NODE"})
_CLASSES: Final = frozenset({
    "BETWEEN", "CASE", "CAST", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "OPERATOR", "STAR", "SUBQUERY",
    "TYPE",
})  # fmt: skip
_TYPES: Final = frozenset({
    "BIGINT", "BLOB", "BOOLEAN", "DATE", "DECIMAL", "DOUBLE", "FLOAT", "INTEGER", "TEXT", "TIME", "TIMESTAMP", "UBIGINT", "VARCHAR",
})  # fmt: skip
_SERIALIZE = "SELECT system.main.json_serialize_sql(?)"


def allowed(connection: duckdb.DuckDBPyConnection, text: str) -> bool:
    """Return whether a text is one SELECT over the tables of the catalogue, with functions that are on the list alone.

    Privacy
    -------
    None: it is asked of a database without a row of anybody's.
    """
    (serialized,) = connection.execute(_SERIALIZE, [text]).fetchall()[0]
    tree = json.loads(serialized)
    if tree.get("error") or len(tree.get("statements", ())) != 1:
        return False
    # DuckDB cannot be stopped while it writes names out
    if not size_of(tree["statements"][0]["node"]).fits():
        return False
    nodes = list(_nodes(tree))
    if sum("function_name" in node for node in nodes) > MOST_FUNCTIONS:
        return False
    ctes = {str(entry["key"]).lower() for node in nodes if "cte_map" in node for entry in node["cte_map"]["map"]}
    return all(_allowed(node, ctes) for node in nodes)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _allowed(node: dict[str, Any], ctes: set[str]) -> bool:
    kind = str(node.get("type", ""))
    if "class" in node:
        called = str(node.get("function_name", "")).lower()
        plain = node.get("schema", "") in ("", "main") and not node.get("catalog")
        known = plain and ("function_name" not in node or called in FUNCTIONS)
        return node["class"] in _CLASSES and known and str(node.get("type_name", "TEXT")).upper() in _TYPES
    if "select_list" in node or "cte_map" in node or kind.endswith("_NODE"):
        return kind in _NODES
    if "sample" not in node or "query_location" not in node:
        return True  # not something that can be read from: an order, a case, a literal
    if kind == "BASE_TABLE":
        schema, name = str(node.get("schema_name", "")), str(node.get("table_name", "")).lower()
        here = name in COLUMNS if schema == SCHEMA else not schema and name in ctes
        return here and not node.get("catalog_name") and not node.get("at_clause")
    return kind in _REFERENCES
