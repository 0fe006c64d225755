"""Names and constants in Spark's SQL, such that no text can end them.

Spark replaces ``${...}`` in the text of a statement before it reads it, and takes a backslash in a literal as an escape or not,
as a setting says. So a text of anything but plain letters is written in hexadecimal digits, and a name with ``${`` is refused.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

from dpsql.engines.spark.translate.types import (  # fmt: skip
    BITS,
    FLOATS,
    NULL,
    TEXT,
    ZONED,
    Typed,
    bounds,
    decimal,
    is_integer,
    refuse,
    spark_type,
)

_PLAIN = re.compile(r"[A-Za-z0-9 _.,:;/+()\[\]<>=-]*")
_SUFFIX = {"TINYINT": "Y", "SMALLINT": "S", "INT": "", "BIGINT": "L"}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def name(text: str) -> str:
    """Quote one name.

    Examples
    --------
    >>> name("odd `name")
    '`odd ``name`'
    """
    if "${" in text or "\0" in text:
        refuse(f"the name {text!r}", "Spark would read it as a variable" if "${" in text else "it holds a NUL character")
    return "`" + text.replace("`", "``") + "`"


def text(value: str) -> str:
    r"""Return a text as a literal.

    Examples
    --------
    >>> text("[0, 5)"), text("it's"), text("${x}")
    ("'[0, 5)'", "CAST(X'69742773' AS STRING)", "CAST(X'247B787D' AS STRING)")
    """
    return f"'{value}'" if _PLAIN.fullmatch(value) else f"CAST({blob(_utf8(value))} AS STRING)"


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        refuse("a text", "it is no UTF-8")


def blob(value: bytes) -> str:
    """Return bytes as a literal."""
    return f"X'{value.hex().upper()}'"


def constant(value: object, sql_type: str) -> Typed:
    """Return a value as DuckDB's Python client gives it, as a constant of a type of DuckDB.

    Raises
    ------
    UnsupportedQuery
        The type is none of Spark's, or a date is none of Python's.
    """
    probe = "NULL" if sql_type == NULL else f"CAST(NULL AS {sql_type})"
    if value is None:
        sql = "NULL" if sql_type == NULL else f"CAST(NULL AS {spark_type(sql_type)})"
        return Typed(sql, sql_type, probe, None, constant=True)
    return Typed(_written(value, sql_type), sql_type, probe, value, constant=True)


def _written(value: object, sql_type: str) -> str:
    kind = spark_type(sql_type)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and (is_integer(sql_type) or sql_type == BITS):
        return _whole(value, sql_type, kind)
    if isinstance(value, Decimal) and decimal(sql_type):
        return f"CAST('{value:f}' AS {kind})"
    if isinstance(value, float) and sql_type in FLOATS:
        double = f"CAST('{value or 0.0!r}' AS DOUBLE)"  # minus zero is zero, as in columns
        return f"CAST({double} AS FLOAT)" if sql_type == "FLOAT" else double
    if isinstance(value, str) and sql_type == TEXT:
        return text(value)
    if isinstance(value, bytes | bytearray | memoryview) and sql_type == "BLOB":
        return blob(bytes(value))
    if isinstance(value, dt.datetime) and sql_type == "TIMESTAMP":
        return f"CAST('{value.isoformat(sep=' ', timespec='microseconds')}' AS TIMESTAMP_NTZ)"
    if isinstance(value, dt.datetime) and sql_type == ZONED:
        return f"timestamp_micros({(value - _EPOCH) // dt.timedelta(microseconds=1)}L)"
    if isinstance(value, dt.date) and sql_type == "DATE":
        return f"CAST('{value.isoformat()}' AS DATE)"
    return refuse(f"a constant of type {sql_type}", "Spark has no such value")


def _whole(value: int, sql_type: str, kind: str) -> str:
    if sql_type == BITS:
        value -= (value >> 63) << 64
    elif not bounds(sql_type)[0] <= value <= bounds(sql_type)[1]:
        refuse(f"the number {value}")
    if value < 0 or kind not in _SUFFIX:
        return f"CAST('{value}' AS {kind})"
    return f"{value}{_SUFFIX[kind]}"
