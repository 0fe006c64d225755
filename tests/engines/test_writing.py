"""Synthetic rows that are kept where the source is: files and tables, never over something else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
import sail

import dpsql
from dpsql.engines.remote import Remote
from dpsql.engines.spark import session
from dpsql.engines.spark.writing import SparkWriter
from dpsql.errors import ArgumentError, DpsqlError

pytestmark = pytest.mark.any_duckdb


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    folder = tmp_path_factory.mktemp("lake")
    sail.copy(f"COPY (SELECT i % 7 AS age, CASE WHEN i % 2 = 0 THEN 'f' END AS sex FROM range(90) t(i)) TO '{folder / 'p.parquet'}' (FORMAT parquet)")
    made = sail.remote(Path(":memory:writing"), "people", folder)
    dpsql.declare(made, "people", "age", lower=0, upper=6, nullable=False)
    dpsql.declare(made, "people", "sex", categories=["f", "m"])
    yield made
    made.close()


def test_a_folder_of_files(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    call = f"FROM dp_synthesize('people', epsilon := 9, rows := 40, into_table := 'spark:parquet:{tmp_path / 'out'}')"
    [[name, rows, release]] = con.execute(call).fetchall()
    assert (name, rows) == (f"spark:parquet:{tmp_path / 'out'}", 40)
    own = duckdb.connect()
    there = own.sql(f"SELECT * FROM '{tmp_path / 'out'}/*.parquet'")
    assert there.columns == ["age", "sex"] and list(map(str, there.types)) == ["BIGINT", "VARCHAR"]
    drawn = con.execute(f"FROM dp_sample('{release}', rows := 40)").fetchall()
    assert sorted(map(repr, there.fetchall())) == sorted(map(repr, drawn))
    with pytest.raises(duckdb.Error, match="exists already"):
        con.execute(call).fetchall()
    assert con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone() == (1,)


def test_what_is_not_there_to_write_to(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE IF NOT EXISTS here AS SELECT 1 AS x")
    dpsql.protect(con, "here", epsilon=1, delta=1e-9)
    dpsql.declare(con, "here", "x", lower=0, upper=3)
    with pytest.raises(duckdb.Error, match="are not in Spark"):
        con.execute("FROM dp_synthesize('here', epsilon := .5, into_table := 'spark:out')").fetchall()


def test_a_table_that_is_written_or_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tables of Sail's own catalog live as long as a session, and are in a folder where its process is: one for all of this."""
    monkeypatch.chdir(tmp_path)
    own = sail.session()
    monkeypatch.setattr(session, "session", lambda url: own)
    monkeypatch.setattr(session, "close", lambda found: None)
    with duckdb.connect() as con:
        rows = con.sql("SELECT i AS a, 'x' || i AS b, DATE '2020-01-01' AS c FROM range(5) t(i)").to_arrow_table()
    columns = [("a", "BIGINT"), ("b", "VARCHAR"), ("c", "DATE")]
    writer = SparkWriter(Remote("spark", sail.url(), "x"), "made_here")
    writer.check(columns)
    with pytest.raises(ArgumentError, match="TIME, which Spark lacks"):
        writer.check([("t", "TIME")])
    with pytest.raises(DpsqlError, match="another number of rows"):
        writer.write([rows.slice(0, 2)], columns, 5)
    assert not own.catalog.tableExists("made_here")
    writer.write([rows.slice(0, 2), rows.slice(2)], columns, 5)
    assert own.table("made_here").count() == 5
    with pytest.raises(ArgumentError, match="exists already"):
        writer.check(columns)
    own.sql("DROP TABLE made_here").collect()
