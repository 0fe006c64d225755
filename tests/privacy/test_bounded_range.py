"""Exponential mechanisms: their exact privacy curves on tiny tables, against what a bounded range is charged."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import chisquare

from dpsql import accounting as acc
from dpsql.accounting.cost import gdp_of
from dpsql.errors import ArgumentError, LedgerError
from dpsql.mechanisms.percentile import penalties, penalty_sensitivity, private_percentile

CELLS = 4
EPSILONS = [0.05, 0.4, 1.0, 3.0, 9.0]


def _law(rows: tuple[int, ...], share: Fraction, epsilon: float, sensitivity: Fraction, weights: np.ndarray) -> np.ndarray:
    found, denominator = penalties(np.bincount(np.asarray(rows, dtype=np.int64), minlength=CELLS), share)
    mass = weights * np.exp(-epsilon * (found - found.min()).astype(float) / (2 * denominator * float(sensitivity)))
    return mass / mass.sum()


def _pairs(share: Fraction, epsilon: float, neighbors: str, weights: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    sensitivity = penalty_sensitivity(share, neighbors, 1)
    found = []
    for n in range(4):
        for base in itertools.combinations_with_replacement(range(CELLS), n):
            for one, two in itertools.product([(), *((x,) for x in range(CELLS))], repeat=2):
                if one != two and (neighbors == "replace_one") == (len(one) == len(two)):
                    found.append(tuple(_law((*base, *more), share, epsilon, sensitivity, weights) for more in (one, two)))
    return found  # type: ignore[return-value]


def _curve(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def _mu(epsilon: float) -> float:
    return math.sqrt(2 * float(gdp_of(acc.RangeEvent(Fraction(epsilon)))))


@pytest.mark.parametrize("weights", [np.array([1, 1, 1, 1]), np.array([7, 1, 2, 1])], ids=["even", "uneven"])
@pytest.mark.parametrize("neighbors", acc.NEIGHBORS)
@pytest.mark.parametrize("share", [Fraction(1, 2), Fraction(9, 10)])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_exact_curve_of_a_percentile_is_within_its_charge(
    epsilon: float, share: Fraction, neighbors: str, weights: np.ndarray
) -> None:
    mu, rho = _mu(epsilon), float(acc.RangeEvent(Fraction(epsilon)).rho)
    for p, q in _pairs(share, epsilon, neighbors, weights):
        loss = np.log(p / q)
        assert loss.max() - loss.min() <= epsilon * (1 + 1e-9)
        for at in (0.0, 0.1 * epsilon, 0.5 * epsilon, 0.9 * epsilon):
            assert _curve(p, q, at) <= acc.gaussian_delta(mu, at) + 1e-12
        for order in (1.5, 2.0, 10.0):
            assert math.log(float((p**order * q ** (1 - order)).sum())) / (order - 1) <= order * rho + 1e-12


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_charge_is_reached_and_nothing_less_would_do(epsilon: float) -> None:
    """Of all pairs of two outputs the symmetric one has the largest mu, which is the one charged."""
    shifts = np.linspace(-12, 12, 4001)
    p, q = 1 / (1 + np.exp(-shifts - epsilon / 2)), 1 / (1 + np.exp(-shifts + epsilon / 2))
    reached = ndtri(p) - ndtri(q)
    assert reached.max() <= _mu(epsilon) <= reached.max() * (1 + 1e-9) and np.argmax(reached) == 2000
    half = ndtri(1 / (1 + math.exp(-epsilon / 4))) * 2
    assert reached.max() > half  # a quarter of epsilon would not be enough
    assert acc.RangeEvent(Fraction(epsilon)).rho <= acc.PureEvent(Fraction(epsilon)).rho


@pytest.mark.parametrize("count", [2, 6])
def test_compositions_of_different_pairs_are_within_the_sum(count: int) -> None:
    """Every mixture of extreme pairs, by listing all outputs: the curve is that of sqrt(count) mu at most."""
    epsilon = 0.8
    total = math.sqrt(count) * _mu(epsilon)
    for shifts in ([0.0] * count, [(-1) ** k * 0.7 for k in range(count)], [2.0] * count):
        p = q = np.ones(1)
        for shift in shifts:
            a, b = 1 / (1 + math.exp(-shift - epsilon / 2)), 1 / (1 + math.exp(-shift + epsilon / 2))
            p, q = np.outer(p, [a, 1 - a]).ravel(), np.outer(q, [b, 1 - b]).ravel()
        for at in np.linspace(0, count * epsilon, 9):
            assert max(_curve(p, q, at), _curve(q, p, at)) <= acc.gaussian_delta(total, float(at)) + 1e-12


def test_the_ledger_adds_them_by_their_rules() -> None:
    budget = acc.Budget(1.0, 1e-9)
    ranged, pure, half = (kind(Fraction(e)) for kind, e in ((acc.RangeEvent, "0.2"), (acc.PureEvent, "0.2"), (acc.PureEvent, "0.1")))
    normal = acc.GaussianEvent(Fraction(40))
    costs = [acc.charge_for([normal, event], delta=1e-9, accountant="zcdp").cost for event in (ranged, pure, half)]
    assert costs[0].gdp_rho == costs[2].gdp_rho < costs[1].gdp_rho and costs[0].pure_epsilon == costs[1].pure_epsilon
    assert acc.event_from_json(ranged.to_json()) == ranged
    with pytest.raises(LedgerError, match="damaged"):
        acc.event_from_json({"event": "range", "epsilon": "0", "count": 1})
    alone = acc.charge_for([acc.RangeEvent(Fraction(1, 2), 2)], delta=1e-9, accountant="zcdp")
    assert (alone.epsilon, alone.delta) == (1, 0) and acc.fits(budget, [], alone) and not acc.fits(budget, [alone], alone)
    basic = acc.charge_for([acc.RangeEvent(Fraction(1, 2), 2)], delta=0, accountant="basic")
    assert basic.epsilon == 1
    beside = acc.calibrate(mechanism="gaussian", tables=1, epsilon=1.0, delta=1e-9, neighbors="add_remove", beside=(ranged,))
    dearer = acc.calibrate(mechanism="gaussian", tables=1, epsilon=1.0, delta=1e-9, neighbors="add_remove", beside=(half,))
    assert beside.scales == dearer.scales and acc.fits(budget, [], beside.charge)


def test_weighted_draws_have_their_distribution() -> None:
    """Chi-square with a false alarm of 1e-9; unweighted ones are told apart."""
    histogram, weights = np.array([3, 0, 9, 4]), np.array([10, 1, 0, 4])
    share, epsilon, sensitivity = Fraction(1, 2), Fraction(1, 3), Fraction(1, 2)
    rows = tuple(np.repeat(np.arange(CELLS), histogram).tolist())
    expected = _law(rows, share, 1 / 3, sensitivity, weights)
    draws = np.bincount([private_percentile(histogram, share, epsilon, sensitivity, weights) for _ in range(8000)], minlength=CELLS)
    used = weights > 0
    assert draws[2] == 0 and chisquare(draws[used], 8000 * expected[used]).pvalue > 1e-9
    plain = _law(rows, share, 1 / 3, sensitivity, used.astype(int))
    assert chisquare(draws[used], 8000 * plain[used]).pvalue < 1e-9
    for wrong in (np.array([1, 1]), np.array([0, 0, 0, 0]), np.array([1, -1, 1, 1]), np.ones(4), np.full(4, 2**61)):
        with pytest.raises(ArgumentError, match="weights"):
            private_percentile(histogram, share, epsilon, sensitivity, wrong)
