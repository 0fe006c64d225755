"""Forms of SQL that analysts write daily, as dp_query answers them: DuckDB's names, types and, without noise, values."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from dpsql.errors import ArgumentError, UnsupportedQuery


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """Rows of 3,000 people, names that need quotes, and an empty copy."""
    made = duckdb.connect()
    dpsql.load(made, progress=False)
    made.execute(
        "CREATE TABLE t AS SELECT i AS id, i % 4 AS g, CASE WHEN i % 50 > 0 THEN 1 + (i * 7919) % 97 + 0.5::DOUBLE END AS x, "
        "CASE WHEN i % 9 > 0 THEN ['é', 'a', 'B', 'it''s'][1 + (i * i) % 4] END AS \"größe\", i % 3 AS \"select\", "
        "['x', 'y', 'zz'][1 + i % 3] AS other FROM range(3000) r(i)"
    )
    made.execute("CREATE TABLE none AS FROM t WHERE false")
    for name in ("t", "none"):
        made.execute(f"CALL dp_protect('{name}', epsilon := 1000, delta := 1e-6)")
        made.execute(f"CALL dp_declare('{name}', 'g', lower := 0, upper := 3, nullable := false)")
        made.execute(f"CALL dp_declare('{name}', 'x', lower := 1, upper := 100)")
        made.execute(f"CALL dp_declare('{name}', 'select', lower := 0, upper := 2, nullable := false)")
        made.execute(f"CALL dp_declare('{name}', 'größe', categories := ['B', 'a', 'it''s', 'é', 'ü'])")
    yield made
    made.close()


def charges(con: duckdb.DuckDBPyConnection) -> object:
    return con.execute("SELECT count(*) FROM dp_ledger('t')").fetchone()


def same(found: list[tuple[object, ...]], wanted: list[tuple[object, ...]], **tolerance: float) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(sorted(found, key=str), sorted(wanted, key=str), strict=True):
        assert one == tuple(pytest.approx(v, **tolerance) if isinstance(v, float) else v for v in other)


@pytest.mark.parametrize("sql", [
    "SELECT geomean(x) FROM t",
    "SELECT geometric_mean(x) AS g, sem(x), avg(x) FROM t",
    'SELECT "select", geomean(x + 1), sem(x) AS s FROM t GROUP BY "select" HAVING geomean(x + 1) > 2 ORDER BY geomean(x + 1)',
    "SELECT g, round(geomean(x) * 2, 1) AS r, rank() OVER (ORDER BY sem(x)) AS n FROM t WHERE x > 3 GROUP BY ALL",
    "SELECT geomean(m) FROM (SELECT g, avg(x) AS m FROM t GROUP BY g)",
])
def test_means_that_are_made_of_others(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    wanted, exact = con.sql(sql), dpsql.query_exact(con, sql)
    assert exact.columns == wanted.columns and exact.types == wanted.types
    same(exact.fetchall(), wanted.fetchall())
    same(dpsql.query(con, sql, epsilon=50).fetchall(), wanted.fetchall(), rel=0.05)


def test_a_filter_goes_into_what_they_are_made_of(con: duckdb.DuckDBPyConnection) -> None:
    found = dpsql.query_exact(con, "SELECT geomean(x) FILTER (WHERE g = 1), sem(x) FILTER (WHERE g > 1) FROM t").fetchall()[0]
    assert found[0] == pytest.approx(con.sql("SELECT geomean(x) FROM t WHERE g = 1").fetchall()[0][0])
    assert found[1] == pytest.approx(con.sql("SELECT sem(x) FROM t WHERE g > 1").fetchall()[0][0])


def test_of_no_row_they_are_null_or_noise(con: duckdb.DuckDBPyConnection) -> None:
    assert dpsql.query_exact(con, "SELECT geomean(x), sem(x) FROM none").fetchall() == [(None, None)]
    for epsilon in (0.1, 1.0, 10.0):
        assert len(dpsql.query(con, "SELECT geomean(x), sem(x) FROM none", epsilon=epsilon, confidence=0.9).fetchall()[0]) == 6


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT geomean(g) FROM t", r"'ln\(g\)': has no bounds.*greatest"),
        ("SELECT geomean(DISTINCT x) FROM t", r"write geomean\(x\)"),
        ("SELECT sem(x, g) FROM t", "takes 1 argument here, not 2"),
        ("SELECT skewness(x) FROM t", r"quantile_cont\(x, \[0.1, 0.5, 0.9\]\)"),
        ("SELECT kurtosis(x) FROM t", r"quantile_cont\(x, \[0.01"),
        ("SELECT mad(x) FROM t", r"ask for median\(x\), and write the released number m into median\(abs\(x - m\)\)"),
        ("SELECT product(x) FROM t", r"sum\(ln\(x\)\) is its logarithm"),
        ("SELECT entropy(other) FROM t", "histogram"),
    ],
)
def test_those_that_noise_hides_are_refused_with_the_way(con: duckdb.DuckDBPyConnection, sql: str, said: str) -> None:
    before = charges(con)
    with pytest.raises((UnsupportedQuery, ArgumentError), match=said):
        dpsql.query(con, sql, epsilon=1)
    assert charges(con) == before


def test_the_ways_that_refusals_name_are_answered(con: duckdb.DuckDBPyConnection) -> None:
    middle = dpsql.query(con, "SELECT median(x) FROM t", epsilon=20).fetchall()[0][0]
    for sql in (f"SELECT median(abs(x - {middle})) FROM t", "SELECT sum(ln(x)) FROM t", "SELECT quantile_cont(x, [0.1, 0.5, 0.9]) FROM t"):
        answer, exact = dpsql.query(con, sql, epsilon=20).fetchall()[0][0], con.sql(sql).fetchall()[0][0]
        assert answer == pytest.approx(exact, rel=0.1)


COUNTED = "SELECT g, \"select\" AS s, count(*) AS n, sum(x) AS \"größe\" FROM t GROUP BY ALL"
AROUND = [
    f"SELECT COLUMNS('n.*') FROM ({COUNTED})",
    f"SELECT g, s, COLUMNS(* EXCLUDE (g, s)) / 2 FROM ({COUNTED})",
    f"SELECT g, sum(COLUMNS(* EXCLUDE (g, s))) FROM ({COUNTED}) GROUP BY g",
    f"SELECT COLUMNS(lambda c: c LIKE 'g%') FROM ({COUNTED})",
    f"SELECT COLUMNS('^(g|n)$') AS 'the_\\1' FROM ({COUNTED})",
    f"SELECT * LIKE 'g%' FROM ({COUNTED})",
    f"WITH c AS ({COUNTED}) SELECT c.* EXCLUDE (\"größe\") REPLACE (n + 1 AS n) FROM c WHERE COLUMNS(*) IS NOT NULL",
    f"PIVOT ({COUNTED}) ON s IN (0, 1, 2) USING sum(n)",
    f"PIVOT ({COUNTED}) ON s IN (0, 2) USING sum(n) AS n, max(\"größe\") AS \"Größte\" GROUP BY g",
    f"WITH c AS ({COUNTED}) SELECT g, \"0\" + \"1\" AS two FROM (PIVOT c ON s IN (0, 1) USING first(n) GROUP BY g) ORDER BY g",
    f"SELECT * FROM ({COUNTED}) PIVOT (sum(n) FOR s IN (0, 1, 2) GROUP BY g)",
    "UNPIVOT (SELECT count(*) AS n, count(x) AS m FROM t) ON n, m INTO NAME k VALUE v",
    f"SELECT count(*) FROM (SELECT * FROM ({COUNTED}) USING SAMPLE 5 ROWS)",
    f"SELECT count(*) FROM ({COUNTED}) TABLESAMPLE reservoir(7 ROWS)",
    f"SELECT count(*) FROM (SELECT * FROM ({COUNTED}) USING SAMPLE 100%)",
]


@pytest.mark.parametrize("sql", AROUND)
def test_what_stands_around_an_answer_is_duckdbs(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    wanted, exact, answer = con.sql(sql), dpsql.query_exact(con, sql), dpsql.query(con, sql, epsilon=20)
    assert exact.columns == answer.columns == wanted.columns and exact.types == answer.types == wanted.types
    same(exact.fetchall(), wanted.fetchall())
    assert len(answer.fetchall()) == len(wanted.fetchall())


def test_what_stands_around_an_answer_is_free(con: duckdb.DuckDBPyConnection) -> None:
    dpsql.query(con, COUNTED, epsilon=20).fetchall()
    before = charges(con)
    for sql in (one for one in AROUND if COUNTED in one):
        assert dpsql.query(con, sql).fetchall()
    assert charges(con) == before


def test_intervals_go_through_columns(con: duckdb.DuckDBPyConnection) -> None:
    found = dpsql.query(con, "SELECT COLUMNS(*) FROM (SELECT g, count(*) AS n FROM t GROUP BY g)", epsilon=20, confidence=0.9)
    assert found.columns == ["g", "n", "n_low", "n_high"]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ('SELECT g, count(*) FROM t GROUP BY g USING SAMPLE 2', r"it picks rows of people before they are counted; put it around the answer"),
        ("SELECT count(*) FROM t TABLESAMPLE 50%", "SAMPLE"),
        ("PIVOT t ON g IN (0, 1) USING count(*) GROUP BY other", r"over rows of people; pivot an answer: \(SELECT a, b, count"),
        ("UNPIVOT t ON g, id INTO NAME k VALUE v", "over rows of people"),
        ("SELECT count(*) FROM (PIVOT t ON g IN (0, 1) USING count(*) GROUP BY other)", "over rows of people"),
        ("SELECT count(*) FROM t PIVOT (count(*) FOR g IN (0, 1))", "PIVOT"),
        ("SELECT count(*) FROM (SELECT g, other, id FROM t) PIVOT (count(*) FOR g IN (0, 1))", "PIVOT"),
        (f"PIVOT ({COUNTED}) ON s USING sum(n)", "name the values that become columns"),
        (f"PIVOT ({COUNTED}) ON s IN (0, 1) USING getenv('HOME')", r"getenv\(\)"),
        (f"PIVOT ({COUNTED}) ON s IN (0, 1) USING sum((SELECT max(id) FROM t))", "a subquery in PIVOT"),
        (f"SELECT * FROM ({COUNTED}) PIVOT (sum((SELECT max(id) FROM t)) FOR s IN (0, 1))", "read outside of an aggregate"),
        (f"SELECT COLUMNS(lambda c: c IN (SELECT other FROM t)) FROM ({COUNTED})", "gives out rows"),
        ("SELECT count(*) FROM t WHERE COLUMNS('g') > 1", r"columns\(\)"),
        (f"SELECT COLUMNS(getenv('HOME')) FROM ({COUNTED})", r"getenv\(\)"),
        ("SELECT count(*), COLUMNS('x') FROM t", "name the columns"),
        ("SELECT COLUMNS('x') FROM t", "raw rows"),
        (f"SELECT *, (SELECT COLUMNS('x') FROM t) FROM ({COUNTED})", "gives out rows"),
    ],
)
def test_what_stands_around_rows_is_refused_free(con: duckdb.DuckDBPyConnection, sql: str, said: str) -> None:
    before = charges(con)
    with pytest.raises((UnsupportedQuery, ArgumentError), match=said):
        dpsql.query(con, sql, epsilon=1)
    assert charges(con) == before


def test_a_wrong_name_of_a_release_is_answered_with_the_nearest_first() -> None:
    with duckdb.connect() as own:
        dpsql.load(own, progress=False)
        own.execute("CREATE TABLE t AS SELECT i AS id FROM range(50) r(i)")
        own.execute("CALL dp_protect('t', epsilon := 1000, delta := 1e-6)")
        with pytest.raises(duckdb.Error, match="no such release; there are: none yet"):
            own.execute("FROM dp_explain('wards')")
        for name in ("ages", "months by ward", "größen", *(f"n{i}" for i in range(10))):
            dpsql.query(own, "SELECT count(*) FROM t", epsilon=1, release=name)
        for call in ("dp_explain('agse')", "dp_sample('AGES')", "dp_report('ages2')", "dp_export('age', 'x.parquet')"):
            with pytest.raises(duckdb.Error, match=r"there are: 't-query-ages-\w+' \(did you mean this\?\), .* and 1 more\. FROM dp_releases"):
                own.execute(f"FROM {call}")
        with pytest.raises(duckdb.Error, match=r"there are: 't-query-months_by_ward-\w+' \(did you mean this\?\)"):
            own.execute("FROM dp_explain('months by wrd')")
        with pytest.raises(duckdb.Error) as refused:
            own.execute("FROM dp_explain('qqqqqqqq')")
        assert "did you mean" not in str(refused.value) and " and 1 more" in str(refused.value)


@pytest.mark.parametrize(("name", "wanted"), [("min", "a"), ("max", "é")])
def test_an_extreme_of_a_text_names_what_is_answered(con: duckdb.DuckDBPyConnection, name: str, wanted: str) -> None:
    before = charges(con)
    with pytest.raises(ArgumentError, match="is a text of one row") as refused:
        dpsql.query(con, f'SELECT {name}("größe") FROM t', epsilon=1)
    assert charges(con) == before
    way = str(refused.value).split("categories: ")[1].split(" is that of")[0]
    assert dpsql.query(con, f"SELECT {way} FROM t", epsilon=20).fetchall() == con.sql(f'SELECT {name}("größe") FROM t').fetchall() == [(wanted,)]
    assert dpsql.query(con, 'SELECT mode("größe"), max(m) FROM (SELECT g AS m, "größe" FROM t)', epsilon=20).fetchall()[0][0] in ("é", "a")
