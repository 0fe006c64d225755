"""How deeply a text nests, by DuckDB's own tokens, before its parser sees it.

DuckDB 2.0 reads a text that is wrong after many open brackets or signs in a time that grows with their square, or faster, and
cannot be interrupted meanwhile: 100,000 of them would take hours. It reads no expression that is deeper than 1,000 anyway. The
tokens of DuckDB 1 take as long where plus and minus stand side by side: it looks for an operator that may end so, and tries every
shorter one.
"""

from __future__ import annotations

import re
from typing import Final

import duckdb

DEEPEST: Final = 200
"""Brackets in each other, and signs in a row."""
_SIGNS: Final = re.compile(r"(?:\+|-(?!-)){65}")  # side by side, in a literal too; -- begins a comment


def is_too_deep(text: str) -> bool:
    """Return whether more brackets stand in each other, or more signs in a row, than anybody writes.

    Examples
    --------
    >>> is_too_deep("SELECT " + "(" * 201), is_too_deep("SELECT " + "- " * 201 + "1"), is_too_deep("SELECT '" + "(" * 201 + "'")
    (True, True, False)
    >>> is_too_deep("SELECT " + "-+" * 4_000), is_too_deep("SELECT 1 " + "-" * 300)
    (True, False)
    """
    if len(text) <= DEEPEST:
        return False
    if _SIGNS.search(text):
        return True
    try:
        tokens = duckdb.tokenize(text)
    except duckdb.Error:  # as its parser will say, at once
        return False
    encoded = text.encode()  # places are those of bytes
    depth = row = 0
    for place, kind in tokens:
        if kind == duckdb.token_type.operator:
            sign = encoded[place : place + 1]
            depth += (sign in b"([{") - (sign in b")]}")
            row += 1
        elif kind != duckdb.token_type.comment:
            row = 0
        if max(depth, row) > DEEPEST:
            return True
    return False
