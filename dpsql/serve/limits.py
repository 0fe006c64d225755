"""Limits of a served database: how long a statement takes, how many run at once, how much an answer holds."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import duckdb

from dpsql.purchase.uses import Paid
from dpsql.running import interruption
from dpsql.running.interruption import AGAIN, Interruptible, Running, Stopped

NOTHING = "nothing was charged"
BOUGHT = "what it bought so far is not charged again"
BEGUN = "what was charged is finished by asking again"


@dataclass(frozen=True)
class Limits:
    """What analysts may take of the server.

    Parameters
    ----------
    seconds : float
        Of a statement that buys nothing, and of checking any.
    buying : float
        Of one that buys: three readings of a table that are interrupted stop sales of all but plain columns, so there is time.
    each, most : int
        Statements of one analyst, and of all, that run at once.
    waiting : int
        Statements of one analyst that may wait for a turn.
    patience : float
        Seconds that one waits for a turn.
    rows : int
        Of an answer.
    """

    seconds: float = 60.0
    buying: float = 600.0
    each: int = 2
    most: int = 8
    waiting: int = 8
    patience: float = 60.0
    rows: int = 1_000_000


class Statement(Running):
    """A statement; calls that run inside of it are stopped with it."""

    def __init__(self, cursor: Interruptible) -> None:
        super().__init__(cursor, NOTHING)
        self.seconds = 0.0  # that it may take
        self.paid: list[Paid] = []

    def interrupt(self) -> None:
        """Stop the queries and calls that run now; each call says what its books know."""
        for cursor in list(self.cursors):
            with suppress(Exception):  # a cursor that was closed meanwhile
                if isinstance(cursor, Running):
                    cursor.stop()
                else:
                    cursor.interrupt()

    @contextmanager
    def also(self, cursor: Interruptible) -> Iterator[None]:
        """Stop the queries of another cursor too while the block runs."""
        self.cursors.append(cursor)
        try:
            yield
        finally:
            self.cursors.remove(cursor)

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


@contextmanager
def limited(statement: Statement, seconds: float) -> Iterator[None]:
    """Run a block as this statement, which is stopped where it takes longer.

    Raises
    ------
    Stopped
        It was; the text says what the books know.
    """
    done, statement.seconds = threading.Event(), seconds

    def watch() -> None:
        wait = seconds
        while not done.wait(wait):
            statement.stop()  # again and again: an interrupt between two statements is lost
            wait = AGAIN

    thread = threading.Thread(target=watch, name="dpsql-clock", daemon=True)
    thread.start()
    try:
        with interruption.call(statement):
            yield
            interruption.check()
    finally:
        done.set()
        thread.join()  # the cursor is another statement's afterwards


def until_due(every: float, spent: float) -> float:
    """Return how many seconds an answer waits that leaves at a whole multiple of so many seconds; 0: it leaves at once.

    Examples
    --------
    >>> until_due(1.0, 2.25), until_due(1.0, 0.0), until_due(0.0, 2.25)
    (0.75, 1.0, 0.0)
    """
    return max(1, math.ceil(spent / every)) * every - spent if every > 0 else 0.0


class Turns:
    """How many statements run at once: ``each`` of one analyst, ``most`` of all; some more may wait, first come, first served."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._running: dict[str, int] = {}
        self._queue: list[tuple[str, threading.Event]] = []
        self._guard = threading.Lock()

    @contextmanager
    def turn(self, name: str) -> Iterator[bool]:
        """Wait for a turn; the block is told whether it has one."""
        has_turn = self._take(name)
        try:
            yield has_turn
        finally:
            if has_turn:
                with self._guard:
                    self._running[name] -= 1
                    if not self._running[name]:
                        del self._running[name]
                    self._next()

    def _take(self, name: str) -> bool:
        with self._guard:
            if self._free(name):  # then nobody waits for this turn: `_next` would have given it away
                self._running[name] = self._running.get(name, 0) + 1
                return True
            if sum(waiting == name for waiting, _ in self._queue) >= self._limits.waiting:
                return False
            mine = (name, threading.Event())
            self._queue.append(mine)
        # outside of the lock: others take and give turns meanwhile
        if mine[1].wait(self._limits.patience):
            return True
        with self._guard:
            if mine in self._queue:
                self._queue.remove(mine)
                return False
            return True  # given at the last moment

    def _free(self, name: str) -> bool:
        return self._running.get(name, 0) < self._limits.each and sum(self._running.values()) < self._limits.most

    def _next(self) -> None:
        """Give turns to those who wait and may run, and wake nobody else."""
        for waiting in list(self._queue):
            name, event = waiting
            if self._free(name):
                self._queue.remove(waiting)
                self._running[name] = self._running.get(name, 0) + 1
                event.set()
