"""Counting over Spark Connect beside DuckDB: seconds, bytes that come to the driver, memory, as rows and columns grow.

    python tests/benchmarks/scale_out.py [--shapes even27x1000000 even27x5000000] [--folder DIR] [--threads 2] [--repeat 1] [--url sc://...]
        [--parts 1000]

A shape is named as in scale.py: evenMxN (M columns of 8 values), surveyN (27 columns, 674 values) or binaryMxN (M columns of two values), N rows. It
is made once (seeded), kept in --folder as a table of DuckDB and as a folder of Parquet files of the same rows, and counted by DuckDB, in a process of
its own, and by a server of Spark Connect: Sail in another process with as many threads, or the one at --url, which has to see the folder. Two calls
are timed, each a new purchase: `dp_marginals` of all pairs, and a `dp_query` of a count, two means and a distinct count by one column. Of each the
table says the seconds, how many times DuckDB's that is, what came to the driver (bytes of arrow tables), the driver's largest resident memory, and the
server's; at the end how bytes and seconds grow with the rows (exponents), and the seconds of a call over one row: what a call costs whatever the rows. --parts: the rows
lie in so many files of one size, each a task at least, to see what tasks cost the driver.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import shapes

import dpsql

SERVER = """
import resource, sys
from pysail.spark import SparkConnectServer
server = SparkConnectServer("127.0.0.1", 0)
server.start(background=True)
print("sc://{}:{}".format(*server.listening_address), flush=True)
sys.stdin.readline()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000, flush=True)
"""


def shape_of(name: str) -> shapes.Shape:
    """Return a shape by its name."""
    survey = re.fullmatch(r"survey(\d+)", name)
    if survey:
        return shapes.survey(int(survey[1]))
    kind, columns, rows = re.fullmatch(r"(binary|even)(\d+)x(\d+)", name).groups()
    return (shapes.binary if kind == "binary" else shapes.even)(int(columns), int(rows))


def made(name: str, folder: Path, parts: int | None) -> tuple[Path, Path]:
    """Return a database file and a folder of Parquet files with the same rows; both are made if they are not there."""
    table, files = folder / f"{name}.duckdb", folder / (name if parts is None else f"{name}in{parts}")
    if not table.is_file():
        partial = table.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        with duckdb.connect(str(partial)) as con:
            shapes.make(con, "t", shape_of(name))
        partial.rename(table)
    if not files.is_dir():
        with duckdb.connect(str(table)) as con:
            if parts is None:
                con.execute(f"COPY t TO '{files}' (FORMAT parquet, PER_THREAD_OUTPUT)")
            else:
                files.mkdir()
                size = -(-shape_of(name).rows // parts)
                for part in range(parts):
                    con.execute(f"COPY (FROM t WHERE rowid BETWEEN {part * size} AND {(part + 1) * size - 1}) TO '{files}/{part}.parquet' (FORMAT parquet)")
    return table, files


@contextmanager
def served(threads: int) -> Iterator[tuple[str, Callable[[], int]]]:
    """Give the address of a server in a process of its own, and a function that ends it and returns its megabytes."""
    environment = {**os.environ, "RUST_LOG": "off", "TOKIO_WORKER_THREADS": str(threads), "DATAFUSION_EXECUTION_TARGET_PARTITIONS": str(threads)}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([sys.executable, "-c", SERVER], env=environment, **pipes) as process:
        def end() -> int:
            return int(process.communicate("\n")[0].split()[-1])

        try:
            yield process.stdout.readline().strip(), end
        finally:
            process.kill()


def calls(shape: shapes.Shape) -> dict[str, str]:
    names = shape.names
    means = [f"avg({name}::INTEGER)" if shape.boolean else f"avg({name})" for name in names[1:3]]
    query = f"SELECT {names[0]}, count(*), {', '.join(means)}, count(DISTINCT {names[3]}) FROM t GROUP BY ALL"
    return {"pairs": "FROM (FROM dp_marginals('t', k := 2, epsilon := 1)) LIMIT 0", "query": f"FROM dp_query('{query}', epsilon := 1)"}


def one_run(name: str, table: Path | None, files: Path, url: str | None) -> dict[str, Any]:
    """Time the calls in this process, which counts in DuckDB where there is no url."""
    shape, moved = shape_of(name), [0]
    with tempfile.TemporaryDirectory() as work:
        con = duckdb.connect(str(Path(work) / "books.duckdb"))
        if url is None:
            con.execute(f"ATTACH '{table}' AS raw")
            con.execute("USE raw")
        dpsql.load(con, store=Path(work) / "store", progress=False)
        if url is None:
            con.execute("DROP SCHEMA IF EXISTS raw.dpsql CASCADE")
        else:
            from dpsql.engines.spark.reading import SparkReading

            arrow = SparkReading.arrow

            def weighed(reading: SparkReading, make: Callable[[], Any]) -> Any:
                found = arrow(reading, make)
                moved[0] += found.nbytes
                return found

            SparkReading.arrow = weighed  # type: ignore[method-assign]
            dpsql.remote(con, "t", engine="spark", url=url, relation=f"parquet:{files}")
        dpsql.protect(con, "t", epsilon=100, delta=1e-9)
        for column, size in zip(shape.names, shape.sizes, strict=True):
            if shape.boolean:
                dpsql.declare(con, "t", column, nullable=False)
            else:
                dpsql.declare(con, "t", column, lower=0, upper=size - 1, bins=size, nullable=False)
        found: dict[str, Any] = {"seconds": {}, "bytes": {}}
        for call, text in calls(shape).items():
            moved[0], before = 0, time.perf_counter()
            con.execute(text).fetchall()
            found["seconds"][call], found["bytes"][call] = time.perf_counter() - before, moved[0]
        if url is None:
            con.execute("DROP SCHEMA IF EXISTS raw.dpsql CASCADE")
        con.close()
    return {**found, "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000}


def apart(name: str, table: Path, files: Path, url: str | None) -> dict[str, Any]:
    """Run `one_run` in a process of its own."""
    command = [sys.executable, __file__, "--one", name, "--table", str(table), "--files", str(files), *([] if url is None else ["--url", url])]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def exponent(points: list[tuple[float, float]]) -> float:
    """Return the slope of least squares between logarithms."""
    xs, ys = [math.log(x) for x, _ in points], [math.log(max(y, 1e-9)) for _, y in points]
    middle, mean = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - middle) * (y - mean) for x, y in zip(xs, ys, strict=True)) / sum((x - middle) ** 2 for x in xs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["even27x1", "even27x1000000", "even27x5000000"])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "dpsql-scale-out")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--parts", type=int)
    parser.add_argument("--url")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--table", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--files", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(one_run(chosen.one, chosen.table, chosen.files, chosen.url)))
        return
    chosen.folder.mkdir(parents=True, exist_ok=True)
    print(f"DuckDB {duckdb.__version__}, {chosen.threads} threads; least seconds of {chosen.repeat}\n")
    print("| shape | call | DuckDB s | Spark s | ratio | to the driver | driver MB (DuckDB's process) | server MB |\n| --- | --- | --- | --- | --- | --- | --- | --- |")
    curves: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for name in chosen.shapes:
        table, files = made(name, chosen.folder, chosen.parts)
        own = [apart(name, table, files, None) for _ in range(chosen.repeat)]
        with served(chosen.threads) as (url, end):
            there = [apart(name, table, files, chosen.url or url) for _ in range(chosen.repeat)]
            server = end()
        for call in own[0]["seconds"]:
            here, away = (min(run["seconds"][call] for run in runs) for runs in (own, there))
            size, rows = there[0]["bytes"][call], shape_of(name).rows
            print(f"| {name} | {call} | {here:.2f} | {away:.2f} | {away / here:.1f} | {size:,} | {there[0]['megabytes']} ({own[0]['megabytes']}) | {server} |", flush=True)
            if rows > 1:
                for kind, value in (("bytes", float(size)), ("seconds", away)):
                    curves.setdefault((call, kind), []).append((float(rows), value))
    print()
    for (call, kind), points in curves.items():
        if len({x for x, _ in points}) > 1:
            print(f"{kind} of {call} grow as the rows to the {exponent(points):.3f}")


if __name__ == "__main__":
    main()
