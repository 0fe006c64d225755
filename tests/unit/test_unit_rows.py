"""Rows by unit, read two levels at a time: the same counts as if all had been read at once, and no more finely than needed."""

import numpy as np
import pytest

from dpsql.estimates.leaves import Cutting, cut, depth, released, units_of
from dpsql.measure.leaves import UnitRows


class Table:
    """Rows of groups with units, and what was read of them."""

    def __init__(self, units, groups, values):
        self.units, self.groups, self.values = units, groups, values
        self.asked = []

    def read(self, shift, regions):
        self.asked.append((shift, [(wide, len(numbers)) for wide, numbers in regions]))
        kept = np.zeros(self.values.size, bool) if regions else np.ones(self.values.size, bool)
        for wide, numbers in regions:
            kept |= np.isin(self.values >> wide, numbers)
        pairs, n = np.unique(np.stack([self.groups[kept], self.values[kept] >> shift]), axis=1, return_counts=True)
        return {"ord": pairs[0], "cell": pairs[1], "n": n}

    def exact(self, edges, group):
        return np.histogram(self.values[self.groups == group], edges)[0] if self.values.size else np.zeros(len(edges) - 1, np.int64)


def table(name):
    rng = np.random.default_rng(5)
    if name == "spread":
        units = units_of("DOUBLE", 0, 1, whole=False)
        values = rng.integers(0, units.count, 30_000)
    elif name == "narrow":
        units = units_of("DOUBLE", 0, 1e9, whole=False)
        values = (rng.normal(80, 10, 30_000).clip(0) / units.width).astype(np.int64)
    elif name == "tied":
        units = units_of("INTEGER", -10, 1_000_000, whole=True)
        values = np.where(rng.random(30_000) < 0.7, 65_000, rng.integers(0, units.count, 30_000))
    else:
        units = units_of("BIGINT", 0, 5_000, whole=True)
        values = np.zeros(0, np.int64)
    return Table(units, rng.integers(0, 3, values.size), values)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("leaves", [16, 1024])
@pytest.mark.parametrize("name", ["spread", "narrow", "tied", "empty"])
def test_counts_are_those_of_all_rows(name, leaves, mechanism):
    held, rng = table(name), np.random.default_rng(6)
    scales = (20,) * depth(held.units, mechanism)[1]
    rows = UnitRows(held.units, mechanism, held.read)
    ordered = np.sort(held.values)

    def answer(level, cells):
        found = rows.inside(level, cells)
        assert np.array_equal(found, np.searchsorted(ordered, cells[1]) - np.searchsorted(ordered, cells[0]))
        return found + np.rint(rng.normal(0, 20, found.size)).astype(np.int64)

    levels = released(held.units, Cutting(0, scales, mechanism), leaves, answer)
    edges = cut(held.units, levels, leaves)
    found = np.zeros((3, leaves), np.int64)
    for columns, leaf, n in rows.leaves(edges):
        np.add.at(found, (np.asarray(columns["ord"], np.int64), leaf), n)
    for group in range(3):
        assert np.array_equal(found[group], held.exact(edges, group))
    assert found.sum() == held.values.size


def test_rows_that_are_spread_are_read_once():
    held = table("spread")
    scales = (20,) * depth(held.units, "gaussian")[1]
    rows = UnitRows(held.units, "gaussian", held.read)
    levels = released(held.units, Cutting(0, scales, "gaussian"), 1024, lambda level, cells: rows.inside(level, cells) + 0)
    rows.leaves(cut(held.units, levels, 1024))
    assert len(held.asked) <= 2 and held.asked[0] == (36, [])
