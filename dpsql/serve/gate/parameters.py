"""Values of parameters, put into the tree of a statement as literals: none of them becomes a part of its text."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Any

import duckdb

from dpsql.errors import ArgumentError
from dpsql.serve.gate.reasons import refuse
from dpsql.serve.gate.walk import parsed
from dpsql.text.parameters import literal_of

Node = dict[str, Any]
MOST = 1_000
_DIGITS = 15


def fill(cursor: duckdb.DuckDBPyConnection, tree: Node, values: Sequence[Any]) -> None:
    """Put the values of ``?``, ``$1``, ... in their places, as typed literals are read: so both are one question.

    Parameters
    ----------
    tree : dict
        Of one statement; it is changed.

    Raises
    ------
    Refusal
        There are others than the statement has, or one of a type that has no literal.
    """
    statement = tree["statements"][0]
    places = _places(statement["node"])
    if not _are_numbers(places, len(values)):
        refuse("parameter")
    for number, value in enumerate(values, 1):
        constant = _made(cursor, value)
        for node in places[str(number)]:
            alias = node.get("alias", "")
            node.clear()
            node.update(constant, alias=alias)
    statement["named_param_map"] = []


def count(tree: Node) -> int:
    """Return how many values a statement takes.

    Raises
    ------
    Refusal
        Its parameters have names, or there are too many.
    """
    places = _places(tree["statements"][0]["node"])
    if not _are_numbers(places, len(places)):
        refuse("parameter")
    return len(places)


def _places(tree: Node) -> dict[str, list[Node]]:
    """Return the nodes that stand for values, by what they are called."""
    places: dict[str, list[Node]] = {}
    rest: list[Any] = [tree]
    while rest:
        node = rest.pop()
        if isinstance(node, list):
            rest.extend(node)
        elif isinstance(node, dict):
            if node.get("class") == "PARAMETER":
                places.setdefault(str(node.get("identifier")), []).append(node)
            else:
                rest.extend(node.values())
    return places


def _are_numbers(places: Collection[str], number: int) -> bool:
    return set(places) == {str(place) for place in range(1, number + 1)} and number <= MOST


def _made(cursor: duckdb.DuckDBPyConnection, value: Any) -> Node:
    """Return the tree of a value, read by DuckDB's parser from a text of its own that holds nothing else."""
    try:
        text = literal_of("parameter", _canonical(value))
    except ArgumentError:
        refuse("value")
    tree = parsed(cursor, f"SELECT {text}")
    items: list[Node] = tree["statements"][0]["node"]["select_list"]
    # a value may become one literal, and nothing that a text could hide in it
    if len(items) != 1 or not _is_literal(items[0]):
        refuse("value")
    return items[0]


def _canonical(value: Any) -> Any:
    """Return a number with a fraction as people write it: a float and a decimal of one value are one question, 30.50 is 30.5.

    A float of at most 15 digits is the double nearest to that decimal, which DuckDB finds again where it compares one with doubles;
    of others, and of very large and small ones, it stays a float.
    """
    if isinstance(value, float) and math.isfinite(value):
        exact = Decimal(repr(float(value)))
        _, digits, exponent = exact.normalize().as_tuple()
        # a float with more digits is no decimal that somebody wrote
        if len(digits) > _DIGITS or not -_DIGITS <= int(exponent) <= 0:
            return value
        value = exact
    if isinstance(value, Decimal) and value.is_finite() and int(value.as_tuple().exponent) < 0:
        whole, _, fraction = f"{value:f}".partition(".")
        return Decimal(f"{whole}.{fraction.rstrip('0') or '0'}")
    return value


def _is_literal(node: Node) -> bool:
    inner = node.get("child") or {} if node.get("class") == "CAST" else node
    return bool(inner.get("class") == "CONSTANT")
