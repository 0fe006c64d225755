"""Fine histograms as mathematics: which cells are counted, what is released, what is estimated from it."""

from __future__ import annotations

import ast
import inspect
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from bounded_attributes import BOUNDS, bounded, named

from dpsql.domains.grid import Histogram, edge_numbers, grid_of
from dpsql.noise import discrete
from dpsql.tables import fine

pytestmark = pytest.mark.any_duckdb

COST = bounded("DOUBLE", 0, 100_000)
AGE = bounded("INTEGER", 0, 120)


def exact_counts(grid, values, times=1):
    return np.bincount(grid.place(np.asarray(values, np.float64)), minlength=grid.edges.size - 1).astype(np.int64) * times


def released(grid, exact, scales, mechanism="gaussian", noise=True):
    def draw(level, cells):
        counts = fine.counted(cells, exact)
        return discrete.add_noise(counts, mechanism, scales[level]) if noise else counts

    return fine.levels(grid, scales, mechanism, draw)


def flat(found):
    return np.concatenate([counts for _, counts in found])


def estimated(grid, exact, scale=Fraction(1, 5), mechanism="gaussian"):
    scales = (scale,) * len(grid.levels)
    return fine.estimate(grid, released(grid, exact, scales, mechanism), [float(s) for s in scales], mechanism)


def held(histogram, low, high):
    """Rows of cells that lie in [low, high)."""
    return histogram.counts[(histogram.low >= low) & (histogram.high <= high)].sum()


@pytest.mark.parametrize("case", BOUNDS[::2], ids=named)
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_what_was_released_is_split_again_exactly(case, mechanism):
    grid = grid_of(bounded(*case))
    rng = np.random.default_rng(5)
    exact = np.bincount(rng.integers(grid.edges.size - 1, size=3000) // 3, minlength=grid.edges.size - 1)
    scales = tuple(Fraction(3 + level, 2) for level in range(len(grid.levels)))
    first = released(grid, exact, scales, mechanism)
    again = fine.split(grid, flat(first), scales, mechanism)
    assert len(first) == len(again) == len(grid.levels)
    for (cells, counts), (same, numbers) in zip(first, again, strict=True):
        assert counts.tolist() == numbers.tolist()
        for name in ("first", "behind", "parent"):
            assert getattr(cells, name).tolist() == getattr(same, name).tolist()


def test_too_few_and_too_many_counts_are_refused():
    grid = grid_of(AGE)
    scales = (Fraction(1),) * 2
    counts = flat(released(grid, exact_counts(grid, [30.0] * 500), scales))
    for wrong, told in ((counts[:-1], "fewer"), (np.append(counts, 3), "more"), (counts[:0], "fewer")):
        with pytest.raises(ValueError, match=f"{told} counts than cells"):
            fine.split(grid, wrong, scales, "gaussian")


@pytest.mark.parametrize(("mechanism", "factor"), [("gaussian", 1), ("laplace", 2)])
@pytest.mark.parametrize("scale", [Fraction(1), Fraction(7, 3), Fraction(10**9 + 1, 3), Fraction(2**25)])
def test_a_cell_is_parted_where_its_count_passes_three_deviations_exactly(mechanism, factor, scale):
    grid = grid_of(AGE)
    cells = fine.top_cells(grid)
    wide = int(np.flatnonzero(cells.behind - cells.first > 1)[2])
    limit = math.isqrt(math.floor(9 * factor * scale**2))
    for count in (limit - 1, limit, limit + 1, -limit - 1):
        counts = np.zeros(cells.first.size, np.int64)
        counts[wide] = count
        parts = fine.next_cells(grid, 1, cells, counts, scale, mechanism)
        assert (parts.first.size > 0) == (count > 0 and count**2 > 9 * factor * scale**2)
        assert set(parts.parent.tolist()) <= {wide}


def test_the_rule_is_integer_arithmetic():
    """A float on the way from released counts to cells could differ between machines: no float literal, call or division in it."""
    for function in (fine.next_cells, fine.levels, fine.counted, fine.split, fine.top_cells):
        tree = ast.parse(inspect.getsource(function))
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, float)]
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.Div)]
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        assert not names & {"float", "float64", "sqrt", "estimate", "FloatArray"}
    # Counts that no double holds are told apart.
    grid = grid_of(AGE)
    cells = fine.top_cells(grid)
    large = np.full(cells.first.size, 2**60 + 1, np.int64)
    assert fine.counted(cells, np.full(grid.edges.size - 1, 2**53 + 1, np.int64))[1] == 10 * (2**53 + 1)
    assert fine.next_cells(grid, 1, cells, large, Fraction(1), "gaussian").first.size == grid.edges.size - 1 - sum(cells.behind - cells.first == 1)


def test_no_more_cells_are_parted_than_allowed_and_those_with_the_largest_counts():
    grid = grid_of(bounded("BIGINT", 0, 10**18))
    scales = (Fraction(1),) * len(grid.levels)
    rng = np.random.default_rng(3)
    exact = rng.integers(5, 50, grid.edges.size - 1)
    found = released(grid, exact, scales)
    for level, (cells, _) in enumerate(found[1:], 1):
        before = found[level - 1][1]
        opened = np.unique(cells.parent)
        assert opened.size <= fine.MOST_OPEN
        wide = np.flatnonzero(found[level - 1][0].behind - found[level - 1][0].first > 1)
        assert before[opened].min() >= np.sort(before[wide])[-opened.size]


def test_parts_tile_their_cell_and_counts_add_up_without_noise():
    grid = grid_of(COST)
    rng = np.random.default_rng(7)
    exact = exact_counts(grid, rng.lognormal(5, 2, 40_000).clip(0, 1e5))
    found = released(grid, exact, (Fraction(1),) * 4, noise=False)
    assert found[0][1].sum() == exact.sum()
    for (above, masses), (cells, counts) in zip(found, found[1:], strict=False):
        for place in np.unique(cells.parent).tolist():
            parts = cells.parent == place
            assert cells.first[parts][0] == above.first[place]
            assert cells.behind[parts][-1] == above.behind[place]
            assert (cells.first[parts][1:] == cells.behind[parts][:-1]).all()
            assert counts[parts].sum() == masses[place]


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_without_noise_the_estimate_is_the_exact_histogram(mechanism):
    for attribute in (AGE, bounded("DATE", "2020-01-01", "2021-12-31"), bounded("DECIMAL(6,2)", 0, 9)):
        grid = grid_of(attribute)
        rng = np.random.default_rng(2)
        values = rng.integers(0, grid.edges.size - 1, 5000) ** 2 // grid.edges.size
        exact = np.bincount(values, minlength=grid.edges.size - 1).astype(np.int64) * 40
        found = estimated(grid, exact, Fraction(1, 10), mechanism)
        sums = np.concatenate([[0], np.cumsum(exact)])
        first, last = np.searchsorted(grid.edges, found.low), np.searchsorted(grid.edges, found.high)
        assert np.abs(found.counts - (sums[last] - sums[first])).max() <= 2
        assert found.counts.sum() == pytest.approx(exact.sum(), abs=3)


@pytest.mark.parametrize("case", BOUNDS, ids=named)
def test_an_estimate_covers_the_grid_whatever_was_released(case):
    grid = grid_of(bounded(*case), 3)
    size = grid.edges.size - 1
    rng = np.random.default_rng(11)
    tables = [np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64), np.bincount(rng.integers(size, size=9000), minlength=size)]
    tables[1][[0, -1]] = 4000, 300
    tables[2][rng.integers(size, size=3)] = 2**58
    for exact in tables:
        for scale, mechanism in ((Fraction(1, 2), "gaussian"), (Fraction(40), "laplace")):
            found = estimated(grid, exact, scale, mechanism)
            assert found.low[0] == grid.edges[0]
            assert found.high[-1] == grid.edges[-1]
            assert (found.low[1:] == found.high[:-1]).all()
            assert (found.low < found.high).all()
            assert np.isfinite(found.raw).all()
            assert np.isfinite(found.counts).all()
            assert (found.counts >= 0).all()
            first = fine.top_cells(grid).first.size
            assert abs(found.counts.sum() - exact.sum()) <= 12 * float(scale) * math.sqrt(2 * first) + 1e-6 * exact.sum()


def test_spikes_stay_spikes():
    """Half of the rows cost nothing, a twentieth cost 4,999.50: both are there, with everything beside them as it is."""
    rng = np.random.default_rng(1)
    values = np.concatenate([np.zeros(10_000), np.full(1_000, 4_999.5), rng.uniform(100, 9_000, 9_000)])
    grid = grid_of(COST)
    found = estimated(grid, exact_counts(grid, values), Fraction(10))
    assert found.counts[0] == pytest.approx(10_000, abs=80)
    assert found.high[0] == 5e-324
    cell = int(np.searchsorted(found.low, 4_999.5, side="right")) - 1
    assert found.spiked[cell]
    assert found.counts[cell] == pytest.approx(1_000, abs=80)
    assert found.high[cell] - found.low[cell] <= 10
    assert found.spiked.sum() < 9  # 0.12 of a thousand cells are by chance: more than seven are 1e-12
    assert held(found, 10_000, 200_000) < 120


def test_smooth_counts_are_no_spikes():
    rng = np.random.default_rng(4)
    grid = grid_of(COST)
    found = estimated(grid, exact_counts(grid, rng.lognormal(7, 1, 50_000).clip(0, 1e5)), Fraction(10))
    assert found.spiked.sum() < 8  # 0.12 are by chance: more than seven are 1e-12


def test_what_noise_explains_is_spread_evenly():
    """Uniform rows: parts whose counts differ by the noise alone get about the same, not the noise."""
    grid = grid_of(bounded("INTEGER", 0, 9_999))
    exact = np.full(grid.edges.size - 1, 3, np.int64)
    found = estimated(grid, exact, Fraction(20))
    density = found.counts / (found.high - found.low)
    assert np.sqrt(np.mean((density - 3.0) ** 2)) < 10.0  # noise itself: about 20 a cell


def test_a_second_look_is_better_than_one():
    """The least squares solution uses the parts for the whole: its error is below that of the first level alone."""
    grid = grid_of(AGE)
    exact = np.full(grid.edges.size - 1, 60, np.int64)
    scales = (Fraction(30), Fraction(10))
    first = []
    solved = []
    for _ in range(300):
        found = released(grid, exact, scales)
        first.append(found[0][1] - fine.counted(found[0][0], exact))
        best = fine._least_squares([(c, n.astype(float)) for c, n in found], [900.0, 100.0])
        solved.append(best[0] - fine.counted(found[0][0], exact))
    theory = 900 * 1000 / (900 + 1000)  # ten parts of variance 100 against one count of variance 900
    assert np.var(np.asarray(solved)[:, 1:-1]) == pytest.approx(theory, rel=0.15)
    assert np.var(np.asarray(first)[:, 1:-1]) == pytest.approx(900, rel=0.15)


def zeros_in_bins(masses, edges, values, scale=Fraction(10)):
    grid = grid_of(COST)
    return fine.inside(estimated(grid, exact_counts(grid, values), scale), np.asarray(edges), np.asarray(masses, float))


def test_inside_agrees_with_the_bins():
    rng = np.random.default_rng(9)
    values = rng.uniform(0, 1000, 20_000)
    edges, masses = [0.0, 33.3, 250.0, 1000.0, 100_000.0], [100.0, 9_000.0, 10_900.0, 0.0]
    found = zeros_in_bins(masses, edges, values)
    for (low, high), mass in zip(itertools.pairwise(edges), masses, strict=True):
        assert held(found, low, max(high, found.high[-1] if high == edges[-1] else 0)) == pytest.approx(mass, abs=1e-6)
    assert (found.counts >= 0).all()


def test_zeros_inside_a_wider_bin_stay_zeros():
    """Zero is the narrowest cell there is; once its rows were spread over the rest of its bin."""
    rng = np.random.default_rng(9)
    values = np.concatenate([np.zeros(5_000), rng.uniform(0, 1_000, 5_000)])
    found = zeros_in_bins([7_500.0, 2_500.0, 0.0], [0.0, 500.0, 1_000.0, 100_000.0], values)
    assert found.high[0] == 5e-324
    assert found.counts[0] == pytest.approx(5_000, abs=100)


def test_a_spike_inside_a_bin_stays_one_and_a_parted_one_does_not():
    rng = np.random.default_rng(9)
    values = np.concatenate([np.full(2_000, 4_999.5), rng.uniform(4_000, 6_000, 8_000)])
    found = zeros_in_bins([0.0, 10_000.0, 0.0], [0.0, 4_000.0, 6_000.0, 100_000.0], values)
    cell = int(np.searchsorted(found.low, 4_999.5, side="right")) - 1
    assert found.spiked[cell]
    assert found.counts[cell] > 1_500
    parted = zeros_in_bins([0.0, 6_000.0, 4_000.0], [0.0, 4_000.0, 4_999.7, 100_000.0], values)
    cell = int(np.searchsorted(parted.low, 4_999.5, side="right")) - 1
    assert parted.high[cell] == 4_999.7
    assert not parted.spiked[cell]


def test_bins_between_two_integers_take_whole_values():
    """Bins of 100 / 7 years: the value 14 lies below 14.29, in the first of them, and so does its histogram's cell."""
    attribute = bounded("INTEGER", 0, 100, bins=7)
    grid = grid_of(attribute)
    exact = np.full(grid.edges.size - 1, 100, np.int64)
    ends = edge_numbers(attribute)
    masses = np.diff(ends) * 100.0
    found = fine.inside(estimated(grid, exact), ends, masses)
    assert (found.low == np.rint(found.low)).all()
    assert found.counts / (found.high - found.low) == pytest.approx(np.full(found.low.size, 100.0), rel=0.05)


def test_a_bin_without_rows_keeps_none():
    nothing = Histogram(np.asarray([0.0, 1.0]), np.asarray([1.0, 2.0]), np.zeros(2), np.zeros(2), np.zeros(2, bool), 1.0, 5.0)
    found = fine.inside(nothing, np.asarray([0.0, 2.0]), np.asarray([0.0]))
    assert found.counts.tolist() == [0.0, 0.0]
    assert fine.inside(nothing, np.asarray([0.0, 2.0]), np.asarray([8.0])).counts.tolist() == pytest.approx([4.0, 4.0])
