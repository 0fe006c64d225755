"""Checks of the arguments that SQL and Python callers give: clear errors before anything is charged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpsql.errors import ArgumentError, OnlyType
from dpsql.text.names import fold

MOST_CROSSED = 3
MOST_EPSILON = 1000


def _scalar(value: object) -> object:
    """Return what an error may show where a single value is wanted: of anything else (a list of rows?) its type."""
    return value if value is None or isinstance(value, (str, bool, int, float)) else OnlyType(value)


def text(arguments: Mapping[str, Any], name: str) -> str:
    """Return a required, non-empty text."""
    value = arguments.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ArgumentError(name, _scalar(value), "a non-empty text is required")
    if not _is_text(value):
        raise ArgumentError(name, value, "is no text that can be stored: it has a NUL character, or half of one beyond U+FFFF")
    return value


def _is_text(value: str) -> bool:
    return "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _is_finite(value: float) -> bool:
    """Return whether a number is finite, and an integer one that a float can hold."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def choice(arguments: Mapping[str, Any], name: str, allowed: Sequence[str]) -> str:
    """Return a text that is one of ``allowed``."""
    value = arguments.get(name)
    if not isinstance(value, str) or value not in allowed:
        raise ArgumentError(name, _scalar(value), f"must be one of {', '.join(map(repr, allowed))}")
    return str(value)


def epsilon(arguments: Mapping[str, Any]) -> float:
    """Return the required privacy parameter epsilon, in (0, 1000]."""
    value = number(arguments, "epsilon")
    if value is None or not 0 < value <= MOST_EPSILON:
        raise ArgumentError(
            "epsilon",
            arguments.get("epsilon"),
            f"a number above 0 (and at most {MOST_EPSILON}) is required; smaller protects better, e.g. epsilon := 1.0",
        )
    return value


def delta(arguments: Mapping[str, Any]) -> float | None:
    """Return the privacy parameter delta in [0, 1), or None if it was not given."""
    value = number(arguments, "delta")
    if value is None:
        return None
    if not 0 <= value < 1 or 0 < value < 1e-30:
        raise ArgumentError("delta", value, "must be 0, or from 1e-30 to below 1; far below 1 / (number of people), e.g. 1e-9")
    return value


def number(arguments: Mapping[str, Any], name: str) -> float | None:
    """Return a finite number, or None if it was not given."""
    value = arguments.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not _is_finite(value):
        raise ArgumentError(name, _scalar(value), "a finite number is required")
    return float(value)


def integer(arguments: Mapping[str, Any], name: str, low: int, high: int) -> int | None:
    """Return an integer in [low, high], or None if it was not given."""
    value = arguments.get(name)
    if value is None:
        return None
    whole = isinstance(value, (int, float)) and not isinstance(value, bool) and _is_finite(value) and int(value) == value
    if not whole or not low <= value <= high:
        shown = high if high < 10**19 else f"{high:.0e}"
        raise ArgumentError(name, _scalar(value), f"a whole number from {low} to {shown} is required")
    return int(value)


def boolean(arguments: Mapping[str, Any], name: str) -> bool | None:
    """Return true or false, or None if it was not given."""
    value = arguments.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise ArgumentError(name, _scalar(value), "true or false is required")


def names(arguments: Mapping[str, Any], name: str) -> list[str] | None:
    """Return a non-empty list of distinct texts, or None if it was not given."""
    value = arguments.get(name)
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(item, str) for item in value) or not value:
        raise ArgumentError(name, value, "a non-empty list of names is required, e.g. ['sex', 'race']")
    if not all(map(_is_text, value)):
        raise ArgumentError(name, value, "a name has a NUL character, or half of one beyond U+FFFF")
    if len({fold(item) for item in value}) < len(value):
        raise ArgumentError(name, value, "a name is repeated")
    return list(value)


def usual_k(named: Sequence[str] | None) -> int:
    """Return the k of a dp_marginals call without one: the table of the columns that it names, else all one-way tables.

    Examples
    --------
    >>> usual_k(["ward", "month"]), usual_k(None), usual_k(["a", "b", "c", "d"])
    (2, 1, 1)
    """
    return len(named) if named is not None and len(named) <= MOST_CROSSED else 1


def options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a method as a dict."""
    value = arguments.get("options")
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ArgumentError("options", value, "a struct is required, e.g. {'output': 'one_hot'}")
    for key, item in value.items():
        if not _is_plain(item):
            expected = "a number, a text, true, false, or a list of those is required"
            raise ArgumentError(f"options[{key[:80]!r}]", OnlyType(item), expected)
    return dict(value)


def _is_plain(value: object) -> bool:
    """Return whether a value is one that SQL could send, and none that would take long to write."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, str):
        return _is_text(value)
    return value is None or isinstance(value, bool) or (isinstance(value, (int, float)) and _is_finite(value))
