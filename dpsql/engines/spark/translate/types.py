"""DuckDB's types and what stands for them in Spark.

Whole numbers are exact: an unsigned type is the next wider signed one, HUGEINT is DECIMAL(38,0), which holds every product of
two 64-bit numbers. UBIGINT is a BIGINT with the same 64 bits: it is there for hashes and packed codes alone, which are shifted,
masked and ordered, and their order is any total order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NoReturn

from dpsql.errors import UnsupportedQuery

SIGNED = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
UNSIGNED = {"UTINYINT": 8, "USMALLINT": 16, "UINTEGER": 32}
"""Without UBIGINT, see above."""
BITS, WIDE, NULL = "UBIGINT", "HUGEINT", "NULL"
FLOATS = ("FLOAT", "DOUBLE")
TEXT = "VARCHAR"
ZONED = "TIMESTAMP WITH TIME ZONE"
TEMPORAL = ("DATE", "TIMESTAMP", ZONED)

_SPARK = {
    "BOOLEAN": "BOOLEAN", "TINYINT": "TINYINT", "SMALLINT": "SMALLINT", "INTEGER": "INT", "BIGINT": "BIGINT",
    "UTINYINT": "SMALLINT", "USMALLINT": "INT", "UINTEGER": "BIGINT", BITS: "BIGINT", WIDE: "DECIMAL(38,0)", "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE", TEXT: "STRING", "BLOB": "BINARY", "DATE": "DATE", "TIMESTAMP": "TIMESTAMP_NTZ", ZONED: "TIMESTAMP",
}  # fmt: skip
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")
_DIGITS = {
    "TINYINT": 3, "UTINYINT": 3, "SMALLINT": 5, "USMALLINT": 5, "INTEGER": 10, "UINTEGER": 10, "BIGINT": 19, WIDE: 38,
}  # fmt: skip


Ranges = tuple[tuple[int, int], ...]
"""Code points, in ascending ranges with both ends."""
Part = tuple[Ranges, int, int | None]


@dataclass(frozen=True)
class Typed:
    """An expression in Spark's SQL.

    Parameters
    ----------
    sql : str
        Of one piece: what stands next to it cannot take it apart.
    type : str
        DuckDB's type, 'NULL' for the NULL without a type.
    probe : str
        An expression of no column in DuckDB's SQL that the binder gives the same type in every place.
    value : object
        Of a constant; None for anything else.
    narrow : Typed, optional
        The number of fewer digits that a HUGEINT or DECIMAL was made of, without a change of value.
    written : tuple of (ranges, least, most), optional
        Of a text that is empty or matches a pattern: its characters, classes of code points with how many there are of each.
    """

    sql: str
    type: str
    probe: str
    value: object = None
    constant: bool = False
    narrow: Typed | None = None
    written: tuple[Part, ...] = ()


def of_type(sql: str, sql_type: str) -> Typed:
    """Return an expression of a known type."""
    return Typed(sql, sql_type, "NULL" if sql_type == NULL else f"CAST(NULL AS {sql_type})")


def canonical(value: Typed) -> Typed:
    """Return a floating-point number that was computed with the bits of its value: one NaN, one zero.

    Spark groups, compares and counts such numbers by value, Sail by their bits: infinity less itself would be another NaN there.
    Columns are read so (`dpsql.engines.spark.relation.viewed`) and constants are written so.
    """
    if value.type not in FLOATS or value.constant:
        return value
    sql = f"(nanvl({value.sql}, CAST('NaN' AS {value.type})) + CAST(0 AS {value.type}))"
    return replace(value, sql=sql)


def refuse(construct: str, reason: str = "") -> NoReturn:
    """Refuse what is not known to give the same value on Spark.

    Raises
    ------
    UnsupportedQuery
    """
    why = f"{reason}; " if reason else ""
    raise UnsupportedQuery(construct, f"{why}not on the list of what is computed on Spark: compute it in the lake, in a view there")


def tried(sql: str, kind: str) -> str:
    """Return a cast to a type of Spark, NULL where that does not hold the value: in a comparison, too.

    DataFusion, on which Sail stands, compares ``try_cast(x AS TINYINT) > 0`` as x itself; behind NULLIF it leaves the cast alone.
    """
    return f"nullif(try_cast({sql} AS {kind}), NULL)"


def spark_type(sql_type: str) -> str:
    """Return Spark's type that stands for one of DuckDB.

    Examples
    --------
    >>> spark_type("UTINYINT"), spark_type("DECIMAL(12,2)"), spark_type("TIMESTAMP")
    ('SMALLINT', 'DECIMAL(12,2)', 'TIMESTAMP_NTZ')
    """
    listed = _SPARK.get(sql_type)
    if listed is not None:
        return listed
    size = decimal(sql_type)
    return f"DECIMAL({size[0]},{size[1]})" if size else refuse(f"a value of type {sql_type}")


def decimal(sql_type: str) -> tuple[int, int] | None:
    """Return width and scale of a DECIMAL, None for other types."""
    match = _DECIMAL.fullmatch(sql_type)
    return (int(match[1]), int(match[2])) if match else None


def is_integer(sql_type: str) -> bool:
    """Return whether a type has whole numbers alone, UBIGINT left out."""
    return sql_type in _DIGITS


def is_exact(sql_type: str) -> bool:
    """Return whether a type has whole or decimal numbers alone."""
    return is_integer(sql_type) or decimal(sql_type) is not None


def bounds(sql_type: str) -> tuple[int, int]:
    """Return the smallest and the largest value of a type of whole numbers (of HUGEINT: those that DECIMAL(38,0) holds).

    Examples
    --------
    >>> bounds("TINYINT"), bounds("USMALLINT")
    ((-128, 127), (0, 65535))
    """
    if sql_type in SIGNED:
        return -(1 << SIGNED[sql_type] - 1), (1 << SIGNED[sql_type] - 1) - 1
    if sql_type in UNSIGNED:
        return 0, (1 << UNSIGNED[sql_type]) - 1
    return 1 - 10**38, 10**38 - 1


def digits(value: Typed) -> tuple[int, int] | None:
    """Return how many digits a number has before and after the point at most; None if it is not exact.

    Examples
    --------
    >>> digits(of_type("x", "DECIMAL(12,2)")), digits(of_type("x", "SMALLINT"))
    ((10, 2), (5, 0))
    """
    size = decimal(value.type)
    if size:
        return size[0] - size[1], size[1]
    if value.constant and isinstance(value.value, int) and value.type in _DIGITS:
        return len(str(abs(value.value))), 0
    return (_DIGITS[value.type], 0) if value.type in _DIGITS else None
