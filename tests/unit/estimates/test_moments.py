"""Estimates of moments: without noise DuckDB's own, with noise of the deviation that is stated, and always possible."""

import math

import duckdb
import numpy as np
import pytest
from estimate_counters import counters

from dpsql.errors import ArgumentError
from dpsql.estimates import moments as est
from dpsql.estimates.measures import Measure, Variable

Y, X = Variable(0, -50.0, 200.0), Variable(1, 0.0, 10.0)
ALIKE = 4e-5  # of rounding to the grid of 2^-20, relative to the bounds


def _rows(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 10, n)
    y = np.clip(12 * x - 20 + rng.normal(0, 15, n), -50, 200)
    rows = np.stack([y, x], axis=1)
    rows[rng.uniform(size=n) < 0.1, 0] = np.nan
    return rows


def _duckdb(expressions: list[str], rows: np.ndarray) -> list[float]:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t(y DOUBLE, x DOUBLE)")
    for y, x in rows.tolist():
        connection.execute("INSERT INTO t VALUES (?, ?)", [None if math.isnan(y) else y, None if math.isnan(x) else x])
    found = connection.execute(f"SELECT {', '.join(expressions)} FROM t").fetchone()
    connection.close()
    assert found is not None
    return [math.nan if value is None else value for value in found]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 400])
def test_without_noise_one_variable_is_duckdb(n: int) -> None:
    rows = _rows(n, 3)
    measure = Measure("moments", (Y,), degree=2, nulls=True)
    found = est.moments(measure, counters(measure, rows[:, :1])[None], 0.0)
    names = [*est.SINGLE]
    wanted = _duckdb([f"{name}(y)" for name in names], rows)
    for name, value in zip(names, wanted, strict=True):
        scale = 250.0**2 if "var" in name else 250.0 * max(n, 1)
        slack = 2.0 if name.startswith("stddev") else ALIKE * scale  # the root of a variance of 0.1 ** 2 of the range
        assert est.estimate(name, found)[0] == pytest.approx(value, abs=slack, nan_ok=True), name
    assert found.nulls is not None and found.nulls[0] == np.isnan(rows[:, 0]).sum()


@pytest.mark.parametrize("n", [0, 1, 3, 400])
def test_without_noise_two_variables_are_duckdb(n: int) -> None:
    rows = _rows(n, 5)
    measure = Measure("moments", (Y, X), degree=2, grid=2**28)
    found = est.moments(measure, counters(measure, rows)[None], 0.0)
    wanted = dict(zip(est.PAIRED, _duckdb([f"{name}(y, x)" for name in est.PAIRED], rows), strict=True))
    for name, value in wanted.items():
        if n != 1 or name in ("covar_samp", "covar_pop", "regr_count", "regr_avgx", "regr_avgy"):  # one row: its variance is rounding
            assert est.estimate(name, found)[0] == pytest.approx(value, rel=1e-4, abs=1e-4, nan_ok=True), name
    flat = Measure("moments", (Y, X), degree=1, grid=2**28)
    means = est.moments(flat, counters(flat, rows)[None], 0.0)
    for name in ("covar_pop", "covar_samp", "regr_sxy", "regr_avgx", "regr_avgy", "regr_count"):
        assert est.estimate(name, means)[0] == pytest.approx(wanted[name], rel=1e-4, abs=1e-4, nan_ok=True), name
    with pytest.raises(ArgumentError, match="degree 2"):
        est.estimate("corr", means)


def test_a_constant_has_no_variance_and_no_correlation() -> None:
    measure = Measure("moments", (Variable(0, 0, 1), Variable(1, 0, 1)), degree=2)
    rows = np.tile([[0.0, 1.0]], (50, 1))
    found = est.moments(measure, counters(measure, rows)[None], 0.0)
    assert est.estimate("var_pop", found)[0] == 0 == est.estimate("covar_pop", found)[0]
    assert all(np.isnan(est.estimate(name, found)[0]) for name in ("corr", "regr_slope", "regr_intercept", "regr_r2"))


def test_the_deviation_of_a_mean_is_the_formula() -> None:
    """Two-sided test of 20,000 draws, false alarm below 1e-6; half the noise, and separate sum and count, are told apart."""
    draws, n, sigma, limit = 20_000, 2000, 6.0, 4.9 * math.sqrt(2 / 20_000)
    variable = Variable(0, 0.0, 100.0)
    measure = Measure("moments", (variable,))
    rng = np.random.default_rng(11)
    for mean in (0.5, 0.1):
        exact = np.array([n * (1 - mean), n * mean]) * measure.grid
        noisy = exact + rng.normal(0, sigma * measure.grid, (draws, 2))
        found = est.estimate("avg", est.moments(measure, noisy, sigma * measure.grid))
        stated = variable.span * sigma * math.hypot(1 - mean, mean) / n
        ratio = float(np.mean((found - 100 * mean) ** 2)) / stated**2
        assert abs(ratio - 1) < limit + 2e-3  # second order: (sigma / n)^2 is 1e-5
        assert abs(ratio / 4 - 1) > limit and stated < 100 * sigma * math.hypot(1, mean) / n


def test_estimates_lie_in_what_is_possible_whatever_the_noise() -> None:
    rng = np.random.default_rng(5)
    measure = Measure("moments", (Y, X), degree=2, grid=64)
    noisy = rng.normal(0, 300, (7, 200, 9))
    found = est.moments(measure, noisy, 300.0)
    count = est.estimate("count", found)
    assert count.shape == (7, 200) and (count >= 0).all() and (count == np.rint(count)).all() and (found.count < 0).any()
    for name in (*est.SINGLE[2:], *est.PAIRED):
        value = est.estimate(name, found)
        assert (np.isnan(value) | np.isfinite(value)).all()
        surely_none = found.count + 1.96 * 300 / 64 * 3 < 1
        assert surely_none.any() and not surely_none.all()
        assert np.isnan(value[surely_none]).all() or name == "regr_count"
        assert not np.isnan(est.estimate("avg" if name in est.SINGLE else "regr_avgy", found)[~surely_none]).any()
    avg, var, corr = (est.estimate(name, found) for name in ("avg", "var_pop", "corr"))
    known = count > 0
    assert ((avg >= -50) & (avg <= 200))[known].all() and ((var >= 0) & (var <= 250**2 / 4))[known].all()
    assert (np.abs(corr[~np.isnan(corr)]) <= 1).all() and not np.isnan(est.estimate("sum", found)).any()
    positive = est.moments(Measure("moments", (X,), degree=2, grid=64), noisy[..., :3], 300.0)
    summed = est.estimate("sum", positive)
    assert np.array_equal(summed, positive.sums[..., 0]) and (summed < 0).any(), "sums are unbiased, so that they add up"
    assert (est.possible_sum(summed, X) >= 0).all()


def test_small_groups_lean_on_all_groups_and_large_ones_do_not() -> None:
    """RMSE of the mean where a group has as many rows as noise; the share it falls to is in the docstring of the module."""
    rng = np.random.default_rng(9)
    groups, sigma = 20_000, 4.0
    measure = Measure("moments", (Variable(0, 0, 1),), grid=1024)
    for n, low, high in ((sigma, 0.5, 0.68), (10 * sigma, 0.98, 1.01)):
        mean = rng.beta(4, 4, groups)
        noisy = np.stack([n * (1 - mean), n * mean], axis=1) + rng.normal(0, sigma, (groups, 2))
        found = est.moments(measure, noisy * 1024, sigma * 1024)
        known = found.count >= 0.5
        plain = np.clip(noisy[:, 1] / noisy.sum(axis=1), 0, 1)
        better = np.sqrt(np.mean((est.estimate("avg", found) - mean)[known] ** 2) / np.mean((plain - mean)[known] ** 2))
        assert low < better < high


def test_scaled_sums() -> None:
    measure = Measure("scaled", (Variable(0, -5.0, 20.0),), grid=1000)
    assert est.scaled_sum(measure, np.array([[1500], [-250]])).tolist() == [30.0, -5.0]
    assert est.scaled_sum(Measure("scaled", (Variable(0, 0.0, 20.0),), grid=1000), np.array([[-250]])).tolist() == [-5.0], "unbiased"


def test_wrong_arguments_are_named() -> None:
    measure = Measure("moments", (Y,))
    with pytest.raises(ArgumentError, match="counters"):
        est.moments(measure, np.zeros((3, 5)), 1.0)
    with pytest.raises(ArgumentError, match="measure"):
        est.moments(Measure("count"), np.zeros((3, 1)), 1.0)
    found = est.moments(measure, np.zeros((3, 2)), 1.0)
    for name in ("median", "corr"):
        with pytest.raises(ArgumentError, match="name"):
            est.estimate(name, found)
