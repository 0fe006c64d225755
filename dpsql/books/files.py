"""Whether what was committed to a book is in its database's file, which is open under one name.

DuckDB can be told to keep no write-ahead log, and then a commit is gone with the process, or with `DETACH`: a charge would be
forgotten. Nothing in SQL says so of an attached database, but its files do: a commit makes the log longer, or, where it is a
checkpoint, changes the database. They are looked at and never opened: closing a file gives up all locks of the process on it,
DuckDB's too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import duckdb

_LOGS = (".wal", ".wal.checkpoint", ".wal.recovery")
_RECENT = 20_000_000
"""Nanoseconds within which the clock of a file system may not tell two writes apart."""


@dataclass(frozen=True)
class Files:
    """A database's file and its logs, as they stand at a moment.

    Parameters
    ----------
    taken : int
        When they were looked at, in nanoseconds since 1970.
    states : tuple
        Of each file what changes when it is written, None where it is not there.
    """

    path: str
    taken: int
    states: tuple[tuple[int, ...] | None, ...]

    def written_since(self) -> bool:
        """Return whether one of them has been written, or the file so shortly before that its time could not tell."""
        now = files_of(self.path)
        file = now.states[0]
        return file is None or now.states != self.states or file[1] > self.taken - _RECENT


def files_of(path: str) -> Files:
    """Return a database's files as they stand now; no state of a file that the system does not know (another one's, a URL)."""
    states: list[tuple[int, ...] | None] = []
    taken = time.time_ns()
    for name in (path, *(path + log for log in _LOGS)):
        try:
            status = Path(name).stat()
        except (OSError, ValueError):
            states.append(None)
        else:
            states.append((status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev))
    return Files(path, taken, tuple(states))


def opened(cursor: duckdb.DuckDBPyConnection, database: str) -> tuple[Files | None, str | None]:
    """Return the files of an attached database, None where it is in memory, and another name under which its file is attached."""
    rows = cursor.execute("SELECT database_name, path FROM system.main.duckdb_databases() WHERE path IS NOT NULL").fetchall()
    paths = {str(name): str(path) for name, path in rows if path}
    if database not in paths:
        return None, None
    here = files_of(paths.pop(database))
    own = here.states[0]
    twice = (name for name, path in paths.items() if own is not None and (files_of(path).states[0] or ())[2:] == own[2:])
    return here, next(twice, None)
