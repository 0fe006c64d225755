"""What one unit adds to the blocks of linked tables: exact counts of databases with and without all of its rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from case_counts import cases
from linked_families import PLANS, TREE, WEIGHT, Made, by_hand, made

from dpsql.measure import families
from dpsql.measure.families import _Chunk
from dpsql.measure.linked import Statements
from dpsql.release.linked import LinkedPlan


@pytest.mark.parametrize("seed", range(cases(3)))
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_blocks_are_those_that_are_counted_by_hand(plan: LinkedPlan, seed: int) -> None:
    database = made(plan, seed, units=12, heavy=False)
    for block, found, wanted in zip(plan.blocks, database.counted(), by_hand(database), strict=True):
        assert np.array_equal(found, wanted), block


def changes(database: Made, salt: str = "a") -> list[int]:
    """Return the L1 distances of all blocks to those without each of the units."""
    whole = database.counted(salt)
    found = []
    for unit in [row["id"] for row in database.rows[0]]:
        rest = database.without(unit).counted(salt)
        found += [int(np.abs(one - other).sum()) for one, other in zip(whole, rest, strict=True)]
    return found


@pytest.mark.parametrize("seed", range(cases(3)))
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_a_unit_changes_every_block_by_at_most_its_weight(plan: LinkedPlan, seed: int) -> None:
    database = made(plan, seed)
    assert max(changes(database, f"{seed % 10}")) <= WEIGHT


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_the_sensitivity_is_reached_and_rows_without_parents_add_nothing(plan: LinkedPlan) -> None:
    database = made(plan, 3)
    assert max(changes(database)) == WEIGHT
    for place, table in enumerate(plan.tables[1:], start=1):
        known = {row["id"] for row in database.rows[table.parent or 0]}
        orphans = [row for row in database.rows[place] if row["up"] not in known]
        assert orphans
        database.rows[place] = [row for row in database.rows[place] if row["up"] in known]
    with_orphans = made(plan, 3)
    assert all(np.array_equal(a, b) for a, b in zip(database.counted(), with_orphans.counted(), strict=True))


def test_a_row_that_moves_to_another_parent_changes_the_two_units_alone() -> None:
    database = made(TREE, 5)
    units = [row["id"] for row in database.rows[0]]
    row = next(row for row in database.rows[1] if row["up"] in units)
    other = next(unit for unit in units if unit != row["up"])
    before = database.counted()
    row["up"] = other
    for one, after in zip(before, database.counted(), strict=True):
        assert np.abs(one - after).sum() <= 4 * WEIGHT


def test_rows_of_independent_tables_weigh_the_same() -> None:
    plan = PLANS["independent"]
    database = made(plan, 2, heavy=False)
    for block, found in zip(plan.blocks, database.counted(), strict=True):
        rows, left = np.divmod(found, plan.one(block))
        assert plan.one(block) * plan.most_rows(block.table) == WEIGHT and not left.any() and rows.sum() <= len(database.rows[block.table])


def _caught(*plans: LinkedPlan) -> bool:
    """Return whether the neighbours of some databases show a fault, or the counting refuses it."""
    for plan in plans or (PLANS["ordered"], TREE):
        for seed in range(4):
            try:
                if max(changes(made(plan, seed))) > WEIGHT:
                    return True
            except ValueError:
                return True
    return False


def test_a_forgotten_division_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "shared", lambda weights, among: weights)
    assert _caught()
    assert _caught(PLANS["independent"])


def test_independent_rows_that_weigh_as_if_max_rows_were_one_less_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    once = families.shared
    monkeypatch.setattr(families, "shared", lambda weights, among: once(weights, np.maximum(among - 1, 1)))
    assert _caught(PLANS["independent"])


def test_siblings_that_count_twice_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    once = _Chunk._shares
    monkeypatch.setattr(_Chunk, "_shares", lambda self, table: 2 * once(self, table))
    assert _caught()


def test_a_folded_table_to_which_both_halves_are_added_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    once = families.folded
    monkeypatch.setattr(families, "folded", lambda table: once(table) + np.where(np.arange(once(table).size) > 0, once(table), 0))
    assert _caught()


def test_rows_that_are_in_every_group_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    once = _Chunk.pair

    def everywhere(self: _Chunk, left: tuple[int, int], right: tuple[int, int], *, split: bool) -> np.ndarray:
        found = once(self, left, right, split=split)
        return np.broadcast_to(found.sum(axis=0), found.shape) if split else found

    monkeypatch.setattr(_Chunk, "pair", everywhere)
    assert _caught()


def test_rows_paired_with_themselves_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Chunk, "same", lambda *_: 0)
    assert _caught()


def test_every_row_taken_for_a_first_one_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    once = _Chunk._line
    monkeypatch.setattr(_Chunk, "_line", lambda self, table: replace(once(self, table), starts=np.arange(once(self, table).rows.size)))
    assert _caught()


def test_neighbours_that_weigh_as_if_there_were_one_pair_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    once = _Chunk._line
    two = lambda self, table: replace(once(self, table), count=np.minimum(once(self, table).count, 2))  # noqa: E731
    monkeypatch.setattr(_Chunk, "_line", two)
    assert _caught()


def test_neighbours_across_families_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair of rows of two parents: then what a unit adds depends on which rows others have."""
    once = _Chunk._line

    def across(self: _Chunk, table: int) -> object:
        line = once(self, table)
        return replace(line, follows=np.arange(max(line.rows.size - 1, 0)), count=np.maximum(line.count, 2))

    monkeypatch.setattr(_Chunk, "_line", across)
    assert _caught()


def test_forgotten_bounding_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Statements, "bounded", lambda self, place, salt: self.codes(place))
    assert _caught()


def test_a_choice_by_the_place_in_the_table_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def first(self: Statements, place: int, salt: str) -> str:
        most = self.plan.tables[place].most
        rows = f"SELECT *, row_number() OVER () AS n, row_number() OVER (PARTITION BY __dp_link ORDER BY hash(n0)) AS p FROM (SELECT *, row_number() OVER () AS n0 FROM ({self.codes(place)}))"
        return f"SELECT * EXCLUDE (n, p, n0) FROM ({rows}) WHERE p <= {most}"

    monkeypatch.setattr(Statements, "bounded", first)
    assert _caught()
