"""Where statements begin and end, against DuckDB's own parser where it can say."""

from __future__ import annotations

import duckdb
import pytest
from case_counts import cases
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.cli.messages import cannot_open, message, place
from dpsql.cli.statements import complete, pieces

CON = duckdb.connect()
SCRIPT = """select 1; ;; select 'a;b
c'; -- x;
.read it's.sql
select $$;$$, $q$ ; $q$, E'\\';' ; /* ; /* ; */ ; */ .tables
FROM "é;" ; sel 'open; x"""


def test_statements_of_an_awkward_script():
    found = [(p.text, p.line, p.closed, p.command) for p in pieces(SCRIPT)]
    assert found == [
        ("select 1", 1, True, False),
        ("select 'a;b\nc'", 1, True, False),
        (".read it's.sql", 3, True, True),
        ("select $$;$$, $q$ ; $q$, E'\\';'", 4, True, False),
        (".tables", 4, True, True),
        ('FROM "é;"', 5, True, False),
        ("sel 'open; x", 5, False, False),
    ]


PARTS = st.sampled_from(
    ["select 1", "select ';'", "select 'it''s; '", 'select 1 AS "a;b"', "select $$ ; ' $$", "-- ; '\n", "/* ; ' /* \" */ */", " ", "\n"]
    + ["select 'é;😀'", "select E'\\';'", "from range(2)", "select $x$ $$ ; $x$", "select 1 -- ;\n + 1", "select/*;*/2"]
)


@settings(max_examples=cases(150), deadline=None)
@given(st.lists(PARTS, min_size=1, max_size=6))
def test_a_script_falls_into_what_duckdb_parses(parts):
    text = ";".join(parts)
    ours = [p.text for p in pieces(text)]
    theirs = duckdb.extract_statements(text)
    assert len(ours) == len(theirs)
    for own, statement in zip(ours, theirs, strict=True):
        assert CON.execute(own).fetchall() == CON.execute(statement).fetchall()


@settings(max_examples=cases(150), deadline=None)
@given(st.text(alphabet="a;'\"$-/*\n. é", max_size=14))
def test_any_text_is_read_to_its_end(text):
    found = list(pieces(text))
    assert all(p.text for p in found)
    assert all(p.closed for p in found[:-1])
    assert complete(text + "\n") in (True, False)
    if found and not found[-1].closed:
        assert not complete(text)


@pytest.mark.parametrize(
    ("text", "ready"),
    [("select 1", False), ("select 1;", True), ("select 1; -- done", True), ("select ';", False), ("select 1; /* open", False)]
    + [("", True), ("-- c", True), ("/* c", False), (".help", True), (".help\nselect 1", False), ("select 1; select 2", False)]
    + [("select $$;", False), ('select "a;', False), ("/* x */ select 1;", True), (";", True)],
)
def test_what_enter_runs(text, ready):
    assert complete(text) is ready


def test_queries_between_dollars_keep_their_quotes_and_semicolons():
    first = """FROM dp_query($$\n SELECT count(*) FILTER (WHERE a = 'it''s; $1') AS "n;" FROM t; -- no ; end\n$$, epsilon := 1)"""
    second = "FROM dp_query($q$ SELECT 'a;$$b' $q$, epsilon := 1)"
    assert [(piece.text, piece.line) for piece in pieces(f"{first};\n.mode csv\n{second};")] == [(first, 1), (".mode csv", 4), (second, 5)]
    assert not complete("FROM dp_query($$ SELECT 1;") and not complete("FROM dp_query('SELECT 1;") and complete(f"{first};")


def test_a_long_script_is_read_in_one_go():
    assert sum(1 for _ in pieces("insert into t values (1, 'a;b');\n" * 20_000)) == 20_000


def test_errors_are_one_line_without_what_duckdb_puts_before_them():
    wrapped = "Invalid Input Error: Python exception occurred while executing the UDF: "
    assert message(Exception(f"{wrapped}BudgetExceeded: too much\n\nLINE 1: FROM dp_x('a')\n   ^^^")) == "Error: too much"
    assert message(Exception(f"{wrapped}BudgetExceeded: too much\n\nAt:\n  file(1): f\n")) == "Error: too much"
    assert message(Exception(f"{wrapped}KeyError: 'x'")) == "Error: KeyError: 'x'"
    twice = Exception("Binder Error: no column\nCandidates: \x1b[2Ja\n\nLINE 3: b\n        ^")
    assert (message(twice), place(twice)) == ("Binder Error: no column Candidates: \\x1b[2Ja", 3)
    assert message(ValueError()) == "Error: ValueError"


def test_a_locked_file_is_named_with_who_has_it():
    text = 'IO Error: Could not set lock on file "/a/b": Conflicting lock is held in /usr/bin/python3.11 (PID 41) by user x. See'
    assert "b.duckdb is open in another process (python3.11, process 41)" in cannot_open("b.duckdb", Exception(text))
