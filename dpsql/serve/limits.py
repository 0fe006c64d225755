"""Limits of a statement: its time, how many run at once."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import duckdb

from dpsql.running import interruption
from dpsql.running.interruption import AGAIN, Running, Stopped

LOOK = 0.1
"""Seconds between two looks at the memory, while SQL of analysts' own runs."""
NOTHING = "nothing was charged"
BOUGHT = "what it bought so far is not charged again"
BEGUN = "what was charged is finished by asking again"


class _Nothing:
    """No query."""

    def interrupt(self) -> None:
        """Do nothing."""


class Statement(Running):
    """A statement; calls that run inside of it are stopped with it.

    Parameters
    ----------
    cursor : duckdb.DuckDBPyConnection or None
        What it runs on, besides the cursors of its calls.
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection | None, text: str = NOTHING) -> None:
        super().__init__(_Nothing() if cursor is None else cursor, text)
        self.short = False
        """Whether it was stopped because memory is short."""

    def interrupt(self) -> None:
        """Stop the queries and calls that run now; each call says what its books know."""
        for cursor in list(self.cursors):
            with suppress(Exception):  # a cursor that was closed meanwhile
                if isinstance(cursor, Running):
                    cursor.stop()
                else:
                    cursor.interrupt()

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Run a call: what it says of its books when it is stopped is what the statement says, then and later."""
        try:
            yield
        except (Stopped, duckdb.InterruptException) as error:
            told = str(error)
            self.books = lambda: told
            raise
        except Exception:
            self.books = lambda: BEGUN
            raise
        self.books = lambda: BOUGHT


class Clock:
    """Stops statements that run for too long: one thread for all of them.

    Parameters
    ----------
    seconds : float
        What a statement may take.
    short : callable, optional
        Whether memory is short; then what runs SQL of its own is stopped, and no call is.
    """

    def __init__(self, seconds: float, short: Callable[[], bool] = lambda: False) -> None:
        self.seconds, self._short = seconds, short
        self._until: dict[Statement, float] = {}
        self._own: dict[Statement, bool] = {}  # whether it does more than take what a call gave
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._watch, name="dpsql-clock", daemon=True)
        self._thread.start()

    @contextmanager
    def limited(self, statement: Statement, seconds: float | None = None) -> Iterator[None]:
        """Run a block as this statement; it is stopped where it takes too long, or `stop` is called.

        Parameters
        ----------
        seconds : float, optional
            What it may take instead; infinite: until `stop`.
        """
        with self._changed:
            self._until[statement] = time.monotonic() + (self.seconds if seconds is None else seconds)
            self._changed.notify()
        try:
            with interruption.call(statement):
                yield
        finally:
            with self._changed:
                self._until.pop(statement, None)

    @contextmanager
    def own(self, statement: Statement, *, more: bool = True) -> Iterator[None]:
        """Run SQL of the statement's own, outside of any call: it gives way where memory is short.

        Parameters
        ----------
        more : bool
            Whether it does more than take what a call gave, as the call gave it; what does not gives way last.
        """
        with self._changed:
            self._own[statement] = more
            self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._own.pop(statement, None)

    def running(self) -> int:
        """Return how many statements run."""
        return len(self._until)

    def stop(self) -> None:
        """Stop whatever runs, now."""
        with self._changed:
            self._until = dict.fromkeys(self._until, 0.0)
            self._changed.notify()

    def end(self) -> None:
        """End the thread."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()

    def _watch(self) -> None:
        alone = False  # whether memory was short with nothing to stop that does more than take what a call gave
        while True:
            with self._changed:
                before = set(self._own)
            short = bool(before) and self._short()
            with self._changed:
                if self._ended:
                    return
                found = before & self._own.keys() if short else set()
                more = {statement for statement in found if self._own[statement]}
                for statement in more or (found if alone else ()):  # what was stopped needs a moment to give its memory back
                    statement.short = True
                    statement.stop()
                alone = bool(found) and not more
                now = time.monotonic()
                late = [statement for statement, until in self._until.items() if until <= now]
                for statement in late:  # none of them can end meanwhile, and its cursor be another one's
                    statement.stop()
                left = min((until - now for until in self._until.values() if until > now), default=None)
                if late:
                    left = AGAIN  # again and again: an interrupt between two statements is lost
                elif self._own:
                    left = min(LOOK, math.inf if left is None else left)
                if not self._ended:
                    self._changed.wait(left if left != math.inf else None)


class Turns:
    """How many statements run at once: ``each`` of one analyst, ``most`` of all; some more may wait.

    Parameters
    ----------
    waiting : int
        How many statements of one analyst may wait: each takes a thread of the server's.
    """

    def __init__(self, each: int, most: int, waiting: int, seconds: float) -> None:
        self._each, self._most, self._waiting, self._seconds = each, most, waiting, seconds
        self._running: dict[str, int] = {}
        self._queue: list[tuple[str, threading.Event]] = []
        self._guard = threading.Lock()

    @contextmanager
    def turn(self, name: str) -> Iterator[bool]:
        """Wait for a turn; the block is told whether it has one. Who came first is first."""
        given = self._take(name)
        try:
            yield given
        finally:
            if given:
                with self._guard:
                    _less(self._running, name)
                    self._next()

    def _take(self, name: str) -> bool:
        with self._guard:
            if self._free(name):  # then nobody waits for this turn: `_next` would have given it away
                self._running[name] = self._running.get(name, 0) + 1
                return True
            if sum(other == name for other, _ in self._queue) >= self._waiting:
                return False
            mine = (name, threading.Event())
            self._queue.append(mine)
        if mine[1].wait(self._seconds):
            return True
        with self._guard:
            if mine in self._queue:
                self._queue.remove(mine)
                return False
            return True  # given at the last moment

    def _free(self, name: str) -> bool:
        return self._running.get(name, 0) < self._each and sum(self._running.values()) < self._most

    def _next(self) -> None:
        """Give turns to those who wait and may run, and wake nobody else: each thread that wakes takes time from those that run."""
        for waiting in list(self._queue):
            name, given = waiting
            if self._free(name):
                self._queue.remove(waiting)
                self._running[name] = self._running.get(name, 0) + 1
                given.set()


def _less(counts: dict[str, int], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
