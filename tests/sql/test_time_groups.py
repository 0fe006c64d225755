"""Groups of moments: the buckets of a width, and those that the conditions of WHERE leave."""

from __future__ import annotations

import duckdb
import pytest

import dpsql

pytestmark = pytest.mark.any_duckdb


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as connection:
        connection.execute("""
            CREATE TABLE r AS SELECT i AS p, TIMESTAMP '2024-01-01' + to_seconds(CAST(i * 97 % 345600 AS INTEGER)) AS ts,
                DATE '2023-01-01' + (i % 900)::INTEGER AS d, CASE WHEN i % 3 > 0 THEN TIMESTAMP '2024-01-01' + to_hours((i % 96)::INTEGER) END AS gone
            FROM range(20000) x(i);
            INSERT INTO r VALUES (-1, '-infinity', '-infinity', 'infinity'), (-2, NULL, NULL, NULL), (-3, '2024-01-02', '2024-01-01', NULL);
        """)
        dpsql.load(connection, progress=False)
        connection.execute("CALL dp_protect('r', epsilon := 1000, delta := 1e-9, privacy_unit := 'p', max_contributions := 1)")
        for column in ("ts", "gone"):
            connection.execute(f"CALL dp_declare('r', '{column}', lower := TIMESTAMP '2024-01-01', upper := TIMESTAMP '2024-01-04 23:59:59')")
        connection.execute("CALL dp_declare('r', 'd', lower := DATE '2023-01-01', upper := DATE '2025-06-18')")
        yield connection


def asked(con, text):
    return dict(con.execute("FROM dp_query(?, epsilon := 5)", [text]).fetchall())


WIDTHS = [
    ("ts", "2 hours"), ("ts", "3 HOURS"), ("ts", "6 hours"), ("ts", "12 hours"), ("ts", "15 minutes"), ("ts", "30 minutes"), ("ts", "2 months"),
    ("d", "2 months"), ("d", "4 months"), ("d", "6 months"), ("d", "1 week"), ("d", "1 year"), ("ts", "24 hours"), ("ts", "60 minutes"),
]


@pytest.mark.parametrize(("column", "width"), WIDTHS)
def test_buckets_are_duckdbs(con, column, width):
    text = f"SELECT time_bucket(INTERVAL '{width}', {column}) AS b, count(*) AS n FROM r WHERE {column} BETWEEN '2024-01-01' AND '2024-01-03 23:59:59' GROUP BY b"
    if column == "d":
        text = text.replace("'2024-01-01' AND '2024-01-03 23:59:59'", "'2023-01-01' AND '2025-06-18'")
    answer, true = asked(con, text), dict(con.execute(text).fetchall())
    assert answer.keys() == true.keys(), "the buckets between the bounds, and no other"
    assert all(abs(answer[key] - true[key]) < 25 for key in true)


@pytest.mark.parametrize("width", ["5 hours", "7 minutes", "2 weeks", "10 days", "18 months", "36 hours"])
def test_widths_that_divide_nothing_are_refused_with_a_way_out(con, width):
    with pytest.raises(duckdb.Error, match="others are numbered by date_diff"):
        asked(con, f"SELECT time_bucket(INTERVAL '{width}', ts) AS b, count(*) FROM r GROUP BY b")
    with pytest.raises(duckdb.Error, match="others are numbered by date_diff"):
        asked(con, "SELECT time_bucket(INTERVAL '6 hours', d) AS b, count(*) FROM r GROUP BY b")
    [row] = con.execute("FROM dp_query('SELECT count(*) FROM r WHERE date_diff(''day'', DATE ''2000-01-03'', d) // 14 = 600', epsilon := 5)").fetchall()
    [true] = con.execute("SELECT count(*) FROM r WHERE time_bucket(INTERVAL '2 weeks', d) = DATE '2000-01-03' + 14 * 600").fetchall()
    assert abs(row[0] - true[0]) < 20


LEFT = [
    "SELECT date_trunc('day', ts) AS k, count(*) AS n FROM r WHERE ts >= '2024-01-02' AND ts < '2024-01-04' GROUP BY k",
    "SELECT date_trunc('day', ts) AS k, count(*) AS n FROM r WHERE ts > DATE '2024-01-02' AND ts < DATE '2024-01-04' GROUP BY k",
    "SELECT ts::DATE AS k, count(*) AS n FROM r WHERE '2024-01-02' <= ts AND '2024-01-04' > ts GROUP BY k",
    "SELECT day(ts) AS k, count(*) AS n FROM r WHERE ts BETWEEN '2024-01-02' AND '2024-01-03 12:00:00' GROUP BY k",
    "SELECT day(gone) AS k, count(*) AS n FROM r WHERE gone >= '2024-01-02' AND gone < '2024-01-04' GROUP BY k",
    "SELECT month(d) AS k, count(*) AS n FROM r WHERE d >= '2024-02-01' AND d < '2024-04-01' GROUP BY k",
]


@pytest.mark.parametrize("text", LEFT)
def test_groups_that_a_condition_leaves_out_are_not_there(con, text):
    answer, true = asked(con, text), dict(con.execute(text).fetchall())
    assert answer.keys() == true.keys()
    assert all(abs(answer[key] - true[key]) < 25 for key in true)


SPANS = [
    "ts - TIMESTAMP '2024-01-02' > INTERVAL '1 day'", "ts - DATE '2024-01-02' <= INTERVAL 30 MINUTE", "INTERVAL '2 hours' > ts - TIMESTAMP '2024-01-03 01:00:00'",
    "NOT (ts - TIMESTAMP '2024-01-02' < INTERVAL '-1 day')", "ts - d > INTERVAL 1 MONTH", "d - ts >= to_days(300)", "(ts - d) < INTERVAL 1 YEAR",
    "ts - d BETWEEN INTERVAL 1 WEEK AND INTERVAL 2 QUARTER", "ts - gone = INTERVAL 0 DAY",
]


@pytest.mark.parametrize("where", SPANS)
def test_a_time_between_two_moments_is_compared_as_duckdb_does(con, where):
    [(answer,)] = con.execute("FROM dp_query(?, epsilon := 5)", [f"SELECT count(*) FROM r WHERE {where}"]).fetchall()
    finite = f"{where} AND isfinite(ts) AND isfinite(d)"  # DuckDB raises for others
    [(true,)] = con.execute(f"SELECT count(*) FROM (FROM r WHERE isfinite(ts) AND isfinite(d) AND (gone IS NULL OR isfinite(gone))) WHERE {finite}").fetchall()
    assert abs(answer - true) < 25, where


THERE = [
    ("SELECT date_trunc('day', ts) AS k, count(*) AS n FROM r WHERE ts < '2024-01-04' GROUP BY k", True, 4),
    ("SELECT date_trunc('day', ts) AS k, count(*) AS n FROM r WHERE ts <= '2024-01-04' AND ts >= '2024-01-02' GROUP BY k", False, 3),
    ("SELECT day(gone) AS k, count(*) AS n FROM r WHERE NOT (gone < '2024-01-02' OR gone > '2024-01-03') IS TRUE GROUP BY k", True, 3),
    ("SELECT day(gone) AS k, count(*) AS n FROM r WHERE gone BETWEEN '2024-01-02' AND '2024-01-03' OR gone IS NULL GROUP BY k", True, 5),
    ("SELECT day(ts) AS k, count(*) AS n FROM r WHERE ts > '200000-01-01 (BC)' AND ts < '200000-01-01' GROUP BY k", True, 5),
]


@pytest.mark.parametrize(("text", "null", "groups"), THERE)
def test_groups_that_a_condition_may_leave_stay(con, text, null, groups):
    answer, true = asked(con, text), dict(con.execute(text.replace('WHERE', 'WHERE isfinite(ts) AND')).fetchall())
    assert true.keys() - {None} <= answer.keys() and (None in answer) == null
    assert len(answer) == groups
