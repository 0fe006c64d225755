"""What `lines.py` puts rows in order by, fitted to the released tables of first rows, of rows after rows and of distances.

Rows drawn from the fitted classes are put in order again and again; where a table of them is further from the released one than its
noise, its terms go up or down by the logarithm of the two. Noise of one deviation is not fitted. Terms of the bins' tables with the
row's columns go to what these were as they were drawn, which is what the classes say.

Privacy: post-processing of released statistics.

Reference: stochastic approximation of maximum likelihood: Younes (1989); Tieleman (2008), persistent contrastive divergence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpsql.methods.nested_classes.draw import draw, rows_of_a_unit
from dpsql.methods.nested_classes.lines import Lines, Ordering, Scale
from dpsql.methods.nested_classes.model import NestedClasses
from dpsql.methods.nested_classes.shapes import GAPS, ORDERED, Block
from dpsql.numerics.arrays import FloatArray, IntArray

_ROUNDS, _MOVES = 60, 6
"""Times that terms are changed, and how many rows of each family are exchanged in between."""
_RATE, _MOST_LOG = 0.5, 1.0
_LARGEST, _LEAST_TOTAL = 8.0, 1e-3
_ROWS, _MOST_UNITS = 60_000, 20_000
_Key = tuple[str, int]


def ordered(
    model: NestedClasses,
    blocks: Sequence[Block],
    values: Sequence[FloatArray],
    deviations: Sequence[float],
    scales: Mapping[int, Scale],
    seed: int = 0,
) -> NestedClasses:
    """Return the model with what its rows stand in order by. Deterministic.

    Parameters
    ----------
    model : NestedClasses
        Without orders.
    blocks : sequence of Block
    values : sequence of ndarray
        Noisy shares of units.
    deviations : sequence of float
        Of the noise of each block's cells, as a share of units.
    scales : mapping of int to Scale
        The columns of the orders, by table.
    seed : int

    Notes
    -----
    Privacy: post-processing.
    """
    released: dict[int, dict[_Key, tuple[FloatArray, float]]] = {table: {} for table in scales}
    for block, value, deviation in zip(blocks, values, deviations, strict=True):
        table, column = block.left
        if block.kind in ORDERED and table in scales:
            released[table][block.kind, column] = np.asarray(value, float), deviation
    for table in sorted(scales):
        model = replace(model, orders=(*model.orders, _fitted(model, table, scales[table], released[table], seed)))
    return model


def _fitted(
    model: NestedClasses, table: int, scale: Scale, released: Mapping[_Key, tuple[FloatArray, float]], seed: int
) -> Ordering:
    rng, shape = np.random.default_rng([seed, table]), model.shape
    order = shape.tables[table].order
    assert order is not None  # noqa: S101 -- for the type checker
    units = int(max(min(_ROWS / rows_of_a_unit(model), _MOST_UNITS), 50))
    drawn = draw(model, units, rng)
    # A unit weighs 1 in all, whatever its number of rows: so it does in the released tables.
    weights = np.ones(units)
    for t in shape.path(table)[1:]:
        above = weights
        weights = (above / np.maximum(np.bincount(drawn[t].parent, minlength=above.size), 1))[drawn[t].parent]
    codes, parent = drawn[table].codes.T, drawn[table].parent
    sizes, bins = shape.extended(table), scale.bins.size - 1
    zero = Ordering(
        table, order, scale,
        {i: np.zeros(sizes[i]) for kind, i in released if kind == "first"},
        {i: np.zeros((sizes[i], sizes[i])) for kind, i in released if kind == "next"},
        {i: np.zeros((bins, size)) for i, size in enumerate(sizes) if i != order},
        np.zeros(GAPS),
    )  # fmt: skip
    lines = Lines(zero, codes, parent, rng)
    counts = _Counts(lines, parent, above if parent.size else np.ones(0), weights)
    tables = dict(released)
    # What the order has to do with the other columns is known from drawn rows, without noise.
    drawn_pairs = counts.tables(codes[order], {i: codes[i] for i in zero.within})
    tables |= {("within", i): (value, 0.0) for i, value in drawn_pairs.items()}
    totals = counts.totals(units)
    goals = {
        key: _Goal.of(value, deviation, totals[key[0]], max(len(lines.start), 1)) for key, (value, deviation) in tables.items()
    }
    everybody = np.arange(len(lines.start))
    sums = {key: np.zeros_like(goal.shares) for key, goal in goals.items()}
    for step in range(_ROUNDS):
        for _ in range(_MOVES):
            lines.move(everybody)
        now = counts.now()
        rate = _RATE if 2 * step < _ROUNDS else _RATE * 2.0 * (1.0 - step / _ROUNDS)
        for key, goal in goals.items():
            term = _term(zero, key)
            term += rate * goal.slope(now[key], term)
            np.clip(term, -_LARGEST, _LARGEST, out=term)
            # Averaged over the second half, since single moves are noisy.
            if 2 * step >= _ROUNDS:
                sums[key] += term
    for key, total in sums.items():
        _term(zero, key)[...] = total / (_ROUNDS - _ROUNDS // 2)
    return zero


def _term(ordering: Ordering, key: _Key) -> FloatArray:
    kind, i = key
    if kind == "gap":
        return ordering.gap
    return {"first": ordering.first, "next": ordering.after, "within": ordering.within}[kind][i]


@dataclass(frozen=True)
class _Goal:
    """A table over what the classes say it adds up to, one deviation of its noise, what is added before logarithms are taken."""

    shares: FloatArray
    noise: float
    offset: float

    @classmethod
    def of(cls, value: FloatArray, deviation: float, total: float, families: int) -> _Goal:
        noise = deviation / max(total, _LEAST_TOTAL)
        return cls(value / max(total, _LEAST_TOTAL), noise, noise + 1.0 / families)

    def slope(self, now: FloatArray, term: FloatArray) -> FloatArray:
        """Return how a table's terms change; those of cells that are less than the noise go back to zero."""
        missed = self.shares - now
        denoised = now + np.sign(missed) * np.maximum(np.abs(missed) - self.noise, 0.0)
        change = np.clip(np.log((np.maximum(denoised, 0.0) + self.offset) / (now + self.offset)), -_MOST_LOG, _MOST_LOG)
        return np.asarray(change - term * (self.noise / (now + self.noise + 1e-12)) ** 2)


class _Counts:
    """Tables of rows in order, as shares of their sums."""

    def __init__(self, lines: Lines, parent: IntArray, above: FloatArray, weights: FloatArray) -> None:
        self._lines, self._weights = lines, weights
        inside = np.flatnonzero(~np.isnan(lines.values))
        first = np.ones(inside.size, bool)
        first[1:] = parent[inside[1:]] != parent[inside[:-1]]
        self._first = inside[first]
        self._before, self._after = inside[:-1][~first[1:]], inside[1:][~first[1:]]
        count = np.bincount(parent[inside], minlength=above.size)
        self._above, whose = above[parent[self._first]], parent[self._before]
        self._share = above[whose] / np.maximum(count[whose] - 1, 1)

    def totals(self, units: int) -> dict[str, float]:
        """Return what the tables of each kind add up to, in shares of units."""
        neighbours = float(self._share.sum()) / units
        return {"first": float(self._above.sum()) / units, "next": neighbours, "gap": neighbours, "within": 1.0}

    def now(self) -> dict[_Key, FloatArray]:
        """Return all tables as the rows stand."""
        lines, ordering = self._lines, self._lines.ordering
        tables: dict[_Key, FloatArray] = {}
        # Weights are those of units, so that tables of drawn rows and released ones are shares of the same.
        for i, term in ordering.first.items():
            tables["first", i] = _share(lines.columns[i][self._first], self._above, term.shape)
        for i, term in ordering.after.items():
            column = lines.columns[i]
            tables["next", i] = _share(column[self._before] * term.shape[1] + column[self._after], self._share, term.shape)
        gaps = lines.cells(lines.values[self._after] - lines.values[self._before])
        tables["gap", ordering.column] = _share(gaps, self._share, ordering.gap.shape)
        pairs = self.tables(lines.bins, lines.columns, self._weights[lines.at])
        return tables | {("within", i): value for i, value in pairs.items()}

    def tables(
        self, own: IntArray, columns: Mapping[int, IntArray], weights: FloatArray | None = None
    ) -> dict[int, FloatArray]:
        """Return the tables of the order's bins with the columns of the rows."""
        weights, within = self._weights if weights is None else weights, self._lines.ordering.within
        inside = np.flatnonzero(own < next(iter(within.values())).shape[0]) if within else np.zeros(0, np.intp)
        whole = own[inside].astype(np.int64)
        return {
            i: _share(whole * term.shape[1] + columns[i][inside], weights[inside], term.shape) for i, term in within.items()
        }


def _share(cells: IntArray, weights: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    sums = np.bincount(cells, weights, int(np.prod(shape))).reshape(shape)
    shares: FloatArray = sums / max(float(sums.sum()), 1e-12)
    return shares
