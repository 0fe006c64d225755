"""The catalog of a call looks everything up once; another call, and what is checked after a charge, looks anew."""

from __future__ import annotations

from typing import Any

import duckdb

from dpsql.source.catalog import Catalog
from dpsql.source.model import TableId


class Counting:
    """A cursor that counts the statements it is given."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor, self.count = cursor, 0

    def __getattr__(self, name: str) -> Any:
        self.count += name == "execute"
        return getattr(self._cursor, name)


def test_keys_are_looked_up_once() -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE t(a INTEGER PRIMARY KEY, b INTEGER, c INTEGER, UNIQUE (b, c)); CREATE UNIQUE INDEX i ON t(c)")
    cursor, table = Counting(con.cursor()), TableId("memory", "main", "t")
    catalog = Catalog(cursor)  # type: ignore[arg-type]
    assert sorted(catalog.keys(table)) == [["a"], ["b", "c"], ["c"]]
    first = cursor.count
    assert catalog.single_keys(table) == {"a": "a", "c": "c"} and cursor.count == first
    con.execute("DROP INDEX i")
    assert catalog.single_keys(table) == {"a": "a", "c": "c"}
    assert Catalog(con.cursor()).single_keys(table) == {"a": "a"}
