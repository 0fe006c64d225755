"""A process killed while it buys or writes a synthetic database: paid once, all tables or none, the same call finishes it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from linked_tables import link_patients, make_patients
from victims import killed, nursery

import dpsql

pytestmark = pytest.mark.any_duckdb

BUY = "FROM dp_synthesize_tables('patients', epsilon := 1, into_schema := 'synth', release := 'first', options := {'effort': 'fast'})"
OTHER = "FROM dp_sample('first', into_schema := 'synth', seed := 5)"
TABLES = ("patients", "procedures", "visits")
PLACES = [
    ("dpsql.kinds.linked.measure", "add_noise", 1),
    ("dpsql.rows.schemas", "model_of", 1),
    ("dpsql.rows.schemas", "create_sql", 3),  # within the rehearsal, before it is charged
    ("dpsql.rows.schemas", "create_sql", 9),  # after six of the rehearsal
    ("dpsql.rows.schemas", "run", "COMMIT"),  # after one call for each table with rows
    ("dpsql.rows.schemas", "_answer", 1),
]


@pytest.fixture(scope="module")
def victims() -> Iterator[subprocess.Popen[str]]:
    with nursery() as process:
        yield process


def opened(path: Path) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(str(path))
    dpsql.load(con, progress=False)
    return con


def content(con: duckdb.DuckDBPyConnection) -> list[object]:
    listed = con.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'synth' ORDER BY ALL ASC").fetchall()
    return [(name, con.execute(f"SELECT * FROM synth.{name} ORDER BY ALL ASC").fetchall()) for (name,) in listed]


def charges(con: duckdb.DuckDBPyConnection) -> int:
    assert con.execute("SELECT bool_and(chain_holds) FROM dp_ledger('patients')").fetchone() == (True,)
    return int(con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchall()[0][0])


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database file with linked tables, of which nothing was bought."""
    path = tmp_path_factory.mktemp("killed") / "clinic.duckdb"
    con = duckdb.connect(str(path))
    make_patients(con, 2000)  # of few, noise would leave one or none, and two draws of one patient are often equal
    dpsql.load(con, progress=False)
    link_patients(con)
    con.execute("CALL dp_declare('patients', 'sex', categories := ['f', 'm'])")
    con.execute("CALL dp_declare('patients', 'age', lower := 0, upper := 100, bins := 10)")
    con.execute("CALL dp_declare('visits', 'cost', lower := 0, upper := 100, bins := 10)")
    con.execute("CALL dp_declare('procedures', 'code', categories := ['c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6'])")
    con.close()
    return path.read_bytes()


@pytest.fixture
def path(declared: bytes, tmp_path: Path) -> Path:
    """A copy of it."""
    path = tmp_path / "clinic.duckdb"
    path.write_bytes(declared)
    return path


@pytest.mark.parametrize(("module", "name", "when"), PLACES)
def test_all_tables_or_none_and_one_charge(victims: subprocess.Popen[str], path: Path, module: str, name: str, when: int | str) -> None:
    killed(victims, path, module, name, when, BUY)
    con = opened(path)
    assert charges(con) == (0 if when == 3 else 1)
    written = content(con)
    assert [table for table, _ in written] == (list(TABLES) if name == "_answer" else [])  # it is committed by then
    assert len(con.execute(BUY).fetchall()) == len(TABLES)
    assert charges(con) == 1
    found = content(con)
    assert [table for table, _ in found] == list(TABLES)
    assert not written or written == found
    orphans = "SELECT count(*) FROM synth.visits v ANTI JOIN synth.patients p USING (patient_id)"
    assert con.execute(orphans).fetchone() == (0,)
    con.close()


@pytest.mark.parametrize(("module", "name", "when"), PLACES[4:-1])
def test_another_draw_that_is_killed_leaves_the_first_one(victims: subprocess.Popen[str], path: Path, module: str, name: str, when: int | str) -> None:
    con = opened(path)
    con.execute(BUY).fetchall()
    before = content(con)
    con.close()
    killed(victims, path, module, name, when, OTHER)
    con = opened(path)
    assert content(con) == before
    con.execute(OTHER).fetchall()
    assert content(con) != before
    assert charges(con) == 1
    con.close()
