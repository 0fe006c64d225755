"""Errors of calls about views: what they say of a view's text is not for an analyst, who sees its name and columns alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import sqlglot
from sqlglot import exp

from dpsql.serve.gate.view import View
from dpsql.text.names import fold

CLOSED = (
    "the view cannot be asked about like this: its text, which only the custodian sees, uses something that is not granted or not "
    "answered; nothing was charged for it"
)
_WORD = re.compile(r"\w+")
_PLACE = re.compile(r" ?\(line \d+, column \d+\)")


def worded(told: str, statement: str, view: View) -> str:
    """Return an error as an analyst may read it, where her statement names a view: no word of a view's text, and no place in it.

    Parameters
    ----------
    told : str
        The error.
    statement : str
        What she has said; its words are hers.
    view : View
        What she may see; so are names of that.
    """
    said = words([statement])
    shown = view.shown()
    if not any(words([entry.name]) <= said for entry in shown if entry.is_view and entry.reads):
        return told
    columns = [(entry, name, kind) for entry in shown for name, kind in view.columns(entry)]
    hers = said | words(part for entry, name, kind in columns for part in (entry.schema, entry.name, name, kind))
    hidden = {word for text in view.texts() for word in _names(text)} - hers
    line = _PLACE.sub("", told)
    return CLOSED if hidden & words([line]) else line


def words(texts: Iterable[str]) -> set[str]:
    """Return the words of texts, as names are compared."""
    return {fold(word) for text in texts for word in _WORD.findall(text)}


def _names(text: str) -> set[str]:
    """Return the words of all names and values in the text of a view; all of its words, where it cannot be read."""
    try:
        tree = sqlglot.parse_one(text, read="duckdb")
    except (sqlglot.errors.SqlglotError, RecursionError):
        return words([text])
    parts: Sequence[str] = [str(node.this) for node in tree.find_all(exp.Identifier, exp.Literal)]
    return words(parts)
