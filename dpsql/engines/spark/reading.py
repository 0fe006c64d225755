"""Statements of Spark that read protected rows: beside the main thread, stopped with the call, their errors withheld."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from dpsql.engines.spark.faults import lost
from dpsql.engines.spark.quiet import quiet
from dpsql.errors import DpsqlError, EngineLost
from dpsql.running import progress
from dpsql.running.background import Background

Result = TypeVar("Result")

_WAKE = 0.2  # seconds between two looks at whether the call is to stop, and at how far Spark is
MOST = 4096
"""Tasks that count side by side, at most: each of them has all cells to hand over."""
_WITHHELD = (
    "source: Spark could not read it. The reason is withheld because it may quote a protected value; as the custodian run the "
    "source's SELECT in Spark by itself to see it (a CAST that fails? use TRY_CAST. Out of memory? give the executors more)"
)
_GONE = (
    "source: Spark was lost while it counted: its server, its cluster or the executors of a task have gone, or cannot be reached "
    "any more (out of memory? give them more)"
)


@contextmanager
def withheld() -> Iterator[None]:
    """Replace an error of Spark by one without its text.

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
    except Exception as error:  # of the client, of gRPC
        raise (EngineLost(_GONE) if lost(error) else DpsqlError(_WITHHELD)) from None


def tasks(session: Any) -> int:
    """Return how many tasks count side by side: as many as Spark shuffles with, for Spark Connect does not tell the cores.

    Privacy: a setting of the cluster; says nothing of the rows.
    """
    with withheld():
        shuffled = session.conf.get("spark.sql.shuffle.partitions", "200")
    return min(max(int(shuffled), 2), MOST)


@dataclass
class _Operation:
    """What runs in Spark under one tag."""

    session: Any
    tag: str

    def interrupt(self) -> None:
        """Stop it; nothing where nothing runs."""
        with contextlib.suppress(Exception):  # the server may have gone
            self.session.interruptTag(self.tag)


class SparkReading(Background):
    """One thread for a call's statements; a context manager, whose end stops the one that runs.

    Parameters
    ----------
    session : SparkSession
    guard : function
        Gives what stands around each call; another one than `withheld` where nothing depends on a protected row.
    """

    def __init__(self, session: Any, guard: Callable[[], AbstractContextManager[None]] = withheld) -> None:
        self.session = session
        self._guard = guard
        self._operation = _Operation(session, f"dpsql-{secrets.token_hex(8)}")
        self._done, self._share = 0.0, (0.0, 1.0)
        super().__init__(self._operation, "dpsql-spark")

    def __enter__(self) -> Self:
        """Begin to listen for Spark's progress."""
        with contextlib.suppress(Exception):  # progress is a comfort
            self.session.registerProgressHandler(self._heard)
        return super().__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop what still runs."""
        try:
            super().__exit__(kind, error, trace)
        finally:
            with contextlib.suppress(Exception):
                self.session.removeProgressHandler(self._heard)

    def part(self, number: int, parts: int) -> None:
        """Say that what follows is one of so many parts of the stage that runs."""
        self._share = number / parts, 1 / parts
        self._done = 0.0

    def run(self, call: Callable[[], Result]) -> Result:
        """Return what a call returns; an interruption stops it.

        Raises
        ------
        DpsqlError
            The call failed.
        Stopped
            `dpsql.interrupt` asked the call to stop.
        """
        future = self.begin(lambda: self._tagged(call))
        while True:
            try:
                return future.result(timeout=_WAKE)
            except FutureTimeoutError:
                if future.done():
                    return future.result()
                progress.advance(self._share[0] + self._share[1] * self._done)

    def _tagged(self, call: Callable[[], Result]) -> Result:
        """Run a call on this thread with the tag that stops it."""
        with quiet(), self._guard():
            self.session.addTag(self._operation.tag)
            return call()

    def _heard(self, stages: Any, **_: Any) -> None:
        """Listen to Spark."""
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
