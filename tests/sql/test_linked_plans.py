"""Plans of releases that were bought under links that were changed since."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from linked_tables import link_patients, make_patients

import dpsql

pytestmark = pytest.mark.any_duckdb


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    make_patients(connection, 100)
    dpsql.load(connection, user="tester", progress=False)
    link_patients(connection)
    connection.execute("CALL dp_declare('visits', 'cost', lower := 0, upper := 100, bins := 4)")
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("call", "arguments"),
    [("dp_query", "'SELECT count(*) FROM visits', epsilon := 0.3"), ("dp_marginals", "'visits', columns := ['cost'], epsilon := 0.3")],
)
def test_a_bought_release_is_shown_with_the_links_that_it_was_read_by(con, monkeypatch, call, arguments):
    monkeypatch.setattr("dpsql.answers.row_bounds.MANY", 1000)  # as many rows count as links allow
    plan = f"SELECT bought, noise_scale, [x FOR x IN notes IF x LIKE '%links allow%' OR x LIKE '%by links%' OR x LIKE '%without a parent%'] FROM dp_plan({arguments}{', k := 1' if 'marginals' in call else ''})"
    con.execute(f"FROM {call}({arguments})")
    ((bought, scale, notes),) = con.execute(plan).fetchall()
    assert bought and "links allow" in notes[0] and "left out" in notes[1]
    con.execute("CALL dp_link('visits', max_rows := 1, orphans := 'unit')")
    ((bought, later, notes),) = con.execute(plan).fetchall()
    assert bought and later == scale, "the noise that it has, not what it would have today"
    assert "links that were changed since" in notes[0] and "left out" in notes[1]
    again = plan.replace("epsilon := 0.3", "epsilon := 0.4, release := 'anew'")
    ((bought, smaller, notes),) = con.execute(again).fetchall()
    assert not bought and smaller < scale and "those of one unit" in notes[1]


def test_an_explanation_names_tables_links_and_orphans(con):
    con.execute("FROM dp_query('SELECT count(*) FROM visits', epsilon := 0.3, release := 'one')")
    asked = "SELECT explanation FROM dp_explain('one') WHERE about = 'rows'"
    said = [text for (text,) in con.execute(asked).fetchall()]
    assert any("reads main.patients, main.visits" in text for text in said)
    assert any("links allow" in text for text in said) and any("main.visits without a parent are left out" in text for text in said)
    con.execute("CALL dp_link('visits', max_rows := 1, orphans := 'unit')")
    later = [text for (text,) in con.execute(asked).fetchall()]
    assert any("links that were changed since" in text for text in later)
    assert any("main.visits without a parent are left out" in text for text in later), "as it was read, not as it would be today"
