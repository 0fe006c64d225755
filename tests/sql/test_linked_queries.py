"""Queries, tables of counts and synthetic tables of linked tables, as a user asks for them; links that change meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
from linked_tables import PROCEDURES, make_patients

import dpsql
from dpsql.purchase import buying
from dpsql.running import interruption

pytestmark = pytest.mark.any_duckdb


@pytest.fixture
def con(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database for a test that changes it."""
    with clinic_at(tmp_path / "clinic.duckdb") as connection:
        yield connection


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    with clinic_at(tmp_path_factory.mktemp("clinic") / "clinic.duckdb") as connection:
        yield connection


@contextmanager
def clinic_at(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(str(path))
    make_patients(connection, 500)
    dpsql.load(connection, user="tester", progress=False)
    connection.execute(
        "CALL dp_protect('patients', epsilon := 1000, delta := 1e-9, privacy_unit := 'patient_id', max_contributions := 1)"
    )
    connection.execute("CALL dp_link('visits', 'patient_id', parent := 'patients', max_rows := 20)")
    connection.execute(PROCEDURES)
    for table, column, said in (
        ("patients", "sex", "categories := ['f', 'm'], nullable := false"), ("patients", "age", "lower := 20, upper := 80, bins := 4"),
        ("visits", "cost", "lower := 0, upper := 100, bins := 5"), ("procedures", "code", "categories := ['c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6'], nullable := false"),
    ):  # fmt: skip
        connection.execute(f"CALL dp_declare('{table}', '{column}', {said})")
    try:
        yield connection
    finally:
        connection.close()


def ask(con: duckdb.DuckDBPyConnection, sql: str, more: str = "epsilon := 100") -> list[tuple]:
    quoted = sql.replace("'", "''")
    return con.execute(f"FROM dp_query('{quoted}', {more})").fetchall()


def test_answers_are_those_of_the_text(clinic):
    """Noise of epsilon 100 and 20 or 100 rows a unit is below 60 in a count of 1,800 with a probability of 1 - 1e-9."""
    joined = "SELECT p.sex, count(*) AS n, avg(v.cost) AS a FROM visits v JOIN patients p USING (patient_id) GROUP BY p.sex ORDER BY 1"
    for got, true in zip(ask(clinic, joined), clinic.execute(joined).fetchall(), strict=True):
        assert got[0] == true[0] and abs(got[1] - true[1]) < 60 and abs(got[2] - true[2]) < 5
    per_code = "SELECT q.code, count(*) AS n FROM procedures q JOIN visits v USING (visit_id) JOIN patients p USING (patient_id) GROUP BY 1 ORDER BY 1"
    for got, true in zip(ask(clinic, per_code), clinic.execute(per_code).fetchall(), strict=True):
        assert got[0] == true[0] and abs(got[1] - true[1]) < 300
    per_unit = "SELECT count(*), avg(n) FROM (SELECT patient_id, count(*) AS n FROM visits WHERE patient_id IS NOT NULL GROUP BY patient_id)"
    (got,), (true,) = ask(clinic, per_unit, "epsilon := 100, bounds := {'n': [0, 10]}"), clinic.execute(per_unit).fetchall()
    assert abs(got[0] - true[0]) < 10 and abs(got[1] - true[1]) < 1


def test_orphans_are_left_out_or_one_unit(con):
    own = con.execute("SELECT count(*) FROM visits SEMI JOIN patients USING (patient_id)").fetchall()[0][0]
    every = con.execute("SELECT count(*) FROM visits").fetchall()[0][0]
    assert abs(ask(con, "SELECT count(*) FROM visits", "epsilon := 100, max_rows_per_group := 20")[0][0] - own) < 60
    con.execute("CALL dp_link('visits', 'patient_id', parent := 'patients', max_rows := 20, orphans := 'unit')")
    found = ask(con, "SELECT count(*) FROM visits", "epsilon := 100, max_rows_per_group := 20, release := 'again'")[0][0]
    assert own + 20 - 60 < found < own + 20 + 60 < every, "20 of the orphans are kept, which are one unit"


def test_tables_of_counts_and_synthetic_tables(clinic):
    clinic.execute("CREATE TABLE copy AS FROM dp_synthesize('SELECT p.sex, v.cost FROM visits v JOIN patients p USING (patient_id)', epsilon := 50)")
    assert [row[0] for row in clinic.execute("DESCRIBE copy").fetchall()] == ["sex", "cost"]
    rows = clinic.execute("SELECT count(*) FROM copy").fetchall()[0][0]
    assert abs(rows - clinic.execute("SELECT count(*) FROM visits SEMI JOIN patients USING (patient_id)").fetchall()[0][0]) < 300
    assert clinic.execute("SELECT count(*) FROM dp_marginals('visits', k := 1, epsilon := 1)").fetchall()[0][0] > 0
    assert clinic.execute("SELECT DISTINCT source FROM dp_releases()").fetchall() == [("main.patients",)]


def test_the_plan_says_what_links_mean(clinic):
    notes = "\n".join(clinic.execute("SELECT unnest(notes) FROM dp_plan('SELECT code, count(*) FROM procedures GROUP BY code', epsilon := 1)").df().iloc[:, 0])
    assert "100 rows of a unit" in notes and "main.patients" in notes and "left out" in notes
    assert "main.procedures: at most 5 a row of main.visits" in notes


@pytest.mark.parametrize("then", ["max_rows := 50", "max_rows := 20, orphans := 'unit'"])
def test_links_that_changed_after_the_charge(con, monkeypatch, then):
    def stop(*given):
        raise interruption.Stopped("interrupted")

    monkeypatch.setattr("dpsql.answers.row_bounds.MANY", 1000)  # one charge
    text = "SELECT count(*) FROM procedures"
    with monkeypatch.context() as patch:
        patch.setattr(buying, "measure", stop)
        with pytest.raises(duckdb.Error):
            ask(con, text)
    spent = con.execute("SELECT epsilon_spent FROM dp_budget('patients')").fetchall()
    assert spent[0][0] > 0
    con.execute(f"CALL dp_link('visits', 'patient_id', parent := 'patients', {then})")
    with pytest.raises(duckdb.Error, match="other links"):
        ask(con, text)
    con.execute("CALL dp_link('visits', 'patient_id', parent := 'patients', max_rows := 20, orphans := 'drop')")
    assert len(ask(con, text)) == 1
    assert con.execute("SELECT epsilon_spent FROM dp_budget('patients')").fetchall() == spent


def test_a_key_that_is_none_any_more_is_named(con):
    con.execute("CREATE OR REPLACE TABLE visits AS FROM visits")
    con.execute("INSERT INTO visits FROM visits LIMIT 3")
    for text in ("SELECT count(*) FROM procedures", "SELECT count(*) FROM procedures JOIN visits USING (visit_id)"):
        with pytest.raises(duckdb.Error, match="visit_id.*unique"):
            ask(con, text)
    assert con.execute("SELECT epsilon_spent FROM dp_budget('patients')").fetchall()[0][0] == 0


@pytest.mark.parametrize(
    "text",
    [
        "SELECT patient_id, count(*) FROM visits GROUP BY patient_id",
        "SELECT visit_id, count(*) FROM procedures GROUP BY visit_id",
        "SELECT count(*) FROM visits a JOIN visits b ON a.cost = b.cost",
        "SELECT * FROM visits",
    ],
)
def test_persons_are_not_given_out(clinic, text):
    before = clinic.execute("SELECT epsilon_spent FROM dp_budget('patients')").fetchall()
    with pytest.raises(duckdb.Error):
        ask(clinic, text)
    assert clinic.execute("SELECT epsilon_spent FROM dp_budget('patients')").fetchall() == before


def test_whose_rows_a_release_is_about_is_said_when_the_tables_are_gone() -> None:
    con = duckdb.connect()
    dpsql.load(con, user="tester")
    con.execute("CREATE TABLE patients (patient_id INTEGER PRIMARY KEY); CREATE TABLE visits (patient_id INTEGER, x INTEGER)")
    dpsql.protect(con, "patients", epsilon=50, delta=1e-6, privacy_unit="patient_id", max_contributions=1)
    con.execute("CALL dp_link('visits', 'patient_id', parent := 'patients', max_rows := 4)")
    con.execute("FROM dp_query('SELECT count(*) FROM visits', epsilon := 1, release := 'all')").fetchall()
    said = "reads main.patients, main.visits; a unit is one patient_id of main.patients with all its rows in all tables that are linked to it"
    for gone in ("SELECT 1", "DROP TABLE visits; DROP TABLE patients"):
        con.execute(gone)
        assert ("rows", said) in con.execute("FROM dp_explain('all')").fetchall()


@pytest.mark.parametrize("join", ["patients p FULL JOIN visits v", "visits v FULL JOIN patients p", "patients p RIGHT JOIN visits v"])
def test_the_bound_of_a_join_that_keeps_both_sides_is_that_of_the_larger(clinic, join):
    plan = f"FROM dp_plan('SELECT count(*) FROM {join} USING (patient_id)', epsilon := 1)"
    assert "links allow 20 rows of a unit" in str(clinic.execute(plan).fetchall())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT visit_id, count(*) FROM procedures GROUP BY visit_id", "GROUP BY visit_id, a key or the column of a link"),
        ("SELECT visit_id, count(*) FROM visits GROUP BY visit_id", "GROUP BY visit_id, a key"),
        ("SELECT patient_id, count(*) FROM visits GROUP BY patient_id", "GROUP BY the privacy unit"),
        ("SELECT count(*) FROM visits a JOIN visits b ON a.cost = b.cost", r"a.patient_id = b.patient_id .*USING \(patient_id\)"),
        ("SELECT count(*) FROM visits v LEFT JOIN procedures q USING (visit_id) WHERE q.visit_id NOT IN (SELECT visit_id FROM procedures)", "q.visit_id IS NOT NULL AND"),
    ],
)
def test_refusals_name_what_is_meant(clinic, text, why):
    """A key that may be NULL is one of them: its groups would be sold, and show nothing."""
    with pytest.raises(duckdb.Error, match=why):
        ask(clinic, text)


def test_rows_of_a_key_that_may_be_null_are_grouped_where_it_is_not(clinic):
    text = "SELECT avg(n) FROM (SELECT v.visit_id, count(*) AS n FROM visits v JOIN procedures q USING (visit_id) WHERE v.visit_id IS NOT NULL GROUP BY v.visit_id)"
    assert abs(ask(clinic, text, "epsilon := 100, bounds := {'n': [0, 10]}")[0][0] - 1.6) < 1
