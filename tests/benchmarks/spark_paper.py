"""What counting and writing take for more rows and cores than were measured: arithmetic on measured constants, see `Measured`.

``python tests/benchmarks/spark.py paper`` prints the table of docs/scale-out-figures.md. The model, in seconds of wall clock:

- *count*: rows x CPU of a row / cores;
- *scheduler*: what the driver takes for each task of counting, and for each part of the files that Spark puts together to tasks;
- *reduce*: (tasks x cells) x CPU of one cell of one task / what adds side by side;
- *noise and fit*: seconds of the driver, whatever the number of rows;
- *write*: as many synthetic rows as there are rows x CPU of a row / cores, and a task for each part of a draw.

Perfect division among cores is assumed, and disks and a network that keep up with the cores; what is read in a second is printed. So the
times are lower bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.engines.spark.reading import MOST, MOST_EVENLY
from dpsql.rows.parts import MOST_PARTS, PART_ROWS

CHUNK, SPLIT = 1024, 128 * 2**20
"""Cells that a reducer gets together, and bytes of a part of a file (Spark's default)."""


@dataclass(frozen=True)
class Measured:
    """Constants from the other commands of spark.py, on two shared cores: 27 columns, all pairs."""

    cells: int = 36_381
    row: float = 1472e-9
    """CPU seconds of counting a row: `pairs --cluster`, "CPU of one more row"."""
    row_bytes: float = 6.6
    """Of Parquet, a row: the size of those files."""
    task: float = 7.4e-3
    """CPU seconds of the driver for a task: `partitions --cluster`, 1,024 tasks less 4, of 327 cells."""
    part: float = 10e-6
    """CPU seconds of the driver for a part of the relation that is put together with others to a task: there, 20,000 less 1,000."""
    cell: float = 0.54e-6
    """CPU seconds of the workers for a cell of a task, at most: there, 256 tasks less 64, of 132,512 tuples; holds what a task costs."""
    cell_bytes: float = 3.6
    """Shuffled for each cell of a task: `pairs --cluster`, 50 million rows; eight at most."""
    task_bytes: int = 2_870
    """Of a task's result that are Spark's own, which come to the driver: `partitions --cluster`, 1,024 tasks of 327 cells."""
    call: float = 37.0
    """CPU seconds of all of a dp_synthesize of a million rows, so of noise and fit at most: `rest`."""
    write: float = 6421e-9
    """CPU seconds of drawing a row and writing it as Parquet: `rest`, 2,097,152 rows less 524,288."""


ROWS = (10**9, 10**10, 10**11, 10**12)
CORES = (10, 100, 1000)


def tasks(cores: int) -> int:
    """As `dpsql.engines.spark.reading.tasks` has it."""
    return min(2 * cores if 2 * cores <= MOST_EVENLY else cores, MOST)


def seconds(rows: float, cores: int, m: Measured) -> dict[str, float]:
    """Return the seconds of each step."""
    count = tasks(cores)
    reducers = min(count, max(1, m.cells // CHUNK), cores)
    parts = max(1, min(-(-rows // PART_ROWS), MOST_PARTS))
    return {
        "count": rows * m.row / cores,
        "its scheduler": m.task * count + m.part * rows * m.row_bytes / SPLIT,
        "reduce, at most": m.cell * m.cells * count / reducers,
        "noise and fit, at most": m.call,
        "write": rows * m.write / cores,
        "its scheduler ": m.task * parts,
    }


def told(number: float) -> str:
    """Say seconds."""
    for most, unit, name in ((180, 1, "s"), (10_000, 60, "min"), (360_000, 3600, "h")):
        if number < most:
            return f"{number / unit:.{1 if number < 9.5 else 0}f} {name}"
    return f"{number / 86400:.0f} days"


def show(m: Measured | None = None) -> None:
    """Print the table."""
    m = m or Measured()
    names = list(seconds(1, 1, m))
    print(f"| rows | cores | {' | '.join(names)} | read a second | shuffled | to the driver | the most |")
    print(f"|{' --- |' * (len(names) + 6)}")
    for rows in ROWS:
        for cores in CORES:
            found = seconds(rows, cores, m)
            shuffled = m.cell_bytes * m.cells * tasks(cores)
            most = max(found, key=found.__getitem__)
            read = m.row_bytes * cores / m.row
            print(
                f"| 10^{len(str(rows)) - 1} | {cores:,} | {' | '.join(map(told, found.values()))} | {read / 1e6:,.0f} MB | "
                f"{shuffled / 1e6:.0f} MB | {(8 * m.cells + m.task_bytes * tasks(cores)) / 1e6:.1f} MB | {most} |"
            )
