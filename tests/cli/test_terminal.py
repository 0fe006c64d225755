"""The shell in a real terminal: keys go in, a screen comes out."""

from __future__ import annotations

import re
import sys
import time

import pytest
import seeded_entropy
from struck import ENDLESS, LONG, PRELUDE, RUNNING

import dpsql  # noqa: F401 -- fails here rather than in the terminal

pexpect = pytest.importorskip("pexpect")
pytest.importorskip("prompt_toolkit")
pytest.importorskip("pygments")

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
UP, CTRL_C, CTRL_D = "\x1b[A", "\x03", "\x04"


class Terminal:
    """A shell, what is typed and what is shown."""

    def __init__(self, folder, *arguments):
        environment = {**seeded_entropy.environment(), "XDG_STATE_HOME": str(folder), "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm"}
        command = ["-P", "-c", PRELUDE + "from dpsql.cli import main\nsys.exit(main())", "shell", *arguments]
        self.child = pexpect.spawn(
            sys.executable, command, env=environment, encoding="utf-8", dimensions=(50, 120), timeout=LONG, cwd=str(folder)
        )
        self.child.expect("dpsql>")

    def type(self, keys, until):
        """Type keys, wait until a text is shown, and return what was shown since the keys."""
        self.child.send(keys)
        shown, end = "", time.monotonic() + LONG
        while not re.search(until, shown, flags=re.DOTALL):
            assert time.monotonic() < end, f"{until!r} was not shown after {keys!r}, but {shown!r}"
            try:
                shown = ESCAPES.sub("", shown + self.child.read_nonblocking(4096, 0.2))
            except pexpect.TIMEOUT:
                continue
        return shown


def test_a_session(tmp_path):
    shell = Terminal(tmp_path, "census.duckdb")
    # several lines, a semicolon in a text, and a box
    shell.type("SELECT 'a;b' AS text,\r", r"\.\.\.>")
    screen = shell.type("  42 AS number;\r", "└[─┴]*┘")
    assert "│ a;b     │     42 │" in screen
    # a table with a budget; completion of the call, its table, its parameter
    shell.type("CREATE TABLE people AS SELECT i % 2 = 0 AS member FROM range(5000) t(i);\r", "dpsql>")
    shell.type("CALL dp_protect('people', epsilon := 1, delta := 1e-9);\r", "└[─┴]*┘")
    shell.type("FROM dp_synthesize_t\t", "dp_synthesize_tables\\(")
    shell.type(CTRL_C, "dpsql>")
    shell.type("FROM dp_synth\t", "dp_synthesize_tables")  # both are offered
    shell.type("('peo\t", "people")
    shell.type("', eps\t", "epsilon")
    screen = shell.type("50);\r", r"dp_releases\(\)\)\.\s")
    assert "Error: privacy budget of main.people exceeded" in screen
    assert "UDF" not in screen and "LINE 1" not in screen
    # Ctrl-C gives up a line, then a statement that runs; the shell stays
    shell.type("SELECT nothing at all", "all")
    shell.type(CTRL_C, "dpsql>")
    shell.type(f"SELECT sum(a.range) {ENDLESS};\r", RUNNING)
    shell.type(CTRL_C, "interrupted")
    assert "│     7 │" in shell.type("SELECT 7 AS here;\r", "└[─┴]*┘")
    assert "main" in shell.type(".tables\r", "└[─┴]*┘")
    shell.type(".timer on\r", "dpsql>")
    shell.type("SELECT 1;\r", r"Run Time: \d.*dpsql>")  # before the prompt the terminal itself would take Ctrl-D
    # Ctrl-D leaves; the history is there the next time
    shell.child.send(CTRL_D)
    shell.child.expect(pexpect.EOF)
    shell.child.close()
    assert shell.child.exitstatus == 0
    again = Terminal(tmp_path, "census.duckdb")
    assert "SELECT 1;" in again.type(UP, "1.*;")
    again.type(CTRL_C, "dpsql>")
    again.child.send(".exit 4\r")
    again.child.expect(pexpect.EOF)
    again.child.close()
    assert again.child.exitstatus == 4
    assert (tmp_path / "dpsql" / "history").stat().st_mode & 0o077 == 0


def test_without_the_extra_the_shell_says_what_to_install(tmp_path):
    blocked = "import sys; sys.modules['prompt_toolkit'] = None; from dpsql.cli import main; sys.exit(main(['shell']))"
    child = pexpect.spawn(sys.executable, ["-P", "-c", blocked], encoding="utf-8", timeout=LONG, cwd=str(tmp_path), dimensions=(20, 200))
    child.expect(pexpect.EOF)
    child.close()
    assert "the shell needs prompt_toolkit: pip install 'dpsql[shell]'" in child.before
    assert child.exitstatus == 1
