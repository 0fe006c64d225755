"""Names and constants come through a source unharmed, whatever letters they are made of; mangled texts are refused politely."""

from __future__ import annotations

import random

import duckdb
import pytest
from case_counts import cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlglot import exp

from dpsql.errors import DpsqlError
from dpsql.source.analysis import TableId, analyse, find_table
from dpsql.source.model import fold
from dpsql.text.relation import identifier, literal

NAMES = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\0") | st.sampled_from("\"'.;()[]{}*-$? \n\\aA"), min_size=1, max_size=12
).filter(lambda n: not n.lower().startswith("__dp_"))
TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0") | st.sampled_from("\"';\\$%\n"), max_size=20)


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture(scope="module")
def con(functions_as_shipped):
    with duckdb.connect(":memory:") as connection:
        connection.execute("CREATE TABLE canary(a INTEGER); INSERT INTO canary VALUES (1)")
        yield connection


def check(con: duckdb.DuckDBPyConnection, text: str):
    return analyse(con.cursor(), text, database="memory", schema="main", protected=lambda t: True)


@settings(max_examples=cases(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=NAMES, column=NAMES, alias=NAMES, value=TEXTS)
def test_any_name_and_any_text_round_trips(con, table, column, alias, value):
    if fold(table) in ("canary", "main", "dpsql", "information_schema", "pg_catalog"):
        table += "_"
    try:
        con.execute(f"CREATE OR REPLACE TABLE {quote(table)}({quote(column)} VARCHAR)")
    except duckdb.Error:
        return  # DuckDB itself refuses such a name
    try:
        con.execute(f"INSERT INTO {quote(table)} VALUES (?)", [value])
        source = check(con, quote(table))
        assert source.table == TableId("memory", "main", table)
        assert [(c.name, c.origin) for c in source.columns] == [(column, column)]
        assert con.execute(f"SELECT * FROM ({source.sql}) AS s").fetchall() == [(value,)]
        assert find_table(con.cursor(), quote(table), database="memory", schema="main").name == table
        constant = "'" + value.replace("'", "''") + "'"
        written = (
            f"SELECT {quote(alias)}.{quote(column)} AS {quote(alias)} FROM {quote(table)} AS {quote(alias)} "
            f"WHERE {quote(column)} = {constant} AND {quote(column)} || {constant} IS NOT NULL"
        )
        source = check(con, written)
        assert [c.name for c in source.columns] == [alias]
        assert con.execute(f"SELECT * FROM ({source.sql}) AS s").fetchall() == con.execute(written).fetchall() == [(value,)]
        con.execute(f"CREATE OR REPLACE VIEW w AS {written}")
        viewed = check(con, "w")
        assert con.execute(f"SELECT * FROM ({viewed.sql}) AS s").fetchall() == [(value,)]
        assert [c.name for c in viewed.columns] == [alias]
    finally:
        con.execute("DROP VIEW IF EXISTS w")
        con.execute(f"DROP TABLE {quote(table)}")
    assert con.execute("SELECT a FROM canary").fetchall() == [(1,)]


@settings(max_examples=cases(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=40))
def test_any_text_gives_a_source_or_a_refusal(con, text):
    try:
        source = check(con, text)
    except DpsqlError:
        return
    con.execute(f"SELECT * FROM ({source.sql}) AS s").fetchall()


CORPUS = [
    "SELECT a + 1 AS b, upper(CAST(a AS VARCHAR)) AS c FROM canary WHERE a BETWEEN 0 AND 3 AND NOT a IN (4, 5)",
    "WITH x(q) AS (SELECT a FROM canary) SELECT z.q, CASE WHEN z.q > 0 THEN 'x' ELSE 'y' END AS k FROM (SELECT * FROM x) AS z",
    "FROM memory.main.canary AS t SELECT * EXCLUDE (a), t.a AS b, date_part('year', DATE '2020-01-01') AS y ORDER BY b",
    "SELECT * REPLACE (a // 2 AS a) FROM (FROM canary) JOIN pub USING (a) LEFT JOIN pub AS p2 ON t.a = p2.a",
    "SELECT sum(a) OVER (PARTITION BY a) AS s, [x FOR x IN [a]], {'k': a}, a::INTEGER[] FROM canary LIMIT 3",
]
WORDS = str.split(
    "SELECT FROM WHERE ( ) , . * AS JOIN ON USING a canary pub 1 'x' \"a\" + - / || = < IN NOT NULL IS CASE WHEN THEN END WITH UNION ALL "
    "LIMIT DISTINCT GROUP BY max( OVER () [ ] { } : :: ; -- /* */ $1 ? LATERAL unnest( EXISTS( VALUES PIVOT QUALIFY random() INTERVAL"
)


def test_mangled_queries_give_a_source_or_a_refusal(con):
    con.execute("CREATE OR REPLACE TABLE pub(a INTEGER PRIMARY KEY, w INTEGER); INSERT INTO pub VALUES (1, 2)")
    rng = random.Random(4)
    ran = 0
    for _ in range(450):
        words = rng.choice(CORPUS).replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split(" ")
        for _ in range(rng.choice((1, 1, 2, 3))):
            spot = rng.randrange(len(words))
            action = rng.randrange(3)
            if action == 0:
                words[spot] = rng.choice(WORDS)
            elif action == 1:
                words.insert(spot, rng.choice(WORDS))
            else:
                del words[spot]
        try:
            source = analyse(
                con.cursor(), " ".join(words), database="memory", schema="main", protected=lambda t: t.name == "canary"
            )
        except DpsqlError:
            continue
        ran += 1
        assert con.execute(f"SELECT count(*) FROM ({source.sql}) AS s").fetchone()[0] <= 1
    assert ran > 10
    assert con.execute("SELECT a FROM canary").fetchall() == [(1,)]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(NAMES, min_size=1, max_size=3), value=TEXTS)
def test_names_and_texts_are_quoted_as_sqlglot_does(con, names, value):
    assert identifier(*names) == ".".join(exp.to_identifier(name, quoted=True).sql(dialect="duckdb") for name in names)
    assert literal(value) == exp.Literal.string(value).sql(dialect="duckdb")
    assert con.execute(f"SELECT {literal(value)} AS {identifier(names[0])}").fetchall() == [(value,)]
    for text in (value, f"{value}\0{value}"):
        assert con.execute(f"SELECT {literal(text)}").fetchall() == [(text,)]
