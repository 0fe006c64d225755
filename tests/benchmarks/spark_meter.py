"""A Spark that is measured: CPU seconds of its processes, bytes that are shuffled, bytes and memory of the driver."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsql.engines.spark import session as sessions
from dpsql.engines.spark.tables import count_select

TICK = os.sysconf("SC_CLK_TCK")
NOTHING = "SELECT id % 2 AS c0 FROM range(4)"


@dataclass(frozen=True)
class Used:
    """What something took: wall seconds; CPU seconds of all processes, and of the driver's (Python and its JVM) among them."""

    wall: float
    all: float
    driver: float

    def __str__(self) -> str:
        """Say it."""
        return f"{self.wall:.1f} s, CPU {self.all:.1f} s"


@dataclass(frozen=True)
class Moved:
    """Bytes written to shuffles; bytes of results that came to the driver; tasks; MB by which the driver's Python grew at most."""

    shuffled: int
    result: int
    tasks: int
    python: float


def cpu() -> tuple[float, float]:
    """Return the CPU seconds of this process and of all below it, those that have ended too; and those of the driver among them."""
    parents, times, names = {}, {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (path / "stat").read_text().rpartition(")")
        except OSError:
            continue
        fields, pid = rest.split(), int(path.name)
        parents[pid], names[pid] = int(fields[1]), name.rpartition("(")[2]
        times[pid] = [int(field) / TICK for field in fields[11:15]]
    here = os.getpid()
    mine = {here}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    below = [pid for pid in mine if parents.get(pid) == here and names.get(pid) == "java" and not _daemon(pid)]
    driver = sum(sum(times[pid][:2]) for pid in [here, *below] if pid in times)
    return sum(sum(times[pid]) for pid in mine if pid in times), driver


def _daemon(pid: int) -> bool:
    """Return whether this JVM is a master or a worker of a cluster, and not a driver."""
    try:
        return b"org.apache.spark.deploy.master" in (text := Path(f"/proc/{pid}/cmdline").read_bytes()) or b"deploy.worker" in text
    except OSError:
        return False


def _resident(name: str) -> float:
    """Return megabytes of this process: VmRSS now, or VmHWM at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1e3


class Spark:
    """A session of dpsql's own, and what it has moved.

    Parameters
    ----------
    url : str
        'local[2]' or a cluster's.
    settings : mapping
        Of the driver, beyond these.
    """

    def __init__(self, url: str, memory: str, settings: dict[str, str]) -> None:
        given = {
            "spark.driver.memory": memory, "spark.executor.memory": "900m", "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false", **settings,
        }  # fmt: skip
        os.environ |= {
            "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_SUBMIT_ARGS": " ".join(f"--conf {name}={value}" for name, value in given.items()) + " pyspark-shell",
        }  # fmt: skip
        self.started, _ = self.measured(lambda: self._begin(url))
        self.first, _ = self.measured(self.nothing)
        self.fixed, _ = self.measured(self.nothing)

    def _begin(self, url: str) -> None:
        self.session = sessions.session(url)
        self.session.sparkContext.setLogLevel("OFF")
        # As many parts of a file at any size, so that as many tasks count: see docs/scale-out-figures.md.
        self.session.conf.set("spark.sql.files.minPartitionNum", "8")

    def nothing(self) -> None:
        """Count four rows."""
        count_select(self.session, NOTHING, [2], [(0,), ()], road="arrays")

    def overhead(self) -> str:
        """Say what Spark takes for nothing."""
        return (
            f"Spark starts in {self.started}; its first counting, which starts workers: {self.first}; the next one, of four rows: "
            f"{self.fixed}; heap of the driver {self.heap():.0f} MB"
        )

    def measured(self, call: Callable[[], Any]) -> tuple[Used, Any]:
        """Return what a call takes, and its result."""
        start, (every, driver) = time.perf_counter(), cpu()
        found = call()
        wall = time.perf_counter() - start
        after = cpu()
        return Used(wall, after[0] - every, after[1] - driver), found

    def watched(self, call: Callable[[], Any]) -> tuple[Used, Moved, Any]:
        """Return what a call takes and moves, and its result."""
        before = self._moved()
        Path("/proc/self/clear_refs").write_text("5")
        resident = _resident("VmRSS")
        used, found = self.measured(call)
        grown = _resident("VmHWM") - resident
        time.sleep(1)  # the status of the last stage is written beside
        shuffled, result, tasks = (after - was for after, was in zip(self._moved(), before, strict=True))
        return used, Moved(shuffled, result, tasks, grown), found

    def _moved(self) -> tuple[int, int, int]:
        store = self.session.sparkContext._jsc.sc().statusStore()
        stages = store.stageList(None, False, False, self.session.sparkContext._gateway.new_array(
            self.session.sparkContext._jvm.double, 0), None)  # fmt: skip
        each = [stages.apply(i) for i in range(stages.size())]
        return (
            sum(stage.shuffleWriteBytes() for stage in each),
            sum(stage.resultSize() for stage in each),
            sum(stage.numCompleteTasks() for stage in each),
        )

    def heap(self) -> float:
        """Return the megabytes that are alive in the heap of the driver's JVM."""
        runtime = self.session.sparkContext._jvm.java.lang.Runtime.getRuntime()
        self.session.sparkContext._jvm.System.gc()
        return float((runtime.totalMemory() - runtime.freeMemory()) / 1e6)
