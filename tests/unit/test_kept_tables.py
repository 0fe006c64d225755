"""What follows from a table's text is looked up once for each text: never of a text that has changed, came between, or hides a part."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from dpsql.source import catalog as looked_in
from dpsql.source.catalog import Catalog
from dpsql.source.model import TableId

pytestmark = pytest.mark.any_duckdb
TABLE = TableId("memory", "main", "t")
FACTS = ("columns", "collated", "checks", "references")


@pytest.fixture
def cursor() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("CREATE TABLE p(a INTEGER PRIMARY KEY)")
    con.execute("CREATE TABLE t(a INTEGER REFERENCES p(a), b VARCHAR COLLATE nocase, c ENUM('x', 'y'), CHECK (a > 0))")
    return con


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that were asked of a table itself, beside its entry in the catalog."""
    texts: list[str] = []
    describe, rows, collated = Catalog.describe, looked_in._rows, Catalog._look_collated

    def described(self: Catalog, query: str) -> Any:
        texts.extend([] if query in self._described else ["describe"])
        return describe(self, query)

    def read(cursor: duckdb.DuckDBPyConnection, query: str, parameters: dict[str, Any]) -> Any:
        texts.extend(["constraints"] if query == looked_in._CONSTRAINTS else [])
        return rows(cursor, query, parameters)

    def looked(self: Catalog, table: TableId) -> set[str]:
        texts.append("collated")
        return collated(self, table)

    monkeypatch.setattr(Catalog, "describe", described)
    monkeypatch.setattr(looked_in, "_rows", read)
    monkeypatch.setattr(Catalog, "_look_collated", looked)
    return texts


def facts(cursor: duckdb.DuckDBPyConnection, kept: dict[Any, Any] | None) -> dict[str, Any]:
    """What a call looks up of the table."""
    catalog = Catalog(cursor, foreign={}, tables=kept)
    catalog.find(TABLE.database, TABLE.schema, TABLE.name)
    return {name: getattr(catalog, name)(TABLE) for name in FACTS}


def test_a_second_call_asks_for_nothing(cursor, asked):
    kept: dict[Any, Any] = {}
    first = facts(cursor, kept)
    assert sorted(asked) == ["collated", "constraints", "describe"]
    asked.clear()
    assert facts(cursor, kept) == first == facts(cursor, None) and first["collated"] == {"b"} and first["checks"]
    assert sorted(asked) == ["collated", "constraints", "describe"]  # those of the call that keeps nothing


@pytest.mark.parametrize("change", [
    "ALTER TABLE t ADD COLUMN d DOUBLE",
    "ALTER TABLE t ALTER b TYPE VARCHAR",
    "ALTER TABLE t RENAME b TO z",
    "ALTER TABLE t ALTER b SET NOT NULL",
    "DROP TABLE t; CREATE TABLE t(a INTEGER, b VARCHAR, c ENUM('x', 'y'))",
    "DROP TABLE t; CREATE TABLE t(a INTEGER REFERENCES p(a), b VARCHAR COLLATE nocase, c ENUM('x', 'z'), CHECK (a > 1))",
])
def test_a_table_that_was_changed_is_looked_at_anew(cursor, change):
    kept: dict[Any, Any] = {}
    before = facts(cursor, kept)
    try:
        cursor.execute(change)
    except duckdb.DependencyException:
        pytest.skip("this DuckDB changes no table that refers to another one")
    after = facts(cursor, kept)
    assert after == facts(cursor, None)
    if "TYPE VARCHAR" not in change:  # which keeps the collation on some versions
        assert after != before


def test_nothing_is_kept_of_a_table_that_changes_while_it_is_looked_at(cursor, monkeypatch):
    kept: dict[Any, Any] = {}
    rows = looked_in._rows

    def changing(other: duckdb.DuckDBPyConnection, query: str, parameters: dict[str, Any]) -> Any:
        if query == looked_in._CONSTRAINTS:
            cursor.execute("DROP TABLE t; CREATE TABLE t(a INTEGER, CHECK (a > 5))")
        return rows(other, query, parameters)

    monkeypatch.setattr(looked_in, "_rows", changing)
    catalog = Catalog(cursor, foreign={}, tables=kept)
    catalog.find(TABLE.database, TABLE.schema, TABLE.name)
    assert catalog.checks(TABLE) and all("constraints" not in one for one in kept.values())


@pytest.mark.parametrize("kind", ["VARCHAR[]", "STRUCT(x VARCHAR)", "MAP(VARCHAR, VARCHAR)", "mine", "VARCHAR[3]"])
def test_nothing_is_kept_of_types_that_hide_a_collation(kind):
    con, kept = duckdb.connect(), {}
    con.execute("CREATE TYPE mine AS VARCHAR[]")
    con.execute(f"CREATE TABLE t(a {kind})")
    facts(con, kept)
    assert kept == {}


def test_tables_that_are_not_looked_up_by_name_are_not_kept(cursor):
    kept: dict[Any, Any] = {}
    Catalog(cursor, foreign={}, tables=kept).columns(TABLE)
    assert kept == {}
