"""Blocks of rows drawn by several threads: always the same rows, in order, whatever the number of threads.

Privacy: none; nothing here looks at data.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from dpsql.running.parallel import waited

Result = TypeVar("Result")

_MOST_THREADS = 4
"""Each thread holds a block in memory."""


def threads() -> int:
    """Return how many blocks are drawn at a time."""
    known = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(known, _MOST_THREADS))


class Stopped(Exception):  # no error: what a block raises whose rows nobody waits for any more
    """The drawing was given up."""


class Stop:
    """Tells workers that their result is not needed any more."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Make every further `check` raise."""
        self._event.set()

    def check(self) -> None:
        """Raise `Stopped` where the drawing was given up; to be called every few tenths of a second of work."""
        if self._event.is_set():
            raise Stopped


def generators(rng: np.random.Generator, count: int) -> Iterator[np.random.Generator]:
    """Yield independent fast generators, which the state of `rng` determines.

    Examples
    --------
    >>> [int(g.integers(100)) for g in generators(np.random.default_rng(1), 3)]
    [46, 73, 30]
    """
    entropy = rng.integers(0, 2**32, 8, dtype=np.uint32).tolist()
    for block in range(count):
        yield np.random.Generator(np.random.SFC64(np.random.SeedSequence(entropy, spawn_key=(block,))))


def drawn(tasks: Sequence[Callable[[Stop], Result]], at_once: int | None = None) -> Iterator[Result]:
    """Run tasks in threads, as many at a time as there are cores, and yield their results in order.

    Parameters
    ----------
    tasks : sequence of functions of a `Stop`
        They must not depend on each other.
    at_once : int, optional
        At least 1.

    Yields
    ------
    object
        While a result is made use of, no task runs beyond those begun together with it: no more than `at_once` results
        wait in memory.

    Notes
    -----
    Where the calling thread is interrupted, or the iterator closed, the workers stop at their next `Stop.check`.
    """
    width = min(at_once or threads(), max(len(tasks), 1))
    if width == 1:
        stop = Stop()
        for task in tasks:
            yield task(stop)
        return
    stop = Stop()
    pool = ThreadPoolExecutor(width, thread_name_prefix="dpsql-draw")
    try:
        # so many at a time, each awaited: a block that nobody has taken yet is memory
        for first in range(0, len(tasks), width):
            running = [pool.submit(task, stop) for task in tasks[first : first + width]]
            running.reverse()
            while running:
                yield waited(running.pop())
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
