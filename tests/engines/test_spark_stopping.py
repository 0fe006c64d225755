"""A counting of Spark ends with the call: by Ctrl-C, by another thread; and shows how far it is."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from dpsql.running import interruption, progress
from dpsql.running.interruption import Interrupted, Running, Stopped

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dpsql.engines.spark import tables
from dpsql.engines.spark.reading import SparkReading

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.any_duckdb, pytest.mark.filterwarnings("ignore")]
LONG = "SELECT CAST(id % 2 AS INT) AS c0 FROM range(0, 1000000000000, 1, 2) WHERE id % 1000 < 999"
"""Hours. Spark's range, unlike its readers of files and tables, looks for a kill only at the end of a batch of 1,000 rows, and only if
the last of them goes no further: without the WHERE a task that was stopped may run on, and keeps its core from all that follow."""


class Cursor:
    def interrupt(self) -> None:
        """Nothing runs in DuckDB."""


def once_busy(spark: Any, act: Callable[[], None]) -> threading.Thread:
    """Act as soon as Spark has a task that runs; after two minutes in any case: a statement that waits is stopped, too."""

    def wait() -> None:
        tracker = spark.sparkContext.statusTracker()
        until = time.monotonic() + 120
        while time.monotonic() < until:
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            if any(stage is not None and stage.numActiveTasks for stage in stages):
                break
            time.sleep(0.1)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def idle(spark: Any) -> bool:
    until = time.monotonic() + 120
    while spark.sparkContext.statusTracker().getActiveJobsIds() and time.monotonic() < until:
        time.sleep(0.1)
    return not spark.sparkContext.statusTracker().getActiveJobsIds()


def running_tasks(spark: Any) -> int:
    """Return how many tasks run still, a moment after their job was stopped."""
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    until = time.monotonic() + 60
    while (found := sum(executor.numRunningTasks() for executor in tracker.getExecutorInfos())) and time.monotonic() < until:
        time.sleep(0.1)
    return found


@pytest.mark.parametrize("road", ["groups", "arrays"])
def test_stopped_from_another_thread(spark: Any, road: str) -> None:
    running = Running(Cursor())
    thread = once_busy(spark, running.stop)
    with pytest.raises(Stopped), interruption.call(running):
        tables.count_select(spark, LONG, [2], [(0,)], road=road)
    thread.join()
    assert idle(spark)
    assert running_tasks(spark) == 0


def test_control_c(spark: Any) -> None:
    running = Running(Cursor())
    thread = once_busy(spark, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted), interruption.call(running):
        tables.count_select(spark, LONG, [2], [(0,)], road="arrays")
    thread.join()
    assert idle(spark)
    assert running_tasks(spark) == 0
    assert tables.count_select(spark, "SELECT 1 AS c0 FROM range(3)", [2], [(0,)])[0][(0,)].tolist() == [0, 3]


def test_progress(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares of the tasks that are done, of a part of the stage; they rise."""
    seen: list[float] = []
    monkeypatch.setattr(progress, "advance", seen.append)
    slow = "SELECT sum(hash(a.id, b.id)) AS s FROM range(0, 4000, 1, 12) a CROSS JOIN range(0, 8000, 1, 1) b"
    with SparkReading(spark) as reading:
        reading.part(1, 2)
        reading.arrow(lambda: spark.sql(slow))
    assert seen
    assert seen == sorted(seen)
    assert all(0.5 <= done <= 1 for done in seen)
    assert len(set(seen)) > 1
