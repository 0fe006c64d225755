"""A linked table that is gone, or is not what its link says, stops the releases that read it, and no others."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from linked_tables import link_patients, make_patients

import dpsql

pytestmark = pytest.mark.any_duckdb

COUNT = "FROM dp_query('SELECT count(*) FROM {}', epsilon := 0.1, release := '{}')"
BREAKS = {
    "the middle is gone": "DROP TABLE visits",
    "the leaf is gone": "DROP TABLE procedures",
    "both are gone": "DROP TABLE procedures; DROP TABLE visits",
    "the column is another one": "ALTER TABLE visits RENAME patient_id TO patient",
    "the type is another one": "ALTER TABLE visits ALTER patient_id TYPE VARCHAR",
}


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    make_patients(connection)
    dpsql.load(connection, user="tester")
    yield connection
    connection.close()


@pytest.mark.parametrize("change", BREAKS.values(), ids=BREAKS)
def test_the_root_is_sold_without_what_is_broken(con, change):
    link_patients(con)
    con.execute(change)
    ((n,),) = con.execute(COUNT.format("patients", "root")).fetchall()
    assert n == pytest.approx(50, abs=1000)
    assert con.execute("SELECT releases FROM dp_budget('patients')").fetchall() == [(1,)]


def test_what_reads_it_is_refused_with_a_way_out(con):
    link_patients(con)
    con.execute("ALTER TABLE visits RENAME patient_id TO patient")
    for table in ("visits", "procedures"):
        with pytest.raises(duckdb.Error, match="Releases that do not read main.visits go on without it"):
            con.execute(COUNT.format(table, table))
    assert con.execute("SELECT releases FROM dp_budget('patients')").fetchall() == [(0,)]
    con.execute("ALTER TABLE visits RENAME patient TO patient_id")
    con.execute(COUNT.format("procedures", "procedures")).fetchall()


@pytest.mark.parametrize("change", ["DROP TABLE visits", "ALTER TABLE visits RENAME patient_id TO patient"])
def test_units_of_a_root_of_rows_stay_what_they_were(con, change):
    con.execute("CALL dp_protect('patients', epsilon := 3, delta := 1e-9)")
    con.execute("CALL dp_link('visits', 'patient_id', parent := 'patients', max_rows := 20)")
    asked = "SELECT count(DISTINCT patient_id) FROM patients"
    bought = con.execute(f"FROM dp_query('{asked}', epsilon := 0.5)").fetchall()
    con.execute(change)
    assert con.execute(f"FROM dp_query('{asked}', epsilon := 0.5)").fetchall() == bought
    con.execute(COUNT.format("patients", "root")).fetchall()


def test_nothing_is_sold_of_a_root_of_rows_whose_key_is_none_any_more(con):
    con.execute("CALL dp_protect('patients', epsilon := 3, delta := 1e-9)")
    con.execute("CALL dp_link('visits', 'patient_id', parent := 'patients', max_rows := 20)")
    con.execute("CREATE TABLE people AS FROM patients; DROP TABLE patients; ALTER TABLE people RENAME TO patients")
    for table in ("patients", "visits"):
        with pytest.raises(duckdb.Error, match="Until it holds again nothing is sold of main.patients|is not declared unique"):
            con.execute(COUNT.format(table, table))
