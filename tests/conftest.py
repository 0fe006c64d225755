"""Shared fixtures: small protected tables on disk and in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import hypothesis
import pytest
from sample_tables import make_people, protect_people

import dpsql

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, max_examples=50, print_blob=True)
hypothesis.settings.load_profile("ci")

@pytest.fixture
def shared() -> Path:
    """Folder of public data sets; tests that need it skip where it is missing."""
    folder = Path(os.environ.get("DPSQL_SHARED", Path(__file__).parents[2] / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip("the folder of public data sets is not here (DPSQL_SHARED)")
    return folder


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
