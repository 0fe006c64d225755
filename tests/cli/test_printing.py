"""What is printed is what DuckDB has: values in CSV and JSON to the last digit, boxes that fit and don't read everything."""

from __future__ import annotations

import io
import json

import duckdb
import pytest

from dpsql.cli import results
from dpsql.cli.box import width_of
from dpsql.cli.printing import Look, write

AWKWARD = """SELECT NULL::INTEGER AS nothing, '' AS empty, 9223372036854775807 AS big, -170141183460469231731687303715884105727::HUGEINT AS huge,
    12345678901234567890.123456789::DECIMAL(38, 9) AS decimal, 0.1::FLOAT AS single, 1e300 AS double, true AS flag,
    DATE '0044-03-15 (BC)' AS ides, TIMESTAMP_NS '2020-01-01 00:00:00.123456789' AS nanos, INTERVAL '3 months 2 days' AS span,
    TIMESTAMPTZ '2020-06-01 12:00:00+00' AS zoned, ['a,b', NULL, 'it''s'] AS list, {'k': [1.50::DECIMAL(4, 2)], 'n': NULL} AS struct,
    MAP {'x': 1} AS map, 'say "x", then' || chr(10) || 'new line' AS text, 'ä€😀' AS unicode, 'ab'::BLOB AS bytes, 'a'::ENUM('a', 'b') AS label,
    'infinity'::DATE AS never"""


@pytest.fixture
def con():
    connection = duckdb.connect()
    yield connection
    connection.close()


class Counting:
    """A connection that counts the rows that are fetched from it."""

    def __init__(self, con):
        self.con, self.rows = con, 0

    def __getattr__(self, name):
        return getattr(self.con, name)

    def fetchmany(self, size):
        found = self.con.fetchmany(size)
        self.rows += len(found)
        return found


def printed(con, query, **look):
    look = Look(**look)
    out = io.StringIO()
    result = results.run(con, query, objects=look.objects)
    write(result, look, out)
    result.close()
    return out.getvalue()


def test_csv_reads_back_as_it_was(con, tmp_path):
    """Through DuckDB's own reader, all columns as text, compared with DuckDB's own casts."""
    query = f"{AWKWARD} UNION ALL {AWKWARD}"
    path = tmp_path / "x.csv"
    path.write_text(printed(con, query, mode="csv"), encoding="utf-8", newline="")
    reader = "read_csv(?, all_varchar := true, header := true, quote := '\"', escape := '\"', allow_quoted_nulls := false)"
    read = con.execute(f"FROM {reader}", [str(path)]).fetchall()
    expected = con.execute(f"SELECT COLUMNS(*)::VARCHAR FROM ({query})").fetchall()
    assert read == expected
    assert len(read) == 2


def test_csv_is_what_copy_writes(con, tmp_path):
    path = tmp_path / "copy.csv"
    query = f"SELECT * EXCLUDE (bytes) FROM ({AWKWARD})"
    con.execute(f"COPY ({query}) TO '{path}' (FORMAT csv, HEADER)")
    assert printed(con, query, mode="csv") == path.read_text(encoding="utf-8")


def test_json_is_exact(con):
    (row,) = json.loads(printed(con, AWKWARD, mode="json"), parse_float=str)
    assert (row["nothing"], row["empty"], row["big"]) == (None, "", 2**63 - 1)
    assert (row["huge"], row["decimal"], row["flag"]) == (-(2**127) + 1, "12345678901234567890.123456789", True)
    assert (row["nanos"], row["span"], row["ides"]) == ("2020-01-01 00:00:00.123456789", "3 months 2 days", "0044-03-15 (BC)")
    assert (row["list"], row["map"], row["text"]) == (["a,b", None, "it's"], {"x": 1}, 'say "x", then\nnew line')
    assert float(row["struct"]["k"][0]) == 1.5
    assert row["unicode"] == "ä€😀"


def test_json_has_no_numbers_that_json_has_not(con):
    query = "SELECT 'nan'::DOUBLE AS a, ['-inf'::DOUBLE, 1] AS b, 'NaN, \"Infinity' AS c FROM range(2)"
    expected = {"a": "NaN", "b": ["-Infinity", 1], "c": 'NaN, "Infinity'}
    assert json.loads(printed(con, query, mode="json")) == [expected, expected]
    assert [json.loads(line) for line in printed(con, query, mode="jsonlines").splitlines()] == [expected, expected]
    assert json.loads(printed(con, "SELECT 1 WHERE false", mode="json")) == []


@pytest.mark.parametrize("mode", ["csv", "json"])
@pytest.mark.parametrize(
    ("statement", "column"),
    [("CALL pragma_version()", "library_version"), ("DESCRIBE t", "column_name"), ("SHOW TABLES", "name"), ("PRAGMA version", "codename")]
    + [("INSERT INTO t VALUES (7) RETURNING a", "a"), ("EXECUTE p", "z"), ("VALUES (1)", "col0"), ("EXPLAIN SELECT 1", "explain_key")]
    + [("PIVOT (SELECT 1 AS a, 2 AS b) ON a USING sum(b)", "1"), ("FROM t -- a comment; here", "a"), ("SUMMARIZE t", "min")],
)
def test_every_kind_of_statement_with_rows(con, statement, column, mode):
    con.execute("CREATE TABLE t AS SELECT 1 AS a")
    con.execute("PREPARE p AS SELECT 1 AS z")
    text = printed(con, statement, mode=mode)
    assert column in (json.loads(text)[0] if mode == "json" else text.splitlines()[0])


@pytest.mark.parametrize("statement", ["CREATE TABLE u AS SELECT 1", "SET threads = 1", "INSERT INTO t VALUES (1)", "BEGIN", "DROP TABLE t"])
def test_statements_without_rows_print_nothing(con, statement):
    con.execute("CREATE TABLE t(a INTEGER)")
    assert results.run(con, statement) is None


def test_a_query_runs_once_and_keeps_its_order(con):
    con.execute("CREATE SEQUENCE s")
    assert printed(con, "SELECT nextval('s') AS a", mode="csv") == "a\n1\n"
    assert con.execute("SELECT nextval('s')").fetchall() == [(2,)]
    rows = printed(con, "SELECT i FROM range(300000) t(i) ORDER BY hash(i)", mode="csv").split()[1:]
    assert rows == [str(i) for (i,) in con.execute("SELECT i FROM range(300000) t(i) ORDER BY hash(i)").fetchall()]


def test_a_call_is_bound_once(con):
    calls = []

    def relation():
        calls.append(1)
        return "range(3)"

    con.create_function("bound", relation, [], "VARCHAR", side_effects=True)
    for query in ("FROM query('FROM ' || bound())", "FROM query('FROM ' || bound()) ORDER BY 1"):
        for mode in ("box", "csv", "json"):
            calls.clear()
            printed(con, query, mode=mode)
            assert len(calls) == 1, (query, mode)
    con.remove_function("bound")


def test_a_long_result_is_not_read_to_its_end(con):
    counting = Counting(con)
    text = printed(counting, "SELECT i, i + 1 AS j FROM range(100_000_000_000) t(i)")
    assert 10_000 < counting.rows <= 10_000 + 2 * results.BATCH
    assert len(text.splitlines()) == 46
    assert text.splitlines()[-1] == "  more than 10,000 rows (40 shown)"
    assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_first_and_last_rows_of_a_result_that_can_be_counted(con):
    lines = printed(con, "SELECT i FROM range(100) t(i)").splitlines()
    cells = [line.strip("│ ") for line in lines[4:-2]]
    assert cells == [*map(str, range(20)), "·", "·", "·", *map(str, range(80, 100))]
    assert lines[-1] == "  100 rows (40 shown)"
    for rows in (40, 41, 39, 1, 0):
        text = printed(con, f"SELECT i FROM range({rows}) t(i)")
        assert text.count("\n") == (5 if rows == 0 else 5 + min(rows, 40) + 3 * (rows > 40) + (rows >= 10)), rows
    assert len(printed(con, "FROM range(100)", rows=0).splitlines()) == 106


@pytest.mark.parametrize("width", [20, 40, 80, 100, 133])
def test_a_box_fits_the_terminal(con, width):
    wide = "SELECT " + ", ".join(f"{i} AS column_{i}" for i in range(1000)) + " FROM range(3)"
    long = f"SELECT repeat('ä', 300) AS a, repeat('你', 200) AS b, 1 AS c, range AS d FROM range({width})"
    for query in (wide, long, "SELECT 1 AS a", "SELECT repeat('x', 500) AS a", AWKWARD):
        lines = printed(con, query, width=width).splitlines()
        drawn = [line for line in lines if line[0] in "┌│├└"]
        assert len({width_of(line) for line in drawn}) == 1, query
        assert width_of(drawn[0]) <= max(width, 30), query
    assert "1,000 columns (" in printed(con, wide, width=width)


def test_no_value_reaches_the_terminal_as_a_command(con):
    for mode in ("box", "line", "markdown"):
        text = printed(con, """SELECT 'a' || chr(27) || '[2J' || chr(7) || chr(155) AS "x\x1b]0;y" """, mode=mode)
        assert text.replace("\n", "").isprintable(), mode
        assert "\\x1b[2J\\x07\\x9b" in text


def test_markdown_and_lines(con):
    query = "SELECT 'a|b' AS text, 1.5 AS number, NULL::VARCHAR AS nothing"
    assert printed(con, query, mode="markdown").splitlines() == [
        "| text | number | nothing |",
        "|------|-------:|---------|",
        "| a\\|b |    1.5 | NULL    |",
    ]
    assert printed(con, query, mode="line") == "   text = a|b\n number = 1.5\nnothing = NULL\n"


def test_the_books_hide_nothing(con):
    query = "SELECT 'main.people' AS a_rather_long_name, 1.5 AS another_name, NULL AS b, repeat('x', 30) AS c"
    assert printed(con, query, plain=True, null="", width=120).splitlines()[2].startswith("├")
    narrow = printed(con, query, plain=True, null="", width=50).splitlines()
    assert narrow == ["a_rather_long_name = main.people", "      another_name = 1.5", "                 b = ", "                 c = " + "x" * 30]
    words = printed(con, "SELECT 'one two three four five six' AS a, repeat('y ', 300) AS b", plain=True, null="", mode="line").splitlines()
    assert words[0] == "a = one two three four five six" and max(map(len, words)) <= 100 and all(line.startswith("    y") for line in words[2:])
    assert len(printed(con, "SELECT repeat('y ', 300) AS b", mode="line").splitlines()) == 1
