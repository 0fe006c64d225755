r"""Quantiles of many groups from released trees of counts: which tree to release, and how to read it.

A tree (kind 'tree' of `dpsql.estimates.measures`) counts the rows of a group in cells of a public grid, on every level with its own
noise; `dpsql.estimates.trees` makes it consistent. A quantile q is where the cumulated counts reach q times their sum: within a
leaf rows are taken to be spread evenly; of whole numbers, evenly over the integers of the leaf.

**Which tree.** With noise sigma per level, had all the budget gone to one, levels of equal shares of rho have sigma sqrt(levels).
Mean squared error of the cumulated counts' distance from q times the sum, over all leaves' ends, in sigma^2 (of consistent trees,
by algebra): 1,024 leaves as (1024) 171, (32, 32) 20.7, (16, 8, 8) 13.6, (4, 4, 4, 4, 4) 10.8, ten times 2 10.7; 256 as 4^4 7.2;
4,096 as (16, 16, 16) 22.1, 4^6 15.2. Shares that fall or rise with the level by a factor 1.5 were worse from three levels on
(simulated). So: branching 4, equal shares; twice as many leaves cost about 10 % of the rank's error.

Minimum and maximum are read from the outermost cells that hold more than noise, `extreme`: a noisy tree says nothing of a few rows.

Privacy: none; post-processing of released numbers, and choices that depend on public numbers alone.

References
----------
Hay et al. (2010), PVLDB 3(1). Qardaji, Yang & Li (2013), Understanding hierarchical methods for differentially private histograms,
PVLDB 6(14), on branching.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dpsql.errors import ArgumentError
from dpsql.estimates import certain
from dpsql.estimates.leaves import points, wide
from dpsql.estimates.measures import Measure, Variable
from dpsql.estimates.moments import SURE, at_least
from dpsql.estimates.trees import least_squares, nonnegative, split_levels
from dpsql.noise.entropy import BoolArray
from dpsql.numerics.arrays import FloatArray, IntArray

LARGEST_TREES = 4_000_000
"""Cells of the trees of all groups together, of all levels."""

LEAVES = 1024
"""Leaves of a tree, where there is room for them."""

ENDS = ("value", "low", "high")
_BRANCHING = 4
_SURE = 3.0
_BLOCK = 1 << 21


def choose_levels(variable: Variable, groups: int = 1) -> tuple[int, ...]:
    """Return the branching of a tree, ``Measure.levels``.

    Parameters
    ----------
    variable : Variable
        Of whole numbers there is no more than one leaf per integer.
    groups : int, >= 1
        Public groups, or a public guess at how many will appear.

    Returns
    -------
    tuple of int
        About 4 per level; the trees of all groups have at most ``LARGEST_TREES`` cells (or 4 each).

    Raises
    ------
    ArgumentError
        The number of groups is not positive.

    Examples
    --------
    >>> choose_levels(Variable(0, 0, 1)), choose_levels(Variable(0, 0, 120, whole=True)), choose_levels(Variable(0, 0, 1), 100_000)
    ((4, 4, 4, 4, 4), (5, 5, 5), (4, 6))
    """
    if not 0 < groups < math.inf:
        raise ArgumentError("groups", groups, "must be a positive number")
    leaves = min(float(LEAVES), variable.span + 1) if variable.whole else float(LEAVES)
    most = max(_BRANCHING, math.floor(0.72 * LARGEST_TREES / groups))  # a tree has up to 4 / 3 of its leaves in cells, and a bit
    target = max(2, min(math.ceil(leaves), most))
    depth = max(1, round(math.log(target, _BRANCHING)))
    branching = math.ceil(target ** (1 / depth) - 1e-9)
    levels = [branching] * depth
    for k in range(depth):
        while levels[k] > 2 and math.prod(levels) // levels[k] * (levels[k] - 1) >= target:
            levels[k] -= 1
    while depth > 1 and math.prod(levels) > max(target, most):
        levels[0] -= 1
        if levels[0] < 2:
            levels.pop(0)
    return tuple(levels)


@dataclass(frozen=True)
class Tree:
    """A released tree, made consistent: arrays of shape (..., groups, cells).

    Parameters
    ----------
    measure : Measure
    levels : list of float arrays
        Consistent counts of every level, unbiased.
    masses : float array, shape (..., groups, leaves)
        Consistent counts of the leaves, at least 0. Of a group of few rows, as the noise is, rows of all groups make up the rest.
    deviations : list of float
        Of a cell of each level, by its own subtree; that of ``levels`` is no larger.
    """

    measure: Measure
    levels: list[FloatArray]
    masses: FloatArray
    deviations: list[float]

    @property
    def count(self) -> FloatArray:
        """Rows without NULL, unbiased, shape (..., groups)."""
        return np.asarray(self.levels[0].sum(axis=-1))

    @property
    def deviation(self) -> float:
        """Standard deviation of `count`."""
        return self.deviations[0] * math.sqrt(self.levels[0].shape[-1])

    @property
    def some(self) -> BoolArray:
        """Which groups may have rows, shape (..., groups)."""
        return at_least(self.count, self.deviation)


def tree(measure: Measure, counters: npt.ArrayLike, sigmas: Sequence[float]) -> Tree:
    """Return a released tree, made consistent.

    Parameters
    ----------
    measure : Measure
        Of kind 'tree'.
    counters : array, shape (..., groups, sum of ``measure.lengths``)
        As released, level after level from the top.
    sigmas : sequence of float, >= 0
        Standard deviation of the noise on a cell of each level.

    Raises
    ------
    ArgumentError
        The measure is of another kind, or a shape is not its own.
    """
    if measure.kind != "tree":
        raise ArgumentError("measure", measure.kind, "must be of kind 'tree'")
    if len(sigmas) != len(measure.lengths):
        raise ArgumentError("sigmas", len(sigmas), f"must be one number per level, {len(measure.lengths)} of them")
    counts = split_levels(np.asarray(counters, dtype=np.float64), measure.lengths)
    levels, deviations = least_squares(counts, [sigma**2 for sigma in sigmas])
    consistent = Tree(measure, levels, nonnegative(levels)[-1], deviations)
    return replace(consistent, masses=_leaning(consistent))


def _leaning(tree: Tree) -> FloatArray:
    """Return the counts of leaves, made up to three deviations of their sum by the shares of all groups together.

    What few rows say among so much noise would be anything; see `dpsql.estimates.moments`, where means do the same.
    """
    least = SURE * tree.deviation
    missing = np.maximum(least - np.maximum(tree.count, 0.0), 0.0)
    if not missing.any():
        return tree.masses
    pooled = nonnegative([level.sum(axis=-2, keepdims=True) for level in tree.levels])[-1]
    even = np.full(pooled.shape[-1], least * math.sqrt(max(tree.count.shape[-1], 1)) / pooled.shape[-1])
    total = pooled.sum(axis=-1, keepdims=True)
    pooled = pooled + even * np.maximum(1.0 - total / even.sum(), 0.0) if even.any() else pooled
    shares = pooled / np.maximum(pooled.sum(axis=-1, keepdims=True), 1e-300)
    return np.asarray(tree.masses + missing[..., None] * shares)


@dataclass(frozen=True)
class _Leaves:
    """The leaves of a tree: where each begins and ends, in units or as it is, and the value of those too narrow for two.

    Parameters
    ----------
    low, high : float arrays, shape (leaves,)
    point : float array
        A value, or NaN.
    single : bool
        Whether low, low + 1, ..., high - 1 are all that a leaf may hold.
    wide : bool array
        Whether a leaf with such a value holds others that differ from it: a unit of far too wide bounds.
    """

    low: FloatArray
    high: FloatArray
    point: FloatArray
    single: bool
    wide: BoolArray


@lru_cache(maxsize=64)
def _leaves(measure: Measure) -> _Leaves:
    variable, units = measure.variables[0], measure.units
    if units is not None:
        cut = np.asarray(measure.edges, dtype=np.int64)
        low, high = cut[:-1].astype(np.float64), cut[1:].astype(np.float64)
        return _Leaves(low, high, points(units, cut), units.single, wide(units, cut))
    edges = variable.lower + measure.width * np.arange(measure.lengths[-1] + 1)
    if not variable.whole:
        edges[-1] = variable.upper
    edges = np.minimum(edges, variable.upper + variable.whole)
    return _Leaves(edges[:-1], edges[1:], np.full(measure.lengths[-1], np.nan), variable.whole, np.zeros(measure.lengths[-1], bool))


def _values(measure: Measure, leaf: IntArray, places: FloatArray, *, end: bool = False) -> FloatArray:
    """Return values from places in leaves, cut at the bounds; ``end``: of an interval, which holds all that a leaf holds."""
    variable, known = measure.variables[0], _leaves(measure)
    scaled = places if measure.units is None else measure.units.values(places)
    point = np.where(known.wide, np.nan, known.point)[leaf] if end else known.point[leaf]
    return np.asarray(np.clip(np.where(np.isnan(point), scaled, point), variable.lower, variable.upper))


def quantiles(tree: Tree, shares: Sequence[float], end: str = "value") -> FloatArray:
    """Return quantiles, shape (..., groups, shares); NaN (NULL) where there can be no row.

    Parameters
    ----------
    tree : Tree
    shares : sequence of float, in [0, 1]
        0 and 1 are the ends of what has mass; MIN and MAX: `extreme`.
    end : {'value', 'low', 'high'}
        'low' and 'high': the least and the largest value that it may be, where a leaf holds more than the noise of a leaf: of where
        in it the rows are nothing is known.

    Raises
    ------
    ArgumentError
        A share is out of range.

    Notes
    -----
    One reading for quantile_cont, quantile_disc, median and approx_quantile: where the sum of counts is reached, which is
    between the two neighbouring values whose mixture quantile_cont takes. Of whole numbers a whole number is returned.
    """
    if not all(0 <= share <= 1 for share in shares):
        raise ArgumentError("shares", list(shares), "must be numbers from 0 to 1")
    if end not in ENDS:
        raise ArgumentError("end", end, f"must be one of {', '.join(map(repr, ENDS))}")
    measure, known = tree.measure, _leaves(tree.measure)
    many = measure.lengths[-1]
    masses = tree.masses.reshape(math.prod(tree.masses.shape[:-1]), many)
    result = np.empty((masses.shape[0], len(shares)))
    step = max(1, _BLOCK // many)
    for start in range(0, len(masses), step):
        part = masses[start : start + step]
        upto = np.cumsum(part, axis=-1)
        everything = upto[:, -1]
        for k, share in enumerate(shares):
            rank = np.clip(share, 1e-12, 1 - 1e-12) * everything
            leaf = np.minimum((upto < rank[:, None]).sum(axis=-1), many - 1)
            mass = np.take_along_axis(part, leaf[:, None], axis=-1)[:, 0]
            before = np.take_along_axis(upto, leaf[:, None], axis=-1)[:, 0] - mass
            with np.errstate(divide="ignore", invalid="ignore"):
                within = np.where(mass > 0, np.clip((rank - before) / mass, 0.0, 1.0), 0.5)
            if end != "value":
                within = np.where(mass > tree.deviations[-1], 0.0 if end == "low" else 1.0, within)
            low, high = known.low[leaf], known.high[leaf]
            place = low + within * (high - low)
            if known.single:
                place = np.maximum(np.minimum(np.floor(place), high - 1), low)
            result[start : start + step, k] = _values(measure, leaf, place, end=end != "value")
    return np.where(tree.some[..., None], result.reshape(*tree.masses.shape[:-1], len(shares)), np.nan)


def extreme(tree: Tree, *, largest: bool) -> FloatArray:
    """Return an estimate of MIN or MAX, shape (..., groups); NaN (NULL) where there can be no row.

    Notes
    -----
    Walks down from the top: into the outermost child that holds more than three deviations of its noise; where no child does, into
    the fullest one. What is returned is the leaf's outer end. So up to about three deviations of rows may lie beyond it; an
    empty part of the range is taken for the extreme with a probability of about 1e-3 per cell.
    """
    measure, known = tree.measure, _leaves(tree.measure)
    place = np.zeros(tree.masses.shape[:-1], dtype=np.int64)
    for level, deviation, branching in zip(tree.levels, tree.deviations, measure.levels, strict=True):
        cut = level.reshape(*place.shape, level.shape[-1] // branching, branching)
        children = np.take_along_axis(cut, place[..., None, None], axis=-2)[..., 0, :]
        sure = children > max(_SURE * deviation, 0.5)
        outer = branching - 1 - np.argmax(sure[..., ::-1], axis=-1) if largest else np.argmax(sure, axis=-1)
        place = place * branching + np.where(sure.any(axis=-1), outer, np.argmax(children, axis=-1))
    ends = known.high[place] - known.single if largest else known.low[place]
    return np.where(tree.some, _values(measure, place, ends), np.nan)


def confident(tree: Tree, share: float, times: float) -> tuple[FloatArray, FloatArray]:
    """Return between which values a quantile lies, shape (..., groups) each; see `dpsql.estimates.certain.leaves`."""
    known = _leaves(tree.measure)
    spread = certain.deviations(tree.measure.levels, tree.deviations, share)
    first, last = certain.leaves(tree.levels[-1], share, spread, times)
    low = _values(tree.measure, first, known.low[first], end=True)
    return low, _values(tree.measure, last, known.high[last] - known.single, end=True)
