"""The method `poisson_gamma`: expected counts, prices, what is refused and why, draws."""

import json
from fractions import Fraction

import numpy as np
import pytest

from dpsql.accounting.events import PureEvent
from dpsql.domains.attributes import Attribute, Domain
from dpsql.errors import ArgumentError
from dpsql.mechanisms import poisson_gamma as mechanism
from dpsql.mechanisms.poisson_gamma import PoissonGammaPrior, poisson_gamma_prior, relative_strength
from dpsql.methods.base import Contract, Counted
from dpsql.methods.histograms.multinomial_dirichlet import MultinomialDirichlet
from dpsql.methods.histograms.poisson_gamma import PoissonGamma
from dpsql.tables.statistics import Statistics

PUBLIC = Contract("replace_one", 1, True)
SIX = Domain((Attribute("race", "VARCHAR", "categorical", tuple("abcdef"), nullable=False),))
GRID = Domain((Attribute("x", "VARCHAR", "categorical", ("a", "b"), nullable=False), Attribute("y", "VARCHAR", "categorical", ("c",))))
METHOD = PoissonGamma()


def drawn(counts: np.ndarray, options: dict, epsilon=Fraction(1), domain: Domain = SIX) -> list[np.ndarray]:
    price = METHOD.price(domain, PUBLIC, epsilon, options)
    parameters = json.loads(json.dumps(price.parameters))  # as the ledger keeps them
    blocks = METHOD.draw(Counted({tuple(range(counts.ndim)): counts}, int(counts.sum())), domain, parameters, {})
    assert tuple(block.size for block in blocks) == METHOD.lengths(domain, options)
    return blocks


class TestPlan:
    def test_one_table_of_all_columns(self) -> None:
        assert METHOD.plan(GRID, {}).cliques == ((0, 1),)
        assert METHOD.plan(GRID, {"expected": [1, 2, 3, 4.5]}).cliques == ((0, 1),)

    @pytest.mark.parametrize(
        ("expected", "text"),
        [
            ("even", "expected = 'even': must be 'equal' or a list of 6 numbers, one for each cell of \\['race'\\]"),
            (7, "'equal' or a list of 6 numbers"),
            (None, "'equal' or a list of 6 numbers"),
            ([1, 2, 3], "a list of 3.*list of 6 numbers"),
            ([1, 2, 3, 4, 5, 0], "finite numbers above 0"),
            ([1, 2, 3, 4, 5, "6"], "finite numbers above 0"),
            ([1, 2, 3, 4, 5, True], "finite numbers above 0"),
            ([1, 2, 3, 4, 5, float("nan")], "finite numbers above 0"),
            ([1, 2, 3, 4, 5, float("inf")], "finite numbers above 0"),
            ([1, 2, 3, 4, 5, 101], "at most 100 times the smallest"),
        ],
    )
    def test_expected_counts(self, expected: object, text: str) -> None:
        for ask in (lambda o: METHOD.plan(SIX, o), lambda o: METHOD.price(SIX, PUBLIC, Fraction(1), o)):
            with pytest.raises(ArgumentError, match=text) as error:
                ask({"expected": expected})
            assert error.value.argument == "expected"

    def test_options(self) -> None:
        with pytest.raises(ArgumentError, match="not an option; there are 'sets', 'expected'"):
            METHOD.plan(SIX, {"expectation": 1})
        with pytest.raises(ArgumentError, match="whole number from 1 to 1000"):
            METHOD.plan(SIX, {"sets": 0})
        many = Domain((Attribute("n", "INTEGER", "categorical", tuple(map(str, range(10_001))), nullable=False),))
        with pytest.raises(ArgumentError, match="at most 10000"):
            METHOD.plan(many, {"expected": [1] * 10_001})


class TestPrice:
    def test_pure_and_split_over_the_sets(self) -> None:
        price = METHOD.price(SIX, PUBLIC, Fraction(5), {"sets": 10, "expected": [1, 1, 1, 2, 2, 2]})
        assert price.events == (PureEvent(Fraction(1, 2), 10),)
        assert price.parameters == {"epsilon": "1/2", "sets": 10, "expected": [1, 1, 1, 2, 2, 2]}
        assert price.notes[0] == "sets: 10, epsilon 0.5 each"

    def test_a_private_number_of_rows(self) -> None:
        for contract in (Contract("add_remove", 1, False), Contract("replace_one", 1, False)):
            with pytest.raises(ArgumentError, match="fixes the number n of rows"):
                METHOD.price(SIX, contract, Fraction(1), {})

    def test_notes(self) -> None:
        (note,) = METHOD.price(SIX, PUBLIC, Fraction(5), {}).notes
        assert "n * 0.00678365" in note and "released shares are 0.0391 uniform" in note  # as multinomial_dirichlet
        assert "0.0391 uniform" in MultinomialDirichlet().price(SIX, PUBLIC, Fraction(5), {}).notes[0]
        (note,) = METHOD.price(SIX, PUBLIC, Fraction(5), {"expected": [1, 2, 3, 4, 5, 6]}).notes
        strength = float(note.split("n * ")[1].split(";")[0])
        assert 0.00678365 < strength < 0.0072 and "prior strength / expected count" in note

    def test_forecast_grows_with_draws_that_are_not_kept(self) -> None:
        times = [METHOD.forecast((6,), 10**6, {"expected": e})[0] for e in ("equal", [9, 9, 9, 10, 10, 10], [1, 1, 1, 1, 1, 100])]
        assert times[0] < times[1] < times[2] < 10


class TestPrior:
    def test_equal_numbers_are_equal(self) -> None:
        assert poisson_gamma_prior(Fraction(1), 100, np.full(3, 2.5)).kept is None

    def test_range(self) -> None:
        for wrong in ([1.0, 0.0], [1.0, 101.0], [1.0, np.nan], [1.0, np.inf]):
            with pytest.raises(ArgumentError, match="at most 100 times"):
                poisson_gamma_prior(Fraction(1), 10, np.array(wrong))

    def test_the_strength_over_n_hardly_depends_on_n(self) -> None:
        expected = np.array([1.0, 2.0, 3.0])
        limit = relative_strength(0.7, expected)
        for rows in (300, 10**6):
            strength = poisson_gamma_prior(Fraction(7, 10), rows, expected).strength
            assert strength is not None and float(strength) / rows == pytest.approx(limit, rel=3e-3)

    @pytest.mark.parametrize("epsilon", [Fraction(1, 10**30), Fraction(1, 10**200), Fraction(700), Fraction(10**6)])
    def test_the_ends(self, epsilon: Fraction) -> None:
        prior = poisson_gamma_prior(epsilon, 1000, np.array([1.0, 2.0]))
        assert (prior.strength is None) == (epsilon < 1)
        found = mechanism.poisson_gamma(np.array([1000, 0]), prior, 1000)
        assert found.sum() == 1000
        assert found[0] == 1000 if epsilon > 1 else 200 < found[0] < 470  # a third


class TestDraw:
    @pytest.mark.parametrize("expected", ["equal", [1, 1, 1, 2, 2, 50]])
    @pytest.mark.parametrize("sets", [1, 3])
    def test_as_many_rows_as_the_source(self, expected: object, sets: int) -> None:
        for counts in ([700, 294, 0, 0, 0, 1], [0, 5, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0], [0] * 6):
            blocks = drawn(np.array(counts), {"sets": sets, "expected": expected})
            assert [int(block.sum()) for block in blocks] == [sum(counts)] * sets
            assert min(int(block.min()) for block in blocks) >= 0

    def test_the_order_of_the_cells(self) -> None:
        """A strong prior, and counts elsewhere than where they are expected: the expectations come out, cell by cell."""
        (block,) = drawn(np.array([[10_000, 0], [0, 0]]), {"expected": [1, 2, 30, 5]}, Fraction(1, 10**9), GRID)
        assert np.abs(block / 10_000 - np.array([1, 2, 30, 5]) / 38).max() < 0.05

    def test_much_epsilon_gives_the_counts(self) -> None:
        counts = np.array([500, 300, 0, 0, 100, 100]) * 100
        (block,) = drawn(counts, {"expected": [1, 1, 10, 10, 1, 1]}, Fraction(10**4))
        assert np.abs(block - counts).max() < 2500 and block[2:4].sum() == 0

    def test_shares_are_pulled_towards_what_is_expected(self) -> None:
        counts, expected = np.array([600, 0, 0, 0, 0, 400]) * 100, [60, 5, 5, 5, 5, 40]
        errors = [
            np.abs(np.mean(drawn(counts, {"sets": 20, "expected": e}, Fraction(20)), axis=0) - counts).sum() for e in (expected, "equal")
        ]
        assert errors[0] < errors[1] / 2

    def test_what_was_charged_decides(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = []

        def prior(epsilon: Fraction, rows: int, expected: np.ndarray) -> PoissonGammaPrior:
            asked.append((epsilon, rows, expected.tolist()))
            return PoissonGammaPrior(Fraction(1), None, rows)

        monkeypatch.setattr("dpsql.methods.histograms.poisson_gamma.poisson_gamma_prior", prior)
        drawn(np.array([4, 3, 0, 0, 0, 0]), {"sets": 4, "expected": [1, 2, 1, 1, 1, 1]}, Fraction(1, 3))
        drawn(np.array([4, 3, 0, 0, 0, 0]), {}, Fraction(1, 3))
        assert asked == [(Fraction(1, 12), 7, [1, 2, 1, 1, 1, 1]), (Fraction(1, 3), 7, [1] * 6)]

    def test_rows_are_those_that_were_drawn(self) -> None:
        blocks = drawn(np.array([40, 30, 20, 10, 0, 0]), {"sets": 2, "expected": [4, 3, 2, 1, 1, 1]}, Fraction(4))
        model = METHOD.fit(Statistics(SIX.sizes, {}, {}, "poisson_gamma", 100, tuple(blocks), SIX), {"sets": 2})
        rows = np.concatenate(list(METHOD.sample(model, 200, np.random.default_rng(1))))
        for number, block in enumerate(blocks):
            assert np.bincount(rows[rows[:, 1] == number, 0], minlength=6).tolist() == block.tolist()
