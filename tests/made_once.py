"""Databases in memory that are made once a process and copied: a quarter of the time of making and protecting their tables again."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Callable, Hashable
from pathlib import Path

import duckdb
from seeded_entropy import SOURCES, Streams


@functools.cache
def _folder() -> Path:
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@functools.cache
def _made(make: Callable[..., None], given: tuple[Hashable, ...], named: tuple[tuple[str, Hashable], ...]) -> Path:
    """Return the file of a database; what is drawn for it is drawn for no test, whichever comes first."""
    path = _folder() / f"{len(list(_folder().iterdir()))}.duckdb"
    before = SOURCES.use(Streams(f"{make.__module__}.{make.__qualname__}{given}{named}"))
    try:
        with duckdb.connect(str(path)) as con:
            make(con, *given, **dict(named))
    finally:
        SOURCES.use(before)
    return path


def in_memory(make: Callable[..., None], *given: Hashable, **named: Hashable) -> duckdb.DuckDBPyConnection:
    """Return a database as ``make(con, ...)`` makes it, of which it has bought nothing. dpsql is not loaded yet."""
    con = duckdb.connect()
    con.execute(f"ATTACH '{_made(make, given, tuple(named.items()))}' AS made (READ_ONLY); COPY FROM DATABASE made TO memory; DETACH made")
    return con
