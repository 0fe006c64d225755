"""Spark's roads count what DuckDB's do: the same integers, whatever the partitions are and whichever task is run again."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from dpsql.engines.duckdb.counting import count_moments, count_select, count_values
from dpsql.errors import ArgumentError, DomainError, DpsqlError
from dpsql.tables.flat import AllCliques

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dpsql.engines.spark import arrays, relation, shipping, tables, values
from dpsql.engines.spark.reading import tasks

pytestmark = [pytest.mark.spark, pytest.mark.any_duckdb, pytest.mark.filterwarnings("ignore")]
UNSIGNED = {1: "UTINYINT", 2: "USMALLINT", 4: "UINTEGER"}


def frame(sizes: list[int], rows: int, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame({f"c{i}": np.minimum(rng.integers(0, size, rows), rng.integers(0, size, rows)) for i, size in enumerate(sizes)})


def both(spark: Any, data: pd.DataFrame, sizes: list[int], partitions: int = 3) -> tuple[str, str, duckdb.DuckDBPyConnection]:
    """Give the same rows to both engines, and return a SELECT for each."""
    listed = ", ".join(f"c{i}" for i in range(len(sizes))) or "1 AS c0"
    types = ", ".join(f"{name} INT" for name in data.columns) or "nothing INT"
    given = spark.createDataFrame(data.to_numpy(dtype=object).tolist() if len(data.columns) else [[0]] * len(data), types)
    given.repartition(partitions).createOrReplaceTempView("given")
    con = duckdb.connect()
    con.register("given_frame", data if len(data.columns) else pd.DataFrame({"nothing": [0] * len(data)}))
    cast = ", ".join(
        f"CAST(c{i} AS {'UTINYINT' if size <= 256 else 'USMALLINT' if size <= 65536 else 'UINTEGER'}) AS c{i}" for i, size in enumerate(sizes)
    )
    con.execute(f"CREATE TABLE given AS SELECT {cast or '1::UTINYINT AS c0'} FROM given_frame")
    return f"SELECT {listed} FROM given", f"SELECT {listed} FROM given", con


@pytest.mark.parametrize("road", [None, "groups", "fold", "gram"])
@pytest.mark.parametrize("rows", [0, 1, 700])
def test_the_same_integers(spark: Any, road: str | None, rows: int) -> None:
    sizes = [2, 3, 1, 130, 300, 2, 40000, 2]
    cliques = [(), (0,), (6,), (4, 1), (1, 4), (7, 5, 0), (3, 4), (0, 1), (0, 1), (2,), (2, 5)]
    text, duck, con = both(spark, frame(sizes, rows), sizes)
    want, total = count_select(con, duck, sizes, cliques)
    got, found = tables.count_select(spark, text, sizes, cliques, road=road)
    assert found == total == rows
    assert list(got) == list(want)
    assert np.array_equal(got.flat, want.flat)


def test_no_table_no_column(spark: Any) -> None:
    text, _, _ = both(spark, frame([2], 9), [2])
    for road in (None, "arrays"):
        got, total = tables.count_select(spark, text, [2], [], road=road)
        assert len(got) == 0
        assert total == 9
    assert tables.count_select(spark, "SELECT 1 AS c0 FROM range(7)", [], [()])[1] == 7


def test_many_passes(spark: Any) -> None:
    """Few cells a task: tables too large for an array, folds in several passes, products in several blocks."""
    sizes = [2] * 150 + [3] * 80 + [50, 60]
    cliques = [*AllCliques(len(sizes), (1, 2))]
    data = frame(sizes, 60)
    text, duck, con = both(spark, data, sizes, 2)
    want, _ = count_select(con, duck, sizes, cliques)
    squares = tables._squares(sizes, tuple(range(230)), 60_000)
    assert len(squares) > 1
    got, total = tables.count_select(spark, text, sizes, cliques, most_cells=60_000)
    assert total == 60
    assert np.array_equal(got.flat, want.flat)
    few = [(230, 231), (0, 231), (1, 230), (2, 150)]
    got, _ = tables.count_select(spark, text, sizes, few, most_cells=200)
    assert all(np.array_equal(got[clique], want[tuple(sorted(clique))]) for clique in few)


def test_a_large_table_comes_in_ranges(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_RANGE", 1000)
    sizes = [70, 60]
    text, duck, con = both(spark, frame(sizes, 500), sizes)
    want, _ = count_select(con, duck, sizes, [(0, 1), (1,)])
    got, _ = tables.count_select(spark, text, sizes, [(0, 1), (1,)])
    assert np.array_equal(got.flat, want.flat)


def test_refusals(spark: Any) -> None:
    with pytest.raises(DomainError, match="at most"):
        tables.count_select(spark, "SELECT 0 AS c0, 0 AS c1", [50_000, 50_000], [(0, 1)])  # more than 2^31 cells
    for clique in ((0, 0), (3,), (-1,)):
        with pytest.raises(ArgumentError):
            tables.count_select(spark, "SELECT 0 AS c0, 0 AS c1", [2, 2], [clique])


@pytest.mark.parametrize("bad", ["CAST(NULL AS INT)", "5", "4", "8", "-1", "-4", "256", "4294967296", "-4294967296"])
@pytest.mark.parametrize("road", ["groups", "fold", "gram"])
def test_a_code_that_is_none(spark: Any, bad: str, road: str) -> None:
    for place, sizes in ((0, [2, 4]), (1, [2, 4]), (0, [5, 3]), (1, [17, 2])):
        if bad == "4" and sizes[place] == 5:
            continue
        code = f"CASE WHEN id = 7 THEN {bad} ELSE 1 END"
        text = f"SELECT {code if place == 0 else 0} AS c0, {code if place == 1 else 0} AS c1 FROM range(20)"
        with pytest.raises(DpsqlError, match="a code is missing or no code"):
            tables.count_select(spark, text, sizes, [(0,), (0, 1)], road=road)


def test_an_error_is_withheld(spark: Any) -> None:
    text = "SELECT CAST(raise_error('Mrs Miller') AS INT) AS c0"
    for road in ("groups", "arrays"):
        with pytest.raises(DpsqlError, match="withheld") as caught:
            tables.count_select(spark, text, [2], [(0,)], road=road)
        assert "Miller" not in str(caught.value)


@pytest.mark.parametrize("road", ["groups", "fold"])
def test_skewed_partitions(spark: Any, road: str) -> None:
    """All rows but a few in one of forty partitions; most are empty."""
    parts = " UNION ALL ".join(f"SELECT id % 3 AS c0, id % 2 AS c1 FROM range(0, {n}, 1, 4)" for n in (5000, 1, 0, 2))
    got, total = tables.count_select(spark, parts, [3, 2], [(0, 1), (1,)], road=road)
    want = np.zeros((3, 2), dtype=np.int64)
    for n in (5000, 1, 0, 2):
        np.add.at(want, (np.arange(n) % 3, np.arange(n) % 2), 1)
    assert total == 5003
    assert np.array_equal(got[(0, 1)], want)


def test_a_task_that_is_run_again_counts_once(spark: Any, tmp_path: Path) -> None:
    """One partition fails at its first attempt, after its rows were counted."""
    rows = spark.sql(tables.wire_sql("SELECT id % 5 AS c0 FROM range(0, 1000, 1, 4)", (5,)))
    task = arrays.Pass((5,), ((0,),), (5,), tuple(tables.folds((5,), tables.Cliques.of([(0,)]), [(0,)], 1)))
    count, mark = arrays.counting(task), str(tmp_path / "failed")

    def failing(batches: Any) -> Any:
        yield from count(batches)
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        raise RuntimeError("a worker is lost")

    found = shipping.mapped(shipping.mapped(rows, failing).repartition(2, "chunk"), arrays.adding()).toArrow()
    assert Path(mark).exists()
    assert arrays.gathered(found, task.length).tolist() == [1000, 0, 200, 200, 200, 200, 200]


def test_what_is_moved_does_not_grow_with_partitions(spark: Any) -> None:
    task = arrays.Pass((5,), ((0,),), (5,), tuple(tables.folds((5,), tables.Cliques.of([(0,)]), [(0,)], 1)))
    rows = spark.sql(tables.wire_sql("SELECT id % 5 AS c0 FROM range(0, 1000, 1, 200)", (5,))).coalesce(tasks(spark))
    assert shipping.mapped(rows, arrays.counting(task)).count() == tasks(spark) < 200


def test_a_worker_without_dpsql() -> None:
    """What goes to the workers loads, and counts, where dpsql cannot be imported."""
    from pyspark import cloudpickle

    shipping._register()
    task = arrays.Pass((3, 2), ((0,),), (3,), tuple(tables.folds((3, 2), tables.Cliques.of([(0,)]), [(0,)], 1)), arrays.Square((0, 1), 4, 0, 4))
    body = cloudpickle.dumps((arrays.counting(task), arrays.adding()))
    code = (
        "import sys, pickle, pyarrow as pa, numpy as np\n"
        "sys.modules['dpsql'] = None\n"
        "count, add = pickle.loads(sys.stdin.buffer.read())\n"
        "batch = pa.RecordBatch.from_arrays([pa.array([0, 5, 4])], names=['w0'])  # c1 + 4 c0\n"
        "found = list(add(count(iter([batch, batch]))))\n"
        "print(np.frombuffer(found[0].column(1)[0].as_py(), np.int64).tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], input=body, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    got = eval(done.stdout)
    assert got[:5] == [6, 0, 2, 4, 0]
    assert [got[5], got[7], got[15 - 5 + 5]] == [4, 2, 2]  # c0 = 1; with c1 = 1; c1 = 1


def test_moments(spark: Any) -> None:
    sizes, big = [3, 4], 2**16 - 1
    data = frame(sizes, 300)
    data["x"], data["y z"] = np.arange(300) % 7, big
    given = spark.createDataFrame(data.to_numpy(dtype=object).tolist(), "c0 INT, c1 INT, x INT, `y z` INT")
    given.createOrReplaceTempView("moments")
    con = duckdb.connect()
    con.register("given", data)
    con.execute('CREATE TABLE codes AS SELECT c0::UTINYINT AS c0, c1::UTINYINT AS c1, x::INTEGER AS x, "y z"::INTEGER AS "y z" FROM given')
    for clique in ((), (1, 0)):
        want = count_moments(con, "codes", sizes, clique, ["x", "y z"])
        got = values.count_moments(spark, "SELECT * FROM moments", sizes, clique, ["x", "y z"])
        assert np.array_equal(got[0], want[0])
        assert np.array_equal(got[1], want[1])
        assert got[2] == want[2]
    empty = values.count_moments(spark, "SELECT * FROM moments WHERE c0 > 99", sizes, (0,), ["x"])
    assert (empty[0].tolist(), empty[1].tolist(), empty[2]) == ([0, 0, 0], [[0], [0], [0]], [0])
    with pytest.raises(DpsqlError, match="no code"):
        values.count_moments(spark, "SELECT * FROM moments", [1, 1], (0,), ["x"])


def test_values(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relation, "check_table", lambda session, name: None)  # a view is no relation, and here does for one
    texts = ["", "a", "a", "ä", "A", "x'y"]
    con = duckdb.connect()
    con.execute("CREATE TABLE codes AS SELECT encode(v) AS v FROM (SELECT unnest(?) AS v)", [texts])
    want = dict(zip(*(list(part) for part in count_values(con, "codes", "v")), strict=True))
    spark.createDataFrame([[text] for text in texts], "v STRING").createOrReplaceTempView("texts")
    found, counts = values.count_values(spark, "SELECT encode(v, 'UTF-8') AS v FROM texts", "v")
    assert dict(zip(found, counts.tolist(), strict=True)) == want
    spark.sql("SELECT CAST(X'ff' AS STRING) AS v UNION ALL SELECT CAST(X'fe' AS STRING)").createOrReplaceTempView("broken")
    view = relation.viewed(spark, "broken", {"v": "VARCHAR"})
    broken = values.count_values(spark, f"SELECT encode(v, 'UTF-8') AS v FROM {view}", "v")
    assert (broken[0], broken[1].tolist()) == (["\ufffd"], [2]), "texts that are the same once they are UTF-8 count together"
    with pytest.raises(DpsqlError, match="withheld"):
        values.count_values(spark, "SELECT X'ff' AS v", "v")


def test_sums_beyond_64_bits(spark: Any) -> None:
    text = "SELECT id % 2 AS g, sum(CAST(9223372036854775807 AS DECIMAL(38, 0))) AS s, 'a' AS t FROM range(4) GROUP BY 1 ORDER BY 1"
    assert values.rows(spark, text) == [(0, 2**64 - 2, "a"), (1, 2**64 - 2, "a")]
    found = values.numpy(spark, text)
    assert found["s"].tolist() == [2**62, 2**62]
    assert found["s"].dtype == np.int64
    missing = values.numpy(spark, "SELECT sum(id) AS s FROM range(0)")["s"]
    assert np.ma.getmaskarray(missing).tolist() == [True]


def test_rows_are_kept_until_the_end(spark: Any) -> None:
    with values.kept(spark, "SELECT CAST(id % 2 AS INT) AS c0 FROM range(10)") as select:
        assert tables.count_select(spark, select, [2], [(0,)])[0][(0,)].tolist() == [5, 5]
        name = select.split()[-1]
    assert not spark.catalog.tableExists(name)


def test_all_pairs_of_a_random_table(spark: Any) -> None:
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 30, 27).tolist()
    text, duck, con = both(spark, frame(sizes, 2000, 3), sizes, 7)
    cliques = list(itertools.combinations(range(27), 2))
    want, _ = count_select(con, duck, sizes, cliques)
    got, total = tables.count_select(spark, text, sizes, cliques)
    assert total == 2000
    assert np.array_equal(got.flat, want.flat)


@pytest.mark.parametrize(
    ("cores", "more", "expected"),
    [(1, {}, 2), (2, {}, 4), (512, {}, 1024), (1000, {}, 1000), (9000, {}, 4096), (2, {"dynamic": "true"}, 200), (400, {"dynamic": "true"}, 800)],
)
def test_as_many_tasks_as_the_cluster_has_work_for(cores: int, more: dict[str, str], expected: int) -> None:
    """A thousand cores do not wait for 24 tasks of a second wave; where executors come with tasks, there are tasks."""
    given = {"spark.dynamicAllocation.enabled": more.get("dynamic", "false"), "spark.sql.shuffle.partitions": "200"}
    context = SimpleNamespace(defaultParallelism=cores)
    session = SimpleNamespace(_jsparkSession=None, sparkContext=context, conf=given)
    assert tasks(session) == expected
