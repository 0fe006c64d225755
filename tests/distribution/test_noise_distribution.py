"""The distribution gate: right scales pass, five percent less or more is rejected, repeated draws are caught.

Type I error of each check is at most 1e-9 where sound noise has to pass, 1e-6 where a fault has to be found. With n = 50,000 a scale that is 5 % off moves the sufficient statistic by 11
(Laplace) or 15 (Gaussian) standard deviations against a threshold of 4.9: missed with a probability far below 1e-6.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpsql.noise import discrete

N = 50_000
ALPHA, SOUND = 1e-6, 1e-9
Z = stats.norm.isf(ALPHA / 2)


def _pmf(mechanism: str, scale: float) -> tuple[np.ndarray, np.ndarray]:
    reach = math.ceil((14 if mechanism == "gaussian" else 40) * scale) + 40
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    weights = np.exp(-0.5 * (x / scale) ** 2) if mechanism == "gaussian" else np.exp(-np.abs(x) / scale)
    return x, weights / weights.sum()


def failures(drawn: np.ndarray, mechanism: str, scale: float, alpha: float = ALPHA) -> list[str]:
    """Return the checks that a sample from 0 with this noise fails, each at the level alpha."""
    x, p = _pmf(mechanism, scale)
    found = []
    for name, values, ours in (
        ("mean", x, drawn.astype(float)),
        ("spread", x**2 if mechanism == "gaussian" else np.abs(x), None),
    ):
        sample = ours if ours is not None else (drawn.astype(float) ** 2 if mechanism == "gaussian" else np.abs(drawn))
        mean = float(values @ p)
        error = math.sqrt((float(values**2 @ p) - mean**2) / drawn.size)
        if abs(float(sample.mean()) - mean) > stats.norm.isf(alpha / 2) * error:
            found.append(name)
    if _chi_square(drawn, x, p) < alpha:
        found.append("chi-square")
    if repeats(drawn, alpha):
        found.append("repeats")
    return found


def _chi_square(drawn: np.ndarray, x: np.ndarray, p: np.ndarray) -> float:
    """Return the p-value over at most 200 bins of equal probability, each with an expectation of at least 5."""
    bins = min(200, drawn.size // 5)
    cumulative = np.cumsum(p)
    edges = np.unique(np.searchsorted(cumulative, np.linspace(0, 1, bins + 1)[1:-1]))
    cuts = x[edges]  # a bin ends with the value at its cut
    expected = np.diff(np.concatenate(([0.0], cumulative[edges], [1.0]))) * drawn.size
    counts = np.bincount(np.searchsorted(cuts, drawn), minlength=expected.size).astype(float)
    keep = expected >= 5
    if keep.sum() < 2:
        return 1.0
    observed, wanted = np.append(counts[keep], counts[~keep].sum()), np.append(expected[keep], expected[~keep].sum())
    if wanted[-1] < 5:
        observed, wanted = np.append(observed[:-2], observed[-2:].sum()), np.append(wanted[:-2], wanted[-2:].sum())
    return float(stats.chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue)


def repeats(drawn: np.ndarray, alpha: float = ALPHA) -> bool:
    """Return whether the sample correlates with a shifted copy of itself, at any of its lags."""
    centred = drawn - drawn.mean()
    power = np.abs(np.fft.rfft(centred)) ** 2
    if power.sum() == 0:
        return False
    correlation = np.fft.irfft(power, drawn.size)
    highest = np.max(correlation[1 : drawn.size // 2 + 1]) / correlation[0]
    return bool(highest * math.sqrt(drawn.size) > stats.norm.isf(alpha / drawn.size))


def draw(mechanism: str, scale: Fraction, size: int = N) -> np.ndarray:
    return discrete.add_noise(np.zeros(size, dtype=np.int64), mechanism, scale)


SCALES = [
    ("gaussian", "0.6"),
    ("gaussian", "1"),
    ("gaussian", "3.7"),
    ("gaussian", "56.43"),
    ("gaussian", "511"),
    ("gaussian", "513"),  # from here on in two steps
    ("gaussian", "7788"),
    ("laplace", "0.5"),
    ("laplace", "1"),
    ("laplace", "67.65"),
    ("laplace", "255"),
    ("laplace", "257"),  # from here on by digits
    ("laplace", "9334"),
    ("laplace", "70000"),  # three digits
]


@pytest.mark.parametrize(("mechanism", "text"), SCALES)
def test_gate(mechanism: str, text: str) -> None:
    scale = discrete.scale_grid(Fraction(text))
    assert failures(draw(mechanism, scale), mechanism, float(scale), SOUND) == []


@pytest.mark.parametrize(("mechanism", "text"), SCALES)
@pytest.mark.parametrize("factor", ["0.95", "1.05"])
def test_gate_rejects_five_percent(mechanism: str, text: str, factor: str) -> None:
    wrong = Fraction(text) * Fraction(factor)
    assert "spread" in failures(
        draw(mechanism, wrong if mechanism == "laplace" else discrete.scale_grid(wrong)), mechanism, float(text)
    )


@pytest.mark.parametrize("mechanism", discrete.MECHANISMS)
@pytest.mark.parametrize("scale", [10**6, 2**25])
def test_huge_scales(mechanism: str, scale: int) -> None:
    """At 1e6 and more the noise is as good as continuous: the same checks, against the continuous distribution."""
    continuous = stats.norm if mechanism == "gaussian" else stats.laplace

    def far(drawn: np.ndarray) -> float:
        relative = drawn / scale
        if mechanism == "gaussian":
            return abs(float(np.mean(relative**2)) - 1) * math.sqrt(N / 2)
        return abs(float(np.mean(np.abs(relative))) - 1) * math.sqrt(N)

    drawn = draw(mechanism, Fraction(scale))
    assert far(drawn) < stats.norm.isf(SOUND / 2)
    cells = np.bincount((continuous.cdf(drawn / scale) * 100).astype(int), minlength=100)
    assert stats.chisquare(cells).pvalue > SOUND
    assert stats.chisquare(np.bincount(drawn % 16, minlength=16)).pvalue > SOUND  # the low digits are uniform
    assert far(draw(mechanism, scale * Fraction(95, 100))) > Z
    wrong = draw(mechanism, Fraction(10**6) * Fraction(105, 100)) * scale // 10**6
    assert far(wrong) > Z


def _half_noise(mechanism: str) -> np.ndarray:
    return draw(mechanism, Fraction(10))


def _one_draw_for_all_cells(mechanism: str) -> np.ndarray:
    return np.full(N, draw(mechanism, Fraction(20), 1)[0])


def _one_block_for_all_tables(mechanism: str) -> np.ndarray:
    return np.tile(draw(mechanism, Fraction(20), N // 50), 50)


def _reused_block(mechanism: str) -> np.ndarray:
    fresh = draw(mechanism, Fraction(20))
    fresh[N - 6000 :] = fresh[1234:7234]
    return fresh


def _rounded_down(mechanism: str) -> np.ndarray:
    return draw(mechanism, Fraction(20)) // 2 * 2


def _shifted(mechanism: str) -> np.ndarray:
    return draw(mechanism, Fraction(20)) + 2


def _clipped(mechanism: str) -> np.ndarray:
    return np.maximum(draw(mechanism, Fraction(20)), -50)


@pytest.mark.parametrize("mechanism", discrete.MECHANISMS)
@pytest.mark.parametrize(
    "broken",
    [_half_noise, _one_draw_for_all_cells, _one_block_for_all_tables, _reused_block, _rounded_down, _shifted, _clipped],
)
def test_gate_catches_broken_mechanisms(mechanism: str, broken: Callable[[str], np.ndarray]) -> None:
    assert failures(draw(mechanism, Fraction(20)), mechanism, 20.0, SOUND) == []
    if broken is _reused_block:
        assert repeats_after_long_reuse(mechanism)
    else:
        assert failures(broken(mechanism), mechanism, 20.0)


def repeats_after_long_reuse(mechanism: str) -> bool:
    """A quarter of the sample is an earlier part of it: the correlation at that lag is 0.25, the threshold about 0.03."""
    fresh = draw(mechanism, Fraction(20))
    fresh[3 * N // 4 :] = fresh[1234 : 1234 + N // 4]
    assert repeats(_reused_block(mechanism))  # 12 % of it: correlation 0.12
    return failures(fresh, mechanism, 20.0) != []


def test_two_tables_share_no_noise() -> None:
    """Two calls, and two halves of one call, are uncorrelated; the same call used twice is not."""
    for mechanism in discrete.MECHANISMS:
        a, b = draw(mechanism, Fraction(56)), draw(mechanism, Fraction(56))
        assert abs(np.corrcoef(a, b)[0, 1]) * math.sqrt(N) < stats.norm.isf(SOUND / 2)
        assert np.corrcoef(a, a.copy())[0, 1] * math.sqrt(N) > Z
