"""dp_query over the forms of ordinary SQL: the names, types and groups that DuckDB gives, and refusals that say what to write."""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb
import pytest
from pairwise import in_turn

import dpsql
from dpsql.errors import ArgumentError, DpsqlError, UnsupportedQuery


@pytest.fixture(scope="module")
def people() -> Iterator[duckdb.DuckDBPyConnection]:
    """Rows of 500 people, ten each, a public table, and a budget for many questions."""
    connection = duckdb.connect()
    dpsql.load(connection, user="tester")
    connection.execute(
        "CREATE TABLE t AS SELECT i % 500 AS uid, i % 7 AS g, (i * 7919) % 100 AS x, ['a', 'b', 'c'][1 + i % 3] AS s, i % 5 = 0 AS b, "
        "DATE '2020-01-01' + CAST(i % 300 AS INTEGER) AS d, i % 9 + 0.5 AS y FROM range(5000) AS numbers(i)"
    )
    connection.execute("CREATE TABLE pub AS SELECT CAST(i AS BIGINT) AS g, 't' || i AS name FROM range(9) AS numbers(i)")
    dpsql.protect(connection, "t", epsilon=1000, delta=1e-6, privacy_unit="uid", max_contributions=10)
    connection.execute("CALL dp_declare('t', 'x', lower := 0, upper := 99)")
    connection.execute("CALL dp_declare('t', 's', categories := ['a', 'b', 'c'], nullable := false)")
    connection.execute("CALL dp_declare('t', 'd', lower := '2020-01-01', upper := '2020-12-31', nullable := false)")
    yield connection
    connection.close()


SAME = [
    "SELECT count(*) FROM t",
    "SELECT count(*), COUNT(x), sum(x), AVG(x) FROM t",
    "SELECT s, count(*) FROM t GROUP BY s",
    "SELECT DISTINCT s FROM t ORDER BY s",
    "SELECT DISTINCT s, b FROM t WHERE x > 3 AND b IS NOT NULL ORDER BY ALL",
    "SELECT count(*) FROM t GROUP BY ()",
    "SELECT s, GROUPING(s), count(*) FROM t GROUP BY ROLLUP (s)",
    'SELECT s AS "Größe", count(*) AS "Anzahl Bücher" FROM t GROUP BY "Größe"',
    "SELECT CASE WHEN count(*) > 10 THEN 'a' ELSE 'b' END FROM t",
    "SELECT count(*) FROM t HAVING count(*) > 10",
    "SELECT s, rank() OVER (ORDER BY s) FROM t GROUP BY s",
    "SELECT s, sum(sum(x)) OVER (ORDER BY s ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) FROM t GROUP BY s",
    "SELECT s, count(*) FROM t GROUP BY 1 ORDER BY 1 DESC LIMIT 2",
    "SELECT count(*) FILTER (WHERE b), count(*) FILTER (x > 50) FROM t",
    "SELECT count(*) n, n + 1 AS m, CAST(avg(x) AS INTEGER), -sum(x), NOT (count(*) > 3) FROM t",
    "SELECT max(n), min(n) FROM (SELECT s, count(*) AS n FROM t GROUP BY s)",
    "FROM t SELECT count(*)",
    "SELECT (SELECT count(*) FROM t WHERE b) / (SELECT count(*) FROM t)",
    "WITH t AS (SELECT * FROM t WHERE x > 50) SELECT count(*) FROM t",
    "SELECT count(*) FROM (WITH t1 AS (SELECT * FROM t), t2 AS (SELECT * FROM t) SELECT * FROM t1)",
    '(SELECT count(*) FROM t UNION ALL SELECT "count_star()" FROM (SELECT count(*) FROM t WHERE b)) UNION ALL SELECT 3',
    "SELECT count(*) FROM t CROSS JOIN UNNEST([1, 2]) AS u(v)",
    "SELECT v, count(*) FROM t, (VALUES ('a', 1), ('b', 2)) AS u(s2, v) WHERE s = s2 GROUP BY v ORDER BY v",
    "SELECT pub.name, n FROM pub JOIN (SELECT g, count(*) AS n FROM t GROUP BY g) AS c ON pub.g = c.g ORDER BY 1",
    "SELECT name FROM pub WHERE g IN (SELECT count(*) FROM t)",
    "SELECT sum(DISTINCT x), avg(DISTINCT x), stddev(DISTINCT x) FROM t",
    "SELECT year(d), count(*) FROM t GROUP BY ALL",
    "SELECT mode(s), quantile_disc(x, [0.1, 0.9]), median(x) FROM t WHERE s <> 'b'",  # of tied values DuckDB gives any
    "SELECT * FROM UNNEST(ARRAY(SELECT count(*) FROM t)) AS u(n)",
    "SELECT pi(), count(*) FROM t WHERE x BETWEEN 3 AND 50",
]


@pytest.mark.parametrize("sql", SAME)
def test_it_has_the_columns_of_the_same_query_without_privacy(people: duckdb.DuckDBPyConnection, sql: str) -> None:
    answer, exact = dpsql.query(people, sql, epsilon=1.0), people.sql(sql)
    assert answer.columns == exact.columns
    assert [str(kind) for kind in answer.types] == [str(kind) for kind in exact.types]


@pytest.mark.parametrize("sql", SAME)
def test_the_exact_answer_is_that_of_the_same_query(people: duckdb.DuckDBPyConnection, sql: str) -> None:
    found, wanted = (sorted(rows.fetchall(), key=str) for rows in (dpsql.query_exact(people, sql), people.sql(sql)))
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one == tuple(pytest.approx(v) if isinstance(v, float) else v for v in other)


@pytest.mark.parametrize(
    ("sql", "groups"),
    [
        ("SELECT g, count(*) AS n FROM t RIGHT JOIN (SELECT DISTINCT g FROM pub) USING (g) GROUP BY g", range(9)),
        ("SELECT p.g, count(*) AS n FROM (SELECT DISTINCT g FROM pub) AS p LEFT JOIN t ON p.g = t.g GROUP BY p.g", range(9)),
        ("WITH p AS (SELECT DISTINCT g FROM pub) SELECT g, count(*) AS n FROM t RIGHT JOIN p USING (g) GROUP BY g", range(9)),
        ("SELECT g, count(*) AS n FROM t RIGHT JOIN (SELECT DISTINCT g FROM UNNEST([3, 99]) AS u(g)) USING (g) GROUP BY g", [3, 99]),
    ],
)
def test_groups_of_the_public_side_of_an_outer_join_are_public(people: duckdb.DuckDBPyConnection, sql: str, groups: object) -> None:
    for call in (dpsql.query_exact(people, sql), dpsql.query(people, sql, epsilon=1.0, groups="public")):
        assert {row[0] for row in call.fetchall()} == set(groups)  # type: ignore[call-overload]
    exact = {key: n for key, n in dpsql.query_exact(people, sql).fetchall() if n}
    listed = ", ".join(map(str, groups))  # type: ignore[call-overload]
    assert exact == dict(people.sql(f"SELECT g, count(*) FROM t WHERE g IN ({listed}) GROUP BY g").fetchall())


def test_a_least_number_of_units_makes_groups_private(people: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT s, count(*) FROM t WHERE s = 'a' OR uid < 4 AND s = 'b' GROUP BY s"
    assert {row[0] for row in dpsql.query_exact(people, sql).fetchall()} >= {"a", "b"}
    assert dpsql.query_exact(people, sql, min_units=100).fetchall() == [("a", 1667)]
    assert [row[0] for row in dpsql.query(people, sql, epsilon=1.0, min_units=100).fetchall()] == ["a"]
    with pytest.raises(ArgumentError, match="min_units"):
        dpsql.query(people, sql, epsilon=1.0, groups="public", min_units=100)


REFUSED = [
    ("SELECT x FROM t", "raw rows"),
    ("SELECT * FROM t LIMIT 3", "raw rows"),
    ("SELECT uid, count(*) FROM t GROUP BY uid", "privacy unit"),
    ("SELECT any_value(s) FROM t", "the value of one row"),
    ("SELECT count(*) FROM t WHERE x > (SELECT avg(x) FROM t)", "scalar subquery over protected rows"),
    ("SELECT pub.name, (SELECT count(*) FROM t WHERE t.g = pub.g) FROM pub", "Columns of a query around it can't be used"),
    ("SELECT (SELECT count(*) FROM t), v FROM UNNEST([(SELECT x FROM t LIMIT 1)]) AS u(v)", "gives out rows"),
    ("SELECT (SELECT count(*) FROM t), i FROM range((SELECT x FROM t LIMIT 1)) AS r(i)", "gives out rows"),
    ("SELECT count(*) FROM t LIMIT (SELECT x FROM t LIMIT 1)", "gives out rows"),
    ("SELECT count(*) FROM t HAVING EXISTS (SELECT 1 FROM t AS u WHERE u.x = 3)", "gives out rows"),
    ("WITH m AS (SELECT avg(x) AS a FROM t) SELECT count(*) FROM t, m WHERE x > a", "Write it as a scalar subquery"),
    ("SELECT (SELECT count(*) FROM t), v FROM UNNEST(ARRAY(SELECT x FROM t)) AS u(v)", "gives out rows"),
    ("SELECT median(DISTINCT x) FROM t", "of distinct values"),
    ("SELECT sum(DISTINCT y) FROM t", "its values are not declared"),
    ("SELECT count(*) FROM pub", "no protected table"),
    ("UPDATE t SET x = 0", "only SELECT"),
]


@pytest.mark.parametrize(("sql", "reason"), REFUSED)
def test_what_cannot_be_released_is_refused_as_the_query(people: duckdb.DuckDBPyConnection, sql: str, reason: str) -> None:
    before = people.execute("SELECT count(*) FROM dp_ledger('t')").fetchone()
    for call in (lambda: dpsql.query(people, sql, epsilon=1.0), lambda: dpsql.query_exact(people, sql)):
        with pytest.raises((UnsupportedQuery, ArgumentError), match=reason) as refused:
            call().fetchall()
        assert "source" not in str(refused.value).split(":")[0]
    assert people.execute("SELECT count(*) FROM dp_ledger('t')").fetchone() == before


def test_places_are_those_of_the_text(people: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(UnsupportedQuery, match=re.escape("any_value (line 2, column 1)")):
        dpsql.query(people, "SELECT count(*),\nany_value(s) FROM t", epsilon=1.0)
    with pytest.raises(DpsqlError) as refused:  # the checks of rows see another text
        dpsql.query(people, "SELECT count(*)\nFROM t\nWHERE nextval('a') > 1", epsilon=1.0)
    assert "(line" not in str(refused.value)


def test_bounds_that_googlesql_states_are_used(people: duckdb.DuckDBPyConnection) -> None:
    text = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_groups_contributed = 1) sum(x, contribution_bounds_per_row => (2.5, 3.5)) FROM t"
    low, high = 2.5 * 5000, 3.5 * 5000
    assert low <= dpsql.query_exact(people, text).fetchall()[0][0] <= high
    counted = "SELECT count(*, contribution_bounds_per_group => (0, 1)) FROM t"
    assert dpsql.query_exact(people, counted).fetchall() == [(5000,)]
    for one in ("sum(x, contribution_bounds_per_group => (3, 2))", "count(*, contribution_bounds_per_group => (1, 0))"):
        with pytest.raises(ArgumentError, match="the lower bound comes first"):
            dpsql.query(people, f"SELECT {one} FROM t", epsilon=1.0)


OF_NOBODY = (
    "count(*), sum(x)", "avg(x), count(*)", "median(x), min(x)", "mode(s), bool_or(b), histogram(s)",
    "count(DISTINCT uid), count(DISTINCT x)", "sum(DISTINCT x), var_pop(x)",
)  # fmt: skip


@pytest.mark.parametrize(("aggregates", "where"), in_turn(OF_NOBODY, ["x > 98 AND uid < 3", "x > 98 AND x < 3"]))
def test_no_private_group_at_all_is_an_empty_answer(people: duckdb.DuckDBPyConnection, aggregates: str, where: str) -> None:
    sql = f"SELECT g, {aggregates} FROM t WHERE {where} GROUP BY g"
    for confidence in (None, 0.95):
        answer = dpsql.query(people, sql, epsilon=0.1, groups="private", confidence=confidence)
        assert answer.fetchall() == []
    assert dpsql.query_exact(people, sql, groups="private").columns == people.sql(sql).columns


@pytest.mark.parametrize("aggregates", ["count(*), sum(x)", "avg(x), median(x)", "mode(s), bool_or(b), histogram(s), sum(DISTINCT x)"])
def test_no_row_at_all_is_noise_alone(people: duckdb.DuckDBPyConnection, aggregates: str) -> None:
    sql = f"SELECT {aggregates} FROM t WHERE x > 98 AND x < 3"
    for confidence in (None, 0.95):
        assert len(dpsql.query(people, sql, epsilon=0.1, confidence=confidence).fetchall()) == 1


def test_groups_of_an_enum_with_a_privacy_unit() -> None:
    """DuckDB 1.4 makes an INTEGER of a list of NULLs: made-up rows have the column's type."""
    with duckdb.connect() as con:
        dpsql.load(con)
        con.execute("CREATE TABLE v AS SELECT i % 100 AS patient, CAST(['f', 'm'][1 + i % 2] AS ENUM('f', 'm')) AS sex FROM range(1000) AS numbers(i)")
        con.execute("CALL dp_protect('v', epsilon := 50, delta := 1e-9, privacy_unit := 'patient', max_contributions := 10)")
        rows = con.execute("FROM dp_query('SELECT sex, count(*) AS n FROM v GROUP BY sex ORDER BY sex', epsilon := 20)").fetchall()
    assert [row[0] for row in rows] == ["f", "m", None]
