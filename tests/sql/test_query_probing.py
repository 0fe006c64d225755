"""What stands around the aggregates and fails whatever the numbers are is refused before anything is charged."""

import duckdb
import pytest

import dpsql


@pytest.fixture
def con(tmp_path):
    with duckdb.connect() as opened:
        dpsql.load(opened, store=tmp_path)
        opened.execute("CREATE TABLE t AS SELECT i AS a, CASE WHEN i % 2 = 0 THEN 'x' ELSE 'y' END AS s FROM range(200) r(i)")
        opened.execute("CALL dp_protect('t', epsilon := 100.0, delta := 1e-9)")
        opened.execute("CALL dp_declare('t', 'a', lower := 0, upper := 200, nullable := false)")
        opened.execute("CALL dp_declare('t', 's', categories := ['x', 'y'], nullable := false)")
        yield opened


def ask(con, sql):
    return con.execute(f"FROM dp_query($${sql}$$, epsilon := 0.5)").fetchall()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sum(a) + 'abc' FROM t",
        "SELECT count(*) AS n, timezone('Nowhere/X', TIMESTAMP '2000-01-01') AS z FROM t",
        "SELECT s, count(*) + CAST('none' AS INTEGER) AS n FROM t GROUP BY s",
        "SELECT strftime(TIMESTAMP '2000-01-01', '%Q %'), count(*) FROM t",
    ],
)
def test_what_fails_on_all_numbers_is_refused_and_free(con, sql):
    with pytest.raises(duckdb.Error, match="Nothing was charged"):
        ask(con, sql)
    assert con.execute("SELECT releases FROM dp_budget('t')").fetchall() == [(0,)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT coalesce(avg(a)::VARCHAR, 'none')::DOUBLE FROM t",  # fails on NULL alone
        "SELECT CASE WHEN count(*) IS NULL THEN CAST('none' AS INTEGER) ELSE count(*) END AS n FROM t",
        "SELECT s, count(*) FROM t GROUP BY GROUPING SETS ((s), ())",
        "SELECT substr('abc', count(*)) FROM t",
        "SELECT [count(*), sum(a)], {'n': count(*)} FROM t",
        "SELECT max(n) FROM (SELECT s, count(*) AS n FROM t GROUP BY s)",
        "SELECT histogram(s) FROM t",
    ],
)
def test_what_fails_on_no_numbers_or_on_some_is_answered(con, sql):
    assert ask(con, sql)


def test_what_fails_on_some_numbers_is_kept_and_asked_again_free(con):
    with pytest.raises(duckdb.Error, match="bought and kept"):
        ask(con, "SELECT s::INTEGER, count(*) AS n FROM t GROUP BY s")  # a text may be a number: the probe is one
    assert con.execute("SELECT releases FROM dp_budget('t')").fetchall() == [(1,)]
    assert len(ask(con, "SELECT s, count(*) AS n FROM t GROUP BY s")) == 2
    assert con.execute("SELECT releases FROM dp_budget('t')").fetchall() == [(1,)]
