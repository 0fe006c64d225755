"""dp_plan with a noise scale in the place of an epsilon: the least epsilon with no more noise, for every call that it plans."""

from __future__ import annotations

import duckdb
import pytest

import dpsql

pytestmark = pytest.mark.any_duckdb

COUNT = "SELECT g, count(*) AS n FROM t GROUP BY g"


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT i // 2 AS p, i % 4 AS g, i % 100 AS x FROM range(4000) r(i)")
        dpsql.load(connection, progress=False)
        connection.execute("CALL dp_protect('t', epsilon := 2, delta := 1e-9, privacy_unit := 'p', max_contributions := 20)")
        connection.execute("CALL dp_declare('t', 'g', categories := [0, 1, 2, 3], nullable := false)")
        connection.execute("CALL dp_declare('t', 'x', lower := 0, upper := 100)")
        yield connection


def planned(con, source, more):
    text = f"SELECT operation, epsilon, noise_scale, notes FROM dp_plan($${source}$$, {more})"
    return con.execute(text).fetchall()


@pytest.mark.parametrize(
    ("source", "more", "wanted"),
    [
        (COUNT, "", 50), (COUNT, "", 0.9), ("SELECT avg(x), count(*) FROM t", "mechanism := 'laplace', ", 400),
        ("SELECT g, count(*) FROM t GROUP BY CUBE (g)", "", 80),
        ("t", "columns := ['g', 'x'], k := 1, ", 20), ("t", "", 20), ("t", "operation := 'contributions', ", 10),
    ],
)
def test_it_is_the_least_epsilon_with_no_more_noise(con, source, more, wanted):
    rows = planned(con, source, f"{more}options := {{'noise_scale': {wanted}}}")
    [epsilon] = {float(row[3][0].removeprefix("epsilon := ").split(" ")[0]) for row in rows}
    assert all(f"with a noise scale of at most {wanted:g}" in row[3][0] for row in rows)
    same = planned(con, source, f"{more}epsilon := {epsilon}")
    assert [row[:3] for row in same] == [row[:3] for row in rows] and max(row[2] for row in rows) <= wanted
    less = planned(con, source, f"{more}epsilon := {epsilon * 0.98}")
    assert max(row[2] for row in less) > wanted


def test_a_histogram_that_comes_first_is_left_aside(con):
    (first, second) = planned(con, COUNT, "options := {'noise_scale': 50, 'max_rows': 'auto'}")
    assert (first[0], second[0]) == ("contributions", "query") and 45 < second[2] <= 50
    assert first[3][0] == second[3][0] and first[3][0].startswith("epsilon := 2.4")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("epsilon := 1, options := {'noise_scale': 3}", "leave epsilon out"), ("options := {'noise_scale': -3}", "a number above 0 is required"),
        ("options := {'noise_scale': 'little'}", "a number above 0 is required"), ("options := {'noise_scale': 'nan'::DOUBLE}", "a value of type float"),
        ("options := {'noise_scale': true}", "a number above 0 is required"), ("options := {'noise_scale': 0.001}", "is below the noise at epsilon := 1000"),
    ],
)
def test_what_it_cannot_be_is_said(con, more, said):
    with pytest.raises(duckdb.Error, match=said):
        planned(con, COUNT, more)


def test_nothing_is_charged_and_python_asks_it_too(con):
    before = con.execute("SELECT count(*) FROM dp_ledger()").fetchone()
    [row] = dpsql.plan(con, COUNT, options={"noise_scale": 50}).fetchall()
    assert row and con.execute("SELECT count(*) FROM dp_ledger()").fetchone() == before
