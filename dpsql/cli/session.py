"""One open database and how its results are shown: what the shell, scripts and single commands run their statements in."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO, TypeVar

import duckdb

from dpsql import sql
from dpsql.cli import results
from dpsql.cli.messages import cannot_open, message, one_line, place
from dpsql.cli.printing import Look, write
from dpsql.cli.statements import Piece, pieces
from dpsql.errors import DpsqlError
from dpsql.running import interruption
from dpsql.udfs import load

T = TypeVar("T")
MEMORY = ":memory:"
STORAGE, OLDEST = "storage_compatibility_version", "v1.4.0"
"""For new files: DuckDB's own shells of 1.4 on open them, whatever DuckDB this is."""
_DEEPEST = 20
_PLAN = re.compile(r"(?:FROM|SELECT\s+\*\s+FROM)\s+(dp_plan\s*\(.*\))\s*;?", re.IGNORECASE | re.DOTALL)
"""A statement that is a plan and nothing else."""


class Failed(Exception):
    """A statement or command failed; the text is one line for the person at the terminal."""


class Interrupted(Exception):
    """Ctrl-C ended a statement; the text says what the books know of a purchase."""


class Leave(Exception):
    """The session is to end, with this exit code."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        super().__init__(code)


def connect(path: str, *, read_only: bool = False, store: str | None = None) -> duckdb.DuckDBPyConnection:
    """Open a database with the dp_* macros loaded.

    Raises
    ------
    Failed
        It cannot be opened.
    """
    if read_only and path != MEMORY and not Path(path).exists():
        raise Failed(f"Error: {path}: no such file")
    # A new file has the storage of the oldest DuckDB that dpsql runs on: any of them can open it.
    new = path != MEMORY and not Path(path).exists()
    try:
        con = duckdb.connect(path, read_only=read_only and path != MEMORY, config={STORAGE: OLDEST} if new else {})
    except (duckdb.Error, OSError) as error:
        raise Failed(f"Error: {cannot_open(path, error)}") from None
    try:
        load(con, store=store)
    except (duckdb.Error, DpsqlError) as error:
        con.close()
        raise Failed(message(error)) from None
    return con


@dataclass
class Session:
    """A connection and the settings that dot commands change; ``dot`` runs one of those, from its text."""

    path: str = MEMORY
    read_only: bool = False
    store: str | None = None
    look: Look = field(default_factory=Look)
    timer: bool = False
    echo: bool = False
    interactive: bool = False
    fixed_width: int | None = None  # of boxes; None: the terminal's, or what COLUMNS says
    dot: Callable[[Session, str], None] = field(kw_only=True)
    con: duckdb.DuckDBPyConnection = field(init=False)
    out: TextIO = field(init=False)
    depth: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Open the database."""
        self.out = sys.stdout
        self._connect(self.path)

    def _connect(self, path: str) -> None:
        self.con = connect(path, read_only=self.read_only, store=self.store)

    def reopen(self, path: str) -> None:
        """Close this database and open another one; where that fails, this one is opened again."""
        self.con.close()
        try:
            self._connect(path)
        except Failed:
            self._connect(self.path)
            raise
        self.path = path

    def close(self) -> None:
        """Close the database and a file that output goes to."""
        self.output(None)
        self.con.close()

    def output(self, path: str | None) -> None:
        """Send results to a file from here on, or to standard output again."""
        if self.out is not sys.stdout:
            self.out.close()
            self.out = sys.stdout
        if path is not None:
            try:
                self.out = Path(path).expanduser().open("w", encoding="utf-8", newline="")
            except OSError as error:
                raise Failed(f"Error: {path} cannot be written: {error.strerror}") from None

    def script(self, text: str, name: str | None) -> None:
        """Run the statements and dot commands of a text, up to the first that fails.

        Parameters
        ----------
        text : str
        name : str or None
            Of the file, for errors, which then begin with ``name:line:``.

        Raises
        ------
        Failed, Interrupted, Leave
        """
        for piece in pieces(text):
            try:
                self.run(piece)
            except Failed as failure:
                told = str(failure)
                prefix = f"{name}:{piece.line}: " if name is not None else ""
                raise Failed(prefix + told) from None

    def read(self, path: str) -> None:
        """Run a SQL file."""
        # A file that reads itself would go on until memory ends.
        if self.depth >= _DEEPEST:
            raise Failed(f"Error: {path}: files read each other more than {_DEEPEST} deep")
        try:
            text = Path(path).expanduser().read_text(encoding="utf-8-sig")
        except OSError as error:
            raise Failed(f"Error: {path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise Failed(f"Error: {path} cannot be read: it is not text in UTF-8") from None
        self.depth += 1
        try:
            self.script(text, path)
        finally:
            self.depth -= 1

    def run(self, piece: Piece) -> None:
        """Run one statement or dot command and print what it returns."""
        if self.echo:
            self.out.write(f"{piece.text}{'' if piece.command else ';'}\n")
            self.out.flush()
        if piece.command:
            self.dot(self, piece.text)
        else:
            self.statement(piece.text, piece.line)

    def statement(self, text: str, line: int = 1) -> None:
        """Run one statement and print what it returns.

        Parameters
        ----------
        text : str
        line : int
            At which line of its file it begins.
        """
        started = time.perf_counter()
        measured = self.out is sys.stdout and (sys.stdout.isatty() or bool(os.environ.get("COLUMNS")))
        self.look.width = self.fixed_width or (shutil.get_terminal_size().columns if measured else None)
        self.guarded(lambda: self._print(text), text, line)
        if self.timer:
            told = sys.stdout if self.interactive else sys.stderr
            told.write(f"Run Time: {time.perf_counter() - started:.3f} s\n")
            told.flush()

    def _print(self, text: str) -> None:
        plan = self.look.mode == "box" and _PLAN.fullmatch(text.strip()) is not None
        look = replace(self.look, mode="line", null="", plain=True) if plan else self.look
        if plan:  # a box would hide most of its columns
            text = sql.text("show_plan").replace("{call}", _PLAN.sub(r"\1", text.strip()))
        result = results.run(self.con, text, objects=look.objects)
        if result is not None:
            try:
                write(result, look, self.out)
                if plan:
                    self.out.write("(.mode line shows all 28 columns, SELECT ... FROM dp_plan(...) those that it names)\n")
            finally:
                result.close()
        self.out.flush()

    def guarded(self, job: Callable[[], T], text: str = "", line: int = 1) -> T:
        """Do a job that Ctrl-C stops, and turn its errors into one line.

        Raises
        ------
        Failed, Interrupted
        """
        try:
            with interruption.call(interruption.Running(self.con, "interrupted")):
                return job()
        except KeyboardInterrupt as stopped:
            raise Interrupted(one_line(str(stopped)) or "interrupted") from None
        except (BrokenPipeError, Failed, Leave):
            raise
        except Exception as error:  # of DuckDB, of dpsql, or of a module that DuckDB wants
            raise Failed(self._told(error, text, line)) from None

    @staticmethod
    def _told(error: Exception, text: str, line: int) -> str:
        """Return an error as one line, with the place where a long statement has it."""
        number = place(error)
        return message(error) if number is None or "\n" not in text else f"{message(error)} (line {line + number - 1})"
