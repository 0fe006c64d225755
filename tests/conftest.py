"""Shared fixtures: small protected tables on disk and in memory."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import hypothesis
import pytest
from case_counts import cases
from prepared import beside
from sample_tables import make_people, protect_people

import dpsql
from dpsql.answers import rehearsing
from dpsql.session.versions import newer
from dpsql.source.catalog import Catalog

pytest_plugins = ["duckdb_facts", "older_versions", "seeded_entropy"]
if newer(duckdb.__version__):  # child processes say on standard error what pyproject.toml has this one ignore
    os.environ["PYTHONWARNINGS"] = f"ignore:DuckDB {duckdb.__version__} is newer than any"

gc.disable()  # what is collected stays: looking through it again and again took as long as collecting it

hypothesis.settings.register_profile("cases", derandomize=True, deadline=None, max_examples=cases(50), print_blob=True)
hypothesis.settings.load_profile("cases")


def pytest_collection_finish() -> None:
    """Look for garbage from here on, and never again among modules and cases."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def shared() -> Path:
    """Folder of public data sets; tests that need it skip where it is missing."""
    folder = Path(os.environ.get("DPSQL_SHARED", Path(__file__).parents[2] / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip("the folder of public data sets is not here (DPSQL_SHARED)")
    return folder


@pytest.fixture(scope="session")
def protected_people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed database file with the protected table ``people``: tests copy it, which takes a tenth of making one."""
    path = tmp_path_factory.mktemp("protected") / "people.duckdb"
    with duckdb.connect(str(path)) as connection:
        make_people(connection)
        dpsql.load(connection, user="tester")
        protect_people(connection)
    return path


@pytest.fixture
def con(tmp_path: Path, protected_people: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database file with the protected table ``people`` (epsilon 5, delta 2^-30)."""
    connection = duckdb.connect(str(shutil.copy(protected_people, tmp_path / "people.duckdb")))
    dpsql.load(connection, user="tester")
    yield connection
    connection.close()


@pytest.fixture(scope="session")
def plain_database() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database that holds nothing and that nobody changes: making one takes longer than a statement."""
    with duckdb.connect() as connection:
        yield connection


@pytest.fixture
def plain(plain_database: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """A session in it, whose settings and temporary tables are its own."""
    with plain_database.cursor() as session:
        yield session


@pytest.fixture(scope="module")
def functions_as_shipped() -> Iterator[None]:
    """For many sources in a database without macros: not asking whether one stands for a function takes half of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Catalog, "changed_function", lambda self, names: None)
        patch.setattr(Catalog, "check_functions", lambda self, **given: None)
        yield


@pytest.fixture
def unrehearsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that write down what is read and drawn: a rehearsal reads and draws too, of made-up rows."""
    monkeypatch.setattr(rehearsing, "rehearse", lambda *given: None)


@pytest.fixture
def charges(con: duckdb.DuckDBPyConnection) -> Callable[[], int]:
    """Number of charges in the books, counted by another cursor."""

    def count() -> int:
        row = beside(con).execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone()
        return row[0] if row else 0

    return count
