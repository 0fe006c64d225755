"""Aggregate-seeded synthesis on the shared table of 50,000 rows and 10 columns: errors per tuple, seconds, memory; and scaling.

usage: python tests/benchmarks/tuples.py [--seeds 5] [--published] [--scaling]

Rows: the table ``data/sim50k.csv`` of the folder DPSQL_SHARED (default: ``shared`` next to the project), domain declared,
epsilon = 1, delta = 1.9e-6, 50,000 rows out. Errors are absolute, over the tuples that the original has. Medians over releases, which
draw fresh noise each. Every configuration runs in a process of its own.

The figures of the published package (pac-synth 0.0.8, same table and budget, measured by hand) are constants here.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import duckdb
import numpy as np

SHARED = Path(os.environ.get("DPSQL_SHARED", Path(__file__).parents[3] / "shared"))
ROWS, EPSILON, DELTA = 50_000, 1.0, 1.9e-6
COLUMNS = [f"C{i:02d}" for i in range(1, 11)]
PUBLISHED = {
    2: "149 / 322 / 97 (best tuning found: 30, with 8 % surplus rows, / 99 / 43), 33 to 43 s, 351 MB",
    3: "497 / 254 / 73, 71 to 103 s",
}
TARGETS = {2: "25 / 30 / 30, 8 s, 350 MB", 3: "40 / 40 / 40, 20 s"}


def prepare(path: Path, rows: int) -> None:
    """Make a protected table of this many rows: the shared one, or as many draws from it with one value in twenty exchanged."""
    import dpsql

    with duckdb.connect(str(path)) as con:
        con.execute("CREATE TABLE base AS SELECT * FROM read_csv(?)", [str(SHARED / "data" / "sim50k.csv")])
        if rows == ROWS:
            con.execute("CREATE TABLE t AS FROM base")
        else:
            picks = ", ".join(f"b{i % 2}.{c}" for i, c in enumerate(COLUMNS))
            con.execute(
                f"""CREATE TABLE t AS SELECT {picks} FROM
                (SELECT hash(i) % {ROWS} AS x, CASE WHEN i % 20 = 0 THEN hash(i + 7) % {ROWS} ELSE hash(i) % {ROWS} END AS y
                 FROM range({rows}) r(i)) p
                JOIN (SELECT *, rowid AS r FROM base) b0 ON b0.r = p.x JOIN (SELECT *, rowid AS r FROM base) b1 ON b1.r = p.y"""
            )
        dpsql.load(con)
        con.execute(f"CALL dp_protect('t', epsilon := 1000, delta := {DELTA})")
        for name in COLUMNS:
            values = [value for (value,) in con.execute(f"SELECT DISTINCT {name} FROM base ORDER BY 1").fetchall()]
            con.execute(f"CALL dp_declare('t', '{name}', categories := {values!r}, nullable := false)")
        con.execute("DROP TABLE base")


def errors(con: duckdb.DuckDBPyConnection, synthetic: str) -> dict[str, float]:
    """Return the mean absolute error per k over the original's tuples, and the shares of pairs that are lost and new."""
    found: dict[str, float] = {}
    for k in (1, 2, 3):
        parts = []
        for columns in itertools.combinations(COLUMNS, k):
            listed = ", ".join(columns)
            whole = " AND ".join(f"{c} IS NOT NULL" for c in columns)
            some = f"SELECT {listed}, count(*) AS n FROM {{}} WHERE {whole} GROUP BY {listed}"
            parts.append(
                f"SELECT coalesce(a.n, 0) AS a, coalesce(b.n, 0) AS b FROM ({some.format('t')}) a "
                f"FULL JOIN ({some.format(synthetic)}) b USING ({listed})"
            )
        pairs = con.execute(" UNION ALL ".join(parts)).fetchnumpy()
        a, b = (np.asarray(pairs[name], dtype=float) for name in ("a", "b"))
        found[f"mae{k}"] = float(np.abs(a - b)[a > 0].mean())
        if k == 2:
            found["suppressed"] = 100 * float((b[a > 0] == 0).mean())
            found["fabricated"] = 100 * float((a[b > 0] == 0).mean())
    return found


def child(path: Path, length: int, sampler: str, seed: int, rows: int) -> None:
    """Buy one release, draw rows, print seconds and megabytes; and errors for a small table."""
    import dpsql

    with duckdb.connect(str(path)) as con:
        dpsql.load(con)
        options = {"reporting_length": length, "sampler": sampler}
        if sampler == "published":
            options["accounting"] = "published"
        started = time.perf_counter()
        con.execute(
            f"CREATE TABLE s AS FROM dp_synthesize('t', method := 'aggregate_seeded', epsilon := {EPSILON}, rows := {rows}, "
            f"release := '{sampler} {length} {seed}', options := {options!r})"
        )
        found = {"seconds": time.perf_counter() - started}
        found["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        found["rows"] = con.execute("SELECT count(*) FROM s").fetchone()[0]
        whole = " OR ".join(f"{name} IS NULL" for name in COLUMNS)
        found["blank"] = con.execute(f"SELECT count(*) FROM s WHERE {whole}").fetchone()[0]
        if rows <= ROWS:
            found.update(errors(con, "s"))
        con.execute("DROP TABLE s")
        print(json.dumps(found))


def run(path: Path, length: int, sampler: str, seed: int, rows: int = ROWS) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", str(path), str(length), sampler, str(seed), str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--published", action="store_true", help="the published sampler and accounting too (minutes)")
    parser.add_argument("--scaling", action="store_true", help="50,000 to 5,000,000 rows, R = 2")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        path, length, sampler, seed, rows = given.child
        child(Path(path), int(length), sampler, int(seed), int(rows))
        return
    if not (SHARED / "data" / "sim50k.csv").is_file():
        sys.exit("the folder of public data sets is not here (DPSQL_SHARED)")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sim.duckdb"
        prepare(path, ROWS)
        print("sampler                 R  error k = 1, 2, 3      pairs lost, new   rows    with blanks  seconds   MB")
        samplers = [("dependence_preserving", given.seeds)] + ([("published", 1)] if given.published else [])
        for (sampler, seeds), length in itertools.product(samplers, (2, 3)):
            runs = [run(path, length, sampler, seed) for seed in range(seeds)]
            m = {name: median(one[name] for one in runs) for name in runs[0]}
            print(
                f"{sampler:22s}  {length}  {m['mae1']:6.1f} {m['mae2']:6.1f} {m['mae3']:6.1f}   {m['suppressed']:5.2f} % {m['fabricated']:5.2f} %"
                f"   {m['rows']:6.0f}  {m['blank']:8.0f}   {m['seconds']:7.1f}  {m['megabytes']:5.0f}"
            )
        for length in (2, 3):
            print(f"R = {length}: wanted {TARGETS[length]}; published package {PUBLISHED[length]}")
        if given.scaling:
            print("\nrows        seconds   MB   (R = 2, as many rows out)")
            for rows in (ROWS, 10 * ROWS, 100 * ROWS):
                large = Path(folder) / f"sim{rows}.duckdb"
                prepare(large, rows)
                one = run(large, 2, "dependence_preserving", 0, rows)
                print(f"{rows:9d}  {one['seconds']:8.1f}  {one['megabytes']:5.0f}")
                large.unlink()


if __name__ == "__main__":
    main()
