"""Fine histograms of protected columns: counted along their grids in one pass, with noise level by level."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from sqlglot import exp

from dpsql.domains.attributes import Domain
from dpsql.domains.codes import number_expression
from dpsql.domains.encoding import SOURCE_NAME
from dpsql.engines.base import Numbers, Reader
from dpsql.measure.noising import add_noise
from dpsql.measure.reading import Reading
from dpsql.numerics.arrays import IntArray
from dpsql.protected.source import ProtectedSource
from dpsql.release import refined
from dpsql.release.plan import FineColumn, Plan
from dpsql.release.refined import Refinement
from dpsql.running.progress import Progress
from dpsql.tables import fine


def refined_by(
    reader: Reader, protected: ProtectedSource, plan: Plan, progress: Progress, *, exact: bool = False
) -> Refinement | None:
    """Return the fine histograms that a plan releases before its tables, and the bins cut from them; None where it has none.

    Parameters
    ----------
    exact : bool
        Whether there have to be as many bins as were planned, since what is drawn depends on their number.

    Privacy
    -------
    Every level of a column is one contingency table with the noise of the plan: a row is in at most one of its cells. Which cells
    of a level are counted follows from the released counts of the level before it, and the bins from released counts alone
    (`dpsql.tables.fine`, `dpsql.tables.cutting`). So the levels are so many tables of an adaptive composition, at scales fixed
    in the plan.
    """
    if not plan.fine:
        return None
    with progress.stage("fine histograms"):
        secret = count_fine(reader, fine_statement(protected, plan), plan)
        return released(plan, secret, exact=exact)


def released(plan: Plan, secret: Mapping[int, IntArray], *, exact: bool) -> Refinement:
    """Return what is released of exact counts of the finest cells, by position: noisy levels, and the bins cut from them.

    Privacy: see `refined_by`; where a unit adds at most W to all cells of a column together, every level is a table of that
    sensitivity, and the scales of the plan are for it.
    """
    counts = tuple(_released(plan, column, secret[column.position]) for column in plan.fine)
    return Refinement(counts, refined.cut_edges(plan, counts, _cell_noise(plan), exact=exact))


def _cell_noise(plan: Plan) -> float:
    """Return the noise scale of a cell of the tables, the largest: public. Where none is known beforehand, of the levels.

    Of linked tables that of tables of two columns: those of one column have noise of their own, which says nothing of pairs.
    """
    scales = plan.scales or tuple(scale for column in plan.fine for scale in column.scales)
    if plan.linked is not None:
        blocks = zip(plan.scales, plan.linked.blocks, strict=True)
        scales = tuple(scale for scale, block in blocks if block.right is not None) or scales
    return float(max(scales))


def _released(plan: Plan, column: FineColumn, exact: IntArray) -> IntArray:
    """Return the noisy counts of every level of one column, one after the other."""
    cells = refined.column_grid(plan, column)

    def draw(level: int, wanted: fine.Cells) -> IntArray:
        counts = fine.counted(wanted, exact)
        return add_noise(counts, [counts.size], [column.scales[level]], column.mechanism)

    levels = fine.levels(cells, column.scales, column.mechanism, draw)
    return np.concatenate([counts for _, counts in levels])


def fine_statement(protected: ProtectedSource, plan: Plan) -> str:
    """Return the SELECT that reads the values of fine columns.

    Its columns: first a code each, 0 where the value counts (see `dpsql.domains.attributes.Attribute.bounded`), then the codes of
    columns that leave rows out, then the values.
    """
    attributes = plan.domain.attributes
    positions = [column.position for column in plan.fine]
    dropping = [i for i, attribute in enumerate(attributes) if attribute.outside == "drop" and i not in positions]
    domain = Domain(tuple(attributes[i].bounded for i in positions) + tuple(attributes[i] for i in dropping))
    values = {
        f"x{i}": number_expression(attributes[i], exp.column(attributes[i].name, SOURCE_NAME, quoted=True)) for i in positions
    }
    return Reading(protected, plan, domain, values).statement()


def count_fine(reader: Reader, select: str, plan: Plan) -> dict[int, IntArray]:
    """Count the values of fine columns in the finest cells of their grids.

    Parameters
    ----------
    select : str
        From `fine_statement`.

    Returns
    -------
    dict from position to int64 array

    Notes
    -----
    Privacy: exact, secret counts. Memory does not grow with the rows.
    """
    grids = {column.position: refined.column_grid(plan, column) for column in plan.fine}
    numbers = [Numbers(f"x{i}", f"c{place}", cells.edges, cells.place) for place, (i, cells) in enumerate(grids.items())]
    return dict(zip(grids, reader.fine(select, numbers), strict=True))


__all__ = ["count_fine", "fine_statement", "refined_by", "released"]
