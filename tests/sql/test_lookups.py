"""Groups by several columns of a table that rows are looked up in: those that stand together in it, and what is not found there."""

from __future__ import annotations

import duckdb
import pytest

import dpsql

pytestmark = pytest.mark.any_duckdb

LABELS = "(VALUES ('a', 'x', 1), ('b', 'y', 2)) AS l(ward, t, n)"
CASES = [  # FROM, keys, groups that no row of the data has
    ("visits v LEFT JOIN wards l USING (ward)", "l.ward, l.n", 2),
    ("visits v LEFT JOIN wards l USING (ward)", "ward, n", 0),
    ("visits v LEFT JOIN wards l USING (ward)", "v.ward, l.n, l.active", 0),
    ("visits v LEFT JOIN wards l USING (ward)", "n, active, sex", 4),
    ("visits v LEFT JOIN wards l ON v.ward = l.ward AND l.active", "v.ward, l.n", 3),
    ("visits v LEFT JOIN wards l ON v.ward = l.ward AND l.n < 2", "v.ward, l.n", 0),
    ("visits v LEFT JOIN wards l ON v.ward = l.ward AND v.sex = 1", "v.ward, l.n", 0),
    ("visits v LEFT JOIN wards l ON v.ward = l.ward AND v.sex = 1", "l.n, l.active", 1),
    ("visits v LEFT JOIN wards l USING (ward) JOIN names m USING (ward)", "v.ward, l.n, m.m", 0),
    ("visits v LEFT JOIN names m USING (ward) LEFT JOIN wards l USING (ward)", "v.ward, m, n", 0),
    ("visits v JOIN names m USING (ward) LEFT JOIN wards l ON l.ward = m.ward AND l.n <> 1", "m.m, l.n", None),
    ("visits v LEFT JOIN wards l ON l.ward = v.ward JOIN names m ON m.ward = l.ward", "v.ward, l.n", 0),
    ("visits v LEFT JOIN wards l ON l.ward = v.ward WHERE l.n IS NULL OR l.n > 1", "v.ward, l.n", 0),
    ("visits v LEFT JOIN spans r ON v.sex BETWEEN r.lo AND r.hi", "r.name, r.hi", 1),
    (f"visits v LEFT JOIN {LABELS} ON l.ward = v.ward", "l.t, l.n", 0),
    (f"visits v LEFT JOIN {LABELS} ON l.ward = v.ward", "v.ward, t, n", 0),
    ("visits v JOIN wards l ON l.ward = v.ward AND l.active", "l.ward, l.n", 2),
    ("visits v JOIN (VALUES ('a', 1), (NULL, 3)) AS l(ward, n) ON l.ward = v.ward", "l.ward, l.n", 0),
    (f"{LABELS} LEFT JOIN visits v ON l.ward = v.ward", "l.ward, l.t, l.n", 0),
]


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as db:
        db.execute(
            """
            CREATE TABLE visits AS SELECT i % 300 AS patient, ['a', 'b', 'c'][1 + i % 3] AS ward, i // 3 % 2 AS sex FROM range(600) t(i);
            CREATE TABLE wards AS FROM (VALUES ('a', 1, true), ('b', 2, true), ('x', 3, true), (NULL, 4, false), ('c', 5, false)) AS l(ward, n, active);
            CREATE TABLE names AS FROM (VALUES ('a', 'A'), ('b', 'B'), ('c', 'C')) AS l(ward, m);
            CREATE TABLE few AS FROM (VALUES ('a', 1), ('c', 5)) AS l(ward, n);
            CREATE TABLE spans AS FROM (VALUES (0, 0, 'zero'), (1, 5, 'some')) AS l(lo, hi, name);
            CREATE TABLE coded AS SELECT patient, ['a', 'b', 'c', 'q'][1 + patient % 4] AS ward FROM visits;
            """
        )
        dpsql.load(db, progress=False)
        for table in ("visits", "coded"):
            db.execute(f"CALL dp_protect('{table}', epsilon := 1000, delta := 1e-9, privacy_unit := 'patient', max_contributions := 2)")
        db.execute("CALL dp_declare('visits', 'ward', categories := ['a', 'b', 'c'], nullable := false)")
        db.execute("CALL dp_declare('visits', 'sex', lower := 0, upper := 1, nullable := false)")
        db.execute("CALL dp_declare('coded', 'ward', categories := ['a', 'b'], nullable := false, outside := 'other')")
        yield db


def answered(con, sql):
    return {row[:-1]: row[-1] for row in dpsql.query(con, sql, epsilon=12).fetchall()}


@pytest.mark.parametrize(("source", "keys", "more"), CASES)
def test_groups_are_those_of_the_lookup(con, source, keys, more):
    head, _, where = source.partition(" WHERE ")
    sql = f"SELECT {keys}, count(v.patient) AS n_ FROM {head}{' WHERE ' if where else ''}{where} GROUP BY ALL"
    true, noisy = {row[:-1]: row[-1] for row in con.sql(sql).fetchall()}, answered(con, sql)
    assert true.keys() <= noisy.keys()
    assert more is None or len(noisy) == len(true) + more
    assert all(abs(noisy[group] - true.get(group, 0)) < 30 for group in noisy)


def test_values_that_no_list_has_keep_their_rows(con):
    """They are the group '(other)' beside what they were looked up as; and beside nothing, where some are not found."""
    inner = answered(con, "SELECT c.ward, l.n, count(*) AS n_ FROM coded c JOIN wards l USING (ward) GROUP BY ALL")
    assert {group for group, n in inner.items() if n > 50} == {("a", 1), ("b", 2), ("(other)", 5)}
    outer = answered(con, "SELECT c.ward, s.n, count(*) AS n_ FROM coded c LEFT JOIN few s USING (ward) GROUP BY ALL")
    assert outer.keys() == {("a", 1), ("b", None), ("(other)", 5), ("(other)", None)} and min(outer.values()) > 100
