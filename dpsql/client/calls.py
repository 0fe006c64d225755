"""The text of a call: arguments of a Python function as those of the SQL macro of the same name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from dpsql.calls.registry import declaration
from dpsql.errors import ArgumentError
from dpsql.text.relation import literal


def call(name: str, values: Mapping[str, Any]) -> str:
    """Return the statement of a call.

    Parameters
    ----------
    name : str
        Of the call, without ``dp_``.
    values : mapping of str to object
        By the names of the declaration; those that have their default's value are left out.

    Examples
    --------
    >>> call("query", {"sql": "SELECT count(*) FROM t WHERE x = 'a'", "epsilon": 0.1, "bounds": {"x": [0, 5]}, "confidence": None})
    "FROM dp_query('SELECT count(*) FROM t WHERE x = ''a''', epsilon := 0.1, bounds := {'x': [0, 5]})"
    """
    arguments = []
    for parameter in declaration(name).parameters():
        value = values.get(parameter.name)
        if parameter.required:
            arguments.append(written(parameter.name, value))
        elif value is not None and value != parameter.default:
            arguments.append(f"{parameter.also or parameter.name} := {written(parameter.name, value)}")
    return f"FROM dp_{name}({', '.join(arguments)})"


def written(name: str, value: Any) -> str:
    """Return a value of an argument as SQL.

    Raises
    ------
    ArgumentError
        It is none that SQL could send.
    """
    if hasattr(value, "tolist"):  # of numpy
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str | Decimal):
        return literal(value)
    # SQL has no word for infinity or NaN: as a text they are cast
    if isinstance(value, float):
        return repr(value) if abs(value) < float("inf") else literal(value)
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return "{" + ", ".join(f"{literal(key)}: {written(name, one)}" for key, one in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(written(name, one) for one in value) + "]"
    if hasattr(value, "isoformat"):
        return literal(value.isoformat())
    raise ArgumentError(name, value, "a number, a text, True, False, a date, a list or a mapping of names")
