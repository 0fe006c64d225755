"""Values besides those that a custodian declared: in which groups their rows are is said, and a number of things is of all of them."""

from __future__ import annotations

import duckdb
import pytest

import dpsql

pytestmark = pytest.mark.any_duckdb

CODE = "CASE WHEN i % 10 < 3 THEN 'a' WHEN i % 10 < 5 THEN 'b' WHEN i % 10 < 9 THEN 'z' || i % 50 END"


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    """Return a database in which 40 % of the codes are not in their list, and half of the numbers beyond their bounds."""
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t (id INTEGER, code VARCHAR, n INTEGER, num INTEGER, e ENUM('u', 'v'), b BOOLEAN, tiny UTINYINT, "
        "checked VARCHAR CHECK (checked IN ('p', 'q')), few INTEGER CHECK (few BETWEEN 0 AND 3))"
    )
    con.execute(f"INSERT INTO t SELECT i, {CODE}, i % 20, i % 20, CASE WHEN i % 3 = 0 THEN 'u' ELSE 'v' END, i % 2 = 0, i % 7, 'p', i % 4 FROM range(4000) r(i)")
    dpsql.load(con, progress=True)
    con.execute("CALL dp_protect('t', epsilon := 1000, delta := 1e-9, privacy_unit := 'id', max_contributions := 1)")
    for column, domain in {
        "code": "categories := ['a', 'b']", "n": "lower := 0, upper := 9", "num": "categories := [1, 2, 3]", "e": "categories := ['u', 'v']",
        "tiny": "lower := 0, upper := 255", "checked": "categories := ['p', 'q', 'r']", "few": "lower := 0, upper := 3",
    }.items():
        con.execute(f"CALL dp_declare('t', '{column}', {domain})")
    return con


def notes(con: duckdb.DuckDBPyConnection, sql: str) -> str:
    row = con.execute("SELECT notes FROM dp_plan(?, epsilon := 20)", [sql]).fetchone()
    assert row is not None
    return " | ".join(row[0])


@pytest.mark.parametrize(
    ("key", "column"),
    [("code", "code"), ("upper(code)", "code"), ("num", "num"), ("n", "n"), ("n // 5", "n"), ("code, n", "code"), ("code, n", "n")],
)
def test_rows_in_no_group_are_spoken_of_in_the_plan(con: duckdb.DuckDBPyConnection, key: str, column: str) -> None:
    assert f"rows whose value of {column} is not among those declared may be in no group" in notes(con, f"SELECT {key}, count(*) FROM t GROUP BY ALL")


@pytest.mark.parametrize(
    "sql",
    ["SELECT e, count(*) FROM t GROUP BY ALL", "SELECT b, tiny, count(*) FROM t GROUP BY ALL", "SELECT checked, few, count(*) FROM t GROUP BY ALL",
     "SELECT code = 'a' AS k, count(*) FROM t GROUP BY ALL", "SELECT CASE WHEN n < 5 THEN 'low' ELSE 'high' END AS k, count(*) FROM t GROUP BY ALL",
     "SELECT code, count(*) FROM t WHERE code IN ('a') GROUP BY ALL", "SELECT n, count(*) FROM t WHERE n BETWEEN 0 AND 8 GROUP BY ALL",
     "SELECT count(*) FROM t", "SELECT count(DISTINCT code), avg(n) FROM t"],
)
def test_nothing_is_said_where_all_rows_are_in_a_group(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    said = notes(con, sql)
    assert "no group" not in said and "declared" not in said


def test_through_a_subquery_too(con: duckdb.DuckDBPyConnection) -> None:
    assert "rows whose value of k is not among those" in notes(con, "SELECT k, count(*) FROM (SELECT id, code AS k FROM t) GROUP BY k")


def test_a_line_beside_the_answer_and_dp_explain_say_so(con: duckdb.DuckDBPyConnection, capfd: pytest.CaptureFixture[str]) -> None:
    said = "rows whose value of code is not among those declared may be in no group"
    for release, times in (("first", 1), ("second", 0)):
        con.execute(f"FROM dp_query('SELECT code, count(*) FROM t GROUP BY code', epsilon := 20, release := '{release}')").fetchall()
        assert capfd.readouterr().err.count(said) == times, "once"
    assert any(said in text for _, text in con.execute("FROM dp_explain('second')").fetchall())


@pytest.mark.parametrize("call", ["mode(code)", "histogram(code)", "mode(num)", "histogram(num)", "sum(DISTINCT n)"])
def test_aggregates_of_a_list_say_that_they_are(con: duckdb.DuckDBPyConnection, call: str, capfd: pytest.CaptureFixture[str]) -> None:
    said = f"{call} is of declared values alone"
    assert said in notes(con, f"SELECT {call} FROM t")
    con.execute(f"FROM dp_query('SELECT {call} FROM t', epsilon := 20, release := '{call}')").fetchall()
    assert said in capfd.readouterr().err
    assert any(said in text for _, text in con.execute("FROM dp_explain(?)", [call]).fetchall())


@pytest.mark.parametrize(("column", "truth"), [("code", 22), ("num", 20), ("n", 20), ("e", 2), ("checked", 1)])
def test_a_number_of_values_is_not_cut_at_the_list(con: duckdb.DuckDBPyConnection, column: str, truth: int) -> None:
    """It was 2 for 22, and dp_query_exact said 22; what the type says is known."""
    [(n, low, high)] = con.execute(f"FROM dp_query('SELECT count(DISTINCT {column}) FROM t', epsilon := 20, confidence := 0.99999)").fetchall()
    assert low <= truth <= high and abs(n - truth) <= 4
    assert dpsql.query_exact(con, f"SELECT count(DISTINCT {column}) FROM t").fetchall() == [(truth,)]
    if column in ("e", "checked"):
        assert high <= 3
