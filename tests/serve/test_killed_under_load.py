"""A server that is killed while analysts ask: the books are true after each kill, and nothing is charged twice or lost.

One process imports everything and forks a server for each life, as in `tests/ledger/test_killed.py`. A life says when it has opened
the database, and what was answered; it is killed when it has said so many things, while others are asked. No clock is in it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from pairwise import WHOLE
from struck import LONG

import dpsql

KILLS = 30 if WHOLE else 12
"""Each number of answers before a kill, twice or more."""
ANALYSTS = 4
LIVES = f"""
import itertools, os, sys, threading
import duckdb, dpsql
from dpsql import udfs
from dpsql.serve.ask import Ask

class Listed:
    def granted(self, analyst):
        return {{"main.visits": 0.05}}
    def public(self):
        return ()

def tell(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def question(number):
    return f"FROM dp_query('SELECT count(*) AS n FROM visits', release := 'q{{number}}')"

def opened(path):
    con = duckdb.connect(path)
    dpsql.load(con, progress=False)
    ((books, holds),) = con.execute("SELECT books, chain_holds FROM dp_budget()").fetchall()
    charges = con.execute("SELECT release FROM dp_ledger() WHERE action = 'charge'").fetchall()
    return con, books, holds, len(charges), len(set(charges))

def live(path, first):
    con, *said = opened(path)
    room = Ask(udfs.instance_of(con), "census", Listed())
    tell("open", os.getpid(), *said)
    def ask(place, number):
        for number in itertools.count(number, {ANALYSTS}):
            ((value,),) = room.ask(f"analyst{{place}}", question(number)).rows
            tell("answered", number, value)
    for place, number in enumerate(first):
        threading.Thread(target=ask, args=(place, number), daemon=True).start()
    threading.Event().wait()

con, *_ = opened(sys.argv[1])  # everything is imported by a question
Ask(udfs.instance_of(con), "census", Listed()).ask("analyst0", question(0))
con.close()
tell("ready")
for line in iter(sys.stdin.readline, ""):
    child = os.fork()
    if child == 0:
        live(sys.argv[1], list(map(int, line.split())))
    os.waitpid(child, 0)
    tell("ended")
"""


class Lives:
    """Servers, one after the other."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-P", "-c", LIVES, str(path)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hangs = threading.Timer(LONG, self.process.kill)
        self.hangs.start()

    def said(self) -> list[str]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the servers ended"
        return line.split()

    def begin(self, first: list[int]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, first)) + "\n")
        self.process.stdin.flush()

    def close(self) -> None:
        self.hangs.cancel()
        with self.process:
            self.process.kill()


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[tuple[Lives, Path]]:
    path = tmp_path / "census.duckdb"
    with duckdb.connect(path) as con:
        dpsql.load(con)
        con.execute("CREATE TABLE visits AS SELECT i % 9 AS ward FROM range(5000) t(i); CALL dp_protect('visits', epsilon := 900, delta := 1e-9)")
    made = Lives(path)
    yield made, path
    made.close()


@pytest.mark.slow
def test_killed_again_and_again(lives: tuple[Lives, Path]) -> None:
    server, path = lives
    assert server.said() == ["ready"]
    answers: dict[int, str] = {}
    waiting = list(range(1, ANALYSTS + 1))
    for kill in range(KILLS):
        server.begin(waiting)
        word, victim, books, holds, charges, releases = server.said()
        assert (word, books, holds) == ("open", "intact", "True"), kill
        assert charges == releases and len(answers) + 1 <= int(charges) <= len(answers) + 1 + ANALYSTS, kill  # what was asked when it ended
        left = kill % 6
        while True:
            if left == 0:
                os.kill(int(victim), signal.SIGKILL)
            left -= 1
            match server.said():
                case ["answered", number, value]:
                    assert answers.setdefault(int(number), value) == value
                    place = waiting.index(int(number))
                    waiting[place] += ANALYSTS
                case ["ended"]:
                    break
    server.close()
    with duckdb.connect(path) as con:
        dpsql.load(con)
        assert con.execute("SELECT books, chain_holds FROM dp_budget()").fetchall() == [("intact", True)]
        charged = con.execute("SELECT split_part(release, '-', 3), count(*) FROM dp_ledger() WHERE action = 'charge' GROUP BY 1").fetchall()
        assert all(count == 1 for _, count in charged)
        assert {f"q{number}" for number in answers} <= {name for name, _ in charged} and len(answers) >= KILLS
        assert len(charged) <= len(answers) + 1 + ANALYSTS
        assert con.execute("SELECT count(*) FROM dp_ledger() WHERE action IN ('fail', 'refund')").fetchall() == [(0,)]
