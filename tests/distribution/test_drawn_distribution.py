"""Frequencies of the histogram samplers against exact probabilities, and of those with a prior half as large.

Each chi-square test has a false-alarm rate of 1e-9; halved priors are so far off at these
sizes that missing one has a probability far below that.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from pairwise import in_turn
from scipy import special, stats

from dpsql.mechanisms import distribution_function, tubes
from dpsql.mechanisms.distribution_function import Sampler, draw_histograms
from dpsql.mechanisms.multinomial import dirichlet_multinomial, dirichlet_prior, fixed_prior, multinomial
from dpsql.mechanisms.poisson_gamma import poisson_gamma, poisson_gamma_prior
from dpsql.mechanisms.tubes import draw_path

ALPHA = 1e-9
N = 20_000


def p_value(observed: np.ndarray, probabilities: np.ndarray) -> float:
    """Chi-square, bins of expectation below 5 put together."""
    expected = probabilities * observed.sum()
    small = expected < 5
    both = [np.append(x[~small], x[small].sum()) for x in (observed.astype(float), expected)]
    if both[1][-1] < 5:  # the rest goes to the smallest kept bin
        smallest = int(np.argmin(both[1][:-1]))
        both = [np.append(np.delete(x[:-1], smallest), x[smallest] + x[-1]) for x in both]
    return float(stats.chisquare(both[0], both[1] * both[0].sum() / both[1].sum()).pvalue)


def beta_binomial(rows: int, a: float, b: float) -> np.ndarray:
    k = np.arange(rows + 1)
    return special.comb(rows, k) * np.exp(special.betaln(k + a, rows - k + b) - special.betaln(a, b))


def first_counts(sampler: Callable, counts: np.ndarray, alpha: Fraction, rows: int) -> np.ndarray:
    return np.bincount([sampler(counts, alpha, rows)[0] for _ in range(N)], minlength=rows + 1)


@pytest.mark.parametrize("counts", [[3, 27], [0, 30], [3, 7, 20]])
def test_dirichlet_multinomial(counts: list[int]) -> None:
    y, rows = np.array(counts), 30
    alpha = dirichlet_prior(Fraction(2), rows, y.size)
    observed = first_counts(dirichlet_multinomial, y, alpha, rows)
    for factor, passes in ((1.0, True), (0.5, False)):
        a = float(alpha) * factor
        exact = beta_binomial(rows, a + y[0], (y.size - 1) * a + rows - y[0])
        assert (p_value(observed, exact) > ALPHA) == passes


@pytest.mark.parametrize(("counts", "expected"), in_turn([[3, 9], [0, 12], [12, 0]], [[1.0, 4.0], [50.0, 1.0]]))
def test_poisson_gamma(counts: list[int], expected: list[float]) -> None:
    """Two cells: q ~ Beta, kept with s, so the share is s_1 q / (s_1 q + s_2 (1 - q)); the law is integrated over q."""
    y, rows = np.array(counts), sum(counts)
    prior = poisson_gamma_prior(Fraction(2), rows, np.array(expected))
    assert prior.strength is not None and prior.kept is not None
    observed = np.bincount([poisson_gamma(y, prior, rows)[0] for _ in range(N // 2)], minlength=rows + 1)
    q = (np.arange(200_000) + 0.5) / 200_000

    def law(strength: float, kept: np.ndarray) -> np.ndarray:
        weights = stats.beta.pdf(q, y[0] + strength, y[1] + strength)
        share = kept[0] * q / (kept[0] * q + kept[1] * (1 - q))
        return np.array([weights @ stats.binom.pmf(k, rows, share) for k in range(rows + 1)]) / weights.sum()

    assert p_value(observed, law(float(prior.strength), prior.kept)) > ALPHA
    assert p_value(observed, law(float(prior.strength) / 2, prior.kept)) < ALPHA
    assert p_value(observed, law(float(prior.strength), np.array([1, 1]))) < ALPHA


def test_poisson_gamma_over_many_blocks() -> None:
    """A million draws kept of about two million: the shares are those of the gamma variates that numpy draws, on average."""
    rows, expected = 1_000_000, np.array([1.0, 2.0, 3.0, 30.0])
    y = np.array([400_000, 300_000, 200_000, 100_000])
    prior = poisson_gamma_prior(Fraction(4), rows, expected)
    assert prior.strength is not None and prior.kept is not None
    drawn = poisson_gamma(y, prior, rows)
    assert drawn.sum() == rows
    theta = np.random.default_rng(1).standard_gamma(y + float(prior.strength), (20_000, 4)) * prior.kept
    shares = theta / theta.sum(axis=1, keepdims=True)
    spread = np.sqrt(shares.var(axis=0) + shares.mean(axis=0) / rows)
    assert (np.abs(drawn / rows - shares.mean(axis=0)) / spread).max() < stats.norm.isf(ALPHA / 8) + 0.1
    assert (np.abs(drawn / rows - y / rows) / spread).max() > 20


@pytest.mark.parametrize("counts", [[3, 27], [0, 30], [3, 7, 20]])
def test_fixed_shares(counts: list[int]) -> None:
    y, rows = np.array(counts), 30
    alpha = fixed_prior(Fraction(2), rows, y.size)
    observed = first_counts(multinomial, y, alpha, rows)
    for factor, passes in ((1.0, True), (0.5, False)):
        a = float(alpha) * factor
        exact = stats.binom.pmf(np.arange(rows + 1), rows, (y[0] + a) / (rows + y.size * a))
        assert (p_value(observed, exact) > ALPHA) == passes


@pytest.mark.parametrize("cells", [7, 5000])
def test_large_draws_have_the_right_mean_and_spread(cells: int) -> None:
    """Several blocks, and cells looked up in sorted order."""
    rows = 1_000_000
    y = np.arange(cells) * 2 * rows // (cells * (cells - 1))
    y[-1] += rows - y.sum()
    for sampler in (dirichlet_multinomial, multinomial):
        drawn = sampler(y, Fraction(50), rows)
        assert drawn.sum() == rows and drawn.min() >= 0
        a = y + 50.0
        p = a / a.sum()
        spread = rows * p * (1 - p) * ((a.sum() + rows) / (a.sum() + 1) if sampler is dirichlet_multinomial else 1)
        z = (drawn - rows * p) / np.sqrt(spread)
        assert np.abs(z).max() < stats.norm.isf(ALPHA / cells / 2) + 1
        # were the blocks not draws of one urn, the spread would be 0.6 of this
        assert abs((z**2).sum() - cells) < 10 * math.sqrt(2 * cells) + 10


@pytest.mark.parametrize(("counts", "epsilon"), in_turn([[5, 3], [8, 0], [1, 4, 2, 1], [2, 0, 6]], [Fraction(1), Fraction(1, 20)]))
def test_released_distribution_functions(counts: list[int], epsilon: Fraction) -> None:
    """Every released histogram of eight rows, against exp(-epsilon d / 2)."""
    y, rows, size = np.array(counts), sum(counts), 6000
    bases = (rows + 1) ** np.arange(y.size - 1)
    codes = np.array([int((drawn[:-1] * bases).sum()) for drawn in draw_histograms(y, epsilon, size)])
    outputs = [o for o in np.ndindex(*(rows + 1,) * (y.size - 1)) if sum(o) <= rows]
    distances = np.array([np.abs(np.cumsum(o) - np.cumsum(y)[:-1]).max() for o in outputs])
    observed = np.bincount(codes, minlength=(rows + 1) ** (y.size - 1))[[int((np.array(o) * bases).sum()) for o in outputs]]
    assert observed.sum() == size
    for used, passes in ((epsilon, True), (epsilon / 2, False), (epsilon * 2, False)):
        weights = np.exp(-float(used) / 2 * distances)
        if not passes and epsilon < 1:
            continue  # too close to uniform to tell
        assert (p_value(observed, weights / weights.sum()) > ALPHA) == passes


def test_distance_of_many_rows() -> None:
    """The distance has weights r^d (N_d - N_(d - 1)), from Python integers."""
    y, epsilon = np.array([400, 0, 900, 20, 180]), Fraction(1, 5)
    size = 3000
    cumulative = np.cumsum(y)
    distances = [int(np.abs(np.cumsum(drawn) - cumulative).max()) for drawn in draw_histograms(y, epsilon, size)]
    inner, top = [int(v) for v in cumulative[:-1]], 400
    numbers = [0]
    for radius in range(top):
        *_, last = tubes.steps(inner, int(y.sum()), radius, integers=True)
        numbers.append(int(last.sums[-1]))
    weights = np.exp(-0.1 * np.arange(top)) * np.diff(np.array(numbers, dtype=np.float64))
    assert max(distances) < top
    observed = np.bincount(distances, minlength=top)
    assert p_value(observed, weights / weights.sum()) > ALPHA
    halved = np.exp(-0.05 * np.arange(top)) * np.diff(np.array(numbers, dtype=np.float64))
    assert p_value(observed, halved / halved.sum()) < ALPHA


def test_paths_of_a_tube_are_alike() -> None:
    """With doubles, and with the integers that stand in where doubles cannot hold the numbers."""
    inner, rows, radius = [1, 4, 5], 6, 2
    for integers in (False, True):
        tube = list(tubes.steps(inner, rows, radius, integers=integers))
        number = int(tube[-1].sums[-1])
        found: dict[tuple[int, ...], int] = {}
        for _ in range(N // 4):
            path, probability = draw_path(tube, rows)
            assert probability == Fraction(1, number)
            found[tuple(path)] = found.get(tuple(path), 0) + 1
        assert len(found) == number
        assert p_value(np.array(list(found.values())), np.full(number, 1 / number)) > ALPHA


def test_python_integers_give_the_same_mechanism(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution_function, "_RANGE_BITS", 0)
    sampler = Sampler([3], 8, Fraction(1))
    assert sampler.tube(4)[0].sums.dtype == object
    observed = np.bincount([sampler.draw()[0] for _ in range(3000)], minlength=9)
    weights = np.exp(-0.5 * np.abs(np.arange(9) - 3))
    assert p_value(observed, weights / weights.sum()) > ALPHA
