"""A list of groups that rows are joined to: the groups that it holds are shown, which says the same."""

import duckdb
import pytest
import sqlglot

from dpsql.queries.top_lists import of_groups
from dpsql.text.strict import StrictDuckDB

TOP = "SELECT k AS key, sum(x) AS s FROM rows_of GROUP BY k ORDER BY s DESC, key LIMIT 2"
LISTS = [
    f"SELECT k, count(*) AS n FROM rows_of JOIN ({TOP}) AS top ON k = key GROUP BY k",
    f"SELECT r.k, j, sum(r.x) AS n FROM rows_of r INNER JOIN ({TOP}) top ON (top.key = r.k) WHERE r.x > 1 GROUP BY r.k, j HAVING count(*) > 1",
    "SELECT r.k, sum(r.x) AS n FROM rows_of r JOIN (SELECT t.k AS k, count(*) AS s FROM rows_of t GROUP BY 1 ORDER BY s DESC, k LIMIT 2) top ON r.k = top.k GROUP BY 1",
    f"WITH top AS ({TOP}) SELECT j, k, max(x) AS m FROM rows_of JOIN top AS t ON k = t.key GROUP BY ALL",
    "WITH top AS (SELECT k, count(*) AS c FROM rows_of GROUP BY k HAVING count(*) > 2) SELECT k, count(*) AS n FROM rows_of JOIN top USING (k) GROUP BY k",
    "SELECT k, count(*) AS n FROM rows_of WHERE x > 2 AND (k IN (SELECT k FROM rows_of GROUP BY k ORDER BY count(*) DESC, k LIMIT 2) AND j = 1) GROUP BY k",
    f"SELECT k, count(*) AS n FROM rows_of WHERE k IN (SELECT key FROM ({TOP}) AS t) GROUP BY k ORDER BY n",
    f"SELECT sum(n) FROM (SELECT k, count(*) AS n FROM rows_of JOIN ({TOP}) AS top ON k = key GROUP BY k) AS q",
    f"SELECT k, count(*) AS n FROM rows_of JOIN ({TOP}) AS top ON k = key JOIN public_of USING (j) GROUP BY k",
]
"""Over rows whose lists become conditions on groups."""
STAY = [
    f"SELECT j, count(*) AS n FROM rows_of JOIN ({TOP}) AS top ON k = key GROUP BY j",
    f"SELECT k, top.s, count(*) AS n FROM rows_of JOIN ({TOP}) AS top ON k = key GROUP BY k, top.s",
    f"SELECT k, sum(s) AS n FROM rows_of JOIN ({TOP}) AS top ON k = key GROUP BY k",
    f"SELECT k, count(*) AS n FROM rows_of LEFT JOIN ({TOP}) AS top ON k = key GROUP BY k",
    f"SELECT k, count(*) AS n FROM rows_of JOIN ({TOP}) AS top ON k = key AND x > s GROUP BY k",
    f"SELECT k, count(*) AS n FROM rows_of JOIN ({TOP}) AS top ON k > key GROUP BY k",
    f"SELECT k, count(*) AS n FROM rows_of JOIN ({TOP}) AS top ON k = key GROUP BY ROLLUP (k)",
    f"SELECT j AS k, count(*) AS n FROM rows_of JOIN ({TOP}) AS top ON k = key GROUP BY rows_of.j, k",
    "SELECT k, count(*) AS n FROM rows_of JOIN (SELECT k AS key, j AS i, sum(x) AS s FROM rows_of GROUP BY k, j) AS top ON k = key GROUP BY k",
    "SELECT k, count(*) AS n FROM rows_of JOIN (SELECT sum(x) AS s, k + 1 AS key FROM rows_of GROUP BY k) AS top ON k = key GROUP BY k",
    "SELECT k, count(*) AS n FROM rows_of JOIN (SELECT k AS key FROM public_of JOIN rows_of USING (j)) AS top ON k = key GROUP BY k",
    "SELECT k, count(*) AS n FROM rows_of JOIN (SELECT j AS key, count(*) AS s FROM public_of GROUP BY j) AS top ON k = key GROUP BY k",
    "SELECT k, count(*) AS n FROM rows_of WHERE k IN (SELECT j FROM public_of) GROUP BY k",
    f"SELECT k, count(*) AS n FROM rows_of WHERE k NOT IN (SELECT key FROM ({TOP}) AS t) OR j = 1 GROUP BY k",
    f"SELECT j, count(*) AS n FROM rows_of WHERE k IN (SELECT key FROM ({TOP}) AS t) GROUP BY j",
    "SELECT * FROM rows_of JOIN (SELECT k AS key, count(*) AS s FROM rows_of GROUP BY k) AS top ON k = key",
]
"""What is left as it is: other rows would be counted, or the list is read elsewhere, or is public."""


@pytest.fixture(scope="module")
def con():
    made = duckdb.connect()
    made.execute("CREATE TABLE rows_of AS SELECT nullif(i * 7 % 5, 4) AS k, i % 3 AS j, i * 13 % 17 AS x FROM range(60) t(i)")
    made.execute("CREATE TABLE public_of AS SELECT i AS j, 'p' || i AS name FROM range(2) t(i)")
    return made


def changed(text):
    tree = sqlglot.parse_one(text, dialect=StrictDuckDB)
    return of_groups(tree, lambda table: table.name == "rows_of").sql(StrictDuckDB)


@pytest.mark.parametrize("text", LISTS)
def test_no_row_is_joined_to_an_answer_and_the_result_is_the_same(con, text):
    made = changed(text)
    assert "HAVING" in made and "IN (SELECT" in made and "top ON" not in made and "USING (k)" not in made
    rows = con.execute(text).fetchall()
    assert rows and sorted(con.execute(made).fetchall(), key=str) == sorted(rows, key=str)


@pytest.mark.parametrize("text", STAY)
def test_others_stay(text):
    assert changed(text) == sqlglot.parse_one(text, dialect=StrictDuckDB).sql(StrictDuckDB)
