"""Whole rows of a synthetic table: which are rows of the raw table. NOT PRIVATE."""

from __future__ import annotations

from dpsql.custodian.value_table import RAW, SYNTHETIC, Figure, ValueTable, both
from dpsql.domains.encoding import SOURCE_NAME
from dpsql.text.relation import identifier


def duplicates(table: ValueTable) -> list[Figure]:
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
