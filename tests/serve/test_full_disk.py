"""A server whose disk is full: a question is charged once or not at all, the same question finishes it, and the books stay open."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest

import dpsql
from dpsql import udfs
from dpsql.serve.ask import Ask
from dpsql.serve.passed import Refused

SETTING = """
import sys
import duckdb, dpsql
from dpsql import udfs
from dpsql.serve.ask import Ask
from dpsql.serve.passed import Refused

class Listed:
    def granted(self, analyst):
        return {"main.visits": 0.1}
    def public(self):
        return ()

con = duckdb.connect(sys.argv[1])
dpsql.load(con, progress=False)
con.execute("CREATE TABLE visits AS SELECT i % 9 AS ward FROM range(5000) t(i); CALL dp_protect('visits', epsilon := 900, delta := 1e-9)")
room = Ask(udfs.instance_of(con), "census", Listed())

def asked(number):
    try:
        return str(room.ask("alice", f"FROM dp_query('SELECT count(*) AS n FROM visits', release := 'q{number}')").rows)
    except Refused as refused:
        return f"{refused.kind}: {refused.text}"
"""
# No file may grow beyond a limit, as on a disk that is full there: of the log of the database, of a release.
FULL = f"""{SETTING}
import resource
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
asked(0)
for number, most in enumerate((0, 500, 2000, 4000), 1):
    con.execute("CHECKPOINT")
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    full = asked(number)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    print(most, full, asked(number), asked(number), sep="|")
con.close()
"""
FINAL = "its rows could not be read or measured"


def test_files_that_cannot_grow(tmp_path: Path) -> None:
    """A charge that cannot be written is none; where it is and the release cannot be, that is its result, as whatever follows a reading."""
    path = tmp_path / "census.duckdb"
    done = subprocess.run([sys.executable, "-P", "-c", FULL, str(path)], capture_output=True, text=True, check=True)
    told = [line.split("|") for line in done.stdout.splitlines()]
    assert len(told) == 4
    for most, full, then, again in told:
        assert then == again, most
        if full.startswith("["):
            assert full == then
        elif FINAL in full:
            assert then == full
        else:
            assert full == "failed: a file of the server cannot be read or written; the custodian has to look" and then.startswith("[(")
    assert not told[0][1].startswith("[") and told[-1][1].startswith("[")
    with duckdb.connect(path) as con:
        dpsql.load(con)
        ((books, holds),) = con.execute("SELECT books, chain_holds FROM dp_budget()").fetchall()
        assert books.split(";")[0] == "intact" and holds
        charged = con.execute("SELECT count(*), count(DISTINCT release) FROM dp_ledger() WHERE action = 'charge'").fetchall()
        assert charged == [(5, 5)]


class Listed:
    def granted(self, analyst: str) -> dict[str, float]:
        return {"main.visits": 0.1}

    def public(self) -> tuple[str, ...]:
        return ()


def test_a_disk_that_fills_up_before_the_charge_and_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    con = duckdb.connect(tmp_path / "census.duckdb")
    dpsql.load(con)
    con.execute("CREATE TABLE visits AS SELECT i % 9 AS ward FROM range(5000) t(i); CALL dp_protect('visits', epsilon := 900, delta := 1e-9)")
    instance = udfs.instance_of(con)
    assert instance is not None
    room = Ask(instance, "census", Listed())
    plain, calls = shutil.disk_usage, 0

    def filling(free_for: int) -> None:
        nonlocal calls
        calls = 0

        def usage(folder: object) -> SimpleNamespace:
            nonlocal calls
            calls += 1
            return SimpleNamespace(total=1 << 40, used=0, free=1 << 40 if calls <= free_for else 1000)

        monkeypatch.setattr(shutil, "disk_usage", usage)

    def charges() -> int:
        return int(con.cursor().execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchall()[0][0])

    text = "SELECT ward, count(*) AS n FROM visits GROUP BY ward"
    seen = set()
    for free_for in range(6):  # it is looked at before the charge and before the reading, of store and database
        question = f"FROM dp_query('{text}', release := 'f{free_for}')"
        before = charges()
        filling(free_for)
        try:
            room.ask("alice", question)
            refused = None
        except Refused as error:
            refused = error.text
            assert str(tmp_path) not in refused and "1,000" not in refused and "0.0 MB" not in refused
        made = charges() - before
        monkeypatch.setattr(shutil, "disk_usage", plain)
        seen.add((refused is None, made))
        rows = room.ask("alice", question).rows
        assert rows and charges() == before + 1
    assert {(False, 0), (False, 1), (True, 1)} <= seen
    con.close()
