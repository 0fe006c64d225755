"""Second opinion on generated SQL: DuckDB's own parser and binder, asked over empty relations of the same types.

Whatever sqlglot and the rewriting believed, the text that will run is accepted only if DuckDB's parse tree holds nothing but
plain SELECTs, its bound plan holds nothing but projections, filters and key joins, every function in it is DuckDB's own, and
every function, operator and conversion has exactly the types for which the kernel lists it (:mod:`dpsql.source.bound`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import duckdb

from dpsql.algebra.aggregates import AGGREGATES
from dpsql.errors import UnsupportedQuery, first_line
from dpsql.source.bound import check_bound, check_comparisons, check_join, name_of
from dpsql.source.catalog import Catalog
from dpsql.source.kernel import ALWAYS_CHECKED, LOCAL_CHECKED
from dpsql.source.model import TableId, quoted
from dpsql.source.parse import nodes, serialized
from dpsql.source.unit_local import UnitLocal

Node = dict[str, Any]

_CLASSES = {"FUNCTION", "COLUMN_REF", "CONSTANT", "OPERATOR", "COMPARISON", "CONJUNCTION", "CASE", "CAST", "BETWEEN", "TYPE"}
_OPERATORS = {"LOGICAL_PROJECTION", "LOGICAL_FILTER", "LOGICAL_DUMMY_SCAN", "LOGICAL_COMPARISON_JOIN", "LOGICAL_DISTINCT"}
_LOCAL_OPERATORS = _OPERATORS | {
    "LOGICAL_AGGREGATE_AND_GROUP_BY", "LOGICAL_WINDOW", "LOGICAL_UNION", "LOGICAL_EXCEPT", "LOGICAL_INTERSECT", "LOGICAL_ANY_JOIN",
    "LOGICAL_CROSS_PRODUCT",
}
_FROM = {"BASE_TABLE", "JOIN", "SUBQUERY", "TABLE_FUNCTION"}


def check(
    catalog: Catalog, sql: str, probe: str, own: Sequence[TableId], public: Sequence[TableId], walk: UnitLocal | None = None
) -> None:
    """Refuse generated SQL that DuckDB does not understand as rows in, rows out.

    Parameters
    ----------
    catalog : Catalog
    sql : str
        The generated SQL: its parse tree is looked at.
    probe : str
        The same with every table replaced by an empty relation of the same columns: its plan is looked at. (The plan of a
        file can't be serialized on 2.0.)
    own, public : sequence of TableId
        What it may read, each once: the protected table, of a linked one its parents too, and public ones, each of which has one
        DISTINCT ON.
    walk : UnitLocal, optional
        Of a linked table: its rows have to carry the unit.

    Raises
    ------
    UnsupportedQuery
    """
    tree, plan_text = _tree_and_plan(catalog, sql, probe)
    if tree.get("error") or len(tree["statements"]) != 1:
        raise UnsupportedQuery("the rewritten source", f"DuckDB does not read it as one SELECT: {tree.get('error_message')}")
    names = set(ALWAYS_CHECKED)
    distinct, read = 0, Counter[str]()
    for node in nodes(tree["statements"]):
        distinct += _check_parsed(node, names)
        if kind := _relation(node):
            read[kind] += 1
    tables = [*own, *public]
    if walk is not None:
        walk.check(tree["statements"][0])
    # each table once, and each public one under DISTINCT ON: a second reading would repeat rows
    if distinct != len(public) or read != Counter(t.text if not t.is_file else "read_parquet()" for t in tables):
        raise UnsupportedQuery("the rewritten source", "DuckDB reads other tables in it")
    plan = _plan(catalog, probe, plan_text)
    for node in nodes(plan):
        _check_operator(node)
        if node.get("expression_class"):
            names |= check_bound(catalog, node)
    _check_unchanged(catalog, names)


def check_local(catalog: Catalog, sql: str, probe: str, tables: Sequence[TableId], walk: UnitLocal) -> None:
    """Refuse generated SQL in which DuckDB finds rows without their privacy unit, or what the kernel does not list.

    Parameters
    ----------
    catalog : Catalog
    sql, probe : str
        As for :func:`check`.
    tables : sequence of TableId
        What it may read, as often as it likes: protected tables and public ones.
    walk : UnitLocal
        A fresh one.

    Raises
    ------
    UnsupportedQuery
    """
    tree, plan_text = _tree_and_plan(catalog, sql, probe)
    if tree.get("error") or len(tree["statements"]) != 1:
        raise UnsupportedQuery("the rewritten source", f"DuckDB does not read it as one SELECT: {tree.get('error_message')}")
    walk.check(tree["statements"][0])
    if walk.read != {t.text if not t.is_file else "read_parquet()" for t in tables}:
        raise UnsupportedQuery("the rewritten source", "DuckDB reads other tables in it")
    # the parse tree has shown whose rows meet; what is computed of them shows in the calls, and in the plan
    names = set(ALWAYS_CHECKED) | LOCAL_CHECKED
    for node in nodes(tree["statements"]):
        kind = node.get("class")
        if kind is not None and kind not in _CLASSES | {"WINDOW"}:
            raise UnsupportedQuery(str(kind), "not on the list of what a source may compute")
        if kind in ("FUNCTION", "WINDOW"):
            names.add(str(node["function_name"]))
            if str(node["function_name"]).lower() == "list_aggregate":
                _check_list_aggregate(node)
            # an order of arguments depends on ties, which other people's rows may turn
            if (node.get("order_bys") or {}).get("orders") or node.get("arg_orders"):
                raise UnsupportedQuery(str(node["function_name"]), "its arguments are not ordered here")
    # the binder has added casts and joins by now, which the text does not show
    for node in nodes(_without_lists(_plan(catalog, probe, plan_text))):
        kind = node.get("type")
        if isinstance(kind, str) and kind.startswith("LOGICAL_"):
            if kind not in _LOCAL_OPERATORS:
                raise UnsupportedQuery(kind.removeprefix("LOGICAL_"), "not on the list of what a source may do")
            if kind == "LOGICAL_COMPARISON_JOIN":
                check_comparisons(node["conditions"])
        if node.get("expression_class"):
            names |= check_bound(catalog, node, local=True)
    _check_unchanged(catalog, names)


def _check_list_aggregate(node: Node) -> None:
    """Refuse an aggregate of a list whose name is not a constant of the list."""
    texts = [json.dumps(part) for part in node.get("children") or node.get("arguments") or []]
    if len(texts) != 2 or not any(f'"{name}"' in texts[1] for name, one in AGGREGATES.items() if one.listing):
        raise UnsupportedQuery("list_aggregate", "not on the list of what a source may compute")


def _without_lists(tree: Any) -> Any:
    """Return a plan without what calls of list_aggregate keep for themselves: which aggregate it is stands in the parse tree."""
    if isinstance(tree, list):
        return [_without_lists(part) for part in tree]
    if not isinstance(tree, dict):
        return tree
    lists = tree.get("expression_class") == "BOUND_FUNCTION" and name_of(tree) == "list_aggregate"
    return {key: _without_lists(part) for key, part in tree.items() if not (lists and key == "function_data")}


def _check_unchanged(catalog: Catalog, names: set[str]) -> None:
    """Refuse functions that are not DuckDB's own."""
    changed = catalog.changed_function(names)
    if changed is not None:
        raise UnsupportedQuery(
            f"function {changed!r}",
            "a macro, a function or an extension of this database gives it another meaning; DROP it, or connect without it",
        )


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


def _tree_and_plan(catalog: Catalog, sql: str, probe: str) -> tuple[Node, str | None]:
    """Return the parse tree of a text and the plan of another one, as text: None where DuckDB raises, and is to be asked again."""
    query = "SELECT system.main.json_serialize_sql(?::VARCHAR), system.main.json_serialize_plan(?::VARCHAR)"
    try:
        row = catalog.cursor.execute(query, [sql, probe]).fetchone()
    except duckdb.InterruptException:
        raise
    except duckdb.Error:
        row = None
    return (serialized(catalog.cursor, sql), None) if row is None else (dict(json.loads(row[0])), str(row[1]))


def _plan(catalog: Catalog, probe: str, text: str | None = None) -> Any:
    """Return the bound plan of a text; ``text``: what DuckDB has said of it already."""
    try:
        if text is None:
            row = catalog.cursor.execute("SELECT system.main.json_serialize_plan(?::VARCHAR)", [probe]).fetchone()
            text = str(row[0]) if row else '{"error": true}'
    except duckdb.Error as error:
        raise UnsupportedQuery("the rewritten source", f"DuckDB cannot bind it: {first_line(error)}") from None
    try:
        plan = json.loads(text)
    except ValueError:  # DuckDB writes a constant of BIT, for one, as what is no JSON
        raise UnsupportedQuery("an expression", "DuckDB cannot show a constant in it; CAST it to a text") from None
    if plan.get("error"):
        reason = first_line(plan.get("error_message", "")) or "no reason given"
        raise UnsupportedQuery("an expression", f"DuckDB cannot bind it: {reason}")
    return plan["plans"]


def _check_operator(node: Node) -> None:
    kind = node.get("type")
    if isinstance(kind, str) and kind.startswith("LOGICAL_"):
        if kind not in _OPERATORS:
            raise UnsupportedQuery(kind.removeprefix("LOGICAL_"), "mixes, repeats or picks rows")
        if kind == "LOGICAL_COMPARISON_JOIN":
            check_join(node["conditions"])
