r"""Bounds of an expression about which nothing is known, from a noisy histogram of its magnitudes.

**Cells** (`edges_of`). Zero is a cell of its own for whole numbers; all others lie between powers of two, with sign; of dates and
timestamps between the first days of years. They follow from the type, and from what is publicly known of the range.

**Measurement.** Each kept row of the query is in one cell, over all groups together; noise of ``Learning.scale`` on every cell.

**Bounds** (`chosen`), post-processing of the noisy counts. Cells of which it is not sure that they hold rows count as empty
(`likely`). A sum with values cut at a bound has a bias, which the histogram estimates, and noise in proportion to the bound: the
bound is the one of least \sqrt{bias^2 + noise^2}. The noise of the measures to come is fixed in the plan as a share of the span, so
it is known for every bound before it is chosen. The bias is that of one group: the groups' shares of it are taken to be equal.
Where bounds are declared, and wide (`wide`), the bound is the least one with a bias of at most `CUT` of the noise, so that
intervals, which know of noise alone, nearly hold what lies between the declared ones, too, as far as the histogram sees it; where
it sees nothing but zeros, the declared bounds stay.

Privacy. *The histogram*: let one unit have at most C kept rows, in whatever groups. Each adds 1 to one cell, so the unit adds a
vector of non-negative integers with L1 norm at most C, and L2 norm at most C: `sensitivity` (of a list of values, without groups).
What cell a row is in depends on that row alone. *The bounds* are a function of noisy counts and the plan. *The measures after it*
are as sensitive in parts of their grid as the plan says, whatever the bounds are: a row's counters are integers of L1 and L2 norm
at most ``grid``, for any bounds (`dpsql.estimates.measures`). The two rounds are an adaptive composition of two Gaussian (Laplace)
mechanisms whose scales are fixed before a row is read, and cost the sum of their rho (epsilon). An empty column has counts of noise
alone, so no cell is likely, and the bounds are fixed ones.

References: Karwa & Vadhan (2018), arXiv:1711.03908; Amin et al. (2019), ICML 97, for the trade of bias and noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.domains import sqltypes
from dpsql.errors import ArgumentError
from dpsql.estimates.measures import Measure, Variable, sensitivity
from dpsql.noise.entropy import BoolArray
from dpsql.numerics.arrays import FloatArray, IntArray

Bounds = tuple[float, float]

MOST_CELLS = 4096
_LEAST, _MOST = -40, 63
"""Exponents of the smallest and largest powers of two for FLOAT and DOUBLE; what lies beyond is in the outermost cells."""
_WHOLE = 53
_YEARS = (1800, 2200)
_YEAR = 365.2425
_FALSE = 2e-4
"""Probability that some empty cell seems to hold rows."""
_BESIDE = 2.5
"""Noise scales (standard deviations) that suffice beside a cell that surely holds rows: being wrong there costs a factor two."""
_TAIL, _ROW = 8, 0.5
"""Cells by which a falling tail is continued, at most, and the number of rows at which it ends."""
_PARTS = 8
"""Candidates for a bound inside of each cell."""
_STEEP = 16.0
WIDE = 2.0**8
"""How many times a smaller bound (or 1, where that is less) the larger one is from which on declared bounds may be narrowed, ..."""
_FAR = 2.0**16
_WORTH = 4.0
"""... and up to `_FAR` are where that divides the noise by so much: bounds that nearly fit cut off nothing that is not seen."""
CUT = 0.05
"""Largest bias by bounds that were declared and are narrowed, as a share of the standard deviation of the noise."""
_FIELDS = ("position", "edges", "scale", "mechanism", "filter", "whole")


@dataclass(frozen=True)
class Learning:
    """A histogram of magnitudes that a release measures first.

    Parameters
    ----------
    position : int
        Of the row source's column ``a<position>``.
    edges : tuple of float, ascending
        Of its cells: cell i holds edges[i] <= x < edges[i + 1]; smaller ones are in the first, larger ones in the last.
    scale : Fraction
        Noise scale of each cell.
    mechanism : {'gaussian', 'laplace'}
    filter : int, optional
        Position of the row source's column ``f<position>``: rows where it is not true are not counted.
    whole : bool
        Whether all values are integers.
    declared : bool
        Whether the outermost edges are declared bounds, which are to be narrowed.
    """

    position: int
    edges: tuple[float, ...]
    scale: Fraction
    mechanism: str
    filter: int | None = None
    whole: bool = False
    declared: bool = False

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.edges) - 1

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise of a cell."""
        return float(self.scale) * (math.sqrt(2) if self.mechanism == "laplace" else 1.0)

    @property
    def sure(self) -> float:
        """Number of rows from which on a cell surely holds some: noise alone passes it in one of 5,000 histograms."""
        share = _FALSE / self.cells
        if self.mechanism == "laplace":
            return float(self.scale) * math.log(1 / (2 * share))
        return self.deviation * math.sqrt(2 * math.log(1 / share))

    def to_json(self) -> dict[str, Any]:
        """Return plain values that ``from_json`` reads back, exactly."""
        fields = {**{name: getattr(self, name) for name in _FIELDS}, "edges": list(self.edges), "scale": str(self.scale)}
        return {**fields, "declared": True} if self.declared else fields

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Learning:
        """Read what ``to_json`` wrote.

        Raises
        ------
        ArgumentError, ValueError, TypeError
            It is something else.
        """
        if not isinstance(item, Mapping) or set(item) - {"declared"} != set(_FIELDS):
            raise ArgumentError("learning", sorted(item), f"must have the fields {', '.join(_FIELDS)}")
        edges, scale = item["edges"], item["scale"]
        sound = (
            isinstance(edges, list) and 2 <= len(edges) <= MOST_CELLS + 1 and all(type(e) in (float, int) for e in edges)
            and all(-math.inf < a < b < math.inf for a, b in itertools.pairwise(edges))
            and isinstance(scale, str) and len(scale) < 100 and 0 < Fraction(scale) < 1 << 64
            and item["mechanism"] in ("gaussian", "laplace") and type(item["whole"]) is bool
            and all(type(item[n]) is int and item[n] >= 0 for n in ("position", "filter") if n != "filter" or item[n] is not None)
            and item.get("declared", True) is True
        )
        if not sound:
            raise ArgumentError("learning", "(a histogram)", "is out of range")
        return cls(**{**item, "edges": tuple(map(float, edges)), "scale": Fraction(scale)})


def edges_of(sql_type: str, lower: float = -math.inf, upper: float = math.inf, *, whole: bool = False) -> tuple[float, ...]:
    """Return the edges of the cells of a type, between publicly known bounds; ``whole``: its values are integers.

    Dates are days, timestamps seconds since 1970.

    Examples
    --------
    >>> edges_of("UTINYINT", whole=True), edges_of("BIGINT", 0, 6, whole=True)
    ((0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 255.0), (0.0, 1.0, 2.0, 4.0, 6.0))
    """
    parsed = sqltypes.parse(sql_type)
    if parsed.family == "temporal":
        day = 1.0 if sql_type == "DATE" else 86_400.0
        years = [math.floor((year - 1970) * _YEAR) * day for year in range(*_YEARS)]
        edges, low, high = years, -719_162 * day, 2_932_896 * day
    elif parsed.family == "float" or not whole:
        unit, most = _LEAST, 2.0**_MOST
        low, high = -most, most
        if parsed.family == "decimal":
            unit = math.ceil(math.log2(Fraction(1, 10**parsed.scale)))
            low, high = (max(-most, float(parsed.low) / 10**parsed.scale), min(most, float(parsed.high) / 10**parsed.scale))
        powers = [2.0**k for k in range(unit, _MOST + 1)]
        edges = [*(-p for p in reversed(powers)), 0.0, *powers]
    else:
        low, high = -(2.0**_WHOLE), 2.0**_WHOLE
        if parsed.family == "integer":
            low, high = max(low, float(parsed.low)), min(high, float(parsed.high))
        powers = [2.0**k for k in range(_WHOLE + 1)]
        edges = [*(1.0 - p for p in reversed(powers[1:])), 0.0, *powers]
    low, high = max(low, float(lower)), min(high, float(upper))
    # bounds with nothing between them still need a cell
    if not low < high:
        low, high = (lower, math.nextafter(lower, math.inf)) if math.isfinite(lower) and not whole else (0.0, 1.0)
    return (low, *(edge for edge in edges if low < edge < high), high)


def wide(lower: float, upper: float, times: float = WIDE) -> bool:
    """Return whether bounds are so far apart, by powers of two, that next to all values may be far from the larger one.

    Examples
    --------
    >>> wide(0, 120), wide(0, 10_000_000), wide(1.6e9, 1.7e9), wide(-1_000, 5), wide(-1_000, 5, 2**16)
    (False, True, False, True, False)
    """
    least = 0.0 if lower <= 0 <= upper else min(abs(lower), abs(upper))
    return math.isfinite(upper - lower) and max(abs(lower), abs(upper)) >= times * max(1.0, least)


def sensitivity_of(most_rows: int, neighbors: str) -> Bounds:
    """Return the L1 and L2 sensitivity of a histogram of magnitudes: every kept row of a unit is in one cell of it.

    Examples
    --------
    >>> sensitivity_of(3, "add_remove"), sensitivity_of(1, "replace_one")
    ((3.0, 3.0), (2.0, 1.4142135623730951))
    """
    cells = Measure("values", (Variable(0),), values=("some", "others"))
    return sensitivity(cells, max_rows=most_rows, neighbors=neighbors, grouped=False)


def likely(learning: Learning, counts: IntArray) -> FloatArray:
    """Return the counts of the cells that seem to hold rows, 0 for others.

    A cell surely holds rows where its count passes what noise alone passes in one of 5,000 histograms; others seem to where they
    are beside such a cell and have a count above noise, or between two. A falling tail is continued, within what the noise allows.
    """
    numbers, noise = np.asarray(counts, np.float64), learning.deviation
    kept = _grown(numbers > learning.sure, numbers > _BESIDE * noise)
    cells = np.flatnonzero(kept)
    if not cells.size:
        return np.zeros(numbers.size)
    # between cells with rows there may be others with a few
    kept[cells[0] : cells[-1] + 1] = True
    out = np.where(kept, np.maximum(numbers, 0.0), 0.0)
    limits = np.maximum(numbers, 0.0)
    _extend(out, limits, int(cells[-1]), 1)
    _extend(out, limits, int(cells[0]), -1)
    return out


def _grown(sure: BoolArray, beside: BoolArray) -> BoolArray:
    """Return the cells that are sure, and those that are joined to them by cells that pass the lower threshold."""
    kept = sure.copy()
    for i in range(1, kept.size):
        kept[i] |= bool(kept[i - 1] and beside[i])
    for i in range(kept.size - 2, -1, -1):
        kept[i] |= bool(kept[i + 1] and beside[i])
    return kept


def _extend(counts: FloatArray, limits: FloatArray, last: int, step: int) -> None:
    """Continue a tail beyond the last cell that seems to hold rows, where it falls.

    Each cell has its share of the one before it: that of the last two, which falls as it fell before (as of a normal logarithm; of
    a power law it stays), and no more than the noisy count says.
    """
    if not _falls(counts, last, step):
        return
    ratio, expected = counts[last] / counts[last - step], counts[last]
    before = last - 2 * step
    bend = ratio * counts[before] / counts[last - step] if 0 <= before < counts.size and counts[before] > 0 else 1.0
    for place in range(last + step, last + (_TAIL + 1) * step, step):
        # a tail falls as fast as before, or ever faster
        ratio *= min(bend, 1.0)
        following = min(expected * ratio, limits[place]) if 0 <= place < counts.size else 0.0
        # less than a row is none
        if following < _ROW:
            return
        ratio, expected = following / expected, following
        counts[place] = expected


def _falls(counts: FloatArray, place: int, step: int) -> bool:
    return 0 <= place < counts.size and 0 <= place - step < counts.size and counts[place - step] > counts[place]


def chosen(
    learning: Learning, counts: IntArray, noise: float, *, degree: int = 1, span: bool = True, groups: float = 1.0
) -> Bounds:
    """Return bounds between which sums have the least error; of declared ones: hardly a bias. Privacy: post-processing.

    Parameters
    ----------
    learning : Learning
    counts : int64 array, shape (cells,)
        As released.
    noise : float
        Standard deviation of a sum's noise, in units of the span (of the larger bound).
    degree : int, 1 or 2
        Whether values or their squares are added up.
    span : bool
        Whether the noise is in proportion to upper - lower; else to the larger of their absolute values.
    groups : float, >= 1
        Groups among which the bias is divided.

    Notes
    -----
    A bound may be inside of a cell: its rows are taken to be spread over the logarithm of x, sloping as the cells beside it do.
    """
    if not learning.declared:
        return _least(learning, counts, noise, degree, groups, span=span)
    declared = learning.edges[0], learning.edges[-1]
    # where the histogram saw nothing but noise, what was declared stays
    if not _sees_magnitudes(learning, counts):
        return declared
    bounds = _least(learning, counts, noise, degree, groups, span=span)
    before, after = (high - low if span else max(abs(low), abs(high)) for low, high in (declared, bounds))
    return bounds if wide(*declared, _FAR) or _WORTH * after**degree <= before**degree else declared


def _least(learning: Learning, counts: IntArray, noise: float, degree: int, groups: float, *, span: bool) -> Bounds:
    """Return the bounds of least error; of declared ones the least that cut off hardly anything. As in `chosen`."""
    rows = likely(learning, counts)
    if not rows.any():
        return covering(learning, counts)
    points, values, masses = _spread(learning, rows)
    most = CUT if learning.declared else None
    # of a sum alone the larger bound is what noise is in proportion to
    if not span:
        reach = np.unique(np.abs(points))
        reach = reach[reach > 0]
        if not reach.size:  # all of them are zero
            return _within(learning, 0.0, 0.0)
        bias = _beyond(reach, np.abs(values), masses, degree)
        best = float(reach[int(np.argmin(_error(bias / groups, reach**degree, noise, most)))])
        # nor do bounds have to reach beyond the rows
        low, high = covering(learning, counts)
        return _within(learning, max(-best, min(low, 0.0)), min(best, max(high, 0.0)))
    positive, negative = points[points >= 0], points[points <= 0]
    if not positive.size or not negative.size:  # all of one sign
        return _one_sided(learning, points, values, masses, noise, degree, groups, most)
    # of both signs: every pair of ends, of which the one with the least error is taken
    above = _beyond(positive, np.maximum(values, 0), masses, degree)
    below = _beyond(-negative, np.maximum(-values, 0), masses, degree)
    spans = (positive[None, :] - negative[:, None]) ** degree
    error = _error((above[None, :] + below[:, None]) / groups, spans, noise, most)
    low, high = divmod(int(np.argmin(error)), positive.size)
    return _within(learning, float(negative[low]), float(positive[high]))


def covering(learning: Learning, counts: IntArray) -> Bounds:
    """Return the ends of all cells that seem to hold rows; fixed bounds where none does. Privacy: post-processing."""
    cells = np.flatnonzero(likely(learning, counts) > 0)
    if not cells.size:
        return _within(learning, 0.0, 1.0)
    return _within(learning, learning.edges[int(cells[0])], _end(learning, int(cells[-1])))


def beyond(learning: Learning, counts: IntArray, bounds: Bounds) -> Bounds:
    """Return about how many rows lie beyond bounds, and how much of their sum is cut off. Privacy: post-processing."""
    rows = likely(learning, counts)
    if not rows.any():
        return 0.0, 0.0
    _, values, masses = _spread(learning, rows)
    off = np.maximum(bounds[0] - values, 0) + np.maximum(values - bounds[1], 0)
    return float(masses[off > 0].sum()), float((masses * off).sum())


def _end(learning: Learning, cell: int) -> float:
    """Return the largest value of a cell."""
    end = learning.edges[cell + 1]
    return end - 1.0 if learning.whole and cell < learning.cells - 1 else end


def _sees_magnitudes(learning: Learning, counts: IntArray) -> bool:
    """Return whether a cell surely holds rows besides the one that zero is in: that most are zero says nothing of others."""
    edges = np.asarray(learning.edges)
    return bool((np.asarray(counts)[(edges[:-1] > 0) | (edges[1:] <= 0)] > learning.sure).any())


def _within(learning: Learning, lower: float, upper: float) -> Bounds:
    """Return bounds inside of the outermost edges, apart from each other, whole where the values are."""
    first, last = learning.edges[0], learning.edges[-1]
    lower, upper = max(lower, first), min(upper, last)
    if learning.whole:
        lower, upper = float(math.floor(lower)), float(math.ceil(upper))
        if not lower < upper:
            lower, upper = (lower, lower + 1) if lower < lower + 1 <= last else (lower - 1, lower)
        return lower, upper
    if not lower < upper:
        place = min(max(int(np.searchsorted(learning.edges, lower, side="right")) - 1, 0), learning.cells - 1)
        lower, upper = learning.edges[place], learning.edges[place + 1]
    return lower, upper


def _spread(learning: Learning, rows: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return candidates for bounds, and values with the numbers of rows that have them."""
    points, values, masses = [0.0] if learning.edges[0] <= 0 <= learning.edges[-1] else [], [], []
    for cell in np.flatnonzero(rows > 0):
        low, high = learning.edges[int(cell)], _end(learning, int(cell))
        ends = _parts(low, high)
        if learning.whole:
            ends = np.unique(np.rint(ends))
        points += ends.tolist()
        # a cell of one whole number has no width to spread rows over
        if ends.size == 1:
            values.append(float(ends[0]))
            masses.append(float(rows[cell]))
            continue
        values += ((ends[:-1] + ends[1:]) / 2).tolist()
        masses += (float(rows[cell]) * _shares(ends, _slope(rows, int(cell)))).tolist()
    return np.unique(points), np.asarray(values), np.asarray(masses)


def _parts(low: float, high: float) -> FloatArray:
    """Return ends of equal parts of a cell, of the logarithm where it has one."""
    if low > 0 and high > low:
        return np.geomspace(low, high, _PARTS + 1)
    if high < 0 and high > low:
        return -np.geomspace(-low, -high, _PARTS + 1)
    return np.linspace(low, high, _PARTS + 1) if high > low else np.asarray([low])


def _slope(rows: FloatArray, cell: int) -> float:
    """Return by what the density of the logarithm changes over a cell, by its neighbours' counts."""
    below = rows[cell - 1] if cell > 0 else 0.0
    above = rows[cell + 1] if cell + 1 < rows.size else 0.0
    # at an end of the rows only one neighbour says something
    if below > 0 and above > 0:
        factor = math.sqrt(above / below)
    else:
        factor = min(rows[cell] / below, 1.0) if below > 0 else max(above / rows[cell], 1.0) if above > 0 else 1.0
    return float(min(max(factor, 1 / _STEEP), _STEEP))


def _shares(ends: FloatArray, slope: float) -> FloatArray:
    """Return which shares of a cell's rows are in its parts."""
    places = np.log(np.abs(ends)) if ends[0] > 0 or ends[-1] < 0 else ends
    places = np.abs(places - places[0])
    places /= places[-1]
    weights = np.diff(places) * slope ** ((places[:-1] + places[1:]) / 2)
    return np.asarray(weights / weights.sum())


def _beyond(reach: FloatArray, sizes: FloatArray, masses: FloatArray, degree: int) -> FloatArray:
    """Return what is cut off of the sum of sizes (their powers) at each reach, ascending or not."""
    order = np.argsort(sizes)
    numbers, powers = masses[order], (masses * sizes**degree)[order]
    first = np.searchsorted(sizes[order], reach, side="right")
    rows = np.concatenate([np.cumsum(numbers[::-1])[::-1], [0.0]])[first]
    total = np.concatenate([np.cumsum(powers[::-1])[::-1], [0.0]])[first]
    return np.maximum(total - rows * reach**degree, 0.0)


def _error(bias: FloatArray, spans: FloatArray, noise: float, most: float | None) -> FloatArray:
    """Return what is to be least: the error of a sum; where a bias is bounded, the noise alone of bounds within; infinite of none.

    ``spans``: powers of the distance of the bounds, by which noise grows; ``most``: largest bias, as a share of the noise.
    """
    error = np.hypot(bias, noise * spans) if most is None else np.where(bias <= most * noise * spans, noise * spans, math.inf)
    return np.asarray(np.where(spans > 0, error, math.inf))


def _one_sided(
    learning: Learning, points: FloatArray, values: FloatArray, masses: FloatArray, noise: float, degree: int, groups: float,
    most: float | None,
) -> Bounds:
    """Return bounds of values that are known to be of one sign, and away from zero."""
    base = float(points[0])
    above = _beyond(points - base, np.maximum(values - base, 0), masses, degree)
    error = _error(above / groups, (points - base) ** degree, noise, most)
    return _within(learning, base, float(points[int(np.argmin(error))]))
