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
from dpsql.custodian.value_table import RAW, SYNTHETIC, Figure, Row, ValueTable, both
from dpsql.domains.attributes import Domain
from dpsql.domains.encoding import SOURCE_NAME
from dpsql.text.relation import identifier


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
        figures += _duplicates(table)
    if lacking:
        left.append(f"the synthetic table lacks {', '.join(map(repr, lacking))}")
    return [figure.row(left) for figure in figures]


def _duplicates(table: ValueTable) -> list[Figure]:
    """Return how many synthetic rows equal a raw row in every compared column, and how many raw rows equal another raw row.

    NULL equals NULL, and numbers of different types are equal where their values are.
    """
    names = [f"c{i}" for i in range(len(table.domain.attributes))]
    columns = [
        [f"{identifier(SOURCE_NAME, a.name)} AS {name}" for a, name in zip(domain.attributes, names, strict=True)]
        for domain in table.domains
    ]
    counts = f"count(*) FILTER (s = {RAW}) AS a, count(*) FILTER (s = {SYNTHETIC}) AS b"
    rows = both(columns[0], columns[1], table.sources, table.domains)
    query = (
        "SELECT coalesce(sum(a) FILTER (a > 1), 0)::BIGINT, coalesce(sum(b) FILTER (a > 0), 0)::BIGINT "  # noqa: S608 -- quoted
        f"FROM (SELECT {counts} FROM ({rows}) GROUP BY {', '.join(names)})"
    )
    ((raw, synthetic),) = table.fetch(query)
    shares = [count / n if n else None for count, n in zip((raw, synthetic), table.rows, strict=True)]
    return [
        Figure("duplicates", table.rows, raw, synthetic, alike=False),
        Figure("duplicate_share", table.rows, shares[0], shares[1], alike=False),
    ]
