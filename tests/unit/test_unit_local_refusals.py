"""What a unit-local source may not be, with the construct, its place and the way out; and what a source says of itself."""

from __future__ import annotations

import duckdb
import pytest
from unit_local_statements import COLUMNS, PUBLIC

from dpsql.errors import ArgumentError, DpsqlError, NotProtected, UnsupportedQuery
from dpsql.session.settings import pin
from dpsql.source.analysis import UNIT, Source, analyse


@pytest.fixture(scope="module")
def con():
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"CREATE TABLE visits(patient INTEGER, l INTEGER[], {COLUMNS}); CREATE TABLE other(patient INTEGER, x INTEGER)")
        connection.execute(f"{PUBLIC}; CREATE TABLE rowwise(id INTEGER, kind VARCHAR); CREATE VIEW groups AS SELECT kind, count(*) AS n FROM visits GROUP BY kind")
        connection.execute("CREATE MACRO median2(x) AS x + 1")
        yield connection


UNITS = {"visits": "patient", "other": "patient", "rowwise": None}


def check(con: duckdb.DuckDBPyConnection, text: str, *, local: bool = True) -> Source:
    cursor = con.cursor()
    pin(cursor)
    given = {"protected": lambda t: t.name in UNITS, "unit_column": lambda t: UNITS.get(t.name), "local": local}
    return analyse(cursor, text, database="memory", schema="main", **given)


PEOPLE = "it combines rows of several people"
REFUSED = {
    # rows of several people
    "SELECT kind, count(*) AS n FROM visits GROUP BY kind": ("GROUP BY (line 1, column 49)", f"{PEOPLE}.*GROUP BY patient"),
    "SELECT n FROM (SELECT count(*) AS n FROM visits)": ("an aggregate (line 1, column 23)", f"{PEOPLE}.*outermost SELECT"),
    "FROM groups": ('GROUP BY in view "memory"."main"."groups"', PEOPLE),
    "SELECT row_number() OVER (ORDER BY day) AS r FROM visits": ("a window function (line 1, column 8)", f"{PEOPLE}.*PARTITION BY patient"),
    "SELECT sum(age) OVER (PARTITION BY kind) AS r FROM visits": ("a window function", "PARTITION BY patient"),
    "SELECT DISTINCT kind FROM visits": ("DISTINCT", "add the privacy unit column to the list"),
    "SELECT DISTINCT ON (kind) kind, age FROM visits": ("a window function", "PARTITION BY patient"),
    "SELECT kind FROM visits UNION SELECT note FROM visits": ("UNION (line 1, column 8)", "have the privacy unit column"),
    "SELECT kind FROM visits EXCEPT SELECT note FROM visits": ("EXCEPT", "have the privacy unit column"),
    "SELECT patient, age FROM visits INTERSECT SELECT age, patient FROM visits": ("INTERSECT", "have the privacy unit column"),
    "SELECT a.age FROM visits a JOIN visits b ON a.kind = b.kind": ("JOIN (line 1, column 33)", "ON a.patient = b.patient"),
    "SELECT a.age FROM visits a, visits b": ("JOIN", "the rows of two people may not meet"),
    "SELECT a.age FROM visits a JOIN visits b ON a.patient = b.patient OR a.age = b.age": ("JOIN", "may not meet"),
    "SELECT a.age FROM visits a JOIN visits b ON a.patient = b.age": ("JOIN", "may not meet"),
    "SELECT a.age FROM visits a JOIN visits b ON a.patient + 0 = b.patient": ("JOIN", "may not meet"),
    "SELECT a.age FROM visits a JOIN visits b ON a.patient <> b.patient": ("JOIN", "may not meet"),
    "SELECT a.age FROM visits a LEFT JOIN visits b ON a.kind = b.kind WHERE a.patient = b.patient": ("LEFT JOIN", "may not meet"),
    "SELECT v.age FROM visits v JOIN (SELECT patient + 1 AS patient FROM visits) w USING (patient)": ("JOIN", "may not meet"),
    "SELECT age FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.age > v.age)": ("EXISTS or IN", "t2.unit = t.unit"),
    "SELECT age FROM visits WHERE kind IN (SELECT kind FROM visits)": ("EXISTS or IN", "other people's"),
    "SELECT age FROM visits WHERE patient IN (SELECT age FROM visits)": ("EXISTS or IN", "other people's"),
    "SELECT age FROM visits WHERE age IN (SELECT patient FROM visits)": ("EXISTS or IN", "other people's"),
    "SELECT age FROM visits WHERE age > (SELECT avg(age) FROM visits)": ("EXISTS or IN (SELECT ...) inside an expression", "AND"),
    "SELECT age FROM visits WHERE ok OR EXISTS (SELECT 1 FROM loose)": ("EXISTS or IN (SELECT ...) inside an expression", "AND"),
    "SELECT (SELECT max(w) FROM loose) AS m FROM visits": ("a scalar subquery", "join a public table"),
    # rows of nobody
    "SELECT v.age FROM visits v RIGHT JOIN loose l ON v.kind = l.kind": ("RIGHT JOIN", "belong to no person; write protected LEFT JOIN public"),
    "SELECT v.age FROM visits v FULL JOIN loose l USING (kind)": ("FULL JOIN", "belong to no person"),
    "SELECT v.age FROM loose l LEFT JOIN visits v ON v.kind = l.kind": ("LEFT JOIN", "belong to no person"),
    "SELECT l.w FROM loose l SEMI JOIN visits v ON v.kind = l.kind": ("SEMI JOIN", "belong to no person"),
    "SELECT kind FROM visits UNION ALL SELECT kind FROM loose": ("UNION", "a row must belong to a person"),
    "SELECT w FROM loose WHERE kind IN (SELECT kind FROM visits)": ("EXISTS or IN", "it chooses public rows by people's"),
    # rows by chance or by other people's
    "SELECT age FROM visits ORDER BY age LIMIT 3": ("LIMIT", "QUALIFY row_number"),
    "SELECT age FROM (SELECT patient, age FROM visits LIMIT 3)": ("LIMIT", "QUALIFY row_number"),
    "(SELECT patient, age FROM visits) UNION ALL (SELECT patient, age FROM visits) LIMIT 3": ("LIMIT", "other people's"),
    "SELECT patient, count(*) AS n FROM visits USING SAMPLE 10% GROUP BY patient": ("SAMPLE", "at random"),
    "SELECT patient, random() AS r, count(*) AS n FROM visits GROUP BY ALL": ("random()", "not on the list"),
    "WITH RECURSIVE x AS (SELECT patient FROM visits UNION ALL SELECT patient FROM x) FROM x": ("WITH RECURSIVE", "repeats rows"),
    "SELECT v.patient, o.x FROM visits v JOIN other o USING (patient)": ('"memory"."main"."other"', "make one table of both"),
    # aggregates and windows that are not listed
    "SELECT patient, string_agg(kind, ',') AS s FROM visits GROUP BY patient": ("string_agg() (line 1, column 17)", "has no bound"),
    "SELECT patient, list(kind) AS s FROM visits GROUP BY patient": ("list()", "no value of a source"),
    "SELECT patient, kurtosis(age) AS s FROM visits GROUP BY patient": ("kurtosis()", "not on the list of aggregates"),
    "SELECT patient, sum(kind) AS s FROM visits GROUP BY patient": ("sum()", "needs a number, not VARCHAR"),
    "SELECT patient, sum(age ORDER BY day) AS s FROM visits GROUP BY patient": ("sum(... ORDER BY)", "arg_min"),
    "SELECT patient, max(l) AS s FROM visits GROUP BY patient": ("max()", "INTEGER[]"),
    "SELECT patient, quantile_cont(age, 2) AS s FROM visits GROUP BY patient": ("quantile_cont()", "from 0 to 1"),
    "SELECT patient, bool_or(age) AS s FROM visits GROUP BY patient": ("bool_or()", "BOOLEAN"),
    "SELECT patient, l, count(*) AS n FROM visits GROUP BY ALL": ("GROUP BY", "INTEGER[]"),
    "SELECT patient, kind FROM visits GROUP BY patient": ("column 'kind'", "after GROUP BY or inside of an aggregate"),
    "SELECT patient, max(count(*)) AS n FROM visits GROUP BY patient": ("count()", "mixes rows"),
    "SELECT patient, kind, count(*) AS n FROM visits GROUP BY ROLLUP (patient, kind)": ("ROLLUP", "UNION ALL"),
    "SELECT l, row_number() OVER (PARTITION BY patient) AS r FROM visits": ("row_number() OVER", "leave 'l' out"),
    "SELECT ntile(0) OVER (PARTITION BY patient ORDER BY age) AS r FROM visits": ("ntile()", "from 1"),
    "SELECT ntile(age) OVER (PARTITION BY patient ORDER BY age) AS r FROM visits": ("ntile()", "written out"),
    "SELECT lag(age, -1) OVER (PARTITION BY patient ORDER BY age) AS r FROM visits": ("lag()", "written out"),
    "SELECT rank() OVER (PARTITION BY patient) AS r FROM visits": ("rank() OVER", "ORDER BY"),
    "SELECT sum(age) OVER (PARTITION BY patient ORDER BY age RANGE BETWEEN 3 PRECEDING AND CURRENT ROW) AS r FROM visits": ("RANGE BETWEEN", "ROWS"),
    "SELECT sum(age) OVER (PARTITION BY patient ORDER BY age ROWS BETWEEN age PRECEDING AND CURRENT ROW) AS r FROM visits": ("ROWS BETWEEN", "whole"),
    "SELECT sum(age) OVER (PARTITION BY patient ORDER BY age ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES) AS r FROM visits": ("EXCLUDE", "not allowed"),
    "SELECT median2(count(*)) AS r FROM visits GROUP BY patient": ("median2()", "macros"),
    "SELECT unnest(l) AS x FROM visits": ("unnest()", "it makes several rows of one"),
    "SELECT patient, CAST(max(kind) AS INTERVAL) AS i FROM visits GROUP BY patient": ("CAST to INTERVAL", "plain type"),
    # names
    "SELECT patient, kind AS __dp_unit, count(*) AS n FROM visits GROUP BY ALL": ("'__dp_unit'", "dpsql's own"),
    "SELECT a.age, b.age FROM visits a JOIN visits b USING (patient)": ("column 'age'", "two columns have that name"),
    "WITH x AS (FROM visits) SELECT patient, count(*) AS n FROM visits GROUP BY patient": ("WITH x", "never used"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused_with_construct_and_way_out(con, text):
    construct, advice = REFUSED[text]
    with pytest.raises(UnsupportedQuery, match=advice.replace("(", r"\(").replace("[", r"\[").replace(")", r"\)")) as caught:
        check(con, text)
    assert caught.value.construct.startswith(construct), caught.value.construct


@pytest.mark.parametrize(
    "text",
    [
        "SELECT DISTINCT kind FROM rowwise",
        "SELECT id, count(*) AS n FROM rowwise GROUP BY id",
        "SELECT row_number() OVER (PARTITION BY id) AS r FROM rowwise",
        "SELECT a.id FROM rowwise a JOIN rowwise b USING (id)",
        "SELECT id FROM rowwise UNION SELECT id FROM rowwise",
    ],
)
def test_without_a_privacy_unit_rows_are_not_combined(con, text):
    with pytest.raises(UnsupportedQuery, match="declare one: dp_protect.*privacy_unit := 'column'"):
        check(con, text)


@pytest.mark.parametrize(
    ("text", "most", "one"),
    [
        ("SELECT id FROM rowwise UNION ALL SELECT id FROM rowwise", 2, False),
        ("SELECT r.id, l.w FROM rowwise r JOIN loose l ON r.kind = l.kind", 2, False),
        ("SELECT id FROM rowwise WHERE kind IN (SELECT kind FROM loose)", 1, True),
    ],
)
def test_without_a_privacy_unit_a_row_may_meet_public_ones(con, text, most, one):
    source = check(con, text)
    assert (source.unit, source.most_rows, source.one_per_unit) == (UNIT, most, one)
    assert f'"rowid" AS "{UNIT}"' in source.sql


def test_public_tables_alone_are_not_protected(con):
    with pytest.raises(NotProtected):
        check(con, "SELECT kind, count(*) AS n FROM loose GROUP BY kind")
    with pytest.raises(UnsupportedQuery, match="belong to nobody"):
        check(con, "SELECT * FROM (VALUES (1), (2)) AS v(x)")
    with pytest.raises(ArgumentError, match="has no name"):
        check(con, "SELECT patient, count(*) FROM visits GROUP BY patient")


@pytest.mark.parametrize("text", ["visits", "SELECT age FROM visits WHERE ok", "SELECT age, label FROM visits LEFT JOIN region USING (kind)", "rowwise"])
def test_what_is_row_by_row_stays_so(con, text):
    assert check(con, text) == check(con, text, local=False)
    assert not check(con, text).local


def test_nothing_changes_without_local(con):
    for text in ("SELECT patient, count(*) AS n FROM visits GROUP BY patient", "SELECT DISTINCT patient FROM visits", "FROM latest"):
        with pytest.raises(DpsqlError):
            check(con, text, local=False)
        assert check(con, text).local


ONE = {
    "SELECT patient, count(*) AS n FROM visits GROUP BY patient": True,
    "SELECT n + 1 AS m FROM per_patient WHERE n > 2": True,
    "FROM latest": True,
    "SELECT DISTINCT patient FROM visits": True,
    "SELECT a.n, b.kind FROM per_patient a LEFT JOIN latest b USING (patient)": True,
    "SELECT n FROM per_patient p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.patient = p.patient AND ok)": True,
    "SELECT patient, n FROM per_patient EXCEPT SELECT patient, n FROM per_patient WHERE n > 3": True,
    "SELECT n, sum(n) OVER (PARTITION BY patient) AS s FROM per_patient": True,
    "SELECT l.kind, p.n, r.label FROM latest l JOIN per_patient p USING (patient) LEFT JOIN region r ON r.kind = l.kind": True,
    "SELECT l.kind, o.w FROM latest l LEFT JOIN loose o ON o.kind = l.kind": False,
    "SELECT patient, kind, count(*) AS n FROM visits GROUP BY patient, kind": False,
    "SELECT DISTINCT patient, kind FROM visits": False,
    "SELECT v.age, p.n FROM per_patient p JOIN visits v USING (patient)": False,
    "SELECT patient, n FROM per_patient UNION ALL SELECT patient, n FROM per_patient": False,
    "SELECT a.n, b.kind FROM per_patient a FULL JOIN latest b USING (patient)": False,
    "SELECT l.kind, w FROM latest l CROSS JOIN loose": False,
    "SELECT b.patient, count(*) AS n FROM visits a LEFT JOIN (FROM visits WHERE ok) b ON a.patient = b.patient AND a.age = b.age GROUP BY a.patient, b.patient": False,
}


@pytest.mark.parametrize("text", ONE)
def test_whether_a_unit_has_one_row(con, text):
    assert check(con, text).one_per_unit is ONE[text]


ORIGINS = {
    "SELECT patient AS p, kind, count(*) AS n, max(age) AS m FROM visits GROUP BY patient, kind": ["patient", "kind", None, None],
    "SELECT patient, quantile_disc(age, 0.5) AS q, any_value(kind) AS k, arg_max(kind, day) AS a FROM visits GROUP BY patient": ["patient", None, None, None],
    "SELECT age, lag(age) OVER (PARTITION BY patient ORDER BY day) AS l FROM visits": ["age", None],
    "SELECT DISTINCT patient, cost AS c FROM visits": ["patient", "cost"],
    "SELECT patient, age FROM visits UNION ALL SELECT patient, age FROM visits": ["patient", "age"],
    "SELECT patient, kind AS k FROM visits UNION ALL SELECT patient, note FROM visits": ["patient", None],
    "SELECT a.age, b.cost, l.w FROM visits a JOIN latest b USING (patient), loose l": ["age", "cost", None],
    "SELECT patient, a.age AS x, b.kind AS y FROM visits a FULL JOIN latest b USING (patient)": ["patient", "age", "kind"],
    "SELECT x.z FROM (SELECT patient, age AS z FROM visits QUALIFY row_number() OVER (PARTITION BY patient ORDER BY day) = 1) x": ["age"],
}


@pytest.mark.parametrize("text", ORIGINS)
def test_plain_copies_keep_their_origin(con, text):
    assert [c.origin for c in check(con, text).columns] == ORIGINS[text]


def test_a_view_of_groups_keeps_the_names_of_its_columns(con):
    columns = check(con, "SELECT n, patient FROM per_patient").columns
    assert columns[1].views == (('"main"."per_patient"', "patient"),)
    source = check(con, "SELECT n FROM per_patient")
    assert source.canonical == 'SELECT n FROM "main"."per_patient"' and source.public_tables == ()
