r"""Binomial(N, p), drawn exactly: N of any size, p known through proved bounds alone.

**Inversion with lazy bits.** Let F_k = P(K <= k) and U a uniform real number of which only the first b digits u are
drawn, so u <= 2^b U < u + 1. If u + 1 <= 2^b F_k then U < F_k, and if u >= 2^b F_k then U >= F_k. The draw is the smallest k with
U < F_k. The F_k are known as intervals of integers, from P(K = 0) = (1 - p)^N and P(K = k + 1) = P(K = k) (N - k) p /
((k + 1) (1 - p)), every step rounded outwards. Where the intervals do not decide (about once in 2^55 draws), U gets as many more
digits, and p, the powers and the sums are computed again with more. No digit of U is ever drawn twice and none is
thrown away, so the result has the exact distribution; it ends with probability 1.

**Large means.** (1 - p)^N loses 1.44 N p binary digits, so N is cut into parts of mean at most 64, whose draws add up: a sum of
independent Binomial(N_i, p) is Binomial(N_1 + N_2 + ..., p). There are at most two sizes of parts.

References
----------
Karney (2016), arXiv:1303.6257, for sampling with lazy bits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from dpsql.errors import ArgumentError
from dpsql.mechanisms.laplace_tail import power_bounds
from dpsql.noise.entropy import random_integer

Bounds = Callable[[int], tuple[int, int]]
"""From a precision to integers around 2^precision p."""

_BITS = 64
_MEAN = 64
_GUARD = 32 + 4 * _MEAN


class _Part:
    """Draws from Binomial(trials, p) whose mean is at most about 64."""

    def __init__(self, trials: int, probability: Bounds) -> None:
        self.trials = trials
        self.probability = probability
        self.first = self.cumulative(_BITS)

    def cumulative(self, bits: int) -> tuple[list[int], list[int]]:
        """Return lists of lower and upper bounds of 2^bits F_k, k = 0, 1, ..., until an upper bound is 2^bits."""
        guard = _GUARD + 2 * self.trials.bit_length() + bits
        work = bits + guard
        one, top = 1 << work, 1 << bits
        p_low, p_high = self.probability(work)
        p_low, p_high = max(p_low, 0), min(p_high, one)
        low, high = power_bounds(one - p_high, one - p_low, self.trials, work)
        odds_low = (p_low << work) // (one - p_low) if p_low < one else 0
        odds_high = -((-p_high << work) // (one - p_high)) if p_high < one else 0
        sum_low = sum_high = 0
        lows: list[int] = []
        highs: list[int] = []
        for k in range(self.trials):
            sum_low, sum_high = sum_low + low, sum_high + high
            lows.append(min(top, sum_low >> guard))
            highs.append(min(top, -(-sum_high >> guard)))
            if highs[-1] == top:
                return lows, highs
            left = self.trials - k
            low = (low * odds_low * left >> work) // (k + 1)
            high = -((-high * odds_high * left >> work) // (k + 1))
        return [*lows, top], [*highs, top]  # F_N = 1

    def draw(self) -> int:
        """Return one draw."""
        bits = _BITS
        digits = random_integer(bits)
        lows, highs = self.first
        while True:
            # Certain as soon as the bounds leave one number; else more digits are drawn.
            drawn = bisect_left(lows, digits + 1)
            if drawn < len(lows) and (drawn == 0 or highs[drawn - 1] <= digits):
                return drawn
            digits = digits << bits | random_integer(bits)
            bits *= 2
            lows, highs = self.cumulative(bits)


class Binomial:
    """Draws from Binomial(trials, p).

    Parameters
    ----------
    trials : int, at least 0
        N, of any size: 10^300 is as good as 10.
    probability : callable
        precision -> (low, high): integers with low <= 2^precision p <= high, 0 <= p <= 1/2, closing in on each other as
        the precision grows.

    Raises
    ------
    ArgumentError
        trials is negative or not an integer, or p is proved to exceed 1/2.

    Notes
    -----
    Privacy: exact, entropy from the operating system, no seed. Drawing takes about 1 microsecond for each 64 of the mean N p.

    Examples
    --------
    >>> Binomial(10**30, lambda precision: (0, 0)).draw()
    0
    """

    def __init__(self, trials: int, probability: Bounds) -> None:
        if isinstance(trials, bool) or not isinstance(trials, int) or trials < 0:
            raise ArgumentError("trials", trials, "must be a whole number of at least 0")
        precision = _BITS + trials.bit_length()
        low, high = probability(precision)
        if low > 1 << (precision - 1):
            raise ArgumentError("probability", low / (1 << precision), "must be at most 1/2; count the failures instead")
        parts = max(1, -(-trials * high // (_MEAN << precision)))
        size, larger = divmod(trials, parts)
        kinds = ((size, parts - larger), (size + 1, larger))
        self._parts = [(_Part(trials, probability), times) for trials, times in kinds if trials and times]

    def draw(self) -> int:
        """Return one draw, 0 <= k <= trials."""
        return sum(part.draw() for part, times in self._parts for _ in range(times))


def binomial(trials: int, probability: Bounds) -> int:
    """Return one draw of Binomial(trials, p); see `Binomial` for the arguments, the errors and the privacy."""
    return Binomial(trials, probability).draw()
