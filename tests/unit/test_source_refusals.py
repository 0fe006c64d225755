"""What a source may not be: every refusal names the construct and the way out, and none of them runs anything."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from dpsql.errors import ArgumentError, DpsqlError, NotProtected, UnsupportedQuery
from dpsql.source.analysis import TableId, analyse, find_table, relation_columns

SETUP = """
CREATE TABLE adult(id INTEGER NOT NULL, age INTEGER, name VARCHAR, sex VARCHAR, d DATE, ts TIMESTAMP, ok BOOLEAN,
                   st STRUCT(x INTEGER, "y z" VARCHAR), l INTEGER[], code VARCHAR);
CREATE TABLE secret2 AS FROM adult;
CREATE TABLE region(code VARCHAR PRIMARY KEY, label VARCHAR);
CREATE TABLE nokey(code VARCHAR, x INTEGER);
CREATE TABLE two(a VARCHAR, b INTEGER, z INTEGER, UNIQUE(a, b));
CREATE TABLE pub(x INTEGER);
CREATE TABLE gen(a INTEGER, b INTEGER GENERATED ALWAYS AS (a + 1));
CREATE SEQUENCE sq;
CREATE MACRO m(x) AS x + 1;
CREATE MACRO agg(x) AS (SELECT max(age) FROM adult);
CREATE MACRO tm(n) AS TABLE SELECT * FROM adult LIMIT n;
CREATE VIEW vm AS SELECT m(age) AS a FROM adult;
CREATE VIEW vvm AS SELECT a FROM vm;
CREATE VIEW vagg AS SELECT sex, count(*) AS n FROM adult GROUP BY sex;
CREATE VIEW vvagg AS SELECT * FROM vagg;
CREATE VIEW vd AS SELECT DISTINCT sex FROM adult;
CREATE VIEW vtm AS FROM tm(3);
CREATE VIEW vjoin AS SELECT a.* FROM adult a JOIN secret2 b ON a.id = b.id;
CREATE VIEW vlim AS FROM adult ORDER BY age LIMIT 3;
CREATE VIEW vpub AS FROM pub;
CREATE SCHEMA s2;
CREATE TABLE s2.adult(zz INTEGER);
CREATE VIEW s2.unqualified AS FROM adult;
CREATE VIEW s2.region AS FROM main.region;
CREATE SCHEMA dpsql;
CREATE TABLE dpsql.ledger(a INTEGER);
CREATE TEMP TABLE mine AS FROM adult;
"""
PROTECTED = ("adult", "secret2", "gen")


@pytest.fixture(scope="module")
def database():
    con = duckdb.connect(":memory:")
    con.execute(SETUP)
    yield con
    con.close()


def check(con: duckdb.DuckDBPyConnection, text: str, **more):
    given = {"protected": lambda t: t.name in PROTECTED and t.schema == "main", **more}
    return analyse(con.cursor(), text, database="memory", schema="main", **given)


REFUSED = {
    # mixes rows
    "SELECT max(age) AS m FROM adult": "max()",
    "SELECT count(*) FROM adult": "count()",
    "SELECT max(columns(*)) FROM adult": "max()",
    "SELECT sum(age) FILTER (WHERE ok) FROM adult": "FILTER",
    "SELECT first(age) FROM adult": "first()",
    "SELECT max(age) OVER () AS m FROM adult": "a window function",
    "SELECT lag(age) OVER (ORDER BY id) AS m FROM adult": "a window function",
    "SELECT age FROM adult WINDOW w AS (ORDER BY id)": "WINDOW",
    "SELECT DISTINCT age FROM adult": "DISTINCT",
    "SELECT DISTINCT ON (sex) age FROM adult": "DISTINCT",
    "SELECT age FROM adult GROUP BY ALL": "GROUP BY",
    "SELECT age FROM adult HAVING true": "HAVING",
    "SELECT age FROM adult QUALIFY row_number() OVER () = 1": "QUALIFY",
    "SELECT age FROM adult LIMIT 3": "LIMIT",
    "SELECT age FROM adult LIMIT 10%": "LIMIT",
    "SELECT age FROM adult OFFSET 3": "OFFSET",
    "(SELECT age FROM adult) LIMIT 3": "SUBQUERY",
    "SELECT age FROM adult TABLESAMPLE 10%": "SAMPLE",
    "SELECT age FROM adult USING SAMPLE 10": "SAMPLE",
    "SELECT age FROM adult UNION ALL SELECT age FROM adult": "set operation",
    "SELECT age FROM adult EXCEPT SELECT 1": "set operation",
    "FROM adult INTERSECT FROM adult": "set operation",
    "SELECT unnest(l) AS u FROM adult": "unnest()",
    "SELECT u FROM adult, unnest(l) AS t(u)": "JOIN",
    "SELECT age FROM adult, LATERAL (SELECT 1)": "JOIN without ON",
    "SELECT generate_subscripts(l, 1) AS u FROM adult": "generate_subscripts()",
    "SELECT regexp_split_to_table(name, ',') AS u FROM adult": "regexp_split_to_table()",
    "PIVOT adult ON sex USING count(*)": "PIVOT",
    "FROM adult PIVOT (count(*) FOR sex IN ('F', 'M'))": "",
    "UNPIVOT adult ON age INTO NAME n VALUE v": "UNPIVOT",
    "SUMMARIZE adult": "SUMMARIZE",
    "FROM (SUMMARIZE adult)": "SUMMARIZE",
    "SELECT grouping(age) FROM adult": "grouping()",
    # other rows by subquery
    "SELECT age, (SELECT max(age) FROM adult) AS m FROM adult": "a scalar subquery",
    "SELECT age FROM adult WHERE EXISTS (SELECT 1 FROM region)": "EXISTS",
    "SELECT age FROM adult WHERE code IN (SELECT code FROM region)": "IN (subquery)",
    "SELECT age FROM adult WHERE code NOT IN (FROM region SELECT code)": "IN (subquery)",
    "SELECT age FROM adult WHERE code = ANY(SELECT code FROM region)": "IN (subquery)",
    "SELECT age FROM adult WHERE code < ALL(SELECT code FROM region)": "ALL",
    "SELECT ARRAY(SELECT age FROM adult) AS x FROM adult": "array()",
    "SELECT coalesce(age, (SELECT 1)) AS x FROM adult": "a scalar subquery",
    "SELECT CASE WHEN ok THEN (SELECT 1) END AS x FROM adult": "a scalar subquery",
    "SELECT * REPLACE (max(age) AS age) FROM adult": "max()",
    # twice, or two of them
    "SELECT a.age FROM adult a JOIN adult b ON a.id = b.id": "JOIN",
    "SELECT a.age FROM adult a JOIN secret2 b ON a.id = b.id": "JOIN",
    "SELECT a.age FROM adult a, adult b": "JOIN without ON",
    "WITH x AS (FROM adult) SELECT * FROM x, x AS y": "JOIN",
    "WITH x AS (FROM adult) SELECT a.age FROM x a JOIN x b ON a.id = b.id": "JOIN",
    "WITH x AS (SELECT age FROM adult) SELECT age FROM adult": "WITH x",
    "WITH RECURSIVE x AS (SELECT age FROM adult UNION ALL SELECT age FROM x) FROM x": "WITH RECURSIVE",
    # joins that could repeat rows
    "SELECT a.age FROM adult a CROSS JOIN region r": "CROSS JOIN",
    "SELECT a.age FROM adult a, region r WHERE a.code = r.code": "JOIN without ON",
    "SELECT a.age FROM adult a RIGHT JOIN region r ON r.code = a.code": "RIGHT JOIN",
    "SELECT a.age FROM adult a FULL JOIN region r ON r.code = a.code": "FULL JOIN",
    "SELECT a.age FROM adult a SEMI JOIN region r ON r.code = a.code": "SEMI JOIN",
    "SELECT a.age FROM adult a ANTI JOIN region r ON r.code = a.code": "ANTI JOIN",
    "SELECT a.age FROM adult a ASOF JOIN region r ON a.code >= r.code": "ASOF JOIN",
    "SELECT a.age FROM adult a POSITIONAL JOIN region r": "POSITIONAL JOIN",
    "SELECT a.age FROM adult a NATURAL JOIN region r": "NATURAL JOIN",
    "SELECT r.label FROM region r JOIN adult a ON r.code = a.code": "JOIN",
    "SELECT a.age FROM adult a JOIN nokey r ON a.code = r.code": "JOIN",
    "SELECT a.age FROM adult a JOIN two r ON a.code = r.a": "JOIN",
    "SELECT a.age FROM adult a JOIN two r ON a.code = r.a AND r.z = a.id": "JOIN",
    "SELECT a.age FROM adult a JOIN region r ON a.code < r.code": "ON",
    "SELECT a.age FROM adult a JOIN region r ON a.code = r.code OR true": "ON",
    "SELECT a.age FROM adult a JOIN region r ON a.code = lower(r.code)": "ON",
    "SELECT a.age FROM adult a JOIN region r ON r.code = r.code": "ON",
    "SELECT a.age FROM adult a JOIN region r ON a.id = r.code": "ON",
    "SELECT a.age FROM adult a JOIN region r ON true": "ON",
    "SELECT a.age FROM adult a JOIN (FROM region) r ON a.code = r.code": "JOIN",
    "SELECT a.age FROM adult a JOIN s2.region r ON a.code = r.code": "JOIN",
    "SELECT a.age FROM adult a JOIN tm(3) r ON a.code = r.code": "tm()",
    "SELECT a.label FROM adult a JOIN region a ON a.code = a.code": "",
    # not the same at every call, or acting, or reading elsewhere
    **{f"SELECT {call} AS x FROM adult": call.split("(")[0] + "()" for call in (
        "random()", "uuid()", "gen_random_uuid()", "nextval('sq')", "currval('sq')", "now()", "today()", "get_current_time()",
        "txid_current()", "getvariable('x')", "current_setting('threads')", "getenv('HOME')", "error('x')", "setseed(0.5)",
        "read_text('/etc/passwd')", "stats(age)", "hash(name)", "write_log('x')", "version()", "current_schema()",
        "pg_get_viewdef(1)", "json_serialize_sql('SELECT 1')", "query('SELECT 1')", "repeat(name, id)", "range(id)",
        "lpad(name, id, 'x')", "json_extract(name, '$')", "list_transform(l, lambda x: x)", "list_sum(l)", "row(age)",
        "list_aggregate(l, 'sum')", "columns('a.*')", "columns(*)", "format('{}', age)", "make_date(id, id, id)", "chr(id)",
    )},
    "SELECT current_timestamp AS x FROM adult": "CURRENT_TIMESTAMP",
    "SELECT current_date AS x FROM adult": "CURRENT_DATE",
    "SELECT age FROM adult WHERE random() < 0.5": "random()",
    "SELECT age FROM adult AT (VERSION => 1)": "",
    # users' code
    "SELECT m(age) AS a FROM adult": "m()",
    "SELECT agg(age) AS a FROM adult": "agg()",
    "SELECT age.m() AS a FROM adult": "DOT",
    "SELECT main.m(age) AS a FROM adult": "m()",
    "FROM tm(3)": "tm()",
    "vm": "m()",
    "vvm": "m()",
    "vtm": "tm()",
    "vagg": "GROUP BY",
    "vvagg": "GROUP BY",
    "vd": "DISTINCT",
    "vjoin": "JOIN",
    "vlim": "LIMIT",
    # other relations
    "FROM query('FROM adult')": "query()",
    "FROM query_table('adult')": "query_table()",
    "FROM duckdb_tables()": "duckdb_tables()",
    "FROM read_csv('people.csv')": "read_csv()",
    "FROM read_parquet(['a.parquet', 'b.parquet'])": "read_parquet()",
    "FROM read_parquet('a.parquet', filename = true)": "read_parquet()",
    "FROM parquet_metadata('a.parquet')": "parquet_metadata()",
    "FROM 'people.csv'": "people.csv",
    "people.csv": "people.csv",
    "'people.json'": "people.json",
    "/data/*.parquet": "/data/*.parquet",
    "https://example.org/people.parquet": "people.parquet",
    "FROM (VALUES (1)) AS v(a)": "VALUES",
    "VALUES (1)": "VALUES",
    "SELECT 1 AS x": "SELECT without FROM",
    "information_schema.tables": "information_schema",
    "FROM pg_catalog.pg_class": "pg_catalog",
    "system.main.duckdb_views": "system",
    "dpsql.ledger": "dpsql",
    "memory.dpsql.ledger": "dpsql",
    "temp.main.mine": "temp",
    # other statements
    "SELECT age FROM adult; DROP TABLE adult": "several statements",
    "INSERT INTO adult(id) VALUES (3)": "INSERT",
    "DELETE FROM adult RETURNING age": "DELETE",
    "WITH x AS (INSERT INTO adult(id) VALUES (1) RETURNING *) SELECT * FROM x": "",
    "CALL dp_protect('adult')": "CALL",
    "EXPLAIN SELECT age FROM adult": "EXPLAIN",
    "DESCRIBE adult": "DESCRIBE",
    "FROM (DESCRIBE adult)": "DESCRIBE",
    "SHOW TABLES": "SHOW",
    "COPY adult TO 'x'": "COPY",
    "CREATE TABLE x AS FROM adult": "CREATE",
    "ATTACH 'x' AS y": "ATTACH",
    "PREPARE p AS SELECT age FROM adult": "PREPARE",
    "SET x = 1": "SET",
    "SELECT age INTO x FROM adult": "",
    "SELECT age FROM adult FOR UPDATE": "",
    "SELECT $1 AS x FROM adult": "a parameter",
    "SELECT ? AS x FROM adult": "a parameter",
    # columns
    "SELECT st.* FROM adult": "st.*",
    "SELECT * LIKE 'a%' FROM adult": "*",
    "SELECT * RENAME (age AS b) FROM adult": "* RENAME",
    "SELECT #1 FROM adult": "",
    "SELECT age, sex AS AGE FROM adult": "column 'AGE'",
    "SELECT a.*, r.* FROM adult a JOIN region r ON a.code = r.code": "column 'code'",
    "SELECT code FROM adult a JOIN region r ON a.code = r.code": "column 'code'",
    "SELECT * EXCLUDE (a) FROM gen": "SELECT",
    "SELECT age AS __dp_unit FROM adult": "__dp_unit",
    "SELECT age AS \"__DP_x\" FROM adult": "__DP_x",
    "SELECT age FROM adult AS __dp_s1": "__dp_s1",
    "SELECT age FROM (SELECT age AS __dp_q FROM adult)": "__dp_q",
    # expressions
    "SELECT l[1:2] AS i FROM adult": "[ ]",
    "SELECT [x FOR x IN l] AS i FROM adult": "",
    "SELECT {'a': age} AS x FROM adult": "STRUCT",
    "SELECT [age] AS x FROM adult": "",
    "SELECT (age, sex) AS x FROM adult": "TUPLE",
    "SELECT name COLLATE nocase AS x FROM adult": "COLLATE",
    "SELECT name -> '$.a' AS x FROM adult": "",
    "SELECT name ~ 'x' AS x FROM adult": "",
    "SELECT d + INTERVAL (age) DAY AS x FROM adult": "INTERVAL",
    "SELECT d + INTERVAL 99999 YEAR AS x FROM adult": "INTERVAL",
    "SELECT CASE WHEN age > 1 THEN d ELSE ts END AS x FROM adult": "an implicit conversion of DATE to TIMESTAMP",
    "SELECT age > 'x' AS x FROM adult": "the constant 'x'",
    "SELECT CASE WHEN age = 1 THEN 'abc'::INTEGER END AS x FROM adult": "the constant 'abc'",
    "SELECT d = '2020-13-01' AS x FROM adult": "the constant '2020-13-01'",
    "SELECT age::JSON AS x FROM adult": "CAST to JSON",
    "SELECT age::nosuchtype AS x FROM adult": "CAST to nosuchtype",
    "SELECT date_diff('isodow', d, d) AS x FROM adult": "date_diff('isodow')",
    "SELECT date_part(name, d) AS x FROM adult": "date_part()",
    "SELECT regexp_matches(name, name) AS x FROM adult": "regexp_matches()",
    "SELECT regexp_replace(name, 'a', '\\1') AS x FROM adult": "regexp_replace()",
    "SELECT substring(name, id) AS x FROM adult": "substring()",
    "SELECT name * 2 AS x FROM adult": "*",
    "SELECT upper() AS x FROM adult": "upper()",
    "SELECT age FROM adult WHERE": "",
    ".": ".",
    "a.b.c.d": "",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused_by_construct(database, text):
    with pytest.raises(UnsupportedQuery) as refusal:
        check(database, text)
    assert REFUSED[text] in refusal.value.construct
    assert len(str(refusal.value)) > len(refusal.value.construct) + 30  # a reason follows


def test_place_of_the_construct(database):
    with pytest.raises(UnsupportedQuery, match=r"sum\(\) \(line 2, column 1\).*mixes rows"):
        check(database, "SELECT age,\nsum(age) AS s\nFROM adult")
    with pytest.raises(UnsupportedQuery, match=r'GROUP BY in view "memory"."main"."vagg" \(line 1'):
        check(database, "SELECT n FROM vagg")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nope", "COMMIT first; a TEMP table belongs to one connection"),
        ("main.nope", "COMMIT first"),
        ("SELECT * FROM nope", "COMMIT first; a TEMP table belongs to one connection"),
        ("mine", "TEMP table"),
        ("duckdb_tables", "no such table"),
        ("sqlite_master", "no such table"),
        ("select", "no such table"),
        ("no such.parquet", "no such file"),
        ("", "must be a table"),
        ("  ", "must be a table"),
        ("SELECT nope FROM adult", "no such column"),
        ("SELECT rowid FROM adult", "no such column"),
        ("SELECT adult FROM adult", "no such column"),
        ("SELECT b FROM gen", "no such column"),
        ("SELECT age AS a, a + 1 AS b FROM adult", "a name given with AS"),
        ("SELECT age AS a FROM adult WHERE a > 3", "a name given with AS"),
        ("SELECT age + 1 FROM adult", "give it one with AS"),
        ("SELECT sex > age AS b FROM adult", "Cannot compare values of type VARCHAR"),
        ("SELECT a.age FROM adult a JOIN region r USING (nope)", "no such column"),
        ("a\0b", "valid Unicode"),
        ("SELECT '\ud800' AS x FROM adult", "valid Unicode"),
        ("x" * 200_001, "200000"),
        ('"unterminated', "no such table"),
    ],
)
def test_arguments_that_mean_nothing(database, text, said):
    with pytest.raises(ArgumentError, match=said):
        check(database, text)


def test_not_text(database):
    with pytest.raises(ArgumentError, match="must be a table"):
        check(database, 7)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("pub", "CALL dp_protect('pub', epsilon := 1.0, delta := 1e-9)"),
        ("SELECT x FROM pub", "CALL dp_protect('pub', "),
        ("vpub", "CALL dp_protect('pub', "),
        ("s2.adult", """CALL dp_protect('"s2"."adult"', """),
        ("s2.unqualified", """CALL dp_protect('"s2"."adult"', """),
        ("SELECT r.code FROM region r JOIN two t ON r.code = t.a", "CALL dp_protect("),
    ],
)
def test_not_protected_says_how(database, text, line):
    with pytest.raises(NotProtected) as refusal:
        check(database, text)
    assert line in str(refusal.value)


def test_deep_nesting_is_refused_not_a_crash(database):
    text = "FROM adult"
    for _ in range(40):
        text = f"FROM ({text})"
    with pytest.raises(UnsupportedQuery, match="deeper than"):
        check(database, text)
    with pytest.raises(DpsqlError):
        check(database, "SELECT " + "(" * 3000 + "age" + ")" * 3000 + " AS x FROM adult")
    with pytest.raises(DpsqlError):
        check(database, "SELECT " + "-(" * 300 + "age" + ")" * 300 + " AS x FROM adult, adult b")


def test_uncommitted_table_is_invisible(tmp_path: Path):
    with duckdb.connect(str(tmp_path / "x.duckdb")) as con:
        con.execute("BEGIN")
        con.execute("CREATE TABLE fresh(a INTEGER)")
        with pytest.raises(ArgumentError, match="COMMIT first"):
            analyse(con.cursor(), "fresh", database="x", schema="main", protected=lambda t: True)
        con.execute("COMMIT")
        assert analyse(con.cursor(), "fresh", database="x", schema="main", protected=lambda t: True).bare


def test_unit_column_that_has_gone(database):
    with pytest.raises(ArgumentError, match="no stored column of that name any more"):
        check(database, "adult", unit_column=lambda t: "gone")
    with pytest.raises(ArgumentError, match="no stored column"):
        check(database, "gen", unit_column=lambda t: "b")


def test_reserved_column_in_the_table():
    with duckdb.connect(":memory:") as con:
        con.execute('CREATE TABLE t(a INTEGER, "__DP_unit" INTEGER)')
        with pytest.raises(UnsupportedQuery, match="dpsql's own"):
            analyse(con.cursor(), "t", database="memory", schema="main", protected=lambda t: True)


def test_find_table_and_columns(database):
    cursor = database.cursor()
    home = {"database": "memory", "schema": "main"}
    table = find_table(cursor, "MAIN.Adult", **home)
    assert table == TableId("memory", "main", "adult")
    assert table.sql == '"memory"."main"."adult"'
    assert not table.is_file
    assert [(c.name, c.nullable) for c in relation_columns(cursor, table)][:2] == [("id", False), ("age", True)]
    assert [c.name for c in relation_columns(cursor, find_table(cursor, "gen", **home))] == ["a"]
    with pytest.raises(ArgumentError, match="is a view"):
        find_table(cursor, "vpub", **home)
    assert find_table(cursor, "vpub", **home, views=True).name == "vpub"
    for text in ("nope", "SELECT 1", "FROM adult"):
        with pytest.raises(ArgumentError, match="no such table or view in memory.main"):
            find_table(cursor, text, **home)
