"""Exact privacy of `poisson_gamma`: all outputs, on all neighbouring pairs, for small n and K; and that the sampler has that law.

Probabilities come from the strength and the keeping probabilities that the shipped sampler uses. Their integral is a
Gauss-Jacobi sum, which is exact to 12 digits here and checked: every law sums to 1, and mpmath's quadrature gives the same.
"""

import functools
import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from pairwise import grid
from scipy import special
from small_histograms import Histogram, histograms, neighbours

from dpsql.mechanisms import multinomial, poisson_gamma
from dpsql.mechanisms.multinomial import dirichlet_prior
from dpsql.mechanisms.poisson_gamma import PoissonGammaPrior, keeping, largest_ratio, poisson_gamma_prior

Law = dict[Histogram, float]
EPSILONS = [Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(3)]
UNEQUAL = [(1, 4), (1, 1, 4), (1, 3, 3), (1, 1, 20), (1, 2, 3, 100)]
NEARLY = {1: 0.6, 3: 0.8, 6: 0.87}
"""Of epsilon, for so many rows: the bound of the third factor is best where there are many."""


@functools.cache
def nodes(rows: int, others: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights for the integral of v^(n - 1) (1 - v)^(others - 1) f(v) from 0 to 1."""
    x, w = special.roots_jacobi(300, others - 1, rows - 1)
    return (x + 1) / 2, w / 2 ** (others + rows - 1)


def law(counts: Histogram, strength: Fraction, kept: np.ndarray) -> Law:
    """P(z | y): n! / prod z! prod s^z Gamma(y + a + z) / Gamma(y + a), times int t^(n-1) prod (1 + s t)^-(y + a + z) dt / Gamma(n)."""
    rows, a, s = sum(counts), float(strength), kept / kept.max()
    v, w = nodes(rows, rows + len(counts) * a)
    logs = np.log1p((s[:, None] - 1) * v)
    found = {}
    for z in histograms(rows, len(counts)):
        c = np.array(counts) + a + z
        lead = special.gammaln(c) - special.gammaln(np.array(counts) + a) + np.array(z) * np.log(s) - special.gammaln(np.array(z) + 1)
        found[z] = math.factorial(rows) / math.gamma(rows) * math.exp(lead.sum()) * float(w @ np.exp(-c @ logs))
    assert sum(found.values()) == pytest.approx(1, abs=1e-11)
    return found


def loss(mechanism: Callable[[Histogram], Law], rows: int, cells: int) -> float:
    """Return the largest log-ratio of probabilities of one output on neighbours, over everything."""
    laws = {counts: mechanism(counts) for counts in histograms(rows, cells)}
    return max(math.log(p / laws[other][z]) for counts, found in laws.items() for other in neighbours(counts) for z, p in found.items())


def test_the_integral_is_that_of_mpmath() -> None:
    counts, strength, kept = (2, 0, 1), Fraction(3, 2), np.array([1 << 20, 1 << 18, 10486])
    s = [mp.mpf(int(k)) / 2**20 for k in kept]
    for z, p in law(counts, strength, kept).items():
        c = [y + mp.mpf(1.5) + w for y, w in zip(counts, z, strict=True)]
        integral = mp.quad(lambda t, c=c: t**2 * mp.fprod((1 + x * t) ** -e for x, e in zip(s, c, strict=True)), [0, 1, 10, 100, mp.inf])
        lead = mp.fprod(mp.rf(y + mp.mpf(1.5), w) * x**w / mp.factorial(w) for y, w, x in zip(counts, z, s, strict=True))
        assert abs(6 * lead * integral / 2 / p - 1) < 1e-9


@grid(epsilon=EPSILONS, expected=UNEQUAL, rows=[1, 3, 6])
def test_epsilon_is_held_and_nearly_reached(rows: int, expected: tuple[int, ...], epsilon: Fraction) -> None:
    prior = poisson_gamma_prior(epsilon, rows, np.array(expected, float))
    found = loss(lambda y: law(y, prior.strength, prior.kept), rows, len(expected))
    assert NEARLY[rows] * epsilon <= found <= epsilon * (1 + 1e-10)
    # half the prior, and the prior of equal expectations, which forgets the third factor, are caught
    assert loss(lambda y: law(y, prior.strength / 2, prior.kept), rows, len(expected)) > 1.03 * epsilon
    plain = dirichlet_prior(epsilon, rows, len(expected))
    assert plain is not None
    kept = keeping(np.array(expected, float), float(plain) / rows)
    assert loss(lambda y: law(y, plain, kept), rows, len(expected)) > epsilon * (1 + 1e-4)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("rows", "cells"), [(5, 2), (3, 3)])
def test_equal_expectations_are_the_dirichlet_multinomial(rows: int, cells: int, epsilon: Fraction) -> None:
    """Reached, by exact fractions: test_exact_histograms. Here: the same prior, and the same law."""
    prior = poisson_gamma_prior(epsilon, rows, np.full(cells, 7.0))
    assert prior.kept is None and prior.strength == dirichlet_prior(epsilon, rows, cells)
    found = loss(lambda y: law(y, prior.strength, np.ones(cells)), rows, cells)
    assert 0.999999 * epsilon <= found <= epsilon * (1 + 1e-10)
    assert loss(lambda y: law(y, prior.strength / 2, np.ones(cells)), rows, cells) > 1.1 * epsilon


@pytest.mark.parametrize("strength", [Fraction(1, 100), Fraction(1), Fraction(30)])
@pytest.mark.parametrize("kept", [(1, 2, 2), (3, 1, 1, 1), (100, 1, 5)])
def test_the_bound_holds_for_any_strength_and_keeping(kept: tuple[int, ...], strength: Fraction) -> None:
    exact = loss(lambda y: law(y, strength, np.array(kept)), 3, len(kept))
    assert exact <= math.log(largest_ratio(strength, 3, np.array(kept))) <= 1.35 * exact


@pytest.mark.parametrize("strength", [1, 1000, 10**6])
def test_without_a_fixed_total_no_prior_is_private(strength: int) -> None:
    """Negative binomial counts, theta ~ Gamma(y + a, 2): the ratio of their probabilities grows with z beyond every e^epsilon."""

    def logarithm(y: int, z: int) -> mp.mpf:
        return mp.loggamma(y + strength + z) - mp.loggamma(y + strength) - mp.loggamma(z + 1) - (y + strength) * mp.log(2) - z * mp.log(2)

    with mp.workdps(60):
        ratios = [logarithm(1, 10**power * strength) - logarithm(0, 10**power * strength) for power in (0, 10, 20, 30)]
    assert ratios[0] == pytest.approx(0) and all(after > before + 22 for before, after in itertools.pairwise(ratios))


class Exhausted(Exception):
    """The tape of uniform integers is at its end."""

    def __init__(self, bound: int) -> None:
        self.bound = bound


def enumerated(sampler: Callable[[], np.ndarray], depth: int, monkeypatch: pytest.MonkeyPatch) -> dict[Histogram, Fraction]:
    """Return what a sampler gives over all sequences of at most ``depth`` uniform integers; longer ones are left out."""
    tape: list[int] = []
    place = 0

    def below(bound: int) -> int:
        nonlocal place
        if place == len(tape):
            raise Exhausted(bound)
        place += 1
        return tape[place - 1]

    monkeypatch.setattr(multinomial, "_uniform_below", lambda bounds: np.array([below(int(b)) for b in bounds]))
    monkeypatch.setattr(poisson_gamma, "uniform_below", lambda bound, count: np.array([below(bound) for _ in range(count)]))
    monkeypatch.setattr(poisson_gamma, "integer_below", below)
    found: dict[Histogram, Fraction] = {}
    left: list[tuple[list[int], Fraction]] = [([], Fraction(1))]
    while left:
        tape[:], mass = left.pop()
        place = 0
        try:
            drawn = tuple(int(value) for value in sampler())
        except Exhausted as end:
            if len(tape) < depth:
                left += [([*tape, value], mass / end.bound) for value in range(end.bound)]
            continue
        found[drawn] = found.get(drawn, Fraction(0)) + mass
    return found


def within(counts: Histogram, strength: int, keep: list[Fraction], rows: int, draws: int) -> dict[Histogram, Fraction]:
    """Return the probabilities of results that at most ``draws`` draws of the urn lead to."""
    found: dict[Histogram, Fraction] = {}

    def go(urn: list[int], result: list[int], mass: Fraction, made: int) -> None:
        if sum(result) == rows:
            found[tuple(result)] = found.get(tuple(result), Fraction(0)) + mass
        elif made < draws:
            for k, weight in enumerate(urn):
                fuller = [w + (i == k) for i, w in enumerate(urn)]
                kept = [r + (i == k) for i, r in enumerate(result)]
                go(fuller, kept, mass * Fraction(weight, sum(urn)) * keep[k], made + 1)
                go(fuller, result, mass * Fraction(weight, sum(urn)) * (1 - keep[k]), made + 1)

    go([y + strength for y in counts], [0] * len(counts), Fraction(1), 0)
    return {z: p for z, p in found.items() if p}


@pytest.mark.parametrize(("counts", "rows"), [((2, 0), 2), ((0, 1, 0), 1)])
@pytest.mark.parametrize("room", [0, 1, 10**6])
def test_the_sampler_realises_its_law(counts: Histogram, rows: int, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw by draw, on every sequence of three draws: in 64 bits, in Python integers, and from the one to the other."""
    monkeypatch.setattr(poisson_gamma, "_BLOCK", 1)
    monkeypatch.setattr(poisson_gamma, "KEEP_BITS", 1)
    kept = np.array([2, 1, 1][: len(counts)])
    prior = PoissonGammaPrior(Fraction(1), kept, room)
    found = enumerated(lambda: poisson_gamma.poisson_gamma(np.array(counts), prior, rows), 6, monkeypatch)
    assert found == within(counts, 1, [Fraction(int(k), 2) for k in kept], rows, 3)


def test_blocks_of_several_draws_have_the_same_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of three draws is made at once, and the first rows that are kept count."""
    monkeypatch.setattr(poisson_gamma, "_BLOCK", 3)
    monkeypatch.setattr(poisson_gamma, "KEEP_BITS", 1)
    prior = PoissonGammaPrior(Fraction(1), np.array([2, 1]), 10**6)
    found = enumerated(lambda: poisson_gamma.poisson_gamma(np.array([1, 0]), prior, 1), 6, monkeypatch)
    assert found == within((1, 0), 1, [Fraction(1), Fraction(1, 2)], 1, 3)


def test_an_infinite_prior_ignores_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    prior = poisson_gamma_prior(Fraction(1, 10**30), 10, np.array([1.0, 2.0]))
    assert prior.strength is None and prior.kept is not None and prior.kept.tolist() == [1 << 19, 1 << 20]
    monkeypatch.setattr(poisson_gamma, "_BLOCK", 1)
    monkeypatch.setattr(poisson_gamma, "KEEP_BITS", 1)
    small = PoissonGammaPrior(None, np.array([1, 2]), 10)
    laws = [
        enumerated(lambda y=y: poisson_gamma.poisson_gamma(np.array(y), small, 1), 4, monkeypatch) for y in ([9, 0], [0, 9])
    ]
    assert laws[0] == laws[1] == {(1, 0): Fraction(1, 4) * Fraction(5, 4), (0, 1): Fraction(1, 2) * Fraction(5, 4)}
