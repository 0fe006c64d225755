"""Adult through SQL: raw table to synthetic table at epsilon = 1, delta = 2^-30, against the published figures.

    python tests/benchmarks/adult.py [--runs 5] [--mode decoded|published]

Prints the error table of [Asghar 2019] (absolute count error of all one-, two- and three-way queries; average and maximum of
the best 95, 99 and 100 %), medians over the runs, and the seconds by stage. Needs the folder of public data sets
(DPSQL_SHARED, or `shared` beside the project). Each run buys a new release from a new database.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import duckdb
from dpsql.udfs import instance_of

import dpsql

PUBLISHED = {
    "dpc": {
        1: (92, 389, 107, 482, 106, 773),
        2: (18, 184, 29, 504, 38, 4788),
        3: (12, 120, 20, 408, 28, 6148),
    },
    "target": {1: (None, None, None, None, 30, None), 2: (10, 90, 14, 220, 18, 3200), 3: (None,) * 6},
}
PUBLISHED_OPTIONS = (
    "{'mechanism': 'laplace', 'accountant': 'advanced', 'output': 'one_hot', 'consistency': 'none', 'shrinkage': 'none'}"
)


def shared_folder() -> Path:
    folder = Path(os.environ.get("DPSQL_SHARED", Path(__file__).parents[3] / "shared"))
    if not (folder / "data" / "adult.csv").is_file():
        sys.exit("the folder of public data sets is not here; set DPSQL_SHARED to it")
    return folder


def declare(con: duckdb.DuckDBPyConnection, table: str, domain: dict[str, dict]) -> None:
    """Declare a domain file of the data folder."""
    for column, spec in domain.items():
        dpsql.declare(con, table, column, nullable=False, **spec)


def prepare(path: Path, data: Path, neighbors: str, attributes: int = 14) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(str(path))
    con.execute("CREATE TABLE adult AS FROM read_csv(?, header = true)", [str(data / "adult.csv")])
    dpsql.load(con)
    dpsql.protect(con, "adult", epsilon=1.0, delta=2.0**-30, neighbors=neighbors)
    declare(con, "adult", json.loads((data / f"adult_domain{attributes}.json").read_text()))
    return con


def one_run(data: Path, mode: str, method: str, attributes: int) -> tuple[dict[int, tuple[float, ...]], dict[str, float]]:
    """Return the errors per k and the seconds per stage of one run."""
    options = f", method := '{method}'" + {"decoded": "", "published": f", options := {PUBLISHED_OPTIONS}"}[mode]
    with tempfile.TemporaryDirectory() as folder:
        con = prepare(Path(folder) / "adult.duckdb", data, "add_remove", attributes)
        started = time.perf_counter()
        con.execute(f"CREATE TABLE synth AS FROM dp_synthesize('adult', epsilon := 1.0{options})")
        seconds = {"total": time.perf_counter() - started}
        instance = instance_of(con)
        seconds |= instance.last_seconds if instance else {}
        if mode == "published":
            errors = one_hot_errors(con)
        else:
            rows = con.execute("SELECT k, COLUMNS('average|maximum'), tvd FROM dp_evaluate('adult', 'synth')").fetchall()
            errors = {row[0]: tuple(row[1:]) for row in rows}
        con.close()
    return errors, seconds


def one_hot_errors(con: duckdb.DuckDBPyConnection) -> dict[int, tuple[float, ...]]:
    """Errors of one-way and two-way counts of a one-hot table, as the paper counts them."""
    import numpy as np

    columns = con.execute("SELECT * FROM synth").fetchnumpy()
    hot = np.stack([np.asarray(c, dtype=np.float32) for c in columns.values()], axis=1)
    raw = raw_one_hot(con)
    owners = np.repeat(np.arange(len(raw[1])), raw[1])
    ours, truth = hot.T @ hot * (len(raw[0]) / max(len(hot), 1)), raw[0].T @ raw[0]
    upper = np.triu(owners[:, None] != owners[None, :])
    found = {1: np.sort(np.abs(np.diag(ours) - np.diag(truth))), 2: np.sort(np.abs(ours - truth)[upper])}
    return {k: best(e) for k, e in found.items()}


def raw_one_hot(con: duckdb.DuckDBPyConnection):
    import numpy as np

    from dpsql.domains import encoding
    from dpsql.protected import source as protected
    from dpsql.session.instance import open_context

    with open_context(instance_of(con), "adult", "main") as context:
        source = protected.resolve(context, "adult")
        domain, _ = source.attributes()
        table = encoding.encode(context.cursor, source.source.sql, domain)
        codes = np.stack(list(context.cursor.execute(f"FROM {table}").fetchnumpy().values()), axis=1)
    blocks = [np.equal.outer(codes[:, i], np.arange(size)).astype(np.float32) for i, size in enumerate(domain.sizes)]
    return np.concatenate(blocks, axis=1), domain.sizes


def best(errors) -> tuple[float, ...]:
    out: list[float] = []
    for share in (0.95, 0.99, 1.0):
        kept = errors[: max(1, round(share * len(errors)))]
        out += [float(kept.mean()), float(kept[-1])]
    return tuple(out)


def table(results: list[dict[int, tuple[float, ...]]]) -> dict[int, list[float]]:
    """Return medians over the runs."""
    return {k: [median(r[k][i] for r in results) for i in range(len(results[0][k]))] for k in results[0]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--method", default="gaussian_copula")
    parser.add_argument("--attributes", type=int, choices=[14, 15], default=14)
    parser.add_argument("--mode", choices=["decoded", "published"], default="decoded")
    chosen = parser.parse_args()
    data = shared_folder() / "data"
    runs = [one_run(data, chosen.mode, chosen.method, chosen.attributes) for _ in range(chosen.runs)]
    medians = table([errors for errors, _ in runs])
    print(f"Adult, 32,561 rows, {chosen.attributes} attributes, epsilon = 1, delta = 2^-30, {chosen.method}, {chosen.mode}, median of {chosen.runs} runs, DuckDB {duckdb.__version__}")
    header = ("95 % ave", "max", "99 % ave", "max", "100 % ave", "max")
    print(f"{'':22}" + "".join(f"{name:>11}" for name in header) + f"{'TVD':>9}")
    for k, values in medians.items():
        print(f"{k}-way, dpsql".ljust(22) + "".join(f"{v:11.1f}" for v in values[:6]) + "".join(f"{v:9.4f}" for v in values[6:]))
        for name, figures in PUBLISHED.items() if chosen.attributes == 14 else ():
            print(f"{k}-way, {name}".ljust(22) + "".join(f"{'' if f is None else f:>11}" for f in figures[k]))
    print("seconds, median: " + ", ".join(f"{name} {median(s.get(name, 0.0) for _, s in runs):.2f}" for name in runs[0][1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
