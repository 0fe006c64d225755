"""Bound, encode, count, draw: the only place where protected rows are read. What leaves it is private by the plan's events."""

from __future__ import annotations

import itertools
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
from sqlglot import exp

from dpsql import methods
from dpsql.domains import encoding, multi_value, unit_rows
from dpsql.domains.attributes import Domain
from dpsql.errors import DpsqlError, ReleaseError, first_line
from dpsql.measure import tuples
from dpsql.measure.counting import count_moments, count_select, count_tables, count_values
from dpsql.mechanisms.percentile import private_percentile
from dpsql.methods.aggregate_seeded.levels import level_scale
from dpsql.methods.base import Counted, DrawnMethod, OpenMethod, TupleMethod, TuplePlan
from dpsql.noise import discrete
from dpsql.numerics.arrays import Clique, IntArray
from dpsql.protected import universes
from dpsql.protected.source import ProtectedSource
from dpsql.protected.universes import Resolved as Universe
from dpsql.release import store
from dpsql.release.plan import Plan
from dpsql.running.progress import Progress
from dpsql.session.instance import Context
from dpsql.tables import coarse
from dpsql.tables.flat import FlatTables
from dpsql.tables.tuple_index import tuple_index
from dpsql.text.relation import identifier

VALUE = "v"


@dataclass(frozen=True)
class Measured:
    """What is released: integers, the values that they belong to in an open domain, the number of rows where it is public.

    ``places``: table and cell of each integer, shape (2, N), where only some cells are released. ``notes``: what was left out.
    """

    flat: IntArray
    values: list[str]
    total: int | None
    places: IntArray | None = None
    notes: tuple[str, ...] = ()


def statement(protected: ProtectedSource, plan: Plan) -> str:
    """Return the SELECT that will read the protected rows, to be bound before anything is charged."""
    if plan.units:
        return unit_rows.statement(protected.source.sql, protected.source.row is not None)
    return encoding.encode_sql(_source_sql(protected, plan), _coded(plan), **_bounding(protected), **_columns(plan))


def _source_sql(protected: ProtectedSource, plan: Plan) -> str:
    """Return the source, with columns of several values split."""
    return multi_value.split_sql(protected.source.sql, plan.domain, plan.options)


def _coded(plan: Plan) -> Domain:
    return Domain(()) if plan.open else plan.domain


def _bounding(protected: ProtectedSource) -> dict[str, Any]:
    unit = protected.protection.privacy_unit is not None
    most, salt = protected.protection.max_contributions, secrets.token_hex(16)
    return {"unit": unit, "max_contributions": most, "salt": salt, "numbered": protected.source.row is not None}


def _columns(plan: Plan) -> dict[str, Any]:
    """Return the columns beyond codes that a method counts or sums, and whether a unit's equal rows count once."""
    method = methods.of(plan.method)
    extra: Mapping[str, exp.Expression] = {}
    if plan.open:
        extra = {VALUE: encoding.value_text(plan.domain.attributes[0])}
    elif methods.is_drawn(method):
        summed = method.values(plan.domain, plan.options)
        extra = {f"z{i}": encoding.fixed_point(plan.domain.attributes[i]) for i in summed}
    return {"extra": extra, "distinct": methods.is_open(method) and not method.universe}


def bind(context: Context, protected: ProtectedSource, plan: Plan) -> None:
    """Let DuckDB bind the statement that will read the rows, so that it cannot fail for a reason known beforehand. No row is read.

    Raises
    ------
    DomainError, DpsqlError
        A column has another type than its domain was declared for, or DuckDB does not accept the statement.
    """
    try:
        if not plan.units:
            encoding.check_types(encoding.column_types(context.cursor, _source_sql(protected, plan)), plan.domain)
        context.cursor.execute(f"DESCRIBE {statement(protected, plan)}").fetchall()
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        raise DpsqlError(f"source: DuckDB does not accept it ({first_line(error)})") from None


def universe(context: Context, protected: ProtectedSource, plan: Plan) -> Universe | None:
    """Return the public universe that an open column's values come from, as it was charged for. No protected row is read.

    Raises
    ------
    ReleaseError
        It was changed since.
    """
    method = methods.of(plan.method)
    if not methods.is_open(method) or not method.universe:
        return None
    found = universes.resolve(context, protected, protected.column(plan.domain.names[0]), plan.options)
    if found.fingerprint != plan.parameters["universe"]:
        raise ReleaseError(
            f"options = {dict(plan.options)!r}: the public domain was changed after it was charged for. Put it back as it "
            "was to finish the release, or buy another one: release := 'another name'"
        )
    return found


def measure(
    context: Context, protected: ProtectedSource, plan: Plan, progress: Progress, members: Universe | None = None
) -> Measured:
    """Read the rows, count, draw. What can fail for a public reason has been tried before (`bind`, `universe`).

    Parameters
    ----------
    members : from `universe`

    Privacy
    -------
    The exact counts leave this function only through the mechanism of the plan: noise of ``plan.scales`` on every cell, or what
    the method draws at ``plan.parameters``.
    """
    cursor = context.cursor
    method = methods.of(plan.method)
    if plan.open:
        encoding.check_types(encoding.column_types(cursor, protected.source.sql), plan.domain)
    if methods.measures_tables(method):
        return _tables(cursor, protected, plan, progress)
    with progress.stage("encode"):
        codes = encoding.encode(cursor, _source_sql(protected, plan), _coded(plan), **_bounding(protected), **_columns(plan))
    try:
        if methods.is_open(method):
            return _open(cursor, plan, method, codes, progress, members)
        if methods.is_drawn(method):
            return _drawn(cursor, plan, method, codes, progress)
        if methods.counts_tuples(method):
            return _tuples(cursor, plan, method, codes, progress)
        raise ReleaseError(f"method {plan.method!r} says nothing of what it measures")
    finally:
        cursor.execute(f"DROP TABLE IF EXISTS {identifier(codes)}")


def _tables(cursor: duckdb.DuckDBPyConnection, protected: ProtectedSource, plan: Plan, progress: Progress) -> Measured:
    """Encode and count contingency tables, in one pass where that is less work, and add noise to every cell."""
    with progress.stage("encode"):
        if not plan.units:
            encoding.check_types(encoding.column_types(cursor, _source_sql(protected, plan)), plan.domain)
        select = statement(protected, plan)
    with progress.stage("count"):
        tables, rows = count_select(cursor, select, plan.domain.sizes, plan.cliques)
    with progress.stage("noise"):
        return Measured(released(plan, tables), [], rows if plan.public_total else None)


def _drawn(cursor: duckdb.DuckDBPyConnection, plan: Plan, method: DrawnMethod, codes: str, progress: Progress) -> Measured:
    """Count one table, with sums where the method asks for them, and let the method draw."""
    with progress.stage("count"):
        total = _count(cursor, codes)
        summed = [f"z{i}" for i in method.values(plan.domain, plan.options)]
        sums = products = None
        tables: Mapping[Clique, IntArray]
        if summed:
            table, sums, products = count_moments(cursor, codes, plan.domain.sizes, plan.cliques[0], summed)
            tables = {plan.cliques[0]: table}
        else:
            tables = count_tables(cursor, codes, plan.domain.sizes, plan.cliques)
    with progress.stage("noise"):
        drawn = method.draw(Counted(tables, total, sums, products), plan.domain, plan.parameters, plan.options)
    return Measured(np.concatenate(drawn), [], total if plan.public_total else None)


def _tuples(cursor: duckdb.DuckDBPyConnection, plan: Plan, method: TupleMethod, codes: str, progress: Progress) -> Measured:
    """Count the tuples of one level after the other: those whose parts were all kept at the level before.

    Privacy: a level's tuples are chosen by released counts and public numbers alone, and every one of them gets noise, those
    that nobody has too.
    """
    with progress.stage("count"):
        number = _count(cursor, codes)
        wanted = method.tuples(plan.domain, plan.options)
        index = tuple_index(wanted.sizes, wanted.length)
        found, most, notes = [], [], []
        kept = released = np.zeros(0, np.int64)
        for k in index.levels:
            chosen = tuples.candidates(cursor, index, k, kept, released)
            if chosen.extended < kept.size:
                notes.append(_cut(k, chosen, kept.size))
            keys = chosen.keys
            exact, bound = _level(cursor, codes, plan, wanted, k, keys)
            scale = plan.scales[index.first_tables[k - 1]]
            if wanted.empty:
                scale = level_scale(Fraction(plan.parameters["units"][k - 1]), bound)
            noisy = discrete.add_noise(exact, plan.mechanism, scale)
            above = noisy > method.threshold(k, scale, plan.options)
            kept, released = keys[above], noisy[above]
            found.append((keys, noisy))
            most.append(bound)
    keys, flat = (np.concatenate(parts) for parts in zip(*found, strict=True))
    table = index.tables_of(keys)
    places = np.stack([table, keys - index.starts[table]])
    if wanted.empty:
        rows = np.asarray([number], dtype=np.int64)
        rows = rows if plan.public_total else discrete.add_noise(rows, plan.mechanism, plan.scales[-1])
        last = np.stack([np.full(1 + len(most), len(index.cliques)), np.arange(1 + len(most))])
        flat, places = np.concatenate([flat, rows, most]), np.concatenate([places, last], axis=1)
    return Measured(flat, [], number if plan.public_total else None, places, tuple(notes))


def _cut(k: int, chosen: tuples.Candidates, kept: int) -> str:
    """Return what the release says where not all kept tuples were extended. Post-processing of released counts."""
    return (
        f"k = {k}: of the {kept} tuples of k = {k - 1} that were kept, only the {chosen.extended} with the largest counts were "
        f"extended, since no more than {chosen.limit} are counted on this machine; the others' combinations are missing. Fewer "
        "columns, a smaller reporting_length or fabrication 'minimize' avoid that"
    )


def _level(
    cursor: duckdb.DuckDBPyConnection, codes: str, plan: Plan, wanted: TuplePlan, k: int, keys: IntArray
) -> tuple[IntArray, int]:
    """Return exact counts of one level's tuples, and the number of them that a row has at most.

    Privacy: the bound is a private percentile, or public; the counts are secret.
    """
    index = tuple_index(wanted.sizes, wanted.length)
    bound = math.comb(len(wanted.sizes), k)
    if not wanted.empty or plan.parameters["share"] is None:
        return tuples.count_tuples(cursor, codes, index, keys, wanted.empty), bound
    name, histogram = tuples.widths(cursor, codes, index, k, keys, wanted.empty)
    try:
        share, epsilon, sensitivity = (Fraction(plan.parameters[p]) for p in ("share", "epsilon_percentile", "penalty_sensitivity"))
        bound = private_percentile(histogram, share, epsilon, sensitivity)
        salt = secrets.token_hex(16)
        return tuples.count_bounded(cursor, codes, index, keys, wanted.empty, row_widths=name, most=bound, salt=salt), bound
    finally:
        cursor.execute(f"DROP TABLE IF EXISTS {name}")


def _open(
    cursor: duckdb.DuckDBPyConnection, plan: Plan, method: OpenMethod, codes: str, progress: Progress, members: Universe | None
) -> Measured:
    """Count the values that occur, and let the method choose which of them, and of the others, are released."""
    with progress.stage("count"):
        values, counts = count_values(cursor, codes, VALUE)
    with progress.stage("noise"):
        chosen, weights = method.select(values, counts, members, plan.parameters)
    return Measured(weights, chosen, None)


def _count(cursor: duckdb.DuckDBPyConnection, table: str) -> int:
    row = cursor.execute(f"SELECT count(*) FROM {identifier(table)}").fetchone()  # noqa: S608
    return int(row[0]) if row else 0


def released(plan: Plan, tables: Mapping[Clique, IntArray]) -> IntArray:
    """Return what a plan releases of exact tables: the tables with noise, then the coarse tables with noise, flat.

    Privacy: the second round sees the first one as it is released: its groups are made from noisy counts alone, and its scales are
    in the plan (`dpsql.tables.coarse`).
    """
    count, lengths = len(plan.cliques), plan.table_lengths
    exact = _flat(plan, tables)
    first = add_noise(exact, lengths, plan.scales[:count], plan.mechanism)
    if not plan.coarse:
        return first
    noisy = store.shaped(plan, first)
    groups = coarse.groups(plan.domain, noisy, itertools.chain.from_iterable(plan.coarse))
    summed = [coarse.coarsened(tables[pair], pair, groups, coarse.shape(plan.domain, pair)) for pair in plan.coarse]
    flat = np.concatenate([table.ravel() for table in summed])
    return np.concatenate([first, add_noise(flat, [table.size for table in summed], plan.scales[count:], plan.mechanism)])


def _flat(plan: Plan, tables: Mapping[Clique, IntArray]) -> IntArray:
    """Return the counts of all tables in the order of the plan."""
    if isinstance(tables, FlatTables) and tables.sizes == plan.domain.sizes and tables.cliques == plan.cliques:
        return tables.flat
    return np.concatenate([tables[clique].ravel() for clique in plan.cliques])


def add_noise(flat: IntArray, lengths: Sequence[int] | IntArray, scales: Sequence[Fraction], mechanism: str) -> IntArray:
    """Add each table's noise to every one of its cells, the empty ones too.

    Raises
    ------
    ValueError
        There is not one scale for each table, or the tables are not all of the counts.
    """
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    if len(scales) != len(lengths) or ends[-1] != flat.size:
        raise ValueError(f"{len(scales)} scales for {len(lengths)} tables of {ends[-1]} cells, {flat.size} counts")
    by_scale: dict[Fraction, list[slice]] = {}
    first = 0
    for scale, run in itertools.groupby(scales):
        last = first + len(list(run))
        by_scale.setdefault(scale, []).append(slice(int(ends[first]), int(ends[last])))
        first = last
    noisy = np.empty_like(flat)
    for scale, parts in by_scale.items():
        drawn = discrete.add_noise(np.concatenate([flat[part] for part in parts]), mechanism, scale)
        start = 0
        for part in parts:
            noisy[part] = drawn[start : start + part.stop - part.start]
            start += part.stop - part.start
    return noisy
