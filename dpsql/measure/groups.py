"""The groups of a query as relations, for as long as rows are read: public ones, and private ones that were released.

Privacy: public, or released.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb

from dpsql.engines.base import Reader
from dpsql.measure.temporary import temporary_table
from dpsql.release.queried import QueryPlan

Keys = tuple[str | None, ...]
"""Texts of the keys of a group."""
MOST_INLINE, MOST_INLINE_TEXT = 1_000, 20_000
"""Groups, and characters of the SELECT that lists them, that are written into each statement."""


@contextmanager
def public_groups(reader: Reader, plan: QueryPlan, *, empty: bool = False) -> Iterator[str | None]:
    """Give the public groups as a relation, with their places in ``ord``, as long as it is needed; None for private groups.

    A few stand in the statements themselves, which takes less time than a temporary table does.
    """
    if not plan.public:
        yield None
        return
    keys = [f"k{i}" for i in range(len(plan.keys))]
    order = f"OVER (ORDER BY {', '.join(f'{key} ASC NULLS LAST' for key in keys)})" if keys else "OVER ()"
    listed = ", ".join([f"row_number() {order} - 1 AS ord", *keys])
    made = f"SELECT {listed} FROM ({plan.groups_sql}){' LIMIT 0' if empty else ''}"  # noqa: S608 -- generated
    few = plan.groups is not None and plan.groups <= MOST_INLINE and len(plan.groups_sql) <= MOST_INLINE_TEXT
    with reader.groups(made, inline=few) as name:
        yield name


@contextmanager
def listed_groups(cursor: duckdb.DuckDBPyConnection, groups: Sequence[Keys]) -> Iterator[str]:
    """Give private groups that were released as a relation: their places in ``ord``, the texts of their keys in k0, k1, ..."""
    columns = [list(range(len(groups))), *(list(column) for column in zip(*groups, strict=True))]
    texts = ", ".join(f"unnest(CAST(${i + 1} AS VARCHAR[])) AS k{i - 1}" for i in range(1, len(columns)))
    with temporary_table(cursor, "groups", f"SELECT unnest(CAST($1 AS BIGINT[])) AS ord, {texts}", columns, secret=False) as made:
        yield made.name
