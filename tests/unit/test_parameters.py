"""Parameters become literals of the types of their values, and nothing of a value becomes SQL."""

import datetime as dt
import uuid
from decimal import Decimal

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import ArgumentError
from dpsql.text.parameters import filled

VALUES = [
    None, True, False, 0, -7, 2**70, 1.5, -2.25, float("inf"), Decimal("3.10"), Decimal("-0.5"), "", "it's", "a'; DROP TABLE t; --", "ü 😀 \\ $1 ?",
    dt.date(2025, 1, 31), dt.datetime(2025, 1, 31, 12, 30, 1, 5), dt.time(8, 15), uuid.UUID(int=5), np.int32(4), np.float64(0.25),
]


def run(sql):
    with duckdb.connect() as con:
        return con.execute(sql).fetchall()


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_literal_is_what_duckdb_makes_of_the_value(value):
    plain = value.item() if hasattr(value, "item") else value
    for text, params in (("SELECT ? AS v", [value]), ("SELECT $1 AS v", [value]), ("SELECT $name AS v", {"name": value})):
        assert run(filled(text, params)) == [(plain,)]


@given(st.text(alphabet=st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])), st.text(alphabet="'$?-/*;\"\\ a\n"))
def test_no_text_leaves_its_quotes(one, other):
    text = filled("SELECT ? AS a, '?' AS q, ? AS b -- ?", [one, other])
    assert run(text) == [(one, "?", other)]


def test_the_same_name_twice_is_one_value():
    assert filled("SELECT $a, $b, $a", {"a": 1, "b": "x"}) == "SELECT 1, 'x', 1"
    assert filled("SELECT $2, $1", [1, 2]) == "SELECT 2, 1"
    assert filled("SELECT '$1', $$ ? $$, 1 -- ?", []) == "SELECT '$1', $$ ? $$, 1 -- ?"
    assert filled("SELECT ?", None) == "SELECT ?"


@pytest.mark.parametrize(
    ("text", "params", "said"),
    [
        ("SELECT ?", [], r"the text has \$1"), ("SELECT 1", [1], "the text has none"), ("SELECT ?, ?", [1], r"\$1, \$2"),
        ("SELECT $a", {"b": 1}, r"the text has \$a"), ("SELECT ?", "x", "a list of values"), ("SELECT ?", [[1]], "a value is a number"),
        ("SELECT ?", ["a\0b"], "a value is a number"), ("SELECT ?", [object()], "a value is a number"), ("SELECT ?", [Decimal("NaN")], "a value is a number"),
    ],
)
def test_what_does_not_fit_is_refused(text, params, said):
    with pytest.raises(ArgumentError, match=said):
        filled(text, params)
