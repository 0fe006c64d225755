"""Rows of one parent in a declared order, as a user sees it: dp_link(order_by), the plan, what is written, dp_evaluate."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
from linked_families import ORDERED

from dpsql.custodian.evaluate_linked import COLUMNS, evaluate_linked
from dpsql.custodian.linked_reading import ComparedTable
from dpsql.domains.attributes import Attribute, Domain
from dpsql.methods.nested_classes import order as fitting
from dpsql.release.linked import LinkedPlan, LinkedTable
from dpsql.release.ordered import can_order, gap_cells, gap_edges, scale_of, step_of

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import visits

pytestmark = pytest.mark.any_duckdb

BUY = "FROM dp_synthesize_tables('patients', epsilon := 20, into_schema := '{}', release := '{}', options := {{'effort': 'fast'}})"


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        visits.create(con, 1500)
        visits.protected(con, order=True)
        yield con


def measured(con: duckdb.DuckDBPyConnection) -> list[str]:
    return [str(row) for row in con.execute("FROM dp_plan('patients', operation := 'synthesize_tables', epsilon := 1)").fetchall()]


def test_an_order_is_declared_kept_changed_and_taken_back(con: duckdb.DuckDBPyConnection) -> None:
    order, most = "SELECT order_by FROM dp_links('visits')", con.execute("SELECT max_rows FROM dp_links('visits')").fetchall()[0][0]
    assert con.execute(order).fetchone() == ("day",)
    assert con.execute("SELECT order_by, change FROM dp_link('visits')").fetchone() == ("day", "in force")
    assert con.execute("SELECT order_by, change FROM dp_link('visits', order_by := 'COST')").fetchone() == ("cost", "changed")
    assert con.execute("SELECT order_by FROM dp_link('visits', max_rows := 5)").fetchone() == ("cost",)
    assert con.execute("SELECT order_by, change FROM dp_link('visits', order_by := '')").fetchone() == (None, "changed")
    assert con.execute(order).fetchone() == (None,)
    with pytest.raises(duckdb.Error, match="order_by.*'when' is not a stored column of main.visits"):
        con.execute("CALL dp_link('visits', order_by := 'when')")
    con.execute(f"CALL dp_link('visits', order_by := 'day', max_rows := {most})")


def test_a_plan_says_which_order_is_measured_and_why_one_is_not(con: duckdb.DuckDBPyConnection) -> None:
    assert any("rows of visits with one parent stand in the order of day" in row for row in measured(con))
    assert any(
        "3 tables of the first row of a parent, 3 tables of a row and the next one, 1 table of how far the next row is" in row
        for row in measured(con)
    )
    con.execute("CALL dp_link('visits', order_by := 'reason')")
    assert any("the order of visits by reason is not measured" in row for row in measured(con))
    con.execute("CALL dp_link('visits', order_by := '')")
    assert not any("order of" in row for row in measured(con))
    con.execute("CALL dp_link('visits', order_by := 'day')")


def test_rows_are_written_in_order_and_draws_repeat(con: duckdb.DuckDBPyConnection) -> None:
    release = con.execute(BUY.format("one", "one")).fetchone()[3]
    behind = "SELECT count(*) FROM (SELECT day, lag(day) OVER (PARTITION BY patient ORDER BY visit) AS before FROM {}.visits) WHERE day < before"
    days = "SELECT count(*), min(day) >= DATE '2020-01-01', max(day) <= DATE '2023-12-31' FROM {}.visits"
    assert con.execute(behind.format("one")).fetchone() == (0,)
    assert con.execute(behind.format("main")).fetchone()[0] > 500
    count, *inside = con.execute(days.format("one")).fetchone()
    assert count > 1000
    assert inside == [True, True]
    con.execute(f"FROM dp_sample('{release}', into_schema := 'two')")
    con.execute(f"FROM dp_sample('{release}', into_schema := 'three', seed := 3)")
    con.execute("CALL dp_protect('two.visits', epsilon := 1, delta := 1e-9)")
    with pytest.raises(duckdb.Error, match="into_schema = 'two': table two.visits would be replaced, and has a budget or a link"):
        con.execute(f"FROM dp_sample('{release}', into_schema := 'two', seed := 4)")
    same = "SELECT count(*) FROM (FROM one.visits EXCEPT ALL FROM {}.visits)"
    assert con.execute(same.format("two")).fetchone() == (0,)
    assert con.execute(same.format("three")).fetchone()[0] > 0
    errors = dict(con.execute("SELECT measure, error FROM dp_evaluate('patients', 'one') WHERE level = 'summary'").fetchall())
    yard = dict(con.execute("SELECT measure, independent FROM dp_evaluate('patients', 'one') WHERE level = 'summary'").fetchall())
    assert errors["orphans"] == errors["duplicate keys"] == 0
    assert errors["next child"] < 0.5 * yard["next child"]
    assert errors["first child"] < yard["first child"]
    assert errors["time between"] < 0.2


@pytest.mark.parametrize(
    ("sql_type", "low", "high", "more"),
    [
        ("TIMESTAMP", "'2020-01-01'", "'2023-12-31'", ""), ("DECIMAL(9,2)", "0", "1000", ", bins := 10"),
        ("DOUBLE", "0", "1000", ""), ("TIMESTAMP_NS", "'2020-01-01'", "'2023-12-31'", ", bins := 5"),
    ],
)  # fmt: skip
def test_orders_of_all_types(sql_type: str, low: str, high: str, more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "_MOST_UNITS", 1_000)  # how well it is fitted is not asked here
    with duckdb.connect() as con:
        visits.create(con, 200)
        value = "epoch(day)::BIGINT // 86400 % 1000 + .25" if "TIME" not in sql_type else "day"
        con.execute(f"ALTER TABLE visits ADD COLUMN moment {sql_type}; UPDATE visits SET moment = CASE WHEN visit % 3 > 0 THEN ({value})::{sql_type} END")
        visits.protected(con, order=False)
        con.execute(f"CALL dp_declare('visits', 'moment', lower := {low}, upper := {high}{more})")
        con.execute("CALL dp_link('visits', order_by := 'moment')")
        con.execute(BUY.format("one", "one"))
        behind = "SELECT count(*) FILTER (moment < before), count(moment) > 0, count(*) > count(moment) FROM (SELECT moment, lag(moment) OVER (PARTITION BY patient ORDER BY visit) AS before FROM one.visits)"
        assert con.execute(behind).fetchone() == (0, True, True)
        cell = con.execute("SELECT error FROM dp_evaluate('patients', 'one') WHERE measure = 'time between' AND level = 'columns'").fetchone()
        assert cell is not None


def test_orders_are_part_of_a_release_and_old_ones_have_none() -> None:
    item = ORDERED.to_json()
    assert LinkedPlan.from_json(item) == ORDERED.with_groups([(1,)] * len(ORDERED.tables)), "groups are those of its refinement"
    assert item["tables"][1]["order"] == "day"
    assert "order" not in item["tables"][0]
    assert LinkedTable.from_json(item["tables"][0]).order is None


@pytest.mark.parametrize("order", ["b0", "up", "nothing", 3])
def test_an_order_that_dpsql_would_not_have_planned_is_refused(order: object) -> None:
    item = ORDERED.to_json()
    item["tables"][1]["order"] = order
    with pytest.raises((ValueError, TypeError)):
        LinkedPlan.from_json(item)


@pytest.mark.parametrize(
    "block",
    [["gap", [1, 0], None], ["first", [1, 2], None], ["next", [1, 0], [1, 1]], ["next", [1, 0], None], ["first", [2, 0], None],
     ["first", [1, 3], None], ["gap", [1, 2], [1, 2]], ["last", [1, 0], None]],
)  # fmt: skip
def test_blocks_of_an_order_that_dpsql_would_not_have_planned_are_refused(block: list[object]) -> None:
    item = ORDERED.to_json()
    item["blocks"] = [*item["blocks"], block]
    with pytest.raises((ValueError, TypeError, IndexError)):
        LinkedPlan.from_json(item)


def test_cells_of_distances() -> None:
    whole = Attribute("day", "INTEGER", "numeric", edges=(0.0, 50.0, 100.0))
    assert (step_of(whole), gap_edges(whole)[0]) == (1.0, 1.0)
    assert gap_cells(whole, np.array([0.0, 1.0, 100.0])).tolist() == [0, 1, 31]
    cents = replace(whole, sql_type="DECIMAL(9,2)")
    assert gap_cells(cents, np.array([0.3 - 0.29, 0.0])).tolist()[1] == 0
    real = replace(whole, sql_type="DOUBLE")
    assert gap_edges(real)[0] == 100.0 / 2**15
    assert scale_of(real).step == 0.0
    assert not can_order(Attribute("x", "VARCHAR", "categorical", ("a", "b")))
    assert not can_order(Attribute("x", "INTEGER", "numeric", edges=(3.0, 3.5)))


def test_first_next_and_between_by_hand() -> None:
    kind = Attribute("x", "VARCHAR", "categorical", ("a", "b"), nullable=False)
    day = Attribute("day", "INTEGER", "numeric", edges=(0.0, 50.0, 100.0))
    with duckdb.connect() as con:
        con.execute(
            """CREATE SCHEMA s; CREATE TABLE p (id INTEGER); CREATE TABLE c (pid INTEGER, x VARCHAR, day INTEGER);
            CREATE TABLE s.p (id INTEGER); CREATE TABLE s.c (pid INTEGER, x VARCHAR, day INTEGER);
            INSERT INTO p VALUES (1), (2); INSERT INTO s.p VALUES (1), (2);
            INSERT INTO c VALUES (1, 'b', 30), (1, 'a', 10), (1, 'a', NULL), (2, 'b', 3), (2, 'a', 4), (2, 'a', 4);
            INSERT INTO s.c VALUES (1, 'a', 10), (1, 'b', 30), (2, 'a', 7)"""
        )  # fmt: skip

        def tables(schema: str) -> list[ComparedTable]:
            return [
                ComparedTable("p", Domain(()), f"SELECT * FROM {schema}.p"),
                ComparedTable("c", Domain((kind, day)), f"SELECT * FROM {schema}.c", 0, "pid", "id", 5, 1),
            ]

        rows = [dict(zip(COLUMNS, row, strict=True)) for row in evaluate_linked(con, tables("main"), tables("s"))]
    found = {row["measure"]: row for row in rows if row["level"] == "columns" and row["measure"] in ("first child", "next child", "time between")}
    assert found["first child"]["error"] == pytest.approx(0.5)  # raw a, b; synthetic a, a
    assert found["first child"]["independent"] == pytest.approx(abs(0.5 - (2 / 3 + 2 / 3) / 2))
    # raw: ab 1, ba 1/2, aa 1/2, of 2; synthetic: ab alone
    assert found["next child"]["error"] == pytest.approx(0.5)
    # raw: 20 days 1, 1 day 1/2, 0 days 1/2, of 2; synthetic: 20 days
    assert found["time between"]["error"] == pytest.approx(0.5)
    assert (found["time between"]["raw"], found["time between"]["synthetic"]) == (pytest.approx(10.25), 20)
