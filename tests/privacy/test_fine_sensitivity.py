"""The round before the tables: what a row changes in it, and that nothing else follows from exact counts."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from fine_drawings import VALUES, Blind, asked, counted, database, gaussian, same
from hypothesis import given, settings

from dpsql.accounting import sensitivities
from dpsql.domains.declare import declare
from dpsql.domains.grid import DEEPEST, DEPTH, grid_of
from dpsql.measure import fine as measuring
from dpsql.noise import discrete
from dpsql.release import contents, refined
from dpsql.release.plan import Plan

EXTRA = ["800", "3.5", "NULL", "'nan'", "'-inf'", "'inf'", "1e7", "0", "999.99"]
OUTSIDE = [(outside, nullable) for outside in ("clamp", "other", "drop") for nullable in (True, False)]


@pytest.mark.parametrize(("outside", "nullable"), OUTSIDE)
def test_a_row_more_changes_one_cell_of_each_level_by_one(monkeypatch, outside, nullable):
    l1, l2 = sensitivities("add_remove")
    with database(VALUES, outside, nullable) as con:
        before, first, _ = counted(monkeypatch, con, gaussian())
        levels = len(grid_of(declare("x", "DOUBLE", nullable=True, lower=0, upper=1000)).levels)
        assert len(before) > levels
        changed = 0
        for value in EXTRA:
            con.execute(f"INSERT INTO t VALUES ({value}::DOUBLE, 1)")
            after, second, _ = counted(monkeypatch, con, gaussian())
            con.execute("DELETE FROM t")
            con.execute(f"INSERT INTO t SELECT v::DOUBLE, 1 FROM (VALUES {VALUES}) AS _(v)")
            assert same(first, second)  # nothing that is released depends on the row
            for one, other in zip(before, after, strict=True):
                change = (other - one).astype(object)
                assert sum(abs(change)) <= l1
                assert sum(change**2) <= l2**2
                assert min(change, default=0) >= 0
            changed += any((a != b).any() for a, b in zip(before[:levels], after[:levels], strict=True))
    # Values that do not count ('drop', 'other', and NULL where it has a code) change nothing; all others do.
    assert changed == {"clamp": 7 if nullable else 9, "other": 4, "drop": 4}[outside]


@pytest.mark.parametrize(("outside", "nullable"), OUTSIDE[::2])
def test_a_replaced_row_changes_two_cells_at_most(monkeypatch, outside, nullable):
    l1, l2 = sensitivities("replace_one")
    with database(VALUES, outside, nullable, neighbors="replace_one") as con:
        before, _, _ = counted(monkeypatch, con, gaussian())
        reached = 0
        for value in EXTRA:
            con.execute(f"UPDATE t SET x = {value}::DOUBLE WHERE x = 70")
            after, _, _ = counted(monkeypatch, con, gaussian())
            con.execute("DELETE FROM t")
            con.execute(f"INSERT INTO t SELECT v::DOUBLE, 1 FROM (VALUES {VALUES}) AS _(v)")
            for one, other in zip(before, after, strict=True):
                change = (other - one).astype(object)
                assert sum(abs(change)) <= l1
                assert sum(change**2) <= l2**2 + 1e-9
                reached = max(reached, sum(abs(change)))
    assert reached == l1


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one"])
def test_a_unit_with_many_rows_changes_no_more_than_it_may_contribute(monkeypatch, neighbors):
    rows = "(1.0, 1), (800, 1), (20, 2), (800, 2), (800, 2), (NULL, 3), (5, 3)"
    more = ", ".join(f"({value}, 4)" for value in (800, 800, 800, 800, 1, 2, 20, 500))
    others = ", ".join(f"({value}, 4)" for value in (300, 300, 300, 300, 300, 301, 302))
    with database("", privacy_unit="unit", max_contributions=3, neighbors=neighbors) as con:
        con.execute("DELETE FROM t")
        con.execute(f"INSERT INTO t VALUES {rows}" + (f", {others}" if neighbors == "replace_one" else ""))
        l1, l2 = sensitivities(neighbors, 3)
        # Which rows of a unit are kept is drawn anew at each reading: the others keep all of theirs, so only unit 4 differs.
        before, first, plan = counted(monkeypatch, con, gaussian())
        con.execute("DELETE FROM t WHERE unit = 4")
        con.execute(f"INSERT INTO t VALUES {more}")
        after, second, _ = counted(monkeypatch, con, gaussian())
        assert same(first, second)
        reached = 0
        for one, other in zip(before, after, strict=True):
            change = (other - one).astype(object)
            assert sum(abs(change)) <= l1
            assert sum(change**2) <= l2**2 + 1e-9
            reached = max(reached, sum(abs(change)))
        assert reached == l1
        assert plan.fine


def test_a_row_more_is_in_one_cell_of_each_level_of_dates_over_millennia(monkeypatch):
    """They have a level more than other columns; all of them are drawn, and charged."""
    levels = len(grid_of(DAY).levels)
    assert levels == DEEPEST == DEPTH + 1
    with database("") as con:
        con.execute("CREATE TABLE days(x DATE)")
        con.execute("INSERT INTO days SELECT DATE '2020-01-01' + (i % 91)::INTEGER FROM range(300) r(i)")
        con.execute("CALL dp_protect('days', epsilon := 1000, delta := 1e-6)")
        con.execute("CALL dp_declare('days', 'x', lower := '0001-01-01', upper := '9999-12-31')")
        call = replace(gaussian(), source="days")
        before, first, plan = counted(monkeypatch, con, call, Blind(2, 10**6))
        assert [len(column.scales) for column in plan.fine] == [levels]
        for value in ("DATE '2020-02-02'", "DATE '0001-01-01'", "DATE 'infinity'", "NULL"):
            con.execute(f"INSERT INTO days VALUES ({value})")
            after, second, _ = counted(monkeypatch, con, call, Blind(2, 10**6))
            con.execute("DELETE FROM days")
            con.execute("INSERT INTO days SELECT DATE '2020-01-01' + (i % 91)::INTEGER FROM range(300) r(i)")
            assert same(first, second)
            changes = [(other - one).tolist() for one, other in zip(before, after, strict=True)]
            assert all(sum(map(abs, change)) <= 1 for change in changes)
            assert any(map(any, changes[:levels])) == (value != "NULL")


COST = declare("x", "DOUBLE", nullable=True, lower=0, upper=100_000)
AGE = declare("x", "INTEGER", nullable=True, lower=0, upper=2000)
DAY = declare("x", "DATE", nullable=True, lower="0001-01-01", upper="9999-12-31")


@given(data=st.data(), seed=st.integers(0, 2**32), attribute=st.sampled_from([COST, AGE, DAY]), high=st.sampled_from([1, 10, 100, 10_000]))
@settings(max_examples=40)
def test_cells_and_edges_follow_from_released_counts_alone(data, seed, attribute, high):
    levels = len(grid_of(attribute).levels)
    size = grid_of(attribute).edges.size - 1
    column = refined.FineColumn(0, (Fraction(2),) * levels, "gaussian")
    plan = Plan(refined.Domain((attribute,)), ((0,),), (Fraction(2),), "gaussian", False, None, {}, fine=(column,))
    kept = discrete.add_noise
    found = []
    for _ in range(2):
        cells = data.draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, 10**6)), max_size=12))
        exact = np.zeros(size, np.int64)
        for cell, n in cells:
            exact[cell] += n
        discrete.add_noise = Blind(seed, high)
        try:
            counts = measuring._released(plan, column, exact)
        finally:
            discrete.add_noise = kept
        edges = {is_exact: refined.cut_edges(plan, [counts], 2.0, exact=is_exact) for is_exact in (False, True)}
        found.append((counts.tolist(), edges))
    assert found[0] == found[1]


def test_a_release_says_nothing_of_exact_counts(monkeypatch):
    """Blind noise: the manifest of two very different tables is the same but for times and hashes."""
    texts = []
    for values in (VALUES, "(500), (501), (502)"):
        with database(values) as con:
            monkeypatch.setattr(discrete, "add_noise", Blind(3))
            with asked(con, gaussian()) as (wanted, measure):
                found = measure()
            monkeypatch.undo()
            assert found.refinement is not None
            texts.append(json.dumps([wanted.plan.to_json(), found.refinement.to_json(), list(found.notes), contents.fingerprint(found.flat, (), None, found.refinement)]))
    assert texts[0] == texts[1]
