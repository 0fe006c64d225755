"""What an error about a view says to an analyst."""

from __future__ import annotations

import duckdb
import pytest
from gate_places import Granted

import dpsql
from dpsql.serve.gate import view_of
from dpsql.serve.worded import CLOSED, worded


@pytest.fixture
def view():
    con = duckdb.connect()
    dpsql.load(con)
    con.execute("CREATE TABLE adult (id INTEGER, age INTEGER, sex VARCHAR, informant VARCHAR)")
    con.execute("CALL dp_protect('adult', epsilon := 1.0, delta := 1e-9)")
    con.execute("CREATE VIEW told AS SELECT age, sex FROM adult WHERE informant = 'Quentin'")
    con.execute("CREATE VIEW never AS SELECT age, sex FROM adult")
    grants = {"main.adult": Granted(columns=("age", "sex"))}
    return view_of(con.cursor(), "memory", "main", "alice", grants, ["main.told"])


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("column informant is not granted (line 1, column 41)", CLOSED),
        ("column INFORMANT is not granted", CLOSED),
        ("'Quentin' is no value", CLOSED),
        ("column age needs bounds (line 1, column 12)", "column age needs bounds"),
    ],
)
def test_no_word_and_no_place_of_a_text(view, told, expected):
    assert worded(told, "SELECT avg(age) FROM told", view) == expected


def test_errors_about_what_is_no_view_stay(view):
    told = "column informant is not there (line 1, column 8)"
    assert worded(told, "SELECT informant FROM adult", view) == told
    assert worded(told, "SELECT informant FROM told", view) == "column informant is not there"  # her own word


def test_a_view_is_there_by_its_publication_alone(view):
    assert [entry.name for entry in view.shown()] == ["adult", "told"]
