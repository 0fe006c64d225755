"""What rules cost: distance of tables from the raw ones, rows that break a rule, and seconds, with and without rules.

Of the seconds those of repairing rows are printed too, beside what ``dp_plan`` forecasts for them.

``python tests/benchmarks/rules.py [--rows 20000] [--epsilon 1] [--runs 3] [--method latent_class]``

A made-up table of hospital stays with two dates, two columns one of which follows from the other, and two numbers, all of whose
rows obey four rules. Medians over runs; noise has no seed.
"""

from __future__ import annotations

import argparse
import statistics
import time

import duckdb

import dpsql
from dpsql.rows.obeying import Mender

TABLE = """
CREATE TABLE stays AS
WITH h AS (SELECT i, hash(i * 7) AS a, hash(i * 11) AS b, hash(i * 13) AS c, hash(i * 17) AS d, hash(i * 19) AS e FROM range({rows}) t(i))
SELECT CASE WHEN a % 2 = 0 THEN 'F' ELSE 'M' END AS sex,
    CASE WHEN a % 2 = 0 AND b % 4 = 0 THEN 'maternity' ELSE ['icu', 'er', 'gp'][(1 + b % 3)::INT] END AS ward,
    DATE '1930-01-01' + (c % 32000)::INT AS born,
    least(DATE '2023-12-31', DATE '1930-01-01' + (c % 32000)::INT + (d % 9000)::INT) AS seen,
    (d % 40)::INT AS planned, (d % 40 + e % 30)::INT AS days, (e % 1000) / 10.0::DOUBLE AS price
FROM h
"""
DECLARED = {
    "sex": "categories := ['F', 'M']",
    "ward": "categories := ['icu', 'er', 'gp', 'maternity']",
    "born": "lower := '1930-01-01', upper := '2024-01-01'",
    "seen": "lower := '1930-01-01', upper := '2024-01-01'",
    "planned": "lower := 0, upper := 40, bins := 8",
    "days": "lower := 0, upper := 70, bins := 7",
    "price": "lower := 0, upper := 100, bins := 10",
}
RULES = ("seen >= born", "ward <> 'maternity' OR sex = 'F'", "days >= planned", "price < 99.95 OR days < 69")


class Timed:
    """Counts the seconds that repairs take."""

    def __init__(self) -> None:
        self.seconds = 0.0
        mended = Mender.mended

        def timed(*given: object) -> object:
            start = time.perf_counter()
            try:
                return mended(*given)
            finally:
                self.seconds += time.perf_counter() - start

        Mender.mended = timed

    def taken(self) -> float:
        found, self.seconds = self.seconds, 0.0
        return found


def measured(con: duckdb.DuckDBPyConnection, release: str, epsilon: float, method: str) -> tuple[float, float, int, float]:
    """Return the one-way and two-way distance, the rows that break a rule, and the seconds of one release."""
    start = time.perf_counter()
    con.execute(
        f"CREATE OR REPLACE TABLE made AS FROM dp_synthesize('stays', epsilon := {epsilon}, method := '{method}', release := '{release}')"
    )
    seconds = time.perf_counter() - start
    far = dict(con.execute("SELECT k, tvd FROM dp_evaluate('stays', 'made', max_k := 2)").fetchall())
    broken = con.execute(f"SELECT count(*) FROM made WHERE NOT ({' AND '.join(f'({rule})' for rule in RULES)})").fetchone()
    return far[1], far[2], broken[0] if broken else 0, seconds


def main() -> None:
    """Print a line without rules and a line with them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--method", default="latent_class")
    given = parser.parse_args()
    con = duckdb.connect()
    dpsql.load(con, progress=False)
    con.execute(TABLE.format(rows=given.rows))
    con.execute("CALL dp_protect('stays', epsilon := 900, delta := 1e-9)")
    for column, said in DECLARED.items():
        con.execute(f"CALL dp_declare('stays', '{column}', {said}, nullable := false)")
    repairs = Timed()
    print(f"{'':8} {'one-way':>8} {'two-way':>8} {'broken':>7} {'seconds':>8} {'repairs':>8} {'forecast':>8}")
    for name in ("without", "with"):
        if name == "with":
            for rule in RULES:
                con.execute("FROM dp_rule('stays', ?)", [rule])
        found = [(*measured(con, f"{name} {run}", given.epsilon, given.method), repairs.taken()) for run in range(given.runs)]
        one, two, broken, seconds, repairing = (statistics.median(column) for column in zip(*found, strict=True))
        asked = f"SELECT estimated_stages['repair by rules'] FROM dp_plan('stays', epsilon := ?, method := ?, rows := {given.rows})"
        ((forecast,),) = con.execute(asked, [given.epsilon, given.method]).fetchall()
        print(f"{name:8} {one:8.4f} {two:8.4f} {broken:7.0f} {seconds:8.1f} {repairing:8.2f} {forecast or 0.0:8.2f}", flush=True)


if __name__ == "__main__":
    main()
