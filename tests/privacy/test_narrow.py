"""Columns that nothing names are left out of generated sources: the rows are those with them, and all that is kept is numbered by."""

from __future__ import annotations

import random
import re

import duckdb
import pytest
import sqlglot
from pairwise import WHOLE
from sqlglot import exp
from unit_local_statements import EVERY
from unit_local_tables import Database, random_table

from dpsql.source import analysis, limits
from dpsql.source.analysis import analyse
from dpsql.source.model import UNIT
from dpsql.source.narrow import NUMBERING, narrow

pytestmark = pytest.mark.usefixtures("functions_as_shipped")
LIMITED = (
    "SELECT a.age FROM visits a JOIN visits b USING (patient)",
    "SELECT b.kind, a.day FROM visits a JOIN visits b ON a.patient = b.patient AND a.age < b.age",
    "SELECT age FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.patient = v.patient AND w.day > v.day AND w.age <> v.age)",
    "SELECT v.age FROM visits v JOIN loose l ON v.kind = l.kind JOIN visits w ON w.patient = v.patient",
)


def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setattr(analysis, "narrow", lambda select: None)
    return Database("INTEGER")


def test_the_rows_are_those_of_all_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has so many rows here that some are left out."""
    narrowed = Database("INTEGER")
    texts = [*EVERY[:: 1 if WHOLE else 2], *LIMITED]
    shorter = {text: narrowed.source(text).sql for text in texts}
    whole = as_it_was(monkeypatch)
    longer = {text: whole.source(text).sql for text in texts}
    assert sum(len(shorter[text]) < len(longer[text]) for text in texts) > len(texts) / 2
    for seed in range(2):
        whole.fill(random_table(random.Random(seed), "INTEGER", 40))
        different = [text for text in texts if whole.rows(shorter[text]) != whole.rows(longer[text])]
        assert not different


def test_as_many_rows_of_a_unit_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_ROWS", 2)
    narrowed, text = Database("INTEGER"), "SELECT a.patient FROM visits a JOIN visits b USING (patient)"
    shorter = narrowed.source(text)
    whole = as_it_was(monkeypatch)
    assert shorter.limited == whole.source(text).limited == 2
    whole.fill(random_table(random.Random(1), "INTEGER", 40))
    assert whole.rows(shorter.sql) == whole.rows(whole.source(text).sql)


def numberings(sql: str) -> list[exp.Select]:
    tree = sqlglot.parse_one(re.sub(r"list_transform\(\[0\], lambda __dp_once: TRY\(", "((", sql), dialect="duckdb")
    return [window.find_ancestor(exp.Select) for window in tree.find_all(exp.Window) if isinstance(window.this, exp.RowNumber)]


@pytest.mark.parametrize("text", LIMITED)
def test_rows_are_numbered_by_all_that_is_kept_of_them(text: str) -> None:
    """Else DuckDB would choose which of a unit's rows stay, by where others' rows stand."""
    found = numberings(Database("INTEGER").source(text).sql)
    assert found
    for select in found:
        copied = {one.this.name for one in select.expressions if isinstance(one, exp.Alias) and isinstance(one.this, exp.Column)} - {UNIT}
        order = next(select.find_all(exp.Window)).args["order"].expressions
        assert copied == {one.this.name for one in order[1:]} == {column.name for column in order[0].find_all(exp.Column)}
        assert len(copied) < 6  # of the 11 columns


def test_what_is_named_stays() -> None:
    columns = ", ".join(f"a.c{i} AS c{i}" for i in range(5))
    said = (
        f"SELECT b.c0, b.d FROM (SELECT {columns}, a.c0 + a.c1 AS d, LEFT(a.c4, 9) AS e, a.u AS {UNIT} FROM (SELECT t.c0 AS c0, t.c1 AS c1, "
        "t.c2 AS c2, t.c3 AS c3, t.c4 AS c4, t.u AS u FROM t) AS a WHERE a.c3 > 1) AS b JOIN s ON s.k = b.c2"
    )
    tree = sqlglot.parse_one(said, dialect="duckdb")
    for node in list(tree.find_all(exp.Left)):  # as it is generated
        node.replace(exp.Anonymous(this="left", expressions=[node.this, node.expression]))
    narrow(tree)
    assert tree.sql(dialect="duckdb") == (
        f"SELECT b.c0, b.d FROM (SELECT a.c0 AS c0, a.c2 AS c2, a.c0 + a.c1 AS d, a.u AS {UNIT} FROM (SELECT t.c0 AS c0, t.c1 AS c1, "
        "t.c2 AS c2, t.c3 AS c3, t.u AS u FROM t) AS a WHERE a.c3 > 1) AS b JOIN s ON s.k = b.c2"
    )


@pytest.mark.parametrize("said", [
    "SELECT x.a FROM (SELECT t.a AS a, t.b AS b FROM t) AS x JOIN (SELECT s.b AS b FROM s) AS y USING (b)",
    "SELECT * FROM (SELECT t.a AS a, t.b AS b FROM t) AS x",
    "SELECT x.a FROM (SELECT DISTINCT t.a AS a, t.b AS b FROM t) AS x",
    "SELECT x.a FROM (SELECT t.a AS a, t.b AS b FROM t UNION ALL SELECT t.a AS a, t.b AS b FROM t) AS x",
    "SELECT x.a FROM (SELECT t.a AS a, t.b AS b FROM t GROUP BY t.a, t.b) AS x",
    "SELECT x.a FROM (SELECT t.a AS a, t.b AS b FROM t ORDER BY 2 LIMIT 3) AS x",
])
def test_columns_that_decide_without_being_named_stay(said: str) -> None:
    tree = sqlglot.parse_one(said, dialect="duckdb")
    narrow(tree)
    assert tree.sql(dialect="duckdb") == said


def test_rows_that_have_no_order_are_not_numbered_by_less() -> None:
    """They are counted: of a unit with too many none is kept, whatever is named."""
    said = "SELECT x.a FROM (SELECT t.a AS a, t.b AS b, COUNT(*) OVER (PARTITION BY t.u) AS n FROM t) AS x WHERE x.n <= 2"
    tree = sqlglot.parse_one(said, dialect="duckdb")
    next(tree.find_all(exp.Subquery)).this.meta[NUMBERING] = 1
    narrow(tree)
    assert tree.sql(dialect="duckdb") == said


def test_a_wide_table_is_a_short_source() -> None:
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t(u INTEGER, {', '.join(f'column{i} INTEGER' for i in range(300))})")
    known = {"database": "memory", "schema": "main", "local": True, "protected": lambda t: True, "unit_column": lambda t: "u"}
    source = analyse(con.cursor(), "SELECT a.column7 FROM t a JOIN t b ON a.u = b.u AND a.column8 < b.column9", **known)
    assert set(re.findall(r"column\d+", source.sql)) == {"column7", "column8", "column9"}
