"""Which road counts a set of contingency tables: chosen by cost, from the sizes and the cliques alone.

The number of rows may be private, so it decides nothing that could be seen: roads are compared for `NOMINAL_ROWS` rows. Times are
of one core of a 2024 server, in nanoseconds a row where not said otherwise. Post-processing of public numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dpsql.errors import ArgumentError, DomainError
from dpsql.numerics.arrays import Clique, IntArray
from dpsql.tables.counting import gram as counting_gram
from dpsql.tables.counting.fold import Fold, Part
from dpsql.tables.counting.products import ROWS, columns
from dpsql.tables.flat import cell_counts

MAX_CELLS = 2**28
NOMINAL_ROWS = 1_000_000
_MOST_KNOWN = 10_000
"""Cliques of a question whose answer is kept for the next one."""

_JOINT_CELLS = 2**16  # of a joint table that is counted for the sake of smaller ones
_BUDGETS = (1, 16, 40, 256, 4096)  # cells of a group of attributes; 1: no groups
_THRESHOLDS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64)  # largest attributes that get one-hot columns
_JOINT_MEMORY = 2**25  # cells of all joint tables, beyond what is asked for

_ENCODE, _FETCH = 3.0, 4.5  # a value
_PLACE, _TABLE, _DIGIT = 0.4, 1.4, 0.5  # cell numbers of a part, a joint table, each more part of it
_FAR = ((2**16, 1.0), (2**19, 3.0), (2**23, 8.0))  # more for tables that no cache holds
_SUM = 15e-6  # seconds for a table that is summed from another one
_HOT, _PRODUCT, _FIRST_PRODUCT = 0.4, 0.0065, 0.0065 * 300  # a one-hot column, a pair of them, a tile's part below the diagonal
_SQL_TABLE, _SQL_STATEMENT = 9.0, 2e-3


@dataclass(frozen=True)
class Work:
    """A road with what it needs, and what it costs.

    ``road``: 'sql', or 'stream' for the `fold` and the `gram` of this folder over one pass. ``gram``: the attributes with
    one-hot columns. ``in_gram``: whether each clique is counted by them. ``budget``: cells of a group. ``alone``, ``shared``:
    nanoseconds a row of the calling thread, and of any thread. ``fixed``: seconds. ``cells``: beyond the result.
    """

    road: str
    gram: tuple[int, ...]
    in_gram: npt.NDArray[np.bool_]
    budget: int
    alone: float
    shared: float
    fixed: float
    cells: float

    def seconds(self, rows: float, cores: int = 2) -> float:
        """Return a forecast of wall time on free cores."""
        return self.fixed + 1e-9 * rows * max(self.alone, (self.alone + self.shared) / cores)


@dataclass(frozen=True)
class Cliques:
    """Cliques by their number of attributes: positions in the list, and attributes as an array of shape (n, k)."""

    count: int
    by_order: dict[int, tuple[IntArray, IntArray]]

    @classmethod
    def of(cls, cliques: Sequence[Clique]) -> Cliques:
        """Sort cliques by order."""
        lengths = np.fromiter(map(len, cliques), dtype=np.int64, count=len(cliques))
        flat = np.fromiter(itertools.chain.from_iterable(cliques), dtype=np.int64, count=int(lengths.sum()))
        starts = np.cumsum(lengths) - lengths
        by_order = {}
        for order in np.unique(lengths).tolist():
            places = np.flatnonzero(lengths == order)
            by_order[order] = places, flat[starts[places][:, None] + np.arange(order)]
        return cls(len(cliques), by_order)

    def without(self, gone: npt.NDArray[np.bool_]) -> Cliques:
        """Return those that are not marked."""
        kept = {order: (places[~gone[places]], rows[~gone[places]]) for order, (places, rows) in self.by_order.items()}
        return Cliques(self.count, {order: pair for order, pair in kept.items() if len(pair[0])})


def check_cliques(sizes: Sequence[int], cliques: Iterable[Clique]) -> None:
    """Refuse cliques that do not name attributes, name one twice, or have too many cells to count.

    Raises
    ------
    ArgumentError
        A position is not between 0 and the number of attributes, or is repeated.
    DomainError
        A table has more than ``MAX_CELLS`` cells.
    """
    listed = list(cliques)
    lengths = np.asarray(sizes, dtype=np.float64)
    for places, rows in Cliques.of(listed).by_order.values():
        bad = ((rows < 0) | (rows >= len(sizes))).any(axis=1)
        for a, b in itertools.combinations(range(rows.shape[1]), 2):
            bad |= rows[:, a] == rows[:, b]
        if bad.any():
            clique = listed[places[int(np.argmax(bad))]]
            raise ArgumentError("cliques", clique, f"distinct positions from 0 to {len(sizes) - 1} are required")
        many = lengths[rows].prod(axis=1) > MAX_CELLS
        if many.any():
            clique = listed[places[int(np.argmax(many))]]
            cells = math.prod(sizes[position] for position in clique)
            raise DomainError(
                f"the table over attributes {clique} has {cells} cells, at most {MAX_CELLS} can be counted; "
                "choose fewer columns or coarser bins"
            )


def groups(sizes: Sequence[int], budget: int) -> tuple[IntArray, list[Part]]:
    """Pack attributes into groups of at most ``budget`` cells, large ones first, each into the first group with room.

    Returns
    -------
    group of each attribute, and the attributes of each group

    Examples
    --------
    >>> groups([2, 8, 4, 3], 16)[1]
    [(1, 0), (2, 3)]
    """
    number = np.zeros(len(sizes), dtype=np.int64)
    parts: list[list[int]] = []
    open_parts: list[tuple[int, int]] = []  # group, cells
    smallest = max(min(sizes, default=1), 2)
    for position in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        size = sizes[position]
        place = next((k for k, (_, cells) in enumerate(open_parts) if cells * size <= budget), None)
        if place is None:
            open_parts.append((len(parts), 1))
            parts.append([])
            place = len(open_parts) - 1
        group, cells = open_parts[place]
        parts[group].append(position)
        number[position] = group
        open_parts[place] = group, cells * size
        if cells * size * smallest > budget:
            del open_parts[place]
    return number, [tuple(part) for part in parts]


@dataclass(frozen=True)
class _Joints:
    """Sets of groups that hold cliques of one order.

    ``sets``: groups, -1 where there are fewer, shape (n, k). ``cells``: of each set. ``which``: the set of each clique.
    ``count``: cliques of each set.
    """

    sets: IntArray
    cells: npt.NDArray[np.float64]
    which: IntArray
    count: IntArray


def _joints(cliques: Cliques, number: IntArray, parts: list[Part], sizes: Sequence[int]) -> list[_Joints]:
    """Return the sets of groups for each order."""
    lengths = np.asarray([float(math.prod(sizes[position] for position in part)) for part in parts] + [1.0])
    joints = []
    for order, (_, rows) in cliques.by_order.items():
        if order == 2:  # much faster than sorting; there may be millions
            a, b = number[rows[:, 0]], number[rows[:, 1]]
            key = np.maximum(a, b) + np.minimum(a, b) * len(parts)
            present, which, count = _counted(key, len(parts) ** 2)
            low, high = np.divmod(present, len(parts))
            sets = np.stack([np.where(low == high, -1, low), high], axis=1)
        else:
            touched = np.sort(number[rows], axis=1)
            touched[:, 1:][np.diff(touched, axis=1) == 0] = -1  # a group that is there twice
            sets, which, count = np.unique(np.sort(touched, axis=1), axis=0, return_inverse=True, return_counts=True)
        joints.append(_Joints(sets, lengths[sets].prod(axis=1), which.ravel(), count))
    return joints


def _counted(key: IntArray, limit: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return the distinct keys, the place of each key among them, how often each is there."""
    if limit > 2**22:
        present, which, count = np.unique(key, return_inverse=True, return_counts=True)
        return present, which, count
    times = np.bincount(key, minlength=limit)
    present = np.flatnonzero(times)
    places = np.cumsum(times > 0) - 1
    return present, places[key], times[present]


def folds(sizes: Sequence[int], cliques: Cliques, asked: Sequence[Clique], budget: int) -> list[Fold]:
    """Return joint tables that hold the cliques."""
    number, parts = groups(sizes, budget)
    joint: dict[frozenset[int], list[int]] = {}
    direct: list[int] = []
    every = _joints(cliques, number, parts, sizes)
    for (places, _), joints in zip(cliques.by_order.values(), every, strict=True):
        # A joint table pays where it is small and several tables follow from it.
        shared = ((joints.cells <= _JOINT_CELLS) & (joints.count > 1))[joints.which]
        direct += places[~shared].tolist()
        sets = [frozenset(group for group in groups if group >= 0) for groups in joints.sets.tolist()]
        for which, place in zip(joints.which[shared].tolist(), places[shared].tolist(), strict=True):
            joint.setdefault(sets[which], []).append(place)
    _merge(joint)
    more = _absorbed(joint, number, direct, asked)
    folded = [Fold(tuple(parts[g] for g in sorted(members)), tuple(tables)) for members, tables in joint.items()]
    return folded + [Fold(tuple((position,) for position in asked[place]), (place,)) for place in more]


def _merge(joint: dict[frozenset[int], list[int]]) -> None:
    """Move the tables of a set of groups to a larger set that is counted anyway."""
    holders: dict[int, list[frozenset[int]]] = {}
    for members in joint:
        for group in members:
            holders.setdefault(group, []).append(members)
    for members in sorted(joint, key=len):
        # Only a set that has the rarest group can hold all of them, so no other is looked at.
        rarest = min((holders[group] for group in members), key=len, default=list(joint))
        larger = next((candidate for candidate in rarest if members < candidate and candidate in joint), None)
        if larger is not None:
            joint[larger] += joint.pop(members)


def _absorbed(joint: dict[frozenset[int], list[int]], number: IntArray, direct: list[int], asked: Sequence[Clique]) -> list[int]:
    """Give single tables to a joint table that holds them, and return those that none does."""
    holders: dict[int, list[frozenset[int]]] = {}
    for members in joint:
        for group in members:
            holders.setdefault(group, []).append(members)
    left = []
    for place in direct:
        touched = frozenset(number[list(asked[place])].tolist())
        rarest = min((holders.get(group, []) for group in touched), key=len, default=list(joint))
        larger = next((candidate for candidate in rarest if touched <= candidate), None)
        if larger is None:
            left.append(place)
        else:
            joint[larger].append(place)
    return left


def _far(cells: npt.NDArray[np.float64]) -> float:
    """Return what tables of these sizes cost beyond one that a cache holds, together."""
    return float(sum(more * np.count_nonzero(cells > limit) for limit, more in _FAR))


def _fold_cost(sizes: Sequence[int], cliques: Cliques, budget: int) -> tuple[float, float, float]:
    """Return nanoseconds a row, seconds, and cells of joint tables, of `folds`."""
    number, parts = groups(sizes, budget)
    lengths = np.asarray(sizes, dtype=np.float64)
    row, fixed, extra = _PLACE * len(sizes) if cliques.by_order else 0.0, 0.0, 0.0
    for (_, rows), joints in zip(cliques.by_order.values(), _joints(cliques, number, parts, sizes), strict=True):
        each = _TABLE + _DIGIT * max(rows.shape[1] - 1, 0)
        shared = (joints.cells <= _JOINT_CELLS) & (joints.count > 1)
        alone = lengths[rows[~shared[joints.which]]].prod(axis=1)
        row += each * (np.count_nonzero(shared) + len(alone)) + _far(joints.cells[shared]) + _far(alone)
        fixed += _SUM * float(joints.count[shared].sum()) + 2e-9 * float((joints.cells * joints.count)[shared].sum())
        extra += float(joints.cells[shared].sum())
    return row, fixed, extra


def _gram_cost(sizes: Sequence[int], attributes: Sequence[int]) -> tuple[float, float, float]:
    """Return nanoseconds a row, seconds, and cells of the products."""
    count = columns(sizes, attributes)
    return _HOT * count + (_PRODUCT * count + _FIRST_PRODUCT) * count, 0.01 + 4e-9 * count**2, float(count) ** 2


def choose(sizes: Sequence[int], asked: Sequence[Clique]) -> Work:
    """Return the cheapest road for `NOMINAL_ROWS` rows.

    Parameters
    ----------
    sizes : sequence of int, length m
    asked : sequence of tuples of int
        Distinct cliques, checked.

    Notes
    -----
    Privacy: a function of public numbers alone.
    """
    if len(asked) > _MOST_KNOWN:
        return _cheapest(sizes, asked)
    return _known(tuple(sizes), tuple(asked))


def _cheapest(sizes: Sequence[int], asked: Sequence[Clique]) -> Work:
    """Return what `choose` does."""
    cliques = Cliques.of(asked)
    candidates = [_sql(sizes, cliques), *_every_stream(sizes, cliques)]
    return min(candidates, key=lambda work: work.seconds(NOMINAL_ROWS))


def _every_stream(sizes: Sequence[int], cliques: Cliques, most_products: float = math.inf) -> list[Work]:
    """Return the roads over one pass, without one-hot columns and with those of more and more attributes."""
    roads = _streams(sizes, cliques, ())
    for limit in sorted({max((s for s in sizes if s <= limit), default=0) for limit in _THRESHOLDS} - {0}):
        attributes = tuple(i for i, size in enumerate(sizes) if size <= limit)
        if len(attributes) > 8 and columns(sizes, attributes) ** 2 <= most_products:
            roads += _streams(sizes, cliques, attributes)
    return roads


def streamed(sizes: Sequence[int], asked: Sequence[Clique], most_products: int) -> Work:
    """Return the cheapest road over one pass, with so many products of one-hot columns at most: for an engine's workers."""
    return min(_every_stream(sizes, Cliques.of(asked), most_products), key=lambda work: work.seconds(NOMINAL_ROWS))


_known = lru_cache(maxsize=16)(_cheapest)
"""A purchase asks for its road some four times: before the charge, for the bar, before the reading, when it counts."""


def _sql(sizes: Sequence[int], cliques: Cliques) -> Work:
    none = np.zeros(cliques.count, dtype=np.bool_)
    return Work("sql", (), none, 1, 0.0, _ENCODE * len(sizes) + _SQL_TABLE * cliques.count, _SQL_STATEMENT * cliques.count, 0.0)


def _streams(sizes: Sequence[int], cliques: Cliques, attributes: tuple[int, ...]) -> list[Work]:
    """Return the roads over one pass that have one-hot columns for these attributes."""
    inside = np.zeros(len(sizes), dtype=np.bool_)
    inside[list(attributes)] = True
    in_gram = np.zeros(cliques.count, dtype=np.bool_)
    if attributes:
        for order, (places, rows) in cliques.by_order.items():
            if order <= 2:
                in_gram[places] = inside[rows].all(axis=1)
    # What the product does not count is left to tables of cell numbers.
    rest = cliques.without(in_gram)
    product, start, squares = _gram_cost(sizes, attributes) if in_gram.any() else (0.0, 0.0, 0.0)
    roads = []
    for budget in _BUDGETS if rest.by_order else (1,):
        row, fixed, extra = _fold_cost(sizes, rest, budget)
        if budget > 1 and extra > _JOINT_MEMORY:
            continue
        alone, shared = _FETCH * len(sizes) + row, _ENCODE * len(sizes) + product
        kept = attributes if in_gram.any() else ()
        roads.append(Work("stream", kept, in_gram, budget, alone, shared, start + fixed + 0.01, squares + extra))
    return roads


def estimate(sizes: Sequence[int], cliques: Sequence[Clique], rows: int, *, encode: float | None = None) -> tuple[float, float]:
    """Return a forecast of what encoding and counting take: seconds of two free cores, megabytes beyond the database's own.

    Parameters
    ----------
    rows : int
        As the caller supposes; it does not change the road.
    encode : float, optional
        Nanoseconds of one core that encoding a row takes (`dpsql.domains.codes.nanoseconds`); that of Boolean columns otherwise.

    Notes
    -----
    Privacy: a function of public numbers alone.
    """
    work = choose(sizes, list(dict.fromkeys(cliques)))
    if encode is not None:
        work = replace(work, shared=work.shared + encode - _ENCODE * len(sizes))
    asked = 8.0 * float(cell_counts(sizes, cliques).sum())
    threads = counting_gram.workers() if work.gram else 0
    hot = threads * 6.0 * min(ROWS * columns(sizes, work.gram), 2**24)
    megabytes = 1e-6 * (asked + 8 * work.cells + 50 * len(cliques) + hot) + (150 if work.road == "stream" else 50)
    return float(work.seconds(rows)), megabytes
