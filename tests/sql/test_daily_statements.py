"""Statements that people and their tools write daily: answered as DuckDB does, or refused for what is wrong with them, uncharged."""

import itertools
import re

import duckdb
import pytest
from prepared import beside

import dpsql
from dpsql.errors import ArgumentError, UnsupportedQuery
from dpsql.queries import reading

LARGE = 15.0
"""An epsilon at which counts are off by one or two."""


@pytest.fixture(scope="module")
def con(tmp_path_factory):
    """6,000 visits of as many patients, their wards in public, and the same rows where every row is a unit."""
    con = duckdb.connect(str(tmp_path_factory.mktemp("daily") / "daily.duckdb"))
    con.execute(
        """
        CREATE TABLE visits AS
        SELECT i AS patient, ['surgery', 'medicine', 'er'][1 + i % 3] AS ward, i % 90 AS age, (i % 97)::DOUBLE AS cost, i % 4 AS n,
            'c' || i % 50 AS code, DATE '2024-01-01' + CAST(i % 366 AS INTEGER) AS day,
            TIMESTAMP '2024-01-01' + to_minutes(CAST(i * 87 AS BIGINT)) AS seen
        FROM range(6000) AS t(i);
        CREATE TABLE rows_alone AS SELECT ward, age, cost FROM visits;
        CREATE TABLE wards (ward VARCHAR, beds INTEGER, region VARCHAR NOT NULL, floor INTEGER, building VARCHAR, opened DATE);
        INSERT INTO wards VALUES ('surgery', 20, 'north', 1, 'A', '1990-05-01'), ('medicine', 30, 'south', 2, 'A', NULL),
            ('er', 10, 'north', 1, 'B', '2001-01-01');
        CREATE TABLE pairs AS SELECT * FROM (VALUES ('surgery', 'x'), ('er', 'y'), ('er', NULL)) AS t(ward, label);
        """
    )
    dpsql.load(con, progress=False)
    con.execute("CALL dp_protect('visits', epsilon := 1000, delta := 1e-9, privacy_unit := 'patient', max_contributions := 1)")
    con.execute("CALL dp_protect('rows_alone', epsilon := 1000, delta := 1e-9)")
    for table in ("visits", "rows_alone"):
        con.execute(f"CALL dp_declare('{table}', 'ward', categories := ['surgery', 'medicine', 'er'], nullable := false)")
        con.execute(f"CALL dp_declare('{table}', 'age', lower := 0, upper := 89, nullable := false)")
        con.execute(f"CALL dp_declare('{table}', 'cost', lower := 0, upper := 96, nullable := false)")
    con.execute("CALL dp_declare('visits', 'n', lower := 0, upper := 3, nullable := false)")
    con.execute("CALL dp_declare('visits', 'day', lower := DATE '2024-01-01', upper := DATE '2024-12-31', nullable := false)")
    con.execute("CALL dp_declare('visits', 'seen', lower := TIMESTAMP '2024-01-01', upper := TIMESTAMP '2024-12-31 23:59:59', nullable := false)")
    yield con
    con.close()


def asked(con, sql, epsilon=LARGE, **more):
    return dpsql.query(con, sql, epsilon=epsilon, **more)


def charges(con):
    return beside(con).execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone()[0]


ANSWERED = [
    "SELECT count(*) FROM visits WHERE day >= DATE '2024-12-31' - INTERVAL '3 months'",
    "SELECT count(*) FROM visits WHERE day >= DATE '2024-12-31' - INTERVAL 3 MONTH",
    "SELECT count(*) FROM visits WHERE day > DATE '2024-03-01' - INTERVAL '1 day' AND day < TIMESTAMP '2024-05-01 12:00:00'",
    "SELECT count(*) FROM visits WHERE day BETWEEN DATE '2024-06-01' - INTERVAL '2 weeks' AND DATE '2024-06-01'",
    "SELECT count(*) FROM visits WHERE seen < TIMESTAMP '2024-03-01' + INTERVAL '-36 hours'",
    "SELECT count(*) FROM visits WHERE day + INTERVAL '1 year' > DATE '2025-06-01'",
    "SELECT time_bucket(INTERVAL '1 month', day) AS b, count(*) FROM visits GROUP BY b ORDER BY b",
    "SELECT time_bucket(INTERVAL '7 days', day) AS b, count(*) FROM visits GROUP BY b ORDER BY b",
    "SELECT CAST((CAST(date_trunc('week', (seen + INTERVAL '1 day')) AS TIMESTAMP) + INTERVAL '-1 day') AS DATE) AS w, count(*) FROM visits WHERE seen < TIMESTAMP '2024-12-21' GROUP BY w ORDER BY w",
    "SELECT strftime(seen + INTERVAL 3 MONTH, '%Y-%m') AS fiscal, count(*) FROM visits GROUP BY fiscal ORDER BY fiscal",
    "SELECT time_bucket(INTERVAL 1 QUARTER, seen) AS b, count(*) FROM visits GROUP BY b ORDER BY b",
    "SELECT substring(code FROM 1 FOR 2) AS s, count(*) FROM visits GROUP BY s ORDER BY s",
    "SELECT count(*) FROM visits WHERE substring(ward FOR 2) = 'er' OR substring(ward FROM 4) = 'gery'",
    "SELECT sum(n ^ 2) AS s, sum(n ** 2) AS t, sum(power(n, 2)) AS u FROM visits",
    "SELECT sum(w.beds) AS s, max(w.beds) AS m FROM visits v JOIN wards w USING (ward)",
    "SELECT region, sum(beds) AS s, count(*) FROM visits JOIN wards USING (ward) GROUP BY region ORDER BY region",
    "SELECT year(opened) AS y, count(*) FROM visits JOIN wards USING (ward) WHERE opened IS NOT NULL GROUP BY y ORDER BY y",
    "SELECT count(*) FROM visits WHERE ward = (SELECT ward FROM wards WHERE beds = 30)",
    "SELECT count(*) FROM visits WHERE age > (SELECT max(beds) FROM wards) AND day >= (SELECT max(opened) FROM wards WHERE floor = 1)",
    "SELECT count(*) FILTER (WHERE age < (SELECT avg(beds) FROM wards)) AS c FROM visits WHERE ward <> (SELECT min(ward) FROM wards WHERE false) OR n = 1",
    "SELECT region, count(*) FROM (wards JOIN visits USING (ward)) GROUP BY region ORDER BY region",
    "SELECT x.b, count(*) FROM (SELECT DISTINCT building AS b FROM wards) AS x JOIN (visits v JOIN wards w USING (ward)) ON x.b = w.building GROUP BY x.b ORDER BY 1",
    "SELECT count(*) FROM pairs JOIN (visits JOIN wards USING (ward)) ON pairs.ward = visits.ward WHERE label = 'x'",
    "SELECT w.ward, count(v.patient) FROM wards w LEFT JOIN (visits v JOIN pairs p ON v.ward = p.ward AND p.label = 'y') ON w.ward = v.ward GROUP BY w.ward ORDER BY 1",
    "SELECT avg(k) AS a, sum(k) AS s FROM (SELECT patient, count(*) AS k FROM visits GROUP BY patient)",
]


@pytest.mark.parametrize("sql", ANSWERED)
def test_the_answer_is_duckdbs(con, sql):
    answer, exact = asked(con, sql), con.sql(sql)
    assert answer.columns == exact.columns and answer.types[0] == exact.types[0]
    for one, other in zip(answer.fetchall(), exact.fetchall(), strict=True):
        assert one == tuple(pytest.approx(float(v), rel=0.01, abs=30) if isinstance(v, int | float) else v for v in other)


GROUPS = [
    "SELECT region, count(*) FROM visits JOIN wards USING (ward) GROUP BY region",
    "SELECT building, floor, count(*) FROM visits JOIN wards USING (ward) GROUP BY ALL",
    "SELECT w.building, w.floor, count(*) FROM visits v, wards w WHERE v.ward = w.ward GROUP BY ALL",
    "SELECT region, ward, count(*) FROM visits JOIN wards USING (ward) WHERE floor = 1 GROUP BY ALL",
    "SELECT region, count(*) FROM visits JOIN wards USING (ward) WHERE building = 'B' GROUP BY region",
    "SELECT upper(region) AS r, w.ward, count(*) FROM visits v JOIN wards w ON v.ward = w.ward WHERE w.beds BETWEEN 15 AND 40 GROUP BY ALL",
    "SELECT label, visits.ward, count(*) FROM visits JOIN pairs ON pairs.ward = visits.ward GROUP BY ALL",
    "SELECT label, building, count(*) FROM visits JOIN pairs USING (ward) JOIN wards USING (ward) GROUP BY ALL",
    "SELECT ward, age // 45 AS old, region, count(*) FROM visits JOIN wards USING (ward) GROUP BY ALL",
]


@pytest.mark.parametrize("sql", GROUPS)
def test_groups_are_those_that_public_rows_leave_possible(con, sql):
    """Every group that is there has rows: some hundred, or thousands."""
    answer = asked(con, sql).fetchall()
    exact = con.sql(sql).fetchall()
    keys = sorted((row[:-1] for row in answer), key=repr)
    assert set(keys) >= {row[:-1] for row in exact}
    if "pairs USING" not in sql:  # of two public tables each says its own part
        assert keys == sorted((row[:-1] for row in exact), key=repr)


def test_left_joins_keep_the_rows_that_meet_nothing(con):
    rows = asked(con, "SELECT label, count(*) FROM visits LEFT JOIN pairs USING (ward) GROUP BY label").fetchall()
    assert {key: pytest.approx(n, abs=20) for key, n in rows} == {"x": 2000, "y": 2000, None: 4000}


ORDERED = [
    f"SELECT {item} AS {alias}, count(*) AS c FROM visits GROUP BY {group} ORDER BY {order}"
    for item, alias, group in [("10 - n", "n", "visits.n"), ("10 - visits.n", "n", "n"), ("n", "m", "n"), ("-n", "age", "n")]
    for order in ["n", "visits.n", "-n", "n + 0", "abs(n)", "1", "c, n", "n DESC", "m" if alias == "m" else "visits.n DESC"]
    if not (alias == "age" and order == "m")
]


@pytest.mark.parametrize("sql", ORDERED)
def test_names_that_are_an_alias_and_a_column_mean_what_they_mean_to_duckdb(con, sql):
    exact = [row[0] for row in con.sql(sql).fetchall()]
    found = [row[0] for row in asked(con, sql).fetchall()]
    assert found == exact if " c, " not in sql else sorted(found) == sorted(exact)


@pytest.mark.parametrize(
    "clause", ["HAVING n > 1", "HAVING n > 1 AND count(*) > 0", "QUALIFY rank() OVER (ORDER BY n) <= 2", "QUALIFY row_number() OVER (ORDER BY -n) = 1"]
)
def test_having_and_qualify_see_the_column_first(con, clause):
    sql = f"SELECT 10 - n AS n, count(*) AS c FROM visits GROUP BY visits.n {clause} ORDER BY 1"
    assert [row[0] for row in asked(con, sql).fetchall()] == [row[0] for row in con.sql(sql).fetchall()]


PROBES = [
    "SELECT * FROM (SELECT ward, count(*) AS n, avg(cost) AS m FROM visits GROUP BY ward) LIMIT 0",
    "SELECT ward, count(*) AS n FROM visits GROUP BY ward LIMIT 0",
    "SELECT * FROM (SELECT code, count(*) AS n FROM visits GROUP BY code) AS q WHERE 1 = 0",
    "SELECT ward, median(day) AS d FROM visits WHERE false GROUP BY ward",
    "WITH q AS (SELECT count(*) AS n FROM visits) SELECT n / 2 AS half FROM q WHERE 1 = 0",
]


@pytest.mark.parametrize("sql", PROBES)
def test_names_and_types_alone_are_free(con, sql):
    before = charges(con)
    answer, exact = asked(con, sql, epsilon=1.0), con.sql(sql)
    assert (answer.columns, answer.fetchall()) == (exact.columns, []) and list(map(str, answer.types)) == list(map(str, exact.types))
    assert charges(con) == before


def test_what_may_have_rows_is_no_probe(con):
    before = charges(con)
    for more in ("WHERE 1 = 1", "LIMIT 1", "WHERE n > 0"):
        assert asked(con, f"SELECT * FROM (SELECT ward, count(*) AS n FROM visits WHERE age < 80 GROUP BY ward) {more}").fetchall()
    assert charges(con) == before + 1
    assert asked(con, "SELECT count(*) FROM visits WHERE 1 = 0", epsilon=1.0).fetchall() != []


LISTED = [
    ("ward = 'Surgery'", "surgery"), ("'ER' = ward", "er"), ("ward IN ('er', 'medcine')", "medicine"), ("ward <> 'surgry'", "surgery"),
    ("ward = 'zzz'", "surgery"), ("CASE WHEN ward = 'Er' THEN true ELSE false END", "er"),
]


@pytest.mark.parametrize(("condition", "near"), LISTED)
@pytest.mark.parametrize("table", ["visits", "rows_alone"])
def test_a_value_that_is_not_in_the_list_is_refused_with_the_nearest(con, table, condition, near):
    before = charges(con)
    with pytest.raises(ArgumentError, match=f"not among the declared values of ward: .*'{near}'.*Nothing was charged"):
        asked(con, f"SELECT count(*) FROM {table} WHERE {condition}")
    assert charges(con) == before


def test_lists_that_are_not_all_values_refuse_nothing(con):
    con.execute("CREATE TABLE open AS SELECT 'a' AS k FROM range(100)")
    con.execute("CALL dp_protect('open', epsilon := 100, delta := 1e-9)")
    con.execute("CALL dp_declare('open', 'k', categories := ['b'], outside := 'other', nullable := false)")
    assert asked(con, "SELECT count(*) FROM open WHERE k = 'a'", epsilon=50.0).fetchall()[0][0] == pytest.approx(100, abs=10)


WRONG = [
    "SELECT count(*) FROM {t} WHERE epoch_ms(age) > DATE '2020-01-01'", "SELECT count(*) FROM {t} WHERE levenshtein(ward, 'er') < 2",
    "SELECT count(*) FROM {t} WHERE no_such(age) > 1", "SELECT count(*) FROM {t} WHERE age > ?", "SELECT count(*) FROM {t} WHERE public.orders.sex = 1",
    "SELECT sum(nonsense) FROM {t}", "SELECT count(*) FROM {t} WHERE CAST(ward AS INTEGER[]) IS NULL",
]


@pytest.mark.parametrize("sql", WRONG)
def test_the_same_statement_is_refused_for_the_same_reason_with_and_without_a_unit(con, sql):
    said = []
    for table in ("visits", "rows_alone"):
        with pytest.raises((UnsupportedQuery, ArgumentError)) as caught:
            asked(con, sql.format(t=table))
        said.append(re.sub(r"\(line.*?\)|reads [a-z_, ]+|there are \[.*?\]", "", str(caught.value)))
    assert said[0] == said[1] and "privacy_unit" not in said[1]


def test_combining_rows_still_wants_a_unit(con):
    for sql in ("SELECT count(*) FROM (SELECT DISTINCT age FROM rows_alone)", "SELECT avg(s) FROM (SELECT age, sum(cost) AS s FROM rows_alone GROUP BY age)"):
        try:
            asked(con, sql)
        except UnsupportedQuery as error:
            assert "privacy unit" in str(error) or "rows" in str(error)


def test_counts_of_a_unit_are_bounded_by_what_counts(con):
    con.execute("CREATE TABLE heavy AS SELECT i // 6 AS u, i FROM range(3000) r(i)")
    con.execute("CALL dp_protect('heavy', epsilon := 1000, delta := 1e-9, privacy_unit := 'u', max_contributions := 4)")
    sql = "SELECT avg(k) AS a FROM (SELECT u, count(*) AS k FROM heavy GROUP BY u)"
    notes = con.execute(f"SELECT notes FROM dp_plan('{sql}', epsilon := 1)").fetchone()[0]
    assert any("k is bounded by max_contributions = 4" in note for note in notes)
    assert asked(con, sql, epsilon=100.0).fetchall()[0][0] == pytest.approx(4, abs=0.05)
    assert asked(con, sql, epsilon=100.0, bounds={"k": [1, 20]}).fetchall()[0][0] == pytest.approx(6, abs=0.2)
    assert asked(con, sql, epsilon=100.0, bounds="auto").fetchall()[0][0] == pytest.approx(6, abs=0.8)


def test_pairs_of_spellings_are_one_text(con):
    """What `plainly` leaves alone: texts, comments, names, and intervals of several parts."""
    from dpsql.text.spelled import plainly

    for kept in ("SELECT 'INTERVAL ''1 day'''", 'SELECT "INTERVAL" FROM t', "SELECT 1 -- INTERVAL '1 day'", "SELECT INTERVAL '1 year 2 days'",
                 "SELECT INTERVAL 3 DAY", "SELECT substring(a, 1, 2) FROM t", "SELECT f(x FROM 2)", "SELECT INTERVAL '1.5 days'", "SELECT 'open"):
        assert plainly(kept) == kept
    units = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
    for sign, unit, many in itertools.product(("", "-"), units, ("", "s")):
        [[same]] = con.execute(f"SELECT {plainly(f'''INTERVAL '{sign}3 {unit}{many}' ''')} = INTERVAL '{sign}3 {unit}{many}'").fetchall()
        assert same


SAME = [
    [
        "SELECT ward, count(*) FROM visits WHERE age > 30 AND ward <> 'er' GROUP BY ward",
        "SELECT ward, count(*) FROM visits WHERE ward <> 'er' AND age > 30 GROUP BY ward",
        "SELECT ward, count(1) FROM visits WHERE (ward <> 'er') AND (age >= 31) GROUP BY ward",
        "SELECT t.ward, count(*) FROM (SELECT * FROM visits) AS t WHERE 30 < t.age AND t.ward <> 'er' GROUP BY t.ward",
        "SELECT ward, count('x') FROM (SELECT * FROM visits) WHERE age > 30 AND ward <> 'er' AND age > 30 GROUP BY 1",
    ],
    [
        "SELECT avg(cost) FROM visits WHERE seen >= TIMESTAMP '2024-02-01' AND seen < TIMESTAMP '2024-03-01'",
        "SELECT avg(cost) FROM visits WHERE seen < CAST('2024-03-01 00:00:00' AS TIMESTAMP) AND seen >= '2024-02-01 00:00:00.000000'::TIMESTAMP",
        "SELECT avg(cost) FROM visits v WHERE TIMESTAMP '2024-02-01 00:00' <= v.seen AND v.seen < TIMESTAMP '2024-03-01T00:00:00'",
        "SELECT avg(cost) FROM visits WHERE seen >= '2024-02-01' AND '2024-03-01 00:00:00.000' > seen",
    ],
    [
        "SELECT count(*) FROM visits WHERE day BETWEEN DATE '2024-02-01' AND DATE '2024-03-01'",
        "SELECT count(*) FROM visits WHERE day BETWEEN '2024-02-01' AND '2024-03-01'",
        "SELECT count(*) FROM visits WHERE '2024-03-01' >= day AND day >= CAST('2024-02-01' AS DATE)",
    ],
    [
        "SELECT count(*) FROM visits WHERE age BETWEEN 31 AND 40 AND (n = 1 OR ward = 'er')",
        "SELECT count(*) FROM visits WHERE (ward = 'er' OR n = 1) AND age <= 40 AND age > 30",
        "SELECT count(*) FROM visits WHERE age < 41 AND (n = 1 OR ward = 'er') AND age >= 31",
    ],
    [
        "SELECT count(*) FROM visits WHERE n IN (1, 2) OR ward = 'er' OR (age > 80 AND cost < 50)",
        "SELECT count(*) FROM visits WHERE ward = 'er' OR n = 2 OR (n = 1) OR (cost < 50 AND 81 <= age)",
        "SELECT count(*) FROM visits WHERE (cost < 50 AND age > 80 OR 'er' = ward) OR (n IN (2, 1, 2) OR n = 2)",
    ],
    [
        "SELECT ward, count(*) FROM visits WHERE ward IN ('er', 'medicine') AND month(day) IN (2, 1) GROUP BY ward",
        "SELECT ward, count(*) FROM visits WHERE (month(day) = 1 OR month(day) = 2) AND (month(day) = 2 OR month(day) = 1) AND (ward = 'medicine' OR ward = 'er') GROUP BY ward",
        "SELECT ward, count(*) FROM visits AS v WHERE (month(v.day) = 2 OR 1 = month(v.day)) AND (ward = 'medicine' OR ward = 'er') GROUP BY ward",
    ],
    [
        "SELECT avg(cost) FROM visits WHERE day = DATE '2024-02-01' OR day = '2024-02-03' OR lower(code) IN ('c1', 'c2')",
        "SELECT avg(cost) FROM visits WHERE lower(code) = 'c2' OR day IN (DATE '2024-02-03', DATE '2024-02-01') OR lower(code) = 'c1'",
    ],
    [
        "SELECT count(*) FROM visits WHERE ward NOT IN ('er', 'surgery') AND n IN (3)",
        "SELECT count(*) FROM visits WHERE NOT (ward = 'surgery' OR ward = 'er') AND 3 = n",
    ],
]


@pytest.mark.parametrize("spellings", SAME, ids=["counts", "moments", "dates", "ranges", "alternatives", "lists", "listed dates", "none of"])
def test_one_question_is_one_charge(con, spellings):
    before, answers = charges(con), []
    for sql in spellings:
        answer = asked(con, sql, epsilon=2.0)
        assert answer.columns == con.sql(sql).columns
        answers.append(sorted(answer.fetchall()))
        exact = con.sql(sql).fetchall()
        for one, other in zip(answers[-1], sorted(exact), strict=False):
            assert one[-1] == pytest.approx(other[-1], rel=0.05, abs=40)
    assert charges(con) - before == len({repr(answer) for answer in answers}) == 1


OTHER = [
    ("SELECT count(*) FROM visits WHERE cost > 30", "SELECT count(*) FROM visits WHERE cost >= 31"),
    ("SELECT count(*) FROM (SELECT patient, cost AS age FROM visits) WHERE age > 30", "SELECT count(*) FROM (SELECT patient, cost AS age FROM visits) WHERE age >= 31"),
    ("SELECT count(*) FROM (SELECT patient, cost FROM visits) AS t(patient, age) WHERE age > 30", "SELECT count(*) FROM (SELECT patient, cost FROM visits) AS t(patient, age) WHERE age >= 31"),
    ("SELECT count(*) FROM visits WHERE age > 30 OR n = 1", "SELECT count(*) FROM visits WHERE age > 31 OR n = 1"),
    ("SELECT count(*) FROM visits WHERE NOT age BETWEEN 10 AND 20", "SELECT count(*) FROM visits WHERE age BETWEEN 10 AND 20"),
    ("SELECT count(*) FROM visits WHERE day > DATE '2024-02-01'", "SELECT count(*) FROM visits WHERE day >= DATE '2024-02-01'"),
    ("SELECT count(*) FROM visits WHERE n = 1 OR n = 2", "SELECT count(*) FROM visits WHERE n IN (1, 3)"),
    ("SELECT count(*) FROM visits WHERE n = 0 AND ward = 'er' OR age < 9", "SELECT count(*) FROM visits WHERE n = 0 AND (ward = 'er' OR age < 9)"),
    ("SELECT count(*) FROM visits WHERE NOT (n = 1 OR n = 3)", "SELECT count(*) FROM visits WHERE n = 1 OR NOT n = 3 OR n = 1"),
    ("SELECT count(*) FROM visits WHERE cost = 1 OR cost = 2.5", "SELECT count(*) FROM visits WHERE cost IN (1, 2)"),
    ("SELECT count(*) FROM visits WHERE day > '2024-02-03'", "SELECT count(*) FROM visits WHERE day > '2024-02-04'"),
]


@pytest.mark.parametrize("pair", OTHER, ids=str)
def test_questions_that_are_not_the_same_are_not_taken_for_it(con, pair):
    before = charges(con)
    answers = [asked(con, sql).fetchall()[0][0] for sql in pair]
    exact = [con.sql(sql).fetchall()[0][0] for sql in pair]
    assert answers == pytest.approx(exact, abs=15) and charges(con) == before + 2


def test_answers_bought_before_alternatives_had_one_form_are_found(con, monkeypatch):
    """Conditions were ordered, an OR and a list of values were not: the text of before, and one that only the former form makes of it."""
    sql = "SELECT ward, count(*) FROM visits WHERE n > 0 AND (ward = 'surgery' OR ward = 'er') AND age >= 22 GROUP BY ward"
    former = reading.one_form
    with monkeypatch.context() as patch:
        patch.setattr(reading, "one_form", lambda tree, named, types, *rest: former(tree, named, types, False))
        bought = sorted(asked(con, sql, epsilon=2.0).fetchall())
    before = charges(con)
    again = "SELECT ward, count(*) FROM visits WHERE age > 21 AND n >= 1 AND (ward = 'surgery' OR ward = 'er') GROUP BY ward ORDER BY ward"
    assert sorted(asked(con, again, epsilon=2.0).fetchall()) == sorted(asked(con, sql, epsilon=2.0).fetchall()) == bought and charges(con) == before
    other = asked(con, again.replace("'surgery'", "'medicine'"), epsilon=2.0).fetchall()
    assert {row[0] for row in other} == {"er", "medicine"} and charges(con) == before + 1


def test_answers_bought_before_there_was_one_form_are_found(con, monkeypatch):
    sql = "SELECT ward, count(*) FROM visits WHERE n > 0 AND age >= 21 GROUP BY ward"
    with monkeypatch.context() as patch:
        patch.setattr(reading, "one_form", lambda tree, *given: tree)
        bought = sorted(asked(con, sql, epsilon=2.0).fetchall())
    before = charges(con)
    assert sorted(asked(con, sql + " ORDER BY ward LIMIT 3", epsilon=2.0).fetchall()) == bought and charges(con) == before


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT count(*) FROM visits WHERE ward = (SELECT ward FROM wards)", "has several rows"),
        ("SELECT count(*) FROM visits WHERE age > (SELECT avg(age) FROM visits)", "scalar subquery over protected rows"),
        ("SELECT count(*) FROM visits WHERE ward = (SELECT getenv('HOME') FROM wards LIMIT 1)", "inside an expression"),
    ],
)
def test_values_of_other_subqueries_are_not_taken(con, sql, said):
    before = charges(con)
    with pytest.raises((UnsupportedQuery, ArgumentError), match=said):
        asked(con, sql)
    assert charges(con) == before


def test_parameters_are_the_values_they_stand_for(con):
    before = charges(con)
    sql = "SELECT ward, count(*) FROM visits WHERE age > {} AND ward <> {} GROUP BY ward"
    first = sorted(dpsql.query(con, sql.format("?", "?"), epsilon=2.0, params=[55, "er"]).fetchall())
    again = [
        dpsql.query(con, sql.format("$age", "$ward"), epsilon=2.0, params={"age": 55, "ward": "er"}), asked(con, sql.format(55, "'er'"), epsilon=2.0)
    ]
    assert all(sorted(one.fetchall()) == first for one in again) and charges(con) == before + 1
    exact = dpsql.query_exact(con, sql.format("?", "?"), params=[55, "er"]).fetchall()
    assert sorted(exact) == sorted(con.sql(sql.format(55, "'er'")).fetchall())
    with pytest.raises(ArgumentError, match="the text has"):
        dpsql.query(con, sql.format("?", "?"), epsilon=2.0, params=[55])
    assert charges(con) == before + 1


def test_bounds_that_are_known_are_not_learned(con):
    before = charges(con)
    with pytest.raises(ArgumentError, match="all arguments have bounds.*'cost': 'auto'"):
        asked(con, "SELECT avg(cost), count(*) FROM visits", bounds="auto")
    assert charges(con) == before
    assert asked(con, "SELECT avg(cost) FROM visits", bounds={"cost": "auto"}).fetchall()[0][0] == pytest.approx(48, abs=6)
    assert asked(con, "SELECT count(*) FROM visits", bounds="auto").fetchall()[0][0] == pytest.approx(6000, abs=30)
