"""How far a synthetic table is from the raw one. NOT PRIVATE: for the custodian, who may see the raw table anyway.

The error tables of the published evaluations: for k = 1, 2, 3 the mean total variation distance of the k-way tables and the
absolute count errors over all their cells. Cells are bins and categories: no error inside a bin is seen, which
`dpsql.custodian.evaluate_values` is for.
"""

from __future__ import annotations

import itertools
import math
import secrets
from collections.abc import Sequence
from dataclasses import replace

import duckdb
import numpy as np
import numpy.typing as npt
from sqlglot import exp

from dpsql.domains import sqltypes
from dpsql.domains.attributes import Attribute, Domain
from dpsql.domains.encoding import column_types, encode, guarded
from dpsql.errors import ArgumentError, DomainError
from dpsql.numerics.arrays import Clique
from dpsql.numerics.products import multiplies
from dpsql.text.names import fold
from dpsql.text.relation import identifier

NOTE = (
    "not private: computed from raw counts, for the custodian only; of bins and categories: no error inside a bin is seen "
    "(report 'values' does)"
)
COLUMNS = {
    "k": "INTEGER",
    "queries": "BIGINT",
    "cells": "BIGINT",
    "tvd": "DOUBLE",
    "average_95": "DOUBLE",
    "maximum_95": "DOUBLE",
    "average_99": "DOUBLE",
    "maximum_99": "DOUBLE",
    "average_100": "DOUBLE",
    "maximum_100": "DOUBLE",
    "rows": "BIGINT",
    "synthetic_rows": "BIGINT",
    "shortfall": "DOUBLE",
    "private": "BOOLEAN",
    "note": "VARCHAR",
}
Row = tuple[int, int, int, float, float, float, float, float, float, float, int, int, float | None, bool, str]
_SHARES = (0.95, 0.99, 1.0)
_BATCH = 32
_SYNTHETIC = "__dp_synthetic"


def evaluate(
    cursor: duckdb.DuckDBPyConnection,
    source_sql: str,
    synthetic_sql: str,
    domain: Domain,
    max_k: int = 3,
    queries: int | None = None,
    seed: int = 7,
) -> list[Row]:
    """Compare the k-way tables of a synthetic relation with those of the raw one.

    Parameters
    ----------
    source_sql, synthetic_sql : str
        SELECTs with the domain's columns. An integer column may be of any integer type, a text one VARCHAR or ENUM.
    domain : Domain
        What is compared. Rows that 'drop' leaves out are left out of both.
    max_k : {1, 2, 3}
        Largest number of attributes in a table; k above the number of attributes gives no row.
    queries : int or None
        For k = 3: how many attribute triples to sample; None: all. For k < 3 all are used.
    seed : int
        Of that sample, ``numpy.random.default_rng(seed).choice``.

    Returns
    -------
    list of tuples
        One row per k, with the columns of `COLUMNS`. Errors are in rows of the raw table: synthetic counts are scaled to its
        size, and ``shortfall`` says by how much: the share of ``rows`` that ``synthetic_rows`` lacks (below 0: it has more), None
        where there are no rows. ``average_95``: mean of the smallest 95 % of the cells' errors, ``maximum_95``: the largest of
        those. An empty synthetic table counts as all zero. A total variation distance is 1 if one of the tables is empty, and 0 if
        both are.

    Raises
    ------
    ArgumentError, DomainError
        An argument is out of range, a column is missing or has another type.

    Notes
    -----
    Privacy: NOT PRIVATE. Errors come from raw counts.
    """
    _check(max_k, queries, seed)
    similar = comparable_domain(cursor, synthetic_sql, domain)
    name = materialise(cursor, source_sql, synthetic_sql, domain, similar)
    try:
        totals = fetch_pairs(cursor, pairs_query(name, ()))
        original, synthetic = (int(total[0]) for total in totals[:2])
        rows = []
        for k in range(1, min(max_k, len(domain.sizes)) + 1):
            cliques = chosen_cliques(len(domain.sizes), k, queries, seed)
            rows.append(_row(cursor, name, domain, cliques, original, synthetic))
        return rows
    finally:
        cursor.execute(f"DROP TABLE IF EXISTS {identifier(name)}")


def _check(max_k: object, queries: object, seed: object) -> None:
    if isinstance(max_k, bool) or max_k not in (1, 2, 3):
        raise ArgumentError("max_k", max_k, "must be 1, 2 or 3")
    if queries is not None and (isinstance(queries, bool) or not isinstance(queries, int) or queries < 1):
        raise ArgumentError("queries", queries, "a whole number from 1, or NULL for all, is required")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ArgumentError("seed", seed, "a whole number from 0 is required")


def chosen_cliques(attributes: int, k: int, queries: int | None, seed: int) -> list[Clique]:
    """Return the sets of k attributes to compare: all of them, or a sample of the triples.

    Examples
    --------
    >>> chosen_cliques(3, 2, 1, 7)
    [(0, 1), (0, 2), (1, 2)]
    """
    cliques = list(itertools.combinations(range(attributes), k))
    if k < 3 or queries is None or queries >= len(cliques):
        return cliques
    picked = np.random.default_rng(seed).choice(len(cliques), queries, replace=False)
    return [cliques[i] for i in picked]


def comparable_domain(cursor: duckdb.DuckDBPyConnection, synthetic_sql: str, domain: Domain) -> Domain:
    """Return the domain for the synthetic columns, whose types may be close relatives of the original ones."""
    types = column_types(cursor, synthetic_sql)
    by_name = {fold(name): kind for name, kind in types.items()}
    attributes = []
    for attribute in domain.attributes:
        kind = by_name.get(fold(attribute.name))
        if kind is None:
            raise DomainError(
                f"synthetic: column {attribute.name!r} is missing; it has {list(types)!r} and needs {list(domain.names)!r}"
            )
        if not _comparable(attribute, kind):
            raise DomainError(
                f"synthetic: column {attribute.name!r} is {kind}, the original is {attribute.sql_type}; "
                "CAST it in a view and evaluate that"
            )
        attributes.append(replace(attribute, sql_type=kind))
    return Domain(tuple(attributes))


def _comparable(attribute: Attribute, kind: str) -> bool:
    """Return whether a column of this type can be encoded with the attribute's domain."""
    if kind == attribute.sql_type:
        return True
    families = {sqltypes.parse(kind).family, sqltypes.parse(attribute.sql_type).family}
    if families == {"integer"} or families <= {"text", "enum"}:
        return True
    return attribute.kind == "numeric" and families <= {"integer", "decimal", "float"}


def materialise(cursor: duckdb.DuckDBPyConnection, source_sql: str, synthetic_sql: str, domain: Domain, similar: Domain) -> str:
    """Materialise the codes of both relations in one TEMP table, with a column that is NULL for the original's rows."""
    names: list[str] = []
    both = f"__dp_both_{secrets.token_hex(8)}"
    try:
        names.append(encode(cursor, source_sql, domain))
        names.append(encode(cursor, synthetic_sql, similar))
        parts = [
            exp.select("*", exp.alias_(exp.cast(flag, "UTINYINT", dialect="duckdb"), _SYNTHETIC)).from_(_table(name))
            for name, flag in zip(names, (exp.null(), exp.Literal.number(1)), strict=True)
        ]
        union = exp.union(*parts, distinct=False)
        guarded(cursor, f"CREATE TEMP TABLE {identifier(both)} AS {union.sql(dialect='duckdb')}")
        return both
    finally:
        for name in names:
            cursor.execute(f"DROP TABLE IF EXISTS {identifier(name)}")


def _table(name: str) -> exp.Table:
    return exp.to_table(exp.to_identifier(name, quoted=True))


def pairs_query(name: str, clique: Clique, where: Sequence[exp.Expression] = ()) -> exp.Select:
    """Return (original, synthetic, cells): how many non-empty cells of one table have this pair of counts."""
    codes = [exp.column(f"c{position}", quoted=True) for position in clique]
    synthetic = exp.Count(this=exp.column(_SYNTHETIC))
    original = exp.Sub(this=exp.Count(this=exp.Star()), expression=synthetic.copy())
    counts = exp.select(exp.alias_(original, "original"), exp.alias_(synthetic, "synthetic"))
    counts = counts.from_(_table(name)).where(*where).group_by(*codes)
    pairs = exp.select("original", "synthetic", exp.alias_(exp.Count(this=exp.Star()), "cells"))
    return pairs.from_(counts.subquery("counts")).group_by("original", "synthetic")


def fetch_pairs(cursor: duckdb.DuckDBPyConnection, query: exp.Query) -> list[npt.NDArray[np.int64]]:
    """Return the three columns of `pairs_query`. Privacy: exact, secret."""
    fetched = guarded(cursor, query.sql(dialect="duckdb")).fetchnumpy()
    return [np.asarray(fetched[column], dtype=np.int64) for column in ("original", "synthetic", "cells")]


@multiplies
def _row(
    cursor: duckdb.DuckDBPyConnection, name: str, domain: Domain, cliques: Sequence[Clique], original: int, synthetic: int
) -> Row:
    """Return the error row of all tables over these cliques."""
    parts = []
    for start in range(0, len(cliques), _BATCH):
        queries = [pairs_query(name, clique) for clique in cliques[start : start + _BATCH]]
        union = exp.union(*queries, distinct=False, copy=False) if len(queries) > 1 else queries[0]
        parts.append(fetch_pairs(cursor, union))
    a, b, multiplicity = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    scale = original / synthetic if synthetic else 0.0
    errors = np.abs(a - scale * b)
    cells = sum(math.prod(domain.sizes[i] for i in clique) for clique in cliques)
    distance = float(errors @ multiplicity) / 2 / original / len(cliques) if original and synthetic else 0.0
    if bool(original) != bool(synthetic):
        distance = 1.0
    figures = [figure for share in _SHARES for figure in best(errors, multiplicity, cells, share)]
    missing = (original, synthetic, 1 - synthetic / original if original else None)
    return (len(cliques[0]), len(cliques), cells, distance, *figures, *missing, False, NOTE)  # type: ignore[return-value]


@multiplies
def best(errors: npt.NDArray[np.float64], multiplicity: npt.NDArray[np.int64], cells: int, share: float) -> tuple[float, float]:
    """Return average and maximum of the smallest ``share`` of the cells' errors.

    Parameters
    ----------
    errors, multiplicity : arrays of the same length
        An error and the number of cells that have it.
    cells : int
        Number of all cells; those not in ``multiplicity`` have error 0.

    Examples
    --------
    >>> best(np.array([4.0, 1.0]), np.array([1, 2]), 5, 0.8)
    (0.5, 1.0)
    """
    counted = max(1, round(share * cells))
    left = counted - (cells - int(multiplicity.sum()))
    if left <= 0 or len(errors) == 0:
        return 0.0, 0.0
    order = np.argsort(errors)
    sorted_errors, counts = errors[order], multiplicity[order]
    before = np.cumsum(counts) - counts
    used = np.clip(left - before, 0, counts)
    return float(sorted_errors @ used) / counted, float(sorted_errors[used > 0][-1])
