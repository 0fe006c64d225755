"""Tails that are noise: taken away where they would move a mean, kept where rows are."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from bounded_attributes import bounded

from dpsql.domains.attributes import Domain
from dpsql.domains.grid import Histogram, grid_of
from dpsql.noise import discrete
from dpsql.tables import fine, tails
from dpsql.tables.flat import FlatTables
from dpsql.tables.statistics import Statistics

pytestmark = pytest.mark.any_duckdb

EDGES = np.asarray([0.0, 1, 2, 5, 10, 20, 50, 100, 1000, 10_000, 100_000])
ROWS = np.asarray([0.0, 100, 300, 500, 300, 100, 0, 0, 0, 0])


def histogram(counts, noise=5.0, edges=EDGES):
    counts = np.asarray(counts, float)
    return Histogram(edges[:-1], edges[1:], np.maximum(counts, 0.0), counts, np.zeros(counts.size, bool), 0.0, noise)


def test_noise_far_away_is_taken_away():
    found = tails.noise_cells(EDGES[:-1], EDGES[1:], ROWS + [0, 0, 0, 0, 0, 0, 3, -4, 3, 5], 5.0)
    assert found.tolist() == [False] * 8 + [True] * 2  # nearer noise moves no mean


def test_rows_far_away_are_kept():
    found = tails.noise_cells(EDGES[:-1], EDGES[1:], ROWS + [0, 0, 0, 0, 0, 0, 3, -4, 6, 80], 5.0)
    assert not found.any()
    found = tails.noise_cells(EDGES[:-1], EDGES[1:], ROWS + [0, 0, 0, 0, 0, 0, 3, -4, 90, 5], 5.0)
    assert found.tolist() == [False] * 9 + [True]


def test_without_noise_nothing_is_taken_away_that_is_there():
    assert not tails.noise_cells(EDGES[:-1], EDGES[1:], ROWS + [0, 0, 0, 0, 0, 0, 0, 0, 1, 1], 1e-3).any()


def test_both_ends_are_looked_at():
    edges = np.concatenate([-EDGES[::-1], EDGES[1:]])
    counts = np.concatenate([[4.0, -3, 0, 0, 0, 0], ROWS[:4][::-1], ROWS[:4], [0, 0, 0, 0, 2, 7.0]])
    found = np.flatnonzero(tails.noise_cells(edges[:-1], edges[1:], counts, 5.0))
    assert {0, counts.size - 1} <= set(found.tolist())
    assert found.size <= 6


@pytest.mark.parametrize("counts", [np.zeros(10), -np.ones(10), np.full(10, -1e6), [0] * 9 + [1.0]])
def test_where_nothing_is_known_nothing_fails(counts):
    found = tails.noise_cells(EDGES[:-1], EDGES[1:], np.asarray(counts, float), 5.0)
    assert found.dtype == bool
    after = tails.trimmed(statistics({(0,): [*np.asarray(counts, int), 7]}, {0: histogram(counts)})).tables[0,]
    assert np.asarray(after).sum() == np.asarray(counts).sum() + 7


def test_the_ends_of_double_precision():
    largest = 1.7976931348623157e308
    for edges in (np.asarray([-largest, -1e300, 0.0, 5e-324, 1e300, largest]), np.asarray([0.0, 1, 2, 3, 4, 5]) * 5e-324):
        for counts in ([3.0, -2, 900, 0, 5], [900.0, 0, 0, 0, 900], [-1.0, 0, 0, 0, 2]):
            found = tails.noise_cells(edges[:-1], edges[1:], np.asarray(counts), 5.0)
            assert found.shape == (5,)
    far = tails.noise_cells(np.asarray([0.0, 1.0, 1e300]), np.asarray([1.0, 1e300, largest]), np.asarray([1000.0, 2.0, 3.0]), 5.0)
    assert far.tolist() == [False, False, True]


COST = bounded("DOUBLE", 0, 100_000, bins=10)
SEX = bounded("INTEGER", 0, 1, nullable=False)
DOMAIN = Domain((COST, SEX))


def statistics(tables, fine_histograms, scale=5.0, mechanism="gaussian", domain=DOMAIN):
    flat = FlatTables(domain.sizes, list(tables), np.concatenate([np.asarray(t, np.int64).ravel() for t in tables.values()]))
    scales = dict.fromkeys(tables, scale)
    return Statistics(sizes=domain.sizes, mechanism=mechanism, total=None, domain=domain, tables=flat, scales=scales, fine=fine_histograms)


def estimated(values, attribute=COST):
    grid = grid_of(attribute)
    exact = np.bincount(grid.place(np.asarray(values, float)), minlength=grid.edges.size - 1)
    scales = (Fraction(5),) * len(grid.levels)
    found = fine.levels(grid, scales, "gaussian", lambda level, cells: discrete.add_noise(fine.counted(cells, exact), "gaussian", Fraction(5)))
    return fine.estimate(grid, found, [5.0] * len(scales), "gaussian")


def table(first=(900, 200, 0, 3, -5, 2, 1, -2, 6, 4, 50)):
    return np.asarray([[n // 2, n - n // 2] for n in first])


def test_tables_of_a_column_with_a_fine_histogram_are_trimmed_and_no_others():
    rng = np.random.default_rng(0)
    values = rng.uniform(0, 15_000, 1100)
    given = {(0,): table().sum(1), (1,): [600, 550], (0, 1): table()}
    before = statistics(given, {0: estimated(values)})
    after = tails.trimmed(before)
    one_way = np.asarray(after.tables[0,])
    kept = np.flatnonzero(one_way[:10])
    last = int(kept[-1])
    assert kept.tolist() == list(range(last + 1))
    assert 1 <= last <= 3
    # The rows of the tail, those below zero too, are in the last bin that is left: nothing is lost or gained.
    assert one_way[last] == table().sum(1)[last:10].sum()
    assert one_way[:last].tolist() == table().sum(1)[:last].tolist()
    assert np.asarray(after.tables[0, 1])[last].tolist() == table()[last:10].sum(0).tolist()
    assert not np.asarray(after.tables[0, 1])[last + 1 : 10].any()
    assert np.asarray(after.tables[1,]).tolist() == [600, 550]
    assert one_way[-1] == 50  # NULL, the eleventh code, is no part of the range
    assert np.asarray(before.tables[0,]).tolist() == table().sum(1).tolist()  # what is stored stays as it was
    for same in (statistics(given, {}), statistics({(1,): [5, 6]}, {0: estimated(values)})):
        assert tails.trimmed(same) is same


def test_one_way_counts_join_all_tables_by_precision():
    known = statistics({(0,): table().sum(1), (0, 1): table()}, {}, scale=6.0).sums
    assert known.counts(0) == pytest.approx(table().sum(1))
    assert known.deviation(0) == pytest.approx((1 / 36 + 1 / 72) ** -0.5, rel=1e-3)
    assert known.counts(1) == pytest.approx(table().sum(0))
    assert statistics({(1,): [5, 6]}, {}).sums.precisions.tolist() == [0.0, pytest.approx(1 / 25)]


def test_values_are_placed_as_tables_and_histogram_say():
    rng = np.random.default_rng(0)
    values = np.concatenate([np.zeros(300), rng.uniform(0, 10_000, 600), np.full(200, 12_345.0)])
    exact = np.histogram(values, np.linspace(0, 100_000, 11))[0]
    found = tails.placed(statistics({(0,): [*exact, 0]}, {0: estimated(values)}))[0]
    assert found.counts[0] == pytest.approx(300, abs=40)
    assert found.counts[found.low < 10_000].sum() == pytest.approx(900)
    assert found.counts[found.low >= 20_000].sum() == pytest.approx(0.0, abs=1e-9)
    assert found.counts[(found.low <= 12_345) & (found.high > 12_345)] == pytest.approx(200, abs=40)


def test_tables_without_a_row_place_nothing():
    found = tails.placed(statistics({(0,): [-3] * 11}, {0: estimated([])}))[0]
    assert found.counts.sum() == 0.0
    alone = estimated([5.0] * 500)
    assert tails.placed(statistics({(1,): [5, 6]}, {0: alone}))[0].counts.sum() == pytest.approx(alone.counts.sum(), abs=60)
