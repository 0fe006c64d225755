"""Databases for less: copies of one that was made once, which take a fifth of making and protecting its tables again, and a
second session for what a test looks up beside its calls.
"""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

import dpsql

_BESIDE: weakref.WeakKeyDictionary[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection] = weakref.WeakKeyDictionary()


def beside(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Return a cursor of a connection, the same one each time: after a new one dpsql lists all functions of the database anew."""
    if con not in _BESIDE:
        _BESIDE[con] = con.cursor()
    return _BESIDE[con]


@contextmanager
def copied(made: Path, folder: Path, **load: Any) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a copy of a closed database file and of its releases in a folder, with dpsql loaded, and close it at the end."""
    store = made.with_name(made.name + ".dpsql")
    if store.is_dir():
        shutil.copytree(store, folder / store.name)
    with duckdb.connect(str(shutil.copy(made, folder / made.name))) as con:
        dpsql.load(con, **load)
        yield con
