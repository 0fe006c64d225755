"""dp_evaluate(..., report := 'values'): its distances against scipy.stats, its figures against numpy, its areas against ranks."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest
from scipy import stats

from dpsql.custodian.evaluate_values import evaluate_values
from dpsql.custodian.value_table import COLUMNS
from dpsql.domains.attributes import Attribute, Domain
from dpsql.numerics.empirical import area_under_curve, distances
from dpsql.numerics.logistic import fit

NAMES = list(COLUMNS)


@pytest.fixture
def connection():
    con = duckdb.connect()
    yield con
    con.close()


def counted(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    values = np.unique(np.concatenate([first, second]))
    return values, *(np.array([(sample == v).sum() for v in values], np.int64) for sample in (first, second))


@pytest.mark.parametrize("seed", range(20))
def test_distances_are_those_of_scipy(seed):
    rng = np.random.default_rng(seed)
    first, second = (np.round(rng.normal(shift, scale, n), digits) for shift, scale, n, digits in ((0, 1, 200, 1), (0.3 * (seed % 3), 2, 37, 1 + seed % 4)))
    ks, wasserstein = distances(*counted(first, second))
    assert ks == pytest.approx(stats.ks_2samp(first, second).statistic, abs=1e-12)
    assert wasserstein == pytest.approx(stats.wasserstein_distance(first, second), rel=1e-10)


def test_distances_of_the_same_of_nothing_and_of_the_largest_numbers():
    values, counts, nobody = np.array([1.0, 2.0]), np.array([3, 4]), np.zeros(2, np.int64)
    assert distances(values, counts, 2 * counts) == (0.0, 0.0)
    assert all(np.isnan(found) for found in (*distances(values, counts, nobody), *distances(values, nobody, nobody), *distances(values[:0], nobody[:0], nobody[:0])))
    ks, moved = distances(np.array([-1.5e308, 0.0, 1.5e308]), np.array([1, 0, 1]), np.array([0, 2, 0]))
    assert (ks, moved) == (0.5, 1.5e308)


@pytest.mark.parametrize("ties", [1, 5, 1000])
def test_areas_are_shares_of_pairs_in_the_right_order(ties):
    rng = np.random.default_rng(ties)
    scores, positive = rng.integers(0, ties, 90).astype(float), rng.random(90) < 0.3
    pairs = [(a > b) + (a == b) / 2 for a in scores[positive] for b in scores[~positive]]
    assert area_under_curve(scores, positive) == pytest.approx(np.mean(pairs), abs=1e-12)
    assert np.isnan(area_under_curve(scores, np.zeros(90, bool)))


@pytest.mark.parametrize("dense", [True, False])
def test_a_fit_is_the_one_of_newtons_method(dense):
    from scipy import sparse

    rng = np.random.default_rng(1)
    features = rng.normal(size=(400, 3))
    classes = (rng.random(400) < 1 / (1 + np.exp(-features @ [1, -2, 0.5] - 0.3))).astype(np.int64)
    wide, weights = np.c_[features, np.ones(400)], np.zeros(4)
    for _ in range(50):
        chance, ridge = 1 / (1 + np.exp(-wide @ weights)), np.diag([1, 1, 1, 0.0])
        weights -= np.linalg.solve((wide.T * (chance * (1 - chance))) @ wide + ridge, wide.T @ (chance - classes) + ridge @ weights)
    found = fit(features if dense else sparse.csr_matrix(features), classes, 2)
    assert np.append(found.weights, found.offsets) == pytest.approx(weights, abs=1e-3)


def test_a_fit_of_three_classes_finds_the_chances_they_were_drawn_with():
    """Fixed seed: no false alarm; 20,000 rows give chances within .01 on average."""
    rng = np.random.default_rng(2)
    features = rng.normal(size=(20_000, 2))
    powers = np.exp(features @ np.array([[1.0, -1.0, 0.0], [0.0, 2.0, -1.0]]) + [0.5, 0.0, -0.5])
    chances = powers / powers.sum(axis=1, keepdims=True)
    classes = (rng.random((20_000, 1)) > chances.cumsum(axis=1)).sum(axis=1)
    found = fit(features, classes, 3).probabilities(features)
    assert found.sum(axis=1) == pytest.approx(np.ones(20_000))
    assert np.abs(found - chances).mean() < 0.01


DOMAIN = Domain(
    (
        Attribute("x", "DOUBLE", "numeric", edges=(0.0, 10.0, 20.0), nullable=True),
        Attribute("g", "VARCHAR", "categorical", ("a", "b", "c"), nullable=True),
        Attribute("day", "DATE", "temporal", edges=("2020-01-01", "2021-01-01"), nullable=False),
        Attribute("flag", "BOOLEAN", "categorical", ("false", "true"), nullable=False),
    )
)


def make(connection, table: str, n: int, seed: int) -> dict[str, list]:
    rng = np.random.default_rng(seed)
    x = [None if u < 0.1 else float("nan") if u < 0.12 else round(float(v), 2) for u, v in zip(rng.random(n), rng.normal(10, 4 + seed, n), strict=True)]
    g = rng.choice(np.array(["a", "b", "c", None, "elsewhere"], object), n, p=[0.5, 0.3, 0.1, 0.05, 0.05]).tolist()
    day = [int(v) for v in rng.integers(18262, 18262 + 300 + 10 * seed, n)]
    flag = [bool(v is not None and v == v and v > 10) if rng.random() < 0.9 else bool(rng.random() < 0.5) for v in x]
    connection.execute(f"CREATE TABLE {table} (x DOUBLE, g VARCHAR, day DATE, flag BOOLEAN)")
    rows = list(zip(x, g, day, flag, strict=True))
    connection.executemany(f"INSERT INTO {table} VALUES (?, ?, DATE '1970-01-01' + ?::INTEGER, ?)", rows)
    return {"x": x, "g": g, "day": day, "flag": flag}


def figures(connection, **given) -> list[dict]:
    return [dict(zip(NAMES, row, strict=True)) for row in evaluate_values(connection, "SELECT * FROM r", "SELECT * FROM s", DOMAIN, **given)]


def numbers(columns: dict[str, list], name: str, group: tuple[str, object] | None = None) -> np.ndarray:
    kept = [v for i, v in enumerate(columns[name]) if v is not None and v == v and (group is None or columns[group[0]][i] == group[1])]
    return np.asarray(kept, float)


def test_every_figure_of_columns_and_groups(connection):
    raw, synthetic = make(connection, "r", 700, 1), make(connection, "s", 500, 2)
    found = figures(connection)
    seen = {(f["measure"], f["column_name"], f["group_column"], f["group_value"]): f for f in found}
    assert len(seen) == len(found) and not any(f["private"] for f in found)
    for name in ("x", "day"):
        a, b = numbers(raw, name), numbers(synthetic, name)
        spread = float(np.subtract(*np.quantile(a, [0.75, 0.25])))
        assert seen["ks", name, None, None]["error"] == pytest.approx(stats.ks_2samp(a, b).statistic, abs=1e-12)
        moved = seen["wasserstein", name, None, None]
        assert moved["error"] == pytest.approx(stats.wasserstein_distance(a, b), rel=1e-9)
        assert moved["relative"] == pytest.approx(moved["error"] / spread)
        assert (moved["rows"], moved["synthetic_rows"]) == (len(a), len(b))
        groups = [(None, None), *(("g", v) for v in ("a", "b", "c", None)), *(("flag", v) for v in ("false", "true"))]
        for column, value in groups:
            asked = None if column is None else (column, {"false": False, "true": True}.get(value, value))
            a, b = (numbers(columns, name, asked) for columns in (raw, synthetic))
            wanted = {"mean": (a.mean(), b.mean()), **{m: (np.quantile(a, q), np.quantile(b, q)) for m, q in (("quartile_25", 0.25), ("median", 0.5), ("quartile_75", 0.75))}}
            for measure, (first, second) in wanted.items():
                row = seen.pop((measure, name, column, value))
                assert (row["raw"], row["synthetic"]) == pytest.approx((first, second), rel=1e-12)
                assert row["error"] == pytest.approx(abs(first - second), rel=1e-9, abs=1e-9)
                unit = abs(first) if measure == "mean" and name == "x" else spread
                assert row["relative"] == pytest.approx(row["error"] / unit)
                assert (row["rows"], row["synthetic_rows"]) == (len(a), len(b))
                share = None if column is None else sum(v == asked[1] for v in raw[column]) / 700
                assert row["share"] == (None if share is None else pytest.approx(share))
    for name in ("x", "g", "day", "flag"):
        row = seen["null_share", name, None, None]
        gone = [sum(v is None or v != v for v in columns[name]) / len(columns[name]) for columns in (raw, synthetic)]
        assert (row["raw"], row["synthetic"]) == pytest.approx(tuple(gone))
    assert ("mean", "x", "g", "(other)") in seen  # 'elsewhere' is not declared


def test_areas_compare_the_two_trainings(connection):
    raw = make(connection, "r", 3000, 1)
    make(connection, "other", 3000, 1)
    connection.execute("CREATE TABLE s AS SELECT x, g, day, flag FROM other")
    same = {f["column_name"]: f for f in figures(connection) if f["measure"] == "auc"}
    assert set(same) == {"g", "flag"}
    assert same["flag"]["raw"] > 0.9 and same["flag"]["synthetic"] > 0.9 and same["flag"]["error"] < 0.02
    assert 0.4 < same["g"]["raw"] < 0.6  # g is independent of all
    assert (same["flag"]["rows"], same["flag"]["synthetic_rows"]) == (1500, 1500)
    connection.execute("UPDATE s SET flag = NOT flag")
    turned = {f["column_name"]: f for f in figures(connection) if f["measure"] == "auc"}
    assert turned["flag"]["synthetic"] < 0.1
    assert turned["flag"]["raw"] == same["flag"]["raw"]  # the same rows by the same seed
    assert len(raw["x"]) == 3000


def test_equal_rows(connection):
    connection.execute("CREATE TABLE r AS SELECT * FROM (VALUES (1.0::DOUBLE, 'a', DATE '2020-02-01', true), (1.0, 'a', '2020-02-01', true), (NULL, NULL, '2020-02-01', false), (5.0, 'b', '2020-03-01', false)) t(x, g, day, flag)")
    connection.execute("CREATE TABLE s AS FROM r UNION ALL FROM r UNION ALL SELECT 6.0, 'b', DATE '2020-03-01', false")
    found = {f["measure"]: f for f in figures(connection, max_k=1) if f["column_name"] is None}
    assert [found["duplicates"][key] for key in ("raw", "synthetic", "error", "rows", "synthetic_rows")] == [2, 8, None, 4, 9]
    assert (found["duplicate_share"]["raw"], found["duplicate_share"]["synthetic"]) == (0.5, 8 / 9)


def test_pairs_are_a_sample_that_says_so(connection):
    make(connection, "r", 50, 1)
    make(connection, "s", 50, 2)
    found = figures(connection, pairs=2, seed=3)
    assert len({(f["column_name"], f["group_column"]) for f in found if f["group_column"]}) == 2
    assert all("groups of 2 of 4 pairs of columns, a sample" in f["note"] for f in found)
    assert figures(connection, pairs=2, seed=3) == found
    assert "sample" not in figures(connection, pairs=4)[0]["note"]
