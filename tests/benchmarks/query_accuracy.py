"""Errors and seconds of dp_query: TPC-H counts and sums with known bounds, and many groups of a million rows.

python tests/benchmarks/query_accuracy.py [--scale 0.1] [--runs 20] [--only tpch|groups]

*tpch*: orders and line items with the distributions of the TPC-H specification (4.2.3), of the columns that are asked for: two of
three customers have orders, 15 on average; 1 to 7 lines each; quantities 1 to 50; order dates uniform from 1992-01-01 to 1998-08-02.
Q10: number of orders; Q3: lines of orders before 1995-03-15; Q18: sum of quantities (unit: customer); Q12: lines (unit: order). Pure
epsilon, Laplace noise, each unit's total one number that is clipped at a known cap: the largest total there is (``known``), or half
of it. No cap is learned. Mean absolute error over the runs.

*groups*: a million rows, 200 groups, 100,000 units of 10 rows, amounts in [0, 100]; count, sum and avg in one query at (1, 1e-6),
max_groups := 10, max_rows_per_group := 1. Root mean squared error over groups and runs, seconds of CPU time and by the clock
(median). The amounts are declared to have no NULL, then not: rows with NULL take a counter of their own. Then the same three
numbers from two queries that share epsilon, and medians.
"""

from __future__ import annotations

import argparse
import statistics
import time

import duckdb
import numpy as np

import dpsql

EPSILONS = (0.1, 0.8, 3.2)


def tpch(con: duckdb.DuckDBPyConnection, scale: float) -> None:
    """Make ``lines`` and ``orders``."""
    customers = int(150_000 * scale)
    con.execute("SELECT setseed(0.42)")
    con.execute(
        f"""
        CREATE TABLE orders AS
        SELECT i AS orderkey, k + (k - 1) // 2 AS custkey, DATE '1992-01-01' + (random() * 2406)::INTEGER AS orderdate
        FROM (SELECT i, 1 + (random() * {customers * 2 // 3} - 0.5)::INTEGER AS k FROM range({customers * 10}) t(i))
        """
    )  # custkey is never a multiple of 3
    con.execute(
        """
        CREATE TABLE lines AS
        SELECT orderkey, custkey, orderdate, 1 + floor(random() * 50)::INTEGER AS quantity
        FROM (SELECT *, unnest(range((1 + floor(random() * 7))::INTEGER)) AS line FROM orders)
        """
    )


TOTALS = {
    "Q10 orders": ("orders", "custkey", "count(*)", ""),
    "Q3 line items": ("lines", "custkey", "count(*)", "WHERE orderdate < DATE '1995-03-15'"),
    "Q12 line items by order": ("lines", "orderkey", "count(*)", ""),
    "Q18 quantity": ("lines", "custkey", "sum(quantity)", ""),
}


def run_tpch(scale: float, runs: int) -> None:
    """Print the errors of the four totals."""
    con = duckdb.connect()
    tpch(con, scale)
    dpsql.load(con, progress=False)
    print(f"TPC-H, scale {scale:g}; mean absolute error of {runs} runs, Laplace, cap known")
    print(f"{'':24} {'true':>12} {'cap':>6} " + " ".join(f"eps {e:g} (s)".rjust(18) for e in EPSILONS))
    for name, (table, unit, total, where) in TOTALS.items():
        con.execute(f"CREATE TABLE t AS SELECT * FROM {table} {where}")
        most, true = con.execute(f"SELECT max(n), sum(n) FROM (SELECT {total} AS n FROM t GROUP BY {unit})").fetchone() or (0, 0)
        con.execute(f"CALL dp_protect('t', epsilon := 1000, delta := 1e-9, privacy_unit := '{unit}', max_contributions := 1, accountant := 'basic')")
        if total != "count(*)":
            con.execute("CALL dp_declare('t', 'quantity', lower := 1, upper := 50)")
        for part, cap in (("known", int(most)), ("half", max(int(most) // 2, 1))):
            shown = []
            for epsilon in EPSILONS:
                errors, seconds = [], []
                for i in range(runs):
                    begun = time.perf_counter()
                    [(found,)] = con.execute(
                        f"FROM dp_query('SELECT sum(n) FROM (SELECT {unit}, {total} AS n FROM t GROUP BY {unit})', epsilon := {epsilon}, "
                        f"mechanism := 'laplace', bounds := {{'n': [0, {cap}]}}, release := '{name} {part} {epsilon} {i}')"
                    ).fetchall()
                    seconds.append(time.perf_counter() - begun)
                    errors.append(abs(float(found) - float(true)))
                    if i == 2 and seconds[-1] > 3:
                        break
                shown.append(f"{statistics.mean(errors):,.1f} ({statistics.median(seconds):.2f})".rjust(18))
            print(f"{name + ', ' + part:24} {int(true):>12,} {cap:>6} " + " ".join(shown), flush=True)
        con.close()
        con = duckdb.connect()
        tpch(con, scale)
        dpsql.load(con, progress=False)


def many_groups(rows: int, runs: int) -> None:
    """Print the errors of three numbers of 200 groups."""
    con = duckdb.connect()
    units = rows // 10
    con.execute("SELECT setseed(0.7)")
    con.execute(
        f"CREATE TABLE t AS SELECT i % {units} AS u, 'g' || lpad(((hash(i % {units}) % 200 + i // {units} * 20) % 200)::VARCHAR, 3, '0') AS g, "
        f"(100 * sqrt(random()))::DOUBLE AS amount FROM range({rows}) r(i)"
    )  # a unit has its rows in ten groups
    dpsql.load(con, progress=False)
    con.execute("CALL dp_protect('t', epsilon := 1000, delta := 1e-6, privacy_unit := 'u', max_contributions := 10)")
    listed = ", ".join(f"'g{i:03}'" for i in range(200))
    con.execute(f"CALL dp_declare('t', 'g', categories := [{listed}], nullable := false)")
    con.execute("CALL dp_declare('t', 'amount', lower := 0, upper := 100, nullable := true)")
    exact = np.array(con.execute("SELECT count(*), sum(amount), avg(amount), median(amount) FROM t GROUP BY g ORDER BY g").fetchall(), float)

    def asked(items: str, epsilon: float, name: str) -> tuple[np.ndarray, np.ndarray]:
        begun = np.array([time.process_time(), time.perf_counter()])
        found = con.execute(
            f"FROM dp_query('SELECT g, {items} FROM t GROUP BY g ORDER BY g', epsilon := {epsilon}, max_groups := 10, max_rows_per_group := 1, "
            f"release := '{name}')"
        ).fetchall()
        return np.array([row[1:] for row in found], float), np.array([time.process_time(), time.perf_counter()]) - begun

    def shown(label: str, errors: list[np.ndarray], seconds: list[np.ndarray]) -> None:
        rms = np.sqrt(np.mean(np.square(np.array(errors)), axis=(0, 1)))
        print(f"{label:42} " + " ".join(f"{x:>10,.3f}" for x in rms) + "   CPU {:.2f} s, clock {:.2f} s".format(*np.median(seconds, axis=0)), flush=True)

    print(f"{rows:,} rows, 200 groups, {rows // 10:,} units, (1, 1e-6), root mean squared errors of {runs} runs")
    for label, nullable in (("one query, NULL possible", "true"), ("one query", "false")):
        con.execute(f"CALL dp_declare('t', 'amount', lower := 0, upper := 100, nullable := {nullable})")
        one = [asked("count(*), sum(amount), avg(amount)", 1.0, f"{label} {i}") for i in range(runs)]
        shown(f"count, sum, avg: {label}", [a - exact[:, :3] for a, _ in one], [s for _, s in one])
    split = []
    for i in range(runs):
        parts = [asked(items, 1 / np.sqrt(2), f"{items} {i}") for items in ("count(*)", "sum(amount)")]
        both = np.column_stack([parts[0][0], parts[1][0]])
        split.append((np.column_stack([both, both[:, 1] / both[:, 0]]), parts[0][1] + parts[1][1]))
    shown("count and sum bought apart", [a - exact[:, :3] for a, _ in split], [s for _, s in split])
    ranks = [asked("median(amount)", 1.0, f"median {i}") for i in range(runs)]
    shown("median", [a - exact[:, 3:] for a, _ in ranks], [s for _, s in ranks])


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--only", choices=("tpch", "groups"))
    given = parser.parse_args()
    if given.only != "groups":
        run_tpch(given.scale, given.runs)
    if given.only != "tpch":
        many_groups(given.rows, given.runs)


if __name__ == "__main__":
    main()
