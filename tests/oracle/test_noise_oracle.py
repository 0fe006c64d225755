"""Tables and the alternating series against mpmath, enumeration, a slow reference sampler and, if there is one, OpenDP."""

import itertools
import math
import random
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from dpsql.noise import discrete, entropy, inversion

WEIGHTS = [
    inversion.Weights(Fraction(1, 100)),
    inversion.Weights(Fraction(100)),
    inversion.Weights(Fraction(2000)),
    inversion.Weights(Fraction(3, 7)),
    inversion.Weights(Fraction(1, 255)),
    inversion.Weights(Fraction(1, 300), cells=256),
    inversion.Weights(Fraction(1, 10**9), cells=256),
    inversion.Weights(Fraction(5), cells=256),
    inversion.Weights(Fraction(1, 2), cells=1),
    inversion.Weights(Fraction(1, 2), cells=2),
    inversion.Weights(Fraction(1, 2), square=True),
    inversion.Weights(Fraction(3), square=True),
    inversion.Weights(Fraction(5000), square=True),
    inversion.Weights(1 / (2 * discrete.scale_grid(56.43) ** 2), square=True),
    inversion.Weights(Fraction(1, 2 * 512**2), square=True),
    inversion.Weights(Fraction(1, 2 * 4), square=True, cells=5),
]


def _exact_thresholds(weights: inversion.Weights, bits: int) -> list[int]:
    """Return floor(2^bits c_i) by mpmath in 150 digits."""
    with mp.workdps(150):
        y = mp.mpf(weights.exponent.numerator) / weights.exponent.denominator
        values, x = [], 0
        while x != weights.cells:
            w = mp.exp(-y * x * x if weights.square else -y * x)
            if w < mp.mpf(10) ** -120:
                break
            values.append(w)
            x += 1
        mass = mp.fsum(values)
        if weights.cells is None and not weights.square:
            mass = 1 / (1 - mp.exp(-y))
        count = len(values) - 1 if len(values) == weights.cells else len(values)
        found: list[int] = []
        running = mp.mpf(0)
        for value in values[:count]:
            running += value
            found.append(min(2**bits - 1, int(mp.floor(2**bits * running / mass))))
            if found[-1] == 2**bits - 1:
                break
        return found


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_thresholds(weights: inversion.Weights) -> None:
    assert weights.thresholds(64) == _exact_thresholds(weights, 64)


@pytest.mark.parametrize("weights", WEIGHTS[1:4] + WEIGHTS[6:13], ids=str)
@pytest.mark.parametrize("bits", [8, 200])
def test_thresholds_of_other_widths(weights: inversion.Weights, bits: int) -> None:
    assert weights.thresholds(bits) == _exact_thresholds(weights, bits)


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_bounds_enclose_the_weights(weights: inversion.Weights) -> None:
    lows, highs, tail = weights.bounds(96)
    with mp.workdps(80):
        y = mp.mpf(weights.exponent.numerator) / weights.exponent.denominator
        rest = mp.mpf(0)
        for x in range(len(lows) + 2000):
            w = 2**96 * mp.exp(-y * x * x if weights.square else -y * x)
            if x < len(lows):
                assert lows[x] <= w <= highs[x]
            elif weights.cells is None or x < weights.cells:
                rest += w
        assert rest <= tail


@pytest.mark.parametrize(
    "exponent", [Fraction(1, 10**12), Fraction(1, 3), Fraction(1), Fraction(99, 7), Fraction(95), Fraction(10**9)]
)
def test_exponentials(exponent: Fraction) -> None:
    for precision in (20, 96, 400):
        low, high = entropy.exp_bounds(exponent, precision)
        with mp.workdps(200):
            exact = 2**precision * mp.exp(-mp.mpf(exponent.numerator) / exponent.denominator)
        assert low <= exact <= high <= low + 3


class _Script:
    """os.urandom that hands out the bytes of a list."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = list(parts)

    def __call__(self, count: int) -> bytes:
        part = self.parts.pop(0)
        assert len(part) == count
        return part


@pytest.mark.parametrize(
    "weights",
    [
        inversion.Weights(Fraction(1, 3)),
        inversion.Weights(Fraction(1, 18), square=True),
        inversion.Weights(Fraction(9)),
        inversion.Weights(Fraction(1, 5), cells=16),
    ],
    ids=str,
)
def test_every_start_of_two_bytes_ends_in_its_cell(weights: inversion.Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    """An 8-bit table takes the slow path all the time: whatever two bytes say, it agrees with the exact 16-bit table."""
    table = inversion.Table(weights, bits=8)
    fine = _exact_thresholds(weights, 16)
    coarse = _exact_thresholds(weights, 8)
    ambiguous = 0
    for first, second in itertools.product(range(256), range(256)):
        if first not in coarse and second % 51:  # the second byte is not even drawn
            continue
        word = first << 8 | second
        if word in fine:  # needs a third byte
            ambiguous += 1
            continue
        expected = sum(threshold < word for threshold in fine)
        monkeypatch.setattr(inversion.os, "urandom", _Script(bytes([first]), bytes([second])))
        assert table.draw(1)[0] == expected
    monkeypatch.undo()
    assert 0 < ambiguous <= len(set(fine))


def test_narrow_tables_have_the_same_distribution() -> None:
    for bits in (8, 16, 32):
        drawn = inversion.Table(inversion.Weights(Fraction(1, 18), square=True), bits=bits).draw(4000)
        p = np.exp(-(np.arange(60) ** 2) / 18)
        p /= p.sum()
        counts = np.bincount(np.minimum(drawn, 8), minlength=9)
        expected = 4000 * np.append(p[:8], p[8:].sum())
        assert stats.chisquare(counts, expected).pvalue > 1e-9


def test_alternating_series() -> None:
    denominator = 10**12 + 39
    for gamma in (0.0, 1e-3, 0.1, 0.5, 0.9, 1.0):
        numerators = np.full(50_000, round(gamma * denominator), dtype=np.int64)
        share = discrete._bernoulli_exp(numerators, denominator).mean()
        p = math.exp(-gamma)
        assert abs(share - p) <= 6.2 * math.sqrt(p * (1 - p) / 50_000)
    for gamma in (Fraction(0), Fraction(1, 7), Fraction(1), Fraction(5, 2)):
        share = np.mean([discrete.accepts(gamma) for _ in range(4000)])
        p = math.exp(-gamma)
        assert abs(share - p) <= 6.2 * math.sqrt(p * (1 - p) / 4000)


def test_draws_beyond_the_table_are_exact_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that every draw lies beyond the table, so that Python integers decide: the distribution stays."""
    variance = Fraction(600**2)

    class Beyond:
        def __init__(self, table: inversion.Table) -> None:
            self.thresholds = table.thresholds[:0]
            self.draw = table.draw

    real = discrete._gaussian_table
    monkeypatch.setattr(discrete, "_gaussian_table", lambda exponent: Beyond(real(exponent)))
    drawn = discrete.discrete_gaussian(variance, 5000)
    assert abs((drawn**2).mean() / 600**2 - 1) < 6.2 * math.sqrt(2 / 5000)


@pytest.mark.parametrize("bound", [1, 2, 3, 255, 256, 257, 2**62 + 1, 2**63 - 1])
def test_uniform_below(bound: int) -> None:
    drawn = entropy.uniform_below(bound, 20_000)
    assert drawn.min() >= 0 and drawn.max() < bound
    cells = min(bound, 7)
    counts = np.bincount([int(x) * cells // bound for x in drawn], minlength=cells)
    edges = [-(-i * bound // cells) for i in range(cells + 1)]
    expected = np.array([20_000 * (b - a) / bound for a, b in itertools.pairwise(edges)])
    if cells > 1:
        assert stats.chisquare(counts, expected * (counts.sum() / expected.sum())).pvalue > 1e-9


def _reference_gaussian(variance: int, rng: random.Random) -> int:
    """Draw by Canonne, Kamath & Steinke (2020), Algorithms 1 to 3, one at a time; for tests only, since it can be seeded."""

    def bernoulli_exp(gamma: Fraction) -> bool:
        if gamma > 1:
            return all(bernoulli_exp(Fraction(1)) for _ in range(math.floor(gamma))) and bernoulli_exp(gamma % 1)
        k = 1
        while rng.randrange(gamma.denominator * k) < gamma.numerator:
            k += 1
        return k % 2 == 1

    t = math.isqrt(variance) + 1
    while True:
        u = rng.randrange(t)
        if not bernoulli_exp(Fraction(u, t)):
            continue
        v = 0
        while bernoulli_exp(Fraction(1)):
            v += 1
        magnitude, negative = u + t * v, rng.random() < 0.5
        if negative and magnitude == 0:
            continue
        if bernoulli_exp(Fraction((magnitude * t - variance) ** 2, 2 * variance * t * t)):
            return -magnitude if negative else magnitude


def test_agrees_with_a_slow_reference() -> None:
    rng = random.Random(2004_00010)
    reference = np.array([_reference_gaussian(30, rng) for _ in range(6000)])
    drawn = discrete.discrete_gaussian(30, 60_000)
    edges = np.arange(-14.5, 15.5, 2)
    table = [np.bincount(np.digitize(x, edges), minlength=edges.size + 1) for x in (reference, drawn)]
    assert stats.chi2_contingency(table).pvalue > 1e-9


@pytest.mark.parametrize("mechanism", discrete.MECHANISMS)
def test_agrees_with_opendp(mechanism: str) -> None:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    metric = dp.l1_distance if mechanism == "laplace" else dp.l2_distance
    make = dp.m.then_laplace if mechanism == "laplace" else dp.m.then_gaussian
    measurement = (dp.vector_domain(dp.atom_domain(T="i64")), metric(T="i64" if mechanism == "laplace" else "f64")) >> make(
        scale=6.0
    )
    theirs = np.array(measurement([0] * 20_000))
    ours = discrete.add_noise(np.zeros(200_000, dtype=np.int64), mechanism, 6)
    edges = np.arange(-15.5, 16.5)
    table = [np.bincount(np.digitize(x, edges), minlength=edges.size + 1) for x in (theirs, ours)]
    assert stats.chi2_contingency(table).pvalue > 1e-9
