"""The syntax tree that DuckDB's parser writes as JSON, written down: every node that is answered, and every field of it.

DuckDB 1.4, 1.5 and 2.0 differ; a field is listed where any of them has it. A node or a field that is not listed is refused, so
what a later DuckDB adds is closed until it was looked at. The rule of a field says what it holds:

========== =====================================================
``skip``   a scalar or list of scalars that names or places something, and reads nothing
``none``   nothing: null, false, '' or an empty list
``expr``   an expression; ``expr?`` it may be missing; ``exprs`` a list
``grid``   a list of lists of expressions
``type``   a type; ``types`` a list
``value``  a constant with its type
``query``  a query node; ``query?``; ``queries`` a list; ``select`` one inside of ``{"node": ...}``, or the node itself
``from``   an item of FROM
``ctes``   common table expressions
``shape:X`` a node of the shape X; ``shapes:X`` a list of them
========== =====================================================

or it is a set of the values that it may have.
"""

from __future__ import annotations

from typing import Any

Rule = str | frozenset[Any]


def _shape(common: dict[str, Rule], **fields: Rule) -> dict[str, Rule]:
    return common | fields


def _of(*values: Any) -> frozenset[Any]:
    return frozenset(values)


_E: dict[str, Rule] = {"class": "skip", "alias": "skip", "query_location": "skip", "query_location_length": "skip"}
_CALL: dict[str, Rule] = {
    "function_name": "skip", "schema": "skip", "catalog": "skip", "qualified_name": "skip", "children": "exprs",
    "arguments": "shapes:argument", "distinct": "skip", "is_legacy_function_call": "none",
}  # fmt: skip

EXPRESSIONS: dict[str, dict[str, Rule]] = {
    "COLUMN_REF": _shape(_E, type=_of("COLUMN_REF"), column_names="skip"),
    "POSITIONAL_REFERENCE": _shape(_E, type=_of("POSITIONAL_REFERENCE"), index="skip"),
    "CONSTANT": _shape(_E, type=_of("VALUE_CONSTANT"), value="value", literal="shape:literal"),
    "FUNCTION": _shape(
        _E | _CALL, type=_of("FUNCTION"), filter="expr?", order_bys="shape:order", is_operator="skip", export_state="none"
    ),
    "WINDOW": _shape(
        _E | _CALL,
        type=_of(
            "WINDOW_AGGREGATE", "WINDOW_RANK", "WINDOW_RANK_DENSE", "WINDOW_NTILE", "WINDOW_PERCENT_RANK", "WINDOW_CUME_DIST",
            "WINDOW_ROW_NUMBER", "WINDOW_FIRST_VALUE", "WINDOW_LAST_VALUE", "WINDOW_LEAD", "WINDOW_LAG", "WINDOW_NTH_VALUE",
            "WINDOW_FILL",
        ),
        partitions="exprs", orders="shapes:sort", start="skip", end="skip", start_expr="expr?", end_expr="expr?",
        offset_expr="expr?", default_expr="expr?", ignore_nulls="skip", has_ignore_nulls="skip", filter_expr="expr?",
        exclude_clause="skip", arg_orders="shapes:sort",
    ),
    "OPERATOR": _shape(
        _E,
        type=_of(
            "OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "OPERATOR_COALESCE", "OPERATOR_NULLIF", "OPERATOR_TRY",
            "OPERATOR_UNPACK", "COMPARE_IN", "COMPARE_NOT_IN", "ARRAY_EXTRACT", "ARRAY_SLICE", "ARRAY_CONSTRUCTOR",
            "STRUCT_EXTRACT", "GROUPING_FUNCTION",
        ),
        children="exprs",
    ),
    "COMPARISON": _shape(
        _E,
        type=_of(
            "COMPARE_EQUAL", "COMPARE_NOTEQUAL", "COMPARE_LESSTHAN", "COMPARE_GREATERTHAN", "COMPARE_LESSTHANOREQUALTO",
            "COMPARE_GREATERTHANOREQUALTO", "COMPARE_DISTINCT_FROM", "COMPARE_NOT_DISTINCT_FROM",
        ),
        left="expr", right="expr",
    ),
    "CONJUNCTION": _shape(_E, type=_of("CONJUNCTION_AND", "CONJUNCTION_OR"), children="exprs"),
    "BETWEEN": _shape(_E, type=_of("COMPARE_BETWEEN", "COMPARE_NOT_BETWEEN"), input="expr", lower="expr", upper="expr"),
    "CASE": _shape(_E, type=_of("CASE_EXPR"), case_checks="shapes:check", else_expr="expr?"),
    "CAST": _shape(_E, type=_of("OPERATOR_CAST"), child="expr", cast_type="type", type_expr="expr", try_cast="skip"),
    "TYPE": _shape(
        _E, type=_of("TYPE"), catalog="skip", schema="skip", type_name="skip", children="exprs", qualified_name="skip"
    ),
    "COLLATE": _shape(_E, type=_of("COLLATE"), child="expr", collation="skip"),
    "LAMBDA": _shape(_E, type=_of("LAMBDA"), lhs="expr", expr="expr", syntax_type="skip"),
    "STAR": _shape(
        _E, type=_of("STAR"), relation_name="skip", exclude_list="skip", replace_list="shapes:replaced", columns="skip",
        expr="expr?", qualified_exclude_list="shapes:column", rename_list="shapes:renamed", unpacked="skip",
    ),
    "SUBQUERY": _shape(
        _E, type=_of("SUBQUERY"), subquery_type="skip", subquery="select", child="expr?", comparison_type="skip"
    ),
}  # fmt: skip
"""Fields of expressions, by their class."""

_F: dict[str, Rule] = {
    "type": "skip", "alias": "skip", "query_location": "skip", "query_location_length": "skip", "sample": "shape:sample",
}  # fmt: skip
FROM: dict[str, dict[str, Rule]] = {
    "EMPTY": _F,
    "BASE_TABLE": _shape(
        _F, schema_name="skip", table_name="skip", catalog_name="skip", column_name_alias="skip", at_clause="none",
        qualified_name="skip",
    ),
    "SUBQUERY": _shape(_F, subquery="select", column_name_alias="skip"),
    "JOIN": _shape(
        _F, left="from", right="from", condition="expr?",
        join_type=_of("INNER", "LEFT", "RIGHT", "OUTER", "FULL", "SEMI", "ANTI"),
        ref_type=_of("REGULAR", "NATURAL", "CROSS", "POSITIONAL", "ASOF"), using_columns="skip", delim_flipped="none",
        duplicate_eliminated_columns="none", is_implicit="skip", ranking_expression="none", nearest_count="skip",
        nearest_order_type="skip", nearest_approx="none",
    ),
    "EXPRESSION_LIST": _shape(_F, expected_names="skip", expected_types="types", values="grid"),
    "TABLE_FUNCTION": _shape(_F, function="expr", column_name_alias="skip", with_ordinality="skip", subquery="none"),
    "SHOW_REF": _shape(
        _F, table_name="skip", query="query?", show_type="skip", catalog_name="skip", schema_name="skip", qualified_name="skip"
    ),
    "PIVOT": _shape(
        _F, source="from", aggregates="exprs", unpivot_names="skip", pivots="shapes:pivot", groups="skip",
        column_name_alias="skip", include_nulls="skip",
    ),
}  # fmt: skip
"""Fields of items of FROM, by their type."""

_Q: dict[str, Rule] = {"type": "skip", "modifiers": "modifiers", "cte_map": "ctes"}
QUERIES: dict[str, dict[str, Rule]] = {
    "SELECT_NODE": _shape(
        _Q, select_list="exprs", from_table="from", where_clause="expr?", group_expressions="exprs", group_sets="skip",
        aggregate_handling="skip", having="expr?", sample="shape:sample", qualify="expr?",
    ),
    "SET_OPERATION_NODE": _shape(
        _Q, setop_type=_of("UNION", "EXCEPT", "INTERSECT", "UNION_BY_NAME"), left="query?", right="query?", setop_all="skip",
        children="queries",
    ),
    "RECURSIVE_CTE_NODE": _shape(
        _Q, cte_name="skip", union_all="skip", left="query", right="query", aliases="skip", key_targets="exprs",
        payload_aggregates="exprs",
    ),
}  # fmt: skip
"""Fields of query nodes, by their type."""

MODIFIERS: dict[str, dict[str, Rule]] = {
    "ORDER_MODIFIER": {"type": "skip", "orders": "shapes:sort"},
    "LIMIT_MODIFIER": {"type": "skip", "limit": "expr?", "offset": "expr?", "limit_type": "skip"},
    "LIMIT_PERCENT_MODIFIER": {"type": "skip", "limit": "expr?", "offset": "expr?", "limit_type": "skip"},
    "DISTINCT_MODIFIER": {"type": "skip", "distinct_on_targets": "exprs"},
}
"""Fields of what follows a query, by type."""

PARTS: dict[str, dict[str, Rule]] = {
    "argument": {"name": "skip", "expression": "expr"},
    "literal": {"kind": "skip", "text": "skip"},
    "check": {"when_expr": "expr", "then_expr": "expr"},
    "order": {"type": "skip", "orders": "shapes:sort"},
    "sort": {"type": "skip", "null_order": "skip", "expression": "expr"},
    "sample": {
        "sample_size": "value", "is_percentage": "skip", "method": "skip", "seed": "skip", "repeatable": "skip",
        "sample_rate": "skip",
    },
    "pivot": {"pivot_expressions": "exprs", "unpivot_names": "skip", "entries": "shapes:entry", "pivot_enum": "none"},
    "entry": {"values": "values", "star_expr": "expr?", "alias": "skip"},
    "replaced": {"key": "skip", "value": "expr"},
    "renamed": {"key": "shape:column", "value": "skip"},
    "column": {"catalog": "skip", "schema": "skip", "table": "skip", "column": "skip"},
    "cte": {
        "aliases": "skip", "query": "select", "query_node": "query", "materialized": "skip", "key_targets": "exprs",
        "payload_aggregates": "exprs",
    },
    "selected": {"node": "query", "named_param_map": "none"},
    "type": {"id": "skip", "type_info": "shape:about"},
    "about": {
        "type": "skip", "alias": "none", "extension_info": "none", "width": "skip", "scale": "skip", "child_type": "type",
        "child_types": "shapes:member", "size": "skip", "name": "skip", "user_type_name": "skip", "catalog": "none",
        "schema": "none", "user_type_modifiers": "none", "collation": "skip",
    },
    "member": {"first": "skip", "second": "type"},
    "value": {"type": "type", "is_null": "skip", "value": "skip"},
}  # fmt: skip
"""Fields of other parts."""
