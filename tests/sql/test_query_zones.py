"""AT TIME ZONE in a query: a function of the row alone, the same under every session's time zone, on every version of DuckDB."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from dpsql.errors import ArgumentError, UnsupportedQuery

ODD = ("NULL", "'infinity'", "'-infinity'", "'0001-01-01'", "'9999-12-31 23:59:59.999999'", "'2024-03-31 02:30:00'",
       "'2024-10-27 02:30:00'")
"""Moments besides those of every hour: the ends, one that Berlin has not had, and one that it has had twice."""


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """Local times and instants of four months, and odd ones, in a session far from UTC."""
    made = duckdb.connect()
    dpsql.load(made, progress=False)
    made.execute("SET TimeZone = 'America/St_Johns'")
    made.execute(
        "CREATE TABLE t AS SELECT i AS id, ts AS \"größe\", ts AT TIME ZONE 'UTC' AS \"order\", CAST(ts AS DATE) AS d, i % 50 AS x, i % 3 = 0 AS b "
        "FROM (SELECT i, TIMESTAMP '2024-01-01' + to_hours(i) AS ts FROM range(2900) r(i) UNION ALL "
        f"SELECT 5000 + row_number() OVER (), v FROM (SELECT unnest([{', '.join(f'CAST({v} AS TIMESTAMP)' for v in ODD)}]) AS v))"
    )
    made.execute("CREATE TABLE none AS FROM t WHERE false")
    made.execute(
        "CREATE TABLE far AS SELECT i AS id, v::TIMESTAMP AS \"größe\", (v || '+00')::TIMESTAMPTZ AS \"order\", DATE '5881580-07-10' AS d, 1 AS x, true AS b "
        "FROM (VALUES (1, '294247-01-10 04:00:54.775806'), (2, '290309-12-22 (BC) 00:00:00')) AS far(i, v)"
    )
    for name in ("t", "none", "far"):
        made.execute(f"CALL dp_protect('{name}', epsilon := 1000, delta := 1e-6)")
        made.execute(f"CALL dp_declare('{name}', 'größe', lower := TIMESTAMP '2024-01-01', upper := TIMESTAMP '2024-06-01')")
        made.execute(f"CALL dp_declare('{name}', 'order', lower := '2024-01-01 00:00:00+00', upper := '2024-06-01 00:00:00+00')")
        made.execute(f"CALL dp_declare('{name}', 'd', lower := DATE '2024-01-01', upper := DATE '2024-06-01')")
        made.execute(f"CALL dp_declare('{name}', 'x', lower := 0, upper := 50)")
    yield made
    made.close()


LOCAL = """CAST("order" AT TIME ZONE 'Europe/Berlin' AS DATE)"""
KEYS = [
    """month("order" AT TIME ZONE 'UTC')""",
    """date_trunc('month', "order" AT TIME ZONE 'UTC')""",
    """date_trunc('week', "größe" AT TIME ZONE 'UTC' AT TIME ZONE 'Asia/Tokyo')""",
    """date_trunc('hour', timezone('Asia/Kathmandu', "order"))""",
    LOCAL,
    """hour("größe" AT TIME ZONE 'Europe/Berlin' AT TIME ZONE 'Asia/Tokyo')""",
    """dayofweek(d AT TIME ZONE 'utc' AT TIME ZONE 'Pacific/Apia')""",
    """extract(hour FROM "order" AT TIME ZONE 'America/New_York')""",
    """"order" AT TIME ZONE 'UTC' >= TIMESTAMP '2024-02-01'""",
]
CONDITIONS = [
    """"order" AT TIME ZONE 'Europe/Berlin' BETWEEN TIMESTAMP '2024-02-01' AND TIMESTAMP '2024-02-29 12:00'""",
    """"größe" AT TIME ZONE 'Europe/Berlin' > TIMESTAMPTZ '2024-03-01 00:00:00+00'""",
    """date_trunc('day', "order" AT TIME ZONE 'Asia/Tokyo') = TIMESTAMP '2024-02-02'""",
    """isfinite("order" AT TIME ZONE 'UTC') AND ("order" AT TIME ZONE 'UTC') IS NOT NULL AND d < DATE '9999-12-31'""",
    """("größe" AT TIME ZONE 'Africa/Lagos') = ("größe" AT TIME ZONE 'Europe/London')""",
]


def sorted_rows(relation: duckdb.DuckDBPyRelation) -> list[tuple[object, ...]]:
    return sorted((row for row in relation.fetchall() if row[-1]), key=str)


@pytest.mark.parametrize("key", KEYS)
def test_keys_are_those_of_duckdb(con: duckdb.DuckDBPyConnection, key: str) -> None:
    sql = f"SELECT {key} AS k, count(*) AS n FROM t WHERE \"größe\" < TIMESTAMP '2024-05-01' AND \"größe\" > TIMESTAMP '2023-12-31' GROUP BY k"
    exact = dpsql.query_exact(con, sql, groups="public")
    assert sorted_rows(exact) == sorted_rows(con.sql(sql))
    assert exact.types == con.sql(sql).types
    answer = dict(dpsql.query(con, sql, epsilon=20, groups="public").fetchall())
    assert all(abs(answer[k] - n) < 20 for k, n in con.sql(sql).fetchall())
    assert sum(answer.values()) == pytest.approx(2902, abs=200)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_are_those_of_duckdb(con: duckdb.DuckDBPyConnection, condition: str) -> None:
    sql = f"SELECT count(*), count(*) FILTER (WHERE {condition}), sum(CASE WHEN {condition} THEN x ELSE 0 END) FROM t WHERE {condition} OR b"
    assert dpsql.query_exact(con, sql).fetchall() == con.sql(sql).fetchall()


def test_an_argument_has_the_bounds_of_its_zone(con: duckdb.DuckDBPyConnection) -> None:
    sql = """SELECT avg(hour("order" AT TIME ZONE 'Asia/Tokyo')), max("order" AT TIME ZONE 'UTC') FROM t WHERE isfinite("order") AND x >= 0
             AND "order" < '2024-06-01 00:00:00+00' AND "order" > '2024-01-01 00:00:00+00'"""
    mean, last = dpsql.query(con, sql, epsilon=100).fetchall()[0]
    exact = con.sql(sql).fetchall()[0]
    assert mean == pytest.approx(exact[0], abs=0.2) and abs((last - exact[1]).total_seconds()) < 5 * 86_400
    assert dpsql.query(con, sql, epsilon=100).columns == con.sql(sql).columns


def test_a_session_changes_nothing_and_another_spelling_is_the_same_question(con: duckdb.DuckDBPyConnection) -> None:
    first = sorted_rows(dpsql.query(con, f"SELECT {LOCAL} AS k, count(*) AS n FROM t GROUP BY k", epsilon=1))
    left = con.execute("SELECT count(*) FROM dp_ledger('t')").fetchone()
    for zone, calendar in (("Asia/Tokyo", "japanese"), ("America/St_Johns", "gregorian")):
        con.execute(f"SET TimeZone = '{zone}'")
        con.execute(f"SET Calendar = '{calendar}'")
        same = "SELECT timezone('Europe/Berlin', \"order\")::DATE AS k, count(*) AS n FROM t GROUP BY k"
        assert sorted_rows(dpsql.query(con, same, epsilon=1)) == first
    assert con.execute("SELECT count(*) FROM dp_ledger('t')").fetchone() == left


def test_no_row_makes_it_fail(con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error):
        con.sql("SELECT \"order\" AT TIME ZONE 'Asia/Tokyo' FROM far").fetchall()
    for name in ("t", "none", "far"):  # no date function has a value more than 100,000 years away
        for zone in ("Asia/Manila", "America/Juneau", "Europe/Berlin", "Etc/GMT+12", "Pacific/Kiritimati"):
            sql = f"""SELECT count("order" AT TIME ZONE '{zone}'), count("größe" AT TIME ZONE '{zone}'), count(d AT TIME ZONE '{zone}') FROM {name}"""
            found = dpsql.query_exact(con, sql).fetchall()[0]
            assert found == ((2906, 2906, 2906) if name == "t" else (0, 0, 0))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (""""order" AT TIME ZONE 'Nowhere/Land'""", "does not accept its constants.*Nowhere/Land"),
        (""""order" AT TIME ZONE ''""", "does not accept its constants"),
        (""""order" AT TIME ZONE CAST(x AS VARCHAR)""", "must be a string, written out"),
        ("""x AT TIME ZONE 'UTC'""", "needs a DATE or TIMESTAMP, not BIGINT; CAST it"),
        ("""timezone("größe")""", "takes 2 to 2 arguments here"),
    ],
)
def test_what_is_no_zone_is_refused_free(con: duckdb.DuckDBPyConnection, text: str, said: str) -> None:
    before = con.execute("SELECT count(*) FROM dp_ledger('t')").fetchone()
    with pytest.raises((UnsupportedQuery, ArgumentError), match=said):
        dpsql.query(con, f"SELECT count(*) FROM t WHERE ({text}) IS NOT NULL", epsilon=1)
    assert con.execute("SELECT count(*) FROM dp_ledger('t')").fetchone() == before
