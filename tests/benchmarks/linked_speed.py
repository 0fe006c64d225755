"""TPC-H as it is written, with customers as units: linked tables beside DuckDB's own answers.

python tests/benchmarks/linked_speed.py [--scale 0.1] [--folder FOLDER] [--repeat 3] [--only 1,5,21]

``orders`` are linked to ``customer`` and ``lineitem`` to ``orders``; part, partsupp, supplier, nation and region are public. The 22
queries are those of DuckDB's tpch extension (package duckdb-extension-tpch), word for word; 'AIR REG' of query 19, which no row has,
is declared. ``--folder``: a folder with a Parquet file of each table, and queries.parquet, for a DuckDB that has no such extension
(what COPY writes of the tables and of tpch_queries() where one is loaded). Twelve are aggregates
over customers' rows; three give out orders or customers; three read public tables alone; four need a first answer (adaptive).

``ratio`` is the least time of a new release over the least time of the plain query, of all repeats, by the clock and in seconds of CPU.
A first call, which imports modules, is not counted. ``error`` is the median of the relative errors of all numbers of the last answer
(epsilon .5), of groups that both answers have; ``lost``: groups of the plain answer that the private one has not.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import duckdb

import dpsql

sys.path.insert(0, str(Path(__file__).parents[1]))

from tpch_tables import protect_tpch

AGGREGATES = (1, 4, 5, 6, 7, 8, 9, 12, 13, 14, 19, 21)
KEYS = {
    "customer": "c_custkey", "orders": "o_orderkey", "part": "p_partkey", "supplier": "s_suppkey", "nation": "n_nationkey",
    "region": "r_regionkey", "partsupp": "ps_partkey, ps_suppkey",
}
GROUPED = {1: 2, 4: 1, 5: 1, 7: 3, 8: 1, 9: 2, 12: 1, 13: 1, 21: 1}
"""Columns of an answer that say its group, the first ones."""
Rows = list[tuple[Any, ...]]
MORE = {9: ", bounds := {'ps_supplycost': [0, 1000]}", **dict.fromkeys((15, 17, 20, 22), ", adaptive := true")}


def load(con: duckdb.DuckDBPyConnection, scale: float, folder: Path | None) -> dict[int, str]:
    """Make the tables, with their keys, from files or with the extension; return the queries."""
    if folder is not None:
        for table in (*KEYS, "lineitem"):
            con.execute(f"CREATE TABLE {table} AS FROM read_parquet('{folder}/{table}.parquet')")
        queries = f"read_parquet('{folder}/queries.parquet')"
    else:
        import duckdb_extension_tpch  # a package of the extension, where DuckDB has one

        found = next(Path(duckdb_extension_tpch.__file__).parent.rglob("*.duckdb_extension"))
        con.execute(f"LOAD '{found}'")
        con.execute(f"CALL dbgen(sf = {scale})")
        queries = "tpch_queries()"
    for table, key in KEYS.items():
        con.execute(f"CREATE UNIQUE INDEX {table}_key ON {table}({key})")
    return {int(n): str(text) for n, text in con.execute(f"SELECT query_nr, query FROM {queries}").fetchall()}


def least(con: duckdb.DuckDBPyConnection, texts: list[str]) -> tuple[float, float, Rows]:
    """Return the least seconds, and the least seconds of CPU, of some statements, and the last one's answer."""
    found, rows = [], Rows()
    for text in texts:
        start, cpu = time.perf_counter(), time.process_time()
        rows = con.execute(text).fetchall()
        found.append((time.perf_counter() - start, time.process_time() - cpu))
    return min(clock for clock, _ in found), min(cpu for _, cpu in found), rows


def errors(number: int, plain: Rows, private: Rows) -> str:
    """Return the median relative error of the numbers of a query's answer, and how many groups are not there."""
    keys = GROUPED.get(number, 0)
    true, found = ({row[:keys]: row[keys:] for row in rows} for rows in (plain, private))
    pairs = [pair for key in true if key in found for pair in zip(true[key], found[key], strict=True)]
    relative = [abs(float(noisy or 0) - float(exact)) / abs(float(exact)) for exact, noisy in pairs if exact]
    shown = f"{statistics.median(relative):7.1%}" if relative else "      -"
    return f"{shown} {len(true.keys() - found.keys()):>5}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--rows", choices=["all", "auto"], default="auto", help="rows of a customer that count: as linked, or learned")
    given = parser.parse_args()
    con = duckdb.connect()
    queries = load(con, given.scale, given.folder)
    dpsql.load(con, progress=False)
    protect_tpch(con)
    con.execute("FROM dp_query('SELECT count(*) FROM customer', epsilon := 0.1)").fetchall()  # modules are imported at a first call
    wanted = [int(n) for n in given.only.split(",")] if given.only else sorted(queries)
    ratios: dict[int, tuple[float, float]] = {}
    print(f"{'query':>6} {'plain s':>9} {'CPU':>6} {'private s':>10} {'CPU':>6} {'ratio':>7} {'CPU':>6} {'error':>7} {'lost':>5}")
    for number in wanted:
        text = queries[number].strip().rstrip(";")
        plain = least(con, [text] * given.repeat)
        rows = ", max_rows := 1000000" if given.rows == "all" and number in AGGREGATES else ""
        calls = [
            f"FROM dp_query($${text}$$, epsilon := 0.5{MORE.get(number, '')}{rows}, release := 'q{number}-{i}')" for i in range(given.repeat)
        ]
        try:
            private = least(con, calls)
        except duckdb.Error as error:
            print(f"{number:>6} refused: {str(error).splitlines()[0].split('UDF: ')[-1][:300]}", flush=True)
            continue
        ratios[number] = (private[0] / plain[0], private[1] / plain[1])
        shown = f"{plain[0]:9.3f} {plain[1]:6.3f} {private[0]:10.3f} {private[1]:6.3f}"
        print(f"{number:>6} {shown} {ratios[number][0]:7.1f} {ratios[number][1]:6.1f} {errors(number, plain[2], private[2])}", flush=True)
    of = [ratios[n] for n in AGGREGATES if n in ratios]
    means = [math.exp(sum(math.log(pair[i]) for pair in of) / len(of)) for i in range(2)] if of else [math.nan] * 2
    print(f"{len(of)} of {len(AGGREGATES)} aggregates: geometric mean {means[0]:.2f}, of CPU {means[1]:.2f}")


if __name__ == "__main__":
    main()
