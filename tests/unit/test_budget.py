"""Budgets: what fits, what is left, what is shown; closed forms and messages."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest

from dpsql import accounting as acc
from dpsql.accounting.gaussian import gdp_of_pure
from dpsql.errors import ArgumentError, CalibrationError

DELTA = 2.0**-30


def _charge(rho: str, epsilon: str = "0.1", delta: str = "1e-10", gaussian: bool = True) -> acc.Charge:
    return acc.Charge(rho=Decimal(rho), epsilon=Decimal(epsilon), delta=Decimal(delta), gaussian=gaussian)


def test_basic_budget_adds_decimals() -> None:
    budget = acc.Budget(0.3, 3e-10, "basic")
    spent = [_charge("0", "0.1"), _charge("0", "0.1")]
    assert acc.fits(budget, spent, _charge("0", "0.1"))
    assert not acc.fits(budget, spent, _charge("0", "0.100000000000000000000001"))
    assert not acc.fits(budget, spent, _charge("0", "0.1", "1.1e-10"))
    assert acc.shortfall(budget, spent, _charge("0", "0.2")) == (0.2, 0.1, "epsilon")
    assert acc.shortfall(budget, spent, _charge("0", "0.1", "2e-10")) == (2e-10, 1e-10, "delta")
    state = acc.remaining(budget, spent)
    assert (state.epsilon_spent, state.epsilon_left, state.delta_spent, state.delta_left) == (0.2, 0.1, 2e-10, 1e-10)
    assert state.rho_limit is None and state.rho_left is None
    assert acc.total_guarantee(budget, spent).epsilon == 0.2


def test_charges_of_unknown_events_have_the_smaller_limit() -> None:
    budget = acc.Budget(1.0, DELTA)
    gaussian, mixed = (acc.rho_limit(1.0, DELTA, gaussian=g) for g in (True, False))
    assert mixed < gaussian
    between = _charge("0.0117")
    assert mixed < between.rho < gaussian
    assert acc.fits(budget, [], between)
    assert not acc.fits(budget, [], _charge("0.0117", gaussian=False))
    assert not acc.fits(budget, [between], _charge("0.0000001", gaussian=False))
    assert not acc.fits(budget, [_charge("0.0001", gaussian=False)], between)
    assert acc.fits(budget, [_charge("0.0001", gaussian=False)], _charge("0.0112"))
    requested, left, unit = acc.shortfall(budget, [between], _charge("0.005"))
    assert (requested, unit) == (0.005, "rho") and left == pytest.approx(float(gaussian) - 0.0117)
    assert acc.shortfall(budget, [between], _charge("0.005", gaussian=False)).left == 0
    assert acc.remaining(budget, [_charge("0.0001", gaussian=False)]).rho_left == float(mixed - Decimal("0.0001"))


def _pure(epsilon: str, budget: acc.Budget, count: int = 1) -> acc.Charge:
    return acc.charge_for([acc.PureEvent(Fraction(epsilon), count)], delta=budget.delta, accountant="zcdp")


def _select(epsilon: str, delta: Decimal, budget: acc.Budget) -> acc.Charge:
    return acc.charge_for([acc.SelectionEvent(Fraction(epsilon), Fraction(delta))], delta=budget.delta, accountant="zcdp")


def test_pure_releases_fill_a_budget_by_their_plain_sum() -> None:
    budget = acc.Budget(10, 1e-9)
    five = _pure("5", budget)
    assert (five.epsilon, five.delta) == (5, 0)
    assert acc.fits(budget, [five], five)
    assert not acc.fits(budget, [five, five], _pure("1e-24", budget))
    state = acc.remaining(budget, [five])
    assert state.pure_epsilon_left == 5 and state.epsilon_spent == 5
    assert acc.remaining(budget, []).pure_epsilon_left == 10
    assert acc.remaining(budget, [five, five]).pure_epsilon_left == 0 == acc.remaining(budget, [five, five]).epsilon_left
    assert acc.shortfall(budget, [five], _pure("6", budget)) == (6, 5, "epsilon")
    assert acc.total_guarantee(budget, [five, five]).epsilon == 10
    assert acc.total_guarantee(budget, [five, five, five]).epsilon == 15


def test_pure_and_gaussian_releases_share_a_budget() -> None:
    """After a pure 5, Gaussian releases have 0.70 of the rho that (5, delta) alone would give: scales 1.20 times as large."""
    budget = acc.Budget(10, 1e-9)
    five = _pure("5", budget)
    state = acc.remaining(budget, [five])
    alone = acc.rho_limit(5.0, 1e-9, gaussian=True)
    assert state.rho_left is not None and state.rho_limit is not None
    assert state.rho_left / float(alone) == pytest.approx(0.696, abs=0.001)
    assert state.rho_limit == pytest.approx(state.rho_spent + state.rho_left, rel=1e-15)
    assert 4 < state.epsilon_left < 5
    rest = acc.calibrate(mechanism="gaussian", tables=105, epsilon=state.epsilon_left, delta=1e-9, neighbors="add_remove").charge
    for books in ([five, rest], [rest, five]):
        assert acc.fits(budget, books) and 9.99 < acc.total_guarantee(budget, books).epsilon <= 10
        assert acc.remaining(budget, books).pure_epsilon_left == 0
        assert not acc.fits(budget, books, rest)
    both = acc.charge_for([*five.events, *rest.events], delta=1e-9, accountant="zcdp")
    assert acc.fits(budget, [], both) and not both.gaussian and both.delta == Decimal("1e-9")
    assert 9.99 < both.epsilon <= 10
    missing = acc.shortfall(budget, [five], acc.calibrate(
        mechanism="gaussian", tables=1, epsilon=5, delta=1e-9, neighbors="add_remove").charge)
    assert missing.unit == "rho" and missing.left == state.rho_left < missing.requested
    again = acc.shortfall(budget, [five], acc.charge_for([*both.events, *both.events], delta=1e-9, accountant="zcdp"))
    assert again.unit == "rho" and again.left == 0  # its own pure events leave nothing


def test_many_small_pure_releases_are_cheaper_than_their_plain_sum() -> None:
    budget = acc.Budget(1.0, 1e-9)
    many = _pure("1/100", budget, 200)
    assert many.epsilon < 1 and many.delta == Decimal("1e-9")  # the plain sum is 2
    assert acc.fits(budget, [], many)
    assert not acc.fits(budget, [many], _pure("1/2", budget))
    left = acc.remaining(budget, [many]).pure_epsilon_left
    assert 0 < left < 0.1
    more = _pure("1/100", budget, 100)
    requested, shown, unit = acc.shortfall(budget, [many], more)
    assert not acc.fits(budget, [many], more) and unit == "epsilon" and requested > shown == left


def test_selections_have_a_share_of_delta_and_cost_epsilon_like_pure_events() -> None:
    budget = acc.Budget(1.0, 1e-9)
    each = acc.selection_delta(budget.delta)
    assert each == Decimal("1.875e-13")
    small = _select("1/20", each, budget)
    assert (small.epsilon, small.delta, small.gaussian) == (Decimal("0.05"), each, False)
    assert acc.fits(budget, [small] * 15, small)
    assert not acc.fits(budget, [small] * 16, small)
    assert acc.shortfall(budget, [small] * 16, small) == (float(each), 0, "delta")
    assert acc.fits(budget, [small] * 16, _pure("1/5", budget))  # 0.8 + 0.2
    assert not acc.fits(budget, [small] * 16, _pure("0.200001", budget))
    assert acc.total_guarantee(budget, [small] * 4).epsilon == pytest.approx(0.2)
    assert math.isinf(acc.total_guarantee(budget, [small] * 17).epsilon)
    for state in (acc.remaining(budget, [small] * 17), acc.remaining(budget, [_select("2", each, budget)])):
        assert state.epsilon_left == state.pure_epsilon_left == state.rho_left == 0
    assert acc.shortfall(budget, [], _select("2", each, budget)) == (2, 1, "epsilon")
    # rule M: many small ones
    tiny = [acc.SelectionEvent(Fraction(1, 1000), Fraction(1, 10**17), 2000)]
    assert acc.fits(budget, [], acc.charge_for(tiny, delta=1e-9, accountant="zcdp"))
    # a small selection leaves what a small pure event leaves: no limit falls because there is one
    for limit in (budget, acc.Budget(1e-6, 0.5), acc.Budget(3, 1e-3)):
        chosen, pure = _select("1e-9", acc.selection_delta(limit.delta), limit), _pure("1e-9", limit)
        assert acc.remaining(limit, [chosen]) == acc.remaining(limit, [pure])


@pytest.mark.parametrize("epsilon", ["0.01", "0.1", "0.5"])
def test_a_bought_domain_costs_gaussian_noise_what_its_epsilon_does(epsilon: str) -> None:
    """It used to close the exact Gaussian rule: 1.16 to 1.21 times the noise after a selection at 0.01."""
    for limit in (1.0, 3.0, 10.0):
        budget = acc.Budget(limit, 1e-9)
        full = acc.remaining(budget, []).rho_left
        left = acc.remaining(budget, [_select(epsilon, acc.selection_delta(budget.delta), budget)]).rho_left
        assert full is not None and left is not None
        assert left >= (full - float(gdp_of_pure(Fraction(epsilon)))) * (1 - 1e-9)
        if epsilon == "0.01":
            assert math.sqrt(full / left) < 1.003


def test_selections_under_basic_add_epsilon_and_delta() -> None:
    event = acc.SelectionEvent(Fraction(1, 10), Fraction(1, 10**12), 2)
    alone = acc.charge_for([event], delta=0, accountant="basic")
    assert (alone.epsilon, alone.delta) == (Decimal("0.2"), Decimal("2e-12"))
    assert acc.charge_for([event], delta=2e-12, accountant="basic").delta == Decimal("2e-12")
    pure = acc.PureEvent(Fraction(1, 10), 3)
    assert acc.charge_for([event, pure], delta=0, accountant="basic").epsilon == Decimal("0.5")
    normal = acc.GaussianEvent(Fraction(100))
    with pytest.raises(ArgumentError, match="Gaussian noise needs a delta above 0"):
        acc.charge_for([event, normal], delta=2e-12, accountant="basic")
    mixed = acc.charge_for([event, normal], delta=1e-9, accountant="basic")
    rest = acc.charge_for([normal], delta=Decimal("9.98e-10"), accountant="basic")
    assert float(mixed.epsilon) == pytest.approx(0.2 + float(rest.epsilon), rel=1e-12)
    assert mixed.epsilon >= rest.epsilon + Decimal("0.2")


def test_what_a_selection_may_cost() -> None:
    assert acc.selection_delta(Decimal("1e-9"), 1) == acc.selection_share(Decimal("1e-9")) == Decimal("3e-12")
    for bad in (0, 1, 1e-37, "x", None, math.nan):
        with pytest.raises(ArgumentError, match="delta"):
            acc.selection_delta(bad)
    with pytest.raises(ArgumentError, match="calls = 0"):
        acc.selection_delta(1e-9, 0)
    for epsilon, delta in ((0, 0.1), (1, 0), (1, 1), (1, 2)):
        with pytest.raises(ArgumentError):
            acc.SelectionEvent(Fraction(epsilon), Fraction(delta))
    assert acc.SelectionEvent(Fraction(1), Decimal("1e-12")).delta == Fraction(1, 10**12)
    assert acc.SelectionEvent(Fraction(1), Fraction(1, 10**12)).rho == acc.PureEvent(Fraction(1)).rho
    greedy = [acc.GaussianEvent(Fraction(100)), acc.SelectionEvent(Fraction(1, 10), Fraction(1, 10**9))]
    with pytest.raises(CalibrationError, match="next to Gaussian noise they can have 3e-12 at most"):
        acc.charge_for(greedy, delta=1e-9, accountant="zcdp")
    budget = acc.Budget(1.0, 1e-9)
    alone = _select("1/10", Decimal("1e-9"), budget)
    assert (alone.epsilon, alone.delta) == (Decimal("0.1"), Decimal("1e-9"))
    assert acc.shortfall(budget, [], alone) == (1e-9, 3e-12, "delta") and not acc.fits(budget, [], alone)


def test_guarantee_is_shown_at_most_as_the_budget() -> None:
    budget = acc.Budget(1.0, DELTA)
    full = acc.Charge(acc.rho_limit(1.0, DELTA, gaussian=True), Decimal(1), Decimal(0), True)
    assert 1 - 1e-9 < acc.total_guarantee(budget, [full]).epsilon <= 1
    assert acc.total_guarantee(budget, []) == (0.0, Decimal(0))
    over = _charge("0.02")
    assert acc.total_guarantee(budget, [over]).epsilon > 1
    state = acc.remaining(budget, [full])
    assert state.epsilon_left == 0 and state.rho_left == 0 and state.delta_spent == pytest.approx(DELTA)
    fresh = acc.remaining(budget, [])
    assert fresh.epsilon_left == 1 and fresh.epsilon_spent == 0 and fresh.delta_spent == 0
    assert acc.remaining(budget, [over]).rho_left == 0


def test_the_share_used_is_in_the_unit_that_binds() -> None:
    budget = acc.Budget(1.0, DELTA)
    limit = acc.rho_limit(1.0, DELTA, gaussian=True)
    assert acc.share_used(budget, []) == 0
    assert acc.share_used(budget, [acc.Charge(limit, Decimal(1), Decimal(0), True)]) == 1
    assert acc.share_used(budget, [acc.Charge(limit * 2, Decimal(1), Decimal(0), True)]) == 2  # a lowered budget
    tenth = acc.calibrate(mechanism="gaussian", tables=3, epsilon=0.2, delta=DELTA, neighbors="add_remove").charge
    one, two = acc.share_used(budget, [tenth]), acc.share_used(budget, [tenth, tenth])
    assert two == pytest.approx(2 * one) and one == pytest.approx(float(tenth.rho / limit))
    assert acc.share_used(budget, [_pure("1/4", budget)]) == 0.25  # alone: the plain sum
    assert 0.25 < acc.share_used(budget, [_pure("1/4", budget), tenth]) < 0.5
    each = acc.selection_delta(budget.delta)
    assert acc.share_used(budget, [_select("1/20", each, budget)] * 4) == 0.2
    assert acc.share_used(budget, [_select("1/20", each, budget)] * 16) == pytest.approx(0.8)
    assert acc.share_used(budget, [_select("1/200", each, budget)] * 17) == pytest.approx(17 / 16)  # their share of delta
    basic = acc.Budget(0.4, 4e-10, "basic")
    assert acc.share_used(basic, [_charge("0", "0.1", "1e-10")]) == 0.25
    assert acc.share_used(basic, [_charge("0", "0.1", "3e-10")]) == 0.75
    assert acc.share_used(acc.Budget(0.4, 0, "basic"), [_charge("0", "0.1", "0")]) == 0.25
    assert math.isinf(acc.share_used(acc.Budget(0.4, 0, "basic"), [_charge("0", "0.1", "3e-10")]))


def test_a_plan_says_where_laplace_noise_pays_for_what_else_may_be_bought() -> None:
    arguments = {"mechanism": "laplace", "epsilon": 1.0, "delta": 1e-9, "neighbors": "replace_one"}
    [note] = acc.calibrate(tables=105, **arguments).notes
    needed = 2 / acc.pure_epsilon_each(105, 1.0, 1e-9)
    factor = float(acc.calibrate(tables=105, **arguments).scales[0]) / needed
    assert 1.15 < factor < 1.3 and f"{factor:.2f} times" in note
    assert not acc.calibrate(tables=1, **arguments).notes  # nothing is to be had
    assert not acc.calibrate(tables=105, accountant="basic", **arguments).notes
    assert not acc.calibrate(tables=105, **{**arguments, "mechanism": "gaussian"}).notes


def test_what_is_shown_as_left_can_be_bought() -> None:
    budget = acc.Budget(3.0, 1e-9)
    charges: list[acc.Charge] = []
    for epsilon in (0.7, 1.1, 0.3):
        charges.append(acc.calibrate(mechanism="gaussian", tables=10, epsilon=epsilon, delta=1e-9, neighbors="add_remove").charge)
        left = acc.remaining(budget, charges).epsilon_left
        last = acc.calibrate(mechanism="gaussian", tables=3, epsilon=left, delta=1e-9, neighbors="add_remove").charge
        assert acc.fits(budget, charges, last)
        more = acc.calibrate(mechanism="gaussian", tables=3, epsilon=left * 1.0001, delta=1e-9, neighbors="add_remove").charge
        assert not acc.fits(budget, charges, more)


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-9), (1, 0), (1, 1), (-1, 1e-9), (math.nan, 1e-9), (1, "x")])
def test_budgets_out_of_range_are_refused(epsilon, delta) -> None:
    with pytest.raises(ArgumentError):
        acc.Budget(epsilon, delta)


def test_charges_must_be_decimals_of_at_least_zero() -> None:
    for bad in (Decimal(-1), Decimal("NaN"), 0.5):
        with pytest.raises(ArgumentError, match="rho"):
            acc.Charge(bad, Decimal(0), Decimal(0), True)
    with pytest.raises(ArgumentError, match="gaussian = True"):
        acc.Charge(Decimal(1), Decimal(0), Decimal(0), True, (acc.PureEvent(Fraction(1)),))
