"""Thresholds of private groups against sums of high precision, and the event in the accounting."""

from decimal import Decimal
from fractions import Fraction

import mpmath
import pytest

from dpsql import accounting as acc
from dpsql.errors import ArgumentError, LedgerError
from dpsql.estimates.thresholds import gaussian_tail, threshold
from dpsql.mechanisms import stable_selection


def exact_tail(sigma: float, at: int) -> mpmath.mpf:
    with mpmath.workdps(40):
        two = 2 * mpmath.mpf(sigma) ** 2
        reach = int(30 * sigma) + 5
        everything = 1 + 2 * mpmath.fsum(mpmath.exp(-mpmath.mpf(k * k) / two) for k in range(1, reach))
        return mpmath.fsum(mpmath.exp(-mpmath.mpf(k * k) / two) for k in range(at, at + reach)) / everything


@pytest.mark.parametrize(("sigma", "precision"), [(0.1, 1e-9), (0.3, 1e-9), (1.0, 1e-9), (4.25, 1e-9), (60.0, 1e-9), (300.0, 3e-4)])
def test_tails_are_above_the_exact_ones_by_little(sigma: float, precision: float) -> None:
    for at in (1, 2, int(1.2 * sigma) + 2, int(5 * sigma), int(6.5 * sigma) + 1, int(20 * sigma) + 1):
        if at - 0.5 >= sigma or sigma <= 256:
            exact = exact_tail(sigma, at)
            assert exact <= gaussian_tail(sigma, at) <= exact * (1 + precision)
    assert exact_tail(sigma, 0) <= gaussian_tail(sigma, 0) <= 1


@pytest.mark.parametrize("groups", [1, 7, 1000])
@pytest.mark.parametrize("sigma", [0.5, 3.0, 41.3])
@pytest.mark.parametrize("delta", [1e-3, 1e-10])
def test_thresholds_are_the_smallest(sigma: float, groups: int, delta: float) -> None:
    tau = threshold("gaussian", sigma, groups, delta)
    with mpmath.workdps(40):
        bad = [1 - (1 - exact_tail(sigma, t - 1)) ** groups for t in (tau, tau - 1)]
    assert bad[0] <= delta < bad[1]


def test_laplace_thresholds_are_those_of_stable_selection() -> None:
    assert threshold("laplace", Fraction(3), 4, 1e-9) == stable_selection.threshold(Fraction(3), 4, 1e-9) + 1


def test_larger_noise_and_more_groups_raise_it() -> None:
    assert threshold("gaussian", 2.0**25, 5, 1e-12) > threshold("gaussian", 2.0**24, 5, 1e-12) > threshold("gaussian", 2.0**24, 1, 1e-12)
    assert threshold("gaussian", 256.0, 1, 1e-9) <= threshold("gaussian", 256.001, 1, 1e-9) <= threshold("gaussian", 256.0, 1, 1e-9) + 1
    for wrong in (0, 1, True, "1e-9", float("nan")):
        with pytest.raises(ArgumentError, match="delta"):
            threshold("gaussian", 1.0, 1, wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="max_groups"):
        threshold("gaussian", 1.0, 0, 1e-9)


def test_an_event_costs_delta_and_nothing_else() -> None:
    found = acc.ThresholdEvent(Fraction(1, 10**13))
    assert found.rho == 0 == found.epsilon and not found.gaussian
    assert acc.event_from_json(found.to_json()) == found
    with pytest.raises(LedgerError, match="damaged"):
        acc.event_from_json({"event": "threshold", "delta": "1", "count": 1})
    with pytest.raises(LedgerError, match="fields"):
        acc.event_from_json({"event": "threshold", "delta": "1/2"})


def test_thresholds_and_gaussian_noise_share_a_budget() -> None:
    """They cost Gaussian rules nothing; their deltas, and those of selections, add up to the share at most."""
    budget = acc.Budget(1.0, 1e-9)
    each = acc.selection_delta(budget.delta)
    normal = acc.GaussianEvent(Fraction(40))
    plain = acc.charge_for([normal], delta=budget.delta, accountant="zcdp")
    private = acc.charge_for([normal, acc.ThresholdEvent(Fraction(each))], delta=budget.delta, accountant="zcdp")
    assert (private.rho, private.epsilon, private.delta) == (plain.rho, plain.epsilon, plain.delta) and not private.gaussian
    assert private.cost == plain.cost._replace(selection_delta=each)
    assert private.cost.gaussian_only and acc.remaining(budget, [private]) == acc.remaining(budget, [plain])
    only = acc.charge_for([acc.ThresholdEvent(Fraction(each), 8)], delta=budget.delta, accountant="zcdp")
    assert (only.rho, only.epsilon, only.delta) == (0, 0, 8 * each)
    select = acc.charge_for([acc.SelectionEvent(Fraction(1, 10**9), Fraction(each), 8)], delta=budget.delta, accountant="zcdp")
    assert acc.fits(budget, [only, select]) and not acc.fits(budget, [only, select], private)
    assert acc.shortfall(budget, [only, select], private) == (float(each), 0, "delta")
    laplace = acc.charge_for([acc.LaplaceEvent(Fraction(1)), acc.ThresholdEvent(Fraction(each))], delta=budget.delta, accountant="zcdp")
    assert (laplace.epsilon, laplace.delta) == (1, each) and acc.fits(budget, [], laplace)
    assert laplace.cost.pure_only and not acc.fits(budget, [laplace], plain)
    # the whole share at once is what a budget has room for, and not a bit more
    share = Fraction(acc.selection_share(budget.delta))
    assert acc.fits(budget, [acc.charge_for([acc.ThresholdEvent(share)], delta=budget.delta, accountant="zcdp")])
    assert not acc.fits(budget, [acc.charge_for([acc.ThresholdEvent(share + Fraction(1, 10**37))], delta=1e-9, accountant="zcdp")])


def test_thresholds_under_basic_add_delta() -> None:
    threshold_event, normal = acc.ThresholdEvent(Fraction(1, 10**10), 2), acc.GaussianEvent(Fraction(40))
    alone = acc.charge_for([threshold_event], delta=0, accountant="basic")
    assert (alone.epsilon, alone.delta) == (0, Decimal("2e-10"))
    both = acc.charge_for([normal, threshold_event], delta=1e-9, accountant="basic")
    rest = acc.charge_for([normal], delta=8e-10, accountant="basic")
    assert both.delta == Decimal("1e-9") and rest.epsilon <= both.epsilon <= rest.epsilon * (1 + Decimal("1e-12"))
    with pytest.raises(ArgumentError, match="Gaussian noise needs a delta above 0"):
        acc.charge_for([normal, threshold_event], delta=2e-10, accountant="basic")


@pytest.mark.parametrize("accountant", acc.ACCOUNTANTS)
def test_noise_is_calibrated_beside_a_threshold(accountant: str) -> None:
    budget = acc.Budget(1.0, 1e-9, accountant)
    private = acc.ThresholdEvent(Fraction(1, 10**12))
    given = {"mechanism": "gaussian", "tables": 3, "epsilon": 1.0, "delta": 1e-9, "neighbors": "add_remove", "accountant": accountant}
    found, plain = acc.calibrate(**given, beside=(private,)), acc.calibrate(**given)  # type: ignore[arg-type]
    assert private in found.charge.events and acc.fits(budget, [], found.charge)
    assert found.scales == plain.scales if accountant == "zcdp" else found.scales > plain.scales
    honest = acc.charge_for(found.charge.events, delta=1e-9, accountant=accountant)
    assert honest.epsilon <= Decimal("1.0000001")
    with pytest.raises(ArgumentError, match="beside"):
        acc.calibrate(**given, beside=(acc.ThresholdEvent(Fraction(1, 10**9)),))  # type: ignore[arg-type]
