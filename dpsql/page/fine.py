"""Fine histograms: the declared bins of a column cut into many, to see where values lie inside of them.

Privacy: the cuts are a function of the declared domain. Counts of synthetic rows are post-processing; those of raw rows, which the
custodian may hand in, are NOT PRIVATE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute
from dpsql.numerics.arrays import FloatArray
from dpsql.page.figures import MAX_BARS, OneWay
from dpsql.page.scales import Axis, axis_of, short

CUTS = 192
"""About how many fine bins a column has; never fewer than its declared bins."""
_EXACT = 2**53  # whole numbers below are exact as DOUBLEs
_THINNEST = 1e-3  # of the axis: a bin of one number, such as zero, has no width of its own


@dataclass(frozen=True)
class Cuts:
    """How a column is cut.

    Parameters
    ----------
    attribute : Attribute
        The column with the fine bins as its domain, to count with.
    texts : tuple of str
        Where the fine bins begin, and the last one ends.
    places : array
        The same on the axis.
    bins : array
        The declared bins on the axis.
    axis : Axis
    """

    attribute: Attribute
    texts: tuple[str, ...]
    places: FloatArray
    bins: FloatArray
    axis: Axis


@dataclass(frozen=True)
class Fine:
    """One chart: shares of rows in fine bins, and released shares in the declared ones.

    Parameters
    ----------
    name : str
    cuts : Cuts
    synthetic : array, one count for each fine bin
    released : array, one count for each declared bin, or None
    raw : array, one count for each fine bin, or None
        NOT PRIVATE.
    """

    name: str
    cuts: Cuts
    synthetic: FloatArray
    released: FloatArray | None = None
    raw: FloatArray | None = None


def cuts(attribute: Attribute) -> Cuts | None:
    """Return how a column's bins are cut; None where that shows no more than bars of the bins do.

    Whole numbers and days are cut between two of them; on a logarithmic axis parts are as wide as they look.

    Examples
    --------
    >>> cut = cuts(Attribute("age", "INTEGER", "numeric", edges=(0.0, 2.0, 5.0), nullable=False))
    >>> cut.attribute.edges, cut.texts, cut.bins.tolist()
    ((0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 5.5), ('0', '1', '2', '3', '4', '5', '6'), [0.0, 0.3333333333333333, 1.0])
    """
    if attribute.kind == "categorical":
        return None
    parsed, parts = sqltypes.parse(attribute.sql_type), max(1, CUTS // attribute.values)
    try:
        if attribute.kind == "temporal":
            cut = _of_times(attribute, parsed, parts)
        else:
            cut = _of_whole(attribute, parsed, parts) if parsed.family == "integer" else _of_numbers(attribute, parts)
    except (OverflowError, ValueError):  # a time beyond the last that can be written
        return None
    if cut is None or (len(cut.texts) - 1 <= attribute.values and attribute.values <= MAX_BARS):
        return None
    return cut


def _of_numbers(attribute: Attribute, parts: int) -> Cuts:
    edges = np.asarray([float(edge) for edge in attribute.edges])
    axis = axis_of(edges.tolist())
    ends = [edges[0]]
    for low, high, first, last in zip(edges[:-1], edges[1:], axis.edges[:-1], axis.edges[1:], strict=True):
        inner = axis.scale.numbers(np.linspace(first, last, parts + 1)[1:-1])
        ends += [*(x for x in np.unique(inner) if low < x < high), high]
    fine = np.asarray(ends)
    numbers = tuple(float(x) for x in fine)
    return Cuts(replace(attribute, edges=numbers), tuple(f"{x:.6g}" for x in numbers), axis.scale.places(fine), axis.edges, axis)


def _of_whole(attribute: Attribute, parsed: sqltypes.SqlType, parts: int) -> Cuts | None:
    """Cut the whole numbers that each bin holds; the last one ends where the next number would begin."""
    starts = sqltypes.grid(parsed, attribute.edges)
    if starts is None or any(a >= b for a, b in pairwise(starts)) or max(map(abs, starts)) >= _EXACT:
        return None
    axis = _ending_at(axis_of([float(start) for start in starts]), float(attribute.edges[-1]))
    fine = [starts[0]]
    for low, high, first, last in zip(starts[:-1], starts[1:], axis.edges[:-1], axis.edges[1:], strict=True):
        inner = np.unique(np.round(axis.scale.numbers(np.linspace(first, last, parts + 1)[1:-1])))
        fine += [*(int(x) for x in inner if low < x < high), high]
    counted = replace(attribute, edges=(*(float(x) for x in fine[:-1]), fine[-1] - 0.5))
    return Cuts(counted, tuple(map(str, fine)), axis.scale.places(np.asarray(fine, dtype=np.float64)), axis.edges, axis)


def _ending_at(axis: Axis, end: float) -> Axis:
    """Return an axis that names its declared end, not the number behind it."""
    last = (float(axis.scale.places(np.asarray([end]))[0]), short(end))
    return replace(axis, ticks=[[last if at == 1.0 else (at, shown) for at, shown in choice] for choice in axis.ticks])


def _of_times(attribute: Attribute, parsed: sqltypes.SqlType, parts: int) -> Cuts | None:
    """Cut dates and times between two steps of their type; of the last fine bin both ends belong to it."""
    steps = [sqltypes.steps_of(parsed, edge) for edge in attribute.edges]
    whole = parsed.text == "DATE"
    drawn = [*steps[:-1], steps[-1] + whole]
    axis = axis_of([sqltypes.step_text(parsed, step) for step in drawn])
    fine = [steps[0]]
    for low, high in pairwise(drawn):
        inner = np.unique([low + (high - low) * i // parts for i in range(1, parts)])
        fine += [*(int(x) for x in inner if low < x < high), high]
    if whole and len(fine) > 2 and fine[-1] - fine[-2] == 1:
        del fine[-2]  # a bin of one day cannot be declared as the last one
    if fine[-1] - whole <= fine[-2]:
        return None
    texts = [sqltypes.step_text(parsed, step) for step in fine]
    places = np.asarray([(step - fine[0]) / (fine[-1] - fine[0]) for step in fine])
    counted = replace(attribute, edges=(*texts[:-1], sqltypes.step_text(parsed, fine[-1] - whole)))
    return Cuts(counted, tuple(texts), places, axis.edges, axis)


def fine(name: str, cut: Cuts, synthetic: FloatArray, released: OneWay | None, raw: FloatArray | None) -> Fine:
    """Return the chart of one column; counts of NULL and of values outside the domain are left out."""
    count, bins = len(cut.texts) - 1, len(cut.bins) - 1
    return Fine(
        name, cut, synthetic[:count], None if released is None else released.counts[:bins], None if raw is None else raw[:count]
    )


def densities(counts: FloatArray, edges: FloatArray) -> FloatArray | None:
    """Return the share of rows in a hundredth of the axis, a number a bin; None where there are no rows. Noise below 0 counts as 0.

    Examples
    --------
    >>> densities(np.array([3.0, 1.0]), np.array([0.0, 0.5, 1.0])).tolist()
    [0.015, 0.005]
    """
    rows = np.maximum(counts, 0.0)
    if not rows.sum():
        return None
    density: FloatArray = rows / rows.sum() / np.maximum(np.diff(edges), _THINNEST) / 100
    return density


def merged(of: Fine, most: int) -> list[tuple[str, list[float | None]]]:
    """Return at most ``most`` lines of (from and to, shares of rows: synthetic, raw)."""
    count = len(of.synthetic)
    starts: Sequence[int] = range(0, count, -(-count // most))
    series = [None if counts is None or not counts.sum() else counts / counts.sum() for counts in (of.synthetic, of.raw)]
    lines = []
    for start, end in pairwise([*starts, count]):
        shares = [None if s is None else float(s[start:end].sum()) for s in series]
        lines.append((f"[{of.cuts.texts[start]}, {of.cuts.texts[end]}{']' if end == count else ')'}", shares))
    return lines
