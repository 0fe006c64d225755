"""The numbers behind the charts: one-way statistics with the error bands of the known noise, and dependence of pairs.

Privacy: None: post-processing of released counts (and of what the custodian hands in to compare them with).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dpsql.accounting.accuracy import standard_deviation
from dpsql.domain import Attribute, Domain
from dpsql.methods.base import Clique

FloatArray = npt.NDArray[np.float64]
LEVEL = 0.95
MAX_BARS = 48
"""Codes of a column that a chart shows; more are put together."""
_NORMAL = 1.959963984540054
LARGE = 1 << 21  # cells of a pair that a dependence is still computed for


@dataclass(frozen=True)
class Measured:
    """Released tables of a declared domain.

    Parameters
    ----------
    tables : mapping from clique to array
        Released counts, one axis per attribute.
    deviations : mapping from clique to float or None
        Standard deviation of the noise on a cell; None where what was drawn is no count plus noise.
    laplace : mapping from clique to float
        Scale b of tables whose cells carry one Laplace draw each.
    total : int or None
        Public number of rows.
    """

    tables: Mapping[Clique, FloatArray] = field(default_factory=dict)
    deviations: Mapping[Clique, float | None] = field(default_factory=dict)
    laplace: Mapping[Clique, float] = field(default_factory=dict)
    total: int | None = None


@dataclass(frozen=True)
class Column:
    """One chart: a column's values with released, synthetic and (for the custodian) raw counts.

    Parameters
    ----------
    name, about : str
    labels : list of str
    released, half_width, synthetic, raw : arrays of the length of labels, or None
        ``half_width`` is that of the 95 % band of the noise.
    ordered : bool
        Whether the labels are bins in ascending order.
    note : str
    """

    name: str
    about: str
    labels: list[str]
    released: FloatArray | None = None
    half_width: FloatArray | None = None
    synthetic: FloatArray | None = None
    raw: FloatArray | None = None
    ordered: bool = False
    note: str = ""


@dataclass(frozen=True)
class OneWay:
    """A one-way table, and which released table it was taken from."""

    counts: FloatArray
    deviation: float | None
    half_width: float | None
    clique: Clique


def deviation_of(mechanism: str, scale: float) -> float | None:
    """Return the standard deviation of the noise of a released cell; None where the mechanism adds none.

    Examples
    --------
    >>> round(deviation_of("gaussian", 50.0), 6), deviation_of("multinomial", 1.0)
    (50.0, None)
    """
    if mechanism not in ("gaussian", "laplace") or scale <= 0:
        return None
    return standard_deviation(mechanism, scale)


def half_width(deviation: float, laplace: float | None = None, cells: int = 1) -> float:
    """Return half the width of the 95 % band of a sum of ``cells`` noisy counts.

    One Laplace draw has wider tails than a normal of its variance, a sum of several hardly.

    Examples
    --------
    >>> round(half_width(10.0), 2), round(half_width(math.sqrt(2.0), 1.0), 2), round(half_width(10.0, None, 4), 2)
    (19.6, 3.0, 39.2)
    """
    if laplace is not None and cells == 1:
        return -math.log(1 - LEVEL) * laplace
    return _NORMAL * deviation * math.sqrt(cells)


def one_way(measured: Measured, attribute: int) -> OneWay | None:
    """Return the released one-way table of an attribute: its own, or the sum of the table where noise adds up least."""
    best: tuple[float, Clique] | None = None
    for clique, table in measured.tables.items():
        if attribute not in clique:
            continue
        others = table.size // table.shape[clique.index(attribute)]
        deviation = measured.deviations.get(clique)
        rank = (deviation or 0.0) * math.sqrt(others) if len(clique) > 1 else -1.0
        if best is None or rank < best[0]:
            best = (rank, clique)
    if best is None:
        return None
    clique = best[1]
    table = measured.tables[clique]
    axes = tuple(axis for axis, i in enumerate(clique) if i != attribute)
    counts = table.sum(axis=axes) if axes else table
    others = table.size // counts.size
    deviation = measured.deviations.get(clique)
    if deviation is None:
        return OneWay(counts, None, None, clique)
    width = half_width(deviation, measured.laplace.get(clique), others)
    return OneWay(counts, deviation * math.sqrt(others), width, clique)


def total_rows(measured: Measured) -> float | None:
    """Return the number of rows that the release tells: the public one, or the tables' sums weighted by their precision."""
    if measured.total is not None:
        return float(measured.total)
    sums = [
        (float(table.sum()), (measured.deviations.get(clique) or 1.0) ** 2 * table.size)
        for clique, table in measured.tables.items()
    ]
    if not sums:
        return None
    weight = sum(1 / variance for _, variance in sums)
    return max(0.0, sum(value / variance for value, variance in sums) / weight)


def label_texts(attribute: Attribute) -> list[str]:
    """Return what is shown for each code."""
    return ["NULL" if label is None else label for label in attribute.labels()]


def grouping(attribute: Attribute, weights: FloatArray | None) -> tuple[list[str], list[npt.NDArray[np.int64]]]:
    """Return at most about `MAX_BARS` labels and the codes that each stands for.

    Bins are put together with their neighbours; of categories the largest stay, in their order, and the others are one.

    Examples
    --------
    >>> labels, groups = grouping(Attribute("a", "INTEGER", "numeric", edges=tuple(range(101)), nullable=False), None)
    >>> len(labels), labels[0], labels[-1]
    (34, '[0, 3)', '[99, 100]')
    """
    texts, size = label_texts(attribute), attribute.size
    if size <= MAX_BARS:
        return texts, [np.asarray([code]) for code in range(size)]
    if attribute.kind != "categorical":
        step = math.ceil(attribute.values / MAX_BARS)
        groups = [np.arange(start, min(start + step, attribute.values)) for start in range(0, attribute.values, step)]
        labels = [f"{texts[g[0]].split(', ')[0]}, {texts[g[-1]].split(', ')[1]}" for g in groups]
        rest = range(attribute.values, size)
        return labels + [texts[code] for code in rest], groups + [np.asarray([code]) for code in rest]
    order = np.arange(size) if weights is None else np.argsort(-weights, kind="stable")
    kept = np.sort(order[: MAX_BARS - 1])
    others = np.setdiff1d(np.arange(size), kept)
    return [*(texts[code] for code in kept), f"({len(others)} other values)"], [*(np.asarray([c]) for c in kept), others]


def column_of(
    domain: Domain, attribute: int, released: OneWay | None, synthetic: FloatArray | None, raw: FloatArray | None
) -> Column:
    """Return the chart of one declared column."""
    declared = domain.attributes[attribute]
    weights = released.counts if released is not None else synthetic
    labels, groups = grouping(declared, weights)

    def grouped(counts: FloatArray | None) -> FloatArray | None:
        return None if counts is None else np.asarray([float(counts[g].sum()) for g in groups])

    width = None
    if released is not None and released.half_width is not None and released.deviation is not None:
        sums = [released.half_width if len(g) == 1 else half_width(released.deviation, None, len(g)) for g in groups]
        width = np.asarray(sums)
    notes = []
    if released is not None and len(released.clique) > 1:
        others = ", ".join(domain.names[i] for i in released.clique if i != attribute)
        notes.append(f"Released counts are summed from the table with {others}.")
    if len(groups) < declared.size:
        notes.append(f"{declared.size} values are shown in {len(groups)} groups.")
    counts = None if released is None else released.counts
    about = f"{declared.sql_type.split('(')[0]}, {declared.size} {'values' if declared.kind == 'categorical' else 'bins'}"
    return Column(
        declared.name, about, labels, grouped(counts), width, grouped(synthetic), grouped(raw),
        declared.kind != "categorical", " ".join(notes),
    )  # fmt: skip


# -- dependence of pairs


@dataclass(frozen=True)
class Strength:
    """Dependence of one pair: Cramer's V after the noise's share was taken off, and what noise alone would do."""

    value: float
    noise: float

    @property
    def told_apart(self) -> bool:
        """Whether it is above what noise alone gives in 19 of 20 tables of independent columns, or so."""
        return self.value > self.noise


def strength(table: FloatArray, first: FloatArray, second: FloatArray, deviation: float, like: float | None = None) -> Strength:
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

    Returns
    -------
    Strength
        V = sqrt(sum of w (d^2 - var d) / (n (min(r, c) - 1))), w = 1 / max(e, 3 s), e = n p q: without noise the usual V. The
        residual d = (I - p 1') x (I - 1 q') is, for independent columns, wrong by the product of the errors of p and q only.
        ``noise``: the V that two standard deviations of the sum stand for, which noise alone passes in about one of 20 tables of
        independent columns.

    Examples
    --------
    >>> strength(np.array([[50.0, 0.0], [0.0, 50.0]]), np.full(2, 0.5), np.full(2, 0.5), 0.0)
    Strength(value=1.0, noise=0.0)
    """
    n = float(table.sum())
    if min(table.shape) < 2 or n <= 0:
        return Strength(0.0, 0.0)
    left, right = np.eye(len(first)) - first[:, None], np.eye(len(second)) - second[:, None]
    residual = left @ table @ right.T
    expected = n * np.outer(first, second)
    floor = 3.0 * (deviation if like is None else like)
    weight = np.divide(1.0, np.maximum(expected, floor), out=np.zeros_like(expected), where=np.maximum(expected, floor) > 0)
    rows, columns = left @ left.T, right @ right.T
    scale = n * (min(table.shape) - 1)
    variance = deviation**2 * np.outer(np.diag(rows), np.diag(columns))
    square = float((weight * (residual**2 - variance)).sum()) / scale
    spread = deviation**2 * math.sqrt(2 * float((weight * (rows**2 @ weight @ columns**2)).sum())) / scale
    return Strength(min(1.0, math.sqrt(max(0.0, square))), min(1.0, math.sqrt(2 * spread)))


def margins(measured: Measured, attributes: int) -> list[FloatArray | None]:
    """Return each attribute's own released one-way table as shares; None where none was released."""
    found: list[FloatArray | None] = []
    for i in range(attributes):
        table = measured.tables.get((i,))
        kept = None if table is None else np.maximum(table, 0.0)
        found.append(None if kept is None or kept.sum() <= 0 else kept / kept.sum())
    return found


def pair_tables(measured: Measured) -> Mapping[Clique, tuple[FloatArray, float]]:
    """Return the released two-way tables and their noise; those of three columns and more are summed where there is no other."""
    found: dict[Clique, tuple[FloatArray, float]] = {}
    for clique in sorted(measured.tables, key=len):
        if len(clique) < 2:
            continue
        table, deviation = measured.tables[clique], measured.deviations.get(clique) or 0.0
        for pair in itertools.combinations(range(len(clique)), 2):
            key = tuple(clique[i] for i in pair)
            if key in found or len(clique) > 3 and len(measured.tables) > 1:
                continue
            axes = tuple(i for i in range(len(clique)) if i not in pair)
            summed = table.sum(axis=axes) if axes else table
            if summed.size <= LARGE:
                found[key] = (summed, deviation * math.sqrt(table.size / summed.size))
    return found


def shares_of(table: FloatArray, axis: int) -> FloatArray:
    """Return the shares that a two-way table gives the values of its rows (axis 0) or columns (axis 1)."""
    kept = np.maximum(table.sum(axis=1 - axis), 0.0)
    total = float(kept.sum())
    return kept / total if total > 0 else np.full(kept.size, 1.0 / kept.size)


def released_strengths(measured: Measured, attributes: int) -> dict[Clique, Strength]:
    """Return the dependence of every released pair."""
    shares = margins(measured, attributes)
    found: dict[Clique, Strength] = {}
    for (i, j), (table, deviation) in pair_tables(measured).items():
        known = (shares[i], shares[j])
        first, second = (shares_of(table, axis) if own is None else own for axis, own in enumerate(known))
        found[(i, j)] = strength(table, first, second, deviation)
    return found


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
    found = np.full((len(chosen), len(chosen)), np.nan)
    for a, b in itertools.combinations(range(len(chosen)), 2):
        pair = strengths.get((chosen[a], chosen[b]))
        if pair is not None:
            found[a, b] = found[b, a] = pair.value if pair.told_apart else 0.0
    return found
