"""Rows that stand in the text beside people's: VALUES, unnest, range and generate_series, as tables, CTEs, lists and conditions."""

from __future__ import annotations

import duckdb
import pytest

import dpsql

pytestmark = pytest.mark.any_duckdb


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as connection:
        connection.execute("""
            CREATE TABLE t AS SELECT i AS p, (i % 60)::INTEGER AS age, DATE '2024-01-01' + (i * 7 % 200)::INTEGER AS day,
                ['f', 'm'][1 + i % 2] AS s, ['x', 'y'][1:1 + i % 2] AS tags, (i * 0.5 % 250)::DECIMAL(6, 1) AS amount FROM range(6000) r(i);
            CREATE TABLE moments AS SELECT TIMESTAMP '2024-02-01' AS upto, DATE '2024-01-15' AS d;
        """)
        dpsql.load(connection, progress=False)
        connection.execute("CALL dp_protect('t', epsilon := 1000, delta := 1e-9, privacy_unit := 'p', max_contributions := 1)")
        for column, domain in {
            "age": "lower := 0, upper := 59", "s": "categories := ['f', 'm']", "day": "lower := DATE '2024-01-01', upper := DATE '2024-07-31'",
            "amount": "lower := 0, upper := 250",
        }.items():
            connection.execute(f"CALL dp_declare('t', '{column}', {domain}, nullable := false)")
        yield connection


def asked(con, text, epsilon=25):
    return con.execute("FROM dp_query(?, epsilon := ?)", [text, epsilon]).fetchall()


SAME = [
    "SELECT r.i, count(t.p) AS n FROM (VALUES (1), (7), (70)) r(i) LEFT JOIN t ON t.age = r.i GROUP BY 1",
    "WITH r(i) AS (VALUES (1), (7), (70)) SELECT r.i, count(t.p) AS n FROM r LEFT JOIN t ON t.age = r.i GROUP BY 1",
    "WITH r AS (VALUES (1), (7)) SELECT col0, count(*) AS n FROM r JOIN t ON age = col0 GROUP BY 1",
    "WITH r AS (SELECT * FROM (VALUES (1), (7)) AS v(i)) SELECT i, count(*) AS n FROM r JOIN t ON t.age = r.i GROUP BY 1",
    "WITH a AS (SELECT * FROM (VALUES (1), (7)) v(i)), b AS (SELECT i + 1 AS i FROM a) SELECT i, count(*) AS n FROM b JOIN t ON age = i GROUP BY 1",
    "SELECT r.range, count(t.p) AS n FROM range(3) r LEFT JOIN t ON t.age = r.range GROUP BY 1",
    "SELECT i, count(t.p) AS n FROM generate_series(50, 70, 5) r(i) LEFT JOIN t ON age = i GROUP BY 1",
    "SELECT u, count(*) AS n FROM unnest([3, 5]) AS r(u) JOIN t ON age = u GROUP BY 1",
    "SELECT u, count(*) AS n FROM unnest(range(2, 5)) AS r(u) JOIN t ON age = u GROUP BY 1",
    "SELECT u, count(*) AS n FROM t, unnest([3, 5]) AS r(u) WHERE age = u GROUP BY 1",
    "SELECT r.u, w, count(*) AS n FROM t, unnest([3, 5]) AS r(u), unnest(['f', 'm']) AS q(w) WHERE age = r.u AND s = w GROUP BY 1, 2",
    "SELECT count(*) AS n FROM t WHERE age IN (VALUES (1), (2), (70))",
    "SELECT count(*) AS n FROM t WHERE s = 'f' AND age NOT IN (VALUES (1), (2 + 1), (-2))",
    "WITH b AS (SELECT i AS lo, i + 10 AS hi FROM range(0, 60, 10) r(i)) SELECT lo, count(*) AS n FROM t JOIN b ON age >= lo AND age < hi GROUP BY 1",
    "WITH m AS (SELECT unnest(generate_series(DATE '2024-01-01', DATE '2024-07-01', INTERVAL 1 MONTH))::DATE AS m) "
    "SELECT m, count(t.p) AS n FROM m LEFT JOIN t ON day >= m AND day < m + INTERVAL 1 MONTH GROUP BY 1",
    "WITH m AS (SELECT m FROM generate_series(TIMESTAMP '2024-01-01', TIMESTAMP '2024-08-01', INTERVAL '1 month') r(m)) "
    "SELECT m, count(t.p) AS n FROM m LEFT JOIN t ON date_trunc('month', day) = m GROUP BY 1",
    "SELECT label, lo, count(*) AS n FROM t JOIN (VALUES (0, 18, 'young'), (18, 60, 'old')) v(lo, hi, label) ON age >= lo AND age < hi GROUP BY 1, 2",
    "SELECT name, count(*) AS n FROM t LEFT JOIN (VALUES ('f', 'women')) v(code, name) ON s = code GROUP BY 1",
    "SELECT count(*) AS n FROM t WHERE age IN (SELECT unnest([1, 2, 3]))",
    "SELECT count(*) AS n FROM t WHERE age IN (SELECT i FROM range(10) r(i))",
    "SELECT count(*) AS n FROM t WHERE age NOT IN (SELECT i FROM range(10) r(i))",
    "SELECT count(*) AS n FROM t WHERE EXISTS (SELECT 1 FROM range(3) r(i) WHERE i = age)",
    "SELECT count(*) AS n FROM t SEMI JOIN (VALUES (4), (5)) v(age) USING (age)",
    "SELECT count(*) AS n FROM t JOIN moments ON day >= d AND day < upto",
    "SELECT count(*) AS n FROM t, moments WHERE day BETWEEN d AND upto",
    "SELECT round(age, -1) AS a, count(*) AS n FROM t GROUP BY 1",
    "SELECT round(amount, -2) AS a, count(*) AS n FROM t GROUP BY 1",
    "SELECT trunc(age, -1) AS a, count(*) AS n FROM t GROUP BY 1",
    "SELECT round(age::DOUBLE, -1) AS a, count(*) AS n FROM t GROUP BY 1",
    "SELECT count(*) AS n FROM t WHERE len(tags) = 2",
    "SELECT count(*) AS n FROM t WHERE 'y' IN tags",
    "SELECT len(tags) AS l, count(*) AS n FROM t GROUP BY 1",
]


@pytest.mark.parametrize("text", SAME)
def test_the_answer_is_duckdbs(con, text):
    answer = {row[:-1]: row[-1] for row in asked(con, text)}
    true = {row[:-1]: row[-1] for row in con.execute(text).fetchall()}
    assert {key for key in answer if answer[key] > 20} <= true.keys() <= answer.keys()
    assert all(abs(answer[key] - true.get(key, 0)) < 10 for key in answer)


@pytest.mark.parametrize("n", [24, 30, 366, 1000])
def test_a_list_may_be_as_long_as_a_year_of_days(con, n):
    listed = ", ".join(f"({i})" for i in range(n))
    assert len(asked(con, f"SELECT i, count(*) AS n FROM t JOIN (VALUES {listed}) v(i) ON age = i GROUP BY 1", 1)) == n


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT i, count(*) AS n FROM t JOIN range(2000) r(i) ON age = i GROUP BY 1", "more than 1,000 rows"),
        ("SELECT i, count(*) AS n FROM t JOIN range(1000000000000) r(i) ON age = i GROUP BY 1", "more than 1,000 rows"),
        ("SELECT i, count(*) AS n FROM t JOIN range(0.5, 3) r(i) ON age = i GROUP BY 1", "DuckDB refuses it"),
        ("SELECT i, count(*) AS n FROM t JOIN range(age) r(i) ON age = i GROUP BY 1", "range()"),
        ("SELECT count(*) AS n FROM t WHERE round(age, -16) = 0", "at most 15 digits"),
        ("SELECT avg(day) AS a FROM t", "date_diff('day', DATE '2000-01-01', day)"),
        ("SELECT avg(date_part('year', age(day, day))) AS a FROM t", "date_sub('year', b, a)"),
        ("SELECT count(*) AS n FROM t WHERE s->>'a' = 'b'", "a source reads no JSON"),
        ("SELECT unnest(tags) AS x, count(*) AS n FROM t GROUP BY 1", "say how many at most"),
        ("SELECT * FROM (PIVOT t ON s USING count(*))", "name the values that become columns"),
    ],
)
def test_what_is_refused_says_the_way_out(con, text, said):
    before = con.execute("SELECT epsilon_spent FROM dp_budget('t')").fetchall()
    with pytest.raises(duckdb.Error, match=said.replace("(", "\\(").replace(")", "\\)")):
        asked(con, text)
    assert con.execute("SELECT epsilon_spent FROM dp_budget('t')").fetchall() == before


def test_the_columns_have_duckdbs_types(con):
    text = "SELECT r.i, d, u, count(*) AS n FROM t, range(2) r(i), generate_series(DATE '2024-01-01', DATE '2024-01-02', INTERVAL 1 DAY) g(d) CROSS JOIN unnest([1, 2]) AS v(u) GROUP BY ALL"
    ours = con.execute(f"DESCRIBE FROM dp_query($${text}$$, epsilon := 1)").fetchall()
    assert [row[:2] for row in ours] == [row[:2] for row in con.execute(f"DESCRIBE {text}").fetchall()]


def test_a_users_function_of_that_name_is_not_called(con):
    con.execute("CREATE OR REPLACE MACRO range(a) AS TABLE SELECT 99 AS range")
    try:
        assert sorted(key for key, _ in asked(con, "SELECT r.range, count(t.p) AS n FROM range(2) r LEFT JOIN t ON t.age = r.range GROUP BY 1")) == [0, 1]
    finally:
        con.execute("DROP MACRO TABLE range")


@pytest.mark.parametrize("text", ["SELECT mode(age % 7) AS m FROM t", "SELECT mode(day) AS m FROM t WHERE day < DATE '2024-01-02'", "SELECT sum(DISTINCT age) AS m FROM t"])
def test_values_of_declared_numbers_and_dates_are_listed(con, text):
    assert asked(con, text) == con.execute(text).fetchall()


def test_a_histogram_of_decimals_counts_their_steps(con):
    [(counts,)] = asked(con, "SELECT histogram(amount) AS h FROM t")
    [(true,)] = con.execute("SELECT histogram(amount) AS h FROM t").fetchall()
    assert all(abs(counts[value] - n) < 10 for value, n in true.items())


def test_a_statement_that_a_client_runs_again_to_show_its_rows_says_nothing_of_it(capfd):
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT i AS p, i % 5 AS g FROM range(100) r(i); CREATE TABLE names AS SELECT range AS g FROM range(5)")
        dpsql.load(connection, progress=True)
        connection.execute("CALL dp_protect('t', epsilon := 5, delta := 1e-9, privacy_unit := 'p', max_contributions := 1)")
        text = "FROM dp_query('SELECT names.g, count(t.p) AS n FROM names LEFT JOIN t USING (g) GROUP BY 1', epsilon := 1)"
        assert [connection.execute(text).fetchall() for _ in range(2)][0] == connection.sql(text).fetchall()
        assert "answered by release" not in capfd.readouterr().err


BY_ORDER = [
    "SELECT m, count(*) AS n FROM generate_series(DATE '2024-01-01', DATE '2024-06-01', INTERVAL 1 MONTH) s(m) JOIN t ON day <= m GROUP BY m",
    "SELECT k, count(*) AS n FROM t, (VALUES (10), (20)) v(k) WHERE age >= v.k GROUP BY 1",
    "SELECT k, count(*) AS n FROM t JOIN (VALUES (10), (20)) v(k) ON v.k <> age GROUP BY 1",
    "SELECT d, count(*) AS n FROM moments JOIN t ON day > d GROUP BY 1",
    "SELECT k, avg(age) * 100 AS n FROM t JOIN range(0, 60, 20) v(k) ON age >= v.k GROUP BY 1",
]


@pytest.mark.parametrize("text", BY_ORDER)
def test_a_row_counts_beside_every_public_row_that_it_meets_by_order(con, text):
    answer, true = dict(asked(con, text)), dict(con.execute(text).fetchall())
    assert true.keys() <= answer.keys()
    assert all(abs(answer[key] - true.get(key, 0)) < 25 for key in answer)


def test_more_rows_than_are_reckoned_with_can_be_said(con):
    text = "SELECT count(*) AS n FROM t JOIN (VALUES (0, 60), (10, 60), (20, 60)) v(a, b) ON age >= v.a AND age < v.b"
    [(true,)] = con.execute(text).fetchall()
    assert asked(con, text)[0][0] < 0.6 * true, "a value between two columns is reckoned to meet one"
    assert abs(con.execute("FROM dp_query(?, epsilon := 25, max_rows := 3)", [text]).fetchall()[0][0] - true) < 25
