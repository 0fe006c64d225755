"""Conversions: DuckDB's rules in Spark's SQL. What DuckDB's TRY_CAST cannot convert is NULL.

Where the two differ: DuckDB rounds a floating-point number to the nearest even whole number and Spark cuts it; a DECIMAL is
rounded half away from zero by both, but cut by Spark on its way to a whole number; what is out of range wraps or is cut to the
range on Spark. A DECIMAL becomes a DOUBLE in DuckDB by a division, of which Spark's own correct rounding differs beyond 2^53.
"""

from __future__ import annotations

from dataclasses import replace

from dpsql.engines.spark.translate.literals import constant
from dpsql.engines.spark.translate.reading import read
from dpsql.engines.spark.translate.types import (  # fmt: skip
    BITS,
    FLOATS,
    NULL,
    SIGNED,
    TEXT,
    UNSIGNED,
    WIDE,
    Typed,
    bounds,
    decimal,
    digits,
    is_exact,
    is_integer,
    of_type,
    refuse,
    spark_type,
    tried,
)

WRITTEN = ("VARCHAR", "BOOLEAN", "DATE", *SIGNED, *UNSIGNED, WIDE)
"""Types whose texts Spark writes as DuckDB does."""
_EXACT = 1 << 53
WHOLE = "CAST('4503599627370496' AS DOUBLE)"
"""2^52: every DOUBLE from here on is a whole number."""
_PLAIN_SCALE = 6
"""Digits behind the point of a DECIMAL up to which Spark writes its text without an exponent."""


def converted(value: Typed, target: str, *, checked: bool) -> Typed:
    """Return a value in another type of DuckDB.

    Parameters
    ----------
    value : Typed
    target : str
    checked : bool
        Whether it is a TRY_CAST: what is out of range is NULL. Otherwise DuckDB would raise; the generated statements have no
        such values.

    Raises
    ------
    UnsupportedQuery
        The two engines are not known to agree.
    """
    source = value.type
    if source == target:
        return value
    if source == NULL:
        return of_type(f"CAST(NULL AS {spark_type(target)})", target)
    if source == BITS or target == BITS:
        return _bits(value, target, checked=checked)
    if target == "BOOLEAN" and is_exact(source):
        return of_type(f"({value.sql} <> 0)", target)
    if source == "BOOLEAN" and (is_integer(target) or target in FLOATS):
        return of_type(f"CAST(CAST({value.sql} AS INT) AS {spark_type(target)})", target)
    # numbers: exact ones among each other, floating ones to whole, any to floating
    if is_integer(source) and is_integer(target):
        return _whole(value, target, checked=checked)
    if is_exact(source) and is_exact(target):
        return _exact(value, target)
    if source in FLOATS and is_integer(target):
        return of_type(_rounded(value, target, checked=checked), target)
    if target in FLOATS and source != TEXT:
        return of_type(_floating(value, target), target)
    if target == TEXT:
        return of_type(_text(value), target)
    # a text is read under TRY_CAST alone, where what is no value is NULL
    if source == TEXT and checked:
        return read(value, target)
    if (source, target) == ("DATE", "TIMESTAMP"):
        return of_type(f"CAST({value.sql} AS TIMESTAMP_NTZ)", target)
    if (source, target) == ("TIMESTAMP", "DATE"):
        return of_type(f"CAST({value.sql} AS DATE)", target)
    return refuse(f"CAST({source} AS {target})")


def _bits(value: Typed, target: str, *, checked: bool) -> Typed:
    """Return 64 bits of a number that is not negative, or such a number of 64 bits."""
    if target == BITS:
        if value.constant and isinstance(value.value, int) and 0 <= value.value < 1 << 63:
            return constant(value.value, BITS)
        return of_type(f"CAST({value.sql} AS BIGINT)", BITS) if value.type in UNSIGNED else refuse(f"CAST({value.type} AS UBIGINT)")
    if target not in SIGNED and target not in UNSIGNED and target != WIDE:
        refuse(f"CAST(UBIGINT AS {target})")
    inside = of_type(f"CASE WHEN {value.sql} >= 0 THEN {value.sql} END", "BIGINT") if checked else of_type(value.sql, "BIGINT")
    return converted(replace(inside, sql=f"({inside.sql})"), target, checked=checked)


def _whole(value: Typed, target: str, *, checked: bool) -> Typed:
    low, high = bounds(value.type)
    least, most = bounds(target)
    kind = spark_type(target)
    narrow = (value.narrow or value) if target == WIDE else None
    if value.constant and isinstance(value.value, int) and least <= value.value <= most:
        return replace(constant(value.value, target), narrow=narrow)
    if least <= low and high <= most:
        same = spark_type(value.type) == kind
        cast = of_type(value.sql if same else f"CAST({value.sql} AS {kind})", target)
        return replace(cast, narrow=narrow)
    if checked and target not in SIGNED:
        return of_type(f"CASE WHEN {value.sql} BETWEEN {least} AND {most} THEN CAST({value.sql} AS {kind}) END", target)
    return of_type(tried(value.sql, kind), target)


def _exact(value: Typed, target: str) -> Typed:
    """Return a DECIMAL as a whole number or a DECIMAL, or a whole number as a DECIMAL: rounded half away from zero."""
    if is_integer(target):
        rounded = f"round({value.sql}, 0)"
        if target in UNSIGNED:
            least, most = bounds(target)
            inside = f"{rounded} BETWEEN {least} AND {most}"
            return of_type(f"CASE WHEN {inside} THEN CAST({rounded} AS {spark_type(target)}) END", target)
        return of_type(tried(rounded, spark_type(target)), target)
    cast = of_type(tried(value.sql, spark_type(target)), target)
    have, room = digits(value), digits(cast)
    kept = have is not None and room is not None and have[0] <= room[0] and have[1] <= room[1]
    return replace(cast, narrow=value.narrow or value) if kept else cast


def _rounded(value: Typed, target: str, *, checked: bool) -> str:
    """Return a floating-point number as the nearest whole number, ties to even; NULL where the type does not hold it."""
    if target == WIDE:
        refuse(f"CAST({value.type} AS HUGEINT)")
    kind, nearest = spark_type(target), _nearest(value)
    if target in UNSIGNED and checked:
        least, most = bounds(target)
        return f"CASE WHEN {nearest} BETWEEN {least} AND {most} THEN CAST({nearest} AS {kind}) END"
    if target == "BIGINT" and checked:  # 2^63 passes for the largest BIGINT
        nearest = f"nullif({nearest}, CAST('9223372036854775808' AS DOUBLE))"
    return tried(nearest, kind)


def _nearest(value: Typed) -> str:
    """Return the nearest whole number, ties to even, by the rounding of a sum that is between 2^52 and 2^53.

    ``rint`` does not round ties to even on every server.
    """
    number = value.sql if value.type == "DOUBLE" else f"CAST({value.sql} AS DOUBLE)"
    above, below = f"(({number} + {WHOLE}) - {WHOLE})", f"(({number} - {WHOLE}) + {WHOLE})"
    return f"(CASE WHEN abs({number}) >= {WHOLE} THEN {number} WHEN {number} >= 0 THEN {above} ELSE {below} END)"


def _floating(value: Typed, target: str) -> str:
    source, kind = value.type, spark_type(target)
    if value.constant and isinstance(value.value, int) and abs(value.value) <= 1 << 24:
        return constant(float(value.value), target).sql
    if target == "FLOAT" and (source in SIGNED or source in UNSIGNED):
        # Spark's optimizer takes an integer that becomes a FLOAT and then a DOUBLE for one that becomes a DOUBLE at once
        exact = source not in ("BIGINT", "UINTEGER")
        return f"CAST(CAST({value.sql} AS DOUBLE) AS FLOAT)" if exact else f"nanvl(CAST({value.sql} AS FLOAT), CAST(0 AS FLOAT))"
    if source == "FLOAT" or source in SIGNED or source in UNSIGNED:
        return f"CAST({value.sql} AS {kind})"
    if source == "DOUBLE":  # a finite number that becomes an infinity is out of range
        infinite = f"abs(CAST({value.sql} AS FLOAT)) = CAST('Infinity' AS FLOAT)"
        finite = f"abs({value.sql}) < CAST('Infinity' AS DOUBLE)"
        return f"CASE WHEN {infinite} AND {finite} THEN CAST(NULL AS FLOAT) ELSE CAST({value.sql} AS FLOAT) END"
    if source == WIDE and target == "DOUBLE":
        return f"CAST({value.sql} AS DOUBLE)"
    size = decimal(source)
    if size is None or (target == "FLOAT" and size[0] > 7):
        return refuse(f"CAST({source} AS {target})")
    width, scale = size
    if target == "FLOAT":  # a quotient of two exact numbers
        return f"CAST({value.sql} AS FLOAT)"
    if width <= 15 or scale == 0:
        return f"CAST({value.sql} AS DOUBLE)"
    if width + 2 + scale > 38:
        return refuse(f"CAST({source} AS DOUBLE)", "a DECIMAL of so many digits is rounded otherwise")
    ten = f"CAST('1e{scale}' AS DOUBLE)"
    cut = f"(CASE WHEN {value.sql} < 0 THEN ceil({value.sql}) ELSE floor({value.sql}) END)"
    behind = f"CAST(({value.sql} - {cut}) AS DECIMAL({scale},{scale})) * CAST('{10**scale}' AS DECIMAL({scale + 1},0))"
    above = f"CAST({cut} AS DOUBLE) + CAST({behind} AS DOUBLE) / {ten}"
    limit = f"CAST('{_EXACT // 10**scale}' AS DECIMAL(38,0))"
    return f"CASE WHEN abs({value.sql}) < {limit} THEN CAST({value.sql} AS DOUBLE) ELSE {above} END"


def _text(value: Typed) -> str:
    size = decimal(value.type)
    plain = value.type in ("BOOLEAN", "DATE", "TIMESTAMP") or is_integer(value.type)
    if plain or (size and size[1] <= _PLAIN_SCALE):
        return f"CAST({value.sql} AS STRING)"
    if value.type in FLOATS:
        refuse(f"CAST({value.type} AS VARCHAR)", "Java writes other digits than DuckDB; use a DECIMAL or bins")
    return refuse(f"CAST({value.type} AS VARCHAR)")
