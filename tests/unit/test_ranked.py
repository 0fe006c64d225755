"""Quantiles by the exponential mechanism, drawn from some of the rows: the law, piece by piece, and what neighbours can tell."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from dpsql.mechanisms import ranked
from dpsql.mechanisms.percentile import penalties
from dpsql.mechanisms.ranked import Ranked, Uniform, picked, reach, sensitivity

HALF = Fraction(1, 2)
HISTOGRAMS = [
    [0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [3, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 2], [1, 1, 1, 1, 1, 1], [0, 5, 0, 0, 1, 0],
    [0, 40, 0, 0, 37, 0], [2, 0, 9, 9, 0, 30],
]
SHARES = [HALF, Fraction(1, 10), Fraction(9, 10), Fraction(1, 3), Fraction(999, 1000)]


def near(histogram: Sequence[int], share: Fraction, most: int | None) -> Ranked:
    """Return the rows of a histogram whose units have a penalty of at most so many rows, as the statement gives them."""
    rows = np.asarray(histogram, np.int64)
    upto, total = np.cumsum(rows), int(rows.sum())
    kept = rows > 0
    if most is not None:
        kept &= np.array([u >= share * total - most and u - n <= share * total + most for u, n in zip(upto.tolist(), rows.tolist(), strict=True)])
    return Ranked(np.flatnonzero(kept), rows[kept], upto[kept], total if kept.any() else 0, most)


def law(histogram: Sequence[int], share: Fraction, edges: Sequence[int], gamma: Fraction) -> list[float]:
    """Return the probability of each unit, by the formula."""
    penalty, parts = penalties(np.asarray(histogram, np.int64), share)
    widths = [b - a for a, b in itertools.pairwise(edges) for _ in range(a, b)]
    logs = [-float(gamma) * int(p) / parts - math.log(w) for p, w in zip(penalty, widths, strict=True)]
    weights = [math.exp(x - max(logs)) for x in logs]
    return [w / sum(weights) for w in weights]


class Digits(Uniform):
    """A real number that begins with some digits; the others follow from these, and never repeat: no end of a piece is just there."""

    def __init__(self, digits: int, bits: int) -> None:
        self.step, self.bits, self.digits, self.rest = 8, bits, digits, random.Random(digits)

    def more(self) -> None:
        self.digits, self.bits = self.digits << 8 | self.rest.getrandbits(8), self.bits + 8


@pytest.mark.parametrize("edges", [(0, 6), (0, 2, 3, 6)], ids=str)
@pytest.mark.parametrize("share", SHARES, ids=str)
@pytest.mark.parametrize("histogram", HISTOGRAMS, ids=str)
def test_each_unit_has_its_part_of_the_unit_interval(
    histogram: list[int], share: Fraction, edges: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the 2^7 numbers with seven digits, as many lead to a piece as its probability says, but for one at each end."""
    gamma, bits = Fraction(1, 7), 7
    monkeypatch.setattr(ranked, "integer_below", lambda bound: 0)
    expected = law(histogram, share, edges, gamma)
    held = near(histogram, share, None)
    found = [0] * len(histogram)
    last = -1
    for digits in range(1 << bits):
        unit = picked(held, share, edges, gamma, Digits(digits, bits))
        assert unit is not None and unit >= last, "pieces come in order"
        last = unit
        found[unit] += 1
    starts = [u for u in range(len(histogram)) if found[u]]
    upto, true = np.cumsum(found) / 2**bits, np.cumsum(expected)
    for start, behind in itertools.pairwise([*starts, len(histogram)]):
        assert abs(upto[behind - 1] - true[behind - 1]) <= 1.01 / 2**bits, (start, behind)


@pytest.mark.parametrize("share", SHARES, ids=str)
@pytest.mark.parametrize("histogram", HISTOGRAMS, ids=str)
def test_units_of_a_piece_are_alike(histogram: list[int], share: Fraction) -> None:
    """What is drawn inside of a piece is uniform: all its units have the same probability."""
    edges = (0, 2, 6)
    pieces = ranked._pieces(near(histogram, share, None), share, edges)
    assert [unit for piece in pieces for unit in range(piece.first, piece.first + piece.size)] == list(range(6))
    penalty, parts = penalties(np.asarray(histogram, np.int64), share)
    assert parts == share.denominator
    for piece in pieces:
        units = range(piece.first, piece.first + piece.size)
        assert {int(penalty[unit]) for unit in units} == {piece.penalty} and not piece.unknown
        assert {b - a for a, b in itertools.pairwise(edges) for unit in units if a <= unit < b} == {piece.width}


@pytest.mark.parametrize("most", [0, 1, 3, 20])
def test_some_of_the_rows_say_the_same_as_all(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the rows near the rank do not tell, the draw wants all, and never says anything else."""
    monkeypatch.setattr(ranked, "integer_below", lambda bound: bound - 1)
    gamma, answered, asked = Fraction(2, 3), 0, 0
    for histogram, share in itertools.product(HISTOGRAMS, SHARES):
        for digits in range(0, 256, 16):
            some = picked(near(histogram, share, most), share, (0, 2, 6), gamma, Digits(digits, 8))
            every = picked(near(histogram, share, None), share, (0, 2, 6), gamma, Digits(digits, 8))
            assert every is not None
            asked += 1
            answered += some is not None
            if some is not None:
                assert some == every
    assert 0 < answered < asked


def test_a_penalty_far_away_is_bounded_from_below() -> None:
    """The pieces of rows that are not known have at least the penalty that they are given."""
    for histogram, share, most in itertools.product(HISTOGRAMS, SHARES, [0, 1, 3]):
        penalty, _ = penalties(np.asarray(histogram, np.int64), share)
        pieces = ranked._pieces(near(histogram, share, most), share, (0, 6))
        assert sum(piece.size for piece in pieces) == 6
        for piece in pieces:
            true = {int(penalty[unit]) for unit in range(piece.first, piece.first + piece.size)}
            assert min(true) >= piece.penalty if piece.unknown else true == {piece.penalty}


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one"])
@pytest.mark.parametrize("bounds", [(2, None, None), (None, 2, 1), (None, 1, 2)], ids=str)
def test_neighbours_cannot_tell_more_than_is_charged(neighbors: str, bounds: tuple[int | None, ...]) -> None:
    """All tables of two groups and three units with at most two rows, and all that one privacy unit can add to them or exchange.

    The privacy loss of the two draws together lies in an interval as long as all the mechanisms that are charged are together.
    """
    epsilon, edges = Fraction(6, 5), (0, 1, 3)
    rows, groups, each = bounds
    places = list(itertools.product(range(2), range(3)))
    units = [chosen for n in range(3) for chosen in itertools.combinations_with_replacement(places, n) if fits(chosen, rows, groups, each)]
    tables = [chosen for n in range(3) for chosen in itertools.combinations_with_replacement(places, n)]
    for share in (HALF, Fraction(1, 10)):
        moved, count = sensitivity(share, neighbors, rows, groups, each, grouped=True)
        gamma = epsilon / (2 * moved)
        cached = {}

        def loss(table: tuple[tuple[int, int], ...], gamma: Fraction = gamma, share: Fraction = share, cached: dict = cached) -> list[np.ndarray]:
            key = tuple(sorted(table))
            if key not in cached:
                counts = [[sum(row == (g, u) for row in key) for u in range(3)] for g in range(2)]
                cached[key] = [np.log(law(histogram, share, edges, gamma)) for histogram in counts]
            return cached[key]

        worst = 0.0
        pairs = itertools.product(units, units if neighbors == "replace_one" else [()])
        for (one, other), rest in itertools.product(pairs, tables):
            sides = [a - b for a, b in zip(loss((*rest, *one)), loss((*rest, *other)), strict=True)]
            worst = max(worst, sum(float(side.max() - side.min()) for side in sides))
        assert worst <= float(epsilon) * count * (1 + 1e-9)
        assert worst >= float(epsilon) * count * 0.3, "the charge is not far too large either"


def fits(rows: Sequence[tuple[int, int]], most: int | None, groups: int | None, each: int | None) -> bool:
    """Return whether a unit may have these rows."""
    counts = [sum(row[0] == g for row in rows) for g in range(2)]
    if most is not None:
        return len(rows) <= most
    assert groups is not None and each is not None
    return sum(n > 0 for n in counts) <= groups and max(counts) <= each


def test_beyond_reach_there_is_next_to_nothing() -> None:
    for count, gamma in [(2, Fraction(1, 3)), (1 << 48, Fraction(1, 1000))]:
        left = math.log(count) + math.log(ranked._MOST_LEAVES) - float(gamma) * reach(count, gamma)
        assert -46.5 <= left <= -46.0


def test_large_numbers_neither_fail_nor_take_long() -> None:
    """2^53 units, a few rows at their ends, a share with many digits, the smallest gamma that is drawn at and a huge one."""
    cells, rows = np.array([0, 2**53 - 1]), np.array([2**40, 2**40])
    held = Ranked(cells, rows, np.cumsum(rows), 2**41, None)
    for share, gamma in itertools.product([HALF, Fraction(123_457, 1_000_000)], [Fraction(1, 1500), Fraction(10**6)]):
        unit = picked(held, share, (0, 2**53), gamma, Uniform())
        assert unit is not None and 0 <= unit < 2**53
    assert picked(held, Fraction(1, 10), (0, 2**53), Fraction(1, 100), Uniform()) == 0
    empty = Ranked(cells[:0], rows[:0], rows[:0], 0, None)
    assert 0 <= (picked(empty, HALF, (0, 1, 2**53), Fraction(1), Uniform()) or 0) < 2**53
