"""Roughly how long a Gaussian copula takes and how much memory: public sizes in, seconds and megabytes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpsql.methods.gaussian_copula.latent import schedule_for
from dpsql.methods.gaussian_copula.sampling import CHUNK, block_lengths


def draw_cost(sizes: Sequence[int], rows: int, rank: int, output: str = "decoded") -> tuple[float, float]:
    """Return roughly the seconds and megabytes that drawing takes and writing into a table, on two cores.

    Parameters
    ----------
    sizes : sequence of int
    rows : int
    rank : int
        Latent factors.
    output : {'decoded', 'one_hot'}

    Notes
    -----
    Per value and core, measured: a multiplication 0.035 ns and 5 ns besides for two codes, 14 ns for each code of longer
    lists, 36 ns for a value of a table.

    Examples
    --------
    >>> [round(draw_cost([2] * m, 5_240_260, 64)[0]) for m in (1000, 2000)], round(draw_cost([14] * 14, 32_561, 64)[0], 1)
    ([114, 227], 0.3)
    """
    hot = output == "one_hot"
    binary = sum(1 for size in sizes if size == 2) if not hot else sum(sizes)
    others = 0 if hot else sum(size for size in sizes if size > 2)
    columns = sum(sizes) if hot else len(sizes)
    drawing = rows * (binary * (5.0 + 0.035 * rank) + others * (14.0 + 0.035 * rank) + 4.0 * rank) * 1e-9
    length = block_lengths([1] * columns if hot else sizes, rank, max(rows, 1))[0]
    parts = min(2.0, max(rows / max(length, 1), 1.0))
    memory = length * (6.0 * columns + 8.0 * (rank + max(CHUNK, *sizes)))
    return 0.15 + (drawing + rows * columns * 36e-9) / parts, 50.0 + memory * parts / 2.0 / 1e6


def forecast_draw(sizes: Sequence[int], rows: int, output: str = "decoded") -> tuple[float, float]:
    """Return `draw_cost` for the usual number of latent factors.

    Examples
    --------
    >>> forecast_draw([2, 2], 0)[0]
    0.15
    """
    return draw_cost(sizes, rows, min(sum(sizes), 64), output)


def fit_forecast(sizes: Sequence[int], chosen: Mapping[str, Any]) -> tuple[float, float]:
    """Return roughly the seconds and megabytes of a fit, from runs on tables of 227 to 2,000 free columns.

    In this order: fixed costs, tables and cells (consistency and correlations), decompositions, calibration.
    """
    free = sum(size for size in sizes if size > 2) + sum(size == 2 for size in sizes)
    tables = len(sizes) * (len(sizes) - 1) // 2
    cells = (sum(sizes) ** 2 - sum(size * size for size in sizes)) // 2
    schedule = schedule_for(chosen["calibration_steps"], sizes)
    steps = schedule.steps if chosen["output"] == "decoded" else 0
    step = 0.5 * (schedule.draws + schedule.early) * free * (1.9e-11 * free + 6e-9)
    seconds = 0.3 + 3e-6 * tables + 1.2e-6 * cells + 1.7e-9 * free**3 + steps * step
    return seconds, 40.0 + 1e-6 * (45.0 * cells + 90.0 * free**2 + 12.0 * schedule.draws * free)
