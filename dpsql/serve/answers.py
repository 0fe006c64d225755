"""Finished answers: tables of a database in memory that Quack's connections read, each under a name that nobody can guess."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress

import duckdb

from dpsql.errors import DpsqlError
from dpsql.serve.errors import TOO_LARGE
from dpsql.text.relation import identifier

DATABASE = "__dpsql_answers"
SIZE = """
SELECT coalesce(system.main.sum(memory_usage_bytes + temporary_storage_bytes), 0)::BIGINT FROM system.main.duckdb_memory()
WHERE tag IN ('IN_MEMORY_TABLE', 'OVERFLOW_STRINGS')
"""
"""The bytes of all answers: long texts are counted on their own, and so is what was written to disk for want of memory."""


class Answers:
    """The answers that may still be read.

    Parameters
    ----------
    borrowed : callable
        Lends a cursor for a block.
    rows, size : int
        The most rows of one answer; the most bytes of all that are kept.
    seconds : float
        How long one is kept.
    """

    def __init__(
        self, borrowed: Callable[[], AbstractContextManager[duckdb.DuckDBPyConnection]], rows: int, size: int, seconds: float
    ) -> None:
        self._borrowed, self._rows, self._size, self._seconds = borrowed, rows, size, seconds
        self._made: dict[str, tuple[float, str]] = {}  # when, and whose
        self._guard = threading.Lock()

    @staticmethod
    def attach(con: duckdb.DuckDBPyConnection) -> None:
        """Attach the database that they are in."""
        con.execute(f"ATTACH ':memory:' AS {identifier(DATABASE)}")

    def keep(self, cursor: duckdb.DuckDBPyConnection, sql: str, owner: str = "") -> str:
        """Run a query and keep its answer, with types and order; return its name.

        Where there is no room, older answers of the same owner go first, then others'.

        Raises
        ------
        DpsqlError
            It is too large.
        """
        name = secrets.token_hex(16)
        with self._guard:
            self._made[name] = (time.monotonic(), owner)
        try:
            limited = f"CREATE TABLE {relation(name)} AS SELECT * FROM ({sql}) LIMIT {self._rows + 1}"  # noqa: S608 -- the gate's
            rows = cursor.execute(limited).fetchall()[0][0]
            if rows > self._rows or not self._fits(cursor, name, owner):
                raise DpsqlError(TOO_LARGE.format(rows=self._rows, megabytes=self._size >> 20))
        except BaseException:
            self.drop([name])
            raise
        return name

    def _fits(self, cursor: duckdb.DuckDBPyConnection, name: str, owner: str) -> bool:
        """Make room among the older answers; return whether that was enough."""
        while self._bytes(cursor) > self._size:
            with self._guard:
                older = [other for other in self._made if other != name]
                hers = [other for other in older if self._made[other][1] == owner]
            if not older:
                return False
            self.drop(hers or older[: max(1, len(older) // 2)])
        return True

    @staticmethod
    def _bytes(cursor: duckdb.DuckDBPyConnection) -> int:
        return int(cursor.execute(SIZE).fetchall()[0][0])

    def drop(self, names: Iterable[str]) -> None:
        """Forget answers; whoever is reading one reads it to its end."""
        with self._guard:
            known = [name for name in names if self._made.pop(name, None) is not None]
        if not known:
            return
        with self._borrowed() as cursor:
            for name in known:
                with suppress(duckdb.Error):
                    cursor.execute(f"DROP TABLE IF EXISTS {relation(name)}")

    def sweep(self) -> None:
        """Forget what is too old."""
        limit = time.monotonic() - self._seconds
        with self._guard:
            old = [name for name, (made, _) in self._made.items() if made < limit]
        self.drop(old)


def relation(name: str) -> str:
    """Return the quoted name of an answer's table."""
    return f"{identifier(DATABASE)}.main.{identifier(name)}"
