"""The functions that a source may call: deterministic, of one row, and total once their arguments are guarded.

*Total* means: for no value of its arguments does it raise. DuckDB's ``TRY`` would promise that for every function, but does
not keep it: the optimizer pulls a subexpression that occurs twice out of the TRY, and the error, with the value in its text,
reaches the caller (seen on 1.4.5, 1.5.6 and 2.0.0: ``SELECT TRY(s::INT + 1), TRY(s::INT + 2)``); and on 1.4 an error inside
TRY overwrites the input vector. So nothing here relies on TRY: every argument for which a function would raise is replaced
by NULL *before* the call (a guard), and then it doesn't matter where the optimizer moves the call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot import exp

INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
FLOATS = ("FLOAT", "DOUBLE")
WIDE = ("UBIGINT", "HUGEINT", "UHUGEINT")
TEMPORAL = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
LARGEST_LITERAL = 1_000_000
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")


@dataclass(frozen=True)
class Spec:
    """How a function may be called.

    Parameters
    ----------
    kinds : str
        One letter an argument: a any value, t a date or timestamp (guarded to years 1 to 9999), c a date, timestamp or
        time, s a string literal, n an integer literal from 0 to a million, i one of either sign, p a number > 0, q a number
        >= 0, u a number in [-1, 1], f a finite number. The last letter may be repeated if ``many``; arguments from
        ``least`` on may be left out.
    least : int
        Smallest number of arguments.
    many : bool
    """

    kinds: str
    least: int
    many: bool = False


def _specs(kinds: str, names: str, least: int | None = None, *, many: bool = False) -> dict[str, Spec]:
    return {name: Spec(kinds, len(kinds) if least is None else least, many) for name in names.split()}


FUNCTIONS: dict[str, Spec] = {
    **_specs("a", "lower upper lcase ucase length len strlen char_length character_length bit_length reverse ascii ord unicode"),
    **_specs("a", "strip_accents nfc_normalize md5 sha256"),
    **_specs("aa", "contains starts_with ends_with prefix suffix strpos instr levenshtein"),
    **_specs("as", "trim ltrim rtrim", 1),
    **_specs("aaa", "replace"),
    **_specs("ass", "translate"),
    **_specs("a", "concat", many=True),
    **_specs("sa", "concat_ws", 2, many=True),
    **_specs("ann", "substring substr", 2),
    **_specs("ai", "left right"),
    **_specs("ass", "regexp_matches regexp_full_match", 2),
    **_specs("asss", "regexp_replace", 3),  # the replacement without a backslash
    **_specs("asn", "regexp_extract", 2),
    **_specs("asn", "split_part"),
    **_specs("a", "abs sign floor ceil ceiling cbrt exp atan degrees radians isnan isinf isfinite"),
    **_specs("an", "round trunc", 1),
    **_specs("q", "sqrt"),
    **_specs("p", "ln log log2 log10"),
    **_specs("f", "sin cos tan"),
    **_specs("u", "asin acos"),
    **_specs("aa", "pow power atan2 mod"),
    **_specs("", "pi"),
    **_specs("a", "greatest least coalesce", many=True),
    **_specs("aa", "ifnull nullif"),
    **_specs("aaa", "if"),
    **_specs("c", "hour minute second"),
    **_specs("t", "year month day quarter week weekofyear weekday dayofweek isodow dayofmonth dayofyear isoyear yearweek decade"),
    **_specs("t", "century millennium dayname monthname last_day epoch"),
    **_specs("st", "date_part datepart date_trunc datetrunc"),
    **_specs("stt", "date_diff datediff date_sub datesub"),
    **_specs("ts", "strftime"),
    **_specs("as", "strptime try_strptime"),
    **_specs("aa", "list_contains"),
    **_specs("an", "list_extract"),
    **_specs("as", "struct_extract"),
}
"""Name -> how it may be called. ``strptime`` becomes ``try_strptime``; mod, nullif, if, ifnull and split_part, which some
versions of DuckDB define as macros, are written out."""

BOUND = (frozenset(FUNCTIONS) - {"strptime", "if", "ifnull", "nullif", "mod", "split_part"}) | {
    "+", "-", "*", "/", "//", "%", "||", "~~", "!~~", "~~*", "!~~*", "array_extract", "string_split",
}  # fmt: skip
"""Names that may occur in the plan that DuckDB's binder makes of the generated SQL."""

ALWAYS_CHECKED = frozenset(("array_extract", "struct_extract", "read_parquet", "string_split"))
"""Functions that syntax calls without naming them: never to be overloaded or shadowed by a user's."""


def call(name: str, *arguments: exp.Expression) -> exp.Anonymous:
    """Return a function call."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def try_cast(value: exp.Expression, sql_type: str | exp.DataType) -> exp.TryCast:
    """Return ``TRY_CAST(value AS sql_type)``."""
    kind = exp.DataType.build(sql_type, dialect="duckdb") if isinstance(sql_type, str) else sql_type
    return exp.TryCast(this=value, to=kind)


def only_if(condition: exp.Expression, value: exp.Expression) -> exp.Case:
    """Return the value where the condition is true, else NULL."""
    return exp.Case(ifs=[exp.If(this=condition, true=value)])


def paren(value: exp.Expression) -> exp.Expression:
    """Return the value in brackets unless it is of one piece."""
    simple = exp.Column | exp.Literal | exp.Anonymous | exp.Paren | exp.TryCast | exp.Cast | exp.Case | exp.Null | exp.Boolean
    return value if isinstance(value, simple) else exp.Paren(this=value)


def guard_temporal(value: exp.Expression, sql_type: str) -> exp.Expression:
    """Return a date or timestamp, NULL outside of years 1 to 9999, where no field, difference or truncation overflows."""
    low, high = (exp.Cast(this=exp.Literal.string(t), to=exp.DataType.build(sql_type, dialect="duckdb")) for t in _years(sql_type))
    return only_if(exp.Between(this=paren(value.copy()), low=low, high=high), value)


def _years(sql_type: str) -> tuple[str, str]:
    time = "" if sql_type == "DATE" else " 00:00:00+00" if sql_type.endswith("ZONE") else " 00:00:00"
    return f"0001-01-02{time}", f"9999-12-30{time}"


def guard_number(value: exp.Expression, kind: str) -> exp.Expression:
    """Return a number, NULL where the function of this kind of argument has no value."""
    if kind == "z" and isinstance(value, exp.Literal) and value.name.strip("0."):
        return value
    left = paren(value.copy())
    zero = exp.Literal.number(0)
    conditions: dict[str, exp.Expression] = {
        "p": exp.GT(this=left, expression=zero),
        "q": exp.GTE(this=left, expression=zero),
        "u": exp.Between(this=left, low=exp.Neg(this=exp.Literal.number(1)), high=exp.Literal.number(1)),
        "f": exp.Between(this=left, low=exp.Neg(this=exp.Literal.number("1e300")), high=exp.Literal.number("1e300")),
        "z": exp.NEQ(this=left, expression=zero),
    }
    return only_if(conditions[kind], value)


def decimal_width(sql_type: str) -> int | None:
    """Return the width of a DECIMAL type, None for other types.

    Examples
    --------
    >>> decimal_width("DECIMAL(12,2)"), decimal_width("DOUBLE")
    (12, None)
    """
    found = _DECIMAL.fullmatch(sql_type)
    return int(found[1]) if found else None


def is_number(sql_type: str) -> bool:
    """Return whether arithmetic is defined on the type."""
    return sql_type in (*INTEGERS, *FLOATS, *WIDE) or decimal_width(sql_type) is not None


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
_TEXT_SOURCES = ("BOOLEAN", *INTEGERS, *WIDE, *FLOATS, "DATE", "TIME", "TIMESTAMP", "UUID", "ENUM", "DECIMAL", "VARCHAR")


def cast_is_safe(source: str, target: str) -> bool:
    """Return whether an implicit conversion between types can never raise.

    Parameters
    ----------
    source, target : str
        Type as DuckDB spells it; of an ENUM its first word suffices.

    Examples
    --------
    >>> cast_is_safe("INTEGER", "BIGINT"), cast_is_safe("BIGINT", "INTEGER"), cast_is_safe("VARCHAR", "INTEGER")
    (True, False, False)
    >>> cast_is_safe("BOOLEAN", "INTEGER"), cast_is_safe("VARCHAR", "BOOLEAN")
    (True, False)
    >>> cast_is_safe("INTEGER", "DECIMAL(11,1)"), cast_is_safe("INTEGER", "DECIMAL(10,1)")
    (True, False)
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
    if target == "VARCHAR":
        return source.split("(")[0] in _TEXT_SOURCES
    to_width, to_scale = _decimal(target)
    if to_width is None:
        return False
    if source in _DIGITS:
        return to_width - to_scale >= _DIGITS[source]
    return width is not None and to_scale >= scale and to_width - to_scale >= width - scale


def _decimal(sql_type: str) -> tuple[int | None, int]:
    found = _DECIMAL.fullmatch(sql_type)
    return (int(found[1]), int(found[2])) if found else (None, 0)
