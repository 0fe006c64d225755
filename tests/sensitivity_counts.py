"""Exact statistics of neighbouring tables through the road that releases take, and what one privacy unit moved in them."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from dpsql.udfs import instance_of
from sensitivity_schemas import ATTRIBUTES, Schema, fill, make_schema, make_source, neighbour

import dpsql
from dpsql.accounting import sensitivities
from dpsql.domains import encoding
from dpsql.domains.attributes import FINE, Attribute, Domain
from dpsql.domains.declare import declare
from dpsql.engines.duckdb.counting import count_moments, count_values
from dpsql.engines.duckdb.tuples import count_tuples
from dpsql.errors import DpsqlError
from dpsql.kinds import measures
from dpsql.kinds.planned import total_is_public
from dpsql.measure import reading
from dpsql.noise import discrete
from dpsql.protected.source import ProtectedSource, resolve
from dpsql.release.store import Plan
from dpsql.running.progress import Progress
from dpsql.session.instance import Context, open_context
from dpsql.source.catalog import Catalog
from dpsql.tables.tuple_index import TupleIndex

SALT = "0123456789abcdef" * 2
"""The random choice of a unit's rows, the same in both worlds, so that they can be compared."""


@contextmanager
def without_noise() -> Iterator[None]:
    """Exact counts instead of noisy ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discrete, "add_noise", lambda counts, mechanism, scale: counts.copy())
        patch.setattr(reading, "fresh_salt", lambda: SALT)
        patch.setattr(Catalog, "changed_function", lambda self, names: None)  # slow, and there are no macros here
        yield


@dataclass
class Question:
    """A checked source, and the domain of its columns."""

    text: str
    protected: ProtectedSource
    domain: Domain


class Tried(Counter[str]):
    """How often what was tried."""


def domain_of(dice: random.Random, protected: ProtectedSource) -> Domain:
    """Random declarations of the columns that may have one."""
    found: list[Attribute] = []
    given: dict[str, dict[str, Any]] = {name: more for name, (_, more) in ATTRIBUTES.items()}
    for column in protected.source.columns:
        known = given.get(column.name)
        if column.sql_type == "VARCHAR":
            known = {"categories": dice.choice([["a", "A", "ss", ""], ["a"], ["A", "á", "b"]])}
        elif known is None or column.sql_type not in ("INTEGER", "DOUBLE", "DATE", "BOOLEAN"):
            known = {"lower": 0, "upper": 4, "bins": 2} if column.sql_type in ("INTEGER", "BIGINT") else None
        if known is not None:
            more = {"nullable": dice.random() < 0.5, "outside": dice.choice(["clamp", "other", "drop"])}
            found.append(declare(column.name, column.sql_type, **more, **known))
    return Domain(tuple(found[:5]))


def statistics(context: Context, question: Question, kind: str) -> dict[str, np.ndarray]:
    """Return named exact statistics; each is one table whose change is to be compared."""
    protected, domain = question.protected, question.domain
    cursor, progress = context.cursor, Progress("test", show=False)
    if kind.startswith("marginals"):
        k = min(int(kind[-1]), len(domain.attributes))
        cliques = [c for c in _cliques(len(domain.attributes)) if len(c) == k]
        plan = Plan(domain, cliques, (1,) * len(cliques), "gaussian", total_is_public(protected, domain), None, {})
        measured = measures.measure(context, protected, plan, progress)
        ends = np.concatenate([[0], np.cumsum(plan.table_lengths)])
        found = {f"table {c}": measured.flat[a:b] for c, a, b in zip(cliques, ends[:-1], ends[1:], strict=True)}
        return found | ({"public n": np.asarray([measured.total])} if measured.total is not None else {})
    numeric = [i for i, a in enumerate(domain.attributes) if a.kind != "categorical" and a.sql_type in ("INTEGER", "DOUBLE", "BIGINT")]
    extra: dict[str, Any] = {}
    if kind == "moments":
        extra = {f"z{i}": encoding.fixed_point(domain.attributes[i]) for i in numeric}
    if kind == "values":
        extra = {"v": encoding.value_text(domain.attributes[0])}
    coded = Domain(()) if kind == "values" else domain
    bounding = reading.bounding(protected)
    codes = encoding.encode(cursor, protected.source.sql, coded, **bounding, extra=extra, distinct=kind == "values")
    try:
        if kind == "values":
            return {"values": np.asarray(list(Counter(dict(zip(*count_values(cursor, codes, "v"), strict=True))).items()), dtype=object)}
        if kind == "moments":
            counts, sums, products = count_moments(cursor, codes, domain.sizes, (0,), list(extra))
            return {"table (0,)": counts.ravel(), **{f"sums {i}": sums[:, i] for i in range(len(extra))}, "products": np.asarray(products, dtype=object)}
        index = TupleIndex(domain.sizes, 3)
        levels = [np.arange(*index.level_keys(k)) for k in range(1, min(3, len(domain.sizes)) + 1)]
        return {f"level {k + 1}": count_tuples(cursor, codes, index, keys) for k, keys in enumerate(levels)}
    finally:
        cursor.execute(f'DROP TABLE IF EXISTS "{codes}"')


def _cliques(columns: int) -> list[tuple[int, ...]]:
    places = range(columns)
    return [(i,) for i in places] + [(i, j) for i in places for j in places[i + 1 :]] + [(i, j, k) for i in places for j in places[i + 1 :] for k in places[j + 1 :]]


def excess(name: str, one: np.ndarray, two: np.ndarray, question: Question) -> str:
    """Return what moved by more than is claimed; '' if nothing did."""
    held = question.protected.protection
    l1, l2 = sensitivities(held.neighbors, held.max_contributions)
    moves = 1 if held.neighbors == "add_remove" else 2
    if name == "public n":
        return "" if (one == two).all() else "public n moved"
    if name == "values":
        first, second = dict(one.tolist()), dict(two.tolist())
        change = np.asarray([second.get(v, 0) - first.get(v, 0) for v in {*first, *second}])
        most = moves if held.privacy_unit else l1  # a unit's equal values count once
        return "" if not change.size or (np.abs(change).sum() <= l1 and np.abs(change).max() <= most) else "values moved"
    change = np.asarray(two, dtype=float) - np.asarray(one, dtype=float)
    if name.startswith("sums"):
        return "" if np.abs(change).sum() <= l1 * (FINE - 1) else "sums moved"
    if name == "products":
        return "" if not change.size or np.abs(change).max() <= moves * held.max_contributions * (FINE - 1) ** 2 else "products moved"
    tables = math.comb(len(question.domain.sizes), int(name[-1])) if name.startswith("level") else 1
    if np.abs(change).sum() <= l1 * tables and np.linalg.norm(change) <= l2 * math.sqrt(tables) * (1 + 1e-12):
        return ""
    return f"{name} moved by {np.abs(change).sum():g} (L1), {np.linalg.norm(change):.4g} (L2); claimed {l1 * tables:g}, {l2 * math.sqrt(tables):.4g}"


KINDS = ["marginals1", "marginals2", "marginals3", "values", "moments", "tuples"]


def try_schema(seed: int, folder: Path, tried: Tried, *, unique: bool = True, sources: int = 5, worlds: int = 5) -> list[str]:
    """Make a schema from a seed, ask several sources about several neighbours; return what moved too much."""
    dice = random.Random(seed)
    schema = make_schema(dice, folder, unique=unique)
    con = duckdb.connect()
    try:
        return _try(dice, con, schema, tried, sources, worlds, seed)
    finally:
        con.close()


def _try(dice: random.Random, con: duckdb.DuckDBPyConnection, schema: Schema, tried: Tried, sources: int, worlds: int, seed: int) -> list[str]:
    con.execute(schema.definition())
    for statement in schema.setup:
        with suppress(duckdb.ConstraintException, duckdb.CatalogException, duckdb.InvalidTypeException, duckdb.BinderException):
            con.execute(statement)  # NULL in a primary key; a type that cannot be one: then there is no such table
    there = {name for (name,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    schema.public = {name: on for name, on in schema.public.items() if name in there}
    fill(con, schema, schema.rows)
    con.execute(f"CREATE VIEW v AS SELECT * EXCLUDE (u) FROM {schema.table} WHERE k1 IS NOT NULL OR b")
    dpsql.load(con, progress=False)
    unit = f", privacy_unit := 'u', max_contributions := {schema.contributions}" if schema.unit is not None else ""
    name = str(schema.parquet) if schema.parquet else "p"
    con.execute(f"CALL dp_protect('{name}', epsilon := 1, delta := 1e-9, neighbors := '{schema.neighbors}'{unit})")
    tried["schemas"] += 1
    instance = instance_of(con)
    assert instance is not None
    with open_context(instance, "memory", "main") as context, without_noise():
        questions = []
        for _ in range(sources):
            text = make_source(dice, schema)
            try:
                protected = resolve(context, text)
                questions.append((Question(text, protected, domain_of(dice, protected)), dice.choice(KINDS)))
            except DpsqlError as error:
                tried["refused"] += 1
                tried["refused: " + ("type" if "several forms" in str(error) or "same name" in str(error) else str(error)[:90])] += 1
        tried["sources"] += len(questions)
        before = [statistics(context, q, kind) for q, kind in questions]
        failed: list[str] = []
        for _ in range(worlds):
            fill(con, schema, neighbour(dice, con, schema))
            for (question, kind), first in zip(questions, before, strict=True):
                second = statistics(context, question, kind)
                tried["comparisons"] += 1
                tried[kind] += 1
                tried["joins"] += len(question.protected.source.public_tables)
                tried[schema.neighbors] += 1
                tried["with unit" if schema.unit is not None else "without unit"] += 1
                tried["repeated rows"] += _repeats(context, question)
                tried["moved"] += any(not np.array_equal(first[n], second[n]) for n in first)
                failed += [f"seed {seed}: {question.text}: {e}" for n in first if (e := excess(n, first[n], second[n], question))]
    return failed


def _repeats(context: Context, question: Question) -> bool:
    """Whether the source, as it is written, shows a row of the protected table more than once."""
    source = question.protected.source
    if source.row is None:
        return False
    row = context.cursor.execute(f"SELECT count(*) > count(DISTINCT {source.row}) FROM ({source.sql}) AS s").fetchone()
    return bool(row and row[0])
