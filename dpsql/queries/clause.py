"""The clause ``SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (...)`` of GoogleSQL, understood so that queries can be moved over.

The clause is taken out of the text, and what it says becomes arguments of the call. What has no meaning here is refused, never
ignored: an option that was thought to protect must not be lost silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot.tokens import Token, TokenType

from dpsql.errors import ArgumentError
from dpsql.source.model import fold
from dpsql.source.parse import tokens

_CLAUSES = ("differential_privacy", "anonymization")
_NAMES = {
    "epsilon": "epsilon", "delta": "delta", "max_groups_contributed": "max_groups", "kappa": "max_groups",
    "max_rows_contributed": "max_rows", "min_privacy_units_per_group": "min_units",
    "privacy_unit_column": "privacy_unit", "group_selection_strategy": "groups",
}
_STRATEGIES = {"public_groups": "public", "laplace_threshold": "private"}


def cut(text: str) -> tuple[str, dict[str, Any]]:
    """Return the text without the clause, blanks in its place, and what its options say.

    Raises
    ------
    ArgumentError
        An option is not known, has no such value, or two clauses of one text differ.

    Examples
    --------
    >>> cut("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=2, max_groups_contributed=3) count(*) FROM t")[1]
    {'epsilon': 2.0, 'max_groups': 3}
    >>> cut("WITH t AS (SELECT 1) FROM t")
    ('WITH t AS (SELECT 1) FROM t', {})
    """
    options: dict[str, Any] = {}
    read = tokens(text)
    out, at = list(text), 0
    while at < len(read) - 1:
        if fold(read[at].text) != "with" or fold(read[at + 1].text) not in _CLAUSES or (at and fold(read[at - 1].text) != "select"):
            at += 1
            continue
        last = at + 1
        if last + 2 < len(read) and fold(read[last + 1].text) == "options" and read[last + 2].text == "(":
            end = _closing(read, last + 2)
            for name, value in _options(read[last + 3 : end]).items():
                if options.setdefault(name, value) != value:
                    raise ArgumentError("sql", f"{name} = {value}", f"another clause of the text says {options[name]}; say it once")
            last = end
        for place in range(read[at].start, read[last].end + 1):
            out[place] = out[place] if out[place] == "\n" else " "
        at = last + 1
    return with_zeros("".join(out)), options


def with_zeros(text: str) -> str:
    """Return the text with a zero before each number that begins with its point: sqlglot and DuckDB give ``.5`` other types.

    Examples
    --------
    >>> with_zeros("SELECT [.25, a.b, 1.5] FROM t")
    'SELECT [0.25, a.b, 1.5] FROM t'
    """
    read = tokens(text)
    places = [
        token.start
        for before, token, after in zip([None, *read], read, [*read[1:], None], strict=False)
        if token.text == "." and after is not None and after.token_type == TokenType.NUMBER and after.start == token.end + 1
        and (before is None or before.end + 1 < token.start or before.text in ("(", "[", ",", "+", "-", "*", "/"))
    ]
    for place in reversed(places):
        text = f"{text[:place]}0{text[place:]}"
    return text


def _closing(read: Sequence[Token], first: int) -> int:
    depth = 0
    for place in range(first, len(read)):
        depth += {"(": 1, ")": -1}.get(read[place].text, 0)
        if depth == 0:
            return place
    raise ArgumentError("sql", "OPTIONS (", "the bracket is not closed")


def _options(read: Sequence[Token]) -> dict[str, Any]:
    """Return the options between the brackets."""
    options: dict[str, Any] = {}
    part: list[Token] = []
    depth = 0
    for token in [*read, None]:
        depth += 0 if token is None else {"(": 1, ")": -1}.get(token.text, 0)
        if token is not None and (token.text != "," or depth):
            part.append(token)
        elif part:
            name, value = _option(part)
            if name is not None:
                options[name] = value
            part = []
    return options


def _option(part: Sequence[Token]) -> tuple[str | None, Any]:
    name, text = fold(part[0].text), "".join(token.text for token in part[2:])
    if len(part) < 3 or part[1].text != "=":
        raise ArgumentError("sql", name, "an option is name = value")
    if name not in _NAMES:
        raise ArgumentError("sql", f"OPTIONS ({name} = ...)", f"not known here; known are {', '.join(_NAMES)}. Take it out")
    argument = _NAMES[name]
    if fold(text) == "null":
        return None, None
    if argument == "groups":
        if fold(text) not in _STRATEGIES:
            raise ArgumentError("sql", f"{name} = {text}", f"must be one of {', '.join(_STRATEGIES)}")
        return argument, _STRATEGIES[fold(text)]
    if argument == "privacy_unit":
        return argument, fold(text)
    try:
        return argument, float(text) if argument in ("epsilon", "delta") else int(text)
    except ValueError:
        raise ArgumentError("sql", f"{name} = {text}", "must be a number") from None
