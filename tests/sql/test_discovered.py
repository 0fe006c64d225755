"""Lists of values that are bought can always be declared: what cannot be listed is outside of the list."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpsql

pytestmark = pytest.mark.any_duckdb


@pytest.fixture
def bought() -> Iterator[duckdb.DuckDBPyConnection]:
    con = duckdb.connect()
    dpsql.load(con, user="tester")
    con.execute(
        "CREATE TABLE t AS SELECT i AS u, ['(other)', 'a' || chr(0), 'plain'][1 + i % 3] AS s, "
        "CAST(['infinity', '2020-01-01', '5000-01-01 (BC)'][1 + i % 3] AS DATE) AS d, "
        "[NULL, 'a' || chr(0)][1 + i % 2] AS none FROM range(3000) AS numbers(i)"
    )
    dpsql.protect(con, "t", epsilon=100, delta=1e-6, privacy_unit="u", max_contributions=1)
    yield con
    con.close()


@pytest.mark.parametrize(("column", "kept", "outside"), [("s", "plain", "other"), ("s", "(other)", "clamp"), ("d", "2020-01-01", "other")])
def test_what_cannot_be_listed_is_left_out(bought: duckdb.DuckDBPyConnection, column: str, kept: str, outside: str) -> None:
    call = f"FROM dp_declare('t', '{column}', discover := true, epsilon := 5, outside := '{outside}')"
    (labels,) = bought.execute(f"SELECT labels {call}").fetchone()  # type: ignore[misc]
    assert kept in labels and "\\0" not in labels
    assert bought.execute(f"SELECT labels {call}").fetchone() == (labels,)
    bought.execute(f"FROM dp_marginals('t', columns := ['{column}'], epsilon := 1)").fetchall()
    assert bought.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone() == (2,)


def test_a_list_of_which_nothing_can_be_declared(bought: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error, match="nothing to declare; the charge stands"):
        bought.execute("FROM dp_declare('t', 'none', discover := true, epsilon := 5)").fetchall()


@pytest.fixture
def partly() -> Iterator[duckdb.DuckDBPyConnection]:
    """Half of the rows have one of four values, the other half one of many: lists that are bought have the four."""
    con = duckdb.connect()
    dpsql.load(con, progress=True)
    con.execute(
        "CREATE TABLE t AS SELECT i AS u, n::INTEGER AS n, 'c' || n AS s, DATE '2020-01-01' + n::INTEGER AS d "
        "FROM (SELECT i, CASE WHEN i % 2 = 0 THEN i % 8 ELSE 1000 + i % 900 END AS n FROM range(8000) AS numbers(i))"
    )
    con.execute("CALL dp_protect('t', epsilon := 1000, delta := 1e-6, privacy_unit := 'u', max_contributions := 1)")
    for column in "nsd":
        con.execute(f"CALL dp_declare('t', '{column}', discover := 'values', epsilon := 2)")
    yield con
    con.close()


def answer(con: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[object, ...]]:
    quoted = sql.replace("'", "''")
    return con.execute(f"FROM dp_query('{quoted}', epsilon := 20)").fetchall()


def test_texts_made_of_a_listed_column_have_a_group_of_the_others(partly: duckdb.DuckDBPyConnection) -> None:
    """They were in no group, and there was one of '(OTHER)' without rows."""
    rows = dict(answer(partly, "SELECT upper(s) AS k, count(*) FROM t GROUP BY k"))
    assert rows.keys() == {"C0", "C2", "C4", "C6", "(other)", None}
    assert abs(rows["(other)"] - 4000) < 60 and abs(sum(rows.values()) - 8000) < 60  # type: ignore[operator, arg-type]
    rows = dict(answer(partly, "SELECT CASE WHEN s = 'c0' THEN 'a' ELSE 'b' END AS k, count(*) FROM t GROUP BY k"))
    assert rows.keys() == {"a", "b"} and abs(rows["b"] - 7000) < 60  # type: ignore[operator]
    rows = {row[:2]: row[2] for row in answer(partly, "SELECT s, 'is ' || s AS k, count(*) FROM t GROUP BY ALL")}
    assert abs(rows["(other)", "(other)"] - 4000) < 60 and ("c0", "is c2") not in rows  # type: ignore[operator]


def test_rows_in_no_group_are_spoken_of(partly: duckdb.DuckDBPyConnection, capfd: pytest.CaptureFixture[str]) -> None:
    """A number or a day has no value for all others: a line beside the answer says so, and dp_explain, and dp_plan."""
    for place, (column, key) in enumerate((("n", "n"), ("d", "d"), ("n", "n // 10"), ("s", "length(s)"))):
        capfd.readouterr()
        partly.execute(f"FROM dp_query('SELECT {key} AS k, count(*) FROM t GROUP BY k', epsilon := 1, release := 'q{place}')").fetchall()
        said = f"rows whose value of {column} is not among those declared may be in no group; groups := 'private' finds"
        line = capfd.readouterr().err
        explained = [text for row in partly.execute(f"FROM dp_explain('q{place}')").fetchall() for text in map(str, row)]
        assert any(said in text for text in explained)
        assert said in line or (column, key) == ("n", "n // 10"), "each line once"
    assert {row[0] for row in answer(partly, "SELECT length(s) AS k, count(*) FROM t GROUP BY k")} == {2, None}
    capfd.readouterr()
    answer(partly, "SELECT s, count(*) FROM t GROUP BY s")
    assert "in no group" not in capfd.readouterr().err


def test_other_values_are_not_null(partly: duckdb.DuckDBPyConnection) -> None:
    rows = partly.execute("SELECT column_name, null_percentage FROM dp_summarize('t', columns := ['n', 's', 'd'], epsilon := 20)").fetchall()
    assert len(rows) == 3 and all(share < 3 for _, share in rows)
    (status,) = partly.execute("SELECT status FROM dp_declare('t', 'n', discover := 'values', epsilon := 2)").fetchone()  # type: ignore[misc]
    assert "'(other)'" not in status and "no group in dp_query" in status
