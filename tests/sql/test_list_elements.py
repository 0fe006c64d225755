"""Elements of list columns as rows, up to a bound that the text states; groups that a condition names."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql.queries.unnested import MOST_ELEMENTS

pytestmark = pytest.mark.any_duckdb


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as connection:
        connection.execute("""
            CREATE TABLE r AS SELECT i AS p, (i % 50)::INTEGER AS age, ['a', 'b', 'c', NULL][1 + i % 4] AS home,
                CASE i % 7 WHEN 0 THEN NULL WHEN 1 THEN [] WHEN 2 THEN ['red', NULL] WHEN 3 THEN ['red', 'red', 'blue', 'green', 'red', 'red']
                    ELSE ['blue', 'Red'] END AS tags,
                [i % 5, i % 3] AS numbers, DATE '2024-01-01' + (i % 3)::INTEGER AS day, {'l': ['u', 'v'][1:i % 3]} AS packed,
                TIMESTAMP '2024-01-01' + to_hours((i * 37 % 4300)::INTEGER) AS ts
            FROM range(6000) x(i);
            CREATE TABLE homes AS SELECT * FROM (VALUES ('a', 'north'), ('b', 'south')) v(home, side);
        """)
        dpsql.load(connection, progress=False)
        connection.execute("CALL dp_protect('r', epsilon := 1000, delta := 1e-9, privacy_unit := 'p', max_contributions := 1)")
        connection.execute("CALL dp_declare('r', 'age', lower := 0, upper := 49, nullable := false)")
        connection.execute("CALL dp_declare('r', 'ts', lower := TIMESTAMP '2024-01-01', upper := TIMESTAMP '2024-06-30', nullable := false)")
        connection.execute("CALL dp_declare('r', 'day', lower := DATE '2024-01-01', upper := DATE '2024-01-03', nullable := false)")
        yield connection


def asked(con, text, options="", epsilon=25):
    return con.execute(f"FROM dp_query(?, epsilon := ?{options})", [text, epsilon]).fetchall()


PRIVATE = [
    "SELECT tag, count(*) FROM r, unnest(tags[:4]) AS t(tag) GROUP BY 1",
    "SELECT t.tag, count(*) FROM r CROSS JOIN unnest(r.tags[1:4]) AS t(tag) GROUP BY t.tag",
    "SELECT u.tag, count(*) FROM r AS q CROSS JOIN LATERAL unnest(q.tags[:3]) AS u(tag) WHERE age < 20 GROUP BY ALL",
    "SELECT tag, count(*) FROM r JOIN unnest(r.tags[:3]) AS u(tag) ON true GROUP BY tag HAVING count(*) > 100 ORDER BY tag",
    "SELECT unnest, count(*) FROM r, unnest(r.tags[:2]) GROUP BY 1",
    "SELECT tag, count(*) FROM (SELECT *, unnest(tags[:4]) AS tag FROM r WHERE age > 10) GROUP BY tag",
    "WITH t AS (SELECT age, unnest(tags[:4]) AS tag FROM r) SELECT tag, count(*) FROM t WHERE age < 30 GROUP BY 1",
    "SELECT lower(tag), count(*) FROM r, unnest(tags[:4]) AS t(tag) GROUP BY 1",
    "SELECT a, b, count(*) FROM r, unnest(tags[:3]) AS t(a), unnest(tags[:3]) AS s(b) WHERE a < b GROUP BY 1, 2",
    "SELECT side, tag, count(*) FROM r LEFT JOIN homes ON homes.home = r.home, unnest(r.tags[:2]) AS t(tag) GROUP BY 1, 2",
    'SELECT "T é".x, count(*) FROM r, unnest(packed.l[:3]) AS "T é"(x) GROUP BY 1',
    "SELECT n, count(*) FROM r, unnest(numbers[:2]) AS t(n) GROUP BY 1",
]


@pytest.mark.parametrize("text", PRIVATE)
def test_rows_of_elements_are_duckdbs(con, text):
    answer = {row[:-1]: row[-1] for row in asked(con, text)}
    true = {row[:-1]: row[-1] for row in con.execute(text).fetchall()}
    assert answer.keys() == true.keys(), "groups of hundreds of people are found"
    assert all(abs(answer[key] - true[key]) < 20 for key in true)


def test_a_star_beside_elements_is_the_rows_columns(con):
    for text in (
        "SELECT count(*) FROM (SELECT home, unnest([home, 'a']) AS x FROM r UNION ALL SELECT home, 'b' FROM r)",
        "SELECT count(x) FROM (SELECT * EXCLUDE (tags, numbers, packed), unnest([home, 'a']) AS x FROM r "
        "UNION ALL SELECT * EXCLUDE (tags, numbers, packed), upper(home) FROM r)",
    ):
        [(true,)], [(answer,)] = con.execute(text).fetchall(), asked(con, text)
        assert abs(answer - true) < 40, text


def test_elements_may_be_a_key(con):  # DuckDB 1 wants a subquery
    for item in ("tags[:4]", "[home, 'a']"):
        answer = dict(asked(con, f"SELECT unnest({item}) AS x, count(*) FROM r GROUP BY x"))
        true = dict(con.execute(f"SELECT x, count(*) FROM (SELECT unnest({item}) AS x FROM r) GROUP BY x").fetchall())
        assert answer.keys() == true.keys()
        assert all(abs(answer[key] - true[key]) < 20 for key in true)


PUBLIC = [
    "SELECT x, count(*) FROM r, unnest([age % 3, p % 2]) AS t(x) GROUP BY 1",
    "SELECT tag, count(*) FROM r, unnest(tags[:4]) AS t(tag) WHERE tag IN ('red', 'blue', 'none') GROUP BY 1",
    "WITH t AS (SELECT *, unnest(tags[:4]) AS tag FROM r WHERE age < 40) SELECT tag, count(*) FROM t WHERE tag = 'red' OR tag = 'blue' GROUP BY 1",
    "SELECT home, count(*) FROM r WHERE home IN ('a', 'zz') GROUP BY home",
    "SELECT upper(home) AS h, count(*) FROM r WHERE upper(home) IN ('A', 'B', NULL) AND age > 5 GROUP BY 1",
    "WITH x AS (SELECT * FROM r WHERE home IN ('a', 'b')) SELECT home, count(*) FROM x GROUP BY home",
    "SELECT h, count(*) FROM (SELECT concat(home, '!') AS h FROM r) WHERE h IN ('a!', 'b!') GROUP BY h",
    "SELECT home, day, count(*) FROM r WHERE home = 'c' AND day IN ('2024-01-01', '2024-01-03') GROUP BY 1, 2",
    "SELECT age % 7 - p % 2 AS k, count(*) FROM r WHERE age % 7 - p % 2 IN (-1, 3) GROUP BY 1",
]


@pytest.mark.parametrize("text", PUBLIC)
def test_groups_that_a_condition_names_are_public(con, text):
    answer = {row[:-1]: row[-1] for row in asked(con, text, ", groups := 'public'")}
    true = {row[:-1]: row[-1] for row in con.execute(text).fetchall()}
    assert true.keys() <= answer.keys()
    assert all(abs(answer[key] - true.get(key, 0)) < 20 for key in answer)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT home, count(*) FROM r WHERE home IN ('a') OR age > 3 GROUP BY 1",
        "SELECT home, count(*) FROM r WHERE home NOT IN ('a') GROUP BY 1",
        "SELECT home, count(*) FROM r WHERE home IN ('a', upper('b')) GROUP BY 1",
        "SELECT home, count(*) FROM r WHERE NOT (home = 'a') GROUP BY 1",
        "SELECT home, count(*) FROM r WHERE lower(home) = 'a' GROUP BY 1",
        "SELECT home, count(*) FROM r WHERE coalesce(home = 'a', true) GROUP BY 1",
    ],
)
def test_other_conditions_name_no_groups(con, text):
    with pytest.raises(duckdb.Error, match="groups = 'public'"):
        asked(con, text, ", groups := 'public'")


def test_rows_per_person_are_as_many_as_elements(con):
    for text in (
        "SELECT sum(n) FROM (SELECT p, count(*) AS n FROM r, unnest(tags[:6]) AS t(tag) GROUP BY p)",
        "SELECT sum(n) FROM (SELECT p, count(*) AS n FROM r, range(5) AS t(i) GROUP BY p)",
        "SELECT count(*) FROM r, unnest(tags[:6]) AS t(tag)",
    ):
        [(true,)], [(answer,)] = con.execute(text).fetchall(), asked(con, text)
        assert abs(answer - true) < 40, text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT count(*) FROM r, unnest(tags) AS t(tag)", r"say how many at most, unnest\(l\[:5\]\)"),
        ("SELECT count(*) FROM (SELECT unnest(tags) AS tag FROM r)", r"say how many at most, unnest\(l\[:5\]\)"),
        (f"SELECT count(*) FROM r, unnest(tags[:{MOST_ELEMENTS + 1}]) AS t(tag)", f"up to {MOST_ELEMENTS}"),
        ("SELECT count(*) FROM r, unnest(tags[:2 + 1]) AS t(tag)", "say how many at most"),
        ("SELECT count(*) FROM r, unnest(tags[:0]) AS t(tag)", "say how many at most"),
        ("SELECT count(*) FROM r, unnest(tags[2:4]) AS t(tag)", "say how many at most"),
        ("SELECT count(*) FROM r, unnest(tags[:-1]) AS t(tag)", "say how many at most"),
        ("SELECT count(*) FROM r, unnest(tags[:2]) AS t(age)", "called 'age'.* give them another name"),
        ("SELECT count(*) FROM r LEFT JOIN unnest(r.tags[:2]) AS t(tag) ON true", "comma or CROSS JOIN"),
        ("SELECT count(*) FROM homes LEFT JOIN r USING (home), unnest(r.tags[:2]) AS t(tag)", r"unnest\(t.l\[:5\]\)"),
        ("SELECT count(*) FROM r, unnest(q.tags[:2]) AS t(tag)", "q.tags"),
        ("SELECT count(*) FROM r, unnest(age[:2]) AS t(tag)", "cannot bind"),
        ("SELECT count(*) FROM (SELECT unnest(tags[:2]) AS x, row_number() OVER (PARTITION BY p ORDER BY age) AS n FROM r)", "OVER|unnest"),
        ("SELECT count(*) FROM (SELECT unnest(tags[:2]) AS x FROM r QUALIFY row_number() OVER (PARTITION BY p ORDER BY age) = 1)", "OVER|unnest"),
        ("SELECT count(*) FROM r, unnest(tags[:100]) a(x), unnest(tags[:100]) b(y), unnest(tags[:100]) c(z), unnest(tags[:9]) d(w)", "9,000,000 rows"),
        ("SELECT count(*) FROM r, unnest(nothing[:2]) AS t(tag)", "nothing"),
    ],
)
def test_a_refusal_says_what_to_write(con, text, why):
    before = con.execute("FROM dp_budget('r')").fetchall()
    with pytest.raises(duckdb.Error, match=why):
        asked(con, text)
    assert con.execute("FROM dp_budget('r')").fetchall() == before


def test_the_plan_says_how_many_rows_one_becomes(con):
    notes = con.execute("SELECT notes FROM dp_plan('SELECT count(*) FROM r, unnest(tags[:6]) AS t(tag)', epsilon := 1)").fetchone()[0]
    assert "1 rows of a p can become 6 in this FROM" in str(notes)


def test_constant_lists_stay_what_they_were(con):
    text = "SELECT i, count(*) FROM r, unnest([1, 2]) AS t(i) GROUP BY 1"
    assert {key for key, _ in asked(con, text)} == {1, 2}


KEYS = {
    "SELECT month(ts) AS m, count(*) FROM r WHERE month(ts) IN (2, 3) GROUP BY m": 2,
    "SELECT date_trunc('month', ts) AS m, count(*) FROM r WHERE date_trunc('month', ts) >= '2024-05-01' GROUP BY m": 2,
    "SELECT (ts::DATE - day) // 7 AS w, count(*) FROM r WHERE (ts::DATE - day) // 7 BETWEEN 3 AND 5 GROUP BY w": 3,
    "SELECT w, count(*) FROM (SELECT date_diff('week', day, ts::DATE) AS w FROM r) WHERE w < 4 AND w > 0 GROUP BY w": 3,
    "SELECT month(ts), age % 5, count(*) FROM r WHERE month(ts) = 2 AND age % 5 > 2 GROUP BY ALL": 2,
    "SELECT month(ts), count(*) FROM r WHERE month(ts) = 2 OR ts < '2024-01-02' GROUP BY ALL": 6,
}


@pytest.mark.parametrize("text", KEYS)
def test_a_condition_on_a_key_rules_groups_out(con, text):
    answer = {row[:-1]: row[-1] for row in asked(con, text, ", groups := 'public'")}
    true = {row[:-1]: row[-1] for row in con.execute(text).fetchall()}
    assert true.keys() <= answer.keys() and len(answer) == KEYS[text]
    assert all(abs(answer[key] - true.get(key, 0)) < 20 for key in answer)


def test_values_that_a_condition_names_are_listed(con):
    named = "WHERE home IN ('a', 'b', 'zz')"
    assert asked(con, f"SELECT count(DISTINCT home) FROM r {named}", epsilon=1) == [(2,)]
    [(most, counts)] = asked(con, f"SELECT mode(r.home), histogram(home) FROM r {named}")
    assert most in ("a", "b")
    assert {"a", "b"} <= set(counts) <= {"a", "b", "zz"}
    text = "SELECT x.home, count(DISTINCT y.home) FROM r AS x JOIN r AS y USING (p) WHERE x.home IN ('a', 'b') GROUP BY 1"
    with pytest.raises(duckdb.Error, match="not declared"):  # of the other relation's column nothing is named
        asked(con, text.replace("count(DISTINCT y.home)", "mode(y.home)"))
