"""The outer statement of a query run over made-up numbers, before anything is charged: what fails whatever they are fails there.

DuckDB binds an unknown time zone, or a text that is no number, without a word, and fails once a row comes. So a row of NULLs is
given to the statement, and, where that fails, a row of ones: what fails on both is refused. No row of a protected table is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from dpsql.text.relation import literal

_READS = ("BASE_TABLE", "TABLE_FUNCTION")
_ONES = {"BOOLEAN": "true", "VARCHAR": "1", "DATE": "2001-01-01", "TIME": "01:01:01"}


@dataclass(frozen=True)
class Column:
    """A column of the relation that stands for a core: its type, and the texts of its values, None for NULL."""

    sql_type: str
    texts: list[str | None]
    expression: str = "CAST({} AS {})"

    @property
    def sql(self) -> str:
        """The column as SQL, made of texts."""
        texts = json.dumps(self.texts, ensure_ascii=False)
        values = f"unnest(system.main.from_json({literal(texts)}, '[\"VARCHAR\"]'))"
        return self.expression.format(values, self.sql_type)


def check(
    cursor: duckdb.DuckDBPyConnection,
    cores: Mapping[str, Mapping[str, Column]],
    text: Callable[[Mapping[str, Mapping[str, Column]]], str],
    parsed: Sequence[Mapping[str, Any]],
) -> None:
    """Run a statement over made-up rows; one that reads other tables or makes rows itself is not run.

    Parameters
    ----------
    cores : mapping
        The empty relations of the statement, by name.
    text : callable
        Returns the statement over such relations.
    parsed : sequence of mapping
        The nodes of the statement.

    Raises
    ------
    duckdb.Error
        It fails on NULLs, and on ones; the error is that of the latter.
    """
    others = [node for node in parsed if node.get("type") in _READS and str(node.get("table_name")) not in cores]
    if others:
        return
    try:
        cursor.execute(text(_rows(cores, lambda _: None))).fetchall()
    except duckdb.InterruptException:
        raise
    except duckdb.Error:
        cursor.execute(text(_rows(cores, _one))).fetchall()


def _rows(cores: Mapping[str, Mapping[str, Column]], value: Callable[[str], str | None]) -> dict[str, dict[str, Column]]:
    return {
        name: {key: Column(column.sql_type, [value(column.sql_type)], column.expression) for key, column in columns.items()}
        for name, columns in cores.items()
    }


def _one(kind: str) -> str | None:
    """Return a value of a type, as text; None where it is not a plain one."""
    if kind in _ONES:
        return _ONES[kind]
    if kind.startswith("TIMESTAMP"):
        return "2001-01-01 01:01:01"
    numbers = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL")
    return "1" if kind.removeprefix("U").startswith(numbers) and not kind.endswith("]") else None
