"""Second opinion on generated SQL: DuckDB's own parser and binder, asked over empty relations of the same types.

Whatever sqlglot and the rewriting believed, the text that will run is accepted only if DuckDB's parse tree holds nothing but
plain SELECTs, its bound plan holds nothing but projections, filters and key joins, every function in it is on the list and
is DuckDB's own, and every conversion either is a TRY_CAST or cannot fail.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import duckdb

from dpsql.errors import UnsupportedQuery, first_line
from dpsql.source_catalog import Catalog
from dpsql.source_functions import ALWAYS_CHECKED, BOUND, INTEGERS, WIDE, cast_is_safe, decimal_width
from dpsql.source_model import TableId, literal, quoted
from dpsql.source_parse import serialized

Node = dict[str, Any]

_CLASSES = {"FUNCTION", "COLUMN_REF", "CONSTANT", "OPERATOR", "COMPARISON", "CONJUNCTION", "CASE", "CAST", "BETWEEN", "TYPE"}
_OPERATORS = {"LOGICAL_PROJECTION", "LOGICAL_FILTER", "LOGICAL_DUMMY_SCAN", "LOGICAL_COMPARISON_JOIN", "LOGICAL_DISTINCT"}
_BOUND_CLASSES = {
    "BOUND_REF", "BOUND_COLUMN_REF", "BOUND_CONSTANT", "BOUND_FUNCTION", "BOUND_CAST", "BOUND_COMPARISON", "BOUND_CONJUNCTION",
    "BOUND_OPERATOR", "BOUND_CASE", "BOUND_BETWEEN",
}  # fmt: skip
_BOUND_OPERATORS = {
    "OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "OPERATOR_COALESCE", "COMPARE_IN", "COMPARE_NOT_IN",
}  # fmt: skip
_FROM = {"BASE_TABLE", "JOIN", "SUBQUERY", "TABLE_FUNCTION"}


def check(catalog: Catalog, sql: str, probe: str, tables: Sequence[TableId]) -> None:
    """Refuse generated SQL that DuckDB does not understand as rows in, rows out.

    Parameters
    ----------
    catalog : Catalog
    sql : str
        The generated SQL: its parse tree is looked at.
    probe : str
        The same with every table replaced by an empty relation of the same columns: its plan is looked at. (The plan of a
        file can't be serialized on 2.0.)
    tables : sequence of TableId
        What it may read, each once: the protected table and the public ones, each of which has one DISTINCT ON.

    Raises
    ------
    UnsupportedQuery
    """
    tree = serialized(catalog.cursor, sql)
    if tree.get("error") or len(tree["statements"]) != 1:
        raise UnsupportedQuery("the rewritten source", f"DuckDB does not read it as one SELECT: {tree.get('error_message')}")
    names = set(ALWAYS_CHECKED)
    distinct, read = 0, Counter[str]()
    for node in _nodes(tree["statements"]):
        distinct += _check_parsed(node, names)
        if kind := _relation(node):
            read[kind] += 1
    if distinct != len(tables) - 1 or read != Counter(t.text if not t.is_file else "read_parquet()" for t in tables):
        raise UnsupportedQuery("the rewritten source", "DuckDB reads other tables in it")
    plan = _plan(catalog, probe)
    for node in _nodes(plan):
        _check_operator(node)
        if node.get("expression_class"):
            names |= _check_bound(catalog, node)
    changed = catalog.changed_function(names)
    if changed is not None:
        raise UnsupportedQuery(
            f"function {changed!r}",
            "a macro, a function or an extension of this database gives it another meaning; DROP it, or connect without it",
        )


def _nodes(tree: Any) -> Iterator[Node]:
    """Yield every dictionary in a tree."""
    if isinstance(tree, list):
        for part in tree:
            yield from _nodes(part)
    elif isinstance(tree, dict):
        yield tree
        for part in tree.values():
            yield from _nodes(part)


def _relation(node: Node) -> str:
    """Return what a node of the parse tree reads, '' if it is no table; refuse every relation that is not generated here."""
    if node.get("class") is not None or not {"alias", "sample", "type"} <= node.keys():
        return ""
    kind = str(node["type"])
    if kind not in _FROM or node["sample"] or node.get("at_clause") or node.get("ref_type", "REGULAR") != "REGULAR":
        raise UnsupportedQuery(kind, "not a relation that a source may read")
    if kind == "JOIN" and node["join_type"] not in ("INNER", "LEFT"):  # the plan shows a RIGHT JOIN as a LEFT one
        raise UnsupportedQuery(f"{node['join_type']} JOIN", "only INNER and LEFT JOIN")
    if kind == "TABLE_FUNCTION":
        return f"{node['function']['function_name']}()".lower()
    return quoted(node["catalog_name"], node["schema_name"], node["table_name"]) if kind == "BASE_TABLE" else ""


def _check_parsed(node: Node, names: set[str]) -> int:
    """Check one node of the parse tree, collect the function it calls; return the number of DISTINCT modifiers on it."""
    kind = node.get("class")
    if kind is not None and kind not in _CLASSES:
        raise UnsupportedQuery(str(kind), "not on the list of what a source may compute")
    if kind == "FUNCTION":
        names.add(str(node["function_name"]))
        if node.get("filter") or node.get("distinct") or (node.get("order_bys") or {}).get("orders"):
            raise UnsupportedQuery(str(node["function_name"]), "an aggregate mixes rows")
    if "from_table" in node:
        if node.get("type") != "SELECT_NODE":
            raise UnsupportedQuery(str(node.get("type")), "not a relation that a source may read")
        for key in ("group_expressions", "group_sets", "having", "sample", "qualify"):
            if node.get(key):
                raise UnsupportedQuery(key, "mixes, repeats or picks rows")
        if (node.get("cte_map") or {}).get("map"):
            raise UnsupportedQuery("WITH", "not expected here")
    modifiers = node.get("modifiers") or []
    if any(m.get("type") != "DISTINCT_MODIFIER" for m in modifiers):
        raise UnsupportedQuery(str(modifiers[0].get("type")), "mixes, repeats or picks rows")
    return len(modifiers)


def _plan(catalog: Catalog, probe: str) -> Any:
    try:
        row = catalog.cursor.execute("SELECT system.main.json_serialize_plan(?::VARCHAR)", [probe]).fetchone()
    except duckdb.Error as error:
        raise UnsupportedQuery("the rewritten source", f"DuckDB cannot bind it: {first_line(error)}") from None
    plan = json.loads(row[0]) if row else {"error": True}
    if plan.get("error"):
        reason = str(plan.get("error_message", "")).splitlines()
        raise UnsupportedQuery("an expression", f"DuckDB cannot bind it: {reason[0] if reason else 'no reason given'}")
    return plan["plans"]


def _check_operator(node: Node) -> None:
    kind = node.get("type")
    if isinstance(kind, str) and kind.startswith("LOGICAL_"):
        if kind not in _OPERATORS:
            raise UnsupportedQuery(kind.removeprefix("LOGICAL_"), "mixes, repeats or picks rows")
        if kind == "LOGICAL_COMPARISON_JOIN" and any(c["comparison"] != "COMPARE_EQUAL" for c in node["conditions"]):
            raise UnsupportedQuery("ON", "only equalities")


def _check_bound(catalog: Catalog, node: Node) -> set[str]:
    """Check one bound expression; return the function it calls, if any."""
    kind, type_ = str(node["expression_class"]), str(node.get("type"))
    if kind not in _BOUND_CLASSES or (kind == "BOUND_OPERATOR" and type_ not in _BOUND_OPERATORS):
        raise UnsupportedQuery(type_ if kind == "BOUND_OPERATOR" else kind, "not on the list of what a source may compute")
    if type_ == "OPERATOR_CAST":
        _check_cast(catalog, node)
        return set()
    if kind != "BOUND_FUNCTION" or type_.startswith("COMPARE_"):
        return set()
    name = str(node.get("name") or (node.get("qname") or {"path": [""]})["path"][-1])
    if name not in BOUND:
        raise UnsupportedQuery(f"{name}()", "not on the list of what a source may compute")
    return {name}


def _check_cast(catalog: Catalog, node: Node) -> None:
    """Refuse a conversion that the binder added and that a value could make fail.

    Of a constant too: it is not always done before the query runs, so it might fail only if some row gets there.
    """
    child = node["child"] if "child" in node else node["children"][0]
    if node.get("try_cast") or (node.get("function_data") or {}).get("try_cast"):
        return
    source, target = type_text(_type_of(child)), type_text(node["return_type"])
    if cast_is_safe(source, target):
        return
    constant = _constant(child)
    if constant is not None:
        _check_constant(catalog, constant, node["return_type"])
    else:
        raise UnsupportedQuery(
            f"an implicit conversion of {source} to {target}",
            f"write it out: CAST(... AS {target}); what can't be converted becomes NULL",
        )


def _constant(node: Node) -> tuple[str, str] | None:
    """Return a constant, perhaps under conversions, as SQL with one parameter and its value; None for anything else."""
    if node.get("type") == "OPERATOR_CAST":
        inner = _constant(node["child"] if "child" in node else node["children"][0])
        return (f"TRY_CAST({inner[0]} AS {_sql_type(node['return_type'])})", inner[1]) if inner else None
    if node.get("expression_class") != "BOUND_CONSTANT":
        return None
    value, source = node["value"], type_text(node["value"]["type"])
    if value.get("is_null"):
        return "NULL", ""
    text = str(value.get("value"))
    if decimal_width(source):  # serialized without the point
        text = str(Decimal(int(text)).scaleb(-int(value["type"]["type_info"]["scale"])))
    known = source in ("VARCHAR", "DOUBLE", "FLOAT", "BOOLEAN", *INTEGERS, *WIDE) or decimal_width(source)
    return (f"CAST(?::VARCHAR AS {source})", text) if known else None


def _check_constant(catalog: Catalog, constant: tuple[str, str], target: Node) -> None:
    """Refuse a conversion of a constant that fails."""
    sql, text = constant
    if sql == "NULL":
        return
    try:
        row = catalog.cursor.execute(f"SELECT TRY_CAST({sql} AS {_sql_type(target)}) IS NOT NULL", [text]).fetchone()  # noqa: S608
    except duckdb.Error:
        row = None
    if not row or not row[0]:
        raise UnsupportedQuery(f"the constant {text!r}", f"it can't be converted to {type_text(target)}; write one of that type")


def _sql_type(kind: Node) -> str:
    """Return a serialized type as SQL; nested types become what no conversion accepts."""
    if kind["id"] == "ENUM":
        return f"ENUM({', '.join(literal(str(label)) for label in kind['type_info']['values'])})"
    return type_text(kind)


def _type_of(node: Node) -> Node:
    if "return_type" in node:
        return dict(node["return_type"])
    if node.get("expression_class") == "BOUND_CONSTANT":
        return dict(node["value"]["type"])
    return {"id": "BOOLEAN"}  # comparisons and conjunctions don't say


def type_text(kind: Node) -> str:
    """Return a serialized type as DuckDB spells it (of nested types and ENUMs the first word).

    Examples
    --------
    >>> type_text({"id": "DECIMAL", "type_info": {"width": 4, "scale": 2}}), type_text({"id": "BIGINT", "type_info": None})
    ('DECIMAL(4,2)', 'BIGINT')
    """
    info = kind.get("type_info") or {}
    if kind["id"] == "DECIMAL":
        return f"DECIMAL({info['width']},{info['scale']})"
    return str(kind["id"])
