"""The sizes of [Asghar 2019], raw table in DuckDB to synthetic table in DuckDB: seconds by stage, peak memory, published seconds.

    python tests/benchmarks/scale.py [--shapes adult hospital survey binary1000 binary2000] [--methods gaussian_copula latent_class]
        [--folder DIR] [--curve rows|columns] [--plot curve.png]

Every run is a process of its own on two threads, with DuckDB held to --memory (4 GB): it opens a database file that holds the raw table,
declares it (not timed), and times `dp_synthesize(..., "into" := 'synth')`. `peak` is the largest resident memory of that process, DuckDB's
buffers included. `forecast` and `forecast MB` are what dp_plan said beforehand, given the number of rows. The published seconds are those
of 10 cores, for an earlier algorithm of the same kind. Raw tables are made once (seeded) and kept in --folder, which needs 40 GB for all.

adult and hospital are public data sets that are not part of the project (DPSQL_SHARED, or the folder `shared` beside it); the other tables are
made. `survey` has 27 attributes with 674 values. --curve rows: 20 attributes of 8 values, 50,000 to 50 million rows; --curve columns: 100,000
rows of 10 to 2,000 BOOLEAN columns; both print every stage's seconds, and how they grow.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import shapes
from dpsql.udfs import instance_of

import dpsql

PUBLISHED = {"adult": 407.0, "survey": 9000.0, "hospital": 2760.0, "binary1000": 20580.0, "binary2000": 66720.0}
TARGETS = {"adult": 3.0, "hospital": 28.0, "survey": 90.0, "binary1000": 210.0, "binary2000": 660.0}
STAGES = ("encode", "count", "noise", "store", "consistency", "correlations", "nearest correlation", "calibration", "fit", "sampling", "writing")
ROWS = (50_000, 500_000, 5_000_000, 50_000_000)
COLUMNS = (10, 30, 100, 300, 1000, 2000)


def shared_folder() -> Path:
    return Path(os.environ.get("DPSQL_SHARED", Path(__file__).parents[3] / "shared"))


def available(name: str) -> bool:
    return name not in ("adult", "hospital") or (shared_folder() / "data" / f"{name}.csv").is_file()


def shape_of(name: str) -> shapes.Shape:
    """Return a made shape by its name: survey, binary1000, even20x5000000, binary300x100000."""
    if name == "survey":
        return shapes.survey()
    kind, columns, rows = re.fullmatch(r"(binary|even)(\d+)(?:x(\d+))?", name).groups()
    make = shapes.binary if kind == "binary" else shapes.even
    return make(int(columns), int(rows or shapes.ROWS))


def raw_table(name: str, folder: Path) -> Path:
    """Return a database file with the raw table, making it if it is not there."""
    path = folder / f"{name}.duckdb"
    if path.is_file():
        return path
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with duckdb.connect(str(partial)) as con:
        if name in ("adult", "hospital"):
            con.execute("CREATE TABLE t AS FROM read_csv(?, header = true)", [str(shared_folder() / "data" / f"{name}.csv")])
        else:
            shapes.make(con, "t", shape_of(name))
    partial.rename(path)
    return path


def declare(con: duckdb.DuckDBPyConnection, name: str) -> int:
    """Declare the public domain; return the number of rows, which dp_plan is told."""
    if name == "adult":
        domain = json.loads((shared_folder() / "data" / "adult_domain14.json").read_text())
        for column, spec in domain.items():
            dpsql.declare(con, "t", column, nullable=False, **spec)
    elif name == "hospital":
        for column in (row[0] for row in con.execute("DESCRIBE t").fetchall()):
            # The benchmark's own table: which values there are is public here.
            values = [row[0] for row in con.execute(f'SELECT DISTINCT "{column}" FROM t WHERE "{column}" IS NOT NULL ORDER BY 1').fetchall()]
            holes = con.execute(f'SELECT count(*) FROM t WHERE "{column}" IS NULL').fetchone()[0] > 0
            dpsql.declare(con, "t", column, categories=values, nullable=holes)
    else:
        shape = shape_of(name)
        for column, size in zip(shape.names, shape.sizes, strict=True):
            if not shape.boolean:
                dpsql.declare(con, "t", column, categories=list(range(size)), nullable=False)
    return con.execute("SELECT count(*) FROM t").fetchone()[0]


def one_run(name: str, method: str, folder: Path, memory: str, threads: int) -> dict:
    """Run one shape in this process."""
    raw = raw_table(name, folder)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        con = duckdb.connect(str(Path(work) / "run.duckdb"), config={"threads": threads, "memory_limit": memory})
        # The raw table is read where it lies; books and synthetic table go to a new file.
        con.execute(f"ATTACH '{raw}' AS raw")
        con.execute("USE raw")
        dpsql.load(con, store=Path(work) / "store")
        con.execute("DROP SCHEMA IF EXISTS raw.dpsql CASCADE")
        dpsql.protect(con, "t", epsilon=1.0, delta=2.0**-30)
        rows = declare(con, name)
        plan = con.execute(
            f"SELECT estimated_seconds, estimated_memory_mb, tables, cells FROM dp_plan('t', epsilon := 1.0, method := '{method}', rows := {rows})"
        ).fetchone()
        before, processor = time.perf_counter(), time.process_time()
        con.execute(f"CREATE TABLE run.synth AS FROM dp_synthesize('t', epsilon := 1.0, method := '{method}')" if name == "adult" else
                    f"FROM (FROM dp_synthesize('t', epsilon := 1.0, method := '{method}', \"into\" := 'run.main.synth')) LIMIT 0")
        total, processor = time.perf_counter() - before, time.process_time() - processor
        written = con.execute("SELECT count(*) FROM run.main.synth").fetchone()[0]
        instance = instance_of(con)
        found = {
            "shape": name, "method": method, "rows": rows, "written": written, "tables": plan[2], "cells": plan[3],
            "seconds": dict(instance.last_seconds), "peaks": dict(instance.last_peak_mb), "total": total, "cpu": processor,
            "forecast": plan[0], "forecast_mb": plan[1], "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        }
        con.execute("DROP SCHEMA IF EXISTS raw.dpsql CASCADE")
        con.close()
    return found


def apart(name: str, method: str, chosen: argparse.Namespace) -> dict | None:
    """Run one shape in a process of its own; None, with its words on stderr, where it fails."""
    command = [sys.executable, __file__, "--one", name, "--methods", method, "--folder", str(chosen.folder), "--memory", chosen.memory, "--threads", str(chosen.threads)]
    raw_table(name, chosen.folder)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def show(results: list[dict]) -> None:
    """Print the table."""
    used = [s for s in STAGES if any(s in r["seconds"] for r in results)]
    used += sorted({s for r in results for s in r["seconds"]} - set(used))
    heads = ["shape", "method", *used, "total", "CPU", "published", "ratio", "target", "forecast", "peak MB", "forecast MB"]
    lines = []
    for r in results:
        published = PUBLISHED.get(r["shape"])
        lines.append([
            r["shape"], r["method"], *(f"{r['seconds'].get(s, 0.0):.1f}" for s in used), f"{r['total']:.1f}", f"{r['cpu']:.1f}",
            f"{published:.0f}" if published else "", f"{published / r['total']:.0f}" if published else "", f"{TARGETS[r['shape']]:.0f}" if r["shape"] in TARGETS else "",
            f"{r['forecast']:.1f}", f"{r['peak_mb']:.0f}", f"{r['forecast_mb']:.0f}",
        ])
    widths = [max(len(row[i]) for row in [heads, *lines]) for i in range(len(heads))]
    for row in [heads, *lines]:
        print("  ".join(cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))))


def growth(results: list[dict], by: str) -> None:
    """Print the exponent with which every stage grows between the last two points: 1 is linear."""
    import math

    if len(results) < 2:
        return
    a, b = results[-2:]
    x = {"rows": lambda r: r["rows"], "columns": lambda r: int(re.findall(r"\d+", r["shape"])[0])}[by]
    span = math.log(x(b) / x(a))
    stages = [s for s in STAGES if min(a["seconds"].get(s, 0.0), b["seconds"].get(s, 0.0)) > 0.05]
    print(f"growth in {by} at the end (exponent): " + ", ".join(f"{s} {math.log(b['seconds'][s] / a['seconds'][s]) / span:.1f}" for s in stages))


def draw(results: list[dict], by: str, path: Path) -> None:
    """Draw the curve: seconds of every stage over rows or columns, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    x = [r["rows"] if by == "rows" else int(re.findall(r"\d+", r["shape"])[0]) for r in results]
    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for place, stage in enumerate(STAGES):
        y = [r["seconds"].get(stage, 0.0) for r in results]
        if max(y) > 0.05:
            line = "-" if place < 10 else "--"  # there are ten colours
            axes.plot(x, [max(v, 1e-3) for v in y], line, marker="o", linewidth=1.2, color=f"C{place % 10}", label=stage)
    axes.plot(x, [r["total"] for r in results], color="black", linewidth=2.2, marker="s", label="total")
    axes.set(xscale="log", yscale="log", xlabel=by, ylabel="seconds, two cores", title="raw table to synthetic table")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, ncols=2)
    figure.savefig(path, dpi=150)
    print(f"plot: {path}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="*", default=list(PUBLISHED))
    parser.add_argument("--methods", nargs="*", default=["gaussian_copula"], help="latent_class is run on adult, hospital and survey")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "dpsql_scale")
    parser.add_argument("--memory", default="4GB", help="DuckDB's memory limit")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--curve", choices=["rows", "columns"])
    parser.add_argument("--most", type=int, help="last point of the curve")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    if chosen.one:
        print(json.dumps(one_run(chosen.one, chosen.methods[0], chosen.folder, chosen.memory, chosen.threads)))
        return 0
    wide = ("binary1000", "binary2000")
    pairs = [(s, m) for s in chosen.shapes for m in chosen.methods if available(s) and not (m != "gaussian_copula" and s in wide)]
    if chosen.curve:
        points = ROWS if chosen.curve == "rows" else COLUMNS
        points = [p for p in points if p <= (chosen.most or points[-1])]
        names = [f"even20x{p}" if chosen.curve == "rows" else f"binary{p}x100000" for p in points]
        pairs = [(n, m) for m in chosen.methods for n in names]
    results = [r for n, m in pairs if (r := apart(n, m, chosen)) is not None]
    show(results)
    if chosen.curve and results:
        growth(results, chosen.curve)
        if chosen.plot:
            draw(results, chosen.curve, chosen.plot)
    return 0 if len(results) == len(pairs) else 1


if __name__ == "__main__":
    sys.exit(main())
