"""Exact privacy of the histogram methods: all outputs, on all neighbouring pairs, for small n and K.

Probabilities are computed from the weights that the shipped samplers use, as fractions. That the samplers realise them is
shown by running them on every sequence of uniform integers (urn, fixed shares), and path by path (distribution functions).
"""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from small_histograms import Histogram, histograms, neighbours

from dpsql.mechanisms import distribution_function, multinomial, tubes

Pmf = dict[Histogram, Fraction]
EPSILONS = [Fraction(1, 10), Fraction(1), Fraction(3)]


def largest_log_ratio(mechanism: Callable[[Histogram], Pmf], rows: int, cells: int) -> mp.mpf:
    """Return the largest log-ratio of probabilities of one output on neighbours, over everything; outputs must agree."""
    pmfs = {counts: mechanism(counts) for counts in histograms(rows, cells)}
    worst = Fraction(1)
    for counts, pmf in pmfs.items():
        for other in neighbours(counts):
            assert pmf.keys() == pmfs[other].keys()
            worst = max(worst, *(p / pmfs[other][output] for output, p in pmf.items()))
    with mp.workdps(60):
        return mp.log(mp.mpf(worst.numerator) / worst.denominator)


def multiplicity(counts: Histogram) -> int:
    return math.factorial(sum(counts)) // math.prod(map(math.factorial, counts))


def urn_pmf(counts: Histogram, alpha: Fraction, rows: int) -> Pmf:
    """Dirichlet-multinomial, from the integer weights that the sampler uses."""
    weights, step = multinomial.integer_weights(np.array(counts), alpha, rows)
    total = math.prod(int(weights.sum()) + t * step for t in range(rows))
    return {
        drawn: Fraction(
            multiplicity(drawn) * math.prod(int(w) + t * step for w, k in zip(weights, drawn, strict=True) for t in range(k)), total
        )
        for drawn in histograms(rows, len(counts))
    }


def fixed_pmf(counts: Histogram, alpha: Fraction, rows: int) -> Pmf:
    """Multinomial with fixed shares, from the integer weights that the sampler uses."""
    weights, _ = multinomial.integer_weights(np.array(counts), alpha, 0)
    total = int(weights.sum()) ** rows
    return {
        drawn: Fraction(multiplicity(drawn) * math.prod(int(w) ** k for w, k in zip(weights, drawn, strict=True)), total)
        for drawn in histograms(rows, len(counts))
    }


def smoothed_pmf(counts: Histogram, share: Fraction, rows: int) -> Pmf:
    """n rows from (1 - lambda) f + lambda uniform."""
    n, cells = sum(counts), len(counts)
    p = [(1 - share) * Fraction(y, n) + share / cells for y in counts]
    return {drawn: multiplicity(drawn) * math.prod(q**k for q, k in zip(p, drawn, strict=True)) for drawn in histograms(rows, cells)}


def distance(a: Histogram, b: Histogram) -> int:
    return int(np.abs(np.cumsum(a) - np.cumsum(b)).max())


def cdf_pmf(counts: Histogram, epsilon: Fraction, per_step: Fraction = Fraction(1, 2)) -> Pmf:
    with mp.workdps(50):
        r = Fraction(str(mp.exp(-mp.mpf(epsilon.numerator) / epsilon.denominator * per_step.numerator / per_step.denominator)))
    weights = {drawn: r ** distance(drawn, counts) for drawn in histograms(sum(counts), len(counts))}
    total = sum(weights.values())
    return {drawn: weight / total for drawn, weight in weights.items()}


def check(found: mp.mpf, epsilon: Fraction, tight: float) -> None:
    with mp.workdps(60):
        exact = mp.mpf(epsilon.numerator) / epsilon.denominator
        assert found <= exact
        assert found >= tight * exact


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("rows", "cells"), [(5, 2), (4, 3), (3, 4)])
def test_multinomial_dirichlet_and_beta_binomial(rows: int, cells: int, epsilon: Fraction) -> None:
    alpha = multinomial.dirichlet_prior(epsilon, rows, cells)
    check(largest_log_ratio(lambda y: urn_pmf(y, alpha, rows), rows, cells), epsilon, 0.999999)
    halved = Fraction(alpha.numerator // 2, alpha.denominator)
    assert largest_log_ratio(lambda y: urn_pmf(y, halved, rows), rows, cells) > epsilon * Fraction(11, 10)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("rows", "cells"), [(5, 2), (4, 3), (3, 4)])
def test_dp_prior_and_smoothed_histogram(rows: int, cells: int, epsilon: Fraction) -> None:
    alpha = multinomial.fixed_prior(epsilon, rows, cells)
    check(largest_log_ratio(lambda y: fixed_pmf(y, alpha, rows), rows, cells), epsilon, 0.999999)
    halved = Fraction(alpha.numerator // 2, alpha.denominator)
    assert largest_log_ratio(lambda y: fixed_pmf(y, halved, rows), rows, cells) > epsilon * Fraction(11, 10)
    share = cells * alpha / (rows + cells * alpha)  # lambda of the smoothed histogram
    assert float(share) == pytest.approx(cells / (cells + rows * math.expm1(epsilon / rows)), rel=1e-13)
    for counts in histograms(rows, cells):
        assert smoothed_pmf(counts, share, rows) == fixed_pmf(counts, alpha, rows)  # one mechanism
    assert largest_log_ratio(lambda y: smoothed_pmf(y, share / 2, rows), rows, cells) > epsilon * Fraction(11, 10)


@pytest.mark.parametrize("epsilon", [*EPSILONS, Fraction(10)])
@pytest.mark.parametrize(("rows", "cells"), [(1, 2), (1, 5), (2, 3), (12, 2), (8, 3), (4, 4), (3, 5)])
def test_empirical_cdf(rows: int, cells: int, epsilon: Fraction) -> None:
    """The factor of one step is always half of epsilon; what the normalisation adds depends on n, K and epsilon."""
    check(largest_log_ratio(lambda y: cdf_pmf(y, epsilon), rows, cells), epsilon, 0.499999)


def test_empirical_cdf_comes_close_for_small_epsilon() -> None:
    check(largest_log_ratio(lambda y: cdf_pmf(y, Fraction(1, 10)), 8, 3), Fraction(1, 10), 0.95)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("rows", "cells"), [(12, 2), (8, 3), (4, 4)])
def test_empirical_cdf_with_a_whole_epsilon_a_step_is_caught(rows: int, cells: int, epsilon: Fraction) -> None:
    assert largest_log_ratio(lambda y: cdf_pmf(y, epsilon, Fraction(1)), rows, cells) > epsilon * Fraction(101, 100)


@pytest.mark.parametrize("block", [1, 2, 100])
@pytest.mark.parametrize(
    ("counts", "alpha", "rows"),
    [((2, 0), Fraction(1, 2), 3), ((0, 1, 1), Fraction(1), 3), ((1, 1), Fraction(3, 4), 2), ((1, 0), Fraction(1), 5)],
)
def test_urn_realises_its_probabilities(counts: Histogram, alpha: Fraction, rows: int, block: int, monkeypatch) -> None:
    """The shipped sampler on every sequence of uniform integers: exact frequencies."""
    weights, step = multinomial.integer_weights(np.array(counts), alpha, rows)
    bounds = [int(weights.sum()) + t * step for t in range(rows)]
    found = enumerated(lambda: multinomial.dirichlet_multinomial(np.array(counts), alpha, rows), bounds, block, monkeypatch)
    assert found == urn_pmf(counts, alpha, rows)


@pytest.mark.parametrize("block", [1, 2, 100])
@pytest.mark.parametrize(("counts", "alpha", "rows"), [((2, 0), Fraction(1, 2), 3), ((0, 1, 1), Fraction(1), 3)])
def test_fixed_shares_realise_their_probabilities(counts: Histogram, alpha: Fraction, rows: int, block: int, monkeypatch) -> None:
    weights, _ = multinomial.integer_weights(np.array(counts), alpha, 0)
    found = enumerated(
        lambda: multinomial.multinomial(np.array(counts), alpha, rows), [int(weights.sum())] * rows, block, monkeypatch
    )
    assert found == fixed_pmf(counts, alpha, rows)


@pytest.mark.parametrize("sampler", [multinomial.multinomial, multinomial.dirichlet_multinomial])
def test_infinite_prior_ignores_the_counts(sampler, monkeypatch) -> None:
    found = enumerated(lambda: sampler(np.array([5, 0, 1]), None, 2), [3, 3], 2, monkeypatch)
    assert found == {drawn: Fraction(multiplicity(drawn), 9) for drawn in histograms(2, 3)}


def enumerated(sampler: Callable[[], np.ndarray], bounds: list[int], block: int, monkeypatch) -> Pmf:
    """Return what a sampler gives over all sequences of uniform integers below the bounds, which it must ask for."""
    monkeypatch.setattr(multinomial, "_BLOCK", block)
    pmf: Pmf = {}
    for sequence in itertools.product(*map(range, bounds)):
        left = list(zip(bounds, sequence, strict=True))

        def scripted(asked: np.ndarray, left: list[tuple[int, int]] = left) -> np.ndarray:
            taken, left[:] = left[: asked.size], left[asked.size :]
            assert asked.tolist() == [bound for bound, _ in taken]
            return np.array([value for _, value in taken])

        monkeypatch.setattr(multinomial, "_uniform_below", scripted)
        drawn = tuple(int(value) for value in sampler())
        assert not left
        pmf[drawn] = pmf.get(drawn, Fraction(0)) + Fraction(1, math.prod(bounds))
    return pmf


def path_probability(tube: list[tubes.Step], path: list[int], rows: int) -> Fraction:
    """Exact probability that the backward walk gives a path, straight from the doubles."""
    probability = Fraction(1)
    following = rows
    for step, value in zip(reversed(tube), reversed(path), strict=True):
        sums = [Fraction(s) for s in step.sums.tolist()]
        here, last = value - step.low, min(following - step.low, len(sums) - 1)
        if not 0 <= here <= last:
            return Fraction(0)
        probability *= (sums[here] - (sums[here - 1] if here else 0)) / sums[last]
        following = value
    return probability


@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1), Fraction(20)])
@pytest.mark.parametrize("counts", [(6,) + (0,) * 2, (0, 6, 0), (2, 2, 2), (1, 0, 4, 1), (3, 3)])
def test_distribution_functions_realise_their_probabilities(counts: Histogram, epsilon: Fraction) -> None:
    """Radius by radius, path by path: (J, path) is accepted with a weight of exactly r^J, by bounds that hold."""
    rows, cells = sum(counts), len(counts)
    sampler = distribution_function.Sampler([int(v) for v in np.cumsum(counts)[:-1]], rows, epsilon)
    covered = [(radius, i) for i, interval in enumerate(sampler.intervals) for radius in range(interval.start, interval.last + 1)]
    assert [radius for radius, _ in covered] == list(range(rows + 1))  # every radius once, and all from n on as n
    assert [interval.stop is None for interval in sampler.intervals] == [False] * (len(sampler.intervals) - 1) + [True]
    for radius, number in covered:
        tube, total = sampler.tube(radius), Fraction(0)
        ends = sampler.intervals[number].stop is None
        low, high, scale = sampler.weight(radius, ends, 200)
        with mp.workdps(50):
            half = mp.mpf(epsilon.numerator) / epsilon.denominator / 2
            wanted = mp.exp(-half * radius) / (-mp.expm1(-half) if ends else 1)
            exact = Fraction(str(wanted)) / scale
            assert low <= exact * (1 + Fraction(1, 10**45)) and high >= exact * (1 - Fraction(1, 10**45))
            assert Fraction(high - low) <= exact / 2**190
        for drawn in histograms(rows, cells):
            path = [int(v) for v in np.cumsum(drawn)[:-1]]
            probability = path_probability(tube, path, rows)
            assert (probability > 0) == (distance(drawn, counts) <= radius)
            if probability:
                assert high * scale <= sampler.bounds[number] * sampler.unit * probability  # acceptance is a probability
            total += probability
        assert total == 1
        path, probability = tubes.draw_path(tube, rows)
        assert probability == path_probability(tube, path, rows)
