"""Whether what was committed to a book is in its database's file, which is open under one name, by one program.

DuckDB keeps other programs out by a lock of the process on the file, which the system takes away as soon as anything in the
process closes the file: a copy, `open`, `read_blob`. Then two programs would each sell the whole budget. What Linux says of locks
and of open files is looked at; where it says nothing (other systems, some containers) an anchor alone notices.

DuckDB can be told to keep no write-ahead log, and then a commit is gone with the process, or with `DETACH`: a charge would be
forgotten. Nothing in SQL says so of an attached database, but its files do: a commit makes the log longer, or, where it is a
checkpoint, changes the database. They are looked at and never opened, for the sake of the lock.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
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
    """Return the files of an attached database, and another name under which its file is attached.

    None of both where it is in memory, or cannot be written to.
    """
    query = "SELECT database_name, path, readonly FROM system.main.duckdb_databases() WHERE path IS NOT NULL"
    rows = cursor.execute(query).fetchall()
    paths = {str(name): str(path) for name, path, _ in rows if path}
    if database not in paths or any(name == database and readonly for name, _, readonly in rows):
        return None, None
    here = files_of(paths.pop(database))
    own = here.states[0]
    twice = (name for name, path in paths.items() if own is not None and (files_of(path).states[0] or ())[2:] == own[2:])
    return here, next(twice, None)


def not_alone(here: Files) -> str | None:
    """Return why another program, or another database of this process, may write to a file that is open here; None if none does."""
    own = here.states[0]
    if own is None or not sys.platform.startswith("linux"):
        return None
    number = own[2]
    if _open_here(own) > 1:
        return "it is open twice in this process, by two names of one file: close one of them"
    locked = _locked_here()
    if locked is None or number in locked or not _shows_locks(str(Path(here.path).parent)):
        return None
    return (
        "this process does not hold DuckDB's lock on it any more, since something in the process opened and closed the file (a "
        "copy, open(), read_blob), so that another program may write to it: close all connections to it and connect again"
    )


def open_here(path: str) -> bool:
    """Return whether this process has a file open, as far as the system says."""
    own = files_of(path).states[0]
    return own is not None and _open_here(own) > 0


def _open_here(state: tuple[int, ...]) -> int:
    """Return how often this process has a file open; 0 where the system does not say."""
    count = 0
    with suppress(OSError):
        for opened_file in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                status = opened_file.stat()
                count += (status.st_ino, status.st_dev) == state[2:]
    return count


def _locked_here() -> set[int] | None:
    """Return the numbers of the files that this process alone may write to; None where the system does not say."""
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    parts = [line.split() for line in lines]
    mine = (part for part in parts if len(part) > 5 and part[1] == "POSIX" and part[3] == "WRITE" and part[4] == str(os.getpid()))
    return {int(part[5].rsplit(":", 1)[-1]) for part in mine}


@cache
def _shows_locks(folder: str) -> bool:
    """Return whether a lock on a file of a folder is among those that the system says this process has."""
    import fcntl  # not on every system

    with suppress(OSError), tempfile.TemporaryFile(dir=folder) as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(file.fileno()).st_ino in (_locked_here() or ())
    return False
