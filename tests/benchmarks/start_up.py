"""How long it takes to begin: Python, its libraries, `import dpsql`, `dpsql budget FILE`.

usage: python tests/benchmarks/start_up.py [--runs 10]

Every run is a process of its own, and the four kinds take turns, so that a busy machine slows all of them. Printed are medians: seconds
on the clock, seconds of the processor, and the difference to, and the ratio with, `import duckdb, numpy`.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

LIBRARIES = "import duckdb, numpy"
STATEMENTS = (
    "CREATE TABLE people AS SELECT i % 7 AS age FROM range(1000) t(i)",
    "CALL dp_protect('people', epsilon := 1, delta := 1e-6)",
    "CALL dp_declare('people', 'age', lower := 0, upper := 7, bins := 7, nullable := false)",
    "FROM dp_synthesize('people', epsilon := 0.1)",
)


def prepare(path: Path) -> None:
    """Make a database with a protected table and an entry in its books."""
    import duckdb

    import dpsql

    with duckdb.connect(str(path)) as con:
        dpsql.load(con, progress=False)
        for statement in STATEMENTS:
            con.execute(statement)


def timed(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return how long a process took: on the clock, and of the processor."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    took, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.duckdb"
        prepare(path)
        commands = {
            "python": [sys.executable, "-c", ""],
            LIBRARIES: [sys.executable, "-c", LIBRARIES],
            "import dpsql": [sys.executable, "-c", "import dpsql"],
            "dpsql budget FILE": [sys.executable, "-m", "dpsql.cli", "budget", str(path)],
        }
        # Modules are compiled once, as for every user, and into this folder, not into the checkout.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "compiled")
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for run in range(runs + 1):
            for name, command in commands.items():
                found = timed(command, environment)
                if run:  # the first one fills the caches
                    took[name].append(found)
    medians = {name: tuple(median(values) for values in zip(*times, strict=True)) for name, times in took.items()}
    clock, processor = medians[LIBRARIES]
    print(f"{'':22} {'clock':>7} {'more':>7} {'ratio':>6}   {'processor':>9} {'more':>7} {'ratio':>6}   (s, medians of {runs} runs)")
    for name, (wall, cpu) in medians.items():
        print(
            f"{name:22} {wall:7.3f} {wall - clock:+7.3f} {wall / clock:6.2f}   "
            f"{cpu:9.3f} {cpu - processor:+7.3f} {cpu / processor:6.2f}"
        )


if __name__ == "__main__":
    main()
