"""The bar in a real terminal, never on standard output; forecasts by stage, and refusals for lack of memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import duckdb
import pytest

import dpsql

pytestmark = pytest.mark.any_duckdb

pty = pytest.importorskip("pty")

CHILD = """
import contextlib, json, os, sys, threading, time
import duckdb, dpsql
from dpsql.running import progress, progress_bar, terminal_line
from sample_tables import make_people, protect_people

progress_bar._DELAY = progress_bar._EVERY = 0.01
plain, show, texts, wanted = progress.Progress.stage, terminal_line.Line.show, [], ""

def told(self, text, share, rest):
    show(self, text, share, rest)
    texts.append(f"{text}: {rest}")

@contextlib.contextmanager
def waiting(self, name):
    with plain(self, name):
        # a call with a bar goes on once the bar has shown what the case is about
        while self._bar is not None and name == "count" and not any(", count: " in text and wanted in text for text in list(texts)):
            time.sleep(0.001)
        yield

terminal_line.Line.show, progress.Progress.stage = told, waiting
con = duckdb.connect()
dpsql.load(con)
make_people(con)
protect_people(con)
CALL = "FROM dp_marginals('people', columns := ['sex'], epsilon := 0.5, release := '{}')"

def run(cursor, name, found):
    found.append(len(cursor.execute(CALL.format(name)).fetchall()))

for number, (setting, calls, environment) in enumerate(json.loads(sys.argv[1])):
    if number:
        for stream in (sys.stdout, sys.stderr):
            print("next case", file=stream, flush=True)
    con.execute(setting)
    os.environ.update(environment)
    texts.clear()
    found, wanted = [], "left" if calls == 1 else f"(and {calls - 1} more)"
    threads = [threading.Thread(target=run, args=(con.cursor(), f"r{number}{i}", found)) for i in range(calls)]
    if calls == 1:
        run(con, f"r{number}", found)
    else:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for cells in found:
        print(cells, "cells", flush=True)
"""
ONE = ("SELECT 1", 1, {})


def run(*cases: tuple[str, int, dict[str, str]], **given: Any) -> subprocess.Popen[bytes]:
    """Start a child that plays cases: a setting, how many calls at once, and what is added to the environment."""
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("DPSQL_PROGRESS", None)
    return subprocess.Popen([sys.executable, "-P", "-c", CHILD, json.dumps(cases)], env=environment, **given)


def on_terminal(*cases: tuple[str, int, dict[str, str]], out: bool = True) -> tuple[str, str]:
    """Run the child with standard error (and output) on a terminal; return what is on the terminal, and elsewhere."""
    master, slave = pty.openpty()
    child = run(*cases, stdin=slave, stdout=slave if out else subprocess.PIPE, stderr=slave)
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


def test_on_a_terminal():
    """Stages and remaining time, and no leftovers; calls at once share one line; silent when asked."""
    text, _ = on_terminal(ONE, ("SELECT 1", 3, {}), ("SET VARIABLE dpsql_progress = 'off'", 1, {"DPSQL_PROGRESS": "1"}))
    one, three, silent = text.split("next case\r\nnext case\r\n")  # of standard output, and of standard error
    assert "dp_marginals, count:" in one
    assert "left" in one
    assert "%" in one
    assert screen(one) == ["3 cells", ""]
    assert "(and 2 more)" in three
    assert screen(three) == ["3 cells"] * 3 + [""]
    assert silent == "3 cells\r\n"


def test_standard_output_holds_the_answer_alone():
    text, output = on_terminal(ONE, out=False)
    assert "dp_marginals, count:" in text
    assert screen(text) == [""]
    assert output == "3 cells\n"


def test_nothing_without_a_terminal_unless_asked():
    child = run(ONE, ("SET VARIABLE dpsql_progress = true", 1, {}), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = (part.decode().split("next case\n") for part in child.communicate())
    assert child.returncode == 0, errors
    assert output == ["3 cells\n", "3 cells\n"]
    assert errors[0] == ""
    assert "dp_marginals, count" in errors[1]


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
