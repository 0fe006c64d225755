"""A process that is killed at any moment leaves true books, and the same call finishes without a second charge."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import duckdb
import numpy as np
import pytest
from sample_tables import make_people, protect_people

import dpsql

CALL = "FROM dp_synthesize('people', epsilon := 1.0)"
VICTIM = f"""
import sys, duckdb, dpsql
con = duckdb.connect(sys.argv[1])
dpsql.load(con)
print("ready", flush=True)
con.execute("CREATE TABLE synth AS {CALL}")
print("done", flush=True)
"""


def start(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-P", "-c", VICTIM, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def fresh(path: Path) -> None:
    con = duckdb.connect(str(path))
    make_people(con, 20_000)
    dpsql.load(con)
    protect_people(con)
    con.close()


@pytest.mark.slow
def test_thirty_kills(tmp_path):
    path = tmp_path / "whole.duckdb"
    fresh(path)
    process = start(path)
    begun = time.perf_counter()
    store = path.parent / f"{path.name}.dpsql"
    while process.poll() is None and not list(store.glob("*.release.parquet")):
        time.sleep(0.002)
    stored = time.perf_counter() - begun
    assert process.wait() == 0
    process.stdout.close()
    moments = [*np.linspace(0, stored, 20), *np.linspace(stored, time.perf_counter() - begun, 12)[1:-1]]
    interrupted = 0
    for number, moment in enumerate(moments):
        path = tmp_path / f"k{number}.duckdb"
        fresh(path)
        process = start(path)
        time.sleep(moment)
        process.kill()
        process.wait()
        process.stdout.close()
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
