"""Errors of four totals over TPC-H's links beside the published ones of R2T: queries 3, 10, 12 and 18.

python tests/benchmarks/linked_accuracy.py [--scale 1] [--draws 5] [--epsilon 0.8] [--only 10,12] [--folder FOLDER]

The totals are those of R2T (Dong, Fang, Yi, Tao, Machanavajjhala, SIGMOD 2022, doi 10.1145/3514221.3517844), which counts and sums
what the queries join, on TPC-H of scale 1, at epsilon .8 and delta 0: Q3, line items of orders before 1995-03-15 (2.9 million); Q10,
orders (1.5 million); Q12, line items, the unit being an order (6.0 million); Q18, quantities of line items (153 million). Of the others the
unit is a customer; the errors printed beside ours are the published ones, whatever the scale here is.

*by unit*: ``sum(n)`` over one number a unit, ``bounds := 'auto'``: of a unit's number nothing is known beforehand, as in R2T, and the bound
is bought with the answer. *by rows*: the query as it is written, rows of a unit bounded by what links say: at most 41 orders of a
customer and 7 lines of an order, which no unit exceeds at scale 1. Laplace noise; mean and largest absolute error over the draws, each
of which is a release that reads the tables anew. The tables come from DuckDB's tpch extension (package
duckdb-extension-tpch), or from --folder (customer.parquet, orders.parquet, lineitem.parquet).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np

import dpsql

COLUMNS = {
    "customer": "c_custkey", "orders": "o_orderkey, o_custkey, o_orderdate", "lineitem": "l_orderkey, l_quantity",
}  # fmt: skip
KEYS = {"customer": "c_custkey", "orders": "o_orderkey"}
LINES = "customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON o_orderkey = l_orderkey"
EARLY = "WHERE o_orderdate < DATE '1995-03-15'"
TOTALS = {
    3: ("count(*)", LINES, EARLY, "c_custkey", 7_339), 10: ("count(*)", "customer JOIN orders ON c_custkey = o_custkey", "", "c_custkey", 2_615),
    12: ("count(*)", "orders JOIN lineitem ON o_orderkey = l_orderkey", "", "o_orderkey", 1_373),
    18: ("sum(l_quantity)", LINES, "", "c_custkey", 201_957),
}  # fmt: skip
"""Query -> the number, its rows, which of them, the unit, and R2T's published error at epsilon .8."""


def load(con: duckdb.DuckDBPyConnection, scale: float, folder: Path | None) -> None:
    """Make the columns that are read, with their keys, from files or with the extension."""
    if folder is not None:
        for table, columns in COLUMNS.items():
            con.execute(f"CREATE TABLE {table} AS SELECT {columns} FROM read_parquet('{folder / table}.parquet')")
    else:
        import duckdb_extension_tpch  # a package of the extension, where DuckDB has one

        con.execute(f"LOAD '{next(Path(duckdb_extension_tpch.__file__).parent.rglob('*.duckdb_extension'))}'")
        with tempfile.TemporaryDirectory() as place:  # all columns are wide
            con.execute(f"ATTACH '{place}/whole.duckdb' AS whole; USE whole; CALL dbgen(sf = {scale}); USE memory")
            for table, columns in COLUMNS.items():
                con.execute(f"CREATE TABLE {table} AS SELECT {columns} FROM whole.{table}")
            con.execute("DETACH whole")
    for table, key in KEYS.items():
        con.execute(f"CREATE UNIQUE INDEX {table}_key ON {table}({key})")


def other_unit(con: duckdb.DuckDBPyConnection) -> None:
    """Go on with a copy of orders and their lines, of which an order is the unit."""
    con.execute("CREATE SCHEMA by_order; CREATE TABLE by_order.orders AS FROM orders; CREATE TABLE by_order.lineitem AS FROM lineitem")
    con.execute("USE by_order; CREATE UNIQUE INDEX order_key ON orders(o_orderkey)")


def protect(con: duckdb.DuckDBPyConnection, root: str) -> None:
    """Protect and link the tables; the unit is a row of ``root``."""
    con.execute(f"CALL dp_protect('{root}', epsilon := 1000, accountant := 'basic', privacy_unit := '{KEYS[root]}', max_contributions := 1)")
    if root == "customer":
        con.execute("CALL dp_link('orders', 'o_custkey', parent := 'customer', parent_column := 'c_custkey', max_rows := 41)")
    con.execute("CALL dp_link('lineitem', 'l_orderkey', parent := 'orders', parent_column := 'o_orderkey', max_rows := 7)")
    con.execute("CALL dp_declare('lineitem', 'l_quantity', lower := 0, upper := 50)")


def errors(con: duckdb.DuckDBPyConnection, text: str, more: str, true: float, epsilon: float, draws: int, name: str) -> tuple[float, ...]:
    """Return the mean and the largest absolute error of some draws, and seconds of one."""
    found, started = [], time.perf_counter()
    for draw in range(draws):
        [(value,)] = con.execute(
            f"FROM dp_query($${text}$$, epsilon := {epsilon}, mechanism := 'laplace', release := '{name} {draw}'{more})"
        ).fetchall()
        found.append(abs(float(value) - true))
    return float(np.mean(found)), max(found), (time.perf_counter() - started) / draws


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--epsilon", type=float, default=0.8)
    parser.add_argument("--only", default="3,10,12,18")
    given = parser.parse_args()
    con = duckdb.connect()
    load(con, given.scale, given.folder)
    dpsql.load(con, progress=False)
    print(f"TPC-H, scale {given.scale:g}, epsilon {given.epsilon:g}, Laplace, {given.draws} draws, DuckDB {duckdb.__version__}")
    print(f"{'query':>5} {'unit':>10} {'true':>13} {'R2T':>9}   {'by unit':>20} {'s':>5}   {'by rows':>20} {'s':>5}", flush=True)
    protected = ""
    for number in sorted(map(int, given.only.split(",")), key=lambda number: (TOTALS[number][3], number)):
        total, rows, where, unit, published = TOTALS[number]
        root = next(table for table, key in KEYS.items() if key == unit)
        if root != protected:
            if root == "orders":
                other_unit(con)
            protect(con, root)
        protected = root
        true = float(con.execute(f"SELECT {total} FROM {rows} {where}").fetchall()[0][0])
        texts = {"by unit": (f"SELECT sum(n) FROM (SELECT {unit}, {total} AS n FROM {rows} {where} GROUP BY {unit})", ", bounds := 'auto'"),
                 "by rows": (f"SELECT {total} FROM {rows} {where}", "")}  # fmt: skip
        shown = []
        for way, (text, more) in texts.items():
            mean, most, seconds = errors(con, text, more, true, given.epsilon, given.draws, f"q{number} {way}")
            shown.append(f"{f'{mean:,.1f} ({most:,.0f})':>20} {seconds:>5.1f}")
        print(f"{number:>5} {root:>10} {true:>13,.0f} {published:>9,}   {'   '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
