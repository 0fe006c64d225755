"""A process that is killed at any moment leaves true books, and the same call finishes without a second charge."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest
from sample_tables import make_people, protect_people

import dpsql

CALL = "FROM dp_synthesize('people', epsilon := 1.0, options := {'steps': 30})"  # a short fit: what is looked at are the books
# One process imports everything and forks a victim for each file: importing takes longer than what the victim does.
NURSERY = f"""
import os, sys, duckdb, dpsql

def live(path):
    con = duckdb.connect(path)
    dpsql.load(con)
    print("ready", os.getpid(), flush=True)
    con.execute("CREATE TABLE synth AS {CALL}")
    con.close()

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        live(line.rstrip("\\n"))
        os._exit(0)
    print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Nursery:
    """Victims, one after the other."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-P", "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, path: Path) -> int:
        """Return the process that has opened the file and now makes the call."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()
        return self._answer("ready")

    def ended(self) -> int:
        """Wait for the end of the victim; return its code."""
        return self._answer("ended")

    def _answer(self, word: str) -> int:
        assert self.process.stdout is not None
        said, number = self.process.stdout.readline().split()
        assert said == word
        return int(number)


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    with made.process:
        made.process.kill()


def fresh(path: Path) -> None:
    con = duckdb.connect(str(path))
    make_people(con, 20_000)
    dpsql.load(con)
    protect_people(con)
    con.close()


@pytest.mark.slow
def test_thirty_kills(tmp_path, nursery):
    unborn, path = tmp_path / "unborn.duckdb", tmp_path / "whole.duckdb"
    fresh(unborn)
    shutil.copy(unborn, path)
    nursery.start(path)
    begun = time.perf_counter()
    store, end = path.parent / f"{path.name}.dpsql", begun + 60
    while time.perf_counter() < end and not list(store.glob("*.release.parquet")):
        time.sleep(0.002)
    stored = time.perf_counter() - begun
    assert nursery.ended() == 0
    moments = [*np.linspace(0, stored, 20), *np.linspace(stored, time.perf_counter() - begun, 12)[1:-1]]
    interrupted = 0
    for number, moment in enumerate(moments):
        path = tmp_path / f"k{number}.duckdb"
        shutil.copy(unborn, path)
        victim = nursery.start(path)
        time.sleep(moment)
        with contextlib.suppress(ProcessLookupError):  # it was faster
            os.kill(victim, signal.SIGKILL)
        assert nursery.ended() in (0, -signal.SIGKILL)
        interrupted += check(path)
    assert interrupted >= 5, "the kills came too late to interrupt anything"


def check(path: Path) -> bool:
    """Check the books as the killed process left them, finish the call, check again; return whether it was cut short."""
    con = duckdb.connect(str(path))
    dpsql.load(con)
    assert con.execute("SELECT coalesce(bool_and(chain_holds), true) FROM dp_ledger()").fetchone() == (True,)
    before = con.execute("SELECT action FROM dpsql.ledger ORDER BY entry").fetchall()
    actions = [action for (action,) in before]
    assert actions in (["protect"], ["protect", "charge"], ["protect", "charge", "store"])
    files = list((path.parent / f"{path.name}.dpsql").glob("*.release.parquet*"))
    if "store" in actions:
        assert len(files) == 1  # published, or killed just before: then the draft that the ledger knows
        kept = files[0].read_bytes()
    first = con.execute(CALL).fetchall()
    assert len(first) > 19_000
    assert con.execute("SELECT action FROM dpsql.ledger ORDER BY entry").fetchall() == [("protect",), ("charge",), ("store",)]
    assert con.execute(CALL).fetchall() == first
    files = list((path.parent / f"{path.name}.dpsql").glob("*.release.parquet*"))
    assert len(files) == 1
    if "store" in actions:
        assert files[0].read_bytes() == kept
    assert not list((path.parent / f"{path.name}.dpsql").glob(".*release*"))
    con.close()
    return actions != ["protect", "charge", "store"]


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
