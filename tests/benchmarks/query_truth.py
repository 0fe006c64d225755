"""How true the answers of dp_query are: quantiles under generous bounds, small groups, sums that are added up.

python tests/benchmarks/query_truth.py [--draws 40] [--only quantiles|groups|sums]

*quantiles*: 20,000 values between 20 and 140 at epsilon 2, median and 90 % quantile; bounds from tight ones to a million times the
spread, one group and ten. Mean absolute error as a multiple of that under the tightest bounds, and how often the interval of 95 %
holds the truth. Then 80 % of values at 65,000 between 0 and 500,000: how often the answer is 65,000.

*groups*: groups of n rows among others of 50 at epsilon .5, one row a unit, values 0 to 100 with the mean given: how often the interval
of 95 % holds the truth of the group, and how often there is NULL instead of a number.

*sums*: groups of 0 to 5 rows: mean error of a sum in standard deviations of its noise, the total over all groups; the quotient of two
sums and a share of rows of groups of 20 rows: how many of them are no numbers, or outside of what is possible.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np

import dpsql


def protected(table: str) -> duckdb.DuckDBPyConnection:
    """Return a database with a table ``t`` of one row a unit, made by a SELECT."""
    con = duckdb.connect()
    con.execute("SELECT setseed(0.31)")
    con.execute(f"CREATE TABLE t AS {table}")
    dpsql.load(con, progress=False)
    con.execute("CALL dp_protect('t', epsilon := 1000, delta := 1e-9, privacy_unit := 'u', max_contributions := 1)")
    return con


def asked(con: duckdb.DuckDBPyConnection, sql: str, epsilon: float, more: str, draw: int) -> list[tuple[Any, ...]]:
    """Buy an answer of its own."""
    quoted = sql.replace("'", "''")
    return con.execute(f"FROM dp_query('{quoted}', epsilon := {epsilon}, release := 'r{draw}-{abs(hash((sql, more))):x}'{more})").fetchall()


def quantiles(draws: int) -> None:
    """Print errors and coverage of quantiles by bounds."""
    print("median and 90 % quantile, 20,000 values between 20 and 140, epsilon 2")
    tight: dict[str, float] = {}
    for name, key in (("one group", ""), ("ten groups", "g, ")):
        for upper in (140, 1_200, 12_000, 1_200_000, 120_000_000):
            con = protected("SELECT i AS u, i % 10 AS g, 20 + 40 * (random() + random() + random()) AS x FROM range(20000) r(i)")
            con.execute("CALL dp_declare('t', 'g', lower := 0, upper := 9, nullable := false)")
            by = " GROUP BY g ORDER BY g" if key else ""
            truth = np.asarray(con.execute(f"SELECT {key}median(x), quantile_cont(x, 0.9) FROM t{by}").fetchall())[:, -2:].astype(float)
            errors, hits = [], []
            for draw in range(draws):
                sql = f"SELECT {key}median(x) AS m, quantile_cont(x, 0.9) AS q FROM t{by}"
                rows = np.asarray(asked(con, sql, 2.0, f", confidence := 0.95, bounds := {{'x': [{20 if upper == 140 else 0}, {upper}]}}", draw))
                found = rows[:, -6:].astype(float)
                errors.append(np.abs(found[:, [0, 3]] - truth).mean())
                hits.append(((found[:, [1, 4]] <= truth) & (truth <= found[:, [2, 5]])).mean())
            tight.setdefault(name, float(np.mean(errors)))
            print(f"  {name}, upper bound {upper:>11,}: error {np.mean(errors):.3f}, {np.mean(errors) / tight[name]:.2f} of tight; "
                  f"covered {100 * np.mean(hits):.1f} %", flush=True)
            con.close()
    con = protected("SELECT i AS u, CASE WHEN random() < 0.8 THEN 65000 ELSE (random() * 500000)::INTEGER END AS x FROM range(20000) r(i)")
    same = [asked(con, "SELECT median(x) FROM t", 2.0, ", bounds := {'x': [0, 500000]}", draw)[0][0] == 65_000 for draw in range(draws)]
    print(f"  80 % of values at 65,000: answered with 65,000 in {100 * np.mean(same):.0f} %")


MAIN: dict[str, Callable[[int], None]] = {"quantiles": quantiles}


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--only", choices=sorted(MAIN))
    given = parser.parse_args()
    for name, run in MAIN.items():
        if given.only in (None, name):
            run(given.draws)


if __name__ == "__main__":
    main()
