"""The private percentile: its penalty by enumeration of neighbours, its distribution, and the audit that breaks the published one."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import beta, chisquare

from dpsql.mechanisms.percentile import penalties, penalty_sensitivity, private_percentile

SHARES = [Fraction(99, 100), Fraction(1, 2), Fraction(1, 10), Fraction(1), Fraction(0), Fraction(2, 3)]
BOUND = 3


def penalty(rows: tuple[int, ...], share: Fraction) -> list[Fraction]:
    found, denominator = penalties(np.bincount(np.asarray(rows, dtype=np.int64), minlength=BOUND + 1), share)
    return [Fraction(int(u), denominator) for u in found]


def test_the_penalty_is_the_distance_from_the_interval_of_ranks():
    for rows in itertools.product(range(BOUND + 1), repeat=4):
        for share in SHARES:
            wanted = share * len(rows)
            for t, found in enumerate(penalty(rows, share)):
                below, upto = sum(s < t for s in rows), sum(s <= t for s in rows)
                assert found == max(wanted - upto, below - wanted, 0)
            assert min(penalty(rows, share)) == 0  # some t is a quantile


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("contributions", [1, 2])
def test_no_neighbour_moves_the_penalty_further(share, contributions):
    worst = {"add_remove": Fraction(0), "replace_one": Fraction(0)}
    for base in itertools.chain.from_iterable(itertools.combinations_with_replacement(range(BOUND + 1), n) for n in range(4)):
        units = list(itertools.chain.from_iterable(itertools.combinations_with_replacement(range(BOUND + 1), n) for n in range(contributions + 1)))
        found = {unit: penalty((*base, *unit), share) for unit in units}
        for one, two in itertools.product(units, repeat=2):
            moved = max(abs(a - b) for a, b in zip(found[one], found[two], strict=True))
            worst["replace_one"] = max(worst["replace_one"], moved)
            if not one:
                worst["add_remove"] = max(worst["add_remove"], moved)
    for neighbors, moved in worst.items():
        assert moved <= penalty_sensitivity(share, neighbors, contributions)
    assert worst["add_remove"] == penalty_sensitivity(share, "add_remove", contributions)  # and it is reached


def exact_probabilities(histogram: np.ndarray, share: Fraction, epsilon: float, sensitivity: Fraction) -> np.ndarray:
    return np.exp(exact_logs(histogram, share, epsilon, sensitivity))


def exact_logs(histogram: np.ndarray, share: Fraction, epsilon: float, sensitivity: Fraction) -> np.ndarray:
    u, denominator = penalties(histogram, share)
    exponents = np.array([-epsilon * float(Fraction(int(x), denominator) / sensitivity) / 2 for x in u - u.min()])
    return exponents - np.log(np.exp(exponents).sum())


def test_the_draws_have_the_distribution_of_the_exponential_mechanism():
    histogram = np.array([3, 0, 9, 4, 0, 1, 0, 0])
    share, epsilon, sensitivity = Fraction(9, 10), Fraction(1, 3), Fraction(9, 10)
    expected = exact_probabilities(histogram, share, 1 / 3, sensitivity)
    draws = np.bincount([private_percentile(histogram, share, epsilon, sensitivity) for _ in range(20_000)], minlength=8)
    assert chisquare(draws, 20_000 * expected).pvalue > 1e-9
    wrong = exact_probabilities(histogram, share, 2 / 3, sensitivity)  # half the noise is seen
    assert chisquare(draws, 20_000 * wrong).pvalue < 1e-9


def test_log_ratios_of_neighbours_are_within_epsilon():
    """Exactly, over all small tables: the probabilities are those of the test above."""
    share, epsilon = Fraction(99, 100), 0.7
    sensitivity = penalty_sensitivity(share, "add_remove", 1)
    worst = 0.0
    for base in itertools.product(range(4), repeat=3):
        one = exact_probabilities(np.bincount(base, minlength=4), share, epsilon, sensitivity)
        for more in range(4):
            two = exact_probabilities(np.bincount([*base, more], minlength=4), share, epsilon, sensitivity)
            worst = max(worst, float(np.abs(np.log(one / two)).max()))
    assert worst <= epsilon * (1 + 1e-12)
    assert worst > 0.3 * epsilon


AWKWARD = [str(100 / 3), str(200 / 3), "92.23372036854781", "1e-13", "5e-324", "99.99999999999999", "0.1", "0", "99"]
"""Percentages as they are written: of 64-bit products of these with counts, some would wrap and some would raise."""
MANY = [0, 1, 999, 1000, 1106, 1107, 1383, 1384, 2214, 2**31, 2**47, 2**53, 2**62]


@pytest.mark.parametrize("written", AWKWARD)
@pytest.mark.parametrize("rows", MANY)
def test_the_law_is_exact_whatever_the_number_of_rows_and_the_share(written, rows, monkeypatch):
    """What is drawn uniformly is accepted with probability exp(-epsilon (u - min u) / 2 sensitivity), compared as fractions."""
    share, epsilon = Fraction(written) / 100, Fraction(1, 50)
    sensitivity = penalty_sensitivity(share, "add_remove", 1)
    third = rows // 3
    counts = [third, 0, rows - 2 * third, third]
    upto = list(itertools.accumulate(counts))
    exact = [max(share * rows - upto[t], upto[t] - counts[t] - share * rows, Fraction(0)) for t in range(4)]
    found, denominator = penalties(np.array(counts, dtype=np.int64), share)
    assert [Fraction(int(u), denominator) for u in found] == exact
    asked: list[Fraction] = []
    monkeypatch.setattr("dpsql.mechanisms.percentile.accepts", lambda gamma: asked.append(gamma) or len(asked) == 60)
    monkeypatch.setattr("dpsql.mechanisms.percentile.uniform_below", lambda bound, count: np.arange(count) % bound)
    private_percentile(np.array(counts, dtype=np.int64), share, epsilon, sensitivity)
    assert asked == [epsilon * (exact[i % 4] - min(exact)) / (2 * sensitivity) for i in range(60)]


@pytest.mark.parametrize("written", AWKWARD)
def test_no_neighbour_changes_the_law_by_more_than_epsilon_near_the_borders_of_machine_integers(written):
    share, epsilon = Fraction(written) / 100, 0.02
    sensitivity = penalty_sensitivity(share, "add_remove", 1)
    for limit in (2**31, 2**62, 2**63):
        for scale in {share.numerator, share.denominator, share.denominator - share.numerator, 1} - {0}:
            for rows in range(max(0, limit // scale - 2), min(limit // scale + 3, 2**61)):
                one = np.array([0, rows // 4, 0, rows - rows // 4], dtype=np.int64)
                for cell in range(4):
                    two = one.copy()
                    two[cell] += 1
                    first, second = ([Fraction(int(u), d) for u in p] for p, d in (penalties(h, share) for h in (one, two)))
                    assert max(abs(a - b) for a, b in zip(first, second, strict=True)) <= sensitivity
    for rows in (806, 1106, 2213):  # and so of the law itself
        one, two = (exact_logs(np.array([300, 0, 0, n]), share, epsilon, sensitivity) for n in (rows, rows + 1))
        assert np.abs(one - two).max() <= epsilon * (1 + 1e-9)


# METHODS.md section 6, fault 1: rows of width 5, and 500 or 501 of width 10; pairs, so 10 and 45 of them
RUNS, CLAIMED = 300, 1.0


def histogram(wide: int) -> np.ndarray:
    found = np.zeros(46, dtype=np.int64)
    found[10], found[45] = 49_500, wide
    return found


def published_percentile(counts: np.ndarray, share: float, epsilon: float, rng: np.random.Generator) -> int:
    """The published scoring: distance of a row's position in sorted order from the exact position of the percentile."""
    values = np.repeat(np.arange(counts.size), counts)
    position = math.ceil(share * len(values)) - 1
    ordered = np.abs(values - values[position])  # ties share one score, so the whole group moves when the position does
    score = -np.searchsorted(np.sort(ordered), ordered)
    weights = np.exp(epsilon * (score - score.max()) / 2.0)
    return int(values[rng.choice(len(values), p=weights / weights.sum())])


def lower_bound(first: np.ndarray, second: np.ndarray, error: float = 0.025) -> float:
    """Return a lower bound (95 % by default) of epsilon from draws on neighbours: the best event {t >= c} or {t < c} chosen on one half of the
    runs, bounded by Clopper & Pearson on the other half."""
    half = RUNS // 2
    best, event = -1.0, (45, True)
    for cut, upper in itertools.product(range(1, 46), (True, False)):
        a, b = (((x[:half] >= cut) == upper).mean() for x in (first, second))
        gap = math.log((max(a, b) + 1 / half) / (min(a, b) + 1 / half))
        if gap > best:
            best, event = gap, (cut, upper)
    counts = [int((((x[half:] >= event[0]) == event[1])).sum()) for x in (first, second)]
    rest = RUNS - half
    large, small = max(counts), min(counts)
    least = beta.ppf(error, large, rest - large + 1) if large else 0.0
    most = beta.ppf(1 - error, small + 1, rest - small) if small < rest else 1.0
    return math.log(least / most) if least > 0 else -math.inf


def test_the_audit_does_not_break_ours():
    share = Fraction(99, 100)
    sensitivity = penalty_sensitivity(share, "add_remove", 1)
    draws = [
        np.asarray([private_percentile(histogram(wide), share, Fraction(1), sensitivity) for _ in range(RUNS)])
        for wide in (500, 501)
    ]
    assert lower_bound(*draws, error=1e-5) <= CLAIMED
    # and the exact loss, which the audit can only bound from below
    one, two = (exact_logs(histogram(wide), share, 1.0, sensitivity) for wide in (500, 501))
    assert np.abs(one - two).max() <= CLAIMED


def test_the_same_audit_breaks_the_published_scoring():
    rng = np.random.default_rng(11)
    draws = [np.asarray([published_percentile(histogram(wide), 0.99, 1.0, rng) for _ in range(RUNS)]) for wide in (500, 501)]
    assert lower_bound(*draws) > 2 * CLAIMED
