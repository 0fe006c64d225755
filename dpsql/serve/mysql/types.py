"""DuckDB's types as MySQL's: what is said of a column on the wire and in the catalogue."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Shape = Literal["integer", "float", "double", "decimal", "date", "datetime", "time", "bytes", "text", "json"]
"""How a value is written: `dpsql.serve.mysql.results`."""

BINARY, UTF8 = 63, 45
_NUMBER, _UNSIGNED, _BLOB = 0x80, 0x20, 0x10
LONGEST_TEXT: Final = 16383
"""Characters of a VARCHAR as it is declared; longer ones are sent as they are."""


@dataclass(frozen=True)
class Type:
    """A type of MySQL's.

    Parameters
    ----------
    code, charset, length, decimals, flags : int
        As in the definition of a column; 31 decimals: a number without a fixed point.
    shape : str
        How a value is written.
    size : int
        Bytes of an integer in a binary row.
    name, full : str
        DATA_TYPE and COLUMN_TYPE in the catalogue.
    precision, scale : int or None
        NUMERIC_PRECISION and NUMERIC_SCALE.
    """

    code: int
    length: int
    shape: Shape
    name: str
    full: str
    charset: int = BINARY
    decimals: int = 0
    flags: int = _NUMBER
    size: int = 0
    precision: int | None = None
    scale: int | None = None

    @property
    def unsigned(self) -> bool:
        """Whether an integer has no sign."""
        return bool(self.flags & _UNSIGNED)


def _integer(code: int, size: int, length: int, name: str, precision: int, *, unsigned: bool = False, full: str = "") -> Type:
    sign = " unsigned" if unsigned else ""
    flags = _NUMBER | (_UNSIGNED if unsigned else 0)
    return Type(code, length, "integer", name, full or name + sign, flags=flags, size=size, precision=precision, scale=0)


def _decimal(precision: int, scale: int) -> Type:
    length = precision + 1 + (scale > 0)
    return Type(
        246, length, "decimal", "decimal", f"decimal({precision},{scale})", decimals=scale, precision=precision, scale=scale
    )


def _text(shape: Shape = "text") -> Type:
    full = f"varchar({LONGEST_TEXT})"
    return Type(253, 4 * LONGEST_TEXT, shape, "varchar", full, charset=UTF8, flags=0)


_MOMENT = Type(12, 26, "datetime", "datetime", "datetime(6)", decimals=6)
_TYPES: Final[dict[str, Type]] = {
    "BOOLEAN": _integer(1, 1, 1, "tinyint", 3, full="tinyint(1)"),
    "TINYINT": _integer(1, 1, 4, "tinyint", 3),
    "SMALLINT": _integer(2, 2, 6, "smallint", 5),
    "INTEGER": _integer(3, 4, 11, "int", 10),
    "BIGINT": _integer(8, 8, 20, "bigint", 19),
    "UTINYINT": _integer(1, 1, 3, "tinyint", 3, unsigned=True),
    "USMALLINT": _integer(2, 2, 5, "smallint", 5, unsigned=True),
    "UINTEGER": _integer(3, 4, 10, "int", 10, unsigned=True),
    "UBIGINT": _integer(8, 8, 20, "bigint", 20, unsigned=True),
    "HUGEINT": _decimal(38, 0),
    "UHUGEINT": _decimal(39, 0),
    "FLOAT": Type(4, 12, "float", "float", "float", decimals=31, size=4, precision=12),
    "DOUBLE": Type(5, 22, "double", "double", "double", decimals=31, size=8, precision=22),
    "DATE": Type(10, 10, "date", "date", "date"),
    "TIMESTAMP": _MOMENT,
    "TIMESTAMP_S": _MOMENT,
    "TIMESTAMP_MS": _MOMENT,
    "TIMESTAMP_NS": _MOMENT,
    "TIMESTAMP WITH TIME ZONE": _MOMENT,
    "TIME": Type(11, 17, "time", "time", "time(6)", decimals=6),
    "BLOB": Type(252, 65535, "bytes", "blob", "blob", flags=_NUMBER | _BLOB),
}
_NESTED = re.compile(r"\]$|^(?:STRUCT|MAP|UNION|VARIANT)\b")
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")


def of_duckdb(text: str) -> Type:
    """Return MySQL's type of DuckDB's text of one; what MySQL does not have is text, what is nested JSON as text."""
    known = _TYPES.get(text)
    if known is not None:
        return known
    if _NESTED.search(text):
        return _text("json")
    decimal = _DECIMAL.fullmatch(text)
    return _decimal(int(decimal[1]), int(decimal[2])) if decimal else _text()
