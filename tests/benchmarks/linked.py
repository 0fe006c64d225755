"""Synthetic databases of linked tables: their errors beside a flat release and independent tables, seconds, memory.

python tests/benchmarks/linked.py [households | hospital | orders | lineitem] [--scale 1] [--folder FOLDER] [--epsilon 1] [--seeds 1]

households: the made-up census of `households.py`, 100,000 households a unit of scale. hospital: the three tables of
`dpsql demo --linked`, 100,000 patients. orders, lineitem: TPC-H with the customer as the
unit, two and three levels deep; its tables are made by DuckDB's tpch extension (package duckdb-extension-tpch), or read from --folder
(customer1.parquet, orders1.parquet, lineitem1.parquet for scale 1). delta = 1e-9. Every release runs in a process of its own, whose
greatest memory is shown; seconds are of its clock, and of its CPU.

- linked: ``dp_synthesize_tables``.
- flat: one table fitted to all one- and two-way tables of the joined rows, every unit counting 1, with the noise that these tables have
  in the release of linked ones. It has no keys; only distances of columns within a joined row are its.
- flat alone: the same with the noise of a release in which nothing else is measured.
- flat release: ``dp_synthesize`` of the joined rows as they are, as many for each unit as links allow.
- apart: every table released alone with the numbers of children, epsilon shared out, and children attached at random.

Errors are means of total variation distances over pairs of declared columns (``dp_evaluate`` of a schema), of units: every unit counts
1; of rows: every row does. The goals: parent and child of linked at most 1.3 times that of flat, siblings at most half of that of
independent children (those of the raw rows, if they were independent of one another), fan-out at most .01.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb
import linked_data as data
import linked_peers as peers
import numpy as np

import dpsql
from dpsql.custodian.evaluate_linked import COLUMNS, Weighting, compare
from dpsql.custodian.linked_reading import ComparedTable, Reading, read

KINDS = ("linked", "flat", "flat alone", "flat release", "apart")
SHOWN = (
    "one column", "two columns", "parent and child", "siblings", "siblings by row", "fan-out", "two children", "group means", "orphans",
)  # fmt: skip


def release(path: Path, name: str, kind: str, epsilon: float, seed: int, options: str) -> dict[str, float]:
    """Make one synthetic database in a file; return its seconds and megabytes."""
    schema = data.SCHEMAS[name]
    with duckdb.connect(str(path)) as con:
        dpsql.load(con)
        started, cpu = time.perf_counter(), time.process_time()
        if kind == "linked":
            data.protect(con, schema)
            started, cpu = time.perf_counter(), time.process_time()
            con.execute(
                f"FROM dp_synthesize_tables('{schema.root}', epsilon := {epsilon}, into_schema := 'linked', release := 'r{seed}', "
                f"seed := {seed}{options})"
            ).fetchall()
        elif kind == "apart":
            peers.independent_tables(con, schema, epsilon, seed)
        elif kind == "flat release":
            peers.flat_release(con, schema, epsilon, seed)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    return {"seconds": seconds, "cpu": cpu, "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def child(path: Path, name: str, kind: str, epsilon: float, seed: int, options: str) -> dict[str, float]:
    """Run `release` in a process of its own."""
    command = [sys.executable, __file__, name, "--child", str(path), kind, "--epsilon", str(epsilon), "--seed", str(seed)]
    done = subprocess.run([*command, "--options", options], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def errors(
    tables: Sequence[ComparedTable], raw: Sequence[Reading], synthetic: Sequence[Reading], weighting: Weighting
) -> dict[str, float]:
    """Return the mean error of each measure over declared columns, and under 'independent' that of independent siblings."""
    found: dict[str, list[float]] = {measure: [] for measure in SHOWN}
    independent = []
    for values in compare(tables, raw, synthetic, weighting):
        row = dict(zip(COLUMNS, values, strict=True))
        counted = any(str(row[name]).startswith("count(") for name in ("column_name", "other_column"))
        if row["level"] == "summary" or counted or row["measure"] not in SHOWN:
            continue
        found[str(row["measure"])].append(float(row["error"]))
        if row["measure"] == "siblings":
            independent.append(float(row["independent"]))
    means = {measure: float(np.mean(list_)) for measure, list_ in found.items() if list_}
    return {**means, "independent": float(np.mean(independent))}


def measured(
    path: Path, name: str, epsilon: float, seed: int, kinds: Sequence[str], options: str
) -> dict[str, dict[str, dict[str, float]]]:
    """Make all releases of a seed; return errors by kind and weighting, and under 'cost' what they took."""
    schema = data.SCHEMAS[name]
    found: dict[str, dict[str, dict[str, float]]] = {}
    for kind in kinds:
        cost: dict[str, float] = {}
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "made.duckdb"
            copy.write_bytes(path.read_bytes())
            weighted = kind in ("flat", "flat alone")
            if not weighted:
                cost = child(copy, name, kind, epsilon, seed, options if kind == "linked" else "")
            with duckdb.connect(str(copy)) as con:
                tables = peers.described(con, schema)
                raw = read(con, tables)
                if weighted:
                    cpu = time.process_time()
                    noise = peers.noise_of_linked(tables, epsilon) if kind == "flat" else None
                    synthetic = peers.flat_weighted([one.codes for one in raw], epsilon, seed, noise)
                    cost = {"cpu": time.process_time() - cpu}
                elif kind == "flat release":
                    synthetic = read(con, peers.described(con, schema, peers.of_joined_rows(schema, "flat")))
                else:
                    selects = {table: f"SELECT * FROM {kind}.{table}" for table in schema.tables}
                    synthetic = read(con, peers.described(con, schema, selects))
        weightings: tuple[Weighting, ...] = ("units",) if weighted else ("rows",) if kind == "flat release" else ("units", "rows")
        found[kind] = {weighting: errors(tables, raw, synthetic, weighting) for weighting in weightings}
        for weighting, row in found[kind].items():
            whole = kind in ("linked", "apart")
            shown = [measure for measure in SHOWN if measure in row and (whole or measure in ("one column", "parent and child"))]
            print(f"{kind:>13} {weighting:>6}  " + ", ".join(f"{measure} {row[measure]:.4f}" for measure in shown), flush=True)
        print(f"{kind:>13}         " + ", ".join(f"{figure} {value:.1f}" for figure, value in cost.items()), flush=True)
        found[kind]["cost"] = cost
    return found


def main() -> None:
    """Print the figures and the goals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", choices=tuple(data.SCHEMAS), default="households")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--epsilon", type=float, default=1)
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--options", default="", help="more arguments of dp_synthesize_tables: ', options := {...}'")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if given.child:
        path, kind = given.child
        print(json.dumps(release(Path(path), given.data, kind, given.epsilon, given.seed, given.options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "raw.duckdb"
        with duckdb.connect(str(path)) as con:
            schema = data.create(con, given.data, given.scale, 1, given.folder)
            sizes = [f"{con.execute(f'SELECT count(*) FROM {name}').fetchone()[0]:,} {name}" for name in schema.tables]
        print(f"{given.data}, scale {given.scale:g}: {', '.join(sizes)}; epsilon = {given.epsilon:g}, delta = {data.DELTA:g}")
        seeds = range(given.seed, given.seed + given.seeds)
        runs = [measured(path, given.data, given.epsilon, seed, given.kinds, given.options) for seed in seeds]
    if "linked" in given.kinds:
        _print_goals(runs)


def _print_goals(runs: Sequence[dict[str, dict[str, dict[str, float]]]]) -> None:
    """Print medians over the seeds beside the goals."""

    def middle(kind: str, weighting: str, measure: str) -> float:
        return float(np.median([run[kind][weighting][measure] for run in runs]))

    for peer, weighting in (("flat", "units"), ("flat alone", "units"), ("flat release", "rows")):
        if peer in runs[0]:
            across, flat = middle("linked", weighting, "parent and child"), middle(peer, weighting, "parent and child")
            print(f"parent and child, {weighting}: {across:.4f}, {peer} {flat:.4f}, ratio {across / flat:.2f} (goal 1.3)")
    siblings, independent = middle("linked", "units", "siblings"), middle("linked", "units", "independent")
    print(f"siblings: {siblings:.4f}, independent {independent:.4f}, ratio {siblings / independent:.2f} (goal 0.5)")
    if "apart" in runs[0]:
        print(f"siblings of apart: {middle('apart', 'units', 'siblings'):.4f}")
    print(f"fan-out: {middle('linked', 'rows', 'fan-out'):.4f} (goal 0.01)")
    cost = [run["linked"]["cost"] for run in runs]
    print(", ".join(f"{figure} {float(np.median([one[figure] for one in cost])):.1f}" for figure in cost[0]))


if __name__ == "__main__":
    main()
