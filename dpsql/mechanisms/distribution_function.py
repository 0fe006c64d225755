r"""Released distribution functions: the exponential mechanism on the Kolmogorov-Smirnov distance, drawn exactly.

The source's n values fall into K ordered bins; F(k), k = 1 ... K, is the number of values in the first k bins. Released
is a histogram y* of exactly n synthetic values, that is a nondecreasing integer path F*(1) ... F*(K - 1) in [0, n] with
F*(K) = n. Its score is the distance d = max_k |F*(k) - F(k)|, n times the Kolmogorov-Smirnov distance.

**Privacy.** P(F*) is proportional to exp(-epsilon d / 2). If one value is replaced, every F(k) moves by at most 1, so d
moves by at most 1 whatever F* is; and the paths that may be released depend on the public n and K alone. So numerator
and normalisation each change by a factor of at most e^(epsilon / 2): epsilon-DP under replace_one, n being public. The
bound is not reached, but for small epsilon nearly (enumerated: 96 % of epsilon for n = 8, K = 3, epsilon = 0.1; half of it for
n = 1 or large epsilon). [Wasserman & Zhou 2010] call the mechanism impractical.

**A tube instead of a level.** Let r = e^(-epsilon / 2), and let the tube of radius J be all paths with d <= J. Draw J =
0, 1, 2, ... with weight r^J times the number N_J of paths in its tube, then a path of the tube, all alike. A path has a
total weight of sum_{J >= d} r^J = r^d / (1 - r): its probability under the mechanism. All J >= n have the same tube, all
paths; they are one case of weight r^n / (1 - r).

**Exactly, from doubles.** A path of a tube is drawn backwards: F*(k) given F*(k + 1) = w takes the value v <= w with
probability proportional to the number of paths that end there, a_k(v); and a_(k+1)(w) = c_k(w), c_k(w) = sum_(v <= w)
a_k(v). With the doubles c_k as cumulative sums come out, v is drawn with probability exactly (c_k(v) - c_k(v - 1)) /
c_k(w), a ratio of integers. So the probability Q of a drawn path is an exactly known fraction, and almost 1 / N_J:

* a_k is nondecreasing, so c_k(v - 1) is at most about (width of the tube) a_k(v), and c_k(v) - c_k(v - 1) = a_k(v) (1 +
  t) with |t| <= delta = (width + 1) 2^-52: rounding errors of one addition, with a factor of two to spare.
* The product telescopes: with M_J the number of paths as the doubles have it, Q M_J lies within (1 +- delta)^(K - 1).
  Q sums to 1 over the N_J paths; so N_J >= M_J (1 - x), 1 / Q and N_J are at most M_J / (1 - x), x = (K - 1) delta.

**Rejection makes it exact.** The radii are cut into intervals. For every interval, m is a proved upper bound of r^J / Q
for its radii and their paths: m = r^a M_(b-1) / (1 - x)^3 for a <= J < b, since N_J increases. An interval is drawn with
weight (length) x m, in integers; J uniform in it; a path with its Q; and that is accepted with probability r^J / (m Q).
So (J, path) has a probability proportional to r^J, whatever errors the doubles had. Acceptance compares lazy random digits
with bounds of r^J, as many as it takes. Intervals are refined until most proposals are accepted. Far out, where nothing
is ever proposed in practice, bounds come from N_J <= min((2 J + 1)^(K - 1), C(n + K - 1, K - 1)). Nothing is cut off.

Doubles hold the numbers of paths as long as the largest and the smallest of a step are within 2^1850: a_k(bottom + u) /
a_k(bottom) <= C(u + k - 1, k - 1), u <= min(2 J, n). (By induction: if a_k(u) / C(u + k - 1, k - 1) decreases in u, then so
do the ratios of the cumulative sums, and shifting or capping the range only flattens a_(k+1).) Beyond that, Python
integers are used.

**Sizes.** What counts is K, the widest tube that matters (some 5 K log(K) / epsilon, never more than n + 1) and the number
of tubes that are counted (3 to 100). Measured on one core, n = 5 million, first draw:

======== ======= ======= ======= ======= ====== ====== ====== ========
K        2       20      50      100     250    20     50     20
epsilon  1       1       1       1       1      0.01   0.01   0.001
seconds  < 0.01  0.03    0.1     0.2     0.9    0.1    0.5    0.7
======== ======= ======= ======= ======= ====== ====== ====== ========

Every further draw takes 1 to 50 milliseconds. `cost` predicts it from public numbers, and beyond `LIMIT` nothing is sold:
about K > 265 at epsilon = 1, K > 130 at epsilon = 0.01, or epsilon < 0.0014 at K = 50.
How long a draw takes depends a little on the data; who can time single draws is outside the contract.

References
----------
Wasserman & Zhou (2010), arXiv:0811.2501, section 5. McSherry & Talwar (2007) for the exponential mechanism.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import numpy as np

from dpsql.mechanisms.tubes import Step, draw_path, log_paths, most_paths, range_bits, steps
from dpsql.noise.entropy import exp_bounds, integer_below, random_integer
from dpsql.numerics.arrays import IntArray

LIMIT = 1e10
"""Most additions that a release may take, see `cost`: about 10 seconds."""

_RANGE_BITS = 1850
_FAR_BITS = 64
"""Radii that are proposed less than once in 2^64 times are not looked at closely."""

_SLACK = 8.0
"""Intervals are refined until the bounds are at most this times what the tubes are known to hold."""

_GRID_BITS = 96

_MOST_ERROR = Fraction(1, 64)
"""Of x, see above; tubes that would exceed it are counted in Python integers."""

_MOST_NUMBERS = 1 << 27
"""Doubles that a tube may take."""


def cost(cells: int, rows: int | None, epsilon: float | Fraction, sets: int = 1) -> float:
    """Return roughly the number of additions that a release takes.

    Parameters
    ----------
    cells : int, >= 1
        K.
    rows : int or None
        n; None where it is not known: the largest cost of any n.
    epsilon : float or Fraction, > 0
        Of one set.
    sets : int, >= 1

    Returns
    -------
    float
        Infinite where doubles cannot hold the numbers of paths, or a tube takes more than a gigabyte. About 1e9 a
        second, on one core; what Python spends on small tubes is counted as additions.

    Notes
    -----
    Privacy: public numbers alone.
    """
    rows = 1 << 62 if rows is None else rows
    if cells == 1 or rows == 0:
        return 1.0
    top = _far(cells, rows, max(float(epsilon) / 2, 1e-300))
    width = min(2.0 * top + 1.0, rows + 1.0)
    if range_bits(cells, rows, top) > _RANGE_BITS or cells * width > _MOST_NUMBERS:
        return math.inf
    usual = min(8.0 * cells / float(epsilon) + 1.0, width)
    overhead = 3e6 + 2e4 * cells * math.sqrt(cells) + 1e5 * sets * cells
    return cells * (width * (12.0 + 2.0 * math.sqrt(cells)) + sets * 8.0 * usual) + overhead


def draw_histograms(counts: IntArray, epsilon: Fraction, draws: int = 1) -> list[IntArray]:
    """Draw histograms of as many values from the exponential mechanism, independently.

    Parameters
    ----------
    counts : int64 array, shape (K,)
        Exact counts of the ordered bins.
    epsilon : Fraction, > 0
        Of each draw.
    draws : int, >= 1

    Returns
    -------
    list of int64 arrays, shape (K,)
        Each sums to the sum of the counts.

    Notes
    -----
    Privacy: each draw is epsilon-DP under replace_one where the number of rows is public and a unit has one row; see
    the head of this file. Entropy from the operating system; no seed.
    """
    rows = int(counts.sum())
    if counts.size == 1 or rows == 0:
        return [counts.copy() for _ in range(draws)]
    sampler = Sampler([int(value) for value in np.cumsum(counts)[:-1]], rows, epsilon)
    return [np.diff(sampler.draw(), prepend=0, append=rows) for _ in range(draws)]


@dataclass(frozen=True)
class Interval:
    """Radii start <= J < stop; with ``stop`` None all J >= start = n, drawn as J = n."""

    start: int
    stop: int | None

    @property
    def last(self) -> int:
        """The largest radius whose tube is counted."""
        return self.start if self.stop is None else self.stop - 1

    @property
    def length(self) -> int:
        """Number of radii that are proposed."""
        return 1 if self.stop is None else self.stop - self.start


class Sampler:
    """Draws from the exponential mechanism around one distribution function.

    Parameters
    ----------
    cumulative : list of int, length K - 1 >= 1
        F(1) ... F(K - 1).
    rows : int, >= 1
        n.
    epsilon : Fraction, > 0

    Notes
    -----
    Privacy: secret, made of exact counts; what `draw` returns is epsilon-DP.
    """

    def __init__(self, cumulative: list[int], rows: int, epsilon: Fraction) -> None:
        self.cumulative, self.rows, self.half = cumulative, rows, epsilon / 2
        self._rate = max(float(self.half), 1e-300)
        self.cells = len(cumulative) + 1
        self._numbers: dict[int, int] = {}
        self.intervals = self._refined()
        bounds = [self.bound(interval) for interval in self.intervals]
        place = max(b.numerator.bit_length() - b.denominator.bit_length() for b in bounds) - _GRID_BITS
        self.unit = Fraction(2) ** place
        self.bounds = [math.ceil(bound / self.unit) for bound in bounds]
        self._weights = list(accumulate(i.length * b for i, b in zip(self.intervals, self.bounds, strict=True)))

    def draw(self) -> list[int]:
        """Return F*(1) ... F*(K - 1)."""
        while True:
            chosen, radius = self.propose()
            path, probability = draw_path(self.tube(radius), self.rows)
            ends = self.intervals[chosen].stop is None
            if self._accepts(radius, ends, self.bounds[chosen] * self.unit * probability):
                return path

    def propose(self) -> tuple[int, int]:
        """Return the number of an interval and a radius in it."""
        drawn = integer_below(self._weights[-1])
        chosen = bisect_right(self._weights, drawn)
        within = drawn - (self._weights[chosen - 1] if chosen else 0)
        return chosen, self.intervals[chosen].start + within // self.bounds[chosen]

    def tube(self, radius: int) -> list[Step]:
        """Return the cumulative numbers of paths of the tube of this radius."""
        return list(steps(self.cumulative, self.rows, radius, integers=self._needs_integers(radius)))

    def number(self, radius: int) -> int:
        """Return M_J, the number of paths of a tube as the doubles have it."""
        if radius not in self._numbers:
            total = shifts = 0
            for step in steps(self.cumulative, self.rows, radius, integers=self._needs_integers(radius)):
                total, shifts = int(step.sums[-1]), shifts + step.shift
            self._numbers[radius] = total << shifts
        return self._numbers[radius]

    def bound(self, interval: Interval) -> Fraction:
        """Return an upper bound of (weight of J) / Q, for all radii of the interval and all paths of their tubes."""
        known = [radius for radius in self._numbers if radius >= interval.last]
        radius = min(known, default=interval.last)
        number = self._numbers.get(radius, 0) or most_paths(self.cells, self.rows, radius)
        error = (self.cells - 1) * Fraction(min(2 * radius, self.rows) + 2, 1 << 52)
        return self._highest(interval) * number / (1 - min(error, _MOST_ERROR)) ** 3

    def _highest(self, interval: Interval) -> Fraction:
        """Return an upper bound of the weight of each radius of an interval."""
        negligible = 2 * _GRID_BITS + math.ceil(log_paths(self.cells, self.rows, self.rows) / math.log(2.0))
        if self.half * interval.start <= negligible:
            _, high, scale = self.weight(interval.start, interval.stop is None, _GRID_BITS)
            return high * scale
        below = Fraction(1, 1 << negligible)  # e^-x < 2^-x; a closer bound would cost time and change nothing
        return below if interval.stop else below * self._inverse_rest(_GRID_BITS)[1] / (1 << _GRID_BITS)

    def weight(self, radius: int, ends: bool, bits: int) -> tuple[int, int, Fraction]:
        """Return integers around r^J / scale, or r^n / (1 - r) / scale if all radii from n on are meant, and the scale.

        They have about ``bits`` binary digits.
        """
        exponent = self.half * radius
        precision = bits + math.ceil(exponent * 1.4426950408889635) + 2
        low, high = exp_bounds(exponent, precision) if radius else (1 << precision, 1 << precision)
        if not ends:
            return low, high, Fraction(1, 1 << precision)
        rest_low, rest_high = self._inverse_rest(bits)
        return low * rest_low, high * rest_high, Fraction(1, 1 << precision + bits)

    def _inverse_rest(self, bits: int) -> tuple[int, int]:
        """Return integers around 2^bits / (1 - r)."""
        small = max(0, self.half.denominator.bit_length() - self.half.numerator.bit_length() + 1)
        precision = bits + 2 * small + 8
        r_low, r_high = exp_bounds(self.half, precision)
        one = 1 << precision
        return (one << bits) // (one - r_low), -(-(one << bits) // (one - r_high))

    def _accepts(self, radius: int, ends: bool, divisor: Fraction) -> bool:
        """Return True with probability (weight of J) / divisor: a lazy uniform number against bounds of the weight."""
        bits, word = 64, random_integer(64)
        while True:
            low, high, scale = self.weight(radius, ends, bits + 16)
            edge = divisor / scale
            if (word + 1) * edge <= low << bits:
                return True
            if word * edge >= high << bits:
                return False
            bits, word = bits + 64, word << 64 | random_integer(64)

    def _needs_integers(self, radius: int) -> bool:
        if self.cells * (min(2 * radius, self.rows) + 2) > _MOST_ERROR * 2**52:
            return True
        return range_bits(self.cells, self.rows, radius) > _RANGE_BITS

    def _refined(self) -> list[Interval]:
        """Return intervals whose bounds are close enough; how close does not matter for the result, only for the time."""
        far = min(_far(self.cells, self.rows, self._rate), self.rows)
        doubling = [1 << i for i in range(far.bit_length())] + [far << i for i in range(self.rows.bit_length())]
        edges = sorted({0, self.rows, *(edge for edge in doubling if edge < self.rows)})
        intervals = [Interval(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True)]
        intervals.append(Interval(self.rows, None))
        while True:
            upper = np.array([self._logarithm(interval) for interval in intervals])
            lower = np.array([self._least(interval) for interval in intervals])
            weights, least = np.exp(upper - upper.max()), np.exp(lower - upper.max())
            if weights.sum() <= _SLACK * least.sum():
                return intervals
            # The interval that is least certain is either computed at its end, or halved.
            position = int(np.argmax(weights - least))
            interval = intervals[position]
            if interval.last not in self._numbers:
                self.number(interval.last)
                continue
            middle = (interval.start + interval.last + 1) // 2
            intervals[position : position + 1] = [Interval(interval.start, middle), Interval(middle, interval.stop)]

    def _logarithm(self, interval: Interval) -> float:
        """Return about the logarithm of the interval's weight in proposals."""
        known = [radius for radius in self._numbers if radius >= interval.last]
        number = self._numbers[min(known)] if known else 0
        most = math.log(number) if number else log_paths(self.cells, self.rows, interval.last)
        return most - self._rate * interval.start + self._log_length(interval)

    def _least(self, interval: Interval) -> float:
        """Return about the logarithm of the weight that the interval holds at least."""
        radius = max((radius for radius in self._numbers if radius <= interval.start), default=None)
        least = 0.0 if radius is None else math.log(self._numbers[radius])
        return least - self._rate * (interval.start if interval.stop is None else interval.last) + self._log_length(interval)

    def _log_length(self, interval: Interval) -> float:
        if interval.stop is None:
            return -math.log(-math.expm1(-self._rate))
        return math.log(interval.length)


def _far(cells: int, rows: int, half: float) -> int:
    """Return a radius beyond which proposals are rarer than 2^-64, or n.

    Bounds of the intervals from J to 2 J, from 2 J to 4 J, ... are compared with the sum of all weights, at least 1.
    """
    radius = 1
    while radius < rows:
        beyond = log_paths(cells, rows, 2 * radius) - half * radius + math.log(2.0 * radius)
        if 2 * cells < half * radius and beyond < -_FAR_BITS * math.log(2.0):
            return radius
        radius += max(1, radius // 8)
    return rows
