"""The kernel: types, operators and conversions that a source may compute with; its functions are :mod:`dpsql.algebra.functions`.

Data, and nothing else decides: the rewriting (:mod:`dpsql.source.expressions`) brings arguments into these forms or refuses them,
the check of the bound plan (:mod:`dpsql.source.binder`) accepts nothing that is not listed here, and the generator of the tests
makes expressions from the same tables. *Total* means that no value of the listed types makes it fail, under any setting of the
database, once the arguments are guarded as their kind says.

Types are whole types, as DuckDB describes them: children, collation and alias included. ``INTEGER[]`` is not ``DATE[]``, JSON and
VARCHAR are two types, and so are a VARCHAR with a collation and one without.
"""

from __future__ import annotations

import re

from dpsql.algebra.functions import FUNCTIONS, LISTED

INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
WIDE = ("UBIGINT", "HUGEINT", "UHUGEINT")
FLOATS = ("FLOAT", "DOUBLE")
TEMPORAL = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
TEXT = "VARCHAR"
DECIMAL = "DECIMAL"
"""In a list of types: every DECIMAL(w, s)."""
ENUM = "ENUM"
"""In a list of types: every ENUM."""

COMPARABLE = (
    "BOOLEAN", *INTEGERS, *WIDE, *FLOATS, DECIMAL, TEXT, *TEMPORAL, "TIME", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "UUID",
    "BLOB", ENUM,
)
"""Types whose values compare with values of exactly the same type, never failing. Nested types, JSON, BIT, VARIANT, BIGNUM,
INTERVAL and TIME WITH TIME ZONE are not: their comparisons cast, or equal values need not be the same."""

NUMBERS = (*INTEGERS, *WIDE, *FLOATS, DECIMAL)
TO_TEXT = ("BOOLEAN", *INTEGERS, *WIDE, *FLOATS, DECIMAL, "DATE", "TIME", "TIMESTAMP", "UUID", ENUM)
"""Types with a text that never fails and is short."""

LONGEST_TEXT, SHORTEST_CUT = 10_000, 250
"""Characters of a text that a source computes with: longer ones are cut where they are copied; where a source copies many, at half
of it, or less, down to `SHORTEST_CUT`."""
MOST_TEXT = 1 << 16
"""Characters that all texts which a source computes for one row may have together, counted by their bounds. A vector of rows, 2,048
of them, may all be one person's: each thread holds at most 512 MB of these texts then, and as much of the beginnings that they
are made of (a character has up to four bytes)."""
LIST_OF_PARTS = 5
"""What the list of a text's parts takes, in texts: 16 bytes for each part, and the parts."""
MOST_GROWTH = 100
"""A replacement may be this many characters long, for each character that it replaces."""
LARGEST_LITERAL = 1_000_000
"""Largest whole number that a function takes as a constant."""

KINDS: dict[str, tuple[str, ...]] = {
    "x": (TEXT,),  # a text that is copied: cut to LONGEST_TEXT
    "w": (TEXT,),  # a text that is only looked at
    "s": (TEXT,),  # a constant text
    "n": ("INTEGER", "BIGINT"),  # a constant from 0 to LARGEST_LITERAL
    "i": ("INTEGER", "BIGINT"),  # a constant of either sign
    "d": ("DOUBLE",),
    "p": ("DOUBLE",),  # above 0
    "q": ("DOUBLE",),  # 0 or more
    "u": ("DOUBLE",),  # from -1 to 1
    "f": ("DOUBLE",),  # finite
    "m": (*FLOATS, DECIMAL, *INTEGERS),
    "a": (*FLOATS, DECIMAL, *INTEGERS, *WIDE),
    "h": (*FLOATS, DECIMAL, "HUGEINT"),
    "c": COMPARABLE,  # all of them of one type
    "t": TEMPORAL,  # within 100,000 years, or infinite
    "v": (*TEMPORAL, "TIME"),  # a moment as above, or a time of day
    "z": ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE"),  # a moment as above
    "b": (*FLOATS, *TEMPORAL),
    "l": ("LIST",),  # a list of a comparable type
    "k": COMPARABLE,  # of the list's own type
    "y": ("LIST",),  # any list
    "r": ("STRUCT",),
}
"""Kind of argument -> the types that it may have in the bound plan."""

CONSTANTS = "sni"


WRITTEN_OUT = frozenset(name for name, one in FUNCTIONS.items() if one.syntax is not None)
BOUND = {name: one for name, one in LISTED.items() if one.by in ("text", "plan") and name not in WRITTEN_OUT}
"""Functions that may occur in the plan which DuckDB's binder makes of the generated SQL; arithmetic is in `ARITHMETIC`, and
``decode`` is there for a text that was just encoded."""

WIDE_ARITHMETIC = ("+", "-", "*", "//", "%")
"""Of whole numbers, each brought from at most 64 bits to HUGEINT before: no sum or product leaves 128 bits."""
FLOAT_ARITHMETIC = ("+", "-", "*", "/", "%", "//")
DECIMAL_ARITHMETIC = ("+", "-", "*")
"""Where the type of the result holds every result, see `decimal_result`."""

ALWAYS_CHECKED = frozenset(name for name, one in LISTED.items() if one.always)
"""Functions that syntax calls without naming them, or that every source may get: never to be overloaded or shadowed by a user's."""
LOCAL_FUNCTIONS = {name: one for name, one in LISTED.items() if one.by == "unit"}
"""Functions that generated SQL calls where rows of a privacy unit are combined (:mod:`dpsql.source.aggregates`); no user may."""
LOCAL_CHECKED = frozenset(LOCAL_FUNCTIONS)

_NAMED = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_DIGITS = {"TINYINT": 3, "UTINYINT": 3, "SMALLINT": 5, "USMALLINT": 5, "INTEGER": 10, "UINTEGER": 10, "BIGINT": 19, "UBIGINT": 20}
_WIDER = {
    "TINYINT": ("SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
    "SMALLINT": ("INTEGER", "BIGINT", "HUGEINT"),
    "INTEGER": ("BIGINT", "HUGEINT"),
    "BIGINT": ("HUGEINT",),
    "UTINYINT": ("SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
    "USMALLINT": ("INTEGER", "BIGINT", "HUGEINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
    "UINTEGER": ("BIGINT", "HUGEINT", "UBIGINT", "UHUGEINT"),
    "UBIGINT": ("HUGEINT", "UHUGEINT"),
}

TRY_CASTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((*INTEGERS, *WIDE, *FLOATS, DECIMAL, "BOOLEAN"), ("BOOLEAN", *NUMBERS, TEXT)),
    TEXT: ("BOOLEAN", *NUMBERS, TEXT, "DATE", "TIME", "TIMESTAMP", "UUID", ENUM),
    ENUM: (TEXT,),
    "UUID": (TEXT,),
    "TIME": (TEXT, "TIME"),
    **dict.fromkeys(TEMPORAL, (*TEMPORAL, TEXT)),  # within 100,000 years, or infinite
}
"""Type -> what TRY_CAST may make of it: what cannot be converted is NULL."""


def decimal_width(sql_type: str) -> int | None:
    """Return the width of a DECIMAL type, None for other types.

    Examples
    --------
    >>> decimal_width("DECIMAL(12,2)"), decimal_width("DOUBLE")
    (12, None)
    """
    return decimal_size(sql_type)[0]


def decimal_size(sql_type: str) -> tuple[int | None, int]:
    """Return the width and scale of a DECIMAL type, None and 0 for other types."""
    match = _NAMED.fullmatch(sql_type)
    return (int(match[1]), int(match[2])) if match else (None, 0)


def family(sql_type: str) -> str:
    """Return how a type stands in the lists: a DECIMAL or ENUM without its arguments, LIST and STRUCT for nested ones.

    Examples
    --------
    >>> family("DECIMAL(4,1)"), family("ENUM('a', 'b')"), family("DATE[]"), family("STRUCT(a INTEGER)[]"), family("INTEGER[3]")
    ('DECIMAL', 'ENUM', 'LIST', 'LIST', 'INTEGER[3]')
    """
    if sql_type.endswith("[]"):
        return "LIST"
    if sql_type.endswith(")"):
        head = sql_type.split("(", 1)[0]
        return head if head in (DECIMAL, ENUM, "STRUCT") else sql_type
    return sql_type


def is_number(sql_type: str) -> bool:
    """Return whether arithmetic is defined on the type."""
    return family(sql_type) in NUMBERS


def cast_is_safe(source: str, target: str) -> bool:
    """Return whether a conversion that the binder adds can never raise.

    Parameters
    ----------
    source, target : str
        Whole types, as DuckDB spells them.

    Examples
    --------
    >>> cast_is_safe("INTEGER", "BIGINT"), cast_is_safe("BIGINT", "INTEGER"), cast_is_safe("VARCHAR", "INTEGER")
    (True, False, False)
    >>> cast_is_safe("BOOLEAN", "INTEGER"), cast_is_safe("VARCHAR", "BOOLEAN"), cast_is_safe("VARCHAR", "JSON")
    (True, False, False)
    >>> cast_is_safe("INTEGER", "DECIMAL(11,1)"), cast_is_safe("INTEGER", "DECIMAL(10,1)"), cast_is_safe("INTEGER[]", "DATE[]")
    (True, False, False)
    """
    if source == target or source == "NULL" or target in _WIDER.get(source, ()):
        return True
    width, scale = decimal_size(source)
    if target == "DOUBLE":
        return is_number(source)
    if target == "FLOAT":
        return source in INTEGERS or width is not None
    if target == "BOOLEAN":
        return source in INTEGERS
    if source == "BOOLEAN" and target in INTEGERS:
        return True
    if target == TEXT:
        return family(source) in TO_TEXT
    to_width, to_scale = decimal_size(target)
    if to_width is None:
        return False
    if source in _DIGITS:
        return to_width - to_scale >= _DIGITS[source]
    return width is not None and to_scale >= scale and to_width - to_scale >= width - scale


def digits(sql_type: str) -> tuple[int, int] | None:
    """Return how many digits before and after the point a number of this type has at most; None for other types.

    Examples
    --------
    >>> digits("DECIMAL(12,2)"), digits("INTEGER"), digits("DOUBLE")
    ((10, 2), (10, 0), None)
    """
    width, scale = decimal_size(sql_type)
    if width is not None:
        return width - scale, scale
    return (_DIGITS[sql_type], 0) if sql_type in _DIGITS else None


def decimal_result(symbol: str, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    """Return the digits before and after the point that hold every result of an operator of `DECIMAL_ARITHMETIC`.

    DuckDB's own type for a result may be narrower: it keeps 18 digits where both sides fit into 64 bits, and raises beyond.

    Examples
    --------
    >>> decimal_result("+", (10, 2), (3, 0)), decimal_result("*", (18, 0), (2, 1))
    ((11, 2), (20, 1))
    """
    if symbol == "*":
        return left[0] + right[0], left[1] + right[1]
    return max(left[0], right[0]) + 1, max(left[1], right[1])


def try_cast_is_listed(source: str, target: str) -> bool:
    """Return whether TRY_CAST between these whole types is on the list.

    Examples
    --------
    >>> try_cast_is_listed("VARCHAR", "DATE"), try_cast_is_listed("JSON", "VARCHAR"), try_cast_is_listed("BLOB", "VARCHAR")
    (True, False, False)
    """
    return source == "NULL" or family(target) in TRY_CASTS.get(family(source), ())
