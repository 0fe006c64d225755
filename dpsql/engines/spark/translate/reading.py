"""Numbers and dates out of texts, where the text is known to be written plainly.

The engines read texts by rules of their own: DuckDB takes ``1_000``, ``0x1F``, ``1.5`` and ``1e3`` for whole numbers, Java takes
``1d`` for a floating-point one. A text that `regexp_extract` made is empty or matches its pattern; where the pattern lets plain
digits through alone, both read every such text alike.
"""

from __future__ import annotations

from dpsql.engines.spark.translate.types import SIGNED, Part, Ranges, Typed, of_type, refuse, spark_type, tried

_DIGITS, _FIRST, _SIGNS, _POINT, _DASH = ((48, 57),), ((49, 57),), ((43, 43), (45, 45)), ((46, 46),), ((45, 45),)
_WAYS = {
    "DOUBLE": r"TRY_CAST(regexp_extract(x, '^-?\d{1,15}\.?\d{0,15}$') AS DOUBLE)",
    "DATE": r"TRY_CAST(regexp_extract(x, '^[1-9]\d{3}-\d{2}-\d{2}$') AS DATE)",
    **dict.fromkeys(SIGNED, r"TRY_CAST(regexp_extract(x, '^-?\d{1,18}$') AS BIGINT)"),
}
_MOST = {"DOUBLE": 40, **dict.fromkeys(SIGNED, 18)}
"""Digits; of those of a whole number 64 bits hold each."""


def read(value: Typed, target: str) -> Typed:
    """Return the number or date that a text is; NULL where it is none.

    Raises
    ------
    UnsupportedQuery
        The text is not known to be written plainly.
    """
    way = _WAYS.get(target)
    if way is None:
        return refuse(f"CAST({value.type} AS {target})")
    if not (_is_date(value.written) if target == "DATE" else _is_number(value.written, target)):
        refuse(f"CAST({value.type} AS {target})", f"the engines read texts by other rules; a plain one passes, as {way} reads")
    return of_type(tried(value.sql, spark_type(target)), target)


def _within(ranges: Ranges, allowed: Ranges) -> bool:
    return bool(ranges) and all(any(low <= a and b <= high for low, high in allowed) for a, b in ranges)


def _is_number(parts: tuple[Part, ...], target: str) -> bool:
    """Whether a text is a sign or none, digits, and for a DOUBLE a point or none and digits."""
    signs = parts[:1] if parts and _within(parts[0][0], _SIGNS) else ()
    rest = parts[len(signs) :]
    points = [part for part in rest if _within(part[0], _POINT)]
    others = [part for part in rest if part not in points]
    if any(most is None for _, _, most in parts) or any(most != 1 for _, _, most in (*signs, *points)):
        return False
    if len(points) > (target == "DOUBLE") or not others or not all(_within(ranges, _DIGITS) for ranges, _, _ in others):
        return False
    return sum(most or 0 for _, _, most in others) <= _MOST[target]


def _is_date(parts: tuple[Part, ...]) -> bool:
    """Whether a text is YYYY-MM-DD with a year from 1000 on: DuckDB reads the year 0, too."""
    if any(least != most for _, least, most in parts) or sum(least for _, least, _ in parts) != 10:
        return False
    letters = [ranges for ranges, least, _ in parts for _ in range(least)]
    date_letters = [_FIRST, _DIGITS, _DIGITS, _DIGITS, _DASH, _DIGITS, _DIGITS, _DASH, _DIGITS, _DIGITS]
    return all(_within(ranges, allowed) for ranges, allowed in zip(letters, date_letters, strict=True))
