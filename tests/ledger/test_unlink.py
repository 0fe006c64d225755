"""dp_unlink: a link is taken back while no release has read through it, and its table is public at no time."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from tests.linked_tables import link_patients, make_patients

UNLINKED = "was linked, and has neither link nor budget now"


@pytest.fixture
def con() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    dpsql.load(con)
    make_patients(con)
    link_patients(con)
    return con


def rows(con: duckdb.DuckDBPyConnection, statement: str) -> list[tuple[object, ...]]:
    return con.execute(statement).fetchall()


def test_a_link_that_nothing_was_bought_through_is_taken_back(con: duckdb.DuckDBPyConnection) -> None:
    assert rows(con, "CALL dp_unlink('procedures')") == [("main.procedures", "main.visits", "main.patients", "unlinked")]
    assert rows(con, "SELECT source FROM dp_links()") == [("main.visits",)]
    assert rows(con, "CALL dp_unlink('procedures')") == [("main.procedures", None, None, "no link is left")]
    assert rows(con, "SELECT action FROM dp_ledger('patients')")[-1:] == [("unlink",)]
    assert rows(con, "SELECT DISTINCT books FROM dp_budget()") == [("intact",)]
    assert rows(con, "SELECT source FROM dpsql.budgets") == [("main.patients",)]


@pytest.mark.parametrize(
    "statement",
    [
        "FROM dp_query('SELECT count(*) FROM procedures', epsilon := 0.1)",
        "FROM dp_query('SELECT count(*) FROM visits v JOIN procedures p USING (visit_id)', epsilon := 0.1)",
        "FROM dp_query('SELECT count(*) FROM visits WHERE visit_id IN (SELECT visit_id FROM procedures)', epsilon := 0.1)",
        "FROM dp_plan('procedures', epsilon := 0.1)",
        "FROM dp_marginals('procedures', columns := ['code'], epsilon := 0.1)",
        "CALL dp_declare('patients', 'sex', categories_from := 'procedures.code')",
    ],
)
def test_an_unlinked_table_is_not_public(con: duckdb.DuckDBPyConnection, statement: str) -> None:
    con.execute("CALL dp_unlink('procedures')")
    with pytest.raises(duckdb.Error, match=UNLINKED):
        con.execute(statement).fetchall()
    assert rows(con, "SELECT count(*) FROM dp_ledger() WHERE action = 'charge'") == [(0,)]


def test_it_can_be_linked_again_or_protected(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CALL dp_unlink('procedures')")
    con.execute("CALL dp_link('procedures', 'visit_id', parent := 'visits', max_rows := 3)")
    assert rows(con, "SELECT source, max_rows FROM dp_links()") == [("main.visits", 20), ("main.procedures", 3)]
    con.execute("CALL dp_unlink('procedures')")
    con.execute("CALL dp_protect('procedures', epsilon := 1, delta := 1e-9)")
    assert rows(con, "SELECT source, epsilon FROM dpsql.budgets ORDER BY ALL ASC") == [("main.patients", 3), ("main.procedures", 1)]
    assert rows(con, "FROM dp_query('SELECT count(*) AS n FROM procedures', epsilon := 0.5)")
    assert rows(con, "SELECT source, books FROM dp_budget('procedures')") == [("main.procedures", "intact")]


def test_a_budget_that_was_given_up_does_not_come_back(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CALL dp_unlink('procedures')")
    con.execute("CALL dp_protect('procedures', epsilon := 1, delta := 1e-9, privacy_unit := 'visit_id', max_contributions := 2)")
    con.execute("CALL dp_link('procedures', 'visit_id', parent := 'visits', max_rows := 3)")
    con.execute("CALL dp_unlink('procedures')")
    assert rows(con, "SELECT source FROM dpsql.budgets") == [("main.patients",)]
    with pytest.raises(duckdb.Error, match=UNLINKED):
        con.execute("FROM dp_query('SELECT count(*) FROM procedures', epsilon := 0.1)")


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("CALL dp_unlink('patients')", "is not linked"),
        ("CALL dp_unlink('visits')", "tables are linked to it .main.procedures.: unlink these first"),
        ("CALL dp_unlink('nothing')", "nothing"),
    ],
)
def test_what_cannot_be_unlinked_is_said(con: duckdb.DuckDBPyConnection, statement: str, told: str) -> None:
    with pytest.raises(duckdb.Error, match=told):
        con.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "FROM dp_query('SELECT count(*) FROM procedures', epsilon := 0.1)",
        "FROM dp_synthesize_tables('patients', epsilon := 0.1, into_schema := 's', options := {'effort': 'fast'})",
    ],
)
def test_a_release_that_has_read_a_table_keeps_its_link(con: duckdb.DuckDBPyConnection, statement: str) -> None:
    con.execute("CALL dp_declare('patients', 'sex', categories := ['f', 'm'])")
    con.execute(statement)
    for name in ("procedures", "visits"):
        with pytest.raises(duckdb.Error, match="a release has read it" if name == "procedures" else "unlink these first"):
            con.execute(f"CALL dp_unlink('{name}')")
    assert len(rows(con, "FROM dp_links()")) == 2


def test_numbers_of_rows_of_a_unit_are_bounded_by_links(con: duckdb.DuckDBPyConnection) -> None:
    query = "SELECT avg(n) FROM (SELECT patient_id, count(*) AS n FROM visits GROUP BY patient_id)"
    notes = str(rows(con, f"SELECT notes FROM dp_plan('{query}', epsilon := 0.1)"))
    assert "n is bounded by the 20 rows of a unit that links allow" in notes
