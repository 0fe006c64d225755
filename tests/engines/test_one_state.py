"""What one person's rows can change over a server: rows are bounded in each statement, and no count is of two statements."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import sail

import dpsql
from dpsql.domains.attributes import Attribute, Domain
from dpsql.domains.encoding import encode_sql
from dpsql.engines.remote import Remote
from dpsql.engines.spark import tables
from dpsql.engines.spark.arrays import HEAD, gathered
from dpsql.engines.spark.reader import SparkReader
from dpsql.engines.spark.reading import SparkReading
from dpsql.engines.spark.tuple_arrays import Table, Tuples, tuple_counting
from dpsql.kinds.query.plan import Planning
from dpsql.protected.source import ProtectedSource
from dpsql.tables.tuple_index import tuple_index

pytestmark = pytest.mark.any_duckdb
SALT = "0123456789abcdef" * 2
COLUMNS = 12


def write(folder: Path, rows: str) -> None:
    sail.copy(f"COPY ({rows}) TO '{folder / 'p.parquet'}' (FORMAT parquet)")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[SparkReader]:
    listed = ", ".join(f"(i * {k + 3}) % 2 AS x{k}" for k in range(COLUMNS))
    write(tmp_path, f"SELECT i // 3 AS person, i AS v, {listed} FROM range(300) t(i)")
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t AS SELECT * FROM '{tmp_path / 'p.parquet'}' LIMIT 0")
    columns = {name: kind for name, kind, *_ in con.execute("DESCRIBE t").fetchall()}
    yield SparkReader(con, Remote("spark", sail.url(), f"parquet:{tmp_path}"), '"memory"."main"."t"', columns)
    con.close()


def changing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let every statement see another state: 300, 240, 180, ... rows; return the numbers."""
    seen, arrow = [], SparkReading.arrow

    def each(found: SparkReading, make: Any) -> Any:
        seen.append(300 - 60 * len(seen))
        listed = ", ".join(f"(i * {k + 3}) % 2 AS x{k}" for k in range(COLUMNS))
        write(folder, f"SELECT i // 3 AS person, i AS v, {listed} FROM range({seen[-1]}) t(i)")
        return arrow(found, make)

    monkeypatch.setattr(SparkReading, "arrow", each)
    return seen


@pytest.mark.parametrize(("few", "most"), [(tables.FEW, tables.MOST_CELLS), (tables.FEW, 100), (1000, tables.MOST_CELLS)])
def test_a_table_is_of_one_statement(few: int, most: int, reader: SparkReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Margins of two-way tables that come from another statement than their cells would be of another state."""
    monkeypatch.setattr(tables, "MOST_CELLS", most)
    monkeypatch.setattr(tables, "FEW", few)
    cliques = [(i, j) for i in range(COLUMNS) for j in range(i)]
    select = f"SELECT {', '.join(f'x{k} AS c{k}' for k in range(COLUMNS))} FROM \"memory\".\"main\".\"t\""
    reader.bind(select)
    seen = changing(tmp_path, monkeypatch)
    found, _ = reader.tables(select, [2] * COLUMNS, cliques)
    assert len(seen) == (3 if few == 1000 else 1)
    for clique in cliques:
        table = np.asarray(found[clique])
        assert table.sum() in seen
        rows = int(table.sum())
        there = np.array([[(i * (k + 3)) % 2 for k in clique] for i in range(rows)])
        np.testing.assert_array_equal(table, [[np.sum((there == [a, b]).all(axis=1)) for b in (0, 1)] for a in (0, 1)])


def test_a_query_puts_nothing_together(tmp_path: Path) -> None:
    """Leaves that are cut where rows are, and quantiles near their ranks, are read by several statements: none is planned."""
    write(tmp_path, "SELECT i // 2 AS person, i * .37 AS x FROM range(90) t(i)")
    with sail.remote(Path(":memory:one_state"), "people", tmp_path, privacy_unit="person", max_contributions=2) as con:
        dpsql.declare(con, "people", "x", lower=0, upper=1000)
        query = "SELECT median(x), max(x), quantile_cont(x, 0.9) FROM people"
        con.execute(f"FROM dp_query('{query}', epsilon := 1)").fetchall()
        [[plan]] = con.execute("SELECT plan FROM dpsql.ledger WHERE action = 'charge'").fetchall()
        assert '"cutting": [' not in plan.replace('"cutting": []', "") and '"picking": [' not in plan.replace('"picking": []', "")
        assert '"tree"' in plan
    assert Planning.planned and ProtectedSource.remote is None


def kept(reader: SparkReader, most: int, salt: str = SALT) -> Counter[tuple[int, ...]]:
    domain = Domain((Attribute("v", "BIGINT", "categorical", tuple(map(str, range(300))), (), False, "clamp"),))
    select = encode_sql('SELECT v, person AS "__dp_unit" FROM "memory"."main"."t"', domain, True, most, salt)
    return Counter(reader.frame(f"SELECT c0, count(*) AS n FROM ({select}) AS kept GROUP BY c0")["c0"].tolist())


def test_rows_of_others_are_kept_as_they_were(reader: SparkReader, tmp_path: Path) -> None:
    """A keyed hash of a unit's own rows decides: the same again and again, and for everybody but a unit that is gone."""
    whole = kept(reader, 2)
    assert kept(reader, 2) == whole and len(whole) == 200
    assert all(sum(v // 3 == person for v in whole) == 2 for person in range(100))
    assert kept(reader, 2, "f" * 32) != whole
    listed = ", ".join(f"(i * {k + 3}) % 2 AS x{k}" for k in range(COLUMNS))
    write(tmp_path, f"SELECT i // 3 AS person, i AS v, {listed} FROM range(300) t(i) WHERE i // 3 <> 41 ORDER BY hash(i) ASC")
    assert whole - kept(reader, 2) == Counter({v: 1 for v in whole if v // 3 == 41})


def test_a_statement_that_is_rendered_has_no_chance_in_it(reader: SparkReader) -> None:
    domain = Domain((Attribute("v", "BIGINT", "categorical", ("1", "2"), (), False, "clamp"),))
    text = reader._spark(encode_sql('SELECT v, person AS "__dp_unit" FROM "memory"."main"."t"', domain, True, 2, SALT)).lower()
    assert "xxhash64(" in text and SALT in text
    assert not any(word in text for word in ("rand(", "uuid(", "shuffle(", "monotonically_increasing_id", "spark_partition_id", "now(", "current_"))


def bounded(rows: np.ndarray, cuts: list[int], salt: int) -> np.ndarray:
    """Return what a task of these rows counts, in batches that end at ``cuts``."""
    task = Tuples((2,) * 4, (2,) * 4, tuple(Table((k,), 2, None, 2 * k) for k in range(4)), 8, "bounded", 2, salt)
    words = sum((rows[:, k].astype(np.int64) << (2 * k)) for k in range(4))  # `layout` of four attributes of two codes
    batches = [pa.RecordBatch.from_arrays([pa.array(part)], names=["w0"]) for part in np.split(words, cuts) if part.size]
    found = list(tuple_counting(task)(iter(batches)))
    table = pa.Table.from_batches(found) if found else pa.table({"chunk": pa.array([], pa.int32()), "cells": pa.array([], pa.binary())})
    return gathered(table, task.length)[HEAD:]


@pytest.mark.parametrize("seed", range(3))
def test_tuples_of_a_row_are_kept_alike_however_rows_lie(seed: int) -> None:
    """Two attempts at a task, other batches, another order: the same counts; and a row more changes two of them by one."""
    rng, draw = np.random.default_rng(seed), random.Random(seed)
    rows = rng.integers(0, 2, (50, 4))
    whole = bounded(rows, [], 9)
    assert whole.sum() == 2 * len(rows)
    assert (bounded(rng.permutation(rows), sorted(draw.sample(range(1, 50), 6)), 9) == whole).all()
    assert (bounded(rows[:20], [], 9) + bounded(rows[20:], [], 9) == whole).all()  # wherever a layout has put them
    assert any((bounded(rows, [], salt) != whole).any() for salt in range(5))
    for place in range(0, 50, 7):
        change = whole - bounded(np.delete(rows, place, axis=0), [], 9)
        assert sorted(change.tolist()) == [0] * 6 + [1, 1]


def test_tuples_are_bounded_where_the_rows_are(reader: SparkReader) -> None:
    index = tuple_index((2, 2, 2), 2)
    keys = np.arange(*index.level_keys(2), dtype=np.int64)
    with reader.codes('SELECT x0 AS c0, x1 AS c1, x2 AS c2 FROM "memory"."main"."t"') as codes, codes.widths(index, 2, keys, ()) as widths:
        assert widths.histogram.tolist() == [0, 0, 0, 300]  # every row has three pairs
        counts = widths.counted(2, SALT)
        assert counts.sum() == 600 and (counts <= codes.tuples(index, keys, ())).all()
        assert (widths.counted(2, SALT) == counts).all()


def test_no_value_makes_a_statement_fail(tmp_path: Path) -> None:
    """The ends of every type, dates beyond the calendar, texts of any bytes: whether a call fails must not show a row."""
    write(
        tmp_path,
        "SELECT * FROM (VALUES (1, 'nan'::DOUBLE, DATE '294247-01-01', 'a' || chr(0), 9223372036854775807::BIGINT, TIMESTAMP '290000-01-01', 9.99::DECIMAL(3,2)),"
        " (2, 'inf', DATE '4000-01-01 (BC)', NULL, -9223372036854775808, TIMESTAMP '200000-01-01 (BC)', -9.99), (3, NULL, NULL, '💥', NULL, NULL, NULL))"
        " AS t(person, d, day, s, b, moment, c)",
    )
    with sail.remote(Path(":memory:values"), "people", tmp_path) as con:
        for name, given in {"d": {"lower": 0, "upper": 1}, "day": {"lower": "2000-01-01", "upper": "2001-01-01"}, "b": {"lower": -9, "upper": 9}, "moment": {"lower": "2000-01-01", "upper": "2001-01-01"},
                            "c": {"lower": 0, "upper": 1}, "s": {"categories": ["a"]}}.items():  # fmt: skip
            dpsql.declare(con, "people", name, **given)
        con.execute("FROM dp_marginals('people', epsilon := 9)").fetchall()
        con.execute("FROM dp_synthesize('people', epsilon := 9, rows := 3)").fetchall()
        listed = (
            "count(*) FILTER (year(day) > 1 AND date_trunc('month', moment) < TIMESTAMP '2000-01-01' AND day + INTERVAL 1 MONTH > day), sum(b), "
            "sum(b // -1), avg(b % -1), max(day), min(moment), avg(c * c), count(DISTINCT s)"
        )
        con.execute("FROM dp_query(?, epsilon := 9)", [f"SELECT dayname(moment) AS n, {listed} FROM people GROUP BY n"]).fetchall()
        assert con.execute("SELECT count(*) FROM dpsql.ledger WHERE action = 'fail'").fetchone() == (0,)
