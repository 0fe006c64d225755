"""Every method of one column on a long table, through SQL: seconds by stage, from the charge to the synthetic table.

Run: python tests/benchmarks/long_column.py [--rows 5000000]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import duckdb
from dpsql.udfs import instance_of

import dpsql

CALLS = {
    "laplace_sanitizer": "columns := ['race'], method := 'laplace_sanitizer'",
    "multinomial_dirichlet": "columns := ['race'], method := 'multinomial_dirichlet'",
    "poisson_gamma": "columns := ['race'], method := 'poisson_gamma', options := {'expected': [1, 1, 2, 2, 1, 1]}",
    "beta_binomial": "columns := ['urban'], method := 'beta_binomial'",
    "dp_prior": "columns := ['race'], method := 'dp_prior'",
    "perturbed_histogram": "columns := ['income'], method := 'perturbed_histogram'",
    "smoothed_histogram": "columns := ['income'], method := 'smoothed_histogram'",
    "empirical_cdf": "columns := ['income'], method := 'empirical_cdf'",
    "modips binary": "columns := ['urban'], method := 'modips'",
    "modips normal": "columns := ['income'], method := 'modips'",
    "modips mixed": "columns := ['race', 'urban', 'income', 'tax'], method := 'modips'",
    "dpcopula_kendall": "columns := ['race', 'urban', 'income', 'tax'], method := 'dpcopula_kendall'",
    "weak_domain": "columns := ['job'], method := 'weak_domain', options := {'domain': 'words', 'domain_size': 10000000000}",
    "stable_selection": "columns := ['job'], method := 'stable_selection'",
}


def make(con: duckdb.DuckDBPyConnection, rows: int) -> None:
    con.execute(
        f"""
        CREATE TABLE survey AS SELECT 1 + hash(i) % 6 AS race, hash(i + 1) % 5 < 2 AS urban, 40 * sqrt(hash(i + 2) % 1000000) AS income,
            10 * sqrt(hash(i + 2) % 700000) + hash(i + 3) % 100 AS tax,
            'w' || (hash(i + 4) % 400)::INTEGER % 40 || '-w' || (hash(i + 5) % 10) AS job FROM range({rows}) t(i)
        """
    )
    con.execute("CREATE TABLE words AS SELECT 'w' || i AS word FROM range(100000) t(i)")
    con.execute("CALL dp_protect('survey', epsilon := 100, delta := 1e-9, neighbors := 'replace_one')")
    con.execute("CALL dp_declare('survey', 'race', categories := [1, 2, 3, 4, 5, 6], nullable := false)")
    con.execute("CALL dp_declare('survey', 'urban', categories := [true, false], nullable := false)")
    con.execute("CALL dp_declare('survey', 'income', lower := 0, upper := 50000, bins := 25, nullable := false)")
    con.execute("CALL dp_declare('survey', 'tax', lower := 0, upper := 9000, bins := 20, nullable := false)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        con = duckdb.connect(str(Path(folder) / "survey.duckdb"))
        dpsql.load(con)
        make(con, rows)
        instance = instance_of(con)
        assert instance is not None
        print(f"{rows} rows, epsilon = 1; seconds from the call to the synthetic table, and by stage")
        for number, (name, call) in enumerate(CALLS.items()):
            start = time.perf_counter()
            con.execute(f"CREATE TABLE synth{number} AS FROM dp_synthesize('survey', {call}, epsilon := 1, release := '{number}')")
            total = time.perf_counter() - start
            stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in instance.last_seconds.items())
            print(f"{name:24} {total:6.2f}   {stages}", flush=True)
            con.execute(f"DROP TABLE synth{number}")
        con.close()


if __name__ == "__main__":
    main()
