"""What a book is told is in the file of its database, which is open under one name; else nothing is read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import pairwise

import duckdb
import pytest

import dpsql
from dpsql.books import files
from dpsql.books.files import files_of

pytestmark = pytest.mark.any_duckdb

QUERY = "FROM dp_query('SELECT count(*) AS n FROM t WHERE i < {}', epsilon := {})"
NO_LOG = "ATTACH '{}' AS x (RECOVERY_MODE no_wal_writes)"


@pytest.fixture
def path(tmp_path):
    """A database with a budget of 1, closed."""
    path = tmp_path / "census.duckdb"
    with duckdb.connect(str(path)) as con:
        dpsql.load(con, progress=False)
        con.execute("CREATE TABLE t AS SELECT i FROM range(1000) r(i)")
        con.execute("CALL dp_protect('t', epsilon := 1, delta := 1e-6)")
    return path


def without_log(con, path):
    try:
        con.execute(NO_LOG.format(path))
    except duckdb.Error as error:
        pytest.skip(f"this DuckDB always has a log: {error}")
    con.execute("USE x")
    dpsql.load(con, progress=False)


@pytest.mark.parametrize("setting", ["SET checkpoint_on_detach = 'DISABLED'", "PRAGMA disable_checkpoint_on_shutdown"])
def test_without_a_log_nothing_is_sold(path, setting):
    for _ in range(2):
        with duckdb.connect() as con:
            try:
                con.execute(setting)
            except duckdb.CatalogException:
                pytest.skip("this DuckDB has no such setting")
            without_log(con, path)
            with pytest.raises(duckdb.Error, match="in memory and not in the file of database 'x'.* without a write-ahead log"):
                con.execute(QUERY.format(500, 1)).fetchall()
            con.execute("USE memory; DETACH x")
    with duckdb.connect(str(path)) as con:
        dpsql.load(con, progress=False)
        assert len(con.execute(QUERY.format(500, 1)).fetchall()) == 1
        assert con.execute("SELECT count(*) FROM dp_ledger() WHERE action = 'charge'").fetchone() == (1,)


def test_without_a_log_no_budget_is_declared(path):
    with duckdb.connect() as con:
        without_log(con, path)
        con.execute("CREATE TABLE x.s AS FROM t")
        with pytest.raises(duckdb.Error, match="without a write-ahead log"):
            con.execute("CALL dp_protect('s', epsilon := 1, delta := 1e-6)")


@pytest.mark.parametrize("setting", ["SET wal_autocheckpoint = '1KB'", "SET wal_autocheckpoint = '1TB'", "SELECT 1"])
def test_commits_that_are_checkpoints_are_known(path, setting):
    with duckdb.connect(str(path)) as con:
        con.execute(setting)
        dpsql.load(con, progress=False)
        for number in range(12):
            con.execute(QUERY.format(number, 0.01)).fetchall()
            if number % 4 == 0:
                con.execute("CHECKPOINT")
        assert con.execute("SELECT count(*) FROM dp_ledger() WHERE action = 'store'").fetchone() == (12,)


def test_in_memory_books_are_as_they_were():
    with duckdb.connect() as con:
        dpsql.load(con, progress=False)
        con.execute("CREATE TABLE t AS SELECT i FROM range(1000) r(i); CALL dp_protect('t', epsilon := 1, delta := 1e-6)")
        assert len(con.execute(QUERY.format(500, 1)).fetchall()) == 1


def test_files_say_when_they_are_written(tmp_path):
    file = tmp_path / "a.duckdb"
    states = [files_of(str(file))]
    for name, text in (("a.duckdb", "1"), ("a.duckdb.wal", "1"), ("a.duckdb.wal", "12"), ("a.duckdb.wal.checkpoint", "1")):
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, ns=(10**18, 10**18))  # long ago
        states.append(files_of(str(file)))
    assert all(before.states != after.states for before, after in pairwise(states))
    assert not states[-1].written_since()
    os.utime(file, ns=(states[-1].taken, states[-1].taken))
    assert states[-1].written_since() and files_of(str(file)).written_since()  # so late that a clock could not tell


def test_a_file_that_is_attached_twice_sells_nothing(path):
    other = path.with_name("other.duckdb")
    with duckdb.connect(str(path)) as con:
        dpsql.load(con, progress=False)
        con.execute(QUERY.format(5, 0.1)).fetchall()
        try:
            other.hardlink_to(path)
            con.execute(f"ATTACH '{other}' AS twin")
        except (OSError, duckdb.Error) as error:
            pytest.skip(f"a file is not attached twice here: {error}")
        with pytest.raises(duckdb.Error, match="is attached as 'twin' too"):
            con.execute(QUERY.format(6, 0.1)).fetchall()
        assert con.execute("SELECT count(*) FROM dp_ledger() WHERE action = 'charge'").fetchone() == (1,)
        con.execute("DETACH twin")
    with duckdb.connect(str(path)) as con:  # whoever closes one of two gives up the lock on both
        dpsql.load(con, progress=False)
        assert len(con.execute(QUERY.format(6, 0.1)).fetchall()) == 1


SELLS = "FROM dp_query('SELECT count(*) AS n FROM t', epsilon := {})"
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="another system says nothing of locks")


@linux
@pytest.mark.parametrize("way", ["copy", "open", "read_blob"])
def test_nothing_is_sold_where_the_lock_on_the_file_is_gone(path, tmp_path, way):
    with duckdb.connect(str(path)) as con:
        dpsql.load(con, progress=False)
        assert len(con.execute(SELLS.format(0.1)).fetchall()) == 1
        if way == "copy":
            shutil.copy(path, tmp_path / "backup.duckdb")
        elif way == "open":
            path.open("rb").close()
        else:
            con.execute("SELECT octet_length(content) FROM read_blob(?)", [str(path)]).fetchall()
        with pytest.raises(duckdb.Error, match="does not hold DuckDB's lock on it any more.*connect again.*nothing was written"):
            con.execute(SELLS.format(0.2)).fetchall()
        assert len(con.execute(SELLS.format(0.1)).fetchall()) == 1  # what was bought stays readable
    with duckdb.connect(str(path)) as con:
        dpsql.load(con, progress=False)
        assert len(con.execute(SELLS.format(0.2)).fetchall()) == 1


@linux
def test_another_program_that_got_in_sells_and_the_first_one_does_not(path, tmp_path):
    """The attack: both sold the whole budget, and one charge was left."""
    with duckdb.connect(str(path)) as con:
        dpsql.load(con, progress=False)
        con.execute("CHECKPOINT")
        shutil.copy(path, tmp_path / "backup.duckdb")
        code = f"""
import duckdb, dpsql
con = duckdb.connect({str(path)!r}); dpsql.load(con, progress=False)
print(len(con.execute({SELLS.format(1)!r}).fetchall()))
con.close()
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "1"
        with pytest.raises(duckdb.Error, match="does not hold DuckDB's lock"):
            con.execute(QUERY.format(10, 1)).fetchall()


@linux
def test_a_file_that_is_open_by_two_names_in_a_process_sells_nothing(path, tmp_path):
    other = tmp_path / "other.duckdb"
    os.link(path, other)
    with duckdb.connect(str(path)) as first, duckdb.connect(str(other)) as second:
        for con in (first, second):
            dpsql.load(con, progress=False)
            with pytest.raises(duckdb.Error, match="open twice in this process"):
                con.execute(SELLS.format(1)).fetchall()


def test_where_the_system_shows_no_locks_nothing_is_said(path, monkeypatch):
    monkeypatch.setattr(files, "_locked_here", set)
    files._shows_locks.cache_clear()
    try:
        with duckdb.connect(str(path)) as con:
            dpsql.load(con, progress=False)
            assert len(con.execute(SELLS.format(0.1)).fetchall()) == 1
    finally:
        files._shows_locks.cache_clear()
