"""Declared bounds that are far too wide: sums and means are narrowed for a small share of the loss; those that fit lose next to nothing."""

from __future__ import annotations

import re

import duckdb
import pytest

import dpsql
from dpsql.kinds.query import asking

pytestmark = pytest.mark.any_duckdb

COST = "round(exp(6 + 0.1 * (i % 4) + 0.9 * (((i * 7919) % 1000 + (i * 104729) % 997 + (i * 1299709) % 991) / 500.0 - 3)), 2)"
"""Like a logarithm of costs: nearly normal, some hundreds of thousands of them between 30 and 6,000."""


def table(rows: int = 60_000, upper: int = 10_000_000) -> duckdb.DuckDBPyConnection:
    """Return a database with a protected table ``visits``, one row a patient."""
    con = duckdb.connect()
    con.execute(f"CREATE TABLE visits AS SELECT i AS patient, (i % 4)::INTEGER AS ward, {COST}::DECIMAL(12, 2) AS cost, (i % 90)::INTEGER AS age FROM range({rows}) t(i)")
    dpsql.load(con, progress=False)
    con.execute("CALL dp_protect('visits', epsilon := 1000, delta := 1e-9, privacy_unit := 'patient', max_contributions := 1)")
    con.execute("CALL dp_declare('visits', 'ward', lower := 0, upper := 3, nullable := false)")
    con.execute("CALL dp_declare('visits', 'age', lower := 0, upper := 120, nullable := false)")
    con.execute(f"CALL dp_declare('visits', 'cost', lower := 0, upper := {upper}, nullable := false)")
    return con


@pytest.fixture(scope="module")
def visits() -> duckdb.DuckDBPyConnection:
    return table()


def notes(con: duckdb.DuckDBPyConnection, sql: str, more: str = "") -> str:
    row = con.execute(f"SELECT notes FROM dp_plan('{sql}', epsilon := 0.5{more})").fetchone()
    assert row is not None
    return " | ".join(row[0])


def scale(con: duckdb.DuckDBPyConnection, sql: str, more: str = "") -> float:
    row = con.execute(f"SELECT noise_scale FROM dp_plan('{sql}', epsilon := 0.5{more})").fetchone()
    assert row is not None
    return float(row[0])


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("function", ["avg", "sum", "stddev_pop"])
def test_wide_bounds_are_narrowed(visits: duckdb.DuckDBPyConnection, function: str, mechanism: str) -> None:
    """With the declared bounds, noise alone is 1,400 on a mean of 500; by narrowed ones about 2."""
    truth = visits.execute(f"SELECT {function}(cost) FROM visits GROUP BY ward ORDER BY ward").fetchall()
    found = visits.execute(
        f"SELECT * FROM dp_query('SELECT ward, {function}(cost) FROM visits GROUP BY ward ORDER BY ward', epsilon := 2, mechanism := '{mechanism}')"
    ).fetchall()
    for (_, value), (exact,) in zip(found, truth, strict=True):
        assert float(value) == pytest.approx(float(exact), rel=0.35 if function == "stddev_pop" else 0.1)


def test_plan_and_answer_say_so(visits: duckdb.DuckDBPyConnection, capsys: pytest.CaptureFixture[str]) -> None:
    said = notes(visits, "SELECT avg(cost) FROM visits")
    assert "cost may be anything from 0 to 10,000,000" in said and "8% of the loss" in said and "bounds := {'cost': [0, 10000000]}" in said
    assert "on a mean over 1,000 rows" in said
    visits.execute("FROM dp_query('SELECT avg(cost) FROM visits WHERE age < 70', epsilon := 0.5, release := 'said')").fetchall()
    explained = " ".join(text for _, text in visits.execute("FROM dp_explain('said')").fetchall())
    assert "noisy histogram of magnitudes" in explained and "rows beyond the bounds" in explained and "which are in no interval" in explained
    assert re.search(r"may not have been seen", explained)
    assert capsys.readouterr().err == "", "nothing is said where progress is off"


def test_the_bounds_are_said_beside_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    con = table(20_000)
    dpsql.load(con, progress=True)
    con.execute("FROM dp_query('SELECT avg(cost) FROM visits', epsilon := 2)").fetchall()
    said = capsys.readouterr().err
    assert re.search(r"dp_query of visits: cost: values below 0 count as 0, values above [\d,.]+ as [\d,.]+, since declared bounds", said)
    assert "intervals are of" not in said
    con.execute("FROM dp_query('SELECT avg(cost) FROM visits', epsilon := 2, confidence := 0.9)").fetchall()
    assert "intervals are of values so counted, not of those far out" in capsys.readouterr().err
    con.execute("DELETE FROM visits")
    con.execute("FROM dp_query('SELECT sum(cost) FROM visits WHERE ward IS NOT NULL', epsilon := 0.001)").fetchall()
    assert "declared bounds" not in capsys.readouterr().err, "where there is nothing but noise the declared bounds stay"


@pytest.mark.parametrize(
    ("items", "more"),
    [("avg(age)", ""), ("avg(cost)", ", options := {'bounds': {'cost': [0, 10000000]}}"), ("median(cost)", ""), ("count(cost)", ""), ("avg(1000000000 + age)", "")],
)
def test_others_are_as_they_were(visits: duckdb.DuckDBPyConnection, items: str, more: str) -> None:
    """Tight bounds, bounds that the call gives, quantiles (which find their own way), and bounds that are near each other."""
    assert "histogram of magnitudes" not in notes(visits, f"SELECT {items} FROM visits", more)


def test_a_given_bound_is_taken_as_it_is(visits: duckdb.DuckDBPyConnection) -> None:
    said = notes(visits, "SELECT avg(cost) FROM visits", ", options := {'bounds': {'cost': [0, 10000000]}}")
    assert "of values from 0 to 1e+07" in said


_GIVEN = ", options := {'bounds': {'cost': [0, 10000000]}}"


@pytest.mark.parametrize(
    "sql",
    ["sum(cost + cost) FROM visits", "avg(cost * 2) FROM visits", "sum(-visits.cost) FROM visits", "sum(CASE WHEN age > 5 THEN cost ELSE 0 END) FROM visits",
     "avg(u / 2) FROM (SELECT patient, cost + age AS u FROM visits)", "sum(coalesce(cost, 0)) FILTER (WHERE ward = 1) FROM visits", "var_pop(round(cost)) FROM visits",
     "avg(u + u) FROM (SELECT patient, cost AS u FROM visits UNION ALL SELECT patient, age FROM visits)"],
)
def test_a_given_bound_holds_for_what_is_made_of_the_column(visits: duckdb.DuckDBPyConnection, sql: str) -> None:
    """It was obeyed for sum(cost) alone: sum(cost + cost) was narrowed."""
    assert "may be anything from" in notes(visits, f"SELECT {sql}")
    assert "may be anything from" not in notes(visits, f"SELECT {sql}", _GIVEN)


def test_what_the_call_says_nothing_of_is_narrowed_still(visits: duckdb.DuckDBPyConnection) -> None:
    for sql in ("sum(cost + patient2) FROM (SELECT patient, cost, cost * 1000 AS patient2, age FROM visits)", "sum(age * 1000000) FROM visits"):
        given = ", options := {'bounds': {'age': [0, 100]}}"
        assert ("may be anything from" in notes(visits, f"SELECT {sql}", given if "age *" in sql else "")) is ("cost" in sql)
    said = notes(visits, "SELECT sum(cost * age) FROM visits", ", options := {'bounds': {'age': [0, 100]}}")
    assert "cost * age may be anything from" in said


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_it_costs_less_than_a_twentieth(visits: duckdb.DuckDBPyConnection, mechanism: str) -> None:
    """Of one column, of several, and beside others: noise is at most 1.05 times as large as without."""
    for items in ("avg(cost)", "avg(cost), var_pop(cost * 2), count(*)", "sum(cost), avg(age), median(cost)"):
        more = f", mechanism := '{mechanism}'"
        narrowed = scale(visits, f"SELECT {items} FROM visits", more)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asking, "wide", lambda *given: False)
            plain = scale(visits, f"SELECT {items} FROM visits", more)
        assert 1.0 < narrowed / plain <= 1.05


def test_quantiles_beside_means_are_cut_where_the_rows_are(visits: duckdb.DuckDBPyConnection) -> None:
    said = notes(visits, "SELECT avg(cost), median(cost) FROM visits")
    assert "histogram of magnitudes" in said and "drawn by the exponential mechanism" in said and "say where the rows are" in said
    found = visits.execute("FROM dp_query('SELECT avg(cost), median(cost) FROM visits', epsilon := 1)").fetchone()
    truth = visits.execute("SELECT avg(cost), median(cost) FROM visits").fetchone()
    assert found is not None and truth is not None
    assert [float(v) for v in found] == pytest.approx([float(v) for v in truth], rel=0.1)


def test_too_few_rows_to_see_keep_the_declared_bounds() -> None:
    """An interval of bounds that were guessed of noise would be narrow and wrong; of the declared ones it is wide, and holds."""
    con = table(60)
    [(_, low, high)] = con.execute("FROM dp_query('SELECT avg(cost) FROM visits', epsilon := 0.5, confidence := 0.95, release := 'few')").fetchall()
    said = " ".join(text for _, text in con.execute("FROM dp_explain('few')").fetchall())
    assert "values above 1e+07 as 1e+07" in said
    assert low <= 500 <= high


def test_values_over_all_of_the_bounds_keep_them() -> None:
    con = table(20_000)
    con.execute("UPDATE visits SET cost = patient * 500")
    con.execute("FROM dp_query('SELECT avg(cost) FROM visits', epsilon := 2, release := 'over')")
    said = " ".join(text for _, text in con.execute("FROM dp_explain('over')").fetchall())
    found = re.search(r"values above (\S+) as", said)
    assert found is not None and float(found[1]) > 0.9e7


def test_exact_answers_are_between_the_declared_bounds(visits: duckdb.DuckDBPyConnection) -> None:
    [(exact,)] = visits.execute("FROM dp_query_exact('SELECT sum(cost) FROM visits')").fetchall()
    [(truth,)] = visits.execute("SELECT sum(cost) FROM visits").fetchall()
    assert float(exact) == pytest.approx(float(truth))


def test_what_was_bought_before_is_not_bought_anew() -> None:
    """A release of an earlier version, whose plan took the bounds as they are, still answers its question."""
    con = table(5_000)
    asked = "FROM dp_query('SELECT ward, avg(cost) FROM visits GROUP BY ward', epsilon := 0.5, confidence := 0.9)"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asking, "wide", lambda *given: False)
        first = con.execute(asked).fetchall()
    dpsql.load(con, progress=False)
    assert con.execute(asked).fetchall() == first
    assert con.execute("SELECT count(*) FROM dp_ledger() WHERE action = 'charge'").fetchone() == (1,)


def test_summaries_are_narrowed_too(visits: duckdb.DuckDBPyConnection) -> None:
    [(mean,)] = visits.execute("SELECT avg FROM dp_summarize('visits', epsilon := 4.0, columns := ['cost'])").fetchall()
    [(truth,)] = visits.execute("SELECT avg(cost) FROM visits").fetchall()
    assert float(mean) == pytest.approx(float(truth), rel=0.1)
