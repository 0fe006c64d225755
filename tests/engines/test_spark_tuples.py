"""k-tuples on Spark: DuckDB's counts, and never more of a row than the bound, whichever attempts at a task count.

The checks of random choices have false-alarm rates below 1e-6.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from dpsql.engines.duckdb import tuples as duck
from dpsql.tables.tuple_index import TupleIndex

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dpsql.engines.spark import arrays, shipping, tuple_arrays, tuples
from dpsql.engines.spark.tables import wire_sql

pytestmark = [pytest.mark.spark, pytest.mark.any_duckdb, pytest.mark.filterwarnings("ignore")]

SIZES = (2, 3, 200, 4)
EMPTY = (0, 2, 3)  # with codes behind their values: no value


@pytest.fixture(scope="module")
def data() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    return pd.DataFrame({f"c{i}": rng.integers(0, size + (2 if i in EMPTY else 0), 400) for i, size in enumerate(SIZES)})


@pytest.fixture(scope="module")
def given(spark: Any, data: pd.DataFrame) -> tuple[str, duckdb.DuckDBPyConnection]:
    spark.createDataFrame(data.to_numpy(dtype=object).tolist(), ", ".join(f"c{i} INT" for i in range(4))).repartition(
        3
    ).createOrReplaceTempView("tuples")
    con = duckdb.connect()
    con.register("frame", data)
    con.execute(f"CREATE TABLE codes AS SELECT {', '.join(f'c{i}::UTINYINT AS c{i}' for i in range(4))} FROM frame")
    return "SELECT c0, c1, c2, c3 FROM tuples", con


def some_keys(index: TupleIndex, k: int, share: float) -> np.ndarray[Any, np.dtype[np.int64]]:
    first, behind = index.level_keys(k)
    keys = np.arange(first, behind)
    return keys[np.random.default_rng(k).random(keys.size) < share]


@pytest.mark.parametrize(("k", "share"), [(1, 1.0), (2, 0.3), (3, 0.9), (4, 0.02)])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_same_integers(spark: Any, given: Any, monkeypatch: pytest.MonkeyPatch, k: int, share: float, sparse: bool) -> None:
    text, con = given
    index = TupleIndex(SIZES, 4)
    keys = some_keys(index, k, share)
    if sparse:
        monkeypatch.setattr(tuples, "MOST_CELLS", 0)
    want = duck.count_tuples(con.cursor(), "codes", index, keys, EMPTY)
    assert want.sum() > 0
    assert np.array_equal(tuples.count_tuples(spark, text, index, keys, EMPTY), want)


@pytest.mark.parametrize(("k", "share"), [(1, 0.6), (2, 0.5), (3, 1.0)])
def test_widths_and_wide_enough_bounds(spark: Any, given: Any, k: int, share: float) -> None:
    text, con = given
    index = TupleIndex(SIZES, 3)
    keys = some_keys(index, k, share)
    _, want = duck.widths(con.cursor(), "codes", index, k, keys, EMPTY)
    assert np.array_equal(tuples.widths(spark, text, index, k, keys, EMPTY), want)
    counts = duck.count_tuples(con.cursor(), "codes", index, keys, EMPTY)
    most = math.comb(4, k)
    assert np.array_equal(tuples.count_bounded(spark, text, index, keys, EMPTY, most=most), counts)


def test_of_wide_rows_as_many_as_the_bound_says(spark: Any, given: Any) -> None:
    text, con = given
    index = TupleIndex(SIZES, 2)
    keys = some_keys(index, 2, 0.8)
    _, histogram = duck.widths(con.cursor(), "codes", index, 2, keys, EMPTY)
    whole = duck.count_tuples(con.cursor(), "codes", index, keys, EMPTY)
    for most in (0, 1, 2):
        counts = tuples.count_bounded(spark, text, index, keys, EMPTY, most=most)
        assert (counts <= whole).all()
        narrow = (histogram * np.minimum(np.arange(histogram.size), most)).sum()
        # Rows within the bound count wholly; of wider ones `most` where it is above 0, as DuckDB's road has it.
        assert counts.sum() == narrow


def test_no_keys(spark: Any, given: Any) -> None:
    text, _ = given
    index, none = TupleIndex(SIZES, 2), np.zeros(0, dtype=np.int64)
    assert tuples.count_tuples(spark, text, index, none, EMPTY).size == 0
    assert tuples.count_bounded(spark, text, index, none, EMPTY, most=1).size == 0
    assert tuples.widths(spark, text, index, 2, none, EMPTY).tolist() == [400, 0, 0, 0, 0, 0, 0]


def choices(most: int, rows: int, wide: int = 3) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return how often each of the pairs of four columns is kept of rows that have all of ``wide`` + 3 tables' tuples."""
    index = TupleIndex((1, 1, 1, 1), 2)
    task = tuples._task(index, np.arange(*index.level_keys(2)), (), "bounded", most)
    batch = arrays.pa.RecordBatch.from_arrays([arrays.pa.array(np.zeros(rows, np.int64))], names=["w0"])
    made = tuple_arrays.tuple_counting(task)(iter([batch]))
    return arrays.gathered(arrays.pa.Table.from_batches(made), task.length)[arrays.HEAD :]


@pytest.mark.parametrize("most", [1, 2, 5])
def test_kept_tuples_are_uniform(most: int) -> None:
    """Each tuple is kept with probability most / 6: z-tests of six counts, 5.5 standard deviations (2.3e-7 together)."""
    rows = 60_000
    counts = choices(most, rows)
    assert counts.sum() == most * rows
    p = most / 6
    assert (np.abs(counts - rows * p) < 5.5 * math.sqrt(rows * p * (1 - p))).all()
    assert not np.array_equal(choices(most, rows), counts)  # drawn anew


def test_kept_tuples_are_sets() -> None:
    """Two of six are fifteen sets, all as likely: each row by itself, 1,500 rows; each set at least once (false alarm 2e-44)."""
    seen = {tuple(np.flatnonzero(choices(2, 1)).tolist()) for _ in range(1500)}
    assert seen == set(itertools.combinations(range(6), 2))


def test_a_failed_attempt_adds_nothing_to_a_row(spark: Any, tmp_path: Path) -> None:
    """Attempts that fail after they have drawn are drawn anew, and only one counts: each row has exactly its bound."""
    index = TupleIndex((1, 1, 1, 1), 2)
    task = tuples._task(index, np.arange(*index.level_keys(2)), (), "bounded", 2)
    count, folder = tuple_arrays.tuple_counting(task), tmp_path

    def failing(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from count(batches)
        mark = folder / f"{context.partitionId()}"
        if not mark.exists():
            mark.touch()
            raise RuntimeError("a worker is lost")

    rows = spark.sql(wire_sql("SELECT 0 AS c0, 0 AS c1, 0 AS c2, 0 AS c3 FROM range(0, 900, 1, 3)", task.limits))
    found = shipping.mapped(shipping.mapped(rows, failing).repartition(1), arrays.adding()).toArrow()
    flat = arrays.gathered(found, task.length)
    assert len(list(folder.iterdir())) == 3
    assert flat[0] == 900
    assert flat[arrays.HEAD :].sum() == 2 * 900
    assert flat[arrays.HEAD :].max() <= 900


def test_one_reducer(spark: Any, given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the proof needs: all that one attempt yields goes into one partition of the shuffle."""
    asked: list[tuple[Any, ...]] = []
    frame = type(spark.sql("SELECT 1"))
    real = frame.repartition

    def spy(self: Any, *arguments: Any) -> Any:
        asked.append(arguments)
        return real(self, *arguments)

    monkeypatch.setattr(frame, "repartition", spy)
    index = TupleIndex(SIZES, 2)
    tuples.count_bounded(spark, given[0], index, some_keys(index, 2, 0.5), EMPTY, most=1)
    assert asked == [(1,)]
