"""DESCRIBE, SUMMARIZE and EXPLAIN before the text of a query."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from dpsql.errors import ArgumentError, DpsqlError, UnsupportedQuery


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    made = duckdb.connect()
    dpsql.load(made, progress=False)
    made.execute(
        "CREATE TABLE \"my table\" AS SELECT i AS id, i % 4 AS g, i % 90 AS age, ['a', 'é'][1 + i % 2] AS \"größe\", DATE '2024-01-01' + (i % 300)::INTEGER AS d "
        "FROM range(2000) r(i)"
    )
    made.execute("CREATE VIEW seen AS FROM \"my table\"")
    made.execute("CALL dp_protect('\"my table\"', epsilon := 1000, delta := 1e-6)")
    for column, said in (("g", "lower := 0, upper := 3"), ("age", "lower := 0, upper := 89"), ("größe", "categories := ['a', 'é']"),
                         ("d", "lower := DATE '2024-01-01', upper := DATE '2024-12-31'")):
        made.execute(f"CALL dp_declare('\"my table\"', '{column}', {said}, nullable := false)")
    yield made
    made.close()


def charges(con: duckdb.DuckDBPyConnection) -> object:
    return con.execute("SELECT count(*) FROM dp_releases()").fetchone()


@pytest.mark.parametrize("sql", [
    'SELECT "größe", count(*), avg(age) AS mean, median(d) AS "select" FROM "my table" GROUP BY "größe"',
    'FROM "my table" SELECT count(*)',
    'WITH a AS (SELECT g, count(*) AS n FROM "my table" GROUP BY g) SELECT max(n), sum(n) FROM a;',
    '(SELECT min(d), count(DISTINCT g) FROM seen)',
])
@pytest.mark.parametrize("word", ["DESCRIBE", "desc", "-- what is it\nDescribe"])
def test_names_and_types_are_free(con: duckdb.DuckDBPyConnection, word: str, sql: str) -> None:
    before = charges(con)
    wanted, found = con.sql(f"{word} {sql}"), dpsql.query(con, f"{word} {sql}")
    assert found.columns == wanted.columns and found.fetchall() == wanted.fetchall()
    assert con.execute("SELECT column_name FROM dp_query(?)", [f"DESCRIBE {sql}"]).fetchall() == [(row[0],) for row in wanted.fetchall()]
    assert charges(con) == before


def test_intervals_are_described_too(con: duckdb.DuckDBPyConnection) -> None:
    found = dpsql.query(con, 'DESCRIBE SELECT count(*) AS n FROM "my table"', confidence=0.9).fetchall()
    assert [row[:2] for row in found] == [("n", "BIGINT"), ("n_low", "BIGINT"), ("n_high", "BIGINT")]


def test_summarize_is_dp_summarize(con: duckdb.DuckDBPyConnection) -> None:
    before = charges(con)
    found = dpsql.query(con, 'SUMMARIZE "my table"', epsilon=50)
    assert found.columns == con.sql('SUMMARIZE "my table"').columns
    rows = found.fetchall()
    once = charges(con)
    assert once[0] == before[0] + 1 and [row[0] for row in rows] == ["g", "age", "größe", "d"]
    assert rows[1][5] == pytest.approx(44.2, abs=2)
    assert rows == con.execute("FROM dp_summarize('\"my table\"', epsilon := 50)").fetchall()
    assert rows == con.execute("FROM dp_query('summarize \"my table\";', epsilon := 50)").fetchall() and charges(con) == once
    view = dpsql.query(con, "SUMMARIZE FROM seen WHERE age < 50", epsilon=50).fetchall()
    assert view[1][5] == pytest.approx(24.5, abs=2) and charges(con)[0] == once[0] + 1


@pytest.mark.parametrize(
    ("sql", "given", "said"),
    [
        ('SUMMARIZE "my table"', {"epsilon": 1, "confidence": 0.9}, r"confidence = 0.9: SUMMARIZE takes epsilon, delta and release: FROM dp_summarize\('\"my table\"'"),
        ('SUMMARIZE "my table"', {"epsilon": 1, "max_groups": 2}, "max_groups = 2: SUMMARIZE takes"),
        ("SUMMARIZE nowhere", {"epsilon": 1}, "'nowhere'"),
        ('SUMMARIZE SELECT g, count(*) FROM "my table" GROUP BY g', {"epsilon": 1}, "refused at"),
        ("DESCRIBE seen", {}, "the columns of a table DuckDB itself shows: DESCRIBE seen"),
        ('DESCRIBE SELECT age FROM "my table"', {}, "raw rows"),
        ('DESCRIBE SELECT count(*) FROM "my table" WHERE nothing > 3', {}, "nothing"),
        ('DESCRIBE UPDATE "my table" SET age = 3', {}, "describe a query"),
        ("DESCRIBE 'x'", {}, "describe a query"),
        ('EXPLAIN SELECT count(*) FROM "my table"', {"epsilon": 1}, r"FROM dp_plan\('SELECT ...', epsilon := ...\)"),
    ],
)
def test_what_it_is_not_is_refused_free(con: duckdb.DuckDBPyConnection, sql: str, given: dict[str, object], said: str) -> None:
    before = charges(con)
    with pytest.raises((UnsupportedQuery, ArgumentError, DpsqlError), match=said):
        dpsql.query(con, sql, **given)
    assert charges(con) == before


def test_calls_that_answer_other_questions_name_the_one_that_does(con: duckdb.DuckDBPyConnection) -> None:
    for call in (lambda: dpsql.query_exact(con, 'SUMMARIZE "my table"'), lambda: con.execute("FROM dp_plan('SUMMARIZE \"my table\"', epsilon := 1)").fetchall()):
        with pytest.raises((DpsqlError, duckdb.Error), match="SUMMARIZE|summarize"):
            call()
