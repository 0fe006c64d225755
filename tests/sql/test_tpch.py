"""TPC-H as it is written, with customers as units: what is answered, what is refused, and with which reason."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from tpch_tables import QUERIES, make_tpch

pytestmark = pytest.mark.any_duckdb
MORE = {9: ", bounds := {'ps_supplycost': [0, 1000]}"}
AGGREGATES = (1, 4, 5, 6, 7, 8, 9, 12, 13, 14, 19, 21)


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with make_tpch() as connection:
        yield connection


def ask(con: duckdb.DuckDBPyConnection, number: int, more: str = "", call: str = "dp_query") -> duckdb.DuckDBPyConnection:
    loss = "epsilon := 1" if call == "dp_query" else "max_rows_per_group := NULL"
    return con.execute(f"FROM {call}($${QUERIES[number]}$$, {loss}{MORE.get(number, '')}{more})")


@pytest.mark.parametrize("number", AGGREGATES)
def test_aggregates_of_customers_rows_are_answered(con, number):
    names = [column[0] for column in con.execute(QUERIES[number]).description]
    found = ask(con, number)
    assert [column[0] for column in found.description] == names


@pytest.mark.parametrize("number", [4, 12, 13, 21])
def test_counts_without_noise_are_those_of_the_text(con, number):
    """No unit has more rows than are kept; groups without rows are listed with 0."""
    true = con.execute(QUERIES[number]).fetchall()
    found = [row for row in ask(con, number, call="dp_query_exact").fetchall() if any(row[1:])]
    assert true and {tuple(map(str, row)) for row in true} <= {tuple(map(str, row)) for row in found}
    assert len(found) == len(true)


@pytest.mark.parametrize(
    ("number", "more", "reason"),
    [
        *((n, "", "no protected table is in it") for n in (2, 11, 16)),
        *((n, "", "gives out a row for each of them") for n in (3, 10, 18)),
        (22, "", "adaptive := true"),
        (17, ", adaptive := true", "no such column"),
        (20, ", adaptive := true", "no such column"),
    ],
)
def test_what_is_refused_says_why(con, number, more, reason):
    before = con.execute("SELECT count(*) FROM dp_ledger('customer')").fetchall()
    with pytest.raises(duckdb.Error, match=reason):
        ask(con, number, more)
    assert con.execute("SELECT count(*) FROM dp_ledger('customer')").fetchall() == before


@pytest.mark.parametrize("number", [15, 22])
def test_what_needs_an_answer_first_is_answered(con, number):
    names = [column[0] for column in con.execute(QUERIES[number]).description]
    found = ask(con, number, ", adaptive := true")
    assert [column[0] for column in found.description] == names
