"""Schemas and links that change after the charge and before a row is read: nothing is read, and the same call finishes once it is mended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest
from linked_tables import link_patients, make_patients

import dpsql
from dpsql.kinds import measures

pytestmark = pytest.mark.any_duckdb

JOINED = "SELECT p.sex, count(*) FROM visits v JOIN patients p USING (patient_id) GROUP BY p.sex"
CALLS = {
    "a table": "FROM dp_marginals('procedures', columns := ['code'], epsilon := 0.1)",
    "a query": f"FROM dp_query('{JOINED}', epsilon := 0.1, max_rows := 100)",
    "a chain": "FROM dp_query('SELECT count(*) FROM procedures', epsilon := 0.1, max_rows := 100)",
    "all tables": "FROM dp_synthesize_tables('patients', epsilon := 0.1, into_schema := 'synth', options := {'effort': 'fast'})",
}
CHANGES = {
    "a key is dropped": ("DROP INDEX key", "CREATE UNIQUE INDEX key ON patients (patient_id)"),
    "a key is dropped and a row there twice": (
        "DROP INDEX key; INSERT INTO patients FROM patients LIMIT 1",
        "CREATE OR REPLACE TABLE patients AS SELECT DISTINCT * FROM patients; CREATE UNIQUE INDEX key ON patients (patient_id)",
    ),
    "the parent is another table": (
        "DROP INDEX key; ALTER TABLE patients RENAME TO people; CREATE TABLE patients (patient_id INTEGER, sex VARCHAR, age INTEGER)",
        "DROP TABLE patients; ALTER TABLE people RENAME TO patients; CREATE UNIQUE INDEX key ON patients (patient_id)",
    ),
}


@pytest.fixture
def con(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(str(tmp_path / "clinic.duckdb"))
    make_patients(connection)
    connection.execute("CREATE TABLE people AS FROM patients; DROP TABLE patients; ALTER TABLE people RENAME TO patients")
    connection.execute("CREATE UNIQUE INDEX key ON patients (patient_id)")
    dpsql.load(connection, user="tester", progress=False)
    link_patients(connection)
    connection.execute("CALL dp_declare('patients', 'sex', categories := ['f', 'm'])")
    connection.execute("CALL dp_declare('visits', 'cost', lower := 0, upper := 100, bins := 4)")
    connection.execute("CALL dp_declare('procedures', 'code', categories := ['c0', 'c1', 'c2'])")
    yield connection
    connection.close()


def interfering(monkeypatch: pytest.MonkeyPatch, what: Callable[[], object]) -> list[int]:
    """Do something once, right after the charge; note each reading."""
    reads, unchanged, measure = [], measures.check_unchanged, measures.measure
    left = [what]

    def changed(*given):
        if left:
            left.pop()()
        unchanged(*given)

    monkeypatch.setattr(measures, "check_unchanged", changed)
    monkeypatch.setattr(measures, "measure", lambda *given: (reads.append(1), measure(*given))[1])
    return reads


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("call", CALLS)
def test_a_schema_that_changes_after_the_charge_is_not_read(con, monkeypatch, call, change):
    broken, mended = CHANGES[change]
    reads = interfering(monkeypatch, lambda: con.cursor().execute(broken))
    with pytest.raises(duckdb.Error, match="does not hold any more|is no PRIMARY KEY and not UNIQUE"):
        con.execute(CALLS[call])
    with pytest.raises(duckdb.Error, match="does not hold any more|is no PRIMARY KEY and not UNIQUE"):
        con.execute(CALLS[call])
    assert not reads
    con.execute(mended)
    assert con.execute(CALLS[call]).fetchall() and reads == [1]
    actions = con.execute("SELECT action FROM dpsql.ledger WHERE action IN ('charge', 'store', 'fail', 'refund')").fetchall()
    assert actions == [("charge",), ("store",)]


@pytest.mark.parametrize("call", [call for call in CALLS if call != "all tables"])
@pytest.mark.parametrize("more", ["max_rows := 3", "orphans := 'unit'"])
def test_a_link_that_changes_after_the_charge_is_not_read(con, monkeypatch, call, more):
    reads = interfering(monkeypatch, lambda: con.cursor().execute(f"CALL dp_link('visits', {more})"))
    with pytest.raises(duckdb.Error, match="does not hold any more: it was changed meanwhile"):
        con.execute(CALLS[call])
    con.execute("CALL dp_link('visits', max_rows := 20, orphans := 'drop')")
    assert not reads and con.execute(CALLS[call]).fetchall() and reads == [1]


@pytest.mark.parametrize(
    "call",
    [
        "SELECT n FROM dp_query('SELECT count(*) AS n FROM v', epsilon := 90, mechanism := 'laplace')",
        "SELECT sum(n) FROM dp_marginals('v', columns := ['x'], epsilon := 90)",
        "SELECT sum(units * 2) FROM dp_contributions('v', epsilon := 90)",
    ],
)
def test_what_changes_after_the_last_look_is_not_what_is_read(monkeypatch, call):
    """The keys of links are looked at in the state of the database that is read: 160 visits would be of 80 people with one key."""
    con = duckdb.connect()
    con.execute("CREATE TABLE p (id INTEGER PRIMARY KEY, person INTEGER); INSERT INTO p SELECT i, i FROM range(30) t(i)")
    con.execute("CREATE TABLE v AS SELECT (i % 30)::INTEGER AS id, (i % 2)::INTEGER AS x FROM range(60) t(i)")
    dpsql.load(con, user="tester", progress=False)
    con.execute("CALL dp_protect('p', epsilon := 500, delta := 1e-9, privacy_unit := 'person', max_contributions := 1)")
    con.execute("CALL dp_link('v', 'id', parent := 'p', parent_column := 'id', max_rows := 3)")
    con.execute("CALL dp_declare('v', 'x', categories := [0, 1], nullable := false)")
    measure = measures.measure

    def late(*given):
        con.cursor().execute("CREATE OR REPLACE TABLE p AS SELECT 0 AS id, i::INTEGER AS person FROM range(80) t(i)")
        return measure(*given)

    with monkeypatch.context() as patch:
        patch.setattr(measures, "measure", late)
        ((found,),) = con.execute(call).fetchall()
    assert 50 < found < 70
    with pytest.raises(duckdb.Error, match="is not declared unique"):
        con.execute("FROM dp_query('SELECT count(*) FROM v', epsilon := 9)")


def test_a_number_of_units_that_was_public_is_not_given_out_where_a_key_may_be_null_now(tmp_path, monkeypatch):
    con = duckdb.connect(str(tmp_path / "clinic.duckdb"))
    con.execute("CREATE TABLE patients (patient_id INTEGER NOT NULL, sex VARCHAR); CREATE TABLE visits (patient_id INTEGER, cost INTEGER)")
    con.execute("CREATE UNIQUE INDEX key ON patients (patient_id); INSERT INTO patients SELECT i, 'f' FROM range(40) t(i)")
    con.execute("INSERT INTO visits SELECT i % 40, i % 3 FROM range(100) t(i)")
    dpsql.load(con, user="tester", progress=False)
    con.execute("CALL dp_protect('patients', epsilon := 1, delta := 1e-9, privacy_unit := 'patient_id', max_contributions := 1, neighbors := 'replace_one')")
    con.execute("CALL dp_link('visits', 'patient_id', parent := 'patients', max_rows := 3)")
    con.execute("CALL dp_declare('patients', 'sex', categories := ['f', 'm'], nullable := false)")
    con.execute("CALL dp_declare('visits', 'cost', categories := [0, 1, 2])")
    before, after = "DROP INDEX key; ALTER TABLE patients ALTER patient_id", "CREATE UNIQUE INDEX key ON patients (patient_id)"
    looser = f"{before} DROP NOT NULL; INSERT INTO patients VALUES (NULL, 'f'); {after}"
    reads = interfering(monkeypatch, lambda: con.cursor().execute(looser))
    for _ in range(2):
        with pytest.raises(duckdb.Error, match="was public, and is not now"):
            con.execute(CALLS["all tables"])
    assert not reads
    con.execute(f"DELETE FROM patients WHERE patient_id IS NULL; {before} SET NOT NULL; {after}")
    assert con.execute(CALLS["all tables"]).fetchall()[0][1] == 40 and reads == [1]
    con.close()
