"""Ctrl-C at any stage stops a call soon, says what the books know, and leaves them true; so does dpsql.interrupt."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import threading
from pathlib import Path

import duckdb
import pytest
from sample_tables import make_people, protect_people
from struck import ENDLESS, LONG, strike

import dpsql
from dpsql.running import progress

STAGES = ("encode", "count", "noise", "store", "fit", "sampling", "writing")
# One process plays all cases of a kind. A stage is made endless by a query on the call's own cursor, or by a loop of Python; once it
# says that it runs, the signal comes, as from a terminal.
VICTIM = f"""
from dpsql.door import dispatch
from dpsql.running import progress

con = session.connect(sys.argv[1])
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
def endless(self, name):
    global wanted
    with plain(self, name):
        if name == wanted:
            wanted = None
            if kind == "query":
                cursors[-1].execute("CREATE TEMP TABLE endless AS SELECT sum(a.range) AS s {ENDLESS}")
            say()
            while True:
                sum(range(10000))
        yield

progress.Progress.stage = endless
""" + """
results = []
for number, (stage, how, call) in enumerate(json.loads(sys.argv[2])):
    wanted, kind, name = stage, how, f"case{number}"
    error = None
    try:
        if call == "api":
            dpsql.synthesize(con, "people", epsilon=0.4, method="perturbed_histogram", columns=["sex", "region"], release=name)
        else:
            con.execute(f"CREATE TABLE {name} AS FROM dp_synthesize('people', epsilon := 0.4, method := 'perturbed_histogram', columns := ['sex', 'region'], release := '{name}')")
    except BaseException as caught:
        error = caught
    actions = [a for (a,) in con.execute(
        "SELECT action FROM dpsql.ledger WHERE contains(release, ?) ORDER BY entry", [f"-{name}-"]).fetchall()]
    tables = [t for (t,) in con.execute("SELECT table_name FROM duckdb_tables() WHERE table_name IN ('endless', ?)", [name]).fetchall()]
    again = con.execute(f"SELECT count(*) FROM dp_synthesize('people', epsilon := 0.4, method := 'perturbed_histogram', columns := ['sex', 'region'], release := '{name}')").fetchone()[0]
    after = [a for (a,) in con.execute(
        "SELECT action FROM dpsql.ledger WHERE contains(release, ?) ORDER BY entry", [f"-{name}-"]).fetchall()]
    results.append({
        "stage": stage, "kind": [c.__name__ for c in type(error).__mro__], "text": str(error), "actions": actions,
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
    done = strike(VICTIM, [path, json.dumps(cases)], times=len(cases))
    assert done.returncode == 0, done.stderr
    hidden = [item.name for item in (path.parent / f"{path.name}.dpsql").rglob("*") if item.name.startswith(".")]
    assert not hidden
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("kind", "call"), [("query", "sql"), ("loop", "api")])
def test_ctrl_c_at_every_stage(tmp_path, call, kind):
    for found in play(tmp_path / "x.duckdb", [(stage, kind, call) for stage in STAGES]):
        charged = ["charge"] if STAGES.index(found["stage"]) < STAGES.index("fit") else ["charge", "store"]
        words = "same call finishes it without another charge" if len(charged) == 1 else "bought"
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
from dpsql import cli
from dpsql.running import progress

plain = progress.Progress.stage

@contextlib.contextmanager
def endless(self, name):
    with plain(self, name):
        if name == "count":
            say()
            threading.Event().wait()
        yield

progress.Progress.stage = endless
sys.exit(cli.main(["run", sys.argv[2], "--database", sys.argv[1]]))
"""
RELEASE = "FROM dp_marginals('people', columns := ['sex'], epsilon := 0.5)"


@pytest.mark.parametrize(
    ("statement", "words"),
    [(RELEASE, "the same call finishes it without another charge\n"), (f"SELECT sum(a.range) {ENDLESS}", "interrupted\n")],
    ids=["in a wait of a call", "in a query of DuckDB"],
)
def test_ctrl_c_in_a_file_of_statements(tmp_path, statement, words):
    fresh(tmp_path / "x.duckdb")
    (tmp_path / "job.sql").write_text(f"SELECT 'first'; {statement}; SELECT 'never';")
    done = strike(COMMAND, [tmp_path / "x.duckdb", tmp_path / "job.sql"])
    assert done.returncode == 130, done.stderr
    assert "first" in done.stdout
    assert "never" not in done.stdout
    assert done.stderr.startswith("interrupted")
    assert done.stderr.endswith(words)
    assert "Traceback" not in done.stderr


def slow_stage(monkeypatch: pytest.MonkeyPatch, wanted: str, begun: threading.Event) -> None:
    """Make one stage endless, the way that a loop of ours is: it says now and then how far it is."""
    plain = progress.Progress.stage

    @contextlib.contextmanager
    def slow(self, name):
        with plain(self, name):
            while name == wanted:
                begun.set()
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
            assert begun.wait(LONG)
            assert dpsql.interrupt(con) == 1
            error = future.exception(timeout=LONG)
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

    def running(x):
        begun.set()
        return x

    def endless(context, given):
        context.cursor.execute(f"SELECT sum(a.range) {ENDLESS}")

    con.create_function("running", running, ["BIGINT"], "BIGINT", side_effects=True)

    monkeypatch.setattr("dpsql.door.dispatch.answer", lambda name: endless)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        future = pool.submit(dpsql.ledger, con.cursor())
        assert begun.wait(LONG)
        dpsql.interrupt(con)
        assert isinstance(future.exception(timeout=LONG), duckdb.InterruptException)
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


HANDLED = f"""
from dpsql.purchase import buying

seen = threading.Event()
signal.signal(signal.SIGINT, lambda number, frame: seen.set())
con = session.connect(sys.argv[1])

def waiting(*given):
    say()
    while not seen.is_set():
        sum(range(10000))

buying._bind = waiting
print(len(con.execute({RELEASE!r}).fetchall()), "cells")
con.close()
"""


def test_a_handler_of_the_application_decides(tmp_path):
    fresh(tmp_path / "x.duckdb")
    done = strike(HANDLED, [tmp_path / "x.duckdb"])
    assert done.returncode == 0, done.stderr
    assert "3 cells" in done.stdout
