"""Whether analysts' own SQL has taken more memory than it may have: then it is stopped, before a purchase beside it fails.

DuckDB has one limit of memory for all. A sum of lists or a sort of a cross join would take all of it, and whoever reads protected
rows at that moment would fail: such a reading is final. SQL over public tables and answers costs nothing to ask again: it goes
first.
"""

from __future__ import annotations

import re
import threading

import duckdb

from dpsql.serve.answers import SIZE

SHARE = 0.75
"""Of DuckDB's limit: what all that runs may take before analysts' own SQL is stopped. Cached pages of tables do not count."""
_USED = (
    "SELECT coalesce(system.main.sum(memory_usage_bytes), 0)::BIGINT FROM system.main.duckdb_memory() "
    "WHERE tag NOT IN ('BASE_TABLE', 'METADATA', 'EXTERNAL_FILE_CACHE')"
)
_LIMIT = re.compile(r"([0-9.]+) ?(bytes|[KMGT]iB)")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class Shortage:
    """Looks at the memory of an open database, on a cursor of its own.

    Parameters
    ----------
    con : DuckDB connection
    answers : int
        Bytes that all answers may have in the end; one that is being made may pass them by as much again.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, answers: int) -> None:
        self._cursor, self._answers = con.cursor(), answers
        self._guard = threading.Lock()
        found = self._cursor.execute("SELECT system.main.current_setting('memory_limit')").fetchall()[0][0]
        read = _LIMIT.fullmatch(str(found))
        self._most = SHARE * float(read[1]) * _UNITS[read[2]] if read else float("inf")

    def __call__(self) -> bool:
        """Return whether memory is short."""
        with self._guard:
            try:
                used = self._cursor.execute(_USED).fetchall()[0][0]
                answers = self._cursor.execute(SIZE).fetchall()[0][0]
            except duckdb.OutOfMemoryException:
                return True
            except duckdb.Error:  # the database is being closed
                return False
        return bool(used > self._most or answers > 2 * self._answers)

    def close(self) -> None:
        """Close the cursor."""
        with self._guard:
            self._cursor.close()
