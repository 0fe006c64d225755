"""A call as the text of a statement, and what a server's error says. Nothing in here reads or sends anything."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dpsql.calls.registry import declaration
from dpsql.errors import ArgumentError
from dpsql.text.relation import identifier, literal

_KIND = re.compile(r"(?:[A-Z][A-Za-z ]*(?:Error|Exception)(?: Error)?: )+")
_UDF = re.compile(r"Python exception occurred while executing the UDF: (?:[A-Za-z_.]+: )?")


def statement(name: str, given: Mapping[str, Any]) -> str:
    """Return the statement that asks for a call; arguments that say what their defaults say are left out.

    Examples
    --------
    >>> statement("query", {"sql": "SELECT count(*) FROM t", "epsilon": 0.1, "mechanism": "gaussian", "options": None})
    "FROM dp_query('SELECT count(*) FROM t', epsilon := 0.1)"
    """
    listed = []
    for parameter in declaration(name).parameters():
        value = given.get(parameter.name)
        if parameter.required:
            listed.append(_value(parameter.name, value))
        elif value is not None and value != parameter.default:
            listed.append(f"{parameter.also or parameter.name} := {_value(parameter.name, value)}")
    return f"FROM dp_{name}({', '.join(listed)})"


def _value(name: str, value: Any) -> str:
    """Return a value as a constant of SQL."""
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else literal(value)
    if value is None or isinstance(value, (bool, int, str)):
        return literal(value)
    if isinstance(value, Mapping):
        if not value:
            return "NULL"
        return "{" + ", ".join(f"{identifier(str(key))}: {_value(name, item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(_value(name, item) for item in value) + "]"
    if hasattr(value, "tolist"):
        return _value(name, value.tolist())
    raise ArgumentError(name, value, "a text, number, truth value, list or dict is required over the wire")


def told(error: object) -> str:
    r"""Return what a server has said, without DuckDB's words around it.

    Examples
    --------
    >>> told("Invalid Input Error: no grant\n\nLINE 1: FROM s.query(...)\n   ^")
    'no grant'
    """
    text = str(error).partition("\n")[0]
    return _UDF.sub("", _KIND.sub("", text, count=1), count=1).strip() or "the server gave no reason"
