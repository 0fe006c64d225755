"""The public universe that the values of a column may come from, where nobody can list it: words, their tuples, a pattern."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from dpsql.calls import arguments
from dpsql.domains import encoding, sqltypes
from dpsql.domains.declare import category_text
from dpsql.errors import ArgumentError
from dpsql.mechanisms import words
from dpsql.mechanisms.pattern import Pattern
from dpsql.protected import public
from dpsql.protected.source import ProtectedSource
from dpsql.session.instance import Context
from dpsql.source.analysis import OutputColumn

PATTERN = "pattern:"
MAX_WORDS = 5_000_000
MAX_SIZE = 10**300
_CAST = "cast it to VARCHAR in a view, or leave it out"
_EXPECTED = "a public table of words, 'table.column', a list of texts, or 'pattern:[A-Z]{2}[0-9]{4}' is required"


class Resolved:
    """A universe and what identifies it.

    Attributes
    ----------
    members : words.Universe
    size : int
        Number of members.
    fingerprint : str
        SHA-256 of everything that decides which texts are members.
    note : str
        What the members are, for ``dp_plan``.
    """

    def __init__(self, members: words.Universe, description: Any, note: str) -> None:
        self.note = note
        self.members = members
        self.size = members.size
        self.fingerprint = hashlib.sha256(json.dumps(description, ensure_ascii=False, sort_keys=True).encode()).hexdigest()


def resolve(context: Context, protected: ProtectedSource, column: OutputColumn, options: Mapping[str, Any]) -> Resolved:
    """Return the universe that ``domain``, ``domain_size`` and ``separator`` describe.

    The declared categories of the column, if it has some, are members too; the rest comes from the generator, in its order,
    until there are ``domain_size`` of them. Where that is more than a list has words, pairs (triples, ...) of words are meant.

    Raises
    ------
    ArgumentError
        There is no such public table, the list is empty, or the generator has fewer members than ``domain_size``.

    Privacy
    -------
    Public tables and declarations alone; no protected row is read.
    """
    size = arguments.integer(options, "domain_size", 1, MAX_SIZE)
    separator = options.get("separator", "-")
    if not isinstance(separator, str):
        raise ArgumentError("separator", separator, "a text is required, e.g. '-' between the words of a pair")
    taken = options.get("domain")
    declared = _declared(protected, column)
    is_text = sqltypes.parse(column.sql_type).family == "text"
    if isinstance(taken, str) and taken.startswith(PATTERN):
        pattern = taken.removeprefix(PATTERN)
        if not is_text:
            raise ArgumentError("domain", taken, f"a pattern is for text, column {column.name!r} is {column.sql_type}; {_CAST}")
        if Pattern(pattern).size > MAX_SIZE and size is None:
            raise ArgumentError("domain", taken, "has more than 10^300 members; give a shorter pattern, or domain_size")
        universe = words.Universe(declared, Pattern(pattern), size)
        return Resolved(universe, [taken, declared, size], f"the universe: texts like {pattern}")
    listed = _words(context, taken)
    if not is_text:
        if size is not None and size > len(listed) + len(declared):
            expected = f"tuples of words are text, column {column.name!r} is {column.sql_type}; {_CAST}"
            raise ArgumentError("domain_size", size, expected)
        listed = encoding.canonical_categories(context.cursor, column.sql_type, listed)
    said = [hashlib.sha256(json.dumps(listed).encode()).hexdigest(), len(listed)]
    members = words.from_list(listed, size, separator, declared)
    kind = "the words of the list"
    if members.size > len(listed) + len(declared):
        kind = f"{members.size} tuples of {len(listed)} words joined by {separator!r} (single words are not members)"
    own = f"{len(declared)} declared categories and " if declared else ""
    return Resolved(members, [said, declared, size, separator], f"the universe: {own}{kind}")


def _words(context: Context, taken: object) -> list[str]:
    if isinstance(taken, str) and taken.strip():
        listed = public.table_values(context, "domain", taken, MAX_WORDS)
    elif isinstance(taken, Sequence) and not isinstance(taken, str) and all(isinstance(item, (str, int, float)) for item in taken):
        listed = list(dict.fromkeys(category_text(item) for item in taken))
    else:
        raise ArgumentError("domain", taken, _EXPECTED)
    if not 0 < len(listed) <= MAX_WORDS:
        raise ArgumentError("domain", str(taken)[:80], f"holds {len(listed)} words; from 1 to {MAX_WORDS} are possible")
    return listed


def _declared(protected: ProtectedSource, column: OutputColumn) -> list[str]:
    """Return the declared categories of the column; none where it has no list."""
    for attribute in protected.attributes()[0].attributes:
        if attribute.name == column.name and attribute.kind == "categorical":
            return list(attribute.categories)
    return []
