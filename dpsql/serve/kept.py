"""Answers that Quack's connections read: tables of a database in memory, each under a name that nobody can guess.

Privacy: None: what is kept was answered. No other analyst can name it: the room knows one database alone.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import duckdb

from dpsql.serve.passed import Answer
from dpsql.text.relation import identifier

_DATABASE = "__dpsql_answers"
_TOGETHER = 50_000
"""Rows that are put in at once."""


def attach(con: duckdb.DuckDBPyConnection) -> None:
    """Attach the database that they are in; where the configuration is locked nothing can be attached."""
    con.execute(f"ATTACH ':memory:' AS {identifier(_DATABASE)}")


class Kept:
    """The answers that may still be read: the last few of each session, and for some minutes.

    Parameters
    ----------
    con : duckdb.DuckDBPyConnection
        Of the served database, with the one of the answers attached.
    each : int
        Answers of one session.
    seconds : float
        How long one is kept, at most.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, each: int = 4, seconds: float = 300.0) -> None:
        self._con, self._each, self._seconds = con, each, seconds
        self._names: dict[str, tuple[str, float]] = {}  # of which session, and since when; the oldest first
        self._guard = threading.Lock()

    def put(self, session: str, answer: Answer) -> str:
        """Keep an answer, with its types and in its order; return the query that reads it.

        Raises
        ------
        duckdb.Error
            There is no memory for it.
        """
        name = f"answer_{secrets.token_hex(16)}"
        types = ["INTEGER" if column.type.strip('"') == "NULL" else column.type for column in answer.columns]
        with self._con.cursor() as cursor:
            columns = ", ".join(f"c{place} {kind}" for place, kind in enumerate(types))
            cursor.execute(f"CREATE TABLE {_table(name)} ({columns})")
            try:
                _fill(cursor, name, types, answer.rows)
            except BaseException:
                _drop(cursor, [name])
                raise
            self._remember(cursor, name, session)
        shown = ", ".join(f"c{place} AS {identifier(column.name)}" for place, column in enumerate(answer.columns))
        return f"SELECT {shown} FROM {_table(name)}"  # noqa: S608 -- quoted

    def _remember(self, cursor: duckdb.DuckDBPyConnection, name: str, session: str) -> None:
        """Keep a name, and forget what is too old or too much; whoever is reading one reads it to its end."""
        now = time.monotonic()
        with self._guard:
            self._names[name] = (session, now)
            hers = [each for each, (whose, _) in self._names.items() if whose == session]
            old = {each for each, (_, since) in self._names.items() if now - since > self._seconds} | set(hers[: -self._each])
            for older in old:
                del self._names[older]
        _drop(cursor, old)

    def latest(self) -> float:
        """Return when the latest answer was kept, by the monotonic clock; minus infinity: there is none."""
        with self._guard:
            return max((since for _, since in self._names.values()), default=-math.inf)


def _fill(cursor: duckdb.DuckDBPyConnection, name: str, types: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Put rows in, column by column."""
    unnested = ", ".join(f"unnest(${place}::{kind}[])" for place, kind in enumerate(types, 1))
    for start in range(0, len(rows), _TOGETHER):
        columns = [_values(list(column)) for column in zip(*rows[start : start + _TOGETHER], strict=True)]
        cursor.execute(f"INSERT INTO {_table(name)} SELECT {unnested}", columns)


def _values(column: list[Any]) -> list[Any]:
    """Return a column as DuckDB takes it for a parameter: not-a-number would become NULL."""
    if any(isinstance(value, float) and math.isnan(value) for value in column):
        return [None if value is None else repr(value) for value in column]
    return column


def _drop(cursor: duckdb.DuckDBPyConnection, names: Sequence[str] | set[str]) -> None:
    for name in names:
        with suppress(duckdb.Error):
            cursor.execute(f"DROP TABLE IF EXISTS {_table(name)}")


def _table(name: str) -> str:
    return identifier(_DATABASE, "main", name)
