"""What rules do to the columns that they are over: means and distances of a synthetic database without and with two rules.

python tests/benchmarks/rule_means.py [--units 20000] [--epsilon 1] [--seeds 3] [--kind share | beta]

Made-up units and their bills: 'paid' is 0, .5, .8 or 1 of the cost (share) or a beta share of it (beta), never more, and a bill comes
after its unit began. delta = 1e-9. Noise is of the seed, so that two versions of the code differ in nothing else.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

import dpsql
from dpsql.noise import entropy

sys.path.append(str(Path(__file__).parents[1]))
from seeded_entropy import Streams

FIGURES = {
    "cost": "avg(cost)", "cost 95 %": "quantile_cont(cost, 0.95)", "paid": "avg(paid)", "paid 95 %": "quantile_cont(paid, 0.95)",
    "billed (days)": "avg(epoch(billed)) / 86400", "paid > cost": "avg((paid > cost)::INT)", "too early": "avg((billed < began)::INT)",
}  # fmt: skip
DISTANCES = ("one column", "two columns", "parent and child", "siblings")


def create(con: duckdb.DuckDBPyConnection, units: int, kind: str) -> None:
    rng = np.random.default_rng(5)
    began = np.datetime64("2000-01-01") + rng.integers(0, 20 * 365, units).astype("timedelta64[D]")
    who = np.repeat(np.arange(units), np.minimum(rng.poisson(2.0, units), 8))
    m = who.size
    cost = np.minimum(np.round(np.exp(rng.normal(5, 1.0, m)), 2), 19_999)
    share = rng.choice([0, 0.5, 0.8, 1], m, p=[0.1, 0.2, 0.2, 0.5]) if kind == "share" else rng.beta(4, 1.5, m)
    billed = began[who] + rng.exponential(900, m).astype(int).astype("timedelta64[D]")
    above = pd.DataFrame({"id": np.arange(units), "began": began.astype(str), "kind": rng.integers(0, 3, units)})
    below = pd.DataFrame(
        {"up": who, "cost": cost, "paid": np.round(cost * share, 2), "billed": billed.astype(str), "due": rng.integers(0, 3, m)}
    )
    con.register("above", above)
    con.register("below", below)
    con.execute("CREATE TABLE units (id INTEGER PRIMARY KEY, began DATE, kind INTEGER); INSERT INTO units FROM above")
    con.execute("CREATE TABLE bills (up INTEGER, cost DECIMAL(10, 2), paid DECIMAL(10, 2), billed DATE, due INTEGER)")
    con.execute("INSERT INTO bills FROM below")
    con.unregister("above")
    con.unregister("below")
    dpsql.load(con, progress=False)
    con.execute("CALL dp_protect('units', epsilon := 1000, delta := 1e-9, privacy_unit := 'id', max_contributions := 1)")
    con.execute("CALL dp_link('bills', 'up', parent := 'units', parent_column := 'id', max_rows := 8)")
    for table, column, said in (
        ("units", "began", "lower := '2000-01-01', upper := '2020-01-01'"), ("units", "kind", "categories := [0, 1, 2]"),
        ("bills", "due", "categories := [0, 1, 2]"), ("bills", "cost", "lower := 0, upper := 20000"),
        ("bills", "paid", "lower := 0, upper := 20000"), ("bills", "billed", "lower := '2000-01-01', upper := '2040-01-01'"),
    ):  # fmt: skip
        con.execute(f"CALL dp_declare('{table}', '{column}', {said})")


def figures(con: duckdb.DuckDBPyConnection, schema: str) -> str:
    found = con.execute(f"SELECT {', '.join(FIGURES.values())} FROM {schema}.bills JOIN {schema}.units ON up = id").fetchone()
    return ", ".join(
        f"{name} {value:.4g}" if value < 1e4 else f"{name} {value:.0f}" for name, value in zip(FIGURES, found, strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=20_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kind", choices=("share", "beta"), default="share")
    given = parser.parse_args()
    con = duckdb.connect()
    create(con, given.units, given.kind)
    print("raw:", figures(con, "main"))
    for rules in (False, True):
        if rules:
            con.execute("FROM dp_rule('bills', 'paid <= cost')")
            con.execute("FROM dp_rule('bills', 'billed >= units.began')")
        for seed in range(1, given.seeds + 1):
            entropy._source = Streams(f"k{seed}")
            con.execute(
                f"FROM dp_synthesize_tables('units', epsilon := {given.epsilon}, delta := 1e-9, into_schema := 's', seed := {seed}, "
                f"release := 's{seed}{rules}')"
            ).fetchall()
            summary = con.execute("FROM dp_evaluate('units', 's') WHERE level = 'summary'").fetchall()
            print(f"{'with' if rules else 'without'} rules, seed {seed}: {figures(con, 's')}")
            print("  " + ", ".join(f"{row[1]} {row[9]:.4f}" for row in summary if row[1] in DISTANCES))


if __name__ == "__main__":
    main()
