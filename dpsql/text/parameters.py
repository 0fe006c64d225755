"""Parameters of a text, filled in as literals: ``?`` by place, ``$1`` by number, ``$name`` by name. Texts and comments stay."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from dpsql.errors import ArgumentError
from dpsql.text.relation import literal
from dpsql.text.strict import StrictDuckDB

Params = Sequence[Any] | Mapping[str, Any]


def filled(sql: str, params: Params | None) -> str:
    """Return a text with its parameters as literals of the types of their values.

    Parameters
    ----------
    sql : str
    params : sequence, mapping or None
        Values of ``?`` or ``$1``, ... in order, or of ``$name`` by name: None, bool, int, float, Decimal, str, date, datetime, time
        or UUID.

    Raises
    ------
    ArgumentError
        There are more or fewer values than parameters, or a value is of another type.

    Examples
    --------
    >>> filled("SELECT count(*) FROM t WHERE age > ? AND name <> ? AND note <> '?'", [40, "O'Hara"])
    "SELECT count(*) FROM t WHERE age > 40 AND name <> 'O''Hara' AND note <> '?'"
    >>> filled("SELECT count(*) FROM t WHERE day >= $first", {"first": dt.date(2025, 1, 31)})
    "SELECT count(*) FROM t WHERE day >= DATE '2025-01-31'"
    """
    if params is None:
        return sql
    if isinstance(params, str | bytes) or not isinstance(params, Sequence | Mapping):
        raise ArgumentError("params", params, "a list of values, or a mapping of names to values")
    try:
        places = _places(list(StrictDuckDB().tokenize(sql)))
    except SqlglotError:
        raise ArgumentError("sql", sql[:40], "not understood as SQL") from None
    known = {str(i + 1): value for i, value in enumerate(params)} if isinstance(params, Sequence) else dict(params)
    names = [name for _, _, name in places]
    if sorted(set(names)) != sorted(map(str, known)):
        wants = ", ".join(dict.fromkeys(f"${name}" for name in names)) or "none"
        raise ArgumentError("params", sorted(map(str, known)), f"the text has {wants}: give a value for each, and no other")
    # From the end, so that earlier places stay where they are.
    for start, end, name in reversed(places):
        sql = f"{sql[:start]}{literal_of(name, known[name])}{sql[end:]}"
    return sql


def _places(tokens: list[Token]) -> list[tuple[int, int, str]]:
    """Return where parameters stand, and their names: of ``?`` their number."""
    places: list[tuple[int, int, str]] = []
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        if token.token_type == TokenType.PLACEHOLDER and token.text == "?":
            places.append((token.start, token.end + 1, str(len(places) + 1)))
        elif token.token_type == TokenType.PARAMETER and token.text == "$" and after is not None and after.start == token.end + 1:
            places.append((token.start, after.end + 1, after.text))
    return places


def literal_of(name: str, value: Any) -> str:
    """Return a value as SQL."""
    if value is None:
        return "NULL"
    if hasattr(value, "item") and hasattr(value, "dtype"):  # a scalar of numpy
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or (isinstance(value, Decimal) and value.is_finite()):
        text = str(value) if isinstance(value, int) else f"{value:f}"
        return f"({text})" if value < 0 else text
    if isinstance(value, float):
        return f"CAST({float(value)!r} AS DOUBLE)" if math.isfinite(value) else f"CAST('{value}' AS DOUBLE)"
    if isinstance(value, str) and "\0" not in value:
        return literal(value)
    for kind, word in ((dt.datetime, "TIMESTAMP"), (dt.date, "DATE"), (dt.time, "TIME"), (uuid.UUID, "UUID")):
        if isinstance(value, kind):
            text = value.isoformat(" ") if isinstance(value, dt.datetime) else str(value)
            word = "TIMESTAMPTZ" if isinstance(value, dt.datetime) and value.tzinfo is not None else word
            return f"{word} '{text}'"
    raise ArgumentError("params", {name: type(value).__name__}, "a value is a number, text, date, time, UUID, True, False or None")
