"""Linked tables in calls: declared under their own names, bought under their root's budget, named by the entries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from linked_tables import link_patients, make_patients

import dpsql

pytestmark = pytest.mark.any_duckdb


@pytest.fixture
def con(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(str(tmp_path / "clinic.duckdb"))
    make_patients(connection, 2000)
    dpsql.load(connection, user="tester")
    link_patients(connection)
    connection.execute("CALL dp_declare('patients', 'sex', categories := ['f', 'm'])")
    connection.execute("CALL dp_declare('visits', 'cost', lower := 0, upper := 100, bins := 4)")
    connection.execute("CALL dp_declare('procedures', 'code', categories := ['c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6'])")
    connection.execute("CALL dp_rule('visits', 'cost >= 0')")
    yield connection
    connection.close()


def test_columns_are_declared_under_the_tables_own_name(con):
    stored = con.execute('SELECT source, "column" FROM dpsql.domains ORDER BY 1').fetchall()
    assert stored == [("main.patients", "sex"), ("main.procedures", "code"), ("main.visits", "cost")]
    assert con.execute("SELECT source FROM dpsql.rules").fetchall() == [("main.visits",)]
    shown = con.execute("SELECT column_name, status FROM dp_domain('visits') WHERE kind IS NULL OR kind <> 'rule'").fetchall()
    said = dict(shown)
    assert said["cost"] == "declared" and said["patient_id"] == "the privacy unit" and said["visit_id"].startswith("left out")
    assert con.execute("SELECT labels FROM dp_domain('visits') WHERE kind = 'rule'").fetchall() == [('"cost" >= 0',)]
    assert "cost" not in dict(con.execute("SELECT column_name, status FROM dp_domain('patients')").fetchall())


def test_the_root_is_charged_and_the_entry_names_what_was_read(con):
    before = con.execute("SELECT epsilon_spent FROM dp_budget('patients')").fetchall()
    con.execute("FROM dp_marginals('visits', columns := ['cost'], epsilon := 0.25)")
    con.execute("FROM dp_query('SELECT code, count(*) FROM procedures GROUP BY code', epsilon := 0.25, max_rows := 100)")
    con.execute("FROM dp_marginals('patients', columns := ['sex'], epsilon := 0.25)")
    assert con.execute("SELECT epsilon_spent FROM dp_budget('visits')").fetchall() > before
    rows = con.execute("SELECT source, query, parameters FROM dpsql.ledger WHERE action = 'charge' ORDER BY entry").fetchall()
    assert [source for source, _, _ in rows] == ["main.patients"] * 3
    said = [json.loads(parameters).get("linked") for _, _, parameters in rows]
    assert [None if one is None else one["root"] for one in said] == ["main.patients", "main.patients", None]
    assert "main.visits" in said[0]["tables"] and {"main.procedures", "main.visits"} <= set(said[1]["tables"])
    assert rows[0][1] == "main.visits" and rows[2][1] == "main.patients"
    charges = con.execute("SELECT count(*) FROM dpsql.ledger").fetchall()
    con.execute("FROM dp_marginals('visits', columns := ['cost'], epsilon := 0.25)")  # bought already
    assert con.execute("SELECT count(*) FROM dpsql.ledger").fetchall() == charges
    assert con.execute("SELECT bool_and(chain_holds) FROM dp_ledger()").fetchall() == [(True,)]
    listed = con.execute("SELECT release FROM dp_releases('visits') ORDER BY 1").fetchall()
    assert listed == con.execute("SELECT release FROM dp_releases('patients') ORDER BY 1").fetchall() and len(listed) == 3


def test_a_link_is_mended_until_its_table_is_read(con):
    con.execute("FROM dp_marginals('patients', columns := ['sex'], epsilon := 0.25)")
    con.execute("ALTER TABLE visits ADD COLUMN doctor INTEGER")
    con.execute("CALL dp_link('visits', 'doctor', parent := 'patients')")
    con.execute("CALL dp_link('visits', 'patient_id', parent := 'patients')")
    con.execute("FROM dp_query('SELECT code, count(*) FROM procedures GROUP BY code', epsilon := 0.25)")
    with pytest.raises(duckdb.Error, match="Releases have read it under that link"):
        con.execute("CALL dp_link('visits', 'doctor', parent := 'patients')")


def test_what_was_bought_is_read_again_whatever_the_link_says_since(con):
    first = con.execute("FROM dp_marginals('visits', columns := ['cost'], epsilon := 0.25)").fetchall()
    con.execute("CALL dp_link('visits', max_rows := 3)")
    assert con.execute("FROM dp_marginals('visits', columns := ['cost'], epsilon := 0.25)").fetchall() == first


def test_nothing_linked_changes_no_text_of_an_entry(con):
    con.execute("CREATE TABLE alone AS SELECT true AS yes FROM range(100)")
    con.execute("CALL dp_protect('alone', epsilon := 1, delta := 1e-9)")
    con.execute("FROM dp_marginals('alone', columns := ['yes'], epsilon := 0.25)")
    ((said,),) = con.execute("SELECT parameters FROM dpsql.ledger WHERE source = 'main.alone' AND action = 'charge'").fetchall()
    assert "linked" not in said


def test_no_protected_table_is_named_as_a_public_list(con):
    """A foreign key to a table of people is no list that anybody may read: `categories_from` refuses it, so nothing names it."""
    con.execute("CREATE TABLE bills (visit_id BIGINT REFERENCES visits (visit_id), ward VARCHAR)")
    con.execute("CREATE TABLE wards (ward VARCHAR PRIMARY KEY)")
    con.execute("CREATE TABLE beds (visit_id BIGINT REFERENCES visits (visit_id), ward VARCHAR REFERENCES wards (ward))")
    con.execute("CALL dp_protect('bills', epsilon := 1, delta := 1e-9)")
    con.execute("CALL dp_protect('beds', epsilon := 1, delta := 1e-9)")
    for table, hinted in (("bills", set()), ("beds", {"ward"})):
        said = dict(con.execute(f"SELECT column_name, status FROM dp_domain('{table}')").fetchall())
        assert {name for name, status in said.items() if "categories_from" in status} == hinted
