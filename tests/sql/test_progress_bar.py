"""The bar in a real terminal, never on standard output; forecasts by stage, and refusals for lack of memory."""

from __future__ import annotations

import os
import subprocess
import sys

import duckdb
import pytest

import dpsql

pytestmark = pytest.mark.any_duckdb

pty = pytest.importorskip("pty")

CHILD = """
import contextlib, sys, threading, time
import duckdb, dpsql
from dpsql.running import progress, progress_bar
from sample_tables import make_people, protect_people

progress_bar._DELAY = progress_bar._EVERY = 0.1
plain = progress.Progress.stage

@contextlib.contextmanager
def slow(self, name):
    with plain(self, name):
        time.sleep(0.3)
        yield

progress.Progress.stage = slow
con = duckdb.connect()
dpsql.load(con)
make_people(con)
protect_people(con)
CALL = "FROM dp_marginals('people', columns := ['sex'], epsilon := 0.5, release := '{}')"
con.execute(sys.argv[1])

found = []

def run(cursor, name):
    found.append(len(cursor.execute(CALL.format(name)).fetchall()))

if sys.argv[2] == "threads":
    threads = [threading.Thread(target=run, args=(con.cursor(), f"r{i}")) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
else:
    run(con, "one")
for cells in found:
    print(cells, "cells", flush=True)
"""


def on_terminal(setting: str = "SELECT 1", kind: str = "one", out: bool = True, **environment: str) -> tuple[str, str]:
    """Run the child with standard error (and output) on a terminal; return what is on the terminal, and elsewhere."""
    master, slave = pty.openpty()
    given = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    command = [sys.executable, "-P", "-c", CHILD, setting, kind]
    child = subprocess.Popen(command, stdin=slave, stdout=slave if out else subprocess.PIPE, stderr=slave, env=given)
    os.close(slave)
    found = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # Linux: the other side is closed
            break
        if not part:
            break
        found += part
    elsewhere = b"" if child.stdout is None else child.stdout.read()
    if child.stdout is not None:
        child.stdout.close()
    assert child.wait() == 0, found.decode()
    os.close(master)
    return found.decode(), elsewhere.decode()


def screen(text: str) -> list[str]:
    """Return the lines that a terminal shows in the end."""
    lines: list[list[str]] = [[]]
    place = 0
    for character in text:
        if character == "\r":
            place = 0
        elif character == "\n":
            lines.append([])
        else:
            assert character != "\x1b", "the cursor is moved: bars of several calls would garble each other"
            lines[-1][place:place + 1] = [character]
            place += 1
    return ["".join(line).rstrip() for line in lines]


def test_stages_and_remaining_time_on_a_terminal_and_no_leftovers():
    text, _ = on_terminal()
    assert "dp_marginals, count:" in text
    assert "left" in text
    assert "%" in text
    assert screen(text) == ["3 cells", ""]


def test_standard_output_holds_the_answer_alone():
    text, output = on_terminal(out=False)
    assert "dp_marginals, count:" in text
    assert screen(text) == [""]
    assert output == "3 cells\n"


def test_calls_at_once_share_one_line():
    text, _ = on_terminal(kind="threads")
    assert "(and 2 more)" in text
    assert screen(text) == ["3 cells"] * 3 + [""]


def test_silent_when_asked():
    assert on_terminal("SET VARIABLE dpsql_progress = 'off'", DPSQL_PROGRESS="1")[0] == "3 cells\r\n"


def test_nothing_without_a_terminal_unless_asked():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-P", "-c", CHILD, "SELECT 1", "one"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert (done.stdout, done.stderr) == ("3 cells\n", "")
    command[-2] = "SET VARIABLE dpsql_progress = true"
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "3 cells\n"
    assert "dp_marginals, count" in done.stderr


def test_load_decides_for_all_sessions_and_a_variable_for_one(con, monkeypatch):
    seen = []
    monkeypatch.setattr("dpsql.running.progress.shown", lambda asked: seen.append(asked) or False)
    call = "FROM dp_marginals('people', columns := ['sex'], epsilon := 0.1, release := '{}')"  # a repeated one is remembered
    con.execute(call.format("first"))
    dpsql.load(con, progress=False)
    con.cursor().execute(call.format("second"))
    con.execute("SET VARIABLE dpsql_progress = true")
    con.execute(call.format("third"))
    dpsql.marginals(con, "people", columns=["sex"], epsilon=0.1, release="fourth")
    assert seen == [None, False, True, True]


def test_duckdbs_own_bar_is_off_in_the_cursor_of_a_call(con, monkeypatch):
    seen = []

    def ledger(context, given):
        seen.append(context.cursor.execute("SELECT current_setting('enable_progress_bar')").fetchone())
        return "(SELECT 1)"

    monkeypatch.setattr("dpsql.door.dispatch.answer", lambda name: ledger)
    con.execute("SET enable_progress_bar = true")
    con.execute("FROM dp_ledger()")
    assert seen == [(False,)]


def test_the_forecast_by_stage_adds_up(con):
    seconds, stages, rows = con.execute(
        "SELECT estimated_seconds, estimated_stages, estimated_for_rows FROM dp_plan('people', epsilon := 1.0)"
    ).fetchone()
    assert list(stages)[:5] == ["encode", "fine histograms", "count", "noise", "store"]
    assert seconds == pytest.approx(sum(stages.values()), abs=0.02)
    assert rows == 100_000
    more = con.execute("SELECT estimated_seconds FROM dp_plan('people', epsilon := 1.0, rows := 10000000)").fetchone()
    assert more[0] > 2 * seconds


def test_a_call_that_cannot_fit_is_refused_before_it_is_charged(con, charges, monkeypatch):
    call = "FROM dp_synthesize('people', epsilon := 1.0)"
    monkeypatch.setenv("DPSQL_MEMORY_MB", "100")
    (notes,) = con.execute("SELECT notes FROM dp_plan('people', epsilon := 1.0)").fetchone()
    assert any("would be refused" in note and "fewer columns" in note for note in notes)
    with pytest.raises(duckdb.InvalidInputException, match=r"columns = .* needs about .* DPSQL_MEMORY_MB .* Nothing was charged"):
        con.execute(call)
    assert charges() == 0
    monkeypatch.setenv("DPSQL_MEMORY_MB", "100000")
    (notes,) = con.execute("SELECT notes FROM dp_plan('people', epsilon := 1.0)").fetchone()
    assert not any("refused" in note for note in notes)
    con.execute(call)
    monkeypatch.setenv("DPSQL_MEMORY_MB", "100")
    assert con.execute(call).fetchall()  # what was bought is given back
    assert charges() == 1
