"""What is not on the list is refused by name, and no name or text is read as SQL. Without Java."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from dpsql.engines.spark.translate import translated
from dpsql.engines.spark.translate.literals import constant, name, text
from dpsql.errors import UnsupportedQuery

pytestmark = pytest.mark.any_duckdb
PEOPLE = {'"memory"."main"."people"': "`lake_people`"}
FROM = 'FROM "memory"."main"."people" AS p'


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE people(i INTEGER, b BIGINT, u UBIGINT, h HUGEINT, f FLOAT, w DOUBLE, d DECIMAL(38,10), s VARCHAR, day DATE, t TIMESTAMP, z TIMESTAMPTZ, ok BOOLEAN,"
        " tm TIME, l VARCHAR[], bl BLOB)"
    )
    connection.execute("CREATE TABLE local_one AS SELECT 1 AS x")
    yield connection
    connection.close()


REFUSED = {
    "regexp_matches(s, '(a|b)*')": "regexp_matches() with a group that is repeated", "regexp_split_to_array(s, 'a')": "regexp_split_to_array()", "reverse(s)": "reverse()", "strip_accents(s)": "strip_accents()", "exp(w)": "exp()", "ln(w)": "ln()", "sin(w)": "sin()",
    "random()": "random()", "pow(w, 2)": "pow()", "CAST(w + 1 AS VARCHAR)": "CAST(DOUBLE AS VARCHAR)", "TRY_CAST(s AS INTEGER)": "CAST(VARCHAR AS INTEGER)",
    "TRY_CAST(s AS DATE)": "CAST(VARCHAR AS DATE)", "TRY_CAST(w AS DECIMAL(9,2))": "CAST(DOUBLE AS DECIMAL(9,2))", "TRY_CAST(i AS UBIGINT)": "CAST(INTEGER AS UBIGINT)",
    "year(z)": "year() of TIMESTAMP WITH TIME ZONE", "CAST(z AS DATE)": "CAST(TIMESTAMP WITH TIME ZONE AS DATE)",
    "strftime(day, '%Y')": "strftime()", "date_sub('day', day, day)": "date_sub()", "date_diff('week', day, day)": "date_diff() of 'week'", "date_trunc('century', day)": "date_trunc() of 'century'",
    "s ILIKE 'a%'": "ILIKE", "s LIKE s": "LIKE", "round(w, 2)": "round() of DOUBLE to some digits", "w // 2": "// of floating-point numbers", "d * d": "DECIMAL(38,10) * DECIMAL(38,10)",
    "i & 3": "INTEGER & INTEGER", "i << 2": "BITWISELEFTSHIFT", "s COLLATE NOCASE": "COLLATE", "(SELECT 1)": "SUBQUERY", "[i]": "ARRAY", "{'a': i}": "STRUCT", "l[1]": "[ ]", "s[1]": "[ ]",
    "list_transform([0], lambda q: TRY(i))[1]": "[ ]", "hour(tm)": "hour() of TIME", "getenv('HOME')": "getenv()", "read_text('/etc/passwd')": "read_text()",
    "current_date": "CURRENTDATE", "EXISTS (SELECT 1)": "EXISTS", "sum(w)": "sum() of DOUBLE", "avg(i)": "avg()", "string_agg(s, ',')": "string_agg()", "first(i)": "first()",
    "lag(i) OVER (ORDER BY i)": "a window function", "sum(i) OVER (ORDER BY i)": "a window function", "count(*) OVER (ORDER BY i)": "count() over an ordered window",
    "row_number() OVER (PARTITION BY s)": "row_number() without ORDER BY", "row_number() OVER (ORDER BY i ROWS UNBOUNDED PRECEDING)": "WINDOW with SPEC", "ascii(s)": "ascii()",
    "enum_code(CAST(s AS ENUM('a')))": "enum_code()", "i::JSON": "CAST(INTEGER AS JSON)", "uuid()": "uuid()", "nextval('q')": "nextval()", "CAST('infinity' AS DATE)": "infinity",
    "string_split(s, '')[1]": "[ ]", "list_contains(string_split(s, ''), 'a')": "string_split() with an empty delimiter", "md5(bl)": "md5() of BLOB", "COLUMNS(*)": "COLUMNS()",
}  # fmt: skip


@pytest.mark.parametrize("expression", REFUSED)
def test_an_expression_that_is_not_listed_is_refused_by_name(expression: str, con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(UnsupportedQuery) as refused:
        translated(con, f"SELECT {expression} AS x {FROM}", PEOPLE)
    assert refused.value.construct.lower() == REFUSED[expression].lower()


QUERIES = {
    f"SELECT i {FROM} LIMIT 1": "LIMIT",
    f"SELECT i {FROM} ORDER BY i": "ORDER",
    f"SELECT DISTINCT ON (i) i {FROM}": "DISTINCT ON",
    f"SELECT i {FROM} UNION SELECT i {FROM}": "a set operation",
    f"SELECT i {FROM} EXCEPT SELECT i {FROM}": "EXCEPT",
    f"SELECT i {FROM} QUALIFY row_number() OVER (ORDER BY i) = 1": "QUALIFY",
    f'SELECT p.i {FROM} FULL JOIN "memory"."main"."people" q ON p.i = q.i': "FULL",
    f"SELECT p.i {FROM} JOIN people q USING (i)": "JOIN",
    f'SELECT p.i {FROM}, "memory"."main"."people" p': "two relations named 'p'",
    f"SELECT i {FROM} TABLESAMPLE 10%": "the relation",
    f"SELECT count(*) AS n {FROM} GROUP BY ROLLUP (i)": "ROLLUP",
    f"SELECT i, count(*) AS n {FROM} GROUP BY 1": "GROUP BY with a number",
    "SELECT x FROM local_one": "the relation",
    "SELECT x FROM read_csv('/etc/passwd') AS t(x)": "the relation",
    "SELECT x FROM range(3) AS t(x)": "the relation",
    f"WITH RECURSIVE r AS (SELECT i {FROM}) SELECT i FROM r": "WITH RECURSIVE",
    f"WITH r AS MATERIALIZED (SELECT i {FROM}) SELECT i FROM r": "MATERIALIZED",
    f"SELECT rowid AS r {FROM}": "column rowid",
    f"SELECT i + 1 {FROM}": "a column without a name",
}


@pytest.mark.parametrize("statement", QUERIES)
def test_a_query_that_is_not_listed_is_refused_by_name(statement: str, con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(UnsupportedQuery) as refused:
        translated(con, statement, PEOPLE)
    assert refused.value.construct.lower().startswith(QUERIES[statement].lower())


def test_a_message_says_the_way_out(con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(UnsupportedQuery, match=r"refused at exp\(\): .*compute it in the lake, in a view there"):
        translated(con, f"SELECT exp(w) AS x {FROM}", PEOPLE)


@pytest.mark.parametrize("value", ["", "'", "\\", "\\' OR 1=1 --", "${env:HOME}", "a\nb", "a\0b", "`", "😀", "?", ":x", "{{x}}", "{d 'x'}", '"', "a'b"])
def test_a_text_cannot_leave_its_literal(value: str, con: duckdb.DuckDBPyConnection) -> None:
    written = text(value)
    plain = written[1:-1] if written.startswith("'") else bytes.fromhex(written.removeprefix("CAST(X'").removesuffix("' AS STRING)")).decode()
    assert plain == value
    assert not set(written) & set("\\$`\n\0?{\"")
    literal = "'" + value.replace("'", "''").replace("\0", "") + "'"
    assert text(value.replace("\0", "")) in translated(con, f"SELECT s = {literal} AS x {FROM}", PEOPLE).sql


@pytest.mark.parametrize("column", ["a b", "a`b", "`", "a'b", "a\\b", "--", "/*", "ä", "a.b", "select", "x; DROP TABLE y", "a\nb"])
def test_a_name_cannot_leave_its_quotes(column: str) -> None:
    con = duckdb.connect()
    quoted = '"' + column.replace('"', '""') + '"'
    con.execute(f'CREATE TABLE "{column}"({quoted} INTEGER)')
    found = translated(con, f'SELECT {quoted} AS {quoted} FROM "{column}"', {f'"{column}"': "`lake`"})
    inside = name(column)[1:-1].replace("``", "")
    assert "`" not in inside
    assert found.sql == f"SELECT {name(column)}.{name(column)} AS {name(column)} FROM `lake` AS {name(column)}"
    assert found.columns == ((column, "INTEGER"),)


@pytest.mark.parametrize("column", ["${env:HOME}", "a${x", "a\0b"])
def test_a_name_that_spark_would_replace_is_refused(column: str) -> None:
    with pytest.raises(UnsupportedQuery):
        name(column)


def test_names_are_compared_as_duckdb_does(con: duckdb.DuckDBPyConnection) -> None:
    assert translated(con, 'SELECT P."I" AS x FROM "MEMORY"."main"."People" AS p', PEOPLE).sql == "SELECT `p`.`i` AS `x` FROM `lake_people` AS `p`"


def test_numbers_are_written_in_their_type() -> None:
    assert constant(2**64 - 2**32, "UBIGINT").sql == "CAST('-4294967296' AS BIGINT)"
    assert constant(-(2**63), "BIGINT").sql == "CAST('-9223372036854775808' AS BIGINT)"
    assert constant(0.1, "DOUBLE").sql == "CAST('0.1' AS DOUBLE)"
    with pytest.raises(UnsupportedQuery):
        constant(10**38, "HUGEINT")


def test_halves_of_a_bounding_become_one_pass(con: duckdb.DuckDBPyConnection) -> None:
    from dpsql.domains.bounding import light_first_sql

    statement = light_first_sql(f'SELECT b AS "u", i AS "x" {FROM}', ["u"], ["u", "x"], 3, "0123456789abcdef" * 2)
    found = translated(con, statement, PEOPLE).sql
    assert found.count("lake_people") == 1
    assert "UNION" not in found
    assert "JOIN" not in found


def test_what_reads_no_table_is_written_as_its_rows(con: duckdb.DuckDBPyConnection) -> None:
    groups = "(SELECT row_number() OVER (ORDER BY k0) - 1 AS ord, k0 FROM (SELECT unnest(['b', NULL, 'a''']) AS k0)) AS groups"
    found = translated(con, f"SELECT groups.ord AS ord {FROM} JOIN {groups} ON p.s IS NOT DISTINCT FROM groups.k0", PEOPLE)
    assert "VALUES (0L, CAST(X'6127' AS STRING)), (1L, 'b'), (2L, CAST(NULL AS STRING)) AS __dp_values(`ord`, `k0`)" in found.sql
    assert found.columns == (("ord", "BIGINT"),)


def test_keys_that_only_duckdb_writes_come_back_as_they_are(con: duckdb.DuckDBPyConnection) -> None:
    found = translated(con, f"SELECT CAST(w AS VARCHAR) AS k0, CAST(i AS VARCHAR) AS k1, count(*) AS n {FROM} GROUP BY w, i", PEOPLE)
    assert found.texts == ("k0",)
    assert found.columns == (("k0", "DOUBLE"), ("k1", "VARCHAR"), ("n", "BIGINT"))
