"""Books go with their database: exported and imported, attached, copied in SQL, copied as a file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpsql

ASK = "FROM dp_query('SELECT count(*) FROM {}t', epsilon := 1)"


@pytest.fixture
def sold(tmp_path: Path) -> Iterator[Path]:
    """A closed database in which an answer was bought, and its export."""
    path = tmp_path / "sold.duckdb"
    with duckdb.connect(str(path)) as con:
        dpsql.load(con, user="tester")
        con.execute("CREATE TABLE t AS SELECT i AS u, i % 5 AS x, 'it''s' AS note FROM range(100) AS numbers(i)")
        con.execute("CREATE VIEW v AS SELECT x FROM t")
        con.execute("CALL dp_protect('t', epsilon := 5, delta := 1e-9)")
        con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 4)")
        con.execute("CREATE TABLE answer AS " + ASK.format(""))
        con.execute(f"EXPORT DATABASE '{tmp_path / 'export'}'")
    yield path


def spent(con: duckdb.DuckDBPyConnection) -> list[tuple[object, ...]]:
    """Return what the books say, and whether their chain holds."""
    assert con.execute("SELECT bool_and(chain_holds), count(*) FROM dp_ledger()").fetchone() == (True, 3)
    return con.execute("SELECT source, epsilon_spent, books FROM dp_budget()").fetchall()


@pytest.mark.any_duckdb  # DuckDB 1.x writes a column that is called "column" without quotes, and cannot read it
def test_an_export_is_imported_where_the_functions_are_there_first(sold: Path, tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "new.duckdb")) as con:
        dpsql.load(con, store=f"{sold}.dpsql", macros=False)
        assert con.execute("SELECT count(*) FROM duckdb_functions() WHERE function_name = 'dp_query' AND database_name = 'new'").fetchone() == (0,)
        con.execute(f"IMPORT DATABASE '{tmp_path / 'export'}'")
        dpsql.load(con)
        before = spent(con)
        assert con.execute(ASK.format("")).fetchall() == con.execute("FROM answer").fetchall()
        assert spent(con) == before
        assert con.cursor().execute("SELECT count(*) FROM v").fetchone() == (100,)
        with pytest.raises(duckdb.Error, match="raw rows"):
            con.execute("FROM dp_query('SELECT note FROM t', epsilon := 1)")


def test_the_books_of_an_attached_database_are_its_own(sold: Path, tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "other.duckdb")) as con:
        dpsql.load(con)
        con.execute(f"ATTACH '{sold}' AS theirs (READ_ONLY)")
        assert con.execute(ASK.format("theirs.")).fetchall() == con.execute("FROM theirs.answer").fetchall()
        assert spent(con)
        with pytest.raises(duckdb.Error, match="read-only"):
            con.execute("FROM dp_query('SELECT sum(x) FROM theirs.t', epsilon := 1)")


def test_a_database_that_is_copied_in_sql_takes_its_books_along(sold: Path, tmp_path: Path) -> None:
    with duckdb.connect() as con:
        dpsql.load(con)
        con.execute(f"ATTACH '{sold}' AS theirs (READ_ONLY); ATTACH '{tmp_path / 'copy.duckdb'}' AS copied; COPY FROM DATABASE theirs TO copied")
    with duckdb.connect(str(tmp_path / "copy.duckdb")) as con:
        dpsql.load(con, store=f"{sold}.dpsql")
        assert spent(con)
        assert con.execute(ASK.format("")).fetchall() == con.execute("FROM answer").fetchall()


def test_a_file_is_copied_with_the_folder_of_its_releases(sold: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(sold, tmp_path / "backup.duckdb"))
    with duckdb.connect(str(path)) as con:
        dpsql.load(con)
        with pytest.raises(duckdb.Error, match="the release store was moved"):
            con.execute(ASK.format(""))
        shutil.copytree(f"{sold}.dpsql", f"{path}.dpsql")
        assert con.execute(ASK.format("")).fetchall() == con.execute("FROM answer").fetchall()
        assert spent(con)
