"""The numbers behind the charts: one-way statistics with the error bands of the known noise.

Privacy: None: post-processing of released counts (and of what the custodian hands in to compare them with).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt

from dpsql.accounting.accuracy import standard_deviation
from dpsql.domains.attributes import Attribute, Domain
from dpsql.numerics.arrays import Clique, FloatArray

LEVEL = 0.95
MAX_BARS = 48
"""Codes of a column that a chart shows; more are put together."""
NORMAL = 1.959963984540054


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
        Values or bins, then the sum of values that are not shown by themselves, then NULL and the like.
    released, half_width, synthetic, raw : arrays of the length of labels, or None
        ``half_width`` is that of the 95 % band of the noise.
    edges : tuple of float or of str
        Where the bins begin, and the last one ends; empty where the values are categories.
    others : int
        How many values the label before the special ones stands for; 0: every label is one value.
    special : int
        How many of the last labels are no values: NULL, and what lies outside the domain.
    note : str
    in_order : bool
        Whether the order of the categories says something, so that they stay in it.
    """

    name: str
    about: str
    labels: list[str]
    released: FloatArray | None = None
    half_width: FloatArray | None = None
    synthetic: FloatArray | None = None
    raw: FloatArray | None = None
    edges: tuple[float, ...] | tuple[str, ...] = ()
    others: int = 0
    special: int = 0
    note: str = ""
    in_order: bool = False

    @property
    def main(self) -> FloatArray | None:
        """The counts by which values are ranked: released ones, else those of the synthetic table."""
        return self.released if self.released is not None else self.synthetic


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
    return NORMAL * deviation * math.sqrt(cells)


def one_way(measured: Measured, attribute: int) -> OneWay | None:
    """Return the released one-way table of an attribute: its own, or the sum of the table where noise adds up least."""
    best: tuple[float, Clique] | None = None
    for clique, table in measured.tables.items():
        if attribute not in clique:
            continue
        others = table.size // table.shape[clique.index(attribute)]
        deviation = measured.deviations.get(clique)
        # An own table comes before any sum, however small its noise.
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
    # Without noise of a known size there is no band.
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


@dataclass(frozen=True)
class Grouping:
    """How the codes of an attribute are shown.

    Parameters
    ----------
    labels : list of str
    codes : list of arrays
        What each label stands for.
    edges : tuple
        Of the bins; empty for categories.
    others, special : int
        As in `Column`.
    """

    labels: list[str]
    codes: list[npt.NDArray[np.int64]]
    edges: tuple[float, ...] | tuple[str, ...] = ()
    others: int = 0
    special: int = 0

    @property
    def first_of_rest(self) -> int:
        """Where the values stand that are put together, if some are."""
        return len(self.codes) - self.special - 1

    def sums(self, counts: FloatArray, axis: int = 0) -> FloatArray:
        """Return counts summed along an axis, one entry a label."""
        return np.stack([np.take(counts, codes, axis=axis).sum(axis=axis) for codes in self.codes], axis=axis)

    @property
    def merged(self) -> npt.NDArray[np.int64]:
        """How many codes each label stands for."""
        return np.asarray([len(codes) for codes in self.codes], dtype=np.int64)


def grouping(attribute: Attribute, weights: FloatArray | None, most: int = MAX_BARS, *, ranked: bool = False) -> Grouping:
    """Return at most about ``most`` labels and the codes that each stands for.

    Bins are put together with their neighbours. Categories that fit stay in their order unless ``ranked`` asks for the largest
    first; of more the largest stay, ranked, and the others are one.

    Examples
    --------
    >>> groups = grouping(Attribute("a", "INTEGER", "numeric", edges=tuple(range(101)), nullable=False), None)
    >>> len(groups.labels), groups.labels[0], groups.labels[-1]
    (34, '[0, 3)', '[99, 100]')
    """
    texts, size, values = label_texts(attribute), attribute.size, attribute.values
    special = [np.asarray([code]) for code in range(values, size)]
    if attribute.kind != "categorical":
        step = math.ceil(values / max(1, most - len(special))) if size > most else 1
        groups = [np.arange(start, min(start + step, values)) for start in range(0, values, step)]
        labels = [f"{texts[g[0]].split(', ')[0]}, {texts[g[-1]].split(', ')[1]}" for g in groups]
        edges = cast("tuple[float, ...] | tuple[str, ...]", (*attribute.edges[:-1:step], attribute.edges[-1]))
        return Grouping(labels + texts[values:], groups + special, edges, 0, len(special))
    # Categories keep their declared order as long as all of them have a bar.
    order = np.arange(values)
    if weights is not None and (ranked or size > most):
        order = np.argsort(-weights[:values], kind="stable")
    kept = order if size <= most else order[: max(1, most - 1 - len(special))]
    others = np.setdiff1d(order, kept)
    labels = [*(texts[code] for code in kept), *([f"({len(others)} other values)"] if len(others) else []), *texts[values:]]
    groups = [*(np.asarray([c]) for c in kept), *([others] if len(others) else []), *special]
    return Grouping(labels, groups, (), len(others), len(special))


def column_of(
    domain: Domain, attribute: int, released: OneWay | None, synthetic: FloatArray | None, raw: FloatArray | None
) -> Column:
    """Return the chart of one declared column."""
    declared = domain.attributes[attribute]
    shown = grouping(declared, released.counts if released is not None else synthetic)

    def grouped(counts: FloatArray | None) -> FloatArray | None:
        return None if counts is None else shown.sums(counts)

    width = None
    if released is not None and released.half_width is not None and released.deviation is not None:
        # Values that are put together have the noise of all of them.
        width = np.where(shown.merged == 1, released.half_width, half_width(released.deviation) * np.sqrt(shown.merged))
    notes = []
    if released is not None and len(released.clique) > 1:
        others = ", ".join(domain.names[i] for i in released.clique if i != attribute)
        notes.append(f"Released counts are summed from the table with {others}.")
    if shown.edges and len(shown.codes) < declared.size:
        notes.append(f"{declared.values} bins are shown in {len(shown.edges) - 1} groups.")
    counts = None if released is None else released.counts
    kind = "values" if declared.kind == "categorical" else "bins"
    about = f"{declared.sql_type.split('(')[0]}, {declared.values} {kind}" + "".join(
        f", {label}" for label in label_texts(declared)[declared.values :]
    )
    return Column(
        declared.name, about, shown.labels, grouped(counts), width, grouped(synthetic), grouped(raw), shown.edges, shown.others,
        shown.special, " ".join(notes),
    )
