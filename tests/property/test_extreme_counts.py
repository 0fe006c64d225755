"""Every mechanism at counts far beyond any table: exact up to 2^46 rows, and no failure and no wrap-around beyond."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dpsql.domains.attributes import FINE
from dpsql.mechanisms import moments, stable_selection, weak_domain
from dpsql.mechanisms.distribution_function import draw_histograms
from dpsql.mechanisms.moments import TOP
from dpsql.mechanisms.multinomial import dirichlet_multinomial, dirichlet_prior, fixed_prior, multinomial
from dpsql.mechanisms.words import Listed, Universe
from dpsql.methods.histograms import histogram
from dpsql.noise import discrete
from dpsql.noise.entropy import LARGEST, MOST_ROWS, clamped
from dpsql.tables.coarse import _cuts

COUNTS = [0, 1, 2**31, MOST_ROWS, 2**53, 2**60]
MILLION_SIGMAS = 2**46  # of the largest Laplace scale; of the largest Gaussian one far more


def test_clamping_moves_no_two_numbers_further_apart() -> None:
    numbers = [0, 1, -1, LARGEST - 1, LARGEST, LARGEST + 1, 2**63, 2**100, -LARGEST, -LARGEST - 1, -(2**80)]
    for a, b in itertools.product(numbers, repeat=2):
        x, y = clamped([a, b]).tolist()
        assert abs(x - y) <= abs(a - b) and (x == a or abs(a) > LARGEST)


@pytest.mark.parametrize(("mechanism", "scale"), [("laplace", 2**40), ("laplace", 1), ("gaussian", 2**25), ("gaussian", Fraction(1, 10))])
def test_noise_is_added_exactly(mechanism: str, scale: Fraction) -> None:
    counts = np.array([*COUNTS, 2**62 - 2**47, -(2**53)], dtype=np.int64)
    assert discrete.add_noise(np.zeros(0, np.int64), mechanism, scale).size == 0
    for _ in range(50):
        moved = [int(a) - int(b) for a, b in zip(discrete.add_noise(counts, mechanism, scale), counts, strict=True)]
        assert max(map(abs, moved)) < MILLION_SIGMAS  # fails by chance less than once in 10^20


@pytest.mark.parametrize("count", COUNTS)
def test_selections_of_values(count: int) -> None:
    counts = np.array([max(count, 1), 1, 2**60], dtype=np.int64)
    for scale, threshold in ((Fraction(1), 40), (Fraction(2**40), 2**60)):
        found = dict(stable_selection.select(["a", "b", "c"], counts, scale, threshold))
        assert set(found) <= {"a", "b", "c"} and all(n > threshold for n in found.values())
    universe = Universe((), Listed([f"w{i}" for i in range(50)]))
    found = dict(weak_domain.release({"w1": count, "w2": 2**60, "elsewhere": 5}, universe, Fraction(3), 60))
    assert set(found) <= set(universe.unrank(i) for i in range(50)) and all(0 < n < 2**61 for n in found.values())
    assert abs(found["w2"] - 2**60) < 1000
    assert stable_selection.select([], np.zeros(0, np.int64), Fraction(1), 5) == []


@pytest.mark.parametrize("rows", [0, 1, 2**31, MOST_ROWS, 2**53])
def test_sums_and_moments(rows: int) -> None:
    """Against Python integers; where a number passes 2^62, it is cut off there and nothing else happens."""

    def cut(value: int) -> int:
        return max(-LARGEST, min(value, LARGEST))

    half = rows // 2
    for total, square in ((0, 0), (rows * TOP, rows * TOP**2), (half * TOP, half * TOP**2)):
        steps = FINE * (rows * square - total**2) // ((rows - 1) * TOP**2) if rows > 1 else 0
        assert [int(part[0]) for part in moments.normal_statistics(rows, total, square)] == [cut(total), cut(steps)]
    assert int(moments.binary_statistics(np.array([1, rows]))[0][0]) == rows
    for value in (0, TOP):
        sums = clamped([half * value, (rows - half) * value]).reshape(2, 1)
        counts = np.array([half, rows - half])
        found = moments.mixed_statistics(counts, sums, [rows * value**2])
        exact = [2 * int(s) - TOP * int(n) for s, n in zip(sums[:, 0], counts, strict=True)]
        assert found[0].tolist() == counts.tolist() and found[1].tolist() == [cut(e) for e in exact]
        moment = 4 * rows * value**2 - 4 * TOP * int(sums.astype(object).sum()) + rows * TOP**2
        assert found[2].tolist() == [cut(moment // FINE)]
        if rows <= MOST_ROWS:
            assert found[1].tolist() == [(2 * value - TOP) * half, (2 * value - TOP) * (rows - half)]
            noisy = moments.with_noise(found, [Fraction(2**40)] * 3, 2)
            pairs = zip(itertools.chain(*noisy[:3]), itertools.chain(*found), strict=True)
            assert all(abs(int(a) - int(b)) < MILLION_SIGMAS for a, b in pairs)


@pytest.mark.parametrize("rows", [1, 2**31, MOST_ROWS, 2**58])
def test_smoothed_counts(rows: int) -> None:
    counts, some = np.array([rows, 0, 0], dtype=np.int64), min(rows, 500)
    for epsilon in (Fraction(1, 10**6), Fraction(1), Fraction(40)):
        for prior, draw in ((dirichlet_prior, dirichlet_multinomial), (fixed_prior, multinomial)):
            drawn = draw(counts, prior(epsilon, rows, 3), some)
            assert drawn.sum() == some and drawn.min() >= 0
    for draw in (dirichlet_multinomial, multinomial):
        assert draw(np.zeros(3, np.int64), dirichlet_prior(Fraction(1), 1, 3), 0).tolist() == [0, 0, 0]


@pytest.mark.parametrize("rows", [0, 1, 2**31, MOST_ROWS])
def test_distribution_functions(rows: int) -> None:
    for counts in ([rows, 0, 0], [0, 0, rows], [rows // 2, 0, rows - rows // 2]):
        [drawn] = draw_histograms(np.array(counts, dtype=np.int64), Fraction(2))
        assert drawn.sum() == rows and drawn.min() >= 0
        assert max(abs(int(a) - int(b)) for a, b in zip(np.cumsum(drawn), np.cumsum(counts), strict=True)) < 400


def test_cuts_of_noisy_counts() -> None:
    for counts in itertools.product([0, 2**60, -(2**60), 2**62, -(2**62)], repeat=4):
        ends = _cuts(list(counts), 3)
        assert len(ends) == 2 and sorted(ends) == ends and ends[0] >= 1 and ends[-1] <= 3


def test_rows_of_huge_counts_are_split_exactly(monkeypatch) -> None:
    """Counts times the number of pieces pass 2^63; what is split is the same as with Python integers."""
    counts = np.array([2**46 + 5, 3, 2**45 - 1], dtype=np.int64)
    split: list[np.ndarray] = []

    class Enough(Exception):
        pass

    class Spy:
        def multivariate_hypergeometric(self, left, size, method):
            split.append(left.copy())
            raise Enough

    with pytest.raises(Enough):
        next(histogram.shuffled_rows(counts, Spy()))
    pieces = -(-int(counts.sum()) // histogram._SHUFFLED)
    assert split[0].tolist() == [n // pieces for n in counts.tolist()]
    monkeypatch.setattr(histogram, "_SHUFFLED", 7)
    small = np.array([5, 0, 22, 3], dtype=np.int64)
    rows = np.concatenate(list(histogram.shuffled_rows(small, np.random.default_rng(1))))
    assert np.bincount(rows, minlength=4).tolist() == small.tolist()
    assert list(histogram.shuffled_rows(np.zeros(3, np.int64), np.random.default_rng(1))) == []
