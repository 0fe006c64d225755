"""The round before the tables: fine histograms as released, and the bins of automatic columns that were cut from them.

A plan is fixed before a row is read, and says of an automatic column only its bounds and how many bins there are at most. After
the fine histograms were released its bins are cut, and the tables are counted over these: `resolved` is the plan with them. The
cut is post-processing; its edges are stored with the release, so that whoever reads it needs no floating-point rule to find them
again.

Privacy: post-processing of released counts throughout.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute, Domain
from dpsql.domains.edges import empty_bin, without_empty_bins
from dpsql.domains.grid import Grid, Histogram, grid_of
from dpsql.domains.sqltypes import SqlType
from dpsql.numerics.arrays import IntArray
from dpsql.release.learned import Learned, check_learned, levels_of, resolved_query
from dpsql.release.plan import FineColumn, Plan
from dpsql.tables import cutting, fine

_LARGEST = 1 << 61
_MOST_COUNTS = 1 << 20


@dataclass(frozen=True)
class Refinement:
    """What was released of fine histograms.

    Parameters
    ----------
    counts : tuple of int64 arrays
        For each fine column of the plan the noisy counts of the cells of every level, one after the other.
    edges : tuple of (tuple or None)
        For each of them the edges of the bins that were cut; None where the bins were declared.
    bounds : tuple of Learned
        Of a query: what was chosen from each histogram of magnitudes; ``counts`` are theirs and then those of the histograms that
        leaves were cut from, at last the quantiles that were picked; ``edges`` None, then the ends of the leaves, None.
    groups : tuple of tuples of int
        Of linked tables: for each the groups of parent rows that were cut from released numbers of rows, which are blocks of the
        release itself.
    """

    counts: tuple[IntArray, ...]
    edges: tuple[tuple[float, ...] | tuple[str, ...] | tuple[int, ...] | None, ...]
    bounds: tuple[Learned, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()

    def with_picks(self, picks: Sequence[IntArray]) -> Refinement:
        """Return it with quantiles that were picked, one array for each."""
        return replace(self, counts=(*self.counts, *picks), edges=(*self.edges, *[None] * len(picks)))

    @property
    def ends(self) -> list[tuple[int, ...]]:
        """Of a query: the ends of leaves that were cut."""
        return [tuple(edges) for edges in self.edges if edges is not None]  # type: ignore[arg-type]

    def to_json(self) -> dict[str, Any]:
        """Return plain lists, as a manifest holds them."""
        return {
            **({"bounds": [bound.to_json() for bound in self.bounds]} if self.bounds else {}),
            **({"groups": [list(starts) for starts in self.groups]} if self.groups else {}),
            "counts": [counts.tolist() for counts in self.counts],
            "edges": [None if edges is None else list(edges) for edges in self.edges],
        }

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Refinement:
        """Read what ``to_json`` wrote, and refuse what it would not have written.

        Raises
        ------
        ValueError, TypeError, KeyError
            It is something else.
        """
        counts, edges = item["counts"], item["edges"]
        _require(isinstance(counts, list) and isinstance(edges, list) and len(counts) == len(edges))
        for numbers in counts:
            _require(isinstance(numbers, list) and len(numbers) <= _MOST_COUNTS)
            _require(all(isinstance(n, int) and not isinstance(n, bool) and abs(n) <= _LARGEST for n in numbers))
        for cut in edges:
            _require(cut is None or (isinstance(cut, list) and all(isinstance(edge, str | float | int) for edge in cut)))
        bounds, groups = item.get("bounds", []), item.get("groups", [])
        _require(isinstance(bounds, list) and isinstance(groups, list) and all(isinstance(starts, list) for starts in groups))
        return cls(
            tuple(np.asarray(numbers, np.int64) for numbers in counts),
            tuple(None if cut is None else tuple(cut) for cut in edges),
            tuple(Learned.from_json(bound) for bound in bounds),
            tuple(tuple(starts) for starts in groups),
        )


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("not what a release holds of fine histograms")


def column_grid(plan: Plan, column: FineColumn) -> Grid:
    """Return the grid of a fine column, as deep as its levels."""
    return grid_of(attributes_of(plan)[column.position], len(column.scales))


def attributes_of(plan: Plan) -> tuple[Attribute, ...]:
    """Return the attributes that fine columns are places of: of linked tables, those of all of them."""
    return plan.domain.attributes if plan.linked is None else plan.linked.domain.attributes


def refinement_of(plan: Plan, item: Mapping[str, Any] | None) -> Refinement | None:
    """Return the refinement of a manifest, checked against its plan; None where there is none and none is needed.

    Raises
    ------
    ValueError, TypeError, KeyError, DpsqlError
        It does not fit the plan.
    """
    learning = plan.query.learning if plan.query is not None else ()
    cutting = plan.query.cutting if plan.query is not None else ()
    picking = plan.query.picking if plan.query is not None else ()
    early = plan.linked is not None or (plan.query is not None and plan.query.early)
    _require((item is None) == (not plan.fine and not early))
    if item is None:
        return None
    refinement = Refinement.from_json(item)
    if plan.query is not None:
        check_learned(learning, refinement.counts[: len(learning)], refinement.bounds)
        # Counts stand in this order: those that bounds are learned from, those that leaves are cut from, picked quantiles.
        known, cut = len(learning), plan.query.histograms
        _require(len(refinement.counts) == cut + len(picking))
        _require(all((edges is None) == (not known <= i < cut) for i, edges in enumerate(refinement.edges)))
        for part, counts in zip(cutting, refinement.counts[known:cut], strict=True):
            levels_of(plan.query, part, counts)
        _require(not plan.query.public or all(counts.size == plan.query.groups for counts in refinement.counts[cut:]))
        resolved(plan, refinement)  # refuses ends that leaves cannot have
        return refinement
    _require(not refinement.bounds and len(refinement.counts) == len(plan.fine))
    if plan.linked is None:
        _require(not refinement.groups)
    else:
        plan.linked.with_groups(refinement.groups)  # refuses what cannot have been cut
    for column, counts, edges in zip(plan.fine, refinement.counts, refinement.edges, strict=True):
        attribute = attributes_of(plan)[column.position]
        fine.split(column_grid(plan, column), counts, column.scales, column.mechanism)
        _require((edges is None) == (not attribute.automatic))
        if edges is not None:
            _check_edges(attribute, edges)
    return refinement


def _check_edges(attribute: Attribute, edges: Sequence[Any]) -> None:
    parsed = sqltypes.parse(attribute.sql_type)
    kind = float | int if attribute.kind == "numeric" else str
    _require(2 <= len(edges) <= attribute.values + 1 and all(isinstance(edge, kind) for edge in edges))
    _require((edges[0], edges[-1]) == (attribute.edges[0], attribute.edges[-1]))
    numbers = [sqltypes.steps_of(parsed, edge) for edge in edges] if attribute.kind == "temporal" else [*edges]
    _require(all(a < b for a, b in itertools.pairwise(numbers)) and empty_bin(parsed, [*edges]) is None)


def resolved(plan: Plan, refinement: Refinement | None) -> Plan:
    """Return the plan with the bins and groups that were cut: its automatic attributes are plain ones."""
    if refinement is None:
        return plan
    if plan.query is not None:
        picks = refinement.counts[plan.query.histograms :]
        return replace(plan, query=resolved_query(plan.query, refinement.bounds, refinement.ends, picks))
    attributes = [*attributes_of(plan)]
    for column, edges in zip(plan.fine, refinement.edges, strict=True):
        if edges is not None:
            attributes[column.position] = replace(attributes[column.position], edges=edges, automatic=False)
    if plan.linked is not None:
        linked = plan.linked.with_domain(Domain(tuple(attributes)))
        if refinement.groups:  # none yet before numbers of rows are released
            linked = linked.with_groups(refinement.groups)
        return replace(plan, linked=linked, blocks=linked.lengths)
    return replace(plan, domain=Domain(tuple(attributes)))


def histograms(plan: Plan, refinement: Refinement | None) -> dict[int, Histogram]:
    """Return the estimate of every fine histogram, by position of its attribute."""
    if refinement is None or plan.query is not None:
        return {}
    return {
        column.position: histogram(plan, column, counts) for column, counts in zip(plan.fine, refinement.counts, strict=True)
    }


def histogram(plan: Plan, column: FineColumn, counts: IntArray) -> Histogram:
    """Return the estimate of one fine histogram from its released counts."""
    cells = column_grid(plan, column)
    released = fine.split(cells, counts, column.scales, column.mechanism)
    return fine.estimate(cells, released, [float(scale) for scale in column.scales], column.mechanism)


def cut_edges(
    plan: Plan, counts: Sequence[IntArray], noise: float, *, exact: bool
) -> tuple[tuple[float, ...] | tuple[str, ...] | None, ...]:
    """Return the edges of every fine column's bins, None where they were declared.

    Parameters
    ----------
    counts : sequence of int64 arrays
        The released counts of each fine column.
    noise : float
        Standard deviation of a cell of the tables over these bins.
    exact : bool
        Whether there are as many bins as there could be.
    """
    edges: list[tuple[float, ...] | tuple[str, ...] | None] = []
    for column, own in zip(plan.fine, counts, strict=True):
        attribute = attributes_of(plan)[column.position]
        if not attribute.automatic:
            edges.append(None)
            continue
        marks = cutting.marks(histogram(plan, column, own), attribute.values, noise)
        # Where the number of bins is promised, the widest are parted until there are so many.
        if exact:
            marks = cutting.filled(marks, column_grid(plan, column), attribute.values)
        edges.append(_edges(attribute, marks.tolist(), exact=exact))
    return tuple(edges)


def _edges(attribute: Attribute, marks: Sequence[float], *, exact: bool) -> tuple[float, ...] | tuple[str, ...]:
    """Return the edges of bins between an attribute's bounds, each with a value of its type; those declared where that fails."""
    parsed = sqltypes.parse(attribute.sql_type)
    first, last = attribute.edges[0], attribute.edges[-1]
    inner: list[Any] = [*marks]
    if attribute.kind == "temporal":
        inner = [sqltypes.step_text(parsed, int(mark)) for mark in marks]
        inner = [text for text in inner if text not in (first, last)]
    else:
        inner = [mark if mark < float(last) else _before_last(parsed, float(last)) for mark in marks]
        inner = [mark for mark in inner if float(first) < mark < float(last)]
    edges = without_empty_bins(parsed, [first, *inner, last])
    # A plan that has to have so many bins keeps the declared ones.
    if exact and len(edges) - 1 != attribute.values:
        return attribute.edges
    return tuple(edges)


def _before_last(parsed: SqlType, last: float) -> float:
    """Return where a bin of the upper bound alone begins: half a unit below it, or at the double before it; see `edge_numbers`."""
    return math.nextafter(last, -math.inf) if parsed.family == "float" else last - 0.5 / 10**parsed.scale
