"""Thresholds, tails and binomial distribution functions against mpmath."""

from fractions import Fraction
from functools import partial

import mpmath as mp
import pytest
from pairwise import grid

from dpsql.errors import ArgumentError
from dpsql.mechanisms import stable_selection, weak_domain
from dpsql.mechanisms.binomial import _Part
from dpsql.mechanisms.laplace_tail import power_bounds, silence_bounds, smallest_threshold, tail_bounds
from dpsql.noise.discrete import scale_grid

SIZES = [1, 2, 9, 171_476, 29_400_000_000, 29_404_018_576, 2**63, 26**40, 10**300]
SCALES = [Fraction(1, 50), Fraction(1, 3), Fraction(1), scale_grid(10), scale_grid(100), Fraction(12345, 7), Fraction(2**40)]


def short(value: object) -> str:
    return str(value)[:24]


def _mp(x: Fraction) -> mp.mpf:
    return mp.mpf(x.numerator) / x.denominator


def tail(scale: Fraction, t: int) -> mp.mpf:
    q = mp.exp(-1 / _mp(scale))
    return q**t / (1 + q)


def silence(scale: Fraction, t: int, cells: int) -> mp.mpf:
    return mp.exp(cells * mp.log1p(-tail(scale, t)))


@pytest.mark.parametrize(("epsilon", "tau"), [("0.01", 2566.148065804534), ("0.1", 256.6148065804534), ("1", 25.66148065804534)])
def test_published_domain(epsilon: str, tau: float) -> None:
    """Workclass, marital status: n = 2.94e10, rho = 0.9. Frozen: -log(2*(1-mpf('0.9')**(1/mpf('2.94e10'))))/epsilon in mpmath."""
    assert weak_domain.threshold(float(epsilon), 0.9, 29_400_000_000) == pytest.approx(tau, rel=1e-15)


@grid(size=SIZES, rho=["0.5", "0.51", "0.9", "0.99", "0.999999999", "1/3", "1e-30"], epsilon=["0.01", "1", "3"])
def test_tau_to_twelve_digits(size: int, rho: str, epsilon: str) -> None:
    exact = Fraction(rho)
    if exact < Fraction(1, 2) ** min(size, 200):
        with pytest.raises(ArgumentError, match="rho"):
            weak_domain.threshold(Fraction(epsilon), exact, size)
        return
    with mp.workdps(700):
        wanted = -mp.log(2 * (1 - _mp(exact) ** (mp.mpf(1) / size))) / _mp(Fraction(epsilon))
        found = weak_domain.threshold(Fraction(epsilon), exact, size)
        assert abs(found - wanted) <= mp.mpf(10) ** -12 * abs(wanted) + mp.mpf(10) ** -13


@grid(scale=SCALES, size=SIZES, rho=["0.5", "0.9", "0.999", "1e-30"], ids=short)
def test_integer_threshold_is_the_smallest(scale: Fraction, size: int, rho: str) -> None:
    exact = Fraction(rho)
    if exact < Fraction(1, 2) ** min(size, 200):
        with pytest.raises(ArgumentError, match="rho"):
            weak_domain.integer_threshold(scale, exact, size)
        return
    t = weak_domain.integer_threshold(scale, exact, size)
    with mp.workdps(700):
        assert t >= 1
        assert silence(scale, t, size) >= _mp(exact)
        assert t == 1 or silence(scale, t - 1, size) < _mp(exact)
        if scale >= 100 and size > 9 and t > 10:  # continuous noise in the limit
            tau = weak_domain.threshold(1 / scale, exact, size)
            assert abs(t - tau) <= 1.5


@grid(scale=SCALES[:-1], values=[1, 3, 50], delta=["0.4", "1e-3", "1e-9", "1e-30", "1e-400"], ids=str)
def test_selection_threshold_is_the_smallest(scale: Fraction, values: int, delta: str) -> None:
    exact = Fraction(delta)
    t = stable_selection.threshold(scale, values, exact)
    with mp.workdps(900):
        assert 1 - (1 - tail(scale, t)) ** values <= _mp(exact)
        assert t == 1 or 1 - (1 - tail(scale, t - 1)) ** values > _mp(exact)


def test_thresholds_next_to_equality() -> None:
    """A probability 1e-300 above or below the exact one: only the interval arithmetic can decide."""
    with mp.workdps(400):
        exact = silence(Fraction(10), 258, 10**10)
        digits = 10**320
        near = Fraction(int(mp.floor(exact * digits)), digits)
    step = Fraction(1, 10**300)
    assert smallest_threshold(Fraction(10), 10**10, near - step) == 258
    assert smallest_threshold(Fraction(10), 10**10, near + step) == 259


@grid(scale=SCALES, t=[1, 2, 30, 3000], precision=[1, 20, 64, 300], ids=str)
def test_bounds_enclose(scale: Fraction, t: int, precision: int) -> None:
    with mp.workdps(2000):
        low, high = tail_bounds(scale, t, precision)
        assert low <= 2**precision * tail(scale, t) <= high
        assert high - low <= 2
        for cells in (1, 12, 2**64 + 1, 10**100):
            low, high = silence_bounds(scale, t, cells, precision)
            assert low <= 2**precision * silence(scale, t, cells) <= high
            assert high - low <= 2


def test_power_of_nothing() -> None:
    assert power_bounds(5, 6, 0, 10) == (1024, 1024)
    assert power_bounds(1 << 10, 1 << 10, 10**30, 10) == (1024, 1024)


def _rational(p: Fraction, precision: int) -> tuple[int, int]:
    return (p.numerator << precision) // p.denominator, -((-p.numerator << precision) // p.denominator)


def _wide(p: Fraction, precision: int) -> tuple[int, int]:
    """Bounds of half the digits: still proved, so every interval must still hold."""
    low, high = _rational(p, precision // 2)
    return low << (precision - precision // 2), high << (precision - precision // 2)


@grid(
    law=[(1, "1/2"), (7, "1/2"), (100, "1/2"), (64, "1/3"), (10**6, "1/20000"), (29_404_018_576, "1e-10"), (10**40, "3e-40")],
    bits=[8, 64, 256],
    bounds=[_rational, _wide],
)
def test_binomial_distribution_function(law: tuple[int, str], bits: int, bounds: object) -> None:
    trials, exact = law[0], Fraction(law[1])
    lows, highs = _Part(trials, partial(bounds, exact)).cumulative(bits)
    with mp.workdps(200):
        x = _mp(exact)
        term = (1 - x) ** trials
        running = mp.mpf(0)
        for k, (low, high) in enumerate(zip(lows, highs, strict=True)):
            running += term
            assert low <= 2**bits * running * (1 + mp.mpf(10) ** -150)
            assert high >= 2**bits * running * (1 - mp.mpf(10) ** -150)
            if bounds is _rational:
                assert high - low <= 1
            term *= x * (trials - k) / ((k + 1) * (1 - x))
        assert highs[-1] == 2**bits
        assert len(lows) <= trials + 1
