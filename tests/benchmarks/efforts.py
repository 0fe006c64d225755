"""Efforts of latent_class beside the fit of an earlier commit: seconds as ratios in one run, and distances.

    python tests/benchmarks/efforts.py [--against COMMIT] [--data adult15 sim50k ...] [--efforts fast balanced best] [--seeds 5]

The earlier commit (by default the last one before there were efforts) is checked out into a temporary folder. Every version runs in a
process of its own, with its own `accuracy.py`; they take turns, seed by seed, so that what else the machine does meets all of them.
Prints medians over the seeds: wall and CPU seconds (noise, fit and rows), each divided by those of the earlier commit with the same
seed, and total variation distances of one-, two- and three-way tables. epsilon = 1; the noise is the real one. The data are those of
`accuracy.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
BEFORE_EFFORTS = "8478bab"
WORKER = """
import inspect, json, sys
import accuracy
data, epsilon = accuracy.DATA[sys.argv[1]](), 1.0
score, delta = accuracy.Score(data), accuracy.DELTAS.get(sys.argv[1], accuracy.DELTA)
given = json.loads(sys.argv[2])
takes = "options" in inspect.signature(accuracy.one_run).parameters
for line in sys.stdin:
    rows, wall, cpu = accuracy.one_run("latent_class", data, epsilon, delta, int(line), *([given] if takes else []))
    print(json.dumps([wall, cpu, *map(float, score(rows)[:3])]), flush=True)
"""


class Version:
    """A process that runs the fit of one version."""

    def __init__(self, tree: Path, data: str, options: dict[str, str]) -> None:
        shared = os.environ.get("DPSQL_SHARED", str(ROOT.parent / "shared"))
        environment = {**os.environ, "PYTHONPATH": f"{tree}:{tree / 'tests' / 'benchmarks'}", "DPSQL_SHARED": shared}
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, data, json.dumps(options)], cwd=tree, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )

    def run(self, seed: int) -> list[float]:
        """Return wall and CPU seconds, and three distances."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{seed}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            sys.exit(f"the process of a version ended with {self._process.wait()}")
        return [float(number) for number in json.loads(answer)]

    def close(self) -> None:
        self._process.communicate()


def compare(tree: Path, data: str, efforts: list[str], seeds: int) -> None:
    """Print the figures of one table."""
    versions = {"before efforts": Version(tree, data, {}), **{name: Version(ROOT, data, {"effort": name}) for name in efforts}}
    found = {name: np.array([[np.nan] * 5] * seeds) for name in versions}
    for seed in range(seeds):
        for name, version in versions.items():
            found[name][seed] = version.run(seed)
    for version in versions.values():
        version.close()
    print(f"\n{data}, medians of {seeds} seeds\n{'':20s}{'wall s':>8s}{'CPU s':>8s}{'wall':>8s}{'CPU':>8s}{'1-way':>8s}{'2-way':>8s}{'3-way':>8s}")
    first = found["before efforts"]
    for name, runs in found.items():
        wall, cpu, *distances = np.median(runs, axis=0)
        ratios = np.median(runs[:, :2] / first[:, :2], axis=0)
        print(f"{name:20s}{wall:8.2f}{cpu:8.2f}" + "".join(f"{ratio:8.2f}" for ratio in ratios) + "".join(f"{d:8.4f}" for d in distances))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", default=BEFORE_EFFORTS)
    parser.add_argument("--data", nargs="+", default=["adult15"])
    parser.add_argument("--efforts", nargs="+", choices=["fast", "balanced", "best"], default=["fast", "balanced"])
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "earlier"
        git = ["git", "-C", str(ROOT)]
        subprocess.run([*git, "worktree", "add", "--quiet", "--detach", str(tree), arguments.against], check=True)
        try:
            for data in arguments.data:
                compare(tree, data, arguments.efforts, arguments.seeds)
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(tree)], check=True)


if __name__ == "__main__":
    main()
