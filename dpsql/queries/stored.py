"""The aggregates of a stored question, read back from their texts. Nothing of the query is needed but what the release holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

from dpsql.queries.asked import Wanted
from dpsql.text import readable


def wanted(question: Mapping[str, Any]) -> list[Wanted]:
    """Return the aggregates of a question, as far as their texts can be read.

    Parameters
    ----------
    question : mapping
        ``aggregates``, ``arguments``, ``conditions``: texts, as `dpsql.queries.asked.Asked.canonical` gives them.

    Examples
    --------
    >>> texts = ['avg("a")', 'count("a") filter "b"']
    >>> held = {"aggregates": texts, "arguments": ['"a"'], "conditions": ['"b"', '("b") AND NOT ("a") IS NULL']}
    >>> [(one.function, one.arguments, one.condition, one.there) for one in wanted(held)]
    [('avg', (0,), None, None), ('count', (0,), 0, 1)]
    """
    arguments, conditions = list(map(str, question["arguments"])), list(map(str, question["conditions"]))
    aggregates = [_one(str(text), arguments, conditions) for text in question["aggregates"]]
    return [aggregate for aggregate in aggregates if aggregate is not None]


def _one(text: str, arguments: Sequence[str], conditions: Sequence[str]) -> Wanted | None:
    parts = readable.parts(text)
    if parts is None:
        return None
    condition = None if not parts.condition else _place(parts.condition, conditions)
    if parts.condition and condition is None:
        return None
    if parts.name == "count" and parts.given:
        counted = _there(parts.given, parts.condition, conditions)
        place = _place(parts.given, arguments)
        positions_counted = () if place is None else (place,)
        return None if counted is None else Wanted("count", positions_counted, condition, counted, (), listed=False, text=text)
    positions = _positions(parts.given, arguments)
    if positions is None:
        return None
    return Wanted(parts.name, positions, condition, None, parts.quantiles, parts.listed, text)


def _place(text: str, texts: Sequence[str]) -> int | None:
    return texts.index(text) if text in texts else None


def _there(argument: str, condition: str, conditions: Sequence[str]) -> int | None:
    """Return the condition that says whether an argument counts: it is not NULL, and its row passes the filter."""
    end = f"NOT ({argument}) IS NULL"
    return _place(f"({condition}) AND {end}" if condition else end, conditions)


def _positions(text: str, arguments: Sequence[str]) -> tuple[int, ...] | None:
    """Return which arguments stand between the brackets."""
    if not text:
        return ()
    if (place := _place(text, arguments)) is not None:
        return (place,)
    pairs = [(i, i) for i in range(len(arguments))] + list(permutations(range(len(arguments)), 2))
    return next((pair for pair in pairs if f"{arguments[pair[0]]}, {arguments[pair[1]]}" == text), None)
