"""Shares of units in drawn families: against a count row by row in plain Python, and against the rows that are written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest
from dpsql.udfs import instance_of
from linked_families import PLANS, Made, Row, by_hand

import dpsql
from dpsql.methods.nested_classes import Drawn, order
from dpsql.release.linked import LinkedPlan
from dpsql.rows import drawing, shares
from dpsql.rows.families import Drawing, described, model_of
from dpsql.session.instance import open_context


def drawn_and_made(plan: LinkedPlan, seed: int, units: int) -> tuple[list[Drawn], Made]:
    """Return random families as codes, and the same as rows; no two ordered rows of a parent are at the same place."""
    rng = np.random.default_rng(seed)
    found: list[Drawn] = []
    rows: list[list[Row]] = []
    for t, table in enumerate(plan.tables):
        parent = np.zeros(0, np.int64)
        if table.parent is not None:
            parent = np.repeat(np.arange(len(rows[table.parent])), found[table.parent].codes[:, plan.shape.fan_out(t)])
        count = units if table.parent is None else parent.size
        codes = np.stack([rng.integers(0, size, count) for size in plan.shape.extended(t)], axis=1).astype(np.int32)
        days = np.full(count, np.nan)
        if table.order_place is not None:
            whose = {up: iter(rng.permutation(9)) for up in set(parent.tolist())}
            for row in np.flatnonzero(codes[:, table.order_place] < 3):
                days[row] = next(whose[parent[row]])
                codes[row, table.order_place] = np.searchsorted([2, 5], days[row], side="right")
        here: list[Row] = []
        for row in range(count):
            made: Row = {"id": row + 1, **({} if table.parent is None else {"up": int(parent[row]) + 1})}
            for i, a in enumerate(table.domain.attributes):
                if i == table.order_place:
                    made[a.name] = int(days[row]) if days[row] == days[row] else None if a.nullable else -1
                else:
                    made[a.name] = int(codes[row, i]) if codes[row, i] < a.values else None
            here.append(made)
        rows.append(here)
        found.append(Drawn(codes, parent, None if table.order_place is None else days))
    return found, Made(plan, rows)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("units", [0, 1, 30])
def test_blocks_are_those_counted_row_by_row(name: str, units: int):
    plan = PLANS[name]
    drawn, made = drawn_and_made(plan, seed=units, units=units)
    counted = shares.counts(plan, plan.blocks, [drawn])
    for block, mine, theirs in zip(plan.blocks, counted, by_hand(made), strict=True):
        np.testing.assert_allclose(mine * plan.one(block), theirs, atol=1e-6, err_msg=str(block))
        assert mine.sum() * plan.one(block) <= (units + 1e-9) * plan.weight, block
    if units == 30:
        kinds = {block.kind for block, table in zip(plan.blocks, counted, strict=True) if table.sum() > 0}
        assert kinds == {block.kind for block in plan.blocks}


def test_parts_add_up():
    plan = PLANS["ordered"]
    parts = [drawn_and_made(plan, seed, 10)[0] for seed in (1, 2)]
    both = shares.counts(plan, plan.blocks, parts)
    alone = [shares.counts(plan, plan.blocks, [part]) for part in parts]
    for block, found, first, second in zip(plan.blocks, both, *alone, strict=True):
        np.testing.assert_allclose(found, first + second, err_msg=str(block))


@pytest.fixture
def con(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(str(tmp_path / "a.duckdb")) as con:
        con.execute(
            """
            CREATE TABLE a (id INTEGER PRIMARY KEY, x INTEGER);
            CREATE TABLE b (id INTEGER PRIMARY KEY, up INTEGER, low INTEGER, high INTEGER, day DATE, CHECK (low <= high));
            INSERT INTO a SELECT i, i % 4 FROM range(400) t(i);
            INSERT INTO b SELECT i, i % 350, i % 3, 2 + i % 2, DATE '2024-01-01' + (i % 300)::INTEGER FROM range(900) t(i);
            """
        )
        dpsql.load(con)
        con.execute(
            """
            CALL dp_protect('a', epsilon := 20, delta := 1e-6, privacy_unit := 'id', max_contributions := 1);
            CALL dp_link('b', 'up', parent := 'a', max_rows := 4);
            CALL dp_declare('a', 'x', categories := ['0', '1', '2', '3'], nullable := false);
            CALL dp_declare('b', 'low', lower := 0, upper := 3, bins := 3, nullable := false);
            CALL dp_declare('b', 'high', lower := 0, upper := 3, bins := 3, nullable := false);
            CALL dp_declare('b', 'day', lower := '2024-01-01', upper := '2024-12-31', bins := 4, nullable := false);
            CALL dp_link('b', order_by := 'day');
            CALL dp_rule('b', 'day >= DATE ''2024-05-01'' OR low = 0');
            """
        )
        yield con


def test_families_are_the_rows_that_are_written(con, monkeypatch):
    monkeypatch.setattr(order, "_MOST_UNITS", 1_000)  # how well an order is fitted is not asked here
    release = con.execute(
        "FROM dp_synthesize_tables('a', epsilon := 15, into_schema := 's', options := {effort: 'fast'})"
    ).fetchone()[3]
    with open_context(instance_of(con), "a", "main") as context:
        bought = drawing.find(context, release)
        model = model_of(context.cursor, bought)
        found = list(Drawing(context.cursor, described(bought), model, model.units, None).families())
        plain = Drawing(context.cursor, described(bought), model, model.units, None)
        plain._menders = [None] * len(plain.plan.tables)
        unruled = list(plain.families())
    assert len(found) == 1
    b = bought.plan.linked.tables[1]
    edges = {a.name: [str(e) for e in a.edges] for a in b.domain.attributes}
    for name in b.domain.names:
        kind = "DATE" if name == "day" else "DOUBLE"
        code = " + ".join(f"('{edge}'::{kind} <= {name})::INTEGER" for edge in edges[name][1:-1])
        query = f"SELECT {code} AS code, count(*) FROM s.b GROUP BY code ORDER BY code"
        codes = found[0][1].codes[:, b.domain.names.index(name)]
        assert con.execute(query).fetchall() == list(zip(*(x.tolist() for x in np.unique(codes, return_counts=True)), strict=True))
    assert any((x.codes != y.codes).any() for x, y in zip(found[0], unruled[0], strict=True)), "the rules changed nothing"
    assert con.execute("SELECT count(*) FROM s.b WHERE NOT (low <= high)").fetchone() == (0,)
    assert (found[0][1].parent == unruled[0][1].parent).all()
