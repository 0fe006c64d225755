"""Small tables that tests protect."""

from __future__ import annotations

import duckdb

DELTA = 2.0**-30


def make_people(con: duckdb.DuckDBPyConnection, rows: int = 600) -> None:
    """A small table with dependence, NULLs, a unit column and several types; deterministic."""
    con.execute(
        f"""
        CREATE OR REPLACE TABLE people AS
        SELECT (i % 200)::INTEGER AS person,
            (18 + (i * 7) % 60)::SMALLINT AS age,
            (CASE WHEN i % 3 = 0 THEN 'f' ELSE 'm' END)::ENUM('f', 'm') AS sex,
            (CASE WHEN i % 11 = 0 THEN NULL WHEN i % 3 = 0 OR i % 7 = 1 THEN 'north' ELSE 'south' END)::VARCHAR AS region,
            i % 5 = 0 AS member,
            (DATE '2000-01-01' + (i * 13 % 3650)::INTEGER) AS joined
        FROM range({rows}) t(i)
        """
    )


def protect_people(con: duckdb.DuckDBPyConnection, epsilon: float = 5.0, **contract: object) -> None:
    given = "".join(f", {name} := {value!r}" for name, value in contract.items())
    con.execute(f"CALL dp_protect('people', epsilon := {epsilon}, delta := {DELTA}{given})")
    con.execute("CALL dp_declare('people', 'age', lower := 18, upper := 78, bins := 6, nullable := false)")
    con.execute("CALL dp_declare('people', 'region', categories := ['north', 'south'])")
