"""How strongly two columns depend on each other in a released table: Cramer's V without the noise's share, with its band.

Privacy: None: post-processing of released counts (and of what the custodian hands in to compare them with).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chndtr, ndtr

from dpsql.numerics.arrays import Clique, FloatArray
from dpsql.numerics.products import multiplies
from dpsql.page.figures import LEVEL, Measured

LARGE = 1 << 21  # cells of a pair that a dependence is still computed for
_HALVINGS = 40
_LARGE_MEAN = 1e4


@dataclass(frozen=True)
class Strength:
    """Dependence of one pair: Cramer's V after the noise's share was taken off, and what noise alone would do.

    Parameters
    ----------
    value, noise : float
    statistic, freedom, unit : float
        The sum that V was computed from is ``statistic`` times what one degree of freedom of noise adds to it, and follows about a
        noncentral chi-square law with ``freedom`` degrees; a noncentrality of 1 stands for V^2 = ``unit``.
    """

    value: float
    noise: float
    statistic: float = 0.0
    freedom: float = 0.0
    unit: float = 0.0

    @property
    def told_apart(self) -> bool:
        """Whether it is above what noise alone gives in 19 of 20 tables of independent columns, or so."""
        return self.value > self.noise


@multiplies
def strength(
    table: FloatArray,
    first: FloatArray,
    second: FloatArray,
    deviation: float,
    like: float | None = None,
    margins: tuple[float | None, float | None] = (None, None),
) -> Strength:
    """Return Cramer's V of a two-way table of counts with noise, corrected for the noise.

    Parameters
    ----------
    table : array, shape (r, c)
    first, second : arrays, shapes (r,) and (c,)
        Shares of the columns' values: the best that are known; at least 0, sums 1.
    deviation : float, >= 0
        Of the noise on a cell; 0 for exact counts.
    like : float or None
        Weigh cells as in a table with this noise, to be compared with it; None: ``deviation``.
    margins : pair of float or None
        Of the noise on the counts that ``first`` and ``second`` come from; None: they are the sums of the table itself.

    Returns
    -------
    Strength
        V = sqrt(sum of w (d^2 - var d) / (n (min(r, c) - 1))), w = 1 / max(e, 3 s), e = n p q: without noise the usual V. The
        residual d = (I - p 1') x (I - 1 q') is, for independent columns, wrong by the product of the errors of p and q only.
        ``noise``: the V that two standard deviations of the sum stand for, which noise alone passes in about one of 20 tables of
        independent columns.

    Examples
    --------
    >>> dependence = strength(np.array([[50.0, 0.0], [0.0, 50.0]]), np.full(2, 0.5), np.full(2, 0.5), 0.0)
    >>> dependence.value, dependence.noise
    (1.0, 0.0)
    """
    n = float(table.sum())
    if min(table.shape) < 2 or n <= 0:
        return Strength(0.0, 0.0)
    left, right = np.eye(len(first)) - first[:, None], np.eye(len(second)) - second[:, None]
    residual = left @ table @ right.T
    own = deviation * np.sqrt(table.shape[::-1])
    noises = [float(own[axis]) if known is None else known for axis, known in enumerate(margins)]
    # 1 / e is too large in the mean where p and q are noisy: to first order by the squares of their relative errors.
    excess = [(noise / np.maximum(n * p, noise or 1.0)) ** 2 for noise, p in zip(noises, (first, second), strict=True)]
    expected = n * np.outer(first, second)
    larger = expected * (1.0 + excess[0][:, None] + excess[1])
    floor = 3.0 * (deviation if like is None else like)
    weight = np.divide(1.0, np.maximum(larger, floor), out=np.zeros_like(expected), where=np.maximum(larger, floor) > 0)
    rows, columns = left @ left.T, right @ right.T
    scale = n * (min(table.shape) - 1)
    # S = sum of w d^2 is a quadratic form x' A x; the traces of A and A^2 give the mean and variance that noise alone has.
    trace = float((weight * np.outer(np.diag(rows), np.diag(columns))).sum())
    trace_of_square = float((weight * (rows**2 @ weight @ columns**2)).sum())
    total = float((weight * residual**2).sum())
    signal = max(0.0, total - deviation**2 * trace)
    value = min(1.0, math.sqrt(signal / scale))
    noise = min(1.0, math.sqrt(2 * deviation**2 * math.sqrt(2 * trace_of_square) / scale))
    if not deviation or not trace:
        return Strength(value, noise)
    # The gradient of S / n, times n: by the cells, and by the margins and n that the weights depend on where they have no floor.
    moved = np.where(larger > floor, weight * residual**2, 0.0)
    by_margin = [_centred(-moved.sum(axis=1 - axis), p) / n for axis, p in enumerate((first, second))]
    gradient = 2 * left.T @ (weight * residual) @ right - (total + float(moved.sum())) / n
    variance = 0.0
    for axis, known in enumerate(margins):
        if known is None:
            gradient += np.expand_dims(by_margin[axis], 1 - axis)
        else:
            variance += known**2 * float((by_margin[axis] ** 2).sum())
    squared = float((gradient**2).sum()) - 4 * deviation**2 * trace_of_square**2 / trace  # tr A^3 is at least that
    variance += deviation**2 * max(0.0, squared) + 2 * deviation**4 * trace_of_square
    unit = variance / (2 * (deviation**2 * trace + 2 * signal))
    return Strength(value, noise, total / unit, deviation**2 * trace / unit, unit / scale)


def _centred(by_share: FloatArray, shares: FloatArray) -> FloatArray:
    """Return the derivatives by counts, times their sum, of something with these derivatives by shares, times the shares."""
    return np.divide(by_share, shares, out=np.zeros_like(by_share), where=shares > 0) - float(by_share.sum())


def bands(strengths: Sequence[Strength]) -> tuple[FloatArray, FloatArray]:
    """Return the ends of the 95 % bands: which V the exact table can have, given the known noise.

    Returns
    -------
    low, high : arrays of the length of ``strengths``; NaN without noise of a known size
        Those V under which a statistic as large (as small) as the one found has a probability of 2.5 %: the noncentral chi-square
        law is inverted. About 95 % of bands hold the V of the exact table with cells weighted alike: 94 to 100 % in tables from
        2 x 2 to 11 x 300, fewer where strong dependence meets a column most of whose values are rarer than the noise on their sums.

    Examples
    --------
    >>> low, high = bands([Strength(0.1, 0.02, 101.0, 1.0, 1e-4), Strength(0.0, 0.02, 0.5, 1.0, 1e-4), Strength(0.4, 0.0)])
    >>> low.round(4).tolist(), high.round(4).tolist()
    ([0.0809, 0.0, nan], [0.1201, 0.0266, nan])
    """
    statistic, freedom, unit = (
        np.asarray([getattr(s, name) for s in strengths], dtype=np.float64) for name in ("statistic", "freedom", "unit")
    )
    low, high = (
        np.where(unit > 0, np.minimum(np.sqrt(unit * _noncentrality(statistic, freedom, probability)), 1.0), np.nan)
        for probability in ((1 + LEVEL) / 2, (1 - LEVEL) / 2)
    )
    return low, high


def _noncentrality(statistic: FloatArray, freedom: FloatArray, probability: float) -> FloatArray:
    """Return the noncentrality under which a smaller statistic has this probability; 0 where none has.

    By halving, for all at once: SciPy's own inverse gives no number for large statistics.
    """
    low, high = np.zeros_like(statistic), 2 * statistic + 40.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        mean = freedom + middle
        large = mean > _LARGE_MEAN  # the exact law takes long there, and the normal one is right to 0.001
        exact = chndtr(np.where(large, 1.0, statistic), np.maximum(freedom, 1e-9), np.where(large, 1.0, middle))
        below = np.where(large, ndtr((statistic - mean) / np.sqrt(2 * (mean + middle) + 1e-9)), exact)
        low, high = np.where(below > probability, middle, low), np.where(below > probability, high, middle)
    return low


def margins_of(measured: Measured, attributes: int) -> list[tuple[FloatArray, float] | None]:
    """Return each attribute's own released one-way table as shares, and the noise on its counts; None where none was released."""
    margins: list[tuple[FloatArray, float] | None] = []
    for i in range(attributes):
        table = measured.tables.get((i,))
        kept = None if table is None else np.maximum(table, 0.0)
        known = kept is not None and kept.sum() > 0
        margins.append((kept / kept.sum(), measured.deviations.get((i,)) or 0.0) if kept is not None and known else None)
    return margins


def pair_tables(measured: Measured) -> Mapping[Clique, tuple[FloatArray, float]]:
    """Return the released two-way tables and their noise; those of three columns and more are summed where there is no other."""
    tables: dict[Clique, tuple[FloatArray, float]] = {}
    for clique in sorted(measured.tables, key=len):
        if len(clique) < 2:
            continue
        table, deviation = measured.tables[clique], measured.deviations.get(clique) or 0.0
        for pair in itertools.combinations(range(len(clique)), 2):
            key = tuple(clique[i] for i in pair)
            if key in tables or len(clique) > 3 and len(measured.tables) > 1:
                continue
            axes = tuple(i for i in range(len(clique)) if i not in pair)
            summed = table.sum(axis=axes) if axes else table
            if summed.size <= LARGE:
                tables[key] = (summed, deviation * math.sqrt(table.size / summed.size))
    return tables


def shares_of(table: FloatArray, axis: int) -> FloatArray:
    """Return the shares that a two-way table gives the values of its rows (axis 0) or columns (axis 1)."""
    kept = np.maximum(table.sum(axis=1 - axis), 0.0)
    total = float(kept.sum())
    return kept / total if total > 0 else np.full(kept.size, 1.0 / kept.size)


def released_strengths(measured: Measured, attributes: int) -> dict[Clique, Strength]:
    """Return the dependence of every released pair."""
    own = margins_of(measured, attributes)
    strengths: dict[Clique, Strength] = {}
    for pair, (table, deviation) in pair_tables(measured).items():
        shares, noises = [], []
        for axis, known in enumerate((own[pair[0]], own[pair[1]])):
            shares.append(shares_of(table, axis) if known is None else known[0])
            noises.append(None if known is None else known[1])
        strengths[pair] = strength(table, shares[0], shares[1], deviation, None, (noises[0], noises[1]))
    return strengths


def plain_strength(table: FloatArray, like: float = 0.0) -> Strength:
    """Return Cramer's V of exact counts, with cells weighted as in a table with noise ``like``, to be compared with it."""
    return strength(table, shares_of(table, 0), shares_of(table, 1), 0.0, like)


def most_dependent(strengths: Mapping[Clique, Strength], attributes: int, most: int) -> list[int]:
    """Return at most ``most`` columns, those of the strongest pairs, in column order.

    Examples
    --------
    >>> most_dependent({(0, 1): Strength(0.1, 0.0), (1, 2): Strength(0.9, 0.0), (0, 3): Strength(0.2, 0.5)}, 4, 2)
    [1, 2]
    """
    if attributes <= most:
        return list(range(attributes))
    ranked = sorted(strengths, key=lambda pair: -strengths[pair].value if strengths[pair].told_apart else 0.0)
    chosen: list[int] = []
    for i in itertools.chain(itertools.chain.from_iterable(ranked), range(attributes)):
        if i not in chosen and len(chosen) < most:
            chosen.append(i)
    return sorted(chosen)


def matrix(strengths: Mapping[Clique, Strength], chosen: Sequence[int]) -> FloatArray:
    """Return the symmetric matrix over the chosen columns: 0 where it cannot be told from noise, NaN where it is not known."""
    values = np.full((len(chosen), len(chosen)), np.nan)
    for a, b in itertools.combinations(range(len(chosen)), 2):
        pair = strengths.get((chosen[a], chosen[b]))
        if pair is not None:
            values[a, b] = values[b, a] = pair.value if pair.told_apart else 0.0
    return values


def band_matrices(strengths: Mapping[Clique, Strength], chosen: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """Return the ends of the bands of the chosen columns' pairs as symmetric matrices, NaN where there is none."""
    ends = np.full((2, len(chosen), len(chosen)), np.nan)
    places = [(a, b) for a, b in itertools.combinations(range(len(chosen)), 2) if (chosen[a], chosen[b]) in strengths]
    for end, band in zip(ends, bands([strengths[(chosen[a], chosen[b])] for a, b in places]), strict=True):
        for (a, b), value in zip(places, band.tolist(), strict=True):
            end[a, b] = end[b, a] = value
    return ends[0], ends[1]
