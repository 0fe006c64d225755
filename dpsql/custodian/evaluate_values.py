"""How far the values of a synthetic table are from the raw ones, inside bins too. NOT PRIVATE: for the custodian.

Tables of bins (`dpsql.custodian.evaluate`) see no error inside a bin: if everybody of one group has x = 5 and everybody of another
x = 900, and one bin holds both, a synthetic table in which both groups have a mean of 500 has no error there. Here it has.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from dpsql.custodian.evaluate import comparable_domain
from dpsql.custodian.value_columns import by_column, by_group
from dpsql.custodian.value_prediction import predictions
from dpsql.custodian.value_rows import duplicates
from dpsql.custodian.value_table import Row, ValueTable
from dpsql.domains.attributes import Domain


def evaluate_values(
    cursor: duckdb.DuckDBPyConnection,
    source_sql: str,
    synthetic_sql: str,
    domain: Domain,
    max_k: int = 3,
    pairs: int | None = None,
    seed: int = 7,
    lacking: Sequence[str] = (),
) -> list[Row]:
    """Compare values: each column, means and quartiles by group, equal rows, and what a model learns.

    Parameters
    ----------
    source_sql, synthetic_sql : str
        SELECTs with the domain's columns.
    domain : Domain
        What is compared. Rows that 'drop' leaves out are left out of both; values are compared as they are, not clamped.
    max_k : {1, 2, 3}
        1: no groups, and no models.
    pairs : int or None
        How many pairs of a numeric and a categorical column make groups, a sample with the seed; None: all, or as many as give
        `dpsql.custodian.value_columns.MOST_ROWS` figures.
    seed : int
        Of samples of pairs, and of the rows that models are trained on.
    lacking : sequence of str
        Declared columns that the synthetic table lacks, for the notes.

    Returns
    -------
    list of tuples
        Columns as in `dpsql.custodian.value_table.COLUMNS`. ``error`` is |raw - synthetic|, or the distance; ``relative`` the same
        in units of the raw value (means), of the raw column's interquartile range (quartiles, Wasserstein distance, means of dates
        and times). ``rows`` and ``synthetic_rows``: how many values or rows the figure is of. Figures are NULL where there is
        nothing to compute them of.

    Raises
    ------
    ArgumentError, DomainError
        A column is missing or has another type.

    Notes
    -----
    Privacy: NOT PRIVATE. Figures are computed from raw rows.
    """
    similar = comparable_domain(cursor, synthetic_sql, domain)
    with ValueTable(cursor, (source_sql, synthetic_sql), (domain, similar)) as table:
        figures, ranges = by_column(table)
        left: list[str] = []
        if max_k > 1:
            groups, sampled = by_group(table, ranges, pairs, seed)
            areas, some = predictions(table, seed)
            figures += groups + areas
            left = [note for note in (sampled, some) if note]
        figures += duplicates(table)
    if lacking:
        left.append(f"the synthetic table lacks {', '.join(map(repr, lacking))}")
    return [figure.row(left) for figure in figures]
