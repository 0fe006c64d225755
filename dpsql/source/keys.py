"""Which values are the same: types whose equality is that of their bytes, and the one form that others are given.

A key is unique under one notion of equality, joined under another and grouped under a third: then one row meets many, or two
people are one. Here all of them are the equality of bytes. A type is listed if DuckDB has one stored form for each of its
values and nothing (no collation, no rounding, no time zone, no calendar) makes two forms equal.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokens import TokenType

from dpsql.source.parse import tokens

_EXACT = frozenset((
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT",
    "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE", "UUID", "VARCHAR",
    "BLOB",
))
_FLOATS = ("FLOAT", "DOUBLE")
_PLAIN = frozenset((
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT", "DATE",
))
KINDS = "an integer, DECIMAL, VARCHAR, DATE, TIME, TIMESTAMP, UUID, BLOB, BOOLEAN or ENUM"
"""What a key or a privacy unit may be, for messages."""


def exact(sql_type: str) -> bool:
    """Return whether values of a type are equal if and only if their bytes are, once texts are encoded.

    Examples
    --------
    >>> exact("VARCHAR"), exact("DECIMAL(9,2)"), exact("ENUM('a', 'b')"), exact("DOUBLE"), exact("VARCHAR[]"), exact("INTERVAL")
    (True, True, True, False, False, False)
    """
    if sql_type.endswith("]"):
        return False
    return sql_type in _EXACT or sql_type.startswith(("DECIMAL(", "ENUM("))


def one_equality(sql_type: str) -> bool:
    """Return whether a database has one notion of equality only for a type, whatever its settings: whole numbers and dates.

    Examples
    --------
    >>> one_equality("BIGINT"), one_equality("DATE"), one_equality("VARCHAR"), one_equality("DECIMAL(9,2)")
    (True, True, False, False)
    """
    return sql_type in _PLAIN


def is_unit(sql_type: str) -> bool:
    """Return whether a column of this type can say whose row it is."""
    return exact(sql_type) or sql_type in _FLOATS


def in_bytes(value: exp.Expression, sql_type: str) -> exp.Expression:
    """Return a value of an exact type such that DuckDB's equality is that of bytes: texts have a collation, BLOBs have none."""
    return exp.Anonymous(this="encode", expressions=[value]) if sql_type == "VARCHAR" else value


def unit_value(column: exp.Expression, sql_type: str) -> exp.Expression:
    """Return the one form of a privacy unit: texts in bytes; of floating-point numbers one NaN and one zero."""
    if sql_type not in _FLOATS:
        return in_bytes(column, sql_type)
    double = exp.DataType.build("DOUBLE")
    value = exp.Cast(this=column, to=double)
    nan, zero = (exp.Cast(this=exp.Literal.string(text), to=double.copy()) for text in ("nan", "0"))
    test = exp.Anonymous(this="isnan", expressions=[value.copy()])
    return exp.Case(ifs=[exp.If(this=test, true=nan)], default=exp.Add(this=value, expression=zero))


def index_columns(sql: str) -> list[str]:
    """Return the columns of an index, from the CREATE INDEX that the catalog shows; [] if it holds an expression or a condition.

    Examples
    --------
    >>> index_columns('CREATE UNIQUE INDEX i ON t("a,b", c);'), index_columns("CREATE UNIQUE INDEX i ON t((lower(a)));")
    (['a,b', 'c'], [])
    """
    read = tokens(sql)
    opened = next((i for i, token in enumerate(read) if token.token_type == TokenType.L_PAREN), len(read))
    inside = read[opened + 1 :]
    closed = next((i for i, token in enumerate(inside) if token.token_type == TokenType.R_PAREN), 0)
    columns, between = inside[0:closed:2], inside[1:closed:2]
    after = [token for token in inside[closed + 1 :] if token.token_type != TokenType.SEMICOLON]
    plain = closed % 2 == 1 and all(token.token_type == TokenType.COMMA for token in between) and not after
    names = [token.text for token in columns if token.token_type == TokenType.IDENTIFIER or token.text.isidentifier()]
    return names if plain and len(names) == len(columns) else []
