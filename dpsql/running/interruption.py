"""Stopping a call: Ctrl-C in the main thread, `dpsql.interrupt` from any other one, and what the user then reads.

DuckDB looks for a pending Ctrl-C between its tasks only, and raises out of a query that goes on running in its other threads:
closing or reusing the connection can then wait for the whole query, or crash. A query stops cleanly when its connection is
interrupted. So while a call runs in the main thread, a watcher learns of the signal at once (by `signal.set_wakeup_fd`, whatever
the main thread is doing) and interrupts the call's cursors; then Python's own handler raises KeyboardInterrupt as always.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, Protocol

_current: ContextVar[Running | None] = ContextVar("running", default=None)
AGAIN = 0.05  # seconds: an interrupt between two statements is lost on the next one
_NOTHING = "interrupted; nothing was charged"


class Interruptible(Protocol):
    """A DuckDB connection or cursor."""

    def interrupt(self) -> None:
        """Stop the query that it runs; nothing where it runs none."""


class Stopped(Exception):  # an event, not an error
    """The call was asked to stop by `dpsql.interrupt`."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C stopped a call. The text says what the books know: nothing charged, charged and to be finished, or bought."""


class Running:
    """One call, its cursors, and whether it was asked to stop."""

    def __init__(self, cursor: Interruptible, text: str = _NOTHING) -> None:
        self._text = text
        self.cursors: list[Interruptible] = [cursor]
        self.stopped = False  # by another thread
        self.signalled = False  # by Ctrl-C
        self.books: Callable[[], str] | None = None
        self.outer: Running | None = None

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C arrived."""
        return self.signalled or (self.outer is not None and self.outer.interrupted)

    def interrupt(self) -> None:
        """Stop the queries that run now."""
        for cursor in list(self.cursors):
            with contextlib.suppress(Exception):  # a cursor that was closed meanwhile
                cursor.interrupt()

    def stop(self) -> None:
        """Ask the call to stop, from any thread."""
        self.stopped = True
        self.interrupt()

    def text(self) -> str:
        """Return what the books know of the release that the call was about."""
        if self.books is None:
            return self._text
        try:
            return self.books()
        except Exception:  # the database may be closing
            return "interrupted; FROM dp_ledger() shows whether the release was charged; the same call never charges it twice"


def check() -> None:
    """Raise `Stopped` where the call of this context was asked to stop. Nothing outside a call."""
    running = _current.get()
    if running is not None and running.stopped:
        raise Stopped("interrupted")


def stopping() -> bool:
    """Return whether the call of this context was asked to stop, by Ctrl-C or from another thread."""
    running = _current.get()
    while running is not None:
        if running.stopped or running.signalled:
            return True
        running = running.outer
    return False


def about(books: Callable[[], str]) -> None:
    """Say how to find out what the books know of this call's release, for the text of an interruption."""
    running = _current.get()
    if running is not None:
        running.books = books


@contextmanager
def _inside(running: Running, cursor: Interruptible) -> Iterator[None]:
    running.cursors.append(cursor)
    try:
        yield
    finally:
        running.cursors.remove(cursor)


@contextmanager
def call(running: Running) -> Iterator[None]:
    """Run a call so that it can be stopped.

    Raises
    ------
    Interrupted
        Ctrl-C arrived, whatever it was that the code below made of it.
    Stopped
        `Running.stop` was called.
    """
    running.outer = _current.get()
    token = _current.set(running)
    try:
        with _watched(running) if running.outer is None else _inside(running.outer, running):
            yield
    except BaseException as error:
        if running.interrupted or isinstance(error, KeyboardInterrupt):
            raise _told(running) from None
        if running.stopped and isinstance(error, Exception):
            raise Stopped(running.text()) from None
        raise
    finally:
        _current.reset(token)
    if running.interrupted:  # swallowed below; what was done is done, and the caller wants to stop
        raise _told(running)


def _told(running: Running) -> Interrupted:
    """Return what the user reads; a call around this one says the same."""
    text = running.text()
    if running.outer is not None:
        running.outer.books = lambda: text
    return Interrupted(text)


@contextmanager
def _watched(running: Running) -> Iterator[None]:
    """Pass Ctrl-C on to the cursors while the block runs in the main thread; elsewhere signals do not arrive."""
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return
    seen = threading.Event()  # the main thread has noticed: no more interrupts, they would hit its clean-up

    def handler(number: int, frame: FrameType | None) -> Any:
        unwinding = not seen.is_set() and type(sys.exc_info()[1]).__name__ == "InterruptException"
        seen.set()
        running.signalled = True
        if unwinding:  # the watcher's interrupt was faster: raising again would cut short what cleans up
            return
        try:
            previous(number, frame)
        except BaseException:
            running.interrupt()
            raise
        running.signalled = False  # the application's own handler wants to go on

    with _listening(lambda: _pass_on(running, seen, previous)):
        signal.signal(signal.SIGINT, handler)
        try:
            yield
        finally:
            seen.set()
            signal.signal(signal.SIGINT, previous)


def _pass_on(running: Running, seen: threading.Event, previous: Any) -> None:
    """Interrupt the cursors until the main thread has noticed; an application's own handler decides itself."""
    if previous is not signal.default_int_handler:
        return
    running.signalled = True
    while not seen.is_set():
        running.interrupt()
        seen.wait(AGAIN)


@contextmanager
def _listening(arrived: Callable[[], None]) -> Iterator[None]:
    """Call ``arrived`` in a thread of its own as soon as SIGINT arrives; other listeners get their bytes afterwards."""
    inner, outer = socket.socketpair()
    outer.setblocking(False)
    heard = bytearray()

    def listen() -> None:
        while data := inner.recv(64):
            heard.extend(data)
            if signal.SIGINT in data:
                arrived()

    thread = threading.Thread(target=listen, name="dpsql-interrupt", daemon=True)
    thread.start()
    before = signal.set_wakeup_fd(outer.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        outer.close()  # ends the thread
        thread.join()
        inner.close()
        if before != -1 and heard:
            with contextlib.suppress(OSError):
                os.write(before, bytes(heard))
