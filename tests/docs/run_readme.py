"""Run the SQL, Python and marked shell blocks of the README and of docs/, each page in order and on a database of its own.

``run_readme.py`` runs all pages, ``run_readme.py docs/asking.md README.md`` those. Exits non-zero where a block fails.

What a page may hold, besides plain blocks:

- a page begins with a connection ``con`` to a new ``census.duckdb`` that dpsql is loaded on, as in ``dpsql shell census.duckdb``;
- ``<!-- sql ... -->`` and ``<!-- python ... -->``: blocks that run and are not shown;
- ``<!-- as on asking.md -->``: the first block of SQL of that page of docs/ runs here;
- ``<!-- fails -->`` before a block of SQL: each of its statements must fail; a ``text`` block behind it is (the beginning of) the
  last message, blanks aside;
- ``<!-- walkthrough: ...`` anywhere: nothing of the page runs here, it says where it does;
- ``<!-- run -->`` before a block of shell commands: it is run by bash in the page's folder, the database being closed meanwhile;
- a ``text`` block behind a block of SQL, or of commands that ran: the columns of each box in it must be those of an answer of that
  block, in order; ``…`` stands for columns that are left out.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb

import dpsql
from dpsql.cli.commands import main as main_of_commands

ROOT = Path(__file__).parents[2]
DATABASE = "census.duckdb"
_FENCE = re.compile(
    r"(?:<!-- (?P<mark>fails|run) -->\n)?^```(?P<language>python|sql|sh|text)\n(?P<shown>.*?)^```", re.DOTALL | re.MULTILINE
)
_BORROWED = re.compile(r"^<!-- as on (?P<page>\S+) -->$", re.MULTILINE)
_SHELL = frozenset({"|", ">", "<", ">>", "&&", "||", "&", ";"})
_HIDDEN = re.compile(r"^<!-- (?P<language>python|sql)\n(?P<code>.*?)^-->", re.DOTALL | re.MULTILINE)


def pages() -> list[Path]:
    """Return the README and every page of docs/, in order."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield (language, code, mark) of the blocks, shown and hidden, in the order of the page."""
    found = [(m.start(), m["language"], m["shown"], m["mark"] or "") for m in _FENCE.finditer(text)]
    found += [(m.start(), m["language"], m["code"], "hidden") for m in _HIDDEN.finditer(text)]
    for m in _BORROWED.finditer(text):
        other = blocks((ROOT / "docs" / m["page"]).read_text(encoding="utf-8"))
        found.append((m.start(), "sql", next(code for language, code, _ in other if language == "sql"), "hidden"))
    for _, language, code, mark in sorted(found):
        yield language, code, mark


def boxes(text: str) -> Iterator[list[str]]:
    """Yield the column names of every box that DuckDB or dpsql drew.

    Examples
    --------
    >>> list(boxes("┌───┬───┐\\n│ a │ b │\\n├───┼───┤\\n│ 1 │ 2 │\\n└───┴───┘"))
    [['a', 'b']]
    """
    lines = text.splitlines()
    for above, line in zip(lines, lines[1:], strict=False):
        if above.startswith("┌"):
            yield [name.strip() for name in line.strip("│").split("│")]


def fits(shown: Sequence[str], columns: Sequence[str]) -> bool:
    """Return whether these are the columns; '…' stands for any number of them."""
    if not shown:
        return not columns
    if shown[0] == "…":
        return any(fits(shown[1:], columns[i:]) for i in range(len(columns) + 1))
    return bool(columns) and shown[0] == columns[0] and fits(shown[1:], columns[1:])


def script(code: str) -> str:
    """Run commands by bash; return what they print."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # where dpsql's own command is
    command = ["bash", "-euo", "pipefail", "-c", code]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "PATH": path}).stdout


def commands(lines: Sequence[list[str]]) -> str:
    """Run commands that are dpsql's own, in this process, whose start takes longer than they do; return what they print."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for line in lines:
            code = main_of_commands(line[1:])
            if code:
                raise subprocess.CalledProcessError(code, line)
    return printed.getvalue()


class Page:
    """One page that is run in the working directory.

    Attributes
    ----------
    done : int
        Statements that ran.
    """

    def __init__(self) -> None:
        self.scope: dict[str, object] = {}
        self.done = 0
        self.answers: list[list[str]] = []
        self.error = ""

    def connection(self) -> duckdb.DuckDBPyConnection:
        """Return the page's connection, opening the database where the page has not done so."""
        if "con" not in self.scope:
            con = duckdb.connect(DATABASE)
            dpsql.load(con)
            self.scope.update(con=con, duckdb=duckdb, dpsql=dpsql)
        con = self.scope["con"]
        assert isinstance(con, duckdb.DuckDBPyConnection)
        return con

    def close(self) -> None:
        """Close the connection, so that another process may open the file."""
        con = self.scope.pop("con", None)
        if isinstance(con, duckdb.DuckDBPyConnection):
            con.close()

    def run(self, language: str, code: str, mark: str) -> None:
        """Run one block."""
        if language == "python":
            if "duckdb.connect" not in code:
                self.connection()
            exec(code, self.scope)
            self.done += 1
        elif language == "sql":
            self._sql(code, fails=mark == "fails")
        elif language == "sh" and mark == "run":
            self.close()
            lines = [shlex.split(line, comments=True) for line in code.splitlines()] if "<<" not in code else [[]]
            alone = all(words and words[0] == "dpsql" and not _SHELL.intersection(words) for words in lines)
            self.answers, self.error = list(boxes(commands(lines) if alone else script(code))), ""
            self.done += 1
        elif language == "text":
            self._check_output(code)

    def _sql(self, code: str, *, fails: bool) -> None:
        con, self.answers, self.error = self.connection(), [], ""
        for statement in con.extract_statements(code):
            try:
                con.execute(statement)
                self.answers.append([column[0] for column in con.description or ()])
                con.fetchall()
            except duckdb.Error as error:
                if not fails:
                    raise
                self.error = str(error)
            else:
                assert not fails, f"should have failed: {statement.query.strip()}"
            self.done += 1

    def _check_output(self, text: str) -> None:
        if self.error:
            said = text.removeprefix("Error: ").split()
            assert " ".join(said) in " ".join(self.error.split()), f"the error is\n{self.error}\nand not\n{text}"
            return
        answers = iter(self.answers)
        for shown in boxes(text):
            assert any(fits(shown, columns) for columns in answers), f"columns {shown} are not among {self.answers}"


def run(text: str) -> int:
    """Run all blocks in the working directory; return how many statements ran."""
    if "<!-- walkthrough: " in text:
        return 0
    page = Page()
    try:
        for language, code, mark in blocks(text):
            page.run(language, code, mark)
    finally:
        page.close()
        duckdb.set_default_connection(duckdb.connect())  # nothing that a page left open there meets what comes after it
    return page.done


def main(paths: Sequence[Path]) -> int:
    """Run pages; return the exit code."""
    for path in paths:
        with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):  # pages write files
            count = run(path.read_text(encoding="utf-8"))
        known = path.is_relative_to(ROOT)
        name = path.relative_to(ROOT).as_posix() if known else path.name
        name = "README" if name == "README.md" else name
        sys.stdout.write(f"{name}: {count} statements ran\n")
        if path.name == "README.md" and path.parent == ROOT and count <= 10:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main([Path(name).resolve() for name in sys.argv[1:]] or pages()))
