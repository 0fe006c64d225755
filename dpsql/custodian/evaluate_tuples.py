"""How well a synthetic table keeps combinations of values, as Synthetic Data Showcase reports it. NOT PRIVATE: for the custodian.

Everything is computed from pairs of counts (original, synthetic) of the k-tuples that occur in one of the tables, as they are:
counts are not scaled to a common number of rows.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import duckdb
import numpy as np
import numpy.typing as npt
from sqlglot import exp

from dpsql.custodian.evaluate import NOTE, comparable_domain, fetch_pairs, materialise, pairs_query
from dpsql.domains.attributes import Domain
from dpsql.numerics.arrays import IntArray
from dpsql.numerics.products import multiplies
from dpsql.text.relation import identifier

RARE = 10
COLUMNS = {
    "k": "INTEGER",
    "bucket": "VARCHAR",
    "tuples": "BIGINT",
    "preservation": "DOUBLE",
    "proportional_error": "DOUBLE",
    "mean_absolute_error": "DOUBLE",
    "suppressed": "DOUBLE",
    "fabricated": "DOUBLE",
    "leaked": "DOUBLE",
    "row_expansion": "DOUBLE",
    "private": "BOOLEAN",
    "note": "VARCHAR",
}
Row = tuple[int | float | str | bool | None, ...]
_BATCH = 32


def evaluate_tuples(
    cursor: duckdb.DuckDBPyConnection, source_sql: str, synthetic_sql: str, domain: Domain, max_k: int = 3
) -> list[Row]:
    """Compare the counts of k-tuples.

    Parameters
    ----------
    source_sql, synthetic_sql : str
        SELECTs with the domain's columns.
    domain : Domain
        What is compared. NULL is a value where the domain has it, and else an empty cell, which is in no tuple.
    max_k : {1, 2, 3}
        Longest tuples.

    Returns
    -------
    list of tuples
        Columns as in `COLUMNS`. For every k one row over all tuples (bucket 'all'), and one for each bucket of the original count,
        (0, 10], (10, 20], (20, 40], ... Over the original's tuples: ``preservation``, the mean of synthetic / original count;
        ``proportional_error``, the mean of |original - synthetic| / original; ``mean_absolute_error``; ``suppressed``, the share
        that the synthetic table lacks. In the row of all: ``fabricated``, the share of the synthetic table's tuples that the
        original lacks; ``leaked``, the share of the original's tuples of at most 10 rows that the synthetic table has;
        ``row_expansion``, synthetic rows per original row. NULL where there is nothing to take a mean of.

    Notes
    -----
    Privacy: NOT PRIVATE. Errors come from raw counts.
    """
    similar = comparable_domain(cursor, synthetic_sql, domain)
    with_blanks = Domain(tuple(replace(attribute, nullable=True) for attribute in similar.attributes))
    name = materialise(cursor, source_sql, synthetic_sql, domain, with_blanks)
    try:
        originals, synthetics = (int(total[0]) for total in fetch_pairs(cursor, pairs_query(name, ()))[:2])
        expansion = synthetics / originals if originals else None
        rows: list[Row] = []
        for k in range(1, min(max_k, len(domain.sizes)) + 1):
            rows += _rows_of(k, *_pairs_of(cursor, name, domain, k), expansion)
        return rows
    finally:
        cursor.execute(f"DROP TABLE IF EXISTS {identifier(name)}")


def _pairs_of(cursor: duckdb.DuckDBPyConnection, name: str, domain: Domain, k: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return original counts, synthetic counts, and how many tuples have them."""
    cliques = list(itertools.combinations(range(len(domain.sizes)), k))
    parts = []
    for start in range(0, len(cliques), _BATCH):
        queries = [pairs_query(name, clique, _values_only(domain, clique)) for clique in cliques[start : start + _BATCH]]
        parts.append(fetch_pairs(cursor, exp.union(*queries, distinct=False, copy=False) if len(queries) > 1 else queries[0]))
    a, b, times = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return a, b, times


def _values_only(domain: Domain, clique: tuple[int, ...]) -> list[exp.Expression]:
    return [exp.LT(this=exp.column(f"c{i}", quoted=True), expression=exp.Literal.number(domain.sizes[i])) for i in clique]


def _rows_of(k: int, a: IntArray, b: IntArray, times: IntArray, expansion: float | None) -> list[Row]:
    """Return the rows of one k from pairs of counts with their multiplicities."""
    fabricated = _share((a == 0) & (b > 0), b > 0, times)
    leaked = _share((a > 0) & (a <= RARE) & (b > 0), (a > 0) & (a <= RARE), times)
    rows: list[Row] = [(k, "all", *_figures(a, b, times, a > 0), fabricated, leaked, expansion, False, NOTE)]
    low, high = 0, 10
    while a.size and low < a.max():
        inside = (a > low) & (a <= high)
        if inside.any():
            rows.append((k, f"({low}, {high}]", *_figures(a, b, times, inside), None, None, None, False, NOTE))
        low, high = high, 2 * high
    return rows


@multiplies
def _figures(a: IntArray, b: IntArray, times: IntArray, chosen: npt.NDArray[np.bool_]) -> tuple[int, *tuple[float | None, ...]]:
    """Return tuples, preservation, proportional error, mean absolute error and suppressed share of some of the tuples."""
    count = int(times[chosen].sum())
    if count == 0:
        return 0, None, None, None, None
    original, synthetic, weight = a[chosen].astype(float), b[chosen].astype(float), times[chosen].astype(float)
    miss = np.abs(original - synthetic)
    figures = (synthetic / original, miss / original, miss, (synthetic == 0).astype(float))
    return count, *(float(figure @ weight) / count for figure in figures)


def _share(part: npt.NDArray[np.bool_], whole: npt.NDArray[np.bool_], times: IntArray) -> float | None:
    total = int(times[whole].sum())
    return float(times[part].sum() / total) if total else None
