"""Public groups hold every key of rows that keep to their declarations."""

from __future__ import annotations

import duckdb
import pytest
import sqlglot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from query_expressions import COLUMNS, Expressions, known, make_rows, total

from dpsql.domains.attributes import Attribute
from dpsql.errors import DpsqlError
from dpsql.queries.groups import public_groups
from dpsql.queries.universes import universe_of_attribute, universe_of_type
from dpsql.text.strict import StrictDuckDB


def tree(text: str):
    return sqlglot.parse_one(text, dialect=StrictDuckDB)


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as found:
        make_rows(found)
        yield found


def rows_outside(con, keys, where, groups) -> list[tuple]:
    """Return keys of rows that are in no group, NaN aside."""
    made = [total(con, tree(key)) for key in keys]
    assert groups.types == tuple(kind for _, kind in made)
    condition, _ = total(con, tree(where))
    shown = ", ".join(f"{sql} AS k{i}" for i, (sql, _) in enumerate(made))
    same = " AND ".join(f"g.k{i} IS NOT DISTINCT FROM r.k{i}" for i in range(len(keys)))
    numbers = " OR ".join(f"isnan(TRY_CAST(r.k{i} AS DOUBLE))" for i, (_, kind) in enumerate(made) if kind in ("DOUBLE", "FLOAT")) or "false"
    query = f"SELECT * FROM (SELECT DISTINCT {shown} FROM p WHERE {condition}) AS r ANTI JOIN ({groups.sql}) AS g ON {same} WHERE NOT coalesce({numbers}, false)"
    return con.execute(query).fetchall()


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
@given(seed=st.integers(0, 2**40))
def test_every_key_of_a_row_is_a_group(con, seed):
    made = Expressions(seed)
    keys = [made.key() for _ in range(made.rng.randint(1, 2))]
    where = made.rng.choice(["true", "i < 5 AND c <> 'Oslo'", "d BETWEEN '2020-05-01' AND '2020-05-20' AND j > 90", made.truth(1)])
    try:
        groups = public_groups(con, [tree(key) for key in keys], known, tree(where))
        if groups:
            assert rows_outside(con, keys, where, groups) == [], (keys, where)
            assert con.execute(f"SELECT count(*), count(DISTINCT row({', '.join(f'k{i}' for i in range(len(keys)))})) FROM ({groups.sql})").fetchone() == (groups.count,) * 2
    except DpsqlError:
        pass


@pytest.mark.parametrize(("keys", "where", "count"), [
    (["c"], "true", 4), (["b"], "true", 3), (["b"], "b IS NOT NULL", 2), (["c", "b"], "c <> ''", 9), (["j"], "j BETWEEN 3 AND 6", 4),
    (["year(e)", "month(e)"], "true", 2), (["month(e)", "c"], "true", 8), (["e"], "e > '2020-03-10' AND e <= '2020-03-12'", 2),
    (["date_trunc('day', t)"], "t IS NOT NULL", 4), (["hour(t)"], "true", 25), (["floor(y * 4)"], "true", 6),
    (["CASE WHEN z < 0 THEN 'a' WHEN z < 5 THEN 'b' ELSE 'c' END"], "true", 3), (["s = 'x'"], "true", 3), (["s IS NULL"], "true", 2),
    (["CASE s WHEN 'x' THEN 1 ELSE 0 END"], "true", 2), (["round(y, 1)"], "true", 11), (["p.j % 3", "j // 50"], "true", 7), (["'all'"], "true", 1),
])
def test_groups_are_exact_where_columns_are_listed(con, keys, where, count):
    groups = public_groups(con, [tree(key) for key in keys], known, tree(where))
    assert not groups.reason
    assert groups.count == count, con.execute(groups.sql).fetchall()
    assert rows_outside(con, [key.replace("p.", "") for key in keys], where, groups) == []


@pytest.mark.parametrize(("key", "reason"), [
    ("s", "column 's'"), ("x", "column 'x'"), ("k", "column 'k'"), ("upper(s)", "column 's'"), ("nowhere", "nothing is known of column 'nowhere'"),
    ("t", "column 't'"), ("max(i)", "without rows"), ("random()", "without rows"), ("sum(i) OVER ()", "other rows"),
    ("(SELECT 1)", "other rows"), ("epoch(t)", "not known without the data"), ("(c || c || i || j || d || m)", "more than"),
])
def test_other_keys_are_private(con, key, reason):
    groups = public_groups(con, [tree(key)], known)
    assert not groups
    assert reason in groups.reason or "not known without the data" in groups.reason


def test_too_many_groups_are_private(con):
    assert "combinations" in public_groups(con, [tree("c"), tree("j")], known, most=403).reason
    assert public_groups(con, [tree("c"), tree("j")], known, most=404).count == 404


def test_values_come_as_texts_in_order_of_their_type(con):
    for key, values in (("upper(c)", ["", "BERGEN", "OSLO", "ÅRE"]), ("j // 40", ["0", "1", "2"])):
        groups = public_groups(con, [tree(key)], known)
        assert [text for (text,) in con.execute(f"SELECT CAST(k0 AS VARCHAR) FROM ({groups.sql}) ORDER BY k0").fetchall()] == values
    assert not public_groups(con, [tree("s")], known)


def test_declarations_and_types_give_universes():
    assert universe_of_attribute(Attribute("n", "DECIMAL(4,1)", "numeric", edges=(0.0, 0.5))).listed == 6
    assert universe_of_attribute(Attribute("c", "VARCHAR", "categorical", categories=("a", "b"), nullable=False)).values == ("a", "b")
    assert universe_of_type("ENUM('a', 'b')").values == ("a", "b")
    assert universe_of_type("UTINYINT").listed == 256
    assert universe_of_type("DOUBLE").listed is None


def test_columns_of_the_tests_keep_to_their_types(con):
    assert {n: k for n, k, *_ in con.execute("DESCRIBE p").fetchall()} == {n: u.sql_type for n, u in COLUMNS.items()}


@pytest.mark.parametrize(("key", "where", "count"), [
    ("w", "w BETWEEN '2020-01-01' AND '2020-01-31'", 31), ("w", "w >= TIMESTAMP '2020-01-01 12:00:00' AND w < DATE '2020-01-03'", 1),
    ("date_trunc('day', v)", "v >= '2020-01-01' AND v < '2020-01-03'", 2), ("date_trunc('day', v)", "v >= '2020-01-01' AND v <= '2020-01-03'", 3), ("n", "n > 0.5 AND n < 3.5 AND n IS NOT NULL", 3),
    ("n", "n IN (4, 1, 9) AND n IS NOT NULL", 3), ("n % 3", "NOT (n > 2 OR n < 0)", 3),
])
def test_a_condition_bounds_columns_that_have_types_alone(con, key, where, count):
    types = {"w": "DATE", "v": "TIMESTAMP", "n": "BIGINT"}
    groups = public_groups(con, [tree(key)], lambda column: universe_of_type(types[column.name]), tree(where))
    assert groups.count == count, (groups.reason, groups and con.execute(groups.sql).fetchall())
