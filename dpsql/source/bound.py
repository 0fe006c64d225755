"""Bound expressions of a source, held against the kernel: each function, operator and conversion with the whole types it got."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import duckdb

from dpsql.algebra.functions import Function
from dpsql.errors import UnsupportedQuery
from dpsql.source.aggregates import check_combining
from dpsql.source.catalog import Catalog
from dpsql.source.kernel import (
    BOUND,
    COMPARABLE,
    CONSTANTS,
    DECIMAL_ARITHMETIC,
    FLOAT_ARITHMETIC,
    FLOATS,
    INTEGERS,
    KINDS,
    LOCAL_FUNCTIONS,
    TEMPORAL,
    WIDE,
    WIDE_ARITHMETIC,
    cast_is_safe,
    decimal_result,
    decimal_width,
    digits,
    family,
    try_cast_is_listed,
)
from dpsql.source.types import Node, type_text

_CLASSES = {
    "BOUND_REF", "BOUND_COLUMN_REF", "BOUND_CONSTANT", "BOUND_FUNCTION", "BOUND_CAST", "BOUND_COMPARISON", "BOUND_CONJUNCTION",
    "BOUND_OPERATOR", "BOUND_CASE", "BOUND_BETWEEN",
}
_ANY_TYPE = {"OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"}
_ONE_TYPE = {"COMPARE_IN", "COMPARE_NOT_IN"}
_OPERATORS = _ANY_TYPE | _ONE_TYPE | {"OPERATOR_COALESCE"}
_ADVICE = "write it out with CAST, or prepare the column in the table itself"

_DIGITS = Context(prec=80)  # a DECIMAL has up to 38, Python rounds to 28

def check_bound(catalog: Catalog, node: Node, *, local: bool = False) -> set[str]:
    """Refuse a bound expression that the kernel does not list; its children are expressions of their own.

    Parameters
    ----------
    catalog : Catalog
    node : dict
    local : bool
        Whether aggregates and windows, and what they need, are listed too.

    Returns
    -------
    set of str
        The function that it calls, if any.

    Raises
    ------
    UnsupportedQuery
    """
    kind, type_ = str(node["expression_class"]), str(node.get("type"))
    if local and kind in ("BOUND_AGGREGATE", "BOUND_WINDOW"):
        return check_combining(node, name_of(node), [type_of(child) for child in children_of(node)])
    if local and kind == "BOUND_FUNCTION" and name_of(node) in LOCAL_FUNCTIONS:
        return _check_local(node)
    if kind not in _CLASSES or (kind == "BOUND_OPERATOR" and type_ not in _OPERATORS):
        raise UnsupportedQuery(type_ if kind == "BOUND_OPERATOR" else kind, "not on the list of what a source may compute")
    if type_ == "OPERATOR_CAST":
        _check_cast(catalog, node)
    elif kind in ("BOUND_COMPARISON", "BOUND_BETWEEN") or type_.startswith("COMPARE_"):
        _check_comparison(node, type_)
    elif kind == "BOUND_FUNCTION":
        return _check_function(node)
    return set()


def check_join(conditions: Sequence[Node]) -> None:
    """Refuse conditions of a join that are not equalities of two values of one comparable type.

    Raises
    ------
    UnsupportedQuery
    """
    for condition in conditions:
        left, right = (type_of(condition[side]) for side in ("left", "right"))
        if condition["comparison"] != "COMPARE_EQUAL":
            raise UnsupportedQuery("ON", "only equalities")
        if left != right or family(left) not in COMPARABLE:
            raise UnsupportedQuery("ON", f"it compares {left} with {right}; {_ADVICE}")


def check_comparisons(conditions: Sequence[Node]) -> None:
    """Refuse conditions of a join that compare values which are not of one comparable type.

    Raises
    ------
    UnsupportedQuery
    """
    for condition in conditions:
        if isinstance(condition.get("left"), dict) and isinstance(condition.get("right"), dict):
            left, right = (type_of(condition[side]) for side in ("left", "right"))
            if left != right or family(left) not in COMPARABLE:
                raise UnsupportedQuery("ON", f"it compares {left} with {right}; {_ADVICE}")


def _check_local(node: Node) -> set[str]:
    """Refuse a function of a unit-local layer with other types than it is generated with."""
    name, types = name_of(node), [type_of(child) for child in children_of(node)]
    many = name in ("struct_pack", "hash")
    kinds = [family(kind) for kind in types] if many else [family(kind.removesuffix("[]")) for kind in types[:1]]
    if any(kind not in COMPARABLE for kind in kinds):
        raise UnsupportedQuery(f"{name}({', '.join(types)})", f"not on the list of what a source may compute; {_ADVICE}")
    return {name}


def children_of(node: Node) -> list[Node]:
    """Return the operands of a bound expression, whatever the version of DuckDB calls them."""
    named = [node[key] for key in ("left", "right", "input", "lower", "upper", "child") if isinstance(node.get(key), dict)]
    return named or list(node.get("children") or [])


def type_of(node: Node) -> str:
    """Return the whole type of a bound expression."""
    if "return_type" in node:
        return type_text(node["return_type"])
    if node.get("expression_class") == "BOUND_CONSTANT":
        return type_text(node["value"]["type"])
    return "BOOLEAN"  # comparisons and conjunctions don't say


def _check_comparison(node: Node, symbol: str) -> None:
    """Refuse a comparison of values that are not of one comparable type."""
    types = list(dict.fromkeys(kind for kind in map(type_of, children_of(node)) if kind != "NULL"))
    name = symbol.removeprefix("COMPARE_").replace("_", " ")
    if len(types) > 1:
        raise UnsupportedQuery(f"a comparison ({name})", f"it compares {' with '.join(types)}; {_ADVICE}")
    if types and family(types[0]) not in COMPARABLE:
        raise UnsupportedQuery(f"a comparison ({name})", f"values of {types[0]} are not compared in a source; {_ADVICE}")


def _check_function(node: Node) -> set[str]:
    """Refuse a function, or an operator that is one, whose name with these types is not listed."""
    name, arguments = name_of(node), children_of(node)
    types = [type_of(child) for child in arguments]
    spec = BOUND.get(name)
    if spec is not None:
        good = _matches(spec, arguments, types)
    elif name == "decode":
        good = len(arguments) == 1 and name_of(arguments[0]) == "encode"
    else:
        good = _arithmetic(name, node, arguments, types)
    if not good:
        raise UnsupportedQuery(f"{name}({', '.join(types)})", f"not on the list of what a source may compute; {_ADVICE}")
    return {name}


def _matches(spec: Function, arguments: Sequence[Node], types: Sequence[str]) -> bool:
    kinds = spec.kinds_of(len(types))
    if len(types) > len(kinds) or len(types) < min(spec.least, len(kinds)):
        return False
    for kind, child, sql_type in zip(kinds, arguments, types, strict=False):
        # a collated text may be encoded: that is how it loses its collation
        plain = sql_type.split(" COLLATE ")[0] if spec is BOUND["encode"] else sql_type
        if sql_type != "NULL" and family(plain) not in KINDS[kind]:
            return False
        if kind in CONSTANTS and not _is_constant(child):
            return False
    # values that are compared are of one type, or the binder would cast one of them
    if "c" in spec.kinds and len({t for t in types if t != "NULL"}) > 1:
        return False
    return not ("k" in spec.kinds and len(types) == 2 and types[1] != "NULL" and types[0] != f"{types[1]}[]")


def _is_constant(node: Node) -> bool:
    if node.get("type") == "OPERATOR_CAST":
        return _is_constant(children_of(node)[0])
    if node.get("expression_class") == "BOUND_FUNCTION":  # -3 is a call
        return name_of(node) == "-" and len(children_of(node)) == 1 and _is_constant(children_of(node)[0])
    return node.get("expression_class") == "BOUND_CONSTANT"


def name_of(node: Node) -> str:
    """Return the name of the function that a bound expression calls, '' where it calls none."""
    return str(node.get("name") or (node.get("qname") or {"path": [""]})["path"][-1])


def _arithmetic(name: str, node: Node, operands: Sequence[Node], types: Sequence[str]) -> bool:
    """Return whether an operator on these types can neither overflow nor fail."""
    if len(types) == 1:  # the sign
        number = family(types[0]) in (*FLOATS, "DECIMAL") or (types[0] == "HUGEINT" and _from_64_bits(operands[0]))
        return name == "-" and (number or (types[0] in (*INTEGERS, *WIDE) and _is_constant(operands[0])))
    if len(types) != 2:
        return False
    left, right = types
    # dates are moved by constants alone, inside of the years where nothing overflows
    if left in TEMPORAL:
        constant = _is_constant(operands[1])
        if right == "INTERVAL":
            return name in ("+", "-") and constant
        days = left == "DATE" and right == "INTEGER" and constant
        return (name == "-" and left == right == "DATE") or (name in ("+", "-") and days)
    if left != right and not (decimal_width(left) is not None and decimal_width(right) is not None):
        return False
    if left == "HUGEINT":
        return name in WIDE_ARITHMETIC and all(map(_from_64_bits, operands))
    if left in FLOATS:
        return name in FLOAT_ARITHMETIC
    # DECIMALs: the result's type must hold every digit, whatever the values are
    room, sides = digits(type_of(node)), [_digits_of(child) for child in operands]
    if name not in DECIMAL_ARITHMETIC or room is None or sides[0] is None or sides[1] is None:
        return False
    before, after = decimal_result(name, sides[0], sides[1])
    return before <= room[0] and after <= room[1]


def _digits_of(node: Node) -> tuple[int, int] | None:
    """Return how many digits before and after the point a number can have, by the type that it had before it was converted.

    A conversion that keeps all digits after the point changes no number: what it gives has no more digits before it than its own
    type has either. (What does not fit is NULL, or the conversion is refused by itself.)
    """
    own = digits(type_of(node))
    if node.get("type") == "OPERATOR_CAST" and (converted := _digits_of(children_of(node)[0])) is not None:
        return (min(converted[0], own[0]), converted[1]) if own is not None and own[1] >= converted[1] else converted
    if own is not None and node.get("expression_class") == "BOUND_CONSTANT" and not _is_null(node):
        return max(len(str(abs(_whole(node["value"]["value"])))) - own[1], 0), own[1]
    return own


def _from_64_bits(node: Node) -> bool:
    """Return whether a HUGEINT was made of a whole number of at most 64 bits, so that one sum or product of two stays in 128."""
    if node.get("type") == "OPERATOR_CAST":
        return type_of(children_of(node)[0]) in INTEGERS
    if node.get("expression_class") == "BOUND_CONSTANT":
        return _is_null(node) or abs(_whole(node["value"]["value"])) < 2**64
    if node.get("type") == "CASE_EXPR":  # a divisor that is not zero
        branches = [check["then_expr"] for check in node["case_checks"]]
        otherwise = node.get("else_expr")
        return all(map(_from_64_bits, branches)) and (otherwise is None or _is_null(otherwise))
    return False


def _whole(value: Any) -> int:
    """Return a whole number as the plan shows it: one of 128 bits in two halves."""
    return (int(value["upper"]) << 64) + int(value["lower"]) if isinstance(value, dict) else int(value)


def _is_null(node: Node) -> bool:
    if node.get("type") == "OPERATOR_CAST":
        return _is_null(children_of(node)[0])
    return node.get("expression_class") == "BOUND_CONSTANT" and bool(node["value"].get("is_null"))


def _check_cast(catalog: Catalog, node: Node) -> None:
    """Refuse a conversion that is not listed: TRY_CAST by its own list, one that the binder added if a value could make it fail.

    Of a constant too: it is not always done before the query runs, so it might fail only if some row gets there.
    """
    child = children_of(node)[0]
    source, target = type_of(child), type_text(node["return_type"])
    # DuckDB 1 and 2 note it in different places
    if node.get("try_cast") or (node.get("function_data") or {}).get("try_cast"):
        if not try_cast_is_listed(source, target):
            raise UnsupportedQuery(f"CAST of {source} to {target}", "not on the list of what a source may compute")
        return
    if cast_is_safe(source, target):
        return
    # a constant is converted once, and fails for everybody or for nobody: it is tried here
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
        inner = _constant(children_of(node)[0])
        return (f"TRY_CAST({inner[0]} AS {type_text(node['return_type'])})", inner[1]) if inner else None
    if node.get("expression_class") != "BOUND_CONSTANT":
        return None
    value, source = node["value"], type_text(node["value"]["type"])
    if value.get("is_null"):
        return "NULL", ""
    text = str(_whole(value["value"]) if isinstance(value["value"], dict) else value["value"])
    if decimal_width(source):  # serialized without the point
        text = str(Decimal(int(text)).scaleb(-int(value["type"]["type_info"]["scale"]), _DIGITS))
    known = source in ("VARCHAR", "DOUBLE", "FLOAT", "BOOLEAN", *INTEGERS, *WIDE) or decimal_width(source)
    return (f"CAST(?::VARCHAR AS {source})", text) if known else None


def _check_constant(catalog: Catalog, constant: tuple[str, str], target: Node) -> None:
    """Refuse a conversion of a constant that fails, or to a type that the kernel does not know."""
    sql, text = constant
    if sql == "NULL":
        return
    sql_type = type_text(target)
    row: tuple[Any, ...] | None = None
    if family(sql_type) in COMPARABLE or sql_type == "INTERVAL":
        try:
            row = catalog.cursor.execute(f"SELECT TRY_CAST({sql} AS {sql_type}) IS NOT NULL", [text]).fetchone()
        except duckdb.Error:
            row = None
    if not row or not row[0]:
        raise UnsupportedQuery(f"the constant {text!r}", f"it can't be converted to {sql_type}; write one of that type")
