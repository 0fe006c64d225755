"""The histogram methods: plans, prices, what is refused and why, fits, rows."""

import itertools
import json
from fractions import Fraction

import numpy as np
import pytest

from dpsql.accounting.events import LaplaceEvent, PureEvent
from dpsql.domains.attributes import Attribute, Domain
from dpsql.errors import ArgumentError
from dpsql.mechanisms import distribution_function, multinomial
from dpsql.methods.base import Contract, Counted
from dpsql.methods.histograms import histogram
from dpsql.methods.histograms.dp_prior import DpPrior, SmoothedHistogram
from dpsql.methods.histograms.empirical_cdf import EmpiricalCdf
from dpsql.methods.histograms.histogram import HistogramModel
from dpsql.methods.histograms.laplace_sanitizer import LaplaceSanitizer, PerturbedHistogram
from dpsql.methods.histograms.multinomial_dirichlet import BetaBinomial, MultinomialDirichlet
from dpsql.tables.statistics import Statistics

LAPLACE = [LaplaceSanitizer(), PerturbedHistogram()]
FIXED_N = [MultinomialDirichlet(), BetaBinomial(), DpPrior(), SmoothedHistogram(), EmpiricalCdf()]
ALL = [*LAPLACE, *FIXED_N]
names = pytest.mark.parametrize("method", ALL, ids=lambda m: m.name)
fixed = pytest.mark.parametrize("method", FIXED_N, ids=lambda m: m.name)
PUBLIC = Contract("replace_one", 1, True)
PRIVATE = Contract("add_remove", 1, False)


def categorical(name: str, values: int, nullable: bool = False) -> Attribute:
    return Attribute(name, "VARCHAR", "categorical", tuple(f"v{i}" for i in range(values)), nullable=nullable)


def numeric(name: str, bins: int, nullable: bool = False) -> Attribute:
    return Attribute(name, "DOUBLE", "numeric", edges=tuple(float(i) for i in range(bins + 1)), nullable=nullable)


TWO = Domain((categorical("sex", 2),))
GRID = Domain((categorical("sex", 2), numeric("age", 3, nullable=True)))


def drawn(method, counts: np.ndarray, epsilon=Fraction(1), sets=1, contract=PUBLIC, domain=TWO) -> list[np.ndarray]:
    options = {"sets": sets}
    price = method.price(domain, contract, epsilon, options)
    parameters = json.loads(json.dumps(price.parameters))  # as the ledger keeps them
    clique = tuple(range(counts.ndim))
    blocks = method.draw(Counted({clique: counts}, int(counts.sum())), domain, parameters, options)
    assert tuple(block.size for block in blocks) == method.lengths(domain, options)
    assert all(block.dtype == np.int64 and block.ndim == 1 for block in blocks)
    return blocks


def fitted(method, blocks: list[np.ndarray], sets=1, total=None, domain=TWO) -> HistogramModel:
    return method.fit(Statistics(domain.sizes, {}, {}, "x", total, tuple(blocks), domain), {"sets": sets})


def rows(method, model: HistogramModel, count: int, seed=0) -> np.ndarray:
    blocks = list(method.sample(model, count, np.random.default_rng(seed)))
    assert all(block.dtype == np.int32 for block in blocks)
    return np.concatenate(blocks) if blocks else np.empty((0, 0))


class TestPlan:
    def test_one_clique_over_all_columns(self) -> None:
        assert MultinomialDirichlet().plan(GRID, {}).cliques == ((0, 1),)
        assert MultinomialDirichlet().lengths(GRID, {"sets": 3}) == (8, 8, 8)
        assert MultinomialDirichlet().values(GRID, {}) == ()

    @names
    @pytest.mark.parametrize("sets", [0, 1001, 2.5, "3", True, None])
    def test_sets(self, method, sets) -> None:
        with pytest.raises(ArgumentError, match="sets .*whole number from 1 to 1000"):
            method.plan(TWO, {"sets": sets})

    @names
    def test_unknown_option(self, method) -> None:
        with pytest.raises(ArgumentError, match="not an option; there are 'sets'"):
            method.plan(TWO, {"set": 1})

    def test_beta_binomial_needs_two_cells(self) -> None:
        with pytest.raises(ArgumentError, match="have 3 cells, and beta_binomial needs exactly 2.*nullable := false"):
            BetaBinomial().plan(Domain((categorical("sex", 2, nullable=True),)), {})

    def test_empirical_cdf_needs_one_column(self) -> None:
        with pytest.raises(ArgumentError, match="must be one column: empirical_cdf needs an order"):
            EmpiricalCdf().plan(GRID, {})

    def test_cells(self) -> None:
        many = Domain((categorical("a", 3000), categorical("b", 3000)))
        with pytest.raises(ArgumentError, match="has 9000000 cells in each of 1 sets; dp_prior takes up to 4194304"):
            DpPrior().plan(many, {})
        with pytest.raises(ArgumentError, match="fewer sets"):
            DpPrior().plan(Domain((categorical("a", 100_000),)), {"sets": 1000})
        with pytest.raises(ArgumentError, match="at least one column"):
            DpPrior().plan(Domain(()), {})


class TestPrice:
    @pytest.mark.parametrize("method", LAPLACE, ids=lambda m: m.name)
    @pytest.mark.parametrize(("neighbors", "rows", "l1"), [("add_remove", 1, 1), ("add_remove", 3, 3), ("replace_one", 3, 6)])
    def test_laplace(self, method, neighbors: str, rows: int, l1: int) -> None:
        price = method.price(GRID, Contract(neighbors, rows, False), Fraction(3, 10), {"sets": 10})
        (event,) = price.events
        assert isinstance(event, LaplaceEvent)
        assert (event.l1_sensitivity, event.count, event.scale) == (l1, 10, price.scale)
        spent = event.epsilon * event.count
        assert Fraction(3, 10) * (1 - Fraction(2, 10**6)) <= spent <= Fraction(3, 10)
        assert price.notes[0] == "sets: 10, epsilon 0.03 each"

    @fixed
    def test_pure(self, method) -> None:
        for sets in (1, 10):
            price = method.price(TWO, PUBLIC, Fraction(1), {"sets": sets})
            assert price.events == (PureEvent(Fraction(1, sets), sets),)
            assert price.scale is None
            assert any("sets: 10, epsilon 0.1 each" in note for note in price.notes) == (sets == 10)
            json.dumps(price.parameters)

    @fixed
    def test_private_number_of_rows(self, method) -> None:
        with pytest.raises(ArgumentError, match="fixes the number n of rows.*neighbors := 'replace_one'.*'laplace_sanitizer'") as e:
            method.price(TWO, PRIVATE, Fraction(1), {})
        assert e.value.argument == "method" and e.value.value == method.name
        with pytest.raises(ArgumentError, match="outside := 'drop'.*whole table"):
            method.price(TWO, Contract("replace_one", 1, False), Fraction(1), {})

    @names
    def test_epsilon(self, method) -> None:
        with pytest.raises(ArgumentError, match="epsilon = 0.0: must be above 0"):
            method.price(TWO, PUBLIC, Fraction(0), {})

    def test_epsilon_too_small_for_the_noise(self) -> None:
        with pytest.raises(ArgumentError, match="epsilon = 1e-12: must be at least 1.81899e-11 for 10 sets"):
            LaplaceSanitizer().price(TWO, PUBLIC, Fraction(1e-12), {"sets": 10})

    def test_epsilon_too_small_for_the_distribution_function(self) -> None:
        fifty = Domain((numeric("age", 50),))
        with pytest.raises(ArgumentError, match="for 50 bins and 1 sets.*an epsilon of at least about (.*), or fewer bins") as error:
            EmpiricalCdf().price(fifty, PUBLIC, Fraction(1, 10**6), {})
        least = float(str(error.value).split("at least about ")[1].split(",")[0])
        EmpiricalCdf().price(fifty, PUBLIC, Fraction(least * 1.05), {})

    def test_notes_on_the_pull_towards_uniform(self) -> None:
        six = Domain((categorical("race", 6),))
        (note,) = MultinomialDirichlet().price(six, PUBLIC, Fraction(5), {}).notes
        assert "released shares are 0.0391 uniform" in note  # 6 / (6 + e^5 - 1)
        assert "n * 0.00678365" in note  # 1 / (e^5 - 1)
        (note,) = DpPrior().price(six, PUBLIC, Fraction(5), {}).notes
        assert "about 0.545 uniform" in note  # 6 / 11
        MultinomialDirichlet().price(six, PUBLIC, Fraction(10**6), {})  # no overflow

    def test_price_shows_the_epsilon_of_a_set(self) -> None:
        six = Domain((categorical("race", 6),))
        notes = MultinomialDirichlet().price(six, PUBLIC, Fraction(5), {"sets": 5}).notes
        assert notes[0] == "sets: 5, epsilon 1 each" and "0.777 uniform" in notes[1]  # 6 / (6 + e - 1)


class TestDraw:
    @fixed
    @pytest.mark.parametrize("sets", [1, 3])
    def test_as_many_rows_as_the_source(self, method, sets: int) -> None:
        for counts in ([700, 294], [0, 5], [1, 0], [0, 0]):
            blocks = drawn(method, np.array(counts), sets=sets)
            assert [int(block.sum()) for block in blocks] == [sum(counts)] * sets
            assert min(int(block.min()) for block in blocks) >= 0

    @pytest.mark.parametrize("method", [MultinomialDirichlet(), DpPrior(), *LAPLACE], ids=lambda m: m.name)
    def test_cross_tabulation_keeps_its_order(self, method) -> None:
        counts = np.array([[1000, 0, 0, 0], [0, 0, 0, 3000]])
        (block,) = drawn(method, counts, Fraction(10**6), domain=GRID)
        assert np.abs(block.reshape(2, 4) - counts).max() < 500

    def test_distribution_function_is_close(self) -> None:
        counts = np.array([1000, 0, 0, 3000])
        (block,) = drawn(EmpiricalCdf(), counts, Fraction(10), domain=Domain((numeric("age", 3, nullable=True),)))
        assert np.abs(np.cumsum(block - counts)).max() < 20

    def test_what_was_charged_decides(self, monkeypatch) -> None:
        """The epsilon of one set, from the parameters."""
        asked = []

        def prior(epsilon, rows, cells):
            asked.append((epsilon, rows, cells))
            return Fraction(1)

        monkeypatch.setattr("dpsql.methods.histograms.multinomial_dirichlet.dirichlet_prior", prior)
        monkeypatch.setattr("dpsql.methods.histograms.dp_prior.fixed_prior", prior)
        for method in (MultinomialDirichlet(), DpPrior()):
            drawn(method, np.array([4, 3]), Fraction(1, 3), sets=4)
        assert asked == [(Fraction(1, 12), 7, 2)] * 2

    def test_noise_is_fresh_in_every_set(self) -> None:
        blocks = drawn(LaplaceSanitizer(), np.zeros((2, 4), np.int64), Fraction(1, 1000), 20, PRIVATE, GRID)
        assert len({tuple(block) for block in blocks}) == 20
        spread = np.abs(np.stack(blocks)).mean()  # scale 20,000: mean magnitude of 160 draws
        assert 10_000 < spread < 35_000


class TestSamplers:
    @pytest.mark.parametrize("alpha", [Fraction(0), Fraction(1, 3), Fraction(-1)])
    def test_alpha_must_be_dyadic(self, alpha: Fraction) -> None:
        with pytest.raises(ArgumentError, match="above 0 and a multiple of a power of two"):
            multinomial.multinomial(np.array([1, 2]), alpha, 3)

    @pytest.mark.parametrize("alpha", [Fraction(2**62), Fraction(1, 2**62)])
    def test_alpha_must_fit(self, alpha: Fraction) -> None:
        with pytest.raises(ArgumentError, match="too large or too fine"):
            multinomial.dirichlet_multinomial(np.array([1, 2]), alpha, 3)

    @pytest.mark.parametrize("epsilon", [0, -1.0, float("nan"), float("inf"), True, "1"])
    def test_epsilon(self, epsilon) -> None:
        for function in (multinomial.dirichlet_prior, multinomial.fixed_prior):
            with pytest.raises(ArgumentError, match="positive finite"):
                function(epsilon, 10, 2)

    def test_rows(self) -> None:
        for function in (multinomial.dirichlet_prior, multinomial.fixed_prior):
            with pytest.raises(ArgumentError, match="rows = 0"):
                function(Fraction(1), 0, 2)
            with pytest.raises(ArgumentError, match="cells = 0"):
                function(Fraction(1), 10, 0)

    def test_tiny_epsilon_is_uniform(self) -> None:
        assert multinomial.dirichlet_prior(Fraction(1, 10**20), 1000, 10) is None
        (block,) = drawn(MultinomialDirichlet(), np.array([100_000, 0]), Fraction(1, 10**30))
        assert abs(int(block[0]) - 50_000) < 1000

    def test_uniform_integers(self) -> None:
        bounds = np.array([1, 2, 3, 2**62, 2**61 + 1] * 4000)
        found = multinomial._uniform_below(bounds).reshape(-1, 5)
        assert (found >= 0).all() and (found < bounds[:5]).all()
        assert set(found[:, 1]) == {0, 1} and set(found[:, 2]) == {0, 1, 2}
        assert abs(found[:, 3].mean() / 2**61 - 1) < 0.06 and abs(found[:, 4].mean() / 2**60 - 1) < 0.06

    def test_words_that_would_bias_are_drawn_again(self, monkeypatch) -> None:
        words = iter([[2**64 - 1, 2**64 - 2], [5]])  # 2^64 - 1 begins an incomplete run of three
        monkeypatch.setattr(multinomial, "random_words", lambda count: np.array(next(words), dtype=np.uint64))
        assert multinomial._uniform_below(np.array([3, 3])).tolist() == [2, (2**64 - 2) % 3]

    def test_distribution_function_without_choice(self) -> None:
        for counts in ([7], [0, 0, 0]):
            (block,) = distribution_function.draw_histograms(np.array(counts), Fraction(1))
            assert block.tolist() == counts

    @pytest.mark.parametrize("epsilon", [Fraction(1, 10**18), Fraction(1, 100), Fraction(1), Fraction(10**6)])
    @pytest.mark.parametrize("counts", [[1, 0], [0, 3], [0, 0, 40], [5, 0, 0, 7, 1]])
    def test_distribution_functions_at_the_ends(self, counts: list[int], epsilon: Fraction) -> None:
        for block in distribution_function.draw_histograms(np.array(counts), epsilon, 5):
            assert block.min() >= 0 and block.sum() == sum(counts)
            assert epsilon < 10**6 or block.tolist() == counts

    def test_cost(self) -> None:
        cost = distribution_function.cost
        assert cost(50, 5_000_000, 1.0) < cost(50, 5_000_000, 0.1) < cost(50, 5_000_000, 0.01) < distribution_function.LIMIT
        assert cost(50, 1000, 1e-6) < distribution_function.LIMIT < cost(50, None, 1e-6)
        assert cost(300, None, 1.0) == float("inf") and cost(1, None, 1e-9) == 1.0
        assert cost(20, 100, 1.0, sets=1000) > cost(20, 100, 1.0)


class TestFit:
    def test_negative_counts_and_empty_sets(self) -> None:
        model = fitted(LaplaceSanitizer(), [np.array([-5, 20]), np.array([-1, -2]), np.array([30, 10])], 3)
        assert model.shares.tolist() == [[0, 1], [0.5, 0.5], [0.75, 0.25]]
        assert model.counts is None
        assert model.rows == round((15 - 3 + 40) / 3)
        assert LaplaceSanitizer().total(model) == 3 * model.rows

    def test_total(self) -> None:
        method = LaplaceSanitizer()
        assert method.total(fitted(method, [np.array([-5, 2])])) == 0
        assert method.total(fitted(method, [np.array([-5, 2])], total=994)) == 994
        assert method.total(fitted(method, [np.array([-5, 2])] * 10, 10, total=994)) == 9940

    def test_drawn_counts_are_kept(self) -> None:
        model = fitted(MultinomialDirichlet(), [np.array([3, 1]), np.array([0, 4])], 2, total=4)
        assert model.counts.tolist() == [[3, 1], [0, 4]] and model.shares.tolist() == [[0.75, 0.25], [0, 1]]
        assert model.rows == 4

    def test_output_domain(self) -> None:
        assert DpPrior().output_domain(GRID, {"sets": 2}).names == ("sex", "age", "set")
        assert DpPrior().output_domain(GRID, {}) == GRID

    @names
    def test_forecast(self, method) -> None:
        small, large = (method.forecast((2,), n, {"sets": 2}) for n in (1000, 5_000_000))
        assert 0 < small[0] < large[0] < 10 and 0 < small[1] <= large[1]


class TestSample:
    def test_the_drawn_rows_themselves(self) -> None:
        blocks = drawn(MultinomialDirichlet(), np.array([[10, 0, 3, 1], [0, 20, 0, 6]]), sets=3, domain=GRID)
        model = fitted(MultinomialDirichlet(), blocks, 3, 40, GRID)
        codes = rows(MultinomialDirichlet(), model, 120)
        assert codes[:, 2].tolist() == sorted(codes[:, 2].tolist())  # set by set
        for number, block in enumerate(blocks):
            own = codes[codes[:, 2] == number]
            assert np.bincount(own[:, 0] * 4 + own[:, 1], minlength=8).tolist() == block.tolist()
        first = codes[:40, 0] * 4 + codes[:40, 1]
        assert first.tolist() != sorted(first.tolist())  # shuffled

    def test_sets_share_the_rows(self) -> None:
        model = fitted(MultinomialDirichlet(), [np.array([4, 4])] * 4, 4, 8)
        codes = rows(MultinomialDirichlet(), model, 10)
        assert np.bincount(codes[:, 1]).tolist() == [3, 3, 2, 2]
        assert rows(MultinomialDirichlet(), model, 0).size == 0
        with pytest.raises(ArgumentError, match="rows = -1"):
            MultinomialDirichlet().sample(model, -1, np.random.default_rng(0))

    def test_other_numbers_of_rows_are_random(self) -> None:
        model = fitted(MultinomialDirichlet(), [np.array([50, 0, 50])], total=100, domain=Domain((categorical("a", 3),)))
        found = [np.bincount(rows(MultinomialDirichlet(), model, 1000, seed)[:, 0], minlength=3) for seed in range(200)]
        first = np.array(found)[:, 0]
        assert (np.array(found)[:, 1] == 0).all()
        assert abs(first.mean() - 500) < 6 and 190 < first.var() < 330  # 250 for independent rows

    def test_same_seed_same_rows(self) -> None:
        model = fitted(LaplaceSanitizer(), [np.array([70, 30])])
        again = [rows(LaplaceSanitizer(), model, 500, seed) for seed in (1, 1, 2)]
        assert (again[0] == again[1]).all() and (again[0] != again[2]).any()

    @pytest.mark.parametrize("cells", [3, 50])
    def test_blocks(self, cells: int, monkeypatch) -> None:
        """Blocks are bounded; shuffling in pieces keeps the rows."""
        monkeypatch.setattr(histogram, "_BLOCK", 100)
        monkeypatch.setattr(histogram, "_SHUFFLED", 350)
        monkeypatch.setattr(histogram, "_SORTED_FROM", 10)
        counts = np.arange(cells) * 1200 // (cells * (cells - 1))
        rng = np.random.default_rng(0)
        blocks = list(histogram.shuffled_rows(counts, rng))
        assert max(block.size for block in blocks) <= 100
        assert np.bincount(np.concatenate(blocks), minlength=cells).tolist() == counts.tolist()
        assert all(len(set(a)) > 1 for a in blocks)
        shares = np.append(counts, [0.0]) / counts.sum()
        blocks = list(histogram.random_rows(shares, 20_050, rng))
        assert [block.size for block in blocks] == [100] * 200 + [50]
        found = np.bincount(np.concatenate(blocks), minlength=cells + 1)
        assert found[0] == found[-1] == 0  # no mass
        assert np.abs(found / 20_050 - shares).max() < 5 * np.sqrt(0.25 / 20_050)
        unsorted = sum(bool((np.diff(block) < 0).any()) for block in blocks)
        assert unsorted == len(blocks)

    def test_all_cells_decode(self) -> None:
        model = fitted(MultinomialDirichlet(), [np.arange(8)], total=28, domain=GRID)
        codes = rows(MultinomialDirichlet(), model, 28)
        wanted = list(itertools.chain.from_iterable([divmod(cell, 4)] * cell for cell in range(8)))
        assert sorted(map(tuple, codes.tolist())) == wanted
