"""What Tab offers, without a terminal."""

from __future__ import annotations

import duckdb
import pytest

import dpsql

pytest.importorskip("prompt_toolkit")
pytest.importorskip("pygments")

from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from dpsql.cli.completion import CHOICES, Names, SqlCompleter


@pytest.fixture(scope="module")
def offered():
    con = duckdb.connect()
    dpsql.load(con)
    con.execute('CREATE TABLE people(age INTEGER, member BOOLEAN, "odd name" INTEGER)')
    con.execute("CREATE SCHEMA work; CREATE TABLE work.visits(zday DATE)")
    con.execute("CALL dp_protect('people', epsilon := 1, delta := 1e-9)").fetchall()
    con.execute("FROM dp_marginals('people', k := 1, epsilon := 0.1, columns := ['member'], release := 'first')").fetchall()
    completer = SqlCompleter(Names(lambda: con))

    def ask(before, after=""):
        found = completer.get_completions(Document(before + after, len(before)), CompleteEvent())
        return [before[: len(before) + c.start_position] + c.text for c in found]

    yield ask
    con.close()


def test_calls_come_first_and_end_with_their_bracket(offered):
    assert offered("FROM dp_bud")[0] == "FROM dp_budget("
    assert offered("FROM dp_")[:2] == ["FROM dp_aggregates(", "FROM dp_budget("]


def test_parameters_inside_of_a_call(offered):
    assert offered("FROM dp_synthesize('people', eps")[0] == "FROM dp_synthesize('people', epsilon := "
    left = offered("FROM dp_synthesize('people', epsilon := 1, ")
    assert "FROM dp_synthesize('people', epsilon := 1, method := " in left
    assert not any(text.endswith("epsilon := ") for text in left[:1]) and not any("source :=" in text for text in left)
    assert not any("method := " in text for text in offered("FROM dp_budget() WHERE m"))
    assert offered("CALL dp_declare('people', col")[0] == "CALL dp_declare('people', column_name := "
    assert not any(text.endswith(("(column := ", " column := ", " into := ")) for text in offered("CALL dp_declare('people', "))


def test_queries_are_completed_between_dollars(offered):
    assert offered("FROM dp_query($$ SELECT count(*) FROM peo") == ["FROM dp_query($$ SELECT count(*) FROM people"]
    call = "FROM dp_query($$ SELECT member, count(*),\n'x' FROM people GROUP BY member $$, "
    assert offered(call)[0] == f"{call}epsilon := "
    assert offered(f"{call}max_")[:2] == [f"{call}max_groups := ", f"{call}max_rows_per_group := "]
    assert offered(f"{call}groups := 'pu") == [f"{call}groups := 'public"]


def test_texts_inside_of_a_call(offered):
    assert offered("FROM dp_plan('peo") == ["FROM dp_plan('people"]
    assert offered("FROM dp_sample('") == ["FROM dp_sample('people-marginals-first-" + offered("FROM dp_sample('")[0].rsplit("-", 1)[1]]
    assert "FROM dp_plan('people', method := 'latent_class" in offered("FROM dp_plan('people', method := 'lat")
    assert offered("FROM dp_marginals('people', shape := 'w") == ["FROM dp_marginals('people', shape := 'wide"]
    assert offered("FROM dp_plan('people', operation := 'c") == ["FROM dp_plan('people', operation := 'contributions"]
    assert offered("SELECT 'peo") == []
    assert offered("CALL dp_protect('people', accountant := 'z") == ["CALL dp_protect('people', accountant := 'zcdp"]


def test_tables_columns_keywords_and_functions(offered):
    assert "SELECT age" in offered("SELECT ag", " FROM people")
    assert "SELECT zday" not in offered("SELECT zd", " FROM people")  # of a table that is not in the statement
    assert 'SELECT "odd name"' in offered('SELECT "o', " FROM people") or 'SELECT people."odd name"' in offered("SELECT people.")
    assert offered("SELECT people.m") == ["SELECT people.member"]
    assert "FROM work.visits" in offered("FROM work.v") and "FROM work.visits" in offered("FROM wor")
    assert "SELECT" in offered("SELE") and "select" in offered("sele")
    assert "SELECT median" in offered("SELECT media")
    assert offered("") == [] and offered("SELECT ") == []


def test_dot_commands(offered):
    assert offered(".ta") == [".tables"]
    assert offered(".mode js") == [".mode json", ".mode jsonlines"]


def test_the_choices_are_what_calls_take():
    con = duckdb.connect()
    dpsql.load(con)
    con.execute("CREATE TABLE t(a BOOLEAN)")
    for accountant in CHOICES["accountant"]:
        for neighbors in CHOICES["neighbors"]:
            con.execute(f"CREATE OR REPLACE TABLE t_{accountant}_{neighbors} AS FROM t")
            con.execute(
                f"CALL dp_protect('t_{accountant}_{neighbors}', epsilon := 1, delta := 1e-9, accountant := '{accountant}', neighbors := '{neighbors}')"
            )
    assert set(CHOICES["method"]) == set(dpsql.methods.names())
    con.close()


def test_no_progress_bar_is_drawn_into_the_line_that_is_typed():
    """Whoever has the bar on has it on afterwards, and completion works where it can't be switched off."""
    con = duckdb.connect()
    dpsql.load(con, progress=False)
    con.execute("SET enable_progress_bar = true")
    shown: list[bool] = []

    class Watched:
        def execute(self, query, *given):
            if "current_setting" not in query and not query.startswith("SET "):
                shown.append(con.execute("SELECT current_setting('enable_progress_bar')").fetchall()[0][0])
            return con.execute(query, *given)

    assert Names(Watched).read().calls
    assert shown and not any(shown)
    assert con.execute("SELECT current_setting('enable_progress_bar')").fetchall() == [(True,)]
    con.execute("SET lock_configuration = true")
    assert Names(lambda: con).read().calls
    con.close()
