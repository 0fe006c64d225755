"""Whether an expression has a value in every row: against rows that keep to their declarations, as a source computes them."""

from __future__ import annotations

import random

import duckdb
import pytest
import sqlglot
from query_expressions import Expressions, known, known_range, make_rows, total

from dpsql.errors import DpsqlError
from dpsql.queries.bounds import Known
from dpsql.queries.nulls import never_null
from dpsql.text.strict import StrictDuckDB

FULL = ["j", "y", "e", "c", "j + 1", "2 * y - 1", "-(j - 3)", "greatest(i, j)", "coalesce(x, y)", "round(y * 10)", "j / 4", "j // 7", "y % 2",
        "CASE WHEN j > 3 THEN j ELSE 0 END", "CASE WHEN i > 3 AND c = 'Oslo' THEN y ELSE j END", "coalesce(NULL, 1)", "i IS NULL",
        "CASE WHEN c IN ('Oslo', '') THEN 1 ELSE 2 END", "CASE WHEN x BETWEEN 1 AND 2 THEN 0 ELSE y END", "least(i + j, y)"]  # fmt: skip
"""Over columns j, y, e and c without NULL, and i and x with."""
NOT_FULL = [
    "i", "x", "i + j", "CASE WHEN j > 3 THEN j END", "CASE WHEN j > 3 THEN j ELSE i END", "j / y", "1 / j", "j % j", "nullif(j, 3)", "sqrt(y)", "ln(y)",
    "CAST(s AS INTEGER)", "CAST(c AS INTEGER)", "coalesce(CAST(c AS INTEGER), 0)", "greatest(CAST(s AS INTEGER), j)", "CASE WHEN s = 3 THEN 1 ELSE 0 END",
    "k * k", "2 * j", "j * y * 3 + 2 * j", "j - 1 - 200 * j",  "coalesce(k * k * k, 0)", "j * k", "z + y", "e + j", "m + 1", "unknown", "coalesce(unknown, 1) + 1", "CASE WHEN c > 3 THEN 1 ELSE 0 END",
    "pow(j, 99)", "j / 0", "j // 0.0", "CASE j WHEN 1 THEN 2 ELSE 3 END", "(SELECT 1)", "sum(j)", "round(i)", "least(i, x)", "i = j", "i IN (1, 2)",
]  # fmt: skip
"""NULL is possible, or nothing can be said for sure."""


def full(text: str) -> bool:
    return never_null(sqlglot.parse_one(text, dialect=StrictDuckDB), known, Known(known_range))


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as found:
        make_rows(found, 2000)
        yield found


@pytest.mark.parametrize("text", FULL)
def test_what_has_a_value_in_every_row(con: duckdb.DuckDBPyConnection, text: str) -> None:
    assert full(text) and missing(con, text) == 0


@pytest.mark.parametrize("text", NOT_FULL)
def test_what_may_have_none(text: str) -> None:
    assert not full(text)


def missing(con: duckdb.DuckDBPyConnection, text: str) -> int:
    sql, _ = total(con, sqlglot.parse_one(text, dialect=StrictDuckDB))
    return int(con.execute(f"SELECT count(*) FROM p WHERE ({sql}) IS NULL").fetchall()[0][0])


def test_random_expressions_that_are_said_to_have_a_value_have_one(con: duckdb.DuckDBPyConnection) -> None:
    """Of thousands of random ones, with overflows, casts that fail and divisions by zero among them."""
    rng, claimed = random.Random(7), 0
    for _ in range(6000):
        made = Expressions(rng.randrange(2**40))
        text = made.number(rng.randint(1, 3)) if rng.random() < 0.8 else made.truth(2)
        if rng.random() < 0.6:  # more over columns without NULL
            text = text.replace("i", "j") if "(" not in text else f"coalesce({text}, j)"
        try:
            if not full(text):
                continue
            seen = missing(con, text)
        except (DpsqlError, sqlglot.errors.SqlglotError):
            continue
        claimed += 1
        assert seen == 0, text
    assert claimed > 150
