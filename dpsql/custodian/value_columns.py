"""How far the values of a synthetic table are from the raw ones: column by column, and by group. NOT PRIVATE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpsql.custodian.value_table import RAW, SYNTHETIC, Figure, ValueTable, grouped
from dpsql.domains.encoding import guarded
from dpsql.numerics.empirical import distances
from dpsql.running import interruption

MOST_VALUES = 50
"""Of a column that groups are made by."""
MOST_ROWS = 40_000
"""Figures by group; of more a sample of pairs of columns is taken."""
QUARTILES = ("quartile_25", "median", "quartile_75")
NO_RANGE = "the interquartile range of the raw column is 0"
_HELD = 20_000_000  # values of which quartiles are taken at once
_COLUMNS = 200  # in a statement
_Summary = tuple[int, float | None, tuple[float | None, ...]]
_EMPTY: _Summary = (0, None, (None, None, None))


def by_column(table: ValueTable) -> tuple[list[Figure], dict[int, float | None]]:
    """Return the figures of every column, and the interquartile range of each numeric one of the raw table."""
    names = table.domain.names
    figures: list[Figure] = []
    ranges: dict[int, float | None] = {}
    missing = _missing(table)
    summaries = dict(_summaries(table, table.numeric, None))
    for i, name in enumerate(names):
        shares = [count / rows if rows else None for count, rows in zip(missing[i], table.rows, strict=True)]
        figures.append(Figure("null_share", table.rows, shares[0], shares[1], column=name))
        if i not in table.numeric:
            continue
        raw, synthetic = (summaries[i].get((None, which), _EMPTY) for which in (RAW, SYNTHETIC))
        low, high = raw[2][0], raw[2][2]
        ranges[i] = None if low is None or high is None else high - low
        notes = () if ranges[i] != 0 else (NO_RANGE,)
        rows = (raw[0], synthetic[0])
        ks, wasserstein = _distances(table, i)
        figures.append(Figure("ks", rows, error=ks, column=name))
        figures.append(Figure("wasserstein", rows, error=wasserstein, unit=ranges[i], column=name, notes=notes))
        figures += _compared(table, i, raw, synthetic, ranges[i])
    return figures, ranges


def by_group(table: ValueTable, ranges: dict[int, float | None], most: int | None, seed: int) -> tuple[list[Figure], str]:
    """Return means and quartiles of every numeric column by the groups of every categorical one, and what is left out.

    Parameters
    ----------
    ranges : mapping from position to interquartile range
    most : int or None
        How many pairs of columns, a sample of all with the seed; None: as many as give `MOST_ROWS` figures.
    seed : int
    """
    attributes = table.domain.attributes
    groups = [i for i in table.categorical if attributes[i].values <= MOST_VALUES]
    pairs = [(g, v) for g in groups for v in table.numeric]
    chosen = _sample(pairs, [4 * (attributes[g].values + 2) for g, _ in pairs], most, seed)
    figures: list[Figure] = []
    for g in groups:
        numeric = [v for group, v in chosen if group == g]
        if numeric:
            figures += _groups(table, g, numeric, ranges)
    left = "" if len(chosen) == len(pairs) else f"groups of {len(chosen):,} of {len(pairs):,} pairs of columns, a sample"
    return figures, left


def _sample(pairs: Sequence[tuple[int, int]], sizes: Sequence[int], most: int | None, seed: int) -> list[tuple[int, int]]:
    """Return all pairs, or a sample of them in their order."""
    order = np.random.default_rng(seed).permutation(len(pairs))
    if most is None:
        total = np.cumsum(np.asarray(sizes, dtype=np.int64)[order])
        most = len(pairs) if not len(pairs) or total[-1] <= MOST_ROWS else int((total <= MOST_ROWS).sum())
    return [pairs[i] for i in sorted(order[:most])]


def _missing(table: ValueTable) -> list[tuple[int, int]]:
    """Return how many values of each column are missing, of the raw and of the synthetic rows."""
    attributes = table.domain.attributes
    missing: list[tuple[int, int]] = []
    for start in range(0, len(attributes), _COLUMNS):
        interruption.check()
        some = range(start, min(start + _COLUMNS, len(attributes)))
        present = ", ".join(
            f"count(v{i})" if i in table.numeric else f"count(nullif(g{i}, {grouped(attributes[i]).null_code}))" for i in some
        )
        counts = {row[0]: row[1:] for row in table.fetch(f"SELECT s, {present} FROM {table.name} GROUP BY s")}  # noqa: S608 -- quoted
        raw, synthetic = (counts.get(which, (0,) * len(some)) for which in (RAW, SYNTHETIC))
        missing += [(table.rows[RAW] - a, table.rows[SYNTHETIC] - b) for a, b in zip(raw, synthetic, strict=True)]
    return missing


def _summaries(
    table: ValueTable, numeric: Sequence[int], group: int | None
) -> Iterator[tuple[int, dict[tuple[int | None, int], _Summary]]]:
    """Give for each numeric column number, mean and quartiles of the values in each (group, table); group None: all rows."""
    key = "NULL::INTEGER" if group is None else f"g{group}"
    step = int(min(_COLUMNS, max(1, _HELD // max(1, sum(table.rows)))))
    for start in range(0, len(numeric), step):
        interruption.check()
        some = numeric[start : start + step]
        figures = ", ".join(f"count(v{i}), avg(v{i}), quantile_cont(v{i}::DOUBLE, [0.25, 0.5, 0.75])" for i in some)
        rows = table.fetch(f"SELECT {key} AS g, s, {figures} FROM {table.name} GROUP BY g, s")  # noqa: S608 -- quoted
        for place, i in enumerate(some):
            at = 2 + 3 * place
            yield i, {(r[0], r[1]): (r[at], r[at + 1], tuple(r[at + 2] or (None,) * 3)) for r in rows}


def _distances(table: ValueTable, i: int) -> tuple[float, float]:
    interruption.check()
    counts = f"count(*) FILTER (s = {RAW}) AS a, count(*) FILTER (s = {SYNTHETIC}) AS b"
    query = f"SELECT v{i}::DOUBLE AS x, {counts} FROM {table.name} WHERE v{i} IS NOT NULL GROUP BY x ORDER BY x ASC"  # noqa: S608 -- quoted
    fetched = guarded(table.cursor, query).fetchnumpy()
    first, second = (np.asarray(fetched[name], dtype=np.int64) for name in ("a", "b"))
    return distances(np.asarray(fetched["x"], dtype=np.float64), first, second)


def _compared(
    table: ValueTable, i: int, raw: _Summary, synthetic: _Summary, spread: float | None, *, notes: Sequence[str] = (), **group: Any
) -> list[Figure]:
    """Return mean and quartiles of one column in all rows or in one group."""
    rows, name = (raw[0], synthetic[0]), table.domain.names[i]
    of_time = table.domain.attributes[i].kind == "temporal"
    lacking = (*notes, *((NO_RANGE,) if spread == 0 else ()))
    unit = spread if of_time else raw[1]
    mean = Figure("mean", rows, raw[1], synthetic[1], unit=unit, column=name, notes=lacking if of_time else notes, **group)
    figures = [mean]
    for measure, first, second in zip(QUARTILES, raw[2], synthetic[2], strict=True):
        figures.append(Figure(measure, rows, first, second, unit=spread, column=name, notes=lacking, **group))
    return figures


def _groups(table: ValueTable, group: int, numeric: Sequence[int], ranges: dict[int, float | None]) -> list[Figure]:
    attribute = grouped(table.domain.attributes[group])
    counts = {(r[0], r[1]): r[2] for r in table.fetch(f"SELECT g{group}, s, count(*) FROM {table.name} GROUP BY ALL")}  # noqa: S608
    labels, figures = attribute.labels(), []
    by_number = dict(_summaries(table, numeric, group))
    for i in numeric:
        for code, label in enumerate(labels):
            rows, synthetic_rows = counts.get((code, RAW), 0), counts.get((code, SYNTHETIC), 0)
            if not rows and not synthetic_rows:
                continue
            notes = [f"the {which} table has no such rows" for which, n in (("raw", rows), ("synthetic", synthetic_rows)) if not n]
            raw, synthetic = (by_number[i].get((code, which), _EMPTY) for which in (RAW, SYNTHETIC))
            share = rows / table.rows[RAW] if table.rows[RAW] else None
            figures += _compared(
                table, i, raw, synthetic, ranges[i], group=attribute.name, value=label, share=share, notes=notes
            )
    return figures
