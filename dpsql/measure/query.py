"""Count what a query asks: rows of units bounded, integers of every row added up by group, noise on every counter.

Privacy: the exact counters leave `counted` only through `released`, those of `before` only through `learned`. What is proved of
the vectors that a row adds is in `dpsql.estimates.measures`; that a unit has no more rows than the plan says, in
`dpsql.domains.bounding`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from dpsql.engines.base import Reader
from dpsql.errors import DpsqlError, ReleaseError
from dpsql.estimates.leaves import Cells, Cutting
from dpsql.estimates.leaves import released as released_cells
from dpsql.estimates.measures import Measure
from dpsql.estimates.picks import worth
from dpsql.estimates.thresholds import passing, present
from dpsql.measure.groups import Keys, listed_groups, public_groups
from dpsql.measure.leaves import Parts, Regions, UnitRows
from dpsql.measure.noising import add_noise
from dpsql.measure.picking import Ranks, draw, read_ranks
from dpsql.measure.rows import heavy_units, held_rows
from dpsql.measure.statement import Statement
from dpsql.noise.entropy import BoolArray, fresh_salt
from dpsql.numerics.arrays import IntArray
from dpsql.protected.source import ProtectedSource
from dpsql.release.learned import learned as bounds_from
from dpsql.release.learned import leaves, resolved_query, weighed
from dpsql.release.plan import Plan
from dpsql.release.queried import QueryPlan
from dpsql.release.refined import Refinement


@dataclass(frozen=True)
class Counted:
    """Exact counters. Privacy: secret.

    Parameters
    ----------
    groups : list of tuples
        Texts of the keys of each group.
    blocks : list of int64 arrays, shape (groups, counters)
    """

    groups: list[tuple[str | None, ...]]
    blocks: list[IntArray]


class Before:
    """What is counted before the measures, and the rows that were kept for it. Privacy: secret.

    Parameters
    ----------
    made : Statement
    magnitudes : list of int64 arrays
        Of each of ``plan.learning`` the rows in every cell.
    units : dict from int to UnitRows
        Of each of ``plan.cutting``, by the place of its measure.
    ranks : function
        Gives the rows of each group near the ranks of quantiles, see `dpsql.measure.picking.Ranks`.
    """

    def __init__(self, made: Statement, magnitudes: list[IntArray], units: dict[int, UnitRows], ranks: Ranks) -> None:
        self.made, self.magnitudes, self.units, self.ranks = made, magnitudes, units, ranks


@contextmanager
def before(reader: Reader, protected: ProtectedSource, plan: QueryPlan) -> Iterator[Before]:
    """Give the exact histograms from which bounds are learned and leaves are cut, as long as rows are read. Privacy: secret."""
    with public_groups(reader, plan) as table, bounded(reader, protected, plan, table) as made:
        magnitudes = [np.zeros(one.cells, np.int64) for one in plan.learning]
        if plan.learning:
            frame = reader.frame(made.magnitudes())
            which, cells, rows = (np.asarray(frame[name], np.int64) for name in ("which", "cell", "n"))
            for place, counts in enumerate(magnitudes):
                np.add.at(counts, cells[which == place], rows[which == place])

        def read(measure: Measure, shift: int, regions: Regions) -> dict[str, Any]:
            return reader.frame(made.units(measure, shift, regions))

        units = {
            one.place: UnitRows(*plan.cells(one), partial(read, plan.measures[one.place])) for one in plan.cutting
        }
        yield Before(made, magnitudes, units, partial(read_ranks, reader, made))


@contextmanager
def bounded(reader: Reader, protected: ProtectedSource, plan: QueryPlan, groups: str | None) -> Iterator[Statement]:
    """Give the SQL over the bounded rows; rows that many statements need are held as long. Privacy: secret; in one snapshot.

    Rows of another engine are bounded anew by each statement, and not held: a state of them is that of one statement
    (`dpsql.engines.base`).
    """
    if protected.remote is not None:
        yield Statement(protected, plan, groups, fresh_salt())
        return
    with heavy_units(reader.cursor, protected, plan) as heavy:
        made = Statement(protected, plan, groups, fresh_salt(), heavy=heavy)
        with held_rows(reader.cursor, made.holding() if made.holds else None) as held:
            yield made if held is None else made.over(plan, groups, held)


def learned(plan: Plan, exact: Before) -> Refinement | None:
    """Return what a plan releases before its measures, and the bounds and leaves chosen from it; None where it has nothing.

    Privacy: noise of the scale that the plan has for each histogram, on every cell; which cells are counted, bounds and leaves
    follow from noisy counts.
    """
    query = plan.query
    if query is None or not query.early:
        return None
    noisy = [
        add_noise(counts, [counts.size], [one.scale], one.mechanism)
        for one, counts in zip(query.learning, exact.magnitudes, strict=True)
    ]
    for cutting in query.cutting:
        leaves_ = query.measures[cutting.place].lengths[-1]
        levels = released_cells(query.cells(cutting)[0], cutting, leaves_, partial(_drawn, cutting, exact.units[cutting.place]))
        noisy.append(np.concatenate([level.counts for level in levels]))
    known = len(query.learning)
    bounds = bounds_from(query, plan.scales, plan.mechanism, noisy[:known])
    return Refinement(tuple(noisy), (*[None] * known, *leaves(query, noisy[known:])), bounds)


def quantiles(
    reader: Reader, plan: Plan, exact: Before, first: Refinement | None, groups: Sequence[Keys]
) -> Refinement | None:
    """Return what was released before the measures with the quantiles that the plan picks, of every group.

    Parameters
    ----------
    plan : Plan
        As it was charged for.
    groups : sequence of tuples
        Texts of the keys of the groups that were released.

    Notes
    -----
    Privacy: see `dpsql.measure.picking`.
    """
    query = plan.query
    if query is None or first is None or not query.picking:
        return first
    made = resolved_query(query, first.bounds, first.ends)
    edges = weighed(query, made, first.counts)
    if query.public:
        return first.with_picks(draw(made.picking, edges, exact.ranks, len(groups), None))
    if not groups or not worth(made.picking, len(groups)):
        return first.with_picks([np.zeros(0, np.int64)] * len(made.picking))
    with listed_groups(reader.cursor, groups) as listed:
        return first.with_picks(draw(made.picking, edges, exact.ranks, len(groups), listed))


def _drawn(cutting: Cutting, rows: UnitRows, level: int, cells: Cells) -> IntArray:
    counts = rows.inside(level, cells)
    return add_noise(counts, [counts.size], [cutting.scales[level]], cutting.mechanism)


def counted(reader: Reader, protected: ProtectedSource, plan: QueryPlan, early: Before | None = None) -> Counted:
    """Return the exact counters of every group; ``plan``: its bounds and leaves are known. Privacy: secret.

    ``early``: what was counted before; the same rows of every unit are kept then.
    """
    with ExitStack() as reads:
        table = reads.enter_context(public_groups(reader, plan))
        if early is None:
            made = reads.enter_context(bounded(reader, protected, plan, table))
        else:
            made = early.made.over(plan, table, early.made.held)
        sql, names = made.sums()
        needed = table is None or any(names)
        frame: Mapping[str, Any] = {"ord": []}
        if needed:
            frame = reader.frame(sql)
        if table is not None:
            texts, places = _listed(reader, plan, table), np.asarray(frame["ord"], np.int64)
            index = None
        else:
            columns = [_texts(frame[f"k{i}"]) for i in range(len(plan.keys))]
            texts = sorted(zip(*columns, strict=True), key=lambda keys: [(k is None, k or "") for k in keys]) if columns else [()]
            index = {keys: place for place, keys in enumerate(texts)}
            places = _places(frame, plan, index)
        # from here on the places of groups are fixed: whatever later statements see, rows of other groups are in no counter
        blocks: list[IntArray] = []
        for place, (measure, sums_of) in enumerate(zip(plan.measures, names, strict=True)):
            if measure.kind in ("tree", "values"):
                leaves_ = np.zeros((len(texts), measure.lengths[-1]), np.int64)
                if measure.units is None:
                    cells = reader.frame(made.cells(measure))
                    parts: Parts = [(cells, np.asarray(cells["cell"], np.int64), np.asarray(cells["n"], np.int64))]
                elif early is None:
                    raise DpsqlError("leaves that are cut from rows are counted together with what they were cut from")
                else:
                    parts = early.units[place].leaves(measure.edges)
                for frame_, leaf, n in parts:
                    at = _places(frame_, plan, index, n.size)
                    np.add.at(leaves_, (at[at >= 0], leaf[at >= 0]), n[at >= 0])
                blocks += [_level(leaves_, length) for length in measure.lengths]
                continue
            # everything else was added up by the one statement above
            sums = np.zeros((len(texts), len(sums_of)), np.int64)
            steps = made.steps.get(place)
            for i, name in enumerate(sums_of if steps is None else sums_of[1:], steps is not None):
                np.add.at(sums[:, i], places, np.ma.filled(np.ma.asarray(frame[name]), 0))
            if steps is not None:
                totals = [0] * len(texts)
                for group, total in zip(places.tolist(), frame[sums_of[0]], strict=True):
                    totals[group] += steps.read(str(total))
                rows = sums[:, 1] if measure.kind == "moments" else np.zeros(len(texts), np.int64)
                sums[:, 0] = steps.cumulated(totals, rows, measure)
            blocks.append(_counters(measure, sums))
    return Counted(texts, blocks)


def _level(leaves_: IntArray, length: int) -> IntArray:
    """Return the counts of a level from those of the leaves."""
    return np.asarray(leaves_.reshape(len(leaves_), length, leaves_.shape[1] // length).sum(axis=2), np.int64)


def _places(
    frame: Mapping[str, Any], plan: QueryPlan, index: Mapping[tuple[str | None, ...], int] | None, rows: int = 1
) -> IntArray:
    """Return the places of the groups of a frame's rows; ``index``: of private ones, by their texts; -1 of any other.

    Of rows of another engine a later statement may see other groups than the first one. Those are in no counter: which groups are
    released is decided by the first statement, for a set of groups that is fixed (`dpsql.estimates.thresholds`).
    """
    if index is None:
        return np.asarray(frame["ord"], np.int64)
    if not plan.keys:
        return np.zeros(rows, np.int64)
    texts = zip(*(_texts(frame[f"k{i}"]) for i in range(len(plan.keys))), strict=True)
    return np.array([index.get(keys, -1) for keys in texts], np.int64)


def _listed(reader: Reader, plan: QueryPlan, table: str) -> list[tuple[str | None, ...]]:
    """Return the texts of the public groups, in order."""
    if not plan.keys:
        return [()]
    keys = ", ".join(f"CAST(k{i} AS VARCHAR) AS k{i}" for i in range(len(plan.keys)))
    frame = reader.cursor.execute(f"SELECT {keys} FROM {table} ORDER BY ord ASC").fetchnumpy()  # noqa: S608
    groups = list(zip(*(_texts(frame[f"k{i}"]) for i in range(len(plan.keys))), strict=True))
    if len(groups) != plan.groups:
        raise ReleaseError("the public groups are not those that were charged for")
    return groups


def _texts(column: Any) -> list[str | None]:
    """Return a column of texts, None for NULL."""
    masked = np.ma.getmaskarray(column)
    return [None if hidden or value is None else str(value) for value, hidden in zip(np.ma.getdata(column), masked, strict=True)]


def _counters(measure: Measure, sums: IntArray) -> IntArray:
    """Return the counters of a measure from what the statement added up."""
    if measure.kind != "moments":
        return sums
    kept = sums.shape[1] - 1 - measure.nans - measure.nulls
    there = sums[:, kept]
    cumulated = np.column_stack([sums[:, :kept], there * measure.grid])
    cells = np.diff(cumulated, axis=1, prepend=0)
    if measure.nans:
        nans = sums[:, kept + 1]
        cells, there = np.column_stack([cells, nans * measure.grid]), there + nans
    if not measure.nulls:
        return cells
    return np.column_stack([cells, (sums[:, -1] - there) * measure.grid])


def released(plan: Plan, exact: Counted) -> Counted:
    """Return what a plan releases of exact counters: private groups chosen, noise of ``plan.scales`` on every counter.

    Privacy: see `dpsql.estimates.thresholds` for the groups: those of fewer than ``min_units`` units are dropped before the noise,
    so that none of them ever appears. The number of units by which a group is chosen is the one that is
    released; nothing is measured twice. Groups that are not chosen leave no trace: the others are in the order of their texts.
    """
    query = plan.query
    if query is None:
        raise ReleaseError("the plan is not one of a query")
    groups, blocks = exact.groups, list(exact.blocks)
    scales = list(plan.scales)
    if len(scales) != len(blocks):
        raise DpsqlError("a plan of a query has one scale for each block")
    # of private groups the number of units decides, and the very number that decides is the one that is released
    done = None
    if not query.public:
        if query.selecting is None or query.threshold is None:
            raise ReleaseError("the plan does not say how groups are chosen")
        done = query.blocks_of(query.selecting).start
        there = present(blocks[done][:, 0], query.min_units or 1)
        groups, blocks = _kept(groups, blocks, there)
        noisy = _noisy(blocks[done], scales[done], plan.mechanism)
        groups, blocks = _kept(groups, [*blocks, noisy], passing(noisy[:, 0], query.threshold, query.min_units or 1))
        blocks[done] = blocks.pop()
    out = [
        block if place == done else _noisy(block, scale, plan.mechanism)
        for place, (block, scale) in enumerate(zip(blocks, scales, strict=True))
    ]
    return Counted(groups, out)


def _kept(
    groups: list[tuple[str | None, ...]], blocks: Sequence[IntArray], chosen: BoolArray
) -> tuple[list[tuple[str | None, ...]], list[IntArray]]:
    """Return groups and counters without those that are not chosen."""
    return [keys for keys, kept in zip(groups, chosen, strict=True) if kept], [block[chosen] for block in blocks]


def _noisy(block: IntArray, scale: Fraction, mechanism: str) -> IntArray:
    return add_noise(block.reshape(-1), [block.size], [scale], mechanism).reshape(block.shape)

