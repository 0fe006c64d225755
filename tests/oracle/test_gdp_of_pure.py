"""Pure mechanisms as Gaussian ones: against mpmath, against randomised response, and in the filter of mixed books."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dpsql import accounting as acc
from dpsql.accounting.gaussian import gdp_of_pure

EPSILONS = [1e-9, 1e-4, 0.0131, 0.3, 0.999, 1.0, 1.001, 3.0, 20.0, 40.0]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_it_is_mu_squared_half_rounded_up(epsilon):
    with mpmath.workdps(60):
        share = mpmath.tanh(mpmath.mpf(epsilon) / 2)  # 2 Phi(mu / 2) - 1
        if epsilon < 15:
            mu = 2 * mpmath.sqrt(2) * mpmath.erfinv(share)
        else:
            tail = 1 / (1 + mpmath.exp(epsilon))
            mu = 2 * mpmath.findroot(lambda z: mpmath.log(mpmath.erfc(z / mpmath.sqrt(2)) / 2) - mpmath.log(tail), math.sqrt(2 * epsilon) - 0.5)
        wanted = mu**2 / 2
        found = mpmath.mpf(gdp_of_pure(Fraction(epsilon)).numerator) / gdp_of_pure(Fraction(epsilon)).denominator
        assert wanted <= found <= wanted * (1 + mpmath.mpf(10) ** -11)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 8.0])
def test_randomised_response_is_never_worse(epsilon):
    """The worst epsilon-DP pair: its delta at every level is at most that of the Gaussian of that mu, and equal nowhere above."""
    mu = math.sqrt(2 * float(gdp_of_pure(Fraction(epsilon))))
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    for level in np.linspace(0, 1.2 * epsilon, 40):
        delta = max(0.0, truth - math.exp(level) * (1 - truth))
        assert delta <= acc.gaussian_delta(mu, float(level)) * (1 + 1e-9)
    smaller = 0.98 * mu  # less would not do: at level 0 it is tight
    assert 2 * truth - 1 > acc.gaussian_delta(smaller, 0.0)


def test_beyond_the_range_of_floats():
    assert gdp_of_pure(Fraction(0)) == 0
    assert gdp_of_pure(Fraction(10**6)) >= 10**6
    assert gdp_of_pure(Fraction(701)) > gdp_of_pure(Fraction(699))


def test_books_of_both_kinds_have_more_room_and_not_too_much():
    """A Gaussian release with a little pure epsilon beside it fits a budget of the same guarantee, and a second one does not."""
    beside = [acc.PureEvent(Fraction(1, 80), 2)]
    for accountant in acc.ACCOUNTANTS:
        found = acc.calibrate(
            mechanism="gaussian", tables=3, epsilon=1.0, delta=1e-6, neighbors="add_remove", accountant=accountant, beside=beside
        )
        alone = acc.calibrate(mechanism="gaussian", tables=3, epsilon=1.0, delta=1e-6, neighbors="add_remove", accountant=accountant)
        assert 1 < found.scales[0] / alone.scales[0] < 1.01
        budget = acc.Budget(1.0, 1e-6, accountant)
        assert acc.fits(budget, [], found.charge)
        assert not acc.fits(budget, [found.charge], acc.charge_for(beside, delta=1e-6, accountant=accountant))
        assert acc.remaining(budget, [found.charge]).epsilon_left < 0.06
    total = math.fsum(float(event.rho) for event in found.charge.events if event.gaussian)
    total += 2 * float(gdp_of_pure(Fraction(1, 80)))
    assert acc.gaussian_delta(math.sqrt(2 * total), 1.0) <= 1e-6
