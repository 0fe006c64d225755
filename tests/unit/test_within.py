"""Values inside bins follow a fine histogram, and have the code of their bin when they are encoded again."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from bounded_attributes import TINY, bounded, named, some
from sqlglot import exp

from dpsql.domains import sqltypes
from dpsql.domains.attributes import Domain
from dpsql.domains.codes import code_expression
from dpsql.domains.decoder import Decoder
from dpsql.domains.grid import Histogram, edge_numbers, grid_of
from dpsql.domains.within import Within
from dpsql.noise import discrete
from dpsql.release import refined
from dpsql.release.plan import FineColumn, Plan
from dpsql.tables import fine


def estimated(attribute, exact, scale=Fraction(5), levels=3):
    grid = grid_of(attribute, levels)
    scales = (scale,) * len(grid.levels)
    found = fine.levels(grid, scales, "gaussian", lambda level, cells: discrete.add_noise(fine.counted(cells, exact), "gaussian", scale))
    counts = np.concatenate([part for _, part in found])
    return fine.estimate(grid, found, [float(scale)] * len(scales), "gaussian"), counts, FineColumn(0, scales, "gaussian")


def of_values(attribute, values):
    grid = grid_of(attribute)
    return np.bincount(grid.place(np.asarray(values, float)), minlength=grid.edges.size - 1)


def drawn(attribute, histogram, rows=4000, code=None, seed=0):
    codes = np.full(rows, code) if code is not None else np.random.default_rng(seed).integers(0, attribute.values, rows)
    return codes, Within(attribute, histogram).draw(codes, np.random.default_rng(seed))


@pytest.mark.parametrize("case", some(0), ids=named)
def test_values_have_the_code_of_their_bin_when_encoded(plain, case):
    """Through the decoder's SQL and the encoder's, on bins that were cut and on declared ones."""
    attribute = bounded(*case)
    size = grid_of(attribute, 3).edges.size - 1
    rng = np.random.default_rng(1)
    exact = np.bincount(rng.integers(size, size=2000), minlength=size)
    exact[rng.integers(size, size=3)] += 900
    histogram, counts, column = estimated(attribute, exact)
    domains = [replace(attribute, automatic=False)]
    if attribute.automatic:
        plan = Plan(Domain((attribute,)), ((0,),), (Fraction(5),), "gaussian", False, None, {}, fine=(column,))
        (edges,) = refined.cut_edges(plan, [counts], 5.0, exact=False)
        domains.append(replace(attribute, edges=edges, automatic=False))
    plain.execute("SET TimeZone = 'Asia/Kolkata'")
    for bins in domains:
        inside = fine.inside(histogram, edge_numbers(bins), rng.integers(0, 500, bins.values).astype(float))
        for found in (histogram, inside):
            codes = rng.integers(0, bins.size, 1000)
            decoder = Decoder(bins, "v", found)
            frame = pd.DataFrame({**decoder.arrays(codes, rng), "wanted": codes})
            value = decoder.expression().sql(dialect="duckdb")
            code = code_expression(replace(bins, outside="other"), exp.column("x")).sql(dialect="duckdb")
            plain.register("frame", frame)
            # 'other' instead of 'clamp', whose code is the one where NULL was: so nothing is pulled back inside the bounds.
            query = f"SELECT ({code})::INTEGER, x, wanted FROM (SELECT CAST({value} AS {bins.sql_type}) AS x, wanted FROM frame)"
            wrong = plain.execute(f"SELECT * FROM ({query}) AS _(code, x, wanted) WHERE code <> wanted + (wanted = {bins.values})::INTEGER").fetchall()
            plain.unregister("frame")
            assert wrong == []


@pytest.mark.any_duckdb
@pytest.mark.parametrize("case", [case for case in some(1) if Within.fits(bounded(*case))], ids=named)
def test_whole_numbers_are_whole_and_within_bounds(case):
    attribute = bounded(*case)
    histogram, *_ = estimated(attribute, np.zeros(grid_of(attribute, 3).edges.size - 1, np.int64))
    _, found = drawn(attribute, histogram)
    bounds = sqltypes.grid(sqltypes.parse(attribute.sql_type), attribute.edges)
    assert (found.dtype == np.int64) == (bounds is not None)
    assert np.isfinite(found).all()
    if bounds is not None and bounds[-1] < 2**53 and bounds[0] > -(2**53):
        assert bounds[0] <= found.min()
        assert found.max() < bounds[-1]


@pytest.mark.any_duckdb
def test_columns_beyond_64_bits_stay_uniform():
    assert not Within.fits(bounded("HUGEINT", -(2**100), 2**100))
    assert not Within.fits(bounded("DECIMAL(38,37)", 0, 9))
    assert Within.fits(bounded("HUGEINT", 0, 1000))
    wide = bounded("HUGEINT", -(2**100), 2**100)
    histogram, *_ = estimated(wide, np.zeros(grid_of(wide, 3).edges.size - 1, np.int64))
    assert Decoder(wide, "v", histogram).within is None


COST = bounded("DOUBLE", 0, 100_000, bins=4)


@pytest.mark.any_duckdb
def test_zeros_are_zeros():
    rng = np.random.default_rng(3)
    values = np.concatenate([np.zeros(3000), rng.uniform(0, 20_000, 1000)])
    histogram, *_ = estimated(COST, of_values(COST, values), levels=4)
    _, found = drawn(COST, histogram, code=0)
    assert (found == 0.0).mean() == pytest.approx(0.75, abs=0.03)
    assert found[found > 0].min() > 1e-9
    inside = fine.inside(histogram, edge_numbers(COST), np.asarray([4000.0, 0, 0, 0]))
    _, found = drawn(COST, inside, code=0)
    assert (found == 0.0).mean() == pytest.approx(0.75, abs=0.03)


@pytest.mark.any_duckdb
@pytest.mark.parametrize(
    ("attribute", "value", "shown"),
    [
        (COST, 4_999.5, 4_999.5),  # cells of ten: the roundest value of [4995, 5000) or so is what is shown
        (bounded("INTEGER", 0, 1_000_000, bins=4), 250_000, 250_000),
        (bounded("DECIMAL(10,2)", 0, 10_000, bins=4), 2500.0, 250_000),
        (bounded("TIMESTAMP", "2000-01-01", "2030-01-01", bins=3), "2010-05-05 00:00:00", None),
    ],
)
def test_a_spike_is_one_round_value(attribute, value, shown):
    parsed = sqltypes.parse(attribute.sql_type)
    number = sqltypes.steps_of(parsed, value) if attribute.kind == "temporal" else value
    low, high = edge_numbers(attribute)[[0, -1]]
    rng = np.random.default_rng(3)
    values = np.concatenate([np.full(4000, float(number)), low + (high - low) * rng.random(1000)])
    histogram, *_ = estimated(attribute, of_values(attribute, values), levels=4)
    _, found = drawn(attribute, histogram, rows=8000)
    shows, times = np.unique(found, return_counts=True)
    largest = shows[np.argmax(times)]
    assert times.max() > 600  # it is one value
    scale = 10**parsed.scale if attribute.kind != "temporal" else 1
    assert abs(largest / scale - number) <= max(abs(number) * 0.003, 1)
    if shown is not None and shown != 4_999.5:
        assert largest == shown


@pytest.mark.any_duckdb
def test_gaps_stay_empty_and_shares_are_kept():
    attribute = bounded("INTEGER", 0, 99, bins=1)
    edges = np.arange(101.0)
    counts = np.zeros(100)
    counts[10:20], counts[80] = 30.0, 700.0
    histogram = Histogram(edges[:-1], edges[1:], counts, counts, np.zeros(100, bool), 1.0, 1.0)
    _, found = drawn(attribute, histogram, rows=10_000)
    times = np.bincount(found, minlength=100)
    assert set(np.flatnonzero(times).tolist()) == {*range(10, 20), 80}
    # Systematic sampling: shares are exact up to a row.
    assert times[80] == pytest.approx(7000, abs=2)
    assert times[10:20] == pytest.approx(np.full(10, 300), abs=2)


@pytest.mark.any_duckdb
def test_a_bin_of_which_nothing_is_known_is_uniform():
    edges = np.arange(101.0)
    histogram = Histogram(edges[:-1], edges[1:], np.zeros(100), np.zeros(100), np.zeros(100, bool), 1.0, 1.0)
    attribute = bounded("INTEGER", 0, 99, bins=2)
    codes, found = drawn(attribute, histogram, rows=10_000)
    assert np.bincount(found, minlength=100) == pytest.approx(np.full(100, 100), abs=8)
    assert (found // 50 == codes).all()


@pytest.mark.any_duckdb
def test_values_of_a_bin_come_in_random_order():
    """Systematic in what is drawn, not in where: a column must not be sorted within its bins."""
    attribute = bounded("INTEGER", 0, 999, bins=1)
    edges = np.arange(1001.0)
    histogram = Histogram(edges[:-1], edges[1:], np.ones(1000), np.ones(1000), np.zeros(1000, bool), 1.0, 1.0)
    _, found = drawn(attribute, histogram, rows=4000)
    assert abs(np.corrcoef(np.arange(4000), found)[0, 1]) < 0.08  # five standard deviations


@pytest.mark.any_duckdb
def test_the_same_generator_gives_the_same_values():
    histogram, *_ = estimated(COST, of_values(COST, np.linspace(0, 1e5, 500)), levels=4)
    assert drawn(COST, histogram, seed=7)[1].tolist() == drawn(COST, histogram, seed=7)[1].tolist()
    assert drawn(COST, histogram, rows=0)[1].size == 0


@pytest.mark.any_duckdb
@pytest.mark.parametrize("bounds", [(0, TINY), (-TINY, TINY), (1e-320, 1e-318), (0, 1.7e308), (-8e307, 8e307)])
def test_the_ends_of_double_precision(bounds):
    attribute = bounded("DOUBLE", *bounds)
    size = grid_of(attribute, 3).edges.size - 1
    histogram, *_ = estimated(attribute, np.full(size, 200, np.int64))  # forty standard deviations: no draw empties a cell
    codes, found = drawn(attribute, histogram)
    placed = Decoder(attribute, "v", histogram).arrays(codes, np.random.default_rng(0))["v"]
    assert placed.min() >= bounds[0]
    assert placed.max() <= bounds[1]
    assert np.unique(found).size > 1
