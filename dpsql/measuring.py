"""Bound, encode, count, draw: the only place where protected rows are read. What leaves it is private by the plan's events."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
from sqlglot import exp

from dpsql import encoding, methods, noise, release, universes
from dpsql.counting import count_moments, count_tables, count_values
from dpsql.domain import Domain
from dpsql.errors import ReleaseError
from dpsql.methods import coarse
from dpsql.methods.base import Clique, Counted, DrawnMethod, IntArray, OpenMethod
from dpsql.progress import Progress
from dpsql.protected import ProtectedSource
from dpsql.relation import identifier
from dpsql.release import Plan
from dpsql.session import Context

VALUE = "v"


@dataclass(frozen=True)
class Measured:
    """What is released: integers, the values that they belong to in an open domain, the number of rows where it is public."""

    flat: IntArray
    values: list[str]
    total: int | None


def statement(protected: ProtectedSource, plan: Plan) -> str:
    """Return the SELECT that will read the protected rows, to be bound before anything is charged."""
    return encoding.encode_sql(protected.source.sql, _coded(plan), **_bounding(protected), **_columns(plan))


def _coded(plan: Plan) -> Domain:
    return Domain(()) if plan.open else plan.domain


def _bounding(protected: ProtectedSource) -> dict[str, Any]:
    unit = protected.protection.privacy_unit is not None
    return {"unit": unit, "max_contributions": protected.protection.max_contributions, "salt": secrets.token_hex(16)}


def _columns(plan: Plan) -> dict[str, Any]:
    """Return the columns beyond codes that a method counts or sums, and whether a unit's equal rows count once."""
    method = methods.get(plan.method) if plan.method else None
    extra: Mapping[str, exp.Expression] = {}
    if plan.open:
        extra = {VALUE: encoding.value_text(plan.domain.attributes[0])}
    elif methods.is_drawn(method):
        summed = method.values(plan.domain, plan.options)
        extra = {f"z{i}": encoding.fixed_point(plan.domain.attributes[i]) for i in summed}
    return {"extra": extra, "distinct": methods.is_open(method) and not method.universe}


def measure(context: Context, protected: ProtectedSource, plan: Plan, progress: Progress) -> Measured:
    """Read the rows, count, draw.

    Privacy
    -------
    The exact counts leave this function only through the mechanism of the plan: noise of ``plan.scales`` on every cell, or what
    the method draws at ``plan.parameters``.
    """
    cursor = context.cursor
    method = methods.get(plan.method) if plan.method else None
    if plan.open:
        encoding.check_types(encoding.column_types(cursor, protected.source.sql), plan.domain)
    with progress.stage("encode"):
        codes = encoding.encode(cursor, protected.source.sql, _coded(plan), **_bounding(protected), **_columns(plan))
    try:
        if methods.is_open(method):
            return _open(context, protected, plan, method, codes, progress)
        if methods.is_drawn(method):
            return _drawn(cursor, plan, method, codes, progress)
        with progress.stage("count"):
            total = _count(cursor, codes) if plan.public_total else None
            tables = count_tables(cursor, codes, plan.domain.sizes, plan.cliques)
    finally:
        cursor.execute(f"DROP TABLE IF EXISTS {identifier(codes)}")
    with progress.stage("noise"):
        return Measured(released(plan, tables), [], total)


def _drawn(cursor: duckdb.DuckDBPyConnection, plan: Plan, method: DrawnMethod, codes: str, progress: Progress) -> Measured:
    """Count one table, with sums where the method asks for them, and let the method draw."""
    with progress.stage("count"):
        total = _count(cursor, codes)
        summed = [f"z{i}" for i in method.values(plan.domain, plan.options)]
        sums = products = None
        if summed:
            table, sums, products = count_moments(cursor, codes, plan.domain.sizes, plan.cliques[0], summed)
            tables = {plan.cliques[0]: table}
        else:
            tables = count_tables(cursor, codes, plan.domain.sizes, plan.cliques)
    with progress.stage("noise"):
        drawn = method.draw(Counted(tables, total, sums, products), plan.domain, plan.parameters, plan.options)
    return Measured(np.concatenate(drawn), [], total if plan.public_total else None)


def _open(
    context: Context, protected: ProtectedSource, plan: Plan, method: OpenMethod, codes: str, progress: Progress
) -> Measured:
    """Count the values that occur, and let the method choose which of them, and of the others, are released."""
    with progress.stage("count"):
        universe = None
        if method.universe:
            universe = universes.resolve(context, protected, protected.column(plan.domain.names[0]), plan.options)
            if universe.fingerprint != plan.parameters["universe"]:
                raise ReleaseError(
                    f"options = {dict(plan.options)!r}: the public domain was changed after it was charged for. Put it back as it "
                    "was to finish the release, or buy another one: release := 'another name'"
                )
        values, counts = count_values(context.cursor, codes, VALUE)
    with progress.stage("noise"):
        chosen, weights = method.select(values, counts, universe, plan.parameters)
    return Measured(weights, chosen, None)


def _count(cursor: duckdb.DuckDBPyConnection, table: str) -> int:
    row = cursor.execute(f"SELECT count(*) FROM {identifier(table)}").fetchone()  # noqa: S608
    return int(row[0]) if row else 0


def released(plan: Plan, tables: Mapping[Clique, IntArray]) -> IntArray:
    """Return what a plan releases of exact tables: the tables with noise, then the coarse tables with noise, flat.

    Privacy: the second round sees the first one as it is released: its groups are made from noisy counts alone, and its scales are
    in the plan (`dpsql.methods.coarse`).
    """
    count, lengths = len(plan.cliques), plan.table_lengths
    exact = np.concatenate([tables[clique].ravel() for clique in plan.cliques])
    first = add_noise(exact, lengths, plan.scales[:count], plan.mechanism)
    if not plan.coarse:
        return first
    noisy = release.shaped(plan, np.split(first, np.cumsum(lengths)[:-1]))
    groups = coarse.groups(plan.domain, noisy, itertools.chain.from_iterable(plan.coarse))
    summed = [coarse.coarsened(tables[pair], pair, groups, coarse.shape(plan.domain, pair)) for pair in plan.coarse]
    flat = np.concatenate([table.ravel() for table in summed])
    return np.concatenate([first, add_noise(flat, [table.size for table in summed], plan.scales[count:], plan.mechanism)])


def add_noise(flat: IntArray, lengths: Sequence[int], scales: Sequence[Fraction], mechanism: str) -> IntArray:
    """Add each table's noise to every one of its cells, the empty ones too."""
    cells = np.repeat(np.arange(len(lengths)), lengths)
    noisy = np.empty_like(flat)
    by_scale: dict[Fraction, list[int]] = {}
    for position, scale in enumerate(scales):
        by_scale.setdefault(scale, []).append(position)
    for scale, positions in by_scale.items():
        chosen = np.isin(cells, positions) if len(by_scale) > 1 else slice(None)
        noisy[chosen] = noise.add_noise(flat[chosen], mechanism, scale)
    return noisy
