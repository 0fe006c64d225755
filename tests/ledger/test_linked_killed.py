"""A process that is killed anywhere in dp_link leaves both tables' books true: the link is there, on both, or on neither."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import pytest
from linked_tables import PROTECT, make_patients
from struck import LONG

import dpsql

pytestmark = pytest.mark.any_duckdb

LINK = "FROM dp_link('visits', 'patient_id', parent := 'patients', max_rows := 20, merge := true)"
OWN = "CALL dp_protect('visits', epsilon := 2, delta := 1e-9, privacy_unit := 'patient_id', max_contributions := 4, anchor := '{}')"
ANCHORS = ("root.txt", "visits.txt")
MOST = 40
# A child kills itself at the n-th place that it comes to; one process imports everything, and forks a child for each n until one
# comes to the end. Anchors are files outside of the database: each child begins with those of the whole, and leaves its own.
VICTIMS = f"""
import functools, os, shutil, sys
import duckdb, dpsql
from dpsql.books.anchor import Anchor
from dpsql.books.chain import Chain

left = 0

def at():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), 9)

def around(owner, name):
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def followed(*given, **named):
        at()
        found = plain(*given, **named)
        at()
        return found

    setattr(owner, name, followed)

for owner, name in ((Chain, "_insert"), (Anchor, "append"), (os, "fsync")):
    around(owner, name)
folder = sys.argv[1]
for place in range(1, {MOST}):
    path = os.path.join(folder, str(place))
    shutil.copytree(os.path.join(folder, "whole"), path)
    for name in {ANCHORS}:
        shutil.copy(os.path.join(path, name), folder)
    child = os.fork()
    if child == 0:
        con = duckdb.connect(os.path.join(path, "clinic.duckdb"))
        dpsql.load(con, progress=False)
        left = place
        con.execute("{LINK}")
        os._exit(0)
    ended = os.waitpid(child, 0)[1]
    for name in {ANCHORS}:
        shutil.copy(os.path.join(folder, name), path)
    if ended == 0:
        break
"""


def opened(folder: Path) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(str(folder / "clinic.duckdb"))
    dpsql.load(con, progress=False)
    return con


def entries(con: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    return con.execute("SELECT source, action FROM dpsql.ledger WHERE action IN ('link', 'linked') ORDER BY source").fetchall()


def test_the_link_is_on_both_ledgers_or_on_none(tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    with opened(whole) as con:
        make_patients(con)
        root, visits = (tmp_path / name for name in ANCHORS)
        con.execute(PROTECT.replace("max_con", f"anchor := '{root}', max_con"))
        con.execute(OWN.format(visits))
    for name in ANCHORS:
        shutil.copy(tmp_path / name, whole)
    command = [sys.executable, "-P", "-c", VICTIMS, str(tmp_path)]
    with subprocess.Popen(command, env=os.environ, stderr=subprocess.PIPE, text=True) as child:
        hangs = threading.Timer(LONG, child.kill)
        hangs.start()
        said = child.communicate()[1]
        hangs.cancel()
    assert said == "" and child.returncode == 0
    places = sorted((path for path in tmp_path.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    assert 8 < len(places) < MOST - 1
    both, linked = [("main.patients", "link"), ("main.visits", "linked")], 0
    for folder in places:
        for name in ANCHORS:
            shutil.copy(folder / name, tmp_path)
        with opened(folder) as con:
            found = entries(con)
            assert found in ([], both), (folder.name, found)
            linked += found == both
            change = con.execute(f"SELECT change FROM ({LINK})").fetchall()  # the same call finishes it, or finds it
            assert change == [("in force",) if found else ("linked, its budget is given up",)]
            assert entries(con) == both
            assert con.execute("SELECT source, chain_holds, books FROM dp_budget()").fetchall() == [("main.patients", True, "intact")]
    assert 0 < linked < len(places)
