"""Constructs around and below aggregates that dp_query accepts: its exact answers are DuckDB's own, and refusals say what to write."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from dpsql.errors import ArgumentError, DpsqlError, UnsupportedQuery

Q = "(SELECT ward, count(*) AS n, sum(cost) AS s FROM visits GROUP BY ward)"
OUTSIDE = [
    # answers beside public tables and lists
    f"SELECT q.ward, w.name, q.n FROM {Q} q JOIN wards w ON q.ward = w.ward",
    f"SELECT w.name, q.n FROM wards w LEFT JOIN {Q} q USING (ward)",
    f"SELECT * FROM {Q} q JOIN (VALUES ('surgery', 1), ('medicine', 2)) v(ward, x) USING (ward)",
    f"SELECT q.ward, v.x FROM {Q} q CROSS JOIN UNNEST([1, 2]) v(x)",
    f"SELECT a.ward, a.n, b.s FROM {Q} a JOIN (SELECT ward, sum(age) AS s FROM visits GROUP BY 1) b USING (ward)",
    "SELECT name FROM wards WHERE ward IN (SELECT ward FROM visits GROUP BY 1 HAVING count(*) > 10)",
    f"SELECT name FROM wards w WHERE EXISTS (SELECT 1 FROM {Q} q WHERE q.ward = w.ward AND q.n > w.beds)",
    f"SELECT name, (SELECT max(n) FROM {Q} q WHERE q.ward = w.ward) AS m FROM wards w",
    "SELECT name, beds - (SELECT avg(age) FROM visits) AS d FROM wards",
    f"SELECT q.ward, l.x FROM {Q} q, LATERAL (SELECT q.n + 1 AS x) l",
    f"SELECT q.ward, l.name FROM {Q} q LEFT JOIN LATERAL (SELECT name FROM wards w WHERE w.ward = q.ward) l ON true",
    "SELECT x.v FROM (SELECT [count(*), sum(age)] AS q FROM visits) t, UNNEST(t.q) x(v)",
    # answers looked up for a public row
    "SELECT name, (SELECT count(*) FROM visits v WHERE v.ward = w.ward) AS n, (SELECT sum(cost) FROM visits v WHERE w.ward = v.ward) AS s FROM wards w",
    "SELECT name, (SELECT round(avg(cost) / count(*), 6) FROM visits v WHERE v.ward = w.ward AND v.age = w.beds AND day > DATE '2024-02-01') AS c FROM wards w",
    "SELECT name FROM wards w WHERE (SELECT count(*) FROM visits WHERE visits.ward = w.ward) > 60",
    "SELECT name, (SELECT count(*) FROM visits v WHERE v.ward = w.ward HAVING count(*) > 3) AS n FROM wards w",
    "SELECT name FROM wards w WHERE EXISTS (SELECT ward FROM visits v WHERE v.ward = w.ward GROUP BY ward HAVING count(*) > 1)",
    "SELECT w.name, l.n, l.m FROM wards w, LATERAL (SELECT count(*) AS n, sum(age) AS m FROM visits v WHERE v.ward = w.ward) l",
    f"SELECT q.ward, (SELECT count(*) FROM visits v WHERE v.ward = q.ward AND v.age > 50) AS old FROM {Q} q",
    # powers
    "SELECT sum(age^2), sum(age ** 2), avg(-age^2), count(*) FILTER (WHERE 2 * age^2 > 3) FROM visits",
    "SELECT count(*) FROM visits WHERE 2^age^2 > 3 AND 7 % 2 ^ 2 = 3 AND 2 ** -1 * age > 1",
    # public rows that meet nobody
    "SELECT w.name, count(v.cost), sum(v.cost) FROM wards w LEFT JOIN visits v ON v.ward = w.ward GROUP BY 1",
    "SELECT w.name, count(v.cost) FROM visits v RIGHT JOIN wards w USING (ward) GROUP BY 1",
]
BELOW = [
    "SELECT count(*) FROM visits v WHERE cost > (SELECT avg(x.cost) FROM visits x WHERE x.patient = v.patient)",
    "SELECT ward, count(*) FROM visits v WHERE day > (SELECT min(day) FROM visits x WHERE x.patient = v.patient AND x.ward = v.ward) GROUP BY ward",
    "SELECT count(*) FROM visits v WHERE cost > (SELECT max(x.cost) FROM visits x WHERE x.patient = v.patient AND x.day < v.day)",
    "SELECT count(*) FROM visits v WHERE 0 = (SELECT count(*) FROM visits x WHERE x.patient = v.patient AND x.day > v.day)",
    "SELECT avg(least(n, 10)) FROM (SELECT (SELECT count(*) FROM visits x WHERE x.patient = v.patient AND x.ward = v.ward) AS n FROM visits v)",
    "SELECT avg(cost - (SELECT avg(x.cost) FROM visits x WHERE x.patient = v.patient)) FROM visits v",
    "SELECT (SELECT count(*) > 5 FROM visits x WHERE x.patient = v.patient) AS often, count(*) FROM visits v GROUP BY often",
    "SELECT count(*) FROM visits v WHERE cost > ALL (SELECT x.cost FROM visits x WHERE x.patient = v.patient AND x.day < v.day)",
    "SELECT sum(CASE WHEN EXISTS (SELECT 1 FROM visits x WHERE x.patient = v.patient AND x.day > v.day) THEN 1 ELSE 0 END) FROM visits v",
    "SELECT count(*) FROM visits v WHERE age < 30 OR ward NOT IN (SELECT x.ward FROM visits x WHERE x.patient = v.patient AND x.age > 60)",
    "SELECT count(*) FROM visits v WHERE age > (SELECT max(beds) FROM wards w WHERE w.ward = v.ward)",
    "SELECT count(*) FROM visits v WHERE age > (SELECT avg(beds) FROM wards)",
    # lists
    "SELECT code, count(*), avg(cost), count(DISTINCT patient) FROM visits, UNNEST(codes) AS t(code) GROUP BY 1",
    "SELECT code, count(*) FROM (SELECT ward, unnest(codes) AS code FROM visits) WHERE code <> 'c1' GROUP BY 1",
    "SELECT l.code, count(*) FROM visits v, LATERAL (SELECT unnest(v.codes) AS code) l GROUP BY 1",
    "SELECT code, n, count(*) FROM (SELECT unnest(codes) AS code, unnest(nums) AS n FROM visits) GROUP BY ALL",
    "SELECT name, count(*) FROM visits v, UNNEST(v.codes) AS t(code) JOIN names USING (code) GROUP BY 1",
    "SELECT info.b, x, count(*) FROM (SELECT info, unnest(info.l) AS x FROM visits) GROUP BY ALL",
    "SELECT y, count(*) FROM (SELECT unnest(x) AS y FROM (SELECT unnest(nested) AS x FROM visits)) GROUP BY 1",
    "SELECT avg(least(n, 9)) FROM (SELECT patient, count(*) AS n FROM visits, UNNEST(codes) t(c) GROUP BY patient)",
    "SELECT count(*) FROM visits v WHERE 1 < (SELECT count(DISTINCT c) FROM visits x, UNNEST(x.codes) t(c) WHERE x.patient = v.patient)",
    "SELECT DISTINCT code FROM visits, UNNEST(codes) AS t(code)",
]


@pytest.fixture(scope="module")
def hospital() -> Iterator[duckdb.DuckDBPyConnection]:
    """240 visits of 40 patients with lists of codes, and public tables."""
    with duckdb.connect() as con:
        con.execute(
            """
            CREATE TABLE visits AS
            SELECT i * 7919 % 40 AS patient, DATE '2024-01-01' + (i % 90)::INTEGER AS day, ['surgery', 'medicine', 'children'][1 + i % 3] AS ward,
                (i % 90)::INTEGER AS age, (i * 7919 % 5000)::DOUBLE AS cost,
                CASE WHEN i % 11 = 0 THEN NULL WHEN i % 5 = 0 THEN [] ELSE [['c1'], ['c0', 'c2'], ['c3', 'c3', 'c1'], ['c4', NULL]][1 + i % 4] END AS codes,
                CASE WHEN i % 7 > 0 THEN [(i % 10)::INTEGER, NULL] END AS nums, {'b': ['x', 'y'][1 + i % 2], 'l': [(i % 4)::INTEGER]} AS info,
                [[(i % 5)::INTEGER], []] AS nested
            FROM range(240) t(i);
            CREATE TABLE wards(ward VARCHAR, name VARCHAR, beds INTEGER);
            INSERT INTO wards VALUES ('surgery', 'S', 10), ('medicine', 'M', 20), ('gone', 'G', 0);
            CREATE TABLE names AS SELECT 'c' || i AS code, 'name ' || i % 2 AS name FROM range(4) t(i);
            """
        )
        dpsql.load(con, progress=False)
        dpsql.protect(con, "visits", epsilon=1000, delta=1e-6, privacy_unit="patient", max_contributions=100)
        con.execute("CALL dp_declare('visits', 'ward', categories := ['surgery', 'medicine', 'children'], nullable := false)")
        for column, upper in (("cost", 5000), ("age", 100)):
            con.execute(f"CALL dp_declare('visits', '{column}', lower := 0, upper := {upper}, nullable := false)")
        yield con


def rows(found: list[tuple[object, ...]]) -> list[str]:
    return sorted(str(tuple(float(f"{v:.9g}") if isinstance(v, float) else v for v in row)) for row in found)


@pytest.mark.parametrize("text", [*OUTSIDE, *BELOW])
def test_the_exact_answer_is_the_one_of_duckdb(hospital: duckdb.DuckDBPyConnection, text: str) -> None:
    groups = "private" if text in BELOW and "GROUP BY" in text else None  # else groups that are empty appear too
    wanted = rows(hospital.execute(text).fetchall())
    assert wanted
    assert rows(dpsql.query_exact(hospital, text, groups=groups).fetchall()) == wanted


REFUSED = {
    "SELECT count(*) FROM visits v JOIN (SELECT ward, count(*) AS n FROM visits GROUP BY ward) q USING (ward)": ("FROM .line 1", "adaptive := true"),
    "SELECT count(*) FROM visits WHERE cost > (SELECT avg(cost) FROM visits)": ("a scalar subquery over protected rows .line 1", "adaptive := true"),
    "SELECT avg(least(cost - (SELECT avg(cost) FROM visits), 9)) FROM visits": ("a scalar subquery over protected rows .line 1", "adaptive := true"),
    "SELECT count(*) FROM visits v WHERE cost > (SELECT avg(x.cost) FROM visits x WHERE x.ward = v.ward)": ("a subquery", "other people's.*privacy unit.*patient"),
    "SELECT count(*) FROM visits WHERE ward IN (SELECT ward FROM visits GROUP BY ward)": ("GROUP BY", "people"),
    "SELECT name, (SELECT count(*) FROM visits v WHERE v.ward = w.ward AND v.age > w.beds) FROM wards w": ("column w.beds .line 1", "join the answer"),
    "SELECT name, (SELECT cost FROM visits v WHERE v.ward = w.ward) FROM wards w": ("a subquery", "gives out rows; aggregate in it"),
    "SELECT w.name FROM wards w, LATERAL (SELECT cost FROM visits v WHERE v.ward = w.ward) l": ("LATERAL|a subquery", "gives out rows"),
    "SELECT unnest(codes) AS code, count(*) FROM visits GROUP BY 1": (r"unnest\(\) \(line 1, column 8\)", "UNNEST"),
    "SELECT sum(unnest(nums)) FROM visits": (r"unnest\(\) \(line 1", r"UNNEST\(t.list\)"),
    "SELECT count(*) FROM visits LEFT JOIN UNNEST(codes) t(c) ON true": ("LEFT JOIN UNNEST", "only rows with a value"),
    "SELECT count(*) FROM (SELECT unnest(info) FROM visits)": (r"unnest\(\)", "name the fields"),
    "SELECT unnest(codes) FROM visits": ("raw rows", "aggregates"),
    "SELECT w.name, count(*) FROM wards w LEFT JOIN visits v USING (ward) WHERE v.cost IS NULL GROUP BY 1": ("IS NULL beside an outer join", "HAVING"),
    "SELECT w.name, count(*) FROM wards w LEFT JOIN visits v USING (ward) WHERE (cost IS NULL) GROUP BY 1": ("IS NULL beside an outer join", "HAVING"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused_with_construct_and_way_out(hospital: duckdb.DuckDBPyConnection, text: str) -> None:
    construct, way = REFUSED[text]
    with pytest.raises(UnsupportedQuery, match=f"sql refused at ({construct}).*{way}"):
        dpsql.query(hospital, text, epsilon=1.0)


def test_public_rows_that_meet_nobody_count_as_none(hospital: duckdb.DuckDBPyConnection) -> None:
    text = "SELECT w.name, count(*) AS n, count(v.cost) AS c FROM wards w LEFT JOIN visits v USING (ward) GROUP BY 1 ORDER BY 1"
    assert dpsql.query_exact(hospital, text).fetchall() == [("G", 0, 0), ("M", 80, 80), ("S", 80, 80)]


def test_a_question_says_whose_column_it_is(hospital: duckdb.DuckDBPyConnection) -> None:
    """Two questions that differ in a qualifier inside of a subquery are two releases."""
    text = "SELECT count(*) FROM visits v WHERE EXISTS (SELECT 1 FROM visits x WHERE x.patient = v.patient AND {}.age > 85)"
    before = hospital.execute("SELECT count(*) FROM dp_releases()").fetchall()[0][0]
    for name in ("x", "v"):
        dpsql.query(hospital, text.format(name), epsilon=20.0)
    assert hospital.execute("SELECT count(*) FROM dp_releases()").fetchall() == [(before + 2,)]
    inner, outer = (dpsql.query_exact(hospital, text.format(name)).fetchall()[0][0] for name in ("x", "v"))
    assert inner > outer > 0


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*), nosuch(3) FROM visits WHERE cost > (SELECT avg(cost) FROM visits)",
        "SELECT count(*) FROM visits WHERE cost > (SELECT avg(cost) FROM visits) HAVING foo > 2",
        "SELECT sum(length(ward)) FROM visits WHERE cost > (SELECT avg(cost) FROM visits)",
        "SELECT count(*) FROM visits WHERE day > (SELECT median(cost) FROM visits)",
        "SELECT count(*) FROM visits WHERE cost > (SELECT avg(cost), avg(age) FROM visits)",
        "SELECT count(*) FROM visits WHERE cost > (SELECT avg(cost) FROM visits) AND age > (SELECT avg(length(ward)) FROM visits)",
    ],
)
def test_an_adaptive_query_is_checked_before_its_subquery_is_charged(hospital: duckdb.DuckDBPyConnection, text: str) -> None:
    before = hospital.execute("SELECT count(*) FROM dp_ledger('visits')").fetchall()
    with pytest.raises(DpsqlError):
        dpsql.query(hospital, text, epsilon=1.0, adaptive=True)
    assert hospital.execute("SELECT count(*) FROM dp_ledger('visits')").fetchall() == before


def test_an_adaptive_query_whose_number_bounds_a_column_is_no_false_refusal(hospital: duckdb.DuckDBPyConnection) -> None:
    for condition in ("cost BETWEEN 0 AND (SELECT avg(cost) FROM visits)", "cost > (SELECT avg(cost) / 1e6 FROM visits)"):
        text = f"SELECT avg(cost) FROM visits WHERE {condition}"  # noqa: S608
        before = hospital.execute("SELECT count(*) FROM dp_ledger('visits') WHERE action = 'charge'").fetchall()[0][0]
        ((answer,),) = dpsql.query(hospital, text, epsilon=20.0, adaptive=True).fetchall()
        assert answer is None or 0 <= answer <= 5000  # the noise is of 100 rows of each patient: it may leave no row
        after = hospital.execute("SELECT count(*) FROM dp_ledger('visits') WHERE action = 'charge'").fetchall()[0][0]
        assert after in (before + 1, before + 2)  # the subquery is bought once for both


def test_nobody_is_in_more_groups_than_there_are(hospital: duckdb.DuckDBPyConnection) -> None:
    def plan(options: str) -> tuple[float, list[str]]:
        text = "SELECT ward, count(*) FROM visits GROUP BY ward"
        found = hospital.execute(f"SELECT noise_scale, notes FROM dp_plan('{text}', epsilon := 1.0, options := {options})").fetchall()[0]
        return found[0], found[1]

    scale, notes = plan("{'max_groups': 40, 'max_rows_per_group': 1}")
    assert scale == plan("{'max_groups': 3, 'max_rows_per_group': 1}")[0] < plan("{'max_groups': 3, 'max_rows_per_group': 2}")[0]
    assert "max_groups := 40 counts as 3: there are no more groups" in notes


def test_an_answer_does_not_take_the_name_of_a_column(hospital: duckdb.DuckDBPyConnection) -> None:
    hospital.execute("CREATE OR REPLACE TABLE odd AS SELECT 'surgery' AS a0")
    with pytest.raises(UnsupportedQuery, match="write relation.column"):
        dpsql.query(hospital, "SELECT (SELECT count(*) FROM visits v WHERE v.ward = a0) FROM odd", epsilon=1.0)
    assert dpsql.query_exact(hospital, "SELECT (SELECT count(*) FROM visits v WHERE v.ward = odd.a0) FROM odd").fetchall() == [(80,)]


def test_a_table_whose_rows_are_people_has_no_rows_to_put_together(hospital: duckdb.DuckDBPyConnection) -> None:
    hospital.execute("CREATE OR REPLACE TABLE alone AS SELECT [1, 2] AS l, 3 AS x")
    dpsql.protect(hospital, "alone", epsilon=10, delta=1e-6)
    for text in ("SELECT count(*) FROM alone, UNNEST(l) t(y)", "SELECT count(*) FROM alone a WHERE x > (SELECT avg(b.x) FROM alone b WHERE b.x = a.x)"):
        with pytest.raises((UnsupportedQuery, ArgumentError), match="privacy_unit|privacy unit"):
            dpsql.query(hospital, text, epsilon=1.0)
