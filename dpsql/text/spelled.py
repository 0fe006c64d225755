"""Spellings of SQL that sqlglot reads otherwise than DuckDB, written as both read them. Nothing else of a text changes.

Privacy: none; the text of a call alone.
"""

from __future__ import annotations

import re

from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from dpsql.text.strict import StrictDuckDB

_INTERVAL = re.compile(
    r"\s*([+-]?)\s*(\d{1,9})\s*(second|minute|hour|day|week|month|quarter|year|sec|min|hr|mon|yr|[smhdwy])s?\s*", re.IGNORECASE
)
_WORDS = re.compile("interval|substring", re.IGNORECASE)
_UNITS = {"sec": "second", "min": "minute", "hr": "hour", "mon": "month", "yr": "year", "s": "second", "m": "minute", "h": "hour",
          "d": "day", "w": "week", "y": "year"}


def plainly(text: str) -> str:
    """Return a text with constant intervals and ``substring(x FROM a FOR b)`` as sqlglot and DuckDB read them alike.

    Examples
    --------
    >>> plainly("SELECT d - INTERVAL '3 months', d + interval '-1 day', substring(x FROM 2 FOR 3), 'INTERVAL ''1 day'''")
    "SELECT d - INTERVAL 3 MONTH, d + INTERVAL (-1) DAY, substring(x , 2 , 3), 'INTERVAL ''1 day'''"
    """
    if not _WORDS.search(text):
        return text
    try:
        tokens = list(StrictDuckDB().tokenize(text))
    except SqlglotError:
        return text
    edits = [*_intervals(tokens), *_substrings(tokens)]
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def interval_parts(text: str) -> tuple[int, str] | None:
    """Return the number and the unit of the text of an interval; None where it has several, or none.

    Examples
    --------
    >>> interval_parts("3 months"), interval_parts("-1 d"), interval_parts("1 year 2 days")
    ((3, 'MONTH'), (-1, 'DAY'), None)
    """
    read = _INTERVAL.fullmatch(text)
    if read is None:
        return None
    sign, number, unit = read.groups()
    return (-int(number) if sign == "-" else int(number)), _UNITS.get(unit.lower(), unit).upper()


def _intervals(tokens: list[Token]) -> list[tuple[int, int, str]]:
    """Return where ``INTERVAL 'n units'`` stands, and what it is."""
    places = []
    for token, constant in zip(tokens, tokens[1:], strict=False):
        if token.token_type != TokenType.INTERVAL or constant.token_type != TokenType.STRING:
            continue
        parts = interval_parts(constant.text)
        if parts is not None:
            amount = f"({parts[0]})" if parts[0] < 0 else str(parts[0])
            places.append((token.start, constant.end + 1, f"INTERVAL {amount} {parts[1]}"))
    return places


def _substrings(tokens: list[Token]) -> list[tuple[int, int, str]]:
    """Return where FROM and FOR stand between the arguments of ``substring``, and the commas that they are."""
    places = []
    for place, token in enumerate(tokens[:-1]):
        if token.text.lower() != "substring" or tokens[place + 1].token_type != TokenType.L_PAREN:
            continue
        depth = 0
        began = False
        for inner in tokens[place + 1 :]:
            depth += (inner.token_type == TokenType.L_PAREN) - (inner.token_type == TokenType.R_PAREN)
            if depth == 0:
                break
            word = "" if inner.token_type in (TokenType.STRING, TokenType.IDENTIFIER) else inner.text.upper()
            if depth == 1 and word in ("FROM", "FOR"):
                # Without FROM a substring begins at the first character.
                first = word == "FROM"
                places.append((inner.start, inner.end + 1, "," if first or began else ", 1,"))
                began = True
    return places
