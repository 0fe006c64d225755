"""The method `dpcopula_kendall`: plans, prices, what is refused and why, fits, rows."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpsql.accounting.events import LaplaceEvent
from dpsql.domains.attributes import FINE, Attribute, Domain
from dpsql.errors import ArgumentError
from dpsql.mechanisms.kendall import kendall_sensitivity
from dpsql.methods.base import Contract, Counted
from dpsql.methods.dpcopula_kendall import latent
from dpsql.methods.dpcopula_kendall.method import DpcopulaKendall, KendallModel
from dpsql.tables.statistics import Statistics

PUBLIC = Contract("replace_one", 1, True)
METHOD = DpcopulaKendall()


def numeric(name: str, bins: int) -> Attribute:
    return Attribute(name, "DOUBLE", "numeric", edges=tuple(float(i) for i in range(bins + 1)), nullable=False)


def categorical(name: str, values: int, nullable: bool = False) -> Attribute:
    return Attribute(name, "VARCHAR", "categorical", tuple(f"v{i}" for i in range(values)), nullable=nullable)


THREE = Domain((numeric("x", 12), numeric("y", 8), categorical("z", 2)))


def counted(codes: np.ndarray, sizes: tuple[int, ...]) -> Counted:
    tables = {}
    for clique in METHOD.plan(Domain(tuple(categorical(f"c{i}", size) for i, size in enumerate(sizes))), {}).cliques:
        shape = [sizes[i] for i in clique]
        flat = np.ravel_multi_index([codes[:, i] for i in clique], shape)
        tables[clique] = np.bincount(flat, minlength=math.prod(shape)).reshape(shape).astype(np.int64)
    return Counted(tables, len(codes))


def released(codes: np.ndarray, domain: Domain, epsilon: Fraction, options: dict | None = None) -> Statistics:
    options = options or {}
    price = METHOD.price(domain, PUBLIC, epsilon, options)
    parameters = json.loads(json.dumps(price.parameters))
    blocks = METHOD.draw(counted(codes, domain.sizes), domain, parameters, options)
    assert tuple(block.size for block in blocks) == METHOD.lengths(domain, options)
    assert all(block.dtype == np.int64 and block.ndim == 1 for block in blocks)
    return Statistics(domain.sizes, {}, {}, "laplace", len(codes), tuple(blocks), domain, parameters)


def normal_codes(correlations: np.ndarray, sizes: tuple[int, ...], rows: int, seed: int = 3) -> np.ndarray:
    """Normals of these correlations, cut at equal shares."""
    z = np.random.default_rng(seed).multivariate_normal(np.zeros(len(sizes)), correlations, rows)
    return np.stack([np.minimum((stats.norm.cdf(z[:, i]) * size).astype(int), size - 1) for i, size in enumerate(sizes)], axis=1)


def rows_of(model: KendallModel, rows: int, seed: int = 0) -> np.ndarray:
    blocks = list(METHOD.sample(model, rows, np.random.default_rng(seed)))
    assert all(block.dtype == np.int32 for block in blocks)
    return np.concatenate(blocks) if blocks else np.empty((0, 0))


class TestPlan:
    def test_one_way_and_two_way_tables(self) -> None:
        plan = METHOD.plan(THREE, {})
        assert tuple(plan.cliques) == ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2))
        assert METHOD.lengths(THREE, {}) == (12, 8, 2, 3)
        assert METHOD.values(THREE, {}) == () and plan.notes == ()
        one = Domain((numeric("x", 12),))
        assert tuple(METHOD.plan(one, {}).cliques) == ((0,),) and METHOD.lengths(one, {}) == (12,)

    def test_notes_say_which_order_is_taken_for_one(self) -> None:
        some = Domain((numeric("x", 3), *(categorical(f"c{i}", 3) for i in range(7)), categorical("two", 2)))
        assert METHOD.plan(some, {}).notes == ("taken in the order in which they were declared: c0, c1, c2, c3, c4 and 2 more",)

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"k": 8}, "not an option; there are 'ratio', 'correlation'"),
            ({"ratio": 0}, "ratio = 0: a number from 0.01 to 100"),
            ({"ratio": True}, "from 0.01 to 100"),
            ({"ratio": "8"}, "from 0.01 to 100"),
            ({"correlation": "pearson"}, "one of 'posterior', 'sine'"),
        ],
    )
    def test_options(self, options: dict, text: str) -> None:
        with pytest.raises(ArgumentError, match=text):
            METHOD.plan(THREE, options)

    def test_columns(self) -> None:
        for columns in (0, 201):
            with pytest.raises(ArgumentError, match=f"columns = {columns}: must be 1 to 200 columns"):
                METHOD.plan(Domain(tuple(numeric(f"x{i}", 2) for i in range(columns))), {})


class TestPrice:
    def test_events_follow_from_rounded_scales(self) -> None:
        price = METHOD.price(THREE, PUBLIC, Fraction(9, 10), {})
        margins, sums = price.events
        assert isinstance(margins, LaplaceEvent) and isinstance(sums, LaplaceEvent)
        assert (margins.l1_sensitivity, margins.count) == (2, 3)
        assert (sums.l1_sensitivity, sums.count) == (kendall_sensitivity(3), 1)
        assert [str(margins.scale), str(sums.scale)] == price.parameters["scales"]
        assert 0.8 * (1 - 2e-6) <= margins.epsilon * 3 <= Fraction(8, 10) and 0.1 * (1 - 2e-6) <= sums.epsilon <= Fraction(1, 10)
        assert price.scale is None and price.mechanism == "laplace"
        noise = float(sums.scale) * 2 / FINE
        assert f"noise of scale {noise:.6g} / n on Kendall's tau of 3 pairs (epsilon 0.1)" in price.notes[1]

    def test_ratio(self) -> None:
        margins, sums = METHOD.price(THREE, PUBLIC, Fraction(3), {"ratio": 0.5}).events
        assert float(margins.epsilon * 3) == pytest.approx(1, rel=1e-5) and float(sums.epsilon) == pytest.approx(2, rel=1e-5)

    def test_one_column_has_it_all(self) -> None:
        price = METHOD.price(Domain((numeric("x", 12),)), PUBLIC, Fraction(1), {})
        assert price.events == (LaplaceEvent(Fraction(2), 2.0, 1),) and price.scale == 2

    @pytest.mark.parametrize(
        "contract", [Contract("add_remove", 1, False), Contract("replace_one", 1, False), Contract("replace_one", 3, False)]
    )
    def test_a_private_number_of_rows(self, contract: Contract) -> None:
        with pytest.raises(ArgumentError, match="must be public.*neighbors := 'replace_one'.*'latent_class'") as error:
            METHOD.price(THREE, contract, Fraction(1), {})
        assert error.value.argument == "method"

    def test_epsilon(self) -> None:
        with pytest.raises(ArgumentError, match="must be above 0"):
            METHOD.price(THREE, PUBLIC, Fraction(0), {})
        with pytest.raises(ArgumentError, match="epsilon = 1e-09: must be at least") as error:
            METHOD.price(THREE, PUBLIC, Fraction(1, 10**9), {})
        least = float(str(error.value).split("at least ")[1].split(" ")[0])
        METHOD.price(THREE, PUBLIC, Fraction(least * 1.0001), {})


class TestFit:
    @pytest.mark.parametrize("rule", ["posterior", "sine"])
    def test_correlations_come_back(self, rule: str) -> None:
        wanted = np.array([[1, 0.7, -0.4], [0.7, 1, 0.1], [-0.4, 0.1, 1]])
        sizes = (40, 30, 50)
        domain = Domain(tuple(numeric(f"x{i}", size) for i, size in enumerate(sizes)))
        codes = normal_codes(wanted, sizes, 40_000)
        model = METHOD.fit(released(codes, domain, Fraction(100), {"correlation": rule}), {"correlation": rule})
        assert np.abs(model.correlations - wanted).max() < 0.03
        drawn = rows_of(model, 40_000)
        for i in range(3):
            assert np.abs(np.bincount(drawn[:, i], minlength=sizes[i]) - np.bincount(codes[:, i], minlength=sizes[i])).max() < 250
        found = stats.spearmanr(drawn).statistic - stats.spearmanr(codes).statistic
        assert np.abs(found).max() < 0.04

    def test_ties_are_allowed_for(self) -> None:
        """Columns of two values: sin(pi tau / 2) gives at most about half of the correlation, the mean gives it."""
        wanted = np.array([[1, 0.8], [0.8, 1]])
        domain = Domain((categorical("a", 2), categorical("b", 2)))
        codes = normal_codes(wanted, (2, 2), 40_000)
        statistics = released(codes, domain, Fraction(200))
        assert METHOD.fit(statistics, {}).correlations[0, 1] == pytest.approx(0.8, abs=0.03)
        assert METHOD.fit(statistics, {"correlation": "sine"}).correlations[0, 1] < 0.5

    @pytest.mark.parametrize("rows", [0, 1, 2])
    def test_hardly_any_rows(self, rows: int) -> None:
        codes = np.zeros((rows, 3), dtype=int)
        model = METHOD.fit(released(codes, THREE, Fraction(1)), {})
        assert METHOD.total(model) == rows and rows_of(model, 50).shape == (50, 3)
        assert np.linalg.eigvalsh(model.correlations)[0] > 0

    def test_one_column(self) -> None:
        codes = np.repeat([0, 3, 11], [100, 700, 200])[:, None]
        domain = Domain((numeric("x", 12),))
        model = METHOD.fit(released(codes, domain, Fraction(1000)), {})
        assert np.bincount(rows_of(model, 100_000)[:, 0], minlength=12)[[0, 3, 11]] / 1e5 == pytest.approx([0.1, 0.7, 0.2], abs=0.02)

    def test_codes_without_rows_are_not_drawn(self) -> None:
        codes = np.repeat([1, 5], 5000)[:, None] * np.ones((1, 2), int)
        domain = Domain((numeric("x", 8), numeric("y", 8)))
        drawn = rows_of(METHOD.fit(released(codes, domain, Fraction(10**4)), {}), 20_000)
        assert set(np.unique(drawn)) == {1, 5} and (drawn[:, 0] == drawn[:, 1]).mean() > 0.97

    @pytest.mark.parametrize("rule", ["posterior", "sine"])
    @pytest.mark.parametrize("sign", [-1, 1])
    def test_any_noise_gives_a_model(self, rule: str, sign: int) -> None:
        """Far beyond what noise can be, and with no count left above 0."""
        blocks = [np.full(size, sign * (1 << 45)) for size in METHOD.lengths(THREE, {})]
        parameters = METHOD.price(THREE, PUBLIC, Fraction(1), {}).parameters
        model = METHOD.fit(Statistics(THREE.sizes, {}, {}, "laplace", 10, tuple(blocks), THREE, parameters), {"correlation": rule})
        assert np.isfinite(model.correlations).all() and rows_of(model, 10).shape == (10, 3)

    def test_fine_columns_take_the_formula(self) -> None:
        shares = np.full(100, 0.01)
        curve = latent.tau_curve(shares, shares)
        assert curve[-1] == pytest.approx(0.99) and curve[0] == pytest.approx(-0.99)
        assert latent.tau_curve(shares[:60] / shares[:60].sum(), shares[:60] / shares[:60].sum())[-1] == pytest.approx(1 - 1 / 60, abs=1e-6)

    def test_statistics_of_another_release(self) -> None:
        with pytest.raises(ArgumentError, match="a release of dpcopula_kendall"):
            METHOD.fit(Statistics((2, 2), {}, {}), {})


class TestSample:
    MODEL = KendallModel(100, (np.array([0.0]), np.array([-1.0, 1.0])), np.array([[1.0, 0.5], [0.5, 1.0]]))

    def test_reproducible_in_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert (rows_of(self.MODEL, 500, 1) == rows_of(self.MODEL, 500, 1)).all()
        assert (rows_of(self.MODEL, 500, 1) != rows_of(self.MODEL, 500, 2)).any()
        monkeypatch.setattr("dpsql.methods.dpcopula_kendall.method._BLOCK", 64)
        assert rows_of(self.MODEL, 500).shape == (500, 2)
        assert rows_of(self.MODEL, 0).size == 0

    @pytest.mark.parametrize("rows", [-1, 2.5, True, "3"])
    def test_rows(self, rows: object) -> None:
        with pytest.raises(ArgumentError, match="a whole number of at least 0"):
            METHOD.sample(self.MODEL, rows, np.random.default_rng(0))

    def test_forecast(self) -> None:
        few, many = (METHOD.forecast((20,) * m, 100_000, {}) for m in (5, 100))
        assert few[0] < 1 < many[0] < 300 and few[1] < many[1]
        assert METHOD.forecast((20,) * 100, 0, {"correlation": "sine"})[0] < 1 < METHOD.forecast((20,) * 100, 0, {})[0]
