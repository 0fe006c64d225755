"""Which generated expressions cannot fail, by their types alone: these stand in a statement as they are, without a ``TRY``.

Every other expression of a source stands in a lambda with a ``TRY`` (:func:`dpsql.source.functions.caught`), which costs up to ten
times what it holds, and hides equalities from DuckDB, which then makes every pair of a join.

Privacy
-------
Whether a row makes a statement fail would be an exact bit of it. An expression is *total* here if DuckDB has a value for it, or
NULL, whatever its columns hold, by induction over its nodes:

- a column has a value; so has a number that is written out, and a text, and a text in the ISO form of a date or timestamp as one
  (of any other constant in a cast it might depend on whether there is a row for which it is evaluated);
- a comparison has one if both sides are brought to one type by casts that hold every value: of whole numbers of up to 64 bits to
  wider ones or to DECIMALs with room for all digits, of those to floating point; equal types are compared as they are;
- AND, OR, NOT of booleans, IS NULL, and CASE over such have one;
- so has TRY_CAST from one exact type of numbers to another, or to DOUBLE;
- whole numbers of up to 64 bits are added and multiplied as HUGEINTs, and of two such numbers every result is one;
- FLOATs and DOUBLEs are added and multiplied as IEEE 754 has it, with infinities, as `dpsql.session.settings` pins it;
- DECIMALs are added and multiplied in a type that holds every digit (`dpsql.source.expressions` sees to it and says so, `declare`).

- a DATE or TIMESTAMP that is NULL far away is its column, or NULL (`dpsql.source.functions.guard_temporal`, `declare_guarded`); of
  such a one every part of a date, and every truncation, has one (`Function.total` of `dpsql.algebra.functions`, `declare_call`).

Nothing else is: no other function, no division. The generator of `tests/privacy/test_kernel_generator.py` tries them.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence

from sqlglot import exp

from dpsql.source.kernel import COMPARABLE, ENUM, FLOATS, INTEGERS, TEXT, decimal_width, digits, family

_TOTAL = "dpsql_total"
"""Key of a node's meta: the type of a total expression."""
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_SUMS = (exp.Add, exp.Sub, exp.Mul)
_WHOLE = (*INTEGERS, "HUGEINT")
_BOOLEAN = "BOOLEAN"
_NULL, _CONSTANT = "NULL", "'"
"""Stand for the types of NULL and of a constant text (and begin its own), which take that of what they are compared with."""
_NAMES = {"INT": "INTEGER", "UINT": "UINTEGER", "INT128": "HUGEINT", "TEXT": "VARCHAR", "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE"}
"""Types as sqlglot writes them -> as DuckDB does."""
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}( \d{2}:\d{2}:\d{2}(\.\d{1,6})?)?")
_LONGEST = 18
"""Digits of a number that is written out: as many as a BIGINT has."""
Types = Callable[[exp.Column], str | None]


def is_total(node: exp.Expression) -> bool:
    """Return whether an expression was found total; see `mark`."""
    return node.meta.get(_TOTAL) is not None


def keeps(node: exp.Expression, sql_type: str) -> None:
    """Say that an expression of this type is total: the first characters of a text, of which any text has some."""
    node.meta[_TOTAL] = sql_type


def declare(node: exp.Binary, types: Types, sql_type: Callable[[exp.Expression], str]) -> None:
    """Say that arithmetic of DECIMALs that keeps every digit is total, where both sides are; see `mark`."""
    for side in (node.this, node.expression):
        mark(side, types)
    if is_total(node.this) and is_total(node.expression):
        node.meta[_TOTAL] = sql_type(node)


def sooner(first: exp.Expression, then: exp.Expression, sql_type: str) -> exp.Expression:
    """Return the first of two total expressions of this type that is not NULL: another way to the same value, and the way."""
    either = exp.Coalesce(this=first, expressions=[then])
    either.meta[_TOTAL] = sql_type
    return either


def declare_guarded(node: exp.Expression, value: exp.Expression, sql_type: str, types: Types) -> None:
    """Say that a guarded moment is total, where the moment itself is: all that is made of it are comparisons with constants."""
    mark(value, types)
    if _kind(value) == sql_type:
        node.meta[_TOTAL] = sql_type


def declare_call(
    node: exp.Expression, moment: exp.Expression, listed: Sequence[str], sql_type: Callable[[exp.Expression], str]
) -> None:
    """Say that a function of a guarded moment is total, where that is and its type is listed."""
    if _kind(moment) in listed:
        node.meta[_TOTAL] = sql_type(node)


def mark(node: exp.Expression, types: Types) -> None:
    """Note on a generated expression whether it is total; the parts of it that were generated before have been marked.

    Parameters
    ----------
    node : sqlglot expression
    types : callable
        The type of a column in generated names, as DuckDB writes it; None where it is not known.
    """
    if _TOTAL not in node.meta:
        node.meta[_TOTAL] = _type(node, types)


def _kind(node: exp.Expression) -> str | None:
    """Return the type of a total expression, None of any other."""
    sql_type = node.meta.get(_TOTAL)
    return sql_type if isinstance(sql_type, str) else None


def _type(node: exp.Expression, types: Types) -> str | None:
    if isinstance(node, exp.Column):
        return types(node)
    if isinstance(node, exp.Boolean):
        return _BOOLEAN
    if isinstance(node, exp.Null):
        return _NULL
    if isinstance(node, exp.Literal):
        return _number(node)
    if type(node) in (exp.Cast, exp.TryCast) and isinstance(node.this, exp.Literal):
        name = _name(node.args["to"])
        sure = node.this.is_string and _is_of(node.this.name, name) or type(node) is exp.TryCast
        return name if sure and family(name) in COMPARABLE and name not in (ENUM, "DECIMAL") else None

    def inner(part: exp.Expression) -> str | None:
        mark(part, types)
        return _kind(part)

    # what has parts is total if its parts are, and their types fit
    if isinstance(node, exp.Paren):
        return inner(node.this)
    if isinstance(node, exp.Anonymous):  # the bytes of a column with a collation, as a text again
        bytes_ = node.expressions[0] if node.this == "decode" else None
        plain = isinstance(bytes_, exp.Anonymous) and bytes_.this == "encode" and inner(bytes_.expressions[0]) == TEXT
        return TEXT if plain else None
    if isinstance(node, exp.And | exp.Or):
        return _BOOLEAN if inner(node.this) == inner(node.expression) == _BOOLEAN else None
    if isinstance(node, exp.Not):
        return _BOOLEAN if inner(node.this) == _BOOLEAN else None
    if isinstance(node, exp.Is):
        kind = inner(node.this)
        return _BOOLEAN if kind == _BOOLEAN or kind is not None and isinstance(node.expression, exp.Null) else None
    if type(node) in _COMPARISONS:
        return _compared([inner(node.this), inner(node.expression)])
    if isinstance(node, exp.Between):
        return _compared([inner(node.args[name]) for name in ("this", "low", "high")])
    if isinstance(node, exp.In) and node.args.get("query") is None:
        return _compared([inner(part) for part in (node.this, *node.expressions)])
    if isinstance(node, exp.Case) and node.args.get("this") is None:
        return _case(node, inner)
    if type(node) is exp.TryCast:
        return _cast(inner(node.this), node)
    # only sums whose type holds every result
    if type(node) in _SUMS:
        kinds = {inner(node.this), inner(node.expression)}
        if kinds in ({"DOUBLE"}, {"FLOAT"}):
            return kinds.pop()
        return "HUGEINT" if all(_wide(side.unnest(), inner) for side in (node.this, node.expression)) else None
    return None


def _number(node: exp.Literal) -> str | None:
    """Return the type of a constant; of a number, a DECIMAL with as many digits, or whole."""
    if node.is_string:
        return f"{_CONSTANT}{node.name}"
    sizes = literal_digits(node)
    if sizes is None or sum(sizes) > _LONGEST:
        return None
    before, after = sizes
    return f"DECIMAL({before + after},{after})" if after else "INTEGER" if before < 10 else "BIGINT"


def _name(to: exp.DataType) -> str:
    """Return the name of a type as DuckDB writes it."""
    name = str(to.sql(dialect="duckdb")).upper().replace(", ", ",")
    return _NAMES.get(name, name)


def _compared(kinds: Sequence[str | None]) -> str | None:
    """Return BOOLEAN where values of all of these types are compared without a cast that can fail."""
    known = [kind for kind in kinds if kind is not None and kind != _NULL and not kind.startswith(_CONSTANT)]
    texts = [kind.removeprefix(_CONSTANT) for kind in kinds if kind is not None and kind.startswith(_CONSTANT)]
    if None in kinds or not known or any(family(kind) not in COMPARABLE for kind in known):
        return None
    if len(set(known)) == 1:
        return _BOOLEAN if all(_is_of(text, known[0]) for text in texts) else None
    return _BOOLEAN if not texts and _one_number(known) else None


def _is_of(text: str, sql_type: str) -> bool:
    """Return whether a constant text is surely a value of a type: any of VARCHAR, what Python reads of DATE or TIMESTAMP."""
    if sql_type in ("DATE", "TIMESTAMP"):
        try:
            (dt.date if sql_type == "DATE" else dt.datetime).fromisoformat(text)
        except ValueError:
            return False
        return _ISO.fullmatch(text) is not None
    return sql_type == TEXT


def _one_number(kinds: Sequence[str]) -> bool:
    """Return whether there is a type of numbers that holds all values of these."""
    exact = [kind for kind in kinds if kind not in FLOATS]
    sizes = [digits(kind) for kind in exact if kind in INTEGERS or decimal_width(kind)]
    bounded = [size for size in sizes if size is not None]
    if len(bounded) < len(exact):
        return False
    return len(exact) < len(kinds) or sum(map(max, zip(*bounded, strict=True))) <= 38


def _case(node: exp.Case, inner: Callable[[exp.Expression], str | None]) -> str | None:
    """Return the type of a CASE over total parts, if all of its values have the same."""
    branches = node.args["ifs"]
    default = node.args.get("default")
    if any(inner(branch.this) != _BOOLEAN for branch in branches):
        return None
    values = [branch.args["true"] for branch in branches] + ([] if default is None else [default])
    kinds = [inner(value) for value in values]
    known = {TEXT if kind is not None and kind.startswith(_CONSTANT) else kind for kind in kinds} - {_NULL}
    return known.pop() if len(known) == 1 else None


def _cast(kind: str | None, node: exp.TryCast) -> str | None:
    """Return the type of a TRY_CAST of a total number of an exact type to another of these, or to DOUBLE."""
    if kind is None or not (kind in _WHOLE or decimal_width(kind)):
        return None
    to = _name(node.args["to"])
    return to if to in (*_WHOLE, "DOUBLE") or decimal_width(to) else None


def _wide(node: exp.Expression, inner: Callable[[exp.Expression], str | None]) -> bool:
    """Return whether this is a whole number of up to 64 bits as a HUGEINT: sums and products of two such are HUGEINTs."""
    return type(node) is exp.TryCast and inner(node) == "HUGEINT" and inner(node.this) in INTEGERS


def literal_digits(node: exp.Expression) -> tuple[int, int] | None:
    """Return the digits of a number that is written out, before and after the point; None for anything else."""
    if not isinstance(node, exp.Literal) or node.is_string or not node.name.replace(".", "", 1).isdigit():
        return None
    before, _, after = node.name.partition(".")
    return max(len(before), 1), len(after)
