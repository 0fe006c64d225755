"""Books of an older version have no rules: they open, sell and show as before, and take the first rule when it is declared."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest

import dpsql

OLDER = Path(__file__).parents[1] / "data/older"


def tables(con: duckdb.DuckDBPyConnection) -> set[str]:
    return {name for (name,) in con.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'dpsql'").fetchall()}


@pytest.fixture
def older(tmp_path):
    shutil.copytree(OLDER, tmp_path / "older")
    return tmp_path / "older"


def test_an_older_book_takes_rules(older):
    con = duckdb.connect(str(older / "older.duckdb"))
    dpsql.load(con, store=older / "store", progress=False)
    before = con.execute("FROM dp_domain('people')").fetchall()
    assert "rules" not in tables(con)
    assert con.execute("SELECT rules FROM (SELECT [n FOR n IN notes IF contains(n, 'rule')] AS rules FROM dp_plan('people', epsilon := 0.1, release := 'x'))").fetchone() == ([],)
    ledger = con.execute("SELECT source, entry, hash FROM dpsql.ledger ORDER BY ALL").fetchall()
    con.execute("FROM dp_rule('people', 'age >= 1 OR sex IS NULL')")
    assert "rules" in tables(con)
    found = con.execute("FROM dp_domain('people')").fetchall()
    assert found[: len(before)] == before
    assert [(row[0], row[2], row[4], row[7]) for row in found[len(before) :]] == [("age, sex", "rule", '"age" >= 1 OR "sex" IS NULL', "declared")]
    con.execute("CREATE TABLE made AS FROM dp_synthesize('people', epsilon := 0.1, release := 'ruled')")
    assert con.execute("SELECT count(*) FROM made WHERE NOT (age >= 1 OR sex IS NULL)").fetchone() == (0,)
    assert con.execute("SELECT source, entry, hash FROM dpsql.ledger ORDER BY ALL").fetchall()[: len(ledger)] != []
    assert set(ledger) <= set(con.execute("SELECT source, entry, hash FROM dpsql.ledger").fetchall())
    assert con.execute("SELECT bool_and(chain_holds) FROM dp_ledger()").fetchone() == (True,)
    con.close()


def test_an_older_book_that_cannot_be_written_is_read(older):
    con = duckdb.connect(str(older / "older.duckdb"), read_only=True)
    with pytest.raises(duckdb.Error, match="macro|read-only|does not exist"):
        con.execute("FROM dp_domain('people')").fetchall()
    con.close()
    con = duckdb.connect()
    dpsql.load(con, store=older / "store", progress=False)
    con.execute(f"ATTACH '{older / 'older.duckdb'}' AS o (READ_ONLY)")
    assert con.execute("SELECT count(*) FROM dp_domain('o.main.people') WHERE kind = 'rule'").fetchone() == (0,)
    with pytest.raises(duckdb.Error, match="cannot be created in database 'o'"):
        con.execute("FROM dp_rule('o.main.people', 'age >= 1')")
    con.close()
