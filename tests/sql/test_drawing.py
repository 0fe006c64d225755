"""Rows drawn straight into a table: the same as from a file, all or nothing, and stopped by Ctrl-C."""

import gc
import weakref
from collections import Counter

import duckdb
import pytest
from struck import ENDLESS, strike

from dpsql.rows import decoding, writing
from dpsql.running import blocks

pytestmark = pytest.mark.any_duckdb

COPULA = "FROM dp_synthesize('people', method := 'gaussian_copula', epsilon := 1.0, rows := {rows}, seed := {seed}{more})"


def rows_of(con, query):
    return con.execute(query).fetchall()


def tables(con):
    return rows_of(con, "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main' ORDER BY 1")


@pytest.mark.parametrize("more", ["", ", options := {'output': 'one_hot'}"])
@pytest.mark.parametrize("method", ["gaussian_copula", "latent_class"])
def test_a_table_holds_what_a_file_would(con, charges, monkeypatch, more, method):
    if more and method == "latent_class":
        more = ", options := {'classes': 3}"
    monkeypatch.setattr(decoding, "_ROW_GROUP", 1000)  # several frames and statements
    call = f"FROM dp_synthesize('people', method := '{method}', epsilon := 1.0, rows := 21_000, seed := 5{more}"
    answer = rows_of(con, f"{call}, into_table := 'made')")
    assert [(name, rows) for name, rows, _ in answer] == [('"people"."main"."made"', 21_000)]
    file = rows_of(con, f"{call})")
    assert len(file) == 21_000
    assert Counter(rows_of(con, "FROM made")) == Counter(file)
    described = rows_of(con, f"DESCRIBE {call})")
    assert [column[:2] for column in rows_of(con, "DESCRIBE made")] == [column[:2] for column in described]
    assert rows_of(con, f"{call}, into_table := 'again')")  # from the file
    assert Counter(rows_of(con, "FROM again")) == Counter(file)
    assert charges() == 1


def test_rows_do_not_depend_on_threads(con, monkeypatch):
    monkeypatch.setattr(decoding, "_ROW_GROUP", 1000)
    for width in (1, 3):
        for module in (blocks, decoding):
            monkeypatch.setattr(module, "threads", lambda width=width: width)
        rows_of(con, COPULA.format(rows=9000, seed=1, more=f", into_table := 'made{width}'"))
    assert Counter(rows_of(con, "FROM made1")) == Counter(rows_of(con, "FROM made3"))


@pytest.mark.parametrize("rows", [0, 1])
def test_hardly_any_rows(con, rows):
    assert rows_of(con, COPULA.format(rows=rows, seed=1, more=', "into" := \'few\''))[0][1] == rows
    assert rows_of(con, "SELECT count(*) FROM few") == [(rows,)]


def test_the_same_call_does_not_draw_again(con, charges, monkeypatch):
    call = COPULA.format(rows=50, seed=1, more=", into_table := 'made'")
    assert len(rows_of(con, f"SELECT * FROM ({call}) AS one, ({call}) AS two")) == 1
    con.execute(f"PREPARE again AS {call}")
    monkeypatch.setattr(writing.TableSink, "add", None)
    assert rows_of(con, "EXECUTE again") == rows_of(con, call)
    assert charges() == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, duckdb.IOException])
def test_a_failure_leaves_what_was_there(con, charges, monkeypatch, error):
    rows_of(con, COPULA.format(rows=50, seed=1, more=", into_table := 'made'"))
    before, there = rows_of(con, "FROM made"), tables(con)
    monkeypatch.setattr(decoding, "_ROW_GROUP", 1000)
    real, calls = writing.run, []

    def fails_later(cursor, statement, frames=()):
        calls.append(1)
        if len(calls) == 2:
            raise error("stopped")
        real(cursor, statement, frames)

    with monkeypatch.context() as patched:
        patched.setattr(writing, "run", fails_later)
        for name in ("made", "other"):
            calls.clear()
            with pytest.raises((duckdb.Error, KeyboardInterrupt, RuntimeError, MemoryError)):
                rows_of(con, COPULA.format(rows=30_000, seed=2, more=f", into_table := '{name}'"))
            assert len(calls) == 2
    assert tables(con) == there
    assert rows_of(con, "FROM made") == before
    rows_of(con, COPULA.format(rows=30_000, seed=2, more=", into_table := 'made'"))
    assert rows_of(con, "SELECT count(*) FROM made") == [(30_000,)]
    assert charges() == 1


@pytest.mark.parametrize("replacements", ["true", "false"])
def test_written_frames_do_not_stay_in_memory(con, monkeypatch, replacements):
    """A frame that is registered in a transaction lives until its end: a table would be held a second time."""
    monkeypatch.setattr(decoding, "_ROW_GROUP", 1000)
    con.execute(f"SET GLOBAL python_enable_replacements = {replacements}")
    real, alive, held = writing.run, [], []

    def watching(cursor, statement, frames=()):
        gc.collect()
        held.append(sum(seen() is not None for seen in alive))
        alive.extend(map(weakref.ref, frames))
        real(cursor, statement, frames)

    monkeypatch.setattr(writing, "run", watching)
    rows_of(con, COPULA.format(rows=60_000, seed=2, more=", into_table := 'made'"))
    assert rows_of(con, "SELECT count(*) FROM made") == [(60_000,)]
    assert len(held) > 3
    if replacements == "true":
        assert max(held) == 0
    assert rows_of(con, "SELECT current_setting('preserve_insertion_order')") == [(True,)]


STRUCK = """
from dpsql.rows import writing

con = session.connect(":memory:")
try:
    writing.run(con, sys.argv[1])
except KeyboardInterrupt:
    print("stopped", con.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 't'").fetchone())
con.close()
"""


def test_ctrl_c_ends_a_statement():
    ended = strike(STRUCK, [f"CREATE TABLE t AS SELECT sum(a.range * b.range) AS s {ENDLESS}"])
    assert ended.returncode == 0, ended.stderr
    assert "stopped (0,)" in ended.stdout
