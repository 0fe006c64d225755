"""Ctrl-C at any stage stops a call soon, says what the books know, and leaves them true; so does dpsql.interrupt."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import pytest
from sample_tables import make_people, protect_people

import dpsql
from dpsql.running import progress

STAGES = ("encode", "count", "noise", "store", "fit", "sampling", "writing")
# One process plays all cases of a kind. A stage is made long by an endless query on the call's own cursor, an endless loop of
# Python, or a wait; half a second later the signal comes, as from a terminal.
VICTIM = """
import contextlib, json, os, signal, sys, threading, time
import duckdb, dpsql
from dpsql.door import dispatch
from dpsql.running import progress

ENDLESS = "SELECT sum(hash(a.range * b.range)) FROM range(1000000) a, range(1000000) b"
con = duckdb.connect(sys.argv[1])
dpsql.load(con)
wanted, kind, cursors = None, None, []
opened = dispatch.open_context

@contextlib.contextmanager
def remembering(*given):
    with opened(*given) as context:
        cursors.append(context.cursor)
        yield context

dispatch.open_context = remembering
plain = progress.Progress.stage

@contextlib.contextmanager
def slow(self, name):
    global wanted
    with plain(self, name):
        if name == wanted:
            wanted = None
            threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()
            if kind == "query":
                cursors[-1].execute("CREATE TEMP TABLE endless AS " + ENDLESS)
            elif kind == "wait":
                threading.Event().wait(60)
            else:
                until = time.time() + 60
                while time.time() < until:
                    sum(range(10000))
        yield

progress.Progress.stage = slow
results = []
for number, (stage, how, call) in enumerate(json.loads(sys.argv[2])):
    wanted, kind, name = stage, how, f"case{number}"
    began, error = time.time(), None
    try:
        if call == "api":
            dpsql.synthesize(con, "people", epsilon=0.4, method="perturbed_histogram", columns=["sex", "region"], release=name)
        else:
            con.execute(f"CREATE TABLE {name} AS FROM dp_synthesize('people', epsilon := 0.4, method := 'perturbed_histogram', columns := ['sex', 'region'], release := '{name}')")
    except BaseException as caught:
        error = caught
    took = time.time() - began - 0.4
    actions = [a for (a,) in con.execute(
        "SELECT action FROM dpsql.ledger WHERE contains(release, ?) ORDER BY entry", [f"-{name}-"]).fetchall()]
    tables = [t for (t,) in con.execute("SELECT table_name FROM duckdb_tables() WHERE table_name IN ('endless', ?)", [name]).fetchall()]
    again = con.execute(f"SELECT count(*) FROM dp_synthesize('people', epsilon := 0.4, method := 'perturbed_histogram', columns := ['sex', 'region'], release := '{name}')").fetchone()[0]
    after = [a for (a,) in con.execute(
        "SELECT action FROM dpsql.ledger WHERE contains(release, ?) ORDER BY entry", [f"-{name}-"]).fetchall()]
    results.append({
        "stage": stage, "kind": [c.__name__ for c in type(error).__mro__], "text": str(error), "took": took, "actions": actions,
        "tables": tables, "again": again, "after": after, "handler": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "wakeup": signal.set_wakeup_fd(-1), "threads": [t.name for t in threading.enumerate() if t.name.startswith("dpsql")],
    })
print(json.dumps(results))
con.close()
"""


def fresh(path: Path) -> None:
    con = duckdb.connect(str(path))
    make_people(con, 2_000)
    dpsql.load(con)
    protect_people(con, epsilon=40.0)
    con.close()


def play(path: Path, cases: list[tuple[str, str, str]]) -> list[dict]:
    fresh(path)
    command = [sys.executable, "-P", "-c", VICTIM, str(path), json.dumps(cases)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    hidden = [item.name for item in (path.parent / f"{path.name}.dpsql").rglob("*") if item.name.startswith(".")]
    assert not hidden
    return json.loads(done.stdout)


@pytest.mark.parametrize(("kind", "call"), [("query", "sql"), ("loop", "api")])
def test_ctrl_c_at_every_stage(tmp_path, call, kind):
    for found in play(tmp_path / "x.duckdb", [(stage, kind, call) for stage in STAGES]):
        charged = ["charge"] if STAGES.index(found["stage"]) < STAGES.index("fit") else ["charge", "store"]
        words = "same call finishes it without another charge" if len(charged) == 1 else "bought"
        assert found["took"] < 20, found
        assert words in found["text"], found
        assert "Query interrupted" not in found["text"]
        assert "withheld" not in found["text"]
        assert found["kind"][0] == "Interrupted" if call == "api" else "InvalidInputException" in found["kind"]
        assert ("KeyboardInterrupt" in found["kind"]) == (call == "api")
        assert found["actions"] == charged
        assert found["tables"] == []
        assert found["after"] == ["charge", "store"]
        assert found["again"] > 1_500
        assert found["handler"]
        assert found["wakeup"] == -1
        assert found["threads"] == []


COMMAND = """
import contextlib, os, signal, sys, threading
from dpsql import cli
from dpsql.running import progress

plain = progress.Progress.stage

@contextlib.contextmanager
def slow(self, name):
    with plain(self, name):
        if name == sys.argv[2]:
            threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()
            threading.Event().wait(60)
        yield

progress.Progress.stage = slow
sys.exit(cli.main(["run", sys.argv[3], "--database", sys.argv[1]]))
"""
RELEASE = "FROM dp_marginals('people', columns := ['sex'], epsilon := 0.5)"


@pytest.mark.parametrize(
    ("stage", "statement", "words"),
    [
        ("count", RELEASE, "the same call finishes it without another charge\n"),
        ("duckdb", "SELECT sum(hash(a.range * b.range)) FROM range(1000000) a, range(1000000) b", "interrupted\n"),
    ],
)
def test_ctrl_c_in_a_file_of_statements(tmp_path, stage, statement, words):
    fresh(tmp_path / "x.duckdb")
    (tmp_path / "job.sql").write_text(f"SELECT 'first'; {statement}; SELECT 'never';")
    command = [sys.executable, "-P", "-c", COMMAND, str(tmp_path / "x.duckdb"), stage, str(tmp_path / "job.sql")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            seen = ""
            while "first" not in seen.partition("first")[2]:  # the name of the column, and the row
                line = process.stdout.readline()
                assert line, process.stderr.read()
                seen += line
            if stage == "duckdb":
                time.sleep(1.5)  # DuckDB is in the next statement
                process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 130, errors
    assert "never" not in out
    assert errors.startswith("interrupted")
    assert errors.endswith(words)
    assert "Traceback" not in errors


def slow_stage(monkeypatch: pytest.MonkeyPatch, wanted: str, begun: threading.Event) -> None:
    """Make one stage endless, the way that a loop of ours is: it says now and then how far it is."""
    plain = progress.Progress.stage

    @contextlib.contextmanager
    def slow(self, name):
        with plain(self, name):
            begun.set()
            while name == wanted:
                time.sleep(0.02)
                progress.advance(0.5)
            yield

    monkeypatch.setattr(progress.Progress, "stage", slow)


@pytest.mark.parametrize("how", ["sql", "api"])
def test_another_thread_stops_a_call(con, charges, monkeypatch, how):
    begun = threading.Event()
    with monkeypatch.context() as patch:
        slow_stage(patch, "noise", begun)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            if how == "sql":
                future = pool.submit(con.cursor().execute, RELEASE)
            else:
                future = pool.submit(dpsql.marginals, con.cursor(), "people", columns=["sex"], epsilon=0.5)
            assert begun.wait(20)
            assert dpsql.interrupt(con) == 1
            error = future.exception(timeout=10)
    expected = duckdb.InterruptException if how == "api" else duckdb.InvalidInputException
    assert isinstance(error, expected)
    assert "the same call finishes it without another charge" in str(error)
    assert charges() == 1
    assert len(con.execute(RELEASE).fetchall()) == 3
    assert charges() == 1
    assert dpsql.interrupt(con) == 0


def test_another_thread_stops_a_query_of_duckdb(con, charges, monkeypatch):
    begun = threading.Event()
    plain = progress.Progress.stage

    def endless(context, given):
        begun.set()
        context.cursor.execute("SELECT sum(hash(a.range * b.range)) FROM range(1000000) a, range(1000000) b")

    monkeypatch.setattr("dpsql.door.dispatch.answer", lambda name: endless)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        future = pool.submit(dpsql.ledger, con.cursor())
        assert begun.wait(20)
        time.sleep(0.3)
        dpsql.interrupt(con)
        assert isinstance(future.exception(timeout=10), duckdb.InterruptException)
    assert plain is progress.Progress.stage
    assert charges() == 0


def test_interrupted_before_the_charge_nothing_is_charged(con, charges, monkeypatch):
    def late(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dpsql.purchase.buying._bind", late)
        with pytest.raises(dpsql.Interrupted, match="interrupted before anything was charged"):
            dpsql.marginals(con, "people", columns=["sex"], epsilon=0.5)
        with pytest.raises(duckdb.InvalidInputException, match="Interrupted: interrupted before anything was charged"):
            con.execute(RELEASE)
    assert charges() == 0
    with monkeypatch.context() as patch:
        patch.setattr("dpsql.release.store.remove_leftovers", late)
        with pytest.raises(dpsql.Interrupted, match="interrupted before anything was charged"):
            dpsql.marginals(con, "people", columns=["sex"], epsilon=0.5)
    actions = con.execute("SELECT action FROM dpsql.ledger ORDER BY entry").fetchall()
    assert actions == [("protect",), ("charge",), ("refund",)]


def test_a_handler_of_the_application_decides(con):
    seen = []
    previous = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("dpsql.purchase.buying._bind", lambda *given: signal.raise_signal(signal.SIGINT))
            assert len(con.execute(RELEASE).fetchall()) == 3
    finally:
        signal.signal(signal.SIGINT, previous)
    assert seen == [signal.SIGINT]
