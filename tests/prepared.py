"""Copies of a database that was made once: opening one takes a third of making and protecting its tables again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

import dpsql


@contextmanager
def copied(made: Path, folder: Path, **load: Any) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a copy of a closed database file and of its releases in a folder, with dpsql loaded, and close it at the end."""
    store = made.with_name(made.name + ".dpsql")
    if store.is_dir():
        shutil.copytree(store, folder / store.name)
    with duckdb.connect(str(shutil.copy(made, folder / made.name))) as con:
        dpsql.load(con, **load)
        yield con
