"""Budgets can be spent to the last digit, and costs behave like costs."""

import itertools
import json
import math
from decimal import Decimal
from fractions import Fraction

import pytest
from case_counts import cases
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpsql import accounting as acc
from dpsql.accounting.exact import limit_down, round_down, round_up, total
from dpsql.noise.discrete import scale_grid

EPSILONS = (1e-3, 0.01, 0.1, 0.3, 1.0, 2.7, 10.0, 50.0)
TABLES = (1, 2, 7, 105, 20_100, 2_000_000)
PROFILE = settings(max_examples=cases(60), deadline=None, derandomize=True)


@pytest.mark.parametrize("mechanism", acc.MECHANISMS)
@pytest.mark.parametrize("accountant", acc.ACCOUNTANTS)
@pytest.mark.parametrize("delta", [1e-3, 2.0**-30, 1e-12, 0.0])
def test_a_release_for_the_whole_budget_fits_it(mechanism: str, accountant: str, delta: float) -> None:
    if delta == 0 and (mechanism, accountant) != ("laplace", "basic"):
        return
    for epsilon, tables, neighbors in itertools.product(EPSILONS, TABLES, acc.NEIGHBORS):
        found = acc.calibrate(
            mechanism=mechanism, tables=tables, epsilon=epsilon, delta=delta, neighbors=neighbors, accountant=accountant
        )
        budget = acc.Budget(epsilon, delta, accountant)
        assert acc.fits(budget, [], found.charge)
        assert found.charge.epsilon <= Decimal(repr(epsilon))
        assert acc.total_guarantee(budget, [found.charge]).epsilon <= epsilon
        assert not acc.fits(budget, [found.charge], found.charge)
        if accountant == "zcdp":  # and nothing is wasted
            limit = acc.rho_limit(epsilon, delta, gaussian=mechanism == "gaussian")
            plain = found.charge.cost.pure_epsilon > Decimal(repr(epsilon)) * Decimal("0.99999")
            assert found.charge.rho > limit * Decimal("0.99999") or (found.method == "basic" and plain)


@PROFILE
@given(
    epsilon=st.floats(1e-3, 50),
    delta=st.floats(1e-15, 0.1),
    tables=st.integers(1, 3000),
    mechanism=st.sampled_from(acc.MECHANISMS),
    accountant=st.sampled_from(acc.ACCOUNTANTS),
    contributions=st.integers(1, 20),
)
def test_any_release_fits_a_budget_of_its_size(epsilon, delta, tables, mechanism, accountant, contributions) -> None:
    found = acc.calibrate(
        mechanism=mechanism, tables=tables, epsilon=epsilon, delta=delta, neighbors="replace_one",
        max_contributions=contributions, accountant=accountant,
    )
    assert acc.fits(acc.Budget(epsilon, delta, accountant), [], found.charge)
    assert all(scale == scale_grid(scale) for scale in found.scales[:1])
    # the cost follows from the events alone
    again = acc.charge_for([acc.event_from_json(json.loads(json.dumps(e.to_json()))) for e in found.charge.events],
                           delta=delta, accountant=accountant)
    assert again.rho == found.charge.rho
    assert float(again.epsilon) <= epsilon * (1 + 1e-9)


def test_every_calibration_of_a_rule_fits_a_budget_of_its_size() -> None:
    for epsilon, tables, method in itertools.product(EPSILONS, TABLES, ("basic", "zcdp")):
        if (method, tables, epsilon) == ("basic", 2_000_000, 1e-3):
            continue  # the samplers do not draw that much noise
        found = acc.calibrate(
            mechanism="laplace", tables=tables, epsilon=epsilon, delta=1e-9, neighbors="add_remove", calibration=method
        )
        best = acc.calibrate(mechanism="laplace", tables=tables, epsilon=epsilon, delta=1e-9, neighbors="add_remove")
        assert acc.fits(acc.Budget(epsilon, 1e-9), [], found.charge)
        assert best.scales[0] <= found.scales[0]


DELTAS = st.sampled_from([1e-2, 1e-6, 1e-9, 2.0**-30])
GAUSSIANS = st.builds(acc.GaussianEvent, st.fractions(Fraction(1, 5), 200), st.sampled_from([1.0, math.sqrt(2)]), st.integers(1, 30))
PURES = st.one_of(
    st.builds(acc.PureEvent, st.fractions(Fraction(1, 1000), 3, max_denominator=1000), st.integers(1, 30)),
    st.builds(acc.LaplaceEvent, st.fractions(1, 500, max_denominator=100), st.sampled_from([1.0, 2.0]), st.integers(1, 300)),
)
SELECTIONS = st.builds(acc.SelectionEvent, st.fractions(Fraction(1, 1000), 1, max_denominator=1000),
                       st.sampled_from([Fraction(1, 10**14), Fraction(1, 10**12), Fraction(1, 10**8)]))
RELEASES = st.one_of(
    st.tuples(GAUSSIANS), st.tuples(PURES), st.tuples(SELECTIONS), st.tuples(PURES, SELECTIONS), st.tuples(GAUSSIANS, PURES)
)
BOOKS = st.lists(RELEASES, max_size=6)
BUDGETS = st.builds(acc.Budget, st.sampled_from([0.5, 1.0, 3.0, 10.0]), DELTAS)


def _charges(books: list[tuple[acc.Event, ...]], budget: acc.Budget) -> list[acc.Charge]:
    return [acc.charge_for(events, delta=budget.delta, accountant="zcdp") for events in books]


@PROFILE
@given(BOOKS, BUDGETS, st.randoms(use_true_random=False))
def test_the_filter_is_monotone_and_blind_to_order(books, budget, random) -> None:
    charges = _charges(books, budget)
    shuffled = random.sample(charges, len(charges))
    states = [acc.fits(budget, shuffled[:n]) for n in range(len(charges) + 1)]
    assert states == sorted(states, reverse=True) and states[0]  # once it does not fit, nothing added makes it fit
    assert acc.fits(budget, charges) is states[-1]
    if charges:
        assert acc.fits(budget, charges[:-1], charges[-1]) is states[-1]
        assert acc.total_guarantee(budget, charges) == acc.total_guarantee(budget, shuffled)
        left = [getattr(acc.remaining(budget, shuffled[:n]), name) for name in ("epsilon_left", "rho_left", "pure_epsilon_left")
                for n in range(len(charges) + 1)]
        for i in range(0, len(left), len(charges) + 1):
            part = left[i : i + len(charges) + 1]
            assert part == sorted(part, reverse=True)


@PROFILE
@given(BOOKS, BUDGETS)
def test_the_share_used_is_at_most_one_exactly_where_the_books_fit(books, budget) -> None:
    charges = _charges(books, budget)
    assert (acc.share_used(budget, charges) <= 1) is acc.fits(budget, charges)


@PROFILE
@given(BOOKS, BUDGETS)
def test_charges_from_the_ledger_decide_the_same(books, budget) -> None:
    from dpsql.books.entries import canonical_json, charge_from_row

    charges = _charges(books, budget)
    rows = [(c.rho, c.epsilon, c.delta, canonical_json([e.to_json() for e in c.events])) for c in charges]
    again = [charge_from_row(*row) for row in rows]
    assert [c.cost for c in again] == [c.cost for c in charges]
    assert acc.fits(budget, again) is acc.fits(budget, charges)
    assert acc.remaining(budget, again) == acc.remaining(budget, charges)


@PROFILE
@given(BOOKS.filter(bool), BUDGETS)
def test_what_is_spent_is_the_smallest_budget_that_would_do(books, budget) -> None:
    charges = _charges(books, budget)
    found = acc.total_guarantee(budget, charges).epsilon
    assert acc.fits(budget, charges) is (found <= float(budget.epsilon))
    if math.isinf(found):
        assert acc.shortfall(budget, charges[:-1], charges[-1]).unit == "delta" or not acc.fits(budget, charges[:-1])
        return
    assert acc.fits(acc.Budget(found * (1 + 1e-7) + 1e-9, budget.delta), charges)
    if found > 1e-6:
        assert not acc.fits(acc.Budget(found * (1 - 1e-6) - 1e-9, budget.delta), charges)


@PROFILE
@example(books=[(acc.PureEvent(Fraction(131, 1000), 30),)], budget=acc.Budget(3.0, 0.01))  # fit with a Gaussian event, not without
@given(BOOKS, BUDGETS)
def test_what_is_left_can_be_bought_and_no_more(books, budget) -> None:
    charges = _charges(books, budget)
    state = acc.remaining(budget, charges)
    if not acc.fits(budget, charges):
        assert state.epsilon_left == state.rho_left == state.pure_epsilon_left == 0
        return
    pure = Fraction(repr(state.pure_epsilon_left))
    assert not acc.fits(budget, charges, *_charges([(acc.PureEvent(pure * Fraction("1.00002") + Fraction(1, 10**9)),)], budget))
    if pure > 0:
        assert acc.fits(budget, charges, *_charges([(acc.PureEvent(pure),)], budget))
    arguments = {"mechanism": "gaussian", "tables": 3, "delta": budget.delta, "neighbors": "add_remove"}
    if state.epsilon_left > 1e-6:
        assert acc.fits(budget, charges, acc.calibrate(epsilon=state.epsilon_left, **arguments).charge)
    more = acc.Charge(Decimal(repr(state.rho_left)) * Decimal("1.000001") + Decimal("1e-12"), Decimal(0), Decimal(0), True)
    assert not acc.fits(budget, charges, more)
    requested, left, unit = acc.shortfall(budget, charges, more)
    assert unit == "rho" and requested > left == state.rho_left


@PROFILE
@given(BOOKS, BUDGETS, st.one_of(GAUSSIANS, PURES, SELECTIONS))
def test_a_refusal_names_a_cost_above_what_is_left(books, budget, event) -> None:
    charges, [new] = _charges(books, budget), _charges([(event,)], budget)
    if acc.fits(budget, charges) and not acc.fits(budget, charges, new):
        requested, left, unit = acc.shortfall(budget, charges, new)
        assert requested > left >= 0
        assert unit in (("rho",) if new.gaussian else ("epsilon", "delta"))


@PROFILE
@given(st.lists(st.floats(0.05, 20), min_size=1, max_size=30), st.integers(0, 2**32))
def test_budget_shared_by_many_releases_is_exact(parts: list[float], seed: int) -> None:
    """Any split of the whole budget fits, in any order, and one more unit in the last place does not."""
    budget = acc.Budget(1.0, 1e-9)
    limit = acc.rho_limit(1.0, 1e-9, gaussian=True)
    whole = sum(map(Fraction, parts))
    rhos = [round_down(Fraction(limit) * Fraction(p) / whole) for p in parts]
    rhos.append(limit - total(rhos))
    charges = [acc.Charge(rho, Decimal(0), Decimal(0), True) for rho in rhos]
    rotated = charges[seed % len(charges) :] + charges[: seed % len(charges)]
    assert acc.fits(budget, rotated) and acc.total_guarantee(budget, rotated).epsilon <= 1
    assert not acc.fits(budget, rotated, acc.Charge(Decimal("1e-24"), Decimal(0), Decimal(0), True))


@PROFILE
@given(st.integers(1, 60))
def test_equal_decimal_shares_fill_a_basic_budget(releases: int) -> None:
    budget = acc.Budget(Decimal("0.1") * releases, Decimal("1e-10") * releases, "basic")
    charge = acc.calibrate(
        mechanism="laplace", tables=3, epsilon=0.1, delta=1e-10, neighbors="add_remove", accountant="basic"
    ).charge
    assert acc.fits(budget, [charge] * (releases - 1), charge)
    assert not acc.fits(budget, [charge] * releases, charge)


@PROFILE
@given(st.floats(0.1001, 1e6), st.floats(0.5, 10), st.integers(1, 10**6))
def test_costs_are_monotone(scale: float, sensitivity: float, count: int) -> None:
    for make in (acc.GaussianEvent, acc.LaplaceEvent):
        base = make(Fraction(scale), sensitivity, count).rho
        assert base > 0
        assert make(Fraction(scale) * 2, sensitivity, count).rho < base
        assert make(Fraction(scale), sensitivity * 2, count).rho > base
        assert make(Fraction(scale), sensitivity, count + 1).rho > base


@PROFILE
@given(st.floats(1e-3, 30), st.floats(1e-300, 0.9))
def test_conversions_are_ordered(epsilon: float, delta: float) -> None:
    exact, concentrated = acc.gaussian_mu(epsilon, delta) ** 2 / 2, acc.zcdp_rho(epsilon, delta)
    assert exact >= concentrated * (1 - 1e-9)  # the Gaussian is one of the mechanisms with this rho
    assert acc.zcdp_rho(epsilon, delta) >= acc.zcdp_rho(epsilon, delta / 2)
    assert acc.gaussian_mu(epsilon * 1.01, delta) > acc.gaussian_mu(epsilon, delta)
    k = 50
    assert epsilon / k * (1 - 1e-9) <= acc.pure_epsilon_each(k, epsilon, delta)
    assert acc.advanced_epsilon_each(k, epsilon, delta) <= acc.pure_epsilon_each(k, epsilon, delta) * (1 + 1e-9)


@PROFILE
@given(st.floats(1e-20, 1e13))
def test_limits_round_down_to_twelve_digits(value: float) -> None:
    limit = limit_down(value)
    slack = Fraction(value) - Fraction(limit)
    assert 0 <= slack <= Fraction(value) / 10**11 + Fraction(1, 10**24)
    if slack < Fraction(value) / 10**13 and value > 1e-8:
        return  # on a step
    nudged = math.nextafter(value, 0)
    assert limit_down(nudged) == limit or Fraction(limit) > Fraction(nudged)


@PROFILE
@given(st.fractions(0, 10**6))
def test_rounding_brackets(value: Fraction) -> None:
    low, high = round_down(value), round_up(value)
    assert Fraction(low) <= value <= Fraction(high)
    assert Fraction(high) - Fraction(low) in (0, Fraction(1, 10**24))
