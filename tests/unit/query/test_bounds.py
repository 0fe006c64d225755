"""Ranges hold every value that DuckDB gives the rewritten expression."""

from __future__ import annotations

import math

import duckdb
import pytest
import sqlglot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from query_expressions import Expressions, known_range, make_rows, total

from dpsql.algebra.ranges import Range
from dpsql.errors import DpsqlError
from dpsql.queries.bounds import extent, narrowed
from dpsql.queries.columns import given_bounds
from dpsql.text.strict import StrictDuckDB


def tree(text: str):
    return sqlglot.parse_one(text, dialect=StrictDuckDB)


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as found:
        make_rows(found)
        yield found


def values(con, text: str, where: str = "true") -> tuple[list[float], str] | None:
    """Return the values of an expression in the units of ranges, without NULL and NaN; None if a source may not compute it."""
    try:
        sql, kind = total(con, tree(text))
        condition, _ = total(con, tree(where))
    except DpsqlError:
        return None
    if kind in ("DATE", "TIMESTAMP"):
        shown = f"epoch({sql})" + (" / 86400" if kind == "DATE" else "")
    else:
        shown = f"CAST(TRY_CAST({sql} AS {'TINYINT' if kind == 'BOOLEAN' else kind}) AS DOUBLE)"
    rows = con.execute(f"SELECT DISTINCT {shown} FROM p WHERE {condition}").fetchall()
    return [v for (v,) in rows if v is not None and not math.isnan(v)], kind


def check(found: Range, seen: list[float], kind: str, text: str) -> None:
    if kind in ("DATE", "TIMESTAMP"):
        from dpsql.algebra.ranges import as_sort

        found = as_sort(found, kind.lower())
    assert not (found.empty and seen), text
    for value in seen:
        slack = 1e-5 * (1 + abs(value)) if "f" in text.replace("ifnull", "").replace("if(", "").replace("diff", "") or "FLOAT" in text else 1e-12 * abs(value)
        slack = 1e-4 if kind == "TIMESTAMP" else slack
        assert found.lower - slack <= value <= found.upper + slack, (text, found, value)
        if found.whole and kind not in ("DATE", "TIMESTAMP") and abs(value) < 2**53:
            assert value == math.floor(value), (text, found, value)
    if found.sort == "integer":
        assert kind.endswith("INT") or kind == "INTEGER", (text, kind)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
@given(seed=st.integers(0, 2**40), sort=st.sampled_from(["number", "number", "number", "moment", "truth"]))
def test_no_value_lies_outside(con, seed, sort):
    text = getattr(Expressions(seed), sort)(3)
    seen = values(con, text)
    if seen is not None:
        check(extent(tree(text), known_range), *seen, text)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
@given(seed=st.integers(0, 2**40))
def test_no_value_lies_outside_where_a_condition_is_true(con, seed):
    made = Expressions(seed)
    where = " AND ".join(made.truth(2) for _ in range(made.rng.randint(1, 3)))
    known = narrowed(tree(where), known_range)
    for text in ("i", "j", "k", "x", "y", "z", "m", "d", "i + j", made.number(1)):
        seen = values(con, text, where)
        if seen is not None:
            check(extent(tree(text), known), *seen, f"{text} WHERE {where}")


@pytest.mark.parametrize("number", [2**53 + 1, 2**53 + 3, 2**60 + 1, 2**63 - 1, 10**30 + 1])
def test_a_constant_beyond_double_precision_lies_within_its_range(number: int) -> None:
    """The double next to 2^53 + 3 is above it: as a lower bound it moved a value."""
    for text, sign in ((f"{number}", 1), (f"-{number}", -1)):
        found = extent(sqlglot.parse_one(text, dialect="duckdb"), lambda column: None)
        assert int(found.lower) < sign * number < int(found.upper)
    query = sqlglot.parse_one(f"SELECT FROM t WHERE a BETWEEN {number} AND {number + 2}", dialect="duckdb")
    inside = extent(sqlglot.parse_one("a", dialect="duckdb"), narrowed(query.args["where"], lambda column: None))
    assert inside.lower <= number and number + 2 <= inside.upper


def test_bounds_beyond_double_precision_are_refused() -> None:
    with pytest.raises(DpsqlError, match="9007199254740993 is no number of double precision.*take 9007199254740992 or 9007199254740994$"):
        given_bounds({"a": [0, 2**53 + 1]})
    assert list(given_bounds({"a": [2**53 + 2, 2**63 - 1]}).values()) == [Range(2.0**53 + 2, 2.0**63)]
