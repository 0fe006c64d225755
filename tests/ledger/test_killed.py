"""A process that is killed at any place of a call leaves true books, and the same call finishes without a second charge."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from sample_tables import make_people, protect_people

import dpsql

pytestmark = pytest.mark.any_duckdb

ROWS = 2_000
CALL = "FROM dp_synthesize('people', columns := ['sex', 'region'], epsilon := 1.0, options := {'steps': 3})"  # a short fit
# One process imports everything, by a call of its own, and forks a victim for each file: importing takes longer than what the victim
# does. A victim counts the places that it comes to; at the one that it was told it says its name, and stays there until it is killed.
NURSERY = f"""
import contextlib, functools, os, pathlib, sys, threading
import duckdb, dpsql
from dpsql.books.chain import Chain
from dpsql.measure import noising
from dpsql.release import store
from dpsql.running.background import Background
from dpsql.running.progress import Progress

names, last = [], None

def at(name):
    if last is not None and threading.current_thread() is threading.main_thread():
        names.append(name)
        if len(names) == last:
            print("at", os.getpid(), name, flush=True)
            threading.Event().wait()

def around(owner, name, places=("before", "after")):
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def followed(*given, **named):
        if "before" in places:
            at(f"before {{name}}")
        found = plain(*given, **named)
        if "after" in places:
            at(f"after {{name}}")
        return found

    setattr(owner, name, followed)

stage = Progress.stage

@contextlib.contextmanager
def staged(self, name):
    with stage(self, name):
        at(f"in stage {{name}}")
        yield

Progress.stage = staged
around(Chain, "_append")  # a transaction of the books
around(Chain, "_insert")  # in it: an entry
around(Background, "begin", ["after"])  # a statement on another thread: it runs while this one stands still
around(noising.discrete, "add_noise", ["after"])
around(os, "fsync")
around(pathlib.Path, "replace")
for name in ("check_store", "check_space", "remove_leftovers", "write", "publish", "read"):
    around(store, name, ["before"])

def live(path, place):
    global last
    con = duckdb.connect(path)
    dpsql.load(con, progress=False)
    con.execute("SET enable_progress_bar = false")  # DuckDB's own, which a busy machine shows
    last = place
    con.execute("CREATE TABLE synth AS {CALL}")
    at("before the database is closed")
    last = None
    con.close()

live(sys.argv[1], None)
for line in iter(sys.stdin.readline, ""):
    place, path = line.rstrip("\\n").split(" ", 1)
    child = os.fork()
    if child == 0:
        live(path, int(place))
        print("all", ",".join(names), flush=True)
        os._exit(0)
    print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Nursery:
    """Victims, one after the other."""

    def __init__(self, rehearsal: Path) -> None:
        command = [sys.executable, "-P", "-c", NURSERY, str(rehearsal)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def places(self, path: Path) -> list[str]:
        """Let a victim live; return the places that it came to."""
        self._start(path, 0)
        names = self._said("all").split(",")
        assert self._said("ended") == "0"
        return names

    def kill(self, path: Path, place: int) -> str:
        """Kill a victim at a place, counted from 1, of the call that it makes on this file; return the name of the place."""
        self._start(path, place)
        victim, _, name = self._said("at").partition(" ")
        os.kill(int(victim), signal.SIGKILL)
        assert self._said("ended") == str(-signal.SIGKILL)
        return name

    def _start(self, path: Path, place: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{place} {path}\n")
        self.process.stdin.flush()

    def _said(self, word: str) -> str:
        assert self.process.stdout is not None
        said, _, rest = self.process.stdout.readline().rstrip("\n").partition(" ")
        assert said == word, (said, rest)
        return rest


def fresh(path: Path) -> None:
    con = duckdb.connect(str(path))
    make_people(con, ROWS)
    dpsql.load(con)
    protect_people(con)
    con.close()


@pytest.fixture
def unborn(tmp_path: Path) -> Path:
    path = tmp_path / "unborn.duckdb"
    fresh(path)
    return path


@pytest.fixture
def nursery(tmp_path: Path, unborn: Path) -> Iterator[Nursery]:
    made = Nursery(Path(shutil.copy(unborn, tmp_path / "rehearsal.duckdb")))
    yield made
    with made.process:
        made.process.kill()


@pytest.mark.slow
def test_killed_at_every_place(tmp_path, unborn, nursery):
    places = nursery.places(Path(shutil.copy(unborn, tmp_path / "whole.duckdb")))
    assert len(places) >= 30 and len(set(places)) >= 25
    assert {f"in stage {name}" for name in ("encode", "count", "noise", "store", "fit", "sampling", "writing")} <= set(places)
    charged, stored = (place for place, name in enumerate(places, 1) if name == "after _append")
    assert 1 < charged < stored < len(places)
    for place, name in enumerate(places, 1):
        path = tmp_path / f"k{place}.duckdb"
        shutil.copy(unborn, path)
        assert nursery.kill(path, place) == name
        check(path, ["protect", "charge", "store"][: 1 + (place >= charged) + (place >= stored)], name)


def check(path: Path, expected: list[str], place: str) -> None:
    """Check the books as the killed process left them, finish the call, check again."""
    store = path.parent / f"{path.name}.dpsql"
    con = duckdb.connect(str(path))
    dpsql.load(con)
    assert con.execute("SELECT coalesce(bool_and(chain_holds), true) FROM dp_ledger()").fetchone() == (True,), place
    assert [action for (action,) in con.execute("SELECT action FROM dpsql.ledger ORDER BY entry").fetchall()] == expected, place
    assert con.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'synth'").fetchone() == (place == "before the database is closed",)
    files = list(store.glob("*.release.parquet*"))
    if "store" in expected:
        assert len(files) == 1, place  # published, or killed just before: then the draft that the ledger knows
        kept = files[0].read_bytes()
    first = con.execute(CALL).fetchall()
    assert len(first) > 0.95 * ROWS, place
    assert con.execute("SELECT action FROM dpsql.ledger ORDER BY entry").fetchall() == [("protect",), ("charge",), ("store",)], place
    assert con.execute(CALL).fetchall() == first, place
    (file,) = store.glob("*.release.parquet*")
    if "store" in expected:
        assert file.read_bytes() == kept, place
    assert not list(store.glob(".*release*")), place
    con.close()


FILTERED = "FROM dp_marginals('SELECT sex FROM people WHERE age > 40', columns := ['sex'], epsilon := 0.1, release := 'x')"
DYING = f"""
import os, sys, duckdb, dpsql
from dpsql.kinds import measures
con = duckdb.connect(sys.argv[1])
dpsql.load(con)
measures.measure = lambda *given: os._exit(139)  # a crash inside the reading
con.execute({FILTERED!r})
"""


def test_a_reading_beyond_plain_ones_that_dies_has_failed(tmp_path):
    """Nobody can tell a process that was killed from one that a row has crashed, and a crash that may be repeated tells of a row."""
    path = tmp_path / "people.duckdb"
    fresh(path)
    assert subprocess.run([sys.executable, "-P", "-c", DYING, str(path)], check=False).returncode == 139
    con = duckdb.connect(str(path))
    dpsql.load(con)
    with pytest.raises(duckdb.Error, match="final result"):
        con.execute(FILTERED)
    with pytest.raises(duckdb.Error, match="until the custodian"):
        con.execute(FILTERED.replace("'x'", "'y'"))
    assert con.execute("SELECT action FROM dpsql.ledger ORDER BY entry ASC").fetchall() == [("protect",), ("charge",), ("fail",)]
    assert not list(tmp_path.glob("**/.failed-*"))
    con.execute("CALL dp_protect('people', resume := true)")
    assert con.execute(FILTERED.replace("'x'", "'y'")).fetchall()
    assert not list(tmp_path.glob("**/.failed-*"))
    con.close()
