"""Made-up rows to practise on: within the declared domains, in the source's types, out of no row."""

import datetime as dt
import re

import duckdb
import pytest
from dpsql.udfs import instance_of

import dpsql
from dpsql.door import dispatch

TABLE = """
    CREATE TABLE visits (patient BIGINT NOT NULL, age SMALLINT, sex ENUM('f', 'm') NOT NULL, ward VARCHAR, code VARCHAR,
        cost DECIMAL(10, 2), started TIMESTAMP, ended TIMESTAMP, seconds DOUBLE, big HUGEINT, note VARCHAR, parts STRUCT(a INTEGER))
"""
ROWS = """
    INSERT INTO visits SELECT i // 3, 300 + i % 7, 'f', 'secret ward', 'secret code', 99999.99, TIMESTAMP '2199-01-01',
        TIMESTAMP '2198-01-01', 1e9, 2::HUGEINT ** 90, 'secret note', {a: 1} FROM range(500) t(i)
"""
DECLARE = (
    "CALL dp_protect('visits', epsilon := 1, delta := 1e-9, privacy_unit := 'patient', max_contributions := 3)",
    "CALL dp_declare('visits', 'age', lower := 0, upper := 110, bins := 11, nullable := false)",
    "CALL dp_declare('visits', 'ward', categories := ['a', 'b', 'c'], outside := 'other')",
    "CALL dp_declare('visits', 'cost', lower := -5, upper := 5.25)",
    "CALL dp_declare('visits', 'started', lower := '2020-01-01', upper := '2021-01-01', nullable := false, outside := 'drop')",
    "CALL dp_declare('visits', 'ended', lower := '2020-01-01', upper := '2021-01-01', nullable := false)",
    "CALL dp_declare('visits', 'seconds', lower := 0.5, upper := 2.5, bins := 4)",
    "CALL dp_declare('visits', 'big', lower := 0, upper := 1000, bins := 2)",
    "CALL dp_rule('visits', 'started <= ended')",
)


def made(rows: bool) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    dpsql.load(con, user="tester")
    con.execute(TABLE)
    if rows:
        con.execute(ROWS)
    for text in DECLARE:
        con.execute(text)
    return con


@pytest.fixture(scope="module")
def visits():
    con = made(rows=True)
    yield con
    con.close()


def test_values_are_of_the_domain(visits):
    visits.execute("CREATE OR REPLACE TEMP TABLE d AS FROM dp_dummy('visits', rows := 3000, seed := 4)")
    assert visits.sql("DESCRIBE d").project("column_name, column_type").fetchall() == (
        visits.sql("DESCRIBE visits").project("column_name, column_type").fetchall()
    )
    (found,) = visits.execute("""
        SELECT {n: count(*), age: [min(age), max(age)], bins: count(DISTINCT age // 10), wards: list_sort(array_agg(DISTINCT ward)),
            cost: [min(cost), max(cost)]::DOUBLE[], began: min(started), ended: max(ended), broken: count(*) FILTER (started > ended),
            seconds: [min(seconds), max(seconds)], big: [min(big), max(big)]::DOUBLE[], other: count(code) + count(note) + count(parts),
            sexes: count(DISTINCT sex), no: count(*) FILTER (age IS NULL OR sex IS NULL OR started IS NULL),
            nulls: count(*) FILTER (ward IS NULL) / count(*)}
        FROM d""").fetchone()
    assert (found["n"], found["other"], found["broken"], found["no"], found["sexes"]) == (3000, 0, 0, 0, 2)
    assert found["wards"] == ["a", "b", "c"] or found["wards"] == ["a", "b", "c", None]
    assert found["bins"] in (11, 12)  # the last bin has its right edge
    for low, high, least, most in ((*found["age"], 0, 110), (*found["cost"], -5, 5.25), (*found["seconds"], 0.5, 2.5)):
        assert least <= low < least + 0.1 * (most - least) and most - 0.1 * (most - least) < high <= most
    assert 0 <= found["big"][0] < 100 and 900 < found["big"][1] <= 1000
    assert dt.datetime(2020, 1, 1) <= found["began"] and found["ended"] <= dt.datetime(2021, 1, 1)
    assert 0.02 < found["nulls"] < 0.09  # 3,000 draws of 5 %: seven standard deviations and more


def test_rows_of_a_unit(visits):
    units = visits.execute("SELECT count(*) AS n FROM dp_dummy('visits', rows := 600) GROUP BY patient ORDER BY n").fetchall()
    assert {n for (n,) in units} == {1, 2, 3}
    assert visits.execute("SELECT count(*) FILTER (patient IS NULL) FROM dp_dummy('visits')").fetchone() == (0,)


@pytest.mark.parametrize(
    "kind", ["UTINYINT", "INTEGER", "HUGEINT", "VARCHAR", "UUID", "DATE", "TIMESTAMP", "TIMESTAMP_S", "DECIMAL(9, 2)", "DOUBLE"]
)
def test_units_of_every_type(kind):
    con = duckdb.connect()
    dpsql.load(con)
    con.execute(f"CREATE TABLE t (who {kind}, b BOOLEAN)")
    con.execute("CALL dp_protect('t', epsilon := 1, delta := 1e-9, privacy_unit := 'who', max_contributions := 50)")
    found = con.execute("SELECT typeof(any_value(who)), count(DISTINCT who), max(n) FROM (SELECT who, count(*) AS n "
        "FROM dp_dummy('t', rows := 400) GROUP BY ALL)").fetchone()  # fmt: skip
    con.close()
    assert found[0] == kind.replace(" ", "") and 40 <= found[1] <= 400 and 5 <= found[2] <= 10


def test_the_seed_decides(visits):
    def rows(seed, count=200):
        return visits.execute(f"FROM dp_dummy('visits', rows := {count}, seed := {seed})").fetchall()

    assert rows(1) == rows(1) and rows(1) != rows(2)
    assert [len(rows(0, count)) for count in (0, 1, 7)] == [0, 1, 7]
    assert visits.execute("FROM dp_dummy('visits', rows := NULL, seed := NULL)").fetchall() == rows(0, 1000)


def test_no_row_is_read(visits):
    """Neighbours as far apart as can be: an empty table and a full one give the same rows, and nothing is charged."""
    empty = made(rows=False)
    try:
        for call in ("'visits', rows := 500, seed := 9", "'SELECT ward, cost, age FROM visits WHERE age > 50'", "'visits', rows := 0"):
            query = f"FROM dp_dummy({call})"
            assert visits.execute(query).fetchall() == empty.execute(query).fetchall()
        assert "secret" not in str(visits.execute("FROM dp_dummy('visits', rows := 5000)").fetchall())
        assert visits.execute("SELECT count(*) FROM dp_ledger() WHERE action NOT IN ('protect', 'declare', 'rule')").fetchone() == (0,)
    finally:
        empty.close()


def test_the_python_function(visits):
    assert dpsql.dummy(visits, "visits", rows=3, seed=2).fetchall() == (
        visits.execute("FROM dp_dummy('visits', rows := 3, seed := 2)").fetchall()
    )


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("'visits', rows := 100001", "rows = 100001"),
        ("'visits', rows := -1", "rows = -1"),
        ("'visits', seed := 1.5", "seed = 1.5"),
        ("'plain'", "dp_protect"),
        ("'SELECT note FROM visits'", "no declared domain|no column of the source has a declared domain"),
        ("'nothing'", "nothing"),
    ],
)
def test_refusals(visits, call, said):
    visits.execute("CREATE TABLE IF NOT EXISTS plain (a INTEGER)")
    with pytest.raises(duckdb.Error, match=said) as refused:
        visits.execute(f"FROM dp_dummy({call})")
    assert "secret" not in str(refused.value)


def test_a_rule_that_no_row_obeys_is_said():
    con = made(rows=False)
    con.execute("CALL dp_rule('visits', 'started = ended')")
    try:
        with pytest.raises(duckdb.Error, match="no row was found that obeys its rules"):
            con.execute("FROM dp_dummy('visits', rows := 100)")
    finally:
        con.close()


def test_an_analyst_with_a_grant_has_them_and_no_others():
    from dpsql.books.grants import Grant, Grants

    con = made(rows=True)
    try:
        instance = instance_of(con)
        home = {"database": "memory", "schema": "main"}
        with pytest.raises(dpsql.DpsqlError, match="visits") as unknown:
            dispatch.run(instance, "dummy", {"source": "visits"}, analyst="alice", **home)
        assert "protect" not in re.sub("visits", "", str(unknown.value))
        held = Grants(con.cursor(), "memory")
        held.set(Grant(analyst="alice", source="main.visits", epsilon=0.5, per_query=None, renew=None, methods=None,
            columns=("ward", "age")), "tester")  # fmt: skip
        relation = dispatch.run(instance, "dummy", {"source": "visits"}, analyst="alice", **home)
        assert sorted(con.sql(f"FROM {relation}").columns) == ["age", "ward"]
    finally:
        con.close()
