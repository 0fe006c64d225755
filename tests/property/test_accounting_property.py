"""Budgets can be spent to the last digit, and costs behave like costs."""

import itertools
import json
import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql import accounting as acc
from dpsql.accounting.exact import limit_down, round_down, round_up, total
from dpsql.noise import scale_grid

EPSILONS = (1e-3, 0.01, 0.1, 0.3, 1.0, 2.7, 10.0, 50.0)
TABLES = (1, 2, 7, 105, 20_100, 2_000_000)
PROFILE = settings(max_examples=60, deadline=None, derandomize=True)


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
        if mechanism == "gaussian" and found.scales[0] < Fraction(58, 100):
            continue  # the smallest sigma there is: less than the budget is spent
        assert not acc.fits(budget, [found.charge], found.charge)
        if accountant == "zcdp":  # and nothing is wasted
            limit = acc.rho_limit(epsilon, delta, gaussian=mechanism == "gaussian")
            assert found.charge.rho > limit * Decimal("0.99999")


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
    )  # fmt: skip
    assert acc.fits(acc.Budget(epsilon, delta, accountant), [], found.charge)
    assert all(scale == scale_grid(scale) for scale in found.scales[:1])
    # the cost follows from the events alone
    again = acc.charge_for([acc.event_from_json(json.loads(json.dumps(e.to_json()))) for e in found.charge.events],
                           delta=delta, accountant=accountant)  # fmt: skip
    assert again.rho == found.charge.rho
    assert float(again.epsilon) <= epsilon * (1 + 1e-9)


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
@given(st.floats(0.6, 1e6), st.floats(0.5, 10), st.integers(1, 10**6))
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
