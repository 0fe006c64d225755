"""Known values of the histogram methods against mpmath, and counts of lattice paths against Python integers."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from pairwise import grid

from dpsql.mechanisms import tubes
from dpsql.mechanisms.distribution_function import Sampler
from dpsql.mechanisms.multinomial import dirichlet_prior, fixed_prior
from dpsql.mechanisms.tubes import draw_path, steps


def test_race_counts_of_the_worked_example() -> None:
    """[Hu]: (816, 109, 7, 39, 6, 17), epsilon = 5."""
    rows = sum((816, 109, 7, 39, 6, 17))
    assert rows == 994
    used = dirichlet_prior(Fraction(5), rows, 6)
    assert used is not None and float(used) == pytest.approx(6.742953, abs=5e-7)
    assert float(used) == pytest.approx(rows / math.expm1(5.0), rel=1e-14)


@grid(
    cells=[2, 50, 10**6],
    rows=[1, 40, 5_000_000, 10**12],
    epsilon=[Fraction(1, 10**30), Fraction(1, 10**6), Fraction(0.1), Fraction(1), Fraction(50), Fraction(5000)],
)
def test_priors_are_rounded_up_by_less_than_a_step(epsilon: Fraction, rows: int, cells: int) -> None:
    with mp.workdps(120):
        exponent = mp.mpf(epsilon.numerator) / epsilon.denominator
        for prior, exact in (
            (dirichlet_prior(epsilon, rows, cells), rows / mp.expm1(exponent)),
            (fixed_prior(epsilon, rows, cells), 1 / mp.expm1(exponent / rows)),
        ):
            if prior is None:  # infinite: only where 62 bits cannot hold the weights
                assert cells * exact + 2 * rows + cells >= 2**61
                continue
            bits = 62 - (math.ceil(cells * prior) + 2 * rows + cells).bit_length()
            assert Fraction(math.ceil(prior * 2**bits), 2**bits) == prior  # on the grid
            assert cells * prior + 2 * rows <= 2 ** (62 - bits)
            excess = mp.mpf(prior.numerator) / prior.denominator - exact
            assert 0 <= excess <= mp.mpf(2) ** -bits * 2 + exact * mp.mpf(2) ** -90


@pytest.mark.parametrize(("cells", "rows", "radius"), [(2, 9, 3), (5, 100, 30), (40, 500, 60), (300, 10_000, 800), (200, 3_000, 3_000)])
@pytest.mark.parametrize("shape", ["first", "even", "last"])
def test_numbers_of_paths_in_doubles(cells: int, rows: int, radius: int, shape: str) -> None:
    """Doubles against Python integers, within the proved bounds; the largest cases are rescaled on the way."""
    inner = {"first": [rows] * (cells - 1), "even": [rows * k // cells for k in range(1, cells)], "last": [0] * (cells - 1)}[shape]
    tube = list(steps(inner, rows, radius))
    *_, exact = steps(inner, rows, radius, integers=True)
    number, shifts = int(exact.sums[-1]), sum(step.shift for step in tube)
    assert shifts > 0 if number > 2**1000 else shifts == 0 or number > 2**900
    delta = Fraction(min(2 * radius, rows) + 2, 1 << 52)
    error = (cells - 1) * delta
    found = int(tube[-1].sums[-1]) << shifts
    assert number * (1 - error) <= found <= number / (1 - error)
    for step in tube:
        assert step.sums[0] >= 2.0**-1000  # normal: every place counts
        assert math.log2(step.sums[-1]) - math.log2(step.sums[0]) <= tubes.range_bits(cells, rows, radius) + math.log2(step.sums.size)
    for _ in range(3):
        path, probability = draw_path(tube, rows)
        assert path == sorted(path) and all(abs(a - b) <= radius for a, b in zip(path, inner, strict=True))
        assert abs(1 / (probability * found) - 1) <= 2 * error


def test_number_of_paths_by_brute_force() -> None:
    inner, rows = [2, 2, 5], 7
    for radius in range(8):
        *_, last = steps(inner, rows, radius)
        wanted = sum(
            all(a <= b for a, b in zip(path[:-1], path[1:], strict=True))
            and all(abs(a - b) <= radius for a, b in zip(path, inner, strict=True))
            for path in np.ndindex(8, 8, 8)
        )
        assert last.sums[-1] == wanted
    assert math.comb(rows + 3, 3) == wanted  # from n on: all of them


@pytest.mark.parametrize("epsilon", [Fraction(1, 50), Fraction(1), Fraction(30)])
@pytest.mark.parametrize("shape", ["first", "even"])
def test_bounds_of_proposals_hold_and_are_close(epsilon: Fraction, shape: str) -> None:
    """On many radii, the bound of the interval is at least r^J N_J; and the sum of all is not far above the truth."""
    cells, rows = 12, 300
    inner = [rows] * (cells - 1) if shape == "first" else [rows * k // cells for k in range(1, cells)]
    sampler = Sampler(inner, rows, epsilon)
    total = held = Fraction(0)
    with mp.workdps(40):
        for interval, bound in zip(sampler.intervals, sampler.bounds, strict=True):
            for radius in range(interval.start, interval.last + 1):
                *_, last = steps(inner, rows, radius, integers=True)
                _, high, scale = sampler.weight(radius, interval.stop is None, 100)
                exact = high * scale * int(last.sums[-1])
                assert exact <= bound * sampler.unit
                total, held = total + bound * sampler.unit, held + exact
    assert 1 <= total / held <= 8
