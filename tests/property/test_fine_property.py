"""Fine histograms, the bins cut from them and the values drawn in them, for any type, bounds, rows and released counts."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from bounded_attributes import BOUNDS, bounded
from case_counts import cases
from hypothesis import given, settings

from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute, Domain
from dpsql.domains.decoder import Decoder
from dpsql.domains.edges import empty_bin
from dpsql.domains.grid import Grid, edge_numbers, grid_of
from dpsql.errors import DpsqlError
from dpsql.release import refined
from dpsql.release.plan import FineColumn, Plan
from dpsql.tables import fine, tails

pytestmark = pytest.mark.any_duckdb

FINITE = st.floats(allow_nan=False, allow_infinity=False)
SCALES = st.fractions(Fraction(1, 10), 1000, max_denominator=64)


@st.composite
def numeric(draw: st.DrawFn) -> Attribute:
    """A numeric column with bounds of any size."""
    if draw(st.booleans()):
        return bounded(*draw(st.sampled_from(BOUNDS)))
    sql_type = draw(st.sampled_from(["TINYINT", "INTEGER", "BIGINT", "UBIGINT", "HUGEINT", "DECIMAL(9,3)", "DECIMAL(38,20)", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP", "TIME"]))
    parsed = sqltypes.parse(sql_type)
    try:
        if parsed.family == "temporal":
            limits = (0, 86_399_999_999) if sql_type == "TIME" else (-719_162 if sql_type == "DATE" else -62_135_596_800_000_000, 2_932_896 if sql_type == "DATE" else 253_402_300_799_999_999)
            low, high = sorted(draw(st.tuples(st.integers(*limits), st.integers(*limits))))
            return bounded(sql_type, sqltypes.step_text(parsed, low), sqltypes.step_text(parsed, high))
        if parsed.family == "float":
            size = st.floats(allow_nan=False, allow_infinity=False, width=32) if sql_type == "FLOAT" else FINITE
            low, high = sorted(draw(st.tuples(size, size)))
            return bounded(sql_type, low, high)
        low, high = sorted(draw(st.tuples(st.integers(parsed.low, parsed.high), st.integers(parsed.low, parsed.high))))
        return bounded(sql_type, low / 10**parsed.scale, high / 10**parsed.scale)
    except DpsqlError:  # bounds that are no range of the type
        return bounded("DOUBLE", 0, 1)


@given(attribute=numeric(), depth=st.integers(1, 2))
@settings(max_examples=cases(25))
def test_grids_are_nested_and_cover_their_bounds(attribute, depth):
    grid = grid_of(attribute, depth)
    assert (np.diff(grid.edges) > 0).all()
    assert np.isfinite(grid.edges).all()
    assert 1 <= len(grid.levels) <= depth
    ends = edge_numbers(attribute)
    assert grid.edges[0] == ends[0]
    assert grid.edges[-1] >= ends[-1]
    for coarse, inner in itertools.pairwise(grid.levels):
        assert set(coarse.tolist()) < set(inner.tolist())
    assert grid.levels[-1].size == grid.edges.size


def answered(draw: st.DrawFn, grid: Grid, scales: tuple[Fraction, ...], mechanism: str) -> list[tuple[fine.Cells, np.ndarray]]:
    """Released counts of every level: anything that noise could give, mostly around some shape."""
    high = draw(st.sampled_from([1, 100, 10**6]))
    shape = np.random.default_rng(draw(st.integers(0, 2**32)))
    sparse = draw(st.booleans())

    def answer(_: int, cells: fine.Cells) -> np.ndarray:
        counts = shape.integers(-min(high, 100), high, cells.first.size)
        return np.where(shape.random(cells.first.size) < 0.9, 0, counts) if sparse else counts

    return fine.levels(grid, scales, mechanism, answer)


@given(data=st.data(), attribute=numeric(), mechanism=st.sampled_from(["gaussian", "laplace"]))
@settings(max_examples=cases(25))
def test_whatever_was_released_can_be_read_estimated_cut_and_drawn_from(data, attribute, mechanism):
    levels = len(grid_of(attribute, 2).levels)
    grid = grid_of(attribute, levels)
    scales = tuple(data.draw(SCALES) for _ in range(levels))
    found = answered(data.draw, grid, scales, mechanism)
    counts = np.concatenate([part for _, part in found])
    for (cells, numbers), (same, again) in zip(found, fine.split(grid, counts, scales, mechanism), strict=True):
        assert cells.first.tolist() == same.first.tolist()
        assert numbers.tolist() == again.tolist()
    histogram = fine.estimate(grid, found, [float(scale) for scale in scales], mechanism)
    assert (histogram.low[1:] == histogram.high[:-1]).all()
    assert (histogram.low[0], histogram.high[-1]) == (grid.edges[0], grid.edges[-1])
    assert np.isfinite(histogram.counts).all()
    assert (histogram.counts >= 0).all()
    bins = replace(attribute, automatic=False)
    if attribute.automatic:
        plan = Plan(Domain((attribute,)), ((0,),), (scales[0],), mechanism, False, None, {}, fine=(FineColumn(0, scales, mechanism),))
        exact = data.draw(st.booleans())
        (edges,) = refined.cut_edges(plan, [counts], data.draw(st.floats(0.1, 1e6)), exact=exact)
        assert empty_bin(sqltypes.parse(attribute.sql_type), edges) is None
        assert len(edges) - 1 <= attribute.values
        assert len(edges) - 1 == attribute.values or not exact
        refined.refinement_of(plan, {"counts": [counts.tolist()], "edges": [list(edges)]})
        bins = replace(bins, edges=edges)
    masses = np.asarray(data.draw(st.lists(st.just(0.0) | st.floats(1e-6, 1e9), min_size=bins.values, max_size=bins.values)))
    inside = fine.inside(histogram, edge_numbers(bins), masses)
    assert np.isfinite(inside.counts).all()
    assert (inside.counts >= 0).all()
    ends = edge_numbers(bins)
    owner = np.clip(np.searchsorted(ends, inside.low, side="right") - 1, 0, bins.values - 1)
    held = np.bincount(owner, inside.counts, bins.values)
    assert held == pytest.approx(masses, rel=1e-6, abs=1e-6)
    rng = np.random.default_rng(1)
    codes = rng.integers(0, bins.values, 300)
    decoder = Decoder(replace(bins, nullable=False), "v", inside)
    if decoder.within is None or decoder._table is not None:
        return
    values = decoder.arrays(codes, rng)["v"]
    bounds = sqltypes.grid(decoder.parsed, bins.edges)
    starts = np.asarray(bins.edges[:-1], np.float64) if bounds is None else np.asarray(bounds[:-1])
    assert (np.searchsorted(starts, values.astype(np.float64) if bounds is None else values, side="right") - 1 == codes).all()
    assert values.max() <= (float(bins.edges[-1]) if bounds is None else bounds[-1] - 1)


@given(rows=st.lists(st.floats(0, 1e5), max_size=60), times=st.integers(50, 500))
@settings(max_examples=cases(10))
def test_with_next_to_no_noise_the_estimate_holds_every_row(rows, times):
    """A value that occurs fifty times stands out of noise of a fifth of a row: all its rows are in cells around it."""
    attribute = bounded("DOUBLE", 0, 100_000)
    grid = grid_of(attribute)
    exact = np.bincount(grid.place(np.asarray(rows, np.float64)), minlength=grid.edges.size - 1).astype(np.int64) * times if rows else np.zeros(grid.edges.size - 1, np.int64)
    scales = (Fraction(1, 5),) * len(grid.levels)
    found = fine.levels(grid, scales, "gaussian", lambda _, cells: fine.counted(cells, exact))
    histogram = fine.estimate(grid, found, [0.2] * len(scales), "gaussian")
    assert histogram.counts.sum() == pytest.approx(exact.sum(), rel=1e-9, abs=1e-6)
    sums = np.concatenate([[0], np.cumsum(exact)])
    first, last = np.searchsorted(grid.edges, histogram.low), np.searchsorted(grid.edges, histogram.high)
    assert np.abs(histogram.counts - (sums[last] - sums[first])).max() <= max(1.0, 1e-6 * exact.sum())


@given(counts=st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=40), deviation=st.floats(0.1, 1e5), size=st.floats(1e-300, 1e300))
def test_what_is_left_of_tails_never_depends_on_the_unit_of_the_column(counts, deviation, size):
    edges = np.arange(len(counts) + 1.0) ** 3
    plain = tails.noise_cells(edges[:-1], edges[1:], np.asarray(counts, float), deviation)
    power = 2.0 ** math.floor(math.log2(size))  # an exact factor
    scaled = edges * power
    assert tails.noise_cells(scaled[:-1], scaled[1:], np.asarray(counts, float), deviation).tolist() == plain.tolist()
