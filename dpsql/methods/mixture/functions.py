r"""Columns that follow from another one of many values: seen in the noisy tables, kept by the mixture.

A column y that is a function of a column x of hundreds of values (a postcode, a hospital's number) spreads a few rows over each of
very many cells, and every one of them is lost in the noise. All of them together are not: how close y is to a function of x is

    F_xy = sum_ab P_ab^2 / sum_a P_a^2,   tau_xy = (F_xy - sum_b P_b^2) / (1 - sum_b P_b^2),

1 for a function and 0 for independent columns, and sums of squared noisy shares less their known variance estimate it without bias,
with a known standard error (`determination`). Rules, from released tables and the known noise alone:

1. The *key* is the attribute of at least 64 values that determines most. It determines y where a tau of 0.8 is within two,
   and 0 not within one standard error; all that it determines must together be four standard errors above 0, and two above
   1/2, and one of them must have at least 64 values too: fewer are expressed by the usual classes.
2. With a key, every class starts as one of its values: theta of a determined attribute is the posterior distribution of the
   one value that it takes there, given the noisy table; the others start at their one-way tables.
3. Where classes are that sharp, an attribute that has nothing to do with them is fitted to noise by all of them. So an
   attribute that no key determines, and whose noisy tables together are within three standard errors of those of an
   independent one, is kept independent.
4. The fit gives posterior means, which spread each value's rows over what it might determine. The total variation distance
   to a function is smallest at the mode. So theta of determined attributes is raised to a power (at most 3), as long as the
   model is not closer to functions than the noisy tables are on average, and no attribute by more than a standard error.

The thresholds were chosen on hospital, and checked on made-up tables (tests); Adult, acs, msnbc, nist, sim50k and salary
have no key.

Privacy: post-processing of released statistics.

References: Goodman & Kruskal (1954) for tau; Louis (1984) for matching the spread of estimates to that of what they estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpsql.methods.mixture.fit import Float32, Mixture
from dpsql.methods.mixture.targets import Targets
from dpsql.numerics.arrays import FloatArray
from dpsql.numerics.products import multiplies

FEWEST_VALUES = 64
"""Of a key: for fewer values the usual classes are enough."""

_NEAR, _NEAR_ERRORS, _ABOVE_ERRORS = 0.8, 2.0, 1.0
_TOGETHER, _TOGETHER_ERRORS, _CERTAIN_ERRORS = 0.5, 2.0, 4.0
_INDEPENDENT_ERRORS = 3.0
_LARGEST_COLLISION = 0.9
"""An attribute of which nearly all rows have one value follows from anything."""

_DEVIATION, _FLOOR = 0.25, -9.0
_POWERS = np.linspace(1.0, 3.0, 9)


@dataclass(frozen=True)
class Key:
    """An attribute that determines others.

    Parameters
    ----------
    position : int
    determined : tuple of int
        Positions of what follows from it, ascending.
    independent : tuple of int
        Positions of what nothing is seen to depend on, ascending.
    level : float
        Mean of F over what is determined, as the noisy tables have it, at most 1.
    bounds : tuple of float, same length as determined
        F of each, plus one standard error.
    """

    position: int
    determined: tuple[int, ...]
    independent: tuple[int, ...]
    level: float
    bounds: tuple[float, ...]


def determination(targets: Targets) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return F, tau and the standard error of tau of every pair of attributes x, y; shapes (m, m), nan where it is not known.

    Examples
    --------
    Three values of x, each with one of y, without noise:

    >>> from dpsql.methods.mixture.targets import targets
    >>> from dpsql.tables.statistics import Statistics
    >>> tables = {(0,): np.array([10, 10, 20]), (1,): np.array([20, 20]), (0, 1): np.array([[10, 0], [10, 0], [0, 20]])}
    >>> _, taus, _ = determination(targets(Statistics((3, 2), tables, dict.fromkeys(tables, 0.0), "gaussian", 40)))
    >>> taus.round(2).tolist()
    [[nan, 1.0], [0.6, nan]]
    """
    m, blocks = len(targets.sizes), _blocks(targets)
    squares, taus, errors = (np.full((m, m), math.nan) for _ in range(3))
    unit = max(targets.strength, 1.0) ** 2
    # Squares of noisy shares are too large by the variance of every cell, which is taken off here and below.
    collisions = np.full(m, math.nan)
    for i, block in enumerate(blocks):
        weight = float(targets.single_weights[block][0])
        if weight > 0.0:
            collisions[i] = float((targets.singles[block].astype(float) ** 2 - 1.0 / (weight * unit)).sum())
    for x, rows in enumerate(blocks):
        for y, columns in enumerate(blocks):
            weight = float(targets.pair_weights[rows, columns][0, 0]) * unit
            # Not measured, or all in one value: a ratio would be of noise to noise.
            if x == y or weight <= 0.0 or not collisions[x] > 0.0 or not 0.0 < collisions[y] <= _LARGEST_COLLISION:
                continue
            noisy = targets.pairs[rows, columns].astype(float)
            total = float((noisy**2).sum()) - noisy.size / weight
            shared = min(max(total, 0.0), collisions[x])
            error = math.sqrt(2.0 * noisy.size / weight**2 + 4.0 * shared / weight) / collisions[x]
            squares[x, y] = total / collisions[x]
            taus[x, y] = (squares[x, y] - collisions[y]) / (1.0 - collisions[y])
            errors[x, y] = error / (1.0 - collisions[y])
    return squares, taus, errors


def find_key(targets: Targets, most: int) -> Key | None:
    """Return the attribute that determines most, of those with at most ``most`` values; None where none determines anything."""
    if not any(FEWEST_VALUES <= size <= most for size in targets.sizes):
        return None
    squares, taus, errors = determination(targets)
    best: tuple[float, int, list[int]] = (0.0, -1, [])
    for x, size in enumerate(targets.sizes):
        if not FEWEST_VALUES <= size <= most:
            continue
        tau, error = taus[x], errors[x]
        # nan, of pairs that were not measured, is near to nothing.
        with np.errstate(invalid="ignore"):
            near = (tau + _NEAR_ERRORS * error >= _NEAR) & (tau >= _ABOVE_ERRORS * error) & (error <= _TOGETHER)
        followers = np.flatnonzero(near).tolist()
        together, uncertain = float(tau[followers].sum()), float(np.sqrt((error[followers] ** 2).sum()))
        certain = together >= _CERTAIN_ERRORS * uncertain and together - _TOGETHER_ERRORS * uncertain >= _TOGETHER * len(followers)
        large = any(targets.sizes[y] >= FEWEST_VALUES for y in followers)
        if large and certain and together > best[0]:
            best = together, x, followers
    _, x, determined = best
    if x < 0:
        return None
    independent = [i for i, z in enumerate(dependence(targets)) if z < _INDEPENDENT_ERRORS and i != x and i not in determined]
    values = squares[x, determined]
    # The error of F: that of tau without its denominator, 1 less what F is for independent columns.
    scales = np.divide(1.0 - values, 1.0 - taus[x, determined], out=np.ones_like(values), where=taus[x, determined] != 1.0)
    bounds = values + scales * errors[x, determined]
    return Key(x, tuple(determined), tuple(independent), min(float(values.mean()), 1.0), tuple(bounds.tolist()))


def dependence(targets: Targets) -> FloatArray:
    """Return by how many standard errors the pair tables of each attribute together differ from those of an independent one."""
    blocks, unit = _blocks(targets), max(targets.strength, 1.0) ** 2
    measured = targets.pair_weights > 0.0
    misses = targets.pairs - np.outer(targets.one_way, targets.one_way)
    excess = np.where(measured, targets.pair_weights * unit * misses**2 - 1.0, 0.0).sum(1)
    cells = measured.sum(1)
    return np.array([excess[block].sum() / math.sqrt(max(2.0 * cells[block].sum(), 1.0)) for block in blocks])


def start(targets: Targets, key: Key, classes: int, seed: int) -> tuple[Float32, Float32]:
    """Return logits (D, K) and class logits (K,) of rule 2; K is the multiple of the key's values nearest to ``classes``."""
    blocks, unit, floor = _blocks(targets), max(targets.strength, 1.0) ** 2, math.exp(_FLOOR)
    rows = blocks[key.position]
    size = rows.stop - rows.start
    shares = np.maximum(targets.one_way, floor)
    logits = np.repeat(np.log(shares)[:, None], size, axis=1)
    own = np.full((size, size), _FLOOR)
    np.fill_diagonal(own, 0.0)
    logits[rows] = own
    for y in key.determined:
        block = blocks[y]
        tilt = targets.pair_weights[block, rows].astype(float) * unit * targets.pairs[block, rows] * shares[rows]
        posterior = logits[block] + tilt
        logits[block] = np.maximum(posterior - posterior.max(axis=0), _FLOOR)
    copies = max(round(classes / size), 1)
    whole = np.tile(logits, (1, copies))
    # Columns that are independent of all others start alike in every class.
    free = ~np.isin(owners(targets), key.independent)
    whole[free] += _DEVIATION * np.random.default_rng(seed).standard_normal((int(free.sum()), whole.shape[1]))
    return whole.astype(np.float32), np.tile(np.log(shares[rows]), copies).astype(np.float32)


def sharpened(mixture: Mixture, targets: Targets, key: Key) -> Mixture:
    """Return the mixture of rule 4."""
    blocks = _blocks(targets)
    keys = mixture.values[blocks[key.position]] * mixture.shares
    whole = float((keys.sum(1) ** 2).sum())
    values, best = mixture.values.copy(), mixture.values.copy()
    for power in _POWERS:
        closeness = []
        for y, bound in zip(key.determined, key.bounds, strict=True):
            raised = mixture.values[blocks[y]] ** power
            raised /= raised.sum(axis=0)
            level = _closeness(keys, raised, whole)
            # Sharper than the released table allows: this column stays as it was.
            if level > bound:
                level = _closeness(keys, values[blocks[y]], whole)
            else:
                values[blocks[y]] = raised
            closeness.append(level)
        # The columns follow their key more closely now than was measured: the power before was the last right one.
        if float(np.mean(closeness)) > key.level:
            break
        best = values.copy()
    return Mixture(mixture.shares, best)


@multiplies
def _closeness(keys: FloatArray, values: FloatArray, whole: float) -> float:
    """Return F of the model, from pi times theta of the key and theta of what it determines."""
    return float(((keys @ values.T) ** 2).sum()) / whole


def owners(targets: Targets) -> npt.NDArray[np.intp]:
    """Return the attribute of every code, shape (D,)."""
    return np.repeat(np.arange(len(targets.sizes)), targets.sizes)


def _blocks(targets: Targets) -> list[slice]:
    ends = np.cumsum((0, *targets.sizes))
    return [slice(int(first), int(last)) for first, last in zip(ends[:-1], ends[1:], strict=True)]
