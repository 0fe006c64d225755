"""The kernel: every function, operator and conversion that a source may compute, with the exact types for which it is total.

Data, and nothing else decides: the rewriting (:mod:`dpsql.source.expressions`) brings arguments into these forms or refuses them,
the check of the bound plan (:mod:`dpsql.source.binder`) accepts nothing that is not listed here, and the generator of the tests
makes expressions from the same tables. *Total* means that no value of the listed types makes it fail, under any setting of the
database, once the arguments are guarded as their kind says.

Types are whole types, as DuckDB describes them: children, collation and alias included. ``INTEGER[]`` is not ``DATE[]``, JSON and
VARCHAR are two types, and so are a VARCHAR with a collation and one without.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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

LONGEST_TEXT = 10_000
"""Characters of a text that a source computes with: longer ones are cut where they are copied."""
MOST_TEXT = 4_000_000
"""Characters that all texts which a source computes for one row may have together, counted by their bounds."""
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


@dataclass(frozen=True)
class Spec:
    """How a function may be called.

    Parameters
    ----------
    kinds : str
        A letter of `KINDS` for each argument. The last may be repeated if ``many``; arguments from ``least`` on may be left out.
    least : int
        Smallest number of arguments.
    many : bool
    text : bool
        Whether it gives a new text, whose length counts.
    """

    kinds: str
    least: int
    many: bool = False
    text: bool = False


def _specs(kinds: str, names: str, least: int | None = None, *, many: bool = False, text: bool = False) -> dict[str, Spec]:
    return {name: Spec(kinds, len(kinds) if least is None else least, many, text) for name in names.split()}


FUNCTIONS: dict[str, Spec] = {
    # texts
    **_specs("x", "lower upper lcase ucase reverse strip_accents nfc_normalize", text=True),
    **_specs("w", "md5 sha256 length len strlen char_length character_length bit_length ascii ord unicode"),
    **_specs("ww", "contains starts_with ends_with prefix suffix strpos instr"),
    **_specs("xs", "trim ltrim rtrim", 1, text=True),
    **_specs("xss", "replace translate", text=True),
    **_specs("x", "concat", many=True, text=True),
    **_specs("sx", "concat_ws", 2, many=True, text=True),
    **_specs("wnn", "substring substr", 2, text=True),
    **_specs("wi", "left right", text=True),
    **_specs("wss", "regexp_matches regexp_full_match", 2),
    **_specs("xsss", "regexp_replace", 3, text=True),  # the replacement without a backslash
    **_specs("xsn", "regexp_extract", 2, text=True),
    **_specs("xsn", "split_part", text=True),
    # numbers
    **_specs("h", "abs"),
    **_specs("a", "sign"),
    **_specs("m", "floor ceil ceiling"),
    **_specs("mn", "round trunc", 1),
    **_specs("d", "exp cbrt atan degrees radians isnan"),
    **_specs("b", "isinf isfinite"),
    **_specs("q", "sqrt"),
    **_specs("p", "ln log log2 log10"),
    **_specs("f", "sin cos tan"),
    **_specs("u", "asin acos"),
    **_specs("dd", "pow power atan2"),
    **_specs("aa", "mod"),
    **_specs("", "pi"),
    # any comparable value
    **_specs("c", "greatest least coalesce", many=True),
    **_specs("cc", "ifnull nullif"),
    **_specs("ccc", "if"),
    # dates and times
    **_specs("v", "hour minute second"),
    **_specs("t", "year month day quarter week weekofyear weekday dayofweek isodow dayofmonth dayofyear isoyear yearweek decade"),
    **_specs("t", "century millennium dayname monthname last_day epoch"),
    **_specs("sv", "date_part datepart"),
    **_specs("st", "date_trunc datetrunc"),
    **_specs("stt", "date_diff datediff date_sub datesub"),
    **_specs("ts", "strftime"),
    **_specs("sz", "timezone"),  # AT TIME ZONE; the calendar of a session, by which it reckons, is pinned
    **_specs("ws", "strptime try_strptime"),
    # nested values
    **_specs("lk", "list_contains"),
    **_specs("yn", "list_extract"),
    **_specs("rs", "struct_extract"),
}
"""Name -> how it may be called. ``strptime`` becomes ``try_strptime``; mod, nullif, if, ifnull, coalesce and split_part, which some
versions of DuckDB define as macros, are written out."""

WRITTEN_OUT = frozenset({"strptime", "if", "ifnull", "nullif", "mod", "split_part", "coalesce"})

_OF_THE_PLAN: dict[str, Spec] = {
    **_specs("yn", "array_extract"),
    **_specs("xs", "string_split", text=True),
    **_specs("v", "microsecond millisecond"),  # what DuckDB 2 makes of date_part
    **_specs("t", "era doy dayofyear"),
    **_specs("ww", "~~ !~~ ~~* !~~*"),
    **_specs("xx", "||", text=True),
    **_specs("w", "encode"),  # bytes of a text whose column has a collation: see `decode`
}
BOUND: dict[str, Spec] = {name: spec for name, spec in FUNCTIONS.items() if name not in WRITTEN_OUT} | _OF_THE_PLAN
"""Functions that may occur in the plan which DuckDB's binder makes of the generated SQL; arithmetic is in `ARITHMETIC`, and
``decode`` is there for a text that was just encoded."""

WIDE_ARITHMETIC = ("+", "-", "*", "//", "%")
"""Of whole numbers, each brought from at most 64 bits to HUGEINT before: no sum or product leaves 128 bits."""
FLOAT_ARITHMETIC = ("+", "-", "*", "/", "%", "//")
DECIMAL_ARITHMETIC = ("+", "-", "*")
"""Where the type of the result holds every result, see `decimal_result`."""

ALWAYS_CHECKED = frozenset(
    ["array_extract", "struct_extract", "read_parquet", "string_split", "left", "list_value", "list_transform", "encode", "decode"]
)
"""Functions that syntax calls without naming them, or that every source may get: never to be overloaded or shadowed by a user's."""
LOCAL_FUNCTIONS: dict[str, Spec] = {
    **_specs("ys", "list_aggregate"), **_specs("y", "list_sort octet_length"), **_specs("c", "struct_pack hash", many=True)
}
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
    return _decimal(sql_type)[0]


def _decimal(sql_type: str) -> tuple[int | None, int]:
    found = _NAMED.fullmatch(sql_type)
    return (int(found[1]), int(found[2])) if found else (None, 0)


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
    width, scale = _decimal(source)
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
    to_width, to_scale = _decimal(target)
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
    width, scale = _decimal(sql_type)
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
