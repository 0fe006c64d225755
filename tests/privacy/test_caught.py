"""The second wall by itself: what raises is NULL, in the engine, and no other row notices.

The kernel is given a hole (a function that fails on some values and is listed as total) and no rehearsal; the same on DuckDB 1.4, 1.5 and 2.0.
"""

from __future__ import annotations

import duckdb
import pytest

from dpsql.algebra import functions
from dpsql.source import analysis, bound, calls
from dpsql.source.analysis import analyse
from dpsql.source.functions import caught

RAISING = {
    "a cast": "s::INTEGER + 1",
    "a cast twice": "(s::INTEGER + 1) * (s::INTEGER + 2)",
    "an overflow": "n + 2147483600",
    "a format": "strftime(CASE WHEN n = 7 THEN TIMESTAMPTZ '2020-01-01' END, '%Q')",
    "a comparison that casts": "(CASE WHEN n = 7 THEN '{' ELSE '1' END)::JSON = '1'::JSON",
    "a power": "sqrt(CASE WHEN n = 7 THEN -1 ELSE 1 END)",
    "a character": "chr(CASE WHEN n = 7 THEN -1 ELSE 65 END)",
    "two columns": "s::INTEGER + n",
}


@pytest.fixture
def con():
    with duckdb.connect(":memory:") as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT CASE WHEN i % 500 = 7 THEN 'bad' ELSE (i % 97)::VARCHAR END AS s, "
            "CASE WHEN i % 700 = 7 THEN 7 ELSE i % 61 + 8 END::INTEGER AS n, i FROM range(20000) AS r(i)"
        )
        yield connection


@pytest.mark.parametrize("name", RAISING)
def test_what_raises_is_null_and_other_rows_stay(con, name):
    text = RAISING[name]
    net = caught(text)
    # the row by itself tells what its value is
    con.execute("CREATE TABLE want(i BIGINT, x VARCHAR)")
    for start in (0, 7, 507, 8, 707, 1000):
        try:
            con.execute(f"INSERT INTO want SELECT i, ({text})::VARCHAR FROM t WHERE i = {start}")
        except duckdb.Error:
            con.execute(f"INSERT INTO want VALUES ({start}, NULL)")
    sums = con.execute("SELECT sum(n), sum(i), count(s), max(s) FROM t").fetchall()
    twice = f"SELECT {net} AS x, {net} AS y, {caught(text + ' IS NULL')} AS z, n, i, s FROM t"
    assert con.execute(f"SELECT sum(n), sum(i), count(s), max(s) FROM ({twice})").fetchall() == sums
    got = con.execute(f"SELECT i, x::VARCHAR, y::VARCHAR FROM ({twice}) WHERE i IN (SELECT i FROM want) ORDER BY i ASC").fetchall()
    assert got == [(i, x, x) for i, x in con.execute("SELECT i, x FROM want ORDER BY i ASC").fetchall()]
    # as a filter, pushed down or not, alone and with the same expression in the list
    for where in (f"{caught(f'({text}) IS NOT NULL')}", f"{caught(f'({text}) IS NOT NULL')} AND i > 3", f"i > 3 AND {caught(f'({text}) IS DISTINCT FROM NULL')}"):
        con.execute(f"SELECT count(*), count(x) FROM (SELECT {net} AS x FROM t WHERE {where})").fetchall()
    con.execute(f"SELECT count(*) FROM (SELECT {net}::VARCHAR AS x FROM t) AS a JOIN (SELECT DISTINCT ON (s) s FROM t) AS b ON a.x = b.s").fetchall()


@pytest.mark.fact("1.4.5", "1.5.6", "2.0.0")
def test_try_alone_lets_a_shared_subexpression_raise(con):
    """The fact behind `caught`. That this one statement no longer raises on 2.0.1 is no proof that none does."""
    with pytest.raises(duckdb.ConversionException):
        con.execute("SELECT sum(a), sum(b) FROM (SELECT TRY(s::INTEGER + 1) AS a, TRY(s::INTEGER + 2) AS b FROM t)").fetchall()


def test_what_is_caught_may_share_a_subexpression(con):
    a, b = caught("s::INTEGER + 1"), caught("s::INTEGER + 2")
    assert con.execute(f"SELECT count(a), count(b) FROM (SELECT {a} AS a, {b} AS b FROM t)").fetchall() == [(19960, 19960)]


@pytest.fixture
def hole(monkeypatch):
    """``chr`` listed as total, and neither the check of the plan nor the rehearsal in its way."""
    holed = {**functions.FUNCTIONS, "chr": functions.Function("chr", "c", 1)}
    monkeypatch.setattr(calls, "FUNCTIONS", holed)
    monkeypatch.setattr(bound, "BOUND", {**bound.BOUND, "chr": functions.Function("chr", "c", 1)})
    monkeypatch.setattr(analysis, "rehearse", lambda *given: None)


def rewritten(con: duckdb.DuckDBPyConnection, query: str) -> str:
    return analyse(con.cursor(), query, database="memory", schema="main", protected=lambda t: True).sql


def test_a_hole_in_the_kernel_shows_nothing(con, hole, monkeypatch):
    query = "SELECT s, chr(CASE WHEN n = 7 THEN 2147483647 ELSE 65 END) AS c FROM t WHERE chr(CASE WHEN n = 7 THEN -1 ELSE 65 END) = 'A'"
    found = con.execute(f"SELECT count(*), count(c), count(*) FILTER (c = 'A') FROM ({rewritten(con, query)})").fetchall()
    others = con.execute("SELECT count(*) FROM t WHERE n <> 7").fetchone()[0]
    assert found == [(others, others, others)]
    monkeypatch.setattr(analysis, "guarded", lambda select: select)  # and without the net it does raise: the hole is one
    with pytest.raises(duckdb.Error):
        con.execute(f"SELECT count(c) FROM ({rewritten(con, query)})").fetchall()


def test_the_rehearsal_finds_the_hole(con, hole, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(calls, "FUNCTIONS", {**functions.FUNCTIONS, "chr": functions.Function("chr", "c", 1)})
    monkeypatch.setattr(bound, "BOUND", {**bound.BOUND, "chr": functions.Function("chr", "c", 1)})
    with pytest.raises(analysis.UnsupportedQuery, match="rehearsal"):
        rewritten(con, "SELECT chr(CASE WHEN n = 7 THEN -1 ELSE 65 END) AS c FROM t")
