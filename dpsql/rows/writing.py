"""Frames into DuckDB: a Parquet file, a folder of them, or a table. Everything here is post-processing.

What was measured on wide 0/1 tables (DuckDB 2.0): a table takes some 28 million values a second and core, half of which
goes into choosing a compression; Parquet takes 200. DuckDB scans a frame with one thread per 102,400 rows and stores
122,880 rows together, and a row group that two threads fill is written a second time. So frames hold one row group
each, and several of them are joined by UNION ALL: every thread then has its own row group. To keep the order of rows
DuckDB wants 4 MB a column and thread, and else takes one thread: where there are several frames it need not keep it.

A frame that is registered inside a transaction stays in memory until its end. So frames are not registered, but found by
DuckDB among the variables of the function that executes the statement.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import duckdb

from dpsql.running import progress
from dpsql.running.background import Background
from dpsql.text.relation import identifier, literal

if TYPE_CHECKING:
    import pandas as pd


class Sink(Protocol):
    """Where rows go."""

    def add(self, cursor: duckdb.DuckDBPyConnection, statement: str, frames: Frames = ()) -> None:
        """Take the rows of a query, which reads these frames."""
        ...


Frames = Sequence["pd.DataFrame"]
FRAMES = tuple(f"__dpsql_frame_{i}" for i in range(8))
"""What statements call the frames that they read: the parameters of `_execute`."""


def _execute(  # DuckDB looks the frames up among the variables of this function
    cursor: duckdb.DuckDBPyConnection,
    statement: str,
    __dpsql_frame_0: pd.DataFrame | None = None,
    __dpsql_frame_1: pd.DataFrame | None = None,
    __dpsql_frame_2: pd.DataFrame | None = None,
    __dpsql_frame_3: pd.DataFrame | None = None,
    __dpsql_frame_4: pd.DataFrame | None = None,
    __dpsql_frame_5: pd.DataFrame | None = None,
    __dpsql_frame_6: pd.DataFrame | None = None,
    __dpsql_frame_7: pd.DataFrame | None = None,
) -> None:
    cursor.execute(statement)


def run(cursor: duckdb.DuckDBPyConnection, statement: str, frames: Frames = ()) -> None:
    """Execute a statement that may take long, so that Ctrl-C ends it within about a second."""
    with Background(cursor, "dpsql-write") as background:
        background.run(lambda: _execute(cursor, statement, *frames))


@contextmanager
def unordered(cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Let the cursor's statements, and no other's, write rows in any order; where settings are locked they keep it."""
    with suppress(duckdb.Error):
        cursor.execute("SET SESSION preserve_insertion_order = false")
    try:
        yield
    finally:
        with suppress(duckdb.Error):
            cursor.execute("SET SESSION preserve_insertion_order = true")


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
    done, waiting = 0, iter(batches)
    while True:
        with progress.stage("sampling"):
            progress.advance(done / total if total else 0.0)
            frames = next(waiting, None)
        if frames is None:
            return
        with progress.stage("writing"):
            progress.advance(done / total if total else 0.0)
            with visible(cursor, frames):
                sink.add(cursor, " UNION ALL ".join(f"({select(name)})" for name in FRAMES[: len(frames)]), frames)
            done += sum(map(len, frames))
            # Before the next frames are drawn: else two statements' rows would be in memory.
            del frames


@contextmanager
def visible(cursor: duckdb.DuckDBPyConnection, frames: Frames) -> Iterator[None]:
    """Register frames where the session does not let DuckDB find variables, which it counts as access from outside, too."""
    settings = cursor.execute(
        "SELECT current_setting('python_enable_replacements') AND current_setting('enable_external_access')"
    ).fetchall()
    named = [] if settings[0][0] else list(zip(FRAMES, frames, strict=False))
    for name, frame in named:
        cursor.register(name, frame)
    try:
        yield
    finally:
        for name, _ in named:
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

    def add(self, cursor: duckdb.DuckDBPyConnection, statement: str, frames: Frames = ()) -> None:
        """Insert rows; the first ones say what columns the table has. In no certain order where there are several frames."""
        if not self._made:
            _execute(cursor, f"CREATE OR REPLACE TABLE {self._quoted} AS ({statement}) WITH NO DATA", *frames)
            self._made = True
        with unordered(cursor) if len(frames) > 1 else nullcontext():
            run(cursor, f"INSERT INTO {self._quoted} {statement}", frames)


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

    def add(self, cursor: duckdb.DuckDBPyConnection, statement: str, frames: Frames = ()) -> None:
        """Write one part."""
        part = self._draft / f"{self._parts:06d}.parquet"
        run(cursor, f"COPY ({statement}) TO {literal(str(part))} (FORMAT parquet)", frames)
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
