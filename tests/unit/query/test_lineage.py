"""Ranges and values of columns through CTEs, subqueries, joins and set operations; bounds that a user gives."""

from __future__ import annotations

import datetime as dt

import duckdb
import pytest
import sqlglot
from query_expressions import COLUMNS

from dpsql.algebra.ranges import INF, UNKNOWN, Range
from dpsql.errors import ArgumentError
from dpsql.queries.columns import Relations, given_bounds
from dpsql.queries.groups import public_groups
from dpsql.queries.inner import InnerValues
from dpsql.queries.lineage import Lineage
from dpsql.queries.naming import canonical, read_expression
from dpsql.queries.universes import Universe
from dpsql.text.strict import StrictDuckDB

TABLES = {
    "p": {"unit": Universe("BIGINT"), **COLUMNS},
    "regions": {"key": Universe("VARCHAR", ("Oslo", "bergen"), nullable=False), "region": Universe("VARCHAR", ("east", "west"), nullable=False)},
}


def names(table):
    return list(TABLES[table.name]) if table.name in TABLES else None


def leaf(table, name):
    return TABLES[table.name][name]


def outputs(query: str, bounds=None) -> dict[str, Range]:
    found = Relations(lambda table, name: leaf(table, name).range, given_bounds(bounds))
    return found.outputs(Lineage(sqlglot.parse_one(query, dialect=StrictDuckDB), names))


def ends(query: str, bounds=None):
    found = outputs(query, bounds)
    return {name: (r.lower, r.upper) for name, r in found.items() if r != UNKNOWN and (r.lower, r.upper) != (-INF, INF)}


@pytest.mark.parametrize(("query", "expected"), [
    ("SELECT i + 1 AS a, i FROM p WHERE i > 3", {"a": (5, 13), "i": (4, 12)}),
    ("SELECT * EXCLUDE (unit, i, k, x, y, z, f, m, b, d, e, t, c, s) FROM p", {"j": (0, 100)}),
    ("WITH a AS (SELECT unit, j * 2 AS n FROM p WHERE j < 50) SELECT n + 1 AS n FROM a", {"n": (1, 99)}),
    ("SELECT q.n FROM (SELECT * FROM (SELECT j AS n, unit FROM p) WHERE n >= 7) AS q", {"n": (7, 100)}),
    ("WITH a AS (SELECT unit, max(j) AS top, avg(x) AS mean, count(*) AS n, sum(j) AS s, sum(x) AS r FROM p GROUP BY unit HAVING count(*) <= 9) SELECT * FROM a",
     {"top": (0, 100), "mean": (-2.5, 10), "n": (0, 9), "s": (0, INF)}),
    ("SELECT unit, sum(j) FILTER (WHERE j > 200) AS s, max(j) FILTER (WHERE j < 10) AS m FROM p GROUP BY unit", {"s": (0, INF), "m": (0, 9)}),
    ("SELECT row_number() OVER (PARTITION BY unit) AS n, lag(j, 1, -5) OVER (ORDER BY d) AS l FROM p", {"n": (1, INF), "l": (-5, 100)}),
    ("SELECT w.v FROM (SELECT j FROM p UNION ALL SELECT i FROM p) AS w(v)", {"v": (-7, 100)}),
    ("SELECT w.v FROM (SELECT j FROM p EXCEPT SELECT i FROM p) AS w(v)", {"v": (0, 100)}),
    ("SELECT a.j FROM p AS a JOIN regions AS r ON a.c = r.key AND a.j < 20", {"j": (0, 19)}),
    ("SELECT a.j FROM p AS a LEFT JOIN regions AS r ON a.c = r.key AND a.j < 20", {"j": (0, 100)}),
    ("SELECT a.j FROM p AS a ANTI JOIN regions AS r ON a.c = r.key AND a.j < 20", {"j": (0, 100)}),
    ("WITH p AS (SELECT j / 10 AS j FROM p) SELECT j FROM p", {"j": (0, 10)}),
    ("SELECT j FROM p AS a, p AS b", {}),
    ("SELECT count(DISTINCT b) AS v, count(DISTINCT j) AS n, stddev_pop(j) AS d, bool_or(b) AS o FROM p GROUP BY unit", {"v": (0, 2), "n": (0, 101), "d": (0, 50), "o": (0, 1)}),
])
def test_ranges_of_columns(query, expected):
    assert ends(query) == expected


def test_given_bounds_count_whatever_else_is_known():
    query = "WITH a AS (SELECT unit, sum(k) AS total, max(j) AS j FROM p GROUP BY unit) SELECT total, total / 2 AS h, j FROM a"
    assert ends(query) == {"j": (0, 100)}
    assert ends(query, {"SUM( p.K )": [0, 50]}) == {"total": (0, 50), "h": (0, 25), "j": (0, 100)}
    assert ends(query, {"total": (-5, 5), "J": [0, 1e6]}) == {"total": (-5, 5), "h": (-2.5, 2.5), "j": (0, 1e6)}
    assert ends("SELECT d FROM p", {"d": ["2020-01-01", dt.date(2020, 1, 31)]}) == {"d": (18262, 18292)}
    assert ends("SELECT t FROM p", {"t": ["1970-01-01", "1970-01-01 01:00:00"]}) == {"t": (0, 3600)}


@pytest.mark.parametrize("bounds", [
    {"x": [1]}, {"x": 5}, {"x": [2, 1]}, {"x": [1, 1]}, {"x": [0, float("inf")]}, {"x": [0, "2020-01-01"]}, {"x": ["a", "b"]}, {"x": [True, False]},
    {"x": [None, 1]}, {"SELECT 1": [0, 1]}, {"x; y": [0, 1]}, {"x +": [0, 1]}, {"x": [0, 1], '"X"': [0, 2]}, {"x": "01"},
])
def test_bad_bounds_are_refused_by_name(bounds):
    with pytest.raises(ArgumentError, match="bounds"):
        given_bounds(bounds)


def test_one_text_for_all_spellings():
    same = {canonical(read_expression(text, "bounds"), qualified=False) for text in ("sum(a * (b+1))", "SUM( A*(B + 1) )", '(sum(("a")*((t.b) + 1)))')}
    assert len(same) == 1
    assert canonical(read_expression("(a + b) * c", "bounds")) != canonical(read_expression("a + b * c", "bounds"))
    assert canonical(read_expression("a - (b - c)", "bounds")) != canonical(read_expression("a - b - c", "bounds"))


def groups(query: str):
    with duckdb.connect() as con:
        select = sqlglot.parse_one(query, dialect=StrictDuckDB)
        values = InnerValues(con, leaf).universes(Lineage(select, names))
        found = public_groups(con, list(select.args["group"].expressions), values, select.args.get("where"))
        return con.execute(f"{found.sql} ORDER BY ALL").fetchall() if found else found.reason


@pytest.mark.parametrize(("query", "expected"), [
    ("WITH a AS (SELECT unit, upper(c) AS c FROM p WHERE c <> '') SELECT count(*) FROM a GROUP BY c", [("BERGEN",), ("OSLO",), ("ÅRE",)]),
    ("SELECT count(*) FROM (SELECT unit, max(j) // 50 AS top FROM p GROUP BY unit) GROUP BY top", [(0,), (1,), (2,), (None,)]),
    ("SELECT count(*) FROM (SELECT unit, max(j) AS top FROM p GROUP BY unit) GROUP BY top // 50", [(0,), (1,), (2,), (None,)]),
    ("SELECT count(*) FROM (SELECT unit, count(*) AS n FROM p GROUP BY unit) GROUP BY least(n, 3)", [(0,), (1,), (2,), (3,)]),
    ("SELECT count(*) FROM p JOIN regions AS r ON p.c = r.key GROUP BY r.region", [("east",), ("west",)]),
    ("SELECT count(*) FROM p LEFT JOIN regions AS r ON p.c = r.key GROUP BY r.region", [("east",), ("west",), (None,)]),
    ("SELECT count(*) FROM (SELECT c FROM p UNION ALL SELECT 'Rome' FROM p) GROUP BY c", [("",), ("Oslo",), ("Rome",), ("bergen",), ("Åre",)]),
    ("SELECT count(*) FROM (SELECT s FROM p) GROUP BY s", "column 's'"),
    ("SELECT count(*) FROM (SELECT year(e) AS y, e FROM p) AS q GROUP BY y, month(q.e)", [(2020, 2), (2020, 3)]),
])
def test_groups_through_subqueries(query, expected):
    found = groups(query)
    assert expected in found if isinstance(expected, str) else found == expected
