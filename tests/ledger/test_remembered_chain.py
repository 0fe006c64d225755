"""A chain that was found to hold is not hashed again; whatever changes in it is still found, in the same process."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from sample_tables import make_people, protect_people

import dpsql
from dpsql.books import chain, hashes
from dpsql.books.entries import FIELDS
from dpsql.books.ledger import Ledger
from dpsql.books.schema import Books

TYPES = {"entry": "DOUBLE", "epsilon": "DOUBLE", "rho": "DECIMAL(38,20)", "written_at": "TIMESTAMPTZ", "max_contributions": "BIGINT[]"}


@pytest.fixture(scope="module")
def books() -> Iterator[duckdb.DuckDBPyConnection]:
    con = duckdb.connect()
    make_people(con, 100)
    dpsql.load(con)
    protect_people(con)
    con.execute("FROM dp_marginals('people', columns := ['sex'], epsilon := 0.1, release := 'a')")
    con.execute("FROM dp_budget()")
    con.execute("DROP VIEW IF EXISTS dpsql.budgets; DROP VIEW IF EXISTS dpsql.releases; DROP VIEW IF EXISTS dpsql.chain")
    con.execute("CREATE TABLE kept AS FROM dpsql.ledger")
    yield con
    con.close()


@pytest.fixture
def con(books: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """The books as they were, without constraints."""
    books.execute("CREATE OR REPLACE TABLE dpsql.ledger AS FROM kept")
    return books


def holds(con: duckdb.DuckDBPyConnection) -> bool:
    """Ask as a purchase does: with all entries at hand."""
    ledger = Ledger(Books(con.cursor(), "memory"), "main.people", "tester")
    with ledger.whole():
        return ledger.chain_holds()


def test_entries_are_hashed_once(con, monkeypatch):
    monkeypatch.setattr(chain, "_known", {})
    hashed: list[object] = []
    hash_of = hashes.entry_hash
    monkeypatch.setattr(hashes, "entry_hash", lambda texts: hashed.append(texts["entry"]) or hash_of(texts))
    assert holds(con) and hashed == ["1", "2", "3"]
    assert holds(con) and hashed == ["1", "2", "3"]
    con.execute("CREATE OR REPLACE TABLE dpsql.ledger AS FROM kept WHERE entry < 3")
    assert holds(con) and hashed == ["1", "2", "3", "1", "2"]  # it is not what was remembered
    con.execute("INSERT INTO dpsql.ledger FROM kept WHERE entry = 3")
    assert holds(con) and hashed == ["1", "2", "3", "1", "2", "3"]


@pytest.mark.parametrize("column", [*FIELDS, "hash"])
def test_a_change_of_any_value_is_found(con, column):
    kind = FIELDS.get(column, "VARCHAR")
    changed = {
        "INTEGER": f"coalesce({column}, 1) + 1", "TIMESTAMP": f"{column} + INTERVAL 1 MICROSECOND", "VARCHAR": f"coalesce({column}, '') || ' '",
    }.get(kind, f"coalesce({column}, 0) + 1e-24::{kind}")
    for entry in range(1, 3 if column == "source" else 4):  # the newest entry of another table is only missing: see anchors
        con.execute("CREATE OR REPLACE TABLE dpsql.ledger AS FROM kept")
        assert holds(con)
        con.execute(f"UPDATE dpsql.ledger SET {column} = {changed} WHERE entry = {entry}")
        assert not holds(con), entry
        assert not holds(con), entry


@pytest.mark.parametrize("column", [*FIELDS, "hash"])
def test_values_that_change_places_are_found(con, column):
    """The same values, in the same number of rows: of other entries, by twos and in a circle."""
    for entries in ([1, 2], [2, 3], [1, 2, 3]):
        con.execute("CREATE OR REPLACE TABLE dpsql.ledger AS FROM kept")
        before = con.execute("SELECT entry, * FROM dpsql.ledger ORDER BY entry ASC").fetchall()
        assert holds(con)
        after = ", ".join(map(str, [*entries[1:], entries[0]]))
        con.execute(
            f"UPDATE dpsql.ledger SET {column} = other.{column} FROM kept AS other "
            f"WHERE ledger.entry IN ({', '.join(map(str, entries))}) AND other.entry = [{after}][list_position({entries}, ledger.entry)]"
        )
        changed = con.execute("SELECT entry, * FROM dpsql.ledger ORDER BY entry ASC").fetchall() != before
        assert holds(con) is not changed, entries


@pytest.mark.parametrize("column", TYPES)
def test_another_type_of_equal_values_is_found(con, column):
    assert holds(con)
    con.execute(f"ALTER TABLE dpsql.ledger ALTER {column} TYPE {TYPES[column]} USING {'NULL' if '[' in TYPES[column] else column}")
    assert not holds(con)


def test_a_gap_and_an_entry_twice_are_found(con):
    assert holds(con)
    con.execute("DELETE FROM dpsql.ledger WHERE entry = 2")
    assert not holds(con)
    con.execute("INSERT INTO dpsql.ledger FROM kept WHERE entry = 2")
    assert holds(con)
    con.execute("INSERT INTO dpsql.ledger FROM kept WHERE entry = 2")
    assert not holds(con)
