"""Lists of values that are bought can always be declared: what cannot be listed is outside of the list."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpsql

pytestmark = pytest.mark.any_duckdb


@pytest.fixture
def bought() -> Iterator[duckdb.DuckDBPyConnection]:
    con = duckdb.connect()
    dpsql.load(con, user="tester")
    con.execute(
        "CREATE TABLE t AS SELECT i AS u, ['(other)', 'a' || chr(0), 'plain'][1 + i % 3] AS s, "
        "CAST(['infinity', '2020-01-01', '5000-01-01 (BC)'][1 + i % 3] AS DATE) AS d, "
        "[NULL, 'a' || chr(0)][1 + i % 2] AS none FROM range(3000) AS numbers(i)"
    )
    dpsql.protect(con, "t", epsilon=100, delta=1e-6, privacy_unit="u", max_contributions=1)
    yield con
    con.close()


@pytest.mark.parametrize(("column", "kept", "outside"), [("s", "plain", "other"), ("s", "(other)", "clamp"), ("d", "2020-01-01", "other")])
def test_what_cannot_be_listed_is_left_out(bought: duckdb.DuckDBPyConnection, column: str, kept: str, outside: str) -> None:
    call = f"FROM dp_declare('t', '{column}', discover := true, epsilon := 5, outside := '{outside}')"
    (labels,) = bought.execute(f"SELECT labels {call}").fetchone()  # type: ignore[misc]
    assert kept in labels and "\\0" not in labels
    assert bought.execute(f"SELECT labels {call}").fetchone() == (labels,)
    bought.execute(f"FROM dp_marginals('t', columns := ['{column}'], epsilon := 1)").fetchall()
    assert bought.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'charge'").fetchone() == (2,)


def test_a_list_of_which_nothing_can_be_declared(bought: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error, match="nothing to declare; the charge stands"):
        bought.execute("FROM dp_declare('t', 'none', discover := true, epsilon := 5)").fetchall()
