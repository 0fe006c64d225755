"""Exact tables of linked rows: by hand, and against a count of all pairs one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dpsql.custodian import linked_counts as counts
from dpsql.custodian.linked_counts import Codes


def database(seed: int = 1, parents: int = 60) -> list[Codes]:
    """Return three levels with 0 to 4 children each, children in no order."""
    rng = np.random.default_rng(seed)
    found = [Codes((rng.integers(0, 2, parents),), (2,), parents)]
    for level in range(2):
        rows = found[level].rows
        parent = np.repeat(np.arange(rows), rng.integers(0, 5, rows))
        parent = rng.permutation(parent)
        columns = (rng.integers(0, 3, len(parent)), rng.integers(0, 4, len(parent)))
        found.append(Codes(columns, (3, 4), len(parent), parent, level))
    return found


def test_two_siblings_by_hand() -> None:
    root = Codes((), (), 3)
    child = Codes((np.array([0, 1, 1, 0, 1]),), (2,), 5, np.array([0, 0, 1, 1, 1]), 0)
    found = counts.siblings([root, child], 1)
    # parent 0: (0, 1), (1, 0), 1/2 each; parent 1, with 1, 0, 1: two pairs of each (0, 1), (1, 0), (1, 1), 1/6 each
    assert found.shares[0, 0] == pytest.approx(np.array([[0, 1 / 2 + 2 / 6], [1 / 2 + 2 / 6, 2 / 6]]))
    assert found.both[0, 0].tolist() == [[0, 2], [2, 1]]
    assert found.pairs[0, 0].tolist() == [[0, 1 + 2], [1 + 2, 2]]  # every pair is one
    assert found.parents == 3


def test_only_children_have_no_siblings() -> None:
    root = Codes((), (), 2)
    child = Codes((np.array([0, 1]),), (2,), 2, np.array([0, 1]), 0)
    found = counts.siblings([root, child], 1)
    assert found.shares[0, 0].sum() == 0
    assert found.both[0, 0].sum() == 0


@pytest.mark.parametrize("position", [1, 2])
@pytest.mark.parametrize("cells", [1 << 22, 40])
def test_siblings_are_those_of_all_pairs_counted_one_by_one(
    position: int, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "_CELLS", cells)
    linked = database()
    table = linked[position]
    assert table.parent is not None
    weight = counts.weights(linked, position - 1)
    shares = {pair: np.zeros((table.sizes[pair[0]], table.sizes[pair[1]])) for pair in ((0, 0), (0, 1), (1, 1))}
    pairs = {pair: np.zeros_like(shares[pair]) for pair in shares}
    both: dict[tuple[int, int], dict[tuple[int, int], set[int]]] = {pair: {} for pair in shares}
    for p in range(linked[position - 1].rows):
        rows = np.flatnonzero(table.parent == p)
        for r, s in itertools.permutations(rows, 2):
            for i, j in shares:
                cell = int(table.columns[i][r]), int(table.columns[j][s])
                shares[i, j][cell] += weight[p] / (len(rows) * (len(rows) - 1))
                pairs[i, j][cell] += 1
                both[i, j].setdefault(cell, set()).add(p)
    found = counts.siblings(linked, position)
    for pair, table_of in shares.items():
        assert found.shares[pair] == pytest.approx(table_of, abs=1e-12)
        counted = np.zeros_like(table_of)
        for cell, where in both[pair].items():
            counted[cell] = len(where)
        assert (found.both[pair] == counted).all(), pair
        assert (found.pairs[pair] == pairs[pair]).all(), pair
        if pair[0] == pair[1]:
            assert found.shares[pair] == pytest.approx(found.shares[pair].T, abs=1e-12)


def test_each_unit_with_rows_weighs_one_and_no_unit_more() -> None:
    linked = database()
    for position in (1, 2):
        weight = counts.weights(linked, position)
        units = np.bincount(counts.rows_above(linked, position, 0), weights=weight, minlength=linked[0].rows)
        assert units.max() == pytest.approx(1)
        if position == 1:
            has = counts.numbers_of_children(linked, 1) > 0
            assert units == pytest.approx(has.astype(float))
    assert counts.siblings(linked, 2).shares[0, 1].sum() <= linked[0].rows


def test_rows_above_follow_every_link() -> None:
    linked = database()
    for row, root in enumerate(counts.rows_above(linked, 2, 0)):
        assert linked[1].parent is not None and linked[2].parent is not None
        assert root == linked[1].parent[linked[2].parent[row]]
    assert counts.ancestors(linked, 2) == [1, 0]


def test_relative_errors_of_two_children_have_the_sanity_bound() -> None:
    raw = counts.Siblings({}, {(0, 0): np.array([[100.0, 3.0], [3.0, 0.0]])}, 1000)
    synthetic = counts.Siblings({}, {(0, 0): np.array([[40.0, 4.0], [4.0, 1.0]])}, 500)
    # scaled by 2: 100 -> 80: .2; 3 -> 8: 5 over the bound of 10; 0 -> 2: 2 over 10
    assert counts.relative_errors(raw, synthetic, (0, 0)) == pytest.approx(((0.2 + 0.5 + 0.2) / 3, 0.5))


def test_relative_errors_of_empty_databases() -> None:
    none = counts.Siblings({}, {(0, 0): np.zeros((2, 2))}, 0)
    some = counts.Siblings({}, {(0, 0): np.ones((2, 2))}, 5)
    assert counts.relative_errors(none, none, (0, 0)) == (0, 0)
    assert counts.relative_errors(some, none, (0, 0)) == (1, 1)
    assert counts.relative_errors(none, some, (0, 0)) == (1, 1)


def test_means_of_groups() -> None:
    values, groups = np.array([1.0, 3.0, np.nan, 10.0]), np.array([0, 0, 1, 2])
    raw = counts.group_means(values, groups, 4)
    assert raw[0][[0, 2]].tolist() == [2, 10] and np.isnan(raw[0][[1, 3]]).all()
    synthetic = counts.group_means(np.array([3.0, 10.0]), np.array([0, 2]), 4)
    assert counts.mean_errors(raw, synthetic) == pytest.approx((0.5 * 2 / 3, 0.5, 2))
    nothing = counts.group_means(np.array([]), np.array([], dtype=int), 4)
    assert counts.mean_errors(raw, nothing) == pytest.approx((1, 1, 2))
    assert counts.mean_errors(nothing, raw) == (0, 0, 0)
