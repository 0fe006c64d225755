"""A statement on another thread, so that Ctrl-C ends the wait for it within a moment, and then the statement.

DuckDB itself looks for Ctrl-C in some waits only: not while it sorts, or makes a table, and on a wide table one of its tasks may
take several seconds. `interrupt` of its cursor is looked at after every 2,048 rows.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any, Self, TypeVar

from dpsql.running.interruption import AGAIN, Interruptible
from dpsql.running.parallel import waited

Result = TypeVar("Result")


class Background:
    """One thread for the statements of a cursor; a context manager, whose end stops the one that runs.

    Nothing else may use the cursor while one does: DuckDB 2.0 refuses, others wait.

    Parameters
    ----------
    cursor : DuckDB cursor
    name : str
        Of the thread.
    """

    def __init__(self, cursor: Interruptible, name: str) -> None:
        self._interrupt = cursor.interrupt
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._running: Future[Any] | None = None

    def __enter__(self) -> Self:
        """Return this."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop what still runs, and wait for that; what has not begun never does."""
        if self._running is not None and not self._running.cancel():
            while not self._running.done():
                self._interrupt()
                wait([self._running], timeout=AGAIN)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def begin(self, call: Callable[[], Result]) -> Future[Result]:
        """Begin a call, after the one before."""
        future: Future[Result] = Future()
        self._running = future  # known before its thread is: Ctrl-C strikes inside `submit` too, which then returns nothing
        self._pool.submit(_settle, future, call)
        return future

    def run(self, call: Callable[[], Result]) -> Result:
        """Return what a call returns."""
        return waited(self.begin(call))


def _settle(future: Future[Result], call: Callable[[], Result]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)
