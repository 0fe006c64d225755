"""Bins that are cut from a fine histogram: where, how many, and valid for their type."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from bounded_attributes import BOUNDS, bounded, named
from pairwise import in_turn

from dpsql.domains import sqltypes
from dpsql.domains.attributes import Domain
from dpsql.domains.decoder import Decoder
from dpsql.domains.edges import empty_bin
from dpsql.domains.grid import Histogram, edge_numbers, grid_of
from dpsql.noise import discrete
from dpsql.release import refined
from dpsql.release.plan import FineColumn, Plan
from dpsql.tables import cutting, fine

pytestmark = pytest.mark.any_duckdb


def histogram(counts, edges=None, noise=1.0):
    counts = np.asarray(counts, np.float64)
    edges = np.arange(counts.size + 1.0) if edges is None else np.asarray(edges, np.float64)
    return Histogram(edges[:-1], edges[1:], counts, counts, np.zeros(counts.size, bool), 1.0, noise)


@pytest.mark.parametrize(
    "counts",
    [
        [100] * 20, [0] * 20, [1000, *[1] * 19], [*[1] * 19, 1000], [1, 1000] * 10, [1000, 1] * 10, [2.0**k for k in range(20)],
        [5], [5, 5], [0, 0, 9000, 0, 0, 9000, 0, 0, 9000, 0], [1e-9] * 6, [1e18, 1, 1e18, 1, 1e18, 1],
    ],
)
def test_no_more_bins_than_asked_for_and_all_cuts_inside(counts):
    for most, noise in itertools.product(range(1, 12), (0.0, 1.0, 1e6)):
        found = cutting.cuts(histogram(counts), most, noise)
        assert found.dtype == np.int64
        assert found.size <= most - 1
        assert all(0 < a < len(counts) for a in found)
        assert all(a < b for a, b in itertools.pairwise(found.tolist()))


def test_many_spikes_do_not_take_one_bin_too_many():
    """Spikes with gaps between them: each takes two bins but the last, which may take three."""
    counts = np.ones(400)
    counts[5:400:30] = 10_000
    for most in range(1, 40):
        assert cutting.cuts(histogram(counts), most, 1.0).size <= most - 1


def test_spikes_are_alone():
    counts = [20] * 30
    counts[7] = counts[23] = 3000
    found = cutting.cuts(histogram(counts), 8, 1.0).tolist()
    assert {7, 8, 23, 24} <= set(found)
    counts = [3000, *[20] * 29]
    assert 1 in cutting.cuts(histogram(counts), 4, 1.0)
    counts = [*[20] * 29, 3000]
    assert 29 in cutting.cuts(histogram(counts), 4, 1.0)


def test_equal_rows_get_bins_of_equal_weight():
    assert cutting.cuts(histogram([100] * 12), 4, 1.0).size == 3
    found = np.diff([0, *cutting.cuts(histogram([100] * 120), 6, 1.0), 120])
    assert found.max() <= 2.5 * found.min()


def test_a_bin_is_worth_its_noise():
    """Few rows and much noise: no bins that would hold nothing but noise."""
    assert cutting.cuts(histogram([10] * 100), 24, 1e5).size == 0
    assert cutting.cuts(histogram([10] * 100), 24, 25.0).size == pytest.approx(9, abs=1)
    assert cutting.cuts(histogram([10] * 100), 24, 1.0).size > 20


def test_a_tail_of_few_rows_and_half_of_the_mean_has_bins():
    counts = [9_900, 0, 0, 0, 0, 0, 25, 25, 25, 25]
    found = cutting.weights(histogram(counts, edges=[0, 1, 10, 50, 100, 500, 1_000, 2_000, 5_000, 10_000, 20_000]))
    assert found.sum() == pytest.approx(1.0)
    assert found[6:].sum() > 0.45


def test_weights_at_the_ends_of_double_precision():
    largest = 1.7976931348623157e308
    for edges in ([0.0, 1e307, 1e308, largest], [-largest, -1.0, 0.0, 1.0], [0.0, 5e-324, 1e-323, 2e-323]):
        found = cutting.weights(histogram([5, 6, 7], edges=edges))
        assert np.isfinite(found).all()
        assert found.sum() == pytest.approx(1.0)


def test_bins_are_filled_up_to_a_number():
    grid = grid_of(bounded("INTEGER", 0, 120))
    for ends in ([], [5.0], [5.0, 6.0, 7.0], [0.0, 121.0]):
        inner = cutting.filled(np.asarray(ends), grid, 24)
        assert inner.size == 23
        assert (np.diff(inner) > 0).all()
        assert {end for end in ends if 0 < end < 121} <= set(inner.tolist())
        assert set(inner.tolist()) <= set(grid.edges[1:-1].tolist())
    few = grid_of(bounded("INTEGER", 0, 5))
    assert cutting.filled(np.zeros(0), few, 24).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


TABLES = ("nothing", "spikes", "even", "ends")


def exact_counts(grid, kind):
    size = grid.edges.size - 1
    rng = np.random.default_rng(TABLES.index(kind))
    counts = np.zeros(size, np.int64)
    if kind == "spikes":
        counts[rng.integers(size, size=14)] = 5000
    elif kind == "even":
        counts = np.bincount(rng.integers(size, size=20_000), minlength=size)
    elif kind == "ends":
        counts[0] += 4000
        counts[-1] += 3000
    return counts


@pytest.mark.parametrize(("case", "kind"), in_turn([case for case in BOUNDS if bounded(*case).automatic], TABLES), ids=lambda v: v if v in TABLES else named(v))
def test_cut_edges_are_a_domain_of_the_type(case, kind):
    attribute = bounded(*case)
    parsed = sqltypes.parse(attribute.sql_type)
    full = len(grid_of(attribute).levels)
    for mechanism, scale, levels in (("gaussian", Fraction(20), full), ("laplace", Fraction(3), min(full, 2))):
        grid = grid_of(attribute, levels)
        scales = (scale,) * levels
        exact = exact_counts(grid, kind)
        found = fine.levels(grid, scales, mechanism, lambda level, cells: discrete.add_noise(fine.counted(cells, exact), mechanism, scale))  # noqa: B023
        counts = np.concatenate([part for _, part in found])
        plan = Plan(Domain((attribute,)), ((0,),), (scale,), mechanism, False, None, {}, fine=(FineColumn(0, scales, mechanism),))
        for is_exact in (False, True):
            (edges,) = refined.cut_edges(plan, [counts], float(scale), exact=is_exact)
            assert (edges[0], edges[-1]) == (attribute.edges[0], attribute.edges[-1])
            assert 2 <= len(edges) <= attribute.values + 1
            assert len(edges) == attribute.values + 1 or not is_exact
            assert empty_bin(parsed, edges) is None
            # What is bought can be read again.
            item = refined.Refinement((counts,), (edges,)).to_json()
            again = refined.resolved(plan, refined.refinement_of(plan, item))
            assert again.domain.attributes[0].edges == edges
            assert not again.domain.attributes[0].automatic


AT_UPPER = [("INTEGER", 0, 120), ("BIGINT", 0, 10**7), ("DECIMAL(9,2)", 0, 500), ("DOUBLE", 0, 1000), ("FLOAT", 0, 1000), ("DOUBLE", -50, 0)]


@pytest.mark.parametrize("case", AT_UPPER, ids=named)
@pytest.mark.parametrize("is_exact", [False, True])
def test_a_spike_at_the_upper_bound_has_a_bin_of_its_own(case, is_exact):
    """Where everything above the bound is clamped to it, half of all rows, say; levels as deep as a cell of the bound alone."""
    attribute, upper = bounded(*case), float(case[2])
    grid = grid_of(attribute)
    scales = (Fraction(5),) * len(grid.levels)
    exact = np.bincount(np.random.default_rng(0).integers(grid.edges.size - 1, size=10_000), minlength=grid.edges.size - 1)
    exact[grid.place(np.asarray([upper]))] += 10_000
    found = fine.levels(grid, scales, "gaussian", lambda level, cells: discrete.add_noise(fine.counted(cells, exact), "gaussian", Fraction(5)))
    counts = np.concatenate([part for _, part in found])
    plan = Plan(Domain((attribute,)), ((0,),), (Fraction(5),), "gaussian", False, None, {}, fine=(FineColumn(0, scales, "gaussian"),))
    (edges,) = refined.cut_edges(plan, [counts], 5.0, exact=is_exact)
    assert edges[-1] == upper
    assert len(edges) == attribute.values + 1 or not is_exact
    parsed = sqltypes.parse(attribute.sql_type)
    bounds = sqltypes.grid(parsed, edges)
    if bounds is None:
        assert edges[-2] == np.nextafter(upper, -np.inf)
    else:
        assert bounds[-1] - bounds[-2] == 1
    # Rows of that bin have the bound as their value.
    bins = replace(attribute, edges=edges, automatic=False)
    codes = np.full(2000, bins.values - 1)
    shown = fine.inside(refined.histogram(plan, plan.fine[0], counts), edge_numbers(bins), np.full(bins.values, 10_000.0))
    drawn = Decoder(bins, "v", shown).arrays(codes, np.random.default_rng(0))["v"]
    assert (np.asarray(drawn, float) == upper * 10**parsed.scale).all()
