"""Statements of Spark that read protected rows: beside the main thread, stopped with the call, their errors withheld.

Both kinds of session do: a classic one, and one of Spark Connect.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from dpsql.engines.spark.faults import classic, executors, lost
from dpsql.engines.spark.quiet import quiet
from dpsql.engines.spark.session import give_up
from dpsql.errors import DpsqlError, EngineLost
from dpsql.running import progress
from dpsql.running.background import Background

Result = TypeVar("Result")

_WAKE = 0.2  # seconds between two looks at whether the call is to stop, and at how far Spark is
_LOOK = 1.0  # seconds between two looks at whether there are executors
MOST_EVENLY, MOST = 1024, 4096
"""Tasks that count side by side: the most where cores have two, and the most at all."""
PATIENCE = "DPSQL_SPARK_PATIENCE"
"""The environment variable with the seconds for which a cluster may give no executor; 120 if it is not set."""
_ALONE = (
    "source: Spark's cluster has given no executor for {seconds} s: they were lost, or it has none to give (the environment "
    "variable DPSQL_SPARK_PATIENCE says how many seconds are waited)"
)
_WITHHELD = (
    "source: Spark could not read it. The reason is withheld because it may quote a protected value; as the custodian run the "
    "source's SELECT in Spark by itself to see it (a CAST that fails? use TRY_CAST. Out of memory? give the executors more)"
)


_GONE = (
    "source: Spark was lost while it counted: its driver, its cluster or the executors of a task have gone, or cannot be reached "
    "any more (out of memory? give them more)"
)


@contextmanager
def withheld(session: Any = None) -> Iterator[None]:
    """Replace an error of Spark by one without its text.

    Parameters
    ----------
    session : SparkSession, optional
        A failure after which its driver has stopped is a loss of Spark.

    Raises
    ------
    EngineLost
        Spark itself has gone, see `dpsql.engines.spark.faults`.
    DpsqlError
        Something else failed; an interruption of the call passes through.

    Notes
    -----
    Privacy: as `dpsql.domains.encoding.guarded`.
    """
    try:
        with quiet():
            yield
    except DpsqlError:
        raise
    except Exception as error:  # of the JVM, of its gateway, of gRPC
        raise (EngineLost(_GONE) if lost(error, session) else DpsqlError(_WITHHELD)) from None


def patience() -> float:
    """Return for how many seconds a cluster may give no executor before it is taken for lost; it would be waited for forever."""
    try:
        return max(float(os.environ.get(PATIENCE, "120")), 1.0)
    except ValueError:
        return 120.0


def tasks(session: Any) -> int:
    """Return how many tasks count side by side.

    Two for each core of the cluster, so that slow ones matter less; one where that would be more than `MOST_EVENLY`: 1,024 tasks on
    1,000 cores would take the time of two. At most `MOST`, since each of them has all cells to hand over. Where executors come when
    there are tasks for them (dynamic allocation), and through Spark Connect, which does not say how many cores there are: at least
    as many as it shuffles with.

    Privacy: a setting of the cluster; says nothing of the rows.
    """
    shuffled = int(session.conf.get("spark.sql.shuffle.partitions", "200"))
    if not classic(session):
        return min(max(shuffled, 2), MOST)
    cores = int(session.sparkContext.defaultParallelism)
    found = 2 * cores if 2 * cores <= MOST_EVENLY else cores
    if str(session.conf.get("spark.dynamicAllocation.enabled", "false")).lower() == "true":
        found = max(found, shuffled)
    return min(max(found, 2), MOST)


@dataclass
class _Operation:
    """What runs in Spark under one tag."""

    session: Any
    tag: str

    def interrupt(self) -> None:
        """Stop it; nothing where nothing runs."""
        with contextlib.suppress(Exception):  # the session may have ended
            if classic(self.session):
                self.session.sparkContext.cancelJobGroup(self.tag)
            else:
                self.session.interruptTag(self.tag)


class SparkReading(Background):
    """One thread for a call's statements; a context manager, whose end stops the one that runs.

    Parameters
    ----------
    session : SparkSession
    guard : function, optional
        Gives what stands around each call, in the place of `withheld`: where nothing depends on a protected row.
    """

    def __init__(self, session: Any, guard: Callable[[], AbstractContextManager[None]] | None = None) -> None:
        self.session = session
        self._guard = guard or (lambda: withheld(session))
        self._operation = _Operation(session, f"dpsql-{secrets.token_hex(8)}")
        self._done, self._share = 0.0, (0.0, 1.0)
        super().__init__(self._operation, "dpsql-spark")

    def __enter__(self) -> Self:
        """Begin to listen for Spark's progress."""
        if not classic(self.session):
            with contextlib.suppress(Exception):  # progress is a comfort
                self.session.registerProgressHandler(self._heard)
        return super().__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop what still runs."""
        try:
            super().__exit__(kind, error, trace)
        finally:
            if isinstance(error, EngineLost):
                give_up(self.session)
            if not classic(self.session):
                with contextlib.suppress(Exception):
                    self.session.removeProgressHandler(self._heard)

    def part(self, number: int, parts: int) -> None:
        """Say that what follows is one of so many parts of the stage that runs."""
        self._share = number / parts, 1 / parts
        self._done = 0.0

    def run(self, call: Callable[[], Result]) -> Result:
        """Return what a call returns; look now and then whether to stop.

        Raises
        ------
        DpsqlError
            The call failed.
        Stopped
            `dpsql.interrupt` asked the call to stop.
        """
        future = self.begin(lambda: self._tagged(call))
        seen = looked = time.monotonic()
        while True:
            try:
                return future.result(timeout=_WAKE)
            except FutureTimeoutError:
                if future.done():
                    return future.result()
                progress.advance(self._share[0] + self._share[1] * self._so_far())
            if (now := time.monotonic()) - looked > _LOOK:
                looked = now
                if executors(self.session) != 0:
                    seen = now
                elif now - seen > patience():
                    raise EngineLost(_ALONE.format(seconds=round(now - seen)))

    def _tagged(self, call: Callable[[], Result]) -> Result:
        """Run a call on this thread with the tag that stops it."""
        with quiet(), self._guard():
            if classic(self.session):
                # With interrupts, as Spark Connect has it: a task that waits for Python looks at nothing else.
                self.session.sparkContext.setJobGroup(self._operation.tag, "dpsql", interruptOnCancel=True)
            else:
                self.session.addTag(self._operation.tag)
            return call()

    def _so_far(self) -> float:
        """Return how much of Spark's tasks are done, of those that are known of."""
        if classic(self.session):
            with contextlib.suppress(Exception):
                self._done = max(self._done, self._of_jobs())  # jobs of later stages begin anew
        return self._done

    def _of_jobs(self) -> float:
        tracker = self.session.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._operation.tag)]
        running = [job for job in jobs if job is not None and job.status == "RUNNING"]
        found = [tracker.getStageInfo(stage) for job in running for stage in job.stageIds]
        stages = [stage for stage in found if stage is not None]
        done, known = sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
        return float(done / max(known, 1))

    def _heard(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        """Listen to Spark Connect."""
        known = list(stages or [])
        so_far = sum(stage.num_completed_tasks for stage in known) / max(sum(stage.num_tasks for stage in known), 1)
        self._done = max(self._done, so_far)

    def arrow(self, make: Callable[[], Any]) -> Any:
        """Return the rows of a data frame as a pyarrow table: of counts alone, never of protected rows.

        Parameters
        ----------
        make : function
            Makes the data frame; called on the other thread.
        """
        return self.run(lambda: make().toArrow())
