"""modips: kinds, prices, thresholding, posteriors, fine bins, and every refusal."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpsql.accounting.events import LaplaceEvent
from dpsql.domains.attributes import FINE, Attribute, Domain
from dpsql.errors import ArgumentError
from dpsql.mechanisms import moments
from dpsql.mechanisms.moments import TOP
from dpsql.methods.base import Contract, Counted
from dpsql.methods.modips.cells import fit_cells
from dpsql.methods.modips.fine_values import fine_attribute, fine_values
from dpsql.methods.modips.method import Modips
from dpsql.methods.modips.posterior import (
    bounded_mean,
    inverse_wishart_factor,
    normal_parameters,
    redrawn,
    truncated_normal,
    truncated_rows,
)
from dpsql.methods.modips.statistics import kind_of
from dpsql.rows.decoding import Decoder
from dpsql.tables.statistics import Statistics

PUBLIC = Contract("replace_one", 1, True)
FLAG = Attribute("flag", "BOOLEAN", "categorical", ("false", "true"), nullable=False)
TRIPLE = Attribute("triple", "VARCHAR", "categorical", ("a", "b", "c"), nullable=False)
SIZE = Attribute("size", "DOUBLE", "numeric", edges=(-1.0, 0.0, 3.0), nullable=False)
AGE = Attribute("age", "INTEGER", "numeric", edges=(0.0, 60.0, 120.0), nullable=False)
DAY = Attribute("day", "DATE", "temporal", edges=("2020-01-01", "2020-06-01", "2021-01-01"), nullable=False)
METHOD = Modips()


def domain(*attributes: Attribute) -> Domain:
    return Domain(attributes)


def statistics(d: Domain, blocks: list[list[int]], scales: list[Any], rows: int, sets: int = 1) -> Statistics:
    parameters = {"kind": kind_of(d), "sets": sets, "scales": [str(s) for s in scales]}
    arrays = tuple(np.array(block, dtype=np.int64) for block in blocks)
    return Statistics(d.sizes, {}, {}, "laplace", rows, arrays, d, parameters)


def count(d: Domain, codes: np.ndarray, z: np.ndarray) -> Counted:
    """What SQL counts, for codes of the categorical columns and values of the numeric ones."""
    clique = METHOD.plan(d, {}).cliques[0]
    shape = tuple(d.sizes[i] for i in clique)
    cell = np.ravel_multi_index(tuple(codes.T), shape) if clique else np.zeros(len(z), dtype=np.int64)
    table = np.bincount(cell, minlength=math.prod(shape)).astype(np.int64).reshape(shape)
    if not z.shape[1]:
        return Counted({clique: table}, len(z))
    sums = np.stack([np.bincount(cell, column, table.size) for column in z.T], axis=1).astype(np.int64)
    products = [int((z[:, i] * z[:, j]).sum()) for i in range(z.shape[1]) for j in range(i, z.shape[1])]
    return Counted({clique: table}, len(z), sums, products)


def synthesize(d: Domain, counted: Counted, epsilon: Any, options: dict[str, Any], rows: int | None = None, seed: int = 1) -> np.ndarray:
    price = METHOD.price(d, PUBLIC, Fraction(epsilon), options)
    blocks = METHOD.draw(counted, d, price.parameters, options)
    assert tuple(map(len, blocks)) == METHOD.lengths(d, options)
    released = Statistics(d.sizes, {}, {}, "laplace", counted.total, tuple(blocks), d, price.parameters)
    model = METHOD.fit(released, options)
    wanted = METHOD.total(model) if rows is None else rows
    found = [*METHOD.sample(model, wanted, np.random.default_rng(seed))]
    columns = len(METHOD.output_domain(d, options).attributes)
    codes = np.concatenate([np.empty((0, columns), np.int32), *found])
    assert codes.shape == (wanted, columns)
    assert codes.dtype == np.int32
    assert (codes >= 0).all()
    assert (codes < METHOD.output_domain(d, options).sizes).all()
    return codes


class TestPlan:
    @pytest.mark.parametrize(
        ("attributes", "kind", "clique", "values"),
        [
            ((FLAG,), "binary", (0,), ()),
            ((SIZE,), "normal", (), (0,)),
            ((TRIPLE,), "mixed", (0,), ()),
            ((DAY,), "binary", (0,), ()),
            ((SIZE, FLAG), "mixed", (1,), (0,)),
            ((SIZE, AGE), "mixed", (), (0, 1)),
            ((AGE, DAY, SIZE, TRIPLE), "mixed", (1, 3), (0, 2)),
        ],
    )
    def test_kinds(self, attributes: tuple[Attribute, ...], kind: str, clique: tuple[int, ...], values: tuple[int, ...]) -> None:
        d = domain(*attributes)
        assert kind_of(d) == kind
        assert METHOD.plan(d, {}).cliques == (clique,)
        assert METHOD.values(d, {}) == values

    def test_nullable_flag_has_three_codes(self) -> None:
        assert kind_of(domain(Attribute("f", "BOOLEAN", "categorical", ("false", "true"), nullable=True))) == "mixed"

    def test_output_domain(self) -> None:
        found = METHOD.output_domain(domain(SIZE, TRIPLE, AGE), {"sets": 3})
        assert found.names == ("size", "triple", "age", "set")
        assert found.sizes == (FINE, 3, 121, 3)

    def test_forecast_is_finite(self) -> None:
        seconds, megabytes = METHOD.forecast((2, 3), 5_000_000, {})
        assert 0 < seconds < 60
        assert 0 < megabytes < 10_000


class TestPrice:
    def test_binary(self) -> None:
        found = METHOD.price(domain(FLAG), PUBLIC, Fraction(1, 2), {"sets": 5})
        assert found.events == (LaplaceEvent(Fraction(10), 1.0, 5),)
        assert found.scale == 10
        assert found.mechanism == "laplace"
        assert found.notes == ("epsilon of each of 5 sets: 0.1 (count 0.1)",)

    def test_normal(self) -> None:
        found = METHOD.price(domain(SIZE), PUBLIC, Fraction(1), {})
        assert [float(e.epsilon * e.count) for e in found.events] == pytest.approx([0.5, 0.5], rel=2e-6)
        assert [e.l1_sensitivity for e in found.events] == [TOP, FINE]

    def test_joint(self) -> None:
        """Bounds -1 to 3: a fifth of epsilon for the mean."""
        found = METHOD.price(domain(SIZE), PUBLIC, Fraction(1), {"budget": "joint"})
        assert [float(e.epsilon * e.count) for e in found.events] == pytest.approx([0.2, 0.8], rel=2e-6)

    def test_mixed(self) -> None:
        found = METHOD.price(domain(SIZE, TRIPLE, AGE), PUBLIC, Fraction(2), {"sets": 2})
        assert [float(e.epsilon * e.count) for e in found.events] == pytest.approx([0.5, 1.0, 0.5], rel=2e-6)
        assert [(e.l1_sensitivity, e.count) for e in found.events] == [(2, 2), (2 * TOP, 4), (3 * TOP, 2)]
        assert sum(e.epsilon * e.count for e in found.events) <= 2

    def test_shares(self) -> None:
        found = METHOD.price(domain(SIZE, TRIPLE), PUBLIC, Fraction(1), {"shares": [1, 2, 1]})
        assert [float(e.epsilon) for e in found.events] == pytest.approx([0.25, 0.5, 0.25], rel=2e-6)
        alone = METHOD.price(domain(SIZE, AGE), PUBLIC, Fraction(1), {"shares": [1, 2, 1]})
        assert [float(e.epsilon * e.count) for e in alone.events] == pytest.approx([2 / 3, 1 / 3], rel=2e-6)
        only = METHOD.price(domain(TRIPLE), PUBLIC, Fraction(1), {})
        assert only.events == (LaplaceEvent(Fraction(2), 2.0, 1),)

    @pytest.mark.parametrize(
        "contract", [Contract("add_remove", 1, False), Contract("replace_one", 1, False), Contract("replace_one", 3, True)]
    )
    def test_needs_public_rows(self, contract: Contract) -> None:
        with pytest.raises(ArgumentError, match=r"method = 'modips'.*neighbors := 'replace_one'.*laplace_sanitizer"):
            METHOD.price(domain(FLAG), contract, Fraction(1), {})

    def test_tiny_epsilon_says_the_least(self) -> None:
        with pytest.raises(ArgumentError, match=r"epsilon = 1e-09: at least 1.19e-07") as caught:
            METHOD.price(domain(SIZE), PUBLIC, Fraction(1, 10**9), {})
        assert caught.value.argument == "epsilon"
        METHOD.price(domain(SIZE), PUBLIC, Fraction("1.2e-7"), {})

    def test_too_many_numeric_columns(self) -> None:
        many = domain(*(Attribute(f"x{i}", "DOUBLE", "numeric", edges=(0.0, 1.0), nullable=False) for i in range(362)))
        with pytest.raises(ArgumentError, match="at most 361 numeric columns"):
            METHOD.price(many, PUBLIC, Fraction(1), {})
        assert moments.MOST_NUMERIC * (moments.MOST_NUMERIC + 1) // 2 <= FINE < 362 * 363 // 2


@pytest.mark.parametrize(
    ("attributes", "options", "text"),
    [
        ((FLAG,), {"set": 3}, "'set': not an option; there are 'sets', 'budget'"),
        ((FLAG,), {"sets": 0}, "sets = 0: a whole number from 1 to 1000"),
        ((FLAG,), {"sets": 2.0}, "sets = 2.0"),
        ((FLAG,), {"sets": True}, "sets = True"),
        ((SIZE,), {"budget": "all"}, "budget = 'all': one of 'split', 'joint'"),
        ((FLAG,), {"budget": "joint"}, "for one numeric column"),
        ((SIZE, AGE), {"budget": "joint"}, "for one numeric column"),
        ((FLAG,), {"threshold": "none"}, "threshold = 'none': one of 'clamp', 'truncate'"),
        ((TRIPLE,), {"threshold": "truncate"}, "for one numeric column or one with two values"),
        ((FLAG,), {"shares": [1, 1, 1]}, "for several columns"),
        ((FLAG, SIZE), {"shares": [1, 1]}, "three numbers"),
        ((FLAG, SIZE), {"shares": [1, 0, 1]}, "three numbers"),
        ((FLAG, SIZE), {"shares": "equal"}, "'auto' or three numbers"),
        ((FLAG, SIZE), {"shares": [1, math.nan, 1]}, "three numbers"),
        ((), {}, "at least one column"),
        ((Attribute("x", "DOUBLE", "numeric", edges=(0.0, 1.0)),), {}, r"columns = \['x'\].*nullable := false"),
        ((Attribute("x", "DOUBLE", "numeric", edges=(0.0, 1.0), nullable=False, outside="other"),), {}, r"outside := 'clamp'"),
    ],
)
def test_refused(attributes: tuple[Attribute, ...], options: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        METHOD.plan(domain(*attributes), options)
    with pytest.raises(ArgumentError, match=text):
        METHOD.price(domain(*attributes), PUBLIC, Fraction(1), options)


@pytest.mark.parametrize("rows", [-1, 1.5, True])
def test_rows_refused(rows: object) -> None:
    model = METHOD.fit(statistics(domain(FLAG), [[3]], [1], 10), {})
    with pytest.raises(ArgumentError, match="rows"):
        METHOD.sample(model, rows, np.random.default_rng(0))


class TestThresholds:
    def test_binary_clamps_and_says_so(self) -> None:
        model = METHOD.fit(statistics(domain(FLAG), [[-4], [5], [17]], [3, 3, 3], 10, sets=3), {"sets": 3})
        assert model.statistics == ((0.0,), (5.0,), (10.0,))
        assert METHOD.report(model) == ["the noisy count lay outside its range in 2 of 3 sets and was set to the bound"]

    def test_binary_truncate_keeps_the_number_and_redraws_it(self) -> None:
        options = {"threshold": "truncate"}
        model = METHOD.fit(statistics(domain(FLAG), [[-4]], [3], 10), options)
        assert model.statistics == ((-4.0,),)
        assert "redrawn inside" in METHOD.report(model)[0]
        rng = np.random.default_rng(3)
        drawn = np.array([redrawn(-4.0, 0.0, 10.0, 3.0, rng) for _ in range(20_000)])
        assert stats.kstest(drawn, stats.truncexpon(10 / 3, scale=3).cdf).pvalue > 1e-6
        above = np.array([redrawn(14.0, 0.0, 10.0, 3.0, rng) for _ in range(20_000)])
        assert stats.kstest(10 - above, stats.truncexpon(10 / 3, scale=3).cdf).pvalue > 1e-6
        assert redrawn(4.0, 0.0, 10.0, 3.0, rng) == 4.0

    def test_normal(self) -> None:
        n, d = 100, domain(SIZE)
        largest = moments.normal_statistics(n, n // 2 * TOP, n // 2 * TOP**2)[1][0]
        blocks = [[-TOP], [10], [TOP * n + TOP], [int(2 * largest)]]
        model = METHOD.fit(statistics(d, blocks, [50, 50], n, sets=2), {"sets": 2})
        assert model.statistics[0][0] == 0.0
        assert model.statistics[1] == (1.0, pytest.approx(0.25 * n / (n - 1)))
        assert METHOD.report(model) == [
            "the noisy mean lay outside its range in 2 of 2 sets and was set to the bound",
            "the noisy variance lay outside its range in 1 of 2 sets and was set to the bound",
        ]

    def test_nothing(self) -> None:
        assert METHOD.report(METHOD.fit(statistics(domain(FLAG), [[4]], [3], 10), {})) == ["no statistic lay outside its range"]

    def test_mixed(self) -> None:
        d = domain(TRIPLE, SIZE)
        model = METHOD.fit(statistics(d, [[8, -3, 5], [0, 0, 0], [-40]], [10, 100, 100], 10), {})
        assert METHOD.report(model) == [
            "noisy cell counts were negative in 1 of 1 sets and were projected to counts with sum n",
            "the noisy covariance was not one in 1 of 1 sets; the nearest allowed one was taken",
        ]
        assert np.linalg.eigvalsh(model.statistics[0].covariance)[0] > 0


class TestStatistics:
    def test_mean_and_variance_come_back(self) -> None:
        rng = np.random.default_rng(2)
        z = rng.integers(0, FINE, 1000)
        exact = moments.normal_statistics(1000, int(z.sum()), int((z * z).sum()))
        model = METHOD.fit(statistics(domain(SIZE), exact, [1, 1], 1000), {})
        t = (z + 0.5) / FINE
        assert model.statistics[0] == pytest.approx((t.mean(), t.var(ddof=1)), rel=1e-6)

    def test_cells_come_back_without_noise(self) -> None:
        """Counts, cell means and the pooled covariance with n - K, when noise is negligible."""
        rng = np.random.default_rng(5)
        d, n = domain(TRIPLE, SIZE, AGE), 3000
        codes = rng.choice(3, (n, 1), p=[0.6, 0.3, 0.1])
        t = np.array([[0.3, 0.6], [0.5, 0.5], [0.7, 0.2]])[codes[:, 0]]
        t = t + rng.multivariate_normal([0, 0], [[0.004, 0.003], [0.003, 0.005]], n)
        z = np.clip(np.floor(t * FINE), 0, TOP).astype(np.int64)
        counted = count(d, codes, z)
        exact = moments.mixed_statistics(counted.tables[(0,)], counted.sums, counted.products)
        fine = [fine_values(SIZE), fine_values(SIZE)]
        found = fit_cells([exact], [1e-3, 1e-3, 1e-3], 3, n, fine)[0]
        t = (z + 0.5) / FINE
        means = np.stack([t[codes[:, 0] == k].mean(0) for k in range(3)])
        within = t - means[codes[:, 0]]
        assert found.counts.tolist() == counted.tables[(0,)].tolist()
        assert np.allclose(found.means + 0.5, means, atol=1e-6)
        assert np.allclose(found.covariance, within.T @ within / (n - 3), rtol=1e-4)
        assert found.df == pytest.approx(n - 3, abs=1e-3)
        assert not found.adjusted

    def test_noisy_small_cells_are_shrunk_to_the_mean(self) -> None:
        """Two cells of 5 rows of 10,000: their sums are noise, their means must not be."""
        counts, scale = np.array([9990, 5, 5]), 20 * FINE
        sums = np.array([0, 5, -5]) * FINE // 10 + np.array([9, -30, 25]) * FINE
        moment = 4 * 10_000 * FINE // 100
        found = fit_cells([[counts, sums, np.array([moment])]], [20.0, float(scale), 100.0], 3, 10_000, [fine_values(SIZE)])[0]
        assert np.abs(found.means - found.means[0]).max() < 0.01
        assert found.covariance[0, 0] == pytest.approx(0.01, rel=0.1)


class TestLaws:
    @pytest.mark.parametrize(
        ("mean", "deviation"), [(0.5, 0.1), (0.0, 0.3), (-0.4, 0.1), (1.7, 0.05), (30.0, 0.5), (0.2, 1e4), (-1e4, 1e3), (0.5, 1e-7)]
    )
    def test_truncated_normal(self, mean: float, deviation: float) -> None:
        drawn = truncated_normal(mean, deviation, 0.0, 1.0, 20_000, np.random.default_rng(1))
        assert ((drawn >= 0) & (drawn <= 1)).all()
        a, b = (0 - mean) / deviation, (1 - mean) / deviation
        assert stats.kstest(drawn, stats.truncnorm(a, b, loc=mean, scale=deviation).cdf).pvalue > 1e-6

    def test_truncated_rows_by_rejection(self) -> None:
        """Against plain rejection, mean and covariance."""
        rng = np.random.default_rng(2)
        factor = np.linalg.cholesky([[0.09, 0.06], [0.06, 0.08]])
        means, low, high = np.array([[0.2, 0.9]]), np.zeros(2), np.ones(2)
        found = truncated_rows(np.repeat(means, 100_000, axis=0), factor, low, high, rng)
        plain = means + rng.standard_normal((400_000, 2)) @ factor.T
        plain = plain[((plain >= 0) & (plain <= 1)).all(axis=1)]
        assert ((found >= 0) & (found <= 1)).all()
        assert np.allclose(found.mean(0), plain.mean(0), atol=0.005)
        assert np.allclose(np.cov(found.T), np.cov(plain.T), atol=0.002)

    def test_truncated_rows_far_outside_stay_inside(self) -> None:
        rng = np.random.default_rng(2)
        factor = np.linalg.cholesky([[1e-4, 9e-5], [9e-5, 1e-4]])
        found = truncated_rows(np.full((1000, 2), 5.0), factor, np.zeros(2), np.ones(2), rng)
        assert ((found >= 0) & (found <= 1)).all()

    def test_inverse_wishart_mean(self) -> None:
        """E = df mean / (df - p - 1)."""
        rng, mean = np.random.default_rng(6), np.array([[2.0, 0.5, 0.1], [0.5, 1.0, -0.3], [0.1, -0.3, 0.7]])
        factors = [inverse_wishart_factor(30.0, mean, rng) for _ in range(20_000)]
        assert all(np.allclose(f, np.tril(f)) and (np.diagonal(f) > 0).all() for f in factors[:50])
        average = np.mean([f @ f.T for f in factors], axis=0)
        assert np.allclose(average, mean * 30 / 26, atol=0.02)
        reference = stats.invwishart(30, 30 * mean).rvs(20_000, random_state=3)
        ours = np.array([(f @ f.T)[0, 1] for f in factors])
        assert stats.ks_2samp(ours, reference[:, 0, 1]).pvalue > 1e-6

    def test_normal_parameters(self) -> None:
        rng = np.random.default_rng(9)
        drawn = np.array([normal_parameters(0.4, 0.02, 20, rng) for _ in range(20_000)])
        assert stats.kstest(drawn[:, 1], stats.invgamma(9.5, scale=9.5 * 0.02).cdf).pvalue > 1e-6
        standard = (drawn[:, 0] - 0.4) / np.sqrt(drawn[:, 1] / 20)
        assert stats.kstest(standard, stats.norm.cdf).pvalue > 1e-6

    def test_bounded_mean_is_the_posterior_mean(self) -> None:
        grid = np.linspace(0.1, 0.9, 200_001)
        for observed in (-3.0, 0.1, 0.3, 0.9, 2.0):
            for scale in (1e-2, 0.2, 5.0):
                weights = np.exp(-np.abs(grid - observed) / scale + np.abs(np.clip(observed, 0.1, 0.9) - observed) / scale)
                expected = (grid * weights).sum() / weights.sum()
                assert bounded_mean(np.array([observed]), scale, 0.1, 0.9)[0] == pytest.approx(expected, abs=1e-5)
        assert bounded_mean(np.array([0.3]), 1e-300, 0.0, 1.0)[0] == 0.3
        assert bounded_mean(np.array([0.3]), 1e9, 0.0, 1.0)[0] == pytest.approx(0.5, abs=1e-6)
        assert bounded_mean(np.array([0.3]), 1.0, 0.5, 0.5)[0] == 0.5


class TestFineValues:
    @pytest.mark.parametrize(
        ("sql_type", "edges", "bins"),
        [
            ("INTEGER", (0.0, 60.0, 120.0), 121),
            ("TINYINT", (-128.0, 127.0), 256),
            ("BIGINT", (0.0, 65_535.0), FINE),
            ("BIGINT", (0.0, 65_536.0), FINE),
            ("INTEGER", (0.5, 3.5), 3),
            ("DECIMAL(6,2)", (0.0, 1.25), 126),
            ("DECIMAL(18,4)", (-0.03, 0.07), 1001),
            ("DECIMAL(18,4)", (0.0, 1000.0), FINE),
            ("DOUBLE", (0.0, 1e-9), FINE),
            ("DOUBLE", (-1e300, 1e300), FINE),
            ("FLOAT", (1000.0, 1001.0), 16_384),
            ("BIGINT", (2.0**60, 2.0**60 + 1024.0), 4),
            ("HUGEINT", (0.0, 1e30), FINE),
        ],
    )
    def test_every_bin_has_a_value_and_decodes_inside(self, sql_type: str, edges: tuple[float, ...], bins: int) -> None:
        attribute = Attribute("x", sql_type, "numeric", edges=edges, nullable=False)
        fine = fine_attribute(attribute)
        assert fine.values == bins
        codes = np.arange(bins, dtype=np.int32)
        values = Decoder(fine, "x").arrays(codes, np.random.default_rng(0))["x"]
        if sql_type not in ("HUGEINT", "DECIMAL(18,4)") and isinstance(values, np.ndarray):
            assert values.min() >= math.ceil(edges[0]) if sql_type == "INTEGER" else values.min() >= edges[0]
            scale = 100 if sql_type == "DECIMAL(6,2)" else 1
            assert values.max() <= edges[-1] * scale
            assert (np.diff(values.astype(np.float64)) >= 0).all()

    @pytest.mark.parametrize("attribute", [AGE, Attribute("d", "DECIMAL(6,2)", "numeric", edges=(-1.0, 1.25), nullable=False)])
    def test_units_round_to_nearest(self, attribute: Attribute) -> None:
        values = fine_values(attribute)
        low, high = attribute.edges[0], attribute.edges[-1]
        scale = 1 if attribute is AGE else 100
        units = np.arange(round(low * scale), round(high * scale) + 1)
        t = (units / scale - low) / (high - low)
        assert values.codes(t).tolist() == list(range(len(units)))
        assert values.codes(t + 0.49 * values.step).tolist() == list(range(len(units)))
        assert values.codes(t - 0.49 * values.step).tolist() == list(range(len(units)))
        decoded = Decoder(fine_attribute(attribute), "x").arrays(np.arange(len(units)), np.random.default_rng(0))["x"]
        assert np.asarray(decoded).tolist() == units.tolist()

    def test_continuous(self) -> None:
        values = fine_values(SIZE)
        assert values.codes(np.array([-0.1, 0.0, 0.5, 1.0, 1.1])).tolist() == [0, 0, FINE // 2, FINE - 1, FINE - 1]
        assert values.rounding_variance == 0.0


class TestWhole:
    """Exact statistics in, rows out."""

    @pytest.mark.parametrize("rows", [0, 1, 2, 3])
    @pytest.mark.parametrize("epsilon", ["0.001", "1", "1000000"])
    @pytest.mark.parametrize("sets", [1, 2])
    def test_tiny_tables(self, rows: int, epsilon: str, sets: int) -> None:
        for d in (domain(FLAG), domain(TRIPLE), domain(SIZE), domain(AGE), domain(SIZE, TRIPLE, AGE), domain(SIZE, AGE), domain(DAY, TRIPLE)):
            categorical = METHOD.plan(d, {}).cliques[0]
            codes = np.ones((rows, len(categorical)), dtype=np.int64)
            z = np.full((rows, len(METHOD.values(d, {}))), TOP)
            synthesize(d, count(d, codes, z), epsilon, {"sets": sets}, rows=7)
            assert synthesize(d, count(d, codes, z), epsilon, {"sets": sets}).shape[0] == rows * sets

    def test_one_code(self) -> None:
        only = Attribute("k", "VARCHAR", "categorical", ("k",), nullable=False)
        found = synthesize(domain(only), count(domain(only), np.zeros((5, 1), dtype=np.int64), np.zeros((5, 0))), 1, {})
        assert found.tolist() == [[0]] * 5

    def test_rows_are_split_over_sets(self) -> None:
        found = synthesize(domain(FLAG), Counted({(0,): np.array([70, 30])}, 100), 10, {"sets": 3}, rows=11)
        assert np.bincount(found[:, 1]).tolist() == [4, 4, 3]
        assert (np.diff(found[:, 1]) >= 0).all()

    def test_same_seed_same_rows(self) -> None:
        d = domain(SIZE, TRIPLE)
        model = METHOD.fit(statistics(d, [[50, 30, 20], [0, 99, -99], [5000]], [3, 30_000, 30_000], 100), {})
        first, second, third = (np.concatenate([*METHOD.sample(model, 500, np.random.default_rng(s))]) for s in (1, 1, 2))
        assert (first == second).all()
        assert (first != third).any()

    def test_binary_without_noise(self) -> None:
        found = synthesize(domain(FLAG), Counted({(0,): np.array([70_000, 30_000])}, 100_000), 1000, {})
        assert found.mean() == pytest.approx(0.3, abs=0.01)

    @pytest.mark.parametrize("budget", ["split", "joint"])
    def test_normal_keeps_mean_and_variance(self, budget: str) -> None:
        rng = np.random.default_rng(3)
        z = np.clip(np.floor(rng.normal(0.45, 0.1, 50_000) * FINE), 0, TOP).astype(np.int64)[:, None]
        found = synthesize(domain(SIZE), count(domain(SIZE), np.empty((50_000, 0)), z), 2, {"budget": budget})
        assert found.mean() / FINE == pytest.approx(0.45, abs=0.005)
        assert found.std() / FINE == pytest.approx(0.1, abs=0.005)

    def test_small_integers_keep_their_variance(self) -> None:
        """Rounding to units adds 1/12, which is taken off before."""
        likert = Attribute("l", "INTEGER", "numeric", edges=(0.0, 10.0), nullable=False)
        x = np.clip(np.round(np.random.default_rng(1).normal(5, 1.0, 200_000)), 0, 10)
        z = np.minimum(np.floor(x / 10 * FINE), TOP).astype(np.int64)[:, None]
        found = synthesize(domain(likert), count(domain(likert), np.empty((200_000, 0)), z), 100, {})
        assert found.var() == pytest.approx(x.var(), rel=0.02)
        assert found.mean() == pytest.approx(x.mean(), abs=0.02)

    def test_mixed_keeps_cells_means_and_covariance(self) -> None:
        rng = np.random.default_rng(7)
        d, n = domain(SIZE, TRIPLE, AGE), 100_000
        codes = rng.choice(3, (n, 1), p=[0.5, 0.3, 0.2])
        centres = np.array([[0.35, 0.6], [0.5, 0.5], [0.65, 0.4]])
        t = centres[codes[:, 0]] + rng.multivariate_normal([0, 0], [[0.01, 0.007], [0.007, 0.012]], n)
        z = np.clip(np.floor(t * FINE), 0, TOP).astype(np.int64)
        found = synthesize(d, count(d, codes, z), 1, {})
        assert np.allclose(np.bincount(found[:, 1]) / n, [0.5, 0.3, 0.2], atol=0.01)
        values = np.stack((found[:, 0] / FINE, found[:, 2] / 120), axis=1)
        means = np.stack([values[found[:, 1] == k].mean(0) for k in range(3)])
        assert np.allclose(means, centres, atol=0.015)
        assert np.allclose(np.cov((values - means[found[:, 1]]).T), [[0.01, 0.007], [0.007, 0.012]], atol=0.0015)

    def test_temporal_columns_are_bins(self) -> None:
        found = synthesize(domain(DAY, TRIPLE), Counted({(0, 1): np.array([[10, 0, 0], [0, 0, 90]])}, 100), 1000, {}, rows=1000)
        assert set(map(tuple, found.tolist())) <= {(0, 0), (1, 2), (0, 1), (0, 2), (1, 0), (1, 1)}
        assert ((found == (1, 2)).all(axis=1)).mean() > 0.75


def test_fit_needs_a_release() -> None:
    with pytest.raises(ArgumentError, match="release of modips"):
        METHOD.fit(Statistics((2,), {}, {}), {})
