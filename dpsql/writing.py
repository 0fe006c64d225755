"""Frames into DuckDB: a Parquet file, a folder of them, or a table. Everything here is post-processing.

What was measured on wide 0/1 tables (DuckDB 2.0): a table takes some 28 million values a second and core, half of which
goes into choosing a compression; Parquet takes 200. DuckDB scans a frame with one thread per 102,400 rows and stores
122,880 rows together, and a row group that two threads fill is written a second time. So frames hold one row group
each, and several of them are joined by UNION ALL: every thread then has its own row group.
"""

from __future__ import annotations

import secrets
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import duckdb
import pandas as pd

from dpsql import progress
from dpsql.relation import identifier, literal

_LOOK_EVERY = 0.2
"""Seconds between two looks at whether the user has pressed Ctrl-C."""


class Sink(Protocol):
    """Where rows go."""

    def add(self, cursor: duckdb.DuckDBPyConnection, statement: str) -> None:
        """Take the rows of a query."""
        ...


def run(cursor: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Execute a statement that may take long, so that Ctrl-C ends it within about a second.

    DuckDB looks for signals between tasks, and a task on a wide table may take several seconds; `interrupt` is looked at
    after every 2,048 rows.
    """
    failed: list[BaseException] = []
    ended = threading.Event()  # a join that Ctrl-C interrupts takes the thread for ended (Python before 3.13)

    def work() -> None:
        try:
            cursor.execute(statement)
        except BaseException as error:  # noqa: BLE001 -- raised again in the calling thread
            failed.append(error)
        finally:
            ended.set()

    threading.Thread(target=work, name="dpsql-write", daemon=True).start()
    try:
        while not ended.wait(_LOOK_EVERY):
            pass
    except BaseException:
        while not ended.is_set():
            cursor.interrupt()
            ended.wait(_LOOK_EVERY)
        raise
    if failed:
        raise failed[0]


def write(
    cursor: duckdb.DuckDBPyConnection,
    batches: Iterable[Sequence[pd.DataFrame]],
    select: Callable[[str], str],
    sink: Sink,
    total: int | None = None,
) -> None:
    """Write frames, in order.

    Parameters
    ----------
    batches : iterable of sequences of DataFrame
        At least one frame, which may have no rows: it says what columns there are. Each sequence is one statement.
    select : function
        Returns the query that reads a frame of the given name.
    total : int, optional
        Number of rows, to show how far it is.
    """
    token, done, waiting = secrets.token_hex(8), 0, iter(batches)
    while True:
        with progress.stage("sampling"):
            progress.advance(done / total if total else 0.0)
            frames = next(waiting, None)
        if frames is None:
            return
        with progress.stage("writing"):
            progress.advance(done / total if total else 0.0)
            names = [f"__dp_block_{token}_{i}" for i in range(len(frames))]
            with _registered(cursor, names, frames):
                sink.add(cursor, " UNION ALL ".join(f"({select(name)})" for name in names))
            done += sum(map(len, frames))
            del frames


@contextmanager
def _registered(cursor: duckdb.DuckDBPyConnection, names: Sequence[str], frames: Sequence[pd.DataFrame]) -> Iterator[None]:
    """Let the cursor's SQL read frames under names."""
    for name, frame in zip(names, frames, strict=True):
        cursor.register(name, frame)
    try:
        yield
    finally:
        for name in names:
            with suppress(duckdb.Error):
                cursor.unregister(name)


class TableSink:
    """A table that is created in the cursor's transaction.

    Parameters
    ----------
    quoted : str
        Its quoted name.
    """

    def __init__(self, quoted: str) -> None:
        self._quoted = quoted
        self._made = False
        self.rows = 0

    def add(self, cursor: duckdb.DuckDBPyConnection, statement: str) -> None:
        """Insert rows; the first ones say what columns the table has."""
        if not self._made:
            cursor.execute(f"CREATE OR REPLACE TABLE {self._quoted} AS ({statement}) WITH NO DATA")
            self._made = True
        run(cursor, f"INSERT INTO {self._quoted} {statement}")


class FileSink:
    """One Parquet file, or a folder of them where there are several parts; it has its name once it is complete.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        self._parts = 0

    def add(self, cursor: duckdb.DuckDBPyConnection, statement: str) -> None:
        """Write one part."""
        part = self._draft / f"{self._parts:06d}.parquet"
        run(cursor, f"COPY ({statement}) TO {literal(str(part))} (FORMAT parquet)")
        self._parts += 1

    def __enter__(self) -> FileSink:
        """Make room for the parts."""
        self._draft.mkdir()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Give the file its name, or remove what there is."""
        try:
            if kind is None and self._parts == 1:
                (self._draft / "000000.parquet").replace(self._path)
            elif kind is None:
                self._draft.replace(self._path)
        finally:
            shutil.rmtree(self._draft, ignore_errors=True)


def parquet_files(path: Path) -> str:
    """Return a relation that reads what a `FileSink` has written, rows in order."""
    parts = sorted(path.iterdir()) if path.is_dir() else [path]
    listed = literal([str(part) for part in parts]) if len(parts) > 1 else literal(str(parts[0]))
    return f"read_parquet({listed})"


def select_of(columns: Sequence[str]) -> Callable[[str], str]:
    """Return the function that gives the query of these expressions over a frame."""
    listed = ", ".join(columns)
    return lambda name: f"SELECT {listed} FROM {identifier(name)}"  # noqa: S608 -- expressions of ours
