"""Two threads for long calculations that release the interpreter's lock, with a caller that stays open to interrupts.

A call into LAPACK or BLAS cannot be interrupted: on the main thread of Python, Ctrl-C waits until it returns. Here the
calling thread only waits, and wakes up several times a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar

Result = TypeVar("Result")

THREADS = 2
_WAKE = 0.2
"""Seconds between two looks at whether an interrupt came."""


class Workers(AbstractContextManager["Workers"]):
    """A pool of two threads. What it returns never depends on how many cores there are, nor on which thread was first.

    On an exception (an interrupt, say) tasks that have not begun are dropped, and the pool is left without waiting for
    those that run: they should take a second or two at most, and touch nothing that outlives the call.

    Notes
    -----
    Privacy: none; says nothing of its own.

    Examples
    --------
    >>> with Workers() as workers:
    ...     workers.map(abs, [-1, 2, -3])
    [1, 2, 3]
    """

    def __init__(self, threads: int = THREADS) -> None:
        self._pool = ThreadPoolExecutor(threads)

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Begin one task."""
        return self._pool.submit(function, *arguments)

    def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Return function(*arguments), computed on a worker thread."""
        return waited(self._pool.submit(function, *arguments))

    def map(self, function: Callable[..., Result], items: Iterable[Any]) -> list[Result]:
        """Return the results of all items in their order."""
        return [waited(future) for future in [self._pool.submit(function, item) for item in items]]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Drop what has not begun."""
        self._pool.shutdown(wait=kind is None, cancel_futures=True)


def waited(future: Future[Result]) -> Result:
    """Return a task's result, or raise what it raised; an interrupt of the waiting thread gets through within a moment."""
    while True:
        try:
            return future.result(timeout=_WAKE)
        except FutureTimeoutError:
            if future.done():  # the end of the wait and that of the task coincided, or the error is the task's own
                return future.result()
