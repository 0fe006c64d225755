"""Patients, visits and procedures: tables that tests link."""

from __future__ import annotations

import duckdb

PROTECT = "CALL dp_protect('patients', epsilon := 3, delta := 1e-9, privacy_unit := 'patient_id', max_contributions := 1)"
VISITS = "CALL dp_link('visits', 'patient_id', parent := 'patients', max_rows := 20)"
PROCEDURES = "CALL dp_link('procedures', 'visit_id', parent := 'visits', max_rows := 5)"


def make_patients(con: duckdb.DuckDBPyConnection, patients: int = 50) -> None:
    """Make three tables; deterministic. Every tenth visit has no patient, and some patients have none of them."""
    con.execute(
        f"""
        CREATE TABLE patients (patient_id INTEGER PRIMARY KEY, sex VARCHAR, age INTEGER);
        CREATE TABLE visits (visit_id BIGINT UNIQUE, patient_id INTEGER, cost INTEGER);
        CREATE TABLE procedures (visit_id BIGINT, code VARCHAR);
        INSERT INTO patients SELECT i, CASE WHEN i % 2 = 0 THEN 'f' ELSE 'm' END, 20 + i % 60 FROM range({patients}) t(i);
        INSERT INTO visits SELECT i, CASE WHEN i % 10 = 9 THEN NULL ELSE i % {patients} END, i % 100 FROM range({4 * patients}) t(i);
        INSERT INTO procedures SELECT i % {5 * patients}, 'c' || i % 7 FROM range({8 * patients}) t(i);
        """
    )


def link_patients(con: duckdb.DuckDBPyConnection) -> None:
    """Protect and link them."""
    for statement in (PROTECT, VISITS, PROCEDURES):
        con.execute(statement)
