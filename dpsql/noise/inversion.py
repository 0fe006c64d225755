"""Exact inversion with lazy bits: a table that a discrete distribution is drawn from without error; see `dpsql.noise.discrete`."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsql.noise.entropy import WORDS, exp_bounds, random_integer, random_words
from dpsql.numerics.arrays import IntArray


@dataclass(frozen=True)
class Weights:
    """Unnormalised probabilities w_x = exp(-exponent * x) or, if ``square``, exp(-exponent * x^2), x = 0, 1, ....

    Parameters
    ----------
    exponent : Fraction, > 0
    square : bool
    cells : int, optional
        x < cells; unlimited by default.
    """

    exponent: Fraction
    square: bool = False
    cells: int | None = None

    def bounds(self, precision: int) -> tuple[list[int], list[int], int]:
        """Return lower and upper bounds of 2^precision w_x, x = 0, 1, ..., and one of the sum of all later weights."""
        q_low, q_high = exp_bounds(self.exponent, precision)
        ratio_low, ratio_high = q_low, q_high
        low = high = 1 << precision
        lows, highs = [low], [high]
        while low > 0 and len(lows) != self.cells:
            low, high = low * ratio_low >> precision, -(-high * ratio_high >> precision)
            lows.append(low)
            highs.append(high)
            if self.square:  # the ratio of neighbours is q^(2 x + 1)
                ratio_low = ratio_low * q_low * q_low >> 2 * precision
                ratio_high = -(-ratio_high * q_high * q_high >> 2 * precision)
        if len(lows) == self.cells:
            return lows, highs, 0
        # sum over j > 0 of exp(-s j) < 1/s with s the slope of the exponent at the last weight
        last = len(lows) - 1
        slope = self.exponent * 2 * last if self.square else self.exponent
        return lows, highs, math.ceil(high / slope)

    def thresholds(self, bits: int) -> list[int]:
        """Return C_i = floor(2^bits c_i), proved, up to the last cell or to the first that is 2^bits - 1."""
        precision = bits + 64
        while True:
            lows, highs, tail = self.bounds(precision)
            total_low, total_high = sum(lows), sum(highs) + tail
            count = len(lows) - 1 if len(lows) == self.cells else len(lows)
            top = (1 << bits) - 1
            sum_low = sum_high = 0
            levels: list[int] = []
            for i in range(count):
                sum_low, sum_high = sum_low + lows[i], sum_high + highs[i]
                at_least = (sum_low << bits) // total_high
                if at_least != min(top, (sum_high << bits) // total_low):  # c_i < 1, so C_i <= top
                    break
                levels.append(at_least)
                if at_least == top:
                    return levels
            if len(levels) == count and self.cells is not None:
                return levels
            precision *= 2


class Table:
    """Draws from ``Weights`` by exact inversion; see the head of `dpsql.noise.discrete`.

    Parameters
    ----------
    weights : Weights
    bits : {64, 32, 16, 8}
        Binary digits of the uniform number that are drawn at once. Exact for each; fewer make the slow path frequent
        (tests).
    """

    def __init__(self, weights: Weights, bits: int = 64) -> None:
        self.weights = weights
        self.bits = bits
        word = WORDS[bits]
        self.thresholds = np.array(weights.thresholds(bits), dtype=word)
        self._padded = np.append(self.thresholds, word(0))

    def draw(self, count: int) -> IntArray:
        """Return independent draws."""
        words = random_words(count, self.bits)
        result = self.thresholds.searchsorted(words).astype(np.int64, copy=False)
        for position in np.flatnonzero(self._padded[result] == words):
            result[position] = self.resolve(int(words[position]))
        return result

    def resolve(self, word: int) -> int:
        """Return the draw that begins with these digits, drawing as many more as it takes."""
        bits = self.bits
        while True:
            bits += self.bits
            word = word << self.bits | random_integer(self.bits)
            thresholds = self.weights.thresholds(bits)
            cell = bisect_left(thresholds, word)
            if cell == len(thresholds) or thresholds[cell] != word:
                return cell
