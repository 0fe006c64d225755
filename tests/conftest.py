"""Shared fixtures: small protected tables on disk and in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import hypothesis
import pytest

import dpsql

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, max_examples=50, print_blob=True)
hypothesis.settings.load_profile("ci")

DELTA = 2.0**-30


@pytest.fixture
def shared() -> Path:
    """Folder of public data sets; tests that need it skip where it is missing."""
    folder = Path(os.environ.get("DPSQL_SHARED", Path(__file__).parents[2] / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip("the folder of public data sets is not here (DPSQL_SHARED)")
    return folder


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


@pytest.fixture
def con(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database file with the protected table ``people`` (epsilon 5, delta 2^-30)."""
    connection = duckdb.connect(str(tmp_path / "people.duckdb"))
    make_people(connection)
    dpsql.load(connection, user="tester")
    protect_people(connection)
    yield connection
    connection.close()


@pytest.fixture
def charges(con: duckdb.DuckDBPyConnection) -> Callable[[], int]:
    """Number of charges in the books, counted by another cursor."""

    def count() -> int:
        row = con.cursor().execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone()
        return row[0] if row else 0

    return count
