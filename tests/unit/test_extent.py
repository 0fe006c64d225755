"""How far rows reach: noise in empty cells shows nothing however far away it is, and tails go on as far as they are seen to."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from bounded_attributes import bounded, named, some

from dpsql.domains.grid import Grid, Histogram, grid_of
from dpsql.noise import discrete
from dpsql.tables import extent, fine

pytestmark = pytest.mark.any_duckdb

ROWS = 60_000
WIDE = bounded("DOUBLE", 0, 10_000_000)


def estimated(attribute, values, scale, *, noise=True) -> Histogram:
    grid: Grid = grid_of(attribute)
    exact = np.bincount(grid.place(np.asarray(values, float)), minlength=grid.edges.size - 1).astype(np.int64)

    def answer(_, cells):
        counts = fine.counted(cells, exact)
        return discrete.add_noise(counts, "gaussian", Fraction(scale)) if noise else counts

    scales = (Fraction(scale),) * len(grid.levels)
    return fine.estimate(grid, fine.levels(grid, scales, "gaussian", answer), [float(scale)] * len(scales), "gaussian")


def mean(histogram: Histogram) -> float:
    return float((histogram.counts * (histogram.low + histogram.high) / 2).sum() / histogram.counts.sum())


def costs(sigma=1.08):
    """Evenly spaced quantiles of a lognormal distribution."""
    from scipy import stats

    return np.round(np.exp(6.5 + sigma * stats.norm.ppf((np.arange(ROWS) + 0.5) / ROWS)), 2)


@pytest.mark.parametrize(("upper", "scale", "off"), [(100_000, 40, 0.08), (10_000_000, 20, 0.08), (10_000_000, 40, 0.08), (10_000_000, 160, 0.2)])
def test_a_mean_under_wide_bounds(upper, scale, off):
    """A row at 7,500,000 is a tenth of the mean, and the cell there has a noise of tens of rows: kept where it is above 0, it was
    from 1 to 30 times the truth."""
    values = costs()
    found = estimated(bounded("DOUBLE", 0, upper), values, scale)
    assert mean(found) == pytest.approx(values.mean(), rel=off)
    beyond = float(found.counts[found.low >= 20_000].sum())
    assert beyond <= 45 + 8 * scale
    assert found.counts[found.low >= 200_000].sum() < 1.0


def test_errors_of_means_have_no_sign():
    values = costs()
    errors = [mean(estimated(WIDE, values, 40)) / values.mean() - 1 for _ in range(12)]
    # Six deviations of what was seen, 1 % a draw, beside a bias of half a per cent.
    assert abs(float(np.mean(errors))) < 0.005 + 6 * 0.01 / len(errors) ** 0.5


def test_noise_alone_is_shown_nowhere_beyond_the_rows():
    for _ in range(20):
        found = estimated(WIDE, np.full(5_000, 250.0), 20)
        assert found.shown[0] <= 250 < found.shown[1]
        assert found.shown[1] - found.shown[0] <= 1  # a cell of the last level
        assert found.counts[(found.low > 250) | (found.high <= 250)].sum() == 0.0


def test_where_all_is_noise_all_is_shown():
    found = estimated(WIDE, [], 20)
    grid = grid_of(WIDE)
    assert found.shown == (grid.edges[0], grid.edges[-1])


def test_rows_far_from_all_others_are_shown():
    values = np.concatenate([costs(), np.full(600, 3_000_000.0)])
    found = estimated(WIDE, values, 40)
    held = found.counts[(found.low <= 3_000_000.0) & (found.high > 3_000_000.0)]
    assert held.sum() == pytest.approx(600, abs=8 * 40)
    assert found.shown[1] > 3_000_000
    assert mean(found) == pytest.approx(values.mean(), rel=0.4)


def level(low, high, counts, deviation=10.0, parent=None):
    low, high, counts = (np.asarray(column, float) for column in (low, high, counts))
    return extent.Level(low, high, np.zeros(low.size, np.int64) if parent is None else np.asarray(parent), counts, deviation)


def places(flags):
    return np.flatnonzero(flags).tolist()


def test_a_count_has_to_pass_more_deviations_the_farther_away_it_is():
    edges = np.asarray([0.0, 1.0, 2.0, 100.0, 10_000.0, 1_000_000.0])
    for count, last in ((20, 2), (60, 5)):
        counts = [6_000, 5_000, 0, 0, count]
        assert places(extent.seen([level(edges[:-1], edges[1:], counts)])[0])[-1] + 1 == (5 if count == 60 else last), count
    # 3 deviations at 50 are rows, at 500,000 noise.
    assert places(extent.seen([level(edges[:-1], edges[1:], [6_000, 5_000, 40, 0, 40])])[0]) == [0, 1, 2]


def test_cells_that_show_nothing_alone_show_rows_together():
    edges = 1000.0 * np.arange(41.0)
    counts = np.zeros(40)
    counts[10] = 5_000
    assert places(extent.seen([level(edges[:-1], edges[1:], counts)])[0]) == [10]
    counts[11:19] = 25.0  # 2.5 deviations each, 7 together
    assert set(range(10, 19)) <= set(places(extent.seen([level(edges[:-1], edges[1:], counts)])[0]))
    counts[11:19] = 2.0
    assert places(extent.seen([level(edges[:-1], edges[1:], counts)])[0]) == [10]


def test_parts_are_seen_as_the_cells_are_that_they_are_parts_of():
    top = level([0, 10, 20], [10, 20, 30], [3, 1_000, -8])
    parts = np.zeros(10)
    parts[3] = 1_000.0
    below = level(np.arange(10, 20), np.arange(11, 21), parts, parent=[1] * 10)
    assert [places(flags) for flags in extent.seen([top, below])] == [[1], [3]]
    none = level(np.arange(10, 20), np.arange(11, 21), [-1, 1] * 5, 500.0, parent=[1] * 10)
    assert [len(places(flags)) for flags in extent.seen([top, none])] == [1, 10]  # a cell whose parts show nothing


@pytest.mark.parametrize("values", [np.linspace(100, 1_000, ROWS), np.full(ROWS, 7.0), 1_000 * np.sqrt((np.arange(ROWS) + 0.5) / ROWS)], ids=["even", "one", "rising"])
def test_what_ends_has_no_tail(values):
    found = estimated(WIDE, values, 20)
    # Noise of cells so near that it moves no mean may be left; where all rows are one value, nothing is near.
    assert found.counts[found.low > values.max()].sum() <= (8 * 20 if np.ptp(values) else 0)
    assert found.counts[found.low >= 20_000].sum() == 0.0
    assert found.high[-1] >= 10_000_000


def test_a_tail_goes_on_as_it_is_seen_to_fall():
    """Of rows without noise the cells beyond 10,000 are taken away: what is put there is about what was there."""
    values = costs()
    edges = np.concatenate([[0.0], np.geomspace(10, 10_000, 40), [20_000.0, 50_000.0, 100_000.0, 10_000_000.0]])
    rows = np.histogram(values, edges)[0].astype(float)
    counts = np.where(edges[:-1] >= 10_000, 0.0, rows)
    given = Histogram(edges[:-1], edges[1:], counts, rows, np.zeros(counts.size, bool), 0.0, 5.0, (0.0, 10_000.0))
    found = extent.continued(given, 60.0)
    tail = found.low >= 10_000
    assert found.counts[~tail].tolist() == counts[counts > 0].tolist()
    assert found.counts[tail].sum() == pytest.approx((values >= 10_000).sum(), rel=0.3)
    assert mean(found) == pytest.approx(values.mean(), rel=0.02)
    density = found.counts[tail] / (found.high - found.low)[tail]
    assert (np.diff(density) <= 0).all()
    assert (found.low[1:] == found.high[:-1]).all()
    assert found.high[-1] == 10_000_000
    # Nothing counted beyond, where so many rows would be seen: there are none.
    assert extent.continued(replace(given, raw=counts), 10.0).low.tolist() == edges[:-1].tolist()
    assert extent.continued(replace(given, raw=counts), 300.0).low.size > counts.size  # among much noise they would not


def test_whole_numbers_stay_whole_and_both_ends_are_alike():
    edges = np.concatenate([[0.0], np.unique(np.rint(np.geomspace(10, 10_000, 40))), [20_000.0, 50_000.0, 100_000.0, 10_000_000.0]])
    rows = np.histogram(costs(), edges)[0].astype(float)
    counts = np.where(edges[:-1] >= 10_000, 0.0, rows)
    given = Histogram(edges[:-1], edges[1:], counts, rows, np.zeros(counts.size, bool), 1.0, 5.0, (0.0, 10_000.0))
    found = extent.continued(given, 60.0)
    assert (found.low == np.rint(found.low)).all()
    assert found.low.size > counts.size
    other = extent.continued(extent._mirrored(given), 60.0)
    for one, two in ((other.low, -found.high[::-1]), (other.high, -found.low[::-1]), (other.counts, found.counts[::-1])):
        assert one.tolist() == two.tolist()
    assert other.shown == (-10_000.0, 0.0)


def test_the_slope_is_that_of_the_parts():
    for slope, roots in itertools.product((0.01, 1.0, 30.0), ([1.0, 2.0, 3.0], [0.5, 0.6, 0.8])):
        held = np.exp(-slope * (np.asarray(roots) - roots[0]))
        ratio = (held[0] - held[1]) / (held[1] - held[2])
        assert extent._slope(np.asarray(roots), float(ratio)) == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("case", some(0), ids=named)
def test_all_types_and_bounds(case):
    """Rows that fall off from the middle of the grid, whatever its scale: cells cover it and hold them."""
    attribute = bounded(*case)
    grid = grid_of(attribute)
    size = grid.edges.size - 1
    places = np.clip(size // 2 + np.rint(size / 60 * np.random.default_rng(3).standard_t(3, 20_000)), 0, size - 1).astype(int)
    found = estimated(attribute, grid.edges[places], 20)
    assert (found.low[1:] == found.high[:-1]).all()
    assert (found.low[0], found.high[-1]) == (grid.edges[0], grid.edges[-1])
    assert (found.high > found.low).all()
    assert np.isfinite(found.counts).all()
    assert (found.counts >= 0).all()
    assert found.counts.sum() == pytest.approx(20_000, rel=0.2)


@pytest.mark.parametrize(("sql_type", "lower", "upper"), [("TIMESTAMP", "0001-01-01", "9999-12-31"), ("DATE", "0001-01-01", "9999-12-31"), ("BIGINT", 0, 9_999_999_999)])
def test_a_cell_of_the_last_level_that_holds_all_rows_is_no_spike(sql_type, lower, upper):
    """All moments of a quarter were one, 2020-01-01 00:00:00."""
    attribute = bounded(sql_type, lower, upper)
    second = {"TIMESTAMP": 1e6, "DATE": 1 / 86_400, "BIGINT": 1.0}[sql_type]
    values = np.floor((1_577_836_800 + 86_400 * np.random.default_rng(0).uniform(0, 91, 20_000)) * second)
    found = estimated(attribute, values, 20)
    assert not found.spiked.any()
    inside = (found.low >= (1_577_836_800 - 31 * 86_400) * second) & (found.high <= (1_577_836_800 + 123 * 86_400) * second)
    assert found.counts[inside].sum() >= 0.99 * found.counts.sum()
    assert np.diff([found.low[found.counts > 0].min(), found.high[found.counts > 0].max()])[0] >= 91 * 86_400 * second
