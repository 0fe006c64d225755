"""What a statement returns, run once: names, types, and values as DuckDB itself writes them.

A query is wrapped, so that DuckDB casts every value to text, and nothing is lost on the way through Python's types (months
of an interval, nanoseconds, dates before Christ). Rows are read as they are asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import duckdb

BATCH = 2048
"""Rows that are read at a time."""

Row = Sequence[str | None]

# The query keeps its line numbers: it begins on the first line. The line break ends a comment in its last one.
_TEXTS = "SELECT CASE WHEN false THEN COLUMNS(*) END, CAST(COLUMNS(*) AS VARCHAR) FROM ({}\n)"
_JSON = "SELECT to_json(__dpsql_row)::VARCHAR FROM ({}\n) AS __dpsql_row"
_CALL = re.compile(r"call\b", re.IGNORECASE)
_NOT_A_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*"|-?\b(?:NaN|Infinity)\b')


@dataclass
class Result:
    """Rows of an executed statement; they can be read once.

    Attributes
    ----------
    names, types : list of str
        Of the columns. No types where rows are JSON objects.
    explained : bool
        Whether this is the text of an EXPLAIN.
    """

    con: duckdb.DuckDBPyConnection
    names: list[str]
    types: list[str]
    skip: int = 0
    explained: bool = False
    exhausted: bool = field(default=False, init=False)

    def batches(self) -> Iterator[list[tuple[Any, ...]]]:
        """Yield rows in batches; each row as text, with None for NULL."""
        while True:
            rows = self.con.fetchmany(BATCH)
            if not rows:
                self.exhausted = True
                return
            yield [row[self.skip :] for row in rows] if self.skip else [tuple(map(text_of, row)) for row in rows]

    def rows(self) -> Iterator[Row]:
        """Yield rows."""
        for batch in self.batches():
            yield from batch

    def close(self) -> None:
        """End the query where rows are left: it holds a snapshot and its memory."""
        if not self.exhausted:
            with suppress(duckdb.Error):
                self.con.execute("SELECT NULL").fetchall()


@dataclass
class Objects(Result):
    """Rows as JSON objects."""

    wrapped: bool = True

    def objects(self) -> Iterator[str]:
        """Yield one JSON object a row."""
        while True:
            rows = self.con.fetchmany(BATCH)
            if not rows:
                self.exhausted = True
                return
            for row in rows:
                yield _strict(row[0]) if self.wrapped else _object(self.names, row)


def run(con: duckdb.DuckDBPyConnection, text: str, *, objects: bool = False) -> Result | None:
    """Run one statement; return its rows, or None if it returns none.

    Parameters
    ----------
    con : DuckDB connection
    text : str
        The statement, without its semicolon.
    objects : bool
        Whether rows are wanted as JSON objects.

    Raises
    ------
    duckdb.Error
        The statement is wrong or fails.
    """
    result = None
    for statement in con.extract_statements(text):  # one; more where DuckDB 1.x rewrites it (PIVOT)
        result = _run(con, statement, text, objects=objects)
    return result


def _run(con: duckdb.DuckDBPyConnection, statement: duckdb.Statement, text: str, *, objects: bool) -> Result | None:
    query = _query(statement)
    for wrapped in _wrapped(con, query, _JSON if objects else _TEXTS):
        con.execute(wrapped)
        if objects:
            return Objects(con, [], [])
        columns = con.description or []
        # Each column comes twice: as it is, for its type, and as the text that is shown.
        half = len(columns) // 2
        return Result(con, [c[0] for c in columns[:half]], [str(c[1]) for c in columns[:half]], skip=half)
    con.execute(statement)
    # Statements such as CREATE return a number of rows that nobody asked for.
    if not _returns_rows(con, statement, text):
        return None
    columns = con.description or []
    names, types = [c[0] for c in columns], [str(c[1]) for c in columns]
    explained = statement.type == duckdb.StatementType.EXPLAIN
    if objects:
        return Objects(con, names, types, explained=explained, wrapped=False)
    return Result(con, names, types, explained=explained)


def _query(statement: duckdb.Statement) -> str | None:
    """Return the text of a statement that can stand as a subquery, None if it can't."""
    text = statement.query.strip().rstrip(";")
    if statement.type == duckdb.StatementType.CALL:  # CALL f(...) is FROM f(...), and dp_* macros are called either way
        return f"FROM {text[4:]}" if _CALL.match(text) else None
    return text if text and statement.type == duckdb.StatementType.SELECT else None


def _wrapped(con: duckdb.DuckDBPyConnection, query: str | None, wrap: str) -> list[duckdb.Statement]:
    """Return the wrapped query, nothing where the grammar has no place for it; nothing is bound or run."""
    if query is None:
        return []
    try:
        statements = con.extract_statements(wrap.format(query))
    except duckdb.ParserException:
        return []
    return statements if len(statements) == 1 else []


def _returns_rows(con: duckdb.DuckDBPyConnection, statement: duckdb.Statement, text: str) -> bool:
    """Whether an executed statement returned rows of its own, rather than how many it changed."""
    if duckdb.ExpectedResultType.QUERY_RESULT not in statement.expected_result_type:
        return False
    shape = [(c[0], str(c[1])) for c in con.description or []]
    if shape == [("Success", "BOOLEAN")]:
        return False
    return shape != [("Count", "BIGINT")] or "returning" in text.lower()


def text_of(value: Any) -> str | None:
    r"""Return a Python value as DuckDB would write it: for the few statements that cannot be wrapped.

    Examples
    --------
    >>> text_of([1, None, {"a": True}]), text_of(None), text_of(b"a\xff")
    ("[1, NULL, {'a': true}]", None, 'a\\xFF')
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return "".join(chr(b) if 32 <= b < 127 and b not in b"\\'\"" else f"\\x{b:02X}" for b in value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join("NULL" if v is None else str(text_of(v)) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"'{k}': {'NULL' if v is None else text_of(v)}" for k, v in value.items()) + "}"
    return str(value)


def _strict(row: str) -> str:
    """Return DuckDB's JSON with NaN and infinities, which JSON does not have, as texts."""
    if "NaN" not in row and "Infinity" not in row:
        return row
    return _NOT_A_NUMBER.sub(lambda match: match[0] if match[0].startswith('"') else f'"{match[0]}"', row)


def _object(names: Sequence[str], row: Sequence[Any]) -> str:
    return json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False, default=text_of, separators=(",", ":"))
