"""Binomial draws, inactive members and whole releases against their distributions; each check has a type I error of 1e-9."""

import math
from collections import Counter
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from scipy import stats

from dpsql.mechanisms import binomial as binomial_module
from dpsql.mechanisms import weak_domain
from dpsql.mechanisms.binomial import Binomial
from dpsql.mechanisms.words import Listed, Pattern, Universe, from_list
from dpsql.noise.discrete import discrete_laplace

ALPHA = 1e-9
Z = stats.norm.isf(ALPHA / 2)
N = 20_000
RELEASES = 6000


def rational(p: Fraction, precision: int) -> tuple[int, int]:
    return (p.numerator << precision) // p.denominator, -((-p.numerator << precision) // p.denominator)


def fits(drawn: list[int], p: np.ndarray) -> bool:
    """Chi-square on 0, 1, ... with probabilities p, neighbours merged to an expectation of at least 5."""
    n = len(drawn)
    counts = np.bincount(drawn, minlength=p.size)
    expected = np.append(p * n, max(0.0, 1 - p.sum()) * n)
    counts = np.append(counts[: p.size], counts[p.size :].sum())
    cells: list[list[float]] = [[0.0, 0.0]]
    for observed, wanted in zip(counts, expected, strict=True):
        if cells[-1][1] >= 5:
            cells.append([0.0, 0.0])
        cells[-1][0] += observed
        cells[-1][1] += wanted
    if len(cells) > 1 and cells[-1][1] < 5:
        last = cells.pop()
        cells[-1][0] += last[0]
        cells[-1][1] += last[1]
    observed, wanted = np.array(cells).T
    if observed.size == 1:
        return True
    return bool(stats.chisquare(observed, wanted * n / wanted.sum()).pvalue > ALPHA)


CASES = [(1, "1/2"), (10, "1/2"), (10, "1/1000"), (1000, "1/2"), (20_000, "1/10"), (10**6, "5e-6"), (29_404_018_576, "1e-10"), (10**30, "3e-30")]


def pmf(trials: int, p: Fraction) -> np.ndarray:
    mean = float(trials * p)
    reach = np.arange(min(trials, math.ceil(mean + 20 * math.sqrt(mean) + 40)) + 1)
    return stats.poisson.pmf(reach, mean) if trials > 2**62 else stats.binom.pmf(reach, trials, float(p))


@pytest.mark.parametrize(("trials", "text"), CASES)
def test_binomial(trials: int, text: str) -> None:
    p = Fraction(text)
    drawer = Binomial(trials, partial(rational, p))
    drawn = [drawer.draw() for _ in range(N)]
    assert fits(drawn, pmf(trials, p))
    if trials * p > 1:
        assert not fits(drawn, pmf(trials, p * Fraction(105, 100)) if p * 2 < 1 else pmf(trials, p * Fraction(95, 100)))


@pytest.mark.fresh_noise  # a chi-square at 1e-9
@pytest.mark.parametrize(("trials", "text"), [(10, "1/2"), (300, "1/3"), (10**30, "3e-30")])
def test_binomial_with_few_digits_at_once(monkeypatch: pytest.MonkeyPatch, trials: int, text: str) -> None:
    """Eight digits at once: a tenth of the draws and more is not decided by them, and draws on."""
    monkeypatch.setattr(binomial_module, "_BITS", 8)
    p = Fraction(text)
    drawer = Binomial(trials, partial(rational, p))
    undecided = sum(low != high for part, _ in drawer._parts for low, high in zip(*part.first, strict=True))
    assert undecided > 3
    drawn = [drawer.draw() for _ in range(4000)]
    assert fits(drawn, pmf(trials, p))


@pytest.mark.fresh_noise  # three checks at 1e-9
def test_binomial_splits_large_means() -> None:
    drawer = Binomial(10**8 + 7, partial(rational, Fraction(1, 10**4)))
    assert sum(part.trials * times for part, times in drawer._parts) == 10**8 + 7
    drawn = np.array([drawer.draw() for _ in range(300)])
    z = (drawn.mean() - 1e4) / math.sqrt(1e4 / drawn.size)
    assert abs(z) < Z
    assert stats.chi2.sf(drawn.var(ddof=1) / 1e4 * 299, 299) > ALPHA
    assert stats.chi2.cdf(drawn.var(ddof=1) / 1e4 * 299, 299) > ALPHA


@pytest.mark.fresh_noise  # a z-test at 1e-9
@pytest.mark.parametrize("rho", ["0.5", "0.9"])
def test_no_outside_value_with_probability_rho(rho: str) -> None:
    """The exact probability is the silence of the inactive members: at least rho, and not much more."""
    universe = Universe(["x"], Pattern("[a-z]{9}"), 5 * 10**12)
    scale = Fraction(50)
    t = weak_domain.integer_threshold(scale, float(rho), universe.size)
    q = math.exp(-1 / 50)
    exact = math.exp(universe.size * math.log1p(-(q**t) / (1 + q)))
    assert float(rho) <= exact <= float(rho) + 0.01
    silent = sum(all(text == "x" for text, _ in weak_domain.release({"x": 10**6}, universe, scale, t)) for _ in range(RELEASES))
    assert abs(silent - RELEASES * exact) < Z * math.sqrt(RELEASES * exact * (1 - exact))


def test_inactive_members_are_uniform_and_distinct() -> None:
    members = [f"m{i:02}" for i in range(30)]
    active = {member: 10_000 for member in members[::3]}
    universe = Universe(members[:5], Listed(members))
    scale, t, q = Fraction(2), 3, math.exp(-1 / 2)
    p = q**t / (1 + q)
    seen: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    numbers, weights = [], []
    for _ in range(RELEASES):
        found = weak_domain.release(active, universe, scale, t)
        assert [text for text, _ in found] == sorted({text for text, _ in found})
        others = [(text, weight) for text, weight in found if text not in active]
        assert len(found) - len(others) == len(active)
        numbers.append(len(others))
        seen.update(text for text, _ in others)
        if len(others) == 2:
            pairs[others[0][0], others[1][0]] += 1
        weights += [weight - t for _, weight in others]
    assert fits(numbers, stats.binom.pmf(np.arange(21), 20, p))
    assert len(seen) == 20
    assert stats.chisquare(list(seen.values())).pvalue > ALPHA
    assert len(pairs) <= 190  # eight of each are expected: one of them stays away in every twelfth run
    assert stats.chisquare([*pairs.values(), *[0] * (190 - len(pairs))]).pvalue > ALPHA
    assert fits(weights, (1 - q) * q ** np.arange(60))


def test_release_equals_noise_on_every_member() -> None:
    """Against brute force on a universe of 12 members: number released, and the weight of each."""
    members = [f"m{i:02}" for i in range(12)]
    counts = {"m00": 1, "m05": 3, "m11": 6}
    universe = from_list(members, None)
    scale, t = Fraction(3), 3
    ours = np.zeros((RELEASES, 12), dtype=np.int64)
    for row in ours:
        for text, weight in weak_domain.release(counts, universe, scale, t):
            row[int(text[1:])] = weight
    brute = np.array([counts.get(member, 0) for member in members]) + discrete_laplace(scale, (RELEASES, 12))
    brute[brute < t] = 0
    for column in range(12):
        cells = [np.bincount(np.minimum(table[:, column], 14), minlength=15) for table in (ours, brute)]
        shown = np.array(cells)[:, np.sum(cells, axis=0) >= 10]
        assert stats.chi2_contingency(shown).pvalue > ALPHA
    totals = np.array([np.bincount((table > 0).sum(axis=1), minlength=13) for table in (ours, brute)])
    assert stats.chi2_contingency(totals[:, totals.sum(axis=0) >= 10]).pvalue > ALPHA


def test_places_above_every_machine_integer() -> None:
    """Uniform in a universe of 2^100 and more: the leading and the last character of what is released."""
    universe = Universe([], Pattern(r"[0-7]{40}"))
    scale = Fraction(1)
    t = weak_domain.integer_threshold(scale, Fraction(1, 10**4), universe.size)
    texts = [text for _ in range(1000) for text, _ in weak_domain.release({}, universe, scale, t)]
    assert len(texts) > 4000
    for place in (0, 20, 39):
        digits = np.bincount([int(text[place]) for text in texts], minlength=8)
        assert stats.chisquare(digits).pvalue > ALPHA
