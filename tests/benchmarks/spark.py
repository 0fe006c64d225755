"""Counting on Spark against DuckDB, in the same run: seconds, bytes that are shuffled, bytes that come to the driver.

    python tests/benchmarks/spark.py pairs [--rows 1e6 5e6 2e7 5e7] [--columns 27] [--cores 2] [--cluster]
    python tests/benchmarks/spark.py boolean [--rows 5e6] [--columns 1000] [--cluster]
    python tests/benchmarks/spark.py partitions [--partitions 10 1000] [--tasks 4 64 256 1024] [--cluster]
    python tests/benchmarks/spark.py roads
    python tests/benchmarks/spark.py rest [--rows 1e6 5e6]
    python tests/benchmarks/spark.py draw
    python tests/benchmarks/spark.py paper

``pairs``: all pairs of columns of 2 to 40 codes. ``boolean``: all pairs of columns of two codes. ``partitions``: few rows in few and in
many partitions, then counted by few and by many tasks, as a large cluster would have them (two a core): of all pairs of 27 columns, and
of k-tuples. ``roads``: from how many tables on arrays take less time than groups. ``rest``: what does not depend on Spark (noise, fit)
and what workers write a second. ``draw``: drawing alone, without Spark. ``paper``: no measurement, but what follows from them for more rows and cores (spark_paper.py).

Rows are arithmetic on range(); both engines read the same Parquet files (in ``--folder``, a temporary one by default), so that what is
compared is reading and counting. ``--cluster`` starts a standalone cluster of two workers of one core each; else Spark is in this
process (local[2]). CPU seconds are those of the whole process tree (JVMs and Python workers too), since clocks mislead on a shared
machine; of DuckDB those of this process. What the first statement of a shape takes more (planning, compiling) is measured on 1,000 rows
before. The exponents are those of bytes in rows. Checks that the integers are equal.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import duckdb
import numpy as np
import spark_paper
from dpsql.udfs import instance_of
from spark_meter import Spark

import dpsql
from dpsql.engines.duckdb.counting import count_select as duck_select
from dpsql.engines.spark import arrays, tables, tuples
from dpsql.engines.spark.tables import count_select
from dpsql.tables.tuple_index import TupleIndex

FILES = 8
"""Of each Parquet folder: a part is at least a file, so there are as many tasks at any number of rows."""
MOST_WIDE = 256
"""Tasks that count many cells too: a task on two cores takes a fifth of a second for 36,000 cells."""
MIXED = (2, 2, 3, 5, 8, 12, 20, 40, 2)


def formula(sizes: list[int], name: str = "id") -> list[str]:
    """Return the codes of row id: a mix of two congruences, so that columns depend on each other a little."""
    return [f"(({name} * {2 * i + 7919} + ({name} % 1009) * ({name} % {i + 11})) % 65521) % {size}" for i, size in enumerate(sizes)]


def written(folder: Path, sizes: list[int], rows: int) -> Path:
    """Return a folder of Parquet files of rows: BOOLEAN columns where there are two codes."""
    path = folder / f"{len(sizes)}-{rows}"
    if not path.exists():
        kinds = ["BOOLEAN" if size == 2 else "SMALLINT" for size in sizes]
        listed = ", ".join(f"CAST({code} AS {kind}) AS a{i}" for i, (code, kind) in enumerate(zip(formula(sizes), kinds, strict=True)))
        path.mkdir()
        with duckdb.connect() as con:
            con.execute("SET threads = 2")
            con.execute("SET preserve_insertion_order = false")
            for i in range(FILES):
                part = f"range({rows * i // FILES}, {rows * (i + 1) // FILES})"
                con.execute(f"COPY (SELECT {listed} FROM {part} t(id)) TO '{path / f'{i}.parquet'}' (FORMAT parquet)")
    return path


def spark_text(path: Path, columns: int) -> str:
    """Return the SELECT of codes for Spark."""
    return f"SELECT {', '.join(f'CAST(a{i} AS INT) AS c{i}' for i in range(columns))} FROM parquet.`{path}`"


def compare(spark: Spark, folder: Path, sizes: list[int], rows: int, cliques: list[tuple[int, ...]]) -> tuple[float, ...]:
    """Print one line; return rows, shuffled bytes, bytes to the driver, CPU seconds of both."""
    path, count = written(folder, sizes, rows), len(sizes)
    used, moved, (got, total) = spark.watched(lambda: count_select(spark.session, spark_text(path, count), sizes, cliques))
    con = duckdb.connect()
    con.execute("SET threads = 2")
    text = f"SELECT {', '.join(f'CAST(a{i} AS UTINYINT) AS c{i}' for i in range(count))} FROM read_parquet('{path}/*.parquet')"
    duck, (want, _) = spark.measured(lambda: duck_select(con, text, sizes, cliques))
    assert total == rows
    assert np.array_equal(got.flat, want.flat)
    print(
        f"{rows:>12,} rows  Spark {used} (driver {used.driver:.1f} s);  DuckDB {duck.wall:.1f} s, CPU {duck.driver:.1f} s;  CPU "
        f"{used.all / duck.driver:.2f} times  {len(cliques):,} tables, {got.flat.size:,} cells;  {moved.tasks} tasks shuffled "
        f"{moved.shuffled:,} bytes, to the driver {moved.result:,} bytes; driver: Python grew {moved.python:.0f} MB, heap {spark.heap():.0f} MB",
        flush=True,
    )
    return rows, moved.shuffled, moved.result, used.all, duck.driver


def growth(found: list[tuple[float, ...]]) -> None:
    """Print the exponents of bytes in rows, first to last, and the CPU seconds of each row beyond the first point's."""
    if len(found) > 1:
        (rows, *first), (most, *last) = found[0], found[-1]
        shuffled, result = (math.log(last[i] / first[i]) / math.log(most / rows) for i in (0, 1))
        spark, duck = (1e9 * (last[i] - first[i]) / (most - rows) for i in (2, 3))
        print(f"exponent in rows: shuffled {shuffled:.3f}, to the driver {result:.3f}")
        print(f"CPU of one more row: Spark {spark:.0f} ns, DuckDB {duck:.0f} ns, {spark / duck:.2f} times", flush=True)


def curve(spark: Spark, folder: Path, boolean: bool, columns: int, rows: list[int]) -> None:
    """Compare at some numbers of rows."""
    sizes = [2] * columns if boolean else [MIXED[i % 9] for i in range(columns)]
    cliques = list(itertools.combinations(range(columns), 2))
    path = written(folder, sizes, 1000)
    for told in ("first", "second"):
        used, _ = spark.measured(lambda: count_select(spark.session, spark_text(path, columns), sizes, cliques))
        print(f"1,000 rows, the {told} time: {used} (driver {used.driver:.1f} s)", flush=True)
    growth([compare(spark, folder, sizes, n, cliques) for n in rows])


@contextmanager
def tasks(count: int) -> Iterator[None]:
    """Count with so many tasks, as on a cluster of that size."""
    with mock.patch.object(tables, "tasks", lambda session: count), mock.patch.object(tuples, "tasks", lambda session: count):
        yield


def partitions(spark: Spark, parts: list[int], counts: list[int], rows: int) -> None:
    """Count few rows in few and many partitions, with few and many tasks."""
    sizes = [2, 3, 5, 8, 12]
    for many in parts:
        listed = ", ".join(f"CAST({code} AS INT) AS c{i}" for i, code in enumerate(formula(sizes)))
        text = f"SELECT {listed} FROM range(0, {rows}, 1, {many})"
        for road in ("arrays", "groups"):
            cliques = list(itertools.combinations(range(5), 2))
            used, moved, _ = spark.watched(lambda t=text, r=road, c=cliques: count_select(spark.session, t, sizes, c, road=r))
            print(f"{many} partitions, {road}: {used} (driver {used.driver:.2f} s), {moved.tasks} tasks", flush=True)
    few = [40, 20, 12, 8, 12, 20, 5]
    index = TupleIndex(tuple(few), 3)
    keys = np.arange(*index.level_keys(3))
    adding(keys.size)
    for count in counts:
        for shape in (sizes, [MIXED[i % 9] for i in range(27)], few):
            if shape is not sizes and count > MOST_WIDE:
                continue
            listed = ", ".join(f"CAST({code} AS INT) AS c{i}" for i, code in enumerate(formula(shape)))
            text, pairs = f"SELECT {listed} FROM range(0, {rows}, 1, {count})", list(itertools.combinations(range(len(shape)), 2))
            with tasks(count):
                if shape is few:
                    call = functools.partial(tuples.count_bounded, spark.session, text, index, keys, (), most=35)
                    told = f"{keys.size:,} tuples of three"
                else:
                    call = functools.partial(count_select, spark.session, text, shape, pairs, road="arrays")
                    told = f"{sum(shape[a] * shape[b] for a, b in pairs):,} cells of pairs"
                used, moved, _ = spark.watched(call)
            print(
                f"counted by {count} tasks, {told}: {used} (driver {used.driver:.2f} s), {moved.tasks} tasks, shuffled {moved.shuffled:,} bytes, "
                f"to the driver {moved.result:,} bytes, heap {spark.heap():.0f} MB",
                flush=True,
            )


def adding(cells: int, count: int = 128) -> None:
    """Time how a reducer's Python adds the arrays of so many tasks."""
    chunks = list(arrays.chunks(np.random.default_rng(1).integers(0, 100, cells)))
    begun = time.process_time()
    for _ in arrays.adding()(chunk for _ in range(count) for chunk in chunks):
        pass
    print(f"adding arrays, Python's part: {1e9 * (time.process_time() - begun) / (count * cells):.1f} ns for a cell of a task", flush=True)


def roads(spark: Spark, folder: Path) -> None:
    """Count a few tables on both roads."""
    sizes = [MIXED[i % 9] for i in range(27)]
    text = spark_text(written(folder, sizes, 1_000_000), 27)
    pairs = list(itertools.combinations(range(27), 2))
    for repeat, count, road in itertools.product((1, 2), (1, 3, 4, 8), ("groups", "arrays")):
        used, _ = spark.measured(lambda r=road, c=pairs[:count]: count_select(spark.session, text, sizes, c, road=r))
        print(f"{count} tables, {road}, time {repeat}: {used}", flush=True)


def rest(spark: Spark, url: str, folder: Path, rows: list[int]) -> None:
    """Time the stages of a whole call by number of rows, and the writing of synthetic rows on the workers and here."""
    sizes = [MIXED[i % 9] for i in range(27)]
    for n in rows:
        path = written(folder, sizes, n)
        con = duckdb.connect()
        con.execute("SET threads = 2")
        dpsql.load(con, progress=False)
        con.execute("CALL dp_remote('people', engine := 'spark', url := $1, relation := $2)", [url, f"parquet:{path}"])
        dpsql.protect(con, "people", epsilon=900.0, delta=1e-9)
        for i, size in enumerate(sizes):
            if size > 2:
                dpsql.declare(con, "people", f"a{i}", categories=list(range(size)), nullable=False)
            else:
                dpsql.declare(con, "people", f"a{i}", nullable=False)
        for epsilon in (1.0, 30.0):
            call = f"FROM dp_synthesize('people', epsilon := {epsilon}, release := 'e{epsilon:.0f}', rows := 0)"
            here = time.process_time()
            used, _ = spark.measured(lambda con=con, call=call: con.execute(call).fetchall())
            here = time.process_time() - here
            stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in instance_of(con).last_seconds.items())
            print(f"{n:,} rows, epsilon {epsilon:.0f}: {used} (this process, without Java, {here:.1f} s); seconds of {stages}", flush=True)
    release = con.execute("SELECT release FROM dp_releases() WHERE contains(release, '-e1-')").fetchone()[0]
    points = []
    for n in (1 << 19, 1 << 21, 1 << 22):
        target = folder / f"synth-{n}"
        into = f"FROM dp_sample('{release}', rows := {n}, into_table := $1)"
        used, _ = spark.measured(lambda into=into, target=target: con.execute(into, [f"spark:parquet:{target}"]).fetchall())
        shutil.rmtree(target)
        duck, _ = spark.measured(lambda into=into, name=f"synth_{n}": con.execute(into, [name]).fetchall())
        con.execute(f"DROP TABLE synth_{n}")
        points.append((n, used.all, duck.driver))
        print(f"{n:,} rows written: Spark {used} (driver {used.driver:.1f} s); DuckDB {duck.wall:.1f} s, CPU {duck.driver:.1f} s", flush=True)
    each, duck_each = (1e9 * (points[-1][i] - points[0][i]) / (points[-1][0] - points[0][0]) for i in (1, 2))
    print(f"CPU of one more row written: Spark {each:.0f} ns, DuckDB {duck_each:.0f} ns", flush=True)


def draw() -> None:
    """Time drawing without Spark: the same model, and the same code draws on a worker."""
    sizes = [MIXED[i % 9] for i in range(27)]
    con = duckdb.connect()
    con.execute("SET threads = 2")
    dpsql.load(con, progress=False)
    listed = ", ".join(f"CAST({code} AS SMALLINT) AS a{i}" for i, code in enumerate(formula(sizes)))
    con.execute(f"CREATE TABLE people AS SELECT {listed} FROM range(100000) t(id)")
    dpsql.protect(con, "people", epsilon=1.0, delta=1e-9)
    for i, size in enumerate(sizes):
        dpsql.declare(con, "people", f"a{i}", categories=list(range(size)), nullable=False)
    begun = time.process_time()
    con.execute("FROM dp_synthesize('people', epsilon := 1, release := 'fast', rows := 0, options := {effort: 'fast'})").fetchall()
    print(f"100,000 rows on DuckDB, effort 'fast': CPU {time.process_time() - begun:.1f} s", flush=True)
    release = con.execute("SELECT release FROM dp_releases()").fetchone()[0]
    points = []
    for n in (50_000, 500_000, 2_500_000):  # the first one warms up
        begun = time.process_time()
        con.execute(f"FROM dp_sample('{release}', rows := {n}, into_table := 'synth_{n}')").fetchall()
        points.append((n, time.process_time() - begun))
        print(f"{n:,} rows drawn and written by DuckDB: CPU {points[-1][1]:.1f} s", flush=True)
    print(f"CPU of one more row: {1e9 * (points[2][1] - points[1][1]) / (points[2][0] - points[1][0]):.0f} ns", flush=True)


def main() -> None:
    """Run one of the benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["pairs", "boolean", "partitions", "roads", "rest", "draw", "paper"])
    parser.add_argument("--rows", type=float, nargs="+")
    parser.add_argument("--columns", type=int)
    parser.add_argument("--partitions", type=int, nargs="*", default=[10, 1000])
    parser.add_argument("--tasks", type=int, nargs="+", default=[4, 64, 256, 1024])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--memory", default="2g")
    parser.add_argument("--folder")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.what == "paper":
        spark_paper.show()
        return
    if given.what == "draw":
        draw()
        return
    with ExitStack() as stack:
        made = stack.enter_context(tempfile.TemporaryDirectory(dir=given.folder))
        folder = Path(given.folder or made)
        url = f"local[{given.cores}]"
        if given.cluster:
            sys.path.append(str(Path(__file__).parents[1]))
            from spark_clusters import Cluster

            url = stack.enter_context(Cluster(Path(made), workers=given.cores)).url
        spark = Spark(url, given.memory, {})
        stack.callback(spark.session.stop)
        print(f"{'a cluster of two workers' if given.cluster else url}: {spark.overhead()}", flush=True)
        rows = [int(n) for n in given.rows or []]
        if given.what == "pairs":
            curve(spark, folder, False, given.columns or 27, rows or [1_000_000, 5_000_000])
        elif given.what == "boolean":
            curve(spark, folder, True, given.columns or 1000, rows or [100_000, 5_000_000])
        elif given.what == "partitions":
            partitions(spark, given.partitions, given.tasks, (rows or [100_000])[0])
        elif given.what == "roads":
            roads(spark, folder)
        else:
            rest(spark, url, folder, rows or [1_000_000, 5_000_000])


if __name__ == "__main__":
    main()
