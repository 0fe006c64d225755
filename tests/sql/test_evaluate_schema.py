"""dp_evaluate of a schema of linked tables, called as a custodian does."""

from __future__ import annotations

import duckdb
import pytest

import dpsql


@pytest.fixture
def con() -> duckdb.DuckDBPyConnection:
    """Patients with visits and procedures, and an equal copy under other keys; what is declared, types declare."""
    con = duckdb.connect()
    con.execute(
        """CREATE TYPE sexes AS ENUM ('f', 'm');
        CREATE TABLE patients (patient_id INTEGER PRIMARY KEY, sex sexes NOT NULL);
        CREATE TABLE visits (visit_id INTEGER PRIMARY KEY, patient_id INTEGER, urgent BOOLEAN,
            cost INTEGER CHECK (cost BETWEEN 0 AND 99));
        CREATE TABLE procedures (visit_id INTEGER, kept BOOLEAN);
        INSERT INTO patients SELECT i, ['f', 'm'][i % 2 + 1] FROM range(100) t(i);
        INSERT INTO visits SELECT i, i * i % 100, i % 3 = 0, i % 100 FROM range(260) t(i);
        INSERT INTO procedures SELECT i % 200, i % 7 = 0 FROM range(500) t(i);
        CREATE SCHEMA synth;
        CREATE TABLE synth.patients AS SELECT patient_id + 1000::BIGINT AS patient_id, sex FROM patients;
        CREATE TABLE synth.visits AS SELECT visit_id + 7::BIGINT AS visit_id, patient_id + 1000::BIGINT AS patient_id, urgent, cost
            FROM visits;
        CREATE TABLE synth.procedures AS SELECT visit_id + 7::BIGINT AS visit_id, kept FROM procedures"""
    )
    dpsql.load(con)
    con.execute("CALL dp_protect('patients', epsilon := 3, delta := 1e-9, privacy_unit := 'patient_id', max_contributions := 1)")
    con.execute("CALL dp_link('visits', 'patient_id', parent := 'patients', max_rows := 20)")
    con.execute("CALL dp_link('procedures', 'visit_id', parent := 'visits', max_rows := 5)")
    return con


def test_an_equal_copy_has_no_error(con: duckdb.DuckDBPyConnection) -> None:
    found = con.execute("FROM dp_evaluate('patients', 'synth')").df()
    assert (found["error"] == 0).all() and (found["largest"] == 0).all()
    assert not found["private"].any()
    assert found["level"].iloc[0] == "summary"
    across = found[found["measure"] == "parent and child"]
    assert {("procedures", "kept", "patients", "sex"), ("visits", "urgent", "patients", "sex")} <= set(
        across[["table_name", "column_name", "other_table", "other_column"]].itertuples(index=False, name=None)
    )
    assert (found["measure"] == "question").any()
    columns = set(found.loc[~found["measure"].isin(["question", "broken rule"]), "column_name"].dropna())
    assert {"sex", "urgent", "cost", "kept", "count(visits)", "count(procedures)"} == columns  # no key, no link


def test_nothing_is_charged_and_the_python_function_is_the_same(con: duckdb.DuckDBPyConnection) -> None:
    before = con.execute("FROM dp_ledger('patients')").fetchall()
    relation = dpsql.evaluate(con, "patients", "memory.synth")
    assert len(relation.fetchall()) > 40
    assert con.execute("FROM dp_ledger('patients')").fetchall() == before
    assert con.execute("SELECT count(*) FROM duckdb_tables() WHERE temporary").fetchone() == (0,)


def test_orphans_of_a_synthetic_database_are_shown(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("UPDATE synth.visits SET patient_id = NULL WHERE visit_id < 10")
    found = con.execute(
        "SELECT raw, synthetic, error FROM dp_evaluate('patients', 'synth') WHERE measure = 'orphans' AND table_name = 'visits'"
    ).fetchall()
    assert found == [(0, 3, 3)]


def test_a_table_of_the_schemas_name_comes_first(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE synth AS FROM patients")
    assert "k" in con.execute("FROM dp_evaluate('patients', 'synth')").df().columns


def test_errors_name_what_is_missing(con: duckdb.DuckDBPyConnection) -> None:
    for call, text in (
        ("'patients', 'nowhere'", "synthetic"),
        ("'visits', 'synth'", r"is linked to main\.patients"),
        ("'patients', 'synth', report := 'values'", "report"),
    ):
        with pytest.raises(duckdb.Error, match=text):
            con.execute(f"FROM dp_evaluate({call})").fetchall()
    con.execute("ALTER TABLE synth.visits DROP urgent")
    with pytest.raises(duckdb.Error, match=r"(?s)'urgent' is missing.*'visits'"):
        con.execute("FROM dp_evaluate('patients', 'synth')").fetchall()
    con.execute("DROP TABLE synth.visits")
    with pytest.raises(duckdb.Error, match="no table 'visits'"):
        con.execute("FROM dp_evaluate('patients', 'synth')").fetchall()


def test_a_table_that_nothing_is_linked_to_has_no_schema(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE alone (yes BOOLEAN); CALL dp_protect('alone', epsilon := 1, delta := 1e-9)")
    with pytest.raises(duckdb.Error, match="no table is linked"):
        con.execute("FROM dp_evaluate('alone', 'synth')").fetchall()


def test_rows_that_break_a_rule_are_counted(con: duckdb.DuckDBPyConnection) -> None:
    """A rule inside a table, and one over three tables, with NULLs and a rule that names the same column twice."""
    con.execute("ALTER TABLE patients ADD COLUMN born INTEGER")
    con.execute("UPDATE patients SET born = patient_id % 50")
    con.execute("CALL dp_declare('patients', 'born', lower := 0, upper := 99)")
    con.execute("CREATE OR REPLACE TABLE synth.patients AS SELECT * REPLACE (patient_id + 1000::BIGINT AS patient_id) FROM patients")
    across = "visits.cost >= patients.born OR NOT kept"
    con.execute("CALL dp_rule('visits', 'cost <= 90 OR urgent')")
    con.execute(f"CALL dp_rule('procedures', '{across}')")
    con.execute("UPDATE synth.visits SET cost = NULL WHERE visit_id % 10 = 0")
    found = con.execute(
        "SELECT table_name, column_name, raw, synthetic, error FROM dp_evaluate('patients', 'synth') "
        "WHERE measure = 'broken rule' AND level <> 'summary' AND NOT contains(column_name, 'BETWEEN') ORDER BY ALL"
    ).fetchall()
    expected = []
    for schema in ("main", "synth"):
        rows = f"{schema}.procedures JOIN {schema}.visits USING (visit_id) JOIN {schema}.patients USING (patient_id)"
        expected.append(con.execute(
            f"SELECT (SELECT count(*) FROM {rows} WHERE NOT ({across})), (SELECT count(*) FROM {schema}.visits WHERE cost > 90 AND NOT urgent)"
        ).fetchone())  # fmt: skip
    assert min(min(counts) for counts in expected) > 0
    assert [(row[0], *row[2:]) for row in found] == [
        ("procedures", expected[0][0], expected[1][0], expected[1][0]),
        ("visits", expected[0][1], expected[1][1], expected[1][1]),
    ]
