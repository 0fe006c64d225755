"""DuckDB's types of what comes over MySQL's protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_UNSIGNED, _BINARY = 0x20, 63
_INTEGERS = {1: "TINYINT", 2: "SMALLINT", 3: "INTEGER", 8: "BIGINT", 9: "INTEGER"}
_OTHERS = {4: "FLOAT", 5: "DOUBLE", 10: "DATE", 14: "DATE", 7: "TIMESTAMP", 12: "TIMESTAMP", 11: "TIME"}
_DECIMAL, _BLOBS = 246, (249, 250, 251, 252, 253, 254)


@dataclass(frozen=True)
class Field:
    """A column of an answer: its name, and its type in DuckDB."""

    name: str
    type: str

    def read(self, column: str) -> str:
        """Return SQL of the value whose text is in a column; bytes come as texts of hexadecimal digits."""
        if self.type == "VARCHAR":
            return f"{column}::VARCHAR"
        return f"unhex({column}::VARCHAR)" if self.type == "BLOB" else f"{column}::VARCHAR::{self.type}"


def of_field(described: Any) -> Field:
    """Return the column of a description of pymysql's.

    A BOOLEAN is an integer of one digit there; a HUGEINT a DECIMAL without places; other texts, JSON among them, are VARCHAR.
    """
    code, name = described.type_code, described.name
    if code in _INTEGERS:
        if code == 1 and described.length == 1:
            return Field(name, "BOOLEAN")
        return Field(name, f"{'U' if described.flags & _UNSIGNED else ''}{_INTEGERS[code]}")
    if code == _DECIMAL:
        places = described.scale
        digits = described.length - 1 - (places > 0)
        if digits > 38:
            return Field(name, "UHUGEINT")
        return Field(name, f"DECIMAL({digits},{places})" if places or digits < 38 else "HUGEINT")
    if code in _BLOBS and described.charsetnr == _BINARY:
        return Field(name, "BLOB")
    return Field(name, _OTHERS.get(code, "VARCHAR"))
