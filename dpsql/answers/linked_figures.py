"""Figures of a release of linked tables: what was released, with its noise, beside what its synthetic rows hold.

Privacy: post-processing of a release.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpsql.accounting.accuracy import expected_absolute_error
from dpsql.methods.nested_classes import Block, Drawn
from dpsql.numerics.arrays import Clique, FloatArray
from dpsql.page import dependence, figures
from dpsql.page.dependence import Strength
from dpsql.page.figures import Measured, OneWay
from dpsql.release.linked import Kind, LinkedPlan
from dpsql.release.plan import Plan
from dpsql.release.store import Release
from dpsql.rows import shares
from dpsql.rows.families import Drawing, Model, described, model_of, plan_of
from dpsql.running.progress import Progress
from dpsql.session.instance import Context

MOST_UNITS = 1 << 18
"""Units that are drawn for a page; of larger databases a part is, and scaled up."""
MOST_COMPARED = 400
"""Blocks of two columns of one kind and table that are compared with the synthetic rows."""


@dataclass(frozen=True)
class Measure:
    """A measured block.

    Parameters
    ----------
    block : Block
    released : ndarray
        Numbers of units, noisy.
    scale : float
        Of the noise on a number, in units.
    synthetic : ndarray or None
        The same of the synthetic database; None where it was not counted.
    table, drawn : ndarray; ndarray or None
        Both by codes alone: of all groups of parent rows together, of siblings of one column a symmetric table.
    groups : int
        How many numbers a cell of ``table`` is the sum of.
    """

    block: Block
    released: FloatArray
    scale: float
    synthetic: FloatArray | None
    table: FloatArray
    drawn: FloatArray | None
    groups: int


@dataclass(frozen=True)
class LinkedFigures:
    """Everything that is shown of a release of linked tables.

    Parameters
    ----------
    plan : Plan
    linked : LinkedPlan
    model : Model
    drawn : int
        Units that were drawn.
    rows : list of float
        Of each table of the synthetic database; those of the drawn units, scaled up.
    measures : dict from Block to Measure
    """

    plan: Plan
    linked: LinkedPlan
    model: Model
    drawn: int
    rows: list[float]
    measures: dict[Block, Measure]

    def names(self, table: int) -> tuple[str, ...]:
        """Return the names of a table's columns, and after them those of the numbers of rows of each child table."""
        more = (self.fan_out(child) for child in self.linked.children(table))
        return (*self.linked.tables[table].domain.names, *more)

    def fan_out(self, child: int) -> str:
        """Return the name of the number of a table's rows of one parent row."""
        return f"count({self.linked.tables[child].name})"

    def deviation(self, measure: Measure) -> float:
        """Return the standard deviation of the noise on a number of units: it is a whole number of parts of a unit."""
        weight = self.linked.one(measure.block)
        return (figures.deviation_of(self.plan.mechanism, measure.scale * weight) or 0.0) / weight

    def deviation_of_table(self, measure: Measure) -> float:
        """Return the standard deviation of the noise on a cell of a measure's table, at most."""
        return self.deviation(measure) * math.sqrt(measure.groups)

    def half_width(self, measure: Measure) -> float:
        """Return half the width of the 95 % band of a number of units."""
        return figures.half_width(self.deviation(measure), measure.scale if self.plan.mechanism == "laplace" else None)

    def mean_error(self, measure: Measure) -> float:
        """Return the mean absolute error that the noise puts on a number of units."""
        weight = self.linked.one(measure.block)
        return expected_absolute_error(self.plan.mechanism, measure.scale * weight) / weight

    def distance(self, measure: Measure) -> float | None:
        """Return the distance of the synthetic from the released table, as a share of units; None where it was not counted."""
        if measure.synthetic is None:
            return None
        return min(float(np.abs(measure.synthetic - measure.released).sum()) / (2 * self.whole(measure)), 1.0)

    def whole(self, measure: Measure) -> float:
        """Return the number of all that a measure may count: units, or the rows of an independent table."""
        return max(self.rows[measure.block.table], 1.0) if self.linked.independent else self.model.units

    def noise_distance(self, measure: Measure) -> float:
        """Return the distance that noise alone puts between the released table and the exact one, on average."""
        return min(measure.released.size * self.mean_error(measure) / (2 * self.whole(measure)), 1.0)

    def find(self, kind: Kind, left: tuple[int, int], right: tuple[int, int] | None = None) -> Measure | None:
        """Return a measured block, if it is one."""
        return self.measures.get(Block(kind, left, right))

    def one_way(self, measure: Measure | None) -> OneWay | None:
        """Return a measured table of one column, as charts take it."""
        if measure is None:
            return None
        return OneWay(measure.released, self.deviation(measure), self.half_width(measure), (0,))

    def strength(self, measure: Measure) -> tuple[Strength, Strength | None]:
        """Return the dependence of a measured pair, and that of the synthetic rows, weighted alike."""
        deviation = self.deviation_of_table(measure)
        released = dependence.released_strengths(Measured({(0, 1): measure.table}, {(0, 1): deviation}), 2)[(0, 1)]
        return released, None if measure.drawn is None else dependence.plain_strength(measure.drawn, deviation)

    def of_table(self, table: int) -> tuple[Measured, dict[Clique, FloatArray]]:
        """Return the measured tables of rows of a table, by positions of extended columns, and the synthetic ones."""
        tables: dict[Clique, FloatArray] = {}
        deviations: dict[Clique, float | None] = {}
        scales: dict[Clique, float] = {}
        synthetic: dict[Clique, FloatArray] = {}
        for block, measure in self.measures.items():
            if block.left[0] == table and block.kind in ("one", "pair"):
                clique = (block.left[1],) if block.right is None else (block.left[1], block.right[1])
                tables[clique], deviations[clique] = measure.table, self.deviation_of_table(measure)
                if measure.groups == 1:
                    scales[clique] = measure.scale
                if measure.drawn is not None:
                    synthetic[clique] = measure.drawn
        return Measured(tables, deviations, scales if self.plan.mechanism == "laplace" else {}), synthetic


def compared(linked: LinkedPlan) -> list[int]:
    """Return the places of the blocks that are counted in synthetic rows: all of one column, and not too many of two."""
    places: list[int] = []
    seen: dict[tuple[str, int], int] = {}
    for place, block in enumerate(linked.blocks):
        key = (block.kind, (block.right or block.left)[0])
        seen[key] = seen.get(key, 0) + 1
        if block.right is None or (seen[key] <= MOST_COMPARED and linked.lengths[place] <= dependence.LARGE):
            places.append(place)
    return places


def gather(context: Context, bought: Release, progress: Progress) -> LinkedFigures:
    """Return the figures of a release: its own numbers, and those of the synthetic database that it gives without a seed.

    Notes
    -----
    Privacy: post-processing; nothing but the release is read.
    """
    linked, plan = plan_of(bought), bought.plan
    with progress.stage("fit"):
        model = model_of(context.cursor, bought)
    units = min(model.units, MOST_UNITS)
    drawing, rows = Drawing(context.cursor, described(bought), model, units, None), np.zeros(len(linked.tables), np.int64)
    places = compared(linked)

    def parts() -> Iterator[list[Drawn]]:
        for part in drawing.families():
            rows[:] += [len(drawn.codes) for drawn in part]
            yield part

    with progress.stage("counting"):
        counts = shares.counts(linked, [linked.blocks[place] for place in places], parts())
    larger = model.units / max(units, 1)
    synthetic = {place: table * larger for place, table in zip(places, counts, strict=True)}
    measures = {}
    for place, (block, table) in enumerate(zip(linked.blocks, bought.statistics(context.cursor).blocks, strict=True)):
        released = np.asarray(table, np.float64).reshape(linked.shapes[place]) / linked.one(block)
        drawn = synthetic.get(place)
        measures[block] = Measure(
            block, released, float(plan.scales[place]) / linked.one(block), drawn, block.whole(linked.shape, released),
            None if drawn is None else block.whole(linked.shape, drawn), released.shape[0] if block.split(linked.shape) else 1,
        )
    return LinkedFigures(plan, linked, model, units, [float(number) * larger for number in rows], measures)
