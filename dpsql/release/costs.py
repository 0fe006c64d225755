"""What a call takes: seconds by stage and memory, from public sizes and the caller's guess of the rows alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dpsql import methods
from dpsql.domains import codes
from dpsql.errors import ArgumentError
from dpsql.release.linked import LinkedPlan
from dpsql.release.plan import Plan
from dpsql.rules.effects import places, together
from dpsql.rules.grammar import stored
from dpsql.rules.reasoning import single_valued
from dpsql.running.machine import VARIABLE, memory_mb
from dpsql.tables.counting import roads

ASSUMED_ROWS = 100_000
DRAWING = "sampling and writing"
REPAIRING = "repair by rules"  # happens while rows are drawn
BASE_MB = 150.0  # of the process with its libraries, before anything is read

_FAMILY = 3
"""Rows of a parent's row that are reckoned with."""
_REPAIR_BLOCK = 1 << 17
_BLOCK_SECONDS, _ROW_SECONDS, _SINGLE_SECONDS = 0.08, 2.5e-6, 4e-7
"""Of a group of rules: per block of rows, per row, and per row where its columns have no values inside bins to break them. From
draws of 2,000 to 400,000 rows as in tests/benchmarks/rules.py, in which 5 to 20 % of the rows of a group were broken: most were
within a factor of three. Which share is broken depends on the release, so it is not known beforehand."""


@dataclass(frozen=True)
class Part:
    """What one stage takes on two cores.

    Parameters
    ----------
    seconds : float
    megabytes : float
        Memory of arrays, which has to be there.
    table_mb : float
        Size of a table inside DuckDB, which spills to disk beyond its memory_limit. The codes stay until the counts are stored.
    """

    seconds: float
    megabytes: float = 0.0
    table_mb: float = 0.0


def measuring(plan: Plan, rows: int) -> dict[str, Part]:
    """Return what the stages up to the stored release take. Costs per row, cell and table were fitted to runs."""
    cells, tables, columns = plan.cells, len(plan.cliques), len(plan.domain.sizes)
    encode = Part(0.2 + 1e-8 * rows * columns, table_mb=1e-6 * rows * columns)
    counted = cells if plan.blocks is None or plan.listed else max(cells, int(plan.table_lengths.sum()))  # not all is released
    count = Part(4e-9 * rows * tables + 1e-7 * counted + 2e-5 * tables, 2e-5 * counted + 1e-3 * tables)
    if not plan.listed and plan.blocks is None:  # streamed: what is encoded is counted at once
        encode = Part(0.1 + 1e-4 * columns)
        seconds, megabytes = roads.estimate(plan.domain.sizes, plan.cliques, rows, encode=codes.nanoseconds(plan.domain))
        count = Part(seconds, megabytes, _stored_mb(plan, rows))
    if plan.linked is not None:
        encode, count = _linked(plan.linked, rows)
    fine = {"fine histograms": Part(0.2 + 1.5e-7 * rows * len(plan.fine), 12.0 * len(plan.fine))} if plan.fine else {}
    return {
        "encode": encode,
        **fine,
        "count": count,
        "noise": Part(2e-7 * cells, 4e-5 * cells),
        "store": Part(0.05 + 2e-7 * cells, 4e-5 * cells),
    }


def _linked(linked: LinkedPlan, units: int) -> tuple[Part, Part]:
    """Return what encoding and counting linked tables takes, for families of a guessed size."""
    guessed, encoded, counted = [float(units)], 0.2, 0.1
    for table in linked.tables[1:]:
        guessed.append(guessed[table.parent or 0] * min(table.most, _FAMILY))
    for place, rows in enumerate(guessed):
        blocks = sum((block.right or block.left)[0] == place for block in linked.blocks)
        encoded += 1e-6 * rows
        counted += 6e-9 * rows * blocks
    cells = linked.most_cells
    return Part(encoded, table_mb=2e-5 * sum(guessed)), Part(counted + 1e-8 * cells, 300.0 + 5e-5 * cells)


def _stored_mb(plan: Plan, rows: int) -> float:
    """Return what DuckDB keeps of a table that it reads or writes: its codes, packed to whole bits."""
    return 1e-6 * rows * sum(max(size - 1, 1).bit_length() for size in plan.domain.sizes) / 8.0


def drawing(plan: Plan, rows: int) -> dict[str, Part]:
    """Return what reading a stored release, fitting its method and drawing ``rows`` rows take."""
    if plan.method is None:
        return {}
    method = methods.get(plan.method)
    sizes = plan.domain.sizes
    # Without rows a forecast is that of the fit alone: the difference is the drawing.
    seconds, megabytes = method.forecast(sizes, 0, plan.options, rows)
    more_seconds, more_megabytes = method.forecast(sizes, rows, plan.options, rows)
    return {
        "fit": Part(2e-7 * plan.cells + seconds, megabytes + 4e-5 * plan.cells),
        DRAWING: Part(more_seconds - seconds, more_megabytes, _stored_mb(plan, rows)),
        **({REPAIRING: Part(repairing(plan, rows))} if plan.rules else {}),
    }


def repairing(plan: Plan, rows: int) -> float:
    """Return the seconds that making ``rows`` drawn rows obey the rules of a plan takes; see `dpsql.rows.obeying`.

    Notes
    -----
    Privacy: a function of public domains, public rules and of the caller's guess of the rows alone.
    """
    seconds, blocks = 0.0, math.ceil(rows / _REPAIR_BLOCK)
    for group in together([stored(text) for text in plan.rules]):
        positions = {position for rule in group for position in places(rule, plan.domain)}
        single = all(single_valued(plan.domain.attributes[position]) for position in positions)
        seconds += blocks * _BLOCK_SECONDS + rows * (_SINGLE_SECONDS if single else _ROW_SECONDS)
    return seconds


def parts(plan: Plan, rows: int | None) -> dict[str, Part]:
    """Return what every stage takes, in order, for a table of ``rows`` rows and as many synthetic ones.

    Notes
    -----
    Privacy: a function of public sizes and of the caller's guess of the rows alone.
    """
    rows = ASSUMED_ROWS if rows is None else rows
    return {**measuring(plan, rows), **drawing(plan, rows)}


def stage_seconds(plan: Plan, rows: int | None) -> dict[str, float]:
    """Return the seconds of every stage, in order, for the bar of a running call, which shows repairs as part of the drawing."""
    seconds = {name: part.seconds for name, part in parts(plan, rows).items()}
    if REPAIRING in seconds:
        seconds[DRAWING] += seconds.pop(REPAIRING)
    return seconds


def estimate(plan: Plan, rows: int | None, duckdb_mb: float = math.inf) -> dict[str, Any]:
    """Return a forecast of seconds and megabytes on two cores, for a table of ``rows`` rows.

    The number of rows of the source may be private, so without ``rows`` a round number is assumed, and said. DuckDB's own tables
    take at most ``duckdb_mb``, its memory_limit.
    """
    forecast = parts(plan, rows)
    table = min(sum(part.table_mb for part in forecast.values()), duckdb_mb)
    stages = {name: float(f"{part.seconds:.3g}") for name, part in forecast.items()}
    return {
        "estimated_seconds": round(sum(part.seconds for part in forecast.values()), 2),
        "estimated_stages": "{" + ", ".join(f"{name}={seconds}" for name, seconds in stages.items()) + "}",
        "estimated_memory_mb": round(arrays_mb(plan, rows) + table),
        "estimated_for_rows": ASSUMED_ROWS if rows is None else rows,
    }


def arrays_mb(plan: Plan, rows: int | None) -> float:
    """Return the memory that a call needs outside DuckDB's tables, which cannot spill: the largest stage's, in megabytes."""
    return BASE_MB + max(part.megabytes for part in parts(plan, rows).values())


def too_large(plan: Plan, rows: int | None) -> str | None:
    """Return why a call cannot run on this machine, and the way out; None where it can as far as public sizes tell."""
    needed, memory = arrays_mb(plan, rows), memory_mb()
    if memory is None or needed <= memory:
        return None
    return (
        f"needs about {needed / 1e3:,.1f} GB of memory, and there are {memory / 1e3:,.1f} GB: name fewer columns, or declare "
        f"coarser bins or fewer categories. To try it anyway, set the environment variable {VARIABLE} to the megabytes it may use"
    )


def check_memory(plan: Plan, rows: int | None) -> None:
    """Refuse a call that cannot fit, before anything is charged.

    Raises
    ------
    ArgumentError
        Its arrays need more memory than this machine has.
    """
    why = too_large(plan, rows)
    if why is not None:
        columns = f"{len(plan.domain.sizes):,} columns, {len(plan.cliques):,} tables, {plan.cells:,} cells"
        raise ArgumentError("columns", columns, f"the call {why}. Nothing was charged")
