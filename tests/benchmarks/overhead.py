"""What a call costs beside the reading of rows: dp_query and dp_marginals on a small table in a database file, new and repeated.

usage: OPENBLAS_NUM_THREADS=1 python tests/benchmarks/overhead.py [--runs 15] [--releases 0 1000 10000] [--groups 200000]

Printed are medians of the runs: milliseconds on the clock and of the processor, the processor's in units of `SELECT 1` beside the
same runs (a busy machine slows both), and the statements that dpsql's own cursor executes in one such call; for each number of
releases that the books have before. ``--groups``: beside these, an answer of so many groups, without and with intervals.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import duckdb

import dpsql
from dpsql.session.instance import Instance

sys.path.insert(0, str(Path(__file__).parents[1]))

from long_books import extend, releases

SETUP = (
    "CREATE TABLE t AS SELECT i % 1000 AS p, i % 3 AS g, (i % 100)::DOUBLE AS x FROM range(10_000) r(i)",
    "CALL dp_protect('t', epsilon := 1000, delta := 1e-9, privacy_unit := 'p', max_contributions := 10)",
    "CALL dp_declare('t', 'x', lower := 0, upper := 100)",
    "CALL dp_declare('t', 'g', categories := [0, 1, 2], nullable := false)",
)
QUERY = "FROM dp_query('SELECT g, count(*), avg(x) FROM t WHERE x < {} GROUP BY g', epsilon := 0.005)"
TABLE = "FROM dp_marginals('t', columns := ['g'], epsilon := 0.005, release := 'r{}')"


class Counting:
    """A cursor that counts the statements it is given."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor, self.count = cursor, 0

    def __getattr__(self, name: str) -> Any:  # the cursor's own method, called in the frame whose variables it may read
        self.count += name == "execute"
        return getattr(self._cursor, name)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return how long something takes, in milliseconds: on the clock, and of the processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return 1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - cpu)


def statements(con: duckdb.DuckDBPyConnection, text: str) -> int:
    """Return how many statements a call executes on dpsql's own cursor."""
    made: list[Counting] = []
    take = Instance.take

    def counting(instance: Instance) -> Any:
        made.append(Counting(take(instance)))
        return made[-1]

    Instance.take = counting  # type: ignore[method-assign]
    try:
        con.execute(text).fetchall()
    finally:
        Instance.take = take  # type: ignore[method-assign]
    return sum(cursor.count for cursor in made)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--releases", type=int, nargs="+", default=[0])
    parser.add_argument("--groups", type=int, nargs="*", default=[])
    arguments = parser.parse_args()
    shown = f"(ms, medians of {arguments.runs} runs)"
    print(f"{'releases':>8}  {'':24} {'clock':>7} {'processor':>10} {'SELECT 1':>9} {'statements':>11}   {shown}")
    for many in arguments.releases:
        measure(many, arguments.runs)
    for groups in arguments.groups:
        answer(groups)


def answer(groups: int) -> None:
    """Print what an answer of many public groups takes, and DuckDB's own of the same statement."""
    with duckdb.connect() as con:
        dpsql.load(con, progress=False)
        con.execute(f"CREATE TABLE t AS SELECT i AS p, i % {groups} AS g, (i % 100)::DOUBLE AS x FROM range({5 * groups}) r(i)")
        con.execute("CALL dp_protect('t', epsilon := 1000, delta := 1e-9, privacy_unit := 'p', max_contributions := 1)")
        con.execute("CALL dp_declare('t', 'x', lower := 0, upper := 100)")
        con.execute(f"CALL dp_declare('t', 'g', lower := 0, upper := {groups - 1})")
        sql = "SELECT g, count(*) AS n, avg(x) AS m FROM t GROUP BY g"
        con.execute("FROM dp_query('SELECT count(*) FROM t', epsilon := 1)").fetchall()  # the first one loads modules
        calls = {
            "DuckDB's own": sql,
            "dp_query": f"FROM dp_query('{sql}', epsilon := 1)",
            "dp_query, confidence": f"FROM dp_query('{sql}', epsilon := 1.1, confidence := 0.95)",
        }
        for name, call in calls.items():
            wall, cpu = timed(lambda call=call: con.execute(call).fetchnumpy())
            print(f"{groups:9,} groups  {name:24} {wall / 1e3:7.2f} s {cpu / 1e3:7.2f} s of the processor", flush=True)


def measure(many: int, runs: int) -> None:
    """Print what calls cost on books of so many releases."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "small.duckdb")
        with duckdb.connect(path) as con:
            dpsql.load(con, progress=False)
            for statement in (*SETUP, TABLE.format("first")):
                con.execute(statement)
            extend(con, "main.t", releases(many))
        with duckdb.connect(path) as con:
            dpsql.load(con, progress=False)
            for name, call in (("dp_query", QUERY), ("dp_marginals", TABLE)):
                times: dict[str, list[tuple[float, float, float]]] = {"new": [], "repeated": []}
                for run in range(runs + 2):
                    text = call.format(run + 1)
                    for kind in times:
                        took = timed(lambda text=text: con.execute(text).fetchall())
                        unit = median(timed(lambda: con.execute("SELECT 1").fetchall())[1] for _ in range(9))
                        if run > 1:  # the first ones load modules, and read the books
                            times[kind].append((*took, took[1] / unit))
                text = call.format(runs + 50)
                counts = {"new": statements(con, text), "repeated": statements(con, text)}
                for kind, each in times.items():
                    wall, cpu, units = (median(values) for values in zip(*each, strict=True))
                    print(f"{many:8}  {f'{name}, {kind}':24} {wall:7.1f} {cpu:10.1f} {units:9.0f} {counts[kind]:11}", flush=True)


if __name__ == "__main__":
    main()
