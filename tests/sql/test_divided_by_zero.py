"""What is divided by zero is NULL, in a condition too, where DuckDB has infinity or fails: the plan says so once."""

from __future__ import annotations

import duckdb
import pytest

import dpsql

pytestmark = pytest.mark.any_duckdb
SAID = "NULL where it is divided by zero, and a condition over it is not true: "


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i AS id, i % 7 AS y, 1 + i % 5 AS above, (i % 5)::DOUBLE AS f FROM range(700) t(i)")
    dpsql.load(con, progress=False)
    con.execute("CALL dp_protect('t', epsilon := 1000, delta := 1e-9, privacy_unit := 'id', max_contributions := 1)")
    for column, bounds in {"y": (0, 6), "above": (1, 5), "f": (0, 4)}.items():
        con.execute(f"CALL dp_declare('t', '{column}', lower := {bounds[0]}, upper := {bounds[1]})")
    return con


def noted(con: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    row = con.execute("SELECT notes FROM dp_plan(?, epsilon := 1)", [sql]).fetchone()
    assert row is not None
    return [note.removeprefix(SAID) for note in row[0] if note.startswith(SAID)]


@pytest.mark.parametrize(
    ("sql", "pieces"),
    [("SELECT count(*) FROM t WHERE 1 / (y - 3) > 0.1", "1 / (y - 3)"), ("SELECT count(*) FILTER (WHERE y % y = 0) FROM t", "y % y"),
     ("SELECT above // y AS k, count(*) FROM t GROUP BY k", "above // y"), ("SELECT sum(f / y) FROM t", "f / y"),
     ("SELECT count(*) FROM (SELECT id, f / y AS q FROM t) WHERE q > 3", "f / y"),
     ("SELECT count(*) FROM t WHERE 1 / y > 1 OR 2 / y > 1 OR 3 / y > 1 OR 4 / y > 1", "1 / y, 2 / y, 3 / y, ...")],
)
def test_the_plan_names_it(con: duckdb.DuckDBPyConnection, sql: str, pieces: str) -> None:
    assert noted(con, sql) == [pieces]


@pytest.mark.parametrize(
    "sql",
    ["SELECT count(*) FROM t WHERE 1 / above > 0.1", "SELECT count(*) FROM t WHERE y / 2 > 1", "SELECT sum(f / y) FROM t WHERE y > 0",
     "SELECT count(*) / count(y) FROM t", "SELECT y % 2 AS k, count(*) FROM t GROUP BY k"],
)
def test_what_cannot_be_zero_is_not_spoken_of(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    assert noted(con, sql) == []


def test_it_is_so(con: duckdb.DuckDBPyConnection) -> None:
    """100 rows are in neither the condition nor its negation, and dp_query_exact agrees."""
    for condition, truth in {"1 / (y - 3) > 0.1": 300, "NOT 1 / (y - 3) > 0.1": 300, "1 / (y - 3) IS NULL": 100}.items():
        [(found,)] = con.execute("FROM dp_query(?, epsilon := 40)", [f"SELECT count(*) FROM t WHERE {condition}"]).fetchall()
        assert abs(found - truth) <= 3
        assert dpsql.query_exact(con, f"SELECT count(*) FROM t WHERE {condition}").fetchall() == [(truth,)]
