"""What one person's texts can make a statement do: room and time that are bounded by the statement's text.

A third attack found both holes: 600 texts of one person filled the memory of `concat` of one column 390 times; on DuckDB 1 one text kept
`LIKE` with a pattern out of a column, or with two wildcards, from ending.
"""

from __future__ import annotations

import re

import duckdb
import pytest
from sqlglot import exp

import dpsql
from dpsql.source import patterns
from dpsql.source.kernel import LONGEST_TEXT, MOST_TEXT, SHORTEST_CUT

CUT = re.compile(r'"?left"?\([^()]*(?:\([^()]*\)[^()]*)*, (\d+)\)', re.IGNORECASE)
pytestmark = pytest.mark.older_duckdb


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    dpsql.load(made, progress=False)
    made.execute("CREATE TABLE t AS SELECT i AS u, 'ab' || i AS s, 'a%' AS p, DATE '2020-01-01' + i::INTEGER AS d FROM range(50) r(i)")
    made.execute("CALL dp_protect('t', epsilon := 1000, delta := 1e-9, privacy_unit := 'u', max_contributions := 2)")
    return made


def source(con: duckdb.DuckDBPyConnection, condition: str) -> str:
    """Return the SQL that a source becomes."""
    from dpsql.source.analysis import analyse

    return analyse(con.cursor(), text=f"SELECT u FROM t WHERE {condition}", database="memory", schema="main", protected=lambda table: True).sql


def repeated(call: str, times: int) -> str:
    return f"length(concat({', '.join([call] * times)})) > 3"


@pytest.mark.parametrize("call", ["s", "upper(s)", "replace(s, 'a', 'bcd')", "split_part(s, 'b', 1)", "strftime(d, '%A %B')"])
def test_copies_of_texts_are_shorter_where_they_are_many(con: duckdb.DuckDBPyConnection, call: str) -> None:
    """The bounds of all copies together stay within the stated number, or the statement is refused."""
    lengths = []
    for times in (1, 4, 16, 20):
        found = {int(length) for length in CUT.findall(source(con, repeated(call, times)))} or {LONGEST_TEXT}
        assert len(found) == 1, found
        lengths.append(min(found))
        copied = 1 if call.startswith("strftime") else times
        assert lengths[-1] * copied <= MOST_TEXT or lengths[-1] == SHORTEST_CUT
    assert lengths == sorted(lengths, reverse=True)
    assert call.startswith("strftime") or (lengths[0] >= LONGEST_TEXT // 2 and lengths[-1] < LONGEST_TEXT)


@pytest.mark.parametrize("condition", [repeated("s", 390), f"length(strftime(d, '{'%A' * 9000}')) > 1", repeated("split_part(s, 'b', 1)", 60)])
def test_more_than_that_is_refused_before_a_charge(con: duckdb.DuckDBPyConnection, condition: str) -> None:
    before = con.execute("SELECT count(*) FROM dpsql.ledger").fetchall()
    with pytest.raises(duckdb.Error, match="characters a row; compute fewer or shorter ones"):
        con.execute("FROM dp_query(?, epsilon := 1)", [f"SELECT count(*) FROM t WHERE {condition}"])
    assert con.execute("SELECT count(*) FROM dpsql.ledger").fetchall() == before


@pytest.mark.parametrize("pattern", ["p", "s", "'a' || p", "lower(p)", "CASE WHEN u > 3 THEN 'a%' ELSE '%' END"])
@pytest.mark.parametrize("operator", ["LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"])
def test_a_pattern_is_written_out(con: duckdb.DuckDBPyConnection, operator: str, pattern: str) -> None:
    with pytest.raises(dpsql.UnsupportedQuery, match="must be a string, written out"):
        source(con, f"s {operator} {pattern}")


def test_patterns_that_duckdb_1_goes_back_for(con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    for first, refused in ((1, True), (2, False)):
        monkeypatch.setattr(patterns, "first_number", lambda first=first: first)
        for condition in ("s LIKE '%a_%b'", "s ILIKE '%a%b%'", "s NOT ILIKE 'a%b%c'", "s LIKE ('_%a%%_')"):
            if refused:
                with pytest.raises(dpsql.UnsupportedQuery, match="regexp_full_match"):
                    source(con, condition)
            else:
                source(con, condition)
        for condition in ("s LIKE '%a%b%c%'", "s ILIKE '%ab%'", "s LIKE 'a__b%'", "s ILIKE 'a%b'", "s LIKE ''", "s LIKE NULL"):
            source(con, condition)


@pytest.mark.parametrize("pattern", ["%a_%b", "a.b%_", "_%", "%(%|%", "", "\\\\%", "é_%", "%\n_"])
def test_the_expression_that_is_offered_matches_the_same(pattern: str) -> None:
    texts = ["ab", "aab", "a.b", "a.bc", "axbc", "xaxxb", "(|", "", "\\\\x", "éa", "é", "a\nb", "\n\n", "b"]
    with duckdb.connect() as own:
        rows = own.execute("SELECT s, s LIKE $1, regexp_full_match(s, $2) FROM (SELECT unnest($3) AS s)", [pattern, patterns.regular(pattern), texts])
        for text, like, regular in rows.fetchall():
            assert like == regular, text


def test_a_pattern_in_brackets_is_one() -> None:
    node = exp.Like(this=exp.column("s"), expression=exp.Paren(this=exp.Literal.string("a%")))
    patterns.check_pattern(node, "")
