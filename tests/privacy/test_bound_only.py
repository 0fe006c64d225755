"""Before the charge a source is bound, and nothing of it is run: no row of a protected table is read for its types."""

from __future__ import annotations

import ast
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.source.catalog import Catalog

pytestmark = pytest.mark.any_duckdb


@pytest.mark.parametrize("query", ["SELECT nextval('s') AS n", "SELECT error('run' || i) AS n FROM range(3) t(i)"])
def test_describing_runs_nothing(query):
    with duckdb.connect() as con:
        con.execute("CREATE SEQUENCE s")
        assert [column.name for column in Catalog(con.cursor()).describe(query)] == ["n"]
        assert con.execute("SELECT nextval('s')").fetchall() == [(1,)]


def test_nothing_of_dpsql_makes_relations_of_texts():
    """The client of DuckDB 2.0 runs a SELECT in ``sql()`` where it cannot put it off: rows would be read before the charge."""
    rooms = ("source", "protected", "queries", "kinds", "measure", "purchase", "books", "domains", "release")
    root = Path(dpsql.__file__).parent
    used = []
    for path in (path for room in rooms for path in (root / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr in ("sql", "query", "from_query"):
                used += [f"{path.relative_to(root)}:{node.lineno}"] if "cursor" in ast.unparse(called.value) else []
    assert used == []
