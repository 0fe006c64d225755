"""An encrypted database: its releases are not encrypted, so they lie beside it only where the custodian named the folder."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import dpsql

ASKED = "FROM dp_query('SELECT g, count(*) AS n FROM people GROUP BY 1', epsilon := 0.5)"


def opened(path: Path, **given: object) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    try:  # what encrypts well is an extension, which a test cannot install
        con.execute("SET force_mbedtls_unsafe = true")
    except duckdb.CatalogException:
        pytest.skip("this DuckDB encrypts by an extension alone")
    con.execute(f"ATTACH '{path}' AS census (ENCRYPTION_KEY 'a key of this test')")
    con.execute("USE census")
    dpsql.load(con, **given)
    return con


def test_nothing_lies_in_the_clear_beside_it_unless_the_custodian_says_where(tmp_path):
    path, folder = tmp_path / "census.duckdb", tmp_path / "releases"
    with opened(path) as con:
        con.execute("CREATE TABLE people AS SELECT 'zebra' || i % 2 AS g FROM range(100) t(i)")
        con.execute("CALL dp_protect('people', epsilon := 1, delta := 1e-9)")
        con.execute("CALL dp_declare('people', 'g', categories := ['zebra0', 'zebra1'], nullable := false)")
        for call in (ASKED, "FROM dp_synthesize('people', epsilon := 0.5)", "FROM dp_marginals('people', epsilon := 0.5)"):
            with pytest.raises(duckdb.Error, match=r"database census is encrypted.*dpsql\.load\(con, store='folder'\)"):
                con.execute(call)
        assert con.execute("SELECT DISTINCT action FROM dp_ledger()").fetchall() == [("protect",)]
    assert [found.name for found in tmp_path.iterdir()] == ["census.duckdb"]
    assert b"zebra" not in path.read_bytes()
    with opened(path, store=folder) as con:
        assert len(con.execute(ASKED).fetchall()) == 2
        assert con.execute("SELECT count(*) FROM dp_ledger() WHERE action = 'charge'").fetchone() == (1,)
        assert con.execute("SELECT current_setting('temp_file_encryption')").fetchone() == (True,)
    assert any(found.suffix == ".parquet" for found in folder.iterdir())
    assert b"zebra" not in path.read_bytes()


def test_nothing_that_does_not_fit_into_memory_lies_in_the_clear(tmp_path):
    path = tmp_path / "census.duckdb"
    with opened(path, store=tmp_path / "releases") as con:
        con.execute("CREATE TABLE people AS SELECT 'zebra' || i % 2 AS g FROM range(100) t(i)")
        con.execute("CALL dp_protect('people', epsilon := 1, delta := 1e-9)")
    for read in ("FROM dp_query_exact('SELECT count(*) FROM people')", "FROM dp_budget('people')"):  # for the custodian too
        with opened(path, store=tmp_path / "releases") as con:
            con.execute("SET GLOBAL temp_file_encryption = false")
            con.execute(read)
            assert con.execute("SELECT current_setting('temp_file_encryption')").fetchone() == (True,)
    with opened(path, store=tmp_path / "releases") as con:
        con.execute("SET GLOBAL temp_file_encryption = false")
        con.execute("SET GLOBAL disabled_optimizers = 'common_subplan'")
        con.execute("SET lock_configuration = true")
        with pytest.raises(duckdb.Error, match="SET GLOBAL temp_file_encryption = true"):
            con.execute("FROM dp_query('SELECT count(*) FROM people', epsilon := 0.5)")
        assert con.execute("SELECT DISTINCT action FROM dp_ledger()").fetchall() == [("protect",)]
